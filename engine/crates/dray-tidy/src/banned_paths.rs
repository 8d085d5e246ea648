//! Paths in code that a pure crate must not use: files, sockets, threads, clocks, randomness, the
//! environment.
//!
//! A pure crate gets time, randomness and files as arguments, so that the simulator can run the
//! same code. The rule looks at names, so it also checks code in macros and behind `cfg`. It
//! follows `use` trees and renames (`use std::time as t`). Only code that hides a name on purpose
//! escapes the rule.

use std::collections::BTreeMap;

use crate::Finding;
use crate::lex::{self, Token};

/// A banned path, with all paths below it, and the alternative to name in the finding.
#[derive(Debug)]
pub struct Ban {
    /// Path prefix, such as `std::fs`.
    pub path: &'static str,
    /// Text for the finding: the alternative to the path.
    pub instead: &'static str,
}

/// Paths that no pure crate may use.
pub const PURE_BANS: &[Ban] = &[
    Ban {
        path: "std::fs",
        instead: "take a trait; the runtime brings files",
    },
    Ban {
        path: "std::net",
        instead: "sockets live in dray-net",
    },
    Ban {
        path: "std::os",
        instead: "the system lives in dray-runtime and the stores",
    },
    Ban {
        path: "std::process",
        instead: "return an error to the edge",
    },
    Ban {
        path: "std::env",
        instead: "take the value as an argument",
    },
    Ban {
        path: "std::thread",
        instead: "threads live in dray-link and above",
    },
    Ban {
        path: "std::time::Instant",
        instead: "take `now` as an argument",
    },
    Ban {
        path: "std::time::SystemTime",
        instead: "take `now` as an argument",
    },
    Ban {
        path: "std::time::UNIX_EPOCH",
        instead: "take `now` as an argument",
    },
    Ban {
        path: "std::hash::RandomState",
        instead: "a replayed seed must give the same order",
    },
    Ban {
        path: "std::collections::hash_map::RandomState",
        instead: "a replayed seed must give the same order",
    },
    Ban {
        path: "rand",
        instead: "take the drawn value as an argument",
    },
    Ban {
        path: "getrandom",
        instead: "take the drawn value as an argument",
    },
    Ban {
        path: "tokio",
        instead: "async lives in dray-endpoint",
    },
    Ban {
        path: "rustix",
        instead: "the system lives in dray-runtime and the stores",
    },
    Ban {
        path: "libc",
        instead: "the system lives in dray-runtime and the stores",
    },
];

/// Paths below a banned path that are permitted, because they only name a value. An address, for
/// example, opens no socket.
const PURE_VALUES: &[&str] = &[
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
];

/// Returns a finding for every banned path in the source of a pure crate. Unit tests are checked
/// too.
pub fn check(path: &str, source: &str, bans: &[Ban]) -> Vec<Finding> {
    let split = lex::split(source);
    let tokens = lex::tokens(&split.code);
    let (imports, aliases) = imports(&tokens);
    let mut named = imports;
    named.extend(paths(&tokens, &aliases));
    let mut findings: Vec<(usize, Finding)> = Vec::new();
    for (line, name) in named {
        let name = name
            .replacen("core::", "std::", 1)
            .replacen("alloc::", "std::", 1);
        if PURE_VALUES.iter().any(|value| is_below(&name, value)) {
            continue;
        }
        let Some(ban) = bans.iter().find(|ban| is_below(&name, ban.path)) else {
            continue;
        };
        let message = format!("`{}` in a pure crate: {}", ban.path, ban.instead);
        findings.push((line, Finding::at_line(path, line, message)));
    }
    findings.sort_by_key(|(line, _)| *line);
    let mut findings: Vec<_> = findings.into_iter().map(|(_, finding)| finding).collect();
    findings.dedup();
    findings
}

fn is_below(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

type Named = Vec<(usize, String)>;
type Aliases = BTreeMap<String, String>;

/// Returns two results: the paths in all `use` items, with trees expanded, and each imported name
/// with its full path.
fn imports(tokens: &[Token<'_>]) -> (Named, Aliases) {
    let mut named = Vec::new();
    let mut aliases = BTreeMap::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].text == "use" {
            at = use_tree(tokens, at + 1, "", &mut named, &mut aliases);
        } else {
            at += 1;
        }
    }
    (named, aliases)
}

/// Reads one tree of a `use` item from token `at`, below `prefix`. Returns the position after the
/// tree.
fn use_tree(
    tokens: &[Token<'_>],
    mut at: usize,
    prefix: &str,
    named: &mut Named,
    aliases: &mut Aliases,
) -> usize {
    let mut path = prefix.to_owned();
    let mut line = None;
    let mut bound: Option<String> = None;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "{" => {
                at += 1;
                while tokens
                    .get(at)
                    .is_some_and(|token| token.text != "}" && token.text != ";")
                {
                    at = use_tree(tokens, at, &path, named, aliases);
                    if tokens.get(at).is_some_and(|token| token.text == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            "as" => {
                bound = tokens.get(at + 1).map(|token| token.text.to_owned());
                at += 1;
            }
            "::" => {}
            "self" if !path.is_empty() => {}
            text => {
                if !path.is_empty() {
                    path.push_str("::");
                }
                path.push_str(text);
                line = Some(token.line);
            }
        }
        at += 1;
    }
    let line = line.or_else(|| tokens.get(at.saturating_sub(1)).map(|token| token.line));
    if let Some(line) = line {
        let name = bound.or_else(|| path.rsplit("::").next().map(ToOwned::to_owned));
        aliases.extend(name.map(|name| (name, path.clone())));
        named.push((line, path));
    }
    at
}

/// Returns every path in the code. If its first segment is an imported name, the segment is
/// replaced by the full path of the import.
fn paths(tokens: &[Token<'_>], aliases: &Aliases) -> Named {
    let mut named = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // A name after a dot is a field or a method, and no import can change its meaning.
        let is_member = at > 0 && tokens[at - 1].text == ".";
        if is_member || !is_word(tokens[at].text) {
            at += 1;
            continue;
        }
        let line = tokens[at].line;
        let first = tokens[at].text;
        let mut path = aliases
            .get(first)
            .cloned()
            .unwrap_or_else(|| first.to_owned());
        let is_alone = tokens.get(at + 1).is_none_or(|token| token.text != "::");
        while tokens.get(at + 1).is_some_and(|token| token.text == "::")
            && tokens.get(at + 2).is_some_and(|token| is_word(token.text))
        {
            path.push_str("::");
            path.push_str(tokens[at + 2].text);
            at += 2;
        }
        at += 1;
        // A single word such as `rand` or `libc` may be a variable. A path with several segments,
        // or an imported name, is no variable.
        if !is_alone {
            named.push((line, path));
        }
    }
    named
}

fn is_word(text: &str) -> bool {
    text.chars()
        .next()
        .is_some_and(|c| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> Vec<String> {
        check("f.rs", source, PURE_BANS)
            .into_iter()
            .map(|finding| finding.place)
            .collect()
    }

    #[test]
    fn every_ban_is_found_by_its_full_path_and_by_import() {
        for ban in PURE_BANS {
            let by_path = format!("fn f() {{ let _ = ::{}::x(); }}", ban.path);
            assert_eq!(lines(&by_path), ["f.rs:1"], "{}", ban.path);
            assert_eq!(
                lines(&format!("use {}::x;", ban.path)),
                ["f.rs:1"],
                "{}",
                ban.path
            );
        }
    }

    #[test]
    fn trees_renames_and_partial_imports_are_followed() {
        assert_eq!(
            lines("use std::{\n    collections::BTreeMap,\n    fs::{self, File},\n};"),
            ["f.rs:3"]
        );
        assert_eq!(
            lines("use std::time as t;\nfn f() { t::Instant::now(); }"),
            ["f.rs:2"]
        );
        assert_eq!(lines("use std::{time::{Duration, Instant}};"), ["f.rs:1"]);
        assert_eq!(
            lines("use std::time;\nfn f(at: time::SystemTime) {}"),
            ["f.rs:2"]
        );
        assert_eq!(
            lines("use core::time::Duration;\nuse std::thread as t;"),
            ["f.rs:2"]
        );
    }

    #[test]
    fn addresses_pass_and_sockets_beside_them_do_not() {
        assert_eq!(lines("use std::net::IpAddr;"), Vec::<String>::new());
        assert_eq!(
            lines("use std::net::IpAddr;\nuse std::net::{IpAddr, TcpStream};"),
            ["f.rs:2"]
        );
        assert_eq!(lines("use std::net::*;"), ["f.rs:1"]);
    }

    #[test]
    fn innocent_neighbours_pass() {
        let source = concat!(
            "//! No std::fs here.\n",
            "use std::time::Duration;\n",
            "use crate::rand::Rng;\n",
            "use super::{env, thread};\n",
            "/// Not `std::thread`.\n",
            "fn f(rand: u64) -> u64 { env::x(); thread::y(); let _ = \"std::net\"; rand }\n",
        );
        assert_eq!(lines(source), Vec::<String>::new());
    }
}

//! Import circles between the modules of one crate. They are refused, because a reader of one
//! module in a circle has to read all modules of the circle.
//!
//! A module and its ancestors may import each other, because a parent is read together with its
//! children.

use crate::Finding;
use crate::lex;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the module path of a source file. `rest` is the path of the file below the crate's
/// folder. The path of the crate's root is empty. Returns `None` for binaries and for files of
/// tests.
fn module_of(rest: &str) -> Option<Vec<&str>> {
    let name = rest.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut parts: Vec<&str> = name.split('/').collect();
    if parts
        .iter()
        .any(|part| *part == "tests" || part.ends_with("_tests"))
    {
        return None;
    }
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    Some(parts)
}

/// Returns the code before the unit tests at the end of a file.
fn without_tests(code: &str) -> &str {
    code.find("#[cfg(test)]\nmod ")
        .map_or(code, |start| &code[..start])
}

/// Returns all paths that begin with `crate`, `super` or `self`. Each branch of a `{}` gives its
/// own path.
fn paths(code: &str) -> Vec<Vec<String>> {
    let tokens = lex::tokens(code);
    let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < texts.len() {
        let begins = matches!(texts[at], "crate" | "super" | "self")
            && texts.get(at + 1) == Some(&"::")
            && (at == 0 || texts[at - 1] != "::");
        if begins {
            at = branch(&texts, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path from token `at`. Returns the index after the path.
fn branch(texts: &[&str], mut at: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    loop {
        match texts.get(at) {
            Some(&"{") => {
                at += 1;
                while let Some(text) = texts.get(at) {
                    match *text {
                        "}" => return at + 1,
                        "," => at += 1,
                        _ => at = branch(texts, at, &path, found).max(at + 1),
                    }
                }
                return at;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                path.push((*word).to_owned());
                at += 1;
            }
            _ => break,
        }
        if texts.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    // Skip the new name of a renamed import.
    if texts.get(at) == Some(&"as") {
        at += 2;
    }
    found.push(path);
    at
}

/// Returns the module that `path` names, or the module of the item that `path` names. `here` is the
/// module that contains `path`.
fn target(here: &[&str], path: &[String], modules: &BTreeSet<String>) -> String {
    let mut parts: Vec<&str> = here.to_vec();
    let mut rest = path.iter().map(String::as_str).peekable();
    match rest.next() {
        Some("crate") => parts.clear(),
        Some("super") => {
            parts.pop();
        }
        _ => {}
    }
    while rest.next_if_eq(&"super").is_some() {
        parts.pop();
    }
    for word in rest {
        let mut below = parts.clone();
        below.push(word);
        if !modules.contains(&below.join("::")) {
            break;
        }
        parts = below;
    }
    parts.join("::")
}

fn is_ancestor(upper: &str, lower: &str) -> bool {
    upper.is_empty()
        || lower == upper
        || lower
            .strip_prefix(upper)
            .is_some_and(|rest| rest.starts_with("::"))
}

/// Returns the import circles of one crate, each as a sorted list of modules. `files` has the
/// crate's sources: the path below the crate's folder, and the text.
#[must_use]
pub fn find(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources: Vec<(Vec<&str>, &str)> = files
        .iter()
        .filter_map(|(rest, text)| Some((module_of(rest)?, *text)))
        .collect();
    let modules: BTreeSet<String> = sources.iter().map(|(parts, _)| parts.join("::")).collect();
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (parts, text) in &sources {
        let here = parts.join("::");
        let code = lex::split(text).code;
        for path in paths(without_tests(&code)) {
            let there = target(parts, &path, &modules);
            if !is_ancestor(&there, &here) && !is_ancestor(&here, &there) {
                arrows.entry(here.clone()).or_default().insert(there);
            }
        }
    }
    let reach: BTreeMap<&String, BTreeSet<&String>> = modules
        .iter()
        .map(|module| (module, reachable(module, &arrows)))
        .collect();
    let mut circles = BTreeSet::new();
    for module in &modules {
        let circle: Vec<String> = reach[module]
            .iter()
            .filter(|other| reach[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// Returns the modules that `from` imports, directly or through other modules.
fn reachable<'a>(
    from: &str,
    arrows: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for there in arrows.get(module).into_iter().flatten() {
            if reached.insert(there) {
                next.push(there);
            }
        }
    }
    reached
}

/// Returns a finding for every circle of the crate.
#[must_use]
pub fn check(krate: &str, files: &[(&str, &str)]) -> Vec<Finding> {
    let finding = |circle: &Vec<String>| {
        let message =
            format!("these modules import each other, so that none is read alone: {circle:?}");
        Finding::at(krate, message)
    };
    find(files).iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIRCLE: &[(&str, &str)] = &[
        ("src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("src/a.rs", "use crate::{b::B, c};\n"),
        ("src/b.rs", "fn f() { super::a::g(); }\n"),
        ("src/c.rs", "// use crate::a;\n"),
    ];

    #[test]
    fn two_modules_that_import_each_other_are_found() {
        assert_eq!(find(CIRCLE), [["a", "b"]]);
        assert_eq!(check("x", CIRCLE).len(), 1);
        assert_eq!(check("x", &CIRCLE[..2]), []);
    }

    #[test]
    fn a_longer_circle_through_folders_is_found() {
        let files = [
            ("src/net/mod.rs", "use crate::other;\n"),
            ("src/net/dial.rs", "use super::hub::{Hub, Way as W};\n"),
            ("src/net/hub.rs", "use crate::link;\n"),
            ("src/link.rs", "use crate::{other, net::dial::Dial};\n"),
            ("src/other.rs", ""),
        ];
        assert_eq!(find(&files), [["link", "net::dial", "net::hub"]]);
    }

    #[test]
    fn parents_and_tests_may_be_imported() {
        let files = [
            ("src/lib.rs", "use crate::a::b::B;\n"),
            ("src/a.rs", "use self::b::B;\n"),
            ("src/a/b.rs", "use super::A;\nuse crate::Error;\n"),
            ("src/a/tests.rs", "use crate::c;\n"),
            ("src/c.rs", "use crate::a;\n"),
            ("src/d.rs", "use crate::c;\n"),
            (
                "src/a/e.rs",
                "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\n",
            ),
        ];
        assert_eq!(find(&files), Vec::<Vec<String>>::new());
    }
}

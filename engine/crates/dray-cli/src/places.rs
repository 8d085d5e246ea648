//! Commands about what lies beneath an endpoint's roots: listed, looked at, summed, removed.

use crate::args::{Algorithm, At, Rm, Sum};
use crate::asks::{number, quoted, text};
use crate::exit::{Exit, Stop, usage};
use crate::output;
use crate::peer::{self, odd_answer};
use dray_core::{Error, Result};
use dray_endpoint::client::Client;
use hyper::Method;
use serde_json::{Value, json};

/// Entries that one answer may hold.
const PAGE: u32 = 1_000;

/// What a URL names.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// An endpoint, and with it all its roots.
    Roots(String),
    /// A path at an endpoint.
    Path(String, String),
}

/// What a URL names; for an endpoint alone its name is enough.
fn place(url: &str) -> Result<Place> {
    let rest = match url.strip_prefix("dray://") {
        None if url.trim_end_matches('/').contains('/') => return Err(no_place(url)),
        rest => rest.unwrap_or(url),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if host.is_empty() {
        return Err(no_place(url));
    }
    let address = peer::endpoint(Some(host))?;
    Ok(match path.trim_end_matches('/').is_empty() {
        true => Place::Roots(address),
        false => Place::Path(address, path.to_owned()),
    })
}

fn no_place(url: &str) -> Error {
    usage(
        format!("{url:?} is no place at an endpoint"),
        "write dray://HOST[:PORT]/ROOT/PATH",
    )
}

/// The endpoint and the path of a URL.
pub(crate) fn split(url: &str) -> Result<(String, String)> {
    match place(url)? {
        Place::Path(address, path) => Ok((address, path)),
        Place::Roots(_) => Err(no_place(url)),
    }
}

fn at(at: &At) -> Result<(Client, String)> {
    let (address, path) = split(&at.url)?;
    Ok((peer::client(&at.ask.who, &address)?, path))
}

/// Runs `dray ls`.
pub(crate) fn list(at: &At) -> Result<Exit, Stop> {
    let (address, path) = match place(&at.url)? {
        Place::Roots(address) => return roots(at, &address),
        Place::Path(address, path) => (address, path),
    };
    let client = peer::client(&at.ask.who, &address)?;
    let mut cursor = String::new();
    let mut all = Vec::new();
    loop {
        let query = format!(
            "/v1/storage/list?path={}&limit={PAGE}{cursor}",
            quoted(&path)
        );
        let answer = client.call_and_wait(Method::GET, &query, None)?;
        let entries = answer.get("entries").and_then(Value::as_array);
        for entry in entries.ok_or_else(|| odd_answer("entries"))? {
            if at.ask.json {
                all.push(entry.clone());
            } else {
                output::result(&entry_line(entry));
            }
        }
        let next = answer.get("next").and_then(Value::as_str);
        let Some(next) = next else { break };
        cursor = format!("&cursor={}", quoted(next));
    }
    if at.ask.json {
        output::result(&json!({"entries": all}).to_string());
    }
    Ok(Exit::Safe)
}

/// An endpoint's roots: what a path begins with.
fn roots(at: &At, address: &str) -> Result<Exit, Stop> {
    let client = peer::client(&at.ask.who, address)?;
    let about = client.call_and_wait(Method::GET, "/v1/endpoint", None)?;
    let roots = about.get("roots").and_then(Value::as_array);
    let roots = roots.ok_or_else(|| odd_answer("roots"))?;
    if at.ask.json {
        let entries = roots.iter().map(|root| {
            let name = root.get("name").cloned().unwrap_or_default();
            let path = format!("/{}", name.as_str().unwrap_or_default());
            let can = |right: &str| root.get(right).cloned().unwrap_or_default();
            json!({"path": path, "name": name, "type": "directory", "read": can("read"),
                "write": can("write"), "stage": can("stage")})
        });
        let entries: Vec<Value> = entries.collect();
        output::result(&json!({"entries": entries}).to_string());
        return Ok(Exit::Safe);
    }
    for root in roots {
        output::result(&root_line(root));
    }
    Ok(Exit::Safe)
}

/// A root, and what the caller may do in all of it.
pub(crate) fn root_line(root: &Value) -> String {
    let can = |right: &&str| root.get(*right).and_then(Value::as_bool) == Some(true);
    let rights: Vec<&str> = ["read", "write", "stage"].into_iter().filter(can).collect();
    format!("/{}: {}", text(root, "name"), rights.join(", "))
}

fn entry_line(entry: &Value) -> String {
    let kind = match entry.get("type").and_then(Value::as_str) {
        Some("directory") => 'd',
        Some("symlink") => 'l',
        Some("file") => '-',
        _ => '?',
    };
    let link = match text(entry, "link") {
        link if link.is_empty() => link,
        link => format!(" -> {link}"),
    };
    format!(
        "{kind} {:>4} {:>12} {} {}{link}",
        text(entry, "mode"),
        number(entry, "", "size"),
        text(entry, "modified_at"),
        text(entry, "name"),
    )
}

/// Runs `dray stat`.
pub(crate) fn stat(place: &At) -> Result<Exit, Stop> {
    let (client, path) = at(place)?;
    let query = format!("/v1/storage/stat?path={}", quoted(&path));
    let entry = client.call_and_wait(Method::GET, &query, None)?;
    output::result(&match place.ask.json {
        true => entry.to_string(),
        false => entry_line(&entry),
    });
    Ok(Exit::Safe)
}

/// Runs `dray rm`.
pub(crate) fn remove(rm: &Rm) -> Result<Exit, Stop> {
    let (client, path) = at(&rm.at)?;
    let body = json!({"path": path, "recursive": rm.recursive});
    let answer = client.call_and_wait(Method::POST, "/v1/storage/rm", Some(&body))?;
    output::result(&match rm.at.ask.json {
        true => answer.to_string(),
        false => format!("removed {}", number(&answer, "", "removed")),
    });
    Ok(Exit::Safe)
}

/// Runs `dray checksum`.
pub(crate) fn checksum(sum: &Sum) -> Result<Exit, Stop> {
    let (client, path) = at(&sum.at)?;
    let algorithm = match sum.algorithm {
        Algorithm::Adler32 => "adler32",
        Algorithm::Crc32c => "crc32c",
    };
    let body = json!({"path": path, "algorithm": algorithm});
    let answer = client.call_and_wait(Method::POST, "/v1/storage/checksum", Some(&body))?;
    output::result(&match sum.at.ask.json {
        true => answer.to_string(),
        false => format!(
            "{algorithm}:{} {}",
            text(&answer, "checksum"),
            text(&answer, "path")
        ),
    });
    Ok(Exit::Safe)
}

#[cfg(test)]
mod tests {
    use super::{Place, place, split};

    #[test]
    fn a_place_has_a_host_and_a_path() {
        let (address, path) = split("dray://a.example/data/x").expect("a place");
        assert_eq!(
            (address.as_str(), path.as_str()),
            ("a.example:4735", "/data/x")
        );
        for wrong in [
            "dray://a.example",
            "/data/x",
            "http://a/data",
            "dray:///data/x",
            "a.example/data/x",
        ] {
            let error = split(wrong).expect_err(wrong);
            assert!(error.remedy.contains("dray://HOST"), "{error:?}");
        }
    }

    #[test]
    fn an_endpoint_alone_is_asked_for_its_roots_and_nothing_else_is() {
        for all in [
            "dray://a.example",
            "dray://a.example/",
            "a.example",
            "a.example/",
        ] {
            let roots = Place::Roots("a.example:4735".to_owned());
            assert_eq!(place(all).expect("an endpoint"), roots, "{all}");
        }
        for wrong in [
            "a.example/data/x",
            "/data",
            "/",
            "",
            "dray://",
            "http://a.example/x",
        ] {
            let error = place(wrong).expect_err(wrong);
            assert!(error.remedy.contains("dray://HOST"), "{error:?}");
        }
    }
}

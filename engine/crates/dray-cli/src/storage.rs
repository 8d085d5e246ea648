//! Commands on files and folders at an endpoint: `ls`, `stat`, `rm` and `checksum`.

use crate::args::{Algorithm, At, Rm, Sum};
use crate::exit::{Exit, Stop, usage};
use crate::output;
use crate::peer;
use crate::transfers::quoted;
use dray_api::{ChecksumAnswer, EndpointAnswer, Entry, EntryList, EntryType, RmAnswer, RootAnswer};
use dray_client::Client;
use dray_core::url::{self, SCHEME, Url};
use dray_core::{Error, Result};
use hyper::Method;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Maximum number of entries in one answer of the endpoint.
const PAGE: u32 = 1_000;

/// The meaning of a URL argument.
#[derive(Debug, PartialEq, Eq)]
enum Location {
    /// An endpoint, without a path.
    Roots(String),
    /// A path at an endpoint.
    Path(Url),
}

/// Parses a URL argument. A URL without a path means the endpoint itself.
fn location(typed: &OsStr) -> Result<Location> {
    let typed = typed.as_bytes();
    let is_bare =
        !Url::is_meant(typed) && !typed.strip_suffix(b"/").unwrap_or(typed).contains(&b'/');
    let whole = match is_bare {
        true => [SCHEME.as_bytes(), typed].concat(),
        false => typed.to_vec(),
    };
    let url = Url::parse(&whole).map_err(|why| bad_location(typed, why))?;
    Ok(match url.path.is_empty() {
        true => Location::Roots(url.address),
        false => Location::Path(url),
    })
}

fn bad_location(typed: &[u8], why: &str) -> Error {
    usage(
        format!("\"{}\": {why}", url::shown(typed)),
        "write dray://HOST[:PORT]/ROOT/PATH",
    )
}

/// Parses the URL of a path at an endpoint.
pub(crate) fn split(typed: &OsStr) -> Result<Url> {
    match location(typed)? {
        Location::Path(url) => Ok(url),
        Location::Roots(_) => Err(bad_location(
            typed.as_bytes(),
            "the location names no file or \
            folder",
        )),
    }
}

fn at(at: &At) -> Result<(Client, String)> {
    let url = split(&at.url)?;
    Ok((peer::client(&at.ask.who, &url.address)?, url.api_path()))
}

/// Runs `dray ls`.
pub(crate) fn list(at: &At) -> Result<Exit, Stop> {
    let url = match location(&at.url)? {
        Location::Roots(address) => return roots(at, &address),
        Location::Path(url) => url,
    };
    let client = peer::client(&at.ask.who, &url.address)?;
    let mut cursor = String::new();
    let mut all = Vec::new();
    loop {
        let query = format!(
            "/v1/storage/list?path={}&limit={PAGE}{cursor}",
            quoted(&url.api_path())
        );
        let answer = client.ask::<EntryList>(Method::GET, &query, None)?;
        if at.ask.json {
            let entries = answer.json.get("entries").and_then(Value::as_array);
            all.extend(entries.into_iter().flatten().cloned());
        } else {
            for entry in &answer.read.entries {
                output::result(&entry_line(entry));
            }
        }
        let Some(next) = answer.read.next else { break };
        cursor = format!("&cursor={}", quoted(&next));
    }
    if at.ask.json {
        output::result(&json!({"entries": all}).to_string());
    }
    Ok(Exit::Safe)
}

/// Lists the roots of an endpoint. The first name of every path is the name of a root.
fn roots(at: &At, address: &str) -> Result<Exit, Stop> {
    let client = peer::client(&at.ask.who, address)?;
    let about = client.ask::<EndpointAnswer>(Method::GET, "/v1/endpoint", None)?;
    let roots = &about.read.roots;
    if at.ask.json {
        let entries = roots.iter().map(|root| {
            json!({"path": format!("/{}", root.name), "name": root.name, "type": "directory",
                "read": root.read, "write": root.write, "stage": root.stage})
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

/// Returns the output line of a root, with the caller's rights on the root.
pub(crate) fn root_line(root: &RootAnswer) -> String {
    let rights = [
        (root.read, "read"),
        (root.write, "write"),
        (root.stage, "stage"),
    ];
    let rights = rights.into_iter().filter(|(has_it, _)| *has_it);
    let rights: Vec<&str> = rights.map(|(_, name)| name).collect();
    format!("/{}: {}", output::one_line(&root.name), rights.join(", "))
}

fn entry_line(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryType::Directory => 'd',
        EntryType::Symlink => 'l',
        EntryType::File => '-',
        EntryType::Other => '?',
    };
    let link = match &entry.link {
        None => String::new(),
        Some(link) => format!(" -> {}", output::one_line(link)),
    };
    format!(
        "{kind} {:>4} {:>12} {} {}{link}",
        output::one_line(&entry.mode),
        entry.size,
        entry.modified_at,
        output::one_line(&entry.name),
    )
}

/// Runs `dray stat`.
pub(crate) fn stat(place: &At) -> Result<Exit, Stop> {
    let (client, path) = at(place)?;
    let query = format!("/v1/storage/stat?path={}", quoted(&path));
    let entry = client.ask::<Entry>(Method::GET, &query, None)?;
    output::result(&match place.ask.json {
        true => entry.json.to_string(),
        false => entry_line(&entry.read),
    });
    Ok(Exit::Safe)
}

/// Runs `dray rm`.
pub(crate) fn remove(rm: &Rm) -> Result<Exit, Stop> {
    let (client, path) = at(&rm.at)?;
    let body = json!({"path": path, "recursive": rm.recursive});
    let answer = client.ask::<RmAnswer>(Method::POST, "/v1/storage/rm", Some(&body))?;
    output::result(&match rm.at.ask.json {
        true => answer.json.to_string(),
        false => format!("removed {}", answer.read.removed),
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
    let answer = client.ask::<ChecksumAnswer>(Method::POST, "/v1/storage/checksum", Some(&body))?;
    output::result(&match sum.at.ask.json {
        true => answer.json.to_string(),
        false => format!(
            "{algorithm}:{} {}",
            output::one_line(&answer.read.checksum),
            output::one_line(&answer.read.path)
        ),
    });
    Ok(Exit::Safe)
}

#[cfg(test)]
mod tests {
    use super::{Location, location, split};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_location_has_a_host_and_a_path() {
        let url = split(OsStr::new("dray://a.example/data/x")).expect("a place");
        assert_eq!(
            (url.address.as_str(), url.api_path().as_str()),
            ("a.example:4735", "/data/x")
        );
        for wrong in [
            "dray://a.example",
            "/data/x",
            "http://a/data",
            "dray:///data/x",
            "a.example/data/x",
            "dray://a.example/data/x%2Fy",
            "dray://a.example/data/x?y",
        ] {
            let error = split(OsStr::new(wrong)).expect_err(wrong);
            assert!(error.remedy.contains("dray://HOST"), "{error:?}");
        }
    }

    #[test]
    fn any_byte_of_a_name_may_be_written_as_it_is_or_escaped() {
        for typed in [&b"dray://a/d/\xff %25"[..], b"dray://a/d/%ff%20%25"] {
            let url = split(OsStr::from_bytes(typed)).expect("a place");
            assert_eq!(url.path, b"d/\xff %");
            assert_eq!(url.api_path(), "/d/%FF %25");
        }
    }

    #[test]
    fn only_a_bare_endpoint_lists_its_roots() {
        for all in [
            "dray://a.example",
            "dray://a.example/",
            "a.example",
            "a.example/",
        ] {
            let roots = Location::Roots("a.example:4735".to_owned());
            assert_eq!(
                location(OsStr::new(all)).expect("an endpoint"),
                roots,
                "{all}"
            );
        }
        for wrong in [
            "a.example/data/x",
            "/data",
            "/",
            "",
            "dray://",
            "http://a.example/x",
        ] {
            let error = location(OsStr::new(wrong)).expect_err(wrong);
            assert!(error.remedy.contains("dray://HOST"), "{error:?}");
        }
    }
}

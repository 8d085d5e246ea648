//! Parses the answers of a WebDAV server about a folder and its entries (PROPFIND of RFC 4918).

use crate::url::{decode, read_path};
use dray_core::{ModifiedTime, RelPath};
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

/// XML namespace of WebDAV.
const NAMESPACE: &str = "DAV:";

/// Body of a PROPFIND request.
pub(crate) const QUESTION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
<D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/><D:getlastmodified/>\
<D:getetag/></D:prop></D:propfind>";

/// A file or folder in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DavEntry {
    /// Path below the server's root.
    pub(crate) path: RelPath,
    pub(crate) is_folder: bool,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<ModifiedTime>,
    pub(crate) tag: Option<String>,
}

#[derive(Default)]
struct Response {
    href: String,
    is_folder: bool,
    size: String,
    modified: String,
    tag: String,
}

/// Parses the answer to a PROPFIND. `is_raw` is true if the server does not escape the paths in its
/// answers.
///
/// # Errors
/// The reason why the answer is not valid.
pub(crate) fn read(answer: &str, is_raw: bool) -> Result<Vec<DavEntry>, String> {
    let mut reader = NsReader::from_str(answer);
    let mut found = Vec::new();
    let mut response: Option<Response> = None;
    let mut text = String::new();
    loop {
        let (namespace, event) = reader
            .read_resolved_event()
            .map_err(|error| format!("the answer is not XML: {error}"))?;
        let is_dav = matches!(namespace, ResolveResult::Bound(name) if name.as_ref() == NAMESPACE);
        match event {
            Event::Start(start) => {
                text.clear();
                match start.local_name().as_ref() {
                    "response" if is_dav => response = Some(Response::default()),
                    "collection" if is_dav => is_folder(response.as_mut()),
                    _ => {}
                }
            }
            Event::Empty(empty) if is_dav && empty.local_name().as_ref() == "collection" => {
                is_folder(response.as_mut());
            }
            Event::Text(words) => text.push_str(&words.xml10_content()),
            Event::CData(words) => text.push_str(&words.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(character)) => text.push(character),
                _ => {
                    let name = reference.xml10_content();
                    let known = quick_xml::escape::resolve_predefined_entity(&name);
                    text.push_str(known.ok_or("the XML of the answer contains an unknown entity")?);
                }
            },
            Event::End(end) => {
                if let (true, Some(now)) = (is_dav, response.as_mut()) {
                    match end.local_name().as_ref() {
                        "href" if now.href.is_empty() => text.trim().clone_into(&mut now.href),
                        "getcontentlength" => text.trim().clone_into(&mut now.size),
                        "getlastmodified" => text.trim().clone_into(&mut now.modified),
                        "getetag" => text.trim().clone_into(&mut now.tag),
                        "response" => {
                            found
                                .extend(response.take().map(|now| close(now, is_raw)).transpose()?);
                        }
                        _ => {}
                    }
                }
                text.clear();
            }
            Event::Eof if response.is_some() => {
                return Err("the answer of the server ends too early".to_owned());
            }
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

fn is_folder(response: Option<&mut Response>) {
    if let Some(response) = response {
        response.is_folder = true;
    }
}

fn close(response: Response, is_raw: bool) -> Result<DavEntry, String> {
    let text = response.href.as_bytes();
    // `href` is either an absolute URL or a path on this server.
    let path = match response.href.split_once("://") {
        Some((_, rest)) if !response.href.starts_with('/') => {
            let slash = rest.find('/').unwrap_or(rest.len());
            &rest.as_bytes()[slash..]
        }
        _ => text,
    };
    let bad = |why: String| {
        format!(
            "the answer contains the name {:?}, which is not valid: {why}",
            response.href
        )
    };
    let path = match is_raw || decode(path).is_none() {
        true => read_raw(path),
        false => read_path(path),
    };
    Ok(DavEntry {
        path: path.map_err(bad)?,
        is_folder: response.is_folder,
        size: response.size.parse().ok(),
        modified: read_time(&response.modified),
        tag: strong(&response.tag),
    })
}

fn read_raw(text: &[u8]) -> Result<RelPath, String> {
    let names = text
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    let joined = names.collect::<Vec<_>>().join(&b'/');
    RelPath::parse(&joined).map_err(|error| error.cause)
}

/// Parses an HTTP date (RFC 9110, section 5.6.7). The resolution is one second.
pub(crate) fn read_time(text: &str) -> Option<ModifiedTime> {
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(ModifiedTime {
        seconds: i64::try_from(since.as_secs()).ok()?,
        nanoseconds: 0,
    })
}

/// Returns a strong entity tag, which identifies the exact bytes. Returns `None` for a weak tag
/// (RFC 9110, section 8.8.1).
pub(crate) fn strong(text: &str) -> Option<String> {
    let is_quoted = text.len() >= 2 && text.starts_with('"') && text.ends_with('"');
    is_quoted.then(|| text.to_owned())
}

/// Returns a weak or strong entity tag, without the prefix `W/` of a weak tag.
pub(crate) fn opaque(text: &str) -> Option<String> {
    let text = text.trim();
    strong(text.strip_prefix("W/").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::{DavEntry, opaque, read, strong};
    use dray_core::{ModifiedTime, RelPath};

    const HEAD: &str = "<?xml version=\"1.0\"?><a:multistatus xmlns:a='DAV:' xmlns:x='other'>";

    fn answer(href: &str, props: &str) -> String {
        format!(
            "{HEAD}<a:response><a:href>{href}</a:href><a:propstat><a:prop>{props}</a:prop>\
             </a:propstat></a:response></a:multistatus>"
        )
    }

    #[test]
    fn files_and_folders_are_told_apart_by_namespace() {
        let props = "<a:resourcetype><a:collection/></a:resourcetype>";
        let found = read(&answer("http://h/a%20b/", props), false).expect("good");
        assert_eq!(found.len(), 1);
        assert!(found[0].is_folder);
        assert_eq!(found[0].path.as_bytes(), b"a b");
        let props = "<x:collection/><a:getcontentlength> 7 </a:getcontentlength>\
            <a:getetag>\"t&amp;&#x41;\"</a:getetag>\
            <a:getlastmodified>Thu, 01 Jan 1970 00:01:00 GMT</a:getlastmodified>";
        let found = read(&answer("/d/f&amp;g", props), false).expect("good");
        assert_eq!(
            found,
            [DavEntry {
                path: RelPath::parse(b"d/f&g").expect("good"),
                is_folder: false,
                size: Some(7),
                modified: Some(ModifiedTime {
                    seconds: 60,
                    nanoseconds: 0
                }),
                tag: Some("\"t&A\"".to_owned()),
            }]
        );
    }

    #[test]
    fn a_server_that_writes_paths_as_they_are_is_read_so() {
        for (href, is_raw, path) in [
            ("/d/a b%.txt", false, "d/a b%.txt"),
            ("/d/a%20b", true, "d/a%20b"),
            ("/d/a%20b", false, "d/a b"),
            ("//d//e/", true, "d/e"),
        ] {
            let found = read(&answer(href, ""), is_raw).expect(href);
            assert_eq!(found[0].path.as_bytes(), path.as_bytes(), "{href}");
        }
    }

    #[test]
    fn malformed_answers_are_refused() {
        for wrong in [
            "<a><b></a>".to_owned(),
            format!("{HEAD}<a:response><a:href>&bomb;</a:href></a:response></a:multistatus>"),
            answer("/../etc/passwd", ""),
            answer("/a/%2e%2e/b", ""),
        ] {
            let _ = read(&wrong, false).expect_err(&wrong);
        }
        assert_eq!(read("<html/>", false), Ok(Vec::new()));
    }

    #[test]
    fn only_strong_tags_count() {
        assert_eq!(strong("\"a\""), Some("\"a\"".to_owned()));
        assert_eq!(strong("W/\"a\""), None);
        assert_eq!(strong(""), None);
        assert_eq!(strong("\""), None);
        assert_eq!(opaque("W/\"a\""), Some("\"a\"".to_owned()));
        assert_eq!(opaque("\"a\""), Some("\"a\"".to_owned()));
        assert_eq!(opaque("a"), None);
    }
}

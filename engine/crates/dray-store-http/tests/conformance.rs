//! Runs the conformance suite for read-only stores. A WebDAV server on a separate thread serves
//! each tree.

use dray_core::{End, RelPath};
use dray_store::conformance::{self, Item};
use dray_store::{ReadOnly, Store};
use dray_store_http::{Credentials, HttpStore, HttpUrl};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[test]
fn a_web_server_passes() {
    let report = conformance::run_read_only(&|items: &[Item]| -> Arc<dyn Store> {
        let url = format!("http://{}/", serve(items.to_vec()));
        let url = HttpUrl::read(url.as_bytes()).expect("a URL").expect("http");
        let credentials = Credentials::none();
        Arc::new(ReadOnly(HttpStore::new(&url, credentials, End::Source)))
    });
    assert!(report.is_passed(), "{report}");
}

/// Starts a server that serves the items on its own port until the process ends.
fn serve(items: Vec<Item>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    let items = Arc::new(items);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (items, stream) = (Arc::clone(&items), stream.expect("a connection"));
            std::thread::spawn(move || while answer(&stream, &items).is_some() {});
        }
    });
    address.to_string()
}

/// Fields of an HTTP request.
struct Asked {
    method: String,
    path: Vec<u8>,
    is_deep: bool,
    range: Option<(usize, usize)>,
}

/// Reads a request. Returns `None` if the client has closed the connection.
fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut is_deep, mut range, mut length) = (false, None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "depth" => is_deep = value == "1",
            "content-length" => length = value.parse().ok()?,
            "range" => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                range = Some((first.parse().ok()?, last.parse().ok()?));
            }
            _ => {}
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    Some(Asked {
        method,
        path: unescape(target.trim_matches('/')),
        is_deep,
        range,
    })
}

fn answer(mut stream: &TcpStream, items: &[Item]) -> Option<()> {
    let asked = read(stream)?;
    let found = items.iter().find(|one| one.path.as_bytes() == asked.path);
    let is_root = asked.path.is_empty();
    let mut body = Vec::new();
    let mut head = match (found, is_root, asked.method.as_str()) {
        (None, false, _) => "404 Not Found\r\n".to_owned(),
        (_, _, "PROPFIND") => {
            let shown = |item: &&Item| {
                let parent = item.path.parent().unwrap_or_else(RelPath::root);
                let is_inside = parent.as_bytes() == asked.path && asked.is_deep;
                item.path.as_bytes() == asked.path || is_inside
            };
            body = listing(items.iter().filter(shown), is_root).into_bytes();
            "207 Multi-Status\r\nContent-Type: application/xml\r\n".to_owned()
        }
        (
            Some(Item {
                bytes: Some(bytes),
                modified_seconds,
                ..
            }),
            _,
            _,
        ) => {
            let time = date(*modified_seconds);
            let (first, last) = asked.range.unwrap_or((0, bytes.len().saturating_sub(1)));
            let end = bytes.len().min(last + 1);
            body = bytes.get(first..end)?.to_vec();
            let status = match asked.range {
                Some(_) => format!(
                    "206 Partial Content\r\nContent-Range: bytes {first}-{}/{}\r\n",
                    end - 1,
                    bytes.len()
                ),
                None => "200 OK\r\n".to_owned(),
            };
            format!("{status}Last-Modified: {time}\r\n")
        }
        _ => "403 Forbidden\r\n".to_owned(),
    };
    let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
    if asked.method == "HEAD" {
        body.clear();
    }
    stream
        .write_all(format!("HTTP/1.1 {head}").as_bytes())
        .ok()?;
    stream.write_all(&body).ok()
}

/// Returns a multi-status answer for the entries, and for the root if `has_root` is true.
fn listing<'a>(items: impl Iterator<Item = &'a Item>, has_root: bool) -> String {
    let mut text = "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">".to_owned();
    let mut add = |path: &[u8], size: Option<usize>, seconds: i64| {
        let (kind, slash) = match size {
            Some(size) => (
                format!("<D:getcontentlength>{size}</D:getcontentlength>"),
                "",
            ),
            None => (
                "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
                "/",
            ),
        };
        let _ = write!(
            text,
            "<D:response><D:href>/{}{slash}</D:href><D:propstat><D:prop>{kind}<D:getlastmodified>{}\
             </D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>",
            escape(path),
            date(seconds)
        );
    };
    if has_root {
        add(b"", None, 0);
    }
    for item in items {
        let size = item.bytes.as_ref().map(Vec::len);
        add(item.path.as_bytes(), size, item.modified_seconds);
    }
    text + "</D:multistatus>"
}

fn date(seconds: i64) -> String {
    let since = Duration::from_secs(seconds.unsigned_abs());
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

fn escape(path: &[u8]) -> String {
    let byte = |byte: &u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    };
    path.iter().map(byte).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("an escape"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

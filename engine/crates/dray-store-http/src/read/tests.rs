use super::read_content_range;
use crate::server::FileVersion;
use crate::{Credentials, HttpStore, HttpUrl};
use dray_core::{End, ErrorKind, ModifiedTime, RelPath};
use dray_store::{ReadHandle, ReadPurpose, Readable as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// Starts a server with a file of two bytes. The server answers each request with the next head in
/// `heads`.
fn serve(heads: Vec<String>) -> HttpStore {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for head in heads {
            let (mut socket, _) = listener.accept().expect("accepts");
            let asked = BufReader::new(socket.try_clone().expect("clones"));
            for line in asked.lines() {
                if line.expect("reads").is_empty() {
                    break;
                }
            }
            let body = match head.starts_with("206") {
                true => "x",
                false => "",
            };
            let length = body.len();
            write!(
                socket,
                "HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .expect("writes");
        }
    });
    let url = format!("http://127.0.0.1:{port}/");
    let url = HttpUrl::read(url.as_bytes()).expect("good").expect("web");
    HttpStore::new(&url, Credentials::none(), End::Source)
}

/// Returns the head of an answer with one byte of the two-byte file, followed by the headers
/// `more`.
fn part(at: u64, more: &str) -> String {
    format!("206 Part\r\nContent-Range: bytes {at}-{at}/2{more}")
}

/// Opens the file of the server in the old version, which was listed.
fn open(store: &HttpStore) -> Box<dyn ReadHandle> {
    let path = RelPath::parse(b"a").expect("good");
    let known = FileVersion {
        size: 2,
        modified: Some(ModifiedTime {
            seconds: 784_111_777,
            nanoseconds: 0,
        }),
        tag: None,
    };
    store.server().remember(&path, known);
    store
        .open_read(&path, ReadPurpose::Transfer)
        .expect("opens")
}

#[test]
fn no_answer_of_another_version_is_excused_by_one_that_comes_later() {
    let modified = |time| format!("\r\nLast-Modified: {time}");
    let store = serve(vec![part(0, &modified(NEW)), part(1, &modified(OLD))]);
    let file = open(&store);
    let error = file.read_at(0, &mut [0]).expect_err("of the new one");
    assert_eq!(error.kind, ErrorKind::SourceChanged);
    // The server sent this answer, to another thread, before the file changed.
    assert_eq!(file.read_at(1, &mut [0]).expect("of the old one"), 1);
    assert_eq!(file.state().expect("known").modified.seconds, 784_111_777);
}

#[test]
fn an_answer_without_a_version_causes_a_state_query() {
    let modified = |time| format!("\r\nLast-Modified: {time}");
    let store = serve(vec![
        part(0, ""),
        part(1, &modified(OLD)),
        // The server refuses PROPFIND and HEAD. The state comes from a GET of the first byte.
        "405 No".to_owned(),
        "405 No".to_owned(),
        part(0, &modified(NEW)),
    ]);
    let file = open(&store);
    assert_eq!(file.read_at(0, &mut [0]).expect("reads"), 1);
    assert_eq!(file.read_at(1, &mut [0]).expect("reads"), 1);
    assert_eq!(file.state().expect("asked").modified.seconds, 784_111_778);
    // The next opening must not use the old state.
    assert_eq!(
        store.server().recall(&RelPath::parse(b"a").expect("good")),
        None
    );
}

#[test]
fn one_state_query_follows_the_last_read_without_a_version() {
    let no = || "405 No".to_owned();
    let first = |time| part(0, &format!("\r\nLast-Modified: {time}"));
    let store = serve(vec![
        part(0, ""),
        // The server refuses PROPFIND once and HEAD each time. The state comes from a GET of the
        // first byte.
        no(),
        no(),
        first(OLD),
        part(1, ""),
        no(),
        first(NEW),
    ]);
    let file = open(&store);
    let modified = || file.state().expect("known").modified.seconds;
    assert_eq!(file.read_at(0, &mut [0]).expect("reads"), 1);
    // The second call of `modified` sends no request.
    assert_eq!((modified(), modified()), (784_111_777, 784_111_777));
    assert_eq!(file.read_at(1, &mut [0]).expect("reads"), 1);
    // The changed state is final, so the second call returns it too.
    assert_eq!((modified(), modified()), (784_111_778, 784_111_778));
}

#[test]
fn an_empty_file_behind_an_address_for_reading_alone_is_asked_for_whole() {
    let store = serve(vec![
        "405 No".to_owned(),
        "403 No".to_owned(),
        "416 Range\r\nContent-Range: bytes */0".to_owned(),
        format!("200 Good\r\nLast-Modified: {OLD}"),
    ]);
    let path = RelPath::parse(b"a").expect("good");
    let found = store.server().look(&path, "open the file").expect("found");
    let seconds = found.modified.map(|time| time.seconds);
    assert_eq!((found.size, seconds), (Some(0), Some(784_111_777)));
}

#[test]
fn a_whole_answer_of_another_length_is_another_version() {
    let store = serve(vec![format!("200 Good\r\nLast-Modified: {OLD}")]);
    let read = open(&store).read_at(0, &mut [0; 2]);
    let error = read.expect_err("of another length");
    assert_eq!(error.kind, ErrorKind::SourceChanged);
}

/// Reads the head of the next request. Returns the socket and the head.
fn asked(listener: &TcpListener) -> (TcpStream, String) {
    let (socket, _) = listener.accept().expect("accepts");
    let lines = BufReader::new(socket.try_clone().expect("clones")).lines();
    let lines = lines.map(|line| line.expect("reads"));
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    (socket, head.join("\n").to_ascii_lowercase())
}

#[test]
fn reads_at_one_time_come_from_the_server_that_the_first_was_sent_to() {
    let bind = || TcpListener::bind("127.0.0.1:0").expect("binds");
    let (home, there) = (bind(), bind());
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    let url = format!("http://127.0.0.1:{}/", port(&home));
    let place = format!("http://127.0.0.1:{}/b", port(&there));
    let redirected = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&redirected);
    std::thread::spawn(move || {
        loop {
            let (mut socket, _) = asked(&home);
            counted.fetch_add(1, Ordering::SeqCst);
            // In this time the other threads could send requests too.
            std::thread::sleep(Duration::from_millis(50));
            let head = "HTTP/1.1 302 DavEntry\r\nContent-Length: 0\r\nConnection: close";
            write!(socket, "{head}\r\nLocation: {place}\r\n\r\n").expect("writes");
        }
    });
    std::thread::spawn(move || {
        loop {
            let (mut socket, head) = asked(&there);
            let at = u64::from(!head.contains("bytes=0-0"));
            let head = part(at, &format!("\r\nLast-Modified: {OLD}"));
            let more = "Content-Length: 1\r\nConnection: close";
            write!(socket, "HTTP/1.1 {head}\r\n{more}\r\n\r\nx").expect("writes");
        }
    });
    let url = HttpUrl::read(url.as_bytes()).expect("good").expect("web");
    let file = open(&HttpStore::new(&url, Credentials::none(), End::Source));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let file = &file;
            scope.spawn(move || assert_eq!(file.read_at(number % 2, &mut [0]).expect("reads"), 1));
        }
    });
    assert_eq!(redirected.load(Ordering::SeqCst), 1);
}

#[test]
fn a_changed_file_drops_the_listed_state() {
    let path = RelPath::parse(b"a").expect("good");
    let store = serve(vec!["412 Other".to_owned()]);
    let error = open(&store).read_at(0, &mut [0]).expect_err("another");
    assert_eq!(error.kind, ErrorKind::SourceChanged);
    assert_eq!(store.server().recall(&path), None);
}

#[test]
fn a_content_range_is_read() {
    assert_eq!(read_content_range("bytes 0-9/30"), Some((0, 9, Some(30))));
    assert_eq!(read_content_range("bytes 5-9/*"), Some((5, 9, None)));
    for wrong in [
        "",
        "bytes */30",
        "bytes 0-9",
        "items 0-9/30",
        "bytes a-9/30",
    ] {
        assert_eq!(read_content_range(wrong), None, "{wrong}");
    }
}

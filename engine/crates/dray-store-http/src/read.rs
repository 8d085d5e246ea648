//! One file, read by ranges. Every answer says which version of the file it is of.

use crate::client::{Answer, Ask};
use crate::place::Place;
use crate::store::{Known, Server};
use dray_core::{ByteRange, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::io::Read;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old the server's word on size and time may be while more of the file is read, where its answers
/// do not carry them: asking after each object would cost a round trip each. After the last of the
/// reads it is always asked (guess, revisit).
const STATE_AGE: Duration = Duration::from_secs(1);

/// A file open for reading.
pub(crate) struct HttpFile {
    server: Arc<Server>,
    path: RelPath,
    /// What was known when it was opened.
    known: Known,
    last: Mutex<Last>,
    /// Held by the first who asks, until an answer has come.
    settling: Mutex<()>,
    /// Reads under way.
    busy: AtomicU32,
    /// Reads that have ended.
    ended: AtomicU64,
}

#[derive(Default)]
struct Last {
    /// Where redirects led to: asked first the next time.
    place: Option<Place>,
    /// Whether the first question has ended.
    is_settled: bool,
    /// Whether the answers so far, all of them, have said which version they are of; none without
    /// an answer. Many threads read by one handle: none may be excused by what another one's said.
    are_known: Option<bool>,
    /// What the server was last asked for, if it was.
    asked: Option<Asked>,
}

/// What the server has said of size and time when it was asked.
#[derive(Clone, Copy)]
struct Asked {
    state: ReadState,
    at: Instant,
    /// Reads that had ended before.
    ended: u64,
}

impl HttpFile {
    pub(crate) fn new(server: Arc<Server>, path: RelPath, known: Known) -> Self {
        Self {
            server,
            path,
            known,
            last: Mutex::default(),
            settling: Mutex::default(),
            busy: AtomicU32::new(0),
            ended: AtomicU64::new(0),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a range, where the last answer came from first: a redirect may have expired. Until the first
    /// answer only one is asked for: a cluster might send each to another of its servers, whose files need
    /// not be the same.
    fn get(&self, range: &str) -> Result<Answer> {
        let is_settled = self.last().is_settled;
        let _first = (!is_settled).then(|| {
            let settling = self.settling.lock();
            settling.unwrap_or_else(PoisonError::into_inner)
        });
        let home = self.server.place(&self.path);
        let mut headers = vec![("Range", range)];
        if let Some(tag) = &self.known.tag {
            headers.push(("If-Match", tag));
        }
        let ask = |place: &Place| {
            self.server.client.ask(&Ask {
                place,
                headers: &headers,
                ..self.ask(place)
            })
        };
        let kept = self.last().place.clone();
        if let Some(place) = kept {
            match ask(&place) {
                Ok(answer) if matches!(answer.status, 200 | 206 | 412 | 416) => return Ok(answer),
                _ => self.last().place = None,
            }
        }
        let answer = ask(&home);
        let mut last = self.last();
        // After a failure too: others do not wait for theirs one after the other.
        last.is_settled = true;
        let answer = answer?;
        if !answer.place.origin.is(&home.origin) && answer.status == 206 {
            last.place = Some(answer.place.clone());
        }
        Ok(answer)
    }

    fn ask<'a>(&'a self, place: &'a Place) -> Ask<'a> {
        Ask {
            method: "GET",
            place,
            headers: &[],
            body: "",
            operation: "read the file",
            file: &self.path,
        }
    }

    /// Looks which version an answer is of; one that is not the opened one is refused.
    fn note(&self, answer: &Answer, size: u64) -> Result<()> {
        let seen = Known::of_answer(answer, Some(size));
        if let (Some(known), Some(seen)) = (&self.known.tag, &seen.tag)
            && known != seen
        {
            return Err(self.changed("its entity tag is another than when it was opened"));
        }
        if seen.modified.is_some() && seen.modified != self.known.modified {
            return Err(self.changed("it was changed at another time than when it was opened"));
        }
        // The tag is the same, and so is the file.
        let is_known = seen.modified.is_some() || (seen.tag.is_some() && self.known.tag.is_some());
        let mut last = self.last();
        last.are_known = Some(is_known && last.are_known.unwrap_or(true));
        Ok(())
    }

    fn changed(&self, cause: &str) -> dray_core::Error {
        // Whoever opens it next is told of the version that is there then.
        self.server.forget(&self.path);
        let home = self.server.place(&self.path);
        let fault = self
            .server
            .client
            .fault(ErrorKind::SourceChanged, &self.ask(&home));
        fault
            .cause(cause)
            .remedy("run the same command again once the file is left alone")
    }

    /// What the server has said already, where that is enough. What is not `opened` stays: of what was
    /// read nobody can tell which version it is of.
    fn still_holds(&self, opened: ReadState) -> Option<ReadState> {
        let asked = self.last().asked?;
        if asked.state != opened {
            return Some(asked.state);
        }
        // Whoever reads asks at the end.
        let are_others = self.busy.load(Ordering::SeqCst) > 0;
        let is_judged = self.ended.load(Ordering::SeqCst) == asked.ended;
        let is_young = asked.at.elapsed() < STATE_AGE;
        (is_young && (are_others || is_judged)).then_some(asked.state)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.known.size.saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let buffer = &mut buffer[..wanted];
        if buffer.is_empty() {
            return Ok(0);
        }
        let end = offset + wanted as u64;
        let answer = self.get(&format!("bytes={offset}-{}", end - 1))?;
        let place = answer.place.clone();
        let ask = self.ask(&place);
        match answer.status {
            206 => {
                let given = answer.header("content-range").and_then(read_content_range);
                let Some((first, last, size)) = given else {
                    let fault = self.server.client.fault(ErrorKind::Protocol, &ask);
                    let cause = format!("{} does not say which bytes it sends", place.origin);
                    return Err(fault.cause(cause).remedy("look at the server"));
                };
                if size.is_some_and(|size| size != self.known.size) {
                    return Err(self.changed("it has another size than when it was opened"));
                }
                if first != offset || last < first || last >= end {
                    let fault = self.server.client.fault(ErrorKind::Protocol, &ask);
                    let cause = format!(
                        "{} sends bytes {first} to {last}, asked for {offset} to {}",
                        place.origin,
                        end - 1
                    );
                    return Err(fault.cause(cause).remedy("look at the server"));
                }
            }
            // The whole file is what was asked for.
            200 if offset == 0 && end == self.known.size => {
                if answer.length().is_some_and(|size| size != self.known.size) {
                    return Err(self.changed("it has another size than when it was opened"));
                }
            }
            200 => {
                let fault = self.server.client.fault(ErrorKind::Unsupported, &ask);
                return Err(fault
                    .cause(format!(
                        "{} sends the whole file whatever range of it is asked for",
                        place.origin
                    ))
                    .remedy("fetch it with another program, or read it from another server"));
            }
            _ => {
                if answer.status == 412 {
                    self.server.forget(&self.path);
                }
                return Err(self.server.client.refused(&ask, answer));
            }
        }
        self.note(&answer, self.known.size)?;
        let announced = answer.length();
        let mut body = answer.into_body();
        let mut filled = 0;
        while filled < buffer.len() {
            match body.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.server.client.cut_off(&ask, &place.origin, &error)),
            }
        }
        if filled == 0 {
            // Its head was right. A proxy whose own server went away ends an answer so: try again.
            let fault = self.server.client.fault(ErrorKind::Unreachable, &ask);
            let cause = match announced {
                Some(bytes) => format!("{} sends nothing of {bytes} bytes", place.origin),
                None => format!("{} sends nothing of it", place.origin),
            };
            return Err(fault.cause(cause).remedy("look at the server"));
        }
        // Its end must be read for the connection to be kept.
        let _ = body.read(&mut [0]);
        Ok(filled)
    }
}

impl ReadHandle for HttpFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        let read = self.read(offset, buffer);
        // Before it counts as idle: whoever finds all idle knows of all that was read.
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.busy.fetch_sub(1, Ordering::SeqCst);
        read
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn state(&self) -> Result<ReadState> {
        let opened = ReadState {
            size: self.known.size,
            modified: or_unknown(self.known.modified),
        };
        // Each of them was compared when it came.
        if self.last().are_known == Some(true) {
            return Ok(opened);
        }
        // Answers without time and tag (XRootD's among them) leave no way but to ask.
        if let Some(state) = self.still_holds(opened) {
            return Ok(state);
        }
        let (at, ended) = (Instant::now(), self.ended.load(Ordering::SeqCst));
        let now = self.server.look(&self.path, "read the file")?;
        let now = ReadState {
            size: now.size.unwrap_or_default(),
            modified: or_unknown(now.modified),
        };
        if now != opened {
            self.server.forget(&self.path);
        }
        let mut last = self.last();
        // Nor does a word that comes late take back another's.
        if last.asked.is_none_or(|asked| asked.state == opened) {
            let state = now;
            last.asked = Some(Asked { state, at, ended });
        }
        Ok(now)
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.known.size;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}

/// First byte, last byte and, where told, size of the whole (RFC 9110, section 14.4).
pub(crate) fn read_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let size = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?, size))
}

/// When a file was changed, if that is known at all.
pub(crate) const fn or_unknown(time: Option<ModifiedTime>) -> ModifiedTime {
    match time {
        Some(time) => time,
        None => ModifiedTime {
            seconds: 0,
            nanoseconds: 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, HttpFile, read_content_range};
    use crate::store::Known;
    use crate::{Credentials, HttpStore, HttpUrl};
    use dray_core::{End, ErrorKind, ModifiedTime, RelPath};
    use dray_store::{ReadHandle, ReadPurpose, ReadState, Readable as _};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    /// A server of a file of two bytes, which answers each question by the next of these heads.
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

    /// One byte of two, of the version of that time.
    fn part(at: u64, more: &str) -> String {
        format!("206 Part\r\nContent-Range: bytes {at}-{at}/2{more}")
    }

    /// The file of that server as it was listed: old.
    fn open(store: &HttpStore) -> Box<dyn ReadHandle> {
        let path = RelPath::parse(b"a").expect("good");
        let known = Known {
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
        // Another thread's answer, on its way since before the change.
        assert_eq!(file.read_at(1, &mut [0]).expect("of the old one"), 1);
        assert_eq!(file.state().expect("known").modified.seconds, 784_111_777);
    }

    #[test]
    fn who_answers_without_a_version_is_asked_whatever_others_say() {
        let modified = |time| format!("\r\nLast-Modified: {time}");
        let store = serve(vec![
            part(0, ""),
            part(1, &modified(OLD)),
            // No PROPFIND, and no HEAD: the first byte tells.
            "405 No".to_owned(),
            "405 No".to_owned(),
            part(0, &modified(NEW)),
        ]);
        let file = open(&store);
        assert_eq!(file.read_at(0, &mut [0]).expect("reads"), 1);
        assert_eq!(file.read_at(1, &mut [0]).expect("reads"), 1);
        assert_eq!(file.state().expect("asked").modified.seconds, 784_111_778);
        // Nor is it opened as the old one again.
        assert_eq!(
            store.server().recall(&RelPath::parse(b"a").expect("good")),
            None
        );
    }

    #[test]
    fn who_answers_without_a_version_is_asked_once_after_the_last_read() {
        let no = || "405 No".to_owned();
        let first = |time| part(0, &format!("\r\nLast-Modified: {time}"));
        let store = serve(vec![
            part(0, ""),
            // No PROPFIND; then HEAD is refused each time, and the first byte tells.
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
        // The second needs no answer.
        assert_eq!((modified(), modified()), (784_111_777, 784_111_777));
        assert_eq!(file.read_at(1, &mut [0]).expect("reads"), 1);
        // Nor does what has changed become what it was.
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

    /// Reads the head of the next request; gives where it is answered, and the head.
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
                // Long enough for the others to ask as well.
                std::thread::sleep(Duration::from_millis(50));
                let head = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close";
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
                scope.spawn(move || {
                    assert_eq!(file.read_at(number % 2, &mut [0]).expect("reads"), 1)
                });
            }
        });
        assert_eq!(redirected.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn while_others_read_the_last_word_is_enough() {
        let store = serve(vec![
            "405 No".to_owned(),
            "405 No".to_owned(),
            part(0, &format!("\r\nLast-Modified: {OLD}")),
        ]);
        let path = RelPath::parse(b"a").expect("good");
        let known = store.server().look(&path, "open the file").expect("known");
        let known = store
            .server()
            .as_file(known, "open the file")
            .expect("a file");
        let opened = ReadState {
            size: known.size,
            modified: known.modified.expect("known"),
        };
        let file = HttpFile::new(Arc::clone(store.server()), path, known);
        let asked = |ago: u64| {
            let at = Instant::now().checked_sub(Duration::from_millis(ago));
            Some(Asked {
                state: opened,
                at: at.expect("the host runs longer"),
                ended: 0,
            })
        };
        assert_eq!(file.still_holds(opened), None);
        file.last().asked = asked(0);
        assert_eq!(file.still_holds(opened), Some(opened));
        file.ended.fetch_add(1, Ordering::SeqCst);
        assert_eq!(file.still_holds(opened), None, "another read has ended");
        file.busy.fetch_add(1, Ordering::SeqCst);
        assert_eq!(file.still_holds(opened), Some(opened), "it will ask");
        file.last().asked = asked(1001);
        assert_eq!(file.still_holds(opened), None, "too old");
    }

    #[test]
    fn what_was_listed_is_forgotten_once_the_server_has_another() {
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
}

//! Changes the names of header fields in requests to the form with capitals, such as
//! `Content-Length`.
//!
//! Names of header fields are case-insensitive (RFC 9110, section 5.1), and the HTTP library sends
//! lower case. But XRootD's HTTP server up to version 5.5 recognises `Range` and `Content-Length`
//! only with capitals. It sends the whole file if the field is named `range`, and treats a body
//! after `content-length` as the next request. So this module changes the case of letters in
//! outgoing requests, which does not change their length.

use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

/// Maximum length in bytes of a name that is examined. All names that must be changed are shorter.
const NAME_BYTES: usize = 32;

/// Wraps every connection of the HTTP library.
#[derive(Debug)]
pub(crate) struct Capitals;

impl<In: Transport> Connector<In> for Capitals {
    type Out = Capitalised<In>;

    fn connect(
        &self,
        _details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|inner| Capitalised {
            inner,
            writer: Writer::default(),
        }))
    }
}

/// A connection that changes the names in its requests to capitals.
#[derive(Debug)]
pub(crate) struct Capitalised<In> {
    inner: In,
    writer: Writer,
}

impl<In: Transport> Transport for Capitalised<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let output = self.inner.buffers().output();
        let amount_out = amount.min(output.len());
        self.writer.pass(&mut output[..amount_out]);
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        loop {
            let has_more = self.inner.await_input(timeout)?;
            let input = self.inner.buffers().input();
            // If no interim answer is expected, do not change the input. It may be the head or body
            // of a final answer, and the body can start with any bytes.
            if !self.writer.expects || input.is_empty() {
                return Ok(has_more);
            }
            let begun = interim(input);
            self.writer.expects = begun == Interim::Unfinished;
            match begun {
                // The rest of the interim answer has not arrived yet.
                Interim::Unfinished if has_more => {}
                Interim::Fields(length) => {
                    let buffers = self.inner.buffers();
                    buffers.input_consume(length);
                    // If the final answer has already arrived, the library needs no `100 Continue`.
                    if buffers.input().is_empty() {
                        let room = buffers.input_append_buf();
                        if let Some(room) = room.get_mut(..CONTINUE.len()) {
                            room.copy_from_slice(CONTINUE);
                            buffers.input_appended(CONTINUE.len());
                        }
                    }
                    return Ok(has_more);
                }
                _ => return Ok(has_more),
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// An interim answer in the form that the HTTP library accepts.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// First bytes of an interim answer.
const INTERIM: &[u8] = b"HTTP/1.1 100";

/// Maximum length of an interim answer in bytes.
const INTERIM_BYTES_MAX: usize = 4096;

/// Kind of the bytes at the start of the input.
#[derive(Debug, PartialEq, Eq)]
enum Interim {
    /// Not an interim answer, or an interim answer without header fields.
    Plain,
    /// The first part of an interim answer.
    Unfinished,
    /// An interim answer with header fields. Contains its length in bytes.
    Fields(usize),
}

fn interim(input: &[u8]) -> Interim {
    if !input.is_empty() && INTERIM.starts_with(input) {
        return Interim::Unfinished;
    }
    if !input.starts_with(INTERIM) {
        return Interim::Plain;
    }
    let found = |what: &[u8]| input.windows(what.len()).position(|bytes| bytes == what);
    match (found(b"\r\n"), found(b"\r\n\r\n")) {
        (_, None) if input.len() < INTERIM_BYTES_MAX => Interim::Unfinished,
        (Some(line), Some(head)) if line < head => Interim::Fields(head + 4),
        _ => Interim::Plain,
    }
}

/// Position of the next byte in a request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    RequestLine,
    LineStart,
    Name {
        is_word_start: bool,
    },
    Value,
    /// The next byte is the line feed of the empty line after the head.
    HeadEnd,
    Body {
        left: u64,
    },
}

/// Follows the requests on a connection and changes the names of their fields.
#[derive(Debug, Default)]
struct Writer {
    at: At,
    name: Vec<u8>,
    /// Length of the body in bytes, from its header field. dray does not send chunked bodies.
    length: u64,
    /// True if the request expects an interim answer and no answer has arrived.
    expects: bool,
}

impl Writer {
    fn pass(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let At::Body { left } = self.at {
                let skipped = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                self.at = match left - skipped as u64 {
                    0 => At::RequestLine,
                    left => At::Body { left },
                };
                rest = &mut rest[skipped..];
                continue;
            }
            if let Some((first, tail)) = rest.split_first_mut() {
                self.step(first);
                rest = tail;
            } else {
                return;
            }
        }
    }

    fn step(&mut self, byte: &mut u8) {
        self.at = match (self.at, *byte) {
            (At::RequestLine, b'\n') => {
                self.expects = false;
                At::LineStart
            }
            (At::LineStart, b'\r') => At::HeadEnd,
            (At::LineStart, _) => {
                self.name.clear();
                self.name(byte, true)
            }
            (At::Name { .. }, b':') => {
                match self.name.as_slice() {
                    b"content-length" => self.length = 0,
                    b"expect" => self.expects = true,
                    _ => {}
                }
                At::Value
            }
            (At::Name { is_word_start }, _) => self.name(byte, is_word_start),
            (At::Value, b'\n') => At::LineStart,
            (At::Value, digit @ b'0'..=b'9') if self.name == b"content-length" => {
                let digit = u64::from(digit - b'0');
                self.length = self.length.saturating_mul(10).saturating_add(digit);
                At::Value
            }
            (At::HeadEnd, _) => match std::mem::take(&mut self.length) {
                0 => At::RequestLine,
                left => At::Body { left },
            },
            (at, _) => at,
        };
    }

    fn name(&mut self, byte: &mut u8, is_word_start: bool) -> At {
        if self.name.len() < NAME_BYTES {
            self.name.push(byte.to_ascii_lowercase());
        }
        if is_word_start {
            byte.make_ascii_uppercase();
        }
        At::Name {
            is_word_start: *byte == b'-',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTINUE, Interim, Writer, interim};

    const HEAD: &str = "PROPFIND /a?host: HTTP/1.1\r\n";
    const BODY: &str = "\r\n\r\na: b\r\nc: GET / HTTP/1.1\r\n";

    fn requests(names: [&str; 6]) -> String {
        let [host, length, tag, digest, x, range] = names;
        format!(
            "{HEAD}{host}: h:1\r\n{length}: 9\r\n{tag}: \"x-y: z\"{BODY}{digest}: a-b\r\n{x}: y\r\n\r\n\
             GET / HTTP/1.1\r\n{range}: bytes=0-1\r\n\r\n"
        )
    }

    #[test]
    fn names_get_capitals_however_the_bytes_are_cut_and_bodies_stay() {
        for piece in [1, 2, 3, 7, 50, 1000] {
            let small = [
                "host",
                "content-length",
                "if-match",
                "want-digest",
                "x",
                "range",
            ];
            let mut bytes = requests(small).into_bytes();
            let mut writer = Writer::default();
            for piece in bytes.chunks_mut(piece) {
                writer.pass(piece);
            }
            let large = [
                "Host",
                "Content-Length",
                "If-Match",
                "Want-Digest",
                "X",
                "Range",
            ];
            let written = String::from_utf8_lossy(&bytes);
            assert_eq!(written, requests(large), "pieces of {piece}");
        }
    }

    #[test]
    fn an_interim_answer_is_looked_for_where_one_was_asked_for() {
        let mut writer = Writer::default();
        let mut put =
            b"PUT /a HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc".to_vec();
        writer.pass(&mut put);
        assert!(writer.expects);
        let mut get = b"GET /expect HTTP/1.1\r\nhost: expect\r\n\r\n".to_vec();
        writer.pass(&mut get);
        assert!(!writer.expects);
    }

    #[test]
    fn an_interim_answer_is_told_from_a_final_one() {
        let fields = b"HTTP/1.1 100 Continue\r\nConnection: Keep-Alive\r\n\r\n";
        let whole = fields.len();
        assert_eq!(interim(fields), Interim::Fields(whole));
        assert_eq!(
            interim(&[&fields[..], b"HTTP/1.1 201 Created\r\n"].concat()),
            Interim::Fields(whole)
        );
        for cut in 1..whole {
            assert_eq!(interim(&fields[..cut]), Interim::Unfinished, "{cut}");
        }
        assert_eq!(interim(CONTINUE), Interim::Plain);
        assert_eq!(
            interim(b"HTTP/1.1 201 Created\r\na: b\r\n\r\n"),
            Interim::Plain
        );
        assert_eq!(interim(b""), Interim::Plain);
    }
}

//! Sends one file to a web server with PUT, from start to end.

use crate::client::Ask;
use crate::integrity;
use crate::redirect::RequestTarget;
use crate::server::Server;
use crate::store::HttpStore;
use dray_core::checksum::Summer;
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result, Sums};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Name of the operation in errors.
const OPERATION: &str = "send the file";

/// Says if a sent file is verified with a checksum of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Compare the checksum. A server without a checksum is an error, because the file is then not
    /// verified.
    Required,
    /// Compare the checksum if the server has one.
    Offered,
    /// Do not request a checksum.
    Never,
}

/// The checksum that a file should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The checksum.
    pub checksum: Checksum,
    /// Origin of the checksum, for errors: "the header Repr-Digest".
    pub origin: &'static str,
}

/// A file to send.
#[derive(Debug)]
pub struct Sending<'a> {
    /// The file, open for reading.
    pub file: &'a File,
    /// Path of the file on the server.
    pub path: &'a RelPath,
    /// True if an existing file may be replaced.
    pub may_overwrite: bool,
    /// Says if the file is verified after it was sent.
    pub verify: Verify,
    /// Checksum of the file, if it is known before the file is read. The server gets the checksum
    /// with the file.
    pub expected: Option<Expected>,
}

/// Reads a file, and computes the checksums and the number of the bytes read.
struct Counted<'a> {
    file: &'a File,
    left: u64,
    sent: u64,
    summer: Summer,
    tell: &'a (dyn Fn(u64) + Sync),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if most == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(std::io::Error::other(
                "the file became shorter while it was sent",
            ));
        }
        self.summer.update(&buffer[..count]);
        self.left -= count as u64;
        self.sent += count as u64;
        (self.tell)(self.sent);
        Ok(count)
    }
}

impl HttpStore {
    /// Sends a file, and compares the server's checksum with that of the bytes sent. `tell` is
    /// called with the number of bytes sent so far. A retry starts from the beginning, because HTTP
    /// cannot resume a PUT.
    ///
    /// # Errors
    /// `AlreadyExists`; `ChecksumMismatch` if the server stored other bytes, or if the file does not
    /// have the expected checksum; `SourceChanged`; errors of the server.
    pub fn put(&self, sending: &Sending<'_>, tell: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let server = self.server();
        let path = sending.path;
        let local = |error: std::io::Error| {
            Error::new(ErrorKind::Io, End::Source, OPERATION)
                .file(path)
                .cause(error.to_string())
        };
        if !sending.may_overwrite {
            match server.look(path, OPERATION) {
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    let fault = Error::new(ErrorKind::AlreadyExists, server.end, OPERATION);
                    return Err(fault
                        .file(path)
                        .cause("a file with this name exists at the server"));
                }
            }
        }
        let state = sending.file.metadata().map_err(local)?;
        let sums = send(server, sending, state.len(), tell)?;
        let now = sending.file.metadata().map_err(local)?;
        if now.len() != state.len() || now.modified().ok() != state.modified().ok() {
            let fault = Error::new(ErrorKind::SourceChanged, End::Source, OPERATION);
            return Err(fault
                .file(path)
                .cause("the file was changed while it was sent"));
        }
        match sending.expected {
            Some(Expected { checksum, origin }) if !checksum.matches(&sums) => {
                let fault = Error::new(ErrorKind::ChecksumMismatch, End::Source, OPERATION);
                let cause = format!(
                    "{origin} contains the checksum {checksum}, but the sent bytes have the \
                        checksum {}; the server may have stored these bytes",
                    checksum.same_algorithm(&sums)
                );
                Err(fault.file(path).cause(cause).remedy(
                    "check whether the file is damaged, then copy it again with the right checksum",
                ))
            }
            _ => verify(server, sending, state.len(), &sums, tell),
        }
    }
}

/// Sends the whole file, and follows redirects.
fn send(
    server: &Server,
    sending: &Sending<'_>,
    length: u64,
    tell: &(dyn Fn(u64) + Sync),
) -> Result<Sums> {
    let announced = length.to_string();
    let digest = sending.expected;
    let digest = digest.map(|expected| integrity::repr_digest(expected.checksum));
    // With `Expect`, a server that redirects the request answers before it receives any bytes of
    // the file.
    let mut headers = vec![("Content-Length", announced.as_str())];
    // `Expect` is not valid for a request without a body (RFC 9110, section 10.1.1).
    if length > 0 {
        headers.push(("Expect", "100-continue"));
    }
    if let Some(digest) = &digest {
        headers.push(("Repr-Digest", digest));
    }
    let mut sums = Sums::EMPTY;
    let mut body = |ask: &Ask<'_>, place: RequestTarget| {
        let mut file = sending.file;
        let rewound = file.seek(SeekFrom::Start(0));
        rewound.map_err(|error| {
            server
                .client
                .fault(ErrorKind::Io, ask)
                .cause(error.to_string())
        })?;
        let mut counted = Counted {
            file,
            left: length,
            sent: 0,
            summer: Summer::new(),
            tell,
        };
        let answer = server.client.send_once(ask, place, &mut counted);
        sums = counted.summer.finish();
        answer
    };
    let place = server.place(sending.path);
    let ask = Ask {
        method: "PUT",
        place: &place,
        headers: &headers,
        body: "",
        operation: OPERATION,
        file: sending.path,
    };
    let answer = server.client.follow(&ask, &mut body)?;
    match answer.status {
        200 | 201 | 204 => Ok(sums),
        _ => Err(server.client.refused(&ask, answer)),
    }
}

fn verify(
    server: &Server,
    sending: &Sending<'_>,
    length: u64,
    sums: &Sums,
    tell: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let fault = |kind| Error::new(kind, server.end, "verify the file").file(sending.path);
    let found = server.look(sending.path, "verify the file")?;
    if found.size != Some(length) {
        let size = found.size.unwrap_or_default();
        return Err(fault(ErrorKind::ShortRead)
            .cause(format!("the server has stored {size} of {length} bytes")));
    }
    if sending.verify == Verify::Never {
        return Ok(());
    }
    let said: Option<Checksum> = match server.digest(sending.path, &|| {
        tell(length);
        sending.verify == Verify::Required
    }) {
        Ok(said) => said,
        Err(error) if sending.verify == Verify::Required => return Err(error),
        Err(_) => None,
    };
    match said {
        Some(said) if said.matches(sums) => Ok(()),
        Some(said) => Err(fault(ErrorKind::ChecksumMismatch).cause(format!(
            "the file at the server has the checksum {said}, but the sent bytes have the \
                checksum {}",
            said.same_algorithm(sums)
        ))),
        None if sending.verify == Verify::Required => Err(fault(ErrorKind::Unsupported)
            .cause("the server offers no checksum of an algorithm that dray supports")
            .remedy("request the copy again without the header RequireChecksumVerification")),
        None => Ok(()),
    }
}

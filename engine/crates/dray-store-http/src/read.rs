//! Reads one file by byte ranges, and checks the version of the file in every answer.

use crate::client::{Answer, Ask};
use crate::redirect::RequestTarget;
use crate::server::{FileVersion, Server, Validators, or_unknown, read_content_range};
use dray_core::lock::LockExt;
use dray_core::{ByteRange, ErrorKind, RelPath, Result, Sums};
use dray_store::state_watch::StateWatch;
use dray_store::{ReadHandle, ReadState};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// A file open for reading.
pub(crate) struct HttpFile {
    server: Arc<Server>,
    path: RelPath,
    /// State of the file when it was opened.
    known: FileVersion,
    last: Mutex<Last>,
    /// Locked by the first request until its answer arrives.
    settling: Mutex<()>,
    watch: StateWatch,
}

#[derive(Default)]
struct Last {
    /// Place to which the last request was redirected. The next request goes there first.
    place: Option<RequestTarget>,
    /// True after the first request has ended.
    is_settled: bool,
    /// True if every answer so far contained a time or tag of the file, false if an answer did not;
    /// `None` before the first answer. Many threads share one handle, so all answers must be
    /// checked.
    are_known: Option<bool>,
}

impl HttpFile {
    pub(crate) fn new(server: Arc<Server>, path: RelPath, known: FileVersion) -> Self {
        Self {
            server,
            path,
            known,
            last: Mutex::default(),
            settling: Mutex::default(),
            watch: StateWatch::default(),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock_unpoisoned()
    }

    /// Requests a range from the server that sent the last answer, which may be the target of a
    /// redirect. If that redirect has expired, requests the range from the server that the URL
    /// names. Until the first answer arrives, only one request is sent, because a cluster could
    /// redirect each request to another server with a different file.
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
        let ask = |place: &RequestTarget| {
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
        // Set the flag after a failed request too. Otherwise the waiting requests would be sent one
        // at a time, and each would wait until the request before it has failed.
        last.is_settled = true;
        let answer = answer?;
        if !answer.place.origin.is(&home.origin) && answer.status == 206 {
            last.place = Some(answer.place.clone());
        }
        Ok(answer)
    }

    fn ask<'a>(&'a self, place: &'a RequestTarget) -> Ask<'a> {
        Ask {
            method: "GET",
            place,
            headers: &[],
            body: "",
            operation: "read the file",
            file: &self.path,
        }
    }

    /// Checks the version of an answer. Rejects every version except the one that was opened.
    fn note(&self, answer: &Answer, size: u64) -> Result<()> {
        let seen = FileVersion::of_answer(answer, Some(size));
        if let (Some(known), Some(seen)) = (&self.known.tag, &seen.tag)
            && known != seen
        {
            return Err(
                self.changed("the entity tag of the file changed after the file was opened")
            );
        }
        // Two different weak tags mean two versions. Two equal weak tags prove nothing.
        if !self
            .server
            .is_as_said(&self.path, &Validators::of_answer(answer))
        {
            return Err(self.changed(
                "the entity tag or digest of the file differs between two answers of the server",
            ));
        }
        if seen.modified.is_some() && seen.modified != self.known.modified {
            return Err(self.changed(
                "the modification time of the file changed after the file was \
                opened",
            ));
        }
        // The time or tag in the answer equals that of the opened version, because other values
        // were rejected above.
        let is_known = seen.modified.is_some() || (seen.tag.is_some() && self.known.tag.is_some());
        let mut last = self.last();
        last.are_known = Some(is_known && last.are_known.unwrap_or(true));
        Ok(())
    }

    fn changed(&self, cause: &str) -> dray_core::Error {
        // Forget the old state, so that the next opening gets the current version.
        self.server.forget(&self.path);
        let home = self.server.place(&self.path);
        let fault = self
            .server
            .client
            .fault(ErrorKind::SourceChanged, &self.ask(&home));
        fault
            .cause(cause)
            .remedy("run the same command again when no program writes to the file")
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
        let told = match answer.status {
            206 => self.told_by_range(&answer, offset, end)?.min(wanted),
            // The range is the whole file, so this answer is correct.
            200 if offset == 0 && end == self.known.size => {
                if answer.length().is_some_and(|size| size != self.known.size) {
                    return Err(self.changed(
                        "the size of the file changed after the file was \
                        opened",
                    ));
                }
                wanted
            }
            200 => {
                let fault = self.server.client.fault(ErrorKind::Unsupported, &ask);
                return Err(fault
                    .cause(format!(
                        "{} ignores ranges and sends the whole file",
                        place.origin
                    ))
                    .remedy("copy the file with another program, or from another server"));
            }
            _ => {
                if answer.status == 412 {
                    self.server.forget(&self.path);
                }
                return Err(self.server.client.refused(&ask, answer));
            }
        };
        self.note(&answer, self.known.size)?;
        // Drop bytes that exceed the range in `Content-Range`.
        self.read_body(answer, &mut buffer[..told])
    }

    /// Returns the number of bytes that a partial answer announces, after a check against the
    /// requested range.
    fn told_by_range(&self, answer: &Answer, offset: u64, end: u64) -> Result<usize> {
        let place = &answer.place;
        let refuse = |cause: String| {
            let fault = self
                .server
                .client
                .fault(ErrorKind::Protocol, &self.ask(place));
            Err(fault
                .cause(cause)
                .remedy("copy the file with another program, or from another server"))
        };
        let given = answer.header("content-range").and_then(read_content_range);
        let Some((first, last, size)) = given else {
            return refuse(format!(
                "{} does not report which range of the file it sends",
                place.origin
            ));
        };
        if size.is_some_and(|size| size != self.known.size) {
            return Err(self.changed("the size of the file changed after the file was opened"));
        }
        if first != offset || last < first || last >= end {
            return refuse(format!(
                "{} sends bytes {first} to {last}, but bytes {offset} to {} were requested",
                place.origin,
                end - 1
            ));
        }
        Ok(usize::try_from(last - first + 1).unwrap_or(usize::MAX))
    }

    /// Fills the buffer from the body, and reads to the end of the body.
    fn read_body(&self, answer: Answer, buffer: &mut [u8]) -> Result<usize> {
        let announced = answer.length();
        let is_whole = answer.status == 200;
        let place = answer.place.clone();
        let ask = self.ask(&place);
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
            // The head of the answer was correct. A proxy that lost its connection to the server
            // sends such an answer, so a retry can succeed.
            let fault = self.server.client.fault(ErrorKind::Unreachable, &ask);
            let cause = match announced {
                Some(bytes) => format!(
                    "{} announces {bytes} bytes of the file, but sends no bytes",
                    place.origin
                ),
                None => format!("{} sends no bytes of the file", place.origin),
            };
            return Err(fault
                .cause(cause)
                .remedy("check the server and the network, then run the same command again"));
        }
        // Read the end of the body. Otherwise the HTTP library does not keep the connection.
        let more = body.read(&mut [0]);
        if is_whole && (matches!(more, Ok(1)) || filled < buffer.len()) {
            return Err(self.changed("the size of the file changed after the file was opened"));
        }
        Ok(filled)
    }
}

impl ReadHandle for HttpFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.watch.reading(|| self.read(offset, buffer))
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn state(&self) -> Result<ReadState> {
        let opened = ReadState {
            size: self.known.size,
            modified: or_unknown(self.known.modified),
        };
        // Every answer contained a version and was compared when it arrived, so no query is needed.
        if self.last().are_known == Some(true) {
            return Ok(opened);
        }
        // Some servers, such as XRootD's, send answers without time and tag. Ask for the state.
        self.watch.state(opened, || {
            let now = self.server.look(&self.path, "read the file")?;
            let now = ReadState {
                size: now.size.unwrap_or_default(),
                modified: or_unknown(now.modified),
            };
            if now != opened {
                self.server.forget(&self.path);
            }
            Ok(now)
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.known.size;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;

//! One file, read by ranges. Every answer says which version of the file it is of.

use crate::client::{Answer, Ask};
use crate::redirect::Place;
use crate::store::{Known, Said, Server};
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
        // An equal weak tag proves nothing; a different one means another version.
        if !self.server.is_as_said(&self.path, &Said::of_answer(answer)) {
            return Err(self.changed("its entity tag or digest differs from an earlier answer"));
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
        let mut told = wanted;
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
                    return Err(self.changed("its size has changed since it was opened"));
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
                told = usize::try_from(last - first + 1)
                    .unwrap_or(wanted)
                    .min(wanted);
            }
            // The whole file is what was asked for.
            200 if offset == 0 && end == self.known.size => {
                if answer.length().is_some_and(|size| size != self.known.size) {
                    return Err(self.changed("its size has changed since it was opened"));
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
        let is_whole = answer.status == 200;
        // Bytes beyond the range in `Content-Range` are dropped.
        let buffer = &mut buffer[..told];
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
        let more = body.read(&mut [0]);
        if is_whole && (matches!(more, Ok(1)) || filled < buffer.len()) {
            return Err(self.changed("its size has changed since it was opened"));
        }
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
mod tests;

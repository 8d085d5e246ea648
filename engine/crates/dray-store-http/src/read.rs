//! One file, read by ranges. Every answer says which version of the file it is of.

use crate::client::{Answer, Ask, Place};
use crate::store::{Known, Server};
use dray_core::{ByteRange, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// A file open for reading.
pub(crate) struct HttpFile {
    server: Arc<Server>,
    path: RelPath,
    /// What was known when it was opened.
    known: Known,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// Where redirects led to: asked first the next time.
    place: Option<Place>,
    /// What the last answer said of the file.
    state: Option<ReadState>,
}

impl HttpFile {
    pub(crate) fn new(server: Arc<Server>, path: RelPath, known: Known) -> Self {
        Self {
            server,
            path,
            known,
            last: Mutex::default(),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a range, where the last answer came from first: a redirect may have expired.
    fn get(&self, range: &str) -> Result<Answer> {
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
        let answer = ask(&home)?;
        if !answer.place.origin.is(&home.origin) && answer.status == 206 {
            self.last().place = Some(answer.place.clone());
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

    /// Notes which version an answer is of; one that is not the opened one is refused.
    fn note(&self, answer: &Answer, size: u64) -> Result<()> {
        let seen = Known::of_answer(answer, Some(size));
        let is_other = match (&self.known.tag, &seen.tag) {
            (Some(known), Some(seen)) => known != seen,
            _ => false,
        };
        let modified = match (seen.modified, &seen.tag, &self.known.tag) {
            (Some(modified), ..) => Some(modified),
            // The tag is the same, and so is the file.
            (None, Some(_), Some(_)) => self.known.modified,
            _ => None,
        };
        if is_other {
            return Err(self.changed("its entity tag is another than when it was opened"));
        }
        self.last().state = modified.map(|modified| ReadState { size, modified });
        Ok(())
    }

    fn changed(&self, cause: &str) -> dray_core::Error {
        let home = self.server.place(&self.path);
        let fault = self
            .server
            .client
            .fault(ErrorKind::SourceChanged, &self.ask(&home));
        fault
            .cause(cause)
            .remedy("run the same command again once the file is left alone")
    }
}

impl ReadHandle for HttpFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
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
            200 if offset == 0 && end == self.known.size => {}
            200 => {
                let fault = self.server.client.fault(ErrorKind::Unsupported, &ask);
                return Err(fault
                    .cause(format!(
                        "{} sends the whole file whatever range of it is asked for",
                        place.origin
                    ))
                    .remedy("fetch it with another program, or read it from another server"));
            }
            _ => return Err(self.server.client.refused(&ask, answer)),
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
            let fault = self.server.client.fault(ErrorKind::ShortRead, &ask);
            let cause = format!("{} sends nothing of {announced:?} bytes", place.origin);
            return Err(fault.cause(cause).remedy("look at the server"));
        }
        // Its end must be read for the connection to be kept.
        let _ = body.read(&mut [0]);
        Ok(filled)
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn state(&self) -> Result<ReadState> {
        if let Some(state) = self.last().state {
            return Ok(state);
        }
        // Answers without time and tag (XRootD's among them) leave no way but to ask.
        let now = self.server.look(&self.path, "read the file")?;
        Ok(ReadState {
            size: now.size.unwrap_or_default(),
            modified: or_unknown(now.modified),
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
    use super::read_content_range;

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

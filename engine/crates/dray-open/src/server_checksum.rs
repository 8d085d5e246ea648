//! Compares a copy of a single file with the checksum that the file's server reports. The request
//! to the server runs during the copy. The comparison happens before the copy is published. A
//! checksum that the caller demands is not compared here but by the sink machine of `dray_session`,
//! because that machine also decides which existing file is adopted.

use crate::store_kind::{ChecksumNeed, Location};
use dray_core::lock::LockExt;
use dray_core::{Checksum, End, Error, ErrorKind, Result, Status, Sums};
use dray_link::panic_guard::caught;
use dray_link::threads;
use dray_runtime::sink::FinalCheck;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Maximum time that a complete copy waits for the server's answer. A server without a stored
/// checksum must read the file first, and starts to read when the copy starts. The value is
/// estimated, not measured.
const PATIENCE: Duration = Duration::from_secs(120);

type Answer = Result<Option<Checksum>>;

/// A function that requests the checksum from the server.
type Ask = Arc<dyn Fn() -> Answer + Send + Sync>;

/// A function that returns which checksum the copy must be compared with.
pub(crate) type Need = Box<dyn Fn() -> ChecksumNeed + Send + Sync>;

/// An event that ends the wait for the checksum.
enum WaitEnd {
    /// The server has answered the request.
    Answer(Answer),
    /// The copy is being stopped.
    Stop,
}

/// A checksum that was requested from the file's server, and perhaps has not arrived yet.
pub(crate) struct Offer {
    words: Mutex<Receiver<WaitEnd>>,
    /// The sending end of the channel `words`. The thread that stops the copy sends a message to
    /// end the wait.
    stop: Sender<WaitEnd>,
    heard: OnceLock<Answer>,
    ask: Ask,
    need: Need,
    patience: Duration,
}

impl Offer {
    /// Starts a thread that requests the checksum of the single file from its server.
    pub(crate) fn ask(location: &Arc<dyn Location>, need: Need) -> Arc<Self> {
        let location = Arc::clone(location);
        Self::of(PATIENCE, need, move || location.checksum())
    }

    fn of(
        patience: Duration,
        need: Need,
        ask: impl Fn() -> Answer + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (stop, words) = channel();
        let offer = Self {
            words: Mutex::new(words),
            stop,
            heard: OnceLock::new(),
            ask: Arc::new(ask),
            need,
            patience,
        };
        offer.begin_request();
        Arc::new(offer)
    }

    /// Starts a thread that requests the checksum.
    fn begin_request(&self) {
        let (ask, tell) = (Arc::clone(&self.ask), self.stop.clone());
        let asked = std::thread::Builder::new().spawn(move || {
            let said = caught("get the checksum", || ask()).and_then(|said| said);
            // If the copy has already ended, sending fails, and the answer is not needed.
            let _ = tell.send(WaitEnd::Answer(said));
        });
        if let Err(error) = asked {
            let refused = WaitEnd::Answer(Err(threads::refused(&error)));
            let _ = self.stop.send(refused);
        }
    }

    /// Waits for the answer to the oldest request without an answer.
    fn wait(&self) -> Answer {
        let words = self.words.lock_unpoisoned();
        let (kind, cause) = match words.recv_timeout(self.patience) {
            Ok(WaitEnd::Answer(said)) => return said,
            Ok(WaitEnd::Stop) => (ErrorKind::Cancelled, "the copy was stopped"),
            Err(_) => (
                ErrorKind::TimedOut,
                "the server has not returned the checksum yet",
            ),
        };
        Err(Error::new(kind, End::Source, "get the checksum").cause(cause))
    }

    fn hear(&self) -> &Answer {
        self.heard.get_or_init(|| self.wait())
    }

    /// Requests the checksum again, and compares the copy with the answer.
    fn compare_again(&self, sums: &Sums) -> Result<()> {
        // Do not request the checksum while the first request is running, because a server may
        // answer the second request with the result of a calculation that began before a change.
        match self.hear() {
            Err(error) if error.kind == ErrorKind::Cancelled => return Err(error.clone()),
            Err(error) if error.kind == ErrorKind::TimedOut => return Err(too_slow(error)),
            _ => self.begin_request(),
        }
        match self.wait() {
            Ok(Some(known)) if known.matches(sums) => Ok(()),
            Ok(Some(known)) => Err(changed(&format!(
                "the file on the server now has the checksum {known}, but the bytes read have the \
                    checksum {}",
                known.same_algorithm(sums)
            ))),
            Ok(None) => Err(changed(
                "the server offers no checksum of an algorithm that dray supports",
            )),
            Err(error) if error.kind == ErrorKind::Cancelled => Err(error),
            Err(error) if error.kind == ErrorKind::TimedOut => Err(too_slow(&error)),
            Err(error) => Err(changed(&error.to_string())),
        }
    }
}

impl FinalCheck for Offer {
    /// Ends the wait for the answer. A copy that was not compared before is not published.
    fn give_up(&self) {
        // The receiver lives as long as `self`, so sending cannot fail.
        let _ = self.stop.send(WaitEnd::Stop);
    }

    /// Waits for the server's answer, at most for the time `patience`, and compares the checksums.
    fn compare(&self, sums: &Sums) -> Result<()> {
        let need = (self.need)();
        if need == ChecksumNeed::New {
            return self.compare_again(sums);
        }
        let known = match self.hear() {
            Ok(Some(known)) => known,
            Err(error) if error.kind == ErrorKind::Cancelled => return Err(error.clone()),
            _ if need == ChecksumNeed::Optional => return Ok(()),
            Ok(None) => {
                return Err(uncompared(
                    "the server offers no checksum of an algorithm that dray supports",
                ));
            }
            Err(error) => return Err(uncompared(&error.to_string())),
        };
        if known.matches(sums) {
            return Ok(());
        }
        let copied = known.same_algorithm(sums);
        let error = Error::new(ErrorKind::ChecksumMismatch, End::Source, "verify the file");
        Err(error
            .status(Status::Permanent)
            .cause(format!(
                "the source's server reports the checksum {known}, but the bytes read have the \
                    checksum {copied}"
            ))
            .remedy(
                "let the source's server compute the checksum again, or use the address of one \
                    server of the cluster",
            ))
    }

    /// Returns a notice if the copy was published without a comparison.
    fn notice(&self) -> Option<Error> {
        let cause = match self.heard.get()? {
            Ok(Some(_)) => return None,
            Ok(None) => "the source's server offers no checksum of an algorithm that dray supports"
                .to_owned(),
            Err(error) => error.to_string(),
        };
        let error = Error::new(ErrorKind::Unsupported, End::Source, "compare the checksum");
        Some(error.cause(cause).remedy(
            "if you know the expected checksum of the file, give the checksum with --checksum",
        ))
    }
}

/// Returns the error for a file whose modification time changed during the copy, if no checksum
/// shows that its content is the same.
fn changed(why: &str) -> Error {
    let error = Error::new(ErrorKind::SourceChanged, End::Source, "verify the file");
    error
        .cause(format!(
            "the modification time of the file changed after the copy began; {why}"
        ))
        .remedy("run the same command again when no program writes to the file")
}

/// Returns the error for a file whose modification time changed during the copy, if the server has
/// not returned a checksum in time. The content may be the same, so the partial data is kept.
fn too_slow(timed_out: &Error) -> Error {
    let error = Error::new(ErrorKind::TimedOut, End::Source, "verify the file");
    error
        .cause(format!(
            "the modification time of the file changed after the copy began, and the copy cannot \
                be compared with the new content: {timed_out}"
        ))
        .remedy("run the same command again when the server has computed the checksum")
}

/// Returns the error for a copy that was read from several servers and could not be compared. The
/// copy may be a mixture of different files, so it is not published. Its partial data is kept.
fn uncompared(why: &str) -> Error {
    let error = Error::new(ErrorKind::TimedOut, End::Source, "verify the file");
    error
        .cause(format!(
            "the file was read from several servers, and no checksum is available for comparison: \
                {why}"
        ))
        .remedy(
            "run the same command again when the server has computed the checksum, or use the \
                address of one server of the cluster",
        )
}

#[cfg(test)]
mod tests;

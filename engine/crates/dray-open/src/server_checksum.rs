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
mod tests {
    use super::{ChecksumNeed, Offer};
    use dray_core::{Checksum, ErrorKind, Status, Sums};
    use dray_runtime::sink::FinalCheck;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    fn never() -> super::Need {
        Box::new(|| ChecksumNeed::Optional)
    }

    #[test]
    fn a_copy_from_several_servers_is_published_only_after_a_comparison() {
        let sums = Sums::of(b"1");
        let silent = Offer::of(LONG, Box::new(|| ChecksumNeed::Any), || Ok(None));
        let error = silent.compare(&sums).expect_err("nothing was compared");
        assert_eq!(error.kind, ErrorKind::TimedOut);
        let failed = || {
            Err(dray_core::Error::new(
                ErrorKind::Io,
                dray_core::End::Source,
                "ask",
            ))
        };
        let failed = Offer::of(LONG, Box::new(|| ChecksumNeed::Any), failed);
        assert!(failed.compare(&sums).is_err());
    }

    #[test]
    fn a_file_with_a_new_time_is_compared_with_a_second_checksum() {
        let sums = Sums::of(b"123456789");
        let of = |second: Option<Checksum>| {
            let answers = Mutex::new(vec![second, Some(Checksum::Adler32(0x091e_01de))]);
            Offer::of(LONG, Box::new(|| ChecksumNeed::New), move || {
                Ok(answers.lock().expect("alone").pop().flatten())
            })
        };
        let same = of(Some(Checksum::Adler32(0x091e_01de)));
        same.compare(&sums).expect("the same content");
        // The first checksum agrees, but the content has changed since then.
        for second in [Some(Checksum::Adler32(1)), None] {
            let error = of(second).compare(&sums).expect_err("changed");
            assert_eq!(error.kind, ErrorKind::SourceChanged, "{second:?}");
        }
    }

    /// A server whose answer number `slow` (the first is 0) never arrives.
    fn slow_at(slow: usize) -> (std::sync::Arc<Offer>, std::sync::mpsc::Sender<()>) {
        let (silence, never) = channel::<()>();
        let state = Mutex::new((0, never));
        let offer = Offer::of(
            Duration::from_millis(200),
            Box::new(|| ChecksumNeed::New),
            move || {
                let mut state = state.lock().expect("no panic");
                state.0 += 1;
                if state.0 == slow + 1 {
                    let _ = state.1.recv();
                }
                Ok(Some(Checksum::Adler32(0x091e_01de)))
            },
        );
        (offer, silence)
    }

    #[test]
    fn a_slow_checksum_of_a_file_with_a_new_time_is_reported_as_a_timeout() {
        for slow in [0, 1] {
            let (offer, silence) = slow_at(slow);
            let error = offer.compare(&Sums::of(b"123456789")).expect_err("slow");
            assert_eq!(error.kind, ErrorKind::TimedOut, "{slow}: {error}");
            assert_eq!(error.status, Status::Temporary, "{slow}: {error}");
            let told = error.to_string();
            assert!(told.contains("has not returned the checksum"), "{told}");
            drop(silence);
        }
    }

    #[test]
    fn another_sum_is_refused_and_the_same_is_not_spoken_of() {
        let sums = Sums::of(b"123456789");
        let offer = Offer::of(LONG, never(), || Ok(Some(Checksum::Adler32(0x091e_01de))));
        assert!(offer.notice().is_none());
        offer.compare(&sums).expect("the same");
        assert!(offer.notice().is_none());
        let other = Offer::of(LONG, never(), || Ok(Some(Checksum::Adler32(1))));
        let error = other.compare(&sums).expect_err("another");
        assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
    }

    #[test]
    fn a_stop_ends_the_wait_and_prevents_publishing() {
        let (silence, answer) = channel::<()>();
        let answer = Mutex::new(answer);
        let silent = Offer::of(Duration::from_secs(86_400), never(), move || {
            let _ = answer.lock().expect("alone").recv();
            Ok(None)
        });
        let waiting = std::thread::spawn({
            let silent = std::sync::Arc::clone(&silent);
            move || silent.compare(&Sums::of(b"1"))
        });
        silent.give_up();
        let error = waiting.join().expect("no panic").expect_err("stopped");
        assert_eq!(error.kind, ErrorKind::Cancelled);
        drop(silence);
        // The answer arrived before the stop, so it counts.
        let sums = Sums::of(b"123456789");
        let heard = Offer::of(LONG, never(), || Ok(Some(Checksum::Adler32(0x091e_01de))));
        heard.compare(&sums).expect("the same");
        heard.give_up();
        heard.compare(&sums).expect("the same still");
    }

    #[test]
    fn a_missing_comparison_is_reported() {
        let sums = Sums::of(b"123456789");
        let none = Offer::of(LONG, never(), || Ok(None));
        none.compare(&sums).expect("nothing to compare with");
        assert!(none.notice().is_some());
        // This server never answers.
        let (silence, answer) = channel::<()>();
        let answer = Mutex::new(answer);
        let silent = Offer::of(Duration::from_millis(1), never(), move || {
            let _ = answer.lock().expect("alone").recv();
            Ok(None)
        });
        silent.compare(&sums).expect("not waited for");
        let notice = silent.notice().expect("said").to_string();
        assert!(notice.contains("has not returned"), "{notice}");
        drop(silence);
    }
}

//! The last check before a copy is published. It compares the copy with the source server and sets
//! the attributes of the copy.

use crate::config::{Compare, Config};
use crate::digest;
use crate::log;
use crate::placeholder::Placeholder;
use dray_core::lock::LockExt;
use dray_core::{Checksum, End, Error, ErrorKind, Metadata, ModifiedTime, Result, Status, Sums};
use dray_link::threads::refused;
use dray_runtime::handle::Handle;
use dray_store::wrap::{Call, Hook};
use dray_store::{Attributes, ReadState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval in which a copy that waits for a checksum checks if it was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answer of the source server to the request for a checksum.
type ChecksumAnswer = Result<Option<Checksum>>;

/// Resolution of a server's modification times in nanoseconds.
const SECOND: u32 = 1_000_000_000;

/// The source server and the file on it.
pub(crate) trait Origin: Send + Sync {
    /// Asks the server for the current size and time of the file.
    fn state_now(&self) -> Result<ReadState>;

    /// Requests the server's checksum of the file.
    fn checksum(&self) -> ChecksumAnswer;

    /// Returns true if the data comes from several servers. In this case only the checksum shows
    /// that their replicas are equal.
    fn is_from_several(&self) -> bool {
        false
    }

    /// Returns true if the server may change the modification time of the file when a client reads
    /// the file. A new time then does not show that the content has changed.
    fn may_get_new_time(&self) -> bool {
        false
    }

    /// Returns true if the server has sent a new modification time while the file was read.
    fn has_new_time(&self) -> bool {
        false
    }
}

/// The final check of one copy.
pub(crate) struct FinalCheck {
    source: Arc<dyn Origin>,
    /// Size and time of the file when the copy began.
    begun: ReadState,
    compare: Compare,
    /// Receives the file's checksum from the source server. The request runs during the copy,
    /// because the server may have to read the whole file.
    said: Mutex<Receiver<ChecksumAnswer>>,
    heard: OnceLock<ChecksumAnswer>,
    /// Maximum time to wait for the checksum after the data is complete.
    patience: Duration,
    handle: Handle,
    mode: Option<u32>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    keep_time: bool,
    can_keep_sums: bool,
}

/// Requests the checksum on a background thread.
fn ask(source: Arc<dyn Origin>) -> Result<Receiver<ChecksumAnswer>> {
    let (tell, said) = channel();
    let asking = Builder::new().spawn(move || {
        // Ignore the error. If the copy has failed, no thread receives the answer.
        let _ = tell.send(source.checksum());
    });
    asking.map(|_| said).map_err(|error| refused(&error))
}

impl FinalCheck {
    /// Creates the final check for a copy that begins now.
    ///
    /// # Errors
    /// An error if the source server does not answer, or if the system cannot start a thread.
    pub(crate) fn new(
        source: &Arc<dyn Origin>,
        placeholder: &Placeholder,
        config: &Config,
        can_keep_sums: bool,
        handle: &Handle,
    ) -> Result<Self> {
        let compare = config.compare;
        let begun = source.state_now()?;
        let said = match compare {
            Compare::Never => channel().1,
            Compare::Offered | Compare::Required => ask(Arc::clone(source))?,
        };
        Ok(Self {
            source: Arc::clone(source),
            begun,
            compare,
            said: Mutex::new(said),
            heard: OnceLock::new(),
            patience: Duration::from_secs(config.compare_seconds.into()),
            handle: handle.clone(),
            mode: placeholder.mode,
            xattrs: placeholder.xattrs.clone(),
            keep_time: config.keep_time,
            can_keep_sums,
        })
    }

    /// Returns the size of the file in bytes when the copy began.
    pub(crate) const fn size(&self) -> u64 {
        self.begun.size
    }

    /// Checks that the file on the source server still has the modification time that it had when
    /// the copy began. `copied` is the time of the file that was read, and must be equal too.
    /// Returns false if a time differs, but the server may change times by itself while the content
    /// stays the same.
    ///
    /// # Errors
    /// `SourceChanged` if the size has changed, or if a time differs although the server does not
    /// change times by itself.
    fn has_same_time(&self, copied: &ModifiedTime) -> Result<bool> {
        let now = self.source.state_now()?;
        let is_changed = now.size != self.begun.size || !self.source.may_get_new_time();
        if now != self.begun && is_changed {
            return Err(changed(
                "the size or modification time of the file changed after the copy began",
            ));
        }
        // The data may come from a dray endpoint or a replica. Check that it belongs to the same
        // version of the file as on the source server.
        let is_version = copied.equal_at(&self.begun.modified, SECOND);
        if !is_version && is_changed {
            return Err(changed(
                "the modification time of the file changed during the copy",
            ));
        }
        Ok(is_version && now == self.begun && !self.source.has_new_time())
    }

    /// Compares the copied bytes with a checksum that the server computes after the copy, because
    /// the modification time of the file has changed. Only the content shows whether another
    /// program has written the file.
    fn check_content(&self, sums: Option<&Sums>) -> Result<()> {
        let cause = "the modification time of the file changed after the copy began";
        let (Some(sums), true) = (sums, self.compare != Compare::Never) else {
            return Err(changed(cause));
        };
        // Wait for the first answer, because a server may answer a second request with the result
        // of a calculation that is still running.
        if let Err(error) = self.hear()?
            && error.kind == ErrorKind::TimedOut
        {
            return Err(too_slow(cause, error));
        }
        let known = match self.wait(&ask(Arc::clone(&self.source))?)? {
            Ok(Some(known)) if known.matches(sums) => return Ok(()),
            Ok(Some(known)) => known,
            Ok(None) => {
                return Err(changed(&format!(
                    "{cause}, and the source's server offers no checksum of an algorithm that dray \
                        supports"
                )));
            }
            Err(error) if error.kind == ErrorKind::TimedOut => {
                return Err(too_slow(cause, &error));
            }
            Err(error) => {
                return Err(changed(&format!(
                    "{cause}, and the source's server gave no checksum for comparison: {error}"
                )));
            }
        };
        let copied = known.same_algorithm(sums);
        Err(changed(&format!(
            "{cause}; the file on the server now has the checksum {known}, but the bytes read have \
                the checksum {copied}"
        )))
    }

    /// Waits for the checksum that the server was asked for when the copy began.
    fn hear(&self) -> Result<&ChecksumAnswer> {
        let answers = self.said.lock_unpoisoned();
        if self.heard.get().is_none() {
            let _ = self.heard.set(self.wait(&answers)?);
        }
        Ok(self.heard.get().unwrap_or(&Ok(None)))
    }

    /// Waits for an answer of the server. A server without a stored checksum reads the whole file
    /// first.
    ///
    /// # Errors
    /// `Cancelled` if the copy was stopped.
    fn wait(&self, answers: &Receiver<ChecksumAnswer>) -> Result<ChecksumAnswer> {
        let until = Instant::now() + self.patience;
        loop {
            match answers.recv_timeout(LOOK_EVERY) {
                Ok(said) => return Ok(said),
                // The thread has panicked without an answer, so no checksum is known.
                Err(RecvTimeoutError::Disconnected) => return Ok(Ok(None)),
                Err(RecvTimeoutError::Timeout) if self.handle.is_stopped() => {
                    return Err(Error::new(
                        ErrorKind::Cancelled,
                        End::Here,
                        "verify the file",
                    ));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                    let error = Error::new(ErrorKind::TimedOut, End::Source, "get the checksum");
                    let seconds = self.patience.as_secs();
                    return Ok(Err(error.cause(format!(
                        "the source's server has not returned the checksum \
                        for {seconds} s"
                    ))));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn check_sums(&self, sums: &Sums) -> Result<()> {
        if self.compare == Compare::Never {
            return Ok(());
        }
        let why = match self.hear()? {
            Ok(Some(known)) if known.matches(sums) => return Ok(()),
            Ok(Some(known)) => {
                let copied = known.same_algorithm(sums);
                let error = Error::new(ErrorKind::ChecksumMismatch, End::Source, "verify the file");
                return Err(error
                    .status(Status::Permanent)
                    .cause(format!(
                        "the source's server reports the checksum {known}, but the bytes read \
                            have the checksum {copied}"
                    ))
                    .remedy(
                        "let the source's server compute the checksum again, or use the address \
                            of one server of the cluster",
                    ));
            }
            Ok(None) => "the source's server offers no checksum of an algorithm that dray supports"
                .to_owned(),
            Err(error) => error.to_string(),
        };
        if self.source.is_from_several() {
            let error = Error::new(ErrorKind::TimedOut, End::Source, "verify the file");
            return Err(error
                .cause(format!(
                    "the file was read from several servers, but no checksum is available for \
                        comparison: {why}"
                ))
                .remedy(
                    "request the copy again, or use the address of one server to read only \
                    its replica",
                ));
        }
        if self.compare == Compare::Required {
            let error = Error::new(ErrorKind::Unsupported, End::Source, "verify the file");
            return Err(error
                .cause(format!(
                    "the source's server gave no checksum for comparison: {why}"
                ))
                .remedy(
                    "set `compare = \"offered\"` to also copy files for which the \
                    source's server has no checksum",
                ));
        }
        log::note(&format!(
            "the copied file is not compared with a checksum of the source's server: {why}"
        ));
        Ok(())
    }
}

impl Hook for FinalCheck {
    fn to_publish(&self, _: &Call<'_>, given: &Attributes<'_>) -> Result<Option<Metadata>> {
        let is_same_time = self.has_same_time(&given.metadata.modified)?;
        let mut metadata = given.metadata.clone();
        if let Some(mode) = self.mode {
            metadata.mode = mode;
        }
        if !self.keep_time {
            metadata.modified = now();
        }
        metadata.xattrs.clone_from(&self.xattrs);
        if !is_same_time {
            self.check_content(given.sums.as_ref())?;
        }
        if let Some(sums) = &given.sums {
            if is_same_time {
                self.check_sums(sums)?;
            }
            if self.can_keep_sums {
                metadata
                    .xattrs
                    .extend(digest::attributes(sums, metadata.modified.seconds));
            }
        }
        Ok(Some(metadata))
    }
}

fn changed(cause: &str) -> Error {
    Error::new(ErrorKind::SourceChanged, End::Source, "copy the file")
        .cause(cause)
        .remedy("request the copy again when no program writes to the file")
}

/// Returns the error for a source file with a new modification time, if its server has not returned
/// a checksum before the time limit. The content may be unchanged, so the partial data is kept.
fn too_slow(cause: &str, timed_out: &Error) -> Error {
    Error::new(ErrorKind::TimedOut, End::Source, "copy the file")
        .cause(format!(
            "{cause}, and the copy cannot be compared with the new content: {timed_out}"
        ))
        .remedy(
            "request the copy again when the source's server has computed the checksum, or set a \
                higher `compare_seconds`",
        )
}

fn now() -> ModifiedTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    ModifiedTime {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChecksumAnswer, FinalCheck, Origin};
    use crate::config::{Compare, Config};
    use crate::placeholder::Placeholder;
    use dray_core::{Checksum, ErrorKind, ModifiedTime, Result, Status, Sums};
    use dray_runtime::handle::Handle;
    use dray_store::ReadState;
    use std::path::Path;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    /// A fake server whose checksum request takes until the other end of this channel sends a
    /// message or is closed.
    struct Slow(Mutex<Receiver<()>>);

    impl Origin for Slow {
        fn state_now(&self) -> Result<ReadState> {
            let modified = ModifiedTime {
                seconds: 1,
                nanoseconds: 0,
            };
            Ok(ReadState { size: 1, modified })
        }

        fn checksum(&self) -> ChecksumAnswer {
            let _ = self.0.lock().expect("alone").recv();
            Ok(None)
        }
    }

    /// A fake server whose file has a new time after each call. The checksum request with the
    /// number `slow` (the first is 0) takes until the other end of the channel is closed.
    struct Renewing {
        slow: u32,
        calls: Mutex<(u32, Receiver<()>)>,
    }

    impl Origin for Renewing {
        fn state_now(&self) -> Result<ReadState> {
            Slow(Mutex::new(channel().1)).state_now()
        }

        fn checksum(&self) -> ChecksumAnswer {
            let mut calls = self.calls.lock().expect("no panic");
            calls.0 += 1;
            if calls.0 == self.slow + 1 {
                let _ = calls.1.recv();
            }
            Ok(Some(Checksum::Adler32(1)))
        }

        fn may_get_new_time(&self) -> bool {
            true
        }

        fn has_new_time(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_slow_checksum_of_a_file_with_a_new_time_is_reported_as_a_timeout() {
        for slow in [0, 1] {
            let (_held, gone) = channel();
            let calls = Mutex::new((0, gone));
            let source: Arc<dyn Origin> = Arc::new(Renewing { slow, calls });
            let check = final_check(&source, Compare::Offered, 1, &Handle::default());
            let error = check.check_content(Some(&Sums::EMPTY)).expect_err("slow");
            assert_eq!(error.kind, ErrorKind::TimedOut, "{slow}: {error}");
            assert_eq!(error.status, Status::Temporary, "{slow}: {error}");
            assert!(error.to_string().contains("for 1 s"), "{error}");
        }
    }

    fn gate(compare: Compare, compare_seconds: u32, handle: &Handle) -> (FinalCheck, Sender<()>) {
        let (held, gone) = channel();
        let source: Arc<dyn Origin> = Arc::new(Slow(Mutex::new(gone)));
        (final_check(&source, compare, compare_seconds, handle), held)
    }

    fn final_check(
        source: &Arc<dyn Origin>,
        compare: Compare,
        compare_seconds: u32,
        handle: &Handle,
    ) -> FinalCheck {
        let config = Config {
            compare,
            compare_seconds,
            ..Config::default()
        };
        let nothing = Placeholder::look(Path::new("/nothing/here"), false).expect("looks");
        FinalCheck::new(source, &nothing, &config, true, handle).expect("a final check")
    }

    #[test]
    fn a_server_that_does_not_tell_is_not_waited_for_without_end() {
        let handle = Handle::default();
        let (offered, _held) = gate(Compare::Offered, 1, &handle);
        offered.check_sums(&Sums::EMPTY).expect("not compared");
        let (required, _held) = gate(Compare::Required, 1, &handle);
        let error = required.check_sums(&Sums::EMPTY).expect_err("demanded");
        assert!(error.to_string().contains("for 1 s"), "{error}");
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let handle = Handle::default();
        let (gate, _held) = gate(Compare::Offered, 86_400, &handle);
        handle.cancel(false);
        let error = gate.check_sums(&Sums::EMPTY).expect_err("stopped");
        assert_eq!(error.kind, ErrorKind::Cancelled);
    }
}

//! Files that an earlier run began: the ranges found on the storage, and the read-back of the
//! ranges that this run added to the partial files of the earlier run.
//!
//! Invariant: a file that an earlier run began is published only in two cases. Either the sink has
//! read the bytes of the file back from the storage (with the resume mode `Trust`, only the bytes
//! of this run), or the runtime has copied the earlier run's bytes to a partial file of this run.

use super::decide::end_of_first_run;
use super::tree::File;
use super::{Effect, Phase, Sink};
use crate::progress::{Event, Outcome};
use dray_core::{End, Error, ErrorKind, FileIndex, Status, SummedRanges};
use dray_wire::message::Message;

impl File {
    /// Sets the ranges that are already on the storage. Returns the number of ranges.
    pub(super) fn resume_from(&mut self, done: SummedRanges) -> usize {
        self.accepted = done.ranges();
        self.written = done.bytes();
        self.bytes_resumed = done.bytes();
        self.next_offset = end_of_first_run(&self.accepted);
        self.known = done;
        self.accepted.run_count()
    }
}

impl Sink {
    /// Handles [`Input::Kept`](super::Input::Kept): `done` are the ranges of an earlier run that
    /// were found on the storage. `is_moved` is true if the runtime has copied these ranges to a
    /// new partial file.
    pub(super) fn on_kept(&mut self, index: FileIndex, done: SummedRanges, is_moved: bool) {
        let Some(path) = self.live.get(&index).map(|live| live.path.clone()) else {
            return;
        };
        let Some(file) = self.file(index) else { return };
        let (said, runs_said) = (file.known.bytes(), file.accepted.run_count());
        let lost = said.saturating_sub(done.bytes());
        let is_empty = done.is_empty();
        let runs = file.resume_from(done);
        file.unproven = (!is_moved).then(SummedRanges::new);
        self.runs = (self.runs + runs).saturating_sub(runs_said);
        if let (true, Some(is_useless)) = (is_empty, self.preparing.get_mut(&index)) {
            *is_useless = true;
        }
        if lost > 0 {
            let notice = Error::new(ErrorKind::ChecksumMismatch, End::Sink, "resume the file")
                .file(&path)
                .cause(format!(
                    "{lost} of the {said} logged bytes of the partial file do not match the \
                        checksums in the log"
                ))
                .remedy("the damaged bytes are sent again; check the sink's storage");
            self.out.push_back(Effect::Report(Event::Notice(notice)));
        }
    }

    /// Continues with a file whose bytes are all durable. If this run added ranges to an earlier
    /// run's partial file, requests their read-back; otherwise publishes the file.
    pub(super) fn check_written_or_publish(&mut self, index: FileIndex) {
        let unproven = self.file(index).and_then(|file| file.unproven.take());
        match unproven.filter(|ranges| !ranges.is_empty()) {
            Some(ranges) => self.out.push_back(Effect::CheckWritten { index, ranges }),
            None => self.publish(index),
        }
    }

    pub(super) fn on_written_checked(&mut self, index: FileIndex, result: Result<(), Error>) {
        if !matches!(self.phase, Phase::Moving) {
            // The session is stopping. The next run reads back the ranges that this run wrote.
            self.finishing = self.finishing.saturating_sub(1);
            return;
        }
        match result {
            Ok(()) => self.publish(index),
            // The storage lost ranges that the sink has already reported as durable to the source,
            // so the session must end. The next session keeps the correct ranges of the partial
            // file, and requests all other ranges again.
            Err(error) if error.kind == ErrorKind::ChecksumMismatch => {
                self.finishing = self.finishing.saturating_sub(1);
                let path = self.live.get(&index).map(|live| live.path.clone());
                let error = error.status(Status::Temporary);
                let error = path.map_or(error.clone(), |path| error.file(&path));
                self.stop(Outcome::Failed(error.clone()), false);
                for peer in self.peers.keys() {
                    let message = Message::GoAway(error.clone());
                    self.out.push_back(Effect::Message(*peer, message));
                }
            }
            Err(error) => {
                self.finishing = self.finishing.saturating_sub(1);
                self.fail(index, error, false);
            }
        }
    }
}

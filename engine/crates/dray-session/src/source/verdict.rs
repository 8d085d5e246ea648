//! Checks the sink's reports about closed entries and about the end of the transfer. The source
//! accepts a report only if it is consistent with the sink's earlier reports.
//!
//! The checks cannot detect a sink that reports false facts about its own copy. They detect a sink
//! that reports the end of an entry or of the transfer too early.

use super::{Effect, File, Phase, Source};
use crate::mutants::Mutant;
use crate::progress::{Event, Outcome};
use dray_core::{End, Error, ErrorKind, RelPath};
use dray_wire::message::{Message, Totals};

impl Source {
    pub(super) fn protocol_error(&mut self, cause: impl Into<String>) {
        self.violation(ErrorKind::Protocol, cause.into());
    }

    /// Ends the session because the sink violated the protocol or exceeded an agreed limit.
    pub(super) fn violation(&mut self, kind: ErrorKind, cause: String) {
        let error = Error::new(kind, End::Sink, "process the messages of the sink")
            .cause(cause)
            .remedy("use the same version of dray at both ends, and report this error");
        self.break_off(error);
    }

    fn break_off(&mut self, error: Error) {
        self.send_profile();
        self.out
            .push_back(Effect::Message(Message::GoAway(error.clone())));
        self.end(Outcome::Failed(error));
    }

    /// Checks that the sink may close this entry now. If it may not, returns a description of the
    /// contradiction to earlier messages.
    pub(super) fn check_closed(&self, file: &File, is_good: bool) -> Result<(), String> {
        if file.is_open_folder {
            return Err("before the source had sent the end of the folder".into());
        }
        if !is_good || !file.is_file {
            return Ok(());
        }
        if !file.is_decided {
            return Err("as published, although the file was not requested".into());
        }
        // The sink publishes a small file before it reports the file's block as durable. So the
        // check also counts bytes that are not reported as durable yet.
        let pack_bytes_max = self.ready.map_or(0, |ready| ready.pack_bytes_max);
        let is_packed = file.size <= pack_bytes_max && file.done.is_empty();
        let arrived = match is_packed {
            true => file.bytes_durable + file.bytes_on_the_way,
            false => file.bytes_durable,
        };
        if arrived == file.size {
            return Ok(());
        }
        let what = if is_packed { "sent" } else { "durable" };
        let size = file.size;
        Err(format!(
            "as published, although only {arrived} of its {size} bytes are {what}"
        ))
    }

    /// Handles the sink's verdict, which reports that all entries were processed.
    pub(super) fn on_verdict(&mut self, totals: Totals) {
        if let Phase::Closing(_) = self.phase {
            self.protocol_error("the sink sent a second verdict");
            return;
        }
        if !self.end_announced {
            self.protocol_error("the sink sent a verdict before the end of the list");
            return;
        }
        let open = self.files.iter().min_by_key(|(index, _)| **index);
        let open = open.filter(|_| !self.planted.is(Mutant::SourceAcceptsEarlyVerdict));
        if let Some(path) = open.map(|(_, file)| file.path.clone()) {
            let (open, listed) = (self.files.len(), self.progress.entries_listed);
            let cause =
                format!("the sink sent a verdict, but {open} of {listed} entries have not ended");
            self.fail_impossible_completion(cause, Some(&path));
            return;
        }
        if let Some(cause) = self.contradiction(&totals) {
            self.fail_impossible_completion(cause, None);
            return;
        }
        self.phase = Phase::Closing(totals);
        self.out.push_back(Effect::StoreVerdict(totals));
    }

    /// Reports to the sink that the verdict is stored, so that the sink deletes its log. If storing
    /// failed, the log stays. The next run then finds all files complete and stores the verdict.
    pub(super) fn on_stored_here(&mut self, result: Result<(), Error>) {
        let Phase::Closing(totals) = self.phase else {
            return;
        };
        match result {
            Ok(()) => {
                self.send_profile();
                self.out.push_back(Effect::Message(Message::VerdictStored));
            }
            Err(error) => {
                let event = Event::Notice(error.clone());
                self.out.push_back(Effect::Report(event));
                self.send_profile();
                self.out.push_back(Effect::Message(Message::GoAway(error)));
                self.end(Outcome::Done(totals));
            }
        }
    }

    /// Compares the counts in the verdict with the closed entries, and returns a description of a
    /// contradiction. If the sink is the driver, its verdict may also count entries of other
    /// sources.
    fn contradiction(&self, said: &Totals) -> Option<String> {
        let known = &self.closed;
        let counts = [
            ("files", said.files, known.files),
            ("adopted files", said.files_adopted, known.files_adopted),
            ("skipped files", said.files_skipped, known.files_skipped),
            ("failures", said.files_failed, known.files_failed),
            ("folders and links", said.others, known.others),
            ("bytes", said.bytes, known.bytes),
        ];
        let is_wrong = |(_, said, known): &&(&str, u64, u64)| match self.config.is_driver {
            true => said != known,
            false => said < known,
        };
        let wrong = counts.iter().find(is_wrong);
        wrong.map(|(what, said, known)| {
            format!(
                "the verdict of the sink counts {said} {what}, but the sink's earlier \
                messages reported {known}"
            )
        })
    }

    /// Ends the session because the sink reports a completion that is not possible.
    pub(super) fn fail_impossible_completion(&mut self, cause: String, path: Option<&RelPath>) {
        let error = Error::new(ErrorKind::Protocol, End::Sink, "finish the transfer")
            .cause(cause)
            .remedy(
                "do not use the copied files before you check the files and the program at \
                the sink",
            );
        self.break_off(match path {
            Some(path) => error.file(path),
            None => error,
        });
    }
}

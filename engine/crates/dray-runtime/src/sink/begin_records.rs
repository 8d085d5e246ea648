//! Records of begun files, which several threads append to the log together.
//!
//! An append takes a round trip to the storage target with the log. While one thread appends, other
//! threads queue their records. The thread that gets the destination's lock next appends all queued
//! records at once.

use crate::sink::files::Space;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_log::{FileBegin, FileNumber, ObjectLog};
use std::collections::HashMap;
use std::sync::Mutex;

/// Identifies a queued record.
type Ticket = u64;

#[derive(Default)]
struct Queue {
    next: Ticket,
    waiting: Vec<(Ticket, FileBegin)>,
    /// Results of records that another thread has appended.
    appended: HashMap<Ticket, Result<FileNumber>>,
}

/// The queue of a session.
#[derive(Default)]
pub(super) struct BeginRecords(Mutex<Queue>);

impl BeginRecords {
    fn push(&self, begin: FileBegin) -> Ticket {
        let mut queue = self.0.lock_unpoisoned();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push((ticket, begin));
        ticket
    }

    /// Returns the result of a record, if another thread has appended it.
    fn result(&self, ticket: Ticket) -> Option<Result<FileNumber>> {
        self.0.lock_unpoisoned().appended.remove(&ticket)
    }

    fn take_waiting(&self) -> Vec<(Ticket, FileBegin)> {
        std::mem::take(&mut self.0.lock_unpoisoned().waiting)
    }

    fn set_results(&self, results: impl IntoIterator<Item = (Ticket, Result<FileNumber>)>) {
        self.0.lock_unpoisoned().appended.extend(results);
    }
}

impl Space {
    /// Records the begin of a file in the log. Appends the record immediately: another transfer that
    /// is about to begin the same file reads this log.
    pub(super) fn record_begin(&self, begin: FileBegin) -> Result<FileNumber> {
        let ticket = self.begin_records.push(begin);
        let mut destination = self.destination()?;
        if let Some(result) = self.begin_records.result(ticket) {
            return result;
        }
        let mut begun = Vec::new();
        for (ticket, begin) in self.begin_records.take_waiting() {
            begun.push((ticket, destination.log.begin_file(begin)));
        }
        let written = destination.log.write_pending();
        let results = begun.into_iter().map(|(ticket, begun)| {
            let result = begun.and_then(|number| written.clone().map(|()| number));
            (ticket, result)
        });
        // Another thread looks for its result when it gets the destination's lock, so set the
        // results before the lock is released.
        self.begin_records.set_results(results);
        drop(destination);
        self.begin_records.result(ticket).unwrap_or_else(|| {
            Err(
                Error::new(ErrorKind::Internal, End::Sink, "record the file in the log")
                    .cause("the record is not in the queue of records"),
            )
        })
    }
}

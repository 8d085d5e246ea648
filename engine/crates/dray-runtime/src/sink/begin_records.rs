//! Records of begun files, which several threads append to the log together.
//!
//! An append takes a round trip to the storage target with the log. While one thread appends, other
//! threads queue their records. The thread that gets the destination's lock next appends all queued
//! records at once.

use dray_core::Result;
use dray_core::lock::LockExt;
use dray_log::{FileBegin, FileNumber};
use std::collections::HashMap;
use std::sync::Mutex;

/// Identifies a queued record.
pub(super) type Ticket = u64;

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
    pub(super) fn push(&self, begin: FileBegin) -> Ticket {
        let mut queue = self.0.lock_unpoisoned();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push((ticket, begin));
        ticket
    }

    /// Returns the result of a record, if another thread has appended it.
    pub(super) fn result(&self, ticket: Ticket) -> Option<Result<FileNumber>> {
        self.0.lock_unpoisoned().appended.remove(&ticket)
    }

    pub(super) fn take_waiting(&self) -> Vec<(Ticket, FileBegin)> {
        std::mem::take(&mut self.0.lock_unpoisoned().waiting)
    }

    pub(super) fn set_results(
        &self,
        results: impl IntoIterator<Item = (Ticket, Result<FileNumber>)>,
    ) {
        self.0.lock_unpoisoned().appended.extend(results);
    }
}

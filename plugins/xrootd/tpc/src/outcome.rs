//! Observes a running copy and reports its outcome.

use crate::{log, process};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::drive::{Ended, Ending, Watch};
use dray_runtime::observe::Observer;
use dray_session::{Event, Failure, Progress};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Function that receives the progress counters.
pub(crate) type Tell = Box<dyn Fn(&Progress) + Sync>;

/// Records failures, and passes the progress counters on.
#[derive(Default)]
pub(crate) struct Ear {
    failures: Mutex<Vec<Failure>>,
    /// True after the file was published. If the session is then lost, the next session finds the
    /// published file.
    is_done: AtomicBool,
    tell: Option<Tell>,
}

impl Ear {
    /// Creates an observer that passes the progress counters to `tell`.
    pub(crate) fn telling(tell: Tell) -> Self {
        Self {
            tell: Some(tell),
            ..Self::default()
        }
    }
}

impl Observer for Ear {
    fn event(&self, event: &Event) {
        match event {
            Event::Failed(failure) => {
                let mut failures = self.failures.lock_unpoisoned();
                failures.push(failure.clone());
            }
            Event::Notice(notice) => log::note(&format!("note: {notice}")),
            Event::FileDone { .. } => self.is_done.store(true, Ordering::Relaxed),
        }
    }

    fn progress(&self, progress: &Progress) {
        if let Some(tell) = &self.tell {
            tell(progress);
        }
    }
}

impl Watch for Ear {}

/// Returns the outcome of the session, and clears the failures that it includes.
pub(crate) fn told(ended: &Ended, ear: &Ear) -> Result<()> {
    let progress = ended.progress;
    log::note(&format!(
        "copy {} sent={} resumed={} durable={}",
        process::number(),
        progress.bytes_sent,
        progress.bytes_resumed,
        progress.bytes_durable
    ));
    let failures = std::mem::take(&mut *ear.failures.lock_unpoisoned());
    let failure = failures.into_iter().next().map(|failure| failure.error);
    match (ended.ending.clone(), failure) {
        (Ending::Done { failed: 0 }, None) if ear.is_done.load(Ordering::Relaxed) => Ok(()),
        (Ending::Done { failed: 0 }, None) => check_one(&progress),
        (_, Some(error)) if error.kind == ErrorKind::AlreadyExists => Err(taken()),
        (_, Some(error)) => Err(error),
        (Ending::Refused(error) | Ending::Unreachable(error) | Ending::Interrupted(error), _) => {
            Err(error)
        }
        (Ending::Done { .. } | Ending::Cancelled, None) => {
            Err(Error::new(ErrorKind::Cancelled, End::Here, "copy the file")
                .remedy("request the copy again; it resumes from durable data"))
        }
    }
}

/// Checks that the file was published. A copy without a recorded failure may still have published
/// no file.
fn check_one(progress: &Progress) -> Result<()> {
    if progress.files_skipped > 0 {
        return Err(taken());
    }
    if progress.files_done == 1 {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Unsupported, End::Source, "copy the file");
    Err(error
        .cause("the source's name is reserved: names that begin with .dray- belong to dray")
        .remedy("rename the file at the source"))
}

/// Returns the error for a destination name that another file took after the client was permitted
/// to create a new file.
pub(crate) fn taken() -> Error {
    Error::new(ErrorKind::AlreadyExists, End::Sink, "publish the file")
        .cause("another file has been created under this name since the copy was requested")
        .remedy("request the copy again to replace the new file; durable data is not sent again")
}

//! Observes one session. Writes the session's counters to the queue, and the outcomes of files to
//! the list of the transfer's files.

use crate::live::Moving;
use dray_api::api_path;
use dray_api::{Bytes, ErrorParts, FileOutcome, FileState, Files, Objects};
use dray_core::lock::LockExt;
use dray_core::{End, Error, Result, Status, StreamId, TransferId};
use dray_queue::promises::asks_promise;
use dray_queue::{Counters, Manifest, Queue, SessionInput};
use dray_runtime::drive::{Ended, Watch};
use dray_runtime::observe::{Observer, TargetLoad};
use dray_session::{Event, Progress, UnderWay};
use dray_wire::message::{BlockHead, SegmentKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notice of a transfer whose list of files lacks outcomes. The receipt contains this notice.
const INCOMPLETE: &str = "the list of the transfer's files is incomplete; see the endpoint's log";

/// The failures and the counters of a session, when the session has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    /// The first temporary failure.
    pub(super) temporary: Option<Error>,
    /// The first failure, temporary or permanent.
    pub(super) first: Option<Error>,
    /// True if every failure was a failure of the source.
    pub(super) is_sources: bool,
    /// Counters at the end.
    pub(super) counters: Counters,
}

#[derive(Default)]
struct Notes {
    report: Report,
    failed_elsewhere: bool,
    /// The list of file outcomes. `None` after a write error, which is logged once.
    manifest: Option<Manifest>,
}

/// The observer of one session.
pub(super) struct Monitor<'q> {
    queue: &'q Queue,
    id: TransferId,
    moving: Arc<Moving>,
    notes: Mutex<Notes>,
    /// Number of bytes that arrived at a local sink. Counted here, because the sink's state machine
    /// does not know how many bytes the source has sent.
    arrived_bytes: AtomicU64,
    arrived_objects: AtomicU64,
    /// Set when the source has listed all entries. A promise that was impossible without the total
    /// size may be possible now.
    is_listed: AtomicBool,
}

impl<'q> Monitor<'q> {
    pub(super) fn new(queue: &'q Queue, input: &SessionInput, moving: Arc<Moving>) -> Self {
        let manifest = queue.manifest(&input.id, input.attempt);
        let manifest = manifest
            .inspect_err(|error| tracing::error!(transfer = %input.id, "{error}"))
            .ok();
        Self {
            queue,
            id: input.id.clone(),
            moving,
            notes: Mutex::new(Notes {
                manifest,
                ..Notes::default()
            }),
            arrived_bytes: AtomicU64::new(0),
            arrived_objects: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock_unpoisoned()
    }

    fn write(&self, outcome: &FileOutcome) {
        let mut notes = self.notes();
        if let Some(manifest) = &mut notes.manifest
            && let Err(error) = manifest.add(outcome)
        {
            tracing::error!(transfer = %self.id, "{error}");
            notes.manifest = None;
            drop(notes);
            self.queue.noticed(&self.id, INCOMPLETE);
        }
    }

    fn counters(&self, progress: &Progress) -> Counters {
        Counters {
            files: Files {
                listed: progress.files_listed,
                done: progress.files_done.saturating_sub(progress.files_skipped),
                failed: progress.files_failed,
                skipped: progress.files_skipped,
                adopted: progress.files_adopted,
                listing_done: progress.listing_done,
            },
            bytes: Bytes {
                listed: progress.bytes_listed,
                durable: progress.bytes_durable,
                resumed: progress.bytes_resumed,
                adopted: progress.bytes_adopted,
                sent: progress
                    .bytes_sent
                    .max(self.arrived_bytes.load(Ordering::Relaxed)),
                read_back: progress.bytes_read_back,
            },
            objects: Objects {
                sent: progress
                    .objects_sent
                    .max(self.arrived_objects.load(Ordering::Relaxed)),
                resumed: progress.objects_resumed,
            },
            profile: progress.profile,
            interrupted_since: None,
            streams: progress.streams,
        }
    }

    /// Requests the transfer's promise again if it has none, because the listing is complete and
    /// the size is known.
    fn listed(&self, bytes: u64) -> Result<()> {
        let request = self.queue.request(&self.id)?;
        let is_promised = || self.queue.promises().is_promised(self.id.as_str());
        if request.is_some_and(|request| asks_promise(&request)) && !is_promised() {
            self.queue.listed(&self.id, bytes)?;
        }
        Ok(())
    }

    /// Ends the observation: writes the last counters, and returns the report.
    pub(super) fn finish(self, ended: &Ended) -> Report {
        let counters = self.counters(&ended.progress);
        self.moving.note_sink(&ended.progress);
        self.queue.progress(&self.id, &counters);
        let mut notes = self
            .notes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(manifest) = &mut notes.manifest
            && let Err(error) = manifest.sync()
        {
            tracing::error!(transfer = %self.id, "{error}");
            self.queue.noticed(&self.id, INCOMPLETE);
        }
        Report {
            is_sources: !notes.failed_elsewhere,
            counters,
            ..notes.report
        }
    }
}

impl Observer for Monitor<'_> {
    fn event(&self, event: &Event) {
        match event {
            Event::FileDone { path, size, sums } => self.write(&FileOutcome {
                path: api_path::encode(path.as_bytes()),
                state: FileState::Done,
                size: Some(*size),
                adler32: sums.as_ref().map(|sums| format!("{:08x}", sums.adler32)),
                crc32c: sums.as_ref().map(|sums| format!("{:08x}", sums.crc32c)),
                error: None,
            }),
            Event::Failed(failure) => {
                let error = &failure.error;
                self.queue.file_failed(&self.id, &failure.path, error);
                self.write(&FileOutcome {
                    path: api_path::encode(failure.path.as_bytes()),
                    state: FileState::Failed,
                    size: None,
                    adler32: None,
                    crc32c: None,
                    error: Some(ErrorParts::from(error)),
                });
                let mut notes = self.notes();
                notes.report.first.get_or_insert_with(|| error.clone());
                notes.failed_elsewhere |= error.end != End::Source;
                if error.status != Status::Permanent {
                    notes.report.temporary.get_or_insert_with(|| error.clone());
                }
            }
            Event::Notice(error) => self.queue.noticed(&self.id, &error.to_string()),
        }
    }

    fn progress(&self, progress: &Progress) {
        self.moving.note(progress);
        self.queue.progress(&self.id, &self.counters(progress));
        if progress.listing_done
            && !self.is_listed.swap(true, Ordering::Relaxed)
            && let Err(error) = self.listed(progress.bytes_listed)
        {
            // The next progress report calls this function again.
            self.is_listed.store(false, Ordering::Relaxed);
            tracing::error!(transfer = %self.id, "{error}");
        }
        let mut notes = self.notes();
        if let Some(manifest) = &mut notes.manifest {
            // Ignored here: a write error is reported with the next line that is added to the list.
            let _ = manifest.flush();
        }
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.moving.note_targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.moving.takes_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.moving.note_under_way(end, found);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        // A source counts its sent bytes itself.
        if stream.is_some() {
            return;
        }
        let data = head.segments.iter();
        let data = data.filter(|segment| segment.kind != SegmentKind::Hole);
        let bytes = data.map(|segment| segment.range.length).sum();
        self.arrived_objects.fetch_add(1, Ordering::Relaxed);
        self.arrived_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.moving.arrived(bytes);
    }
}

impl Watch for Monitor<'_> {}

#[cfg(test)]
mod tests;

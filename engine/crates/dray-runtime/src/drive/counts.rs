//! Sums of counters over all sessions of a transfer, and counters that one end alone does not have.

use super::{Ended, Ending};
use crate::observe::{Observer, TargetLoad};
use dray_core::profile::Profile;
use dray_core::{End, Result, StreamId};
use dray_session::{Event, Found, Progress, UnderWay};
use dray_wire::message::{BlockHead, SegmentKind, Totals};
use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over all sessions.
#[derive(Default)]
pub(super) struct Sent {
    objects: u64,
    bytes: u64,
    read: u64,
    read_back: u64,
    /// Durable bytes that no session of this driver has moved. A later session also finds bytes of
    /// an earlier session, and these bytes are not counted here.
    found: Found,
    /// Number of objects that the first session resumed.
    objects_resumed: Option<u64>,
    /// Number of files that the sessions of this driver have published, and number of other files
    /// that the last session found complete at the destination.
    files: (u64, u64),
    profile: Profile,
}

impl Sent {
    pub(super) fn add(&mut self, progress: &Progress) {
        let found = Found {
            resumed: progress.bytes_resumed,
            adopted: progress.bytes_adopted,
        };
        self.found = found.after(self.found, self.bytes);
        let (brought, _) = self.files;
        let adopted = progress.files_adopted.saturating_sub(brought);
        let new = progress.files_safe().saturating_sub(progress.files_adopted);
        self.files = (brought + new, adopted);
        self.objects += progress.objects_sent;
        self.bytes += progress.bytes_sent;
        self.read += progress.bytes_read;
        self.read_back += progress.bytes_read_back;
        self.profile.join(&progress.profile);
        self.objects_resumed.get_or_insert(progress.objects_resumed);
    }

    pub(super) fn ended(&self, ending: Ending, last: Progress) -> Ended {
        Ended {
            ending,
            progress: Progress {
                objects_sent: self.objects,
                bytes_sent: self.bytes,
                bytes_read: self.read,
                bytes_read_back: self.read_back,
                objects_resumed: self.objects_resumed.unwrap_or_default(),
                bytes_resumed: self.found.resumed,
                bytes_adopted: self.found.adopted,
                files_adopted: self.files.1,
                profile: self.profile,
                ..last
            },
            found: None,
        }
    }
}

/// Counts the objects that arrive at a sink, and adds them to the sink's progress as sent objects.
/// The sink machine does not know the number of objects that the source has sent.
pub(super) struct Arrivals<'a> {
    observer: &'a dyn Observer,
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl<'a> Arrivals<'a> {
    pub(super) fn new(observer: &'a dyn Observer) -> Self {
        Self {
            observer,
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn complete(&self, progress: Progress) -> Progress {
        let bytes = self.bytes.load(Ordering::Relaxed);
        Progress {
            objects_sent: self.objects.load(Ordering::Relaxed),
            bytes_sent: bytes,
            // All bytes that arrived were read at the source. This end does not know the bytes that
            // were read and then lost in transit.
            bytes_read: bytes,
            ..progress
        }
    }
}

impl Observer for Arrivals<'_> {
    fn event(&self, event: &Event) {
        self.observer.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(progress);
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.observer.targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.observer.wants_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.observer.under_way(end, found);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        let data = head.segments.iter();
        let data = data.filter(|segment| segment.kind != SegmentKind::Hole);
        let bytes = data.map(|segment| segment.range.length).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.observer.object(stream, head);
    }

    fn store_verdict(&self, totals: &Totals) -> Result<()> {
        self.observer.store_verdict(totals)
    }
}

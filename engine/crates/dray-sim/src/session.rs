//! One session of a world: a source and a sink, their hosts, and the link between them.

use crate::faults::Phase;
use crate::link::Link;
use crate::sink_host::SinkHost;
use crate::source_host::SourceHost;
use crate::workload::Setup;
use dray_core::options::Overwrite;
use dray_core::retry::RetryPolicy;
use dray_core::{BlockId, BufferId, ByteRange, FileIndex, Time};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::progress::Outcome;
use dray_session::sink::{BlockKey, Config as SinkConfig, Sink, WritePart};
use dray_session::source::{Config as SourceConfig, Source};
use dray_wire::message::{Limits, Segment};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Retries of the simulated source. The pauses are short, because the simulated links are fast.
const RETRY: RetryPolicy = RetryPolicy {
    attempts_max: 5,
    backoff: Duration::from_millis(1),
    backoff_max: Duration::from_millis(20),
};

/// Record of an attempt to send a block.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Parts of the block, as read or as sent.
    pub parts: Vec<(FileIndex, ByteRange)>,
    /// Segments of the block, as sent.
    pub segments: Vec<Segment>,
    /// Number of payload bytes.
    pub bytes: u64,
}

/// A session of a world.
#[derive(Debug)]
pub struct Session {
    /// The source's machine.
    pub source: Source,
    /// The sink's machine.
    pub sink: Sink,
    /// The source's host.
    pub source_host: SourceHost,
    /// The sink's host.
    pub host: SinkHost,
    /// The link between them.
    pub link: Link,
    /// Outcome of the source. `None` while it runs.
    pub source_end: Option<Outcome>,
    /// Outcome of the sink. `None` while it runs.
    pub sink_end: Option<Outcome>,
    /// True while the process of the source is alive.
    pub source_lives: bool,
    /// True while the process of the sink is alive.
    pub sink_lives: bool,
    /// Time at which the source's next tick is due.
    pub source_wake: Option<Time>,
    /// Time at which the sink's next tick is due.
    pub sink_wake: Option<Time>,
    /// Number of the sink's syncs in progress.
    pub syncing: u32,
    /// Number of appends to the log in progress.
    pub logging: u32,
    /// Number of publishing effects in progress.
    pub publishing: u32,
    /// True if the sink has written data.
    pub has_written: bool,
    /// True if the sink has sent its verdict.
    pub is_closing: bool,
    /// True if the source has stored the verdict.
    pub is_verdict_stored: bool,
    /// Writes in progress. A kill of the sink leaves a part of each.
    pub writes: BTreeMap<BlockKey, (Vec<WritePart>, Option<BufferId>)>,
    /// Attempts that, as the source knows, are in progress or have succeeded.
    pub attempts: BTreeMap<BlockId, Attempt>,
    /// Entries that were closed as failed.
    pub failed: BTreeSet<FileIndex>,
    /// Entries that were adopted or skipped.
    pub left: BTreeSet<FileIndex>,
    /// Entries that were closed without an error.
    pub closed: BTreeSet<FileIndex>,
    /// Files that the sink has requested from the source.
    pub wanted: BTreeSet<FileIndex>,
    /// Files that were read back, each with the inode that was read.
    pub read_back: BTreeMap<FileIndex, u64>,
    /// Number of payload bytes that were refused or lost.
    pub wasted: u64,
    /// Objects that have arrived while no buffer was free.
    pub waiting: VecDeque<(u32, Vec<u8>)>,
    /// Number of payload bytes sent.
    pub sent: u64,
    /// True if bit rot must occur at the next read-back.
    pub rots: bool,
    /// Target that stalls, at both ends, and the end of the stall.
    pub stall: Option<(u32, Time)>,
    /// End of the last inspection in progress. Inspections run one after the other.
    pub inspected: Time,
    /// Time at which the logger has written the records that it has received.
    pub logged: Time,
    /// True if files are read back before they are published.
    pub verifies: bool,
    /// True if the overwrite option forbade replacing files when the session began. After a crash,
    /// the caller may permit replacement for later sessions.
    pub keeps: bool,
    /// True if the sink is the driver. Its outcome alone then decides whether the transfer is done.
    pub sink_drives: bool,
    /// Maximum number of bytes that one fault may lose.
    pub exposed: u64,
}

impl Session {
    /// Creates a session.
    #[must_use]
    pub fn new(setup: &Setup, source_host: SourceHost, host: SinkHost, seed: u64) -> Self {
        let limits = Limits {
            control_bytes_max: 2048,
            object_bytes_max: setup.buffer_bytes,
            segments_max: setup.segments_max,
            live_entries_max: setup.live_entries_max,
        };
        let source = Source::new(SourceConfig {
            options: setup.options.clone(),
            buffers: setup.buffers,
            buffer_bytes: setup.buffer_bytes,
            readers: ThreadCount::Fixed(setup.reads_max),
            segments_max: setup.segments_max,
            live_entries_max: setup.live_entries_max,
            retry: RETRY,
            seed,
            attempt: 1,
            is_driver: !setup.sink_drives,
            announces_early: setup.announces_early,
        });
        let sink = Sink::new(SinkConfig {
            options: setup.options.clone(),
            demanded: None,
            required: std::collections::BTreeMap::new(),
            identity: Vec::new(),
            buffers: setup.buffers,
            buffer_bytes: setup.buffer_bytes,
            writers: ThreadCount::Fixed(4),
            live_entries_max: setup.live_entries_max,
            claims: Vec::new(),
            precision_nanoseconds: 1,
            ordered_window: setup.ordered_window,
            holes: setup.holes,
            sync_group_bytes: setup.sync_group_bytes,
            unsafe_bytes_max: setup.unsafe_bytes_max(),
            sync_interval: setup.sync_interval,
            syncs_apart: setup.syncs_apart,
            writes_durably: setup.writes_durably,
            attempt: 1,
            is_driver: setup.sink_drives,
        })
        .logging_apart(setup.logs_apart);
        Self {
            source,
            sink,
            source_host,
            host,
            link: Link::new(limits),
            source_end: None,
            sink_end: None,
            source_lives: true,
            sink_lives: true,
            source_wake: None,
            sink_wake: None,
            syncing: 0,
            logging: 0,
            publishing: 0,
            has_written: false,
            is_closing: false,
            is_verdict_stored: false,
            writes: BTreeMap::new(),
            attempts: BTreeMap::new(),
            failed: BTreeSet::new(),
            left: BTreeSet::new(),
            closed: BTreeSet::new(),
            wanted: BTreeSet::new(),
            read_back: BTreeMap::new(),
            wasted: 0,
            waiting: VecDeque::new(),
            sent: 0,
            rots: false,
            stall: None,
            inspected: Time::ZERO,
            logged: Time::ZERO,
            verifies: setup.options.verify,
            sink_drives: setup.sink_drives,
            keeps: setup.options.overwrite == Overwrite::Never,
            exposed: setup.pool_bytes() + setup.unsafe_bytes_max(),
        }
    }

    /// Returns the current phase of the session.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        if self.is_closing {
            Phase::Closing
        } else if self.logging > 0 {
            Phase::Logging
        } else if self.syncing > 0 {
            Phase::Syncing
        } else if self.publishing > 0 {
            Phase::Publishing
        } else if self.has_written {
            Phase::Moving
        } else {
            Phase::Listing
        }
    }

    /// Returns true if the source has ended or was killed.
    #[must_use]
    pub const fn source_is_over(&self) -> bool {
        !self.source_lives || self.source_end.is_some()
    }

    /// Returns true if the sink has ended or was killed.
    #[must_use]
    pub const fn sink_is_over(&self) -> bool {
        !self.sink_lives || self.sink_end.is_some()
    }

    /// Returns true if both ends have ended or were killed.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.source_is_over() && self.sink_is_over()
    }

    /// Returns the number of failed files if the transfer is done. If the sink is the driver, its
    /// report is enough. Otherwise both ends must report that the transfer is done.
    #[must_use]
    pub fn done(&self) -> Option<u64> {
        match (&self.source_end, &self.sink_end) {
            (_, Some(Outcome::Done(totals))) if self.sink_drives => Some(totals.files_failed),
            (Some(Outcome::Done(totals)), Some(Outcome::Done(_))) => Some(totals.files_failed),
            _ => None,
        }
    }
}

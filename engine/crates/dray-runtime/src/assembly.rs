//! The configuration of the source machine and the sink machine: buffers, threads, limits, and
//! requirements on the content of files.
//!
//! All programs that run a transfer use this module. So each program can resume a transfer that
//! another program began.

use crate::sink::{self, Destination};
use crate::source::{self, Root};
use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{ByteRange, Checksum, RelPath, Required, plan};
pub use dray_sched::tuner::threads::ThreadCount;
use dray_store::Capabilities;
use dray_wire::message::{Limits, Selection};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Default total size of the buffers of one end, in bytes.
pub const POOL_BYTES_DEFAULT: u64 = 256 << 20;

/// Minimum number of buffers of an end. With fewer buffers, reading, sending and writing would not
/// overlap.
pub const BUFFERS_MIN: u64 = 8;
/// Maximum number of buffers of an end. Each buffer has a 32-bit id and a few bytes of bookkeeping.
const BUFFERS_MAX: u64 = 1 << 20;

/// Default number of concurrent reads, and of concurrent writes, on a storage target. LADS runs a
/// handful of I/O threads for each OST. The value is estimated, not measured.
pub const THREADS_PER_TARGET: u32 = 4;

/// Default number of concurrent writes to a server. The number is larger than for a local disk,
/// because each write waits for a network round trip. The value is estimated, not measured.
const THREADS_TO_SERVER: u32 = 16;

/// Maximum number of threads per storage target, configured or tuned. Up to 64 targets of an end
/// have threads of their own, so an end has at most 4096 such threads. The value is estimated, not
/// measured.
pub const THREADS_MAX: u32 = 64;

/// Number of threads that read or write each storage target of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// The default number for this kind of target.
    #[default]
    Usual,
    /// This number, at most [`THREADS_MAX`].
    Fixed(u32),
    /// A number that is tuned while a transfer runs. Tuning starts from the default.
    Tuned,
}

impl Threads {
    /// Returns the number of readers of each target. If the tuner sets the number of readers, it is
    /// at most the number of buffers, because each reader holds a buffer while it reads.
    #[must_use]
    pub fn readers(self, buffers: Buffers) -> ThreadCount {
        self.count(THREADS_PER_TARGET, buffers)
    }

    /// Returns the number of writers of each target of a store with these capabilities.
    #[must_use]
    pub fn writers(self, can: &Capabilities, buffers: Buffers) -> ThreadCount {
        let usual = match can.takes_many {
            true => THREADS_TO_SERVER,
            false => THREADS_PER_TARGET,
        };
        self.count(usual, buffers)
    }

    fn count(self, usual: u32, buffers: Buffers) -> ThreadCount {
        match self {
            Self::Usual => ThreadCount::Fixed(usual),
            Self::Fixed(count) => ThreadCount::Fixed(count.clamp(1, THREADS_MAX)),
            Self::Tuned => ThreadCount::Tuned {
                first: usual,
                most: THREADS_MAX.min(buffers.count),
            },
        }
    }
}

/// Maximum number of entries that are announced and not closed. This number exceeds the number of
/// files in a sync group. Both ends together need about 32 MiB of bookkeeping for this many
/// entries. The value is estimated, not measured.
const LIVE_ENTRIES_MAX: u32 = 1 << 15;

/// Maximum number of objects of one file in transit to a store without random writes. A small
/// number keeps the written ranges close together. No present store needs this limit. The value is
/// estimated, not measured.
const ORDERED_WINDOW: u32 = 16;

/// Maximum number of bytes of a sync group. Together with [`SYNC_INTERVAL`] this number bounds the
/// data that must be sent again after a fault.
const SYNC_GROUP_BYTES: u64 = 64 << 20;
/// Maximum number of bytes without a durable record in the log, for a store whose answered writes
/// are durable. With [`SYNC_GROUP_BYTES`] as the limit, a slow target that holds the log would stop
/// all targets: during each long commit of the log, the other targets would reach the limit
/// (decision 58).
const UNLOGGED_BYTES_MAX: u64 = 4 * SYNC_GROUP_BYTES;
/// Maximum age of a sync group.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);

/// Number and size of the buffers of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// Number of buffers.
    pub count: u32,
    /// Size of each buffer in bytes.
    pub bytes: u64,
}

impl Buffers {
    /// Returns the number of buffers of `bytes` bytes that fit into `pool` bytes, but at least
    /// [`BUFFERS_MIN`].
    #[must_use]
    pub fn new(pool: u64, bytes: u64) -> Self {
        let count = (pool / bytes.max(1)).clamp(BUFFERS_MIN, BUFFERS_MAX);
        Self {
            // The number fits into 32 bits, because of the clamp above.
            count: u32::try_from(count).unwrap_or(u32::MAX),
            bytes,
        }
    }
}

/// Properties of the files that the sink's machine must know.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// Required checksum of the file.
    pub demanded: Option<Checksum>,
    /// Requirements on the files of a transfer of many files, by path.
    pub required: BTreeMap<RelPath, Required>,
    /// The only byte range of the file that is transferred; `None` for the whole file.
    pub range: Option<ByteRange>,
    /// Further properties of the content, apart from size, time and range, in an encoding of the
    /// caller. May be empty. A log with other properties is stale.
    pub named: Vec<u8>,
}

impl Content {
    /// Returns the identity of the content, apart from size and time. Two different ranges of a
    /// file are different contents.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let mut identity = match self.range {
            Some(range) => format!("range:{}:{}", range.offset, range.length).into_bytes(),
            None => return self.named.clone(),
        };
        if !self.named.is_empty() {
            identity.push(b':');
            identity.extend_from_slice(&self.named);
        }
        identity
    }
}

/// Returns the limits that this end declares to its peer.
#[must_use]
pub fn limits(buffers: Buffers) -> Limits {
    Limits {
        object_bytes_max: buffers.bytes.min(plan::OBJECT_BYTES_MAX),
        live_entries_max: LIVE_ENTRIES_MAX,
        ..Limits::default()
    }
}

/// Returns the configuration of the source machine, for an end that does not drive the transfer.
#[must_use]
fn source_config(
    options: Options,
    buffers: Buffers,
    limits: &Limits,
    attempt: u32,
) -> dray_session::source::Config {
    dray_session::source::Config {
        options,
        buffers: buffers.count,
        buffer_bytes: buffers.bytes.min(limits.object_bytes_max),
        readers: Threads::Usual.readers(buffers),
        segments_max: limits.segments_max,
        live_entries_max: limits.live_entries_max,
        retry: RetryPolicy::default(),
        seed: random(),
        attempt,
        is_driver: false,
        announces_early: false,
    }
}

/// Returns the configuration of the sink machine. `ends` holds the capabilities of the sink's
/// store, and of the source's store if they are known.
#[must_use]
fn sink_config(
    options: Options,
    content: &Content,
    buffers: Buffers,
    limits: &Limits,
    ends: (Capabilities, Option<Capabilities>),
    attempt: u32,
) -> dray_session::sink::Config {
    let (own, source) = ends;
    let source_precision = source.map_or(1, |source| source.time_precision_nanoseconds);
    dray_session::sink::Config {
        options,
        demanded: content.demanded,
        required: content.required.clone(),
        identity: content.identity(),
        buffers: buffers.count,
        buffer_bytes: buffers.bytes.min(limits.object_bytes_max),
        writers: Threads::Usual.writers(&own, buffers),
        live_entries_max: limits.live_entries_max,
        // The destination adds the claims later.
        claims: Vec::new(),
        precision_nanoseconds: own.time_precision_nanoseconds.max(source_precision),
        ordered_window: (!own.random_write).then_some(ORDERED_WINDOW),
        holes: own.holes,
        sync_group_bytes: SYNC_GROUP_BYTES,
        unsafe_bytes_max: match own.writes_durably {
            true => UNLOGGED_BYTES_MAX,
            false => SYNC_GROUP_BYTES,
        },
        sync_interval: SYNC_INTERVAL,
        syncs_apart: own.syncs_apart,
        writes_durably: own.writes_durably,
        attempt,
        is_driver: false,
    }
}

/// The settings that the source machine and the sink machine of a session have in common. Each
/// program that runs a transfer builds one `TransferPlan`, and derives the arguments of
/// [`source::run`] and [`sink::run`] from it.
#[derive(Debug, Clone)]
pub struct TransferPlan {
    options: Options,
    content: Content,
    buffers: Buffers,
    limits: Limits,
    session: u32,
    is_driver: bool,
}

impl TransferPlan {
    /// Returns the plan of an end with `buffers`, which hold one object each.
    #[must_use]
    pub fn new(
        options: Options,
        content: Content,
        buffers: Buffers,
        limits: Limits,
        session: u32,
    ) -> Self {
        Self {
            options,
            content,
            buffers,
            limits,
            session,
            is_driver: false,
        }
    }

    /// Returns the plan of a copy with both ends in this process. Their buffers take `pool` bytes
    /// together. If an earlier run cut the files into larger objects, the copy keeps that object
    /// size.
    #[must_use]
    pub fn local(
        options: Options,
        content: Content,
        pool: u64,
        destination: &Destination,
        session: u32,
    ) -> Self {
        let object_bytes = options
            .object_bytes
            .max(destination.object_bytes_max())
            .min(plan::OBJECT_BYTES_MAX);
        let buffers = Buffers::new(pool / 2, object_bytes);
        Self::new(options, content, buffers, limits(buffers), session)
    }

    /// Returns the same plan for the end that drives the session.
    #[must_use]
    pub fn driving(self) -> Self {
        Self {
            is_driver: true,
            ..self
        }
    }

    /// Returns the same plan with at most `entries_max` entries announced and not closed.
    #[must_use]
    pub fn with_live_entries(mut self, entries_max: u32) -> Self {
        self.limits.live_entries_max = entries_max;
        self
    }

    /// Returns the arguments of a source with `threads` readers of each storage target.
    #[must_use]
    pub fn source(
        &self,
        roots: Vec<Root>,
        selection: Selection,
        threads: Threads,
    ) -> source::Setup {
        let (options, buffers) = (self.options.clone(), self.buffers);
        source::Setup {
            roots,
            selection,
            checkpoint: None,
            machine: dray_session::source::Config {
                is_driver: self.is_driver,
                readers: threads.readers(buffers),
                ..source_config(options, buffers, &self.limits, self.session)
            },
        }
    }

    /// Returns the arguments of a sink with `threads` writers of each storage target. `source`
    /// holds the capabilities of the source's store, if they are known.
    #[must_use]
    pub fn sink(
        &self,
        destination: Destination,
        source: Option<Capabilities>,
        threads: Threads,
    ) -> sink::Setup {
        let (options, buffers) = (self.options.clone(), self.buffers);
        let can = destination.can();
        let ends = (can, source);
        sink::Setup {
            destination,
            machine: dray_session::sink::Config {
                is_driver: self.is_driver,
                writers: threads.writers(&can, buffers),
                ..sink_config(
                    options,
                    &self.content,
                    buffers,
                    &self.limits,
                    ends,
                    self.session,
                )
            },
        }
    }
}

/// Returns a number that differs in each call. The number is too predictable for secrets.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::{BUFFERS_MIN, Buffers, ThreadCount, Threads};
    use dray_store::Capabilities;

    #[test]
    fn the_pool_is_cut_into_buffers_of_one_object() {
        assert_eq!(Buffers::new(64 << 20, 1 << 20).count, 64);
        assert_eq!(u64::from(Buffers::new(0, 1 << 20).count), BUFFERS_MIN);
        assert!(Buffers::new(u64::MAX, 4096).count > 1000);
    }

    #[test]
    fn the_number_of_threads_is_the_default_the_requested_one_or_that_of_buffers() {
        let buffers = Buffers::new(32 << 20, 1 << 20);
        let (disk, server) = (
            Capabilities::MINIMAL,
            Capabilities {
                takes_many: true,
                ..Capabilities::MINIMAL
            },
        );
        let fixed = ThreadCount::Fixed;
        assert_eq!(Threads::Usual.readers(buffers), fixed(4));
        assert_eq!(Threads::Usual.writers(&disk, buffers), fixed(4));
        assert_eq!(Threads::Usual.writers(&server, buffers), fixed(16));
        assert_eq!(Threads::Fixed(7).writers(&server, buffers), fixed(7));
        assert_eq!(Threads::Fixed(1000).readers(buffers), fixed(64));
        let tuned = |first, most| ThreadCount::Tuned { first, most };
        assert_eq!(Threads::Tuned.writers(&server, buffers), tuned(16, 32));
        let many = Buffers::new(1 << 30, 1 << 20);
        assert_eq!(Threads::Tuned.readers(many), tuned(4, 64));
    }
}

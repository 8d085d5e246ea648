//! Configuration, inputs and effects of the source's machine.

use crate::progress::{Event, Failure, Outcome};
use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BlockId, BufferId, ByteRange, Entry, Error, FileIndex, Layout, ModifiedTime, RelPath, StreamId,
    TargetId,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_wire::message::{BlockHead, Message, Segment};
use std::time::Duration;

/// Configuration of a source machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// Number of buffers of the pool; ids start at 0.
    pub buffers: u32,
    /// Bytes of a buffer: the size of the largest object.
    pub buffer_bytes: u64,
    /// Maximum number of concurrent reads on a source target.
    pub readers: ThreadCount,
    /// Maximum number of segments in a block (the lower limit of both ends).
    pub segments_max: u32,
    /// Maximum number of entries announced and not closed (the lower limit of both ends).
    pub live_entries_max: u32,
    /// Delays and number of attempts after errors.
    pub retry: RetryPolicy,
    /// Seed of the random numbers that spread retries.
    pub seed: u64,
    /// The driver's attempt number; a CANCEL of another attempt is ignored.
    pub attempt: u32,
    /// True if this end drives the transfer: it is then the sink's only source, and it alone sets
    /// the number of streams.
    pub is_driver: bool,
    /// True if entries are announced before the sink has reported its capabilities
    /// ([`EARLY_ENTRIES`] agreed): announcements do not depend on them.
    ///
    /// [`EARLY_ENTRIES`]: dray_wire::message::optional::EARLY_ENTRIES
    pub announces_early: bool,
}

/// A listed entry with facts that only the source needs.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The announced entry.
    pub entry: Entry,
    /// Path below the transfer's root.
    pub path: RelPath,
    /// Its targets at the source.
    pub layout: Layout,
}

/// A file's part of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPart {
    /// The file.
    pub file: FileIndex,
    /// Path of the file.
    pub path: RelPath,
    /// Range to read.
    pub range: ByteRange,
    /// Announced size; another size now means that the source changed.
    pub size: u64,
    /// Announced modification time; another time now means that the source changed.
    pub modified: ModifiedTime,
    /// True if the reader may look for holes.
    pub sparse: bool,
}

/// Result of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Contents of the buffer, in order, data and holes: each part that was read is covered
    /// completely.
    pub segments: Vec<Segment>,
    /// End of the hole that begins at the (single) part's offset, if the hole covers the part.
    pub hole_until: Option<u64>,
    /// Parts that could not be read.
    pub failed: Vec<(FileIndex, Error)>,
    /// Number of concurrent reads that suffices for its target, if the reads do not block
    /// ([`dray_sched::blocking`]).
    pub enough: Option<u32>,
}

/// An event for the machine.
#[derive(Debug)]
pub enum Input {
    /// Answer to [`Effect::List`].
    Listed {
        /// Entries in order.
        entries: Vec<Listed>,
        /// Entries that could not be listed.
        failed: Vec<Failure>,
        /// True if the listing is complete.
        finished: bool,
    },
    /// A control message of the sink.
    Message(Message),
    /// Answer to [`Effect::Read`].
    ReadDone {
        /// The block.
        block: BlockId,
        /// Result of the read.
        outcome: ReadOutcome,
    },
    /// Answer to [`Effect::Send`]: the buffer is no longer needed.
    Sent {
        /// The block.
        block: BlockId,
    },
    /// A data stream is ready.
    StreamUp(StreamId),
    /// A data stream is lost. No `Sent` follows for objects on it; their buffers are free.
    StreamLost(StreamId),
    /// The control connection is lost.
    PeerLost(Error),
    /// The verdict has been stored, or could not be (answer to [`Effect::StoreVerdict`]).
    VerdictStored(Result<(), Error>),
    /// A user requests a stop.
    Cancel {
        /// True if partial data and the log at the sink are deleted too.
        purge: bool,
    },
    /// This end is about to leave (its server stops). The sink receives the reason, and may start a
    /// session again: this is no cancellation.
    Leave(Error),
    /// Changes this end's own rate limit.
    SetRate(Option<u64>),
    /// Time that a stream has waited for its rate since its last report.
    Held(Duration),
    /// A stream has accepted a part of a long object.
    UnderWay(StreamId),
    /// Uses at most this number of streams for new objects, at least one; the other streams stay
    /// open.
    SetStreams(u32),
    /// The time returned by [`super::Source::next_wake`] has come.
    Tick,
}

/// An action for the runtime.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// List more entries.
    List {
        /// Maximum number of entries.
        max: u32,
    },
    /// Send a control message.
    Message(Message),
    /// Read into a buffer.
    Read {
        /// The attempt to send these parts.
        block: BlockId,
        /// The buffer to fill.
        buffer: BufferId,
        /// The target to read from.
        target: TargetId,
        /// The parts to read.
        parts: Vec<ReadPart>,
    },
    /// Send an object.
    Send {
        /// The stream.
        stream: StreamId,
        /// The payload; `None` for a hole.
        buffer: Option<BufferId>,
        /// The head.
        head: BlockHead,
    },
    /// End a stream, even if it looks alive, and report it as lost.
    GiveUp(StreamId, Error),
    /// Close the file: no more data is read from it.
    CloseFile(FileIndex),
    /// Report an event to the observer.
    Report(Event),
    /// Store the sink's totals durably, if they are kept beyond this process, then answer
    /// `VerdictStored`.
    StoreVerdict(dray_wire::message::Totals),
    /// The session has ended; no effect follows.
    End(Outcome),
}

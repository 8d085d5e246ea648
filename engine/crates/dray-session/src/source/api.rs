//! Configuration, inputs and effects of the source's state machine.

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

/// Configuration of a source's state machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// Number of buffers in the pool. Buffer ids start at 0.
    pub buffers: u32,
    /// Size of a buffer in bytes: the maximum object size.
    pub buffer_bytes: u64,
    /// Maximum number of concurrent reads per storage target.
    pub readers: ThreadCount,
    /// Maximum number of segments in a block: the lower limit of the two ends.
    pub segments_max: u32,
    /// Maximum number of announced and unclosed entries: the lower limit of the two ends.
    pub live_entries_max: u32,
    /// Delays and number of attempts after temporary errors.
    pub retry: RetryPolicy,
    /// Seed of the random numbers that spread retries over time.
    pub seed: u64,
    /// Number of the driver's attempt. The source ignores a CANCEL of another attempt.
    pub attempt: u32,
    /// True if this end drives the transfer. The source is then the sink's only source, and only it
    /// may set the number of streams.
    pub is_driver: bool,
    /// True if the ends agreed on [`EARLY_ENTRIES`]: the source announces entries before the sink's
    /// READY, because announcements do not depend on the sink's capabilities.
    ///
    /// [`EARLY_ENTRIES`]: dray_wire::message::optional::EARLY_ENTRIES
    pub announces_early: bool,
}

/// A listed entry, with the facts that only the source needs.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The entry to announce.
    pub entry: Entry,
    /// Path below the transfer's root.
    pub path: RelPath,
    /// Storage targets of the file at the source.
    pub layout: Layout,
}

/// A part of a read: a range of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPart {
    /// File of the range.
    pub file: FileIndex,
    /// Path of the file.
    pub path: RelPath,
    /// Range to read.
    pub range: ByteRange,
    /// Announced size. A different size at the read means that the file has changed.
    pub size: u64,
    /// Announced modification time. A different time at the read means that the file has changed.
    pub modified: ModifiedTime,
    /// True if the reader should look for holes.
    pub sparse: bool,
}

/// Result of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Content of the buffer in order, as data and holes. The segments cover each part that was
    /// read completely.
    pub segments: Vec<Segment>,
    /// End of the hole at the part's offset, if the whole part is in a hole. Only for reads of a
    /// single part.
    pub hole_until: Option<u64>,
    /// Files whose parts could not be read.
    pub failed: Vec<(FileIndex, Error)>,
    /// If reads from the target do not block: number of concurrent reads that suffices for it
    /// ([`dray_sched::blocking`]).
    pub enough: Option<u32>,
}

/// An event that the machine must handle.
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
    /// Answer to [`Effect::Send`]: the runtime no longer needs the buffer.
    Sent {
        /// The block.
        block: BlockId,
    },
    /// A data stream is ready.
    StreamUp(StreamId),
    /// A data stream was lost. No `Sent` follows for its objects; their buffers are free.
    StreamLost(StreamId),
    /// The control connection was lost.
    PeerLost(Error),
    /// Answer to [`Effect::StoreVerdict`]: the verdict has been stored, or could not be stored.
    VerdictStored(Result<(), Error>),
    /// A user requests a stop.
    Cancel {
        /// True if partial data and the log at the sink must also be deleted.
        purge: bool,
    },
    /// This end is about to stop, for example because its server stops. The sink receives the
    /// reason. It may start a new session, so this is not a cancellation.
    Leave(Error),
    /// Sets the rate limit of this end.
    SetRate(Option<u64>),
    /// Time that a stream has waited because of its rate limit, since its previous report.
    Held(Duration),
    /// A stream has accepted a part of a long object.
    UnderWay(StreamId),
    /// Sets the maximum number of streams that get new objects, at least one. The other streams
    /// stay open.
    SetStreams(u32),
    /// The time that [`super::Source::next_wake`] returned has come.
    Tick,
}

/// An action that the runtime must execute.
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
        /// Number of this attempt to send the parts.
        block: BlockId,
        /// The buffer to fill.
        buffer: BufferId,
        /// The target to read from.
        target: TargetId,
        /// The parts to read.
        parts: Vec<ReadPart>,
    },
    /// Send an object on a data stream.
    Send {
        /// The stream.
        stream: StreamId,
        /// The payload; `None` for a hole.
        buffer: Option<BufferId>,
        /// The head.
        head: BlockHead,
    },
    /// End a stream, even if it seems to work, and report it as lost.
    GiveUp(StreamId, Error),
    /// Close the file, because no more data will be read from it.
    CloseFile(FileIndex),
    /// Report an event to the observers.
    Report(Event),
    /// Store the sink's totals durably if they must outlive this process, then answer
    /// `VerdictStored`.
    StoreVerdict(dray_wire::message::Totals),
    /// The session has ended. No effect follows.
    End(Outcome),
}

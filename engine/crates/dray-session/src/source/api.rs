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
    /// Maximum number of segments in a block, agreed by both ends.
    pub segments_max: u32,
    /// Maximum number of entries that are announced and not closed, agreed by both ends.
    pub live_entries_max: u32,
    /// Delays between attempts after temporary errors, and the maximum number of attempts.
    pub retry: RetryPolicy,
    /// Seed of the random numbers that spread repeated attempts over time.
    pub seed: u64,
    /// Number of the driver's try. The source ignores a CANCEL for another try.
    pub attempt: u32,
    /// True if this end is the driver. The sink then has no other source, and only this end sets
    /// the number of streams.
    pub is_driver: bool,
    /// True if both ends agreed on [`EARLY_ENTRIES`]. The source then announces entries before the
    /// sink's READY message, because an announcement does not depend on the sink's capabilities.
    ///
    /// [`EARLY_ENTRIES`]: dray_wire::message::optional::EARLY_ENTRIES
    pub announces_early: bool,
}

/// A listed entry, with facts that only the source needs.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The entry to announce.
    pub entry: Entry,
    /// Path below the transfer's root.
    pub path: RelPath,
    /// Storage targets on which the file lies at the source.
    pub layout: Layout,
}

/// A part of a read: a range of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPart {
    /// Index of the file that contains the range.
    pub file: FileIndex,
    /// Path of the file.
    pub path: RelPath,
    /// The range to read.
    pub range: ByteRange,
    /// Announced size. If the reader finds another size, the file has changed.
    pub size: u64,
    /// Announced modification time. If the reader finds another time, the file has changed.
    pub modified: ModifiedTime,
    /// True if the reader should search for holes.
    pub sparse: bool,
}

/// Result of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Segments of data and holes, in the order of their bytes in the buffer. They cover all parts
    /// that were read completely.
    pub segments: Vec<Segment>,
    /// If the whole part lies in a hole: the end offset of this hole. Set only for reads of a
    /// single part.
    pub hole_until: Option<u64>,
    /// Files whose parts could not be read.
    pub failed: Vec<(FileIndex, Error)>,
    /// Set if reads from this target do not block: the number of concurrent reads that is enough
    /// for the target ([`dray_sched::blocking`]).
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
        /// Number of the block.
        block: BlockId,
        /// Result of the read.
        outcome: ReadOutcome,
    },
    /// Answer to [`Effect::Send`]: the runtime does not need the buffer any more.
    Sent {
        /// Number of the block.
        block: BlockId,
    },
    /// A data stream is ready.
    StreamUp(StreamId),
    /// A data stream was lost. No `Sent` input follows for the objects of this stream, and the
    /// buffers of these objects are free.
    StreamLost(StreamId),
    /// The control connection was lost.
    PeerLost(Error),
    /// Answer to [`Effect::StoreVerdict`]: success, or the reason why the verdict could not be
    /// stored.
    VerdictStored(Result<(), Error>),
    /// A user stops the session.
    Cancel {
        /// True if the sink must delete its partial files and its log.
        purge: bool,
    },
    /// This end is about to stop, for example because its server stops. The source sends the reason
    /// to the sink, which may start a new session later. This is not a cancellation.
    Stopping(Error),
    /// Sets the rate limit of this end in bytes per second.
    SetRate(Option<u64>),
    /// Time that a stream has waited for its rate limit since the previous `Held` input of this
    /// stream.
    Held(Duration),
    /// A stream has accepted a part of a long object, so the stream is not stuck.
    UnderWay(StreamId),
    /// Sets the maximum number of streams that get new objects, at least 1. All other streams stay
    /// open.
    SetStreams(u32),
    /// The time returned by [`super::Source::next_wake`] has come.
    Tick,
}

/// An action that the runtime must carry out.
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
        /// Number of the block, new for each attempt to send the parts.
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
        /// The stream on which to send.
        stream: StreamId,
        /// Buffer that contains the payload; `None` for a block without payload.
        buffer: Option<BufferId>,
        /// Head of the block.
        head: BlockHead,
    },
    /// End a stream and report it as lost, even if it seems to work.
    GiveUp(StreamId, Error),
    /// Close the file. The source will read no more data from it.
    CloseFile(FileIndex),
    /// Report an event to the observers.
    Report(Event),
    /// Store the sink's totals durably if they must outlive this process, then answer with
    /// `VerdictStored`.
    StoreVerdict(dray_wire::message::Totals),
    /// The session has ended. No effect follows.
    End(Outcome),
}

//! What the source's machine is built with, takes and gives.

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

/// What a source machine is built with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// Buffers of the pool, numbered from 0.
    pub buffers: u32,
    /// Bytes of one buffer: the largest object.
    pub buffer_bytes: u64,
    /// Reads that may be under way on one source target.
    pub readers: ThreadCount,
    /// Segments in one block at the most (the lower of both ends).
    pub segments_max: u32,
    /// Entries announced and not closed at the most (the lower of both ends).
    pub live_entries_max: u32,
    /// When and how often to try again.
    pub retry: RetryPolicy,
    /// Seed of the retry's draws.
    pub seed: u64,
    /// The driver's attempt number; a cancel of another is ignored.
    pub attempt: u32,
    /// Whether this end drives the transfer: it is the sink's only source then, and says alone how many
    /// streams are used.
    pub is_driver: bool,
    /// Whether entries are announced before the sink has said what it can do ([`EARLY_ENTRIES`]
    /// agreed): what is announced does not depend on it.
    ///
    /// [`EARLY_ENTRIES`]: dray_wire::message::optional::EARLY_ENTRIES
    pub announces_early: bool,
}

/// One listed entry with what only the source needs of it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// What is announced.
    pub entry: Entry,
    /// Where it lies beneath the transfer's root.
    pub path: RelPath,
    /// Its targets here.
    pub layout: Layout,
}

/// One file's part of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPart {
    /// Which file.
    pub file: FileIndex,
    /// Where it lies.
    pub path: RelPath,
    /// Which bytes.
    pub range: ByteRange,
    /// Its size as announced; another size now means that the source changed.
    pub size: u64,
    /// Its time as announced; another time now means that the source changed.
    pub modified: ModifiedTime,
    /// Whether holes may be looked for.
    pub sparse: bool,
}

/// What a read found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// What lies in the buffer, in order, data and holes: each good part covered completely.
    pub segments: Vec<Segment>,
    /// A hole that begins at the (single) part's offset and reaches here, if it covers the part.
    pub hole_until: Option<u64>,
    /// Parts that could not be read.
    pub failed: Vec<(FileIndex, Error)>,
    /// So many reads of its target at a time are enough, where that makes nobody wait
    /// ([`dray_sched::blocking`]).
    pub enough: Option<u32>,
}

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// Answer to [`Effect::List`].
    Listed {
        /// Entries in order.
        entries: Vec<Listed>,
        /// What could not be listed.
        failed: Vec<Failure>,
        /// Whether that was all.
        finished: bool,
    },
    /// A control message of the sink.
    Message(Message),
    /// Answer to [`Effect::Read`].
    ReadDone {
        /// Which.
        block: BlockId,
        /// What was found.
        outcome: ReadOutcome,
    },
    /// Answer to [`Effect::Send`]: the buffer is no longer needed.
    Sent {
        /// Which.
        block: BlockId,
    },
    /// A data stream is ready.
    StreamUp(StreamId),
    /// A data stream died. No `Sent` follows for what was on it; its buffers are free.
    StreamLost(StreamId),
    /// The control connection died.
    PeerLost(Error),
    /// The verdict has been stored, or could not be (answer to [`Effect::StoreVerdict`]).
    VerdictStored(Result<(), Error>),
    /// Somebody asks to stop.
    Cancel {
        /// Whether partial data and log at the sink go too.
        purge: bool,
    },
    /// This end is about to leave (its server stops). The sink hears why, and may ask again: this
    /// is no cancellation.
    Leave(Error),
    /// Changes this end's own rate limit.
    SetRate(Option<u64>),
    /// A stream has waited so long for its rate since it last said so.
    Held(Duration),
    /// A stream has taken a part of a long object.
    UnderWay(StreamId),
    /// Hands objects to so many of its streams at the most, one at least; the others stay as they are.
    SetStreams(u32),
    /// The time said by [`super::Source::next_wake`] has come.
    Tick,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// List up to so many more entries.
    List {
        /// At the most.
        max: u32,
    },
    /// Send a control message.
    Message(Message),
    /// Read into a buffer.
    Read {
        /// This attempt.
        block: BlockId,
        /// Where to.
        buffer: BufferId,
        /// The target that is read.
        target: TargetId,
        /// What.
        parts: Vec<ReadPart>,
    },
    /// Send an object.
    Send {
        /// On which stream.
        stream: StreamId,
        /// The payload; none for a hole.
        buffer: Option<BufferId>,
        /// The head.
        head: BlockHead,
    },
    /// End a stream, though it may look alive, and report it lost.
    GiveUp(StreamId, Error),
    /// Nothing more is read of this file.
    CloseFile(FileIndex),
    /// Tell the outside.
    Report(Event),
    /// Store the sink's totals durably, if anyone keeps them, then answer `VerdictStored`.
    StoreVerdict(dray_wire::message::Totals),
    /// The session is over; nothing follows.
    End(Outcome),
}

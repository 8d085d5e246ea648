//! What the sink's machine is built with, takes and gives.

use crate::progress::{Event, Outcome};
use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, ByteRange, Checksum, ContentKey, Error, FileIndex, FileKind, Layout,
    Metadata, ModifiedTime, PeerId, RelPath, StreamId, SummedRanges, Sums, TargetId,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_wire::message::{BlockHead, Message, Totals};
use std::collections::BTreeSet;
use std::time::Duration;

/// What a sink machine is built with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// What the caller demands of the (single) file.
    pub demanded: Option<Checksum>,
    /// The source's own name of the content's version (an object store's; a byte range's).
    pub identity: Vec<u8>,
    /// Buffers of the pool.
    pub buffers: u32,
    /// Bytes of one buffer: the largest object.
    pub buffer_bytes: u64,
    /// Writers of each target: writes that go on at once, without those that wait for their turn.
    pub writers: ThreadCount,
    /// Entries announced and not closed at the most.
    pub live_entries_max: u32,
    /// Paths that the transfer may write, with all below them; empty for everything.
    pub claims: Vec<RelPath>,
    /// Precision of modification times, the weaker end's.
    pub precision_nanoseconds: u32,
    /// For a store without random writes: objects of one file on the way, in order.
    pub ordered_window: Option<u32>,
    /// Whether the store keeps holes.
    pub holes: bool,
    /// Bytes written and not yet durable at the most.
    pub sync_group_bytes: u64,
    /// Longest wait before what is written is made durable.
    pub sync_interval: Duration,
    /// The driver's attempt number; a cancel of another is ignored.
    pub attempt: u32,
    /// Whether this end drives: who has to know the verdict is here, so its storing is not awaited.
    pub is_driver: bool,
}

/// A block, by the source that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The source.
    pub peer: PeerId,
    /// Its number there.
    pub block: BlockId,
}

/// What to find out, or to make, at one path; done in order, folders before what lies in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectItem {
    /// Which entry.
    pub index: FileIndex,
    /// Where.
    pub path: RelPath,
    /// What.
    pub task: InspectTask,
}

/// See [`InspectItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectTask {
    /// Say what stands there and what of the content is safe already.
    File(ContentKey),
    /// Make the folder unless it is there.
    Directory,
    /// Make the link.
    Symlink {
        /// Its text.
        target: Vec<u8>,
        /// Its attributes.
        metadata: Metadata,
    },
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified: ModifiedTime,
    /// Checksums of its present bytes, if one is demanded.
    pub sums: Option<Sums>,
    /// Its permission bits, where the store has such.
    pub mode: Option<u32>,
}

/// What a log that can be trusted says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// What is safe, with its checksums.
    pub done: SummedRanges,
    /// Bytes of the objects it was cut into.
    pub object_bytes: u64,
}

/// What was found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What stands under the final name.
    pub existing: Option<Existing>,
    /// What the log says, judged by the log's own rules of trust; an error says why not.
    pub resume: Option<Result<Resume, Error>>,
    /// The file's targets here.
    pub layout: Layout,
}

/// Answer to one [`InspectItem`].
#[derive(Debug)]
pub enum Inspected {
    /// For a file.
    File(Facts),
    /// A folder or link stands.
    Made,
    /// It cannot be.
    Failed(Error),
}

/// One part of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePart {
    /// Which file.
    pub file: FileIndex,
    /// Where in the file.
    pub range: ByteRange,
    /// Whether it is a hole; else its bytes are next in the buffer. A hole may be longer than an
    /// object, and must read as zeros afterwards.
    pub hole: bool,
    /// For a small file, written whole in one step: where it will stand, and its attributes.
    pub small: Option<(RelPath, Metadata)>,
}

/// What a sync covers. Durable means that it is found again after a crash: the folder entry of a
/// partial file, and of the folders above it that this session made, belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncItem {
    /// Data of a partial file that was prepared.
    Partial(FileIndex),
    /// Data of a small file, by where it will stand.
    Small(RelPath),
    /// The folder entry of something that was published or made.
    Published(RelPath),
    /// Data and folder entry of a file that stood there already: an earlier run may have died before
    /// it was durable.
    Adopted(RelPath),
}

/// A record for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// Which file.
    pub file: FileIndex,
    /// Which bytes.
    pub range: ByteRange,
    /// Their checksums.
    pub sums: Sums,
}

/// A file to give its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishItem {
    /// Which.
    pub index: FileIndex,
    /// Where.
    pub path: RelPath,
    /// Whether it is a small file (else a prepared partial file).
    pub small: bool,
    /// Its size.
    pub size: u64,
    /// Its attributes.
    pub metadata: Metadata,
    /// Its checksums.
    pub sums: Sums,
    /// Whether something that stands there may be replaced.
    pub replace: bool,
}

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// A source has connected.
    PeerUp(PeerId),
    /// A control message of a source.
    Message(PeerId, Message),
    /// An object came in and its checksums were compared.
    BlockArrived {
        /// From whom.
        peer: PeerId,
        /// Its head.
        head: BlockHead,
        /// Its payload; none when it has none.
        buffer: Option<BufferId>,
        /// Whether the bytes are the ones that were read.
        verified: Result<(), Error>,
    },
    /// Answer to [`Effect::Inspect`].
    Inspected(Vec<(FileIndex, Inspected)>),
    /// Precedes the answer to an [`Effect::Prepare`] that continues a file: the ranges that are on
    /// the storage.
    Kept {
        /// Which.
        index: FileIndex,
        /// The ranges, with their checksums.
        done: SummedRanges,
        /// Whether they were copied to a new partial file. If so, bytes written to it need no
        /// read-back.
        is_moved: bool,
    },
    /// Answer to [`Effect::Prepare`].
    Prepared(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Write`], one result for each part.
    Written(BlockKey, Vec<Result<(), Error>>),
    /// Answer to [`Effect::Sync`]: the entries that could not be made durable, each by its path; an
    /// error leaves all in doubt.
    Synced(Result<Vec<(RelPath, Error)>, Error>),
    /// Answer to [`Effect::Log`].
    Logged(Result<(), Error>),
    /// Answer to [`Effect::ReadBack`].
    ReadBack(FileIndex, Result<Sums, Error>),
    /// Answer to [`Effect::CheckWritten`].
    WrittenChecked(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Publish`].
    Published(Vec<(FileIndex, Result<(), Error>)>),
    /// Answer to [`Effect::SetDirectory`].
    DirectorySet(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::SetAdopted`]: whether an attribute or the mode was changed.
    AdoptedSet(FileIndex, Result<bool, Error>),
    /// The verdict has been stored, or could not be (answer to [`Effect::StoreVerdict`]).
    VerdictStored(Result<(), Error>),
    /// Answer to [`Effect::FinishLog`] and [`Effect::Purge`].
    LogRemoved(Result<(), Error>),
    /// A data stream died; everything it delivered has been handed in.
    StreamLost(PeerId, StreamId),
    /// A source's control connection died.
    PeerLost(PeerId, Error),
    /// Another holds the lease now.
    LeaseLost(Error),
    /// Somebody asks to stop.
    Cancel {
        /// Whether partial data and log go too.
        purge: bool,
    },
    /// Changes the rate at which this end takes bytes, of all sources together; the lower end wins.
    SetRate(Option<u64>),
    /// Each source hands objects to so many of its streams, at least one; what is on the others comes.
    SetStreams(u32),
    /// This end is about to leave (its server stops): keep what is safe, tell the sources why. They
    /// may come again, so this is no cancellation.
    Leave(Error),
    /// The time said by [`super::Sink::next_wake`] has come.
    Tick,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a control message.
    Message(PeerId, Message),
    /// Look at, or make, entries, strictly in order, also between such effects.
    Inspect(Vec<InspectItem>),
    /// Open the partial file of a large file and begin it in the log.
    Prepare {
        /// Which.
        index: FileIndex,
        /// Where it will stand.
        path: RelPath,
        /// What its content must be.
        key: ContentKey,
        /// Bytes of an object.
        object_bytes: u64,
        /// Whether the partial file and the log's records of it are continued.
        resume: bool,
    },
    /// Write an object. A part of a file that is not small and not open (it failed meanwhile, and was
    /// closed or discarded) is passed over; what is answered for it does not matter.
    Write {
        /// Which.
        block: BlockKey,
        /// Its payload.
        buffer: Option<BufferId>,
        /// The target that is written.
        target: TargetId,
        /// Where the parts go, in payload order.
        parts: Vec<WritePart>,
    },
    /// From now on so many writers write each target; at first as many as the configuration says.
    SetWriters(u32),
    /// The buffer is free for the receivers again.
    Free(BufferId),
    /// Make everything named durable.
    Sync(Vec<SyncItem>),
    /// Append to the log; before the answer it is as durable as its tenure says.
    Log {
        /// What.
        records: Vec<LogRecord>,
    },
    /// Read a complete file again, before it is published.
    ReadBack {
        /// Which.
        index: FileIndex,
        /// Where it will stand.
        path: RelPath,
        /// Bytes.
        size: u64,
        /// Whether it is a small file.
        small: bool,
    },
    /// Read back, past every cache, the ranges that this run wrote to an earlier run's partial
    /// file, and compare them: an error that no run recorded may have made the inode doubtful.
    CheckWritten {
        /// Which.
        index: FileIndex,
        /// The ranges, with their checksums.
        ranges: SummedRanges,
    },
    /// Give files their final names.
    Publish(Vec<PublishItem>),
    /// Give a folder its attributes.
    SetDirectory {
        /// Which.
        index: FileIndex,
        /// Where.
        path: RelPath,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Give an existing file the mode and the extended attributes of its source.
    SetAdopted {
        /// Which.
        index: FileIndex,
        /// Where.
        path: RelPath,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Remove what was written of a file and end it in the log. Of a small file: forget it.
    Discard(FileIndex),
    /// Nothing more is written to a prepared file: it has its final name, or what is safe of it
    /// stays for the next run.
    CloseFile(FileIndex),
    /// Store the totals durably, if anyone keeps them, then answer `VerdictStored`.
    StoreVerdict(Totals),
    /// The transfer is over and its verdict stored. What the log has of this transfer's files, and
    /// their partial files, goes, but for what `keeps` names (their files have left the source, or
    /// stand here already); the log goes if nothing is left in it, else its last records are committed.
    FinishLog {
        /// Failed files that the next run goes on with; none: all of them stay.
        keeps: Option<BTreeSet<RelPath>>,
        /// Whether everything was listed: else files that were not met stay too.
        is_listed: bool,
    },
    /// Remove all partial data and the log.
    Purge,
    /// Tell the outside.
    Report(Event),
    /// The session is over; nothing follows.
    End(Outcome),
}

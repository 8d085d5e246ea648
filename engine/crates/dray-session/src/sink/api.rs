//! Configuration, inputs and effects of the sink's machine.

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

/// Configuration of a sink machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// Checksum that the caller demands for the (single) file.
    pub demanded: Option<Checksum>,
    /// The source's identifier of the content's version (an object store's; a byte range's).
    pub identity: Vec<u8>,
    /// Number of buffers of the pool.
    pub buffers: u32,
    /// Bytes of a buffer: the size of the largest object.
    pub buffer_bytes: u64,
    /// Writers of each target: concurrent writes, without those that wait for their turn.
    pub writers: ThreadCount,
    /// Maximum number of entries announced and not closed.
    pub live_entries_max: u32,
    /// Paths that the transfer may write, with everything below them; empty if all are allowed.
    pub claims: Vec<RelPath>,
    /// Precision of modification times in nanoseconds, the coarser of both ends.
    pub precision_nanoseconds: u32,
    /// For a store without random writes: maximum number of objects of a file in transit, in order.
    pub ordered_window: Option<u32>,
    /// True if the store keeps holes.
    pub holes: bool,
    /// Maximum number of bytes written and not yet durable.
    pub sync_group_bytes: u64,
    /// Maximum delay before written data is made durable.
    pub sync_interval: Duration,
    /// The driver's attempt number; a CANCEL of another attempt is ignored.
    pub attempt: u32,
    /// True if this end drives: the verdict is needed at this end only, so the source's
    /// VERDICT_STORED is not awaited.
    pub is_driver: bool,
}

/// A block, identified by its source and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The source.
    pub peer: PeerId,
    /// The block's number at the source.
    pub block: BlockId,
}

/// An inspection, or a creation, at a path; executed in order, folders before their contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectItem {
    /// The entry.
    pub index: FileIndex,
    /// Its path.
    pub path: RelPath,
    /// The task.
    pub task: InspectTask,
}

/// Task of an [`InspectItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectTask {
    /// Report the existing entry and the durable ranges of the content.
    File(ContentKey),
    /// Create the folder if it does not exist.
    Directory,
    /// Create the link.
    Symlink {
        /// The link's target.
        target: Vec<u8>,
        /// Its attributes.
        metadata: Metadata,
    },
}

/// An existing entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
    /// Checksums of its current bytes, if a checksum is demanded.
    pub sums: Option<Sums>,
    /// Its permission bits, if the store has any.
    pub mode: Option<u32>,
}

/// Records of a trusted log about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Durable ranges, with their checksums.
    pub done: SummedRanges,
    /// Bytes of the objects into which the file was divided.
    pub object_bytes: u64,
}

/// Result of the inspection of a file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The existing entry under the final name.
    pub existing: Option<Existing>,
    /// The log's records, if the log's own rules allow trust; otherwise the error with the reason.
    pub resume: Option<Result<Resume, Error>>,
    /// The file's targets at this end.
    pub layout: Layout,
}

/// Answer to an [`InspectItem`].
#[derive(Debug)]
pub enum Inspected {
    /// Facts about a file.
    File(Facts),
    /// The folder or link exists.
    Made,
    /// The entry cannot be created or inspected.
    Failed(Error),
}

/// A part of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePart {
    /// The file.
    pub file: FileIndex,
    /// The range in the file.
    pub range: ByteRange,
    /// True for a hole; otherwise its bytes are next in the buffer. A hole may be longer than an
    /// object, and must read as zeros afterwards.
    pub hole: bool,
    /// For a small file, which is written in a single step: its final path and its attributes.
    pub small: Option<(RelPath, Metadata)>,
}

/// An item of a sync. Durable means that the item exists after a crash: this includes the folder
/// entry of a partial file, and of the folders above it that this session created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncItem {
    /// Data of a prepared partial file.
    Partial(FileIndex),
    /// Data of a small file, named by its final path.
    Small(RelPath),
    /// The folder entry of a published or created entry.
    Published(RelPath),
    /// Data and folder entry of a file that already existed: an earlier run may have ended before
    /// the file was durable.
    Adopted(RelPath),
}

/// A record for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// The file.
    pub file: FileIndex,
    /// The range.
    pub range: ByteRange,
    /// Checksums of the range.
    pub sums: Sums,
}

/// A file to publish under its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishItem {
    /// The file.
    pub index: FileIndex,
    /// Its final path.
    pub path: RelPath,
    /// True for a small file (otherwise a prepared partial file).
    pub small: bool,
    /// Its size.
    pub size: u64,
    /// Its attributes.
    pub metadata: Metadata,
    /// Its checksums.
    pub sums: Sums,
    /// True if an existing entry may be replaced.
    pub replace: bool,
}

/// An event for the machine.
#[derive(Debug)]
pub enum Input {
    /// A source has connected.
    PeerUp(PeerId),
    /// A control message of a source.
    Message(PeerId, Message),
    /// An object arrived and its checksums were compared.
    BlockArrived {
        /// The source.
        peer: PeerId,
        /// Its head.
        head: BlockHead,
        /// Its payload; `None` if it has no payload.
        buffer: Option<BufferId>,
        /// The result of the comparison with the checksums made at the read.
        verified: Result<(), Error>,
    },
    /// Answer to [`Effect::Inspect`].
    Inspected(Vec<(FileIndex, Inspected)>),
    /// Ranges of a continued file that are on the storage. Precedes the answer to its
    /// [`Effect::Prepare`].
    Kept {
        /// The file.
        index: FileIndex,
        /// The ranges, with their checksums.
        done: SummedRanges,
        /// True if they were copied to a new partial file. If so, bytes written to it need no
        /// read-back.
        is_moved: bool,
    },
    /// Answer to [`Effect::Prepare`].
    Prepared(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Write`], one result for each part.
    Written(BlockKey, Vec<Result<(), Error>>),
    /// Answer to [`Effect::Sync`]: the entries that could not be made durable, each with its path;
    /// an error leaves all entries in doubt.
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
    /// Answer to [`Effect::SetAdopted`]: true if an attribute or the mode was changed.
    AdoptedSet(FileIndex, Result<bool, Error>),
    /// The verdict has been stored, or could not be (answer to [`Effect::StoreVerdict`]).
    VerdictStored(Result<(), Error>),
    /// Answer to [`Effect::FinishLog`] and [`Effect::Purge`].
    LogRemoved(Result<(), Error>),
    /// A data stream is lost; all objects it delivered have been passed to the machine.
    StreamLost(PeerId, StreamId),
    /// A source's control connection is lost.
    PeerLost(PeerId, Error),
    /// Another transfer holds the lease now.
    LeaseLost(Error),
    /// A user requests a stop.
    Cancel {
        /// True if partial data and the log are deleted too.
        purge: bool,
    },
    /// Changes the rate at which this end receives bytes, for all sources together; the lower rate
    /// of both ends applies.
    SetRate(Option<u64>),
    /// Each source uses at most this number of its streams, at least one, for new objects; objects
    /// on other streams still arrive.
    SetStreams(u32),
    /// This end is about to leave (its server stops): durable data is kept, and the sources receive
    /// the reason. They may start a session again, so this is no cancellation.
    Leave(Error),
    /// The time returned by [`super::Sink::next_wake`] has come.
    Tick,
}

/// An action for the runtime.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a control message.
    Message(PeerId, Message),
    /// Inspect or create entries, strictly in order, also across several of these effects.
    Inspect(Vec<InspectItem>),
    /// Open the partial file of a large file and begin it in the log.
    Prepare {
        /// The file.
        index: FileIndex,
        /// Its final path.
        path: RelPath,
        /// Requirements on its content.
        key: ContentKey,
        /// Bytes of an object.
        object_bytes: u64,
        /// True if the partial file and its records in the log are continued.
        resume: bool,
    },
    /// Write an object. Skip parts of a file that is neither small nor open (it failed meanwhile,
    /// and was closed or discarded); their results are ignored.
    Write {
        /// The block.
        block: BlockKey,
        /// Its payload.
        buffer: Option<BufferId>,
        /// The target to write to.
        target: TargetId,
        /// The parts, in the order of the payload.
        parts: Vec<WritePart>,
    },
    /// Set the number of writers of each target from now on; the configuration sets the initial
    /// number.
    SetWriters(u32),
    /// Free the buffer for the receivers.
    Free(BufferId),
    /// Make all these items durable.
    Sync(Vec<SyncItem>),
    /// Append to the log; the answer means that the records are as durable as the log's tenure
    /// requires.
    Log {
        /// The records.
        records: Vec<LogRecord>,
    },
    /// Read back a complete file, before it is published.
    ReadBack {
        /// The file.
        index: FileIndex,
        /// Its final path.
        path: RelPath,
        /// Size in bytes.
        size: u64,
        /// True for a small file.
        small: bool,
    },
    /// Read back, past every cache, the ranges that this run wrote to an earlier run's partial
    /// file, and compare them: an error that no run recorded may have made the inode doubtful.
    CheckWritten {
        /// The file.
        index: FileIndex,
        /// The ranges, with their checksums.
        ranges: SummedRanges,
    },
    /// Publish files under their final names.
    Publish(Vec<PublishItem>),
    /// Set the attributes of a folder.
    SetDirectory {
        /// The folder.
        index: FileIndex,
        /// Its path.
        path: RelPath,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Set the mode and the extended attributes of an existing file to those of its source.
    SetAdopted {
        /// The file.
        index: FileIndex,
        /// Its path.
        path: RelPath,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Delete the written data of a file and end the file in the log. Forget a small file.
    Discard(FileIndex),
    /// Close a prepared file: it has its final name, or its durable ranges are kept for the next
    /// run.
    CloseFile(FileIndex),
    /// Store the totals durably, if they are kept beyond this process, then answer `VerdictStored`.
    StoreVerdict(Totals),
    /// Finish the log, after the transfer has ended and its verdict is stored. Delete this
    /// transfer's records and partial files, except those of files in `keeps`: the other files have
    /// left the source, or exist at the destination. Delete the log if it is then empty; otherwise
    /// commit its last records.
    FinishLog {
        /// Failed files that the next run resumes; `None` to keep all files.
        keeps: Option<BTreeSet<RelPath>>,
        /// True if the listing was complete; otherwise files that were not listed are kept too.
        is_listed: bool,
    },
    /// Remove all partial data and the log.
    Purge,
    /// Report an event to the observer.
    Report(Event),
    /// The session has ended; no effect follows.
    End(Outcome),
}

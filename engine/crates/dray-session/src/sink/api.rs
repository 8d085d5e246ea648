//! Configuration, inputs and effects of the sink's state machine.

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

/// Configuration of a sink's state machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// Checksum that the caller requires. Permitted for a transfer of a single file only.
    pub demanded: Option<Checksum>,
    /// The source's identifier of the content's version: of an object in an object store, or of a
    /// byte range. Empty otherwise.
    pub identity: Vec<u8>,
    /// Number of buffers in the pool.
    pub buffers: u32,
    /// Size of a buffer in bytes: the maximum object size.
    pub buffer_bytes: u64,
    /// Writers per target: concurrent writes, excluding writes that wait for their turn in a file.
    pub writers: ThreadCount,
    /// Maximum number of announced and unclosed entries.
    pub live_entries_max: u32,
    /// Paths that the transfer may write, with all paths below them; empty for any path.
    pub claims: Vec<RelPath>,
    /// Precision of modification times in nanoseconds: the coarser precision of the two ends.
    pub precision_nanoseconds: u32,
    /// Maximum number of objects of one file in transit for a store without random writes, which
    /// needs the objects in order. `None` for a store with random writes.
    pub ordered_window: Option<u32>,
    /// True if the store preserves holes.
    pub holes: bool,
    /// Maximum number of bytes that are written and not yet durable.
    pub sync_group_bytes: u64,
    /// Maximum delay before written data is made durable.
    pub sync_interval: Duration,
    /// Number of the driver's attempt. The sink ignores a CANCEL of another attempt.
    pub attempt: u32,
    /// True if this end drives the transfer. The verdict is then needed at this end only, so the
    /// sink does not wait for the source's VERDICT_STORED.
    pub is_driver: bool,
}

/// A block, identified by its source and the source's number of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The source of the block.
    pub peer: PeerId,
    /// The block's number at the source.
    pub block: BlockId,
}

/// A path to inspect, or an entry to create. Items are executed in order, so folders precede their
/// contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectItem {
    /// Index of the entry.
    pub index: FileIndex,
    /// Path of the entry.
    pub path: RelPath,
    /// Task at the path.
    pub task: InspectTask,
}

/// Task of an [`InspectItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectTask {
    /// Inspect the existing entry, and find durable ranges of this content.
    File(ContentKey),
    /// Create the folder if it does not exist.
    Directory,
    /// Create the symbolic link.
    Symlink {
        /// Target of the link.
        target: Vec<u8>,
        /// Attributes of the link.
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
    /// Checksums of its current content; computed only if the caller requires a checksum.
    pub sums: Option<Sums>,
    /// Permission bits; `None` if the store has no permissions.
    pub mode: Option<u32>,
}

/// Contents of a trusted log about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Durable ranges, with their checksums.
    pub done: SummedRanges,
    /// Object size in bytes that the earlier run used.
    pub object_bytes: u64,
}

/// Result of the inspection of a file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The existing entry at the final path.
    pub existing: Option<Existing>,
    /// Durable ranges in the log. An error if the log's rules do not permit trust; it states the
    /// reason. `None` if the log does not contain the file.
    pub resume: Option<Result<Resume, Error>>,
    /// Storage targets of the file at this end.
    pub layout: Layout,
}

/// Answer to an [`InspectItem`].
#[derive(Debug)]
pub enum Inspected {
    /// Facts about a file.
    File(Facts),
    /// The folder or link exists now.
    Made,
    /// The entry cannot be created or inspected.
    Failed(Error),
}

/// A part of a write: a range of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePart {
    /// File of the range.
    pub file: FileIndex,
    /// Range in the file.
    pub range: ByteRange,
    /// True for a hole. Otherwise the range's bytes are the next bytes of the buffer. A hole may be
    /// longer than an object. The range must read as zeros afterwards.
    pub hole: bool,
    /// Final path and attributes of a small file, which the runtime writes in one step. `None` for
    /// a large file.
    pub small: Option<(RelPath, Metadata)>,
}

/// An item of a sync. After the sync, the item must exist after a crash. This includes the folder
/// entry of a partial file, and the folder entries above it that this session created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncItem {
    /// Data of a prepared partial file.
    Partial(FileIndex),
    /// Data of a small file at this final path.
    Small(RelPath),
    /// Folder entry of a published file or a created entry.
    Published(RelPath),
    /// Data and folder entry of a file that already existed. An earlier run may have ended before
    /// the file was durable.
    Adopted(RelPath),
}

/// A record for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// File of the range.
    pub file: FileIndex,
    /// Range in the file.
    pub range: ByteRange,
    /// Checksums of the range.
    pub sums: Sums,
}

/// A file to publish under its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishItem {
    /// Index of the file.
    pub index: FileIndex,
    /// Final path of the file.
    pub path: RelPath,
    /// True for a small file; false for a file with a prepared partial file.
    pub small: bool,
    /// Size in bytes.
    pub size: u64,
    /// Attributes to set.
    pub metadata: Metadata,
    /// Checksums of the file.
    pub sums: Sums,
    /// True if the file may replace an existing entry.
    pub replace: bool,
}

/// An event that the machine must handle.
#[derive(Debug)]
pub enum Input {
    /// A source has connected.
    PeerUp(PeerId),
    /// A control message of a source.
    Message(PeerId, Message),
    /// An object has arrived, and the runtime has verified its checksums.
    BlockArrived {
        /// Source of the block.
        peer: PeerId,
        /// Head of the block.
        head: BlockHead,
        /// Buffer with the payload; `None` without a payload.
        buffer: Option<BufferId>,
        /// Result of comparing the payload with the checksums that the source computed when it read
        /// the data.
        verified: Result<(), Error>,
    },
    /// Answer to [`Effect::Inspect`].
    Inspected(Vec<(FileIndex, Inspected)>),
    /// Ranges of a resumed file that are on the storage. Precedes the answer to the file's
    /// [`Effect::Prepare`].
    Kept {
        /// Index of the file.
        index: FileIndex,
        /// The ranges, with their checksums.
        done: SummedRanges,
        /// True if the ranges were copied to a new partial file. Bytes that this run writes to that
        /// file then need no read-back.
        is_moved: bool,
    },
    /// Answer to [`Effect::Prepare`].
    Prepared(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Write`], one result for each part.
    Written(BlockKey, Vec<Result<(), Error>>),
    /// Answer to [`Effect::Sync`]: the entries that could not be made durable, each with its path.
    /// An error means that the state of all entries is unknown.
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
    /// Answer to [`Effect::StoreVerdict`]: the verdict has been stored, or could not be stored.
    VerdictStored(Result<(), Error>),
    /// Answer to [`Effect::FinishLog`] and [`Effect::Purge`].
    LogRemoved(Result<(), Error>),
    /// A data stream was lost. The runtime has already passed on all objects that arrived on it.
    StreamLost(PeerId, StreamId),
    /// The control connection of a source was lost.
    PeerLost(PeerId, Error),
    /// Another transfer has taken the lease.
    LeaseLost(Error),
    /// A user requests a stop.
    Cancel {
        /// True if partial data and the log must also be deleted.
        purge: bool,
    },
    /// Sets the rate at which this end receives from all sources together. Each source also has its
    /// own limit, and the lower rate applies.
    SetRate(Option<u64>),
    /// Sets the maximum number of streams that each source uses for new objects, at least one.
    /// Objects on other streams still arrive.
    SetStreams(u32),
    /// This end is about to stop, for example because its server stops. Durable data is kept and
    /// the sources receive the reason. They may start a new session, so this is not a cancellation.
    Leave(Error),
    /// The time that [`super::Sink::next_wake`] returned has come.
    Tick,
}

/// An action that the runtime must execute.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a control message.
    Message(PeerId, Message),
    /// Inspect or create entries strictly in order, also across several such effects.
    Inspect(Vec<InspectItem>),
    /// Open the partial file of a large file and begin it in the log.
    Prepare {
        /// Index of the file.
        index: FileIndex,
        /// Final path of the file.
        path: RelPath,
        /// Required content.
        key: ContentKey,
        /// Object size in bytes.
        object_bytes: u64,
        /// True if the runtime must continue the existing partial file and its records in the log.
        resume: bool,
    },
    /// Write an object. Skip the parts of a large file that is not open: the file failed, and was
    /// closed or discarded. The machine ignores the results of such parts.
    Write {
        /// The block.
        block: BlockKey,
        /// Buffer with the payload; `None` without a payload.
        buffer: Option<BufferId>,
        /// The target to write to.
        target: TargetId,
        /// The parts, in the order of the payload.
        parts: Vec<WritePart>,
    },
    /// Set the number of writers per target. The configuration contains the initial number.
    SetWriters(u32),
    /// Return the buffer to the receivers.
    Free(BufferId),
    /// Make all these items durable.
    Sync(Vec<SyncItem>),
    /// Append records to the log. The answer means that the records are as durable as the log's
    /// tenure requires.
    Log {
        /// The records.
        records: Vec<LogRecord>,
    },
    /// Read back a complete file before its publication.
    ReadBack {
        /// The file.
        index: FileIndex,
        /// Final path of the file.
        path: RelPath,
        /// Size in bytes.
        size: u64,
        /// True for a small file; false for a file with a prepared partial file.
        small: bool,
    },
    /// Read back, bypassing every cache, the ranges that this run wrote to an earlier run's partial
    /// file, and compare their checksums. An unrecorded write error may have made the inode
    /// doubtful.
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
        /// Index of the folder.
        index: FileIndex,
        /// Path of the folder.
        path: RelPath,
        /// Attributes to set.
        metadata: Metadata,
    },
    /// Set the mode and the extended attributes of an adopted file to those of its source.
    SetAdopted {
        /// The file.
        index: FileIndex,
        /// Its path.
        path: RelPath,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Delete a file's written data and end the file in the log. For a small file, only drop the
    /// runtime's state.
    Discard(FileIndex),
    /// Close a prepared file. It was published, or its durable ranges are kept for the next run.
    CloseFile(FileIndex),
    /// Store the totals durably if they must outlive this process, then answer `VerdictStored`.
    StoreVerdict(Totals),
    /// Finish the log after the transfer has ended and its verdict is stored. Delete this
    /// transfer's records and partial files, except those of the files in `keeps`: the other files
    /// no longer exist at the source, or are complete at the destination. Delete the log if it is
    /// then empty; otherwise commit its last records.
    FinishLog {
        /// Failed files that the next run will resume; `None` keeps all files.
        keeps: Option<BTreeSet<RelPath>>,
        /// True if the listing was complete. Otherwise files that were not listed must be kept too.
        is_listed: bool,
    },
    /// Remove all partial data and the log.
    Purge,
    /// Report an event to the observers.
    Report(Event),
    /// The session has ended. No effect follows.
    End(Outcome),
}

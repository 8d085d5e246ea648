//! Configuration, inputs and effects of the sink's state machine.

use crate::progress::{Event, Outcome};
use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, ByteRange, Checksum, ContentKey, Error, FileIndex, FileKind, Layout,
    Metadata, ModifiedTime, PeerId, RelPath, Required, StreamId, SummedRanges, Sums, TargetId,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_wire::message::{BlockHead, Message, Totals};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Configuration of a sink's state machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// Checksum that the caller demands. Allowed only for a transfer of a single file.
    pub demanded: Option<Checksum>,
    /// Requirements on files of a transfer of many files, by path.
    pub required: BTreeMap<RelPath, Required>,
    /// Version identifier that the source gives to the content: the version of an object in an
    /// object store, or a byte range of a file. Empty for other content.
    pub identity: Vec<u8>,
    /// Number of buffers in the pool.
    pub buffers: u32,
    /// Size of a buffer in bytes: the maximum object size.
    pub buffer_bytes: u64,
    /// Number of writers per storage target. Writes that wait for an earlier write of the same file
    /// do not count.
    pub writers: ThreadCount,
    /// Maximum number of entries that are announced and not closed.
    pub live_entries_max: u32,
    /// Paths that the transfer may write, each with everything below it. An empty list allows any
    /// path.
    pub claims: Vec<RelPath>,
    /// Precision of modification times in nanoseconds: the coarser precision of the two ends.
    pub precision_nanoseconds: u32,
    /// For a store that writes files in order: maximum number of objects of one file in transit.
    /// `None` for a store with random writes.
    pub ordered_window: Option<u32>,
    /// True if the store keeps holes.
    pub holes: bool,
    /// Number of bytes in a full group. The sink syncs a group that is half full.
    pub sync_group_bytes: u64,
    /// Maximum number of bytes that are written and have no durable record in the log yet. At least
    /// [`Config::sync_group_bytes`].
    pub unsafe_bytes_max: u64,
    /// Maximum time between writing data and the start of its sync. The sink uses a shorter time if
    /// the syncs are fast.
    pub sync_interval: Duration,
    /// True if the sink may sync both groups concurrently.
    pub syncs_apart: bool,
    /// True if each answered write is durable. A sync then waits for no target, so objects of
    /// congested targets need no group of their own.
    pub writes_durably: bool,
    /// Number of the driver's try. After a lost connection, the driver starts a new try with a new
    /// session. The sink ignores a CANCEL for another try.
    pub attempt: u32,
    /// True if this end is the driver. No other end then needs the verdict, so the sink does not
    /// wait until the source has stored the verdict.
    pub is_driver: bool,
}

/// The two groups of written data that wait for a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncGroup {
    /// Data of targets that are not congested.
    Main,
    /// Data of congested targets.
    Late,
}

/// Identifies a block: its source, and the number that the source gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The source of the block.
    pub peer: PeerId,
    /// The block's number at the source.
    pub block: BlockId,
}

/// A path to inspect, or an entry to create. The item of a folder precedes the items of its
/// contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectItem {
    /// Index of the entry.
    pub index: FileIndex,
    /// Path of the entry.
    pub path: RelPath,
    /// The task for this path.
    pub task: InspectTask,
}

/// Task of an [`InspectItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectTask {
    /// Inspect the existing entry at the path, and find the durable ranges of this content in the
    /// log.
    File(ContentKey),
    /// Create the folder if it does not exist yet.
    Directory,
    /// Create the symbolic link.
    Symlink {
        /// Target of the link.
        target: Vec<u8>,
        /// Attributes of the link.
        metadata: Metadata,
    },
}

/// An entry that already exists at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
    /// Checksums of the entry's current content. Computed only if the caller demands a checksum.
    pub sums: Option<Sums>,
    /// Permission bits; `None` if the store has no permissions.
    pub mode: Option<u32>,
}

/// Records of one file in a valid log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Durable ranges, with their checksums.
    pub done: SummedRanges,
    /// Object size in bytes of the run that wrote the records.
    pub object_bytes: u64,
}

/// Result of the inspection of a file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The existing entry at the final path.
    pub existing: Option<Existing>,
    /// Durable ranges of the file in the log. `None` if the log does not contain the file. An error
    /// if the log's ranges may not be used; the error states the reason.
    pub resume: Option<Result<Resume, Error>>,
    /// Storage targets on which the file lies at this end.
    pub layout: Layout,
}

/// Answer to an [`InspectItem`].
#[derive(Debug)]
pub enum Inspected {
    /// Facts about a file.
    File(Facts),
    /// The folder or link exists now.
    Made,
    /// The runtime could not create or inspect the entry.
    Failed(Error),
}

/// A part of a write: a range of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePart {
    /// Index of the file that contains the range.
    pub file: FileIndex,
    /// The range in the file.
    pub range: ByteRange,
    /// True for a hole, which must read as zeros afterwards and may be longer than an object. If
    /// false, the bytes of the range are the next bytes of the buffer.
    pub hole: bool,
    /// Final path and attributes of a small file, which the runtime writes in one step. `None` for
    /// a part of a large file.
    pub small: Option<(RelPath, Metadata)>,
}

/// An item to make durable. With a partial file, its folder entry becomes durable, and so do the
/// folder entries above it that this session created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncItem {
    /// Data of a prepared partial file.
    Partial(FileIndex),
    /// Data of a small file, at its final path.
    Small(RelPath),
    /// Folder entry of a published file or of a created folder or link.
    Published(RelPath),
    /// Data and folder entry of a file that was adopted. An earlier run may have ended before it
    /// made the file durable.
    Adopted(RelPath),
}

/// A record for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// Index of the file that contains the range.
    pub file: FileIndex,
    /// The range in the file.
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
    /// True for a small file; false for a file with a partial file.
    pub small: bool,
    /// Size in bytes.
    pub size: u64,
    /// Attributes to set.
    pub metadata: Metadata,
    /// Checksums of the file.
    pub sums: Sums,
    /// True if the file may replace an existing entry with the same name.
    pub replace: bool,
}

/// An event that the machine must handle.
#[derive(Debug)]
pub enum Input {
    /// A source has connected.
    PeerUp(PeerId),
    /// A control message of a source.
    Message(PeerId, Message),
    /// An object has arrived, and the runtime has compared its checksums.
    BlockArrived {
        /// Source of the block.
        peer: PeerId,
        /// Head of the block.
        head: BlockHead,
        /// Buffer that contains the payload; `None` for a block without payload.
        buffer: Option<BufferId>,
        /// Result of the comparison. The source computed the checksums when it read the data.
        verified: Result<(), Error>,
    },
    /// Answer to [`Effect::Inspect`].
    Inspected(Vec<(FileIndex, Inspected)>),
    /// Ranges of a resumed file that were found on the storage. This input precedes the answer to
    /// the file's [`Effect::Prepare`].
    Kept {
        /// Index of the file.
        index: FileIndex,
        /// The ranges, with their checksums.
        done: SummedRanges,
        /// True if the runtime copied the ranges to a new partial file. Only this run writes to a
        /// new file, so the data that the sink adds to it later need not be read back. Data that
        /// the sink adds to an old partial file must be read back.
        is_moved: bool,
    },
    /// Storage targets of a file, which the store chose when it created the partial file. Precedes
    /// [`Input::Prepared`] and replaces the layout of the [`Facts`].
    Placed(FileIndex, Layout),
    /// Answer to [`Effect::Prepare`].
    Prepared(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Write`], one result for each part.
    Written(BlockKey, Vec<Result<(), Error>>),
    /// Answer to [`Effect::Sync`] of this group: the entries that could not be made durable, each
    /// with its path. If the result is an error, the durability of all entries in the group is
    /// unknown.
    Synced(SyncGroup, Result<Vec<(RelPath, Error)>, Error>),
    /// Answer to [`Effect::Log`] of this group.
    Logged(SyncGroup, Result<(), Error>),
    /// Answer to [`Effect::ReadBack`].
    ReadBack(FileIndex, Result<Sums, Error>),
    /// Answer to [`Effect::CheckWritten`].
    WrittenChecked(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Publish`].
    Published(Vec<(FileIndex, Result<(), Error>)>),
    /// Answer to [`Effect::SetDirectory`].
    DirectorySet(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::SetAdopted`]: true if the mode or an attribute has changed.
    AdoptedSet(FileIndex, Result<bool, Error>),
    /// Answer to [`Effect::StoreVerdict`]: success, or the reason why the verdict could not be
    /// stored.
    VerdictStored(Result<(), Error>),
    /// Answer to [`Effect::FinishLog`] and [`Effect::Purge`].
    LogRemoved(Result<(), Error>),
    /// A data stream was lost. Blocks that arrived on the stream were passed to the machine before
    /// this input.
    StreamLost(PeerId, StreamId),
    /// The control connection of a source was lost.
    PeerLost(PeerId, Error),
    /// Another transfer has taken the lease of the log.
    LeaseLost(Error),
    /// A user stops the session.
    Cancel {
        /// True if partial files and the log must be deleted.
        purge: bool,
    },
    /// Sets the rate limit of this end in bytes per second, for all sources together. `None`
    /// removes the limit. A source also obeys its own limit if that is lower.
    SetRate(Option<u64>),
    /// Sets the maximum number of streams that each source uses for new objects, at least 1.
    /// Objects that are on other streams still arrive.
    SetStreams(u32),
    /// This end is about to stop, for example because its server stops. The sink keeps durable data
    /// and sends the reason to the sources, which may start a new session later. This is not a
    /// cancellation.
    Stopping(Error),
    /// The time returned by [`super::Sink::next_wake`] has come.
    Tick,
}

/// An action that the runtime must carry out.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a control message.
    Message(PeerId, Message),
    /// Inspect or create entries strictly in order, even across several effects of this kind.
    Inspect(Vec<InspectItem>),
    /// Open the partial file of a large file, and add the file to the log.
    Prepare {
        /// Index of the file.
        index: FileIndex,
        /// Final path of the file.
        path: RelPath,
        /// The content that the file must have: size, modification time and version identifier.
        key: ContentKey,
        /// Object size in bytes.
        object_bytes: u64,
        /// True if the runtime must use the existing partial file and its records in the log.
        resume: bool,
        /// Stripes that the source has sent for the file.
        stripes: Option<Vec<u8>>,
    },
    /// Write an object. Skip a part if its large file is not open: the file has failed, and the
    /// runtime has closed or discarded it. The machine ignores the results of skipped parts.
    Write {
        /// Identifier of the block that contains the object.
        block: BlockKey,
        /// Buffer that contains the payload; `None` for a block without payload.
        buffer: Option<BufferId>,
        /// The storage target of the write.
        target: TargetId,
        /// The parts, in the order of the payload.
        parts: Vec<WritePart>,
    },
    /// Change the number of writers per storage target. [`Config`] contains the initial number.
    SetWriters(u32),
    /// Return the buffer to the pool, for use by the receivers.
    Free(BufferId),
    /// Make all items of a group durable. If [`Config::syncs_apart`] is true, the two groups may be
    /// synced concurrently. They then have no file in common.
    Sync(SyncGroup, Vec<SyncItem>),
    /// Append records to the log. Answer when the records have the durability that the log's tenure
    /// (the record of its current holder) states.
    Log {
        /// The group that the records belong to.
        group: SyncGroup,
        /// The records.
        records: Vec<LogRecord>,
    },
    /// Read a complete file back from the storage before its publication.
    ReadBack {
        /// Index of the file.
        index: FileIndex,
        /// Final path of the file.
        path: RelPath,
        /// Size in bytes.
        size: u64,
        /// True for a small file; false for a file with a partial file.
        small: bool,
    },
    /// Read back the ranges that this run wrote to the partial file of an earlier run, and compare
    /// their checksums. The read must bypass every cache. After a write error the cache may contain
    /// bytes that the disk never received, and the error may not have been recorded.
    CheckWritten {
        /// Index of the file.
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
    /// Give an adopted file the mode and the extended attributes of its source.
    SetAdopted {
        /// Index of the file.
        index: FileIndex,
        /// Path of the file.
        path: RelPath,
        /// Attributes to set.
        metadata: Metadata,
    },
    /// Delete the data that was written for a file, and end the file in the log. For a small file,
    /// the runtime only drops the state that it has for the file.
    Discard(FileIndex),
    /// Close the partial file. The file was published, or its durable ranges are kept for the next
    /// run.
    CloseFile(FileIndex),
    /// Store the totals durably if they must outlive this process, then answer with
    /// `VerdictStored`.
    StoreVerdict(Totals),
    /// Finish the log of a transfer whose verdict is stored. Delete this transfer's records and
    /// partial files, except those of the files in `keeps`. All deleted records and partial files
    /// belong to files that are complete or that the source no longer has. If the log is empty
    /// afterwards, delete the log; otherwise commit its last records.
    FinishLog {
        /// Failed files that the next run can resume. `None` keeps all files.
        keeps: Option<BTreeSet<RelPath>>,
        /// True if the listing was complete. If false, keep the files that were not listed too.
        is_listed: bool,
    },
    /// Delete all partial files and the log.
    Purge,
    /// Report an event to the observers.
    Report(Event),
    /// The session has ended. No effect follows.
    End(Outcome),
}

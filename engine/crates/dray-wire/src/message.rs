//! The messages. The core is the message set of FT-LADS (CONNECT, NEW_FILE, FILE_ID, NEW_BLOCK,
//! BLOCK_SYNC, FILE_CLOSE, BYE; Kasu et al. 2019, listing 1). The other messages negotiate, control
//! flow, report errors and end a transfer.

use dray_core::content::ContentKey;
use dray_core::options::Options;
use dray_core::profile::Times;
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, Error, FileIndex, Layout, Name, StreamId, Sums,
    TargetId, TransferId,
};

/// Mandatory feature bits: a peer that does not know a set bit must refuse the session.
pub mod mandatory {
    /// A segment of a file may span objects, and an object may hold segments of several files.
    pub const PACKS: u64 = 1 << 0;
    /// A sink at this end stores nothing: data it reports as durable is discarded.
    pub const KEEPS_NOTHING: u64 = 1 << 1;
}

/// Optional feature bits: a peer ignores bits that it does not know.
pub mod optional {
    /// Holes are sent as ranges, not as zeros.
    pub const HOLES: u64 = 1 << 0;
    /// Extended attributes are sent.
    pub const XATTRS: u64 = 1 << 1;
    /// Data streams may be unencrypted; each stream is authenticated when it joins.
    pub const CLEAR_DATA: u64 = 1 << 2;
    /// The user of the dialling end explicitly chose a peer that stores nothing, by its URL or its
    /// kind.
    pub const NULL_MEANT: u64 = 1 << 3;
    /// A source announces entries before it receives the sink's READY.
    pub const EARLY_ENTRIES: u64 = 1 << 4;
    /// A sink reads the `resume` option in CONNECT.
    pub const RESUME: u64 = 1 << 5;
}

/// Numbers of the checksum algorithms.
pub mod checksum_id {
    /// crc32c and adler32 of every segment.
    pub const CRC32C_ADLER32: u8 = 1;
}

/// Limits that an end declares and the other must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum body of a control frame in bytes.
    pub control_bytes_max: u32,
    /// Maximum payload of a block in bytes.
    pub object_bytes_max: u64,
    /// Maximum number of segments in one block.
    pub segments_max: u32,
    /// Maximum number of entries announced and not yet closed.
    pub live_entries_max: u32,
}

/// First message of either side on a control connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version that this end supports.
    pub versions: (u16, u16),
    /// [`mandatory`] bits that this end uses.
    pub mandatory: u64,
    /// [`optional`] bits that this end supports.
    pub optional: u64,
    /// Limits of this end.
    pub limits: Limits,
    /// [`checksum_id`]s that this end can compute, in order of preference.
    pub checksums: Vec<u8>,
    /// Name and version of the program, for people.
    pub software: String,
    /// Static token of the dialling end; empty in the answer.
    pub token: Vec<u8>,
}

/// Role of an end in the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads the files.
    Source,
    /// Writes the files, and owns the log.
    Sink,
}

impl Role {
    /// Returns the end with this role, for errors.
    #[must_use]
    pub const fn end(self) -> End {
        match self {
            Self::Source => End::Source,
            Self::Sink => End::Sink,
        }
    }
}

/// The driver's request to the passive end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// The caller's identifier of the transfer.
    pub transfer: TransferId,
    /// Number of the driver's session of this transfer, counted from 1. A cancel names the session
    /// by it.
    pub attempt: u32,
    /// Role of the passive end.
    pub passive_role: Role,
    /// For a passive sink: the destination folder, then the paths below it that will be written (no
    /// path: any). For a passive source: the paths to read. Bytes as the user typed them.
    pub paths: Vec<Vec<u8>>,
    /// Selection of the files to read. A passive sink uses only the range.
    pub selection: Selection,
    /// Options for both ends.
    pub options: Options,
    /// Checksum that the caller requires. Permitted for a transfer of a single file only.
    pub demanded: Option<Checksum>,
    /// Number of data streams that the driver requests.
    pub streams: u16,
    /// Set if data streams are unencrypted.
    pub clear_data: bool,
    /// Addresses of the driver, for a passive end that must open the data streams.
    pub addresses: Vec<String>,
}

/// Selection of a tree's entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Set if the lister descends into folders.
    pub recursive: bool,
    /// Patterns of names or paths to include; empty includes all.
    pub include: Vec<String>,
    /// Patterns to exclude.
    pub exclude: Vec<String>,
    /// Range of a single file to read; `None` reads the whole file.
    pub range: Option<ByteRange>,
    /// Required size of a single file, before the range is applied.
    pub size: Option<u64>,
    /// New name of the entry that the path names; the entry must be a file.
    pub rename: Option<Name>,
    /// Treatment of symbolic links.
    pub links: dray_core::options::Links,
}

/// The passive end's acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Identifies the session when data streams join.
    pub ticket: [u8; 16],
    /// Key (HMAC-SHA256) with which a data stream proves its right to join. Secret, so the message
    /// is sent over TLS only.
    pub key: [u8; 32],
    /// Addresses where data streams may join (several NICs or hosts). Empty for the address of the
    /// control connection.
    pub addresses: Vec<String>,
    /// Number of data streams granted.
    pub streams: u16,
}

/// The sink's first message to a source: its capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Precision of modification times at the sink in nanoseconds.
    pub precision_nanoseconds: u32,
    /// Maximum object size of the sink, in bytes.
    pub object_bytes_max: u64,
    /// Maximum number of entries announced and not yet closed.
    pub live_entries_max: u32,
    /// Maximum size of a small file. The sink packs small files into shared objects and publishes
    /// such a file in one step.
    pub pack_bytes_max: u64,
    /// Set if the sink preserves holes.
    pub holes: bool,
    /// Maximum number of objects of one file in transit for a sink without random writes, which
    /// needs the objects in order. `None` for a sink with random writes.
    pub ordered_window: Option<u32>,
}

/// The sink's decision about one announced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileId {
    /// Index of the file.
    pub index: FileIndex,
    /// The decision.
    pub verdict: FileVerdict,
}

/// A sink's decision in a [`FileId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVerdict {
    /// Send all ranges except those that the preceding [`Message::Done`] messages named.
    Want {
        /// Object size in bytes. After a resume, the size in the log.
        object_bytes: u64,
        /// Storage targets of the file at the sink.
        layout: Layout,
    },
    /// The destination already has the same file.
    Adopted,
    /// The destination has another file, and the overwrite option does not permit its replacement.
    Skipped,
    /// The sink cannot accept the file.
    Failed(Error),
}

/// A part of a block: a range of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// File of the range.
    pub file: FileIndex,
    /// Range in the file.
    pub range: ByteRange,
    /// Data or a hole.
    pub kind: SegmentKind,
}

/// Kind of a [`Segment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Bytes in the payload, with their checksums.
    Data(Sums),
    /// A hole, without bytes in the payload. A hole may be longer than an object.
    Hole,
}

/// Head of a block on a data stream. The payload follows: the bytes of all data segments, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// Identifier of this attempt to send the object.
    pub id: BlockId,
    /// The sink target whose credit the block spends.
    pub target: TargetId,
    /// Segments in payload order.
    pub segments: Vec<Segment>,
}

impl BlockHead {
    /// Returns the length of the payload; `None` if the sum of the segment lengths overflows.
    #[must_use]
    pub fn payload_bytes(&self) -> Option<u64> {
        self.segments
            .iter()
            .try_fold(0u64, |sum, segment| match segment.kind {
                SegmentKind::Data(_) => sum.checked_add(segment.range.length),
                SegmentKind::Hole => Some(sum),
            })
    }
}

/// State of a block at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockState {
    /// The sink has written the block, so its buffer at the sink is free.
    Written,
    /// The block is durable and recorded in the log.
    Durable,
    /// The sink refused the block (wrong checksum). The source must send the object again in a new
    /// block.
    Nack(Error),
    /// The block was lost with its stream, and the sink will not accept it later.
    Dropped,
}

/// End of an entry at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileClosed {
    /// Index of the entry.
    pub index: FileIndex,
    /// Checksums of the published file (those of zero bytes for folders and links), or the error.
    pub result: Result<Sums, Error>,
    /// Bytes that an earlier run had already made durable.
    pub bytes_resumed: u64,
}

/// The sink's counters at the end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Files published by this session.
    pub files: u64,
    /// Files that already existed with the same content.
    pub files_adopted: u64,
    /// Files that already existed with other content and were not replaced.
    pub files_skipped: u64,
    /// Files that failed.
    pub files_failed: u64,
    /// Folders and symbolic links created.
    pub others: u64,
    /// Total size of the published files in bytes.
    pub bytes: u64,
}

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Opens the session.
    Hello(Hello),
    /// The driver's request.
    Connect(Connect),
    /// Accepts the request.
    Accept(Accept),
    /// Refuses any request.
    Refuse(Error),
    /// The sink is ready; states its capabilities.
    Ready(Ready),
    /// Announced entries in order (FT-LADS NEW_FILE, in batches).
    NewFiles(Vec<Entry>),
    /// Errors of the listing; each error names its path.
    ListFailed(Vec<Error>),
    /// The source has announced all entries.
    ListEnd {
        /// Number of announced entries.
        entries: u64,
    },
    /// Ranges of a file that are durable at the sink. The sink sends as many as needed before its
    /// FileId for the file.
    Done {
        /// Index of the file.
        index: FileIndex,
        /// Ranges, ascending.
        ranges: Vec<ByteRange>,
    },
    /// The sink's decisions (FT-LADS FILE_ID, in batches).
    FileIds(Vec<FileId>),
    /// Permits the source to send more objects to these targets.
    Credit(Vec<(TargetId, u32)>),
    /// States of blocks (FT-LADS BLOCK_SYNC, in batches).
    BlockSync(Vec<(BlockId, BlockState)>),
    /// Entries that the sink has finished (FT-LADS FILE_CLOSE, in batches).
    FileClose(Vec<FileClosed>),
    /// The source cannot deliver a file that it announced.
    FileAbort {
        /// Index of the file.
        index: FileIndex,
        /// Reason.
        error: Error,
    },
    /// A data stream failed. The sink answers with the state of each block.
    StreamLost {
        /// Number of the stream.
        stream: StreamId,
        /// Blocks sent on the stream whose state the source does not know.
        blocks: Vec<BlockId>,
    },
    /// New rate limit in bytes per second; `None` removes the limit.
    Rate(Option<u64>),
    /// Asks for a [`Message::Pong`].
    Ping(u64),
    /// Answers a [`Message::Ping`].
    Pong(u64),
    /// No bytes moved to or from this target for the stated time.
    Stall {
        /// Storage target of the sender.
        target: TargetId,
        /// Time without progress.
        milliseconds: u64,
    },
    /// The sender will end soon. The receiver starts no new work and finishes the objects in
    /// transit.
    GoAway(Error),
    /// Stops the session of one attempt.
    Cancel {
        /// Number of the driver's attempt; the sink ignores a cancel with another number.
        attempt: u32,
        /// Set if partial data and log must be removed.
        purge: bool,
    },
    /// Time that the sender has spent in each stage. A peer that does not know the message ignores
    /// it.
    Profile(Times),
    /// Number of streams to use from now on: the streams with the lowest numbers.
    Streams(u32),
    /// The sink has finished all entries.
    Verdict(Totals),
    /// The driver has stored the verdict, so the sink may delete the log.
    VerdictStored,
    /// Ends the session.
    Bye,
}

/// First and only message of the dialler on a data stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Ticket of the session.
    pub ticket: [u8; 16],
    /// Number of the stream.
    pub stream: StreamId,
    /// HMAC-SHA256 over ticket, stream number and the listener's challenge.
    pub proof: [u8; 32],
}

/// Name of [`ContentKey`] for code that builds log headers from announced entries.
pub type Content = ContentKey;

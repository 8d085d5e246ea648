//! The messages. The core is the set of FT-LADS (CONNECT, NEW_FILE, FILE_ID, NEW_BLOCK, BLOCK_SYNC,
//! FILE_CLOSE, BYE; Kasu et al. 2019, listing 1); the others cover the additional needs of a real
//! transfer.

use dray_core::content::ContentKey;
use dray_core::options::Options;
use dray_core::profile::Times;
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, Error, FileIndex, Layout, Name, StreamId, Sums,
    TargetId, TransferId,
};

/// Feature bits for which a peer that does not know them must refuse the session.
pub mod mandatory {
    /// Segments of files may span objects, and objects may span files.
    pub const PACKS: u64 = 1 << 0;
    /// A sink at this end stores nothing: data it reports as durable is discarded.
    pub const KEEPS_NOTHING: u64 = 1 << 1;
}

/// Feature bits a peer may ignore.
pub mod optional {
    /// Holes are sent as ranges, not as zeros.
    pub const HOLES: u64 = 1 << 0;
    /// Extended attributes are sent.
    pub const XATTRS: u64 = 1 << 1;
    /// Data streams may be unencrypted, authenticated at their join.
    pub const CLEAR_DATA: u64 = 1 << 2;
    /// The dialler's user chose a peer that stores nothing, by its name or its kind.
    pub const NULL_MEANT: u64 = 1 << 3;
    /// A source announces entries as soon as the session exists, before the sink's READY.
    pub const EARLY_ENTRIES: u64 = 1 << 4;
    /// A sink reads `resume` in CONNECT.
    pub const RESUME: u64 = 1 << 5;
}

/// Checksum algorithms by number.
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
    /// Oldest and newest protocol version supported.
    pub versions: (u16, u16),
    /// [`mandatory`] bits in use.
    pub mandatory: u64,
    /// [`optional`] bits supported.
    pub optional: u64,
    /// Limits of this end.
    pub limits: Limits,
    /// [`checksum_id`]s this end can compute, best first.
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
    /// Number of the driver's session of this transfer, from 1; a cancel names it.
    pub attempt: u32,
    /// Role of the passive end.
    pub passive_role: Role,
    /// Passive sink: the destination folder, then the paths in it that will be written (none: any).
    /// Passive source: the paths to read. Bytes, as typed.
    pub paths: Vec<Vec<u8>>,
    /// Selection of the files to read; for a passive sink only the range has a meaning.
    pub selection: Selection,
    /// Options for both ends.
    pub options: Options,
    /// Checksum that the caller requires for the (single) file.
    pub demanded: Option<Checksum>,
    /// Number of data streams that the driver requests.
    pub streams: u16,
    /// Set if data streams are unencrypted.
    pub clear_data: bool,
    /// Addresses of the driver for the case that the passive end must dial.
    pub addresses: Vec<String>,
}

/// Selection of a tree's entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Set if folders are entered.
    pub recursive: bool,
    /// Patterns of names or paths to include; empty includes all.
    pub include: Vec<String>,
    /// Patterns to exclude.
    pub exclude: Vec<String>,
    /// Only these bytes of a single file.
    pub range: Option<ByteRange>,
    /// Required size of a single file, before a range is cut from it.
    pub size: Option<u64>,
    /// New name of the directly named entry, which must be one file.
    pub rename: Option<Name>,
    /// Treatment of links.
    pub links: dray_core::options::Links,
}

/// The passive end's acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Identifies the session when data streams join.
    pub ticket: [u8; 16],
    /// Proves a data stream's right to join (HMAC key); secret, sent over TLS only.
    pub key: [u8; 32],
    /// Addresses where data streams may join (several NICs or hosts); empty: the address of the
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
    /// Maximum size of files that are packed, several to an object, and published in one step.
    pub pack_bytes_max: u64,
    /// Set if the sink preserves holes.
    pub holes: bool,
    /// For a sink without random writes: maximum number of objects of one file on the way, in
    /// order.
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

/// Decision about a file; see [`FileId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVerdict {
    /// Send the ranges that the [`Message::Done`] messages before this one did not name.
    Want {
        /// Bytes of an object (adopted from the log on resume).
        object_bytes: u64,
        /// The sink's targets of the file.
        layout: Layout,
    },
    /// The published file is already the same.
    Adopted,
    /// Another file exists at the destination and may not be replaced.
    Skipped,
    /// The sink cannot accept it.
    Failed(Error),
}

/// A part of a block's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// File of the part.
    pub file: FileIndex,
    /// Range in the file.
    pub range: ByteRange,
    /// Kind of the part.
    pub kind: SegmentKind,
}

/// Kind of a [`Segment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Bytes in the payload, with their checksums.
    Data(Sums),
    /// A hole: nothing in the payload. May be longer than an object.
    Hole,
}

/// Head of an object on a data stream; the payload follows, data segments one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// Identifier of this attempt.
    pub id: BlockId,
    /// The sink target whose credit it spends.
    pub target: TargetId,
    /// Its parts, in payload order.
    pub segments: Vec<Segment>,
}

impl BlockHead {
    /// Returns the bytes of the payload; `None` if the claimed lengths overflow.
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

/// State of an object at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockState {
    /// Written: its buffer is free again.
    Written,
    /// Durable and logged.
    Durable,
    /// Refused (wrong bytes); the object must be sent again as a new attempt.
    Nack(Error),
    /// The sink does not have it and will not accept it any more (its stream was lost).
    Dropped,
}

/// End of a file at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileClosed {
    /// Index of the entry.
    pub index: FileIndex,
    /// Checksums of the published file (of no bytes for folders and links), or the error.
    pub result: Result<Sums, Error>,
    /// Bytes that an earlier run had already made durable.
    pub bytes_resumed: u64,
}

/// The sink's counts at the end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Files published by this session.
    pub files: u64,
    /// Files that existed already and were the same.
    pub files_adopted: u64,
    /// Files that existed and were not replaced.
    pub files_skipped: u64,
    /// Files that failed.
    pub files_failed: u64,
    /// Folders and links created.
    pub others: u64,
    /// Bytes of the published files.
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
    /// The sink is prepared.
    Ready(Ready),
    /// Entries of the manifest, in order (FT-LADS NEW_FILE, in batches).
    NewFiles(Vec<Entry>),
    /// Errors of the listing; each names its path.
    ListFailed(Vec<Error>),
    /// The manifest is complete.
    ListEnd {
        /// Number of announced entries.
        entries: u64,
    },
    /// Ranges of a file that are durable at the sink; repeated as often as needed before its
    /// FileId.
    Done {
        /// Index of the file.
        index: FileIndex,
        /// Ranges, ascending.
        ranges: Vec<ByteRange>,
    },
    /// The sink's decisions (FT-LADS FILE_ID, in batches).
    FileIds(Vec<FileId>),
    /// Permits more objects for these targets.
    Credit(Vec<(TargetId, u32)>),
    /// States of objects (FT-LADS BLOCK_SYNC, in batches).
    BlockSync(Vec<(BlockId, BlockState)>),
    /// Entries that are finished at the sink (FT-LADS FILE_CLOSE, in batches).
    FileClose(Vec<FileClosed>),
    /// The source cannot deliver a file it announced.
    FileAbort {
        /// Index of the file.
        index: FileIndex,
        /// Reason.
        error: Error,
    },
    /// A data stream failed; the sink answers with the state of each object.
    StreamLost {
        /// Number of the stream.
        stream: StreamId,
        /// Objects sent on it whose state is unknown.
        blocks: Vec<BlockId>,
    },
    /// Maximum rate from now on, in bytes per second; `None` lifts the limit.
    Rate(Option<u64>),
    /// Asks for a [`Message::Pong`].
    Ping(u64),
    /// Answers a [`Message::Ping`].
    Pong(u64),
    /// Nothing moved to or from this target for this time.
    Stall {
        /// The sender's own target.
        target: TargetId,
        /// Length of the pause.
        milliseconds: u64,
    },
    /// The sender will end soon: start no new work, finish the objects under way.
    GoAway(Error),
    /// Stops this attempt.
    Cancel {
        /// The driver's attempt; the sink ignores other numbers.
        attempt: u32,
        /// Set if partial data and log must be removed.
        purge: bool,
    },
    /// Time the sender has spent in each stage. Peers that do not know the message ignore it.
    Profile(Times),
    /// Number of streams to use from now on, those with the lowest numbers.
    Streams(u32),
    /// The sink has finished all entries.
    Verdict(Totals),
    /// The driver's side has stored the verdict; the log may be deleted.
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

/// Re-exported for code that builds log headers from announced entries.
pub type Content = ContentKey;

//! The messages of the protocol. The core is the message set of FT-LADS: CONNECT, NEW_FILE,
//! FILE_ID, NEW_BLOCK, BLOCK_SYNC, FILE_CLOSE, BYE (Kasu et al. 2019, listing 1). The other
//! messages negotiate, control the flow of objects, report errors and end a transfer.

use dray_core::content::ContentKey;
use dray_core::options::Options;
use dray_core::profile::Times;
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, Error, FileIndex, Layout, Name, StreamId, Sums,
    TargetId, TraceContext, TransferId,
};

/// Mandatory feature bits. A peer that does not know a set bit must refuse the session.
pub mod mandatory {
    /// A segment of a file may span objects, and an object may hold segments of several files.
    pub const PACKS: u64 = 1 << 0;
    /// The sink at this end stores nothing and discards data that it reports as durable.
    pub const KEEPS_NOTHING: u64 = 1 << 1;
}

/// Optional feature bits. A peer ignores bits that it does not know.
pub mod optional {
    /// Holes are sent as ranges and not as zeros.
    pub const HOLES: u64 = 1 << 0;
    /// Extended attributes are sent.
    pub const XATTRS: u64 = 1 << 1;
    /// Data streams may be unencrypted. Each stream is authenticated when it joins the session.
    pub const CLEAR_DATA: u64 = 1 << 2;
    /// The user of the dialling end has requested a peer that discards all data. Without this bit, a
    /// passive end that discards data refuses the session.
    pub const NULL_MEANT: u64 = 1 << 3;
    /// The source announces entries before it receives the sink's READY.
    pub const EARLY_ENTRIES: u64 = 1 << 4;
    /// The sink reads the `resume` option in CONNECT.
    pub const RESUME: u64 = 1 << 5;
    /// The source reads tables of stripes and composite layouts in FILE_IDS.
    pub const LAYOUTS: u64 = 1 << 6;
    /// This end reads the option `stripes` in CONNECT.
    pub const STRIPES: u64 = 1 << 7;
}

/// Numbers of the checksum algorithms in HELLO.
pub mod checksum_id {
    /// crc32c and adler32 of every segment and file.
    pub const CRC32C_ADLER32: u8 = 1;
}

/// Limits that an end declares and that the other end must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of the body of a control frame in bytes.
    pub control_bytes_max: u32,
    /// Maximum length of the payload of a block in bytes.
    pub object_bytes_max: u64,
    /// Maximum number of segments in one block.
    pub segments_max: u32,
    /// Maximum number of entries that are announced and not closed.
    pub live_entries_max: u32,
}

/// First message of each end on a control connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version that this end supports.
    pub versions: (u16, u16),
    /// [`mandatory`] bits that this end uses.
    pub mandatory: u64,
    /// [`optional`] bits that this end supports.
    pub optional: u64,
    /// Limits that this end declares.
    pub limits: Limits,
    /// [`checksum_id`]s that this end can compute, in order of preference.
    pub checksums: Vec<u8>,
    /// Name and version of the program, as text for people.
    pub software: String,
    /// Token of the dialling end, as configured. Empty in the HELLO of the listener.
    pub token: Vec<u8>,
}

/// Role of an end in the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end reads the files.
    Source,
    /// The end writes the files and owns the object log.
    Sink,
}

impl Role {
    /// Returns the end with this role, for use in errors.
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
    /// Identifier of the transfer, chosen by the caller.
    pub transfer: TransferId,
    /// Number of the driver's session of this transfer, counted from 1. A CANCEL refers to the
    /// session by this number.
    pub attempt: u32,
    /// Role of the passive end.
    pub passive_role: Role,
    /// Paths as the user typed them. For a passive sink: the destination folder, followed by the
    /// paths below it that will be written. Without such paths, the transfer may write any path
    /// below the folder. For a passive source: the paths to read.
    pub paths: Vec<Vec<u8>>,
    /// Selection of the files to read. A passive sink uses only the range.
    pub selection: Selection,
    /// Options for both ends.
    pub options: Options,
    /// Checksum that the caller demands. Permitted only for a transfer of a single file.
    pub demanded: Option<Checksum>,
    /// Number of data streams that the driver requests.
    pub streams: u16,
    /// True if data streams are unencrypted.
    pub clear_data: bool,
    /// Addresses of the driver. A passive end that must open the data streams connects to them.
    pub addresses: Vec<String>,
    /// Span of the driver to which the spans of the passive end belong.
    pub trace: Option<TraceContext>,
}

/// Selects entries of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// True if the lister enters folders.
    pub recursive: bool,
    /// Patterns of names or paths to include. If empty, all entries are included.
    pub include: Vec<String>,
    /// Patterns of names or paths to exclude.
    pub exclude: Vec<String>,
    /// Range of a single file to read; `None` reads the whole file.
    pub range: Option<ByteRange>,
    /// Required size in bytes of a single file, before the range is applied.
    pub size: Option<u64>,
    /// New name for the entry at the path in CONNECT. The entry must be a file.
    pub rename: Option<Name>,
    /// Treatment of symbolic links.
    pub links: dray_core::options::Links,
}

/// Message with which the passive end accepts the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Identifies the session when a data stream joins.
    pub ticket: [u8; 16],
    /// Key (HMAC-SHA256) with which a data stream proves that it may join the session. The key is
    /// secret, so the message is sent only over TLS.
    pub key: [u8; 32],
    /// Addresses at which data streams may join the session. There may be several, for several
    /// network interfaces or hosts. If the list is empty, data streams use the address of the
    /// control connection.
    pub addresses: Vec<String>,
    /// Number of data streams that the passive end permits.
    pub streams: u16,
}

/// First message of the sink to a source. It contains the capabilities of the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Precision of modification times at the sink in nanoseconds.
    pub precision_nanoseconds: u32,
    /// Maximum object size that the sink accepts, in bytes.
    pub object_bytes_max: u64,
    /// Maximum number of entries that are announced and not closed.
    pub live_entries_max: u32,
    /// Maximum size in bytes of a small file. Several small files are packed into one object, and
    /// the sink publishes each small file in one step.
    pub pack_bytes_max: u64,
    /// True if the sink supports holes.
    pub holes: bool,
    /// Maximum number of objects of one file in flight. Set by a sink without random writes,
    /// because it needs the objects in order. `None` for a sink with random writes.
    pub ordered_window: Option<u32>,
}

/// The sink's decision about an announced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileId {
    /// Index of the file.
    pub index: FileIndex,
    /// Decision about the file.
    pub verdict: FileVerdict,
}

/// A sink's decision in a [`FileId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVerdict {
    /// The source must send all ranges except those in the preceding [`Message::Done`] messages.
    Want {
        /// Object size in bytes. After a resume, the size recorded in the object log.
        object_bytes: u64,
        /// Storage targets of the file at the sink.
        layout: Layout,
    },
    /// The destination already has the same file.
    Adopted,
    /// The destination already has another file, and the overwrite option does not permit replacing
    /// it.
    Skipped,
    /// The sink cannot accept the file.
    Failed(Error),
}

/// A part of a block: a range of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// File to which the range belongs.
    pub file: FileIndex,
    /// Range in the file.
    pub range: ByteRange,
    /// Data or hole.
    pub kind: SegmentKind,
}

/// Kind of a [`Segment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// The payload contains the bytes of the range. The value has the checksums of these bytes.
    Data(Sums),
    /// A hole. The payload contains no bytes for the range, and the range may be longer than an
    /// object.
    Hole,
}

/// Head of a block on a data stream. The payload follows the head. It contains the bytes of all
/// data segments in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// Identifier of this sending of the object.
    pub id: BlockId,
    /// Sink target whose credit the block uses.
    pub target: TargetId,
    /// Segments in the order of their bytes in the payload.
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
    /// The sink has written the block, and its buffer for the block is free.
    Written,
    /// The block is durable and recorded in the object log.
    Durable,
    /// The sink rejected the block because its checksum was wrong. The source must send the object
    /// again in a new block.
    Nack(Error),
    /// The block was lost with its stream, and the sink will not accept it later.
    Dropped,
}

/// Message that the sink has finished an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileClosed {
    /// Index of the entry.
    pub index: FileIndex,
    /// Checksums of the published file, or the error. For folders and links, the checksums of zero
    /// bytes.
    pub result: Result<Sums, Error>,
    /// Bytes that an earlier run had already made durable.
    pub bytes_resumed: u64,
}

/// The sink's counters at the end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Number of files that this session published.
    pub files: u64,
    /// Number of files that already existed with the same content.
    pub files_adopted: u64,
    /// Number of files that already existed with other content and were not replaced.
    pub files_skipped: u64,
    /// Number of files that failed.
    pub files_failed: u64,
    /// Number of folders and symbolic links created.
    pub others: u64,
    /// Total size of the published files in bytes.
    pub bytes: u64,
}

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Opens the session.
    Hello(Hello),
    /// The driver's request to the passive end.
    Connect(Connect),
    /// The passive end accepts the request.
    Accept(Accept),
    /// An end refuses the session. Sent before ACCEPT, and contains the reason.
    Refuse(Error),
    /// The sink is ready. Contains its capabilities.
    Ready(Ready),
    /// Announced entries in order (a batch of FT-LADS NEW_FILE messages).
    NewFiles(Vec<Entry>),
    /// Steps of the layouts of files at the source ([`Layout::step`]), in bytes. Comes before the
    /// files are announced, and names only files of several stripes. The sink chooses object sizes
    /// that divide these steps.
    Stripes(Vec<(FileIndex, u64)>),
    /// Errors of the listing. Each error contains its path.
    ListFailed(Vec<Error>),
    /// The source has announced all entries.
    ListEnd {
        /// Number of announced entries.
        entries: u64,
    },
    /// Ranges of a file that are durable at the sink. The sink sends one or more `Done` messages
    /// for a file before it sends the `FileId` of the file.
    Done {
        /// Index of the file.
        index: FileIndex,
        /// Ranges in ascending order.
        ranges: Vec<ByteRange>,
    },
    /// The sink's decisions (a batch of FT-LADS FILE_ID messages).
    FileIds(Vec<FileId>),
    /// For each listed sink target, the number of objects that the source may send in addition to
    /// earlier credit.
    Credit(Vec<(TargetId, u32)>),
    /// States of blocks (a batch of FT-LADS BLOCK_SYNC messages).
    BlockSync(Vec<(BlockId, BlockState)>),
    /// Entries that the sink has finished (a batch of FT-LADS FILE_CLOSE messages).
    FileClose(Vec<FileClosed>),
    /// The source cannot deliver a file that it announced.
    FileAbort {
        /// Index of the file.
        index: FileIndex,
        /// Reason why the file cannot be sent.
        error: Error,
    },
    /// A data stream failed. The sink answers with the state of each listed block.
    StreamLost {
        /// Number of the stream.
        stream: StreamId,
        /// Blocks that were sent on the stream and whose state the source does not know.
        blocks: Vec<BlockId>,
    },
    /// New rate limit in bytes per second; `None` removes the limit.
    Rate(Option<u64>),
    /// Requests a [`Message::Pong`].
    Ping(u64),
    /// Answers a [`Message::Ping`].
    Pong(u64),
    /// No bytes have moved to or from a storage target for some time.
    Stall {
        /// Storage target of the sender.
        target: TargetId,
        /// Time without progress in milliseconds.
        milliseconds: u64,
    },
    /// The sender will end soon. The receiver starts no new objects and finishes the objects in
    /// flight.
    GoAway(Error),
    /// Stops the session with this number.
    Cancel {
        /// Number of the driver's session. The sink ignores a CANCEL with another number.
        attempt: u32,
        /// True if the sink must remove partial files and the object log.
        purge: bool,
    },
    /// Time that the sender has spent in each stage. A peer that does not know this message ignores
    /// it.
    Profile(Times),
    /// Number of streams to use from now on. The streams with the lowest numbers are used.
    Streams(u32),
    /// The sink has finished all entries.
    Verdict(Totals),
    /// The driver has stored the verdict. The sink may now delete the object log.
    VerdictStored,
    /// Ends the session.
    Bye,
}

/// First frame of the dialler on a data connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Ticket of the session, from [`Accept`].
    pub ticket: [u8; 16],
    /// Number of the stream.
    pub stream: StreamId,
    /// HMAC-SHA256 over the ticket, the stream number and the listener's challenge.
    pub proof: [u8; 32],
}

/// Alias of [`ContentKey`] for code that builds log records from announced entries.
pub type Content = ContentKey;

impl Message {
    /// Converts all layouts of the message to single or striped layouts ([`Layout::simplified`]),
    /// for a peer without the optional bit [`optional::LAYOUTS`]. Returns `None` if the message
    /// already has only such layouts.
    #[must_use]
    pub fn with_simple_layouts(&self) -> Option<Self> {
        let is_simple = |id: &FileId| match &id.verdict {
            FileVerdict::Want { layout, .. } => layout.is_simple(),
            _ => true,
        };
        let Self::FileIds(ids) = self else {
            return None;
        };
        if ids.iter().all(is_simple) {
            return None;
        }
        let mut ids = ids.clone();
        for id in &mut ids {
            if let FileVerdict::Want { layout, .. } = &mut id.verdict {
                *layout = layout.simplified();
            }
        }
        Some(Self::FileIds(ids))
    }
}

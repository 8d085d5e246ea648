//! The messages. FT-LADS's set is the heart (CONNECT, NEW_FILE, FILE_ID, NEW_BLOCK, BLOCK_SYNC,
//! FILE_CLOSE, BYE; Kasu et al. 2019, listing 1); around it what a real transfer needs more.

use dray_core::content::ContentKey;
use dray_core::options::Options;
use dray_core::profile::Times;
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, Error, FileIndex, Layout, Name, StreamId, Sums,
    TargetId, TransferId,
};

/// Feature bits a peer must know or refuse the session.
pub mod mandatory {
    /// Segments of files may span objects, and objects may span files.
    pub const PACKS: u64 = 1 << 0;
    /// A sink at this end keeps nothing: what is safe by its word is gone.
    pub const KEEPS_NOTHING: u64 = 1 << 1;
}

/// Feature bits a peer may ignore.
pub mod optional {
    /// Holes travel as ranges, not as zeros.
    pub const HOLES: u64 = 1 << 0;
    /// Extended attributes travel.
    pub const XATTRS: u64 = 1 << 1;
    /// Data streams may run in clear, authenticated at their join.
    pub const CLEAR_DATA: u64 = 1 << 2;
    /// The dialler was asked, by name or by what it is, to talk to an end that keeps nothing.
    pub const NULL_MEANT: u64 = 1 << 3;
    /// A source announces entries as soon as the session is there, before the sink's READY.
    pub const EARLY_ENTRIES: u64 = 1 << 4;
    /// A sink reads `resume` in CONNECT.
    pub const RESUME: u64 = 1 << 5;
}

/// Checksum algorithms by number.
pub mod checksum_id {
    /// crc32c and adler32 of every segment.
    pub const CRC32C_ADLER32: u8 = 1;
}

/// Bounds an end declares; the other must keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body of a control frame in bytes.
    pub control_bytes_max: u32,
    /// Longest payload of a block in bytes.
    pub object_bytes_max: u64,
    /// Most segments in one block.
    pub segments_max: u32,
    /// Most entries announced and not yet closed.
    pub live_entries_max: u32,
}

/// First message of either side on a control connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version spoken.
    pub versions: (u16, u16),
    /// [`mandatory`] bits in use.
    pub mandatory: u64,
    /// [`optional`] bits understood.
    pub optional: u64,
    /// Bounds of this end.
    pub limits: Limits,
    /// [`checksum_id`]s this end can compute, best first.
    pub checksums: Vec<u8>,
    /// Name and version of the program, for people.
    pub software: String,
    /// Static token of the dialling end; empty in the answer.
    pub token: Vec<u8>,
}

/// Which end of the transfer somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads.
    Source,
    /// Writes, and owns the log.
    Sink,
}

impl Role {
    /// The end that has this role, for errors.
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
    /// The caller's name of the transfer.
    pub transfer: TransferId,
    /// Counts the driver's sessions of this transfer, from 1; a cancel names it.
    pub attempt: u32,
    /// What the passive end is to be.
    pub passive_role: Role,
    /// Passive sink: the destination folder, then the paths in it that will be written (none: any).
    /// Passive source: what to read. Bytes, as typed.
    pub paths: Vec<Vec<u8>>,
    /// Where and what of the files to read; to a passive sink only the range means something.
    pub selection: Selection,
    /// Options for both ends.
    pub options: Options,
    /// What the caller demands of the (single) file.
    pub demanded: Option<Checksum>,
    /// Data streams the driver would like.
    pub streams: u16,
    /// Whether data streams run in clear.
    pub clear_data: bool,
    /// Addresses of the driver where the passive end may dial, should it have to.
    pub addresses: Vec<String>,
}

/// Which entries of a tree are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Whether folders are entered.
    pub recursive: bool,
    /// Patterns of names or paths to take; empty takes all.
    pub include: Vec<String>,
    /// Patterns to leave out.
    pub exclude: Vec<String>,
    /// Only these bytes of a single file.
    pub range: Option<ByteRange>,
    /// The bytes that a single file must have, before any range is cut from it.
    pub size: Option<u64>,
    /// The new name of what is named directly, which is one file.
    pub rename: Option<Name>,
    /// How links are treated.
    pub links: dray_core::options::Links,
}

/// The passive end's consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Names the session when data streams join.
    pub ticket: [u8; 16],
    /// Proves a data stream's right to join (HMAC key); secret, sent over TLS only.
    pub key: [u8; 32],
    /// Addresses where data streams may join (several NICs or hosts); empty: where control is.
    pub addresses: Vec<String>,
    /// Data streams granted.
    pub streams: u16,
}

/// The sink's first word to a source: what it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Precision of modification times at the sink in nanoseconds.
    pub precision_nanoseconds: u32,
    /// Largest object the sink takes, in bytes.
    pub object_bytes_max: u64,
    /// Most entries announced and not yet closed.
    pub live_entries_max: u32,
    /// Files up to this many bytes are packed, several to an object, and published in one step.
    pub pack_bytes_max: u64,
    /// Whether the sink keeps holes.
    pub holes: bool,
    /// For a sink without random writes: objects of one file that may be on the way, in order.
    pub ordered_window: Option<u32>,
}

/// What the sink decided about one announced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileId {
    /// Which.
    pub index: FileIndex,
    /// The decision.
    pub verdict: FileVerdict,
}

/// See [`FileId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVerdict {
    /// Send what the [`Message::Done`] messages before this one did not name.
    Want {
        /// Bytes of an object (adopted from the log on resume).
        object_bytes: u64,
        /// The sink's targets of the file.
        layout: Layout,
    },
    /// The published file is the same already.
    Adopted,
    /// Another file stands there and may not be replaced.
    Skipped,
    /// The sink cannot take it.
    Failed(Error),
}

/// A part of a block's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The file it belongs to.
    pub file: FileIndex,
    /// Where in the file.
    pub range: ByteRange,
    /// What it is.
    pub kind: SegmentKind,
}

/// See [`Segment`].
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
    /// This attempt.
    pub id: BlockId,
    /// The sink target whose credit it spends.
    pub target: TargetId,
    /// Its parts, in payload order.
    pub segments: Vec<Segment>,
}

impl BlockHead {
    /// Bytes of the payload; `None` when the claimed lengths overflow.
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

/// How far an object has come at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockState {
    /// Written: its buffer is free again.
    Written,
    /// Durable and logged.
    Durable,
    /// Refused (wrong bytes); the object must be sent again as a new attempt.
    Nack(Error),
    /// The sink does not have it and will not take it any more (its stream was lost).
    Dropped,
}

/// End of a file at the sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileClosed {
    /// Which entry.
    pub index: FileIndex,
    /// Its checksums when published (of no bytes for folders and links), or why not.
    pub result: Result<Sums, Error>,
    /// Bytes that an earlier run had made safe already.
    pub bytes_resumed: u64,
}

/// What the sink says at the end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Files published by this session.
    pub files: u64,
    /// Files that stood there already and were the same.
    pub files_adopted: u64,
    /// Files that stood there and were left.
    pub files_skipped: u64,
    /// Files that failed.
    pub files_failed: u64,
    /// Folders and links made.
    pub others: u64,
    /// Bytes of the published files.
    pub bytes: u64,
}

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Opening word.
    Hello(Hello),
    /// The driver's request.
    Connect(Connect),
    /// Consent to it.
    Accept(Accept),
    /// Refusal, to any request.
    Refuse(Error),
    /// The sink is prepared.
    Ready(Ready),
    /// Entries of the manifest, in order (FT-LADS NEW_FILE, in batches).
    NewFiles(Vec<Entry>),
    /// What could not be listed; each error names its path.
    ListFailed(Vec<Error>),
    /// The manifest is complete: how many entries it has.
    ListEnd {
        /// Entries announced in all.
        entries: u64,
    },
    /// Ranges of a file that are safe at the sink; repeated as often as needed before its FileId.
    Done {
        /// Which file.
        index: FileIndex,
        /// Ranges, ascending.
        ranges: Vec<ByteRange>,
    },
    /// The sink's decisions (FT-LADS FILE_ID, in batches).
    FileIds(Vec<FileId>),
    /// More objects may be sent to these targets.
    Credit(Vec<(TargetId, u32)>),
    /// Outcomes of objects (FT-LADS BLOCK_SYNC, in batches).
    BlockSync(Vec<(BlockId, BlockState)>),
    /// Entries that are finished at the sink (FT-LADS FILE_CLOSE, in batches).
    FileClose(Vec<FileClosed>),
    /// The source cannot deliver a file it announced.
    FileAbort {
        /// Which.
        index: FileIndex,
        /// Why.
        error: Error,
    },
    /// A data stream died; the sink answers each object with a state.
    StreamLost {
        /// Which.
        stream: StreamId,
        /// Objects sent on it whose state is not known.
        blocks: Vec<BlockId>,
    },
    /// From now on at most this many bytes per second; `None` lifts the limit.
    Rate(Option<u64>),
    /// Asks for a [`Message::Pong`].
    Ping(u64),
    /// Answers a [`Message::Ping`].
    Pong(u64),
    /// Nothing moved to or from this target for so many milliseconds.
    Stall {
        /// The sender's own target.
        target: TargetId,
        /// How long.
        milliseconds: u64,
    },
    /// The sender will end soon: no new work, finish what is under way.
    GoAway(Error),
    /// Stop this attempt.
    Cancel {
        /// The driver's attempt; another is ignored.
        attempt: u32,
        /// Whether partial data and log are removed.
        purge: bool,
    },
    /// How long the sender was in each stage so far. Those who do not know it pass over it.
    Profile(Times),
    /// Hand blocks to so many streams from now on, those with the lowest numbers.
    Streams(u32),
    /// The sink is done with everything.
    Verdict(Totals),
    /// The verdict has been stored by the driver's side; the log may go.
    VerdictStored,
    /// Last word.
    Bye,
}

/// First and only message of a data stream's dialler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Ticket of the session.
    pub ticket: [u8; 16],
    /// Number of the stream.
    pub stream: StreamId,
    /// HMAC-SHA256 over ticket, stream number and the listener's challenge.
    pub proof: [u8; 32],
}

/// Re-exported for those who build log headers from announced entries.
pub type Content = ContentKey;

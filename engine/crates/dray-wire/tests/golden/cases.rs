//! An example of every message. Every variant of every part is in at least one example.
//!
//! If possible, the examples belong to one session. Its manifest has eight entries, and NEW_FILES
//! contains the entries 0 to 3. The decisions, closes, blocks and credits refer to these eight
//! entries.

use dray_core::options::{Durability, Links, Options, Order, Overwrite, ResumeMode};
use dray_core::profile::{Stage, Times};
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, EntryKind, Error, ErrorKind, Extent, FileIndex,
    Layout, Metadata, ModifiedTime, Name, RelPath, Status, StreamId, StripeChoice, Sums, TargetId,
    TraceContext, TransferId,
};
use dray_wire::codec::Challenge;
use dray_wire::message::{
    Accept, BlockHead, BlockState, Connect, FileClosed, FileId, FileVerdict, Hello, Join, Limits,
    Message, Ready, Role, Segment, SegmentKind, Selection, Totals,
};
use std::time::Duration;

fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("a name")
}

fn path(bytes: &[u8]) -> RelPath {
    RelPath::parse(bytes).expect("a path")
}

fn error(kind: ErrorKind, end: End, words: [&str; 3]) -> Error {
    let [operation, cause, remedy] = words;
    Error::new(kind, end, operation).cause(cause).remedy(remedy)
}

fn wrong_token() -> Error {
    let words = [
        "log in",
        "the other end does not know this token",
        "give the token that end was started with",
    ];
    error(ErrorKind::Unauthorized, End::Network, words)
}

fn no_permission() -> Error {
    let words = [
        "list the folder",
        "Permission denied (os error 13)",
        "give this user access, or run as one who has it",
    ];
    let long = [b"run/", &[b'x'; 255][..]].concat();
    error(ErrorKind::PermissionDenied, End::Source, words).file(&path(&long))
}

fn folder_in_the_way() -> Error {
    let words = [
        "publish the file",
        "a folder stands under the file's name",
        "move the folder away, or name another destination",
    ];
    error(ErrorKind::IsADirectory, End::Sink, words).file(&path(b"taken"))
}

fn no_space() -> Error {
    let words = [
        "write the object",
        "No space left on device (os error 28)",
        "free some space and run the same command again",
    ];
    error(ErrorKind::NoSpace, End::Sink, words)
        .status(Status::Exhausted)
        .file(&path(b"striped"))
}

fn changed() -> Error {
    let words = [
        "read the file",
        "it has 15 bytes, 14 when it was listed",
        "run the same command again once the file is left alone",
    ];
    error(ErrorKind::SourceChanged, End::Source, words).file(&path(b"small"))
}

fn mismatch() -> Error {
    let words = [
        "receive an object",
        "bytes differ from the checksum made when they were read",
        "the object is sent again; look at network or memory faults if this repeats",
    ];
    error(ErrorKind::ChecksumMismatch, End::Network, words)
}

fn broken() -> Error {
    let words = [
        "follow the source",
        "8 entries announced, 7 received",
        "use the same version of dray at both ends and report this",
    ];
    error(ErrorKind::Protocol, End::Source, words)
}

fn entry(index: u64, parent: Option<u64>, bytes: &[u8], kind: EntryKind) -> Entry {
    Entry {
        index: FileIndex(index),
        parent: parent.map(FileIndex),
        name: name(bytes),
        kind,
        metadata: Metadata {
            mode: 0o644,
            modified: ModifiedTime {
                seconds: 1_700_000_000,
                nanoseconds: 123_456_789,
            },
            xattrs: Vec::new(),
        },
    }
}

fn hello() -> Hello {
    Hello {
        versions: (1, 3),
        mandatory: 1,
        optional: 7,
        limits: Limits {
            control_bytes_max: 1 << 20,
            object_bytes_max: 64 << 20,
            segments_max: 4096,
            live_entries_max: 65536,
        },
        checksums: vec![1],
        software: "dray 0.1.0 (Größe)".into(),
        token: b"\x00secret\xff".to_vec(),
    }
}

fn connect_sink() -> Connect {
    Connect {
        transfer: TransferId::new("dag:run.1-2").expect("an id"),
        attempt: 3,
        passive_role: Role::Sink,
        paths: vec![b"data/in\xff".to_vec(), b"a.root".to_vec()],
        selection: Selection {
            range: Some(ByteRange {
                offset: 4096,
                length: 1 << 40,
            }),
            ..Selection::default()
        },
        options: Options {
            durability: Durability::Object,
            overwrite: Overwrite::Never,
            order: Order::Random { seed: u64::MAX },
            object_bytes: 1 << 20,
            verify: true,
            xattrs: false,
            checksum_attributes: true,
            rate: Some(125_000_000),
            ..Options::default()
        },
        demanded: Some(Checksum::Adler32(0x091e_01de)),
        streams: 8,
        clear_data: true,
        addresses: vec!["dtn1.example.org:4437".into(), "[2001:db8::1]:4437".into()],
        trace: None,
    }
}

fn connect_source() -> Connect {
    Connect {
        passive_role: Role::Source,
        paths: vec![b"data/a".to_vec(), b"data/b\\c/".to_vec()],
        selection: Selection {
            recursive: true,
            include: vec!["*.root".into()],
            exclude: vec!["tmp".into(), "größe*".into()],
            range: None,
            size: Some(1 << 40),
            rename: Some(name(b"new\xff.root")),
            links: Links::Follow,
        },
        options: Options {
            durability: Durability::None,
            ..Options::default()
        },
        demanded: None,
        clear_data: false,
        addresses: Vec::new(),
        ..connect_sink()
    }
}

fn connect_trust() -> Connect {
    Connect {
        options: Options {
            resume: ResumeMode::Trust,
            ..Options::default()
        },
        ..connect_sink()
    }
}

fn connect_stripes() -> Connect {
    Connect {
        options: Options {
            xattrs: true,
            stripes: Some(StripeChoice::Fixed {
                count: 4,
                stripe_bytes: 16 << 20,
            }),
            ..Options::default()
        },
        ..connect_sink()
    }
}

fn connect_trace() -> Connect {
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    Connect {
        trace: TraceContext::parse(text),
        ..connect_sink()
    }
}

fn new_files() -> Vec<Entry> {
    let mut sparse = entry(
        1,
        Some(0),
        b"caf\xc3\xa9 \x01\xfe.bin",
        EntryKind::File {
            size: 1 << 36,
            sparse: true,
        },
    );
    sparse.metadata.modified = ModifiedTime {
        seconds: -1,
        nanoseconds: 999_999_999,
    };
    sparse.metadata.mode = 0o7777;
    sparse.metadata.xattrs = vec![
        (b"user.note".to_vec(), b"\x00\x01".to_vec()),
        (b"user.empty".to_vec(), Vec::new()),
    ];
    let target = b"../else\\where\n".to_vec();
    let mut end = entry(0, None, b"run", EntryKind::DirectoryEnd);
    end.metadata.mode = 0o755;
    vec![
        entry(0, None, b"run", EntryKind::Directory),
        sparse,
        entry(2, Some(0), b"link", EntryKind::Symlink { target }),
        end,
        entry(
            3,
            None,
            b"small",
            EntryKind::File {
                size: 14,
                sparse: false,
            },
        ),
    ]
}

fn file_ids() -> Vec<FileId> {
    let striped = Layout::Striped {
        stripe_bytes: 1 << 20,
        targets: vec![TargetId(3), TargetId(1)],
    };
    let want = |object_bytes, layout| FileVerdict::Want {
        object_bytes,
        layout,
    };
    let verdicts = [
        (1, want(4 << 20, Layout::Single(TargetId(7)))),
        (3, want(1 << 20, Layout::Single(TargetId(7)))),
        (4, want(4 << 20, striped)),
        (5, FileVerdict::Adopted),
        (6, FileVerdict::Skipped),
        (7, FileVerdict::Failed(folder_in_the_way())),
    ];
    let ids = verdicts.into_iter();
    ids.map(|(index, verdict)| FileId {
        index: FileIndex(index),
        verdict,
    })
    .collect()
}

/// Returns decisions with layouts that need the optional bit LAYOUTS.
fn file_ids_layouts() -> Vec<FileId> {
    let table = Layout::of_stripes(4 << 20, [8, 2, 8, 8, 5].map(TargetId));
    let extent = |end, stripe_bytes, targets: &[u32]| Extent {
        end,
        stripe_bytes,
        targets: targets.iter().copied().map(TargetId).collect(),
    };
    let composite = Layout::of_extents([
        extent(4 << 20, 1 << 20, &[6]),
        extent(256 << 20, 1 << 20, &[1, 2, 3, 4]),
        extent(u64::MAX, 4 << 20, &[7, 8]),
    ]);
    let layouts = [(1, table), (2, composite)].into_iter();
    let want = |(index, layout)| FileId {
        index: FileIndex(index),
        verdict: FileVerdict::Want {
            object_bytes: 1 << 20,
            layout,
        },
    };
    layouts.map(want).collect()
}

/// Returns every control message. Some messages have several examples.
pub(crate) fn messages() -> Vec<(&'static str, Message)> {
    [
        session_messages(),
        file_messages(),
        flow_messages(),
        end_messages(),
    ]
    .concat()
}

/// Messages that begin a session and list its files.
fn session_messages() -> Vec<(&'static str, Message)> {
    let ready = Ready {
        precision_nanoseconds: 1,
        object_bytes_max: 16 << 20,
        live_entries_max: 4096,
        pack_bytes_max: 256 << 10,
        holes: true,
        ordered_window: None,
    };
    vec![
        ("hello", Message::Hello(hello())),
        ("connect_sink", Message::Connect(connect_sink())),
        ("connect_trust", Message::Connect(connect_trust())),
        ("connect_stripes", Message::Connect(connect_stripes())),
        ("connect_trace", Message::Connect(connect_trace())),
        ("connect_source", Message::Connect(connect_source())),
        (
            "accept",
            Message::Accept(Accept {
                ticket: *b"ticket of 16 byt",
                key: [0xa5; 32],
                addresses: vec!["192.0.2.1:4437".into()],
                streams: 4,
            }),
        ),
        ("refuse", Message::Refuse(wrong_token().at(End::Here))),
        ("ready", Message::Ready(ready)),
        (
            "ready_ordered",
            Message::Ready(Ready {
                holes: false,
                ordered_window: Some(4),
                ..ready
            }),
        ),
        ("new_files", Message::NewFiles(new_files())),
        (
            "stripes",
            Message::Stripes(vec![(FileIndex(3), 4 << 20), (FileIndex(9), 1 << 16)]),
        ),
        ("list_failed", Message::ListFailed(vec![no_permission()])),
        ("list_end", Message::ListEnd { entries: 8 }),
    ]
}

/// Messages about single files, from the ranges that the sink already has to the end of the file.
fn file_messages() -> Vec<(&'static str, Message)> {
    let sums = Sums::of(b"and of another");
    let closed = |index, result, bytes_resumed| FileClosed {
        index: FileIndex(index),
        result,
        bytes_resumed,
    };
    let ranges = vec![
        ByteRange {
            offset: 0,
            length: 4 << 20,
        },
        ByteRange {
            offset: (4 << 20) + 17,
            length: (4 << 20) - 17,
        },
        ByteRange {
            offset: (1 << 36) - 1,
            length: 1,
        },
    ];
    vec![
        (
            "done",
            Message::Done {
                index: FileIndex(1),
                ranges,
            },
        ),
        ("file_ids", Message::FileIds(file_ids())),
        ("file_ids_layouts", Message::FileIds(file_ids_layouts())),
        ("file_close", {
            Message::FileClose(vec![
                closed(3, Ok(sums), 0),
                closed(2, Ok(Sums::EMPTY), 0),
                closed(1, Ok(Sums::of_zeros(1 << 36)), 8 << 20),
                closed(4, Err(no_space()), 0),
            ])
        }),
        (
            "file_abort",
            Message::FileAbort {
                index: FileIndex(3),
                error: changed(),
            },
        ),
    ]
}

/// Messages about credit, blocks, streams and rate.
fn flow_messages() -> Vec<(&'static str, Message)> {
    vec![
        (
            "credit",
            Message::Credit(vec![(TargetId(7), 16), (TargetId(3), 1)]),
        ),
        (
            "credit_asked",
            Message::Credit(vec![(TargetId(7), 3), (TargetId(1), 0)]),
        ),
        (
            "block_sync",
            Message::BlockSync(vec![
                (BlockId(1), BlockState::Written),
                (BlockId(1), BlockState::Durable),
                (BlockId(2), BlockState::Nack(mismatch())),
                (BlockId(u64::MAX), BlockState::Dropped),
            ]),
        ),
        (
            "stream_lost",
            Message::StreamLost {
                stream: StreamId(2),
                blocks: vec![BlockId(5), BlockId(8)],
            },
        ),
        ("rate", Message::Rate(Some(1_000_000))),
        ("rate_lifted", Message::Rate(None)),
        (
            "stall",
            Message::Stall {
                target: TargetId(7),
                milliseconds: 30_000,
            },
        ),
    ]
}

/// Messages that keep a session alive, measure it or end it.
fn end_messages() -> Vec<(&'static str, Message)> {
    vec![
        ("ping", Message::Ping(0x0123_4567_89ab_cdef)),
        ("pong", Message::Pong(0x0123_4567_89ab_cdef)),
        ("go_away", Message::GoAway(broken())),
        (
            "cancel",
            Message::Cancel {
                attempt: 3,
                purge: true,
            },
        ),
        ("profile", Message::Profile(times())),
        ("streams", Message::Streams(12)),
        (
            "verdict",
            Message::Verdict(Totals {
                files: 1,
                files_adopted: 2,
                files_skipped: 3,
                files_failed: 4,
                others: 5,
                bytes: (1 << 36) + 14,
            }),
        ),
        ("verdict_stored", Message::VerdictStored),
        ("bye", Message::Bye),
    ]
}

/// Returns times of a source that mostly waited for the network.
fn times() -> Times {
    let mut times = Times::default();
    times.add(Stage::List, Duration::from_micros(1500));
    times.add(Stage::Network, Duration::from_secs(90));
    times.add(Stage::Verdict, Duration::from_nanos(1));
    times
}

/// Returns a block and its payload. The block contains a range of an object that DONE did not
/// include, a hole of the same file, and a small file.
pub(crate) fn block() -> (BlockHead, Vec<u8>) {
    let first = b"bytes of one file";
    let second = b"and of another";
    let data = |file, offset, bytes: &[u8]| Segment {
        file: FileIndex(file),
        range: ByteRange {
            offset,
            length: bytes.len() as u64,
        },
        kind: SegmentKind::Data(Sums::of(bytes)),
    };
    let hole = Segment {
        file: FileIndex(1),
        range: ByteRange {
            offset: 1 << 30,
            length: 1 << 35,
        },
        kind: SegmentKind::Hole,
    };
    let segments = vec![data(1, 4 << 20, first), hole, data(3, 0, second)];
    let head = BlockHead {
        id: BlockId(77),
        target: TargetId(7),
        segments,
    };
    (head, [&first[..], second].concat())
}

/// Returns the answer to [`CHALLENGE`], with the ticket and the key of ACCEPT. The proof was
/// computed by another program, and `integration/wire/test_decoder.py` computes it again.
pub(crate) fn join() -> Join {
    Join {
        ticket: *b"ticket of 16 byt",
        stream: StreamId(258),
        proof: [
            0xa5, 0x62, 0x96, 0xb6, 0x8f, 0x4a, 0x2b, 0xcd, 0xed, 0x20, 0xf4, 0x1b, 0x7b, 0x25,
            0xa3, 0xd4, 0xd2, 0x8e, 0x5f, 0x3a, 0x58, 0x48, 0x6d, 0xa9, 0x80, 0x40, 0x01, 0x9a,
            0x89, 0x0a, 0x10, 0xe9,
        ],
    }
}

/// Challenge of the listener that [`join`] answers.
pub(crate) const CHALLENGE: Challenge = Challenge([0x5a; 32]);

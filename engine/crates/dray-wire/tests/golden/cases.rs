//! One example of everything that can be said, with every variant of every part in some of them.

use dray_core::options::{Durability, Links, Options, Order, Overwrite};
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout,
    Metadata, ModifiedTime, Name, RelPath, Status, StreamId, Sums, TargetId, TransferId,
};
use dray_wire::message::{
    Accept, BlockHead, BlockState, Connect, FileClosed, FileId, FileVerdict, Hello, Join, Limits,
    Message, Ready, Role, Segment, SegmentKind, Selection, Totals,
};

fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("a name")
}

fn error(kind: ErrorKind, file: Option<&[u8]>) -> Error {
    let error = Error::new(kind, End::Sink, "write the file")
        .cause("No space left on device (os error 28)")
        .remedy("free some space and run the same command again");
    match file {
        Some(path) => error.file(&RelPath::parse(path).expect("a path")),
        None => error,
    }
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
        paths: vec![b"/data/in\xff".to_vec()],
        selection: Selection::default(),
        options: Options {
            durability: Durability::Object,
            overwrite: Overwrite::Never,
            order: Order::Random { seed: u64::MAX },
            object_bytes: 1 << 20,
            verify: true,
            xattrs: false,
            checksum_attributes: true,
            rate: Some(125_000_000),
        },
        demanded: Some(Checksum::Adler32(0x091e_01de)),
        streams: 8,
        clear_data: true,
        addresses: vec!["dtn1.example.org:4437".into(), "[2001:db8::1]:4437".into()],
    }
}

fn connect_source() -> Connect {
    Connect {
        passive_role: Role::Source,
        paths: vec![b"/data/a".to_vec(), b"/data/b\\c".to_vec()],
        selection: Selection {
            recursive: true,
            include: vec!["*.root".into()],
            exclude: vec!["tmp".into(), "größe*".into()],
            range: Some(ByteRange {
                offset: 4096,
                length: 1 << 40,
            }),
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
    vec![
        entry(0, None, b"run", EntryKind::Directory),
        sparse,
        entry(2, Some(0), b"link", EntryKind::Symlink { target }),
        entry(0, None, b"run", EntryKind::DirectoryEnd),
        entry(
            3,
            None,
            &[b'x'; 255],
            EntryKind::File {
                size: 0,
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
    let verdicts = [
        FileVerdict::Want {
            object_bytes: 1 << 20,
            layout: Layout::Single(TargetId(7)),
        },
        FileVerdict::Want {
            object_bytes: 4 << 20,
            layout: striped,
        },
        FileVerdict::Adopted,
        FileVerdict::Skipped,
        FileVerdict::Failed(error(ErrorKind::IsADirectory, Some(b"run/a"))),
    ];
    let ids = verdicts.into_iter().enumerate();
    ids.map(|(index, verdict)| FileId {
        index: FileIndex(index as u64),
        verdict,
    })
    .collect()
}

/// Every control message, most once, some in more than one form.
pub(crate) fn messages() -> Vec<(&'static str, Message)> {
    let nack = error(ErrorKind::ChecksumMismatch, Some(b"run/caf\xc3\xa9\xfe")).at(End::Network);
    let ready = Ready {
        precision_nanoseconds: 1,
        object_bytes_max: 16 << 20,
        live_entries_max: 4096,
        pack_bytes_max: 256 << 10,
        holes: true,
        ordered_window: None,
    };
    let sums = Sums::of(b"123456789");
    let closed = |index, result| FileClosed {
        index: FileIndex(index),
        result,
        bytes_resumed: 5,
    };
    let ranges = vec![
        ByteRange {
            offset: 0,
            length: 1 << 20,
        },
        ByteRange {
            offset: 3 << 20,
            length: 17,
        },
        ByteRange {
            offset: u64::MAX - 1,
            length: 1,
        },
    ];
    vec![
        ("hello", Message::Hello(hello())),
        ("connect_sink", Message::Connect(connect_sink())),
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
        (
            "refuse",
            Message::Refuse(error(ErrorKind::Unauthorized, None).at(End::Here)),
        ),
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
            "list_failed",
            Message::ListFailed(vec![error(ErrorKind::NotFound, Some(b"gone"))]),
        ),
        ("list_end", Message::ListEnd { entries: 5 }),
        (
            "done",
            Message::Done {
                index: FileIndex(1),
                ranges,
            },
        ),
        ("file_ids", Message::FileIds(file_ids())),
        ("file_close", {
            let failed = error(ErrorKind::NoSpace, Some(b"run/a")).status(Status::Exhausted);
            Message::FileClose(vec![closed(1, Ok(sums)), closed(2, Err(failed))])
        }),
        (
            "file_abort",
            Message::FileAbort {
                index: FileIndex(9),
                error: error(ErrorKind::SourceChanged, Some(b"run/b")).at(End::Source),
            },
        ),
        (
            "credit",
            Message::Credit(vec![(TargetId(0), 16), (TargetId(7), u32::MAX)]),
        ),
        (
            "block_sync",
            Message::BlockSync(vec![
                (BlockId(1), BlockState::Written),
                (BlockId(1), BlockState::Durable),
                (BlockId(2), BlockState::Nack(nack)),
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
        ("ping", Message::Ping(0x0123_4567_89ab_cdef)),
        ("pong", Message::Pong(0x0123_4567_89ab_cdef)),
        ("go_away", Message::GoAway(error(ErrorKind::Busy, None))),
        (
            "cancel",
            Message::Cancel {
                attempt: 3,
                purge: true,
            },
        ),
        (
            "verdict",
            Message::Verdict(Totals {
                files: 1,
                files_adopted: 2,
                files_skipped: 3,
                files_failed: 4,
                others: 5,
                bytes: 1 << 36,
            }),
        ),
        ("verdict_stored", Message::VerdictStored),
        ("bye", Message::Bye),
    ]
}

/// A block of two small files and a hole, and its payload.
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
    let segments = vec![data(1, 1 << 20, first), hole, data(4, 0, second)];
    let head = BlockHead {
        id: BlockId(77),
        target: TargetId(7),
        segments,
    };
    (head, [&first[..], second].concat())
}

pub(crate) fn join() -> Join {
    let proof = std::array::from_fn(|index| index as u8);
    Join {
        ticket: *b"ticket of 16 byt",
        stream: StreamId(258),
        proof,
    }
}

//! The encoder rejects messages that are too large, and splits lists. The decoder limits its
//! memory.

use crate::common::{connect, decoded, file, framed, hello, try_encode};
use dray_core::{
    BlockId, ByteRange, Entry, EntryKind, Error, ErrorKind, Extent, FileIndex, Layout, Metadata,
    StreamId, Sums, TargetId,
};
use dray_wire::bounds;
use dray_wire::codec::{Decoder, PREFIX_BYTES, frame_type};
use dray_wire::message::{
    Accept, BlockState, Connect, FileClosed, FileId, FileVerdict, Hello, Limits, Message, Selection,
};

/// Checks that the encoder accepts the message `within` and rejects the message `over`. `field` is
/// the name of the tested field.
#[track_caller]
fn bounded(field: &str, within: &Message, over: &Message) {
    let limits = Limits {
        control_bytes_max: u32::MAX,
        ..Limits::default()
    };
    let (frame, _) = try_encode(within, &limits).expect("within the bound");
    assert_eq!(
        decoded(&frame, &limits),
        Ok(Some(within.clone())),
        "{field}"
    );
    let error = try_encode(over, &limits).expect_err(field);
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
}

#[test]
fn fields_of_the_setup_are_bounded() {
    let hello_with = |checksums: usize, token: usize| {
        Message::Hello(Hello {
            checksums: vec![1; checksums],
            token: vec![7; token],
            ..hello()
        })
    };
    bounded("checksums", &hello_with(32, 0), &hello_with(33, 0));
    bounded(
        "token",
        &hello_with(1, 16 << 10),
        &hello_with(1, (16 << 10) + 1),
    );

    let paths = |count: usize, length: usize| {
        Message::Connect(Connect {
            paths: vec![vec![b'x'; length]; count],
            ..connect()
        })
    };
    bounded("paths", &paths(4096, 1), &paths(4097, 1));
    bounded("path", &paths(1, 64 << 10), &paths(1, (64 << 10) + 1));

    let patterns = |count: usize, length: usize| {
        let include = vec!["x".repeat(length); count];
        let selection = Selection {
            exclude: include.clone(),
            include,
            ..Selection::default()
        };
        Message::Connect(Connect {
            selection,
            ..connect()
        })
    };
    bounded("patterns", &patterns(1024, 1), &patterns(1025, 1));
    bounded("pattern", &patterns(1, 4096), &patterns(1, 4097));

    let addresses = |count: usize, length: usize| {
        let addresses = vec!["x".repeat(length); count];
        Message::Accept(Accept {
            ticket: [1; 16],
            key: [2; 32],
            addresses,
            streams: 1,
        })
    };
    bounded("addresses", &addresses(64, 1), &addresses(65, 1));
    bounded("address", &addresses(1, 272), &addresses(1, 273));
}

#[test]
fn fields_of_entries_and_layouts_are_bounded() {
    let link = |length: usize| {
        let kind = EntryKind::Symlink {
            target: vec![b'x'; length],
        };
        Message::NewFiles(vec![Entry { kind, ..file(b"a") }])
    };
    bounded("symlink", &link(64 << 10), &link((64 << 10) + 1));

    let xattrs = |attributes: Vec<(usize, usize)>| {
        let list = attributes
            .into_iter()
            .map(|(name, value)| (vec![b'n'; name], vec![0; value]));
        let metadata = Metadata {
            xattrs: list.collect(),
            ..Metadata::default()
        };
        Message::NewFiles(vec![Entry {
            metadata,
            ..file(b"a")
        }])
    };
    bounded(
        "count",
        &xattrs(vec![(1, 0); 1024]),
        &xattrs(vec![(1, 0); 1025]),
    );
    bounded("name", &xattrs(vec![(255, 0)]), &xattrs(vec![(256, 0)]));
    bounded(
        "value",
        &xattrs(vec![(1, 64 << 10)]),
        &xattrs(vec![(1, (64 << 10) + 1)]),
    );
    let half = (1, (64 << 10) - 1);
    bounded(
        "total",
        &xattrs(vec![half, half]),
        &xattrs(vec![half, half, (1, 0)]),
    );

    let striped = |count: usize| {
        let layout = Layout::Striped {
            stripe_bytes: 1,
            targets: vec![TargetId(3); count],
        };
        let verdict = FileVerdict::Want {
            object_bytes: 1,
            layout,
        };
        Message::FileIds(vec![FileId {
            index: FileIndex(0),
            verdict,
        }])
    };
    bounded("targets", &striped(4096), &striped(4097));
}

#[test]
fn largest_unsplittable_parts_fit_in_the_smallest_frame() {
    let limits = Limits {
        control_bytes_max: bounds::CONTROL_BYTES_MIN,
        ..Limits::default()
    };
    let name = vec![b'x'; 255];
    let mut xattrs = vec![(vec![b'n'], Vec::new()); 1022];
    let rest = bounds::XATTRS_BYTES_MAX - 1022 - 2;
    xattrs.push((vec![b'a'], vec![0; bounds::XATTR_VALUE_BYTES_MAX]));
    xattrs.push((vec![b'b'], vec![0; rest - bounds::XATTR_VALUE_BYTES_MAX]));
    let entry = Entry {
        parent: Some(FileIndex(0)),
        kind: EntryKind::Symlink {
            target: vec![b'x'; bounds::SYMLINK_BYTES_MAX],
        },
        metadata: Metadata {
            xattrs,
            ..Metadata::default()
        },
        ..file(&name)
    };
    let (frame, frames) = try_encode(&Message::NewFiles(vec![entry]), &limits).expect("fits");
    assert_eq!((frame.len() - PREFIX_BYTES - 4, frames), (205_101, 1));

    let path = vec!["x".repeat(255); 256].join("/");
    let path = dray_core::RelPath::parse(path.as_bytes()).expect("the longest path");
    let long = "ü".repeat(100_000);
    let error = Error::new(ErrorKind::Io, dray_core::End::Sink, long.clone())
        .file(&path)
        .cause(long.clone())
        .remedy(long);
    let closed = FileClosed {
        index: FileIndex(1),
        result: Err(error.clone()),
        bytes_resumed: 0,
    };
    let (frame, _) = try_encode(&Message::FileClose(vec![closed]), &limits).expect("fits");
    let found = decoded(&frame, &limits).expect("good").expect("known");
    let Message::FileClose(found) = found else {
        panic!("another message")
    };
    let cut = found[0].result.as_ref().expect_err("an error");
    assert_eq!(
        cut.cause,
        "ü".repeat(bounds::ERROR_CAUSE_BYTES_MAX / 2),
        "cut, not refused"
    );
    assert_eq!(cut.file, Some(path));
}

#[test]
fn lists_are_split_at_the_frame_limit_without_loss() {
    let limits = Limits {
        control_bytes_max: 200,
        ..Limits::default()
    };
    let entries: Vec<Entry> = (0..40u8)
        .map(|i| Entry {
            index: FileIndex(i.into()),
            ..file(&[b'a' + i % 26])
        })
        .collect();
    let error = Error::new(ErrorKind::NoSpace, dray_core::End::Sink, "write");
    let blocks: Vec<BlockId> = (0..99).map(BlockId).collect();
    let ranges: Vec<ByteRange> = (0..50)
        .map(|i| ByteRange {
            offset: i * 10,
            length: 5,
        })
        .collect();
    let state = |id: &BlockId| match id.0 % 4 {
        0 => (*id, BlockState::Nack(error.clone())),
        1 => (*id, BlockState::Durable),
        2 => (*id, BlockState::Dropped),
        _ => (*id, BlockState::Written),
    };
    let failed = |id: &BlockId| FileId {
        index: FileIndex(id.0),
        verdict: FileVerdict::Failed(error.clone()),
    };
    let closed = |id: &BlockId| FileClosed {
        index: FileIndex(id.0),
        result: Ok(Sums::EMPTY),
        bytes_resumed: 3,
    };
    let messages = [
        Message::NewFiles(entries),
        Message::ListFailed(vec![error.clone(); 30]),
        Message::Done {
            index: FileIndex(9),
            ranges,
        },
        Message::FileIds(blocks.iter().map(failed).collect()),
        Message::Credit((0..99).map(|i| (TargetId(i), i)).collect()),
        Message::BlockSync(blocks.iter().map(state).collect()),
        Message::FileClose(blocks.iter().map(closed).collect()),
        Message::StreamLost {
            stream: StreamId(5),
            blocks,
        },
    ];
    for whole in messages {
        let (bytes, frames) = try_encode(&whole, &limits).expect("splits");
        assert!(frames > 2, "{whole:?}");
        let mut decoder = Decoder::new(limits);
        let mut input = &bytes[..];
        let mut joined: Option<Message> = None;
        let mut count = 0;
        while let Some(part) = decoder
            .next(&mut input)
            .expect("each part within the limit")
        {
            count += 1;
            joined = Some(match joined {
                None => part,
                Some(before) => join(before, part),
            });
        }
        assert_eq!((joined, count), (Some(whole), frames));
    }
    let empty = Message::NewFiles(Vec::new());
    assert_eq!(try_encode(&empty, &limits).expect("one empty frame").1, 1);
    let unsplittable = Message::Refuse(error.cause("x".repeat(300)));
    let refused = try_encode(&unsplittable, &limits).expect_err("one frame of over 200 bytes");
    assert!(refused.cause.contains("REFUSE"), "{refused}");
    let long = Message::NewFiles(vec![file(b"a"), file(&[b'x'; 255])]);
    assert!(
        try_encode(&long, &limits).is_err(),
        "one entry of over 200 bytes"
    );
}

fn join(before: Message, part: Message) -> Message {
    match (before, part) {
        (Message::NewFiles(a), Message::NewFiles(b)) => Message::NewFiles([a, b].concat()),
        (Message::ListFailed(a), Message::ListFailed(b)) => Message::ListFailed([a, b].concat()),
        (Message::FileIds(a), Message::FileIds(b)) => Message::FileIds([a, b].concat()),
        (Message::Credit(a), Message::Credit(b)) => Message::Credit([a, b].concat()),
        (Message::BlockSync(a), Message::BlockSync(b)) => Message::BlockSync([a, b].concat()),
        (Message::FileClose(a), Message::FileClose(b)) => Message::FileClose([a, b].concat()),
        (
            Message::Done { index, ranges: a },
            Message::Done {
                index: same,
                ranges: b,
            },
        ) => {
            assert_eq!(index, same);
            Message::Done {
                index,
                ranges: [a, b].concat(),
            }
        }
        (
            Message::StreamLost { stream, blocks: a },
            Message::StreamLost {
                stream: same,
                blocks: b,
            },
        ) => {
            assert_eq!(stream, same);
            Message::StreamLost {
                stream,
                blocks: [a, b].concat(),
            }
        }
        (before, part) => panic!("{before:?} was split into {part:?}"),
    }
}

#[test]
fn decoder_holds_at_most_one_frame() {
    let limits = Limits {
        control_bytes_max: 100_000,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(limits);
    let prefix = &framed(frame_type::NEW_FILES, 0, &vec![0; 100_000])[..PREFIX_BYTES];
    assert_eq!(decoder.next(&mut &prefix[..]), Ok(None));
    assert!(
        decoder.bytes_held() <= 4096,
        "an announced length costs nothing"
    );
    for _ in 0..99_999 {
        assert_eq!(decoder.next(&mut &[0u8][..]), Ok(None));
        assert!(decoder.bytes_held() <= 100_000 + PREFIX_BYTES);
    }
    // The next byte completes a frame. Its list is empty, and excess bytes follow the list.
    let error = decoder.next(&mut &[0u8][..]).expect_err("a bad frame");
    let mut bye = &framed(frame_type::BYE, 0, &[])[..];
    assert_eq!(
        decoder.next(&mut bye),
        Err(error),
        "the place in the stream is lost"
    );
    assert_eq!(decoder.bytes_held(), 0);

    let mut stranger = Decoder::default();
    let mut input = &framed(frame_type::HELLO, 0, &vec![0; 65_537])[..];
    let error = stranger
        .next(&mut input)
        .expect_err("too long for a first word");
    assert_eq!(error.kind, ErrorKind::LimitExceeded);

    let mut skipping = Decoder::new(limits);
    let stream = [framed(0x99, 0, &[5; 70]), framed(frame_type::BYE, 0, &[])].concat();
    for piece in [1, 7, stream.len()] {
        let mut found = Vec::new();
        for mut piece in stream.chunks(piece) {
            while let Some(message) = skipping.next(&mut piece).expect("good") {
                found.push(message);
            }
        }
        assert_eq!(
            skipping.bytes_held(),
            0,
            "what was held for a frame is given back"
        );
        assert_eq!(
            found,
            [Message::Bye],
            "frames that may be ignored are skipped"
        );
    }
}

#[test]
fn largest_layouts_fit_in_the_smallest_frame() {
    let limits = Limits {
        control_bytes_max: bounds::CONTROL_BYTES_MIN,
        ..Limits::default()
    };
    let want = |layout| {
        let verdict = FileVerdict::Want {
            object_bytes: 1,
            layout,
        };
        Message::FileIds(vec![FileId {
            index: FileIndex(0),
            verdict,
        }])
    };
    let targets = bounds::LAYOUT_TARGETS_MAX as u32;
    let stripes = 0..bounds::LAYOUT_STRIPES_MAX as u32;
    let table = Layout::of_stripes(1, stripes.map(|stripe| TargetId(stripe % targets)));
    let extents = 1..=bounds::LAYOUT_EXTENTS_MAX as u64;
    let composite = Layout::of_extents(extents.map(|end| Extent {
        end,
        stripe_bytes: 1,
        targets: vec![TargetId(2); bounds::LAYOUT_TARGETS_MAX / bounds::LAYOUT_EXTENTS_MAX],
    }));
    for (layout, bytes) in [(table, 147_494), (composite, 17_690)] {
        let message = want(layout);
        let (frame, frames) = try_encode(&message, &limits).expect("fits");
        assert_eq!((frame.len() - PREFIX_BYTES, frames), (bytes, 1));
        assert_eq!(decoded(&frame, &limits).expect("good"), Some(message));
    }
}

#[test]
fn older_peers_get_single_and_striped_layouts() {
    let ids = |layouts: Vec<Layout>| {
        let layouts = layouts.into_iter().enumerate();
        let ids = layouts.map(|(index, layout)| FileId {
            index: FileIndex(index as u64),
            verdict: FileVerdict::Want {
                object_bytes: 1,
                layout,
            },
        });
        Message::FileIds(ids.collect())
    };
    let single = Layout::Single(TargetId(4));
    let table = Layout::of_stripes(2, [1, 1, 9].map(TargetId));
    let striped = Layout::Striped {
        stripe_bytes: 2,
        targets: [1, 1, 9].map(TargetId).to_vec(),
    };
    assert_eq!(ids(vec![single.clone()]).with_simple_layouts(), None);
    let sent = ids(vec![single.clone(), table]).with_simple_layouts();
    assert_eq!(sent, Some(ids(vec![single, striped])));
}

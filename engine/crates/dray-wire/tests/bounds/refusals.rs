//! The decoder rejects invalid frames: impossible counts, invalid fields, wrong types and sizes.

use crate::common::{connect, decoded, file, framed, hello, try_encode};
use dray_core::options::ResumeMode;
use dray_core::profile::{Stage, Times};
use dray_core::{
    ByteRange, Error, ErrorKind, Extent, FileIndex, Layout, StripeChoice, TargetId, TraceContext,
};
use dray_wire::codec::{Decoder, FLAG_EXTENDED, PREFIX_BYTES, Prefix, encode, frame_type};
use dray_wire::message::{Connect, FileId, FileVerdict, Limits, Message};
use std::time::Duration;

#[track_caller]
fn refused(frame: &[u8], kind: ErrorKind, field: &str) {
    let error = decoded(frame, &Limits::default()).expect_err("over the bound");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.cause.contains(field), "{error} does not name {field}");
    assert!(!error.remedy.is_empty());
}

#[test]
fn excessive_counts_fail_before_any_allocation() {
    let count = u32::MAX.to_le_bytes();
    for number in [
        frame_type::NEW_FILES,
        frame_type::LIST_FAILED,
        frame_type::FILE_IDS,
        frame_type::CREDIT,
        frame_type::BLOCK_SYNC,
        frame_type::FILE_CLOSE,
    ] {
        refused(
            &framed(number, 0, &count),
            ErrorKind::Protocol,
            "a list of 4294967295 items",
        );
    }
    for (number, head) in [(frame_type::DONE, 8), (frame_type::STREAM_LOST, 4)] {
        let body = [&vec![0; head][..], &count].concat();
        refused(
            &framed(number, 0, &body),
            ErrorKind::Protocol,
            "the frame announces a list of",
        );
    }
    // The count exceeds the number of items that fit in the remaining bytes by one.
    let body = [&3u32.to_le_bytes()[..], &[0; 16]].concat();
    refused(
        &framed(frame_type::CREDIT, 0, &body),
        ErrorKind::Protocol,
        "has bytes for at most 2",
    );
}

#[test]
fn unknown_stages_are_ignored_and_known_stages_must_be_ordered_and_unique() {
    let profile = |times: &[(u8, u64)]| {
        let count = u32::try_from(times.len()).expect("few");
        let mut body = count.to_le_bytes().to_vec();
        for (stage, time) in times {
            body.push(*stage);
            body.extend_from_slice(&time.to_le_bytes());
        }
        framed(frame_type::PROFILE, 0, &body)
    };
    let mut read = Times::default();
    read.add(Stage::Read, Duration::from_nanos(7));
    let frame = profile(&[(4, 7), (200, 9), (255, u64::MAX)]);
    assert_eq!(
        decoded(&frame, &Limits::default()),
        Ok(Some(Message::Profile(read)))
    );
    for wrong in [[(0, 1), (4, 7)], [(4, 7), (4, 7)], [(5, 1), (4, 7)]] {
        refused(&profile(&wrong), ErrorKind::Protocol, "time.stage");
    }
    let many = [(1, 1)].repeat(256);
    refused(&profile(&many), ErrorKind::LimitExceeded, "times");
}

#[test]
fn streams_message_needs_at_least_one_stream() {
    let streams = |count: u32| framed(frame_type::STREAMS, 0, &count.to_le_bytes());
    assert_eq!(
        decoded(&streams(u32::MAX), &Limits::default()),
        Ok(Some(Message::Streams(u32::MAX)))
    );
    refused(&streams(0), ErrorKind::Protocol, "streams");
}

/// Returns an encoded list of `count` items that are all equal to `item`.
fn repeated(count: u32, item: &[u8]) -> Vec<u8> {
    [&count.to_le_bytes()[..], &item.repeat(count as usize)].concat()
}

/// Encoding of an empty string or list.
const EMPTY: [u8; 4] = [0; 4];

fn hello_of(checksums: u32, software: u32, token: u32) -> Vec<u8> {
    let fields = [
        repeated(checksums, b"\x01"),
        repeated(software, b"x"),
        repeated(token, b"x"),
    ];
    let body = [&[1, 0, 1, 0][..], &[0; 36], &fields.concat()].concat();
    framed(frame_type::HELLO, 0, &body)
}

fn connect_of(paths: u32, include: u32, exclude: u32) -> Vec<u8> {
    let mut body = b"\x01\0\0\0t\x01\0\0\0\x01".to_vec();
    body.extend(repeated(paths, &EMPTY));
    body.push(0);
    body.extend(repeated(include, &EMPTY));
    body.extend(repeated(exclude, &EMPTY));
    // Fields: no range, no size, no name; links; options with object_bytes 1; no demanded checksum;
    // streams; clear; no addresses.
    body.extend([
        0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
    ]);
    framed(frame_type::CONNECT, 0, &body)
}

fn accept_of(addresses: &[u8]) -> Vec<u8> {
    framed(
        frame_type::ACCEPT,
        0,
        &[&[7; 48][..], addresses, &[1, 0]].concat(),
    )
}

fn striped_over(targets: u32) -> Vec<u8> {
    let want = [&[1, 0, 0, 0][..], &[0; 8], &[1, 1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let layout = [&[2, 1, 0, 0, 0, 0, 0, 0, 0][..], &repeated(targets, &EMPTY)].concat();
    framed(frame_type::FILE_IDS, 0, &[want, layout].concat())
}

fn entry_of(kind: &[u8], xattrs: &[u8]) -> Vec<u8> {
    let head = [&[1, 0, 0, 0][..], &[0; 9], &[1, 0, 0, 0, b'a']].concat();
    framed(
        frame_type::NEW_FILES,
        0,
        &[&head, kind, &[0; 16], xattrs].concat(),
    )
}

fn link_of(length: u32) -> Vec<u8> {
    entry_of(&[&[4][..], &repeated(length, b"x")].concat(), &EMPTY)
}

fn xattr_of(name: u32, value: u32) -> Vec<u8> {
    [repeated(name, b"n"), repeated(value, b"v")].concat()
}

fn entry_with(count: u32, attribute: &[u8]) -> Vec<u8> {
    entry_of(&[2], &repeated(count, attribute))
}

fn error_of(operation: u32, cause: u32, remedy: u32) -> Vec<u8> {
    let texts = [
        repeated(operation, b"x"),
        repeated(cause, b"x"),
        repeated(remedy, b"x"),
    ];
    framed(
        frame_type::REFUSE,
        0,
        &[&[0; 5][..], &texts.concat()].concat(),
    )
}

fn error_about(length: u32) -> Vec<u8> {
    let path = [&[0, 0, 0, 0, 1][..], &repeated(length, b"x"), &[0; 12]].concat();
    framed(frame_type::REFUSE, 0, &path)
}

/// The decoder must not rely on the checks of the sender, so this test builds frames without these
/// checks.
#[test]
fn decoder_enforces_bounds_on_unchecked_frames() {
    for (within, over, field) in [
        (hello_of(32, 0, 0), hello_of(33, 0, 0), "checksums"),
        (hello_of(0, 256, 0), hello_of(0, 257, 0), "software"),
        (hello_of(0, 0, 16_384), hello_of(0, 0, 16_385), "token"),
        (connect_of(4096, 0, 0), connect_of(4097, 0, 0), "paths"),
        (
            connect_of(0, 1024, 0),
            connect_of(0, 1025, 0),
            "selection.include",
        ),
        (
            connect_of(0, 0, 1024),
            connect_of(0, 0, 1025),
            "selection.exclude",
        ),
        (
            accept_of(&repeated(64, &EMPTY)),
            accept_of(&repeated(65, &EMPTY)),
            "addresses",
        ),
        (
            accept_of(&repeated(1, &repeated(272, b"x"))),
            accept_of(&repeated(1, &repeated(273, b"x"))),
            "address",
        ),
        (striped_over(4096), striped_over(4097), "layout.targets"),
        (link_of(65_536), link_of(65_537), "entry.symlink"),
        (
            entry_with(1024, &xattr_of(1, 0)),
            entry_with(1025, &xattr_of(1, 0)),
            "entry.xattrs",
        ),
        (
            entry_with(1, &xattr_of(255, 0)),
            entry_with(1, &xattr_of(256, 0)),
            "entry.xattr.name",
        ),
        (
            entry_with(1, &xattr_of(1, 65_536)),
            entry_with(1, &xattr_of(1, 65_537)),
            "entry.xattr.value",
        ),
        (
            entry_with(2, &xattr_of(1, 65_535)),
            entry_with(2, &xattr_of(1, 65_536)),
            "entry.xattrs",
        ),
        (error_of(256, 0, 0), error_of(257, 0, 0), "error.operation"),
        (error_of(0, 4096, 0), error_of(0, 4097, 0), "error.cause"),
        (error_of(0, 0, 1024), error_of(0, 0, 1025), "error.remedy"),
        (error_about(255), error_about(65_537), "error.file"),
    ] {
        let found = decoded(&within, &Limits::default());
        assert!(found.is_ok(), "just within {field}: {found:?}");
        refused(&over, ErrorKind::LimitExceeded, field);
    }
    refused(
        &entry_with(1, &xattr_of(0, 1)),
        ErrorKind::Protocol,
        "entry.xattr.name",
    );
}

#[test]
fn overlong_frame_is_refused_from_its_prefix() {
    let limits = Limits {
        control_bytes_max: 100,
        ..Limits::default()
    };
    let frame = framed(frame_type::NEW_FILES, 0, &[0; 101]);
    let (prefix, _) = frame.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
    assert!(Prefix::parse(prefix, 101).is_ok());
    let error = Prefix::parse(prefix, 100).expect_err("a byte more");
    assert_eq!(error.kind, ErrorKind::LimitExceeded);
    for pieces in [1, PREFIX_BYTES] {
        let mut decoder = Decoder::new(limits);
        let found: Vec<_> = prefix
            .chunks(pieces)
            .map(|mut piece| decoder.next(&mut piece))
            .collect();
        let last = found.last().expect("some");
        assert!(
            last.as_ref()
                .is_err_and(|error| error.kind == ErrorKind::LimitExceeded)
        );
    }
}

/// Returns the body of the frame of a valid message.
fn body_of(message: &Message) -> Vec<u8> {
    let (frame, _) = try_encode(message, &Limits::default()).expect("good");
    frame[PREFIX_BYTES..].to_vec()
}

/// Returns a frame in whose body the bytes from offset `at` are replaced by `bytes`.
fn changed(number: u8, body: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body[at..at + bytes.len()].copy_from_slice(bytes);
    framed(number, 0, &body)
}

#[test]
fn invalid_entry_fields_are_refused_by_name() {
    // Fields and their lengths in bytes: count 4, index 8, no parent 1, name 4 + 1, kind 1, size 8,
    // sparse 1, mode 4, seconds 8.
    let entry = body_of(&Message::NewFiles(vec![file(b"a")]));
    let new_files = frame_type::NEW_FILES;
    refused(
        &changed(new_files, &entry, 12, &[2]),
        ErrorKind::Protocol,
        "entry.parent",
    );
    refused(
        &changed(new_files, &entry, 17, b"/"),
        ErrorKind::Protocol,
        "entry.name",
    );
    refused(
        &changed(new_files, &entry, 17, b"."),
        ErrorKind::Protocol,
        "entry.name",
    );
    refused(
        &changed(new_files, &entry, 18, &[5]),
        ErrorKind::Protocol,
        "entry.kind",
    );
    refused(
        &changed(new_files, &entry, 13, &[0, 1]),
        ErrorKind::LimitExceeded,
        "entry.name",
    );
    let mode = 0o10000u32.to_le_bytes();
    refused(
        &changed(new_files, &entry, 28, &mode),
        ErrorKind::Protocol,
        "entry.mode",
    );
    let second = 1_000_000_000u32.to_le_bytes();
    refused(
        &changed(new_files, &entry, 40, &second),
        ErrorKind::Protocol,
        "nanoseconds",
    );
}

#[test]
fn invalid_ranges_are_refused() {
    let done = body_of(&Message::Done {
        index: FileIndex(0),
        ranges: vec![
            ByteRange {
                offset: 5,
                length: 5,
            },
            ByteRange {
                offset: 10,
                length: 1,
            },
        ],
    });
    let number = frame_type::DONE;
    refused(
        &changed(number, &done, 28, &9u64.to_le_bytes()),
        ErrorKind::Protocol,
        "range",
    );
    refused(
        &changed(number, &done, 20, &0u64.to_le_bytes()),
        ErrorKind::Protocol,
        "range",
    );
    refused(
        &changed(number, &done, 20, &[0xff; 8]),
        ErrorKind::Protocol,
        "does not fit into 64 bits",
    );
}

#[test]
fn invalid_file_id_fields_are_refused_by_name() {
    let want = body_of(&Message::FileIds(vec![FileId {
        index: FileIndex(0),
        verdict: FileVerdict::Want {
            object_bytes: 1,
            layout: Layout::Striped {
                stripe_bytes: 1,
                targets: vec![TargetId(1)],
            },
        },
    }]));
    let number = frame_type::FILE_IDS;
    refused(
        &changed(number, &want, 12, &[9]),
        ErrorKind::Protocol,
        "file.verdict",
    );
    refused(
        &changed(number, &want, 13, &[0]),
        ErrorKind::Protocol,
        "file.object_bytes",
    );
    refused(
        &changed(number, &want, 22, &[0]),
        ErrorKind::Protocol,
        "layout.stripe_bytes",
    );
    refused(
        &changed(number, &want, 30, &[0]),
        ErrorKind::Protocol,
        "layout.targets",
    );
}

#[test]
fn invalid_layout_fields_are_refused_by_name() {
    let want = |layout| {
        let verdict = FileVerdict::Want {
            object_bytes: 1,
            layout,
        };
        body_of(&Message::FileIds(vec![FileId {
            index: FileIndex(0),
            verdict,
        }]))
    };
    let changes = |body: &[u8], changes: &[(usize, u8, &str)]| {
        for (at, value, field) in changes {
            let frame = changed(frame_type::FILE_IDS, body, *at, &[*value]);
            refused(&frame, ErrorKind::Protocol, field);
        }
    };
    // Offsets in the body: kind 21, stripe size 22 to 29, two targets 30 to 41, three stripes 42 to
    // 51.
    let table = want(Layout::of_stripes(1, [1, 2, 1].map(TargetId)));
    changes(&table, &[(21, 5, "layout"), (22, 0, "layout.stripe_bytes")]);
    changes(&table, &[(48, 2, "layout.stripes")]);
    // Offsets in the body: kind 21, number of extents 22 to 25. The first extent has its end at 26,
    // its stripe size at 34 and its targets at 42 to 49. The second extent has its end at 50.
    let extent = |end| Extent {
        end,
        stripe_bytes: 1,
        targets: vec![TargetId(3)],
    };
    let composite = want(Layout::of_extents([extent(5), extent(9)]));
    changes(&composite, &[(26, 0, "layout.end"), (26, 9, "layout.end")]);
    changes(
        &composite,
        &[(34, 0, "layout.stripe_bytes"), (50, 5, "layout.end")],
    );
    changes(&composite, &[(42, 0, "layout.targets")]);

    let steps = body_of(&Message::Stripes(vec![(FileIndex(7), 1)]));
    let frame = changed(frame_type::STRIPES, &steps, 12, &[0]);
    refused(&frame, ErrorKind::Protocol, "file.step_bytes");
}

#[test]
fn invalid_connect_fields_are_refused_by_name() {
    let id = body_of(&Message::Connect(connect()));
    refused(
        &changed(frame_type::CONNECT, &id, 4, b"/"),
        ErrorKind::Protocol,
        "transfer",
    );
    refused(
        &changed(frame_type::CONNECT, &id, 9, &[2]),
        ErrorKind::Protocol,
        "passive_role",
    );
}

#[test]
fn invalid_hello_fields_are_refused_by_name() {
    let versions = body_of(&Message::Hello(hello()));
    refused(
        &changed(frame_type::HELLO, &versions, 0, &[2]),
        ErrorKind::Protocol,
        "versions",
    );
}

#[test]
fn invalid_error_fields_are_refused_by_name() {
    let error = Error::new(ErrorKind::Io, dray_core::End::Sink, "sync");
    let refuse = body_of(&Message::Refuse(error));
    refused(
        &changed(frame_type::REFUSE, &refuse, 2, &[3]),
        ErrorKind::Protocol,
        "error.status",
    );
    refused(
        &changed(frame_type::REFUSE, &refuse, 3, &[4]),
        ErrorKind::Protocol,
        "error.end",
    );
    refused(
        &changed(frame_type::REFUSE, &refuse, 9, &[0xff]),
        ErrorKind::Protocol,
        "UTF-8",
    );
    let newer = changed(frame_type::REFUSE, &refuse, 0, &[0xff, 0xff]);
    let Ok(Some(Message::Refuse(error))) = decoded(&newer, &Limits::default()) else {
        panic!("a newer peer's error kind is still an error")
    };
    assert_eq!(error.kind, ErrorKind::Other);
}

#[test]
fn connect_extension_is_read_and_unknown_bytes_after_it_ignored() {
    let mut bytes = Vec::new();
    let asked = Message::Connect(connect());
    encode(&asked, &Limits::default(), &mut bytes).expect("short");
    let body = &bytes[PREFIX_BYTES..];
    let with = |flags, more: &[u8]| framed(frame_type::CONNECT, flags, &[body, more].concat());
    let read = |flags, more: &[u8]| decoded(&with(flags, more), &Limits::default());
    let mut trusts = connect();
    trusts.options.resume = ResumeMode::Trust;
    let striped = |mut connect: Connect| {
        connect.options.stripes = "all".parse().ok();
        connect
    };
    let traced = |mut connect: Connect, text: &str| {
        connect.trace = TraceContext::parse(text);
        assert!(connect.trace.is_some());
        connect
    };
    let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = |text: &str| {
        [
            b"\0\0\0\0\0",
            &[text.len() as u8][..],
            b"\0\0\0",
            text.as_bytes(),
        ]
        .concat()
    };
    let mut striped_as_source = connect();
    striped_as_source.options.stripes = Some(StripeChoice::Source);
    for (more, wanted) in [
        (&[0][..], connect()),
        (&[1], trusts.clone()),
        (b"\x01\0\0\0\0\0\0\0\0of a later version", trusts.clone()),
        (b"\x01\x05\0\0\0all:0", striped(trusts.clone())),
        (
            b"\x01\x05\0\0\0all:0\0\0\0\0of a later version",
            striped(trusts),
        ),
        (&trace(context), traced(connect(), context)),
        // An invalid context does not make the session fail.
        (&trace("00-hostile"), connect()),
        (b"\0\0\0\0\0\x02\0\0\0\xff\xff", connect()),
        (b"\0\x06\0\0\0source", striped_as_source),
    ] {
        let wanted = Ok(Some(Message::Connect(wanted)));
        assert_eq!(read(FLAG_EXTENDED, more), wanted, "{more:?}");
    }
    refused(&with(FLAG_EXTENDED, &[]), ErrorKind::Protocol, "resume");
    refused(&with(FLAG_EXTENDED, &[2]), ErrorKind::Protocol, "resume");
    refused(&with(0, &[1]), ErrorKind::Protocol, "after its last field");
    let wrong = b"\0\x05\0\0\x000:1Ki";
    refused(&with(FLAG_EXTENDED, wrong), ErrorKind::Protocol, "stripes");
    let long = trace(&"1".repeat(129));
    refused(
        &with(FLAG_EXTENDED, &long),
        ErrorKind::LimitExceeded,
        "trace",
    );
    let long = [&[0, 65, 0, 0, 0][..], &[b'1'; 65]].concat();
    refused(
        &with(FLAG_EXTENDED, &long),
        ErrorKind::LimitExceeded,
        "stripes",
    );
}

#[test]
fn frame_limits_types_and_flags() {
    let limits = Limits {
        control_bytes_max: 8,
        ..Limits::default()
    };
    let ping = framed(frame_type::PING, 0, &[1; 8]);
    assert_eq!(
        decoded(&ping, &limits),
        Ok(Some(Message::Ping(0x0101_0101_0101_0101)))
    );
    let long = framed(frame_type::PING, FLAG_EXTENDED, &[1; 9]);
    let error = decoded(&long, &limits).expect_err("nine bytes");
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");

    let most = Limits::default();
    assert_eq!(
        decoded(&long, &most),
        Ok(Some(Message::Ping(0x0101_0101_0101_0101)))
    );
    refused(
        &framed(frame_type::PING, 0, &[1; 9]),
        ErrorKind::Protocol,
        "after its last field",
    );
    refused(
        &framed(frame_type::PING, 2, &[1; 8]),
        ErrorKind::Protocol,
        "flags",
    );
    refused(&framed(0x7f, 0, &[]), ErrorKind::Protocol, "0x7f");
    refused(
        &framed(frame_type::BLOCK, 0, &[]),
        ErrorKind::Protocol,
        "control connection",
    );
    assert_eq!(
        decoded(&framed(0x9f, 0xff, &[1, 2]), &most),
        Ok(None),
        "may be ignored"
    );
    let mut wrong = framed(0x9f, 0, &[1, 2]);
    wrong[13] ^= 1;
    refused(&wrong, ErrorKind::Protocol, "crc32c");
    let mut reserved = framed(frame_type::BYE, 0, &[]);
    reserved[6] = 1;
    refused(&reserved, ErrorKind::Protocol, "reserved");

    let (mut newer, _) = try_encode(&Message::Hello(hello()), &most).expect("good");
    newer = framed(
        frame_type::HELLO,
        0,
        &[&newer[PREFIX_BYTES..], &[9; 5]].concat(),
    );
    assert_eq!(
        decoded(&newer, &most),
        Ok(Some(Message::Hello(hello()))),
        "a newer HELLO"
    );
}

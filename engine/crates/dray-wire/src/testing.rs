//! Generators of random messages within the limits of the protocol, for property tests in this
//! crate and in other crates.

use crate::message::{
    Accept, BlockHead, BlockState, Connect, FileClosed, FileId, FileVerdict, Hello, Join, Limits,
    Message, Ready, Role, Segment, SegmentKind, Selection, Totals,
};
use dray_core::options::{Durability, Links, Options, Order, Overwrite, ResumeMode};
use dray_core::profile::{Stage, Times};
use dray_core::stripes::STRIPES_MAX;
use dray_core::{
    BlockId, ByteRange, Checksum, End, Entry, EntryKind, Error, ErrorKind, Extent, FileIndex,
    Layout, Metadata, ModifiedTime, Name, RelPath, Status, StreamId, StripeChoice, Sums, TargetId,
    TraceContext, TransferId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::time::Duration;

/// Generates at most `most` random bytes.
fn some_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

/// Generates short text.
fn text() -> impl Strategy<Value = String> {
    "\\PC{0,24}"
}

/// Generates a name. Some of the names are not valid UTF-8.
pub fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        vec(any::<u8>(), 1..=12),
        vec(any::<u8>(), 255..=255),
        "[a-z.]{1,9}".prop_map(String::into_bytes)
    ]
    .prop_filter_map("not a name", |bytes| Name::new(&bytes).ok())
}

/// Generates a path of at most three names, or the root.
pub fn path() -> impl Strategy<Value = RelPath> {
    vec(name(), 0..4).prop_filter_map("not a path", |names| {
        names
            .iter()
            .try_fold(RelPath::root(), |path, name| path.join(name).ok())
    })
}

/// Generates a range. Some of the ranges end at the end of the 64-bit space.
pub fn range() -> impl Strategy<Value = ByteRange> {
    (any::<u64>(), any::<u64>()).prop_map(|(offset, length)| ByteRange {
        offset,
        length: length.min(u64::MAX - offset),
    })
}

/// Generates ranges that are valid in a DONE message: in ascending order, without overlap, not
/// empty.
fn ascending_ranges() -> impl Strategy<Value = Vec<ByteRange>> {
    vec((0..1u64 << 40, 1..1u64 << 40), 0..20).prop_map(|steps| {
        let mut end = 0;
        let ranges = steps.into_iter().map(|(gap, length)| {
            let range = ByteRange {
                offset: end + gap,
                length,
            };
            end = range.end();
            range
        });
        ranges.collect()
    })
}

/// Generates random checksums.
pub fn sums() -> impl Strategy<Value = Sums> {
    (any::<u32>(), any::<u32>()).prop_map(|(crc32c, adler32)| Sums { crc32c, adler32 })
}

/// Generates an error of any known kind.
pub fn error() -> impl Strategy<Value = Error> {
    let kind = proptest::sample::select(ErrorKind::ALL);
    let status = prop_oneof![
        Just(Status::Permanent),
        Just(Status::Temporary),
        Just(Status::Exhausted)
    ];
    let end = prop_oneof![
        Just(End::Source),
        Just(End::Sink),
        Just(End::Network),
        Just(End::Here)
    ];
    (
        kind,
        status,
        end,
        option::of(path()),
        text(),
        text(),
        text(),
    )
        .prop_map(
            |(kind, status, end, file, operation, cause, remedy)| Error {
                kind,
                status,
                end,
                operation,
                file,
                cause,
                remedy,
            },
        )
}

/// Generates an entry of any kind.
pub fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        4 => (any::<u64>(), any::<bool>())
            .prop_map(|(size, sparse)| EntryKind::File { size, sparse }),
        1 => Just(EntryKind::Directory),
        1 => Just(EntryKind::DirectoryEnd),
        1 => some_bytes(300).prop_map(|target| EntryKind::Symlink { target }),
    ];
    let modified =
        (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanoseconds)| ModifiedTime {
            seconds,
            nanoseconds,
        });
    let xattrs = vec((vec(any::<u8>(), 1..20), some_bytes(40)), 0..3);
    let metadata =
        (0..=0o7777u32, modified, xattrs).prop_map(|(mode, modified, xattrs)| Metadata {
            mode,
            modified,
            xattrs,
        });
    (
        any::<u64>(),
        option::of(any::<u64>()),
        name(),
        kind,
        metadata,
    )
        .prop_map(|(index, parent, name, kind, metadata)| Entry {
            index: FileIndex(index),
            parent: parent.map(FileIndex),
            name,
            kind,
            metadata,
        })
}

/// Generates a layout of at most nine targets in each list.
pub fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        any::<u32>().prop_map(|target| Layout::Single(TargetId(target))),
        (1..=u64::MAX, vec(any::<u32>().prop_map(TargetId), 1..10)).prop_map(
            |(stripe_bytes, targets)| Layout::Striped {
                stripe_bytes,
                targets
            }
        ),
        (1..=u64::MAX, vec(any::<u32>().prop_map(TargetId), 2..10))
            .prop_map(|(stripe_bytes, stripes)| Layout::of_stripes(stripe_bytes, stripes)),
        vec(extent(), 2..6).prop_map(|mut extents| {
            extents.sort_by_key(|extent| extent.end);
            Layout::of_extents(extents)
        }),
    ]
}

fn extent() -> impl Strategy<Value = Extent> {
    let targets = vec(any::<u32>().prop_map(TargetId), 1..10);
    (1..=u64::MAX, 1..=u64::MAX, targets).prop_map(|(end, stripe_bytes, targets)| Extent {
        end,
        stripe_bytes,
        targets,
    })
}

/// Generates limits that an end may declare.
pub fn limits() -> impl Strategy<Value = Limits> {
    (
        crate::bounds::CONTROL_BYTES_MIN..=u32::MAX,
        4096..=u64::MAX,
        1..=u32::MAX,
        1..=u32::MAX,
    )
        .prop_map(
            |(control_bytes_max, object_bytes_max, segments_max, live_entries_max)| Limits {
                control_bytes_max,
                object_bytes_max,
                segments_max,
                live_entries_max,
            },
        )
}

/// Generates a HELLO with random versions, feature bits and checksum algorithms.
pub fn hello() -> impl Strategy<Value = Hello> {
    (
        (any::<u16>(), any::<u16>()),
        any::<u64>(),
        any::<u64>(),
        limits(),
        some_bytes(crate::bounds::CHECKSUMS_MAX),
        text(),
        some_bytes(100),
    )
        .prop_map(
            |(versions, mandatory, optional, limits, checksums, software, token)| Hello {
                versions: (versions.0.min(versions.1), versions.0.max(versions.1)),
                mandatory,
                optional,
                limits,
                checksums,
                software,
                token,
            },
        )
}

fn options() -> impl Strategy<Value = Options> {
    let durability = prop_oneof![
        Just(Durability::None),
        Just(Durability::File),
        Just(Durability::Object)
    ];
    let overwrite = prop_oneof![
        Just(Overwrite::Never),
        Just(Overwrite::IfDifferent),
        Just(Overwrite::Always)
    ];
    let order = prop_oneof![
        Just(Order::Layout),
        Just(Order::File),
        any::<u64>().prop_map(|seed| Order::Random { seed })
    ];
    (
        durability,
        overwrite,
        order,
        1..=u64::MAX,
        any::<[bool; 4]>(),
        option::of(any::<u64>()),
        option::of(stripes()),
    )
        .prop_map(
            |(durability, overwrite, order, object_bytes, flags, rate, stripes)| Options {
                durability,
                overwrite,
                order,
                object_bytes,
                verify: flags[0],
                resume: match flags[3] {
                    false => ResumeMode::Verify,
                    true => ResumeMode::Trust,
                },
                xattrs: flags[1],
                checksum_attributes: flags[2],
                rate,
                stripes,
            },
        )
}

fn stripes() -> impl Strategy<Value = StripeChoice> {
    let count = prop_oneof![1..=STRIPES_MAX, Just(u16::MAX)];
    let fixed = (count, 0_u32..=0xFFFF).prop_map(|(count, units)| StripeChoice::Fixed {
        count,
        stripe_bytes: units << 16,
    });
    prop_oneof![Just(StripeChoice::Source), fixed]
}

fn selection() -> impl Strategy<Value = Selection> {
    let links = prop_oneof![Just(Links::Keep), Just(Links::Follow), Just(Links::Refuse)];
    (
        any::<bool>(),
        vec(text(), 0..3),
        vec(text(), 0..3),
        option::of(range()),
        (option::of(any::<u64>()), option::of(name())),
        links,
    )
        .prop_map(
            |(recursive, include, exclude, range, (size, rename), links)| Selection {
                recursive,
                include,
                exclude,
                range,
                size,
                rename,
                links,
            },
        )
}

fn connect() -> impl Strategy<Value = Connect> {
    let transfer =
        "[A-Za-z0-9._:-]{1,64}".prop_filter_map("not an id", |text| TransferId::new(text).ok());
    let demanded = option::of(prop_oneof![
        any::<u32>().prop_map(Checksum::Crc32c),
        any::<u32>().prop_map(Checksum::Adler32)
    ]);
    (
        (
            transfer,
            any::<u32>(),
            prop_oneof![Just(Role::Source), Just(Role::Sink)],
        ),
        (vec(some_bytes(40), 0..4), selection(), options(), demanded),
        (
            any::<u16>(),
            any::<bool>(),
            vec(text(), 0..3),
            option::of(trace()),
        ),
    )
        .prop_map(|(who, what, how)| Connect {
            transfer: who.0,
            attempt: who.1,
            passive_role: who.2,
            paths: what.0,
            selection: what.1,
            options: what.2,
            demanded: what.3,
            streams: how.0,
            clear_data: how.1,
            addresses: how.2,
            trace: how.3,
        })
}

fn trace() -> impl Strategy<Value = TraceContext> {
    let ids = (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<bool>());
    ids.prop_filter_map("not an id", |(trace, span, is_sampled)| {
        let context = TraceContext {
            trace,
            span,
            is_sampled,
        };
        (trace != [0; 16] && span != [0; 8]).then_some(context)
    })
}

fn accept() -> impl Strategy<Value = Accept> {
    (
        any::<[u8; 16]>(),
        any::<[u8; 32]>(),
        vec(text(), 0..3),
        any::<u16>(),
    )
        .prop_map(|(ticket, key, addresses, streams)| Accept {
            ticket,
            key,
            addresses,
            streams,
        })
}

fn ready() -> impl Strategy<Value = Ready> {
    (
        1..=u32::MAX,
        1..=u64::MAX,
        1..=u32::MAX,
        any::<u64>(),
        any::<bool>(),
        option::of(1..=u32::MAX),
    )
        .prop_map(
            |(precision, object, live, pack, holes, ordered_window)| Ready {
                precision_nanoseconds: precision,
                object_bytes_max: object,
                live_entries_max: live,
                pack_bytes_max: pack,
                holes,
                ordered_window,
            },
        )
}

fn file_id() -> impl Strategy<Value = FileId> {
    let verdict = prop_oneof![
        (1..=u64::MAX, layout()).prop_map(|(object_bytes, layout)| FileVerdict::Want {
            object_bytes,
            layout
        }),
        Just(FileVerdict::Adopted),
        Just(FileVerdict::Skipped),
        error().prop_map(FileVerdict::Failed),
    ];
    (any::<u64>(), verdict).prop_map(|(index, verdict)| FileId {
        index: FileIndex(index),
        verdict,
    })
}

fn block_state() -> impl Strategy<Value = BlockState> {
    prop_oneof![
        Just(BlockState::Written),
        Just(BlockState::Durable),
        error().prop_map(BlockState::Nack),
        Just(BlockState::Dropped),
    ]
}

fn file_closed() -> impl Strategy<Value = FileClosed> {
    let result = prop_oneof![sums().prop_map(Ok), error().prop_map(Err)];
    (any::<u64>(), result, any::<u64>()).prop_map(|(index, result, bytes_resumed)| FileClosed {
        index: FileIndex(index),
        result,
        bytes_resumed,
    })
}

fn totals() -> impl Strategy<Value = Totals> {
    any::<[u64; 6]>().prop_map(
        |[
            files,
            files_adopted,
            files_skipped,
            files_failed,
            others,
            bytes,
        ]| {
            Totals {
                files,
                files_adopted,
                files_skipped,
                files_failed,
                others,
                bytes,
            }
        },
    )
}

fn times() -> impl Strategy<Value = Times> {
    any::<[u64; Stage::ALL.len()]>().prop_map(|nanoseconds| {
        let mut times = Times::default();
        for (stage, length) in Stage::ALL.into_iter().zip(nanoseconds) {
            times.add(stage, Duration::from_nanos(length));
        }
        times
    })
}

/// Generates a random control message.
pub fn message() -> impl Strategy<Value = Message> {
    let block = || any::<u64>().prop_map(BlockId);
    let index = || any::<u64>().prop_map(FileIndex);
    let setup = prop_oneof![
        hello().prop_map(Message::Hello),
        connect().prop_map(Message::Connect),
        accept().prop_map(Message::Accept),
        error().prop_map(Message::Refuse),
        ready().prop_map(Message::Ready),
    ];
    let files = prop_oneof![
        vec(entry(), 0..6).prop_map(Message::NewFiles),
        vec((index(), 1..=u64::MAX), 0..6).prop_map(Message::Stripes),
        vec(error(), 0..6).prop_map(Message::ListFailed),
        any::<u64>().prop_map(|entries| Message::ListEnd { entries }),
        (index(), ascending_ranges()).prop_map(|(index, ranges)| Message::Done { index, ranges }),
        vec(file_id(), 0..6).prop_map(Message::FileIds),
        vec(file_closed(), 0..6).prop_map(Message::FileClose),
        (index(), error()).prop_map(|(index, error)| Message::FileAbort { index, error }),
    ];
    let objects = prop_oneof![
        vec((any::<u32>().prop_map(TargetId), any::<u32>()), 0..6).prop_map(Message::Credit),
        vec((block(), block_state()), 0..6).prop_map(Message::BlockSync),
        (any::<u32>().prop_map(StreamId), vec(block(), 0..9))
            .prop_map(|(stream, blocks)| Message::StreamLost { stream, blocks }),
        option::of(any::<u64>()).prop_map(Message::Rate),
        (any::<u32>(), any::<u64>()).prop_map(|(target, milliseconds)| Message::Stall {
            target: TargetId(target),
            milliseconds,
        }),
    ];
    let session = prop_oneof![
        any::<u64>().prop_map(Message::Ping),
        any::<u64>().prop_map(Message::Pong),
        error().prop_map(Message::GoAway),
        (any::<u32>(), any::<bool>())
            .prop_map(|(attempt, purge)| Message::Cancel { attempt, purge }),
        times().prop_map(Message::Profile),
        (1..=u32::MAX).prop_map(Message::Streams),
        totals().prop_map(Message::Verdict),
        Just(Message::VerdictStored),
        Just(Message::Bye),
    ];
    prop_oneof![setup, files, objects, session]
}

/// Generates a block head of at most nine segments within the default limits.
pub fn block_head() -> impl Strategy<Value = BlockHead> {
    let most = Limits::default().object_bytes_max / 9;
    let data = (0..=u64::MAX - most, 1..=most, sums())
        .prop_map(|(offset, length, sums)| (ByteRange { offset, length }, SegmentKind::Data(sums)));
    let hole = range()
        .prop_filter("empty", |range| !range.is_empty())
        .prop_map(|range| (range, SegmentKind::Hole));
    let segment =
        (any::<u64>(), prop_oneof![3 => data, 1 => hole]).prop_map(|(file, (range, kind))| {
            Segment {
                file: FileIndex(file),
                range,
                kind,
            }
        });
    (any::<u64>(), any::<u32>(), vec(segment, 1..10)).prop_map(|(id, target, segments)| BlockHead {
        id: BlockId(id),
        target: TargetId(target),
        segments,
    })
}

/// Generates a random JOIN.
pub fn join() -> impl Strategy<Value = Join> {
    (any::<[u8; 16]>(), any::<u32>(), any::<[u8; 32]>()).prop_map(|(ticket, stream, proof)| Join {
        ticket,
        stream: StreamId(stream),
        proof,
    })
}

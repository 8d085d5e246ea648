//! Object sizes follow the stripes of both ends, and the memory of layouts is limited.

mod common;

use common::sink_config;
use dray_core::layout::Extent;
use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    ByteRange, Entry, EntryKind, ErrorKind, FileIndex, Layout, Metadata, Name, PeerId, RangeSet,
    RelPath, StreamId, SummedRanges, Sums, TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::sink::{self, Facts, Inspected, Resume, Sink};
use dray_session::source::{self, Listed, ReadOutcome, Source};
use dray_wire::message::{BlockState, FileId, FileVerdict, Message, Ready, Segment, SegmentKind};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const PEER: PeerId = PeerId(0);
const FILE: FileIndex = FileIndex(0);
const OBJECT: u64 = 256;
const BUFFERS: u32 = 8;

fn options() -> Options {
    Options {
        object_bytes: OBJECT,
        ..Options::default()
    }
}

fn entry(size: u64) -> Entry {
    let kind = EntryKind::File {
        size,
        sparse: false,
    };
    Entry {
        index: FILE,
        parent: None,
        name: Name::new(b"f").expect("a good name"),
        kind,
        metadata: Metadata::default(),
    }
}

fn sink() -> Sink {
    let mut sink = Sink::new(sink_config(options(), BUFFERS));
    tell(&mut sink, sink::Input::PeerUp(PEER));
    sink
}

fn tell(sink: &mut Sink, input: sink::Input) -> Vec<sink::Effect> {
    sink.handle(input, Time::ZERO);
    std::iter::from_fn(|| sink.poll()).collect()
}

/// Passes to a sink the source's messages `announced` and the result of inspecting the destination
/// of the file. Returns the object size in bytes and the layout that the sink chooses, or `None` if
/// the sink wants no bytes.
fn decision(
    sink: &mut Sink,
    announced: Vec<Message>,
    layout: Layout,
    resume: Option<Resume>,
) -> Option<(u64, Layout)> {
    for message in announced {
        tell(sink, sink::Input::Message(PEER, message));
    }
    let facts = Facts {
        existing: None,
        resume: resume.map(Ok),
        layout,
    };
    let inspected = vec![(FILE, Inspected::File(facts))];
    let mut effects = tell(sink, sink::Input::Inspected(inspected));
    effects.extend(tell(sink, sink::Input::Prepared(FILE, Ok(()))));
    effects.into_iter().find_map(|effect| match effect {
        sink::Effect::Message(_, Message::FileIds(ids)) => ids.into_iter().find_map(want),
        _ => None,
    })
}

fn want(id: FileId) -> Option<(u64, Layout)> {
    match id.verdict {
        FileVerdict::Want {
            object_bytes,
            layout,
        } => Some((object_bytes, layout)),
        _ => None,
    }
}

fn source() -> Source {
    source_with(4)
}

fn source_with(live_entries_max: u32) -> Source {
    let mut source = Source::new(source::Config {
        options: options(),
        buffers: BUFFERS,
        buffer_bytes: OBJECT,
        readers: ThreadCount::Fixed(4),
        segments_max: 4,
        live_entries_max,
        retry: RetryPolicy::default(),
        seed: 1,
        attempt: 1,
        is_driver: false,
        announces_early: false,
    });
    let ready = Ready {
        precision_nanoseconds: 1,
        object_bytes_max: OBJECT,
        live_entries_max,
        pack_bytes_max: OBJECT,
        holes: false,
        ordered_window: None,
    };
    hear(&mut source, source::Input::Message(Message::Ready(ready)));
    hear(&mut source, source::Input::StreamUp(StreamId(0)));
    source
}

fn hear(source: &mut Source, input: source::Input) -> Vec<source::Effect> {
    source.handle(input, Time::ZERO);
    std::iter::from_fn(|| source.poll()).collect()
}

/// Lists one file at the source, and returns the messages that announce the file.
fn announced(source: &mut Source, size: u64, layout: Layout) -> Vec<Message> {
    let listed = Listed {
        entry: entry(size),
        path: RelPath::parse(b"f").expect("a good path"),
        layout,
    };
    let input = source::Input::Listed {
        entries: vec![listed],
        failed: Vec::new(),
        finished: true,
    };
    let effects = hear(source, input).into_iter();
    let messages = effects.filter_map(|effect| match effect {
        source::Effect::Message(message) => Some(message),
        _ => None,
    });
    messages
        .filter(|message| matches!(message, Message::Stripes(_) | Message::NewFiles(_)))
        .collect()
}

/// Lets the source read and send the file that the sink has requested. Returns the source target,
/// the range and the sink target of each object.
fn objects(source: &mut Source, wanted: (u64, Layout)) -> Vec<(TargetId, ByteRange, TargetId)> {
    let (object_bytes, layout) = wanted;
    let verdict = FileVerdict::Want {
        object_bytes,
        layout,
    };
    let ids = Message::FileIds(vec![FileId {
        index: FILE,
        verdict,
    }]);
    let credit = (0..6).map(|target| (TargetId(target), 100_000)).collect();
    let mut inputs = VecDeque::from([
        source::Input::Message(ids),
        source::Input::Message(Message::Credit(credit)),
    ]);
    let (mut read_from, mut sent) = (BTreeMap::new(), Vec::new());
    while let Some(input) = inputs.pop_front() {
        for effect in hear(source, input) {
            match effect {
                source::Effect::Read {
                    block,
                    target,
                    parts,
                    ..
                } => {
                    read_from.insert(block, target);
                    let segments = parts.iter().map(|part| Segment {
                        file: part.file,
                        range: part.range,
                        kind: SegmentKind::Data(Sums::EMPTY),
                    });
                    let outcome = ReadOutcome {
                        segments: segments.collect(),
                        ..ReadOutcome::default()
                    };
                    inputs.push_back(source::Input::ReadDone { block, outcome });
                }
                source::Effect::Send { head, .. } => {
                    let segment = &head.segments[0];
                    sent.push((read_from[&head.id], segment.range, head.target));
                    let states = vec![(head.id, BlockState::Written)];
                    inputs.push_back(source::Input::Sent { block: head.id });
                    inputs.push_back(source::Input::Message(Message::BlockSync(states)));
                }
                _ => {}
            }
        }
    }
    sent
}

fn striped(stripe_bytes: u64, targets: &[u32]) -> Layout {
    Layout::Striped {
        stripe_bytes,
        targets: targets.iter().copied().map(TargetId).collect(),
    }
}

fn target() -> impl Strategy<Value = TargetId> {
    (0..6u32).prop_map(TargetId)
}

/// Generates layouts whose stripes are multiples of `unit`.
fn layouts(unit: u64) -> impl Strategy<Value = Layout> {
    let stripe = move || (1..9u64).prop_map(move |times| times * unit);
    let piece = (1..9u64, vec(target(), 1..4));
    prop_oneof![
        target().prop_map(Layout::Single),
        (stripe(), vec(target(), 1..5)).prop_map(|(stripe_bytes, targets)| Layout::Striped {
            stripe_bytes,
            targets
        }),
        (stripe(), vec(target(), 1..40)).prop_map(|(bytes, all)| Layout::of_stripes(bytes, all)),
        (stripe(), vec(piece, 1..4)).prop_map(|(stripe_bytes, pieces)| {
            let mut end = 0;
            Layout::of_extents(pieces.into_iter().map(|(stripes, targets)| {
                end += stripes * stripe_bytes;
                Extent {
                    end,
                    stripe_bytes,
                    targets,
                }
            }))
        }),
    ]
}

fn is_on_one_target(layout: &Layout, range: ByteRange, target: TargetId) -> bool {
    layout.runs(range).all(|(_, found)| found == target)
}

proptest! {
    /// The unit of each layout is at least the minimum size of an object, which is a sixteenth of
    /// the requested size. So objects can follow the stripes of both ends.
    #[test]
    fn no_object_crosses_a_border_of_either_end(
        size in OBJECT + 1..12_000,
        (here, there) in prop_oneof![
            (layouts(64), layouts(64)),
            (layouts(48), layouts(32)),
            (layouts(16), layouts(256)),
        ],
    ) {
        let (mut source, mut sink) = (source(), sink());
        let messages = announced(&mut source, size, here.clone());
        let wanted = decision(&mut sink, messages, there.clone(), None).expect("a decision");
        prop_assert!(wanted.0 <= OBJECT);
        let mut missing = RangeSet::full(size);
        for (from, range, to) in objects(&mut source, wanted) {
            prop_assert_eq!(missing.remove(range), range.length, "sent twice");
            prop_assert!(is_on_one_target(&here, range, from), "{:?} at the source", range);
            prop_assert!(is_on_one_target(&there, range, to), "{:?} at the sink", range);
        }
        prop_assert!(missing.is_empty());
    }
}

#[test]
fn resumed_file_keeps_the_object_size_of_its_log() {
    let mut sink = sink();
    let mut done = SummedRanges::new();
    done.insert(ByteRange::between(0, 200), Sums::EMPTY);
    let resume = Resume {
        done,
        object_bytes: 200,
    };
    let messages = announced(&mut source(), 4096, striped(64, &[0, 1]));
    let (object_bytes, _) =
        decision(&mut sink, messages, striped(128, &[2, 3]), Some(resume)).expect("a decision");
    assert_eq!(object_bytes, 200);
}

#[test]
fn sink_without_the_sources_stripes_follows_its_own() {
    let mut sink = sink();
    let messages = vec![Message::NewFiles(vec![entry(4096)])];
    let (object_bytes, _) =
        decision(&mut sink, messages, striped(192, &[2, 3]), None).expect("a decision");
    assert_eq!(object_bytes, 192);
}

#[test]
fn stripes_of_entries_that_never_come_are_limited() {
    let mut sink = sink();
    let stripes = |from: u64| {
        let steps = (from..from + 4).map(|index| (FileIndex(index), 64));
        sink::Input::Message(PEER, Message::Stripes(steps.collect()))
    };
    tell(&mut sink, stripes(0));
    tell(&mut sink, stripes(0));
    let effects = tell(&mut sink, stripes(4));
    let ended = effects.iter().any(|effect| {
        matches!(effect, sink::Effect::Message(_, Message::GoAway(error))
            if error.kind == ErrorKind::LimitExceeded)
    });
    assert!(ended, "{effects:?}");
}

#[test]
fn layouts_over_the_memory_limit_become_single() {
    let mut source = source_with(1000);
    let stripes = 1 << 16;
    let size = stripes * 64;
    let layout = || {
        let targets = (0..stripes).map(|stripe| TargetId(stripe as u32 % 6));
        Layout::of_stripes(64, targets)
    };
    // The layout of one file takes 128 KiB at each end. The limit for all layouts is 64 MiB.
    let mut steps = 0;
    for index in 0..600u64 {
        let mut entry = entry(size);
        entry.index = FileIndex(index);
        entry.name = Name::new(format!("{index}").as_bytes()).expect("a good name");
        let input = source::Input::Listed {
            entries: vec![Listed {
                path: RelPath::parse(entry.name.as_bytes()).expect("a good path"),
                entry,
                layout: layout(),
            }],
            failed: Vec::new(),
            finished: false,
        };
        let effects = hear(&mut source, input);
        let stripes = effects
            .iter()
            .filter(|effect| matches!(effect, source::Effect::Message(Message::Stripes(_))));
        steps += stripes.count();
    }
    assert_eq!(steps, 511, "511 times 131 096 bytes are below the limit");
}

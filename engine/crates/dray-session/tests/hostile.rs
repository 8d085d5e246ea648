//! Peers that exceed their limits. The session must end with a reason, and use little memory.

use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BlockId, BufferId, ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout,
    Metadata, Name, PeerId, RelPath, StreamId, SummedRanges, Sums, TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::Outcome;
use dray_session::sink::{self, BlockKey, Facts, Inspected, Resume, Sink};
use dray_session::source::{self, Listed, Source};
use dray_wire::bounds::{HOLE_BLOCKS_MAX, RUNS_PER_FILE_MAX, XATTRS_BYTES_MAX};
use dray_wire::message::{BlockHead, FileId, FileVerdict, Message, Ready, Segment, SegmentKind};
use std::time::Duration;

const PEER: PeerId = PeerId(0);
const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);
const OBJECT: u64 = 4;

fn step(sink: &mut Sink, input: sink::Input) -> Vec<sink::Effect> {
    sink.handle(input, Time::ZERO);
    std::iter::from_fn(|| sink.poll()).collect()
}

fn entry(size: u64) -> Entry {
    Entry {
        index: FILE,
        parent: None,
        name: Name::new(b"a").expect("a good name"),
        kind: EntryKind::File { size, sparse: true },
        metadata: Metadata::default(),
    }
}

/// Returns a sink that waits for the bytes of one file. `done` are the ranges that are already
/// durable.
fn open(size: u64, done: &[ByteRange]) -> Sink {
    let mut sink = Sink::new(sink::Config {
        options: Options {
            object_bytes: OBJECT,
            xattrs: true,
            ..Options::default()
        },
        demanded: None,
        required: std::collections::BTreeMap::new(),
        identity: Vec::new(),
        buffers: 4,
        buffer_bytes: OBJECT,
        writers: ThreadCount::Fixed(4),
        live_entries_max: 8,
        claims: Vec::new(),
        precision_nanoseconds: 1,
        ordered_window: None,
        holes: true,
        sync_group_bytes: 64,
        unsafe_bytes_max: 64,
        sync_interval: Duration::from_millis(1),
        syncs_apart: false,
        writes_durably: false,
        attempt: 1,
        is_driver: false,
    });
    step(&mut sink, sink::Input::PeerUp(PEER));
    let announced = Message::NewFiles(vec![entry(size)]);
    step(&mut sink, sink::Input::Message(PEER, announced));
    let mut safe = SummedRanges::new();
    for range in done {
        safe.insert(*range, Sums::of_zeros(range.length));
    }
    let resume = Resume {
        done: safe,
        object_bytes: OBJECT,
    };
    let facts = Facts {
        existing: None,
        resume: (!done.is_empty()).then_some(Ok(resume)),
        layout: Layout::Single(TARGET),
    };
    let inspected = vec![(FILE, Inspected::File(facts))];
    step(&mut sink, sink::Input::Inspected(inspected));
    step(&mut sink, sink::Input::Prepared(FILE, Ok(())));
    sink
}

fn send(sink: &mut Sink, id: u64, segments: &[(u64, u64, bool)]) -> Vec<sink::Effect> {
    let segment = |(from, to, is_hole): &(u64, u64, bool)| Segment {
        file: FILE,
        range: ByteRange::between(*from, *to),
        kind: if *is_hole {
            SegmentKind::Hole
        } else {
            SegmentKind::Data(Sums::EMPTY)
        },
    };
    let has_data = segments.iter().any(|(.., is_hole)| !is_hole);
    let input = sink::Input::BlockArrived {
        peer: PEER,
        head: BlockHead {
            id: BlockId(id),
            target: TARGET,
            segments: segments.iter().map(segment).collect(),
        },
        buffer: has_data.then_some(BufferId(0)),
        verified: Ok(()),
    };
    step(sink, input)
}

fn refusal(effects: &[sink::Effect]) -> Option<ErrorKind> {
    effects.iter().find_map(|effect| match effect {
        sink::Effect::Message(_, Message::GoAway(error)) => Some(error.kind),
        _ => None,
    })
}

#[test]
fn blocks_must_be_whole_objects() {
    let data = |from, to| (from, to, false);
    let hole = |from, to| (from, to, true);
    let refused: [&[_]; 9] = [
        &[hole(0, 1)],
        &[hole(1, 4)],
        &[hole(0, 5)],
        &[data(0, 3)],
        &[data(0, 8)],
        &[data(4, 6), hole(6, 9)],
        &[data(4, 5), data(6, 8)],
        &[data(6, 8), data(4, 6)],
        &[data(8, 10), hole(10, 11)],
    ];
    for segments in refused {
        let effects = send(&mut open(13, &[]), 0, segments);
        assert_eq!(refusal(&effects), Some(ErrorKind::Protocol), "{segments:?}");
    }
    let taken: [&[_]; 6] = [
        &[data(0, 4)],
        &[hole(4, 12)],
        &[hole(0, 13)],
        &[data(12, 13)],
        &[data(4, 5), hole(5, 7), data(7, 8)],
        &[hole(8, 9), data(9, 12)],
    ];
    for segments in taken {
        let effects = send(&mut open(13, &[]), 0, segments);
        assert_eq!(refusal(&effects), None, "{segments:?}");
    }
}

#[test]
fn open_part_of_an_object_must_arrive_in_one_block() {
    let done = [ByteRange::between(5, 6), ByteRange::between(8, 12)];
    for (from, to) in [(4, 5), (6, 8), (0, 5), (12, 13), (6, 8)] {
        let effects = send(&mut open(13, &done), 0, &[(from, to, true)]);
        assert_eq!(refusal(&effects), None, "{from} to {to}");
    }
    for (from, to) in [(6, 7), (7, 8), (4, 8), (4, 6), (6, 13)] {
        let effects = send(&mut open(13, &done), 0, &[(from, to, true)]);
        let refused = Some(ErrorKind::Protocol);
        assert_eq!(refusal(&effects), refused, "{from} to {to}");
    }
}

#[test]
fn unwritten_hole_blocks_are_limited() {
    let mut sink = open(1 << 40, &[]);
    for id in 0..u64::from(HOLE_BLOCKS_MAX) {
        let at = id * OBJECT;
        let effects = send(&mut sink, id, &[(at, at + OBJECT, true)]);
        assert_eq!(refusal(&effects), None, "{id}");
    }
    let at = u64::from(HOLE_BLOCKS_MAX);
    let effects = send(&mut sink, at, &[(at * OBJECT, (at + 1) * OBJECT, true)]);
    assert_eq!(refusal(&effects), Some(ErrorKind::LimitExceeded));
}

#[test]
fn too_many_runs_of_a_file_end_the_session() {
    let mut sink = open(1 << 40, &[]);
    let mut refused = None;
    let mut id = 0;
    while refused.is_none() && id <= RUNS_PER_FILE_MAX as u64 {
        let at = 2 * id * OBJECT;
        let mut effects = send(&mut sink, id, &[(at, at + OBJECT, true)]);
        refused = refusal(&effects);
        let key = BlockKey {
            peer: PEER,
            block: BlockId(id),
        };
        id += 1;
        effects.extend(step(&mut sink, sink::Input::Written(key, vec![Ok(())])));
        if id % 1000 == 0 {
            sink.handle(sink::Input::Tick, Time::ZERO + Duration::from_secs(1));
            step(
                &mut sink,
                sink::Input::Synced(sink::SyncGroup::Main, Ok(Vec::new())),
            );
            step(
                &mut sink,
                sink::Input::Logged(sink::SyncGroup::Main, Ok(())),
            );
        }
    }
    assert_eq!(refused, Some(ErrorKind::LimitExceeded));
    assert!(sink.runs() <= RUNS_PER_FILE_MAX + 1);
}

#[test]
fn stream_lost_with_too_many_blocks_ends_the_session() {
    let mut sink = open(64, &[]);
    let mut asked = 0;
    let refused = (0..100).find_map(|message| {
        let blocks = (0..100).map(|block| BlockId(message * 100 + block));
        let question = Message::StreamLost {
            stream: StreamId(1),
            blocks: blocks.collect(),
        };
        asked += 100;
        refusal(&step(&mut sink, sink::Input::Message(PEER, question)))
    });
    assert_eq!(refused, Some(ErrorKind::LimitExceeded));
    assert!(asked <= HOLE_BLOCKS_MAX + 200);
}

/// Returns a source that has announced one file of `size` bytes.
fn announced(size: u64) -> Source {
    listed(vec![entry(size)]).0
}

/// Returns a source that has listed these entries, and the effects of the source.
fn listed(entries: Vec<Entry>) -> (Source, Vec<source::Effect>) {
    let mut source = Source::new(source::Config {
        options: Options::default(),
        buffers: 4,
        buffer_bytes: 1 << 20,
        readers: ThreadCount::Fixed(4),
        segments_max: 16,
        live_entries_max: 8,
        retry: RetryPolicy::default(),
        seed: 1,
        attempt: 1,
        is_driver: false,
        announces_early: false,
    });
    let ready = Ready {
        precision_nanoseconds: 1,
        object_bytes_max: 1 << 20,
        live_entries_max: 8,
        pack_bytes_max: 1 << 20,
        holes: true,
        ordered_window: None,
    };
    deliver(&mut source, Message::Ready(ready));
    let listed = |entry: Entry| Listed {
        path: RelPath::parse(entry.name.as_bytes()).expect("a good path"),
        entry,
        layout: Layout::Single(TARGET),
    };
    let input = source::Input::Listed {
        entries: entries.into_iter().map(listed).collect(),
        failed: Vec::new(),
        finished: true,
    };
    source.handle(input, Time::ZERO);
    let effects = std::iter::from_fn(|| source.poll()).collect();
    (source, effects)
}

fn announced_in(effects: impl IntoIterator<Item = source::Effect>) -> usize {
    let announced = effects.into_iter().map(|effect| match effect {
        source::Effect::Message(Message::NewFiles(entries)) => entries.len(),
        _ => 0,
    });
    announced.sum()
}

/// Passes a message to the source. Returns the error with which the source ends the session.
/// Returns `None` if the session continues.
fn deliver(source: &mut Source, message: Message) -> Option<Error> {
    source.handle(source::Input::Message(message), Time::ZERO);
    std::iter::from_fn(|| source.poll()).find_map(|effect| match effect {
        source::Effect::Message(Message::GoAway(error)) => Some(error),
        _ => None,
    })
}

fn done(from: u64, count: u64) -> Message {
    let range = |number| ByteRange {
        offset: 2 * number,
        length: 1,
    };
    Message::Done {
        index: FILE,
        ranges: (from..from + count).map(range).collect(),
    }
}

#[test]
fn sink_with_too_many_done_runs_ends_the_session() {
    let mut source = announced(1 << 40);
    let mut sent = 0;
    let refused = loop {
        if let Some(error) = deliver(&mut source, done(sent, 1024)) {
            break error.kind;
        }
        sent += 1024;
        assert!(sent <= RUNS_PER_FILE_MAX as u64, "{sent} taken");
    };
    assert_eq!(refused, ErrorKind::LimitExceeded);
    assert!(source.runs() <= RUNS_PER_FILE_MAX + 1024);
}

#[test]
fn done_after_the_decision_or_past_the_end_is_refused() {
    let want = |index| {
        let verdict = FileVerdict::Want {
            object_bytes: 1 << 20,
            layout: Layout::Single(TARGET),
        };
        Message::FileIds(vec![FileId { index, verdict }])
    };
    let kind = |error: Option<Error>| error.map(|error| error.kind);
    let protocol = Some(ErrorKind::Protocol);
    let mut source = announced(8);
    assert_eq!(kind(deliver(&mut source, want(FILE))), None);
    assert_eq!(kind(deliver(&mut source, done(0, 1))), protocol);
    let mut source = announced(8);
    assert_eq!(kind(deliver(&mut source, want(FILE))), None);
    assert_eq!(kind(deliver(&mut source, want(FILE))), protocol);
    assert_eq!(kind(deliver(&mut announced(8), done(4, 1))), protocol);
}

/// Returns `count` entries with 128 KiB of attributes each.
fn entries_with_attributes(count: u64) -> Vec<Entry> {
    let entries_with_attributes = |index| {
        let name = format!("{index}");
        let xattrs = (b"user.a".to_vec(), vec![0; XATTRS_BYTES_MAX - 6]);
        let metadata = Metadata {
            xattrs: vec![xattrs],
            ..Metadata::default()
        };
        Entry {
            index: FileIndex(index),
            name: Name::new(name.as_bytes()).expect("a good name"),
            metadata,
            ..entry(1)
        }
    };
    (0..count).map(entries_with_attributes).collect()
}

#[test]
fn entries_over_the_byte_limit_wait_for_closed_entries() {
    let (mut source, effects) = listed(entries_with_attributes(8));
    assert_eq!(announced_in(effects), 4, "of half a MiB and a little");
    let announced_now = |source: &mut Source| announced_in(std::iter::from_fn(|| source.poll()));
    let close = |index| {
        let verdict = FileVerdict::Skipped;
        let index = FileIndex(index);
        source::Input::Message(Message::FileIds(vec![FileId { index, verdict }]))
    };
    source.handle(close(1), Time::ZERO);
    assert_eq!(announced_now(&mut source), 1);
    for index in [0, 2] {
        source.handle(close(index), Time::ZERO);
    }
    assert_eq!(announced_now(&mut source), 2);
}

#[test]
fn too_many_bytes_of_live_entries_end_the_session() {
    let mut sink = open(16, &[]);
    let mut entries = entries_with_attributes(6);
    entries.remove(0);
    let announced = entries.into_iter().map(|entry| {
        let announced = Message::NewFiles(vec![entry]);
        refusal(&step(&mut sink, sink::Input::Message(PEER, announced)))
    });
    let announced: Vec<_> = announced.collect();
    let refused = Some(ErrorKind::LimitExceeded);
    assert_eq!(announced, [None, None, None, None, refused]);
}

#[test]
fn folders_deeper_than_the_limit_end_the_session() {
    let folder = |index: u64| Entry {
        index: FileIndex(index),
        parent: index.checked_sub(1).map(FileIndex),
        kind: EntryKind::Directory,
        ..entry(0)
    };
    let (_, effects) = listed((0..2000).map(folder).collect());
    let ended = effects.last();
    assert!(
        matches!(ended, Some(source::Effect::End(Outcome::Failed(error)))
            if error.kind == ErrorKind::LimitExceeded && !error.remedy.is_empty()),
        "{ended:?}"
    );
    let announced = announced_in(effects);
    assert!(announced > 500 && announced < 2000, "{announced}");
}

#[test]
fn entries_after_the_end_of_the_list_are_refused() {
    let ended = || {
        let mut sink = open(16, &[]);
        let end = Message::ListEnd { entries: 1 };
        assert_eq!(
            refusal(&step(&mut sink, sink::Input::Message(PEER, end))),
            None
        );
        sink
    };
    let more = Entry {
        index: FileIndex(1),
        name: Name::new(b"b").expect("a good name"),
        ..entry(1)
    };
    let error = Error::new(ErrorKind::NotFound, End::Source, "list");
    for said in [
        Message::NewFiles(vec![more]),
        Message::ListFailed(vec![error]),
        Message::ListEnd { entries: 1 },
    ] {
        let effects = step(&mut ended(), sink::Input::Message(PEER, said.clone()));
        assert_eq!(refusal(&effects), Some(ErrorKind::Protocol), "{said:?}");
    }
}

#[test]
fn end_of_the_list_inside_a_folder_is_refused() {
    let mut sink = open(16, &[]);
    let folder = |kind| Entry {
        index: FileIndex(1),
        name: Name::new(b"d").expect("a good name"),
        kind,
        ..entry(0)
    };
    let end = || sink::Input::Message(PEER, Message::ListEnd { entries: 2 });
    let begins = Message::NewFiles(vec![folder(EntryKind::Directory)]);
    step(&mut sink, sink::Input::Message(PEER, begins));
    assert_eq!(
        refusal(&step(&mut sink, end())),
        Some(ErrorKind::Protocol),
        "its end is missing"
    );
    let mut sink = open(16, &[]);
    let whole = [EntryKind::Directory, EntryKind::DirectoryEnd].map(folder);
    let whole = Message::NewFiles(whole.into());
    step(&mut sink, sink::Input::Message(PEER, whole));
    assert_eq!(refusal(&step(&mut sink, end())), None);
}

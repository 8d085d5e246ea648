//! How many readers and writers a target gets: as many as make it faster, by what each end sees alone.

use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BlockId, BufferId, ByteRange, Entry, EntryKind, FileIndex, Layout, Metadata, Name, PeerId,
    RelPath, StreamId, Sums, TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::sink::{self, BlockKey, Facts, Inspected, Sink};
use dray_session::source::{self, Listed, ReadOutcome, Source};
use dray_wire::message::{
    BlockHead, BlockState, FileId, FileVerdict, Message, Ready, Segment, SegmentKind,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const PEER: PeerId = PeerId(0);
const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);
const BUFFERS: u32 = 128;

/// Bytes of an object.
const OBJECT: u64 = 4;

/// The way there and back between both ends.
const WAY: Duration = Duration::from_millis(1);

const FIXED: ThreadCount = ThreadCount::Fixed(4);
const TUNED: ThreadCount = ThreadCount::Tuned { first: 4, most: 64 };

/// How long an operation takes, where so many go on at once.
type Takes = fn(u32) -> Duration;

/// Each waits for something that any number may wait for at once.
const fn far_away(_: u32) -> Duration {
    Duration::from_millis(100)
}

/// A disk that seeks: of two at once each takes more than twice as long, and so on.
fn seeks(at_once: u32) -> Duration {
    Duration::from_secs_f64(0.005 * f64::from(at_once).powf(1.4))
}

/// What was done within a time.
#[derive(Debug)]
struct Course {
    objects: u64,
    /// The most that were under way at once.
    crowd: u32,
    /// Threads of a target at the end.
    threads: u32,
}

fn entry(objects: u64) -> Entry {
    Entry {
        index: FILE,
        parent: None,
        name: Name::new(b"a").expect("a good name"),
        kind: EntryKind::File {
            size: objects * OBJECT,
            sparse: false,
        },
        metadata: Metadata::default(),
    }
}

fn segment(range: ByteRange) -> Segment {
    Segment {
        file: FILE,
        range,
        kind: SegmentKind::Data(Sums::of(b"abcd")),
    }
}

/// A source whose sink has room for all that comes.
fn read_for(seconds: u64, readers: ThreadCount, takes: Takes) -> Course {
    let mut source = Source::new(source::Config {
        options: Options::default(),
        buffers: BUFFERS,
        buffer_bytes: OBJECT,
        readers,
        segments_max: 16,
        live_entries_max: 8,
        retry: RetryPolicy::default(),
        seed: 1,
        attempt: 1,
        is_driver: false,
        announces_early: false,
    });
    let objects = 1_000_000;
    let listed = Listed {
        entry: entry(objects),
        path: RelPath::parse(b"a").expect("a good path"),
        layout: Layout::Single(TARGET),
    };
    let wanted = FileId {
        index: FILE,
        verdict: FileVerdict::Want {
            object_bytes: OBJECT,
            layout: Layout::Single(TARGET),
        },
    };
    let begins = [
        source::Input::Message(Message::Ready(Ready {
            precision_nanoseconds: 1,
            object_bytes_max: OBJECT,
            live_entries_max: 8,
            pack_bytes_max: 0,
            holes: true,
            ordered_window: None,
        })),
        source::Input::StreamUp(StreamId(0)),
        source::Input::Listed {
            entries: vec![listed],
            failed: Vec::new(),
            finished: true,
        },
        source::Input::Message(Message::FileIds(vec![wanted])),
        source::Input::Message(Message::Credit(vec![(TARGET, BUFFERS)])),
    ];
    let mut inputs: VecDeque<source::Input> = begins.into();
    let mut later: BTreeMap<(Time, u64), source::Input> = BTreeMap::new();
    let (mut now, mut number, mut reading) = (Time::ZERO, 0, 0);
    let mut course = Course {
        objects: 0,
        crowd: 0,
        threads: 0,
    };
    let end = Time::ZERO + Duration::from_secs(seconds);
    while now < end {
        let input = match inputs.pop_front() {
            Some(input) => input,
            None => {
                let ((at, _), input) = later.pop_first().expect("it goes on");
                now = at;
                reading -= 1;
                course.objects += 1;
                input
            }
        };
        source.handle(input, now);
        while let Some(effect) = source.poll() {
            match effect {
                source::Effect::Read { block, parts, .. } => {
                    reading += 1;
                    course.crowd = course.crowd.max(reading);
                    number += 1;
                    let outcome = ReadOutcome {
                        segments: vec![segment(parts[0].range)],
                        ..ReadOutcome::default()
                    };
                    let done = source::Input::ReadDone { block, outcome };
                    later.insert((now + takes(reading), number), done);
                }
                source::Effect::Send { head, .. } => {
                    let durable = vec![(head.id, BlockState::Durable)];
                    inputs.extend([
                        source::Input::Sent { block: head.id },
                        source::Input::Message(Message::BlockSync(durable)),
                        source::Input::Message(Message::Credit(vec![(TARGET, 1)])),
                    ]);
                }
                _ => {}
            }
        }
    }
    course.threads = source.progress().readers;
    course
}

/// A sink whose source sends whatever it has credit for.
fn write_for(seconds: u64, writers: ThreadCount, takes: Takes) -> Course {
    let mut sink = Sink::new(sink::Config {
        options: Options {
            object_bytes: OBJECT,
            ..Options::default()
        },
        demanded: None,
        identity: Vec::new(),
        buffers: BUFFERS,
        buffer_bytes: OBJECT,
        writers,
        live_entries_max: 8,
        claims: Vec::new(),
        precision_nanoseconds: 1,
        ordered_window: None,
        holes: true,
        sync_group_bytes: 1 << 20,
        sync_interval: Duration::from_secs(1),
        attempt: 1,
        is_driver: false,
    });
    let objects = 1_000_000;
    let facts = Facts {
        existing: None,
        resume: None,
        layout: Layout::Single(TARGET),
    };
    let begins = [
        sink::Input::PeerUp(PEER),
        sink::Input::Message(PEER, Message::NewFiles(vec![entry(objects)])),
        sink::Input::Message(PEER, Message::ListEnd { entries: 1 }),
        sink::Input::Inspected(vec![(FILE, Inspected::File(facts))]),
        sink::Input::Prepared(FILE, Ok(())),
    ];
    let mut inputs: VecDeque<sink::Input> = begins.into();
    let mut later: BTreeMap<(Time, u64), sink::Input> = BTreeMap::new();
    let mut waiting: VecDeque<BlockKey> = VecDeque::new();
    let (mut now, mut number, mut next) = (Time::ZERO, 0, 0);
    let (mut writing, mut threads) = (0, writers.first());
    let mut course = Course {
        objects: 0,
        crowd: 0,
        threads: 0,
    };
    let mut free: Vec<BufferId> = (0..BUFFERS).map(BufferId).collect();
    let end = Time::ZERO + Duration::from_secs(seconds);
    while now < end {
        let input = match inputs.pop_front() {
            Some(input) => input,
            None => {
                let ((at, _), input) = later.pop_first().expect("it goes on");
                now = at;
                if matches!(input, sink::Input::Written(..)) {
                    writing -= 1;
                    course.objects += 1;
                }
                input
            }
        };
        sink.handle(input, now);
        while let Some(effect) = sink.poll() {
            match effect {
                sink::Effect::Message(_, Message::Credit(grants)) => {
                    for _ in 0..grants.iter().map(|(_, count)| *count).sum() {
                        let range = ByteRange {
                            offset: next * OBJECT,
                            length: OBJECT,
                        };
                        let arrived = sink::Input::BlockArrived {
                            peer: PEER,
                            head: BlockHead {
                                id: BlockId(next),
                                target: TARGET,
                                segments: vec![segment(range)],
                            },
                            buffer: free.pop(),
                            verified: Ok(()),
                        };
                        (next, number) = (next + 1, number + 1);
                        later.insert((now + WAY, number), arrived);
                    }
                }
                sink::Effect::Write { block, .. } => waiting.push_back(block),
                sink::Effect::SetWriters(count) => threads = count,
                sink::Effect::Free(buffer) => free.push(buffer),
                sink::Effect::Sync(_) => inputs.push_back(sink::Input::Synced(Ok(Vec::new()))),
                sink::Effect::Log { .. } => inputs.push_back(sink::Input::Logged(Ok(()))),
                _ => {}
            }
        }
        while writing < threads
            && let Some(block) = waiting.pop_front()
        {
            (writing, number) = (writing + 1, number + 1);
            course.crowd = course.crowd.max(writing);
            let written = sink::Input::Written(block, vec![Ok(())]);
            later.insert((now + takes(writing), number), written);
        }
    }
    course.threads = sink.progress().writers;
    assert_eq!(course.threads, threads, "what was said last is in force");
    course
}

#[test]
fn storage_that_is_far_away_gets_more_readers() {
    let fixed = read_for(30, FIXED, far_away);
    let tuned = read_for(30, TUNED, far_away);
    assert_eq!((fixed.crowd, fixed.threads), (4, 4));
    assert!(tuned.crowd <= 64, "{tuned:?}");
    assert!(tuned.objects > 5 * fixed.objects, "{fixed:?}, {tuned:?}");
}

#[test]
fn storage_that_is_far_away_gets_more_writers() {
    let fixed = write_for(30, FIXED, far_away);
    let tuned = write_for(30, TUNED, far_away);
    assert_eq!((fixed.crowd, fixed.threads), (4, 4));
    assert!(tuned.crowd <= 64, "{tuned:?}");
    // No more than its window of credit, so that what waits does not fill the pool.
    assert!(tuned.objects > 3 * fixed.objects, "{fixed:?}, {tuned:?}");
}

#[test]
fn storage_that_gets_worse_with_many_is_not_driven_into_the_ground() {
    for run in [read_for, write_for] {
        let (fixed, tuned) = (run(60, FIXED, seeks), run(60, TUNED, seeks));
        assert!(tuned.threads <= 4 && tuned.crowd <= 16, "{tuned:?}");
        assert!(tuned.objects > fixed.objects, "{fixed:?}, {tuned:?}");
    }
}

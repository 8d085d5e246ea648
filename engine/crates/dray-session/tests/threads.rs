//! Tests of the number of readers and writers per target. Each end increases its own number of
//! threads while its own measurements show a higher throughput.

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

/// Object size in bytes.
const OBJECT: u64 = 4;

const ROUND_TRIP: Duration = Duration::from_millis(1);

const FIXED: ThreadCount = ThreadCount::Fixed(4);
const TUNED: ThreadCount = ThreadCount::Tuned { first: 4, most: 64 };

/// Duration of an operation, given the number of concurrent operations.
type DurationOf = fn(u32) -> Duration;

/// Distant storage: the duration is independent of the number of concurrent operations.
const fn distant(_: u32) -> Duration {
    Duration::from_millis(100)
}

/// A disk that seeks: with `at_once` concurrent operations, each takes more than `at_once` times as
/// long as a single operation.
fn seeks(at_once: u32) -> Duration {
    Duration::from_secs_f64(0.005 * f64::from(at_once).powf(1.4))
}

#[derive(Debug)]
struct RunResult {
    objects: u64,
    /// Maximum number of concurrent operations during the run.
    concurrent_max: u32,
    /// Number of threads per target at the end of the run.
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

impl RunResult {
    const NEW: Self = Self {
        objects: 0,
        concurrent_max: 0,
        threads: 0,
    };
}

/// Inputs for a state machine: inputs that are due now, and the results of operations in progress,
/// by end time.
struct Inputs<I> {
    due: VecDeque<I>,
    later: BTreeMap<(Time, u64), I>,
    now: Time,
    number: u64,
}

impl<I> Inputs<I> {
    fn new(first: impl Into<VecDeque<I>>) -> Self {
        Self {
            due: first.into(),
            later: BTreeMap::new(),
            now: Time::ZERO,
            number: 0,
        }
    }

    fn after(&mut self, delay: Duration, input: I) {
        self.number += 1;
        self.later.insert((self.now + delay, self.number), input);
    }

    /// Returns the next input. If it is the result of an operation, advances the clock to the end
    /// of that operation.
    fn next(&mut self) -> I {
        self.due.pop_front().unwrap_or_else(|| {
            let ((at, _), input) = self.later.pop_first().expect("an operation is under way");
            self.now = at;
            input
        })
    }
}

fn new_source(readers: ThreadCount) -> Source {
    Source::new(source::Config {
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
    })
}

/// Returns the inputs after which a source reads one file of `objects` objects.
fn first_source_inputs(objects: u64) -> [source::Input; 5] {
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
    [
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
    ]
}

/// Runs a source with a sink that accepts all objects.
fn read_for(seconds: u64, readers: ThreadCount, duration_of: DurationOf) -> RunResult {
    let mut source = new_source(readers);
    let mut inputs = Inputs::new(first_source_inputs(1_000_000));
    let mut reading = 0;
    let mut result = RunResult::NEW;
    let end = Time::ZERO + Duration::from_secs(seconds);
    while inputs.now < end {
        let input = inputs.next();
        if matches!(input, source::Input::ReadDone { .. }) {
            reading -= 1;
            result.objects += 1;
        }
        source.handle(input, inputs.now);
        while let Some(effect) = source.poll() {
            match effect {
                source::Effect::Read { block, parts, .. } => {
                    reading += 1;
                    result.concurrent_max = result.concurrent_max.max(reading);
                    let outcome = ReadOutcome {
                        segments: vec![segment(parts[0].range)],
                        ..ReadOutcome::default()
                    };
                    let done = source::Input::ReadDone { block, outcome };
                    inputs.after(duration_of(reading), done);
                }
                source::Effect::Send { head, .. } => {
                    let durable = vec![(head.id, BlockState::Durable)];
                    inputs.due.extend([
                        source::Input::Sent { block: head.id },
                        source::Input::Message(Message::BlockSync(durable)),
                        source::Input::Message(Message::Credit(vec![(TARGET, 1)])),
                    ]);
                }
                _ => {}
            }
        }
    }
    result.threads = source.progress().readers;
    result
}

fn new_sink(writers: ThreadCount) -> Sink {
    Sink::new(sink::Config {
        options: Options {
            object_bytes: OBJECT,
            ..Options::default()
        },
        demanded: None,
        required: std::collections::BTreeMap::new(),
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
        unsafe_bytes_max: 1 << 20,
        sync_interval: Duration::from_secs(1),
        syncs_apart: false,
        writes_durably: false,
        attempt: 1,
        is_driver: false,
    })
}

/// Returns the inputs after which a sink receives one file of `objects` objects.
fn first_sink_inputs(objects: u64) -> [sink::Input; 5] {
    let facts = Facts {
        existing: None,
        resume: None,
        layout: Layout::Single(TARGET),
    };
    [
        sink::Input::PeerUp(PEER),
        sink::Input::Message(PEER, Message::NewFiles(vec![entry(objects)])),
        sink::Input::Message(PEER, Message::ListEnd { entries: 1 }),
        sink::Input::Inspected(vec![(FILE, Inspected::File(facts))]),
        sink::Input::Prepared(FILE, Ok(())),
    ]
}

/// Returns the input for the arrival of object `number` of the file.
fn arrival(number: u64, buffer: Option<BufferId>) -> sink::Input {
    let range = ByteRange {
        offset: number * OBJECT,
        length: OBJECT,
    };
    sink::Input::BlockArrived {
        peer: PEER,
        head: BlockHead {
            id: BlockId(number),
            target: TARGET,
            segments: vec![segment(range)],
        },
        buffer,
        verified: Ok(()),
    }
}

/// Runs a sink with a source that sends as much as its credit permits.
fn write_for(seconds: u64, writers: ThreadCount, duration_of: DurationOf) -> RunResult {
    let mut sink = new_sink(writers);
    let mut inputs = Inputs::new(first_sink_inputs(1_000_000));
    let mut waiting: VecDeque<BlockKey> = VecDeque::new();
    let (mut sent, mut writing, mut threads) = (0, 0, writers.first());
    let mut result = RunResult::NEW;
    let mut free: Vec<BufferId> = (0..BUFFERS).map(BufferId).collect();
    let end = Time::ZERO + Duration::from_secs(seconds);
    while inputs.now < end {
        let input = inputs.next();
        if matches!(input, sink::Input::Written(..)) {
            writing -= 1;
            result.objects += 1;
        }
        sink.handle(input, inputs.now);
        while let Some(effect) = sink.poll() {
            match effect {
                sink::Effect::Message(_, Message::Credit(grants)) => {
                    for _ in 0..grants.iter().map(|(_, count)| *count).sum() {
                        inputs.after(ROUND_TRIP, arrival(sent, free.pop()));
                        sent += 1;
                    }
                }
                sink::Effect::Write { block, .. } => waiting.push_back(block),
                sink::Effect::SetWriters(count) => threads = count,
                sink::Effect::Free(buffer) => free.push(buffer),
                sink::Effect::Sync(group, _) => inputs
                    .due
                    .push_back(sink::Input::Synced(group, Ok(Vec::new()))),
                sink::Effect::Log { group, .. } => {
                    inputs.due.push_back(sink::Input::Logged(group, Ok(())))
                }
                _ => {}
            }
        }
        while writing < threads
            && let Some(block) = waiting.pop_front()
        {
            writing += 1;
            result.concurrent_max = result.concurrent_max.max(writing);
            inputs.after(
                duration_of(writing),
                sink::Input::Written(block, vec![Ok(())]),
            );
        }
    }
    result.threads = sink.progress().writers;
    assert_eq!(result.threads, threads, "what was said last is in force");
    result
}

#[test]
fn distant_storage_gets_more_readers() {
    let fixed = read_for(30, FIXED, distant);
    let tuned = read_for(30, TUNED, distant);
    assert_eq!((fixed.concurrent_max, fixed.threads), (4, 4));
    assert!(tuned.concurrent_max <= 64, "{tuned:?}");
    assert!(tuned.objects > 5 * fixed.objects, "{fixed:?}, {tuned:?}");
}

#[test]
fn distant_storage_gets_more_writers() {
    let fixed = write_for(30, FIXED, distant);
    let tuned = write_for(30, TUNED, distant);
    assert_eq!((fixed.concurrent_max, fixed.threads), (4, 4));
    assert!(tuned.concurrent_max <= 64, "{tuned:?}");
    // The factor is smaller than that of the readers. With a tuned number of writers, the sink
    // grants credit for a window only, so that waiting objects do not fill the pool.
    assert!(tuned.objects > 3 * fixed.objects, "{fixed:?}, {tuned:?}");
}

#[test]
fn seeking_storage_keeps_few_threads() {
    for run in [read_for, write_for] {
        let (fixed, tuned) = (run(60, FIXED, seeks), run(60, TUNED, seeks));
        assert!(
            tuned.threads <= 4 && tuned.concurrent_max <= 16,
            "{tuned:?}"
        );
        assert!(tuned.objects > fixed.objects, "{fixed:?}, {tuned:?}");
    }
}

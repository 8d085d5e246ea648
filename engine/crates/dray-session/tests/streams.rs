//! Stuck streams. The source ends a stream whose objects no longer arrive, and sends these objects
//! on other streams.

use dray_core::options::Options;
use dray_core::profile::Stage;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BlockId, Entry, EntryKind, FileIndex, Layout, Metadata, Name, RelPath, StreamId, Sums,
    TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::Event;
use dray_session::source::{Config, Effect, Input, Listed, ReadOutcome, Source};
use dray_wire::message::{BlockState, FileId, FileVerdict, Message, Ready, Segment, SegmentKind};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const OBJECT: u64 = 1 << 20;
const OBJECTS: u64 = 200;
const TARGET: TargetId = TargetId(0);
const FROZEN: StreamId = StreamId(0);

/// A sink and three streams. One stream is frozen: it accepts objects and delivers none. On the
/// other streams an object takes 100 ms.
struct Simulation {
    source: Source,
    now: Time,
    inputs: VecDeque<Input>,
    /// Blocks that were passed to the frozen stream.
    on_frozen: Vec<BlockId>,
    /// Number of times that each object was sent, by offset of the object.
    sent: BTreeMap<u64, u32>,
    blocks: BTreeMap<BlockId, u64>,
    /// Number of objects that each stream has delivered.
    carried: BTreeMap<StreamId, u32>,
    done: u64,
    given_up: Vec<(StreamId, Time)>,
    notices: u32,
    /// Number of objects that the socket of the frozen stream accepts.
    sockets_take: usize,
    /// True if the sink answers.
    sink_lives: bool,
    /// True if all streams are frozen and the source gets no report of their loss.
    all_frozen: bool,
}

impl Simulation {
    fn new() -> Self {
        Self::of(false)
    }

    fn of(is_driver: bool) -> Self {
        let source = Source::new(Config {
            options: Options::default(),
            buffers: 8,
            buffer_bytes: OBJECT,
            readers: ThreadCount::Fixed(4),
            segments_max: 16,
            live_entries_max: 8,
            retry: RetryPolicy::default(),
            seed: 1,
            attempt: 1,
            is_driver,
            announces_early: false,
        });
        let ready = Ready {
            precision_nanoseconds: 1,
            object_bytes_max: OBJECT,
            live_entries_max: 8,
            pack_bytes_max: OBJECT,
            holes: false,
            ordered_window: None,
        };
        let path = RelPath::parse(b"a").expect("a good path");
        let entry = Entry {
            index: FileIndex(0),
            parent: None,
            name: Name::new(b"a").expect("a good name"),
            kind: EntryKind::File {
                size: OBJECTS * OBJECT,
                sparse: false,
            },
            metadata: Metadata::default(),
        };
        let layout = Layout::Single(TARGET);
        let entries = vec![Listed {
            entry,
            path,
            layout: layout.clone(),
        }];
        let verdict = FileVerdict::Want {
            object_bytes: OBJECT,
            layout,
        };
        let index = FileIndex(0);
        let mut inputs = VecDeque::from([Input::Message(Message::Ready(ready))]);
        inputs.extend((0..3).map(|stream| Input::StreamUp(StreamId(stream))));
        inputs.extend([
            Input::Listed {
                entries,
                failed: Vec::new(),
                finished: true,
            },
            Input::Message(Message::FileIds(vec![FileId { index, verdict }])),
            Input::Message(Message::Credit(vec![(TARGET, 1000)])),
        ]);
        Self {
            source,
            now: Time::ZERO,
            inputs,
            on_frozen: Vec::new(),
            sent: BTreeMap::new(),
            blocks: BTreeMap::new(),
            carried: BTreeMap::new(),
            done: 0,
            given_up: Vec::new(),
            notices: 0,
            sockets_take: 3,
            sink_lives: true,
            all_frozen: false,
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Read { block, parts, .. } => {
                let (file, range) = (parts[0].file, parts[0].range);
                self.blocks.insert(block, range.offset);
                let kind = SegmentKind::Data(Sums::EMPTY);
                let outcome = ReadOutcome {
                    segments: vec![Segment { file, range, kind }],
                    ..ReadOutcome::default()
                };
                self.inputs.push_back(Input::ReadDone { block, outcome });
            }
            Effect::Send { stream, head, .. } => {
                let block = head.id;
                *self.carried.entry(stream).or_default() += 1;
                *self.sent.entry(self.blocks[&block]).or_default() += 1;
                if stream == FROZEN || self.all_frozen {
                    // If the socket accepts an object, the runtime reports it as sent.
                    self.on_frozen.push(block);
                    if self.on_frozen.len() <= self.sockets_take {
                        self.inputs.push_back(Input::Sent { block });
                    }
                } else {
                    self.inputs.push_back(Input::Sent { block });
                    let states = vec![(block, BlockState::Durable)];
                    self.answer(Message::BlockSync(states));
                    self.done += 1;
                }
            }
            Effect::Message(Message::Ping(nonce)) => self.answer(Message::Pong(nonce)),
            Effect::GiveUp(stream, _) => {
                self.given_up.push((stream, self.now));
                if !self.all_frozen {
                    self.inputs.push_back(Input::StreamLost(stream));
                }
            }
            Effect::Message(Message::StreamLost { stream, blocks }) => {
                assert_eq!((stream, &blocks), (FROZEN, &self.on_frozen));
                let states = blocks.into_iter().map(|block| (block, BlockState::Dropped));
                let states = states.collect();
                self.answer(Message::BlockSync(states));
            }
            Effect::Report(Event::Notice(_)) => self.notices += 1,
            _ => {}
        }
    }

    fn answer(&mut self, message: Message) {
        if self.sink_lives {
            self.inputs.push_back(Input::Message(message));
        }
    }

    /// Passes one input to the source every 100 ms, and wakes the source at the time that the
    /// source requests.
    fn run(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.now = self.now + Duration::from_millis(100);
            let is_due = self.source.next_wake().is_some_and(|wake| wake <= self.now);
            let input = self.inputs.pop_front().or(is_due.then_some(Input::Tick));
            let Some(input) = input else { continue };
            self.source.handle(input, self.now);
            while let Some(effect) = self.source.poll() {
                self.effect(effect);
            }
        }
    }
}

#[test]
fn set_streams_limits_streams_and_a_lost_stream_is_replaced() {
    let mut simulation = Simulation::new();
    simulation.inputs.push_front(Input::SetStreams(2));
    simulation.run(4);
    assert_eq!(simulation.source.progress().streams, 2);
    let carried: Vec<u32> = simulation.carried.keys().map(|stream| stream.0).collect();
    assert_eq!(carried, [0, 1], "the third is not needed");
    simulation.run(120);
    assert!(matches!(simulation.given_up[..], [(FROZEN, _)]));
    assert_eq!(simulation.done, OBJECTS);
    assert!(simulation.carried.contains_key(&StreamId(2)));
    assert_eq!(simulation.source.progress().streams, 2);
    assert_eq!(
        simulation.source.progress().bytes_written,
        OBJECTS * OBJECT,
        "each counts once"
    );
}

#[test]
fn driving_sink_sets_the_stream_count() {
    let mut simulation = Simulation::new();
    let streams = Input::Message(Message::Streams(2));
    simulation.inputs.push_front(streams);
    simulation.run(4);
    assert_eq!(simulation.source.progress().streams, 2);
    assert_eq!(simulation.carried.len(), 2);
}

#[test]
fn driving_source_ignores_the_stream_count_of_the_sink() {
    let mut simulation = Simulation::of(true);
    let streams = Input::Message(Message::Streams(1));
    simulation.inputs.push_front(streams);
    simulation.inputs.push_front(Input::SetStreams(2));
    simulation.run(4);
    assert_eq!(simulation.source.progress().streams, 2);
    assert_eq!(simulation.carried.len(), 2);
}

#[test]
fn unused_streams_do_not_count_as_slow_sink() {
    let mut simulation = Simulation::new();
    simulation.inputs.push_front(Input::SetStreams(1));
    // Both objects for which there is credit are queued on the only stream in use, and its socket
    // accepts none.
    simulation.inputs.pop_back();
    let credit = Message::Credit(vec![(TARGET, 2)]);
    simulation.inputs.push_back(Input::Message(credit));
    simulation.sockets_take = 0;
    simulation.run(4);
    let times = simulation.source.profile(simulation.now).source;
    assert!(
        times.of(Stage::Network) > Duration::from_secs(2),
        "{times:?}"
    );
    assert!(times.of(Stage::Credit) < Duration::from_millis(500));
}

#[test]
fn at_least_one_stream_is_used() {
    let mut simulation = Simulation::new();
    simulation.inputs.push_front(Input::SetStreams(0));
    simulation.run(4);
    assert_eq!(simulation.source.progress().streams, 1);
    assert_eq!(simulation.carried.len(), 1);
}

#[test]
fn stuck_stream_is_ended_and_only_its_objects_are_resent() {
    let mut simulation = Simulation::new();
    simulation.run(120);
    assert_eq!(simulation.done, OBJECTS, "all of it, without that stream");
    assert!(
        matches!(simulation.given_up[..], [(FROZEN, _)]),
        "{:?}",
        simulation.given_up
    );
    assert_eq!(simulation.notices, 1, "somebody is told");
    let twice = simulation.sent.values().filter(|times| **times > 1).count();
    assert_eq!(
        (twice, simulation.sent.len() as u64),
        (simulation.on_frozen.len(), OBJECTS)
    );
    assert_eq!(
        simulation.source.progress().bytes_sent,
        (OBJECTS + twice as u64) * OBJECT
    );
}

#[test]
fn stuck_stream_gets_no_more_objects_than_others() {
    let mut simulation = Simulation::new();
    // The socket of the frozen stream accepts all objects.
    simulation.sockets_take = usize::MAX;
    simulation.run(20);
    let (frozen, done) = (simulation.on_frozen.len() as u64, simulation.done);
    assert!(4 * frozen < done, "{frozen} on it, {done} on the others");
}

#[test]
fn silent_sink_ends_no_stream() {
    let mut simulation = Simulation::new();
    simulation.run(2);
    simulation.sink_lives = false;
    simulation.run(600);
    assert_eq!(simulation.given_up, []);
}

#[test]
fn last_live_stream_is_not_ended_before_other_losses_are_reported() {
    let mut simulation = Simulation::new();
    (simulation.all_frozen, simulation.sockets_take) = (true, usize::MAX);
    simulation.run(3_000);
    assert_eq!(simulation.given_up.len(), 2, "{:?}", simulation.given_up);
}

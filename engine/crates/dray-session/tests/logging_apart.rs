//! Tests of asynchronous logging: the sink syncs the next group while earlier groups are logged.

mod common;

use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout,
    Metadata, Name, PeerId, Sums, TargetId, Time,
};
use dray_session::Outcome;
use dray_session::sink::{BlockKey, Effect, Facts, Input, Inspected, Sink, SyncGroup};
use dray_wire::message::{BlockHead, BlockState, Message, Segment, SegmentKind};
use std::time::Duration;

const PEER: PeerId = PeerId(0);
const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);
/// Documented limit of groups that are synced or logged at a time.
const GROUPS_MAX: u64 = 4;

/// A sink that receives one file, and a simulated clock.
struct Scene {
    sink: Sink,
    now: Time,
    next: u64,
}

impl Scene {
    fn new(is_async: bool) -> Self {
        let options = Options {
            object_bytes: 4,
            ..Options::default()
        };
        let sink = Sink::new(common::sink_config(options, 16)).logging_apart(is_async);
        let (now, next) = (Time::ZERO, 0);
        let mut scene = Self { sink, now, next };
        scene.step(Input::PeerUp(PEER));
        let entry = Entry {
            index: FILE,
            parent: None,
            name: Name::new(b"a").expect("a good name"),
            kind: EntryKind::File {
                size: 64,
                sparse: false,
            },
            metadata: Metadata::default(),
        };
        scene.step(Input::Message(PEER, Message::NewFiles(vec![entry])));
        let facts = Facts {
            existing: None,
            resume: None,
            layout: Layout::Single(TARGET),
        };
        scene.step(Input::Inspected(vec![(FILE, Inspected::File(facts))]));
        scene.step(Input::Prepared(FILE, Ok(())));
        scene
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.sink.handle(input, self.now);
        self.sink.check_invariants().expect("no broken invariant");
        std::iter::from_fn(|| self.sink.poll()).collect()
    }

    /// Writes the next object, and waits until its group is due. Returns true if the sink requests
    /// the sync of the group.
    fn write_and_wait(&mut self) -> bool {
        let id = self.next;
        self.next += 1;
        let range = ByteRange::between(id * 4, id * 4 + 4);
        let kind = SegmentKind::Data(Sums::of(b"abcd"));
        let segments = vec![Segment {
            file: FILE,
            range,
            kind,
        }];
        self.step(Input::BlockArrived {
            peer: PEER,
            head: BlockHead {
                id: BlockId(id),
                target: TARGET,
                segments,
            },
            buffer: Some(BufferId(id as u32)),
            verified: Ok(()),
        });
        let key = BlockKey {
            peer: PEER,
            block: BlockId(id),
        };
        self.step(Input::Written(key, vec![Ok(())]));
        self.now = self.now + Duration::from_secs(1);
        let effects = self.step(Input::Tick);
        effects.iter().any(|one| matches!(one, Effect::Sync(..)))
    }

    /// Ends the sync that is under way. Returns the number of records that the sink logs.
    fn end_sync(&mut self) -> usize {
        let effects = self.step(Input::Synced(SyncGroup::Main, Ok(Vec::new())));
        assert_eq!(durable(&effects), [], "no record is in the log yet");
        let logged = effects.iter().map(|effect| match effect {
            Effect::Log { records, .. } => records.len(),
            _ => 0,
        });
        logged.sum()
    }

    fn end_log(&mut self, result: Result<(), Error>) -> Vec<Effect> {
        self.step(Input::Logged(SyncGroup::Main, result))
    }
}

fn durable(effects: &[Effect]) -> Vec<u64> {
    let messages = effects.iter().filter_map(|effect| match effect {
        Effect::Message(_, Message::BlockSync(states)) => Some(states.clone()),
        _ => None,
    });
    let durable = messages
        .flatten()
        .filter(|(_, state)| *state == BlockState::Durable);
    durable.map(|(id, _)| id.0).collect()
}

#[test]
fn the_next_group_is_synced_while_the_logger_works() {
    let mut scene = Scene::new(true);
    assert!(scene.write_and_wait());
    assert_eq!(scene.end_sync(), 1);
    assert!(scene.write_and_wait(), "the first group is being logged");
    assert_eq!(scene.end_sync(), 1);
    // The answers of the logger arrive in order, and each makes its own group durable.
    assert_eq!(durable(&scene.end_log(Ok(()))), [0]);
    assert_eq!(durable(&scene.end_log(Ok(()))), [1]);
    assert_eq!(scene.sink.progress().bytes_durable, 8);
}

#[test]
fn the_next_group_waits_for_a_synchronous_log() {
    let mut scene = Scene::new(false);
    assert!(scene.write_and_wait());
    assert_eq!(scene.end_sync(), 1);
    assert!(!scene.write_and_wait());
    let effects = scene.end_log(Ok(()));
    assert_eq!(durable(&effects), [0]);
    assert!(effects.iter().any(|one| matches!(one, Effect::Sync(..))));
}

#[test]
fn a_slow_logger_stops_further_syncs() {
    let mut scene = Scene::new(true);
    for _ in 0..GROUPS_MAX {
        assert!(scene.write_and_wait());
        assert_eq!(scene.end_sync(), 1);
    }
    assert!(!scene.write_and_wait(), "the queue of the logger is full");
    assert_eq!(scene.sink.next_wake(), None, "only the logger can wake it");
    let effects = scene.end_log(Ok(()));
    assert!(effects.iter().any(|one| matches!(one, Effect::Sync(..))));
    assert_eq!(durable(&effects), [0]);
}

#[test]
fn an_error_of_the_logger_ends_the_session() {
    let mut scene = Scene::new(true);
    assert!(scene.write_and_wait());
    scene.end_sync();
    assert!(scene.write_and_wait());
    let full = Error::new(ErrorKind::NoSpace, End::Sink, "write to the object log");
    let effects = scene.end_log(Err(full));
    let is_end = |effect: &Effect| match effect {
        Effect::End(Outcome::Failed(error)) => error.kind == ErrorKind::NoSpace,
        _ => false,
    };
    assert!(effects.iter().any(is_end), "{effects:?}");
    assert_eq!(durable(&effects), []);
}

#[test]
fn a_session_that_is_stopped_ends_after_its_last_record() {
    let mut scene = Scene::new(true);
    assert!(scene.write_and_wait());
    scene.end_sync();
    assert!(scene.write_and_wait());
    let ends = |effects: &[Effect]| effects.iter().any(|one| matches!(one, Effect::End(_)));
    assert!(!ends(&scene.step(Input::Cancel { purge: false })));
    scene.end_sync();
    assert!(!ends(&scene.end_log(Ok(()))), "one group is not logged yet");
    let effects = scene.end_log(Ok(()));
    assert_eq!(durable(&effects), [1]);
    assert!(ends(&effects), "{effects:?}");
}

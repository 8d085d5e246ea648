//! Tests of the stages in the profile of a sink: its work, and its waits for data.

use dray_core::options::Options;
use dray_core::profile::{Stage, Times};
use dray_core::{
    BlockId, BufferId, ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout,
    Metadata, Name, PeerId, StreamId, Sums, TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::sink::{BlockKey, Config, Effect, Facts, Input, Inspected, Sink, SyncGroup};
use dray_wire::message::{BlockHead, Message, Segment, SegmentKind};
use std::time::Duration;

const PEER: PeerId = PeerId(0);
const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);

/// Object size in bytes.
const OBJECT: u64 = 4;

/// A sink with a simulated clock, which advances only in [`ClockedSink::wait`].
struct ClockedSink {
    sink: Sink,
    now: Time,
}

impl ClockedSink {
    /// Creates a sink that accepts at most four objects that are not durable, and syncs groups of
    /// two objects.
    fn new() -> Self {
        Self::begun(false)
    }

    fn begun(is_driver: bool) -> Self {
        let sink = Sink::new(Config {
            options: Options {
                object_bytes: OBJECT,
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
            sync_group_bytes: 4 * OBJECT,
            unsafe_bytes_max: 4 * OBJECT,
            sync_interval: Duration::from_secs(1000),
            syncs_apart: false,
            writes_durably: false,
            attempt: 1,
            is_driver,
        });
        let mut clocked = Self {
            sink,
            now: Time::ZERO,
        };
        clocked.wait(7);
        clocked.step(Input::PeerUp(PEER));
        clocked
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.sink.handle(input, self.now);
        std::iter::from_fn(|| self.sink.poll()).collect()
    }

    fn announce(&mut self, objects: u64) {
        let entry = Entry {
            index: FILE,
            parent: None,
            name: Name::new(b"a").expect("a good name"),
            kind: EntryKind::File {
                size: objects * OBJECT,
                sparse: false,
            },
            metadata: Metadata::default(),
        };
        self.step(Input::Message(PEER, Message::NewFiles(vec![entry])));
        self.step(Input::Message(PEER, Message::ListEnd { entries: 1 }));
    }

    fn inspect(&mut self) {
        let facts = Facts {
            existing: None,
            resume: None,
            layout: Layout::Single(TARGET),
        };
        self.step(Input::Inspected(vec![(FILE, Inspected::File(facts))]));
    }

    /// Returns a sink with one open file that has `objects` objects.
    fn open(objects: u64) -> Self {
        let mut clocked = Self::new();
        clocked.announce(objects);
        clocked.inspect();
        clocked.step(Input::Prepared(FILE, Ok(())));
        clocked
    }

    fn arrive(&mut self, block: u32) -> Vec<Effect> {
        let range = ByteRange {
            offset: u64::from(block) * OBJECT,
            length: OBJECT,
        };
        let kind = SegmentKind::Data(Sums::of(b"abcd"));
        let file = FILE;
        let head = BlockHead {
            id: BlockId(block.into()),
            target: TARGET,
            segments: vec![Segment { file, range, kind }],
        };
        self.step(Input::BlockArrived {
            peer: PEER,
            head,
            buffer: Some(BufferId(block)),
            verified: Ok(()),
        })
    }

    fn written(&mut self, block: u64) -> Vec<Effect> {
        let key = BlockKey {
            peer: PEER,
            block: BlockId(block),
        };
        self.step(Input::Written(key, vec![Ok(())]))
    }

    /// Lets 3 s pass, and checks that the sink counts them for `stage`.
    #[track_caller]
    fn assert_stage(&mut self, stage: Stage) {
        let before = self.sink.profile(self.now).sink;
        self.wait(3);
        let mut times = Times::default();
        times.add(stage, Duration::from_secs(3));
        let since = self.sink.profile(self.now).sink.since(&before);
        assert_eq!(since, times, "{:?}", since.iter().collect::<Vec<_>>());
    }
}

fn profiles(effects: &[Effect]) -> Vec<(PeerId, Times)> {
    let profile = |effect: &Effect| match effect {
        Effect::Message(peer, Message::Profile(times)) => Some((*peer, *times)),
        _ => None,
    };
    effects.iter().filter_map(profile).collect()
}

#[test]
fn sink_stages_from_first_entry_to_last_publication() {
    let mut clocked = ClockedSink::new();
    clocked.assert_stage(Stage::Arrival);
    clocked.announce(2);
    clocked.assert_stage(Stage::Decide);
    clocked.inspect();
    // The sink is opening the partial file.
    clocked.assert_stage(Stage::Decide);
    clocked.step(Input::Prepared(FILE, Ok(())));
    clocked.assert_stage(Stage::Arrival);
    clocked.arrive(0);
    clocked.arrive(1);
    clocked.assert_stage(Stage::Write);
    clocked.written(0);
    clocked.written(1);
    // No more objects will arrive, so the sink syncs immediately.
    clocked.assert_stage(Stage::Sync);
    clocked.step(Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    clocked.assert_stage(Stage::Sync);
    clocked.step(Input::Logged(SyncGroup::Main, Ok(())));
    clocked.assert_stage(Stage::Publish);
    clocked.step(Input::Published(vec![(FILE, Ok(()))]));
    // The sink syncs the folder entry of the published file.
    clocked.assert_stage(Stage::Sync);
    clocked.step(Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    let effects = clocked.step(Input::Logged(SyncGroup::Main, Ok(())));
    assert!(matches!(effects.last(), Some(Effect::StoreVerdict(_))));
    clocked.wait(5);
    let effects = clocked.step(Input::VerdictStored(Ok(())));
    let [(PEER, reported)] = profiles(&effects)[..] else {
        panic!("{effects:?}");
    };
    assert!(
        matches!(
            effects.last(),
            Some(Effect::Message(PEER, Message::Verdict(_)))
        ),
        "before the verdict, which is the last that a source waits for: {effects:?}"
    );
    let counted: Duration = reported.iter().map(|(_, time)| time).sum();
    assert_eq!(
        counted,
        Duration::from_secs(27),
        "the way out is not counted"
    );
}

#[test]
fn slow_writers_count_as_write_stage() {
    let mut clocked = ClockedSink::open(8);
    for block in 0..3 {
        clocked.arrive(block);
    }
    clocked.assert_stage(Stage::Write);
    clocked.written(0);
    clocked.written(1);
    // The sync of the first two objects runs at the same time as the writes, and does not delay
    // them.
    clocked.assert_stage(Stage::Write);
    clocked.step(Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    clocked.step(Input::Logged(SyncGroup::Main, Ok(())));
    clocked.written(2);
    clocked.assert_stage(Stage::Arrival);
}

#[test]
fn full_sync_group_counts_as_sync_stage() {
    let mut clocked = ClockedSink::open(8);
    for block in 0..4 {
        clocked.arrive(block);
        clocked.written(block.into());
    }
    clocked.assert_stage(Stage::Sync);
    // Objects for which the source already has credit still arrive and are written. After that, no
    // objects arrive.
    clocked.arrive(4);
    clocked.assert_stage(Stage::Sync);
    clocked.written(4);
    clocked.assert_stage(Stage::Sync);
}

#[test]
fn times_of_several_sources_are_added_up() {
    let mut clocked = ClockedSink::new();
    let other = PeerId(1);
    clocked.step(Input::PeerUp(other));
    let times = |seconds| {
        let mut times = Times::default();
        times.add(Stage::Read, Duration::from_secs(seconds));
        times
    };
    for (peer, seconds) in [(PEER, 2), (other, 5), (PEER, 3)] {
        clocked.step(Input::Message(peer, Message::Profile(times(seconds))));
    }
    assert_eq!(clocked.sink.progress().profile.source, times(8));
    // The sink sends its profile to each source.
    clocked.wait(11);
    let reported = profiles(&clocked.step(Input::Tick));
    let peers: Vec<PeerId> = reported.iter().map(|(peer, _)| *peer).collect();
    assert_eq!(peers, [PEER, other]);
}

#[test]
fn finished_source_counts_as_verdict_stage() {
    let mut clocked = ClockedSink::begun(true);
    let mut times = Times::default();
    times.add(Stage::Read, Duration::from_secs(2));
    clocked.step(Input::Message(PEER, Message::Profile(times)));
    clocked.wait(40);
    let end = Message::ListEnd { entries: 0 };
    clocked.step(Input::Message(PEER, end));
    // The source sent its profile before the end of the listing. The sink cannot compute the wait
    // for the verdict from this profile.
    clocked.step(Input::VerdictStored(Ok(())));
    assert_eq!(clocked.sink.progress().profile.source, times);

    let mut clocked = ClockedSink::begun(true);
    clocked.announce(1);
    clocked.inspect();
    clocked.step(Input::Prepared(FILE, Ok(())));
    clocked.arrive(0);
    clocked.step(Input::Message(PEER, Message::Profile(times)));
    clocked.wait(5);
    clocked.written(0);
    clocked.step(Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    clocked.step(Input::Logged(SyncGroup::Main, Ok(())));
    clocked.step(Input::Published(vec![(FILE, Ok(()))]));
    clocked.step(Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    clocked.step(Input::Logged(SyncGroup::Main, Ok(())));
    clocked.step(Input::VerdictStored(Ok(())));
    times.add(Stage::Verdict, Duration::from_secs(5));
    assert_eq!(clocked.sink.progress().profile.source, times);
    // The source also sends its own profile, which may arrive before the log is removed.
    clocked.step(Input::Message(PEER, Message::Profile(times)));
    assert_eq!(clocked.sink.progress().profile.source, times);
}

#[test]
fn profile_is_sent_before_the_last_message_of_a_session() {
    let error = || Error::new(ErrorKind::LeaseLost, End::Sink, "write");
    let cancel = Message::Cancel {
        attempt: 1,
        purge: false,
    };
    for input in [
        Input::Cancel { purge: false },
        Input::Stopping(error()),
        Input::LeaseLost(error()),
        // The source claims to have stored a verdict that the sink did not send.
        Input::Message(PEER, Message::VerdictStored),
        Input::Message(PEER, cancel),
    ] {
        let mut stopped = ClockedSink::open(8);
        stopped.wait(4);
        stopped.step(Input::StreamLost(PEER, StreamId(0)));
        let mut effects = stopped.step(input);
        // The source that cancels gets the last message after the log is synced.
        effects.extend(stopped.step(Input::Synced(SyncGroup::Main, Ok(Vec::new()))));
        effects.extend(stopped.step(Input::Logged(SyncGroup::Main, Ok(()))));
        let reported = profiles(&effects);
        assert_eq!(reported.len(), 1, "{effects:?}");
        assert_eq!(reported[0].1.of(Stage::Arrival), Duration::from_secs(4));
        let place = |is: fn(&Message) -> bool| {
            effects
                .iter()
                .position(|effect| matches!(effect, Effect::Message(PEER, message) if is(message)))
        };
        let profile = place(|message| matches!(message, Message::Profile(_)));
        let last = place(|message| {
            matches!(
                message,
                Message::Cancel { .. } | Message::GoAway(_) | Message::Bye
            )
        });
        assert!(last.is_some() && profile < last, "{effects:?}");
    }
}

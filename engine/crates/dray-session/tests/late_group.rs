//! Tests of the late group: a slow target does not delay the sync of other targets' objects.

use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, ByteRange, Entry, EntryKind, FileIndex, Layout, Metadata, Name, PeerId,
    Sums, TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::sink::{
    BlockKey, Config, Effect, Facts, Input, Inspected, Sink, SyncGroup, SyncItem,
};
use dray_wire::message::{BlockHead, BlockState, Message, Segment, SegmentKind};
use std::time::Duration;

const PEER: PeerId = PeerId(0);
const OBJECT: u64 = 4;
const OBJECTS: u64 = 1000;
const INTERVAL: Duration = Duration::from_millis(500);
/// Index of the file on the slow target. Files 0 and 1 are on two other targets.
const SLOW: FileIndex = FileIndex(2);

/// A sink with three open files on three targets, and a simulated clock.
struct Scene {
    sink: Sink,
    now: Time,
    effects: Vec<Effect>,
    /// Groups that are being synced.
    under_way: Vec<SyncGroup>,
    next: u64,
    written: [u64; 3],
}

impl Scene {
    fn new() -> Self {
        Self::with(1000, false)
    }

    /// Returns a scene whose groups have at most `objects` objects. If `syncs_apart` is true, both
    /// groups may be synced concurrently.
    fn with(objects: u64, syncs_apart: bool) -> Self {
        Self::configured(objects, |config| config.syncs_apart = syncs_apart)
    }

    /// Returns a scene whose groups have at most `objects` objects, after `change` has changed the
    /// configuration of the sink.
    fn configured(objects: u64, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            options: Options {
                object_bytes: OBJECT,
                ..Options::default()
            },
            demanded: None,
            required: std::collections::BTreeMap::new(),
            identity: Vec::new(),
            buffers: 64,
            buffer_bytes: OBJECT,
            writers: ThreadCount::Fixed(4),
            live_entries_max: 1000,
            claims: Vec::new(),
            precision_nanoseconds: 1,
            ordered_window: None,
            holes: true,
            sync_group_bytes: objects * OBJECT,
            unsafe_bytes_max: objects * OBJECT,
            sync_interval: INTERVAL,
            syncs_apart: false,
            writes_durably: false,
            attempt: 1,
            is_driver: false,
        };
        change(&mut config);
        let sink = Sink::new(config);
        let mut scene = Self {
            sink,
            now: Time::ZERO,
            effects: Vec::new(),
            under_way: Vec::new(),
            next: 0,
            written: [0; 3],
        };
        scene.step(Input::PeerUp(PEER));
        for index in [0, 1, 2].map(FileIndex) {
            scene.announce(index, OBJECTS * OBJECT, target_of(index));
            scene.step(Input::Prepared(index, Ok(())));
        }
        scene
    }

    /// Announces a file at the source, and passes its layout to the sink.
    fn announce(&mut self, index: FileIndex, size: u64, target: TargetId) {
        let entry = Entry {
            index,
            parent: None,
            name: Name::new(index.to_string().as_bytes()).expect("a good name"),
            kind: EntryKind::File {
                size,
                sparse: false,
            },
            metadata: Metadata::default(),
        };
        self.step(Input::Message(PEER, Message::NewFiles(vec![entry])));
        let facts = Facts {
            existing: None,
            resume: None,
            layout: Layout::Single(target),
        };
        self.step(Input::Inspected(vec![(index, Inspected::File(facts))]));
    }

    fn step(&mut self, input: Input) {
        self.sink.handle(input, self.now);
        self.sink.check_invariants().expect("no broken invariant");
        for effect in std::iter::from_fn(|| self.sink.poll()) {
            if let Effect::Sync(group, _) = &effect {
                self.under_way.push(*group);
            }
            self.effects.push(effect);
        }
    }

    fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.step(Input::Tick);
    }

    /// Writes the next object of a file, which takes `duration`.
    fn write(&mut self, file: FileIndex, duration: Duration) -> BlockId {
        let at = &mut self.written[usize::try_from(file.0).expect("few files")];
        let offset = *at * OBJECT;
        *at += 1;
        self.write_at((file, offset), target_of(file), duration)
    }

    /// Writes the object at an offset of a file.
    fn write_at(
        &mut self,
        (file, offset): (FileIndex, u64),
        target: TargetId,
        duration: Duration,
    ) -> BlockId {
        let id = BlockId(self.next);
        self.next += 1;
        let range = ByteRange {
            offset,
            length: OBJECT,
        };
        let kind = SegmentKind::Data(Sums::of(b"abcd"));
        let head = BlockHead {
            id,
            target,
            segments: vec![Segment { file, range, kind }],
        };
        self.step(Input::BlockArrived {
            peer: PEER,
            head,
            buffer: Some(BufferId(u32::try_from(id.0 % 64).expect("few buffers"))),
            verified: Ok(()),
        });
        self.now = self.now + duration;
        let key = BlockKey {
            peer: PEER,
            block: id,
        };
        self.step(Input::Written(key, vec![Ok(())]));
        id
    }

    /// Writes an object. Returns the credit that the sink then grants.
    fn credit_for_write(&mut self) -> u32 {
        let before = self.effects.len();
        self.write(FileIndex(0), Duration::from_millis(4));
        let granted = self.effects[before..].iter().map(|effect| match effect {
            Effect::Message(_, Message::Credit(grants)) => grants.iter().map(|grant| grant.1).sum(),
            _ => 0,
        });
        granted.sum()
    }

    /// Returns the files of the syncs that were requested since the last call, one list for each.
    fn syncs(&mut self) -> Vec<Vec<FileIndex>> {
        let effects = std::mem::take(&mut self.effects);
        let items = effects.into_iter().filter_map(|effect| match effect {
            Effect::Sync(_, items) => Some(items),
            _ => None,
        });
        let files = items.map(|items| {
            let partials = items.into_iter().map(|item| match item {
                SyncItem::Partial(index) => index,
                other => panic!("no file is complete: {other:?}"),
            });
            partials.collect()
        });
        files.collect()
    }

    /// Syncs an object, which takes so long that the next syncs begin after [`INTERVAL`].
    fn sync_slowly(&mut self) {
        self.write(FileIndex(0), Duration::from_millis(4));
        self.wait(INTERVAL);
        self.wait(INTERVAL / 10);
        assert!(!self.end_sync().is_empty());
    }

    /// Ends the syncs that are under way. Returns the blocks that became durable.
    fn end_sync(&mut self) -> Vec<BlockId> {
        self.effects.clear();
        let groups = std::mem::take(&mut self.under_way);
        let ended = groups.into_iter().map(|group| self.end_sync_of(group));
        ended.collect::<Vec<_>>().concat()
    }

    /// Ends the sync of one group. Returns the blocks that became durable.
    fn end_sync_of(&mut self, group: SyncGroup) -> Vec<BlockId> {
        self.under_way.retain(|other| *other != group);
        let before = self.effects.len();
        self.step(Input::Synced(group, Ok(Vec::new())));
        self.step(Input::Logged(group, Ok(())));
        let messages = self.effects[before..]
            .iter()
            .filter_map(|effect| match effect {
                Effect::Message(_, Message::BlockSync(states)) => Some(states.clone()),
                _ => None,
            });
        let durable = messages
            .flatten()
            .filter(|(_, state)| *state == BlockState::Durable);
        durable.map(|(id, _)| id).collect()
    }

    /// Writes objects until the sink knows which target is slow, and makes them durable.
    fn learn(&mut self) {
        for _ in 0..20 {
            for (file, milliseconds) in [(FileIndex(0), 4), (FileIndex(1), 4), (SLOW, 80)] {
                self.write(file, Duration::from_millis(milliseconds));
                if !self.syncs().is_empty() {
                    self.end_sync();
                }
            }
        }
        // Sync both groups, one after the other.
        for _ in 0..2 {
            self.wait(INTERVAL * 8);
            if !self.syncs().is_empty() {
                self.end_sync();
            }
        }
    }
}

fn target_of(file: FileIndex) -> TargetId {
    TargetId(u32::try_from(file.0).expect("few files") + 1)
}

#[test]
fn objects_of_a_slow_target_do_not_delay_the_sync_of_others() {
    let mut scene = Scene::new();
    scene.learn();
    let slow = scene.write(SLOW, Duration::from_millis(80));
    let fast = scene.write(FileIndex(0), Duration::from_millis(4));
    scene.wait(INTERVAL);
    assert_eq!(scene.syncs(), [vec![FileIndex(0)]], "without the slow file");
    assert_eq!(scene.end_sync(), [fast]);
    // No data of another target waits now, so the slow object waits no longer.
    scene.wait(Duration::from_millis(1));
    assert_eq!(scene.syncs(), [vec![SLOW]]);
    assert_eq!(scene.end_sync(), [slow]);
}

#[test]
fn busy_targets_do_not_delay_a_slow_target_for_ever() {
    let mut scene = Scene::new();
    scene.learn();
    let slow = scene.write(SLOW, Duration::from_millis(80));
    let wrote = scene.now;
    loop {
        scene.write(FileIndex(1), Duration::from_millis(100));
        let syncs = scene.syncs();
        assert!(syncs.len() <= 1, "one sync at a time");
        let is_slow = syncs.iter().any(|files| files.contains(&SLOW));
        let durable = match syncs.is_empty() {
            true => Vec::new(),
            false => scene.end_sync(),
        };
        assert_eq!(durable.contains(&slow), is_slow);
        if is_slow {
            break;
        }
        assert!(scene.now.since(wrote) <= INTERVAL * 9, "{:?}", scene.now);
    }
}

#[test]
fn slow_syncs_do_not_delay_the_other_targets_twice() {
    let mut scene = Scene::new();
    scene.learn();
    scene.write(SLOW, Duration::from_millis(80));
    scene.wait(INTERVAL);
    assert_eq!(scene.syncs(), [vec![SLOW]]);
    // The sync takes so long that both groups are due when it ends.
    let slow = scene.write(SLOW, Duration::from_millis(80));
    let fast = scene.write(FileIndex(0), Duration::from_millis(4));
    scene.wait(INTERVAL * 9);
    assert_eq!(
        scene.syncs(),
        Vec::<Vec<FileIndex>>::new(),
        "one sync at a time"
    );
    scene.end_sync();
    assert_eq!(scene.syncs(), [vec![FileIndex(0)]]);
    assert_eq!(scene.end_sync(), [fast]);
    assert_eq!(scene.syncs(), [vec![SLOW]]);
    assert_eq!(scene.end_sync(), [slow]);
}

#[test]
fn next_sync_begins_after_ten_times_the_last_one() {
    let mut scene = Scene::with(1000, false);
    // Before the first sync, and after fast syncs, a group is synced after 100 ms.
    for (sync, age) in [
        (1, 100),
        (20, 100),
        (30, 200),
        (600, 300),
        (5, 500),
        (1, 100),
    ] {
        let age = Duration::from_millis(age);
        scene.write(FileIndex(0), Duration::from_millis(4));
        scene.wait(age - Duration::from_millis(1));
        assert!(scene.syncs().is_empty(), "too early after {age:?}");
        scene.wait(Duration::from_millis(1));
        assert_eq!(scene.syncs(), [vec![FileIndex(0)]], "after {age:?}");
        scene.wait(Duration::from_millis(sync));
        assert_eq!(scene.end_sync().len(), 1);
    }
}

#[test]
fn small_files_of_a_slow_target_count_in_the_size_of_the_late_group() {
    // The late group is synced when it has 10 objects.
    let mut scene = Scene::with(40, false);
    scene.learn();
    scene.sync_slowly();
    let wrote = scene.now;
    for count in 1..=10 {
        // Data of another target always waits, so the late group is not synced for another reason.
        scene.write(FileIndex(0), Duration::from_millis(4));
        let small = FileIndex(2 + count);
        scene.announce(small, OBJECT, target_of(SLOW));
        scene.write_at((small, 0), target_of(SLOW), Duration::from_millis(80));
        let synced = scene.effects.iter().find_map(|effect| match effect {
            Effect::Sync(_, items) => Some(items.clone()),
            _ => None,
        });
        let Some(items) = synced else { continue };
        let smalls = items
            .iter()
            .filter(|item| matches!(item, SyncItem::Small(_)));
        if smalls.count() > 0 {
            assert_eq!(count, 10, "{items:?}");
            assert!(scene.now.since(wrote) < INTERVAL * 8);
            return;
        }
        scene.wait(INTERVAL / 10);
        scene.end_sync();
    }
    panic!("the late group is not synced although it is full");
}

#[test]
fn both_groups_are_synced_concurrently_if_the_store_permits_it() {
    let mut scene = Scene::with(1000, true);
    scene.learn();
    let slow = scene.write(SLOW, Duration::from_millis(80));
    scene.wait(INTERVAL);
    assert_eq!(scene.syncs(), [vec![SLOW]]);
    // The sync of the slow target takes long. Meanwhile the other targets' objects become durable.
    for _ in 0..3 {
        let fast = scene.write(FileIndex(0), Duration::from_millis(4));
        scene.wait(INTERVAL);
        assert_eq!(scene.syncs(), [vec![FileIndex(0)]]);
        assert_eq!(scene.end_sync_of(SyncGroup::Main), [fast]);
    }
    scene.write(SLOW, Duration::from_millis(80));
    scene.wait(INTERVAL * 9);
    assert!(scene.syncs().is_empty(), "one sync of the late group");
    assert_eq!(scene.end_sync_of(SyncGroup::Late), [slow]);
    assert_eq!(scene.syncs(), [vec![SLOW]]);
}

#[test]
fn a_file_is_not_in_two_concurrent_syncs() {
    let mut scene = Scene::with(1000, true);
    scene.learn();
    scene.write(SLOW, Duration::from_millis(80));
    scene.wait(INTERVAL);
    assert_eq!(scene.syncs(), [vec![SLOW]]);
    // An object of the same file on another target belongs to the main group.
    let at = (SLOW, (OBJECTS - 1) * OBJECT);
    let other = scene.write_at(at, target_of(FileIndex(0)), Duration::from_millis(4));
    scene.wait(INTERVAL * 2);
    assert!(scene.syncs().is_empty(), "the file is being synced");
    assert_eq!(
        scene.sink.next_wake(),
        None,
        "only the end of the sync helps"
    );
    assert!(!scene.end_sync_of(SyncGroup::Late).contains(&other));
    assert_eq!(scene.syncs(), [vec![SLOW]]);
    assert_eq!(scene.end_sync_of(SyncGroup::Main), [other]);
}

#[test]
fn objects_of_all_targets_are_one_group_if_writes_are_durable() {
    let mut scene = Scene::configured(1000, |config| {
        config.syncs_apart = true;
        config.writes_durably = true;
    });
    scene.learn();
    let slow = scene.write(SLOW, Duration::from_millis(80));
    let fast = scene.write(FileIndex(0), Duration::from_millis(4));
    scene.wait(INTERVAL);
    assert_eq!(scene.syncs(), [vec![FileIndex(0), SLOW]]);
    assert_eq!(scene.end_sync_of(SyncGroup::Main), [slow, fast]);
}

#[test]
fn a_slow_commit_of_the_log_stops_the_sink_only_at_the_limit_of_unlogged_bytes() {
    const GROUP: u64 = 16;
    const LIMIT: u64 = 4 * GROUP;
    let mut scene = Scene::configured(GROUP, |config| {
        config.writes_durably = true;
        config.unsafe_bytes_max = LIMIT * OBJECT;
    });
    // The commit of the first half of a group takes long. The next groups wait for its end.
    let first: u32 = (0..GROUP).map(|_| scene.credit_for_write()).sum();
    let next: u32 = (GROUP..LIMIT - 1).map(|_| scene.credit_for_write()).sum();
    assert_eq!(scene.syncs().len(), 1, "one commit at a time");
    assert!(first > 0);
    // The sink grants credit in portions, so the last portion may be missing.
    assert!(u64::from(next) > LIMIT - 2 * GROUP, "{next}");
    let at_the_limit: u32 = (0..4).map(|_| scene.credit_for_write()).sum();
    assert_eq!(at_the_limit, 0);
    // The first commit contains half of a group, the second all other objects.
    assert_eq!(scene.end_sync_of(SyncGroup::Main).len() as u64, GROUP / 2);
    scene.end_sync_of(SyncGroup::Main);
    let after: u32 = (0..4).map(|_| scene.credit_for_write()).sum();
    assert!(after > 0);
}

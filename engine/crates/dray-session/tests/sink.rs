//! Small scenarios for the sink's state machine. The simulator has found a defect with each of
//! them.

use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, FileKind,
    Layout, Metadata, ModifiedTime, Name, PeerId, RelPath, StreamId, SummedRanges, Sums, TargetId,
    Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::sink::{
    BlockKey, Config, Effect, Existing, Facts, Input, Inspected, Resume, Sink, SyncGroup, SyncItem,
};
use dray_session::{Event, Outcome};
use dray_wire::message::{BlockHead, BlockState, FileVerdict, Message, Segment, SegmentKind};
use std::time::Duration;

const PEER: PeerId = PeerId(0);
const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);

fn step(sink: &mut Sink, input: Input) -> Vec<Effect> {
    sink.handle(input, Time::ZERO);
    std::iter::from_fn(|| sink.poll()).collect()
}

fn started() -> Sink {
    started_with(Vec::new(), false)
}

fn started_with(claims: Vec<RelPath>, is_driver: bool) -> Sink {
    let mut sink = Sink::new(Config {
        options: Options {
            object_bytes: 4,
            ..Options::default()
        },
        demanded: None,
        required: std::collections::BTreeMap::new(),
        identity: Vec::new(),
        buffers: 4,
        buffer_bytes: 4,
        writers: ThreadCount::Fixed(4),
        live_entries_max: 8,
        claims,
        precision_nanoseconds: 1,
        ordered_window: None,
        holes: true,
        sync_group_bytes: 64,
        unsafe_bytes_max: 64,
        sync_interval: Duration::from_millis(1),
        syncs_apart: false,
        writes_durably: false,
        attempt: 1,
        is_driver,
    });
    step(&mut sink, Input::PeerUp(PEER));
    sink
}

/// Announces a file of `size` bytes to a sink, and reports the result of inspecting its
/// destination.
fn announce_and_inspect(
    sink: &mut Sink,
    index: u64,
    size: u64,
    existing: Option<Existing>,
    resume: Option<Resume>,
) -> Vec<Effect> {
    let letter = b'a' + u8::try_from(index).expect("few files");
    let index = FileIndex(index);
    let entry = Entry {
        index,
        parent: None,
        name: Name::new(&[letter]).expect("a good name"),
        kind: EntryKind::File {
            size,
            sparse: false,
        },
        metadata: Metadata::default(),
    };
    step(sink, Input::Message(PEER, Message::NewFiles(vec![entry])));
    let facts = Facts {
        existing,
        resume: resume.map(Ok),
        layout: Layout::Single(TARGET),
    };
    step(
        sink,
        Input::Inspected(vec![(index, Inspected::File(facts))]),
    )
}

/// Returns a sink after the announcement and inspection of one file of `size` bytes.
fn inspected(size: u64, existing: Option<Existing>) -> (Sink, Vec<Effect>) {
    found(size, existing, None)
}

fn found(size: u64, existing: Option<Existing>, resume: Option<Resume>) -> (Sink, Vec<Effect>) {
    let mut sink = started();
    let effects = announce_and_inspect(&mut sink, 0, size, existing, resume);
    (sink, effects)
}

/// Returns a sink that waits for the bytes of one file of `size` bytes.
fn open(size: u64) -> Sink {
    let (mut sink, _) = inspected(size, None);
    step(&mut sink, Input::Prepared(FILE, Ok(())));
    sink
}

fn block(id: u64, offset: u64, kind: SegmentKind) -> Input {
    let range = ByteRange { offset, length: 4 };
    let segments = vec![Segment {
        file: FILE,
        range,
        kind,
    }];
    Input::BlockArrived {
        peer: PEER,
        head: BlockHead {
            id: BlockId(id),
            target: TARGET,
            segments,
        },
        buffer: Some(BufferId(id as u32)),
        verified: Ok(()),
    }
}

fn states(effects: &[Effect]) -> Vec<(BlockId, BlockState)> {
    let messages = effects.iter().filter_map(|effect| match effect {
        Effect::Message(_, Message::BlockSync(states)) => Some(states.clone()),
        _ => None,
    });
    messages.flatten().collect()
}

#[test]
fn duplicate_object_costs_no_credit_and_keeps_the_session() {
    let mut sink = open(16);
    let before = sink.credit_out();
    let data = SegmentKind::Data(Sums::of(b"abcd"));
    step(&mut sink, block(0, 0, data));
    let again = step(&mut sink, block(0, 0, data));
    assert_eq!(again, [Effect::Free(BufferId(0))]);
    let key = BlockKey {
        peer: PEER,
        block: BlockId(0),
    };
    step(&mut sink, Input::Written(key, vec![Ok(())]));
    let late = step(&mut sink, block(0, 0, data));
    assert_eq!(late, [Effect::Free(BufferId(0))]);
    assert_eq!(sink.credit_out(), before, "granted again, once");
}

#[test]
fn objects_with_wrong_bytes_are_counted_and_sent_again() {
    let mut sink = open(8);
    let damaged = |id, error| match block(id, 0, SegmentKind::Data(Sums::of(b"abcd"))) {
        Input::BlockArrived {
            peer, head, buffer, ..
        } => Input::BlockArrived {
            peer,
            head,
            buffer,
            verified: Err(error),
        },
        other => other,
    };
    let effects = step(&mut sink, damaged(0, Sink::mismatch(None)));
    assert!(matches!(
        states(&effects)[..],
        [(BlockId(0), BlockState::Nack(_))]
    ));
    assert_eq!(sink.progress().objects_corrupt, 1);
    // Other reasons for a refused object are no damage.
    let busy = Error::new(ErrorKind::Busy, End::Sink, "receive an object");
    step(&mut sink, damaged(1, busy));
    assert_eq!(sink.progress().objects_corrupt, 1);
}

#[test]
fn split_stream_lost_is_answered_once() {
    let mut sink = open(16);
    for blocks in [vec![BlockId(7)], vec![BlockId(8)]] {
        let stream = StreamId(1);
        let asked = step(
            &mut sink,
            Input::Message(PEER, Message::StreamLost { stream, blocks }),
        );
        assert_eq!(asked, [], "not before the stream is known to be dead here");
    }
    let answers = states(&step(&mut sink, Input::StreamLost(PEER, StreamId(1))));
    let dropped = |id| (BlockId(id), BlockState::Dropped);
    assert_eq!(answers, [dropped(7), dropped(8)]);
}

#[test]
fn adopted_file_is_synced_before_it_is_closed() {
    let existing = Existing {
        kind: FileKind::File,
        size: 3,
        modified: ModifiedTime::default(),
        sums: None,
        mode: None,
    };
    let (mut sink, effects) = inspected(3, Some(existing));
    assert_eq!(effects, [], "it waits for its group");
    let end = Message::ListEnd { entries: 1 };
    let effects = step(&mut sink, Input::Message(PEER, end));
    let path = RelPath::parse(b"a").expect("a good path");
    assert_eq!(
        effects,
        [Effect::Sync(SyncGroup::Main, vec![SyncItem::Adopted(path)])]
    );
    step(&mut sink, Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    let effects = step(&mut sink, Input::Logged(SyncGroup::Main, Ok(())));
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Message(_, Message::FileIds(ids)) if ids[0].verdict == FileVerdict::Adopted
    )));
}

#[test]
fn returned_credit_is_not_granted_to_the_same_target() {
    let mut sink = open(16);
    let out = sink.credit_out();
    assert!(out > 0);
    let back = Message::Credit(vec![(TARGET, out)]);
    assert_eq!(step(&mut sink, Input::Message(PEER, back)), []);
    assert_eq!(sink.credit_out(), 0);
    let asks = Message::Credit(vec![(TARGET, 0)]);
    let effects = step(&mut sink, Input::Message(PEER, asks));
    assert_eq!(
        effects,
        [Effect::Message(PEER, Message::Credit(vec![(TARGET, out)]))]
    );
}

/// Returns a sink that has written one object and is syncing the object's group.
fn syncing() -> Sink {
    let mut sink = open(16);
    step(&mut sink, block(0, 0, SegmentKind::Data(Sums::of(b"abcd"))));
    let key = BlockKey {
        peer: PEER,
        block: BlockId(0),
    };
    step(&mut sink, Input::Written(key, vec![Ok(())]));
    sink.handle(Input::Tick, Time::ZERO + Duration::from_secs(1));
    assert!(std::iter::from_fn(|| sink.poll()).any(|effect| matches!(effect, Effect::Sync(..))));
    sink
}

#[test]
fn file_that_fails_before_its_sync_is_closed_before_its_blocks_are_answered() {
    let mut sink = syncing();
    let gone = Error::new(ErrorKind::NotFound, End::Sink, "sync the file");
    let path = RelPath::parse(b"a").expect("a good path");
    let effects = step(
        &mut sink,
        Input::Synced(SyncGroup::Main, Ok(vec![(path, gone)])),
    );
    // The log gets no record of the file, so a later run sends these bytes again.
    assert!(effects.contains(&Effect::Log {
        group: SyncGroup::Main,
        records: Vec::new()
    }));
    let is_failure = |effect: &Effect| match effect {
        Effect::Message(_, Message::FileClose(closed)) => closed[0].result.is_err(),
        _ => false,
    };
    assert!(effects.iter().any(is_failure), "{effects:?}");
    assert_eq!(states(&effects), []);
    // Only now does the sink answer the other blocks of the group. The source counts no bytes of
    // a closed file (`source.rs`).
    let effects = step(&mut sink, Input::Logged(SyncGroup::Main, Ok(())));
    assert_eq!(states(&effects), [(BlockId(0), BlockState::Durable)]);
    assert_eq!(sink.progress().bytes_durable, 0);
}

#[test]
fn source_receives_the_error_of_the_sink() {
    let error = |kind| Error::new(kind, End::Sink, "do it").cause("simulated");
    let lost = step(
        &mut syncing(),
        Input::LeaseLost(error(ErrorKind::LeaseLost)),
    );
    let unsynced = step(
        &mut syncing(),
        Input::Synced(SyncGroup::Main, Err(error(ErrorKind::Io))),
    );
    let mut logging = syncing();
    step(&mut logging, Input::Synced(SyncGroup::Main, Ok(Vec::new())));
    let unlogged = step(
        &mut logging,
        Input::Logged(SyncGroup::Main, Err(error(ErrorKind::NoSpace))),
    );
    for (effects, kind) in [
        (lost, ErrorKind::LeaseLost),
        (unsynced, ErrorKind::Io),
        (unlogged, ErrorKind::NoSpace),
    ] {
        let [
            Effect::Message(PEER, Message::Profile(_)),
            Effect::Message(PEER, Message::GoAway(reported)),
            Effect::End(Outcome::Failed(own)),
        ] = effects.as_slice()
        else {
            panic!("{kind:?}: {effects:?}");
        };
        assert_eq!((reported, reported.kind), (own, kind));
        let has_remedy = kind == ErrorKind::LeaseLost || !reported.remedy.is_empty();
        assert!(has_remedy && reported.end == End::Sink && !reported.cause.is_empty());
    }
}

/// Returns a sink that is opening an earlier run's partial file. The first object of this file is
/// durable.
fn reopening() -> Sink {
    let mut done = SummedRanges::new();
    done.insert(ByteRange::between(0, 4), Sums::of(b"abcd"));
    let object_bytes = 4;
    found(16, None, Some(Resume { done, object_bytes })).0
}

#[test]
fn file_opened_after_a_stop_is_discarded_or_closed() {
    let ended = |sink: &mut Sink| {
        assert_eq!(
            step(sink, Input::Cancel { purge: false }).len(),
            1,
            "the word"
        );
        let effects = step(sink, Input::Prepared(FILE, Ok(())));
        assert!(matches!(
            effects.last(),
            Some(Effect::End(Outcome::Cancelled))
        ));
        effects
    };
    let begun = ended(&mut inspected(16, None).0);
    assert_eq!(begun[0], Effect::Discard(FILE), "keeps nothing");
    let resumed = ended(&mut reopening());
    assert_eq!(resumed[0], Effect::CloseFile(FILE));
}

#[test]
fn the_source_gets_the_targets_that_the_store_chose_for_a_partial_file() {
    let (mut sink, _) = inspected(16, None);
    let chosen = Layout::Striped {
        stripe_bytes: 8,
        targets: vec![TargetId(5), TargetId(6)],
    };
    step(&mut sink, Input::Placed(FILE, chosen.clone()));
    let effects = step(&mut sink, Input::Prepared(FILE, Ok(())));
    let told = effects.iter().find_map(|effect| match effect {
        Effect::Message(_, Message::FileIds(ids)) => Some(ids[0].verdict.clone()),
        _ => None,
    });
    let object_bytes = 4;
    let layout = chosen;
    assert_eq!(
        told,
        Some(FileVerdict::Want {
            object_bytes,
            layout
        })
    );
    // A file that is not being prepared ignores a layout.
    step(
        &mut sink,
        Input::Placed(FileIndex(9), Layout::Single(TARGET)),
    );
}

#[test]
fn durable_ranges_survive_a_failed_open() {
    let fails = |mut sink: Sink, kind| {
        let error = Error::new(kind, End::Source, "read the file");
        let abort = Message::FileAbort { index: FILE, error };
        step(&mut sink, Input::Message(PEER, abort));
        step(&mut sink, Input::Prepared(FILE, Ok(())))
    };
    let unreadable = fails(reopening(), ErrorKind::Io);
    assert_eq!(unreadable, [Effect::CloseFile(FILE)]);
    let changed = fails(reopening(), ErrorKind::SourceChanged);
    assert_eq!(changed, [Effect::Discard(FILE)]);
    let new = fails(inspected(16, None).0, ErrorKind::Io);
    assert_eq!(new, [Effect::Discard(FILE)]);
}

#[test]
fn entry_removed_before_the_sync_fails_alone() {
    let existing = || {
        Some(Existing {
            kind: FileKind::File,
            size: 3,
            modified: ModifiedTime::default(),
            sums: None,
            mode: None,
        })
    };
    let mut sink = started();
    for index in 0..2 {
        announce_and_inspect(&mut sink, index, 3, existing(), None);
    }
    let end = Message::ListEnd { entries: 2 };
    let effects = step(&mut sink, Input::Message(PEER, end));
    assert!(matches!(&effects[..], [Effect::Sync(_, items)] if items.len() == 2));
    let gone = Error::new(ErrorKind::NotFound, End::Sink, "sync");
    let path = RelPath::parse(b"b").expect("a good path");
    let effects = step(
        &mut sink,
        Input::Synced(SyncGroup::Main, Ok(vec![(path.clone(), gone)])),
    );
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Report(Event::Failed(failure)) if failure.path == path
    )));
    let effects = step(&mut sink, Input::Logged(SyncGroup::Main, Ok(())));
    let verdicts = effects.iter().find_map(|effect| match effect {
        Effect::Message(_, Message::FileIds(ids)) => Some(ids),
        _ => None,
    });
    let adopted: Vec<_> = verdicts.into_iter().flatten().map(|id| id.index).collect();
    assert_eq!(adopted, [FILE], "the other one is done");
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::StoreVerdict(totals) if totals.files_failed == 1 && totals.files_adopted == 1
    )));
}

#[test]
fn descendants_of_a_failed_folder_fail_with_its_error() {
    let mut sink = started();
    let names: [&[u8]; 5] = [b".dray-x", b"b", b"c", b"d", b"e"];
    let entries = names.iter().enumerate().map(|(depth, name)| Entry {
        index: FileIndex(depth as u64),
        parent: depth.checked_sub(1).map(|above| FileIndex(above as u64)),
        name: Name::new(name).expect("a good name"),
        kind: EntryKind::Directory,
        metadata: Metadata::default(),
    });
    let announced = Message::NewFiles(entries.collect());
    let effects = step(&mut sink, Input::Message(PEER, announced));
    let reported = effects.iter().filter_map(|effect| match effect {
        Effect::Report(Event::Failed(failure)) => Some(&failure.error),
        _ => None,
    });
    let reported: Vec<_> = reported.collect();
    assert_eq!(reported.len(), names.len());
    for error in &reported[1..] {
        assert_eq!(error.kind, ErrorKind::InvalidName);
        assert_eq!(error.cause, reported[1].cause);
        assert_eq!(error.remedy, reported[0].remedy);
    }
}

#[test]
fn driving_sink_does_not_wait_after_its_verdict() {
    let mut sink = started_with(Vec::new(), true);
    let end = Message::ListEnd { entries: 0 };
    let effects = step(&mut sink, Input::Message(PEER, end));
    assert!(matches!(effects[..], [Effect::StoreVerdict(_)]));
    let effects = step(&mut sink, Input::VerdictStored(Ok(())));
    assert!(
        matches!(
            effects[..],
            [
                Effect::Message(PEER, Message::Verdict(_)),
                Effect::FinishLog { .. }
            ]
        ),
        "{effects:?}"
    );
    // The sink is the driver and does not wait for this message, but the source sends it and may
    // then disconnect.
    let heard = step(&mut sink, Input::Message(PEER, Message::VerdictStored));
    assert!(heard.is_empty(), "{heard:?}");
    let lost = Error::new(
        ErrorKind::Unreachable,
        End::Network,
        "receive from the peer",
    );
    assert!(step(&mut sink, Input::PeerLost(PEER, lost)).is_empty());
    let effects = step(&mut sink, Input::LogRemoved(Ok(())));
    assert!(matches!(
        effects.last(),
        Some(Effect::End(Outcome::Done(_)))
    ));
}

#[test]
fn driving_sink_refuses_verdict_stored_before_its_verdict() {
    let mut sink = started_with(Vec::new(), true);
    let effects = step(&mut sink, Input::Message(PEER, Message::VerdictStored));
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Message(PEER, Message::GoAway(error)) if error.kind == ErrorKind::Protocol
    )));
}

#[test]
fn finish_log_keeps_failed_files_that_can_resume() {
    let finished = |kind| {
        let mut sink = open(16);
        let error = Error::new(kind, End::Source, "read the file");
        let abort = Message::FileAbort { index: FILE, error };
        step(&mut sink, Input::Message(PEER, abort));
        let unlisted = Error::new(ErrorKind::PermissionDenied, End::Source, "list the folder");
        let failed = Message::ListFailed(vec![unlisted]);
        step(&mut sink, Input::Message(PEER, failed));
        let end = Message::ListEnd { entries: 1 };
        let effects = step(&mut sink, Input::Message(PEER, end));
        assert!(matches!(effects[..], [Effect::StoreVerdict(_)]));
        step(&mut sink, Input::VerdictStored(Ok(())));
        step(&mut sink, Input::Message(PEER, Message::VerdictStored))
    };
    let finish = |names: &[&[u8]]| {
        let paths = names
            .iter()
            .map(|name| RelPath::parse(name).expect("a good path"));
        let keeps = Some(paths.collect());
        let is_listed = false;
        [Effect::FinishLog { keeps, is_listed }]
    };
    assert_eq!(finished(ErrorKind::Io), finish(&[b"a"]));
    assert_eq!(finished(ErrorKind::SourceChanged), finish(&[]));
}

#[test]
fn holes_do_not_delay_credit() {
    let mut sink = open(1 << 20);
    let segments = vec![Segment {
        file: FILE,
        range: ByteRange::between(4, 1 << 20),
        kind: SegmentKind::Hole,
    }];
    let hole = Input::BlockArrived {
        peer: PEER,
        head: BlockHead {
            id: BlockId(9),
            target: TARGET,
            segments,
        },
        buffer: None,
        verified: Ok(()),
    };
    step(&mut sink, hole);
    let key = |id| BlockKey {
        peer: PEER,
        block: BlockId(id),
    };
    step(&mut sink, Input::Written(key(9), vec![Ok(())]));
    step(&mut sink, block(0, 0, SegmentKind::Data(Sums::of(b"abcd"))));
    let effects = step(&mut sink, Input::Written(key(0), vec![Ok(())]));
    let granted = Effect::Message(PEER, Message::Credit(vec![(TARGET, 1)]));
    assert!(effects.contains(&granted), "{effects:?}");
}

#[test]
fn entries_outside_the_claims_are_refused() {
    let mut sink = started_with(vec![RelPath::parse(b"b/c").expect("a good path")], false);
    let entry = |index, parent, name: &[u8], kind| Entry {
        index: FileIndex(index),
        parent,
        name: Name::new(name).expect("a good name"),
        kind,
        metadata: Metadata::default(),
    };
    let file = || EntryKind::File {
        size: 3,
        sparse: false,
    };
    let entries = vec![
        entry(0, None, b"a", file()),
        entry(1, None, b"b", EntryKind::Directory),
        entry(2, Some(FileIndex(1)), b"c", file()),
        entry(3, Some(FileIndex(1)), b"d", file()),
    ];
    let effects = step(&mut sink, Input::Message(PEER, Message::NewFiles(entries)));
    let failed = effects.iter().filter_map(|effect| match effect {
        Effect::Report(Event::Failed(failure)) => Some(failure),
        _ => None,
    });
    let failed: Vec<_> = failed
        .map(|failure| (failure.path.to_string(), failure.error.kind))
        .collect();
    let escapes = |path: &str| (path.to_owned(), ErrorKind::PathEscapes);
    assert_eq!(failed, [escapes("a"), escapes("b/d")]);
    let inspected = effects.iter().find_map(|effect| match effect {
        Effect::Inspect(items) => Some(items.iter().map(|item| item.path.to_string()).collect()),
        _ => None,
    });
    assert_eq!(inspected, Some(vec!["b".to_owned(), "b/c".to_owned()]));
}

#[test]
fn refused_duplicate_does_not_free_the_path() {
    let mut sink = started();
    announce_and_inspect(&mut sink, 0, 3, None, None);
    let namesake = |sink: &mut Sink, index| {
        let entry = Entry {
            index: FileIndex(index),
            parent: None,
            name: Name::new(b"a").expect("a good name"),
            kind: EntryKind::File {
                size: 3,
                sparse: false,
            },
            metadata: Metadata::default(),
        };
        let effects = step(sink, Input::Message(PEER, Message::NewFiles(vec![entry])));
        effects.into_iter().find_map(|effect| match effect {
            Effect::Report(Event::Failed(failure)) => Some(failure.error.kind),
            _ => None,
        })
    };
    for index in 1..4 {
        let failed = namesake(&mut sink, index);
        assert_eq!(failed, Some(ErrorKind::AlreadyExists), "entry {index}");
    }
}

/// If the log lists a file without durable ranges, the sink treats the file as new: one object,
/// published in one step.
#[test]
fn empty_log_entry_is_ignored() {
    let resume = |done| Resume {
        done,
        object_bytes: 1,
    };
    let (_, effects) = found(3, None, Some(resume(SummedRanges::new())));
    assert_eq!(effects, found(3, None, None).1);
    let mut done = SummedRanges::new();
    done.insert(ByteRange::between(0, 1), Sums::of(b"a"));
    assert_ne!(effects, found(3, None, Some(resume(done))).1);
}

#[test]
fn resent_ranges_are_reported_if_objects_exceed_the_buffers() {
    let mut done = SummedRanges::new();
    done.insert(ByteRange::between(0, 3), Sums::of(b"abc"));
    let object_bytes = 1 << 40;
    let (_, effects) = found(16, None, Some(Resume { done, object_bytes }));
    let reported = effects.iter().find_map(|effect| match effect {
        Effect::Report(Event::Notice(error)) => Some(error),
        _ => None,
    });
    let reported = reported.expect("said");
    assert!(
        reported
            .cause
            .contains("the 3 durable bytes of the file are sent again"),
        "{reported}"
    );
    assert!(
        reported.file.is_some() && !reported.remedy.is_empty(),
        "{reported:?}"
    );
}

#[test]
fn sink_is_held_when_all_sources_have_rate_zero() {
    let mut sink = started();
    let other = PeerId(7);
    step(&mut sink, Input::PeerUp(other));
    let mut say = |peer, rate| {
        let message = Message::Rate(rate);
        step(&mut sink, Input::Message(peer, message));
        sink.progress().is_held_there
    };
    assert!(!say(PEER, Some(0)), "the other one moves");
    assert!(say(other, Some(0)));
    assert!(!say(PEER, None));
    assert!(!say(PEER, Some(1)), "slow is not shut");
    assert!(say(PEER, Some(0)));
}

#[test]
fn stream_count_is_sent_to_sources_only() {
    let mut sink = started();
    step(&mut sink, Input::PeerUp(PeerId(7)));
    for (count, said) in [(9, 9), (0, 1)] {
        let effects = step(&mut sink, Input::SetStreams(count));
        let reported = effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Message(_, Message::Streams(found)) if *found == said));
        assert_eq!(reported.count(), 2, "{count}: {effects:?}");
    }
    let effects = step(&mut sink, Input::Message(PEER, Message::Streams(3)));
    let refused = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Message(PEER, Message::GoAway(_))));
    assert!(refused, "{effects:?}");
}

#[test]
fn rate_is_shared_evenly_and_never_becomes_zero() {
    let mut sink = started();
    step(&mut sink, Input::PeerUp(PeerId(7)));
    for (rate, part) in [
        (Some(9), Some(4)),
        (Some(1), Some(1)),
        (Some(0), Some(0)),
        (None, None),
    ] {
        let effects = step(&mut sink, Input::SetRate(rate));
        let reported = effects.iter().filter(
            |effect| matches!(effect, Effect::Message(_, Message::Rate(found)) if *found == part),
        );
        assert_eq!(reported.count(), 2, "{rate:?}: {effects:?}");
    }
}

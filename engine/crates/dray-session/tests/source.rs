//! Small scenarios of the source's state machine.

use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BlockId, ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout, Metadata, Name,
    RelPath, StreamId, Sums, TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::Outcome;
use dray_session::source::{Config, Effect, Input, Listed, ReadOutcome, Source};
use dray_wire::message::{
    BlockState, FileClosed, FileId, FileVerdict, Message, Ready, Segment, SegmentKind, Totals,
};
use std::time::Duration;

const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);

fn step(source: &mut Source, input: Input) -> Vec<Effect> {
    source.handle(input, Time::ZERO);
    std::iter::from_fn(|| source.poll()).collect()
}

/// Returns a source that is reading the single object of its single file.
fn reading() -> Source {
    reading_of(true)
}

/// Returns a source that has not received a message from its sink.
fn new(announces_early: bool) -> Source {
    of(announces_early, false)
}

fn of(announces_early: bool, is_driver: bool) -> Source {
    Source::new(Config {
        options: Options::default(),
        buffers: 4,
        buffer_bytes: 1 << 20,
        readers: ThreadCount::Fixed(4),
        segments_max: 16,
        live_entries_max: 8,
        retry: RetryPolicy::default(),
        seed: 1,
        attempt: 1,
        is_driver,
        announces_early,
    })
}

fn ready(object_bytes_max: u64) -> Input {
    ready_of(object_bytes_max, object_bytes_max)
}

fn ready_of(object_bytes_max: u64, pack_bytes_max: u64) -> Input {
    Input::Message(Message::Ready(Ready {
        precision_nanoseconds: 1,
        object_bytes_max,
        live_entries_max: 8,
        pack_bytes_max,
        holes: true,
        ordered_window: None,
    }))
}

/// Returns a source like [`reading`]. `finished` is true if the listing is complete.
fn reading_of(finished: bool) -> Source {
    begun(new(false), 1 << 20, finished)
}

/// Returns a source like [`reading`]. `is_driver` is true if this end is the driver.
fn driving(is_driver: bool) -> Source {
    begun(of(false, is_driver), 1 << 20, true)
}

/// Returns a source like [`reading`]. Its sink accepts packs of at most `pack_bytes_max` bytes.
fn with_pack(pack_bytes_max: u64) -> Source {
    begun(new(false), pack_bytes_max, true)
}

fn begun(mut source: Source, pack_bytes_max: u64, finished: bool) -> Source {
    step(&mut source, ready_of(1 << 20, pack_bytes_max));
    step(&mut source, Input::StreamUp(StreamId(0)));
    announce(&mut source, FILE, 8, finished);
    let credit = Message::Credit(vec![(TARGET, 2)]);
    let effects = step(&mut source, Input::Message(credit));
    assert!(matches!(effects[..], [Effect::Read { .. }]));
    source
}

/// Lists a file, and lets the sink request the file.
fn announce(source: &mut Source, index: FileIndex, size: u64, finished: bool) -> Vec<Effect> {
    list(source, index, size, finished);
    want(source, index, 1 << 20)
}

fn list(source: &mut Source, index: FileIndex, size: u64, finished: bool) -> Vec<Effect> {
    let name = format!("{}", index.0);
    let listed = Listed {
        entry: Entry {
            index,
            parent: None,
            name: Name::new(name.as_bytes()).expect("a good name"),
            kind: EntryKind::File {
                size,
                sparse: false,
            },
            metadata: Metadata::default(),
        },
        path: RelPath::parse(name.as_bytes()).expect("a good path"),
        layout: Layout::Single(TARGET),
    };
    let input = Input::Listed {
        entries: vec![listed],
        failed: Vec::new(),
        finished,
    };
    step(source, input)
}

fn want(source: &mut Source, index: FileIndex, object_bytes: u64) -> Vec<Effect> {
    let verdict = FileVerdict::Want {
        object_bytes,
        layout: Layout::Single(TARGET),
    };
    let wanted = Message::FileIds(vec![FileId { index, verdict }]);
    step(source, Input::Message(wanted))
}

#[test]
fn entries_may_be_announced_before_ready_and_no_data_is_read_before() {
    let mut late = new(false);
    assert!(step(&mut late, Input::Tick).is_empty());

    let mut source = new(true);
    let effects = step(&mut source, Input::Tick);
    assert!(matches!(effects[..], [Effect::List { .. }]));
    step(&mut source, Input::StreamUp(StreamId(0)));
    let effects = list(&mut source, FILE, 8, true);
    let mut wrong = new(true);
    let effects_of_wrong = want(&mut wrong, FILE, 4);
    let Some(Effect::End(Outcome::Failed(error))) = effects_of_wrong.last() else {
        panic!("a decision of one that has not said what it can do: {effects_of_wrong:?}");
    };
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(
        matches!(
            effects[..],
            [
                Effect::Message(Message::NewFiles(_)),
                Effect::Message(Message::ListEnd { entries: 1 }),
            ]
        ),
        "{effects:?}"
    );
    // The sink requests smaller objects than the source would choose.
    step(&mut source, ready(4));
    want(&mut source, FILE, 4);
    let credit = Message::Credit(vec![(TARGET, 4)]);
    let read: u64 = step(&mut source, Input::Message(credit))
        .iter()
        .map(|effect| match effect {
            Effect::Read { parts, .. } => {
                let bytes = parts.iter().map(|part| part.range.length).sum();
                assert!(bytes <= 4, "of a sink that takes 4: {bytes}");
                bytes
            }
            _ => 0,
        })
        .sum();
    assert_eq!(read, 8);
}

#[test]
fn retry_counts_of_a_closed_file_are_removed() {
    let mut source = reading();
    let error = Error::new(ErrorKind::Io, End::Source, "read the file");
    let outcome = ReadOutcome {
        failed: vec![(FILE, error.clone())],
        ..ReadOutcome::default()
    };
    let block = BlockId(0);
    step(&mut source, Input::ReadDone { block, outcome });
    assert_eq!(source.tries_counted(), 1);
    let closed = FileClosed {
        index: FILE,
        result: Err(error),
        bytes_resumed: 0,
    };
    let closed = Message::FileClose(vec![closed]);
    step(&mut source, Input::Message(closed));
    assert_eq!(source.tries_counted(), 0);
}

#[test]
fn reader_limit_is_lifted_when_a_target_blocks_again() {
    let mut source = reading_of(false);
    let read = |effects: &[Effect]| {
        let is_read = |effect: &&Effect| matches!(effect, Effect::Read { .. });
        effects.iter().filter(is_read).count()
    };
    let outcome = ReadOutcome {
        failed: vec![(FILE, Error::new(ErrorKind::ShortRead, End::Source, "read"))],
        enough: Some(1),
        ..ReadOutcome::default()
    };
    let block = BlockId(0);
    step(&mut source, Input::ReadDone { block, outcome });
    let credit = Message::Credit(vec![(TARGET, 4)]);
    step(&mut source, Input::Message(credit));
    // Announce another file, which has two objects.
    let begun = announce(&mut source, FileIndex(1), 2 << 20, true);
    assert_eq!(read(&begun), 1, "one at a time");
    let wake = source.next_wake().expect("it looks again");
    source.handle(Input::Tick, wake);
    let effects: Vec<_> = std::iter::from_fn(|| source.poll()).collect();
    assert_eq!(read(&effects), 1, "the first of them waits");
}

#[test]
fn unstored_verdict_keeps_the_log() {
    let reported = |result| {
        let mut source = reading();
        send(&mut source);
        answer(&mut source, BlockState::Durable);
        close(&mut source, Ok(Sums::EMPTY));
        let effects = step(&mut source, Input::Message(Message::Verdict(ONE_FILE)));
        assert_eq!(effects, [Effect::StoreVerdict(ONE_FILE)]);
        step(&mut source, Input::VerdictStored(result))
    };
    let word = Effect::Message(Message::VerdictStored);
    assert_eq!(reported(Ok(())), std::slice::from_ref(&word));
    let full = Error::new(ErrorKind::NoSpace, End::Here, "store the verdict");
    let effects = reported(Err(full));
    assert!(!effects.contains(&word));
    let end = Effect::End(Outcome::Done(ONE_FILE));
    assert_eq!(effects.last(), Some(&end), "its files are there");
}

/// The totals in the verdict of a sink that has published the file.
const ONE_FILE: Totals = Totals {
    files: 1,
    files_adopted: 0,
    files_skipped: 0,
    files_failed: 0,
    others: 0,
    bytes: 8,
};

/// Returns the result of a read of the whole file.
fn whole() -> ReadOutcome {
    ReadOutcome {
        segments: vec![Segment {
            file: FILE,
            range: ByteRange {
                offset: 0,
                length: 8,
            },
            kind: SegmentKind::Data(Sums::of(b"abcdefgh")),
        }],
        ..ReadOutcome::default()
    }
}

/// Passes the end of the read to the source, which then sends the object.
fn send(source: &mut Source) {
    let outcome = whole();
    let block = BlockId(0);
    let effects = step(source, Input::ReadDone { block, outcome });
    assert!(matches!(effects[..], [Effect::Send { .. }]), "{effects:?}");
}

fn answer(source: &mut Source, state: BlockState) -> Vec<Effect> {
    let states = Message::BlockSync(vec![(BlockId(0), state)]);
    step(source, Input::Message(states))
}

fn close(source: &mut Source, result: Result<Sums, Error>) -> Vec<Effect> {
    let closed = FileClosed {
        index: FILE,
        result,
        bytes_resumed: 0,
    };
    step(source, Input::Message(Message::FileClose(vec![closed])))
}

/// Returns the reason for the end of the session if the source has reported a protocol violation.
fn broken(effects: &[Effect]) -> Option<String> {
    let ends = effects
        .iter()
        .filter(|effect| matches!(effect, Effect::End(_)));
    assert!(ends.count() <= 1, "{effects:?}");
    effects.iter().find_map(|effect| match effect {
        Effect::End(Outcome::Failed(error)) if error.kind == ErrorKind::Protocol => {
            Some(error.cause.clone())
        }
        _ => None,
    })
}

fn verdict(source: &mut Source, totals: Totals) -> Vec<Effect> {
    step(source, Input::Message(Message::Verdict(totals)))
}

#[test]
fn verdict_with_an_open_entry_is_refused() {
    // Sources in the states before publication: listed, read, sent, written, durable.
    let mut listed = new(false);
    step(&mut listed, ready(1 << 20));
    list(&mut listed, FILE, 8, true);
    let mut sent = reading();
    send(&mut sent);
    let mut written = reading();
    send(&mut written);
    answer(&mut written, BlockState::Written);
    let mut durable = reading();
    send(&mut durable);
    answer(&mut durable, BlockState::Durable);
    for mut source in [listed, reading(), sent, written, durable] {
        let effects = verdict(&mut source, ONE_FILE);
        let cause = "the sink sent a verdict, but 1 of 1 entries have not ended";
        assert_eq!(broken(&effects).as_deref(), Some(cause));
        assert!(!effects.contains(&Effect::StoreVerdict(ONE_FILE)));
    }
}

#[test]
fn close_before_durable_bytes_is_refused() {
    // The file is too large for a pack, so its object must be durable before the sink publishes the
    // file.
    let large = |state: Option<BlockState>| {
        let mut source = with_pack(2);
        if let Some(state) = state {
            send(&mut source);
            answer(&mut source, state);
        }
        close(&mut source, Ok(Sums::EMPTY))
    };
    assert_eq!(
        broken(&large(None)).as_deref(),
        Some("the sink reported entry 0 as published, although only 0 of its 8 bytes are durable")
    );
    let written = large(Some(BlockState::Written));
    assert_eq!(
        broken(&written).as_deref(),
        Some("the sink reported entry 0 as published, although only 0 of its 8 bytes are durable")
    );
    assert_eq!(broken(&large(Some(BlockState::Durable))), None);
    // The sink may close a small file as soon as its object was sent.
    let mut small = reading();
    assert!(broken(&close(&mut small, Ok(Sums::EMPTY))).is_some());
    let mut small = reading();
    send(&mut small);
    assert_eq!(broken(&close(&mut small, Ok(Sums::EMPTY))), None);
    // After the sink has refused the object of a small file, it must not report the file as
    // published.
    let mut small = reading();
    send(&mut small);
    let busy = Error::new(ErrorKind::Busy, End::Sink, "write");
    answer(&mut small, BlockState::Nack(busy));
    assert!(broken(&close(&mut small, Ok(Sums::EMPTY))).is_some());
    // The sink may report a failure at any time.
    let failed = Err(Error::new(ErrorKind::NoSpace, End::Sink, "write"));
    assert_eq!(broken(&close(&mut reading(), failed)), None);
}

#[test]
fn durable_block_of_a_failed_file_counts_no_durable_bytes() {
    let durable = |fails_first: bool| {
        let mut source = reading();
        send(&mut source);
        answer(&mut source, BlockState::Written);
        if fails_first {
            let failed = Err(Error::new(ErrorKind::NotFound, End::Sink, "sync the file"));
            close(&mut source, failed);
        }
        let effects = answer(&mut source, BlockState::Durable);
        assert_eq!(broken(&effects), None);
        source.progress().bytes_durable
    };
    assert_eq!(durable(true), 0);
    assert_eq!(durable(false), 8);
}

#[test]
fn close_of_an_unrequested_file_is_refused() {
    let mut source = new(false);
    step(&mut source, ready(1 << 20));
    list(&mut source, FILE, 0, true);
    assert!(broken(&close(&mut source, Ok(Sums::EMPTY))).is_some());
}

#[test]
fn state_of_an_unsent_block_ends_the_session() {
    for state in [
        BlockState::Written,
        BlockState::Durable,
        BlockState::Dropped,
    ] {
        let mut source = reading();
        assert!(broken(&answer(&mut source, state)).is_some());
    }
}

#[test]
fn verdict_must_match_the_closed_entries() {
    let done = |is_driver| {
        let mut source = driving(is_driver);
        send(&mut source);
        answer(&mut source, BlockState::Durable);
        close(&mut source, Ok(Sums::EMPTY));
        source
    };
    let fewer = Totals {
        files: 0,
        ..ONE_FILE
    };
    let more = Totals {
        files_failed: 3,
        ..ONE_FILE
    };
    for is_driver in [true, false] {
        let effects = verdict(&mut done(is_driver), fewer);
        assert_eq!(
            broken(&effects).as_deref(),
            Some(
                "the verdict of the sink counts 0 files, but the sink's earlier messages reported 1"
            )
        );
        assert_eq!(broken(&verdict(&mut done(is_driver), ONE_FILE)), None);
        // A sink that is the driver may have other sources too, so its totals may be higher than
        // those of this source.
        let effects = verdict(&mut done(is_driver), more);
        assert_eq!(broken(&effects).is_some(), is_driver);
    }
    let mut source = done(true);
    verdict(&mut source, ONE_FILE);
    assert!(broken(&verdict(&mut source, ONE_FILE)).is_some(), "twice");
    // A verdict that does not count a failed file must be refused.
    let mut failed = driving(true);
    close(
        &mut failed,
        Err(Error::new(ErrorKind::NoSpace, End::Sink, "write")),
    );
    assert!(broken(&verdict(&mut failed, ONE_FILE)).is_some());
}

#[test]
fn close_of_a_folder_before_its_end_is_refused() {
    let folder = |kind| Listed {
        entry: Entry {
            index: FILE,
            parent: None,
            name: Name::new(b"d").expect("a good name"),
            kind,
            metadata: Metadata::default(),
        },
        path: RelPath::parse(b"d").expect("a good path"),
        layout: Layout::Single(TARGET),
    };
    let listed = |ended: bool| {
        let mut source = new(false);
        step(&mut source, ready(1 << 20));
        let mut entries = vec![folder(EntryKind::Directory)];
        entries.extend(ended.then(|| folder(EntryKind::DirectoryEnd)));
        let input = Input::Listed {
            entries,
            failed: Vec::new(),
            finished: ended,
        };
        step(&mut source, input);
        source
    };
    assert!(broken(&close(&mut listed(false), Ok(Sums::EMPTY))).is_some());
    assert!(broken(&want(&mut listed(true), FILE, 4)).is_some());
    let mut source = listed(true);
    assert_eq!(broken(&close(&mut source, Ok(Sums::EMPTY))), None);
    let totals = Totals {
        others: 1,
        ..Totals::default()
    };
    let stored = Effect::StoreVerdict(totals);
    assert!(verdict(&mut source, totals).contains(&stored));
}

#[test]
fn zero_rate_of_either_end_stops_reads_and_sends() {
    let own: fn(Option<u64>) -> Input = Input::SetRate;
    let peers: fn(Option<u64>) -> Input = |rate| Input::Message(Message::Rate(rate));
    for (rate, opened) in [(own, None), (peers, Some(1 << 30))] {
        let (shut, open) = (|| rate(Some(0)), || rate(opened));
        // Data that was read before the rate became zero must not be sent.
        let mut source = reading();
        let reported = step(&mut source, shut());
        let is_own = reported == [Effect::Message(Message::Rate(Some(0)))];
        assert!(is_own || reported.is_empty(), "{reported:?}");
        assert_eq!(source.progress().is_held_there, !is_own);
        let block = BlockId(0);
        let outcome = whole();
        assert_eq!(step(&mut source, Input::ReadDone { block, outcome }), []);
        let mut effects = step(&mut source, open());
        assert!(!source.progress().is_held_there);
        if is_own {
            // The source reports to the other end that data moves again.
            assert_eq!(effects.remove(0), Effect::Message(Message::Rate(None)));
        }
        assert!(matches!(effects[..], [Effect::Send { .. }]), "{effects:?}");
        // A read that must be retried also waits while the rate is zero, even if its retry is due.
        let mut source = reading();
        let outcome = ReadOutcome {
            failed: vec![(FILE, Error::new(ErrorKind::Io, End::Source, "read"))],
            ..ReadOutcome::default()
        };
        step(&mut source, Input::ReadDone { block, outcome });
        step(&mut source, shut());
        let late = Time::ZERO + Duration::from_secs(100_000);
        source.handle(Input::Tick, late);
        let reported = source.poll();
        assert!(matches!(
            reported,
            Some(Effect::Message(Message::Profile(_)))
        ));
        assert_eq!(source.poll(), None, "it waits");
        source.handle(open(), late);
        // The token bucket is empty at first, so no read starts immediately.
        source.handle(Input::Tick, late + Duration::from_secs(1));
        let mut effects = std::iter::from_fn(|| source.poll());
        assert!(effects.any(|effect| matches!(effect, Effect::Read { .. })));
    }
}

#[test]
fn source_with_zero_rate_is_cancelled_immediately() {
    let mut source = reading();
    step(&mut source, Input::SetRate(Some(0)));
    let effects = step(&mut source, Input::Cancel { purge: false });
    let cancel = Message::Cancel {
        attempt: 1,
        purge: false,
    };
    assert_eq!(effects, [Effect::Message(cancel)]);
}

#[test]
fn a_source_that_was_cancelled_before_its_sink_is_ready_ends_as_cancelled() {
    let mut source = new(false);
    step(&mut source, Input::Cancel { purge: true });
    assert_eq!(step(&mut source, ready(1 << 20)), []);
    let effects = step(&mut source, Input::Message(Message::Bye));
    assert_eq!(effects, [Effect::End(Outcome::Cancelled)]);
}

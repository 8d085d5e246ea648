//! Small scenarios of the source's machine.

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
    FileClosed, FileId, FileVerdict, Message, Ready, Segment, SegmentKind, Totals,
};
use std::time::Duration;

const FILE: FileIndex = FileIndex(0);
const TARGET: TargetId = TargetId(3);

fn step(source: &mut Source, input: Input) -> Vec<Effect> {
    source.handle(input, Time::ZERO);
    std::iter::from_fn(|| source.poll()).collect()
}

/// A source that reads the one object of its one file.
fn reading() -> Source {
    reading_of(true)
}

/// One that knows nothing of its sink.
fn new(announces_early: bool) -> Source {
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
        is_driver: false,
        announces_early,
    })
}

fn ready(object_bytes_max: u64) -> Input {
    Input::Message(Message::Ready(Ready {
        precision_nanoseconds: 1,
        object_bytes_max,
        live_entries_max: 8,
        pack_bytes_max: object_bytes_max,
        holes: true,
        ordered_window: None,
    }))
}

/// The same; whether there is no other file.
fn reading_of(finished: bool) -> Source {
    let mut source = new(false);
    step(&mut source, ready(1 << 20));
    step(&mut source, Input::StreamUp(StreamId(0)));
    announce(&mut source, FILE, 8, finished);
    let credit = Message::Credit(vec![(TARGET, 2)]);
    let effects = step(&mut source, Input::Message(credit));
    assert!(matches!(effects[..], [Effect::Read { .. }]));
    source
}

/// Has a file listed, and wanted.
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
fn what_there_is_may_be_said_before_the_sink_is_ready_and_nothing_is_read_before() {
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
    // The sink's objects are smaller than this end would make them.
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
fn tries_of_a_closed_file_are_forgotten() {
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
fn a_target_that_begins_to_wait_is_read_by_more_again() {
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
    // Another file, of two objects.
    let begun = announce(&mut source, FileIndex(1), 2 << 20, true);
    assert_eq!(read(&begun), 1, "one at a time");
    let wake = source.next_wake().expect("it looks again");
    source.handle(Input::Tick, wake);
    let effects: Vec<_> = std::iter::from_fn(|| source.poll()).collect();
    assert_eq!(read(&effects), 1, "the first of them waits");
}

#[test]
fn a_verdict_that_could_not_be_stored_leaves_the_log() {
    let told = |result| {
        let mut source = reading();
        let verdict = Message::Verdict(Totals::default());
        let effects = step(&mut source, Input::Message(verdict));
        assert_eq!(effects, [Effect::StoreVerdict(Totals::default())]);
        step(&mut source, Input::VerdictStored(result))
    };
    let word = Effect::Message(Message::VerdictStored);
    assert_eq!(told(Ok(())), std::slice::from_ref(&word));
    let full = Error::new(ErrorKind::NoSpace, End::Here, "store the verdict");
    let effects = told(Err(full));
    assert!(!effects.contains(&word));
    let end = Effect::End(Outcome::Done(Totals::default()));
    assert_eq!(effects.last(), Some(&end), "its files are there");
}

#[test]
fn a_rate_of_zero_of_either_end_sends_and_reads_nothing_more_until_there_is_another() {
    let own: fn(Option<u64>) -> Input = Input::SetRate;
    let peers: fn(Option<u64>) -> Input = |rate| Input::Message(Message::Rate(rate));
    for (rate, opened) in [(own, None), (peers, Some(1 << 30))] {
        let (shut, open) = (|| rate(Some(0)), || rate(opened));
        // What was read before stays here.
        let mut source = reading();
        let told = step(&mut source, shut());
        let is_own = told == [Effect::Message(Message::Rate(Some(0)))];
        assert!(is_own || told.is_empty(), "{told:?}");
        assert_eq!(source.progress().is_held_there, !is_own);
        let block = BlockId(0);
        let outcome = ReadOutcome {
            segments: vec![Segment {
                file: FILE,
                range: ByteRange {
                    offset: 0,
                    length: 8,
                },
                kind: SegmentKind::Data(Sums::of(b"abcdefgh")),
            }],
            ..ReadOutcome::default()
        };
        assert_eq!(step(&mut source, Input::ReadDone { block, outcome }), []);
        let mut effects = step(&mut source, open());
        assert!(!source.progress().is_held_there);
        if is_own {
            // The other end hears that it moves again.
            assert_eq!(effects.remove(0), Effect::Message(Message::Rate(None)));
        }
        assert!(matches!(effects[..], [Effect::Send { .. }]), "{effects:?}");
        // What is to be read again waits as well, however late it is.
        let mut source = reading();
        let outcome = ReadOutcome {
            failed: vec![(FILE, Error::new(ErrorKind::Io, End::Source, "read"))],
            ..ReadOutcome::default()
        };
        step(&mut source, Input::ReadDone { block, outcome });
        step(&mut source, shut());
        let late = Time::ZERO + Duration::from_secs(100_000);
        source.handle(Input::Tick, late);
        let told = source.poll();
        assert!(matches!(told, Some(Effect::Message(Message::Profile(_)))));
        assert_eq!(source.poll(), None, "it waits");
        source.handle(open(), late);
        // The bucket begins empty.
        source.handle(Input::Tick, late + Duration::from_secs(1));
        let mut effects = std::iter::from_fn(|| source.poll());
        assert!(effects.any(|effect| matches!(effect, Effect::Read { .. })));
    }
}

#[test]
fn a_source_that_is_shut_hears_of_a_cancellation_at_once() {
    let mut source = reading();
    step(&mut source, Input::SetRate(Some(0)));
    let effects = step(&mut source, Input::Cancel { purge: false });
    let cancel = Message::Cancel {
        attempt: 1,
        purge: false,
    };
    assert_eq!(effects, [Effect::Message(cancel)]);
}

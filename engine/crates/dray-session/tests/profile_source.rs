//! Tests of the stages in the profile of a source: each wait counts for the stage that causes it.

use dray_core::options::Options;
use dray_core::profile::{Stage, Times};
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
const STREAM: StreamId = StreamId(0);

/// Object size in bytes.
const OBJECT: u64 = 4;

/// A source with a simulated clock, which advances only in [`ClockedSource::wait`].
struct ClockedSource {
    source: Source,
    now: Time,
}

impl ClockedSource {
    /// Creates a source that has received the sink's READY message. The source has eight buffers,
    /// two readers per target and one stream.
    fn new() -> Self {
        let source = Source::new(Config {
            options: Options::default(),
            buffers: 8,
            buffer_bytes: OBJECT,
            readers: ThreadCount::Fixed(2),
            segments_max: 16,
            live_entries_max: 8,
            retry: RetryPolicy::default(),
            seed: 1,
            attempt: 1,
            is_driver: false,
            announces_early: false,
        });
        let mut clocked = Self {
            source,
            now: Time::ZERO,
        };
        // The source does not count the time before the sink's READY.
        clocked.wait(7);
        let ready = Ready {
            precision_nanoseconds: 1,
            object_bytes_max: OBJECT,
            live_entries_max: 8,
            pack_bytes_max: 0,
            holes: true,
            ordered_window: None,
        };
        clocked.step(Input::Message(Message::Ready(ready)));
        clocked.step(Input::StreamUp(STREAM));
        clocked
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.source.handle(input, self.now);
        std::iter::from_fn(|| self.source.poll()).collect()
    }

    /// Announces one file with `objects` objects, and ends the listing.
    fn list(&mut self, objects: u64) {
        let size = objects * OBJECT;
        let listed = Listed {
            entry: Entry {
                index: FILE,
                parent: None,
                name: Name::new(b"a").expect("a good name"),
                kind: EntryKind::File {
                    size,
                    sparse: false,
                },
                metadata: Metadata::default(),
            },
            path: RelPath::parse(b"a").expect("a good path"),
            layout: Layout::Single(TARGET),
        };
        self.step(Input::Listed {
            entries: vec![listed],
            failed: Vec::new(),
            finished: true,
        });
    }

    fn decide(&mut self) {
        let verdict = FileVerdict::Want {
            object_bytes: OBJECT,
            layout: Layout::Single(TARGET),
        };
        let wanted = FileId {
            index: FILE,
            verdict,
        };
        self.step(Input::Message(Message::FileIds(vec![wanted])));
    }

    /// Reports that the file has failed at the sink. Returns the input with the sink's verdict.
    fn close(&mut self) -> Input {
        let closed = FileClosed {
            index: FILE,
            result: Err(Error::new(ErrorKind::NoSpace, End::Sink, "write the file")),
            bytes_resumed: 0,
        };
        self.step(Input::Message(Message::FileClose(vec![closed])));
        Input::Message(Message::Verdict(Totals {
            files_failed: 1,
            ..Totals::default()
        }))
    }

    fn grant(&mut self, count: u32) -> Vec<Effect> {
        self.step(Input::Message(Message::Credit(vec![(TARGET, count)])))
    }

    /// Returns a source with `objects` objects and credit for all of them.
    fn with_objects(objects: u64) -> Self {
        let mut clocked = Self::new();
        clocked.list(objects);
        clocked.decide();
        clocked.grant(100);
        clocked
    }

    fn read(&mut self, block: u64) -> Vec<Effect> {
        let range = ByteRange {
            offset: block * OBJECT,
            length: OBJECT,
        };
        let segment = Segment {
            file: FILE,
            range,
            kind: SegmentKind::Data(Sums::of(b"abcd")),
        };
        let outcome = ReadOutcome {
            segments: vec![segment],
            ..ReadOutcome::default()
        };
        let block = BlockId(block);
        self.step(Input::ReadDone { block, outcome })
    }

    fn sent(&mut self, block: u64) -> Vec<Effect> {
        self.step(Input::Sent {
            block: BlockId(block),
        })
    }

    /// Lets 3 s pass, and checks that the source counts them for `stage`.
    #[track_caller]
    fn assert_stage(&mut self, stage: Stage) {
        let before = self.source.profile(self.now).source;
        self.wait(3);
        let mut times = Times::default();
        times.add(stage, Duration::from_secs(3));
        let since = self.source.profile(self.now).source.since(&before);
        assert_eq!(since, times, "{:?}", since.iter().collect::<Vec<_>>());
    }
}

#[test]
fn source_stages_from_listing_to_verdict() {
    let mut clocked = ClockedSource::new();
    clocked.assert_stage(Stage::List);
    clocked.list(1);
    clocked.assert_stage(Stage::Decide);
    clocked.decide();
    clocked.assert_stage(Stage::Credit);
    clocked.grant(1);
    clocked.assert_stage(Stage::Read);
    clocked.read(0);
    clocked.assert_stage(Stage::Network);
    let effects = clocked.sent(0);
    assert!(
        matches!(effects[..], [Effect::Message(Message::Profile(_))]),
        "a sink that drives hears nothing after it: {effects:?}"
    );
    clocked.assert_stage(Stage::Verdict);
    let durable = vec![(BlockId(0), BlockState::Durable)];
    clocked.step(Input::Message(Message::BlockSync(durable)));
    let closed = FileClosed {
        index: FILE,
        result: Ok(Sums::of(b"abcd")),
        bytes_resumed: 0,
    };
    clocked.step(Input::Message(Message::FileClose(vec![closed])));
    clocked.assert_stage(Stage::Verdict);
    clocked.step(Input::Message(Message::Verdict(Totals::default())));
    clocked.wait(5);
    clocked.step(Input::VerdictStored(Ok(())));
    let counted: Duration = clocked
        .source
        .profile(clocked.now)
        .source
        .iter()
        .map(|(_, time)| time)
        .sum();
    assert_eq!(
        counted,
        Duration::from_secs(21),
        "neither the way in nor out"
    );
}

#[test]
fn slow_readers_count_as_read_stage() {
    let mut clocked = ClockedSource::with_objects(8);
    clocked.assert_stage(Stage::Read);
    // The first object is sent immediately. Both readers read the next two objects.
    clocked.read(0);
    clocked.assert_stage(Stage::Read);
    clocked.sent(0);
    clocked.assert_stage(Stage::Read);
}

#[test]
fn blocked_streams_count_as_network_stage() {
    let mut clocked = ClockedSource::with_objects(8);
    for block in 0..3 {
        clocked.read(block);
    }
    // A third object waits because the stream already holds two.
    clocked.assert_stage(Stage::Network);
    clocked.sent(0);
    clocked.assert_stage(Stage::Read);
    let mut none = ClockedSource::with_objects(8);
    none.step(Input::StreamLost(STREAM));
    none.read(0);
    none.read(1);
    none.assert_stage(Stage::Network);
}

#[test]
fn missing_credit_counts_as_credit_stage_unless_streams_are_full() {
    let mut clocked = ClockedSource::new();
    clocked.list(8);
    clocked.decide();
    clocked.grant(2);
    clocked.read(0);
    // The next object could not start even if the read of this object ended, because there is no
    // credit.
    clocked.assert_stage(Stage::Credit);
    clocked.read(1);
    clocked.assert_stage(Stage::Network);
    clocked.sent(0);
    clocked.assert_stage(Stage::Credit);
    clocked.sent(1);
    clocked.assert_stage(Stage::Credit);
}

#[test]
fn zero_rate_counts_as_rate_stage() {
    let mut clocked = ClockedSource::with_objects(8);
    clocked.step(Input::SetRate(Some(0)));
    clocked.assert_stage(Stage::Rate);
    // This object was read before the rate became zero, so it must not be sent.
    clocked.read(0);
    clocked.assert_stage(Stage::Rate);
    clocked.step(Input::SetRate(None));
    clocked.assert_stage(Stage::Read);
    let mut slow = ClockedSource::with_objects(8);
    slow.step(Input::SetRate(Some(1)));
    slow.read(0);
    slow.read(1);
    slow.sent(0);
    slow.sent(1);
    // The bucket is empty. One object may overdraw the bucket.
    slow.wait(1);
    slow.step(Input::Tick);
    slow.read(2);
    slow.sent(2);
    slow.assert_stage(Stage::Rate);
}

#[test]
fn rate_waits_of_a_stream_move_to_the_rate_stage() {
    let mut clocked = ClockedSource::with_objects(8);
    for block in 0..3 {
        clocked.read(block);
    }
    clocked.wait(3);
    clocked.step(Input::Held(Duration::from_secs(2)));
    let times = clocked.source.profile(clocked.now).source;
    assert_eq!(times.of(Stage::Rate), Duration::from_secs(2));
    assert_eq!(times.of(Stage::Network), Duration::from_secs(1));
    // The source moves at most the time of the network stage to the rate stage, so the sum of the
    // stages does not change.
    clocked.step(Input::Held(Duration::from_secs(9)));
    let times = clocked.source.profile(clocked.now).source;
    assert_eq!(times.of(Stage::Rate), Duration::from_secs(3));
    assert_eq!(times.of(Stage::Network), Duration::ZERO);
}

#[test]
fn object_counts_as_sent_when_the_stream_or_sink_has_it() {
    let mut clocked = ClockedSource::with_objects(8);
    clocked.read(0);
    clocked.read(1);
    assert_eq!(clocked.source.progress().objects_sent, 0);
    clocked.sent(0);
    assert_eq!(clocked.source.progress().bytes_sent, OBJECT);
    // The sink's answer about the object arrives before the stream reports the object as sent.
    let durable = vec![(BlockId(1), BlockState::Durable)];
    clocked.step(Input::Message(Message::BlockSync(durable)));
    assert_eq!(clocked.source.progress().bytes_sent, 2 * OBJECT);
    clocked.sent(1);
    assert_eq!(clocked.source.progress().objects_sent, 2);
    // Objects on a lost stream count as sent, because they may have arrived.
    clocked.read(2);
    clocked.step(Input::StreamLost(STREAM));
    assert_eq!(clocked.source.progress().bytes_sent, 3 * OBJECT);
}

#[test]
fn pending_retries_count_as_retry_stage() {
    let mut clocked = ClockedSource::with_objects(1);
    let outcome = ReadOutcome {
        failed: vec![(FILE, Error::new(ErrorKind::Io, End::Source, "read"))],
        ..ReadOutcome::default()
    };
    let block = BlockId(0);
    clocked.step(Input::ReadDone { block, outcome });
    clocked.assert_stage(Stage::Retry);
}

fn profile_of(effects: &[Effect]) -> Option<Times> {
    effects.iter().find_map(|effect| match effect {
        Effect::Message(Message::Profile(times)) => Some(*times),
        _ => None,
    })
}

#[test]
fn profile_is_sent_periodically_and_before_the_end() {
    let mut clocked = ClockedSource::with_objects(8);
    let mut reported = Vec::new();
    for block in 0..6 {
        clocked.wait(4);
        let mut effects = clocked.read(block);
        effects.extend(clocked.sent(block));
        reported.extend(profile_of(&effects).map(|times| times.of(Stage::Read)));
    }
    let seconds = |seconds| Duration::from_secs(seconds);
    assert_eq!(
        reported,
        [seconds(4), seconds(16)],
        "the clock began 7 s before"
    );
    let verdict = clocked.close();
    clocked.step(verdict);
    let effects = clocked.step(Input::VerdictStored(Ok(())));
    let last = [
        Effect::Message(Message::Profile(clocked.source.progress().profile.source)),
        Effect::Message(Message::VerdictStored),
    ];
    assert_eq!(effects, last);
}

#[test]
fn stopping_source_sends_its_profile_first() {
    let error = || Error::new(ErrorKind::Busy, End::Source, "go on");
    let cancel = Message::Cancel {
        attempt: 1,
        purge: false,
    };
    let stops = [
        (Input::Cancel { purge: false }, None::<Input>),
        (Input::Stopping(error()), None),
        (Input::Message(cancel), None),
        // The sink sends BYE before its verdict.
        (Input::Message(Message::Bye), None),
    ];
    // All files are finished, but this end cannot store the verdict.
    let unwritten = (None, Some(Input::VerdictStored(Err(error()))));
    let stops = stops.map(|(input, then)| (Some(input), then));
    for (input, then) in stops.into_iter().chain([unwritten]) {
        let mut clocked = ClockedSource::with_objects(8);
        clocked.wait(4);
        let input = input.unwrap_or_else(|| clocked.close());
        let mut effects = clocked.step(input);
        effects.extend(then.into_iter().flat_map(|then| clocked.step(then)));
        let reported = profile_of(&effects).expect("told");
        assert_eq!(reported.of(Stage::Read), Duration::from_secs(4));
        let place = |is: fn(&Message) -> bool| {
            effects
                .iter()
                .position(|effect| matches!(effect, Effect::Message(message) if is(message)))
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

#[test]
fn profile_of_the_sink_is_kept_separately() {
    let mut clocked = ClockedSource::with_objects(8);
    let mut times = Times::default();
    times.add(Stage::Write, Duration::from_secs(9));
    clocked.step(Input::Message(Message::Profile(times)));
    assert_eq!(clocked.source.progress().profile.sink, times);
    // The session neither waits for a profile nor ends because of one.
    let effects = clocked.step(Input::Message(Message::Profile(Times::default())));
    let is_end = |effect: &Effect| matches!(effect, Effect::End(Outcome::Failed(_)));
    assert!(!effects.iter().any(is_end), "{effects:?}");
}

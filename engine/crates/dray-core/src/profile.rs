//! Profile of a transfer: the time that each end spent in each [`Stage`]. An end is in one stage at
//! any moment. The stage with the most time is the bottleneck.
//!
//! This module does not determine the current stage of an end. The state machine of the end reports
//! the stage.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// Work or wait of an end. The wire protocol uses these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The source has nothing to send, because its listing is not complete.
    List = 1,
    /// At the source: the source waits for the sink's decisions about the announced files. At the
    /// sink: the sink examines existing files and opens partial files.
    Decide = 2,
    /// The source waits because a rate limit closes its gate.
    Rate = 3,
    /// The source waits because all its readers are busy.
    Read = 4,
    /// The source has objects to send, and no stream accepts them.
    Network = 5,
    /// The source has no credit: all buffers of the sink are full or reserved for objects in
    /// flight.
    Credit = 6,
    /// The source waits before it retries an object.
    Retry = 7,
    /// The source has no object left to send. It waits until the sink finishes the files.
    Verdict = 8,
    /// The sink has no object to write, because no object has arrived.
    Arrival = 9,
    /// The sink waits because its writers are busy.
    Write = 10,
    /// The sink makes written data durable and accepts no objects until the data is durable.
    Sync = 11,
    /// The sink reads files back or publishes them.
    Publish = 12,
}

const STAGES: usize = 12;

impl Stage {
    /// All stages, ordered by number.
    pub const ALL: [Self; STAGES] = [
        Self::List,
        Self::Decide,
        Self::Rate,
        Self::Read,
        Self::Network,
        Self::Credit,
        Self::Retry,
        Self::Verdict,
        Self::Arrival,
        Self::Write,
        Self::Sync,
        Self::Publish,
    ];

    /// Returns the number of this stage in the wire protocol.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the stage with this number; `None` for a stage of a later version.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Returns the name of this stage in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Decide => "decide",
            Self::Rate => "rate",
            Self::Read => "read",
            Self::Network => "network",
            Self::Credit => "credit",
            Self::Retry => "retry",
            Self::Verdict => "verdict",
            Self::Arrival => "arrival",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Publish => "publish",
        }
    }

    const fn index(self) -> usize {
        self as usize - 1
    }

    /// Returns true if a source in this stage waits for the sink. The stages of the sink then show
    /// the reason.
    const fn is_the_sinks(self) -> bool {
        matches!(self, Self::Decide | Self::Credit | Self::Verdict)
    }
}

/// Time that an end has spent in each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times([u64; STAGES]);

impl Times {
    /// Adds `length` to the time of a stage.
    pub fn add(&mut self, stage: Stage, length: Duration) {
        let time = &mut self.0[stage.index()];
        *time = time.saturating_add(crate::time::nanos(length));
    }

    /// Moves at most `length` from the time of one stage to the time of another stage.
    pub fn reassign(&mut self, from: Stage, to: Stage, length: Duration) {
        let moved = crate::time::nanos(length).min(self.0[from.index()]);
        self.0[from.index()] -= moved;
        self.0[to.index()] = self.0[to.index()].saturating_add(moved);
    }

    /// Returns the time spent in a stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.0[stage.index()])
    }

    /// Returns the stages with a time above zero, ordered by number.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Duration)> + '_ {
        let all = Stage::ALL.into_iter().map(|stage| (stage, self.of(stage)));
        all.filter(|(_, time)| !time.is_zero())
    }

    /// Returns true if no time has been recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|time| *time == 0)
    }

    /// Adds the times of another session, or of another end.
    pub fn join(&mut self, other: &Self) {
        for (time, more) in self.0.iter_mut().zip(other.0) {
            *time = time.saturating_add(more);
        }
    }

    /// Returns the difference between these times and the times at an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (time, before) in since.0.iter_mut().zip(earlier.0) {
            *time = time.saturating_sub(before);
        }
        since
    }

    fn total(&self) -> Duration {
        self.iter()
            .fold(Duration::ZERO, |sum, (_, time)| sum.saturating_add(time))
    }

    /// Returns the stage with the most time among the stages that satisfy `which`, if it has at
    /// least a third of the total time.
    fn most(&self, which: impl Fn(Stage) -> bool) -> Option<(Stage, Duration)> {
        let total = self.total();
        let among = self.iter().filter(|(stage, _)| which(*stage));
        let most = among.max_by_key(|(_, time)| *time)?;
        is_a_third(most.1, total).then_some(most)
    }
}

fn is_a_third(part: Duration, of: Duration) -> bool {
    !part.is_zero() && part.saturating_mul(3) >= of
}

/// Times of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Times of the source.
    pub source: Times,
    /// Times of the sink.
    pub sink: Times,
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Serializes the times as seconds by stage name, rounded to milliseconds.
impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        serializer.collect_map(self.iter().map(|(stage, time)| (stage, seconds(time))))
    }
}

/// Deserializes the times. Unknown stage names, and values that are not durations, are ignored.
impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let mut times = Self::default();
        for stage in Stage::ALL {
            let length = seconds.get(stage.name()).copied().unwrap_or_default();
            times.add(
                stage,
                Duration::try_from_secs_f64(length).unwrap_or_default(),
            );
        }
        Ok(times)
    }
}

impl Profile {
    /// Adds the profile of another session.
    pub fn join(&mut self, other: &Self) {
        self.source.join(&other.source);
        self.sink.join(&other.sink);
    }

    /// Returns the bottleneck of the transfer: a stage that took at least a third of the total time
    /// of its end (source or sink). If the source's longest own stage took at least as long as all
    /// its waits for the sink, this stage is the bottleneck. Otherwise the longest stage in which
    /// the sink worked is the bottleneck. If the sink had no such stage, the result is the stage in
    /// which the source waited longest for the sink. In this case the pool of the sink is too
    /// small, or the answers of the sink take long.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Stage> {
        let at_work = |stage| stage != Stage::Arrival;
        let sinks = || self.sink.most(at_work).map(|(stage, _)| stage);
        if self.source.is_empty() {
            return sinks();
        }
        let all = self.source.total();
        let waited = Stage::ALL
            .into_iter()
            .filter(|stage| stage.is_the_sinks())
            .fold(Duration::ZERO, |sum, stage| {
                sum.saturating_add(self.source.of(stage))
            });
        match self.source.most(|stage| !stage.is_the_sinks()) {
            Some((stage, time)) if time >= waited => Some(stage),
            Some(_) | None if is_a_third(waited, all) => sinks().or_else(|| {
                let most = self.source.most(Stage::is_the_sinks);
                most.map(|(stage, _)| stage)
            }),
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Profile, Stage, Times};
    use std::time::Duration;

    fn times(parts: &[(Stage, u64)]) -> Times {
        let mut times = Times::default();
        for (stage, seconds) in parts {
            times.add(*stage, Duration::from_secs(*seconds));
        }
        times
    }

    fn bottleneck(source: &[(Stage, u64)], sink: &[(Stage, u64)]) -> Option<Stage> {
        let (source, sink) = (times(source), times(sink));
        Profile { source, sink }.bottleneck()
    }

    #[test]
    fn numbers_and_names_are_each_of_one_stage() {
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(stage.number()), place + 1);
            assert_eq!(Stage::from_number(stage.number()), Some(stage));
            let same = Stage::ALL.iter().filter(|one| one.name() == stage.name());
            assert_eq!(same.count(), 1, "{stage:?}");
        }
        assert_eq!(Stage::from_number(0), None);
        assert_eq!(Stage::from_number(13), None);
    }

    #[test]
    fn a_source_knows_that_it_is_slow_itself() {
        let idle = [(Stage::Arrival, 9), (Stage::Write, 1)];
        for stage in [Stage::List, Stage::Rate, Stage::Read, Stage::Network] {
            let source = [(stage, 6), (Stage::Verdict, 4)];
            assert_eq!(bottleneck(&source, &idle), Some(stage));
        }
    }

    #[test]
    fn where_the_source_waits_for_the_sink_the_sink_says_what_for() {
        let source = [(Stage::Credit, 4), (Stage::Verdict, 2), (Stage::Read, 4)];
        let sink = [(Stage::Arrival, 5), (Stage::Sync, 4), (Stage::Write, 1)];
        assert_eq!(bottleneck(&source, &sink), Some(Stage::Sync));
        // The sink had no work, because its pool is too small for the objects in flight.
        assert_eq!(
            bottleneck(&source, &[(Stage::Arrival, 9), (Stage::Write, 1)]),
            Some(Stage::Credit)
        );
        // A sink of an old version reports no times.
        assert_eq!(bottleneck(&source, &[]), Some(Stage::Credit));
    }

    #[test]
    fn nothing_is_the_bottleneck_that_has_less_than_a_third() {
        let source = [
            (Stage::List, 3),
            (Stage::Read, 3),
            (Stage::Network, 3),
            (Stage::Credit, 1),
        ];
        assert_eq!(bottleneck(&source, &[(Stage::Write, 9)]), None);
        assert_eq!(bottleneck(&[], &[]), None);
        // The sink waited for objects, and without the source's times the cause is unknown.
        assert_eq!(bottleneck(&[], &[(Stage::Arrival, 9)]), None);
        let sink = [(Stage::Arrival, 5), (Stage::Write, 4)];
        assert_eq!(bottleneck(&[], &sink), Some(Stage::Write));
    }

    #[test]
    fn times_that_are_too_long_stay_the_longest() {
        let mut times = times(&[(Stage::Read, u64::MAX)]);
        times.add(Stage::Read, Duration::MAX);
        times.join(&times.clone());
        assert_eq!(times.of(Stage::Read), Duration::from_nanos(u64::MAX));
        let profile = Profile {
            source: times,
            sink: times,
        };
        assert_eq!(profile.bottleneck(), Some(Stage::Read));
        assert!(times.since(&times).is_empty());
    }
}

//! Profile of a transfer's time. At every moment each end is in one [`Stage`]; the time per stage
//! of each end is its half of the [`Profile`], and the stage with most of the time is the
//! bottleneck.
//!
//! Non-goals: the present stage of an end; its state machine reports that.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// Work or wait of an end. The numbers are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A source that has nothing to send yet: its listing is not complete.
    List = 1,
    /// A source whose files await the sink's decision; a sink that examines existing files, and
    /// opens partial files.
    Decide = 2,
    /// A source whose gate is closed by a rate.
    Rate = 3,
    /// A source whose readers are all busy.
    Read = 4,
    /// A source with objects that no stream accepts.
    Network = 5,
    /// A source without credit: all buffers of the sink are on the way or full.
    Credit = 6,
    /// A source that waits before a retry.
    Retry = 7,
    /// A source with no object left to send: it waits for the sink to finish files.
    Verdict = 8,
    /// A sink without work: no object to write has arrived.
    Arrival = 9,
    /// A sink whose writers are busy.
    Write = 10,
    /// A sink that makes written data durable, and accepts no more until then.
    Sync = 11,
    /// A sink that reads files back, or publishes them.
    Publish = 12,
}

/// Number of stages.
const STAGES: usize = 12;

impl Stage {
    /// All stages, by number.
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

    /// Returns the number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the stage with this number; `None` for one of a later version.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let index = usize::from(number).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// Returns the name in reports.
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

    /// Returns true if a source in this stage waits for the sink, whose own stages then say more.
    const fn is_the_sinks(self) -> bool {
        matches!(self, Self::Decide | Self::Credit | Self::Verdict)
    }
}

/// Time that an end has spent in each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times([u64; STAGES]);

impl Times {
    /// Adds time to a stage.
    pub fn add(&mut self, stage: Stage, length: Duration) {
        let time = &mut self.0[stage.index()];
        *time = time.saturating_add(crate::time::nanos(length));
    }

    /// Moves up to `length` of the time of one stage to another.
    pub fn reassign(&mut self, from: Stage, to: Stage, length: Duration) {
        let moved = crate::time::nanos(length).min(self.0[from.index()]);
        self.0[from.index()] -= moved;
        self.0[to.index()] = self.0[to.index()].saturating_add(moved);
    }

    /// Returns the time of a stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.0[stage.index()])
    }

    /// Returns the stages with any time, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Duration)> + '_ {
        let all = Stage::ALL.into_iter().map(|stage| (stage, self.of(stage)));
        all.filter(|(_, time)| !time.is_zero())
    }

    /// Returns true if no time was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|time| *time == 0)
    }

    /// Adds the times of another session, or end.
    pub fn join(&mut self, other: &Self) {
        for (time, more) in self.0.iter_mut().zip(other.0) {
            *time = time.saturating_add(more);
        }
    }

    /// Returns the times since `earlier`, which these times include.
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

    /// Returns the stage with the most time among those that satisfy `which`, if it has a third of
    /// all.
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

/// Seconds by stage name, to the millisecond.
impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        serializer.collect_map(self.iter().map(|(stage, time)| (stage, seconds(time))))
    }
}

/// Unknown stage names and values that are not durations are ignored.
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

    /// Returns the bottleneck of the transfer: a stage with at least a third of its end's time. A
    /// source knows from its own stages that it lists, reads or sends too slowly; if it waited for
    /// the sink, the sink's stages give the reason. If the sink reports that it had no work, the
    /// source's stage is the result: the transfer needs more credit than the sink's pool has, or
    /// answers take long.
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
        // The sink had no work: the pool is too small for the objects on the way.
        assert_eq!(
            bottleneck(&source, &[(Stage::Arrival, 9), (Stage::Write, 1)]),
            Some(Stage::Credit)
        );
        // An old sink reports nothing.
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
        // A sink without reports of its source cannot know why nothing arrives.
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

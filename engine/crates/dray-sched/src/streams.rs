//! Detects data streams that no longer deliver data: a stream is suspect if later objects on other
//! streams arrive before its own objects.
//!
//! The sink writes the objects of one target roughly in the order in which the source passes them
//! to streams, even if the objects use different streams. Once a later object is written, an
//! earlier object on another stream is *overtaken*. A stream with an overtaken object is an
//! overtaken stream. If its objects do not arrive for a long time, the stream is *stuck*: its
//! network path is dead, and no socket reports an error.
//!
//! A slow target cannot make a stream stuck. Only objects of the same target are compared. An
//! overtaken object counts only while the sink answers about the same target on other streams, or
//! if other streams have no objects for the target. Before the source gives up a stream, it asks
//! the sink whether the sink is alive.
//!
//! Non-goals: sending the objects of a stuck stream again; slow streams, whose objects still
//! arrive.
//!
//! Invariants: a stream whose objects arrive is not stuck; a single stream is never stuck.

use dray_core::maps::HashMap;
use dray_core::{BlockId, StreamId, TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum time without progress before an overtaken stream counts as stuck. The time doubles with
/// each stream given up, so streams are given up after 5, 15, 35 seconds and so on. If the streams
/// were not really stuck, only the objects of one stream are sent again each time. The value is
/// estimated, not measured.
const OVERTAKEN_MIN: Duration = Duration::from_secs(5);

/// Maximum of the time [`OVERTAKEN_MIN`] after doubling. A session that runs for days must not wait
/// for hours.
const OVERTAKEN_MAX: Duration = Duration::from_secs(300);

/// If at least this many later objects have overtaken an object of a stream, the cause is the
/// stream. The writers of a target may work in another order, but fewer objects then overtake an
/// object. The value is estimated, not measured.
const OVERTAKEN_BY: u32 = 16;

/// If fewer than [`OVERTAKEN_BY`] objects have overtaken a stream, the source waits at least this
/// many times the usual duration before it gives up the stream. The usual duration is the time from
/// passing an object to a stream until the sink has written it.
const USUAL_TIMES: u32 = 8;

/// Time without progress after which a stream counts as stuck although no object has overtaken it,
/// for example because all other objects are done. Storage should need less time for its last
/// objects. The value is estimated, not measured.
const QUIET_MIN: Duration = Duration::from_secs(120);

/// Maximum of the time that begins at [`QUIET_MIN`] and doubles with each stream that is given up.
/// The value is estimated, not measured.
const QUIET_MAX: Duration = Duration::from_secs(480);

/// After the sink has answered that it is alive, the source waits at least this time without
/// progress before it gives up the stream. In this time, reports arrive that the sink sent before
/// the answer. The value is estimated, not measured.
const ANSWERED_MIN: Duration = Duration::from_secs(2);

/// The average duration of the objects of a target is a moving average, in which the newest object
/// has the weight 1 / `WEIGHT`. The value is estimated, not measured.
const WEIGHT: u32 = 4;

/// State of an overtaken object, which is a stream's oldest object of a target: the time at which
/// later objects began to overtake it, and the number of these later objects.
#[derive(Debug)]
struct Overtaken {
    since: Time,
    by: u32,
}

#[derive(Debug, Default)]
struct Stream {
    /// Objects that were passed to the stream and about which the sink has not answered, by target
    /// and sequence number. The value is the time at which the object was passed.
    open: BTreeMap<(TargetId, u64), Time>,
    overtaken: BTreeMap<TargetId, Overtaken>,
    /// Time of the stream's last progress: an object was passed to the stream, its socket accepted
    /// data, or the sink answered about one of its objects.
    stirred: Time,
}

impl Stream {
    fn oldest(&self, target: TargetId) -> Option<u64> {
        let mut of_target = self.open.range((target, 0)..=(target, u64::MAX));
        of_target.next().map(|((_, number), _)| *number)
    }

    fn oldest_of_each(&self) -> Vec<(TargetId, u64)> {
        let mut each: Vec<(TargetId, u64)> = Vec::new();
        while let Some(((target, number), _)) = match each.last() {
            None => self.open.iter().next(),
            Some((last, _)) => self.open.range((*last, u64::MAX)..).next(),
        } {
            each.push((*target, *number));
        }
        each
    }
}

/// Action that the source must take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Ask the sink for a sign of life. Call [`Streams::heard`] when the sink answers.
    Ask,
    /// Close this stream, because it is stuck. The number counts the unanswered objects on the
    /// stream.
    GiveUp(StreamId, usize),
}

/// The sink's answers about objects of one target.
#[derive(Debug)]
struct Answers {
    /// Highest sequence number of an answered object, and the object's stream.
    newest: (u64, StreamId),
    /// Time of the last answer.
    at: Time,
    /// Usual duration from passing an object to a stream until it is written.
    usual: Option<Duration>,
}

/// State of all streams of a source.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<StreamId, Stream>,
    blocks: HashMap<BlockId, (StreamId, TargetId, u64)>,
    answers: BTreeMap<TargetId, Answers>,
    next: u64,
    given_up: u32,
    /// Stream about which the source has asked the sink, and the time of the sink's answer.
    suspect: Option<(StreamId, Option<Time>)>,
    /// Earliest time at which a stream may be stuck.
    look_at: Option<Time>,
}

impl Streams {
    /// Records an object of `target` that the source has passed to a stream.
    pub fn handed(&mut self, stream: StreamId, block: BlockId, target: TargetId, now: Time) {
        let number = self.next;
        self.next += 1;
        let known = self.streams.entry(stream).or_default();
        known.open.insert((target, number), now);
        known.stirred = now;
        self.blocks.insert(block, (stream, target, number));
        self.look_by(now + QUIET_MIN);
    }

    /// Records that the socket of a stream has accepted a whole object.
    pub fn taken(&mut self, stream: StreamId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.stirred = now;
        }
    }

    /// Records that the socket of a stream has accepted a part of an object that a rate limit slows
    /// down. The stream makes progress, so objects that overtake its object prove nothing.
    pub fn under_way(&mut self, stream: StreamId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.stirred = now;
            let overtaken = stream.overtaken.values_mut();
            overtaken.for_each(|overtaken| overtaken.since = now);
        }
    }

    /// Records the sink's answer about an object: the sink has written or refused it.
    pub fn answered(&mut self, block: BlockId, now: Time) {
        let Some((id, target, number)) = self.blocks.remove(&block) else {
            return;
        };
        let answers = self.answers.entry(target).or_insert(Answers {
            newest: (number, id),
            at: now,
            usual: None,
        });
        answers.at = now;
        if answers.newest.0 < number {
            answers.newest = (number, id);
        }
        let mut look_at = None;
        if let Some(stream) = self.streams.get_mut(&id) {
            if let Some(handed) = stream.open.remove(&(target, number)) {
                let took = now.since(handed);
                let usual = answers.usual.get_or_insert(took);
                *usual = *usual - *usual / WEIGHT + took / WEIGHT;
            }
            stream.stirred = now;
            // The stream makes progress, so forget that it was overtaken. Objects of other streams
            // may already have overtaken its remaining objects, and perhaps no later object will
            // show this again. So check the remaining objects now.
            stream.overtaken.clear();
            for (target, oldest) in stream.oldest_of_each() {
                let newest = self.answers.get(&target).map(|answers| answers.newest);
                if newest.is_some_and(|(newest, by)| by != id && oldest < newest) {
                    let first = Overtaken { since: now, by: 1 };
                    stream.overtaken.insert(target, first);
                    look_at = Some(now);
                }
            }
        }
        if self
            .suspect
            .take_if(|(suspect, _)| *suspect == id)
            .is_some()
        {
            look_at = Some(now);
        }
        for (_, other) in self.streams.iter_mut().filter(|(other, _)| **other != id) {
            if other.oldest(target).is_none_or(|oldest| oldest > number) {
                continue;
            }
            let new = Overtaken { since: now, by: 0 };
            let overtaken = other.overtaken.entry(target).or_insert(new);
            overtaken.by += 1;
            if overtaken.by == 1 || overtaken.by == OVERTAKEN_BY {
                look_at = look_at.into_iter().chain([overtaken.since]).min();
            }
        }
        if let Some(time) = look_at {
            self.look_by(time + self.patience());
        }
    }

    /// Removes a lost stream. The source sends its objects again.
    pub fn lost(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.blocks.retain(|_, (other, ..)| *other != stream);
            self.suspect.take_if(|(suspect, _)| *suspect == stream);
        }
    }

    /// Records the sink's answer to [`Verdict::Ask`].
    pub fn heard(&mut self, now: Time) {
        if let Some((_, at @ None)) = &mut self.suspect {
            *at = Some(now);
            self.look_by(now + ANSWERED_MIN);
        }
    }

    /// Returns the number of objects that were passed to a stream and about which the sink has not
    /// answered.
    #[must_use]
    pub fn on_the_way(&self, stream: StreamId) -> usize {
        let known = self.streams.get(&stream);
        known.map_or(0, |known| known.open.len())
    }

    /// Returns the next time at which [`Streams::look`] may find a stuck stream.
    #[must_use]
    pub const fn look_at(&self) -> Option<Time> {
        self.look_at
    }

    /// Checks for a stuck stream. `alive` is the number of streams that can be used. Cheap enough
    /// to call often.
    pub fn look(&mut self, alive: usize, now: Time) -> Option<Verdict> {
        if self.look_at.is_none_or(|time| now < time) {
            return None;
        }
        self.look_at = None;
        if alive < 2 {
            // A second stream may be opened later, so check again.
            self.look_at = Some(now + OVERTAKEN_MIN);
            return None;
        }
        let due = |(id, stream): (&StreamId, &Stream)| Some((self.due(*id, stream, now)?, *id));
        let (due, id) = self.streams.iter().filter_map(due).min()?;
        if now < due {
            self.look_at = Some(due);
            return None;
        }
        match self.suspect {
            Some((suspect, Some(heard))) if suspect == id => {
                if now < heard + ANSWERED_MIN {
                    self.look_at = Some(heard + ANSWERED_MIN);
                    return None;
                }
                let objects = self.on_the_way(id);
                self.lost(id);
                self.given_up += 1;
                self.look_at = Some(now + self.patience());
                Some(Verdict::GiveUp(id, objects))
            }
            _ => {
                // The source may have asked before about another stream. The next answer may belong
                // to that question, so ask again.
                self.suspect = Some((id, None));
                self.look_at = Some(now + OVERTAKEN_MIN);
                Some(Verdict::Ask)
            }
        }
    }

    /// Returns true if a lack of progress is attributed to the stream and not to the target. This
    /// is the case if the sink has recently answered about objects of the target, so the target
    /// works. It is also the case if no other stream has objects for the target, so nothing
    /// suggests that the target is slow.
    fn is_told_apart(&self, id: StreamId, target: TargetId, now: Time) -> bool {
        let recently = self.patience().max(self.usual(target) * 2);
        let answers = self.answers.get(&target);
        answers.is_some_and(|answers| now.since(answers.at) <= recently)
            || !(self.streams.iter())
                .any(|(other, stream)| *other != id && stream.oldest(target).is_some())
    }

    /// Returns the time at which the stream counts as stuck if none of its objects arrives.
    fn due(&self, id: StreamId, stream: &Stream, now: Time) -> Option<Time> {
        if stream.open.is_empty() {
            return None;
        }
        let patience = self.patience();
        let overtaken = stream.overtaken.iter().map(|(target, overtaken)| {
            let usual = self.usual(*target);
            let wait = match overtaken.by {
                OVERTAKEN_BY.. => patience,
                _ => patience.max(usual * USUAL_TIMES),
            };
            let due = overtaken.since + wait;
            match now < due || self.is_told_apart(id, *target, now) {
                true => due,
                false => now + OVERTAKEN_MIN,
            }
        });
        // The wait for a stream without any arrival doubles with each stream given up. So a stall
        // of the storage costs one stream, not all streams.
        let quiet = stream.stirred + self.doubled(QUIET_MIN, QUIET_MAX);
        overtaken.chain([quiet]).min()
    }

    fn usual(&self, target: TargetId) -> Duration {
        let answers = self.answers.get(&target);
        answers
            .and_then(|answers| answers.usual)
            .unwrap_or_default()
    }

    fn patience(&self) -> Duration {
        self.doubled(OVERTAKEN_MIN, OVERTAKEN_MAX)
    }

    /// Returns `least`, doubled for each stream given up, but at most `most`.
    fn doubled(&self, least: Duration, most: Duration) -> Duration {
        least.saturating_mul(1 << self.given_up.min(16)).min(most)
    }

    fn look_by(&mut self, time: Time) {
        self.look_at = self.look_at.into_iter().chain([time]).min();
    }
}

#[cfg(test)]
mod tests;

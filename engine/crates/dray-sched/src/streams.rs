//! Detects data streams that no longer carry data, by the objects that overtake theirs.
//!
//! Objects of one sink target are written roughly in the order in which the source hands them out,
//! whichever stream they take. Once a later object has been written, an earlier one on another
//! stream is due. A stream whose objects do not arrive for long after that is *stuck*: the path
//! under it is dead in a way that no socket reports. The speed of the target does not matter,
//! because only objects of the same target are compared, and only while the target answers on other
//! streams, or other streams have nothing more for it. Before a stream is given up, the sink is
//! asked whether it is alive.
//!
//! Non-goals: the objects of a stuck stream; slow streams, whose objects still arrive.
//!
//! Invariants: a stream whose objects arrive is not stuck; a single stream is never stuck.

use dray_core::maps::HashMap;
use dray_core::{BlockId, StreamId, TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum silence of an overtaken stream before it is stuck. It doubles with each stream given up,
/// so that data sent again is bounded by the data on one stream, at 5, 15, 35 seconds and so on,
/// even if the stream was never stuck (guess, revisit).
const OVERTAKEN_MIN: Duration = Duration::from_secs(5);

/// Maximum of [`OVERTAKEN_MIN`] after doubling; a session of days must not wait for hours.
const OVERTAKEN_MAX: Duration = Duration::from_secs(300);

/// Number of overtaking objects that rules out an accident of a target's writers (guess, revisit).
const OVERTAKEN_BY: u32 = 16;

/// With fewer overtaking objects, the wait is this multiple of the usual time of the target's
/// objects from handing out to disk.
const USUAL_TIMES: u32 = 8;

/// Minimum silence of a stream that nothing can overtake, because all other objects are done:
/// longer than any storage should take for the last objects (guess, revisit).
const QUIET_MIN: Duration = Duration::from_secs(120);

/// Maximum of [`QUIET_MIN`], which also doubles with each stream given up (guess, revisit).
const QUIET_MAX: Duration = Duration::from_secs(480);

/// Minimum silence after the sink has answered that it is alive: reports on the stream that the
/// sink sent earlier arrive before the answer (guess, revisit).
const ANSWERED_MIN: Duration = Duration::from_secs(2);

/// Divisor for the weight of one object in the usual time (guess, revisit).
const WEIGHT: u32 = 4;

/// State of the oldest object of a target that waits on a stream, once a later one has been
/// written.
#[derive(Debug)]
struct Overtaken {
    since: Time,
    by: u32,
}

#[derive(Debug, Default)]
struct Stream {
    /// Objects handed to the stream and not yet answered, by target and number, with the time of
    /// handing out.
    open: BTreeMap<(TargetId, u64), Time>,
    overtaken: BTreeMap<TargetId, Overtaken>,
    /// Time of the last event: an object handed out, taken by the socket, or answered.
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

/// Action required for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Ask the sink whether it is alive; call [`Streams::heard`] when it answers.
    Ask,
    /// Close the stream: it is stuck, with this number of objects on it.
    GiveUp(StreamId, usize),
}

/// Answers for the objects of a target.
#[derive(Debug)]
struct Answers {
    /// Latest number among the answered objects, and its stream.
    newest: (u64, StreamId),
    /// Time of the last answer.
    at: Time,
    /// Usual time from handing out until written.
    usual: Option<Duration>,
}

/// State of the streams of a source.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<StreamId, Stream>,
    blocks: HashMap<BlockId, (StreamId, TargetId, u64)>,
    answers: BTreeMap<TargetId, Answers>,
    next: u64,
    given_up: u32,
    /// Stream about which the sink was asked, and the time of its answer.
    suspect: Option<(StreamId, Option<Time>)>,
    /// Time at which a stream may be stuck.
    look_at: Option<Time>,
}

impl Streams {
    /// Records an object for a sink target that was handed to a stream.
    pub fn handed(&mut self, stream: StreamId, block: BlockId, target: TargetId, now: Time) {
        let number = self.next;
        self.next += 1;
        let known = self.streams.entry(stream).or_default();
        known.open.insert((target, number), now);
        known.stirred = now;
        self.blocks.insert(block, (stream, target, number));
        self.look_by(now + QUIET_MIN);
    }

    /// Records that a stream's socket has taken a whole object.
    pub fn taken(&mut self, stream: StreamId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.stirred = now;
        }
    }

    /// Records that a stream's socket has taken a part of an object that is paced by its rate. The
    /// stream is moving, and objects that overtake it meanwhile prove nothing.
    pub fn under_way(&mut self, stream: StreamId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.stirred = now;
            let overtaken = stream.overtaken.values_mut();
            overtaken.for_each(|overtaken| overtaken.since = now);
        }
    }

    /// Records the answer for an object: the sink has written it, or refused it.
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
            // The stream moves. Its other objects may have been overtaken already, and no later
            // object may come to overtake them again.
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

    /// Removes a lost stream; its objects are requested again.
    pub fn lost(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.blocks.retain(|_, (other, ..)| *other != stream);
            self.suspect.take_if(|(suspect, _)| *suspect == stream);
        }
    }

    /// Records that the sink is alive.
    pub fn heard(&mut self, now: Time) {
        if let Some((_, at @ None)) = &mut self.suspect {
            *at = Some(now);
            self.look_by(now + ANSWERED_MIN);
        }
    }

    /// Returns the number of objects handed to a stream and not yet answered.
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

    /// Looks for a stuck stream, among `alive` streams. Cheap to call often.
    pub fn look(&mut self, alive: usize, now: Time) -> Option<Verdict> {
        if self.look_at.is_none_or(|time| now < time) {
            return None;
        }
        self.look_at = None;
        if alive < 2 {
            // Another stream may open.
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
                // With several questions open, the answer may belong to an earlier one, so ask
                // again.
                self.suspect = Some((id, None));
                self.look_at = Some(now + OVERTAKEN_MIN);
                Some(Verdict::Ask)
            }
        }
    }

    /// Returns true if silence of the stream can be told from silence of the target: the target
    /// answers on other streams, or they have nothing to send to it.
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
        // Storage that stalls for this long costs one stream, not all of them.
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

    /// Doubles `least` for each stream given up, up to `most`.
    fn doubled(&self, least: Duration, most: Duration) -> Duration {
        least.saturating_mul(1 << self.given_up.min(16)).min(most)
    }

    fn look_by(&mut self, time: Time) {
        self.look_at = self.look_at.into_iter().chain([time]).min();
    }
}

#[cfg(test)]
mod tests;

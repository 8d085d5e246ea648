//! Which data stream has stopped to carry, told by what overtakes it.
//!
//! Objects of one sink target are written about in the order in which they are handed out, whichever
//! stream they take. When one that was handed out later has been written, what was handed to another
//! stream before is due. A stream of which nothing comes for long after that is *stuck*: the path under
//! it is dead in a way that no socket notices. How slow the target is does not matter, because only
//! objects of the same target are compared, and only while it answers on other streams, or they have
//! nothing more for it; and before a stream is given up the sink is asked whether it lives.
//!
//! Non-goals: what becomes of the objects; streams that are slow, of which something comes.
//!
//! Invariants: a stream of which anything comes is not stuck; without another stream none is.

use dray_core::maps::HashMap;
use dray_core::{BlockId, StreamId, TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long nothing comes of a stream that was overtaken. Twice as long after each that was given
/// up: what is sent again is bounded by what lies on one stream, at 5, 15, 35 seconds and so on, even
/// if it was never stuck (guess, revisit).
const OVERTAKEN_MIN: Duration = Duration::from_secs(5);

/// See [`OVERTAKEN_MIN`]; a session of days must not wait for hours.
const OVERTAKEN_MAX: Duration = Duration::from_secs(300);

/// Overtaken by so many, it was no accident of a target's writers (guess, revisit).
const OVERTAKEN_BY: u32 = 16;

/// Overtaken by fewer, so many times what an object of the target usually takes from hand to disk.
const USUAL_TIMES: u32 = 8;

/// How long nothing comes of a stream that nothing can overtake, because all else is done: longer
/// than any storage should take for the last objects (guess, revisit).
const QUIET_MIN: Duration = Duration::from_secs(120);

/// Twice as long after each that was given up, too, and no longer than this (guess, revisit).
const QUIET_MAX: Duration = Duration::from_secs(480);

/// How long nothing comes after the sink has answered that it lives: what it had to say of the stream
/// before comes before (guess, revisit).
const ANSWERED_MIN: Duration = Duration::from_secs(2);

/// What one object weighs in what is usual (guess, revisit).
const WEIGHT: u32 = 4;

/// The oldest object of a target that waits on a stream, once a later one has been written.
#[derive(Debug)]
struct Overtaken {
    since: Time,
    by: u32,
}

#[derive(Debug, Default)]
struct Stream {
    /// What was handed to it and is not answered, by target and in order.
    open: BTreeMap<(TargetId, u64), Time>,
    overtaken: BTreeMap<TargetId, Overtaken>,
    /// When it was handed something, took it, or something came of it last.
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

/// What is to be done about a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Ask the sink whether it lives; call [`Streams::heard`] when it answers.
    Ask,
    /// End it: it is stuck, and so many objects are on it.
    GiveUp(StreamId, usize),
}

/// What has come of a target.
#[derive(Debug)]
struct Answers {
    /// The object handed out last of those that have come, and how it came.
    newest: (u64, StreamId),
    /// When one has come last.
    at: Time,
    /// How long one takes until it is written.
    usual: Option<Duration>,
}

/// What is known of the streams of a source.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<StreamId, Stream>,
    blocks: HashMap<BlockId, (StreamId, TargetId, u64)>,
    answers: BTreeMap<TargetId, Answers>,
    next: u64,
    given_up: u32,
    /// The one for which the sink was asked whether it lives, and when it has answered.
    suspect: Option<(StreamId, Option<Time>)>,
    /// When one may be stuck.
    look_at: Option<Time>,
}

impl Streams {
    /// An object for a sink target was handed to a stream.
    pub fn handed(&mut self, stream: StreamId, block: BlockId, target: TargetId, now: Time) {
        let number = self.next;
        self.next += 1;
        let known = self.streams.entry(stream).or_default();
        known.open.insert((target, number), now);
        known.stirred = now;
        self.blocks.insert(block, (stream, target, number));
        self.look_by(now + QUIET_MIN);
    }

    /// A stream's socket has taken an object whole.
    pub fn taken(&mut self, stream: StreamId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.stirred = now;
        }
    }

    /// A stream's socket has taken a part of an object that is paced by its rate. The stream is
    /// moving, and objects that overtake it meanwhile prove nothing.
    pub fn under_way(&mut self, stream: StreamId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.stirred = now;
            let overtaken = stream.overtaken.values_mut();
            overtaken.for_each(|overtaken| overtaken.since = now);
        }
    }

    /// An object has come: the sink has written it, or refused it.
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
            // It moves; but what is left on it may have been overtaken before, and never be again.
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

    /// A stream is gone, and what was on it is asked for.
    pub fn lost(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.blocks.retain(|_, (other, ..)| *other != stream);
            self.suspect.take_if(|(suspect, _)| *suspect == stream);
        }
    }

    /// The sink lives.
    pub fn heard(&mut self, now: Time) {
        if let Some((_, at @ None)) = &mut self.suspect {
            *at = Some(now);
            self.look_by(now + ANSWERED_MIN);
        }
    }

    /// Objects handed to a stream that have not come.
    #[must_use]
    pub fn on_the_way(&self, stream: StreamId) -> usize {
        let known = self.streams.get(&stream);
        known.map_or(0, |known| known.open.len())
    }

    /// When [`Streams::look`] may find something next.
    #[must_use]
    pub const fn look_at(&self) -> Option<Time> {
        self.look_at
    }

    /// Looks for one that is stuck, among `alive` ones. Cheap when asked often.
    pub fn look(&mut self, alive: usize, now: Time) -> Option<Verdict> {
        if self.look_at.is_none_or(|time| now < time) {
            return None;
        }
        self.look_at = None;
        if alive < 2 {
            // Another may come.
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
                // Of several questions one may be answered, so it is asked again.
                self.suspect = Some((id, None));
                self.look_at = Some(now + OVERTAKEN_MIN);
                Some(Verdict::Ask)
            }
        }
    }

    /// Whether what a stream was handed for a target can be told from a target that stands still: it
    /// answers on others, or they have nothing to ask of it.
    fn is_told_apart(&self, id: StreamId, target: TargetId, now: Time) -> bool {
        let recently = self.patience().max(self.usual(target) * 2);
        let answers = self.answers.get(&target);
        answers.is_some_and(|answers| now.since(answers.at) <= recently)
            || !(self.streams.iter())
                .any(|(other, stream)| *other != id && stream.oldest(target).is_some())
    }

    /// When a stream counts as stuck if nothing comes of it.
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
        // Storage that stands still for so long loses one stream, not all of them.
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

    /// Twice as long for each that was given up.
    fn doubled(&self, least: Duration, most: Duration) -> Duration {
        least.saturating_mul(1 << self.given_up.min(16)).min(most)
    }

    fn look_by(&mut self, time: Time) {
        self.look_at = self.look_at.into_iter().chain([time]).min();
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;

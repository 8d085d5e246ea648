//! Best settings for pairs of endpoints. The caller stores the entries on disk.
//!
//! Network paths change, so a setting that was not confirmed for a long time is dropped. A failure
//! of long ago is dropped too, even if the pair is used daily. Otherwise an endpoint that had a
//! problem once would get few streams forever.

use super::{Remembered, Setting};
use dray_core::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// One direction between two endpoints. The opposite direction may behave differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Endpoint that reads the data.
    pub source: String,
    /// Endpoint that writes the data.
    pub sink: String,
}

/// Results for a pair, with their times. The times come from a clock that continues while the
/// program does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Best setting, and highest values that did not fail.
    pub known: Remembered,
    /// Time at which the setting was found.
    pub at: Time,
    /// Time at which higher values failed.
    pub failed_at: Time,
}

impl Kept {
    /// Returns the results that are not too old.
    fn believed(&self, now: Time, age_most: Duration) -> Option<Remembered> {
        let is_old = |at: Time| now.since(at).max(at.since(now)) > age_most;
        let most = match is_old(self.failed_at) {
            true => Setting::UNBOUNDED,
            false => self.known.most,
        };
        (!is_old(self.at)).then_some(Remembered { most, ..self.known })
    }
}

/// Settings by pair, in the order in which they were found. If there are too many, the oldest is
/// dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    most: usize,
    age_most: Duration,
    entries: VecDeque<(Pair, Kept)>,
}

impl Memory {
    /// Creates a memory of at most `most` pairs, each for at most `age_most`. An entry whose time
    /// is more than `age_most` in the future is dropped too, because it comes from a wrong clock.
    #[must_use]
    pub const fn new(most: usize, age_most: Duration) -> Self {
        Self {
            most,
            age_most,
            entries: VecDeque::new(),
        }
    }

    /// Returns the stored results for a pair.
    #[must_use]
    pub fn of(&self, pair: &Pair, now: Time) -> Option<Remembered> {
        let mut entries = self.entries.iter();
        let (_, kept) = entries.find(|(other, _)| other == pair)?;
        kept.believed(now, self.age_most)
    }

    /// Stores the results of a session. A value of the setting, such as the number of streams, may
    /// have failed before. This stored failure gets a new time only if the session failed at a
    /// lower value. Otherwise the session may have stayed below the stored value because of the
    /// stored failure, so its results do not show that the value still fails.
    pub fn keep(&mut self, pair: Pair, known: Remembered, now: Time) {
        let mut entries = self.entries.iter();
        let before = entries.find(|(other, _)| *other == pair);
        let believed =
            before.and_then(|(_, kept)| Some((kept.believed(now, self.age_most)?, kept)));
        let (most, failed_at) = match believed {
            Some((believed, kept)) => {
                let most = known.most.least_of(&believed.most);
                let is_news = most != believed.most;
                // The earlier failure was dropped as too old, so this failure counts as new.
                let was_forgotten = believed.most != kept.known.most;
                (
                    most,
                    if is_news || was_forgotten {
                        now
                    } else {
                        kept.failed_at
                    },
                )
            }
            None => (known.most, now),
        };
        let known = Remembered { most, ..known };
        let at = now;
        let kept = Kept {
            known,
            at,
            failed_at,
        };
        self.restore(pair, kept, now);
    }

    /// Adds a stored entry unless it is too old. Also drops other entries that have become too old.
    pub fn restore(&mut self, pair: Pair, kept: Kept, now: Time) {
        let age_most = self.age_most;
        self.entries
            .retain(|(other, kept)| *other != pair && kept.believed(now, age_most).is_some());
        if kept.believed(now, age_most).is_some() {
            self.entries.push_back((pair, kept));
        }
        while self.entries.len() > self.most {
            self.entries.pop_front();
        }
    }

    /// Returns all entries, the oldest first. Restoring them in this order gives an equal memory.
    pub fn entries(&self) -> impl Iterator<Item = &(Pair, Kept)> {
        self.entries.iter()
    }
}

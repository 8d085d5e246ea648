//! Memory of the best setting for each pair of endpoints. The caller writes and reads the entries
//! on disk.
//!
//! Paths change, so a setting that was not found again for long is forgotten. A failure of long ago
//! is forgotten too, even if the pair is used each day; otherwise a far side that once had a
//! problem would have few streams for ever.

use super::{Remembered, Setting};
use dray_core::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// One direction between two endpoints; the opposite direction can differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Endpoint that reads.
    pub source: String,
    /// Endpoint that writes.
    pub sink: String,
}

/// Findings for a pair, with their times. Times are of a clock that runs while the program does
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Best setting and highest values that have not failed.
    pub known: Remembered,
    /// Time of the finding.
    pub at: Time,
    /// Time at which higher values failed.
    pub failed_at: Time,
}

impl Kept {
    /// Returns the findings that are still valid.
    fn believed(&self, now: Time, age_most: Duration) -> Option<Remembered> {
        let is_old = |at: Time| now.since(at).max(at.since(now)) > age_most;
        let most = match is_old(self.failed_at) {
            true => Setting::UNBOUNDED,
            false => self.known.most,
        };
        (!is_old(self.at)).then_some(Remembered { most, ..self.known })
    }
}

/// Settings by pair, the latest found at the end; the oldest is dropped first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    most: usize,
    age_most: Duration,
    entries: VecDeque<(Pair, Kept)>,
}

impl Memory {
    /// Creates a memory of at most `most` pairs, each for `age_most`. Entries that far in the
    /// future are dropped too, because a clock was wrong.
    #[must_use]
    pub const fn new(most: usize, age_most: Duration) -> Self {
        Self {
            most,
            age_most,
            entries: VecDeque::new(),
        }
    }

    /// Returns the last findings for a pair.
    #[must_use]
    pub fn of(&self, pair: &Pair, now: Time) -> Option<Remembered> {
        let mut entries = self.entries.iter();
        let (_, kept) = entries.find(|(other, _)| other == pair)?;
        kept.believed(now, self.age_most)
    }

    /// Stores findings. Only a lower failing number renews the time of failure: another session of
    /// the pair, which started without the memory or read it, has not tried the number again.
    pub fn keep(&mut self, pair: Pair, known: Remembered, now: Time) {
        let mut entries = self.entries.iter();
        let before = entries.find(|(other, _)| *other == pair);
        let believed =
            before.and_then(|(_, kept)| Some((kept.believed(now, self.age_most)?, kept)));
        let (most, failed_at) = match believed {
            Some((believed, kept)) => {
                let most = known.most.least_of(&believed.most);
                let is_news = most != believed.most;
                // A forgotten failure counts as new.
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

    /// Adds a stored entry, unless it is too old; also drops other entries that have become too
    /// old.
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

    /// Returns all entries, the oldest first; restoring them in this order gives the same memory.
    pub fn entries(&self) -> impl Iterator<Item = &(Pair, Kept)> {
        self.entries.iter()
    }
}

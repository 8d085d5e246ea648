//! What was best for each pair of endpoints. Whoever keeps it on disk writes and reads the entries.
//!
//! Paths change: what nobody has found again for long is forgotten, and so is what failed long ago, though
//! the pair be used each day. Else a far side that was once in trouble would have few streams for ever.

use super::{Remembered, Setting};
use dray_core::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// One direction between two endpoints: the way back may be another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Who reads.
    pub source: String,
    /// Who writes.
    pub sink: String,
}

/// What is known of a pair, and since when. Times are of a clock that goes on while nobody runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// What was found.
    pub known: Remembered,
    /// When.
    pub at: Time,
    /// When it was found that more fails.
    pub failed_at: Time,
}

impl Kept {
    /// As it is believed now, if it still is.
    fn believed(&self, now: Time, age_most: Duration) -> Option<Remembered> {
        let is_old = |at: Time| now.since(at).max(at.since(now)) > age_most;
        let most = match is_old(self.failed_at) {
            true => Setting::UNBOUNDED,
            false => self.known.most,
        };
        (!is_old(self.at)).then_some(Remembered { most, ..self.known })
    }
}

/// Settings by pair, the one found last at the end; the oldest goes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    most: usize,
    age_most: Duration,
    entries: VecDeque<(Pair, Kept)>,
}

impl Memory {
    /// Of so many pairs at the most, each for so long. What is as far in the future is forgotten too: a clock
    /// was wrong.
    #[must_use]
    pub const fn new(most: usize, age_most: Duration) -> Self {
        Self {
            most,
            age_most,
            entries: VecDeque::new(),
        }
    }

    /// What was found last for a pair.
    #[must_use]
    pub fn of(&self, pair: &Pair, now: Time) -> Option<Remembered> {
        let mut entries = self.entries.iter();
        let (_, kept) = entries.find(|(other, _)| other == pair)?;
        kept.believed(now, self.age_most)
    }

    /// Keeps what was found. Only a smaller number that fails is news of that: another session of the pair
    /// that began without knowing, or was told, has not tried it again.
    pub fn keep(&mut self, pair: Pair, known: Remembered, now: Time) {
        let mut entries = self.entries.iter();
        let before = entries.find(|(other, _)| *other == pair);
        let believed =
            before.and_then(|(_, kept)| Some((kept.believed(now, self.age_most)?, kept)));
        let (most, failed_at) = match believed {
            Some((believed, kept)) => {
                let most = known.most.least_of(&believed.most);
                let is_news = most != believed.most;
                // What is forgotten has not failed at any time.
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

    /// Takes in an entry as it was kept; one that is too old is left out, and so are others by now.
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

    /// All of it, the oldest first: restored in this order it is the same.
    pub fn entries(&self) -> impl Iterator<Item = &(Pair, Kept)> {
        self.entries.iter()
    }
}

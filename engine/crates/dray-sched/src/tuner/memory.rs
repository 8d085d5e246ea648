//! What was best for each pair of endpoints. Whoever keeps it on disk writes and reads the entries.

use super::Remembered;
use std::collections::VecDeque;

/// One direction between two endpoints: the way back may be another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Who reads.
    pub source: String,
    /// Who writes.
    pub sink: String,
}

/// Settings by pair, the one used last at the end; the oldest goes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    most: usize,
    entries: VecDeque<(Pair, Remembered)>,
}

impl Memory {
    /// Of so many pairs at the most.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            entries: VecDeque::new(),
        }
    }

    /// What was found last for a pair.
    #[must_use]
    pub fn of(&self, pair: &Pair) -> Option<&Remembered> {
        let entry = self.entries.iter().find(|(other, _)| other == pair);
        entry.map(|(_, known)| known)
    }

    /// Keeps what was found.
    pub fn keep(&mut self, pair: Pair, known: Remembered) {
        self.entries.retain(|(other, _)| *other != pair);
        self.entries.push_back((pair, known));
        while self.entries.len() > self.most {
            self.entries.pop_front();
        }
    }

    /// All of it, the oldest first: kept again in this order it is the same.
    pub fn entries(&self) -> impl Iterator<Item = &(Pair, Remembered)> {
        self.entries.iter()
    }
}

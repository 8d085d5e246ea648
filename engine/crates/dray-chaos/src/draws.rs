//! Random numbers that depend only on a seed.

/// Random numbers by splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    /// Begins the sequence of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number from 0 to `end - 1`, or 0 if `end` is 0.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            _ => self.next() % end,
        }
    }

    /// Returns a number from `first` to `last`.
    pub(crate) const fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// Returns true with this probability.
    pub(crate) const fn happens(&mut self, probability: f64) -> bool {
        // The upper 53 bits give a number in `0 .. 1` that a double represents exactly.
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        share < probability
    }
}

//! Admission of data to a fast tier: each transfer and each write job claims its bytes first.
//!
//! A claim is admitted if it fits into the bytes that nothing uses. Otherwise it waits in the order
//! of submission, and the tier frees space for the first claim. A claim that can never fit is
//! refused. The paper on burst-buffer over-subscription (BBOS) has no claims: an application that
//! writes to a full tier stops until the tier has space (section 5.3.3).
//!
//! [`super::placement`] admits the waiting claims in the order of submission, so the oldest claim
//! gets every byte that becomes free. Admitted claims and used bytes never exceed the capacity.

use std::collections::BTreeMap;
use std::fmt;

/// The use of bytes on a fast tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A demoted version without a pin.
    Cache,
    /// A version whose slow copy is not durable yet.
    NotDemoted,
    /// A copy whose last demotion or deletion failed.
    Failed,
    /// A pinned copy.
    Pinned,
    /// A copy that a caller staged in.
    Staged,
    /// A version that an application still writes.
    Incomplete,
    /// A transfer or a write job that was admitted and has not ended.
    Admitted,
}

impl Holder {
    /// Returns the use as text for messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Cache => "caches",
            Self::NotDemoted => "not yet demoted",
            Self::Failed => "kept because of an error",
            Self::Pinned => "pinned",
            Self::Staged => "in staged copies",
            Self::Incomplete => "still being written",
            Self::Admitted => "reserved for other transfers",
        }
    }
}

/// The time at which bytes can be freed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Release {
    /// The bytes can be freed now.
    Now,
    /// The bytes can be freed at this time in seconds.
    At(f64),
    /// The bytes can be freed at an unknown time.
    Unknown,
    /// Nothing that is known frees the bytes.
    Never,
}

/// Bytes in use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holding {
    /// Number of bytes.
    pub bytes: u64,
    /// Their use.
    pub holder: Holder,
    /// The time at which they can be freed.
    pub release: Release,
}

/// The space of a fast tier at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Space {
    /// Capacity in bytes.
    pub capacity: u64,
    /// All bytes in use.
    pub holdings: Vec<Holding>,
}

/// The reason for which a claim is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// Claimed bytes.
    pub bytes: u64,
    /// Capacity in bytes.
    pub capacity: u64,
    /// The two uses with the most bytes that cannot be freed within the time limit.
    pub kept: [(Holder, u64); 2],
    /// Sum of all bytes that cannot be freed within the time limit. Zero for a claim above the
    /// capacity.
    pub kept_bytes: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bytes, capacity, ..
        } = self;
        if self.kept_bytes == 0 {
            return write!(
                f,
                "{bytes} bytes exceed the capacity of {capacity} bytes of the tier"
            );
        }
        let most = capacity.saturating_sub(self.kept_bytes);
        write!(
            f,
            "{bytes} bytes exceed the {most} bytes that the tier can provide: of the tier's \
             {capacity} bytes, {} bytes must stay occupied (",
            self.kept_bytes
        )?;
        let mut is_first = true;
        for (holder, bytes) in self.kept.iter().filter(|(_, bytes)| *bytes > 0) {
            let before = if is_first { "" } else { ", " };
            is_first = false;
            write!(f, "{before}{bytes} {}", holder.text())?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for TooLarge {}

impl Space {
    /// Returns the number of bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        let bytes = self.holdings.iter().map(|one| one.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the number of bytes that nothing uses.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }

    /// Returns the number of bytes in use, by use.
    #[must_use]
    pub fn by_holder(&self) -> BTreeMap<Holder, u64> {
        let mut sums = BTreeMap::new();
        for one in &self.holdings {
            let sum: &mut u64 = sums.entry(one.holder).or_default();
            *sum = sum.saturating_add(one.bytes);
        }
        sums
    }

    /// Returns the number of bytes that must be freed for the oldest waiting claim.
    #[must_use]
    pub fn missing(&self, oldest: u64) -> u64 {
        let needed = self.used().saturating_add(oldest);
        needed.saturating_sub(self.capacity)
    }

    /// Returns the earliest time in seconds at which a claim of `bytes` fits, after `ahead` bytes
    /// of older claims. Returns `None` if the time is unknown. `now` is in seconds.
    #[must_use]
    pub fn fits_at(&self, ahead: u64, bytes: u64, now: f64) -> Option<f64> {
        let mut missing = self.missing(ahead.saturating_add(bytes));
        let mut releases: Vec<(f64, u64)> = Vec::with_capacity(self.holdings.len());
        for one in &self.holdings {
            match one.release {
                Release::Now => releases.push((now, one.bytes)),
                Release::At(at) => releases.push((at.max(now), one.bytes)),
                Release::Unknown | Release::Never => {}
            }
        }
        releases.sort_by(|left, right| left.0.total_cmp(&right.0));
        let mut at = now;
        let mut releases = releases.into_iter();
        while missing > 0 {
            let (release, freed) = releases.next()?;
            at = release;
            missing = missing.saturating_sub(freed);
        }
        Some(at)
    }

    /// Checks that a claim of `bytes` can be admitted at some time. Used bytes count as kept if
    /// they are never freed, or if they are freed only after the time `until` (in seconds).
    ///
    /// # Errors
    /// If the claim exceeds the capacity less the kept bytes.
    pub fn check(&self, bytes: u64, until: f64) -> Result<(), TooLarge> {
        let is_kept = |one: &&Holding| match one.release {
            Release::Now | Release::Unknown => false,
            Release::At(at) => at > until,
            Release::Never => true,
        };
        let mut sums: BTreeMap<Holder, u64> = BTreeMap::new();
        for one in self.holdings.iter().filter(is_kept) {
            let sum = sums.entry(one.holder).or_default();
            *sum = sum.saturating_add(one.bytes);
        }
        let kept_bytes = sums
            .values()
            .fold(0, |sum: u64, one| sum.saturating_add(*one));
        if bytes <= self.capacity.saturating_sub(kept_bytes) {
            return Ok(());
        }
        let mut largest: Vec<(Holder, u64)> = sums.into_iter().collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let at = |index: usize| largest.get(index).copied().unwrap_or((Holder::Pinned, 0));
        Err(TooLarge {
            bytes,
            capacity: self.capacity,
            kept: [at(0), at(1)],
            // A claim above the capacity never fits, whatever the kept bytes are.
            kept_bytes: if bytes > self.capacity { 0 } else { kept_bytes },
        })
    }

    /// Describes why a claim waits: the free bytes, and the used bytes for each kind of use. Caches
    /// are not named, because the tier deletes them for the claim.
    #[must_use]
    pub fn shortage_text(&self, ahead: u64, bytes: u64) -> String {
        let mut text = format!(
            "{bytes} bytes do not fit: {} of {} bytes are free",
            self.free(),
            self.capacity
        );
        if ahead > 0 {
            text.push_str(&format!(", {ahead} bytes of older requests wait"));
        }
        for (holder, bytes) in self.by_holder() {
            if holder != Holder::Cache && bytes > 0 {
                text.push_str(&format!(", {bytes} {}", holder.text()));
            }
        }
        text
    }
}

/// Returns the end time of each demotion, in seconds. The demotions run one after the other from
/// `now`, at `rate` bytes per second. `bytes` has the remaining bytes of each demotion, in the same
/// order. If the rate is zero, the times are infinite.
#[must_use]
pub fn demotion_ends(now: f64, rate: f64, bytes: &[u64]) -> Vec<f64> {
    let mut at = now;
    let ends = bytes.iter().map(|bytes| {
        at += if rate > 0.0 {
            *bytes as f64 / rate
        } else {
            f64::INFINITY
        };
        at
    });
    ends.collect()
}

#[cfg(test)]
mod tests;

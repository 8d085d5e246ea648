//! Chooses the replica of the next read. Pure: the state of each replica and the time are
//! arguments.
//!
//! The scheduler's layout assigns each part of the file to one replica ([`crate::located`]). A part
//! is read from its assigned replica unless another would be clearly sooner. So a slow server
//! delays only its reads in progress, not all parts assigned to it, and a stalled one gets no
//! further reads. A failed replica rests for a while; one with another version is excluded for
//! good.

use std::time::{Duration, Instant};

/// Maximum ratio of the assigned replica's expected time to the best one's. The scheduler, which
/// knows all reads in progress, handles smaller differences by its order of reads. Here and below
/// as in `dray_sched::congestion`.
const SOONER_TIMES: u32 = 3;

/// Expected times below this are never slow.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// Divisor of the moving average: each read has the weight 1/4.
const WEIGHT: u32 = 4;

/// Time for which an idle replica counts as slow: then one read measures it again (guess, revisit).
const BELIEF: Duration = Duration::from_secs(1);

/// Rest of a failed replica while there are others: a restarting server returns after about this
/// time, and each attempt at a dead one costs its full timeout (guess, revisit).
pub(crate) const REST: Duration = Duration::from_secs(60);

fn is_young(seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(seen) < BELIEF
}

/// State of one replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct Track {
    /// Start times of the reads in progress.
    under_way: Vec<Instant>,
    /// Average duration of a read, and time of the last measurement; `None` before the first read
    /// has ended.
    pace: Option<(Duration, Instant)>,
    /// End of the rest after a failure.
    rests_until: Option<Instant>,
    /// Number of failures.
    failures: u32,
    /// Set if the replica holds another version of the file.
    is_other: bool,
}

impl Track {
    /// Records the start of a read.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.under_way.push(now);
    }

    /// Records the end of the read that started at `began`: with data after `took`, or with an
    /// error. `took` excludes opening the file, which would make the first opened replica seem
    /// slow.
    pub(crate) fn end(&mut self, began: Instant, took: Option<Duration>, now: Instant) {
        if let Some(at) = self.under_way.iter().position(|other| *other == began) {
            self.under_way.swap_remove(at);
        }
        if let Some(took) = took {
            // An expired average has no weight.
            let known = self.pace.filter(|(_, seen)| is_young(*seen, began));
            let pace = known.map_or(took, |(pace, _)| pace - pace / WEIGHT + took / WEIGHT);
            self.pace = Some((pace, now));
            self.rests_until = None;
        }
    }

    /// Records a failure.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.rests_until = Some(now + REST);
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns the number of failures.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Records that the replica holds another version.
    pub(crate) const fn leave(&mut self) {
        self.is_other = true;
    }

    fn is_resting(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Returns the expected time until one more read would end. A read in progress for longer than
    /// usual shows that the replica has become slower.
    fn expected(&self, usual: Duration, now: Instant) -> Duration {
        let waits = self
            .under_way
            .iter()
            .map(|began| now.saturating_duration_since(*began));
        let is_believed = |seen| !self.under_way.is_empty() || is_young(seen, now);
        let known = self.pace.filter(|(_, seen)| is_believed(*seen));
        let pace = known.map_or(usual, |(pace, _)| pace);
        let pace = pace.max(waits.max().unwrap_or_default()).max(SLOW_MIN);
        // The number of reads is small: it is limited by the number of readers.
        pace.saturating_mul(
            u32::try_from(self.under_way.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
        )
    }
}

/// Returns the replica to read: the one `meant`, unless another would be sooner. The last one, the
/// manager, is read only if no other is left and no replica was of another version. Those in
/// `tried` have failed for this read. If all replicas rest, one of them is read once all the same.
/// Returns `None` if no replica is left.
pub(crate) fn choose(
    tracks: &[Track],
    meant: usize,
    tried: &[usize],
    now: Instant,
) -> Option<usize> {
    let last = tracks.len().checked_sub(1)?;
    let is_left = |at: &usize| !tracks[*at].is_other && !tried.contains(at);
    let is_up = |at: &usize| is_left(at) && !tracks[*at].is_resting(now);
    let soonest = |at: &mut dyn Iterator<Item = usize>| {
        let usual = tracks
            .iter()
            .filter_map(|track| track.pace)
            .map(|(pace, _)| pace)
            .min();
        let expected = |at: usize| tracks[at].expected(usual.unwrap_or_default(), now);
        let all: Vec<usize> = at.collect();
        let best = all.iter().copied().min_by_key(|at| expected(*at))?;
        let is_fair = expected(meant.min(last)) <= expected(best).saturating_mul(SOONER_TIMES);
        Some(if all.contains(&meant) && is_fair {
            meant
        } else {
            best
        })
    };
    let up = soonest(&mut (0..last).filter(is_up));
    // The server that the manager chooses has a modification time of its own: once a replica has
    // changed, that server may have the changed version too, undetected.
    let is_one_version = tracks.iter().all(|track| !track.is_other);
    let resort = Some(last).filter(|last| is_one_version && is_up(last));
    up.or(resort).or_else(|| match tried {
        [] if is_one_version => soonest(&mut (0..=last).filter(is_left)),
        [] => soonest(&mut (0..last).filter(is_left)),
        _ => None,
    })
}

#[cfg(test)]
mod tests;

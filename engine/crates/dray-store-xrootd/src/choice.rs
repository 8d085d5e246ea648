//! Chooses the replica for the next read. The functions do no I/O; the states of the replicas and
//! the time are arguments.
//!
//! The layout assigns each part of the file to one replica ([`crate::located`]). A part is read
//! from its assigned replica, unless another replica is expected to be much faster. So a slow
//! server delays only its reads in progress, and not all parts assigned to it. A stalled server
//! gets no more reads. A failed replica is not used for some time. A replica with another version
//! of the file is not used again.

use std::time::{Duration, Instant};

/// If the expected time of the assigned replica is more than this many times that of the best
/// replica, the best replica is read. The scheduler handles smaller differences by the order of
/// reads. This constant, `SLOW_MIN` and `WEIGHT` have the values of `dray_sched::congestion`.
const SOONER_TIMES: u32 = 3;

/// A replica whose expected time is below this value is never slow.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// Divisor of the moving average: each read has the weight 1/4.
const WEIGHT: u32 = 4;

/// Time after which the average of an idle replica is no longer used. The next read measures the
/// replica again. The value is estimated, not measured.
const BELIEF: Duration = Duration::from_secs(1);

/// Time for which a failed replica is not used if there are other replicas. A server needs about
/// this time to restart, and each attempt to use a dead server takes a full timeout. The value is
/// estimated, not measured.
pub(crate) const REST: Duration = Duration::from_secs(60);

fn is_young(seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(seen) < BELIEF
}

/// State of one replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct Track {
    /// Start times of the reads in progress.
    under_way: Vec<Instant>,
    /// Average duration of a read, and time of the last measurement. `None` until the first read
    /// has ended.
    pace: Option<(Duration, Instant)>,
    /// Time until which the replica is not used after a failure.
    rests_until: Option<Instant>,
    /// Number of failures.
    failures: u32,
    /// True if the replica has another version of the file.
    is_other: bool,
}

impl Track {
    /// Records the start of a read.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.under_way.push(now);
    }

    /// Records the end of the read that started at `began`. `took` is the duration of a read that
    /// returned data, or `None` for an error. The duration excludes the opening of the file.
    /// Otherwise the first opened replica would seem slow.
    pub(crate) fn end(&mut self, began: Instant, took: Option<Duration>, now: Instant) {
        if let Some(at) = self.under_way.iter().position(|other| *other == began) {
            self.under_way.swap_remove(at);
        }
        if let Some(took) = took {
            // Ignore an old average.
            let known = self.pace.filter(|(_, seen)| is_young(*seen, began));
            let pace = known.map_or(took, |(pace, _)| pace - pace / WEIGHT + took / WEIGHT);
            self.pace = Some((pace, now));
            self.rests_until = None;
        }
    }

    /// Records a failure. The replica is not used for the time [`REST`].
    pub(crate) fn rest(&mut self, now: Instant) {
        self.rests_until = Some(now + REST);
        self.failures = self.failures.saturating_add(1);
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Records that the replica has another version of the file.
    pub(crate) const fn leave(&mut self) {
        self.is_other = true;
    }

    fn is_resting(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Returns the expected time until another read would end. A read in progress that already
    /// takes longer than the average raises this time.
    fn expected(&self, usual: Duration, now: Instant) -> Duration {
        let waits = self
            .under_way
            .iter()
            .map(|began| now.saturating_duration_since(*began));
        let is_believed = |seen| !self.under_way.is_empty() || is_young(seen, now);
        let known = self.pace.filter(|(_, seen)| is_believed(*seen));
        let pace = known.map_or(usual, |(pace, _)| pace);
        let pace = pace.max(waits.max().unwrap_or_default()).max(SLOW_MIN);
        // The number of reads is small, because it is limited by the number of reader threads.
        pace.saturating_mul(
            u32::try_from(self.under_way.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
        )
    }
}

/// Returns the number of the replica to read. This is the assigned replica `meant`, unless another
/// replica is expected to be much faster. The last entry is the manager. It is used only if no
/// other replica is left and no replica had another version. Replicas in `tried` have failed for
/// this read and are not chosen. If all replicas rest after a failure, one of them is used, but
/// only as the first replica of the read. Returns `None` if no replica is left.
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
    // The server that the manager chooses has its own modification time. After one replica has
    // changed, that server may have the changed version too, and the change could not be detected.
    // So use that server only while no replica has changed.
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

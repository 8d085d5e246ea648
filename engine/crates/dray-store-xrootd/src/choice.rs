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
mod tests {
    use super::{BELIEF, REST, Track, choose};
    use std::time::{Duration, Instant};

    const USUAL: Duration = Duration::from_millis(10);

    /// Two servers and the manager; each has completed one read, in this multiple of the usual
    /// time.
    fn tracks(times: &[u32], now: Instant) -> Vec<Track> {
        let track = |times: &u32| {
            let mut track = Track::default();
            let began = now - USUAL * *times;
            track.begin(began);
            track.end(began, Some(USUAL * *times), now);
            track
        };
        times.iter().map(track).chain([Track::default()]).collect()
    }

    #[test]
    fn each_is_read_for_its_own_part_while_all_do_alike() {
        let now = Instant::now();
        let mut tracks = tracks(&[2, 3], now);
        for meant in [0, 1] {
            assert_eq!(choose(&tracks, meant, &[], now), Some(meant));
        }
        tracks[0].begin(now);
        assert_eq!(choose(&tracks, 0, &[], now), Some(0));
        assert_eq!(choose(&[], 0, &[], now), None);
    }

    #[test]
    fn a_slow_one_gets_as_much_as_it_is_sooner_for() {
        let now = Instant::now();
        let mut tracks = tracks(&[1, 10], now);
        assert_eq!(choose(&tracks, 1, &[], now), Some(0), "the other is free");
        for _ in 0..3 {
            tracks[0].begin(now);
        }
        assert_eq!(
            choose(&tracks, 1, &[], now),
            Some(1),
            "the other has much to do"
        );
        tracks[1].begin(now);
        assert_eq!(choose(&tracks, 1, &[], now), Some(0), "and so has it now");
    }

    #[test]
    fn nobody_is_taken_for_slow_for_ever() {
        let now = Instant::now();
        let mut tracks = tracks(&[1, 100], now);
        let later = now + BELIEF;
        assert_eq!(choose(&tracks, 1, &[], later - USUAL), Some(0));
        assert_eq!(choose(&tracks, 1, &[], later), Some(1), "one finds out");
        tracks[1].begin(later);
        assert_eq!(choose(&tracks, 1, &[], later), Some(0), "and no more");
        let done = later + USUAL;
        tracks[1].end(later, Some(USUAL), done);
        assert_eq!(
            choose(&tracks, 1, &[], done),
            Some(1),
            "it is as quick as the other"
        );
    }

    #[test]
    fn what_is_quick_is_not_slow() {
        let now = Instant::now();
        let mut tracks = tracks(&[1, 1], now);
        for (track, took) in tracks.iter_mut().zip([100, 1900]) {
            track.pace = Some((Duration::from_micros(took), now));
        }
        assert_eq!(choose(&tracks, 1, &[], now), Some(1));
    }

    #[test]
    fn one_that_stands_still_gets_nothing_more() {
        let began = Instant::now();
        let mut tracks = tracks(&[1, 1], began);
        tracks[1].begin(began);
        let now = began + Duration::from_secs(5);
        for _ in 0..100 {
            tracks[0].begin(now);
        }
        assert_eq!(choose(&tracks, 1, &[], now), Some(0));
    }

    #[test]
    fn one_that_failed_rests_and_the_manager_comes_last() {
        let now = Instant::now();
        let mut tracks = tracks(&[1, 1], now);
        tracks[1].rest(now);
        assert_eq!(choose(&tracks, 1, &[1], now), Some(0));
        assert_eq!(choose(&tracks, 1, &[], now), Some(0));
        assert_eq!(choose(&tracks, 1, &[], now + REST), Some(1), "tried again");
        tracks[0].rest(now);
        assert_eq!(choose(&tracks, 1, &[1, 0], now), Some(2), "the manager");
        tracks[2].rest(now);
        assert_eq!(choose(&tracks, 1, &[1, 0, 2], now), None);
        assert_eq!(choose(&tracks, 1, &[], now), Some(1), "all rest");
    }

    #[test]
    fn another_version_is_never_read() {
        let now = Instant::now();
        let mut tracks = tracks(&[1, 1], now);
        tracks[1].leave();
        assert_eq!(choose(&tracks, 1, &[], now), Some(0));
        assert_eq!(
            choose(&tracks, 1, &[0], now),
            None,
            "nor whatever the manager may know"
        );
        tracks[0].rest(now);
        assert_eq!(choose(&tracks, 1, &[], now), Some(0), "there is no other");
        for track in &mut tracks {
            track.leave();
        }
        assert_eq!(choose(&tracks, 1, &[], now), None);
    }

    #[test]
    fn reads_that_failed_say_nothing_of_the_pace() {
        let now = Instant::now();
        let mut track = Track::default();
        track.begin(now);
        track.end(now, None, now + Duration::from_secs(9));
        assert!(track.pace.is_none() && track.under_way.is_empty());
    }
}

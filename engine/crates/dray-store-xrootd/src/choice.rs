//! Which of several replicas is read next. Pure: what is known of each comes in, and the time with it.
//!
//! Each replica has a part of the file that it is meant to be read for, as the scheduler was told
//! ([`crate::located`]). It is read for it unless others would be clearly sooner: so a slow server
//! holds up what it is reading, and not all that it was meant for, and one that stands still gets
//! nothing more. One that has failed is left alone for a while, one with another version for good.

use std::time::{Duration, Instant};

/// How many times as long the meant replica may take as the best: what differs by less goes by turns of
/// the scheduler, which knows all that is under way. Here and below as in `dray_sched::congestion`.
const SOONER_TIMES: u32 = 3;

/// What takes less is never slow.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// How much of a read's time goes into the average.
const WEIGHT: u32 = 4;

/// How long it is believed that a replica is slow of which nothing is read meanwhile: then one read
/// finds out (guess, revisit).
const BELIEF: Duration = Duration::from_secs(1);

/// How long a replica that has failed is left alone while there are others: a server that began anew
/// is there again after about as long, and whoever tries a dead one waits for its time to run out
/// (guess, revisit).
pub(crate) const REST: Duration = Duration::from_secs(60);

fn is_young(seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(seen) < BELIEF
}

/// What is known of one replica.
#[derive(Debug, Clone, Default)]
pub(crate) struct Track {
    /// When the reads under way were begun.
    under_way: Vec<Instant>,
    /// What a read takes, and when that was last seen; none before one has ended.
    pace: Option<(Duration, Instant)>,
    /// It has failed, and is left alone until then.
    rests_until: Option<Instant>,
    /// How often it has failed.
    failures: u32,
    /// It holds another version of the file.
    is_other: bool,
}

impl Track {
    /// A read begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.under_way.push(now);
    }

    /// A read that was begun then has ended: by data, which took so long, or by an error. What it took
    /// to open the file is no part of that, or whoever was opened first would seem to be slow.
    pub(crate) fn end(&mut self, began: Instant, took: Option<Duration>, now: Instant) {
        if let Some(at) = self.under_way.iter().position(|other| *other == began) {
            self.under_way.swap_remove(at);
        }
        if let Some(took) = took {
            // What is not believed any more has no weight.
            let known = self.pace.filter(|(_, seen)| is_young(*seen, began));
            let pace = known.map_or(took, |(pace, _)| pace - pace / WEIGHT + took / WEIGHT);
            self.pace = Some((pace, now));
            self.rests_until = None;
        }
    }

    /// It has failed.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.rests_until = Some(now + REST);
        self.failures = self.failures.saturating_add(1);
    }

    /// How often it has failed.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// It holds another version.
    pub(crate) const fn leave(&mut self) {
        self.is_other = true;
    }

    fn is_resting(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// When one more read of it would end, told from now. What is under way for longer than usual says
    /// that it has become slower.
    fn expected(&self, usual: Duration, now: Instant) -> Duration {
        let waits = self
            .under_way
            .iter()
            .map(|began| now.saturating_duration_since(*began));
        let is_believed = |seen| !self.under_way.is_empty() || is_young(seen, now);
        let known = self.pace.filter(|(_, seen)| is_believed(*seen));
        let pace = known.map_or(usual, |(pace, _)| pace);
        let pace = pace.max(waits.max().unwrap_or_default()).max(SLOW_MIN);
        // A named bound of readers keeps the number small.
        pace.saturating_mul(
            u32::try_from(self.under_way.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
        )
    }
}

/// The replica to be read: the one that is `meant`, unless others would be sooner. The last one,
/// the manager, is read only when no other is left and none was of another version; those in
/// `tried` have failed for this very read. When all of them rest, they are read all the same, once:
/// there is nothing better. None: nothing is left.
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
    // Whoever the manager names has a time of its own: once a replica has become another one, so may that
    // be, and nothing would tell.
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

    /// Two servers and the manager, which have each read once, in so many times the usual time.
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

//! Observes the running demotions between two rounds. The next round starts as soon as a demotion
//! has moved its bytes or has ended.

use super::{Memory, Round};
use dray_api::TierVersionState as At;
use dray_core::TransferId;
use dray_queue::{Counters, Queue, TierVersion};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// Longest time between two rounds while a demotion runs.
const ROUND_BUSY: Duration = Duration::from_millis(200);

/// Interval between two checks of the running demotions and of the events of the fast roots.
const LOOK: Duration = Duration::from_millis(100);

/// Interval between two such checks while a demotion runs.
const LOOK_BUSY: Duration = Duration::from_millis(20);

/// Interval in seconds at which a session reports its progress. The bytes that the session has
/// moved since its last report are estimated for at most this time.
const REPORT_SECONDS: f64 = 0.1;

/// Measured seconds from the submission of a demotion to its first byte. The next demotion is
/// submitted this long before the running demotion is due to have moved all its bytes.
const LEAD_SECONDS: f64 = 0.05;

/// The next demotion may start only when at most 1/`LEAD_PART` of the running version's bytes is
/// left to move.
const LEAD_PART: f64 = 8.0;

/// Stage of a running demotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The transfer has no session: it waits, or has ended.
    Apart,
    Moving,
    /// All bytes are moved, and the slow copy becomes durable.
    Moved,
}

/// A running demotion.
#[derive(Debug, Clone, Copy)]
struct Follow {
    stage: Stage,
    /// Rate in bytes per second.
    rate: f64,
    /// Number of moved bytes in the last report, and the time of the check that found this report.
    reported: (u64, Instant),
    /// Bytes that would be left to move if this demotion and the ones before it had moved without a
    /// pause. Negative after the time at which all its bytes should have moved.
    due: f64,
    looked: Instant,
}

impl Follow {
    fn new(due: f64, rate: f64, now: Instant) -> Self {
        Self {
            stage: Stage::Apart,
            rate,
            reported: (0, now),
            due,
            looked: now,
        }
    }

    /// Updates the stage of the demotion. Returns true if, since the previous call, the demotion
    /// has moved almost all its bytes or has lost its session.
    fn look(&mut self, counters: Option<&Counters>, now: Instant) -> bool {
        let past = std::mem::replace(&mut self.looked, now);
        self.due -= self.rate * now.duration_since(past).as_secs_f64();
        let stage = counters.map_or(Stage::Apart, |counters| {
            let moved = moved(counters);
            if self.reported.0 != moved {
                self.reported = (moved, now);
            }
            let listed = counters.bytes.listed;
            let since = now.duration_since(self.reported.1).as_secs_f64();
            let left = listed.saturating_sub(moved) as f64 - since.min(REPORT_SECONDS) * self.rate;
            let is_due = self.due <= LEAD_SECONDS * self.rate;
            match counters.files.listing_done && is_due && left <= listed as f64 / LEAD_PART {
                true => Stage::Moved,
                false => Stage::Moving,
            }
        });
        let before = std::mem::replace(&mut self.stage, stage);
        before != stage && stage != Stage::Moving
    }
}

/// The running demotions.
#[derive(Debug, Default)]
pub(super) struct Followed {
    by_transfer: BTreeMap<String, Follow>,
    /// The demotion that ended last.
    ended: Option<Follow>,
}

/// Returns the number of bytes of the version that need not be moved any more.
fn moved(counters: &Counters) -> u64 {
    let bytes = &counters.bytes;
    let sent = bytes.sent.saturating_add(bytes.resumed);
    sent.saturating_add(bytes.adopted).min(bytes.listed)
}

fn counted(queue: &Queue, id: &str) -> Option<Counters> {
    queue.counted(&TransferId::new(id).ok()?)
}

impl Followed {
    /// Replaces the observed demotions by `running`. Returns the transfers that still move bytes,
    /// or that have no session yet.
    pub(super) fn set(
        &mut self,
        queue: &Queue,
        running: &[&TierVersion],
        rate: f64,
    ) -> Vec<String> {
        let ids = running.iter().filter_map(|row| row.transfer.as_deref());
        let mut known = std::mem::take(&mut self.by_transfer);
        self.by_transfer = ids
            .zip(running)
            .map(|(id, row)| {
                let follow = known.remove(id);
                let new = || Follow::new(row.bytes as f64, rate, Instant::now());
                let follow = follow.unwrap_or_else(new);
                (id.to_owned(), Follow { rate, ..follow })
            })
            .collect();
        self.ended = known.into_values().last().or(self.ended);
        self.look(queue);
        let all = self.by_transfer.iter();
        let moving = all.filter(|(_, one)| one.stage != Stage::Moved);
        moving.map(|(id, _)| id.clone()).collect()
    }

    /// Adds a demotion that was submitted at the time `now`. If the previous demotion was late or
    /// early, the new demotion's `due` compensates for the difference.
    pub(super) fn add(&mut self, id: String, bytes: u64, rate: f64, now: Instant) {
        let bytes = bytes as f64;
        let mut running = self.by_transfer.values();
        let before = running.find(|one| one.stage == Stage::Moved).copied();
        let left = before.or(self.ended).map_or(0.0, |one| {
            let past = now.duration_since(one.looked).as_secs_f64();
            (one.due - rate * past).clamp(-bytes / LEAD_PART, bytes / LEAD_PART)
        });
        self.by_transfer
            .insert(id, Follow::new(bytes + left, rate, now));
    }

    fn is_empty(&self) -> bool {
        self.by_transfer.is_empty()
    }

    /// Updates the stages of the running demotions. Returns true if, since the previous call, a
    /// demotion has moved almost all its bytes or has lost its session.
    fn look(&mut self, queue: &Queue) -> bool {
        let now = Instant::now();
        let mut has_advanced = false;
        for (id, follow) in &mut self.by_transfer {
            has_advanced |= follow.look(counted(queue, id).as_ref(), now);
        }
        has_advanced
    }
}

impl Memory {
    /// Returns true if the next round should start now.
    fn is_awaited(&mut self, queue: &Queue) -> bool {
        self.is_hinted |= self.watch.noticed() != super::watch::Noticed::Nothing;
        let is_scan_due = self.is_hinted && Instant::now() >= self.next_hinted;
        self.followed.look(queue) || is_scan_due
    }

    /// Waits for the next round of a tier: until a demotion advances, a fast root changes, or the
    /// maximum interval has passed. `memory` is `None` before the first round. Returns false if the
    /// endpoint stops.
    pub(super) fn pause(
        mut memory: Option<&mut Self>,
        queue: &Queue,
        sleep: &dyn Fn(Duration) -> bool,
    ) -> bool {
        let is_busy = (memory.as_ref()).is_some_and(|memory| !memory.followed.is_empty());
        let (look, round) = match is_busy {
            true => (LOOK_BUSY, ROUND_BUSY),
            false => (LOOK, ROUND),
        };
        let until = Instant::now() + round;
        while sleep(look) {
            let is_awaited = (memory.as_mut()).is_some_and(|memory| memory.is_awaited(queue));
            if is_awaited || Instant::now() >= until {
                return true;
            }
        }
        false
    }
}

impl Round<'_> {
    /// Returns the number of bytes on the fast roots without a durable slow copy.
    pub(super) fn backlog(&self, rows: &[TierVersion]) -> u64 {
        let waits = |row: &&TierVersion| matches!(row.state, At::Written | At::Demoting);
        let complete: u64 = rows.iter().filter(waits).map(|row| row.bytes).sum();
        let incomplete = self.memory.incomplete.iter().map(|one| one.bytes);
        complete + incomplete.sum::<u64>()
    }

    /// Returns the number of bytes that the running demotions have moved.
    pub(super) fn moved(&self, rows: &[TierVersion]) -> u64 {
        rows.iter()
            .filter(|row| row.state == At::Demoting)
            .filter_map(|row| counted(&self.all.queue, row.transfer.as_deref()?))
            .map(|counters| moved(&counters))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Follow, Followed, Stage};
    use dray_queue::Counters;
    use std::time::{Duration, Instant};

    fn counters(listed: u64, sent: u64) -> Counters {
        let mut counters = Counters::default();
        counters.files.listing_done = true;
        (counters.bytes.listed, counters.bytes.sent) = (listed, sent);
        counters
    }

    #[test]
    fn a_demotion_counts_as_moved_shortly_before_its_last_byte() {
        let (rate, begin) = (1_000.0, Instant::now());
        let mut follow = Follow::new(2_000.0, rate, begin);
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(!follow.look(None, at(0)), "it has no session yet");
        assert!(!follow.look(Some(&counters(2_000, 0)), at(20)));
        assert_eq!(follow.stage, Stage::Moving);
        assert!(
            !follow.look(Some(&counters(2_000, 1_860)), at(1_940)),
            "not due"
        );
        assert!(follow.look(Some(&counters(2_000, 1_900)), at(1_950)));
        assert_eq!(follow.stage, Stage::Moved);
        assert!(
            !follow.look(Some(&counters(2_000, 2_000)), at(2_040)),
            "known"
        );
        assert!(follow.look(None, at(2_060)), "it has ended");
    }

    #[test]
    fn a_stalled_demotion_and_a_long_listing_are_still_moving() {
        let begin = Instant::now();
        let mut follow = Follow::new(2_000.0, 1_000.0, begin);
        let later = begin + Duration::from_secs(60);
        assert!(!follow.look(Some(&counters(2_000, 1_600)), begin));
        assert!(!follow.look(Some(&counters(2_000, 1_600)), later));
        let mut listing = counters(2_000, 2_000);
        listing.files.listing_done = false;
        assert!(!follow.look(Some(&listing), later));
        assert!(follow.look(Some(&counters(2_000, 2_000)), later));
    }

    #[test]
    fn the_next_demotion_makes_up_for_a_late_or_early_one() {
        let begin = Instant::now();
        let mut followed = Followed::default();
        followed.add("one".to_owned(), 800, 1_000.0, begin);
        assert_eq!(followed.by_transfer["one"].due, 800.0);
        let mut after = |due, seconds, is_running| {
            let mut one = Follow::new(due, 1_000.0, begin);
            one.stage = Stage::Moved;
            followed.by_transfer.clear();
            match is_running {
                true => drop(followed.by_transfer.insert("one".to_owned(), one)),
                false => followed.ended = Some(one),
            }
            let now = begin + Duration::from_millis(seconds);
            followed.add("two".to_owned(), 800, 1_000.0, now);
            followed.by_transfer["two"].due
        };
        for is_running in [true, false] {
            assert_eq!(after(-40.0, 0, is_running), 760.0);
            assert_eq!(after(-4_000.0, 0, is_running), 700.0);
            assert_eq!(after(50.0, 0, is_running), 850.0);
            assert_eq!(after(50.0, 70, is_running), 780.0);
        }
    }
}

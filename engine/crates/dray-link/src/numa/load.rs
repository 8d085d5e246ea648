//! Measures the load of processors from the kernel's counters of busy and idle ticks since the
//! start of the host (`/proc/stat`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Minimum interval between two compared measurements. A kernel tick takes 10 ms, so a shorter
/// interval would count too few ticks.
const APART: Duration = Duration::from_millis(200);

/// Idle ticks and all ticks of one processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// Tick counters of all processors, with the time of the measurement.
#[derive(Debug, Clone)]
struct CpuTimes {
    at: Instant,
    cpus: HashMap<usize, Ticks>,
}

/// Load of each processor between the last two measurements.
#[derive(Debug, Default)]
pub(super) struct Load {
    before: Option<CpuTimes>,
    /// Busy fraction of the time, 0 to 1, by processor.
    busy: HashMap<usize, f64>,
}

impl Load {
    /// Updates the load from the content of `/proc/stat`, read at `at`.
    pub(super) fn look(&mut self, stat: &str, at: Instant) {
        if let Some(before) = &self.before {
            if at.saturating_duration_since(before.at) < APART {
                return;
            }
            let cpus = ticks(stat);
            self.busy = cpus
                .iter()
                .filter_map(|(cpu, now)| Some((*cpu, busy(*before.cpus.get(cpu)?, *now)?)))
                .collect();
            self.before = Some(CpuTimes { at, cpus });
        } else {
            let cpus = ticks(stat);
            self.before = Some(CpuTimes { at, cpus });
        }
    }

    /// Returns the average load of these processors. Returns `None` if the load is known for none
    /// of them.
    pub(super) fn of(&self, cpus: &[usize]) -> Option<f64> {
        let known: Vec<f64> = cpus
            .iter()
            .filter_map(|cpu| self.busy.get(cpu).copied())
            .collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

/// Returns the busy fraction of the time between two measurements of one processor.
fn busy(before: Ticks, now: Ticks) -> Option<f64> {
    let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
    // The kernel's idle counter sometimes decreases.
    let idle = now.idle.saturating_sub(before.idle).min(all);
    Some((all - idle) as f64 / all as f64)
}

/// Parses the lines `cpuN user nice system idle iowait irq softirq steal ...` (`proc_stat(5)`). The
/// ticks of `idle` and `iowait` count as idle. The column `user` already includes the time of
/// guests.
fn ticks(stat: &str) -> HashMap<usize, Ticks> {
    stat.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            let counts: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            let idle = counts.get(3)?.saturating_add(*counts.get(4).unwrap_or(&0));
            let all = counts
                .iter()
                .fold(0u64, |sum, count| sum.saturating_add(*count));
            Some((cpu, Ticks { idle, all }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{APART, Load};
    use std::time::{Duration, Instant};

    fn stat(first: [u64; 4], second: [u64; 4]) -> String {
        let line = |name: &str, [user, system, idle, wait]: [u64; 4]| {
            format!("{name} {user} 0 {system} {idle} {wait} 0 0 0 0 0\n")
        };
        let both = [0, 1, 2, 3].map(|index| first[index] + second[index]);
        line("cpu ", both) + &line("cpu0", first) + &line("cpu1", second) + "intr 12 3\nctxt 5\n"
    }

    #[test]
    fn load_is_the_busy_time_between_two_measurements() {
        let (mut load, began) = (Load::default(), Instant::now());
        load.look(&stat([900, 0, 100, 0], [0, 0, 1000, 0]), began);
        assert_eq!(load.of(&[0, 1]), None, "one look tells nothing");
        let later = began + APART;
        load.look(&stat([910, 10, 110, 10], [30, 0, 1010, 0]), later);
        assert_eq!(load.of(&[0]), Some(0.5), "waiting for storage is no work");
        assert_eq!(load.of(&[1]), Some(0.75));
        assert_eq!(load.of(&[0, 1, 7]), Some(0.625));
        assert_eq!(load.of(&[7]), None);
        // A measurement less than `APART` after the previous one changes nothing.
        let soon = later + Duration::from_millis(1);
        load.look(&stat([1910, 10, 110, 10], [30, 0, 1010, 0]), soon);
        assert_eq!(load.of(&[0]), Some(0.5));
    }

    #[test]
    fn counts_that_go_back_or_are_none_tell_nothing() {
        let (mut load, began) = (Load::default(), Instant::now());
        load.look(&stat([10, 0, 100, 0], [10, 0, 100, 0]), began);
        load.look(&stat([30, 0, 90, 0], [10, 0, 100, 0]), began + APART);
        assert_eq!(load.of(&[0]), Some(1.0), "idle ticks were taken back");
        assert_eq!(load.of(&[1]), None, "no tick has passed");
        load.look("cpu0\ncpux 1 2 3 4\ncpu1 1 2 3\n", began + 2 * APART);
        assert_eq!(load.of(&[0, 1]), None);
    }
}

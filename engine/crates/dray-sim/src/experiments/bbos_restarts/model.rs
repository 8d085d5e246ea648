//! A tier with applications that write checkpoints, fail and restart. All choices of versions are
//! those of `dray_sched::tiers`.
//!
//! One application writes at a time, in the order of requests. One version is demoted at a time.
//! The tier always demotes at Brmax, and applications always write at Bwmin. A restart takes no
//! time and no bandwidth, and it does not bring a version back to the fast tier (BBOS, section
//! 5.1.2: "a promotion is not required").

use dray_sched::rng::Rng;
use dray_sched::tiers::failures::{FailureEstimator, Prior};
use dray_sched::tiers::victims::{
    Order, Version, VersionState, deletions, kept_because, newest_complete, next_demotion,
};
use std::collections::VecDeque;

/// Size of a checkpoint in bytes (BBOS, section 5.3.2).
pub const CHECKPOINT: u64 = 80_000_000_000;

/// Rate of writes in bytes per second: Bwmin (BBOS, section 5.3.1).
const WRITE_RATE: f64 = 3.0e9;
/// Rate of demotions in bytes per second: Brmax (BBOS, section 5.3.1).
const DEMOTION_RATE: f64 = 1.6e9;

/// An application. Times are in seconds.
#[derive(Debug, Clone)]
pub struct Application {
    /// Time between two checkpoints.
    pub period: f64,
    /// Time of the first checkpoint.
    pub offset: f64,
    /// True mean time between failures.
    pub mtbf: f64,
    /// Number of versions that the application retains. The application removes older versions from
    /// both tiers.
    pub retained: u64,
}

/// The MTBF that the tier uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Belief {
    /// The true MTBF.
    Truth,
    /// The estimate from the restarts so far.
    Estimate(Prior),
}

/// A run of the model.
#[derive(Debug, Clone)]
pub struct Scenario<'a> {
    /// The applications.
    pub applications: &'a [Application],
    /// Capacity of the fast tier in bytes.
    pub capacity: u64,
    /// Order of victims.
    pub order: Order,
    /// MTBF that the tier uses.
    pub belief: Belief,
    /// True if a restart counts as a use of its version.
    pub counts_restarts: bool,
    /// Length of the window in seconds for which restarts are counted.
    pub window: f64,
    /// Number of windows.
    pub windows: usize,
    /// Seed of the restarts.
    pub seed: u64,
}

/// Restarts in one window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Count {
    /// Number of restarts from the fast tier.
    pub hits: u64,
    /// Number of restarts.
    pub restarts: u64,
    /// Fraction of failures that would restart from the fast tier at the end of the window. It is
    /// the expected hit ratio of applications that fail then.
    pub at_end: f64,
}

/// The time in which a version is the newest complete version of its application.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// Time in seconds at which the version was complete.
    pub from: f64,
    /// Times in seconds of the restarts from the version, ascending.
    pub restarts: Vec<f64>,
}

/// Results of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Restarts by window.
    pub counts: Vec<Count>,
    /// Lives of all versions.
    pub lives: Vec<Life>,
    /// Number of checkpoints that waited for space on the fast tier.
    pub stalls: u64,
}

impl Outcome {
    /// Returns the hit ratio from window `from` on.
    #[must_use]
    pub fn ratio(&self, from: usize) -> f64 {
        let counted = &self.counts[from..];
        let hits: u64 = counted.iter().map(|each| each.hits).sum();
        let restarts: u64 = counted.iter().map(|each| each.restarts).sum();
        hits as f64 / restarts as f64
    }

    /// Returns an upper bound of the hit ratio of every policy from the time `from` until `until`,
    /// even of a policy that knows all restarts beforehand.
    ///
    /// An evicted version never returns to the fast tier. So a version that serves a restart
    /// occupies space on the fast tier from the completion of the version until the restart. The
    /// function replaces the limit on the space by a price for each second of a checkpoint's space
    /// (Lagrangian relaxation). Each price gives an upper bound, and the function returns the
    /// lowest bound of 40 prices.
    #[must_use]
    pub fn bound(&self, from: f64, until: f64, capacity: u64) -> f64 {
        let space = capacity as f64 / CHECKPOINT as f64 * (until - from);
        let meant = |at: &&f64| (from..until).contains(*at);
        let restarts = self.lives.iter().flat_map(|life| &life.restarts);
        let total = restarts.filter(meant).count() as f64;
        let relaxed = |price: f64| -> f64 {
            let best = |life: &Life| {
                let begins = life.from.max(from);
                let gains = life.restarts.iter().filter(meant).enumerate();
                let gains = gains.map(|(before, at)| (before + 1) as f64 - price * (at - begins));
                gains.fold(0.0, f64::max)
            };
            price * space + self.lives.iter().map(best).sum::<f64>()
        };
        // The prices range from one restart in 16 hours to one restart in a minute.
        let prices = (0..40).map(|step| 1.0 / (60.0 * 960f64.powf(f64::from(step) / 39.0)));
        (prices.map(relaxed).fold(total, f64::min)) / total
    }
}

/// Runs a scenario.
#[must_use]
pub fn run(scenario: &Scenario<'_>) -> Outcome {
    let mut tier = Tier::new(scenario);
    let end = scenario.window * scenario.windows as f64;
    loop {
        // Restarts and windows do not change which demotion or write may start.
        if std::mem::take(&mut tier.is_changed) {
            tier.start_demotion();
            tier.start_write();
        }
        let (at, event) = tier.next();
        if at >= end {
            break;
        }
        tier.now = at;
        tier.happened(event);
    }
    tier.finish_windows(end);
    tier.outcome
}

/// An event of the model. Events at the same time happen in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Window,
    DemotionDone,
    WriteDone,
    Request(usize),
    Restart(usize),
}

/// Variables of one application.
struct Running {
    name: String,
    next_request: f64,
    next_restart: f64,
    numbers: u64,
    life: Option<usize>,
    estimator: Option<FailureEstimator>,
}

struct Tier<'a> {
    scenario: &'a Scenario<'a>,
    draw: Rng,
    now: f64,
    running: Vec<Running>,
    versions: Vec<Version>,
    /// Applications that wait to write.
    queue: VecDeque<usize>,
    /// The application that writes, and the end of its write.
    writes: Option<(usize, f64)>,
    is_stalled: bool,
    /// True if a demotion or a write may start.
    is_changed: bool,
    /// End of the demotion that runs, and true if the fast copy is deleted then.
    demotes: Option<(f64, bool)>,
    outcome: Outcome,
    current: Count,
}

impl<'a> Tier<'a> {
    fn new(scenario: &'a Scenario<'a>) -> Self {
        let mut draw = Rng::new(scenario.seed ^ 0xbb05);
        let running = scenario.applications.iter().enumerate();
        let running = running.map(|(at, application)| Running {
            name: format!("{at:03}"),
            next_request: application.offset,
            next_restart: exponential(&mut draw) * application.mtbf,
            numbers: 0,
            life: None,
            estimator: match scenario.belief {
                Belief::Truth => None,
                Belief::Estimate(prior) => Some(FailureEstimator::new(prior, 0.0)),
            },
        });
        let running = running.collect();
        Self {
            scenario,
            draw,
            now: 0.0,
            running,
            versions: Vec::new(),
            queue: VecDeque::new(),
            writes: None,
            is_stalled: false,
            is_changed: false,
            demotes: None,
            outcome: Outcome::default(),
            current: Count::default(),
        }
    }

    fn next(&self) -> (f64, Event) {
        let window = (self.outcome.counts.len() + 1) as f64 * self.scenario.window;
        let mut first = (window, Event::Window);
        let mut earlier = |at: f64, event: Event| {
            if at < first.0 {
                first = (at, event);
            }
        };
        if let Some((at, _)) = self.demotes {
            earlier(at, Event::DemotionDone);
        }
        if let Some((_, at)) = self.writes {
            earlier(at, Event::WriteDone);
        }
        for (index, each) in self.running.iter().enumerate() {
            earlier(each.next_request, Event::Request(index));
            earlier(each.next_restart, Event::Restart(index));
        }
        first
    }

    fn happened(&mut self, event: Event) {
        self.is_changed |= !matches!(event, Event::Window | Event::Restart(_));
        match event {
            Event::Window => self.finish_windows(self.now),
            Event::DemotionDone => self.demotion_done(),
            Event::WriteDone => self.write_done(),
            Event::Request(index) => {
                self.running[index].next_request += self.scenario.applications[index].period;
                self.queue.push_back(index);
            }
            Event::Restart(index) => self.restart(index),
        }
    }

    fn mtbf(&self, index: usize) -> f64 {
        let estimator = self.running[index].estimator;
        let truth = self.scenario.applications[index].mtbf;
        estimator.map_or(truth, |estimator| estimator.mtbf(self.now))
    }

    /// Updates the MTBF of all versions before a choice.
    fn refresh(&mut self) {
        if self.scenario.belief == Belief::Truth {
            return;
        }
        for at in 0..self.versions.len() {
            let index = self.owner(at);
            self.versions[at].mtbf = self.mtbf(index);
        }
    }

    fn owner(&self, at: usize) -> usize {
        self.versions[at].application.parse().expect("a number")
    }

    fn start_demotion(&mut self) {
        if self.demotes.is_some() {
            return;
        }
        self.refresh();
        if let Some(chosen) = next_demotion(&self.versions, self.scenario.order) {
            let version = &mut self.versions[chosen.index];
            version.state = VersionState::Demoting;
            let ends = self.now + version.bytes as f64 / DEMOTION_RATE;
            self.demotes = Some((ends, chosen.delete_after));
        }
    }

    fn demotion_done(&mut self) {
        let Some((_, delete_after)) = self.demotes.take() else {
            return;
        };
        let is_demoted = |each: &&mut Version| each.state == VersionState::Demoting;
        // The application may have removed the version meanwhile.
        if let Some(version) = self.versions.iter_mut().find(is_demoted) {
            version.state = VersionState::Demoted;
            version.demoted_at = Some(self.now);
            if delete_after && kept_because(version).is_none() {
                version.state = VersionState::SlowOnly;
            }
        }
    }

    fn start_write(&mut self) {
        let Some(index) = self.queue.front().copied() else {
            return;
        };
        if self.writes.is_some() {
            return;
        }
        let on_fast = self.versions.iter().filter(|each| each.state.is_on_fast());
        let used: u64 = on_fast.map(|each| each.bytes).sum();
        let free = self.scenario.capacity.saturating_sub(used);
        if free < CHECKPOINT {
            self.refresh();
            let found = deletions(&self.versions, CHECKPOINT - free, self.scenario.order);
            for at in found.indices {
                self.versions[at].state = VersionState::SlowOnly;
            }
            if free + found.freed < CHECKPOINT {
                self.outcome.stalls += u64::from(!self.is_stalled);
                self.is_stalled = true;
                return;
            }
        }
        self.is_stalled = false;
        self.queue.pop_front();
        let mtbf = self.mtbf(index);
        let running = &mut self.running[index];
        running.numbers += 1;
        self.versions.push(Version {
            application: running.name.clone(),
            number: running.numbers,
            bytes: CHECKPOINT,
            written_at: self.now,
            used_at: self.now,
            demoted_at: None,
            mtbf,
            state: VersionState::Incomplete,
            is_pinned: false,
            is_replicated: false,
            deadline: None,
        });
        self.writes = Some((index, self.now + CHECKPOINT as f64 / WRITE_RATE));
    }

    fn write_done(&mut self) {
        let Some((index, _)) = self.writes.take() else {
            return;
        };
        let is_written = |each: &&mut Version| each.state == VersionState::Incomplete;
        if let Some(version) = self.versions.iter_mut().find(is_written) {
            version.state = VersionState::OnFast;
            version.written_at = self.now;
            version.used_at = self.now;
        }
        let running = &mut self.running[index];
        running.life = Some(self.outcome.lives.len());
        self.outcome.lives.push(Life {
            from: self.now,
            restarts: Vec::new(),
        });
        let newest = running.numbers;
        let retained = self.scenario.applications[index].retained;
        let name = &running.name;
        self.versions.retain(|each| {
            // An older version that exists only on the slow tier has no effect on any choice.
            let is_old = each.number + retained <= newest
                || (each.state == VersionState::SlowOnly && each.number < newest);
            each.application != *name || !is_old
        });
    }

    fn restart(&mut self, index: usize) {
        let gap = exponential(&mut self.draw) * self.scenario.applications[index].mtbf;
        let running = &mut self.running[index];
        running.next_restart += gap;
        if let Some(estimator) = &mut running.estimator {
            estimator.restarted(self.now);
        }
        // Before its first checkpoint an application starts from the beginning.
        let Some(newest) = newest_complete(&self.versions, &running.name) else {
            return;
        };
        self.current.restarts += 1;
        self.current.hits += u64::from(self.versions[newest].state.is_on_fast());
        if self.scenario.counts_restarts {
            self.versions[newest].used_at = self.now;
        }
        if let Some(life) = running.life {
            self.outcome.lives[life].restarts.push(self.now);
        }
    }

    /// Ends the window at the time `at`.
    fn finish_windows(&mut self, at: f64) {
        if self.outcome.counts.len() as f64 * self.scenario.window >= at {
            return;
        }
        let (mut fast, mut all) = (0.0, 0.0);
        for (running, application) in self.running.iter().zip(self.scenario.applications) {
            let newest = newest_complete(&self.versions, &running.name);
            let is_hit = newest.is_some_and(|at| self.versions[at].state.is_on_fast());
            all += 1.0 / application.mtbf;
            fast += f64::from(u8::from(is_hit)) / application.mtbf;
        }
        let mut count = std::mem::take(&mut self.current);
        count.at_end = fast / all;
        self.outcome.counts.push(count);
    }
}

/// Returns a random number with an exponential distribution of mean 1.
fn exponential(draw: &mut Rng) -> f64 {
    -(1.0 - unit(draw)).ln()
}

/// Returns a random number from 0 to below 1.
pub(super) fn unit(draw: &mut Rng) -> f64 {
    f64::from(draw.next_u32()) / 4_294_967_296.0
}

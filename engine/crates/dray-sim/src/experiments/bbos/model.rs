//! A fluid model of a fast tier: queues of writes, one write rate, one demotion rate, and the
//! versions on the tier. All decisions are those of `dray_sched::tiers`.

use dray_sched::tiers::bypass::{BypassRule, Incoming, goes_to_slow_tier};
use dray_sched::tiers::io_jobs::{DeviceIndex, JobQueues};
use dray_sched::tiers::policy::{Moment, Tier, TierPolicy};
use dray_sched::tiers::written::PeriodEstimator;

/// Precision of sizes in bytes. Smaller remainders are rounding errors.
const BYTE: f64 = 1.0;

/// Largest step as a fraction of the capacity. Rates are constant during a step.
const STEP: f64 = 1.0 / 500.0;

const FAST: DeviceIndex = DeviceIndex(0);
const SLOW: DeviceIndex = DeviceIndex(1);

/// A checkpoint that an application writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Number of the application.
    pub application: usize,
    /// Time of the request in seconds from the start of the period.
    pub arrives: f64,
    /// Size in bytes.
    pub bytes: f64,
}

/// Data that may be demoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demotes {
    /// All written bytes, as in the paper: a checkpoint has many files.
    Written,
    /// Complete versions, as in dray.
    Complete,
}

/// Source of DWPP.
pub enum Known<'a> {
    /// The true number of bytes of the period.
    Oracle(f64),
    /// An estimate from past periods.
    Estimated(&'a mut PeriodEstimator),
}

/// Parameters of a model.
pub struct Parameters<'a> {
    /// Capacity and bandwidths.
    pub tier: Tier,
    /// Policy of rates.
    pub policy: &'a dyn TierPolicy,
    /// Data that may be demoted.
    pub demotes: Demotes,
    /// Conditions of a bypass, if it is enabled.
    pub bypass: Option<BypassRule>,
    /// MTBF by application in seconds. An application without an entry has an MTBF of zero.
    pub mtbf: Vec<f64>,
}

/// Result of one job. Times are in seconds from the start of the period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Record {
    /// Size in bytes.
    pub bytes: f64,
    /// Time of the request.
    pub arrived: f64,
    /// Start of the write.
    pub started: f64,
    /// End of the write.
    pub finished: f64,
    /// Seconds in which the job waited for space, before and during the write.
    pub stopped: f64,
    /// True if the slow tier was written directly.
    pub is_direct: bool,
}

impl Record {
    /// Returns the duration of the write in seconds, including stops during the write.
    #[must_use]
    pub fn executed(&self) -> f64 {
        self.finished - self.started
    }

    /// Returns the time in seconds from the request to the end.
    #[must_use]
    pub fn latency(&self) -> f64 {
        self.finished - self.arrived
    }

    /// Returns the time in seconds from the request to the start of the write.
    #[must_use]
    pub fn waited(&self) -> f64 {
        self.started - self.arrived
    }
}

/// Result of one period.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Results of the jobs, in the order of the jobs.
    pub jobs: Vec<Record>,
    /// Largest number of bytes without a copy on the slow tier.
    pub most_used: f64,
    /// Demoted bytes.
    pub demoted: f64,
    /// Time in seconds at which all bytes had a copy on the slow tier. Infinite if some bytes had
    /// no such copy at the end of the period.
    pub drained: f64,
}

impl Run {
    /// Returns the sum of the times in seconds that jobs waited for space.
    #[must_use]
    pub fn stopped(&self) -> f64 {
        self.jobs.iter().map(|job| job.stopped).sum()
    }
}

#[derive(Debug, Clone)]
struct Version {
    application: usize,
    written: f64,
    demoted: f64,
    is_complete: bool,
    is_newest: bool,
}

impl Version {
    fn dirty(&self) -> f64 {
        self.written - self.demoted
    }
}

#[derive(Debug, Clone, Copy)]
struct Active {
    job: usize,
    left: f64,
}

#[derive(Debug, Clone, Copy)]
struct Speeds {
    write: f64,
    read: f64,
    direct: f64,
    is_full: bool,
}

/// State of a fast tier, which lasts over several periods.
pub struct Model<'a> {
    parameters: Parameters<'a>,
    versions: Vec<Version>,
}

/// State of one period.
struct Period<'m, 'k, 'a> {
    model: &'m mut Model<'a>,
    known: Known<'k>,
    jobs: &'m [Job],
    queues: JobQueues<usize>,
    now: f64,
    next: usize,
    /// Job at the head of the fast device that waits for space, and the time since which it waits.
    gated: Option<(usize, f64)>,
    active: Vec<Active>,
    direct: Option<Active>,
    dwsf: f64,
    dwpp: f64,
    run: Run,
}

impl<'a> Model<'a> {
    /// Creates a model of an empty tier.
    #[must_use]
    pub const fn new(parameters: Parameters<'a>) -> Self {
        Self {
            parameters,
            versions: Vec::new(),
        }
    }

    /// Runs one period. The period ends when all jobs have been written, but not before the
    /// period's length has passed.
    pub fn period(&mut self, jobs: &[Job], known: Known<'_>) -> Run {
        let mut period = Period {
            model: self,
            known,
            jobs,
            queues: JobQueues::new(),
            now: 0.0,
            next: 0,
            gated: None,
            active: Vec::new(),
            direct: None,
            dwsf: 0.0,
            dwpp: 0.0,
            run: Run::default(),
        };
        period.run.jobs = (jobs.iter())
            .map(|job| Record {
                bytes: job.bytes,
                arrived: job.arrives,
                ..Record::default()
            })
            .collect();
        while period.is_under_way() {
            period.begin();
            period.step();
        }
        if let Known::Estimated(estimator) = period.known {
            estimator.roll();
        }
        let mut run = period.run;
        if self.dirty() >= BYTE {
            run.drained = f64::INFINITY;
        }
        run
    }

    fn dirty(&self) -> f64 {
        self.versions.iter().map(Version::dirty).sum()
    }

    fn demotable(&self) -> f64 {
        let may =
            |version: &&Version| version.is_complete || self.parameters.demotes == Demotes::Written;
        self.versions.iter().filter(may).map(Version::dirty).sum()
    }

    fn mtbf(&self, application: usize) -> f64 {
        let mtbf = self.parameters.mtbf.get(application);
        mtbf.copied().unwrap_or(0.0)
    }

    /// Demotes bytes: older versions first, then the highest MTBF first. A version that is still
    /// being written comes last.
    fn demote(&mut self, mut bytes: f64) {
        while bytes > 0.0
            && let Some(at) = self.victim()
        {
            let version = &mut self.versions[at];
            let part = bytes.min(version.dirty());
            version.demoted += part;
            bytes -= part;
            if version.dirty() < BYTE {
                version.demoted = version.written;
            }
        }
    }

    fn victim(&self) -> Option<usize> {
        let may = |at: &usize| {
            let version = &self.versions[*at];
            version.dirty() > 0.0
                && (version.is_complete || self.parameters.demotes == Demotes::Written)
        };
        let key = |at: &usize| {
            let version = &self.versions[*at];
            (!version.is_complete, version.is_newest)
        };
        let mtbf = |at: &usize| self.mtbf(self.versions[*at].application);
        (0..self.versions.len()).filter(may).min_by(|one, other| {
            (key(one).cmp(&key(other))).then(mtbf(other).total_cmp(&mtbf(one)))
        })
    }

    /// Deletes demoted versions: older versions immediately, newest versions when their space is
    /// needed, the highest MTBF first.
    fn evict(&mut self) {
        let is_clean = |version: &Version| version.is_complete && version.dirty() < BYTE;
        (self.versions).retain(|version| version.is_newest || !is_clean(version));
        let mut held: f64 = self.versions.iter().map(|version| version.written).sum();
        while held > self.parameters.tier.capacity {
            let clean = (0..self.versions.len()).filter(|at| is_clean(&self.versions[*at]));
            let mtbf = |at: &usize| self.mtbf(self.versions[*at].application);
            let Some(coldest) = clean.max_by(|one, other| mtbf(one).total_cmp(&mtbf(other))) else {
                return;
            };
            held -= self.versions.remove(coldest).written;
        }
    }

    /// Marks all complete versions of an application as older than a new version.
    fn supersede(&mut self, application: usize) {
        for version in &mut self.versions {
            if version.application == application && version.is_complete {
                version.is_newest = false;
            }
        }
    }
}

impl Period<'_, '_, '_> {
    fn is_under_way(&self) -> bool {
        let period = self.model.parameters.tier.period;
        self.now < period || self.next < self.jobs.len() || !self.is_quiet()
    }

    /// Returns true if no job is queued or written.
    fn is_quiet(&self) -> bool {
        let is_writing = self.gated.is_some() || !self.active.is_empty() || self.direct.is_some();
        !is_writing && self.queues.waiting(FAST) + self.queues.waiting(SLOW) == 0
    }

    fn moment(&self) -> Moment {
        Moment {
            dwsf: self.dwsf,
            dwpp: self.dwpp,
            backlog: self.model.dirty(),
        }
    }

    fn free(&self) -> f64 {
        self.model.parameters.tier.capacity - self.model.dirty()
    }

    fn update_dwpp(&mut self) {
        self.dwpp = match &self.known {
            Known::Oracle(bytes) => *bytes,
            Known::Estimated(estimator) => estimator.dwpp(),
        };
    }

    /// Accepts requests, and starts the writes that may start.
    fn begin(&mut self) {
        while let Some(job) = self.jobs.get(self.next) {
            if job.arrives > self.now + 1e-9 {
                break;
            }
            let application = format!("a{}", job.application);
            self.queues.submit(FAST, &application, self.next);
            self.next += 1;
        }
        self.update_dwpp();
        let serializes = self.model.parameters.policy.serializes();
        loop {
            if self.gated.is_none() {
                let Some(job) = self.queues.start(FAST) else {
                    break;
                };
                if self.is_bypassed(job) {
                    self.queues.finish(FAST);
                    let application = format!("a{}", self.jobs[job].application);
                    self.queues.submit(SLOW, &application, job);
                    continue;
                }
                self.gated = Some((job, self.now));
            }
            if !self.open() {
                break;
            }
            if !serializes {
                self.queues.finish(FAST);
            }
        }
        if self.direct.is_none()
            && let Some(job) = self.queues.start(SLOW)
        {
            let left = self.jobs[job].bytes;
            self.direct = Some(Active { job, left });
            self.run.jobs[job].started = self.now;
            self.run.jobs[job].is_direct = true;
        }
    }

    fn is_bypassed(&self, job: usize) -> bool {
        let Parameters { tier, bypass, .. } = &self.model.parameters;
        let Some(rule) = bypass else {
            return false;
        };
        let Job {
            application, bytes, ..
        } = self.jobs[job];
        let mtbf = self.model.mtbf(application);
        let held = (self.model.versions.iter())
            .filter(|version| version.is_complete && version.is_newest)
            .filter(|version| version.application != application)
            .map(|version| self.model.mtbf(version.application));
        let incoming = Incoming { bytes, mtbf };
        goes_to_slow_tier(rule, &tier.device, tier.capacity, self.dwsf, incoming, held)
    }

    /// Starts the write that waits for space, if the tier now has enough free space.
    fn open(&mut self) -> bool {
        let Some((job, since)) = self.gated else {
            return false;
        };
        if self.missing(job) > BYTE {
            return false;
        }
        self.gated = None;
        let record = &mut self.run.jobs[job];
        record.started = self.now;
        record.stopped += self.now - since;
        let Job {
            application, bytes, ..
        } = self.jobs[job];
        self.active.push(Active { job, left: bytes });
        self.model.versions.push(Version {
            application,
            written: 0.0,
            demoted: 0.0,
            is_complete: false,
            is_newest: true,
        });
        true
    }

    /// Returns the number of bytes that must be freed before this write starts.
    fn missing(&self, job: usize) -> f64 {
        let Parameters { tier, policy, .. } = &self.model.parameters;
        let bytes = self.jobs[job].bytes;
        // Concurrent writes have their space reserved.
        let reserved: f64 = self.active.iter().map(|active| active.left).sum();
        policy.space_to_start(tier, &self.moment(), bytes) + reserved - self.free()
    }

    /// Returns the speeds after `written` more bytes are written and `backlog` bytes join the
    /// backlog.
    fn speeds(&self, written: f64, backlog: f64) -> Speeds {
        let Parameters {
            tier,
            policy,
            demotes,
            ..
        } = &self.model.parameters;
        let mut moment = self.moment();
        moment.dwsf += written;
        moment.backlog += backlog;
        let (mut write, mut read) = (0.0, tier.device.read_max);
        if !self.active.is_empty() {
            let rates = policy.rates(tier, &moment);
            (write, read) = (rates.write, rates.read);
        }
        if self.model.demotable() < BYTE {
            if *demotes == Demotes::Complete {
                read = 0.0;
                write = if write > 0.0 {
                    tier.device.write_max
                } else {
                    0.0
                };
            }
            read = read.min(write);
        }
        let mut direct = 0.0;
        if self.direct.is_some() {
            // Direct writes and the demotion get equal shares of the slow tier's bandwidth, unless
            // the demotion needs less.
            direct = (tier.device.read_max - read).max(tier.device.read_max / 2.0);
            read = read.min(tier.device.read_max - direct);
        }
        let is_full = self.free() < BYTE && read < write;
        if is_full {
            write = read;
        }
        Speeds {
            write,
            read,
            direct,
            is_full,
        }
    }

    /// Advances to the next event, or by the largest step.
    fn step(&mut self) {
        let tier = self.model.parameters.tier;
        let largest = tier.capacity * STEP;
        let speeds = self.speeds(0.0, 0.0);
        let half = self.seconds(&speeds, largest) / 2.0;
        // The rates in the middle of the time step are more precise than the rates at its start.
        let backlog = (speeds.write - speeds.read) * half;
        let speeds = self.speeds(speeds.write * half, backlog);
        let seconds = self.seconds(&speeds, largest);
        self.now += seconds;
        let each = speeds.write * seconds / self.active.len().max(1) as f64;
        for at in 0..self.active.len() {
            self.active[at].left -= each;
            let Active { job, .. } = self.active[at];
            self.wrote(job, each);
            if speeds.is_full {
                self.run.jobs[job].stopped += seconds;
            }
        }
        let demoted = (speeds.read * seconds).min(self.model.demotable());
        self.model.demote(demoted);
        self.run.demoted += demoted;
        let dirty = self.model.dirty();
        self.run.most_used = self.run.most_used.max(dirty);
        if dirty >= BYTE {
            self.run.drained = self.now;
        }
        if let Some(direct) = &mut self.direct {
            direct.left -= speeds.direct * seconds;
        }
        self.end();
        self.model.evict();
    }

    fn seconds(&self, speeds: &Speeds, largest: f64) -> f64 {
        let tier = &self.model.parameters.tier;
        let mut seconds = f64::INFINITY;
        let mut by = |left: f64, rate: f64| {
            if rate > 0.0 {
                seconds = seconds.min(left.max(0.0) / rate);
            }
        };
        by(largest, speeds.write);
        let share = speeds.write / self.active.len().max(1) as f64;
        for active in &self.active {
            by(active.left, share);
        }
        if let Some(direct) = &self.direct {
            by(direct.left, speeds.direct);
        }
        let demotable = self.model.demotable();
        if demotable >= BYTE {
            by(demotable, speeds.read);
        }
        if speeds.write > speeds.read {
            by(self.free(), speeds.write - speeds.read);
        }
        if let Some((job, _)) = self.gated
            && self.active.is_empty()
        {
            by(self.missing(job), speeds.read);
        }
        let now = self.now;
        if let Some(job) = self.jobs.get(self.next) {
            by(job.arrives - now, 1.0);
        }
        if now < tier.period {
            by(tier.period - now, 1.0);
        }
        // A positive minimum, so that rounding cannot stop the clock.
        seconds.clamp(1e-6, tier.period)
    }

    fn wrote(&mut self, job: usize, bytes: f64) {
        let application = self.jobs[job].application;
        let version = (self.model.versions.iter_mut())
            .find(|version| version.application == application && !version.is_complete);
        if let Some(version) = version {
            version.written += bytes;
        }
        self.dwsf += bytes;
        if let Known::Estimated(estimator) = &mut self.known {
            estimator.add(&format!("a{application}"), bytes);
        }
    }

    /// Ends the writes that are complete.
    fn end(&mut self) {
        let (done, active): (Vec<Active>, Vec<Active>) = std::mem::take(&mut self.active)
            .into_iter()
            .partition(|active| active.left < BYTE);
        self.active = active;
        for Active { job, .. } in done {
            self.run.jobs[job].finished = self.now;
            let application = self.jobs[job].application;
            self.model.supersede(application);
            for version in &mut self.model.versions {
                version.is_complete |= version.application == application;
            }
            if self.model.parameters.policy.serializes() {
                self.queues.finish(FAST);
            }
        }
        if let Some(Active { job, left }) = self.direct
            && left < BYTE
        {
            self.run.jobs[job].finished = self.now;
            self.model.supersede(self.jobs[job].application);
            self.queues.finish(SLOW);
            self.direct = None;
        }
    }
}

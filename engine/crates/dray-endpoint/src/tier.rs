//! Manages the tiers: finds the versions that applications write to the fast roots, copies them to
//! the slow root, and deletes fast copies when space is needed.
//!
//! Each demotion is a transfer of this endpoint. A deletion is an eviction of [`crate::staging`].
//!
//! Not for: the decisions, which are in `dray_sched::tiers`.
//!
//! Invariant owned here: a fast copy is deleted only if its row says that the slow copy is durable.
//! The eviction then compares both copies again, file by file.

mod admission;
mod answer;
mod choices;
mod count;
mod demote;
mod demoted;
mod devices;
mod evict;
mod fast_roots;
mod identity;
mod io_jobs;
mod limit;
mod plan;
mod progress;
mod promised;
mod pushes;
mod replicate;
mod rows;
mod scan;
mod trim;
mod watch;
mod writes;

pub use admission::SpaceRequest;
pub use pushes::claim_id;
pub use writes::WritePaths;

use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::live::Live;
use crate::storage::Given;
use admission::{Lingering, StagedCopy};
use count::Counters;
use devices::Devices;
use dray_api::Timestamp;
use dray_config::roots::Roots;
use dray_config::{Config, ManagedTier};
use dray_core::Result;
use dray_core::lock::LockExt;
use dray_queue::{Queue, TierVersion, WaitReason, clock};
use dray_sched::tiers::admission::{Holder, Space};
use dray_sched::tiers::device::DeviceModel;
use dray_sched::tiers::io_jobs::JobQueues;
use dray_sched::tiers::placement::Need;
use dray_sched::tiers::victims::{Version, VersionState};
use dray_sched::tiers::written::PeriodEstimator;
use fast_roots::FastRoot;
use plan::{Moment, Planned};
pub(crate) use replicate::is_complete;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use watch::{Noticed, Watch};

/// Shortest interval between two scans of the fast roots.
const SCAN: Duration = Duration::from_secs(2);

/// Shortest interval between two scans after a change on a fast root was noticed.
const HINTED: Duration = Duration::from_millis(100);

/// Scans take at most 1/`SCAN_PART` of the time.
const SCAN_PART: u32 = 10;

/// After a change was noticed, scans take at most 1/`HINTED_PART` of the time.
const HINTED_PART: u32 = 3;

/// Applications count as writing until no version has grown for this time.
const WRITING: Duration = Duration::from_secs(5);

/// Time after which a failed demotion or deletion is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// Manages all tiers of an endpoint.
pub struct Tiers {
    queue: Arc<Queue>,
    roots: Roots,
    accounts: Arc<Accounts>,
    audit: Arc<Audit>,
    live: Live,
    tiers: Vec<Tier>,
}

/// The work of one tier. Each tier has its own thread. If a call to a device blocks, the call
/// delays only the tier of that device.
#[derive(Clone, Copy)]
pub struct TierWorker<'t> {
    all: &'t Tiers,
    tier: &'t Tier,
}

/// One tier, and its state since the start of the endpoint.
struct Tier {
    config: ManagedTier,
    device: DeviceModel,
    seen: Mutex<Seen>,
    counters: Counters,
    /// Fast paths of versions whose demotion ended when a newer complete version already existed.
    /// No restart will use the fast copies of these versions.
    useless: Mutex<BTreeSet<String>>,
}

/// Results of the last round, for the API.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Number of complete rounds.
    rounds: u64,
    used: u64,
    incoming: u64,
    /// Bytes of transfers that wait for space.
    waiting: u64,
    /// Space of the tier, with all bytes in use. `None` before the first round.
    space: Option<Space>,
    estimator: Option<PeriodEstimator>,
    /// Reasons and expected starts of waiting write jobs, by id.
    writes: BTreeMap<String, WaitReason>,
    dwsf: f64,
    dwpp: f64,
    is_writing: bool,
    planned: Option<Planned>,
    missing: u64,
    /// Reasons for which fast copies are kept, by fast path.
    kept: BTreeMap<String, String>,
    mtbf: BTreeMap<String, f64>,
    restarts: u64,
    hits: u64,
    /// `None` if the configuration asks for no limit of writes.
    limit: Option<std::result::Result<(), String>>,
    trim_error: Option<String>,
    fast: Vec<FastRoot>,
    error: Option<String>,
}

/// State of a tier between rounds.
struct Memory {
    estimator: PeriodEstimator,
    period: i64,
    /// Sizes of all versions on the fast roots at the last scan, by fast path.
    sizes: HashMap<String, u64>,
    /// Incomplete versions of the last scan.
    incomplete: Vec<Incomplete>,
    next_scan: Instant,
    /// Earliest time of a scan after a noticed change.
    next_hinted: Instant,
    /// True if a change was noticed since the last scan.
    is_hinted: bool,
    watch: Watch,
    grown: Option<Instant>,
    /// Fast paths whose demotion or deletion has failed, with the time of the next try.
    later: BTreeMap<String, Instant>,
    /// Reasons of failed deletions, by fast path.
    failed: BTreeMap<String, String>,
    /// Reasons for which versions could not be read at the last scan, by fast path.
    unreadable: BTreeMap<String, String>,
    /// Number of scans since the start of the endpoint.
    scans: u64,
    /// Claims of transfers that ran at the last round, or whose files are not measured yet, by id.
    lingering: BTreeMap<String, Lingering>,
    /// Copies that callers staged in, and that are no versions.
    staged: Vec<StagedCopy>,
    /// Sessions that other endpoints drive, by number, with the time at which they were seen first.
    pushes: BTreeMap<u64, Timestamp>,
    /// Queues of the write jobs on the fast roots.
    jobs: JobQueues<String>,
    /// Ids of the jobs in the queues.
    known_jobs: BTreeSet<String>,
    /// Fast paths of the granted write jobs. Only the job, and no scan, makes the version at such a
    /// path complete.
    granted: BTreeSet<String>,
    /// The demotions that run.
    followed: progress::Followed,
    /// The last rate that a running demotion got, in bytes per second.
    rate: f64,
    /// The last rate of replications that read a fast copy, in bytes per second.
    replica_rate: Option<u64>,
    /// The last rate of each stage-out that has a deadline, in bytes per second, by transfer.
    paced: BTreeMap<String, f64>,
    devices: Devices,
    /// The fast roots, in the order of the configuration.
    fast: Vec<FastRoot>,
    /// Paths of second fast copies that the last scan found, each with application and version.
    second: Vec<(String, (String, u64))>,
}

/// A version that an application still writes.
struct Incomplete {
    application: String,
    version: u64,
    fast_path: String,
    bytes: u64,
}

/// A tier in one round.
struct Round<'r> {
    all: &'r Tiers,
    tier: &'r Tier,
    memory: &'r mut Memory,
    given: &'r Given,
    now: Timestamp,
}

impl Tiers {
    /// Prepares the tiers of the configuration.
    ///
    /// # Errors
    /// `InvalidRequest` if the bandwidths of a tier contradict each other, or if the server of a
    /// slow root neither keeps the times of files nor computes a checksum that dray supports.
    pub fn open(
        config: &Config,
        queue: &Arc<Queue>,
        roots: &Roots,
        accounts: &Arc<Accounts>,
        audit: &Arc<Audit>,
        live: &Live,
    ) -> Result<Arc<Self>> {
        let tiers = config.tier.iter().map(|tier| {
            rows::check_slow(tier, roots.named(tier.slow.as_str())?)?;
            // No transfer writes to the slow root before the first round has recognised it.
            let slow = tier.slow.as_str();
            queue.tiers().close(tier.name.as_str(), Some(slow));
            Ok(Tier {
                device: plan::device(tier).map_err(|error| rows::invalid(tier, &error))?,
                config: tier.clone(),
                seen: Mutex::default(),
                counters: Counters::default(),
                useless: Mutex::default(),
            })
        });
        Ok(Arc::new(Self {
            tiers: tiers.collect::<Result<_>>()?,
            queue: Arc::clone(queue),
            roots: roots.clone(),
            accounts: Arc::clone(accounts),
            audit: Arc::clone(audit),
            live: live.clone(),
        }))
    }

    /// Returns the tiers, each of which needs its own thread.
    pub fn workers(&self) -> impl Iterator<Item = TierWorker<'_>> {
        self.tiers.iter().map(|tier| TierWorker { all: self, tier })
    }

    fn round(&self, tier: &Tier, memory: &mut Option<Memory>, given: &Given) -> Result<()> {
        let now = clock::now();
        let memory = match memory {
            Some(memory) => memory,
            None => {
                let rows = self.queue.tiers().versions(tier.config.name.as_str())?;
                identity::check(self, &tier.config, &rows)?;
                self.queue.tiers().close(tier.config.name.as_str(), None);
                memory.insert(Memory::new(&tier.config, &self.roots, &rows, now))
            }
        };
        let mut round = Round {
            all: self,
            tier,
            memory,
            given,
            now,
        };
        round.run()
    }
}

impl TierWorker<'_> {
    /// Runs a round of the tier every second, or earlier after an event ([`Memory::pause`]), until
    /// `sleep` returns false. `sleep` waits for the given time, and returns false when the endpoint
    /// stops.
    pub fn run(self, given: &Given, sleep: &dyn Fn(Duration) -> bool) {
        let mut memory: Option<Memory> = None;
        loop {
            if let Err(error) = self.all.round(self.tier, &mut memory, given) {
                let mut seen = self.tier.seen.lock_unpoisoned();
                let said = error.to_string();
                if seen.error.as_ref() != Some(&said) {
                    tracing::error!(tier = self.tier.config.name.as_str(), "{said}");
                }
                seen.error = Some(said);
            }
            if !Memory::pause(memory.as_mut(), &self.all.queue, sleep) {
                return;
            }
        }
    }
}

impl Memory {
    fn new(tier: &ManagedTier, roots: &Roots, rows: &[TierVersion], now: Timestamp) -> Self {
        // The estimator has counted the versions in `rows`, so the first scan must not count them
        // as written.
        let known = rows.iter().map(|row| (row.fast_path.clone(), row.bytes));
        Self {
            estimator: plan::estimator(tier, rows, now),
            period: plan::period(tier, now),
            sizes: known.collect(),
            incomplete: Vec::new(),
            next_scan: Instant::now(),
            next_hinted: Instant::now(),
            is_hinted: false,
            watch: Watch::new(),
            grown: None,
            later: BTreeMap::new(),
            failed: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            scans: 0,
            lingering: BTreeMap::new(),
            staged: Vec::new(),
            pushes: BTreeMap::new(),
            jobs: JobQueues::new(),
            known_jobs: BTreeSet::new(),
            granted: BTreeSet::new(),
            followed: progress::Followed::default(),
            rate: 0.0,
            replica_rate: None,
            paced: BTreeMap::new(),
            devices: Devices::new(tier, roots),
            fast: (tier.fast.iter())
                .map(|name| FastRoot::new(name.as_str()))
                .collect(),
            second: Vec::new(),
        }
    }

    /// Ends past periods. A clock that steps back does not begin a period again.
    fn roll(&mut self, tier: &ManagedTier, now: Timestamp) {
        let period = plan::period(tier, now);
        let count = (period - self.period).clamp(0, 2 * MEMORY_PERIODS);
        for _ in 0..count {
            self.estimator.roll();
        }
        self.period = self.period.max(period);
    }

    /// Returns true if the regular scan is due, or if a change was noticed and the scan for this
    /// change is due.
    fn is_scan_due(&self, now: Instant) -> bool {
        now >= self.next_scan || (self.is_hinted && now >= self.next_hinted)
    }

    fn is_writing(&self) -> bool {
        self.grown.is_some_and(|at| at.elapsed() < WRITING)
    }
}

/// Number of past periods that the estimator uses.
const MEMORY_PERIODS: i64 = dray_sched::tiers::written::PERIODS as i64;

impl Round<'_> {
    fn name(&self) -> &str {
        self.tier.config.name.as_str()
    }

    fn rows(&self) -> Result<Vec<TierVersion>> {
        self.all.queue.tiers().versions(self.name())
    }

    fn run(&mut self) -> Result<()> {
        let config = &self.tier.config;
        self.memory.roll(config, self.now);
        // `Instant`, so that a clock that steps back does not delay a retry.
        let now = Instant::now();
        self.memory.later.retain(|_, again| *again > now);
        let mut rows = self.rows()?;
        if self.follow(&rows)? {
            rows = self.rows()?;
        }
        let jobs = self.follow_writes()?;
        self.memory.is_hinted |= self.memory.watch.noticed() != Noticed::Nothing;
        let is_scan = self.memory.is_scan_due(Instant::now());
        self.reach(&rows, is_scan)?;
        if is_scan {
            let began = Instant::now();
            let scanned = self.scan(&rows);
            let pause = (began.elapsed() * SCAN_PART).max(SCAN);
            self.memory.next_scan = Instant::now() + pause;
            let pause = (began.elapsed() * HINTED_PART).max(HINTED);
            self.memory.next_hinted = Instant::now() + pause;
            self.memory.is_hinted = false;
            if scanned? {
                rows = self.rows()?;
            }
            self.free_second_copies(&rows)?;
            self.measure_staged(&rows)?;
            self.memory.scans += 1;
        }
        plan::declare(&mut self.memory.estimator, config, &rows);
        let restarts = self.all.queue.tiers().restarts(self.name())?;
        let mtbf = plan::mtbf_of(config, &rows, &restarts, self.now);
        let versions = self.versions(&rows, &mtbf)?;
        let mut claims = self.claims(&rows)?;
        self.claim_writes(&jobs, &mut claims);
        claims.waiting.sort_by_key(|one| one.since);
        let space = self.space(&rows, &versions, &claims)?;
        let (missing, waits) = self.admit(&space, &claims, &jobs)?;
        let need = self.shortage(space.used()).max(&missing);
        self.count_devices(&rows)?;
        let moment = Moment {
            dwsf: self.memory.estimator.dwsf(),
            dwpp: self.memory.estimator.dwpp(),
            largest: rows.iter().map(|row| row.bytes).max().unwrap_or(0) as f64,
            backlog: self.backlog(&rows) as f64,
            moved: self.moved(&rows) as f64,
            is_writing: self.memory.is_writing(),
            is_short: need.is_any(),
        };
        // Subtract the space that versions of earlier periods still need. The ramp assumes that all
        // of `free` is free when a period begins.
        let backlog = plan::backlog(config, &rows, self.now);
        let free = config.capacity.0.saturating_sub(backlog) as f64;
        let planned = plan::plan(config, &self.tier.device, free, &moment);
        let freed = self.free(&rows, &versions, need)?;
        self.demote(&rows, &versions, &planned, &freed.left)?;
        self.pace(&rows, &planned)?;
        self.replicate(&rows, &versions, &planned)?;
        let (limit, trim_error) = self.memory.devices.round(&planned, freed.bytes > 0);
        let mut seen = self.tier.seen.lock_unpoisoned();
        *seen = Seen {
            rounds: seen.rounds.saturating_add(1),
            used: data_bytes(&space).saturating_sub(freed.bytes),
            incoming: claims.outstanding.values().sum(),
            waiting: claims.waiting.iter().map(|one| one.bytes).sum(),
            space: Some(space),
            estimator: Some(self.memory.estimator.clone()),
            writes: self.write_waits(&jobs, &waits, planned.write),
            dwsf: moment.dwsf,
            dwpp: moment.dwpp,
            is_writing: moment.is_writing,
            planned: Some(planned),
            missing: freed.left.most(),
            kept: freed.kept,
            mtbf,
            restarts: restarts.values().map(|one| one.count).sum(),
            hits: restarts.values().map(|one| one.hits).sum(),
            limit,
            trim_error,
            fast: self.memory.fast.clone(),
            error: None,
        };
        Ok(())
    }

    /// Returns the versions of all rows, in their order, and then the incomplete versions.
    fn versions(&self, rows: &[TierVersion], mtbf: &BTreeMap<String, f64>) -> Result<Vec<Version>> {
        let pins = self.all.queue.tiers().pins(self.now)?;
        let of = |application: &str| mtbf.get(application).copied().unwrap_or(f64::INFINITY);
        let complete = rows.iter().map(|row| {
            let is_pinned = rows::pin(&pins, &row.fast_path).is_some();
            plan::version(row, of(&row.application), is_pinned)
        });
        let incomplete = self.memory.incomplete.iter().map(|one| Version {
            application: one.application.clone(),
            number: one.version,
            bytes: one.bytes,
            written_at: plan::seconds(self.now),
            used_at: plan::seconds(self.now),
            demoted_at: None,
            mtbf: of(&one.application),
            state: VersionState::Incomplete,
            is_pinned: false,
            is_replicated: false,
            deadline: None,
        });
        Ok(complete.chain(incomplete).collect())
    }

    /// Returns the bytes to delete, in total and on each device. After the deletion, the fast roots
    /// hold at most the watermark. The space above the watermark is divided evenly among the
    /// devices, and each device has its part free.
    fn shortage(&self, used: u64) -> Need {
        let config = &self.tier.config;
        let watermark = watermark(config);
        let roots = config.fast.len().max(1) as u64;
        let reserve = config.capacity.0.saturating_sub(watermark) / roots;
        let short = |one: &FastRoot| match one.error {
            None => reserve.saturating_sub(one.free),
            Some(_) => 0,
        };
        Need {
            total: used.saturating_sub(watermark),
            devices: self.memory.fast.iter().map(short).collect(),
        }
    }
}

/// Returns the results of the last round of a tier.
fn seen(tier: &Tier) -> Seen {
    tier.seen.lock_unpoisoned().clone()
}

/// Returns the bytes of all versions and staged copies on the fast roots.
fn data_bytes(space: &Space) -> u64 {
    let data = space
        .holdings
        .iter()
        .filter(|one| one.holder != Holder::Admitted);
    data.map(|one| one.bytes).sum()
}

impl Tier {
    /// Returns the assumed mean seconds between failures of an application that has neither
    /// restarted nor declared a value.
    const fn mtbf_unknown(&self) -> f64 {
        self.config.prior_mtbf as f64
    }
}

/// Returns the bytes above which fast copies are deleted.
fn watermark(config: &ManagedTier) -> u64 {
    plan::whole(config.capacity.0 as f64 * config.watermark)
}

#[cfg(test)]
mod tests;

//! Write jobs of applications: requests, leases and completions.

use super::admission::check_period;
use super::{Seen, Tier, Tiers, plan, scan, seen};
use dray_access::Principal;
use dray_api::api_path::ApiPath;
use dray_api::{
    TierVersionState as At, WriteJob, WriteList, WritePlacement, WriteQuery, WriteRequest,
    WriteState,
};
use dray_config::ManagedTier;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_queue::{Actor, TierVersion, TierWrite, clock};
use dray_sched::tiers::bypass::{Incoming, goes_to_slow_tier};
use std::collections::BTreeMap;
use std::time::Duration;

/// The paths of a new version.
#[derive(Debug, Clone)]
pub struct WritePaths {
    /// Path in a fast root.
    pub fast: ApiPath,
    /// Path in the slow root.
    pub slow: ApiPath,
}

fn refused(kind: ErrorKind, cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(kind, End::Here, "write a version to the tier")
        .cause(cause)
        .remedy(remedy)
}

/// Returns the path of a version below a root. The path follows the template, or is
/// `APPLICATION/VERSION` without a template.
fn version_path(tier: &ManagedTier, application: &str, version: u64) -> Result<RelPath> {
    let text = match &tier.versions {
        Some(template) => template.path(application, version),
        None => format!("{application}/{version}"),
    };
    RelPath::parse(text.as_bytes())
}

impl Tiers {
    /// Returns the paths of the version that a request writes. If several fast roots have space,
    /// chooses the root for which the present write jobs request the fewest bytes.
    ///
    /// # Errors
    /// `NotFound` if there is no such tier. `InvalidName` if the name of the application does not
    /// give a valid path.
    pub fn write_paths(&self, tier: &str, request: &WriteRequest) -> Result<WritePaths> {
        let config = &self.tier(tier)?.config;
        let mut loads: BTreeMap<String, u64> = BTreeMap::new();
        for job in self.queue.tiers().writes(tier)? {
            let root = ApiPath::parse(&job.fast_path)?.root;
            let load = loads.entry(root).or_default();
            *load = load.saturating_add(job.bytes);
        }
        let root = self.tier(tier)?.place(request.bytes, &loads);
        let path = version_path(config, &request.application, request.version)?;
        let in_root = |root: String| {
            let path = ApiPath {
                root,
                path: path.clone(),
                is_folder: false,
            };
            // The parser refuses the names that dray reserves.
            ApiPath::parse(&path.text())
        };
        Ok(WritePaths {
            fast: in_root(root)?,
            slow: in_root(config.slow.to_string())?,
        })
    }

    /// Stores a write job. Returns the new job, or the existing job if the request was submitted
    /// before.
    ///
    /// # Errors
    /// `NoSpace` if the tier can never hold the version, or if the application declares more bytes
    /// per period than the tier can take. `AlreadyExists` if the version has another job. Errors of
    /// the database.
    pub fn submit_write(
        &self,
        caller: &Principal,
        tier: &str,
        request: &WriteRequest,
        paths: &WritePaths,
    ) -> Result<WriteJob> {
        let tier = self.tier(tier)?;
        let id = match &request.id {
            Some(id) => id.clone(),
            None => dray_open::prepare::new_transfer_id()?.to_string(),
        };
        let now = clock::now();
        let is_known = self
            .queue
            .tiers()
            .write_job(&super::demoted::endpoint(), &id)
            .is_ok();
        let placement = match self.bypasses(tier, request)? {
            true => WritePlacement::Slow,
            false => WritePlacement::Fast,
        };
        if placement == WritePlacement::Fast && !is_known {
            self.check_space(tier, request.bytes)?;
            if let Some(every) = request.period_seconds {
                check_period(tier, &request.application, request.bytes, every)?;
            }
        }
        let is_slow = placement == WritePlacement::Slow;
        let job = TierWrite {
            id,
            tier: tier.config.name.to_string(),
            application: request.application.clone(),
            version: request.version,
            owner: caller.owner.clone(),
            fast_path: paths.fast.text(),
            slow_path: paths.slow.text(),
            placement,
            // A job that writes to the slow root uses no device of the tier, so it waits for none.
            state: if is_slow {
                WriteState::Granted
            } else {
                WriteState::Waiting
            },
            bytes: request.bytes,
            files: request.files,
            period_seconds: request.period_seconds,
            mtbf_seconds: request.mtbf_seconds,
            nodes: request.nodes,
            lease_seconds: request.lease_seconds,
            submitted_at: now,
            granted_at: is_slow.then_some(now),
            expires_at: Some(now.after(Duration::from_secs(request.lease_seconds))),
            ended_at: None,
        };
        let stored = self.queue.tiers().submit_write(job)?;
        Ok(answer(&seen(tier), stored))
    }

    /// Returns true if the application writes the version directly to the slow root (BBOS, section
    /// 5.1.2, "Direct checkpoint on PFS").
    fn bypasses(&self, tier: &Tier, request: &WriteRequest) -> Result<bool> {
        // An application can write to the slow root only if the root is a single folder of this
        // host.
        if self
            .roots
            .named(tier.config.slow.as_str())?
            .path()
            .is_none()
        {
            return Ok(false);
        }
        let seen = seen(tier);
        let given = |mtbf: Option<u64>, nodes: Option<u32>| {
            let derived = |(nodes, mtbf): (u32, u64)| mtbf as f64 / f64::from(nodes.max(1));
            let from_nodes = nodes.zip(tier.config.node_mtbf).map(derived);
            mtbf.map(|mtbf| mtbf as f64).or(from_nodes)
        };
        let known = |application: &str| seen.mtbf.get(application).copied();
        let unknown = tier.mtbf_unknown();
        let mtbf = given(request.mtbf_seconds, request.nodes);
        let mtbf = mtbf.or_else(|| known(&request.application));
        let mut held: BTreeMap<String, f64> = BTreeMap::new();
        for row in self.queue.tiers().versions(tier.config.name.as_str())? {
            if !matches!(row.state, At::Deleting | At::Slow)
                && row.application != request.application
            {
                // Soon after a version has been written, the plan does not have its MTBF yet.
                let mtbf = known(&row.application).or_else(|| given(row.mtbf_seconds, row.nodes));
                held.insert(row.application, mtbf.unwrap_or(unknown));
            }
        }
        let incoming = Incoming {
            bytes: request.bytes as f64,
            mtbf: mtbf.unwrap_or(unknown),
        };
        let capacity = tier.config.capacity.0 as f64;
        let rule = tier.bypass_rule();
        let held = held.into_values();
        Ok(goes_to_slow_tier(
            &rule,
            &tier.device,
            capacity,
            seen.dwsf,
            incoming,
            held,
        ))
    }

    /// Returns a write job. If the caller is the owner of a job that has not ended, the lease of
    /// the job starts anew.
    ///
    /// # Errors
    /// `NotFound`. Errors of the database.
    pub fn show_write(&self, caller: &Actor, id: &str) -> Result<WriteJob> {
        let mut job = self.queue.tiers().write_job(caller, id)?;
        if job.state.is_live() && job.owner == caller.owner {
            let lease = Duration::from_secs(job.lease_seconds);
            job.expires_at = Some(clock::now().after(lease));
            let state = job.state;
            self.queue.tiers().change_writes(vec![(state, job)])?;
            job = self.queue.tiers().write_job(caller, id)?;
        }
        self.described(job)
    }

    /// Returns a page of those write jobs of a tier that the caller may see. Does not renew the
    /// leases of the jobs.
    ///
    /// # Errors
    /// `NotFound` if there is no such tier. `InvalidRequest` for an invalid cursor. Errors of the
    /// database.
    pub fn list_writes(&self, caller: &Actor, tier: &str, query: &WriteQuery) -> Result<WriteList> {
        let seen = seen(self.tier(tier)?);
        let (jobs, next) = self.queue.tiers().list_writes(caller, tier, query)?;
        let writes = jobs.into_iter().map(|job| answer(&seen, job)).collect();
        Ok(WriteList { writes, next })
    }

    fn described(&self, job: TierWrite) -> Result<WriteJob> {
        let seen = match self.tier(&job.tier) {
            Ok(tier) => seen(tier),
            Err(_) => Seen::default(),
        };
        Ok(answer(&seen, job))
    }

    /// Ends a write job that has written no complete version. If the job has already ended, does
    /// nothing.
    ///
    /// # Errors
    /// `NotFound`. Errors of the database.
    pub fn give_up_write(&self, caller: &Actor, id: &str) -> Result<WriteJob> {
        let job = self.queue.tiers().write_job(caller, id)?;
        if job.state.is_live() {
            let ended = TierWrite {
                state: WriteState::Ended,
                expires_at: None,
                ended_at: Some(clock::now()),
                ..job.clone()
            };
            self.queue.tiers().change_writes(vec![(job.state, ended)])?;
        }
        let job = self.queue.tiers().write_job(caller, id)?;
        self.described(job)
    }

    /// Ends a granted write job, and enters its version into the catalog as complete. If the job
    /// has already ended, does nothing.
    ///
    /// # Errors
    /// `NotFound` if there is no such job, or no entry at its path. `AlreadyExists` if the job
    /// waits or has expired, or if its version is being demoted. `InvalidRequest` if the version
    /// has another number of files than requested. Errors of the database and of the file system.
    pub fn complete_write(&self, caller: &Actor, id: &str) -> Result<WriteJob> {
        let job = self.queue.tiers().write_job(caller, id)?;
        match job.state {
            WriteState::Ended => return self.described(job),
            WriteState::Granted => {}
            state => {
                let cause = format!("the write job is {}", state.word());
                let remedy = "wait until the write job is granted, or request a new write job";
                return Err(refused(ErrorKind::AlreadyExists, cause, remedy));
            }
        }
        let measure = self.written(&job)?;
        if let Some(files) = job
            .files
            .filter(|files| u64::from(*files) != measure.files())
        {
            let cause = format!(
                "the version has {} files, but the request of the job states {files}",
                measure.files()
            );
            let remedy = "write the missing files, or delete the write job";
            return Err(refused(ErrorKind::InvalidRequest, cause, remedy));
        }
        let rows = self.queue.tiers().versions(&job.tier)?;
        let is_same =
            |row: &TierVersion| row.application == job.application && row.version == job.version;
        let known = rows.into_iter().find(is_same);
        let from = known.as_ref().map(|row| row.state);
        let version = completed(&job, known, &measure);
        let ended = TierWrite {
            state: WriteState::Ended,
            expires_at: None,
            ended_at: Some(clock::now()),
            ..job
        };
        self.queue.tiers().complete_write(ended, from, version)?;
        let job = self.queue.tiers().write_job(caller, id)?;
        self.described(job)
    }

    /// Measures the files of a write job with the account of its owner.
    fn written(&self, job: &TierWrite) -> Result<scan::Measure> {
        let path = ApiPath::parse(placed(job))?;
        let root = self.roots.find(&path)?;
        let measured = self.accounts.act_as(&job.owner, || {
            scan::measure(&*self.accounts.root(root)?, &path.path, None)
        })?;
        measured
            .filter(|measure| measure.files() > 0)
            .ok_or_else(|| {
                let cause = format!("no file exists at {}", path.text());
                refused(
                    ErrorKind::NotFound,
                    cause,
                    "write the version, then complete the write job",
                )
            })
    }
}

/// Returns the path that the application writes to.
const fn placed(job: &TierWrite) -> &str {
    match job.placement {
        WritePlacement::Fast => job.fast_path.as_str(),
        WritePlacement::Slow => job.slow_path.as_str(),
    }
}

/// Returns the new row of a version that its application has completed. If the version already has
/// a row and its files have not changed, the existing row is kept.
fn completed(job: &TierWrite, known: Option<TierVersion>, measure: &scan::Measure) -> TierVersion {
    let now = clock::now();
    let stamp = measure.stamp();
    let is_fast = job.placement == WritePlacement::Fast;
    let is_kept = known.as_ref().is_some_and(|row| {
        // Keep the row of a running demotion. The next scan after the demotion compares the files.
        let is_same = row.stamp == stamp && !matches!(row.state, At::Deleting | At::Slow);
        is_fast && (row.state == At::Demoting || is_same)
    });
    let new = TierVersion {
        tier: job.tier.clone(),
        application: job.application.clone(),
        version: job.version,
        owner: job.owner.clone(),
        fast_path: job.fast_path.clone(),
        slow_path: job.slow_path.clone(),
        is_folder: measure.is_folder,
        bytes: measure.bytes,
        stamp,
        state: if is_fast { At::Written } else { At::Slow },
        written_at: now,
        demoted_at: (!is_fast).then_some(now),
        used_at: now,
        mtbf_seconds: None,
        nodes: None,
        period_seconds: None,
        transfer: None,
        error: None,
    };
    let row = match known {
        Some(known) if is_kept => known,
        _ => new,
    };
    TierVersion {
        mtbf_seconds: job.mtbf_seconds.or(row.mtbf_seconds),
        nodes: job.nodes.or(row.nodes),
        period_seconds: job.period_seconds.or(row.period_seconds),
        ..row
    }
}

/// Describes a write job for the API.
fn answer(seen: &Seen, job: TierWrite) -> WriteJob {
    let wait = seen
        .writes
        .get(&job.id)
        .filter(|_| job.state == WriteState::Waiting);
    let (waits, starts_at) = wait.cloned().unwrap_or_default();
    let reason = match (job.state, job.placement) {
        (WriteState::Waiting, _) if waits.is_empty() => {
            "waits, because the endpoint has not examined the write job yet".to_owned()
        }
        (WriteState::Waiting, _) => waits,
        (WriteState::Expired, _) => "no API call about the write job arrived before the lease of \
            the job ended"
            .to_owned(),
        (_, WritePlacement::Slow) => {
            "a restart is less likely to read this version than the versions on the fast \
                roots"
                .to_owned()
        }
        _ => String::new(),
    };
    let rate = seen
        .planned
        .filter(|_| job.placement == WritePlacement::Fast);
    WriteJob {
        path: placed(&job).to_owned(),
        reason: Some(reason).filter(|reason| !reason.is_empty()),
        rate_max: rate.map(|planned| plan::whole(planned.write)),
        starts_at,
        id: job.id,
        tier: job.tier,
        application: job.application,
        version: job.version,
        bytes: job.bytes,
        state: job.state,
        placement: job.placement,
        submitted_at: job.submitted_at,
        granted_at: job.granted_at,
        expires_at: job.expires_at,
        ended_at: job.ended_at,
    }
}

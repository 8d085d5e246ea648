//! Serves the write jobs of a tier: one job at a time on each fast root, in the order of the queues
//! (BBOS, section 5.1.1; docs/design/tiers.md names the paper). With a policy that does not
//! schedule writes, jobs wait for space only.
//!
//! Invariant owned here: a job is granted only while no other job of its fast root is granted,
//! unless the policy does not schedule writes. The database has the granted jobs, so a restart of
//! the endpoint keeps them.

use super::Round;
use super::admission::{Claimant, Claims, Waiting};
use super::fast_roots::root_of;
use super::plan::seconds;
use dray_api::{Timestamp, WritePlacement, WriteState};
use dray_core::Result;
use dray_queue::{TierWrite, WaitReason};
use dray_sched::tiers::io_jobs::DeviceIndex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Time for which ended jobs are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);

impl Round<'_> {
    /// Ends the jobs whose lease has expired, and updates the queues in memory from the database.
    /// Returns the live jobs that write to fast roots.
    pub(super) fn follow_writes(&mut self) -> Result<Vec<TierWrite>> {
        let tiers = self.all.queue.tiers();
        let (live, expired): (Vec<TierWrite>, Vec<TierWrite>) = tiers
            .writes(self.name())?
            .into_iter()
            .partition(|job| job.expires_at.is_none_or(|at| at > self.now));
        let ended = expired.into_iter().map(|job| {
            let (id, from) = (&job.id, job.state);
            tracing::warn!(tier = self.name(), "the write job {id} has expired");
            let ended = TierWrite {
                state: WriteState::Expired,
                expires_at: None,
                ended_at: Some(self.now),
                ..job
            };
            (from, ended)
        });
        tiers.change_writes(ended.collect())?;
        tiers.forget_writes(self.now.before(KEPT))?;
        let mut jobs = live;
        jobs.retain(|job| job.placement == WritePlacement::Fast);
        let ids: BTreeSet<String> = jobs.iter().map(|job| job.id.clone()).collect();
        for gone in self.memory.known_jobs.difference(&ids) {
            self.memory.jobs.remove(gone);
        }
        for job in jobs
            .iter()
            .filter(|job| !self.memory.known_jobs.contains(&job.id))
        {
            let device = self.device_of(job);
            match job.state {
                // The endpoint was restarted while the job was granted.
                WriteState::Granted => self.memory.jobs.resume(device, job.id.clone()),
                _ => self
                    .memory
                    .jobs
                    .submit(device, &job.application, job.id.clone()),
            }
        }
        self.memory.known_jobs = ids;
        let granted = jobs.iter().filter(|job| job.state == WriteState::Granted);
        self.memory.granted = granted.map(|job| job.fast_path.clone()).collect();
        Ok(jobs)
    }

    fn device_of(&self, job: &TierWrite) -> DeviceIndex {
        let root = root_of(&job.fast_path);
        let position = self
            .tier
            .config
            .fast
            .iter()
            .position(|name| name.as_str() == root);
        DeviceIndex(position.unwrap_or(0))
    }

    /// Adds the bytes of granted jobs, and the next job of each idle fast root, to the claims.
    pub(super) fn claim_writes(&self, jobs: &[TierWrite], claims: &mut Claims) {
        for job in jobs.iter().filter(|job| job.state == WriteState::Granted) {
            let written = self.memory.sizes.get(&job.fast_path).copied().unwrap_or(0);
            let left = job.bytes.saturating_sub(written);
            claims.admitted = claims.admitted.saturating_add(left);
            let root = root_of(&job.fast_path).to_owned();
            let outstanding = claims.outstanding.entry(root).or_default();
            *outstanding = outstanding.saturating_add(left);
        }
        let devices = (0..self.tier.config.fast.len()).map(DeviceIndex);
        let next: Vec<&String> = devices
            .filter_map(|one| self.memory.jobs.next(one))
            .collect();
        let is_next = |job: &&TierWrite| match self.tier.serializes() {
            true => next.contains(&&job.id),
            false => job.state == WriteState::Waiting,
        };
        for job in jobs.iter().filter(is_next) {
            claims.waiting.push(Waiting {
                id: job.id.clone(),
                root: root_of(&job.fast_path).to_owned(),
                bytes: job.bytes,
                since: job.submitted_at,
                kind: Claimant::Write,
            });
        }
    }

    /// Grants the jobs with these ids. Each is the next job of its idle fast root.
    pub(super) fn grant(&mut self, ids: &[String], jobs: &[TierWrite]) -> Result<()> {
        let granted: Vec<&TierWrite> = jobs.iter().filter(|job| ids.contains(&job.id)).collect();
        let changes = granted.iter().map(|job| {
            let lease = Duration::from_secs(job.lease_seconds);
            let new = TierWrite {
                state: WriteState::Granted,
                granted_at: Some(self.now),
                expires_at: Some(self.now.after(lease)),
                ..(*job).clone()
            };
            (WriteState::Waiting, new)
        });
        self.all.queue.tiers().change_writes(changes.collect())?;
        for job in granted {
            let (tier, id) = (self.name(), job.id.as_str());
            tracing::info!(
                tier,
                "the application {} may write {} (job {id})",
                job.application,
                job.fast_path
            );
            if self.tier.serializes() {
                self.memory.jobs.start(self.device_of(job));
            }
            self.memory.granted.insert(job.fast_path.clone());
        }
        Ok(())
    }

    /// Returns the reason and the expected start of each waiting job. `space` has the reasons of
    /// jobs that wait for space, and `rate` is the rate of writes in bytes per second.
    pub(super) fn write_waits(
        &self,
        jobs: &[TierWrite],
        space: &HashMap<String, WaitReason>,
        rate: f64,
    ) -> BTreeMap<String, WaitReason> {
        let by_id: HashMap<&str, &TierWrite> =
            jobs.iter().map(|job| (job.id.as_str(), job)).collect();
        let mut waits = BTreeMap::new();
        let mut order = self.memory.jobs.clone();
        for device in (0..self.tier.config.fast.len()).map(DeviceIndex) {
            let running = order.finish(device);
            let running = running.and_then(|id| by_id.get(id.as_str()).copied());
            let mut before = running.map(|job| job.application.as_str());
            let mut at = Some(seconds(self.now));
            if let Some(job) = running {
                let written = self.memory.sizes.get(&job.fast_path).copied().unwrap_or(0);
                let left = job.bytes.saturating_sub(written) as f64;
                at = at.map(|at| at + left / rate.max(1.0));
            }
            while let Some(job) = order.start(device) {
                order.finish(device);
                let Some(job) = by_id.get(job.as_str()) else {
                    continue;
                };
                if job.state != WriteState::Waiting {
                    continue;
                }
                let root = root_of(&job.fast_path);
                let (reason, start) = match (space.get(&job.id), before) {
                    (Some((reason, free_at)), _) => (reason.clone(), *free_at),
                    (None, Some(other)) => {
                        let reason =
                            format!("waits until the application {other} has written to /{root}");
                        (reason, at.map(moment))
                    }
                    (None, None) => continue,
                };
                at = start.map(|at| seconds(at) + job.bytes as f64 / rate.max(1.0));
                before = Some(job.application.as_str());
                waits.insert(job.id.clone(), (reason, start));
            }
        }
        waits
    }
}

fn moment(at: f64) -> Timestamp {
    Timestamp::from_ms((at * 1_000.0) as i64)
}

//! Submits the next demotion, and changes the rate of the running one.

use super::Round;
use super::demoted::endpoint;
use super::fast_roots::{home, lost};
use super::plan::{self, Planned};
use crate::staging::{Copy, copy};
use dray_access::OWN_PRINCIPAL;
use dray_api::{
    AdmissionWord, Patch, Request, StagedDirection, StagingRequest, TierVersionState as At,
};
use dray_core::{Error, ErrorKind, Result, TransferId};
use dray_queue::{TierChange, TierVersion};
use dray_sched::tiers::placement::Need;
use dray_sched::tiers::victims::{self, Version, VersionState};
use std::collections::BTreeMap;
use std::time::Instant;

/// Label of the transfers that a tier submits.
pub(super) const LABEL: &str = "dray.tier";

/// Lowest rate of a running demotion in bytes per second. A rate of zero would end its session.
pub(super) const RATE_MIN: f64 = 65_536.0;

/// Maximum number of demotions that run concurrently. While one demotion syncs its files, the next
/// demotion moves its bytes.
const RUNNING_MAX: usize = 2;

/// Minimum relative difference between the old and the new rate for which a running demotion gets
/// the new rate.
pub(super) const RATE_CHANGE: f64 = 0.1;

impl Round<'_> {
    /// Starts a demotion if no demotion moves bytes. Otherwise changes the rate of the running
    /// demotion. A running demotion gets at least Brmin, the rate that remains beside writes.
    /// `need` has the bytes that could not be freed. Versions on a device that needs space are
    /// demoted first.
    pub(super) fn demote(
        &mut self,
        rows: &[TierVersion],
        versions: &[Version],
        planned: &Planned,
        need: &Need,
    ) -> Result<()> {
        let rate = planned.read.max(self.tier.device.read_min).max(RATE_MIN);
        // A demotion that cannot read its device must not delay demotions from other devices.
        let is_read = |row: &&TierVersion| {
            let is_running = row.state == At::Demoting && row.transfer.is_some();
            is_running && lost(&self.memory.fast, &row.fast_path).is_none()
        };
        let running: Vec<&TierVersion> = rows.iter().filter(is_read).collect();
        let moving = self.memory.followed.set(&self.all.queue, &running, rate);
        if !moving.is_empty() || running.len() >= RUNNING_MAX {
            let is_same = (rate / self.memory.rate - 1.0).abs() <= RATE_CHANGE;
            if !is_same {
                for id in moving {
                    self.change_rate(&id, plan::whole(rate))?;
                }
                self.memory.rate = rate;
            }
            return Ok(());
        }
        if planned.read <= 0.0 {
            return Ok(());
        }
        // Mark each version that must not be demoted now as `Demoting`. The demotion of such a
        // version has just failed, or its fast root cannot be reached. The order of demotions still
        // counts the marked versions as versions of their application.
        let mut candidates = versions.to_vec();
        for (version, row) in candidates.iter_mut().zip(rows) {
            let is_later = self.memory.later.contains_key(&row.fast_path)
                || lost(&self.memory.fast, &row.fast_path).is_some();
            // Do not demote a version without a stamp. After the demotion, the tier needs the stamp
            // to check that the slow copy has the same files.
            if version.state == VersionState::OnFast && (is_later || row.stamp.is_empty()) {
                version.state = VersionState::Demoting;
            }
        }
        let mut urgent = candidates.clone();
        for (version, row) in urgent.iter_mut().zip(rows) {
            let device = home(&self.memory.fast, &row.fast_path);
            let is_short = need.devices.get(device).is_some_and(|bytes| *bytes > 0);
            if version.state == VersionState::OnFast && !is_short {
                version.state = VersionState::Demoting;
            }
        }
        let order = self.tier.order();
        let next = victims::next_demotion(&urgent, order)
            .or_else(|| victims::next_demotion(&candidates, order));
        let Some(row) = next.and_then(|next| rows.get(next.index)) else {
            return Ok(());
        };
        self.memory.rate = rate;
        match self.submit(row, plan::whole(rate)) {
            Ok(id) => {
                let now = Instant::now();
                self.memory.followed.add(id, row.bytes, rate, now);
            }
            Err(error) => self.refused(row, &error)?,
        }
        Ok(())
    }

    /// Notes that the demotion of a version could not be submitted.
    fn refused(&mut self, row: &TierVersion, error: &Error) -> Result<()> {
        let path = &row.fast_path;
        tracing::warn!(tier = self.name(), "cannot demote {path}: {error}");
        self.tier.counters.demotion_failed();
        self.memory
            .later
            .insert(path.clone(), Instant::now() + super::AGAIN);
        let mut new = row.clone();
        new.error = Some(error.to_string());
        let tiers = self.all.queue.tiers();
        tiers.change(vec![(Some(row.state), new)]).map(drop)
    }

    /// Submits the demotion of a version, and returns the id of the transfer. If an earlier
    /// demotion of the version failed, the new attempt uses the same id.
    fn submit(&self, row: &TierVersion, rate: u64) -> Result<String> {
        let failed = row.transfer.as_ref().filter(|_| row.error.is_some());
        let is_again = failed.is_some();
        let id = match failed {
            Some(id) => TransferId::new(id.as_str())?,
            None => dray_open::prepare::new_transfer_id()?,
        };
        let (mut submission, mut staged) = copy(&Copy {
            id: &id,
            version: row,
            direction: StagedDirection::Out,
            principal: OWN_PRINCIPAL,
            labels: BTreeMap::from([(LABEL.to_owned(), row.tier.clone())]),
        })?;
        submission.request.rate_max = Some(rate);
        if is_again && let Some(former) = self.promised(&id) {
            submission.request.bytes_expected = Some(row.bytes);
            again(&mut submission.request, &mut staged.request, &former);
        }
        let new = TierVersion {
            state: At::Demoting,
            transfer: Some(id.to_string()),
            error: None,
            ..row.clone()
        };
        let change = Some(TierChange::Declared(new));
        let submitted = self.all.queue.submit_staged(submission, staged, change);
        submitted.map_err(|refused| refused.error)?;
        Ok(id.to_string())
    }

    /// Returns the request of the stage-out `id` if it has a deadline.
    fn promised(&self, id: &TransferId) -> Option<StagingRequest> {
        let staging = self.all.queue.staging();
        let (row, _) = staging.show(&endpoint(), id.as_str()).ok()?;
        Some(row.request).filter(|request| request.deadline.is_some())
    }

    /// Changes the rate of a demotion that this tier has submitted. Does not change the rate of a
    /// transfer that a caller has requested with a staging call.
    pub(super) fn change_rate(&self, id: &str, rate: u64) -> Result<()> {
        let transfer = match self.all.queue.show(&endpoint(), id) {
            Ok(transfer) => transfer,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_paced = transfer.request.labels.contains_key(LABEL);
        if !is_paced || transfer.request.rate_max.is_none() || transfer.state.is_terminal() {
            return Ok(());
        }
        let patch = Patch {
            rate_max: Some(Some(rate)),
            ..Patch::default()
        };
        match self.all.queue.patch(&endpoint(), id, &patch) {
            Ok(_) => Ok(()),
            // The transfer ended meanwhile.
            Err(refused) if refused.error.kind == ErrorKind::AlreadyExists => Ok(()),
            Err(refused) => Err(refused.error),
        }
    }
}

/// Copies the deadline of a failed stage-out to its next attempt. If the deadline cannot be
/// promised any more, the attempt runs without a promise, because its version still needs a slow
/// copy.
fn again(request: &mut Request, staged: &mut StagingRequest, former: &StagingRequest) {
    request.deadline = former.deadline;
    request.bytes_expected = former.bytes_expected.or(request.bytes_expected);
    request.priority = former.priority;
    request.bound_seconds = former.bound_seconds;
    request.labels.clone_from(&former.labels);
    request.admission = Some(AdmissionWord::BestEffort);
    // Each round sets the rate that the deadline needs.
    request.rate_max = None;
    *staged = StagingRequest {
        path: staged.path.clone(),
        to: staged.to.clone(),
        recursive: staged.recursive,
        ..former.clone()
    };
}

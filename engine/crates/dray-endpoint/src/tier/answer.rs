//! Describes the tiers for the API.

use super::fast_roots::FastRoot;
use super::plan::whole;
use super::replicate::{is_complete, replica_of};
use super::{Seen, Tier, Tiers, rows, watermark};
use dray_api::{
    TierAnswer, TierDetail, TierReplicaAnswer, TierReplicaState, TierVersionAnswer,
    TierVersionState as At,
};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::{Actor, TierReplica, TierVersion, clock};

/// Maximum number of versions in one answer.
const VERSIONS_MAX: usize = 1_000;

impl Tiers {
    /// Returns the state of all tiers as of their last rounds.
    #[must_use]
    pub fn list(&self) -> Vec<TierAnswer> {
        let all = self.tiers.iter();
        all.map(|tier| answer(tier, &tier.seen.lock_unpoisoned()))
            .collect()
    }

    /// Returns the tier of this name.
    ///
    /// # Errors
    /// `NotFound` if there is no such tier.
    pub(super) fn tier(&self, name: &str) -> Result<&Tier> {
        let named = |tier: &&Tier| tier.config.name.as_str() == name;
        self.tiers.iter().find(named).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, End::Here, "find the tier")
                .cause("this endpoint has no tier of this name")
                .remedy("GET /v1/tiers lists the tiers")
        })
    }

    /// Returns the state of one tier, with the versions that `caller` may see.
    ///
    /// # Errors
    /// `NotFound` if there is no such tier. Errors of the database.
    pub fn show(&self, caller: &Actor, name: &str) -> Result<TierDetail> {
        let tier = self.tier(name)?;
        let seen = tier.seen.lock_unpoisoned().clone();
        let pins = self.queue.tiers().pins(clock::now())?;
        let replicas = self.queue.tiers().replicas(name)?;
        let mut versions = self.queue.tiers().versions(name)?;
        if self.record_demotions(tier, &versions)? {
            versions = self.queue.tiers().versions(name)?;
        }
        let versions = versions.into_iter();
        let versions = versions.filter(|row| caller.sees(&row.owner));
        let versions = versions.take(VERSIONS_MAX).map(|row| TierVersionAnswer {
            pinned_until: rows::pin(&pins, &row.fast_path),
            // Before the next scan of the tier, only the declared value is known.
            mtbf_seconds: match seen.mtbf.get(&row.application) {
                Some(mtbf) => whole(*mtbf),
                None => row.mtbf_seconds.unwrap_or(0),
            },
            kept: match row.state {
                At::Slow => None,
                _ => seen.kept.get(&row.fast_path).cloned(),
            },
            replicas: replicas_of(tier, &replicas, &row),
            application: row.application,
            version: row.version,
            state: row.state,
            fast_path: row.fast_path,
            slow_path: row.slow_path,
            bytes: row.bytes,
            written_at: row.written_at,
            used_at: row.used_at,
            demoted_at: row.demoted_at,
            transfer: row.transfer,
            error: row.error,
        });
        Ok(TierDetail {
            tier: answer(tier, &seen),
            versions: versions.collect(),
        })
    }
}

/// Describes the replicas of a version. A version without a slow copy has none.
fn replicas_of(tier: &Tier, replicas: &[TierReplica], row: &TierVersion) -> Vec<TierReplicaAnswer> {
    let is_durable = matches!(row.state, At::Demoted | At::Deleting | At::Slow);
    let roots = tier.config.replicas.iter().filter(|_| is_durable);
    let answers = roots.map(|root| {
        let known = replica_of(replicas, row, root.as_str());
        TierReplicaAnswer {
            root: root.to_string(),
            state: match known {
                Some(replica) if is_complete(replica, row) => TierReplicaState::Complete,
                Some(replica) if replica.is_running() => TierReplicaState::Copying,
                _ => TierReplicaState::Waiting,
            },
            path: known.map(|replica| replica.path.clone()),
            replicated_at: known.and_then(|replica| replica.replicated_at),
            transfer: known.and_then(|replica| replica.transfer.clone()),
            error: known.and_then(|replica| replica.error.clone()),
        }
    });
    answers.collect()
}

fn answer(tier: &Tier, seen: &Seen) -> TierAnswer {
    let config = &tier.config;
    let bound = tier.bound();
    let planned = seen.planned;
    TierAnswer {
        name: config.name.to_string(),
        fast: config.fast.iter().map(ToString::to_string).collect(),
        slow: config.slow.to_string(),
        capacity: config.capacity.0,
        watermark: watermark(config),
        rounds: seen.rounds,
        used: seen.used,
        incoming: seen.incoming,
        waiting: seen.waiting,
        period_seconds: config.period,
        dwsf: whole(seen.dwsf),
        dwpp: whole(seen.dwpp),
        dwpp_max: bound.is_finite().then(|| whole(bound)),
        pattern: planned.and_then(|planned| planned.pattern),
        start: planned.map_or(0, |planned| whole(planned.start)),
        full: planned.map_or(0, |planned| whole(planned.full)),
        is_writing: seen.is_writing,
        demotion_rate: planned.map_or(0, |planned| whole(planned.read)),
        write_rate: planned.map_or(0, |planned| whole(planned.write)),
        missing: seen.missing,
        is_write_limited: matches!(seen.limit, Some(Ok(()))),
        limit_error: seen.limit.clone().and_then(Result::err),
        trim_error: seen.trim_error.clone(),
        devices: seen.fast.iter().map(FastRoot::answer).collect(),
        restarts: seen.restarts,
        hits: seen.hits,
        error: seen.error.clone(),
    }
}

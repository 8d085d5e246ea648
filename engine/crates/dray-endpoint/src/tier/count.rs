//! Counts demotions and deletions, and samples a tier for the metrics.

use super::plan::whole;
use super::{Tier, Tiers, watermark};
use crate::metrics::TierSample;
use dray_api::TierVersionState;
use dray_core::Result;
use dray_core::lock::LockExt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a tier since the start of the endpoint.
#[derive(Debug, Default)]
pub(super) struct Counters {
    demotions: AtomicU64,
    demoted_bytes: AtomicU64,
    demotions_failed: AtomicU64,
    deletions: AtomicU64,
    deleted_bytes: AtomicU64,
    deletions_failed: AtomicU64,
    replications: AtomicU64,
    replications_failed: AtomicU64,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    /// Counts a demotion whose slow copy is durable.
    pub(super) fn demoted(&self, bytes: u64) {
        add(&self.demotions, 1);
        add(&self.demoted_bytes, bytes);
    }

    pub(super) fn demotion_failed(&self) {
        add(&self.demotions_failed, 1);
    }

    pub(super) fn deleted(&self, bytes: u64) {
        add(&self.deletions, 1);
        add(&self.deleted_bytes, bytes);
    }

    /// Counts a fast copy that was kept because the comparison with its slow copy failed.
    pub(super) fn deletion_failed(&self) {
        add(&self.deletions_failed, 1);
    }

    /// Counts a durable replica.
    pub(super) fn replicated(&self) {
        add(&self.replications, 1);
    }

    pub(super) fn replication_failed(&self) {
        add(&self.replications_failed, 1);
    }
}

impl Tiers {
    /// Returns the values of all tiers for the metrics.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn samples(&self) -> Result<Vec<TierSample>> {
        self.tiers.iter().map(|tier| self.sample(tier)).collect()
    }

    fn sample(&self, tier: &Tier) -> Result<TierSample> {
        let seen = tier.seen.lock_unpoisoned().clone();
        let name = tier.config.name.as_str();
        let mut versions: BTreeMap<&str, u64> = TierVersionState::ALL
            .into_iter()
            .map(|state| (state.word(), 0))
            .collect();
        for row in self.queue.tiers().versions(name)? {
            *versions.entry(row.state.word()).or_default() += 1;
        }
        let counters = &tier.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let planned = seen.planned;
        let planned = |value: fn(&super::Planned) -> f64| planned.as_ref().map_or(0.0, value);
        Ok(TierSample {
            name: name.to_owned(),
            versions: versions.into_iter().collect(),
            gauges: [
                seen.used,
                tier.config.capacity.0,
                watermark(&tier.config),
                whole(seen.dwsf),
                whole(seen.dwpp),
                whole(planned(|planned| planned.start)),
                whole(planned(|planned| planned.full)),
                whole(planned(|planned| planned.read)),
                whole(planned(|planned| planned.write)),
                u64::from(seen.is_writing),
                seen.missing,
            ],
            counters: [
                seen.restarts,
                seen.hits,
                read(&counters.demotions),
                read(&counters.demoted_bytes),
                read(&counters.demotions_failed),
                read(&counters.deletions),
                read(&counters.deleted_bytes),
                read(&counters.deletions_failed),
                read(&counters.replications),
                read(&counters.replications_failed),
            ],
        })
    }
}

//! The metrics of tiers.

use super::{head, line};

/// Name and help text of each gauge, in the order of [`TierSample::gauges`].
const GAUGES: [(&str, &str); 11] = [
    (
        "dray_tier_used_bytes",
        "Bytes of versions on the fast roots.",
    ),
    ("dray_tier_capacity_bytes", "Capacity of the fast roots."),
    (
        "dray_tier_watermark_bytes",
        "Used bytes of the fast roots above which fast copies are deleted.",
    ),
    (
        "dray_tier_written_bytes",
        "Bytes that applications have written in the current period (DWSF).",
    ),
    (
        "dray_tier_expected_bytes",
        "Bytes that applications are expected to write in a period (DWPP).",
    ),
    (
        "dray_tier_start_bytes",
        "Threshold for the written bytes of a period: above it, demotions also run during writes.",
    ),
    (
        "dray_tier_full_bytes",
        "Threshold for the written bytes of a period: above it, demotions run at the maximum rate.",
    ),
    (
        "dray_tier_demotion_rate_bytes",
        "Planned rate of demotions in bytes per second.",
    ),
    (
        "dray_tier_write_rate_bytes",
        "Bytes per second that applications can write at most without filling the fast roots.",
    ),
    (
        "dray_tier_writing",
        "1 while an application writes to the fast roots, else 0.",
    ),
    (
        "dray_tier_missing_bytes",
        "Bytes that the tier needs on the fast roots but cannot free.",
    ),
];

/// Name and help text of each counter, in the order of [`TierSample::counters`].
const COUNTERS: [(&str, &str); 10] = [
    ("dray_tier_restarts_total", "Restarts of applications."),
    (
        "dray_tier_hits_total",
        "Restarts that found their fast copy.",
    ),
    ("dray_tier_demotions_total", "Completed demotions."),
    (
        "dray_tier_demoted_bytes_total",
        "Bytes of completed demotions.",
    ),
    ("dray_tier_demotions_failed_total", "Failed demotions."),
    ("dray_tier_deletions_total", "Deleted fast copies."),
    (
        "dray_tier_deleted_bytes_total",
        "Bytes of deleted fast copies.",
    ),
    (
        "dray_tier_deletions_failed_total",
        "Failed deletions of fast copies, for example because a fast copy differs from the slow \
            copy.",
    ),
    ("dray_tier_replications_total", "Completed replications."),
    (
        "dray_tier_replications_failed_total",
        "Failed replications.",
    ),
];

/// Values of one tier.
#[derive(Debug, Clone, Default)]
pub struct TierSample {
    /// Name of the tier.
    pub name: String,
    /// Number of versions in each state.
    pub versions: Vec<(&'static str, u64)>,
    /// In this order: used bytes, capacity, watermark, DWSF, DWPP, start threshold, full threshold,
    /// demotion rate, write rate, 1 while an application writes (otherwise 0), and the bytes that
    /// cannot be freed. The page docs/design/tiers.md defines the abbreviations.
    pub gauges: [u64; 11],
    /// In this order: restarts, hits, demotions, demoted bytes, failed demotions, deletions,
    /// deleted bytes, failed deletions, replications and failed replications.
    pub counters: [u64; 10],
}

/// Adds the metrics of all tiers. An endpoint without tiers has none.
pub(super) fn push(text: &mut String, tiers: &[TierSample]) {
    if tiers.is_empty() {
        return;
    }
    let name = "dray_tier_versions";
    head(text, name, "gauge", "Versions by state.");
    for tier in tiers {
        for (state, count) in &tier.versions {
            let labels = format!("tier=\"{}\",state=\"{state}\"", tier.name);
            line(text, name, &labels, count);
        }
    }
    for (index, (name, help)) in GAUGES.into_iter().enumerate() {
        head(text, name, "gauge", help);
        for tier in tiers {
            let labels = format!("tier=\"{}\"", tier.name);
            line(text, name, &labels, tier.gauges[index]);
        }
    }
    for (index, (name, help)) in COUNTERS.into_iter().enumerate() {
        head(text, name, "counter", help);
        for tier in tiers {
            let labels = format!("tier=\"{}\"", tier.name);
            line(text, name, &labels, tier.counters[index]);
        }
    }
}

//! Converts the rows of a tier to the inputs of the decisions in `dray_sched::tiers`, and converts
//! the decisions to rates.

use super::choices;
pub(super) use super::choices::Moment;
use dray_api::{TierPattern, TierVersionState, Timestamp};
use dray_config::{ManagedTier, TierPolicyName};
use dray_queue::{Restarts, TierVersion};
use dray_sched::tiers::device::{DeviceModel, ModelError};
use dray_sched::tiers::failures::{FailureEstimator, Mtbf};
use dray_sched::tiers::ramp::{EquationForm, Pattern, Ramp};
use dray_sched::tiers::victims::{Version, VersionState};
use dray_sched::tiers::written::{PERIODS, PeriodEstimator};
use std::collections::BTreeMap;

/// Returns a time in seconds since 1970.
pub(super) fn seconds(at: Timestamp) -> f64 {
    at.as_ms() as f64 / 1_000.0
}

/// Returns a number of bytes, or of bytes per second, without its fraction.
pub(super) fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

/// Returns the bandwidths of a tier.
///
/// # Errors
/// If the configured bandwidths contradict each other.
pub(super) fn device(tier: &ManagedTier) -> Result<DeviceModel, ModelError> {
    DeviceModel::new(
        tier.write_max.0 as f64,
        tier.write_min.0 as f64,
        tier.read_max.0 as f64,
        tier.read_min.0 as f64,
    )
}

/// Returns the mean seconds between failures of each application. If several versions declare a
/// value, the newest of these versions decides.
pub(super) fn mtbf_of(
    tier: &ManagedTier,
    rows: &[TierVersion],
    restarts: &BTreeMap<String, Restarts>,
    now: Timestamp,
) -> BTreeMap<String, f64> {
    let mut known = BTreeMap::new();
    // The newest version of an application is its first row.
    for row in rows {
        let declared = row.mtbf_seconds.map(|mtbf| Mtbf::Declared(mtbf as f64));
        let nodes = row
            .nodes
            .zip(tier.node_mtbf)
            .map(|(nodes, mtbf)| Mtbf::Nodes {
                nodes: nodes.into(),
                node_mtbf: mtbf as f64,
            });
        if let Some(mtbf) = declared.or(nodes) {
            known.entry(row.application.clone()).or_insert(mtbf);
        }
    }
    for (application, seen) in restarts {
        let since = seconds(seen.since);
        let estimator = FailureEstimator::resumed(choices::prior(tier), seen.count, 0.0, since);
        let estimated = Mtbf::Estimated(estimator);
        known.entry(application.clone()).or_insert(estimated);
    }
    let now = seconds(now);
    known
        .into_iter()
        .map(|(name, mtbf)| (name, mtbf.seconds(now)))
        .collect()
}

/// Returns a row as a version of the decisions.
pub(super) fn version(row: &TierVersion, mtbf: f64, is_pinned: bool) -> Version {
    Version {
        application: row.application.clone(),
        number: row.version,
        bytes: row.bytes,
        written_at: seconds(row.written_at),
        used_at: seconds(row.used_at),
        demoted_at: row.demoted_at.map(seconds),
        mtbf,
        state: match row.state {
            TierVersionState::Written => VersionState::OnFast,
            TierVersionState::Demoting => VersionState::Demoting,
            TierVersionState::Demoted => VersionState::Demoted,
            // The fast copy may be incomplete, so the version counts as one without a fast copy.
            TierVersionState::Deleting | TierVersionState::Slow => VersionState::SlowOnly,
        },
        is_pinned,
        is_replicated: false,
        deadline: None,
    }
}

/// Returns the number of the period that contains the time `at`.
pub(super) fn period(tier: &ManagedTier, at: Timestamp) -> i64 {
    let length = i64::try_from(tier.period.saturating_mul(1_000)).unwrap_or(i64::MAX);
    at.as_ms().div_euclid(length.max(1))
}

/// Returns the bytes of the versions of earlier periods that have no slow copy yet. Ideally, no
/// such versions are left when a period begins (BBOS, equation 5.3).
pub(super) fn backlog(tier: &ManagedTier, rows: &[TierVersion], now: Timestamp) -> u64 {
    let current = period(tier, now);
    let is_left = |row: &&TierVersion| {
        let is_waiting = matches!(
            row.state,
            TierVersionState::Written | TierVersionState::Demoting
        );
        is_waiting && period(tier, row.written_at) < current
    };
    rows.iter().filter(is_left).map(|row| row.bytes).sum()
}

/// Returns an estimator that has counted the versions of the last periods.
pub(super) fn estimator(
    tier: &ManagedTier,
    rows: &[TierVersion],
    now: Timestamp,
) -> PeriodEstimator {
    let mut estimator = PeriodEstimator::default();
    let current = period(tier, now);
    let first = rows.iter().map(|row| period(tier, row.written_at)).min();
    let oldest = current.saturating_sub(PERIODS as i64);
    let first = first.unwrap_or(current).clamp(oldest, current);
    for at in first..=current {
        if at > first {
            estimator.roll();
        }
        for row in rows.iter().filter(|row| period(tier, row.written_at) == at) {
            estimator.add(&row.application, row.bytes as f64);
        }
    }
    estimator
}

/// Declares the bytes per period of the applications that declare the time between two versions.
pub(super) fn declare(estimator: &mut PeriodEstimator, tier: &ManagedTier, rows: &[TierVersion]) {
    let mut before = None;
    for row in rows {
        // The newest version of an application is its first row.
        if before == Some(&row.application) {
            continue;
        }
        before = Some(&row.application);
        let bytes = row.period_seconds.map(|every| {
            let count = tier.period as f64 / every.max(1) as f64;
            row.bytes as f64 * count
        });
        if bytes.is_some() {
            estimator.declare(&row.application, bytes);
        }
    }
}

/// The rates of a tier at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Planned {
    /// Time at which the tier demotes. `None` if the expected bytes exceed the tier's bound.
    pub(super) pattern: Option<TierPattern>,
    /// Once this many bytes are written in the period, demotions run while applications write too.
    pub(super) start: f64,
    /// Once this many bytes are written in the period, demotions run at their maximum rate.
    pub(super) full: f64,
    /// Rate of demotions in bytes per second.
    pub(super) read: f64,
    /// Rate of writes in bytes per second at which the tier does not fill up.
    pub(super) write: f64,
}

/// Plans the rates of a tier's writes and demotions. While no application writes, demotions run at
/// their maximum rate. `capacity` is the capacity in bytes, less the bytes of earlier periods that
/// are not demoted yet.
pub(super) fn plan(
    tier: &ManagedTier,
    device: &DeviceModel,
    capacity: f64,
    moment: &Moment,
) -> Planned {
    let form = EquationForm::Text;
    let ramp = Ramp::plan_versions(device, capacity, moment.dwpp, moment.largest, form);
    let (read, write) = match moment.is_writing {
        true => {
            let rates = choices::rates(tier, device, capacity, moment);
            (rates.read, rates.write)
        }
        false => (device.read_max, device.write_max),
    };
    let (pattern, start, full) = match (&ramp, tier.policy) {
        (_, TierPolicyName::Maxeff) => (Some(TierPattern::FromStart), 0.0, 0.0),
        (_, TierPolicyName::Maxbw | TierPolicyName::Datawarp) => {
            (Some(TierPattern::WhenIdle), moment.dwpp, moment.dwpp)
        }
        (Ok(ramp), _) => {
            let pattern = match ramp.pattern {
                Pattern::WhenIdle => TierPattern::WhenIdle,
                Pattern::FromThreshold => TierPattern::FromThreshold,
                Pattern::FromStart => TierPattern::FromStart,
            };
            (Some(pattern), ramp.start, ramp.full)
        }
        (Err(_), _) => (None, 0.0, 0.0),
    };
    Planned {
        pattern,
        start,
        full,
        read,
        write,
    }
}

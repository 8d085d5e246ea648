//! Converts the endpoint's configuration to the settings of the queue.

use dray_api::RetryWish;
use dray_config::{Config, Rate, Share};
use dray_queue::promises::{self, RootRate, TierRate};
use dray_queue::{FailedAtStart, Settings};
use std::sync::Arc;
use std::time::Duration;

const SECONDS_OF_DAY: u64 = 86_400;

/// Returns the settings of the endpoint's queue.
#[must_use]
pub(crate) fn queue_settings(config: &Config) -> Settings {
    let own = config.clone();
    Settings {
        state: config.state.clone(),
        transfers: config.limits.transfers_queued,
        transfers_of_owner: config.limits.per_owner_queued,
        tickets_of_owner: config.tickets.per_owner,
        retry: RetryWish {
            tries: config.retry.tries,
            interval_seconds: config.retry.interval_seconds,
        },
        keep: Duration::from_secs(u64::from(config.history.keep_days) * SECONDS_OF_DAY),
        keep_count: config.history.keep_count,
        keeps_receipts: config.receipts.enabled,
        promises: promise_settings(config),
        is_own: Arc::new(move |address| own.is_own(address)),
    }
}

fn promise_settings(config: &Config) -> promises::Settings {
    let per_second = |rate: Rate| rate.0;
    let roots = config.root.iter().map(|root| RootRate {
        name: root.name.as_str().to_owned(),
        rate: root.rate.map(per_second),
    });
    let tiers = config.tier.iter().map(|tier| TierRate {
        name: tier.name.to_string(),
        fast: tier.fast.iter().map(ToString::to_string).collect(),
        slow: std::iter::once(&tier.slow)
            .chain(&tier.replicas)
            .map(ToString::to_string)
            .collect(),
        rate: tier.read_max.0,
    });
    let share = |share: &Share| promises::Share {
        peer: share.peer.clone(),
        owner: share.owner.clone(),
        weight: share.weight,
        rate_min: share.rate_min.map(per_second),
        rate_max: share.rate_max.map(per_second),
    };
    promises::Settings {
        transfers_max: config.limits.transfers_queued,
        rate: config.rate.map(per_second),
        roots: roots.collect(),
        tiers: tiers.collect(),
        shares: config.share.iter().map(share).collect(),
    }
}

/// Returns the failed transfers that a start of the endpoint tries again; `None` if it tries none.
pub(crate) fn failed_at_start(config: &Config) -> Option<FailedAtStart> {
    let retry = &config.retry;
    retry.at_start.then(|| FailedAtStart {
        age_max: Duration::from_secs(retry.at_start_age_seconds),
        attempts_max: retry.at_start_attempts,
    })
}

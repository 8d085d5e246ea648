//! Limits and retention times. Each has a default that suits a small host.

use super::values::{Rate, Size};
use dray_api::{PolicyName, RoundRobinBy, names_peer};
use serde::Deserialize;
use std::collections::BTreeMap;

macro_rules! section {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $value:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $value,)* }
            }
        }
    };
}

section!(
    /// Limits of one endpoint.
    Limits {
        /// Maximum number of transfers that run concurrently.
        transfers_active: u32 = 50,
        /// Maximum number of transfers that have not ended, in all.
        transfers_queued: u64 = 100_000,
        /// Maximum number of transfers of one owner that have not ended.
        per_owner_queued: u64 = 50_000,
        /// Maximum number of transfers of one owner that run concurrently.
        per_owner_active: u32 = 25,
        /// Maximum number of data connections of one session, whichever side drives it.
        streams_per_session: u16 = 64,
        /// Memory of all buffers, in bytes.
        memory: Size = Size(1 << 30),
        /// Maximum number of bytes of a request's body.
        body_bytes: Size = Size(1 << 20),
        /// Maximum number of concurrent connections of callers.
        connections: u32 = 512,
        /// Maximum number of concurrent requests of one owner, long polls and listeners included.
        connections_per_owner: u32 = 64,
        /// Maximum number of concurrent connections from one address.
        connections_per_address: u32 = 128,
        /// Maximum number of event listeners of one owner.
        events_listeners_per_owner: u32 = 16,
        /// Number of events by which a listener may be behind before its stream ends.
        events_behind: u64 = 2_000,
    }
);

section!(
    /// Tickets that the endpoint issues for other endpoints.
    Tickets {
        /// Lifetime in seconds of a ticket whose request names none.
        lifetime: u64 = 3_600,
        /// Maximum number of seconds from a ticket's issue to its end, with all renewals.
        lifetime_max: u64 = 7 * 24 * 3_600,
        /// Maximum number of stored tickets of one owner: used ones, unused ones, and those that
        /// may still be renewed.
        per_owner: u64 = 200_000,
    }
);

section!(
    /// Retention of ended transfers.
    History {
        /// Days after a transfer's end.
        keep_days: u32 = 30,
        /// Maximum number of ended transfers; the oldest are deleted first.
        keep_count: u64 = 100_000,
    }
);

section!(
    /// Removal of abandoned partial files.
    Janitor {
        /// Days since the last byte.
        age_days: u32 = 30,
        /// Free space in bytes below which younger files are removed too, the oldest first.
        space_min: Option<Size> = None,
        /// True to log the removals without doing them.
        dry_run: bool = false,
    }
);

section!(
    /// Access to the counters.
    Metrics {
        /// True if every caller may read the counters; otherwise only administrators may.
        open: bool = false,
    }
);

section!(
    /// Retries of a request that does not set them.
    Retry {
        /// Number of successive tries without new durable data after which a transfer fails.
        tries: u32 = 5,
        /// Interval between tries, in seconds.
        interval_seconds: u64 = 10,
    }
);

section!(
    /// Rules that decide which transfers run, and which are held meanwhile.
    Scheduling {
        /// The scheduling policy.
        policy: PolicyName = PolicyName::Fair,
        /// Maximum number of concurrent transfers. Default: that of the policy.
        max_running: Option<u32> = None,
        /// Bytes of one turn of `round_robin` (Liu et al., 2010, figure 14).
        quota: Size = Size(400_000_000),
        /// The parties that take turns in `round_robin`.
        round_robin_by: RoundRobinBy = RoundRobinBy::Owners,
        /// With `priority`: seconds of waiting that raise a transfer by one step.
        aging_seconds: u64 = 300,
        /// With `fair`: seconds in which one start goes to the transfer that has waited longest.
        patience_seconds: u64 = 900,
        /// Maximum number of held transfers that keep their sessions.
        held_max: u32 = 10,
    }
);

/// A share of the endpoint's rate, for a peer or an owner.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The other endpoint's name. Either this or `owner` is set.
    pub peer: Option<String>,
    /// The owner.
    pub owner: Option<String>,
    /// Weight of the share when the remaining rate is divided.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Bytes per second that it gets before others get more than their minimum.
    pub rate_min: Option<Rate>,
    /// Maximum bytes per second.
    pub rate_max: Option<Rate>,
    /// For an owner: weights of its activities against each other, where they differ from the
    /// default.
    #[serde(default)]
    pub activities: BTreeMap<String, u32>,
}

impl Share {
    /// Returns true if the share is for this peer (`HOST` or `HOST:PORT`).
    #[must_use]
    pub fn is_of_peer(&self, peer: &str) -> bool {
        let name = self.peer.as_deref();
        name.is_some_and(|name| names_peer(name, peer))
    }
}

const fn default_weight() -> u32 {
    100
}

impl From<&Scheduling> for dray_api::Scheduling {
    fn from(rules: &Scheduling) -> Self {
        Self {
            policy: rules.policy,
            max_running: rules.max_running,
            quota: rules.quota.0,
            round_robin_by: rules.round_robin_by,
            aging_seconds: rules.aging_seconds,
            patience_seconds: rules.patience_seconds,
            held_max: rules.held_max,
        }
    }
}

//! Bounds, and how long things are kept. Every one has a default that a small host can bear.

use super::values::{Rate, Size};
use dray_api::{PolicyName, RoundRobinBy};
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
    /// Bounds of one endpoint.
    Limits {
        /// Transfers that run at once.
        transfers_active: u32 = 50,
        /// Transfers that are not ended, in all.
        transfers_queued: u64 = 100_000,
        /// Transfers of one owner that are not ended.
        per_owner_queued: u64 = 50_000,
        /// Transfers of one owner that run at once.
        per_owner_active: u32 = 25,
        /// Data connections of one session, whoever drives it.
        streams_per_session: u16 = 64,
        /// Memory of all buffers.
        memory: Size = Size(1 << 30),
        /// Bytes of a request's body.
        body_bytes: Size = Size(1 << 20),
        /// Connections of callers at once.
        connections: u32 = 512,
        /// Requests of one owner that are worked on at once, long polls and listeners included.
        connections_per_owner: u32 = 64,
        /// Connections from one address at once.
        connections_per_address: u32 = 128,
        /// Listeners to events of one owner.
        events_listeners_per_owner: u32 = 16,
        /// Events that a listener may be behind before it is cut.
        events_behind: u64 = 2_000,
    }
);

section!(
    /// Tickets for other endpoints.
    Tickets {
        /// Seconds that a ticket lives when nobody says.
        lifetime: u64 = 3_600,
        /// Seconds from its first day to its last, however often it is renewed.
        lifetime_max: u64 = 7 * 24 * 3_600,
        /// Tickets of one owner that are kept: used, unused and those that may still be renewed.
        per_owner: u64 = 200_000,
    }
);

section!(
    /// How long ended transfers are remembered.
    History {
        /// Days after the end.
        keep_days: u32 = 30,
        /// How many, the newest; older ones go first.
        keep_count: u64 = 100_000,
    }
);

section!(
    /// What is done with partial files that nobody goes on with.
    Janitor {
        /// Days since the last byte.
        age_days: u32 = 30,
        /// Free space below which younger ones go as well, the oldest first.
        space_min: Option<Size> = None,
        /// Say what would go, and remove nothing.
        dry_run: bool = false,
    }
);

section!(
    /// Who may read the counters.
    Metrics {
        /// Everybody; else administrators.
        open: bool = false,
    }
);

section!(
    /// What a request gets that says nothing of trying again.
    Retry {
        /// Tries without anything new being safe, before a transfer has failed.
        tries: u32 = 5,
        /// Seconds between them.
        interval_seconds: u64 = 10,
    }
);

section!(
    /// Which transfers run, and which are held meanwhile.
    Scheduling {
        /// Who decides.
        policy: PolicyName = PolicyName::Fair,
        /// Transfers side by side; what suits the policy when left out.
        max_running: Option<u32> = None,
        /// Bytes of one turn of `round_robin` (Liu et al., 2010, figure 14).
        quota: Size = Size(400_000_000),
        /// Who takes turns in `round_robin`.
        round_robin_by: RoundRobinBy = RoundRobinBy::Owners,
        /// With `priority` what waits rises one step in each.
        aging_seconds: u64 = 300,
        /// With `fair` one start in each goes to what has waited longest.
        patience_seconds: u64 = 900,
        /// Held transfers that keep their sessions.
        held_max: u32 = 10,
    }
);

/// A share of the endpoint's rate, of a peer or of an owner.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The other endpoint's name; one of this and `owner`.
    pub peer: Option<String>,
    /// The owner.
    pub owner: Option<String>,
    /// What is left is shared by weight.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Bytes per second that it gets before others get more than theirs.
    pub rate_min: Option<Rate>,
    /// Bytes per second that it never exceeds.
    pub rate_max: Option<Rate>,
    /// Of an owner: turns of an activity against the owner's others, where it is not the usual weight.
    #[serde(default)]
    pub activities: BTreeMap<String, u32>,
}

impl Share {
    /// Whether the share is for this peer (`HOST` or `HOST:PORT`).
    #[must_use]
    pub fn is_of_peer(&self, peer: &str) -> bool {
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        let name = self.peer.as_deref();
        name.is_some_and(|name| name == peer || name == host)
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

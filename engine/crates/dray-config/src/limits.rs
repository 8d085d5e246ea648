//! Limits and retention times. The default values suit a small host.

use super::login::Login;
use super::values::{Rate, Size};
use dray_api::{PolicyName, RoundRobinBy, names_peer};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
        /// Maximum number of transfers that have not ended, in total.
        transfers_queued: u64 = 100_000,
        /// Maximum number of transfers of one owner that have not ended.
        per_owner_queued: u64 = 50_000,
        /// Maximum number of transfers of one owner that run concurrently.
        per_owner_active: u32 = 25,
        /// Maximum number of data connections of one session, whether this endpoint or the other
        /// end drives it.
        streams_per_session: u16 = 64,
        /// Size of all buffers together in bytes.
        memory: Size = Size(1 << 30),
        /// Maximum size of a request's body in bytes.
        body_bytes: Size = Size(1 << 20),
        /// Maximum number of concurrent connections of callers.
        connections: u32 = 512,
        /// Maximum number of concurrent requests of one owner, including long polls and event
        /// listeners.
        connections_per_owner: u32 = 64,
        /// Maximum number of concurrent connections from one address.
        connections_per_address: u32 = 128,
        /// Maximum number of event listeners of one owner.
        events_listeners_per_owner: u32 = 16,
        /// Maximum number of unread events of a listener. If a listener has more, its stream ends.
        events_behind: u64 = 2_000,
    }
);

section!(
    /// Tickets that the endpoint issues for other endpoints.
    Tickets {
        /// Lifetime in seconds of a ticket whose request sets no lifetime.
        lifetime: u64 = 3_600,
        /// Maximum time in seconds from the issue of a ticket to its end, including all renewals.
        lifetime_max: u64 = 7 * 24 * 3_600,
        /// Maximum number of stored tickets of one owner. Used tickets count, and so do expired
        /// tickets that can still be renewed.
        per_owner: u64 = 200_000,
    }
);

section!(
    /// Retention of ended transfers.
    History {
        /// Number of days for which an ended transfer is kept.
        keep_days: u32 = 30,
        /// Maximum number of ended transfers. The oldest ones are deleted first.
        keep_count: u64 = 100_000,
    }
);

section!(
    /// Receipts: signed records of ended transfers.
    Receipts {
        /// True if every ended transfer gets a receipt.
        enabled: bool = true,
        /// Folder of the receipts and of the key that signs them. Default: the folder `receipts` in
        /// `state`.
        folder: Option<PathBuf> = None,
        /// Number of days for which a receipt is kept. 0: for ever.
        keep_days: u32 = 365,
        /// Number of the newest receipts that are kept whatever their age is.
        keep_min: u64 = 10_000,
        /// Maximum number of receipts. The oldest ones are removed first. 0: no limit.
        keep_count: u64 = 1_000_000,
        /// Maximum size of all receipts in bytes. The oldest ones are removed first. 0: no limit.
        keep_bytes: Size = Size(10 << 30),
    }
);

section!(
    /// Checkpoints of listings, in the state folder.
    Listings {
        /// Maximum number of checkpoints. The oldest ones are removed first.
        keep_count: u64 = 1_000,
        /// Maximum size of all checkpoints in bytes. The oldest ones are removed first.
        keep_bytes: Size = Size(4 << 30),
    }
);

section!(
    /// Removal of abandoned partial files.
    Janitor {
        /// Minimum age in days of partial data that is removed, counted from its last change.
        age_days: u32 = 30,
        /// Minimum free space in bytes. If less space is free, the janitor also removes partial
        /// data that is younger than `age_days`, the oldest data first.
        space_min: Option<Size> = None,
        /// True to log the removals without carrying them out.
        dry_run: bool = false,
    }
);

section!(
    /// The WLCG tape API.
    Tape {
        /// Name of the site in the metadata of requests. Default: the endpoint's name.
        sitename: Option<String> = None,
        /// Description of the site for people.
        description: Option<String> = None,
        /// Time in seconds for which a fast copy is kept if its request sets no time. At least 1.
        lifetime: u64 = 7 * 24 * 3_600,
    }
);

section!(
    /// Access to the metrics.
    Metrics {
        /// True if every caller may read the metrics. Otherwise only administrators may read them.
        open: bool = false,
    }
);

section!(
    /// The web console.
    Ui {
        /// True if the endpoint serves the web console at `/ui/`.
        enabled: bool = false,
        /// Address at which browsers reach the console: scheme, host and port. Needed for logins.
        url: Option<String> = None,
        /// Providers at which users log in.
        login: Vec<Login> = Vec::new(),
        /// Time in seconds without an action of the user after which a session ends.
        idle_seconds: u64 = 1_800,
        /// Time in seconds after which a session ends in any case.
        lifetime_seconds: u64 = 8 * 3_600,
    }
);

section!(
    /// Retries of a transfer whose request does not set them.
    Retry {
        /// Number of consecutive tries without new durable data after which a transfer fails.
        tries: u32 = 5,
        /// Time in seconds between two tries. After the loss of a session that lasted at least one
        /// second and made data durable, the endpoint first tries every 0.2 seconds for one second.
        interval_seconds: u64 = 10,
        /// True if a start of the endpoint begins a new attempt of failed transfers.
        at_start: bool = false,
        /// Maximum number of attempts of a transfer that a start continues.
        at_start_attempts: u32 = 3,
        /// Time in seconds after its end during which a start continues a failed transfer.
        at_start_age_seconds: u64 = 7 * 86_400,
    }
);

section!(
    /// Rules that decide which transfers run and which are held.
    Scheduling {
        /// The scheduling policy.
        policy: PolicyName = PolicyName::Fair,
        /// Maximum number of transfers that move data concurrently. If it is not set, the policy
        /// uses its own default.
        max_running: Option<u32> = None,
        /// Quota of one turn in the policy `round_robin`, in bytes (Liu et al., 2010, figure 14).
        quota: Size = Size(400_000_000),
        /// Groups that take turns in the policy `round_robin`.
        round_robin_by: RoundRobinBy = RoundRobinBy::Owners,
        /// Time in seconds after which the policy `priority` raises a waiting transfer by one step.
        aging_seconds: u64 = 300,
        /// Interval in seconds. In the policy `fair`, one start per interval goes to the transfer
        /// that has waited longest.
        patience_seconds: u64 = 900,
        /// Maximum number of held transfers that keep their sessions.
        held_max: u32 = 10,
    }
);

/// A share of the endpoint's rate, for a peer or an owner.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Name of the other endpoint. Exactly one of `peer` and `owner` is set.
    pub peer: Option<String>,
    /// Name of the owner.
    pub owner: Option<String>,
    /// Weight of the share when the remaining rate is divided.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Minimum bytes per second: all shares get their minimum before any share gets more.
    pub rate_min: Option<Rate>,
    /// Maximum bytes per second.
    pub rate_max: Option<Rate>,
    /// For an owner: weights of the owner's activities relative to each other. Other activities
    /// have the default weight.
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

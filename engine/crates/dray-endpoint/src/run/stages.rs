//! Assembles the parts that stage files and remove staged copies.

use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::staging::{Expiry, Recalls};
use crate::tier::Tiers;
use dray_config::Config;
use dray_config::roots::Roots;
use dray_queue::Queue;
use std::sync::Arc;

/// Returns the part that removes staged copies at the end of their lifetime.
pub(super) fn expiry(
    config: &Config,
    roots: &Roots,
    accounts: &Arc<Accounts>,
    audit: &Arc<Audit>,
    queue: &Arc<Queue>,
    tiers: &Arc<Tiers>,
) -> Expiry {
    Expiry {
        queue: Arc::clone(queue),
        roots: roots.clone(),
        accounts: Arc::clone(accounts),
        audit: Arc::clone(audit),
        tiers: Arc::clone(tiers),
        is_dry_run: config.janitor.dry_run,
    }
}

/// Returns the part that stages the files of tape requests.
pub(super) fn recalls(
    roots: &Roots,
    accounts: &Arc<Accounts>,
    queue: &Arc<Queue>,
    tiers: &Arc<Tiers>,
) -> Recalls {
    Recalls {
        queue: Arc::clone(queue),
        roots: roots.clone(),
        accounts: Arc::clone(accounts),
        tiers: Arc::clone(tiers),
    }
}

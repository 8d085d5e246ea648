//! Checkers of the rules of a tier. Their names are those of docs/design/tiers.md. The checkers
//! examine the simulated disks. From the tier's catalog of versions they read only the name of a
//! version, and whether the version is pinned.

use super::Tier;
use super::disks::Key;
use crate::world::Violation;

fn key(tier: &Tier, index: usize) -> Key {
    let version = &tier.versions[index];
    (version.application.clone(), version.number)
}

/// Checks that the slow copy is durable and correct before the fast copy is deleted.
pub(super) fn demoted_before_deleted(tier: &Tier, index: usize) -> Result<(), Violation> {
    let key = key(tier, index);
    if tier.disks.is_safe(&key) {
        return Ok(());
    }
    let copy = tier.disks.slow.get(&key);
    Err(Violation {
        checker: "demoted_before_deleted",
        detail: format!("{key:?} is deleted while its slow copy is {copy:?}"),
    })
}

/// Checks that each version that the catalog calls demoted has a durable and correct slow copy. If
/// the application has written the version again, the copy may have an earlier content.
pub(super) fn demoted_is_durable(tier: &Tier) -> Result<(), Violation> {
    for (index, version) in tier.versions.iter().enumerate() {
        let key = key(tier, index);
        let copy = tier.disks.slow.get(&key);
        let is_durable = copy.is_some_and(|copy| copy.is_durable && copy.is_good);
        if version.state.is_durable_on_slow() && !is_durable {
            return Err(Violation {
                checker: "demoted_is_durable",
                detail: format!("{key:?} counts as demoted while its slow copy is {copy:?}"),
            });
        }
    }
    Ok(())
}

/// Checks that a replica is durable and correct when the catalog counts it.
pub(super) fn replica_is_durable(tier: &Tier, index: usize) -> Result<(), Violation> {
    let key = key(tier, index);
    if tier.disks.is_replicated(&key) {
        return Ok(());
    }
    let copy = tier.disks.replicas.get(&key);
    Err(Violation {
        checker: "replica_is_durable",
        detail: format!("{key:?} counts as replicated while its replica is {copy:?}"),
    })
}

/// Checks that a version to delete has no pin.
pub(super) fn pinned_stays(tier: &Tier, index: usize) -> Result<(), Violation> {
    if !tier.versions[index].is_pinned {
        return Ok(());
    }
    Err(Violation {
        checker: "pinned_stays",
        detail: format!("{:?} is pinned and deleted", key(tier, index)),
    })
}

/// Checks that the newest completed version of each application exists on at least one tier.
pub(super) fn newest_survives(tier: &Tier) -> Result<(), Violation> {
    for (application, number) in &tier.disks.completed {
        let key = (application.clone(), *number);
        if !tier.disks.fast.contains_key(&key) && !tier.disks.is_safe(&key) {
            return Err(Violation {
                checker: "newest_survives",
                detail: format!("{key:?} is on neither tier"),
            });
        }
    }
    Ok(())
}

//! Placement of objects: the placement group of a name, and the OSD that serves the group.
//!
//! RADOS divides a pool into placement groups. The group of an object follows from the hash of the
//! namespace and the name. The *acting primary* OSD of the group serves all reads and writes of the
//! object. [`Refresher`] asks the cluster for the primaries.
//!
//! A placement may be out of date, because the cluster moves groups to other OSDs at any time. A
//! wrong primary makes a transfer slower, and has no other effect: librados finds the right OSD
//! itself.

mod answers;
mod hash;
mod refresh;
#[cfg(test)]
mod tests;

use crate::placement::answers::PoolEntry;
use dray_core::Result;
use std::collections::{HashMap, HashSet};

pub use refresh::{Commands, Refresher};

/// Number of an OSD in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OsdId(pub u32);

/// The placement of objects on OSDs, at one epoch of the OSD map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    epoch: u64,
    /// OSDs that are up.
    up: HashSet<OsdId>,
    pools: HashMap<String, Pool>,
}

/// The placement groups of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pool {
    id: u64,
    /// Acting primary of each group; `None` if the cluster has not announced one.
    primaries: Vec<Option<OsdId>>,
}

impl Pool {
    /// Returns the group of a name.
    fn group_of(&self, namespace: &str, object: &[u8]) -> Option<u32> {
        let groups = u32::try_from(self.primaries.len()).ok()?;
        let hash = hash::of_object(namespace, object);
        (groups > 0).then(|| hash::stable_mod(hash, groups))
    }

    fn primary_of(&self, namespace: &str, object: &[u8]) -> Option<OsdId> {
        let mut group = self.group_of(namespace, object)?;
        loop {
            if let Some(primary) = self.primaries.get(group as usize).copied().flatten() {
                return Some(primary);
            }
            // A split creates a group on the OSDs of its parent, so the parent is the best guess.
            group = hash::parent(group)?;
        }
    }
}

impl Placement {
    /// Reads the placement from the answer to `osd dump` (JSON). The groups of each pool have no
    /// primary yet.
    ///
    /// # Errors
    /// `Other` if the answer is not the JSON of an OSD map.
    pub fn read(osd_dump: &[u8]) -> Result<Self> {
        let dump = answers::osd_dump(osd_dump)?;
        let mut pools = HashMap::new();
        for entry in dump.pools {
            if let Some(pool) = entry.pool() {
                pools.insert(entry.pool_name, pool);
            }
        }
        let osds = dump.osds.iter().filter(|osd| osd.up == 1);
        Ok(Self {
            epoch: dump.epoch,
            up: osds.map(|osd| OsdId(osd.osd)).collect(),
            pools,
        })
    }

    /// Adds the primaries from the answer to `pg dump` with `pgs_brief` (JSON). Ignores the groups
    /// of unknown pools, and groups whose primary is missing or down. Such a primary may be
    /// outdated, because the manager learns the place of a group only when an OSD reports the
    /// group.
    ///
    /// # Errors
    /// `Other` if the answer is not the JSON of a list of groups.
    pub fn add_groups(&mut self, pg_dump: &[u8]) -> Result<()> {
        let mut by_id: HashMap<u64, &mut Pool> = self
            .pools
            .values_mut()
            .map(|pool| (pool.id, pool))
            .collect();
        for brief in answers::pg_dump(pg_dump)? {
            let Some((id, group)) = answers::group(&brief.pgid) else {
                continue;
            };
            let slot = by_id
                .get_mut(&id)
                .and_then(|pool| pool.primaries.get_mut(group));
            let primary = brief.primary().filter(|osd| self.up.contains(osd));
            if let (Some(slot), Some(primary)) = (slot, primary) {
                *slot = Some(primary);
            }
        }
        Ok(())
    }

    /// Sets the primary of one group from the answer to `pg map` (JSON).
    ///
    /// # Errors
    /// `Other` if the answer is not the JSON of the place of a group.
    pub fn add_group(&mut self, pg_map: &[u8]) -> Result<()> {
        let brief = answers::pg_map(pg_map)?;
        if let Some((id, group)) = answers::group(&brief.pgid) {
            let pool = self.pools.values_mut().find(|pool| pool.id == id);
            if let Some(slot) = pool.and_then(|pool| pool.primaries.get_mut(group)) {
                *slot = brief.primary();
            }
        }
        Ok(())
    }

    /// Adds the primaries of another placement with the same epoch.
    fn keep_known(&mut self, before: &Self) {
        if self.epoch != before.epoch {
            return;
        }
        for (name, pool) in &mut self.pools {
            let known = before.pools.get(name).filter(|known| known.id == pool.id);
            let known = known.map_or(&[][..], |known| &known.primaries);
            for (slot, primary) in pool.primaries.iter_mut().zip(known) {
                *slot = slot.or(*primary);
            }
        }
    }

    /// Returns the epoch of the OSD map from which the placement was read, or 0 if none was read.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns true if the cluster has a pool of this name.
    #[must_use]
    pub fn has_pool(&self, pool: &str) -> bool {
        self.pools.contains_key(pool)
    }

    /// Returns the number of placement groups of a pool. Zero: the number is unknown.
    #[must_use]
    pub fn group_count(&self, pool: &str) -> usize {
        self.pools.get(pool).map_or(0, |pool| pool.primaries.len())
    }

    /// Returns the placement group of an object, in the form of Ceph's tools: the number of the
    /// pool, a dot, and the number of the group in hexadecimal digits.
    #[must_use]
    pub fn group_of(&self, pool: &str, namespace: &str, object: &[u8]) -> Option<String> {
        let pool = self.pools.get(pool)?;
        let group = pool.group_of(namespace, object)?;
        Some(format!("{}.{group:x}", pool.id))
    }

    /// Returns the groups of a pool that have no primary, in the form of Ceph's tools.
    #[must_use]
    pub fn unknown_groups(&self, pool: &str) -> Vec<String> {
        let Some(pool) = self.pools.get(pool) else {
            return Vec::new();
        };
        let numbered = pool.primaries.iter().enumerate();
        let unknown = numbered.filter(|(_, primary)| primary.is_none());
        unknown
            .map(|(group, _)| format!("{}.{group:x}", pool.id))
            .collect()
    }

    /// Returns the acting primary OSD of an object. Returns `None` if the pool or its placement is
    /// unknown.
    #[must_use]
    pub fn primary_of(&self, pool: &str, namespace: &str, object: &[u8]) -> Option<OsdId> {
        self.pools.get(pool)?.primary_of(namespace, object)
    }

    /// Returns all OSDs that serve groups of a pool, in ascending order.
    #[must_use]
    pub fn osds_of(&self, pool: &str) -> Vec<OsdId> {
        let Some(pool) = self.pools.get(pool) else {
            return Vec::new();
        };
        let mut osds: Vec<OsdId> = pool.primaries.iter().copied().flatten().collect();
        osds.sort_unstable();
        osds.dedup();
        osds
    }
}

/// Maximum number of placement groups of a pool that this module accepts. Ceph limits the placement
/// groups of one OSD to a few hundred, so no real pool has more groups. The bound limits the memory
/// that a wrong answer can take.
const GROUPS_MAX: u32 = 1 << 20;

impl PoolEntry {
    /// Returns the pool without primaries, if the pool hashes names in the way of this module.
    fn pool(&self) -> Option<Pool> {
        let is_known = self.object_hash == hash::RJENKINS && self.pg_num <= GROUPS_MAX;
        is_known.then(|| Pool {
            id: self.pool,
            primaries: vec![None; self.pg_num as usize],
        })
    }
}

//! Replication: copies demoted versions to the second slow tier, in R-order.

use super::{Mutant, Stage, Tier, checks};
use crate::world::Violation;
use dray_sched::tiers::victims::next_replication;

impl Tier {
    /// Starts a replication, or takes the running one a stage further.
    pub(super) fn replicate(&mut self) -> Result<(), Violation> {
        let Some((key, stage)) = self.replicating.clone() else {
            if let Some(index) = next_replication(&self.versions) {
                let version = &self.versions[index];
                let key = (version.application.clone(), version.number);
                self.replicating = Some((key, Stage::Started));
            }
            return Ok(());
        };
        self.replicating = None;
        let Some(index) = self.find(&key) else {
            return Ok(());
        };
        if self.disks.is_slow_away {
            self.report.failed += 1;
            return Ok(());
        }
        if stage == Stage::Started {
            let is_good = !std::mem::take(&mut self.disks.damages_next);
            self.disks.replicate(&key, is_good);
            if !self.is_planted(Mutant::ReplicaBeforeDurable) {
                self.replicating = Some((key, Stage::Written));
                return Ok(());
            }
        } else if let Some(copy) = self.disks.replicas.get_mut(&key) {
            copy.is_durable = true;
            if !copy.is_good && !self.is_planted(Mutant::ReplicaChecksumIgnored) {
                self.report.failed += 1;
                return Ok(());
            }
        }
        // The application has written the version again since the copy began.
        let written = self.disks.contents.get(&key).copied();
        let copied = self.disks.replicas.get(&key).map(|copy| copy.content);
        if written != copied {
            return Ok(());
        }
        self.versions[index].is_replicated = true;
        self.report.replicated += 1;
        checks::replica_is_durable(self, index)
    }
}

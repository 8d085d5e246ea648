//! Applications write complete versions again. The tier learns this from a scan.

use super::Tier;
use crate::world::Violation;
use dray_sched::tiers::victims::VersionState;

impl Tier {
    /// Writes a version on the fast tier again. The catalog does not change.
    pub(super) fn rewrite(&mut self) -> Result<(), Violation> {
        let at = self.draw.below(self.versions.len() as u64) as usize;
        let Some(version) = self.versions.get(at) else {
            return Ok(());
        };
        if !version.state.is_complete() || !version.state.is_on_fast() {
            return Ok(());
        }
        let key = (version.application.clone(), version.number);
        if let Some(written) = self.disks.fast.get_mut(&key) {
            written.content += 1;
            self.disks.contents.insert(key, written.content);
            self.report.rewritten += 1;
        }
        Ok(())
    }

    /// Compares the fast copies with the copies that the catalog knows. A version that differs is
    /// demoted again.
    pub(super) fn scan(&mut self) -> Result<(), Violation> {
        for version in &mut self.versions {
            let key = (version.application.clone(), version.number);
            if version.state == VersionState::Demoted && self.disks.differ(&key) {
                version.state = VersionState::OnFast;
                version.is_replicated = false;
            }
        }
        Ok(())
    }
}

//! Finds the copy from which the fast copy of a version is restored.

use super::Stager;
use crate::tier::is_complete;
use dray_api::api_path::ApiPath;
use dray_config::ManagedTier;
use dray_core::{EntryKind, Result, TransferId};
use dray_queue::{Submission, TierVersion};
use dray_store::ListOptions;

impl Stager<'_> {
    /// Returns the slow copy of a version if it is complete. Otherwise returns the first complete
    /// replica in the order of the configuration. If no replica is complete either, returns the
    /// slow copy.
    pub(super) fn nearest(&self, version: &TierVersion) -> Result<ApiPath> {
        let slow = ApiPath::parse(&version.slow_path)?;
        let replicas = self.queue.tiers().replicas(&version.tier)?;
        if replicas.is_empty() || self.is_whole(version, &slow) {
            return Ok(slow);
        }
        let tier = self.tiers.iter().find(|tier| {
            let name = tier.name.as_str();
            name == version.tier
        });
        for root in tier.into_iter().flat_map(|tier| &tier.replicas) {
            let found = replicas.iter().find(|replica| {
                replica.root == root.as_str()
                    && replica.application == version.application
                    && replica.version == version.version
                    && is_complete(replica, version)
            });
            let Some(replica) = found else {
                continue;
            };
            let path = ApiPath::parse(&replica.path)?;
            if self.is_whole(version, &path) {
                return Ok(path);
            }
        }
        Ok(slow)
    }

    /// Completes the submission of a stage-out with a deadline: adds the size, and limits the rate
    /// to the tier's maximum demotion rate. Later, the first round of the tier lowers the limit to
    /// the rate that the deadline needs.
    pub(super) fn bound_demotion(
        &self,
        tier: &ManagedTier,
        submission: &mut Submission,
        fast: &ApiPath,
    ) {
        let Some(id) = submission.request.id.clone() else {
            return;
        };
        if submission.request.deadline.is_none() {
            return;
        }
        submission.request.rate_max = Some(tier.read_max.0);
        if submission.request.bytes_expected.is_none() {
            let size = self.expected(&id, &submission.owner, fast);
            submission.request.bytes_expected = size;
        }
    }

    /// Returns the total size of the files at `path`. The promise of a deadline needs this size. A
    /// repeated request gets the size that the first request found. Returns `None` if the files
    /// cannot be listed: the transfer itself then reports the error.
    pub(super) fn expected(&self, id: &TransferId, owner: &str, path: &ApiPath) -> Option<u64> {
        if let Ok(Some(known)) = self.queue.request(id) {
            return known.bytes_expected;
        }
        let root = self.roots.find(path).ok()?;
        let sized = self
            .accounts
            .act_as(owner, || bytes_at(self.accounts.root(root)?.store(), path));
        sized.ok()
    }

    /// Returns true if the copy at `path` can be listed and has the size of the version.
    fn is_whole(&self, version: &TierVersion, path: &ApiPath) -> bool {
        let bytes = self.roots.find(path).and_then(|root| {
            self.accounts.act_as(&version.owner, || {
                bytes_at(self.accounts.root(root)?.store(), path)
            })
        });
        match bytes {
            // The size of a version is not known before the first scan.
            Ok(bytes) => version.bytes == 0 || bytes == version.bytes,
            Err(error) => {
                tracing::warn!("cannot read the copy {}: {error}", path.text());
                false
            }
        }
    }
}

/// Returns the bytes of all files and links below `path`.
fn bytes_at(store: &std::sync::Arc<dyn dray_store::Store>, path: &ApiPath) -> Result<u64> {
    let mut bytes = 0_u64;
    for listed in store.list(&path.path, &ListOptions::default())? {
        bytes += match listed?.kind {
            EntryKind::File { size, .. } => size,
            EntryKind::Symlink { target } => target.len() as u64,
            EntryKind::Directory | EntryKind::DirectoryEnd => 0,
        };
    }
    Ok(bytes)
}

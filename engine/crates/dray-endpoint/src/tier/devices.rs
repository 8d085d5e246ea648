//! Limits the writes to the devices of a tier, and trims them after deletions.

use super::limit::WriteLimit;
use super::plan::Planned;
use super::trim::Trim;
use dray_config::ManagedTier;
use dray_config::roots::Roots;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct Devices {
    name: String,
    limit: Option<WriteLimit>,
    trims: Vec<(PathBuf, Trim)>,
    /// Messages that were logged, each once.
    told: Vec<String>,
}

impl Devices {
    pub(super) fn new(tier: &ManagedTier, roots: &Roots) -> Self {
        let paths = tier.fast.iter().filter_map(|name| {
            let root = roots.named(name.as_str()).ok()?;
            root.path().map(std::path::Path::to_path_buf)
        });
        let trims = tier.trim.into_iter().flat_map(|rate| {
            let paths = paths.clone();
            paths.map(move |path| (path.clone(), Trim::new(&path, rate.0)))
        });
        Self {
            name: tier.name.to_string(),
            limit: WriteLimit::new(tier, roots),
            trims: trims.collect(),
            told: Vec::new(),
        }
    }

    /// Limits the applications' writes to the planned rate, and continues the TRIM. Returns the
    /// result of the limit, if the tier has a limit, and the error of the TRIM.
    pub(super) fn round(
        &mut self,
        planned: &Planned,
        has_deleted: bool,
    ) -> (Option<Result<(), String>>, Option<String>) {
        let limit = self.limit.as_mut().map(|limit| limit.set(planned.write));
        let mut error = None;
        for (path, trim) in &mut self.trims {
            if has_deleted {
                trim.deleted();
            }
            let size = rustix::fs::statvfs(path.as_path())
                .map_or(0, |found| found.f_blocks.saturating_mul(found.f_frsize));
            trim.round(size);
            error = error.or_else(|| trim.error.clone());
        }
        if let Some(Err(why)) = &limit {
            self.tell(&format!("writes are not limited: {why}"));
        }
        if let Some(why) = &error {
            self.tell(&format!("the fast devices are not trimmed: {why}"));
        }
        (limit, error)
    }

    fn tell(&mut self, message: &str) {
        if !self.told.iter().any(|told| told == message) {
            tracing::warn!(tier = self.name.as_str(), "{message}");
            self.told.push(message.to_owned());
        }
    }
}

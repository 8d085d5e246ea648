//! Prepares a file for its data: continues an earlier run's partial file, or begins a new one.

use crate::sink::continued::Kept;
use crate::sink::files::Space;
use dray_core::{ContentKey, RelPath, Result};
use dray_link::open_file::OpenFile;
use dray_log::ObjectLog;
use std::sync::Arc;

impl Space {
    pub(super) fn prepare(
        &self,
        path: &RelPath,
        key: ContentKey,
        object_bytes: u64,
        resume: bool,
        stripes: Option<Vec<u8>>,
    ) -> Result<(Arc<OpenFile>, Option<Kept>)> {
        self.check_lease()?;
        let logged = {
            let destination = self.destination()?;
            let logged_path = destination.prefix.join_path(path)?;
            destination.log.file(&logged_path).cloned()
        };
        if let (true, Some(logged)) = (resume, &logged) {
            let (open, kept) = self.continue_file(path, key, logged)?;
            return Ok((open, Some(kept)));
        }
        let open = self.begin_anew(path, key, object_bytes, stripes.as_deref())?;
        if !resume && let Err(error) = self.settle_claim(path) {
            self.discard(&open);
            return Err(error);
        }
        self.take_space(&open)?;
        Ok((open, None))
    }

    /// Preallocates the space of a prepared file, if requested. Does not hold the destination's
    /// lock, so that a slow file system delays only this file.
    fn take_space(&self, open: &Arc<OpenFile>) -> Result<()> {
        if !open.is_one_hole() {
            return Ok(());
        }
        let taken = self.handles.of(open)?.take_space(open.size);
        if taken.as_ref().is_ok_and(|taken| *taken) {
            open.set_taken();
        }
        if taken.is_err() {
            self.discard(open);
        }
        taken.map(|_| ())
    }
}

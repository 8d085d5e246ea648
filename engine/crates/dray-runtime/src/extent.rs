//! Bytes in a buffer that lie in a file of this host as well: a sink in the same process may take that
//! file's blocks instead of writing them anew.

use dray_core::{ByteRange, Result};
use dray_store::{Partial, ReadHandle, ReadState};
use std::sync::Arc;

/// Where the bytes of a buffer were read.
pub(crate) struct Extent {
    file: Arc<dyn ReadHandle>,
    offset: u64,
    /// What the file was when they were read and summed.
    state: ReadState,
}

impl Extent {
    /// Of bytes that were read at `offset`; `None` when the file's store does not share.
    pub(crate) fn of(file: &Arc<dyn ReadHandle>, offset: u64, state: ReadState) -> Option<Self> {
        file.shareable().map(|_| Self {
            file: Arc::clone(file),
            offset,
            state,
        })
    }

    /// Gives them to `partial` as its `range`. `false`: it has to write them. That is so as well when the
    /// file has changed by now: then nobody knows whether what both have is what was summed.
    pub(crate) fn give(&self, partial: &dyn Partial, range: ByteRange) -> Result<bool> {
        let Some(file) = self.file.shareable() else {
            return Ok(false);
        };
        Ok(partial.share(range, file, self.offset)? && self.file.state()? == self.state)
    }
}

impl std::fmt::Debug for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Extent(at {})", self.offset)
    }
}

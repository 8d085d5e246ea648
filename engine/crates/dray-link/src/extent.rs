//! Locates the bytes of a buffer in a file of this host. A sink in the same process may share the
//! file's blocks instead of writing the bytes again.

use dray_core::{ByteRange, Result};
use dray_store::{Partial, ReadHandle, ReadState};
use std::sync::Arc;

/// The file and offset from which the bytes of a buffer were read.
pub struct Extent {
    file: Arc<dyn ReadHandle>,
    offset: u64,
    /// State of the file when the bytes were read and their checksums computed.
    state: ReadState,
}

impl Extent {
    /// Creates the extent for bytes that were read from `file` at `offset`. Returns `None` if the
    /// file's store cannot share blocks.
    pub fn of(file: &Arc<dyn ReadHandle>, offset: u64, state: ReadState) -> Option<Self> {
        file.shareable().map(|_| Self {
            file: Arc::clone(file),
            offset,
            state,
        })
    }

    /// Shares the bytes with `partial`, at `range`. Returns false if the caller must write the
    /// bytes instead. This happens if the store cannot share blocks, or if the file has changed
    /// since the read: then the shared bytes may not match their checksums.
    pub fn give(&self, partial: &dyn Partial, range: ByteRange) -> Result<bool> {
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

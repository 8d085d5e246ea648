//! The bytes of small files between their write and their publication.

use crate::attributes::FileAttributes;
use crate::note::Generation;
use std::collections::HashMap;

/// Maximum number of bytes of small files that are kept in memory.
const UNPUBLISHED_BYTES_MAX: usize = 64 << 20;

/// A small file that is written and not yet published.
pub(crate) struct UnpublishedFile {
    pub(crate) generation: Generation,
    pub(crate) bytes: Vec<u8>,
    pub(crate) file_attributes: FileAttributes,
}

/// The small files of a store that are not yet published, by the full names of their partial files.
#[derive(Default)]
pub(crate) struct Unpublished {
    files: HashMap<Vec<u8>, UnpublishedFile>,
    bytes: usize,
}

impl Unpublished {
    /// Adds a file, if the memory has room for its bytes.
    pub(crate) fn put(&mut self, partial: Vec<u8>, file: UnpublishedFile) {
        if self.bytes + file.bytes.len() <= UNPUBLISHED_BYTES_MAX {
            self.bytes += file.bytes.len();
            self.files.insert(partial, file);
        }
    }

    /// Removes a file from the memory, if `is_wanted` returns true for it.
    pub(crate) fn take_if(
        &mut self,
        partial: &[u8],
        is_wanted: impl FnOnce(&UnpublishedFile) -> bool,
    ) -> Option<UnpublishedFile> {
        let _ = self.files.get(partial).filter(|file| is_wanted(file))?;
        let file = self.files.remove(partial)?;
        self.bytes -= file.bytes.len();
        Some(file)
    }
}

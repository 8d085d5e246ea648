//! The file of an object log, in a control file of a store.

use dray_core::Result;
use dray_log::LogFile;
use dray_store::ControlFile;

/// A [`LogFile`] in a store.
pub struct StoredLog {
    file: Box<dyn ControlFile>,
    replacement: Vec<u8>,
}

impl StoredLog {
    /// Returns the log in `file`.
    #[must_use]
    pub fn new(file: Box<dyn ControlFile>) -> Self {
        Self {
            file,
            replacement: Vec::new(),
        }
    }
}

impl LogFile for StoredLog {
    fn length(&mut self) -> Result<u64> {
        self.file.len()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let got = self
                .file
                .read_at(offset + filled as u64, &mut buffer[filled..])?;
            if got == 0 {
                break;
            }
            filled += got;
        }
        Ok(filled)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        self.file.truncate(length)
    }

    fn begin_replacement(&mut self) -> Result<()> {
        self.replacement.clear();
        Ok(())
    }

    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        // `replacement` grows to the size of the log's live records, which the maximum number of
        // unfinished files limits.
        self.replacement.extend_from_slice(bytes);
        Ok(())
    }

    fn commit_replacement(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.replacement);
        self.file.replace(&bytes)
    }
}

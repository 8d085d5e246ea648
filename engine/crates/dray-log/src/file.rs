//! The file a log lies in, as little of it as a log needs.

use dray_core::{End, Error, ErrorKind, Result};

/// A file that grows at its end and can be replaced as a whole.
///
/// The runtime implements it over the system, the simulator over a fake disk that knows written from
/// durable. One instance is used by one thread at a time. No method tries again by itself.
pub trait LogFile {
    /// Bytes in the file now, durable or not. Never fails half way: it is asked before each commit
    /// to notice a second writer.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn length(&mut self) -> Result<u64>;

    /// Fills `buffer` from `offset`; returns how many bytes it got. Fewer than asked means the end
    /// of the file, never an interrupted call.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes` at the end. After an error any part of them may be in the file; the log
    /// truncates.
    ///
    /// # Errors
    /// Whatever the storage says ([`ErrorKind::NoSpace`] above all).
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Returns when everything appended and every truncation is on stable storage. After an error
    /// nothing is known of what was not durable before, and a second call may lie (a failed sync
    /// marks pages clean): the log is given up.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn sync(&mut self) -> Result<()>;

    /// Cuts the file to `length` bytes; never used to grow it.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn truncate(&mut self, length: u64) -> Result<()>;

    /// Opens an empty new file in the same folder, forgetting one begun before. The present file is
    /// untouched until [`Self::commit_replacement`].
    ///
    /// # Errors
    /// Whatever the storage says.
    fn begin_replacement(&mut self) -> Result<()>;

    /// Writes all of `bytes` at the end of the new file.
    ///
    /// # Errors
    /// Whatever the storage says; the new file is then worthless, the present one is as it was.
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()>;

    /// Syncs the new file, renames it over the present one and syncs the folder. From then on `self`
    /// is the new file. A crash at any moment leaves the old file or the new one, each whole.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] only when the present file is certainly as it was. After any other error
    /// it may be either one: the log is given up.
    fn commit_replacement(&mut self) -> Result<()>;
}

impl<F: LogFile + ?Sized> LogFile for Box<F> {
    fn length(&mut self) -> Result<u64> {
        (**self).length()
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        (**self).read_at(offset, buffer)
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        (**self).append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        (**self).sync()
    }
    fn truncate(&mut self, length: u64) -> Result<()> {
        (**self).truncate(length)
    }
    fn begin_replacement(&mut self) -> Result<()> {
        (**self).begin_replacement()
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        (**self).append_replacement(bytes)
    }
    fn commit_replacement(&mut self) -> Result<()> {
        (**self).commit_replacement()
    }
}

/// A file in memory that never fails: for tests, and for reading bytes somebody else fetched.
#[derive(Debug, Clone, Default)]
pub struct MemoryFile {
    bytes: Vec<u8>,
    replacement: Option<Vec<u8>>,
}

impl MemoryFile {
    /// An empty file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file with this content.
    #[must_use]
    pub const fn with_bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            replacement: None,
        }
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl LogFile for MemoryFile {
    fn length(&mut self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = usize::try_from(offset).map_or(self.bytes.len(), |at| at.min(self.bytes.len()));
        let count = buffer.len().min(self.bytes.len() - start);
        buffer[..count].copy_from_slice(&self.bytes[start..start + count]);
        Ok(count)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        self.bytes
            .truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn begin_replacement(&mut self) -> Result<()> {
        self.replacement = Some(Vec::new());
        Ok(())
    }

    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.replacement {
            Some(replacement) => {
                replacement.extend_from_slice(bytes);
                Ok(())
            }
            None => Err(not_begun()),
        }
    }

    fn commit_replacement(&mut self) -> Result<()> {
        self.bytes = self.replacement.take().ok_or_else(not_begun)?;
        Ok(())
    }
}

fn not_begun() -> Error {
    Error::new(ErrorKind::Internal, End::Sink, "replace the object log")
        .cause("no replacement was begun")
}

//! The file interface of a log, limited to the operations that a log needs.

use dray_core::{End, Error, ErrorKind, Result};

/// A file that grows at its end and can be replaced as a whole.
///
/// The runtime implements the interface with the operating system, the simulator with a fake disk
/// that distinguishes written from durable data. An instance is used by one thread at a time. The
/// methods do not retry.
pub trait LogFile {
    /// Returns the present length of the file, including bytes that are not durable. The log calls
    /// it before each commit to detect a second writer, so an uncertain length must be an error.
    ///
    /// # Errors
    /// Errors of the storage.
    fn length(&mut self) -> Result<u64>;

    /// Fills `buffer` from `offset`; returns the number of bytes read. A smaller number than
    /// requested means the end of the file: the implementation repeats interrupted reads.
    ///
    /// # Errors
    /// Errors of the storage.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes` at the end. After an error any part of `bytes` may be in the file; the
    /// log then truncates the file.
    ///
    /// # Errors
    /// Errors of the storage, most often [`ErrorKind::NoSpace`].
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Returns after all appended bytes and every truncation are on stable storage. After an error
    /// the log instance becomes unusable. The state of the unsynced data is then unknown, and a
    /// second call may wrongly succeed, because a failed sync marks pages clean.
    ///
    /// # Errors
    /// Errors of the storage.
    fn sync(&mut self) -> Result<()>;

    /// Truncates the file to `length` bytes. The log never grows a file with it.
    ///
    /// # Errors
    /// Errors of the storage.
    fn truncate(&mut self, length: u64) -> Result<()>;

    /// Opens an empty new file in the same folder, and discards a new file from an earlier call.
    /// The present file is unchanged until [`Self::commit_replacement`].
    ///
    /// # Errors
    /// Errors of the storage.
    fn begin_replacement(&mut self) -> Result<()>;

    /// Writes all of `bytes` at the end of the new file.
    ///
    /// # Errors
    /// Errors of the storage; the new file is then unusable, the present one unchanged.
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()>;

    /// Syncs the new file, renames it over the present file and syncs the folder. Afterwards `self`
    /// is the new file. A crash at any moment leaves either the old or the new file complete.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] only if the present file is certainly unchanged. After any other
    /// error either file may be in place, and the log instance becomes unusable.
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

/// A file in memory that never fails: for tests, and for bytes that the caller has already read.
#[derive(Debug, Clone, Default)]
pub struct MemoryFile {
    bytes: Vec<u8>,
    replacement: Option<Vec<u8>>,
}

impl MemoryFile {
    /// Creates an empty file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a file with the content `bytes`.
    #[must_use]
    pub const fn with_bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            replacement: None,
        }
    }

    /// Returns the content.
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

//! The file operations that a log needs.

use crate::record::Tenure;
use dray_core::{End, Error, ErrorKind, Result};

/// Use of a part log that [`LogFile::open_part`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartAccess {
    /// The part log is read. It is not created.
    Read,
    /// The part log is read and written. A missing file is created.
    Write,
}

/// A file that grows at its end and can be replaced as a whole.
///
/// The runtime implements this trait with the operating system. The simulator implements it with a
/// model of a disk that distinguishes written and durable data. Only one thread at a time uses an
/// instance. The methods do not retry.
pub trait LogFile {
    /// Returns the current length of the file, including bytes that are not durable. The log
    /// compares the length before each commit to detect a second writer. So the method must return
    /// an error if the length is uncertain.
    ///
    /// # Errors
    /// Errors of the storage.
    fn length(&mut self) -> Result<u64>;

    /// Reads from `offset` until `buffer` is full or the file ends, and returns the number of bytes
    /// read. The implementation must repeat interrupted reads.
    ///
    /// # Errors
    /// Errors of the storage.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Returns true if the holder that wrote `tenure` still holds the lease of this log. The writer
    /// calls this method before it removes records after a failed append or a failed sync: the call
    /// may have taken long, and another holder may have appended records since then.
    ///
    /// The default is for a file that only one process can use.
    ///
    /// # Errors
    /// Errors of the storage. The writer then removes no records.
    fn is_held(&mut self, tenure: &Tenure) -> Result<bool> {
        let _ = tenure;
        Ok(true)
    }

    /// Writes all of `bytes` at the end of the file. After an error, a part of `bytes` may be in
    /// the file. The log then truncates the file, except after [`ErrorKind::LeaseLost`] and if
    /// [`Self::is_held`] does not return true.
    ///
    /// # Errors
    /// Errors of the storage, most often [`ErrorKind::NoSpace`]. [`ErrorKind::LeaseLost`] if another
    /// process has changed the file since the last append; nothing is written then.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Waits until all appended bytes and all truncations are on stable storage. After an error the
    /// log instance cannot be used any more. A second call could succeed without durable data,
    /// because a failed sync marks the pages as clean.
    ///
    /// # Errors
    /// Errors of the storage.
    fn sync(&mut self) -> Result<()>;

    /// Truncates the file to `length` bytes. The log never passes more than the current length.
    ///
    /// # Errors
    /// Errors of the storage.
    fn truncate(&mut self, length: u64) -> Result<()>;

    /// Creates an empty new file in the same folder. Discards a new file that an earlier call
    /// created. The current file is unchanged until [`Self::commit_replacement`].
    ///
    /// # Errors
    /// Errors of the storage.
    fn begin_replacement(&mut self) -> Result<()>;

    /// Writes all of `bytes` at the end of the new file.
    ///
    /// # Errors
    /// Errors of the storage. The new file cannot be used any more, and the current file is
    /// unchanged.
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()>;

    /// Syncs the new file, renames it over the current file and syncs the folder. Afterwards `self`
    /// refers to the new file. After a crash at any moment, either the old or the new file is
    /// complete.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] only if the current file is certainly unchanged. After any other
    /// error, the name may refer to the old or the new file, and the log instance cannot be used
    /// any more.
    fn commit_replacement(&mut self) -> Result<()>;

    /// Opens the part log with the number `part`, which belongs to this log. Returns `None` if the
    /// file does not exist and `access` is [`PartAccess::Read`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the storage holds no part logs. Errors of the storage.
    fn open_part(
        &mut self,
        part: u32,
        access: PartAccess,
    ) -> Result<Option<Box<dyn LogFile + Send>>> {
        let _ = (part, access);
        Err(no_parts())
    }

    /// Removes the part log with the number `part`. A missing file is not an error.
    ///
    /// # Errors
    /// The errors of [`Self::open_part`].
    fn remove_part(&mut self, part: u32) -> Result<()> {
        let _ = part;
        Err(no_parts())
    }

    /// Returns the numbers of all part logs of this log, in any order.
    ///
    /// # Errors
    /// The errors of [`Self::open_part`].
    fn parts(&mut self) -> Result<Vec<u32>> {
        Err(no_parts())
    }

    /// Gives back resources of the operating system, such as an open file, until the next call. The
    /// writer calls this method for the part logs that it has not used for longest, because a
    /// transfer may have more unfinished files than a process may have open files.
    fn release(&mut self) {}
}

fn no_parts() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        End::Sink,
        "open a part of the object log",
    )
    .cause("the storage of the log holds no part logs")
    .remedy("use a log of the mechanism universal")
}

impl<F: LogFile + ?Sized> LogFile for Box<F> {
    fn length(&mut self) -> Result<u64> {
        (**self).length()
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        (**self).read_at(offset, buffer)
    }
    fn is_held(&mut self, tenure: &Tenure) -> Result<bool> {
        (**self).is_held(tenure)
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
    fn open_part(
        &mut self,
        part: u32,
        access: PartAccess,
    ) -> Result<Option<Box<dyn LogFile + Send>>> {
        (**self).open_part(part, access)
    }
    fn remove_part(&mut self, part: u32) -> Result<()> {
        (**self).remove_part(part)
    }
    fn parts(&mut self) -> Result<Vec<u32>> {
        (**self).parts()
    }
    fn release(&mut self) {
        (**self).release();
    }
}

/// A file in memory that never fails. Used in tests, and for bytes that the caller has already
/// read.
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

    /// Returns the content of the file.
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
        .cause("no replacement of the log is in progress")
}

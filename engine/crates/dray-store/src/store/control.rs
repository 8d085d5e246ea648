//! The trait of control files: object logs and leases.

use dray_core::Result;

/// A control file: an object log or a lease, stored near the data.
pub trait ControlFile: Send + Sync {
    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    /// Errors of the store.
    fn len(&self) -> Result<u64>;

    /// Returns true if the file is empty.
    ///
    /// # Errors
    /// Errors of the store.
    fn is_empty(&self) -> Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// As [`super::ReadHandle::read_at`].
    ///
    /// # Errors
    /// Errors of the store.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes at `offset` and extends the file if necessary.
    ///
    /// # Errors
    /// `NoSpace`; in this case a part of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes at the end of the file. Only one thread may append at a time.
    ///
    /// # Errors
    /// `NoSpace`. In this case the file may end with a part of `bytes`, and the caller must
    /// truncate the file.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Makes the content of the file durable. The first call also makes the name of the file
    /// durable.
    ///
    /// # Errors
    /// `Io`; as [`super::Partial::sync`].
    fn sync(&self) -> Result<()>;

    /// Truncates the file to `size_bytes`.
    ///
    /// # Errors
    /// Errors of the store.
    fn truncate(&self, size_bytes: u64) -> Result<()>;

    /// Replaces the whole content with `bytes`, atomically and durably. After a crash the file has
    /// either the old or the new content. The handle then refers to the new file. A lock on the old
    /// file is lost, so do not lock a file that is replaced.
    ///
    /// # Errors
    /// `NoSpace`; in this case the file has its old content.
    fn replace(&self, bytes: &[u8]) -> Result<()>;

    /// Takes the exclusive lock on the file. Returns `false` if another handle, in this or another
    /// process, holds the lock. The lock is released when the handle is closed or the process ends.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no locks.
    fn try_lock(&self) -> Result<bool>;

    /// Releases the lock. Does nothing if this handle does not hold the lock.
    ///
    /// # Errors
    /// Errors of the store.
    fn unlock(&self) -> Result<()>;
}

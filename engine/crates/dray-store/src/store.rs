//! The contract of every backend: [`Store`] and its handles.
//!
//! A store is one exported root at one end of a transfer. It executes each call immediately and
//! once. Calls block, and many threads make them concurrently. A store has no policy: no retries,
//! no ordering of its own, no threads. docs/design/stores.md describes the order of calls; in
//! short:
//!
//! ```text
//! source  list -> open_read -> (next_data) -> read_at ... state
//! sink    stat -> make_dir -> begin -> write_at | punch_hole ... sync -> ready -> publish | abort
//!         write_small ... -> sync_each -> publish_small ...     (files of at most one object)
//!         make_symlink, set_directory, sync_each(folders)
//! log     open_control -> read_at | append | sync | truncate | replace | try_lock
//! ```
//!
//! Paths are [`RelPath`]s beneath the root and never leave it, whatever the tree's symbolic links
//! say; a path that would leave it fails with [`PathEscapes`]. Errors name the file, this store's
//! end and the cause with the system's message.
//!
//! [`PathEscapes`]: dray_core::ErrorKind::PathEscapes

use crate::types::{
    Attributes, Capabilities, ControlMode, FileState, FreeSpace, Holding, InodeState, ListOptions,
    Listed, MadeDir, Noted, PartialId, PartialRequest, Publish, ReadPurpose, ReadState, SmallFile,
    SmallName, SyncItem, Target,
};
use dray_core::{ByteRange, Error, Layout, Metadata, Name, RelPath, Result, Sums};
use rustix::fd::BorrowedFd;

/// A tree of files, as the source or the sink of a transfer sees it. The module documentation shows
/// the order of calls.
///
/// Every call may fail with any error kind of [`crate::errno`]: `NotFound`, `PermissionDenied`,
/// `NotADirectory`, `NoSpace`, `ReadOnly`, `NameTooLong`, `PathEscapes`, `Io`, `Busy` and so on.
/// The `# Errors` sections below list only the errors that callers distinguish.
pub trait Store: Send + Sync {
    /// Returns the capabilities of this store. Constant for the life of the store; cheap.
    fn capabilities(&self) -> Capabilities;

    /// Returns the storage targets seen so far, by number. The list grows as folders on further
    /// devices are seen.
    fn targets(&self) -> Vec<Target>;

    /// Returns the targets that hold the bytes of the file at `path`. For a file that does not
    /// exist yet: its future targets. Its folder must exist.
    ///
    /// # Errors
    /// `NotFound` if the folder does not exist.
    fn layout(&self, path: &RelPath) -> Result<Layout>;

    /// Returns the free space of the storage under `path`, which need not exist.
    ///
    /// # Errors
    /// Errors of the store.
    fn free_space(&self, path: &RelPath) -> Result<FreeSpace>;

    // ---- source ------------------------------------------------------------------------------

    /// Lists `top` and everything beneath it, depth first, in memory that does not grow with the
    /// number of entries. Dray's own names ([`Name::is_reserved`]) are left out, unless
    /// [`ListOptions::own`] asks for them only.
    ///
    /// # Errors
    /// If `top` itself cannot be listed at all (`NotFound`, `PermissionDenied`, ...). An error
    /// further down is an item of the listing and does not end it.
    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PathEscapes` if the path contains a symbolic link (and links
    /// are not followed), `Unsupported` for sockets and devices (at the latest by
    /// [`ReadHandle::state`]).
    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>>;

    /// Opens for a transfer a file that was listed with this size and time. Where several servers
    /// have versions of it, opens the listed version, if one server still has it. The reader
    /// compares the state.
    ///
    /// # Errors
    /// As [`Store::open_read`].
    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        let _ = listed;
        self.open_read(path, ReadPurpose::Transfer)
    }

    // ---- sink --------------------------------------------------------------------------------

    /// Returns the state of the entry at `path` without following links; `None` if it (or its
    /// folder) does not exist.
    ///
    /// # Errors
    /// `NotADirectory` if a file exists in the place of one of its folders.
    fn stat(&self, path: &RelPath) -> Result<Option<FileState>>;

    /// Checks that the root is still where it was when the store was opened, so that a user learns
    /// of a destination folder that was moved.
    ///
    /// # Errors
    /// `NotFound` names the former and the present path.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the creation time of the file at `path`, in nanoseconds since 1970, without
    /// following links. It distinguishes successive files with the same inode number. Returns 0 if
    /// the store does not know it, or if no entry exists there.
    ///
    /// # Errors
    /// Errors of the store.
    fn born(&self, path: &RelPath) -> Result<u64> {
        let _ = path;
        Ok(0)
    }

    /// Returns the allocated size and the last change of the file or link at `path`, without
    /// following links; `None` if no entry exists there.
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        let state = self.stat(path)?;
        Ok(state.map(|state| Holding {
            bytes: state.size,
            changed: state.modified,
        }))
    }

    /// Returns the checksums kept with a published file (see [`Attributes::sums`]), if the file
    /// still has the size and time recorded with them; `None` if none are known.
    ///
    /// # Errors
    /// Errors of the store; a missing file is `NotFound`.
    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>>;

    /// Makes one folder (its parent must exist), accessible to its owner only until
    /// [`Store::set_directory`]. A repeated call changes nothing, except that the owner may again
    /// make entries in the folder until then.
    ///
    /// # Errors
    /// `NotADirectory` if another entry exists there, including a symbolic link.
    fn make_dir(&self, path: &RelPath) -> Result<MadeDir>;

    /// Sets a folder's mode, time and, if given, extended attributes. Called after everything in it
    /// is published; idempotent.
    ///
    /// # Errors
    /// Errors of the store.
    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()>;

    /// Sets the mode (the low nine bits) and these extended attributes of the file at `path`. Keeps
    /// its content, its time and its other attributes. Returns true if anything changed.
    ///
    /// # Errors
    /// Errors of the store; `NotFound` when no regular file exists there.
    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        let _ = (path, metadata);
        Ok(false)
    }

    /// Makes a symbolic link at `path` with the target `text`, atomically: it is made as `partial`
    /// in the same folder and renamed. The text is neither followed nor checked.
    ///
    /// # Errors
    /// As [`Partial::publish`]; `Busy` if the partial name is taken; `Unsupported` without
    /// [`Capabilities::symlinks`].
    fn make_symlink(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()>;

    /// Starts, or continues, a file of `size_bytes`: a partial file with the requested name in the
    /// folder of `path`. A new one has its full size immediately and reads as zeros, without taking
    /// space; only its owner can read it. An existing entry of that name is never replaced: only
    /// the caller knows whether a log refers to it.
    ///
    /// # Errors
    /// When starting: `AlreadyExists` if the name is taken. When continuing: `NotFound` if the
    /// named partial file is gone or is not the one meant (another inode): then none of its ranges
    /// is durable.
    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>>;

    /// Writes a whole small file under the partial name, sets its attributes and closes it. Returns
    /// its identity. It is not durable yet. `bytes` is the complete content. The ranges in `holes`
    /// (in order, disjoint, within it) are zeros, which a store with [`Capabilities::holes`] does
    /// not allocate.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken; errors of the store. A failed call leaves no file
    /// behind.
    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId>;

    /// Gives a file written by [`Store::write_small`] its final name, if the partial name still
    /// refers to that file. See [`Partial::publish`].
    ///
    /// # Errors
    /// As [`Partial::publish`].
    fn publish_small(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
        how: Publish,
    ) -> Result<()>;

    /// Calls [`Store::write_small`] for several files and returns one result for each, in order. A
    /// store with [`Capabilities::takes_many`] handles them concurrently.
    fn write_small_each(&self, files: &[SmallFile<'_>]) -> Vec<Result<PartialId>> {
        let write = |file: &SmallFile<'_>| {
            let SmallFile {
                path,
                partial,
                bytes,
                holes,
                attributes,
            } = file;
            self.write_small(path, partial, bytes, holes, attributes)
        };
        files.iter().map(write).collect()
    }

    /// Calls [`Store::publish_small`] for several files, as [`Store::write_small_each`] does.
    fn publish_small_each(&self, files: &[SmallName<'_>]) -> Vec<Result<()>> {
        let publish =
            |file: &SmallName<'_>| self.publish_small(file.path, file.partial, file.id, file.how);
        files.iter().map(publish).collect()
    }

    /// Removes the partial file of that name in the folder of `path`; with `only`, if it is that
    /// file: another writer's file of the same name stays. A missing file is not an error.
    ///
    /// # Errors
    /// Errors of the store.
    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()>;

    /// Makes all items durable: contents of files and partial files, and the names in folders.
    /// Returns one result for each item, in order. `Ok` means that the item is on stable storage.
    /// `Err` means that the item is missing, is not of the expected kind or may not be opened, and
    /// does not concern the other items. Few items are synced one by one, many by one call for the
    /// whole file system. In the second case a file missing from an existing folder may get `Ok`.
    ///
    /// A name is durable when its *folder* was synced after the rename.
    ///
    /// # Errors
    /// If a sync itself failed, or the host or the storage lacked the resources for an open: none
    /// of the items counts as durable. `Io` if the device lost writes; the store stays failed for
    /// its life, because the system reports such a loss only once.
    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>>;

    /// Removes a file, a link or an empty folder. A missing one is not an error.
    ///
    /// # Errors
    /// `AlreadyExists` if the folder is not empty.
    fn remove(&self, path: &RelPath) -> Result<()>;

    // ---- log and lease -----------------------------------------------------------------------

    /// Opens a control file: an object log, a lease. With [`ControlMode::Create`] the store makes
    /// the file, and its folder, if missing, accessible to their owner only.
    ///
    /// # Errors
    /// `NotFound` with [`ControlMode::Existing`]; `Unsupported` without
    /// [`Capabilities::can_hold_log`].
    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>>;

    /// Removes a control file, durably. A missing one is not an error.
    ///
    /// # Errors
    /// Errors of the store.
    fn remove_control(&self, path: &RelPath) -> Result<()>;

    /// Returns the names in a control folder, in no order; empty if the folder does not exist.
    ///
    /// # Errors
    /// `LimitExceeded` past [`crate::CONTROL_NAMES_MAX`] names.
    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>>;
}

/// A listing in progress. Items come depth first: a folder's [`Directory`] item, its files and
/// links, its folders one after the other, its [`DirectoryEnd`]. An `Err` item is one entry (or the
/// rest of one folder) that cannot be listed; the listing continues.
///
/// [`Directory`]: dray_core::EntryKind::Directory
/// [`DirectoryEnd`]: dray_core::EntryKind::DirectoryEnd
pub trait Lister: Iterator<Item = Result<Listed>> + Send {
    /// Leaves out the folder of the last `Directory` item, including its end. Does nothing after
    /// any other item.
    fn skip_folder(&mut self);

    /// Returns true if the last error may concern a whole folder, whose entries are then missing,
    /// and false if it concerns a single entry.
    fn failed_at_folder(&self) -> bool {
        true
    }
}

/// A file open for reading. Several threads use it concurrently.
pub trait ReadHandle: Send + Sync {
    /// Reads at `offset` into `buffer` and returns the number of bytes: at least one, unless the
    /// file ends there or the buffer is empty. A short read is no sign of the end
    /// ([`crate::ReadExt::read_full_at`] continues).
    ///
    /// # Errors
    /// `Io` and the like; `IsADirectory`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Returns true if reads come from the storage without read-ahead: then one long read is faster
    /// than several short ones.
    fn is_direct(&self) -> bool {
        false
    }

    /// Returns the open file, if its store can share its blocks with copies ([`Partial::share`]).
    fn shareable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called before the first read of a file whose blocks may be shared with copies. After it
    /// every change of the file also changes its modification time, including writes through memory
    /// that was mapped and dirtied before.
    ///
    /// # Errors
    /// `Io`.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the file's current size and time. Called after a read: if they differ from those of
    /// the listing, the bytes read belong to no known version.
    ///
    /// # Errors
    /// `Unsupported` if it is not a regular file.
    fn state(&self) -> Result<ReadState>;

    /// As [`ReadHandle::state`], with the inode's other fields where the store has them.
    ///
    /// # Errors
    /// As [`ReadHandle::state`].
    fn full_state(&self) -> Result<(ReadState, Option<InodeState>)> {
        Ok((self.state()?, None))
    }

    /// Returns a record that later shows whether the content was changed and the modification time
    /// set back; `None` if the store has no such record. Makes no call to a server.
    ///
    /// # Errors
    /// As [`ReadHandle::state`].
    fn noted(&self) -> Result<Option<Noted>> {
        Ok(None)
    }

    /// Returns the first data range (not a hole) at or after `offset`; `None` if only a hole
    /// follows. Stores without [`Capabilities::holes`] return the whole rest of the file.
    ///
    /// # Errors
    /// Errors of the store.
    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>>;

    /// As [`Store::known_sums`], for this open file, whichever file has its name now.
    ///
    /// # Errors
    /// Errors of the store.
    fn known_sums(&self) -> Result<Option<Sums>>;
}

/// A partial file being written. Several threads use it concurrently. Dropping it leaves the
/// partial file in place, to be continued by a later [`Store::begin`].
pub trait Partial: Send + Sync {
    /// Returns the identity that a log records to find this file again.
    fn id(&self) -> PartialId;

    /// Writes all of `bytes` at `offset`. Idempotent: the same bytes may be written at the same
    /// offset any number of times. Not durable before [`Partial::sync`].
    ///
    /// # Errors
    /// `NoSpace`; part of the bytes may have been written. A [`dray_core::Status::Temporary`] error
    /// permits a retry. An error that may belong to an earlier write, and is reported once, is not
    /// temporary: then no write since the last successful sync counts as done.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes `range` equal the bytes of `from` at `offset` by sharing blocks between both files: no
    /// bytes are copied. Returns `false` if the store cannot do that, or not with this file; any
    /// part of the range may have changed then, and the caller writes all of it. Like
    /// [`Partial::write_at`], idempotent and not durable before [`Partial::sync`].
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn share(&self, _range: ByteRange, _from: BorrowedFd<'_>, _offset: u64) -> Result<bool> {
        Ok(false)
    }

    /// Allocates the space of all `size_bytes` of a new file now, so that a full storage is
    /// detected before the bytes travel. Returns `false` if the store was not opened for that, or
    /// cannot do it. Unwritten ranges still read as zeros, but are not holes any more.
    ///
    /// # Errors
    /// `NoSpace`.
    fn take_space(&self, _size_bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Returns true if the store writes to a file in memory, one call at a time: a second writer
    /// would only wait.
    fn takes_one_writer(&self) -> bool {
        false
    }

    /// Makes a range read as zeros, as a hole where the store has holes.
    ///
    /// # Errors
    /// `NoSpace` where zeros must be written.
    fn punch_hole(&self, range: ByteRange) -> Result<()>;

    /// Reads back. As [`ReadHandle::read_at`].
    ///
    /// # Errors
    /// Errors of the store.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Sets the length of the file to `size_bytes`.
    ///
    /// # Errors
    /// `NoSpace`.
    fn set_len(&self, size_bytes: u64) -> Result<()>;

    /// Makes durable all data written before the call began, and the metadata needed to read it.
    /// After an error no write since the last successful sync counts as durable.
    ///
    /// # Errors
    /// `Io`; the system may report the loss only once, so the caller starts the file again.
    fn sync(&self) -> Result<()>;

    /// Performs the slow, invisible part of [`Partial::publish`]. The caller passes the same
    /// attributes and checks its lease between the two calls. A store without such a part does
    /// nothing.
    ///
    /// # Errors
    /// As [`Partial::publish`].
    fn ready(&self, _attributes: &Attributes<'_>) -> Result<()> {
        Ok(())
    }

    /// Sets the attributes and gives the file its final name in one atomic step. Before it no
    /// reader finds the file there, after it the complete file. An existing file is replaced or
    /// kept, never damaged. Durable after [`Store::sync_each`] of the folder.
    ///
    /// If the outcome of an earlier attempt is unknown, [`Store::stat`] shows it: the final name
    /// then has this partial file's inode.
    ///
    /// # Errors
    /// `AlreadyExists` ([`Publish::IfAbsent`]) and `IsADirectory` (a folder exists there): the
    /// partial file still exists then. `NotFound` if the partial file is gone.
    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()>;

    /// Removes the partial file. A missing one is not an error, and another writer's file of the
    /// same name stays.
    ///
    /// # Errors
    /// Errors of the store.
    fn abort(&self) -> Result<()>;
}

/// A control file: an object log or a lease, beside the data.
pub trait ControlFile: Send + Sync {
    /// Returns the size in bytes.
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

    /// As [`ReadHandle::read_at`].
    ///
    /// # Errors
    /// Errors of the store.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes at `offset`, extending the file if needed.
    ///
    /// # Errors
    /// `NoSpace`; part of the bytes may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes at the end. Only one writer may append at a time.
    ///
    /// # Errors
    /// `NoSpace`; the file may end with a torn tail then, which the caller truncates.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Makes the file durable, and at the first call its name as well.
    ///
    /// # Errors
    /// `Io`; as [`Partial::sync`].
    fn sync(&self) -> Result<()>;

    /// Truncates the file to `size_bytes`.
    ///
    /// # Errors
    /// Errors of the store.
    fn truncate(&self, size_bytes: u64) -> Result<()>;

    /// Replaces the whole content with `bytes`, atomically and durably: after a crash the file has
    /// the old or the new content. This handle then refers to the new file. A lock held on the old
    /// one is lost: only a file that is never replaced should be locked.
    ///
    /// # Errors
    /// `NoSpace`; the old file still exists then.
    fn replace(&self, bytes: &[u8]) -> Result<()>;

    /// Takes the exclusive lock on the file; returns `false` if another handle holds it, in this
    /// process or another. Closing the handle, or the end of the process, releases it.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no locks.
    fn try_lock(&self) -> Result<bool>;

    /// Releases the lock. Does nothing without a lock.
    ///
    /// # Errors
    /// Errors of the store.
    fn unlock(&self) -> Result<()>;
}

/// Returns the error of a backend for an unsupported operation.
#[must_use]
pub fn unsupported(end: dray_core::End, operation: &str, path: &RelPath, cause: &str) -> Error {
    Error::new(dray_core::ErrorKind::Unsupported, end, operation)
        .file(path)
        .cause(cause)
}

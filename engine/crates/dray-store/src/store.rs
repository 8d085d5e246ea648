//! The contract of every backend: the [`Store`] trait and the traits of its handles.
//!
//! A store is one root at one end of a transfer. It executes each call immediately and once. Calls
//! block, and many threads make calls concurrently. A store does not retry calls, change their
//! order, or start threads for calls; only a listing may start threads. docs/design/stores.md
//! describes the order of calls. This is a summary:
//!
//! ```text
//! source  list -> open_read -> (next_data) -> read_at ... state
//! sink    stat -> make_dir -> begin -> write_at | punch_hole ... sync -> ready -> publish | abort
//!      write_small ... -> sync_each -> publish_small ...     (files of at most one object)
//!      make_symlink, set_directory, sync_each(folders)
//! log     open_control -> read_at | append | sync | truncate | replace | try_lock
//! ```
//!
//! Paths are [`RelPath`]s below the root. No call leaves the root, even if the tree contains
//! symbolic links to other places. A path that would leave the root fails with [`PathEscapes`]. An
//! error contains the file, the end of this store, and the system's message as the cause.
//!
//! [`PathEscapes`]: dray_core::ErrorKind::PathEscapes

mod control;

pub use crate::errno::unsupported;
use crate::types::{
    Attributes, Capabilities, ControlMode, FileState, FolderVersion, FreeSpace, Holding,
    InodeState, ListOptions, Listed, MadeDir, Noted, PartialId, PartialRequest, Publish,
    ReadPurpose, ReadState, SmallFile, SmallName, SyncItem, Target,
};
pub use control::ControlFile;
use dray_core::{ByteRange, End, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Sums};
use rustix::fd::BorrowedFd;
use std::time::SystemTime;

/// Returns the result of the only file of a call for several files.
fn only<T>(results: Vec<Result<T>>, operation: &str, path: &RelPath) -> Result<T> {
    let none = || {
        let error = Error::new(ErrorKind::Internal, End::Here, operation).file(path);
        Err(error.cause("the store returned no result"))
    };
    results.into_iter().next().unwrap_or_else(none)
}

/// A tree of files at the source or the sink of a transfer. The module documentation shows the
/// order of calls.
///
/// Every call may fail with any error kind of [`crate::errno`], such as `NotFound`,
/// `PermissionDenied`, `NotADirectory`, `NoSpace`, `ReadOnly`, `NameTooLong`, `PathEscapes`, `Io`
/// or `Busy`. The `# Errors` sections of the methods list only the errors that callers treat in a
/// special way.
pub trait Store: Send + Sync {
    /// Returns the capabilities of this store. They never change, and the call is cheap.
    fn capabilities(&self) -> Capabilities;

    /// Returns the storage targets seen so far, ordered by number. The list grows when the store
    /// sees folders on other devices.
    fn targets(&self) -> Vec<Target>;

    /// Returns the targets that hold the bytes of the file at `path`. If the file does not exist
    /// yet, returns the targets that it would get. The folder of the file must exist.
    ///
    /// # Errors
    /// `NotFound` if the folder does not exist.
    fn layout(&self, path: &RelPath) -> Result<Layout>;

    /// As [`Store::layout`], with the size of the file. A store that spreads files over several
    /// targets uses the size to choose the target of a new file.
    ///
    /// # Errors
    /// The errors of [`Store::layout`].
    fn layout_for(&self, path: &RelPath, _size_bytes: u64) -> Result<Layout> {
        self.layout(path)
    }

    /// Returns the free space of the storage that holds `path`. `path` need not exist.
    ///
    /// # Errors
    /// Errors of the store.
    fn free_space(&self, path: &RelPath) -> Result<FreeSpace>;

    // ---- source ------------------------------------------------------------------------------

    /// Lists `top` and everything below it, depth first. The memory for the listing does not grow
    /// with the number of entries. The listing leaves out dray's own names ([`Name::is_reserved`]).
    /// With [`ListOptions::own`] it contains only folders and these names.
    ///
    /// # Errors
    /// An error if `top` itself cannot be listed (`NotFound`, `PermissionDenied`, ...). An error of
    /// an entry below `top` is an item of the listing, and the listing continues.
    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>>;

    /// Returns the version of the entries of the folder `path`. Returns `None` if the store cannot
    /// tell two versions of this folder apart. A listing of the store reads the entries of a folder
    /// only after it has returned the folder itself, so a version that is read in between is not
    /// newer than the entries.
    ///
    /// # Errors
    /// `NotFound` if the folder does not exist; other errors of the store.
    fn folder_version(&self, path: &RelPath) -> Result<Option<FolderVersion>> {
        let _ = path;
        Ok(None)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory`; `PathEscapes` if the path contains a symbolic link and links are
    /// not followed. `Unsupported` for sockets and devices; some stores report this error later, in
    /// [`ReadHandle::state`].
    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>>;

    /// Opens a file that was listed with the size and time in `listed`. If several servers have
    /// different versions of the file, the store opens the listed version, if a server still has
    /// it. The caller must compare the state of the open file with the listing.
    ///
    /// # Errors
    /// The errors of [`Store::open_read`].
    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        let _ = listed;
        self.open_read(path, ReadPurpose::Transfer)
    }

    // ---- sink --------------------------------------------------------------------------------

    /// Returns the state of the entry at `path`, without following links. Returns `None` if the
    /// entry or its folder does not exist.
    ///
    /// # Errors
    /// `NotADirectory` if one of the folders on the path is a file.
    fn stat(&self, path: &RelPath) -> Result<Option<FileState>>;

    /// Checks that the root is still at the path at which the store was opened. The error tells the
    /// user that the destination folder was moved.
    ///
    /// # Errors
    /// `NotFound`. The error contains the former and the present path.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the creation time of the file at `path` in nanoseconds since 1970, without following
    /// links. The creation time distinguishes two files that had the same inode number one after
    /// the other. Returns 0 if the store does not know the time, or if no entry exists at `path`.
    ///
    /// # Errors
    /// Errors of the store.
    fn born(&self, path: &RelPath) -> Result<u64> {
        let _ = path;
        Ok(0)
    }

    /// Returns the allocated size and the time of the last change of the file or link at `path`,
    /// without following links. Returns `None` if no entry exists at `path`.
    ///
    /// # Errors
    /// The errors of [`Store::stat`].
    fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        let state = self.stat(path)?;
        Ok(state.map(|state| Holding {
            bytes: state.size,
            changed: state.modified,
        }))
    }

    /// Turns data that no listing shows, and that has not changed since `before`, into partial
    /// files, so that a sweep finds the data. Returns the number of new partial files. Only a store
    /// that keeps a file in several parts can have such data.
    ///
    /// # Errors
    /// Errors of the store.
    fn gather_lost(&self, before: SystemTime) -> Result<u64> {
        let _ = before;
        Ok(0)
    }

    /// Returns the checksums stored with a published file (see [`Attributes::sums`]), if the file
    /// still has the size and time that were stored with them. Returns `None` if no valid checksums
    /// are stored.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist; other errors of the store.
    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>>;

    /// Has the storage system compute a checksum of the file at `path`, and compares it with
    /// `sums`. Returns true if the checksums agree, and false if the storage system computes no
    /// checksum that dray supports. The call may take as long as a read of the file.
    ///
    /// # Errors
    /// `ChecksumMismatch` if the checksums differ. Other errors of the store.
    fn confirms(&self, path: &RelPath, sums: &Sums) -> Result<bool> {
        let _ = (path, sums);
        Ok(false)
    }

    /// Creates one folder. Its parent must exist. Only the owner can access the folder until
    /// [`Store::set_directory`]. If the folder exists, the call only makes sure that the owner can
    /// create entries in it.
    ///
    /// # Errors
    /// `NotADirectory` if another kind of entry is at the path, including a symbolic link.
    fn make_dir(&self, path: &RelPath) -> Result<MadeDir>;

    /// Sets the mode, the modification time and, if given, the extended attributes of a folder. The
    /// sink calls this after all entries of the folder are published. A repeated call has no
    /// further effect.
    ///
    /// # Errors
    /// Errors of the store.
    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()>;

    /// Sets the low nine bits of the mode and the given extended attributes of the file at `path`.
    /// Does not change the content, the modification time or other attributes. Returns true if a
    /// value was changed.
    ///
    /// # Errors
    /// `NotFound` if no regular file exists at `path`; other errors of the store.
    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        let _ = (path, metadata);
        Ok(false)
    }

    /// Creates a symbolic link at `path` with the target `text`, in one atomic step. The link is
    /// created with the name `partial` in the same folder and then renamed. The target is not
    /// followed or checked.
    ///
    /// # Errors
    /// The errors of [`Partial::publish`]; `Busy` if the partial name exists; `Unsupported` without
    /// [`Capabilities::symlinks`].
    fn make_symlink(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()>;

    /// Creates a partial file of `size_bytes` in the folder of `path`, or opens the partial file of
    /// an earlier run. A new partial file has its full size immediately, reads as zeros, takes no
    /// space, and only its owner can read it. An existing entry with the same name is never
    /// replaced, because only the caller knows if an object log refers to that entry.
    ///
    /// # Errors
    /// For a new file: `AlreadyExists` if the name exists. For an earlier file: `NotFound` if the
    /// name does not exist or refers to another file (another inode). In this case none of the
    /// ranges that the log records for the file is durable.
    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>>;

    /// Does the same as [`Store::begin`]. If this store was opened to use the stripes of the
    /// source, a new file gets the stripes that the source has sent
    /// ([`dray_core::attribute::STRIPES_NAME`]).
    ///
    /// # Errors
    /// The errors of [`Store::begin`].
    fn begin_striped(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
        stripes: &[u8],
    ) -> Result<Box<dyn Partial>> {
        let _ = stripes;
        self.begin(path, size_bytes, request)
    }

    /// Writes a whole small file with the partial name, sets its attributes, closes it and returns
    /// its identity. The file is not durable yet. `bytes` is the complete content. The ranges in
    /// `holes` are zeros; they are in order, do not overlap, and lie within the content. A store
    /// with [`Capabilities::holes`] does not allocate space for them.
    ///
    /// A store implements this method or [`Store::write_small_each`], because the default of each
    /// method calls the other one.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists; errors of the store. A failed call leaves no file
    /// behind.
    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        let file = SmallFile {
            path,
            partial,
            bytes,
            holes,
            attributes: *attributes,
        };
        only(self.write_small_each(&[file]), "write the file", path)
    }

    /// Gives a file written by [`Store::write_small`] its final name, if the partial name still
    /// refers to that file. See [`Partial::publish`]. A store implements this method or
    /// [`Store::publish_small_each`].
    ///
    /// # Errors
    /// The errors of [`Partial::publish`].
    fn publish_small(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
        how: Publish,
    ) -> Result<()> {
        let file = SmallName {
            path,
            partial,
            id,
            how,
        };
        only(self.publish_small_each(&[file]), "publish the file", path)
    }

    /// Calls [`Store::write_small`] for several files and returns one result for each file, in the
    /// same order. A store with [`Capabilities::takes_many`] writes the files concurrently.
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

    /// Calls [`Store::publish_small`] for several files and returns one result for each file, in
    /// the same order.
    fn publish_small_each(&self, files: &[SmallName<'_>]) -> Vec<Result<()>> {
        let publish =
            |file: &SmallName<'_>| self.publish_small(file.path, file.partial, file.id, file.how);
        files.iter().map(publish).collect()
    }

    /// Deletes the partial file `partial` in the folder of `path`. If `only` is given, deletes the
    /// file only if it has that identity, so that another writer's file with the same name is kept.
    /// A missing file is not an error.
    ///
    /// # Errors
    /// Errors of the store.
    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()>;

    /// Makes all items durable: contents of files and partial files, and the names in folders.
    /// Returns one result for each item, in the same order. `Ok` means that the item is on stable
    /// storage. `Err` means that the item is missing, has the wrong kind or cannot be opened. Such
    /// an error does not concern the other items. A few items are synced one by one. Many items are
    /// synced with one call for the whole file system. In this case a missing file in an existing
    /// folder may get `Ok`.
    ///
    /// The name of a file is durable when its *folder* was synced after the rename.
    ///
    /// # Errors
    /// An error if a sync failed, or if the host or the storage had too few resources to open an
    /// item. Then none of the items counts as durable. `Io` if the device lost writes. After such a
    /// loss every later call of this function fails too, because the system reports a loss only
    /// once.
    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>>;

    /// Deletes a file, a link or an empty folder. A missing entry is not an error.
    ///
    /// # Errors
    /// `AlreadyExists` if the folder is not empty.
    fn remove(&self, path: &RelPath) -> Result<()>;

    // ---- log and lease -----------------------------------------------------------------------

    /// Opens a control file: an object log or a lease. With [`ControlMode::Create`] the store
    /// creates the file and its folder if they are missing. Only the owner can access the file and
    /// the folder.
    ///
    /// # Errors
    /// `NotFound` with [`ControlMode::Existing`]; `Unsupported` without
    /// [`Capabilities::can_hold_log`].
    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>>;

    /// Deletes a control file and makes the deletion durable. A missing file is not an error.
    ///
    /// # Errors
    /// Errors of the store.
    fn remove_control(&self, path: &RelPath) -> Result<()>;

    /// Returns the names in a control folder, in any order. Returns an empty list if the folder
    /// does not exist.
    ///
    /// # Errors
    /// `LimitExceeded` if the folder has more than [`crate::CONTROL_NAMES_MAX`] names.
    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>>;
}

/// A listing in progress. The listing is depth first. A folder has a [`Directory`] item, then items
/// for its files and links, then the items of its folders one after the other, then a
/// [`DirectoryEnd`] item. An `Err` item reports an entry, or the remaining entries of a folder,
/// that cannot be listed. The listing continues after an `Err` item.
///
/// [`Directory`]: dray_core::EntryKind::Directory
/// [`DirectoryEnd`]: dray_core::EntryKind::DirectoryEnd
pub trait Lister: Iterator<Item = Result<Listed>> + Send {
    /// Skips the contents and the end of the folder whose `Directory` item was returned last. Does
    /// nothing if the last item was of another kind.
    fn skip_folder(&mut self);

    /// Returns true if the last error may concern all entries of a folder, which are then missing
    /// from the listing. Returns false if the error concerns one entry.
    fn failed_at_folder(&self) -> bool {
        true
    }
}

/// A file open for reading. Several threads use the handle concurrently.
pub trait ReadHandle: Send + Sync {
    /// Reads at `offset` into `buffer` and returns the number of bytes read. Returns 0 only at the
    /// end of the file or if the buffer is empty. A result below the buffer length does not mean
    /// the end of the file ([`crate::ReadExt::read_full_at`] reads on).
    ///
    /// # Errors
    /// `Io` and similar errors; `IsADirectory`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Returns true if the reads use the storage directly, without read-ahead. One long read is
    /// then faster than several short reads.
    fn is_direct(&self) -> bool {
        false
    }

    /// Returns the descriptor of the open file, if the store can share blocks between this file and
    /// copies ([`Partial::share`]).
    fn shareable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares a file whose blocks may be shared with copies. Called before the first read. After
    /// this call, every change of the file also changes its modification time, including a write
    /// through a memory mapping that already had dirty pages.
    ///
    /// # Errors
    /// `Io`.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the current size and modification time of the file. The caller compares them with
    /// the listing after a read. If they differ, the file has changed, and the bytes read must not
    /// be used.
    ///
    /// # Errors
    /// `Unsupported` if the entry is not a regular file.
    fn state(&self) -> Result<ReadState>;

    /// Returns the result of [`ReadHandle::state`] and, if the store has inodes, the other fields
    /// of the inode.
    ///
    /// # Errors
    /// The errors of [`ReadHandle::state`].
    fn full_state(&self) -> Result<(ReadState, Option<InodeState>)> {
        Ok((self.state()?, None))
    }

    /// Returns a record for a later comparison. The record shows if a program changed the content
    /// and then set the modification time back. Returns `None` if the store has no such record.
    /// Makes no call to a server.
    ///
    /// # Errors
    /// The errors of [`ReadHandle::state`].
    fn noted(&self) -> Result<Option<Noted>> {
        Ok(None)
    }

    /// Returns the first range at or after `offset` that is data and not a hole. Returns `None` if
    /// only a hole follows. A store without [`Capabilities::holes`] returns the whole rest of the
    /// file.
    ///
    /// # Errors
    /// Errors of the store.
    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>>;

    /// Does the same as [`Store::known_sums`] for this open file, even if another file has its name
    /// now.
    ///
    /// # Errors
    /// Errors of the store.
    fn known_sums(&self) -> Result<Option<Sums>>;
}

/// A partial file open for writing. Several threads use the handle concurrently. Dropping the
/// handle does not delete the partial file, and [`Store::begin`] can open it again.
pub trait Partial: Send + Sync {
    /// Returns the identity of the file. The object log records the identity, so that a later run
    /// can find the file.
    fn id(&self) -> PartialId;

    /// Writes all of `bytes` at `offset`. The same bytes may be written several times. They are not
    /// durable before [`Partial::sync`].
    ///
    /// # Errors
    /// `NoSpace`; in this case a part of the bytes may have been written. After a
    /// [`dray_core::Status::Temporary`] error the caller may retry. Some systems report the failure
    /// of an earlier write in a later call, and only once. Such an error is not temporary, and no
    /// write since the last successful sync counts as done.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes `range` equal to the bytes of `from` at `offset` by sharing blocks. No bytes are
    /// copied. Returns `false` if the blocks cannot be shared. In this case a part of the range may
    /// have changed, and the caller must write the whole range. As with [`Partial::write_at`], the
    /// call may be repeated, and the range is not durable before [`Partial::sync`].
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn share(&self, _range: ByteRange, _from: BorrowedFd<'_>, _offset: u64) -> Result<bool> {
        Ok(false)
    }

    /// Allocates the space for all `size_bytes` of a new file, so that a lack of space is detected
    /// before the bytes are sent. Returns `false` if preallocation is not enabled or not supported.
    /// Unwritten ranges still read as zeros, but they are no longer holes.
    ///
    /// # Errors
    /// `NoSpace`.
    fn take_space(&self, _size_bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Returns the targets that hold the bytes of the file, if the store chose the targets when it
    /// created the file. Returns `None` if [`Store::layout`] already returned these targets.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// Returns true if the store copies written bytes to memory while it holds a lock on the file.
    /// A second writer for the same file would only wait.
    fn takes_one_writer(&self) -> bool {
        false
    }

    /// Makes a range read as zeros. A store that supports holes makes the range a hole.
    ///
    /// # Errors
    /// `NoSpace` if zeros must be written.
    fn punch_hole(&self, range: ByteRange) -> Result<()>;

    /// Reads back written bytes, as [`ReadHandle::read_at`] does.
    ///
    /// # Errors
    /// Errors of the store.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Sets the length of the file to `size_bytes`.
    ///
    /// # Errors
    /// `NoSpace`.
    fn set_len(&self, size_bytes: u64) -> Result<()>;

    /// Makes all data durable that was written before the call began, and the metadata needed to
    /// read it. After an error, no write since the last successful sync counts as durable.
    ///
    /// # Errors
    /// `Io`. The system may report a loss only once, so the caller must write the file again from
    /// the start.
    fn sync(&self) -> Result<()>;

    /// Prepares [`Partial::publish`]: does its slow steps in advance, as far as readers of the
    /// final name cannot see these steps. The caller passes the same attributes to both calls and
    /// checks its lease between them. A store may do nothing here.
    ///
    /// # Errors
    /// The errors of [`Partial::publish`].
    fn ready(&self, _attributes: &Attributes<'_>) -> Result<()> {
        Ok(())
    }

    /// Sets the attributes and gives the file its final name in one atomic step. A reader sees
    /// either no new file or the complete new file with this name. An existing file is replaced or
    /// kept, but never damaged. The name is durable after [`Store::sync_each`] of the folder.
    ///
    /// If the outcome of an earlier call is unknown, the caller uses [`Store::stat`]. If the
    /// earlier call succeeded, the final name has the inode of this partial file.
    ///
    /// # Errors
    /// `AlreadyExists` with [`Publish::IfAbsent`], and `IsADirectory` if a folder has the final
    /// name. In both cases the partial file still exists. `NotFound` if the partial file does not
    /// exist any more.
    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()>;

    /// Deletes the partial file. A missing file is not an error. If another writer's file has the
    /// name, that file is kept.
    ///
    /// # Errors
    /// Errors of the store.
    fn abort(&self) -> Result<()>;
}

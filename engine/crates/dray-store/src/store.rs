//! The contract every backend keeps: [`Store`] and the handles it gives out.
//!
//! A store is one exported root at one end of a transfer. It does what it is told, at once and
//! once: calls block, are made from many threads at a time, and hold no policy: no retries, no
//! ordering of its own, no threads. Who calls what when is docs/design/stores.md; in short:
//!
//! ```text
//! source  list -> open_read -> (next_data) -> read_at ... state
//! sink    stat -> make_dir -> begin -> write_at | punch_hole ... sync -> ready -> publish | abort
//!         write_small ... -> sync_each -> publish_small ...     (files of at most one object)
//!         make_symlink, set_directory, sync_each(folders)
//! log     open_control -> read_at | append | sync | truncate | replace | try_lock
//! ```
//!
//! Paths are [`RelPath`]s beneath the root and stay there whatever the tree's symbolic links say;
//! one that would leave it fails with [`PathEscapes`]. Errors name the file, this store's end and
//! the cause in the system's words.
//!
//! [`PathEscapes`]: dray_core::ErrorKind::PathEscapes

use crate::types::{
    Attributes, Capabilities, ControlMode, FileState, FreeSpace, Holding, InodeState, ListOptions,
    Listed, MadeDir, Noted, PartialId, PartialRequest, Publish, ReadPurpose, ReadState, SmallFile,
    SmallName, SyncItem, Target,
};
use dray_core::{ByteRange, Error, Layout, Metadata, Name, RelPath, Result, Sums};
use rustix::fd::BorrowedFd;

/// One root of files at one end. See the module's head for the order of calls.
///
/// Every call may fail with the kinds of [`crate::errno`]: `NotFound`, `PermissionDenied`,
/// `NotADirectory`, `NoSpace`, `ReadOnly`, `NameTooLong`, `PathEscapes`, `Io`, `Busy` and so on; the
/// `# Errors` sections below name only what a caller tells apart.
pub trait Store: Send + Sync {
    /// What this store can do. Constant for the life of the store; cheap.
    fn capabilities(&self) -> Capabilities;

    /// The storage targets met so far, by number. Grows as folders on further devices are seen.
    fn targets(&self) -> Vec<Target>;

    /// Which target holds which bytes of the file at `path`. For a file that does not exist yet:
    /// where it would be put. Its folder must exist.
    ///
    /// # Errors
    /// `NotFound` when the folder does not exist.
    fn layout(&self, path: &RelPath) -> Result<Layout>;

    /// Free space where `path` lies or would lie.
    ///
    /// # Errors
    /// Of the store.
    fn free_space(&self, path: &RelPath) -> Result<FreeSpace>;

    // ---- source ------------------------------------------------------------------------------

    /// Lists `top` and everything beneath it, depth first, in memory that does not grow with the
    /// number of entries. Dray's own names ([`Name::is_reserved`]) are left out, unless
    /// [`ListOptions::own`] asks for nothing else.
    ///
    /// # Errors
    /// When `top` itself cannot be listed at all (`NotFound`, `PermissionDenied`, ...); what goes
    /// wrong further down is an item of the listing and does not end it.
    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PathEscapes` when a symbolic link stands in the way (and links
    /// are not followed), `Unsupported` for sockets and devices (at the latest by
    /// [`ReadHandle::state`]).
    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>>;

    /// Opens for a transfer a file that was listed with this size and time. Where several servers have
    /// versions of it, the one that was listed is opened, if there still is one. Whoever reads compares.
    ///
    /// # Errors
    /// As [`Store::open_read`].
    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        let _ = listed;
        self.open_read(path, ReadPurpose::Transfer)
    }

    // ---- sink --------------------------------------------------------------------------------

    /// What stands at `path`, links not followed; `None` when nothing does (or its folder does not
    /// exist).
    ///
    /// # Errors
    /// `NotADirectory` when a file stands where one of its folders should be.
    fn stat(&self, path: &RelPath) -> Result<Option<FileState>>;

    /// Whether the root is still where it was when the store was opened: who copies into a folder
    /// that is moved away meanwhile should hear of it.
    ///
    /// # Errors
    /// `NotFound` names where it was, and where it is.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// When the file at `path` was created, in nanoseconds since 1970, links not followed: of two
    /// files that had one inode number after each other it tells which one this is. 0 where the
    /// store cannot say, or nothing stands there.
    ///
    /// # Errors
    /// Of the store.
    fn born(&self, path: &RelPath) -> Result<u64> {
        let _ = path;
        Ok(0)
    }

    /// What the file or link at `path` costs and when it was last touched, links not followed;
    /// `None` when nothing stands there.
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

    /// The checksums kept with a published file (see [`Attributes::sums`]), if the file still has
    /// the size and time it had then; `None` when nothing is known.
    ///
    /// # Errors
    /// Of the store; a missing file is `NotFound`.
    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>>;

    /// Makes one folder (its parent must exist), open to its owner only until
    /// [`Store::set_directory`]. Doing it again changes nothing, but that its owner may make entries in it
    /// until then.
    ///
    /// # Errors
    /// `NotADirectory` when something else stands there, a symbolic link included.
    fn make_dir(&self, path: &RelPath) -> Result<MadeDir>;

    /// Sets a folder's mode, time and, if given, extended attributes. Called when everything in it
    /// is published; idempotent.
    ///
    /// # Errors
    /// Of the store.
    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()>;

    /// Gives the file at `path` this mode (the low nine bits) and these extended attributes. Its
    /// content, its time and its other attributes stay. Returns whether anything was changed.
    ///
    /// # Errors
    /// Of the store; `NotFound` when no regular file exists there.
    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        let _ = (path, metadata);
        Ok(false)
    }

    /// Makes a symbolic link at `path` that says `text`, atomically: it is made as `partial` in the
    /// same folder and renamed. The text is not followed or judged.
    ///
    /// # Errors
    /// As [`Partial::publish`]; `Busy` when the partial name is taken; `Unsupported` without
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
    /// folder of `path`. A new one is that long at once and reads as zeros, without taking space;
    /// it is readable by its owner only. What stands under the name is never replaced: only the
    /// caller knows whether a log speaks of it.
    ///
    /// # Errors
    /// When starting: `AlreadyExists` when the name is taken. When continuing: `NotFound` when the
    /// named partial file is gone or is not the one meant (another inode): then nothing of it is
    /// safe.
    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>>;

    /// Writes a whole small file under the partial name, attributes set, and lets go of it: no
    /// handle stays open. Returns which file it is. Not durable yet. `bytes` is all of the content;
    /// where `holes` say so (in order, apart, within it) it is zeros, which a store with
    /// [`Capabilities::holes`] does not keep.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken; of the store. Nothing is left behind then.
    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId>;

    /// Gives a file written by [`Store::write_small`] its final name, if it is still the one that
    /// call made. See [`Partial::publish`].
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

    /// Several of [`Store::write_small`]: one answer for each, in order. A store with
    /// [`Capabilities::takes_many`] does them at once.
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

    /// Several of [`Store::publish_small`], as [`Store::write_small_each`].
    fn publish_small_each(&self, files: &[SmallName<'_>]) -> Vec<Result<()>> {
        let publish =
            |file: &SmallName<'_>| self.publish_small(file.path, file.partial, file.id, file.how);
        files.iter().map(publish).collect()
    }

    /// Removes the partial file of that name in the folder of `path`; with `only`, if it is that
    /// one: another's that has its name stays. One that is gone is fine.
    ///
    /// # Errors
    /// Of the store.
    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()>;

    /// Makes everything named durable: contents of files and partial files, and the names in
    /// folders. There is one answer for each item, in order: a good one is on stable storage, a bad
    /// one is not there, not what it was or may not be opened, which says nothing of the others.
    /// Few items are synced one by one, many by one call for the whole file system; then a file
    /// that is gone from a folder that is not may have a good answer.
    ///
    /// A name is durable when its *folder* was synced after the rename.
    ///
    /// # Errors
    /// When a sync itself failed, or the host or the storage had not what an open needs: none of the
    /// items may be taken to be durable. `Io` when the device
    /// lost writes; it stays failed for the life of the store, because the system reports such a
    /// loss once only.
    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>>;

    /// Removes a file, a link or an empty folder. One that is gone is fine.
    ///
    /// # Errors
    /// `AlreadyExists` when the folder is not empty.
    fn remove(&self, path: &RelPath) -> Result<()>;

    // ---- log and lease -----------------------------------------------------------------------

    /// Opens a control file: an object log, a lease. With [`ControlMode::Create`] the file, and the
    /// folder right above it, are made when missing, open to their owner only.
    ///
    /// # Errors
    /// `NotFound` with [`ControlMode::Existing`]; `Unsupported` without
    /// [`Capabilities::can_hold_log`].
    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>>;

    /// Removes a control file, durably. One that is gone is fine.
    ///
    /// # Errors
    /// Of the store.
    fn remove_control(&self, path: &RelPath) -> Result<()>;

    /// The names in a control folder, in no order; empty when there is no such folder.
    ///
    /// # Errors
    /// `LimitExceeded` past [`crate::CONTROL_NAMES_MAX`] names.
    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>>;
}

/// A listing under way. Items come depth first: a folder's [`Directory`] item, its files and links,
/// its folders one after the other, its [`DirectoryEnd`]. An `Err` item is one entry (or the rest of
/// one folder) that cannot be had; the listing goes on.
///
/// [`Directory`]: dray_core::EntryKind::Directory
/// [`DirectoryEnd`]: dray_core::EntryKind::DirectoryEnd
pub trait Lister: Iterator<Item = Result<Listed>> + Send {
    /// Leaves out the folder whose `Directory` item came last: nothing of it follows, not its end
    /// either. Does nothing after any other item.
    fn skip_folder(&mut self);

    /// Whether the last error may concern a whole folder, whose entries are then missing, and not a
    /// single entry.
    fn failed_at_folder(&self) -> bool {
        true
    }
}

/// A file open for reading. Used by several threads at once.
pub trait ReadHandle: Send + Sync {
    /// Reads at `offset` into `buffer` and says how many bytes came: at least one, unless the file
    /// ends there or the buffer is empty. Fewer than asked is no sign of the end
    /// ([`crate::ReadExt::read_full_at`] goes on).
    ///
    /// # Errors
    /// `Io` and the like; `IsADirectory`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Whether reads come from the storage and nothing is read ahead: one long read is faster than
    /// its pieces then.
    fn is_direct(&self) -> bool {
        false
    }

    /// The open file, where its store gives its blocks to copies as well ([`Partial::share`]).
    fn shareable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Before the first read of a file whose blocks may be given to copies: from here on whoever changes
    /// it changes its modification time too, also by memory that was mapped and written before.
    ///
    /// # Errors
    /// `Io`.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// The file's size and time now. Asked after a read: if they are not those of the listing, the
    /// bytes read belong to no known version.
    ///
    /// # Errors
    /// `Unsupported` when it is not a regular file.
    fn state(&self) -> Result<ReadState>;

    /// The same with what else the file system notes of it, where there is such.
    ///
    /// # Errors
    /// As [`ReadHandle::state`].
    fn full_state(&self) -> Result<(ReadState, Option<InodeState>)> {
        Ok((self.state()?, None))
    }

    /// What shows later whether the content was changed by somebody who put the modification time back;
    /// `None` where nothing does. Without a call to a server.
    ///
    /// # Errors
    /// As [`ReadHandle::state`].
    fn noted(&self) -> Result<Option<Noted>> {
        Ok(None)
    }

    /// The first run of bytes at or after `offset` that is not a hole; `None` when only a hole
    /// follows. Stores without [`Capabilities::holes`] answer with everything up to the end.
    ///
    /// # Errors
    /// Of the store.
    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>>;

    /// As [`Store::known_sums`], of this very file, whatever has its name by now.
    ///
    /// # Errors
    /// Of the store.
    fn known_sums(&self) -> Result<Option<Sums>>;
}

/// A partial file being written. Used by several threads at once; dropping it leaves the partial
/// file where it is, to be continued by a later [`Store::begin`].
pub trait Partial: Send + Sync {
    /// What a log notes to find this very file again.
    fn id(&self) -> PartialId;

    /// Writes all of `bytes` at `offset`. Idempotent: the same bytes at the same place may be
    /// written any number of times. Not durable before [`Partial::sync`].
    ///
    /// # Errors
    /// `NoSpace`; part of the bytes may have been written then. One that is [`dray_core::Status::Temporary`]
    /// may be tried again. Where it may be an earlier write's, told once, it is not: nothing that was
    /// written since the last good sync may be taken to be there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes `range` what `from` has at `offset`, by blocks that both files have from then on: no byte
    /// goes anywhere. `false` where the store cannot do that, or not with this file; any part of the
    /// range may have changed then, and the caller writes all of it. Idempotent, and not durable before
    /// [`Partial::sync`], as [`Partial::write_at`].
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn share(&self, _range: ByteRange, _from: BorrowedFd<'_>, _offset: u64) -> Result<bool> {
        Ok(false)
    }

    /// Takes the space of all `size_bytes` of a new file now, so that a full storage is known before the
    /// bytes travel; `false` where the store was not opened for that, or cannot do it. Where nothing is
    /// written the file reads as zeros as before, but is no hole any more.
    ///
    /// # Errors
    /// `NoSpace`.
    fn take_space(&self, _size_bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Whether the store writes to a file one call at a time, in memory, however many threads ask:
    /// a second one would only wait there.
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
    /// Of the store.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Makes the file `size_bytes` long.
    ///
    /// # Errors
    /// `NoSpace`.
    fn set_len(&self, size_bytes: u64) -> Result<()>;

    /// Makes durable what was written before the call began, and what is needed to read it. On
    /// error nothing written since the last good sync may be taken to be durable.
    ///
    /// # Errors
    /// `Io`; the loss may be reported once only, so the caller starts the file anew.
    fn sync(&self) -> Result<()>;

    /// Does what of [`Partial::publish`] takes long and nobody sees: it is called before, with the same
    /// attributes, so that the lease can be looked at in between. A store without such does nothing.
    ///
    /// # Errors
    /// As [`Partial::publish`].
    fn ready(&self, _attributes: &Attributes<'_>) -> Result<()> {
        Ok(())
    }

    /// Sets the attributes and gives the file its final name in one atomic step. Before it no
    /// reader finds the file there, after it all of it; a file that stood there is replaced or
    /// kept, never harmed. Durable after [`Store::sync_each`] of the folder.
    ///
    /// When the outcome of an earlier try is unknown, [`Store::stat`] tells: the final name then has
    /// this partial file's inode.
    ///
    /// # Errors
    /// `AlreadyExists` ([`Publish::IfAbsent`]) and `IsADirectory` (a folder stands there): the
    /// partial file is still there then. `NotFound` when the partial file is gone.
    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()>;

    /// Removes the partial file. One that is gone is fine, and another's that has its name stays.
    ///
    /// # Errors
    /// Of the store.
    fn abort(&self) -> Result<()>;
}

/// A control file: an object log or a lease, beside the data.
pub trait ControlFile: Send + Sync {
    /// Bytes.
    ///
    /// # Errors
    /// Of the store.
    fn len(&self) -> Result<u64>;

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// Of the store.
    fn is_empty(&self) -> Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// As [`ReadHandle::read_at`].
    ///
    /// # Errors
    /// Of the store.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes at `offset`, extending the file if need be.
    ///
    /// # Errors
    /// `NoSpace`; part of the bytes may stand there then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes at the end. One writer at a time.
    ///
    /// # Errors
    /// `NoSpace`; a torn tail may stand there then, which the caller truncates.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Makes the file durable, and at the first call its name as well.
    ///
    /// # Errors
    /// `Io`; as [`Partial::sync`].
    fn sync(&self) -> Result<()>;

    /// Cuts the file to `size_bytes`.
    ///
    /// # Errors
    /// Of the store.
    fn truncate(&self, size_bytes: u64) -> Result<()>;

    /// Puts `bytes` in the place of the whole content, atomically and durably: after a crash the
    /// file is the old or the new one. This handle then means the new file. A lock held on the old
    /// one is lost: locks belong on a file that is never replaced.
    ///
    /// # Errors
    /// `NoSpace`; the old file is still there then.
    fn replace(&self, bytes: &[u8]) -> Result<()>;

    /// Takes the exclusive lock on the file; `false` when another handle holds it, in this process
    /// or another. It falls with the handle, and so with the process.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no locks.
    fn try_lock(&self) -> Result<bool>;

    /// Gives the lock back. Without a lock nothing happens.
    ///
    /// # Errors
    /// Of the store.
    fn unlock(&self) -> Result<()>;
}

/// What a backend says to something it cannot do.
#[must_use]
pub fn unsupported(end: dray_core::End, operation: &str, path: &RelPath, cause: &str) -> Error {
    Error::new(dray_core::ErrorKind::Unsupported, end, operation)
        .file(path)
        .cause(cause)
}

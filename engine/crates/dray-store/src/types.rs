//! Arguments and results of the methods of [`crate::Store`].

pub use dray_core::FileKind;
use dray_core::options::Links;
use dray_core::{
    ByteRange, EntryKind, Layout, Metadata, ModifiedTime, Name, RelPath, Sums, TargetId,
};
use std::time::Duration;

/// Capabilities of a store. Callers test capabilities and never the name of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The store accepts writes at any offset in any order. Otherwise the engine writes each file
    /// from start to end.
    pub random_write: bool,
    /// A file gets its final name in one step. Readers never see an intermediate state.
    pub atomic_rename: bool,
    /// [`Publish::IfAbsent`] is supported and atomic.
    pub publish_if_absent: bool,
    /// [`Publish::Replace`] is supported.
    pub publish_replace: bool,
    /// Minimum size in bytes of every write except the last write of a file, as in multipart
    /// uploads; 1 if there is no minimum.
    pub minimal_part_bytes: u64,
    /// Writes must begin and end at multiples of this number of bytes, except at the end of a file;
    /// 1 if no alignment is needed.
    pub write_alignment_bytes: u64,
    /// The store can hold control files (object log, lease).
    pub can_hold_log: bool,
    /// The store can hold object logs of all forms. The logs of some forms have part logs, and each
    /// part log is a control file.
    pub can_hold_log_parts: bool,
    /// The store sets the modification time that the sink requests. Otherwise files and folders
    /// have the time of their last change at the store. In this case only [`crate::Store::stat`] of
    /// a file returns the requested time, from a note that the store keeps.
    pub sets_times: bool,
    /// Resolution of modification times in nanoseconds: 1 on most file systems, 10^9 on old ones.
    pub time_precision_nanoseconds: u32,
    /// The store supports holes, and [`crate::ReadHandle::next_data`] finds them.
    pub holes: bool,
    /// The store lists and sets extended attributes.
    pub xattrs: bool,
    /// The store can list and create symbolic links.
    pub symlinks: bool,
    /// The store lists and stores permission bits. Otherwise it lists 0o644 for files and 0o755 for
    /// folders.
    pub mode: bool,
    /// Bytes, other than the slash and the zero byte, that a name must not contain. A call with
    /// such a name fails with [`Unsupported`](dray_core::ErrorKind::Unsupported).
    pub refused_name_bytes: &'static [u8],
    /// Maximum length of a name in bytes.
    pub name_bytes_max: usize,
    /// Maximum length of a path below the root in bytes.
    pub path_bytes_max: usize,
    /// The store discards all writes, so no range of a file counts as durable.
    pub keeps_nothing: bool,
    /// The server computes checksums. Before the store publishes a file, it compares the server's
    /// checksum with [`Attributes::sums`], which the caller must pass.
    pub compares_sums: bool,
    /// Each call costs a network round trip, so the sink passes many small files in one call.
    pub takes_many: bool,
    /// Time after the loss of a lease during which a call of the former holder may still change a
    /// name. A new holder waits this long if the former holder may still run. Zero if the lease is
    /// released only after all calls have ended.
    pub late_calls: Duration,
    /// Time for which a read may return the old content of a file that another host has changed. A
    /// new holder of a lease also waits this long if the former holder may still run.
    pub stale_reads: Duration,
    /// Concurrent calls of [`crate::Store::sync_each`] that have no file in common do not affect
    /// each other: an error that is reported to one call never hides lost data of another call.
    /// Without this capability the sink makes one call at a time.
    pub syncs_apart: bool,
    /// Each answered write is durable, also if the host of the sink crashes. So a sync waits for no
    /// target.
    pub writes_durably: bool,
    /// Each file is on one of several disks, and programs can also use the folder of one disk
    /// alone. The object logs are on the first disk only.
    pub is_on_disks: bool,
    /// [`crate::Store::folder_version`] returns versions of folders. Without this capability an
    /// interrupted listing starts over.
    pub folder_versions: bool,
}

impl Capabilities {
    /// The capabilities of a store that supports nothing optional. Use it as a base:
    /// `..Capabilities::MINIMAL`.
    pub const MINIMAL: Self = Self {
        random_write: false,
        atomic_rename: false,
        publish_if_absent: false,
        publish_replace: false,
        minimal_part_bytes: 1,
        write_alignment_bytes: 1,
        can_hold_log: false,
        can_hold_log_parts: false,
        sets_times: false,
        time_precision_nanoseconds: 1_000_000_000,
        holes: false,
        xattrs: false,
        symlinks: false,
        mode: false,
        refused_name_bytes: b"",
        name_bytes_max: dray_core::path::NAME_LENGTH_MAX,
        path_bytes_max: 1024,
        keeps_nothing: false,
        compares_sums: false,
        takes_many: false,
        late_calls: Duration::ZERO,
        stale_reads: Duration::ZERO,
        syncs_apart: false,
        writes_durably: false,
        is_on_disks: false,
        folder_versions: false,
    };
}

/// A storage target and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Number of the target in this store.
    pub id: TargetId,
    /// Name of the target from the configuration, or a name such as `device 8:1`.
    pub name: String,
    /// Device number (`st_dev`) of the first folder seen on this target, if the store has devices.
    pub device: Option<u64>,
}

/// Free and total size of the storage that holds a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Total size in bytes.
    pub total_bytes: u64,
}

/// Options of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// List folders recursively. Otherwise a folder is an `IsADirectory` error item.
    pub recursive: bool,
    /// List the contents of the top folder without the folder itself. These contents then have
    /// depth 0. The root has no name and is always listed in this way.
    pub contents: bool,
    /// Treatment of symbolic links. [`Links::Follow`] follows links within the store's
    /// [`crate::LinkScope`]. A link that leads to one of its parent folders or out of the root is
    /// an error item.
    pub links: Links,
    /// List extended attributes.
    pub xattrs: bool,
    /// List only dray's own files and links ([`Name::is_reserved`]). Folders with any name are
    /// listed and entered.
    pub own: bool,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self {
            recursive: true,
            contents: false,
            links: Links::Keep,
            xattrs: false,
            own: false,
        }
    }
}

/// One item of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Depth of the entry: 0 for the top of the listing, 1 for an entry in the top folder. With
    /// [`ListOptions::contents`], an entry in the top folder has the depth 0. An
    /// [`EntryKind::DirectoryEnd`] has the same depth as its [`EntryKind::Directory`].
    pub depth: usize,
    /// Name of the entry in its folder.
    pub name: Name,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Attributes of the entry. The attributes of a folder are complete only in its
    /// [`EntryKind::DirectoryEnd`].
    pub metadata: Metadata,
    /// Targets that hold the bytes of the file. For a folder, the default targets of the files in
    /// it.
    pub layout: Layout,
    /// Identifier that the store has for this version of the content (entity tag); empty if the
    /// store has no such identifier.
    pub identity: Vec<u8>,
}

/// Purpose of opening a file for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadPurpose {
    /// The file is read to be sent.
    #[default]
    Transfer,
    /// The file is read to be verified after it was written. If the system supports it, the store
    /// first writes back dirty pages of the file, and then reads from the storage and not from a
    /// cache of this host.
    ReadBack,
}

/// Size and modification time of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadState {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
}

/// Fields of the inode of an open file, without its size and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeState {
    /// Time of the last change of content or attributes (ctime). No program can set this time back.
    pub changed: ModifiedTime,
    /// Permission bits: the low twelve bits of the mode.
    pub mode: u32,
    /// Numeric user and group.
    pub owner: (u32, u32),
    /// Number of hard links.
    pub links: u64,
}

/// Fields of an inode and a hash of its extended attributes. A change of an extended attribute also
/// changes the ctime, so the ctime alone does not show that the content has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// Fields of the inode.
    pub inode: InodeState,
    /// Hash of the names and values of the extended attributes. Some servers store checksums in
    /// attributes while the file is read, so an attribute may change although the content stays the
    /// same.
    pub attributes: u64,
}

impl InodeState {
    /// Returns true if the content may have changed since `before`, although its modification time
    /// is the same. This is the case if the ctime has changed, but the mode, the owner and the
    /// number of names have not changed. The caller compares extended attributes ([`Noted`]).
    #[must_use]
    pub fn may_differ_from(&self, before: &Self) -> bool {
        let attributes = |state: &Self| (state.mode, state.owner, state.links);
        self.changed != before.changed && attributes(self) == attributes(before)
    }
}

/// Version of the entries of a folder. Two equal versions mean that no entry of the folder was
/// added, removed, renamed or replaced between the two calls, and that the attributes of the folder
/// are the same. The version does not change if a program writes into a file of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderVersion {
    /// Bytes that differ after each change; at most [`FolderVersion::BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// Time of the last change. Two changes at the same time may have the same version.
    pub changed: ModifiedTime,
}

impl FolderVersion {
    /// Maximum length of [`Self::bytes`].
    pub const BYTES_MAX: usize = 256;
}

/// State of an entry at the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
    /// Permission bits: the low twelve bits of the mode.
    pub mode: u32,
    /// Inode number; 0 if the store has no inodes.
    pub inode: u64,
    /// Device number of the file system; 0 if the store has no devices.
    pub device: u64,
}

/// Allocated space and time of the last change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Bytes allocated on the storage, without holes. If the allocation is unknown, the size of the
    /// file.
    pub bytes: u64,
    /// Time of the last change of content or attributes. If the store has a ctime, no program can
    /// set this time back.
    pub changed: ModifiedTime,
}

/// Result of [`crate::Store::make_dir`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeDir {
    /// The call created the folder. The folder is empty, so the caller need not look up entries in
    /// it.
    Created,
    /// The folder already existed.
    Existed,
}

/// Name and identity of a partial file to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialRequest {
    /// Name of the partial file in the folder of the final file. The name is one of dray's own
    /// names ([`Name::is_reserved`]).
    pub name: Name,
    /// Identity of an earlier partial file to continue; `None` for a new partial file.
    pub reuse: Option<PartialId>,
}

/// Identity of a partial file. The name alone does not suffice, because another file may get the
/// same name. Inode, device and creation time identify the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialId {
    /// Inode number.
    pub inode: u64,
    /// Device number of the file system.
    pub device: u64,
    /// Creation time in nanoseconds since 1970, from [`crate::Store::born`]; 0 if unknown. The
    /// creation time distinguishes files that had the same inode number one after the other.
    pub born: u64,
}

impl PartialId {
    /// Returns true if both identities belong to one file. An unknown creation time matches any
    /// creation time.
    #[must_use]
    pub const fn is(&self, other: &Self) -> bool {
        self.inode == other.inode
            && self.device == other.device
            && (self.born == 0 || other.born == 0 || self.born == other.born)
    }
}

/// Action if an entry with the final name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// Fail with `AlreadyExists` if the entry exists.
    IfAbsent,
    /// Replace an existing entry. A folder is not replaced.
    Replace,
}

/// Attributes of a published file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Mode, modification time and extended attributes.
    pub metadata: &'a Metadata,
    /// Checksums to store with the file. Given only with [`Capabilities::xattrs`] or
    /// [`Capabilities::compares_sums`].
    pub sums: Option<Sums>,
}

impl<'a> Attributes<'a> {
    /// Returns these attributes with the metadata `others`, if given.
    #[must_use]
    pub fn with(self, others: Option<&'a Metadata>) -> Self {
        Self {
            metadata: others.unwrap_or(self.metadata),
            ..self
        }
    }

    /// Returns attributes that have only metadata.
    #[must_use]
    pub const fn of(metadata: &'a Metadata) -> Self {
        Self {
            metadata,
            sums: None,
        }
    }
}

/// A small file for [`crate::Store::write_small_each`].
#[derive(Debug, Clone, Copy)]
pub struct SmallFile<'a> {
    /// Final path of the file.
    pub path: &'a RelPath,
    /// Name of the partial file in the same folder.
    pub partial: &'a Name,
    /// Complete content of the file.
    pub bytes: &'a [u8],
    /// Ranges of the content that are zeros.
    pub holes: &'a [ByteRange],
    /// Attributes of the file.
    pub attributes: Attributes<'a>,
}

/// A small file for [`crate::Store::publish_small_each`].
#[derive(Debug, Clone, Copy)]
pub struct SmallName<'a> {
    /// Final path of the file.
    pub path: &'a RelPath,
    /// Name of the partial file in the same folder.
    pub partial: &'a Name,
    /// Identity of the partial file.
    pub id: PartialId,
    /// Action if an entry with the final name exists.
    pub how: Publish,
}

/// One item that [`crate::Store::sync_each`] makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncItem<'a> {
    /// Content and attributes of a published file.
    File(&'a RelPath),
    /// Content of a partial file of `path`.
    Partial {
        /// Final path of the file.
        path: &'a RelPath,
        /// Name of the partial file in the same folder.
        name: &'a Name,
    },
    /// The names in a folder, and the attributes of the folder itself.
    Folder(&'a RelPath),
}

impl<'a> SyncItem<'a> {
    /// Returns the final path of the file, or the path of the folder.
    #[must_use]
    pub const fn path(&self) -> &'a RelPath {
        match *self {
            Self::File(path) | Self::Partial { path, .. } | Self::Folder(path) => path,
        }
    }
}

/// Says how to open a control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlMode {
    /// Open an existing file for reading and writing.
    Existing,
    /// Open an existing file only for reading.
    ReadOnly,
    /// Open the file for reading and writing. Create the file if it is missing.
    Create,
    /// Create the file. Fail with `AlreadyExists` if it exists.
    CreateNew,
}

#[cfg(test)]
mod tests {
    use super::InodeState;
    use dray_core::ModifiedTime;

    #[test]
    fn a_change_that_nothing_else_explains_may_be_of_the_content() {
        let state = |seconds, mode, links| InodeState {
            changed: ModifiedTime {
                seconds,
                nanoseconds: 0,
            },
            mode,
            owner: (1, 1),
            links,
        };
        let before = state(1, 0o644, 1);
        assert!(!before.may_differ_from(&before));
        assert!(state(2, 0o644, 1).may_differ_from(&before));
        assert!(!state(2, 0o600, 1).may_differ_from(&before));
        assert!(!state(2, 0o644, 2).may_differ_from(&before));
    }
}

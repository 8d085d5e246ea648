//! Arguments and results of a [`crate::Store`].

pub use dray_core::FileKind;
use dray_core::options::Links;
use dray_core::{
    ByteRange, EntryKind, Layout, Metadata, ModifiedTime, Name, RelPath, Sums, TargetId,
};
use std::time::Duration;

/// Capabilities of a store. Callers ask for a capability, never for a backend's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes may go to any offset in any order. Without it the engine writes each file front to
    /// back.
    pub random_write: bool,
    /// A file appears under its final name in one step; readers never see an intermediate state.
    pub atomic_rename: bool,
    /// [`Publish::IfAbsent`] is atomic.
    pub publish_if_absent: bool,
    /// [`Publish::Replace`] works.
    pub publish_replace: bool,
    /// Minimum size in bytes of every write except the last of a file (multipart uploads); 1
    /// without a minimum.
    pub minimal_part_bytes: u64,
    /// Writes begin and end at multiples of this many bytes, except at the end of a file; 1 without
    /// alignment.
    pub write_alignment_bytes: u64,
    /// The store can hold control files (object log, lease).
    pub can_hold_log: bool,
    /// Files and folders get the modification time that the sink asks for. Without it they have the
    /// time of their last change at the store; only [`crate::Store::stat`] of a file then returns
    /// the requested time, from a note that the store keeps.
    pub sets_times: bool,
    /// Step of modification times in nanoseconds: 1 on most file systems, 10^9 on old ones.
    pub time_precision_nanoseconds: u32,
    /// The store keeps holes, and [`crate::ReadHandle::next_data`] finds them.
    pub holes: bool,
    /// The store lists and sets extended attributes.
    pub xattrs: bool,
    /// The store can list and make symbolic links.
    pub symlinks: bool,
    /// The store lists and keeps permission bits. A store without them lists 0o644 for files, 0o755
    /// for folders.
    pub mode: bool,
    /// Bytes that no name may contain, besides the slash and the zero. Calls with such a name are
    /// refused ([`Unsupported`](dray_core::ErrorKind::Unsupported)).
    pub refused_name_bytes: &'static [u8],
    /// Maximum length of a name in bytes.
    pub name_bytes_max: usize,
    /// Maximum length of a path beneath the root in bytes.
    pub path_bytes_max: usize,
    /// The store discards all writes: no range of it may be called durable.
    pub keeps_nothing: bool,
    /// The server of the files also computes checksums, and the store compares them: it needs
    /// [`Attributes::sums`].
    pub compares_sums: bool,
    /// Each call costs a round trip: the sink passes many small files per call.
    pub takes_many: bool,
    /// Time after the loss of a lease during which a call of its former holder may still change a
    /// name. A new holder waits that long if the former one may be alive. Zero where the lease is
    /// released after all calls.
    pub late_calls: Duration,
}

impl Capabilities {
    /// The capabilities of the weakest store: a base for `..Capabilities::MINIMAL`.
    pub const MINIMAL: Self = Self {
        random_write: false,
        atomic_rename: false,
        publish_if_absent: false,
        publish_replace: false,
        minimal_part_bytes: 1,
        write_alignment_bytes: 1,
        can_hold_log: false,
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
    };
}

/// A storage target and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Number of the target at this store.
    pub id: TargetId,
    /// Name from the configuration, or `device 8:1`.
    pub name: String,
    /// Device (`st_dev`) of the target's first seen folder, if the store has devices.
    pub device: Option<u64>,
}

/// Free and total size of the storage under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
}

/// Options of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// Enters folders. Otherwise a folder is an `IsADirectory` item.
    pub recursive: bool,
    /// Leaves out the top folder itself: its contents have depth 0. The root has no name and is
    /// always listed this way.
    pub contents: bool,
    /// Treatment of symbolic links. [`Links::Follow`] follows them within the store's
    /// [`crate::LinkScope`]; a link that leads to one of its own parent folders, or out of the
    /// root, is an error item.
    pub links: Links,
    /// Lists extended attributes.
    pub xattrs: bool,
    /// Lists dray's own files and links ([`Name::is_reserved`]) instead of all others. Folders are
    /// listed and entered whatever their names.
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
    /// Number of folders between this entry and the top of the listing; 0 at the top. A folder's
    /// [`EntryKind::DirectoryEnd`] has the depth of its [`EntryKind::Directory`].
    pub depth: usize,
    /// Name of the entry in its folder.
    pub name: Name,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Attributes of the entry. Those of a folder are complete in its [`EntryKind::DirectoryEnd`]
    /// only.
    pub metadata: Metadata,
    /// Targets that hold the entry's bytes. For a folder: the default targets of its files.
    pub layout: Layout,
    /// The store's own name of this version of the content (entity tag); empty if the store has
    /// none.
    pub identity: Vec<u8>,
}

/// Purpose of opening a file for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadPurpose {
    /// The file is sent.
    #[default]
    Transfer,
    /// The file is verified after it was written: reads come from the storage, not from a cache of
    /// this host. Where the system supports it for such reads, unsynced data is written back first.
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

/// Inode fields of an open file, other than its size and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeState {
    /// Time of the last change of content or attributes (ctime). No program can set it back.
    pub changed: ModifiedTime,
    /// Permission bits, the low twelve.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Number of hard links.
    pub links: u64,
}

/// An inode together with a hash of its extended attributes, which also change its ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// The inode.
    pub inode: InodeState,
    /// Hash of the names and values of its extended attributes: servers keep checksums in them
    /// while the file is read.
    pub attributes: u64,
}

impl InodeState {
    /// Returns true if the content may differ from the state `before` although its modification
    /// time is the same: the ctime has changed, but mode, owner and number of names have not. The
    /// caller compares extended attributes ([`Noted`]).
    #[must_use]
    pub fn may_differ_from(&self, before: &Self) -> bool {
        let attributes = |state: &Self| (state.mode, state.owner, state.links);
        self.changed != before.changed && attributes(self) == attributes(before)
    }
}

/// State of the entry at a path of the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
    /// Permission bits, the low twelve.
    pub mode: u32,
    /// Inode number; 0 where the store has none.
    pub inode: u64,
    /// Device number of the file system; 0 where the store has none.
    pub device: u64,
}

/// Space that a file takes, and time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Bytes allocated on the storage, without holes; the size where the allocation is not known.
    pub bytes: u64,
    /// Time of the last change of content or attributes. Unlike the modification time, no program
    /// can set it back, provided that the store keeps a ctime.
    pub changed: ModifiedTime,
}

/// Outcome of [`crate::Store::make_dir`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeDir {
    /// The call made the folder: it is empty, so no entry needs to be looked up.
    Created,
    /// The folder existed.
    Existed,
}

/// Name and identity of a partial file to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialRequest {
    /// Name of the partial file, in the final file's folder. One of dray's own
    /// ([`Name::is_reserved`]).
    pub name: Name,
    /// Continue this partial file instead of starting a new one.
    pub reuse: Option<PartialId>,
}

/// Identifies one partial file. Another file may take its name; inode, device and birth time
/// identify the file meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialId {
    /// Inode number.
    pub inode: u64,
    /// Device number of the file system.
    pub device: u64,
    /// Creation time, as [`crate::Store::born`] returns it; 0 if unknown. It distinguishes
    /// successive files that had the same inode number.
    pub born: u64,
}

impl PartialId {
    /// Returns true if both identify one file. An unknown birth time matches any.
    #[must_use]
    pub const fn is(&self, other: &Self) -> bool {
        self.inode == other.inode
            && self.device == other.device
            && (self.born == 0 || other.born == 0 || self.born == other.born)
    }
}

/// Treatment of an existing entry at the final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// Fail with `AlreadyExists`.
    IfAbsent,
    /// Replace the entry, unless it is a folder.
    Replace,
}

/// Attributes of a published file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Mode, time, extended attributes.
    pub metadata: &'a Metadata,
    /// Checksums to keep with the file; given only with [`Capabilities::xattrs`] or
    /// [`Capabilities::compares_sums`].
    pub sums: Option<Sums>,
}

impl<'a> Attributes<'a> {
    /// Returns these attributes with other metadata, if given.
    #[must_use]
    pub fn with(self, others: Option<&'a Metadata>) -> Self {
        Self {
            metadata: others.unwrap_or(self.metadata),
            ..self
        }
    }

    /// Returns attributes with metadata only.
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
    /// Final path.
    pub path: &'a RelPath,
    /// Name of the partial file in the same folder.
    pub partial: &'a Name,
    /// Complete content.
    pub bytes: &'a [u8],
    /// Ranges of zeros in the content.
    pub holes: &'a [ByteRange],
    /// Attributes of the file.
    pub attributes: Attributes<'a>,
}

/// A small file for [`crate::Store::publish_small_each`].
#[derive(Debug, Clone, Copy)]
pub struct SmallName<'a> {
    /// Final path.
    pub path: &'a RelPath,
    /// Name of the partial file in the same folder.
    pub partial: &'a Name,
    /// Identity of the partial file.
    pub id: PartialId,
    /// Treatment of an existing entry.
    pub how: Publish,
}

/// One item that [`crate::Store::sync_each`] makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncItem<'a> {
    /// Content and attributes of a published file.
    File(&'a RelPath),
    /// Content of a partial file of `path`.
    Partial {
        /// Final path.
        path: &'a RelPath,
        /// Name of the partial file in the same folder.
        name: &'a Name,
    },
    /// The names in a folder, and the folder's own attributes.
    Folder(&'a RelPath),
}

/// Mode in which to open a control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlMode {
    /// The file must exist; it is opened for reading and writing.
    Existing,
    /// The file must exist; it is opened for reading only.
    ReadOnly,
    /// The file is created if missing.
    Create,
    /// The file must not exist (`AlreadyExists`).
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

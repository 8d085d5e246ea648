//! The values that go into and come out of a [`crate::Store`].

pub use dray_core::FileKind;
use dray_core::options::Links;
use dray_core::{
    ByteRange, EntryKind, Layout, Metadata, ModifiedTime, Name, RelPath, Sums, TargetId,
};
use std::time::Duration;

/// What a store can do. Callers ask for a capability, never for a backend's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Writes may go to any offset in any order. Without it each file is written front to back.
    pub random_write: bool,
    /// A file appears under its final name in one step that readers cannot see inside of.
    pub atomic_rename: bool,
    /// [`Publish::IfAbsent`] is atomic.
    pub publish_if_absent: bool,
    /// [`Publish::Replace`] works.
    pub publish_replace: bool,
    /// Smallest write but for the last of a file, in bytes (multipart uploads); 1 for none.
    pub minimal_part_bytes: u64,
    /// Writes begin and end at multiples of this many bytes but for the end of a file; 1 for none.
    pub write_alignment_bytes: u64,
    /// Control files (object log, lease) can lie here.
    pub can_hold_log: bool,
    /// Step of modification times in nanoseconds: 1 on most file systems, 10^9 on old ones.
    pub time_precision_nanoseconds: u32,
    /// Holes are kept, and found by [`crate::ReadHandle::next_data`].
    pub holes: bool,
    /// Extended attributes are listed and set.
    pub xattrs: bool,
    /// Symbolic links can be listed and made.
    pub symlinks: bool,
    /// Permission bits are listed and kept. A store without lists 0o644 for files, 0o755 for
    /// folders.
    pub mode: bool,
    /// Longest name in bytes.
    pub name_bytes_max: usize,
    /// Longest path beneath the root in bytes.
    pub path_bytes_max: usize,
    /// What is written is gone at once: nothing of it may be called safe.
    pub keeps_nothing: bool,
    /// Whoever keeps the files sums them too, and the store compares: [`Attributes::sums`] are wanted.
    pub compares_sums: bool,
    /// Each call is a way there and back: small files are handed over many at a time.
    pub takes_many: bool,
    /// So long after its holder lost the lease a call of its may still change a name: whoever takes
    /// over from one that may be alive waits. Zero where the lease falls after all calls.
    pub late_calls: Duration,
}

impl Capabilities {
    /// What the poorest store can: a base for `..Capabilities::MINIMAL`.
    pub const MINIMAL: Self = Self {
        random_write: false,
        atomic_rename: false,
        publish_if_absent: false,
        publish_replace: false,
        minimal_part_bytes: 1,
        write_alignment_bytes: 1,
        can_hold_log: false,
        time_precision_nanoseconds: 1_000_000_000,
        holes: false,
        xattrs: false,
        symlinks: false,
        mode: false,
        name_bytes_max: dray_core::path::NAME_LENGTH_MAX,
        path_bytes_max: 1024,
        keeps_nothing: false,
        compares_sums: false,
        takes_many: false,
        late_calls: Duration::ZERO,
    };
}

/// A storage target and what people call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its number at this store.
    pub id: TargetId,
    /// Its name, from the configuration or `device 8:1`.
    pub name: String,
    /// The device (`st_dev`) of the folder of it that was met first, if the store has such.
    pub device: Option<u64>,
}

/// Free and whole size of the storage under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes this user may still write.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// How a tree is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether folders are entered. Otherwise a folder is an `IsADirectory` item.
    pub recursive: bool,
    /// Leaves out the top folder itself: its contents stand at depth 0. The root has no name and is
    /// always listed so.
    pub contents: bool,
    /// What to do with symbolic links. [`Links::Follow`] goes as far as the store was opened for;
    /// a link that leads back to a folder it lies in, or out of the root, is an error item.
    pub links: Links,
    /// Whether extended attributes are listed.
    pub xattrs: bool,
    /// Lists dray's own files and links ([`Name::is_reserved`]) in the place of all others. Folders
    /// are listed and entered whatever their names.
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
    /// Folders between this entry and the top of the listing; 0 at the top. A folder's
    /// [`EntryKind::DirectoryEnd`] has the depth of its [`EntryKind::Directory`].
    pub depth: usize,
    /// Its name in its folder.
    pub name: Name,
    /// What it is.
    pub kind: EntryKind,
    /// Its attributes. Those of a folder are complete in its [`EntryKind::DirectoryEnd`] only.
    pub metadata: Metadata,
    /// Where its bytes lie. For a folder: where its files would lie by default.
    pub layout: Layout,
    /// The store's own name of this version of the content (entity tag); empty where it has none.
    pub identity: Vec<u8>,
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadPurpose {
    /// To be sent.
    #[default]
    Transfer,
    /// To be checked after it was written: the storage itself is read, and no cache of this host. What
    /// was written and not synced is written back first, where the system does so for such reads.
    ReadBack,
}

/// Size and time of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadState {
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified: ModifiedTime,
}

/// What a file system notes of an open file besides its content's size and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeState {
    /// Last change of its content or of anything about it. Nobody sets it back.
    pub changed: ModifiedTime,
    /// Permission bits, the low twelve.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Names that it has.
    pub links: u64,
}

/// An inode with what else changes the time of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// The inode.
    pub inode: InodeState,
    /// A hash of the names and values of its extended attributes: servers keep checksums in them while
    /// the file is read.
    pub attributes: u64,
}

impl InodeState {
    /// Whether the content may be another than it was in the state `before`, though its modification
    /// time is the same: something was changed, and it was neither the mode, the owner nor the number
    /// of names. Extended attributes are the caller's to compare ([`Noted`]).
    #[must_use]
    pub fn may_differ_from(&self, before: &Self) -> bool {
        let attributes = |state: &Self| (state.mode, state.owner, state.links);
        self.changed != before.changed && attributes(self) == attributes(before)
    }
}

/// What stands at a path of the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified: ModifiedTime,
    /// Permission bits, the low twelve.
    pub mode: u32,
    /// Number of the file in its file system; 0 where there is none.
    pub inode: u64,
    /// Number of the file system; 0 where there is none.
    pub device: u64,
}

/// What a file costs, and when it was last touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Bytes that it takes on the storage, its holes left out; its size where that is not known.
    pub bytes: u64,
    /// Last change of its content or of anything about it: unlike the modification time nobody sets
    /// it back, where the store keeps such a time.
    pub changed: ModifiedTime,
}

/// What became of [`crate::Store::make_dir`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeDir {
    /// It was made: nothing stands in it, so nothing needs to be looked for.
    Created,
    /// It stood there.
    Existed,
}

/// How to begin a partial file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialRequest {
    /// Name of the partial file, in the final file's own folder. One of dray's own
    /// ([`Name::is_reserved`]).
    pub name: Name,
    /// Continue this very file instead of starting anew.
    pub reuse: Option<PartialId>,
}

/// Names one partial file for good: a name may be taken by another file, an inode with its device
/// and its birth says which one is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialId {
    /// Number of the file in its file system.
    pub inode: u64,
    /// Number of the file system.
    pub device: u64,
    /// When it was created, as [`crate::Store::born`] says; 0 when not known. Of two files that had
    /// one inode number after each other it tells which one this is.
    pub born: u64,
}

impl PartialId {
    /// Whether both mean one file. A birth that is not known is no contradiction.
    #[must_use]
    pub const fn is(&self, other: &Self) -> bool {
        self.inode == other.inode
            && self.device == other.device
            && (self.born == 0 || other.born == 0 || self.born == other.born)
    }
}

/// What to do when something stands at the final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// Fail with `AlreadyExists`.
    IfAbsent,
    /// Replace it, unless it is a folder.
    Replace,
}

/// What a published file is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Mode, time, extended attributes.
    pub metadata: &'a Metadata,
    /// Checksums to be kept with the file; given only with [`Capabilities::xattrs`] or
    /// [`Capabilities::compares_sums`].
    pub sums: Option<Sums>,
}

impl<'a> Attributes<'a> {
    /// With other metadata, if there are any.
    #[must_use]
    pub fn with(self, others: Option<&'a Metadata>) -> Self {
        Self {
            metadata: others.unwrap_or(self.metadata),
            ..self
        }
    }

    /// Only the metadata.
    #[must_use]
    pub const fn of(metadata: &'a Metadata) -> Self {
        Self {
            metadata,
            sums: None,
        }
    }
}

/// A small file to be written by [`crate::Store::write_small_each`].
#[derive(Debug, Clone, Copy)]
pub struct SmallFile<'a> {
    /// The final path.
    pub path: &'a RelPath,
    /// The partial file's name in the same folder.
    pub partial: &'a Name,
    /// All of its content.
    pub bytes: &'a [u8],
    /// Where the content is zeros.
    pub holes: &'a [ByteRange],
    /// What it is given.
    pub attributes: Attributes<'a>,
}

/// A small file to be published by [`crate::Store::publish_small_each`].
#[derive(Debug, Clone, Copy)]
pub struct SmallName<'a> {
    /// The final path.
    pub path: &'a RelPath,
    /// The partial file's name in the same folder.
    pub partial: &'a Name,
    /// Which file is meant.
    pub id: PartialId,
    /// How the name is given.
    pub how: Publish,
}

/// One thing to be made durable by [`crate::Store::sync_each`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncItem<'a> {
    /// Content and attributes of a published file.
    File(&'a RelPath),
    /// Content of a partial file of `path`.
    Partial {
        /// The final path.
        path: &'a RelPath,
        /// The partial file's name in the same folder.
        name: &'a Name,
    },
    /// The names in a folder, and its own attributes.
    Folder(&'a RelPath),
}

/// How to open a control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlMode {
    /// It must be there; it is opened for reading and writing.
    Existing,
    /// It must be there; it is only looked at.
    ReadOnly,
    /// It is made when missing.
    Create,
    /// It must not be there (`AlreadyExists`).
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

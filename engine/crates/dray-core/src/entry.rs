//! Entries of a manifest, the list of files and folders of a transfer.

use crate::ids::FileIndex;
use crate::path::Name;
use serde::{Deserialize, Serialize};

/// Modification time: seconds since 1970, negative for earlier times, and nanoseconds within the
/// second.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ModifiedTime {
    /// Whole seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999 999 999.
    pub nanoseconds: u32,
}

impl ModifiedTime {
    /// Returns true if both times are equal when rounded down to `precision_nanoseconds`, the
    /// precision of the less precise end.
    #[must_use]
    pub fn equal_at(&self, other: &Self, precision_nanoseconds: u32) -> bool {
        let precision = i128::from(precision_nanoseconds.max(1));
        self.total_nanoseconds().div_euclid(precision)
            == other.total_nanoseconds().div_euclid(precision)
    }

    fn total_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// Attributes that are copied with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits: the low twelve bits of the mode.
    pub mode: u32,
    /// Last modification of the content.
    pub modified: ModifiedTime,
    /// Names and values of extended attributes. Empty unless the request asks for attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Kind of the file-system object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link, not followed.
    Symlink,
    /// A socket, a device or a pipe.
    Special,
}

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// True if the file occupies less space than its size. The source then looks for holes.
        sparse: bool,
    },
    /// Start of a folder. The folder's attributes follow in [`EntryKind::DirectoryEnd`].
    Directory,
    /// End of a folder. The sink sets the folder's attributes after all its entries are durable.
    DirectoryEnd,
    /// A symbolic link. The source does not follow it.
    Symlink {
        /// Target of the link, as bytes.
        target: Vec<u8>,
    },
}

/// One entry of the manifest.
///
/// A path is sent as the parent folder and a name (mdtmFTP's content index). The parent is the
/// index of an earlier [`EntryKind::Directory`] entry that has not ended, or `None` for the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of this entry. A [`EntryKind::DirectoryEnd`] has the number of its folder.
    pub index: FileIndex,
    /// Folder that contains the entry.
    pub parent: Option<FileIndex>,
    /// Name in the parent folder. A [`EntryKind::DirectoryEnd`] has the name of its folder.
    pub name: Name,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Attributes of the entry. Not used for [`EntryKind::Directory`].
    pub metadata: Metadata,
}

#[cfg(test)]
mod tests {
    use super::ModifiedTime;

    #[test]
    fn times_compare_at_the_weaker_precision() {
        let fine = ModifiedTime {
            seconds: -2,
            nanoseconds: 999_999_999,
        };
        let coarse = ModifiedTime {
            seconds: -2,
            nanoseconds: 0,
        };
        assert!(!fine.equal_at(&coarse, 1));
        assert!(fine.equal_at(&coarse, 1_000_000_000));
        let next = ModifiedTime {
            seconds: -1,
            nanoseconds: 0,
        };
        assert!(!fine.equal_at(&next, 1_000_000_000));
        assert!(fine.equal_at(&fine, 0), "a precision of zero counts as one");
    }
}

//! Entries of a manifest.

use crate::ids::FileIndex;
use crate::path::Name;
use serde::{Deserialize, Serialize};

/// Modification time: seconds since 1970 (negative before) and nanoseconds within the second.
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
    /// Returns true if both are equal at a precision of `precision_nanoseconds` (that of the weaker
    /// end).
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

/// Attributes that travel with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits, the low twelve.
    pub mode: u32,
    /// Last modification of the content.
    pub modified: ModifiedTime,
    /// Extended attributes, name and value; empty unless asked for.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Kind of the file-system object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a device, a pipe.
    Special,
}

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file of `size` bytes; `sparse` when it occupies less than its size.
    File {
        /// Size in bytes.
        size: u64,
        /// Set if holes are likely, so that the source looks for them.
        sparse: bool,
    },
    /// Start of a folder. Its attributes follow in the [`EntryKind::DirectoryEnd`].
    Directory,
    /// End of a folder's listing; the sink may set its attributes once all entries are durable.
    DirectoryEnd,
    /// A symbolic link and its target (bytes, not followed).
    Symlink {
        /// Text of the link.
        target: Vec<u8>,
    },
}

/// One line of the manifest.
///
/// Paths travel as parent and name (mdtmFTP's content index): the parent is the index of a
/// [`EntryKind::Directory`] entry that came before and has not ended, or `None` for the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of this entry. A [`EntryKind::DirectoryEnd`] has its folder's.
    pub index: FileIndex,
    /// Folder that contains the entry.
    pub parent: Option<FileIndex>,
    /// Name in that folder. A [`EntryKind::DirectoryEnd`] repeats the folder's.
    pub name: Name,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Attributes (meaningless for [`EntryKind::Directory`]).
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

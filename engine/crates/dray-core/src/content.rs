//! Identity of the content that a partial file belongs to.

use crate::checksum::Checksum;
use crate::entry::ModifiedTime;
use serde::{Deserialize, Serialize};

/// Identity of the content of a partial file. A transfer resumes a partial file only if the
/// identity that is recorded for the partial file matches that of the source file. The sizes must
/// match. If both identities contain a demanded checksum of the same kind, these checksums must
/// match. Otherwise two other values must match:
///
/// - the source's own identity (an object store's version or entity tag; empty for files);
/// - the modification time at the precision of the less precise end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentKey {
    /// Size in bytes.
    pub size: u64,
    /// Checksum that the caller demands for the whole file.
    pub demanded: Option<Checksum>,
    /// Modification time at the source.
    pub modified: ModifiedTime,
    /// Precision of `modified` in nanoseconds, at the less precise end.
    pub precision_nanoseconds: u32,
    /// The source's own identifier of this version. Empty if the source has no such identifier.
    pub identity: Vec<u8>,
}

/// Size and checksum that the caller requires of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Required {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Checksum of the whole file.
    pub checksum: Option<Checksum>,
}

impl ContentKey {
    /// Returns true if bytes that were written for `self` can be used for `wanted`.
    #[must_use]
    pub fn same_content(&self, wanted: &Self) -> bool {
        if self.size != wanted.size {
            return false;
        }
        if let (Some(have), Some(want)) = (self.demanded, wanted.demanded) {
            if have == want {
                return true;
            }
            if std::mem::discriminant(&have) == std::mem::discriminant(&want) {
                return false;
            }
        }
        let precision = self.precision_nanoseconds.max(wanted.precision_nanoseconds);
        self.identity == wanted.identity && self.modified.equal_at(&wanted.modified, precision)
    }
}

#[cfg(test)]
mod tests {
    use super::ContentKey;
    use crate::checksum::Checksum;
    use crate::entry::ModifiedTime;

    fn key(size: u64, demanded: Option<Checksum>, nanoseconds: u32) -> ContentKey {
        ContentKey {
            size,
            demanded,
            modified: ModifiedTime {
                seconds: 5,
                nanoseconds,
            },
            precision_nanoseconds: 1000,
            identity: Vec::new(),
        }
    }

    #[test]
    fn an_equal_replica_continues_and_a_changed_source_does_not() {
        let sum = Some(Checksum::Adler32(7));
        assert!(key(9, None, 1_500).same_content(&key(9, None, 1_999)));
        assert!(!key(9, None, 1_500).same_content(&key(9, None, 2_000)));
        assert!(!key(9, None, 0).same_content(&key(8, None, 0)));
        assert!(
            key(9, sum, 1).same_content(&key(9, sum, 900_000)),
            "the sum outweighs the time"
        );
        assert!(!key(9, sum, 1).same_content(&key(9, Some(Checksum::Adler32(8)), 1)));
        assert!(key(9, sum, 1).same_content(&key(9, None, 1)));
    }
}

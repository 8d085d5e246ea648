//! Divides files into objects.

use crate::range::ByteRange;
use std::num::NonZeroU64;

/// Default size of an object in bytes (LADS uses objects of 1 MiB).
pub const OBJECT_BYTES_DEFAULT: u64 = 1 << 20;

/// Minimum object size that a request may set, in bytes.
pub const OBJECT_BYTES_MIN: u64 = 4 << 10;
/// Maximum object size that a request may set, in bytes.
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Number of objects above which the objects of a file are made larger. A bit set for this number
/// of objects takes 8 KiB.
pub const OBJECTS_PER_FILE_TARGET: u64 = 1 << 16;

/// A file divided into objects of one size. The last object may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    size: u64,
    object_bytes: NonZeroU64,
}

impl Grid {
    /// Divides `size` bytes into objects of `object_bytes`.
    #[must_use]
    pub const fn new(size: u64, object_bytes: NonZeroU64) -> Self {
        Self { size, object_bytes }
    }

    /// Returns the number of objects; zero for an empty file.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.size.div_ceil(self.object_bytes.get())
    }

    /// Returns the number of objects that need not be sent if `bytes` bytes of the file are
    /// durable.
    #[must_use]
    pub const fn count_safe(&self, bytes: u64) -> u64 {
        let left = self.size.saturating_sub(bytes);
        self.count() - left.div_ceil(self.object_bytes.get())
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size of an object in bytes.
    #[must_use]
    pub const fn object_bytes(&self) -> NonZeroU64 {
        self.object_bytes
    }

    /// Returns the byte range of object `index`; an empty range if the file has no such object.
    #[must_use]
    pub fn range(&self, index: u64) -> ByteRange {
        let start = index.saturating_mul(self.object_bytes.get()).min(self.size);
        let end = start.saturating_add(self.object_bytes.get()).min(self.size);
        ByteRange::between(start, end)
    }

    /// Returns the index of the object that holds the byte at `offset`.
    #[must_use]
    pub const fn index_of(&self, offset: u64) -> u64 {
        offset / self.object_bytes.get()
    }

    /// Returns true if `range` starts at an object boundary and ends at an object boundary or at
    /// the end of the file.
    #[must_use]
    pub const fn is_aligned(&self, range: ByteRange) -> bool {
        let object = self.object_bytes.get();
        range.offset.is_multiple_of(object)
            && range.end() <= self.size
            && (range.end().is_multiple_of(object) || range.end() == self.size)
    }
}

/// Returns the object size for a file. The requested size `asked` is doubled until the file has at
/// most [`OBJECTS_PER_FILE_TARGET`] objects. The result never exceeds `largest`, the limit of the
/// pool and of both ends.
#[must_use]
pub fn object_bytes_for(size: u64, asked: NonZeroU64, largest: NonZeroU64) -> NonZeroU64 {
    let mut object = asked.min(largest);
    while size.div_ceil(object.get()) > OBJECTS_PER_FILE_TARGET {
        match object.checked_mul(NonZeroU64::MIN.saturating_add(1)) {
            Some(doubled) if doubled <= largest => object = doubled,
            _ => break,
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::{Grid, object_bytes_for};
    use proptest::prelude::*;
    use std::num::NonZeroU64;

    fn nonzero(value: u64) -> NonZeroU64 {
        NonZeroU64::new(value).expect("not zero")
    }

    proptest! {
        #[test]
        fn objects_cover_the_file_once(size in 0..100_000u64, object in 1..5_000u64) {
            let grid = Grid::new(size, nonzero(object));
            let mut next = 0;
            for index in 0..grid.count() {
                let range = grid.range(index);
                prop_assert_eq!(range.offset, next);
                prop_assert!(!range.is_empty() && range.length <= object);
                prop_assert!(grid.is_aligned(range));
                prop_assert_eq!(grid.index_of(range.offset), index);
                next = range.end();
            }
            prop_assert_eq!(next, size);
            prop_assert!(grid.range(grid.count()).is_empty());
            for index in 0..=grid.count() {
                let safe = grid.range(index).offset;
                prop_assert_eq!(grid.count_safe(safe), index);
            }
        }
    }

    #[test]
    fn objects_grow_with_the_file_up_to_the_bound() {
        let mib = nonzero(1 << 20);
        assert_eq!(object_bytes_for(1 << 30, mib, nonzero(16 << 20)), mib);
        assert_eq!(
            object_bytes_for(1 << 38, mib, nonzero(16 << 20)),
            nonzero(4 << 20)
        );
        assert_eq!(
            object_bytes_for(u64::MAX, mib, nonzero(16 << 20)),
            nonzero(16 << 20)
        );
        assert_eq!(object_bytes_for(1, nonzero(32 << 20), mib), mib);
    }
}

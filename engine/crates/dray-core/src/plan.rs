//! Divides files into objects.

use crate::layout::common_step;
use crate::range::ByteRange;
use std::num::NonZeroU64;

/// Default size of an object in bytes (LADS uses objects of 1 MiB).
pub const OBJECT_BYTES_DEFAULT: u64 = 1 << 20;

/// Minimum object size that a request may set, in bytes.
pub const OBJECT_BYTES_MIN: u64 = 4 << 10;
/// Maximum object size that a request may set, in bytes.
pub const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// Returns the object size of a transfer in bytes: the requested size, otherwise the largest of the
/// default size and the sizes that suit the storage systems of the transfer.
#[must_use]
pub fn object_bytes(asked: Option<u64>, suitable: impl IntoIterator<Item = u64>) -> u64 {
    let largest = || suitable.into_iter().fold(OBJECT_BYTES_DEFAULT, u64::max);
    asked.unwrap_or_else(largest)
}

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

/// Maximum number of objects in a file whose object size is reduced to fit the stripes of the file.
/// If small objects would exceed this number, the objects may be larger than stripes. The number
/// can exceed [`OBJECTS_PER_FILE_TARGET`], because both ends keep ranges of consecutive objects in
/// memory instead of single objects, and a file has far fewer ranges than objects.
pub const OBJECTS_PER_STRIPED_FILE_MAX: u64 = 1 << 20;

/// Minimum object size in bytes that follows from stripes. Smaller objects cost more time than they
/// save. If the request asks for objects of less than sixteen times this size, the minimum is a
/// sixteenth of the requested size.
pub const OBJECT_BYTES_STRIPED_MIN: u64 = 64 << 10;

/// Maximum number of candidates that [`divisor`] tries one by one.
const DIVISORS_TRIED: u64 = 4096;

/// Returns the object size for a file that is striped at one end or both ends. `source_step` and
/// `sink_step` are the steps of its layouts ([`crate::Layout::step`]); zero stands for a layout
/// without borders.
///
/// If the object size divides the step of a layout, no object crosses a border of that layout. The
/// result divides both steps if [`OBJECT_BYTES_STRIPED_MIN`] and [`OBJECTS_PER_STRIPED_FILE_MAX`]
/// permit this. Otherwise it divides the sink's step or, if this is not permitted either, the
/// source's step. Without any permitted step, it is the size of [`object_bytes_for`]. A file of at
/// most `asked` bytes is one object in any case.
#[must_use]
pub fn object_bytes_within(
    size: u64,
    asked: NonZeroU64,
    largest: NonZeroU64,
    source_step: u64,
    sink_step: u64,
) -> NonZeroU64 {
    let usual = object_bytes_for(size, asked, largest);
    if size <= usual.get() {
        return usual;
    }
    let least = (asked.get() / 16).clamp(1, OBJECT_BYTES_STRIPED_MIN);
    let least = least.max(size.div_ceil(OBJECTS_PER_STRIPED_FILE_MAX));
    let both = common_step(source_step, sink_step);
    let found = [both, sink_step, source_step]
        .into_iter()
        .find_map(|step| divisor(step, least, usual.get()));
    found.and_then(NonZeroU64::new).unwrap_or(usual)
}

/// Returns the greatest divisor of `step` that is at least `least` and at most `most`. If
/// [`DIVISORS_TRIED`] candidates do not divide `step`, returns a power of two that does. Returns
/// `None` if that power is less than `least`, or if there is no divisor.
fn divisor(step: u64, least: u64, most: u64) -> Option<u64> {
    if step == 0 {
        return None;
    }
    let first = step.div_ceil(most);
    for parts in first..first.saturating_add(DIVISORS_TRIED) {
        if step / parts < least {
            return None;
        }
        if step.is_multiple_of(parts) {
            return Some(step / parts);
        }
    }
    let power = 1u64 << step.trailing_zeros().min(most.ilog2());
    (power >= least).then_some(power)
}

#[cfg(test)]
mod tests {
    use super::{Grid, object_bytes_for, object_bytes_within};
    use crate::Layout;
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

    proptest! {
        #[test]
        fn objects_of_striped_files_cross_no_border_within_the_bounds(
            size in 1..1u64 << 40,
            asked in 1..=64u64,
            source in (0..=6u32, 0..=6u64),
            sink in (0..=6u32, 0..=6u64),
        ) {
            let asked = nonzero(asked << 20);
            // Steps from 64 KiB to 24 MiB, and no step.
            let step = |(power, times): (u32, u64)| times << (16 + power);
            let (source, sink) = (step(source), step(sink));
            let object = object_bytes_within(size, asked, asked, source, sink).get();
            prop_assume!(size > asked.get());
            prop_assert!(object <= asked.get());
            let objects = size.div_ceil(object);
            prop_assert!(objects <= 1 << 20 || object == asked.get());
            let least = size.div_ceil(1 << 20).max(64 << 10);
            for step in [source, sink] {
                let fits = step == 0 || object.is_multiple_of(step) || step.is_multiple_of(object);
                prop_assert!(fits || least > 64 << 10, "{object} of {step}");
            }
            if least == 64 << 10 {
                for step in [source, sink] {
                    prop_assert!(step == 0 || step.is_multiple_of(object), "{object} of {step}");
                }
            }
        }
    }

    #[test]
    fn object_size_follows_the_stripes_of_both_ends() {
        const MIB: u64 = 1 << 20;
        let size = |asked: u64, source, sink| {
            object_bytes_within(1 << 34, nonzero(asked), nonzero(64 * MIB), source, sink).get()
        };
        assert_eq!(size(MIB, 0, 0), MIB);
        let small = object_bytes_within(MIB, nonzero(MIB), nonzero(MIB), 1 << 16, 1 << 16);
        assert_eq!(small.get(), MIB, "a small file is one object");
        assert_eq!(size(MIB, 4 * MIB, 0), MIB);
        assert_eq!(size(4 * MIB, MIB, 4 * MIB), MIB);
        assert_eq!(size(4 * MIB, 3 * MIB, 4 * MIB), MIB);
        assert_eq!(size(2 * MIB, 3 * MIB, 0), MIB + MIB / 2);
        assert_eq!(size(MIB, 5 << 16, 7 << 16), 1 << 16);
        // The steps have only small common divisors, so the objects follow only the sink's stripes.
        assert_eq!(size(MIB, MIB - 4096, MIB), MIB);
        // Following stripes of 4 KiB would cost more than it saves.
        assert_eq!(size(MIB, 0, 4096), MIB);
        // No divisor is found, so the object has the requested size.
        assert_eq!(size(MIB, 0, (1 << 61) - 1), MIB);
        // A file of 8 TiB has more than [`OBJECTS_PER_STRIPED_FILE_MAX`] stripes of 4 MiB.
        let long = object_bytes_within(8 << 40, nonzero(MIB), nonzero(64 * MIB), 4 * MIB, 0);
        assert_eq!(long.get(), 64 * MIB);
        let long = object_bytes_within(4 << 40, nonzero(MIB), nonzero(64 * MIB), 4 * MIB, 0);
        assert_eq!(long.get(), 4 * MIB);
        assert_eq!(Layout::Single(crate::TargetId(3)).step(1 << 40), 0);
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

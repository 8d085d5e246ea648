//! Borders of stripes: the offsets of a file at which the target can change.

use super::{Extent, Layout, extent_at};
use crate::{ByteRange, TargetId};

/// Iterator over the parts of a range of a file, each with its target. A part ends at a border of
/// the layout or at the end of the range, so two neighbouring parts may have the same target.
#[derive(Debug)]
pub struct Runs<'a> {
    layout: &'a Layout,
    at: u64,
    end: u64,
}

impl Iterator for Runs<'_> {
    type Item = (ByteRange, TargetId);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let end = self.layout.border_after(self.at).min(self.end);
        let part = ByteRange::between(self.at, end);
        let target = self.layout.target_at(self.at);
        self.at = end;
        Some((part, target))
    }
}

fn stripe_end(stripe_bytes: u64, offset: u64) -> u64 {
    let stripe_bytes = stripe_bytes.max(1);
    (offset / stripe_bytes)
        .saturating_add(1)
        .saturating_mul(stripe_bytes)
}

fn extent_border(extent: &Extent, is_last: bool, offset: u64) -> u64 {
    let end = if is_last { u64::MAX } else { extent.end };
    if extent.targets.len() < 2 {
        return end;
    }
    stripe_end(extent.stripe_bytes, offset).min(end)
}

/// Returns the greatest common divisor. The divisor of zero and a number is the number.
fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Layout {
    /// Returns the first border after `offset`, or [`u64::MAX`] if there is none. All bytes from
    /// `offset` to the border are on one target.
    #[must_use]
    pub fn border_after(&self, offset: u64) -> u64 {
        match self {
            Self::Single(_) => u64::MAX,
            Self::Striped {
                stripe_bytes,
                targets,
            } if targets.len() > 1 => stripe_end(*stripe_bytes, offset),
            Self::Striped { .. } => u64::MAX,
            Self::Table(table) => stripe_end(table.stripe_bytes, offset),
            Self::Composite(extents) => extent_at(extents, offset).map_or(u64::MAX, |extent| {
                let is_last = extents.last() == Some(extent);
                extent_border(extent, is_last, offset)
            }),
        }
    }

    /// Returns the parts of `range` by target.
    #[must_use]
    pub const fn runs(&self, range: ByteRange) -> Runs<'_> {
        Runs {
            layout: self,
            at: range.offset,
            end: range.end(),
        }
    }

    /// Returns the step in bytes. Every border within a file of `size` bytes is at a multiple of
    /// the step. Returns zero if the file has no border. If an object size divides the step, no
    /// object crosses a border.
    #[must_use]
    pub fn step(&self, size: u64) -> u64 {
        let within = |border: u64| if border < size { border } else { 0 };
        match self {
            Self::Single(_) => 0,
            Self::Striped {
                stripe_bytes,
                targets,
            } if targets.len() > 1 => within(*stripe_bytes),
            Self::Striped { .. } => 0,
            Self::Table(table) => within(table.stripe_bytes),
            Self::Composite(extents) => composite_step(extents, size),
        }
    }
}

fn composite_step(extents: &[Extent], size: u64) -> u64 {
    let mut step = 0;
    let mut start = 0;
    for (place, extent) in extents.iter().enumerate() {
        if start >= size {
            break;
        }
        let is_last = place + 1 == extents.len();
        let end = if is_last { size } else { extent.end.min(size) };
        // Stripes are counted from the beginning of the file. So every border between two stripes
        // of the extent is at a multiple of the size of a stripe.
        if extent_border(extent, is_last, start) < end {
            step = common(step, extent.stripe_bytes);
        }
        if end < size {
            step = common(step, end);
        }
        start = end;
    }
    step
}

/// Returns the step of the borders of two layouts together, if their own steps are `a` and `b`.
/// Zero stands for a layout without borders.
#[must_use]
pub fn common_step(a: u64, b: u64) -> u64 {
    common(a, b)
}

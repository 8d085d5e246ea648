//! Layouts: the assignment of a file's bytes to storage targets (FT-LADS, section II-A).
//!
//! A layout is a guide for scheduling. A wrong layout costs speed, but no data: each end finds the
//! bytes of a file by their offsets. So a layout that exceeds its limits may be replaced by a
//! coarser one.

mod borders;
mod simpler;

pub use borders::{Runs, common_step};

use crate::TargetId;
use std::sync::Arc;

/// Maximum number of targets that one layout names, over all its extents. Lustre stripes a file
/// over at most 2 000 OSTs.
pub const LAYOUT_TARGETS_MAX: usize = 4096;

/// Maximum number of stripes in a [`StripeTable`]. The table then takes 128 KiB, and describes a
/// file of 256 GiB in stripes of 4 MiB. The stripes after the end of the table use its entries
/// again from the first.
pub const LAYOUT_STRIPES_MAX: usize = 1 << 16;

/// Maximum number of extents in a composite layout.
pub const LAYOUT_EXTENTS_MAX: usize = 64;

/// Maps the bytes of a file to storage targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The whole file is on one target.
    Single(TargetId),
    /// Stripes of `stripe_bytes` are on each target in turn, as in a plain layout of Lustre.
    Striped {
        /// Size of a stripe in bytes; never zero.
        stripe_bytes: u64,
        /// Targets in the order of the stripes; never empty. At most [`LAYOUT_TARGETS_MAX`].
        targets: Vec<TargetId>,
    },
    /// Each stripe has its own target, as the objects of a RADOS file have.
    Table(Arc<StripeTable>),
    /// Each extent of the file has its own stripes, as in a composite layout of Lustre (progressive
    /// file layout). The extents cover the file in their order. The last extent also covers all
    /// bytes after its end. [`Layout::of_extents`] creates valid lists of extents.
    Composite(Arc<[Extent]>),
}

/// The target of each stripe of a file. Takes two bytes for each stripe.
#[derive(Debug, PartialEq, Eq)]
pub struct StripeTable {
    stripe_bytes: u64,
    targets: Vec<TargetId>,
    stripes: Vec<u16>,
}

/// A part of a file with its own stripes. It begins at the end of the previous extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte after the extent.
    pub end: u64,
    /// Size of a stripe in bytes; never zero.
    pub stripe_bytes: u64,
    /// Targets in the order of the stripes; never empty. Stripes are counted from the beginning of
    /// the file, as in Lustre: the byte at `offset` is in stripe `offset / stripe_bytes`. If a
    /// store counts from the beginning of the extent, it rotates this list.
    pub targets: Vec<TargetId>,
}

impl Extent {
    fn target_at(&self, offset: u64) -> TargetId {
        dealt(self.stripe_bytes, &self.targets, offset)
    }
}

/// Returns the target of `offset` if stripes are on `targets` in turn.
fn dealt(stripe_bytes: u64, targets: &[TargetId], offset: u64) -> TargetId {
    let stripe = offset / stripe_bytes.max(1);
    let count = targets.len().max(1) as u64;
    let target = targets.get((stripe % count) as usize).copied();
    target.unwrap_or(TargetId(0))
}

impl StripeTable {
    /// Creates a table from its parts. Each element of `stripes` is an index of `targets`. Returns
    /// `None` if a part is empty or over its limit, or if an index has no target.
    #[must_use]
    pub fn new(stripe_bytes: u64, targets: Vec<TargetId>, stripes: Vec<u16>) -> Option<Self> {
        let fits = stripe_bytes > 0
            && (1..=LAYOUT_TARGETS_MAX).contains(&targets.len())
            && (1..=LAYOUT_STRIPES_MAX).contains(&stripes.len())
            && stripes.iter().all(|at| usize::from(*at) < targets.len());
        fits.then_some(Self {
            stripe_bytes,
            targets,
            stripes,
        })
    }

    /// Returns the size of a stripe in bytes.
    #[must_use]
    pub const fn stripe_bytes(&self) -> u64 {
        self.stripe_bytes
    }

    /// Returns the targets that the table names.
    #[must_use]
    pub fn targets(&self) -> &[TargetId] {
        &self.targets
    }

    /// Returns, for each stripe, the index of its target in [`Self::targets`].
    #[must_use]
    pub fn stripes(&self) -> &[u16] {
        &self.stripes
    }

    fn target_of(&self, stripe: u64) -> TargetId {
        let at = (stripe % self.stripes.len().max(1) as u64) as usize;
        let target = self.stripes.get(at);
        let target = target.and_then(|target| self.targets.get(usize::from(*target)));
        target.copied().unwrap_or(TargetId(0))
    }
}

impl Layout {
    /// Creates the layout of a file whose stripes have the targets `stripes`, in the order of the
    /// stripes. If all stripes have one target, the layout is [`Layout::Single`]. After
    /// [`LAYOUT_STRIPES_MAX`] stripes or [`LAYOUT_TARGETS_MAX`] different targets, the stripes
    /// repeat from the first one on. Returns the single target 0 if `stripes` is empty.
    #[must_use]
    pub fn of_stripes(stripe_bytes: u64, stripes: impl IntoIterator<Item = TargetId>) -> Self {
        let mut targets: Vec<TargetId> = Vec::new();
        let mut places = crate::maps::HashMap::<TargetId, u16>::default();
        let mut table = Vec::new();
        for target in stripes.into_iter().take(LAYOUT_STRIPES_MAX) {
            let place = match places.get(&target) {
                Some(place) => *place,
                None if targets.len() < LAYOUT_TARGETS_MAX => {
                    let place = targets.len() as u16;
                    targets.push(target);
                    places.insert(target, place);
                    place
                }
                None => break,
            };
            table.push(place);
        }
        let first = targets.first().copied().unwrap_or(TargetId(0));
        if targets.len() < 2 {
            return Self::Single(first);
        }
        table.shrink_to_fit();
        let table = StripeTable::new(stripe_bytes, targets, table);
        table.map_or(Self::Single(first), |table| Self::Table(Arc::new(table)))
    }

    /// Creates the layout of a file from its extents, which are in ascending order of their ends.
    /// Ignores empty extents, and extents without targets or with stripes of zero bytes. If the
    /// extents exceed [`LAYOUT_EXTENTS_MAX`] or [`LAYOUT_TARGETS_MAX`], the rest of the file has
    /// the stripes of the last extent within these limits. If no extent is left, returns a layout
    /// with the single target 0.
    #[must_use]
    pub fn of_extents(extents: impl IntoIterator<Item = Extent>) -> Self {
        let mut kept: Vec<Extent> = Vec::new();
        let mut named = 0;
        for extent in extents {
            let start = kept.last().map_or(0, |last| last.end);
            let is_valid =
                extent.end > start && extent.stripe_bytes > 0 && !extent.targets.is_empty();
            if !is_valid {
                continue;
            }
            named += extent.targets.len();
            if kept.len() == LAYOUT_EXTENTS_MAX || named > LAYOUT_TARGETS_MAX {
                break;
            }
            kept.push(extent);
        }
        match kept.len() {
            0 => Self::Single(TargetId(0)),
            1 => {
                let only = kept.swap_remove(0);
                match only.targets.as_slice() {
                    [target] => Self::Single(*target),
                    _ => Self::Striped {
                        stripe_bytes: only.stripe_bytes,
                        targets: only.targets,
                    },
                }
            }
            _ => Self::Composite(kept.into()),
        }
    }

    /// Returns the target of the byte at `offset`.
    #[must_use]
    pub fn target_at(&self, offset: u64) -> TargetId {
        match self {
            Self::Single(target) => *target,
            Self::Striped {
                stripe_bytes,
                targets,
            } => dealt(*stripe_bytes, targets, offset),
            Self::Table(table) => table.target_of(offset / table.stripe_bytes.max(1)),
            Self::Composite(extents) => {
                let extent = extent_at(extents, offset);
                extent.map_or(TargetId(0), |extent| extent.target_at(offset))
            }
        }
    }

    /// Returns true if the whole file is on one target.
    #[must_use]
    pub const fn is_single(&self) -> bool {
        matches!(self, Self::Single(_))
    }

    /// Returns the targets that the layout names. A target may occur several times.
    pub fn targets(&self) -> impl Iterator<Item = TargetId> + '_ {
        let (own, extents): (&[TargetId], &[Extent]) = match self {
            Self::Single(target) => (std::slice::from_ref(target), &[]),
            Self::Striped { targets, .. } => (targets, &[]),
            Self::Table(table) => (&table.targets, &[]),
            Self::Composite(extents) => (&[], extents),
        };
        let more = extents.iter().flat_map(|extent| &extent.targets);
        own.iter().chain(more).copied()
    }

    /// Returns the memory of the layout's lists in bytes. Zero for [`Layout::Single`].
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let of_targets = 4 * self.targets().count();
        let bytes = match self {
            Self::Single(_) => 0,
            Self::Striped { .. } => of_targets,
            Self::Table(table) => of_targets + 2 * table.stripes.len(),
            Self::Composite(extents) => of_targets + 40 * extents.len(),
        };
        bytes as u64
    }

    /// Returns the layout that assigns the whole file to the target of its first byte.
    #[must_use]
    pub fn first(&self) -> Self {
        Self::Single(self.target_at(0))
    }
}

/// Returns the extent of the byte at `offset`: the last extent for bytes after all extents.
fn extent_at(extents: &[Extent], offset: u64) -> Option<&Extent> {
    let at = extents.partition_point(|extent| extent.end <= offset);
    extents.get(at).or(extents.last())
}

#[cfg(test)]
mod tests;

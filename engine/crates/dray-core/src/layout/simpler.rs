//! Simpler layouts, for a peer that knows only single and striped layouts.

use super::{LAYOUT_TARGETS_MAX, Layout};
use crate::{ByteRange, TargetId};

impl Layout {
    /// Returns true if the layout is single or striped.
    #[must_use]
    pub const fn is_simple(&self) -> bool {
        matches!(self, Self::Single(_) | Self::Striped { .. })
    }

    /// Returns a single or striped layout that agrees with this layout in the first
    /// [`LAYOUT_TARGETS_MAX`] stripes of the file. After these stripes, the result repeats them.
    #[must_use]
    pub fn simplified(&self) -> Self {
        let count = match self {
            Self::Single(_) | Self::Striped { .. } => return self.clone(),
            Self::Table(table) => table.stripes.len().min(LAYOUT_TARGETS_MAX),
            Self::Composite(_) => LAYOUT_TARGETS_MAX,
        } as u64;
        let step = self.step(u64::MAX);
        if step == 0 {
            return self.first();
        }
        let mut targets: Vec<TargetId> = Vec::with_capacity(count as usize);
        for stripe in 0..count {
            targets.push(self.target_at(stripe.saturating_mul(step)));
        }
        match targets.as_slice() {
            [first, rest @ ..] if rest.iter().all(|target| target == first) => Self::Single(*first),
            _ => Self::Striped {
                stripe_bytes: step,
                targets,
            },
        }
    }

    /// Returns the number of bytes on each target, for a file of `size` bytes. A layout of many
    /// stripes is counted exactly up to 2^20 stripes. The rest of the file is divided in the same
    /// proportion.
    #[must_use]
    pub fn shares(&self, size: u64) -> Vec<(TargetId, u64)> {
        const COUNTED_MAX: usize = 1 << 20;
        let mut shares = std::collections::BTreeMap::<TargetId, u64>::new();
        let mut counted = 0;
        let whole = ByteRange {
            offset: 0,
            length: size,
        };
        for (part, target) in self.runs(whole).take(COUNTED_MAX) {
            *shares.entry(target).or_default() += part.length;
            counted += part.length;
        }
        if counted < size {
            let whole = u128::from(size);
            for bytes in shares.values_mut() {
                let share = u128::from(*bytes) * whole / u128::from(counted.max(1));
                *bytes = u64::try_from(share).unwrap_or(u64::MAX);
            }
        }
        shares.into_iter().collect()
    }
}

//! Storage targets: the parts of a storage system that can be slow independently of each other.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A storage target of one end, such as a disk, a remote server, a brick, an OST or an OSD. The end
/// that owns the target assigns the number. The number has no meaning at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetId(pub u32);

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target {}", self.0)
    }
}

/// Maps the bytes of a file to storage targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// The whole file is on one target.
    Single(TargetId),
    /// Stripes of `stripe_bytes` are on each target in turn, as in the simplest striping of Lustre
    /// and RADOS.
    Striped {
        /// Size of a stripe in bytes; never zero.
        stripe_bytes: u64,
        /// Targets in the order of the stripes; never empty.
        targets: Vec<TargetId>,
    },
}

impl Layout {
    /// Returns the target of the byte at `offset`.
    #[must_use]
    pub fn target_at(&self, offset: u64) -> TargetId {
        match self {
            Self::Single(target) => *target,
            Self::Striped {
                stripe_bytes,
                targets,
            } => {
                let stripe = offset / (*stripe_bytes).max(1);
                let count = targets.len().max(1) as u64;
                targets
                    .get((stripe % count) as usize)
                    .copied()
                    .unwrap_or(TargetId(0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, TargetId};

    #[test]
    fn stripes_are_dealt_in_turn() {
        let layout = Layout::Striped {
            stripe_bytes: 4,
            targets: vec![TargetId(7), TargetId(9)],
        };
        let targets: Vec<u32> = (0..12).map(|offset| layout.target_at(offset).0).collect();
        assert_eq!(targets, [7, 7, 7, 7, 9, 9, 9, 9, 7, 7, 7, 7]);
    }
}

//! The paths that a transfer may write: those that its driver claimed. Other transfers may write
//! the other paths of the same tree.

use dray_core::maps::HashSet;
use dray_core::{End, Error, ErrorKind, RelPath};

/// The claims, indexed so that a check takes time proportional to a path's depth and not to the
/// number of claims.
#[derive(Debug)]
pub(super) struct Claims {
    claimed: HashSet<RelPath>,
    /// The folders above the claimed paths.
    ways: HashSet<RelPath>,
}

/// Returns a path and all folders above it.
fn path_and_ancestors(path: &RelPath) -> impl Iterator<Item = RelPath> {
    std::iter::successors(Some(path.clone()), RelPath::parent)
}

impl Claims {
    pub(super) fn new(claims: &[RelPath]) -> Self {
        Self {
            claimed: claims.iter().cloned().collect(),
            ways: claims
                .iter()
                .flat_map(|claim| path_and_ancestors(claim).skip(1))
                .collect(),
        }
    }

    /// Refuses a path outside the claims, unless it is a folder above a claimed path.
    pub(super) fn check(&self, path: &RelPath, is_folder: bool) -> Result<(), Error> {
        let is_claimed = self.claimed.is_empty()
            || path_and_ancestors(path).any(|above| self.claimed.contains(&above));
        if is_claimed || (is_folder && self.ways.contains(path)) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::PathEscapes, End::Sink, "take the name")
                .cause("the transfer did not claim this path")
                .remedy("use the same version of dray at both ends and report this"),
        )
    }
}

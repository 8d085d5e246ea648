//! The paths that a transfer may write, as claimed by its driver. Other transfers may write other
//! paths of the same tree.

use dray_core::maps::HashSet;
use dray_core::{End, Error, ErrorKind, RelPath};

/// The claimed paths, in a form in which a check takes time proportional to the depth of the path,
/// independent of the number of claims.
#[derive(Debug)]
pub(super) struct Claims {
    claimed: HashSet<RelPath>,
    /// All folders above the claimed paths.
    ways: HashSet<RelPath>,
}

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
            Error::new(ErrorKind::PathEscapes, End::Sink, "accept the name")
                .cause("the entry is outside the paths that the transfer may write")
                .remedy("use the same version of dray at both ends, and report this error"),
        )
    }
}

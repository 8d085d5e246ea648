//! Where a transfer may write: what its driver claimed. Other transfers may be at work elsewhere.

use dray_core::maps::HashSet;
use dray_core::{End, Error, ErrorKind, RelPath};

/// The claims, so that a look costs the depth of a path, however many there are.
#[derive(Debug)]
pub(super) struct Claims {
    claimed: HashSet<RelPath>,
    /// The folders above them.
    ways: HashSet<RelPath>,
}

/// A path, and the folders above it.
fn upwards(path: &RelPath) -> impl Iterator<Item = RelPath> {
    std::iter::successors(Some(path.clone()), RelPath::parent)
}

impl Claims {
    pub(super) fn new(claims: &[RelPath]) -> Self {
        Self {
            claimed: claims.iter().cloned().collect(),
            ways: claims
                .iter()
                .flat_map(|claim| upwards(claim).skip(1))
                .collect(),
        }
    }

    /// Refuses a path that is not claimed, unless it is a folder on the way to what is.
    pub(super) fn check(&self, path: &RelPath, is_folder: bool) -> Result<(), Error> {
        let is_claimed =
            self.claimed.is_empty() || upwards(path).any(|above| self.claimed.contains(&above));
        if is_claimed || (is_folder && self.ways.contains(path)) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::PathEscapes, End::Sink, "take the name")
                .cause("the transfer did not say that it would write there")
                .remedy("use the same version of dray at both ends and report this"),
        )
    }
}

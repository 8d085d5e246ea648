//! Other transfers' claims on the files that are being inspected.

use dray_core::{Error, RelPath};
use dray_session::sink::Resume;
use std::collections::{HashMap, HashSet};

/// Other transfers' claims on the files of the present batch.
#[derive(Default)]
pub(super) struct OtherClaims {
    /// Files that another transfer writes.
    pub(super) refused: HashMap<RelPath, Error>,
    /// Adopted ranges of files, until they are reported.
    pub(super) adopted: HashMap<RelPath, Resume>,
    /// Holders that this transfer has waited for.
    pub(super) waited: HashSet<(bool, RelPath)>,
}

//! Other transfers' claims on the files that are being inspected.

use dray_core::{Error, RelPath};
use dray_session::sink::Resume;
use std::collections::{HashMap, HashSet};

/// Other transfers' claims on the files that are inspected in the present batch.
#[derive(Default)]
pub(super) struct OtherClaims {
    /// Files that another transfer writes, each with the error to report.
    pub(super) refused: HashMap<RelPath, Error>,
    /// Ranges of adopted files that are not reported to the machine yet.
    pub(super) adopted: HashMap<RelPath, Resume>,
    /// Logs whose holders this transfer has already waited for.
    pub(super) waited: HashSet<(bool, RelPath)>,
}

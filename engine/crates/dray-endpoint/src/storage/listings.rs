//! A cache of names for the next pages of folder lists.
//!
//! For a page, all names of the folder must be read and sorted. Without this cache, a large folder
//! would be read once for each of its pages.
//!
//! Invariant owned here: the cache is bounded in names, lists and time. Names are returned only to
//! the owner whose call read them.

use dray_core::lock::LockExt;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of names kept of one folder. With names of 255 bytes they take 9 MiB, including
/// 24 bytes for each `Vec`. The value is estimated, not measured.
const NAMES_MAX: usize = 1 << 15;

/// Maximum number of folders whose names are kept. The oldest list is dropped first. The value is
/// estimated, not measured.
const LISTS_MAX: usize = 4;

/// Maximum age of kept names. A caller that reads a whole folder asks for the next page
/// immediately, so older names are rarely needed.
const AGE_MAX: Duration = Duration::from_secs(10);

/// The names of a folder after a cursor, sorted.
#[derive(Debug)]
pub(super) struct Names {
    /// The first names after the cursor.
    pub(super) names: VecDeque<Vec<u8>>,
    /// True if the folder has no further names.
    pub(super) is_all: bool,
    /// Time at which the folder was read.
    pub(super) read_at: Instant,
}

#[derive(Debug)]
struct Kept {
    owner: String,
    folder: String,
    after: Vec<u8>,
    behind: Names,
}

/// The lists of names that are kept for next pages.
#[derive(Debug)]
pub struct Listings {
    kept: Mutex<VecDeque<Kept>>,
    /// Maximum number of names kept from one reading of a folder.
    pub(super) names_max: usize,
    age_max: Duration,
}

impl Default for Listings {
    fn default() -> Self {
        Self::new(NAMES_MAX, AGE_MAX)
    }
}

impl Listings {
    pub(super) fn new(names_max: usize, age_max: Duration) -> Self {
        Self {
            kept: Mutex::default(),
            names_max,
            age_max,
        }
    }

    /// Removes from the cache the names of a folder that follow the name `after`. Returns these
    /// names if they fill a page or reach the end of the folder, otherwise `None`.
    pub(super) fn take(
        &self,
        owner: &str,
        folder: &str,
        after: &[u8],
        limit: usize,
    ) -> Option<Names> {
        let mut kept = self.kept.lock_unpoisoned();
        kept.retain(|one| one.behind.read_at.elapsed() < self.age_max);
        let at = kept
            .iter()
            .position(|one| one.owner == owner && one.folder == folder && one.after == after)?;
        let found = kept.remove(at)?.behind;
        (found.is_all || found.names.len() >= limit).then_some(found)
    }

    /// Adds the names after `after` to the cache.
    pub(super) fn keep(&self, owner: &str, folder: &str, after: &[u8], behind: Names) {
        let mut kept = self.kept.lock_unpoisoned();
        kept.retain(|one| one.behind.read_at.elapsed() < self.age_max);
        while kept.len() >= LISTS_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept {
            owner: owner.to_owned(),
            folder: folder.to_owned(),
            after: after.to_vec(),
            behind,
        });
    }
}

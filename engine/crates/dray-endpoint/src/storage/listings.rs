//! Names that were read for one page of a folder and will be asked for with the next.
//!
//! A page needs all names of a folder to be read, to sort them: without these, a big folder would
//! be read once for each of its pages.
//!
//! Invariant owned here: what is kept is bounded in names, lists and time, and is given to nobody
//! but the owner whose call read it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names of one folder that are kept: with those of 255 bytes it is 9 MiB (guess, revisit).
const NAMES_MAX: usize = 1 << 15;

/// Folders of which names are kept; the oldest goes first (guess, revisit).
const LISTS_MAX: usize = 4;

/// How old names may be: a caller that reads on asks for the next page at once.
const AGE_MAX: Duration = Duration::from_secs(10);

/// The names behind a cursor, sorted.
#[derive(Debug)]
pub(super) struct Names {
    /// The first of them.
    pub(super) names: VecDeque<Vec<u8>>,
    /// Whether there are no others.
    pub(super) is_all: bool,
    /// When the folder was read.
    pub(super) read_at: Instant,
}

#[derive(Debug)]
struct Kept {
    owner: String,
    folder: String,
    after: Vec<u8>,
    behind: Names,
}

/// Lists of names that are likely to be asked for.
#[derive(Debug)]
pub struct Listings {
    kept: Mutex<VecDeque<Kept>>,
    /// How many names of a folder may be read at once.
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

    /// The names behind `after`, if they are known to be enough for a page.
    pub(super) fn take(
        &self,
        owner: &str,
        folder: &str,
        after: &[u8],
        limit: usize,
    ) -> Option<Names> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|one| one.behind.read_at.elapsed() < self.age_max);
        let at = kept
            .iter()
            .position(|one| one.owner == owner && one.folder == folder && one.after == after)?;
        let found = kept.remove(at)?.behind;
        (found.is_all || found.names.len() >= limit).then_some(found)
    }

    /// Keeps the names behind `after` for the next page.
    pub(super) fn keep(&self, owner: &str, folder: &str, after: &[u8], behind: Names) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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

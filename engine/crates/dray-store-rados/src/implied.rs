//! Folders without an object of their own, in which other programs have files.
//!
//! Only a scan of all names of the namespace finds such a folder. A scan is bounded in time, and its
//! result is used again for a time that is proportional to the duration of the scan. So the scans
//! take a small part of the time of all calls, whatever the size of the namespace.

use crate::errors::{Answer, Errno};
use crate::names::{self, Names};
use crate::pool::Pool;
use dray_core::lock::LockExt;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum duration of a scan. A namespace whose scan takes longer is too large. A scan of 10 000
/// objects took 20 ms on a cluster in memory, so this is the time for about half a million objects.
const SCAN_MAX: Duration = Duration::from_secs(1);

/// Number of names after which a scan reads the clock.
const NAMES_PER_LOOK: u32 = 1024;

/// Maximum number of folders in the result of a scan. A namespace with more folders is too large.
const FOLDERS_MAX: usize = 65_536;

/// A scan is used for this many times its duration, so that scans take at most a twentieth of the
/// time.
const USED_FOR: u32 = 20;

/// Scans of one namespace for the folders of files.
#[derive(Default)]
pub(crate) struct Scans(Mutex<Known>);

/// The last scan, and the error of the last failed scan with the time of its end.
#[derive(Default)]
struct Known {
    last: Option<Scan>,
    failed: Option<(Instant, Errno)>,
}

/// The result of a scan.
struct Scan {
    begun: Instant,
    took: Duration,
    /// Full names of all folders that contain files. `None` if the namespace is too large.
    folders: Option<HashSet<Vec<u8>>>,
}

/// Adds the folders of a file to `found`.
fn add_folders(names: &Names, top: &[u8], full: &[u8], found: &mut HashSet<Vec<u8>>) {
    let mut full = full;
    while let Some(end) = full.iter().rposition(|byte| *byte == b'/') {
        full = &full[..end];
        if names.below(top, full).is_none() || !found.insert(full.to_vec()) {
            return;
        }
    }
}

impl Scan {
    fn is_usable(&self) -> bool {
        self.begun.elapsed() <= self.took * (USED_FOR + 1)
    }

    fn new(pool: &Pool, names: &Names) -> Answer<Self> {
        let begun = Instant::now();
        let top = names.top();
        let mut folders = HashSet::new();
        let (mut count, mut is_whole) = (0_u32, true);
        pool.each_object(&mut |object| {
            count = count.wrapping_add(1);
            if let Some(full) = names::file_of_first(object) {
                add_folders(names, &top, full, &mut folders);
            }
            let is_late = count.is_multiple_of(NAMES_PER_LOOK) && begun.elapsed() > SCAN_MAX;
            if is_late || folders.len() > FOLDERS_MAX {
                is_whole = false;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(Self {
            begun,
            took: begun.elapsed(),
            folders: is_whole.then_some(folders),
        })
    }
}

impl Scans {
    /// Returns true if files are below the folder with the full name `full`, and false if the last
    /// scan found no file there. Returns `None` if the namespace is too large for a scan.
    pub(crate) fn has_files_below(
        &self,
        pool: &Pool,
        names: &Names,
        full: &[u8],
    ) -> Answer<Option<bool>> {
        let asked = Instant::now();
        let mut known = self.0.lock_unpoisoned();
        loop {
            let scan = match (known.last.take().filter(Scan::is_usable), known.failed) {
                (Some(scan), _) => scan,
                // Return the error of a scan that failed while this thread waited. Otherwise each
                // waiting thread would wait for a timeout of its own.
                (None, Some((ended, errno))) if ended >= asked => return Err(errno),
                (None, _) => match Scan::new(pool, names) {
                    Ok(scan) => scan,
                    Err(errno) => {
                        known.failed = Some((Instant::now(), errno));
                        return Err(errno);
                    }
                },
            };
            let found = scan.folders.as_ref().map(|folders| folders.contains(full));
            let is_new = scan.begun >= asked;
            // The files may have been deleted since an earlier scan. A positive answer is rare, so
            // scan again.
            if found != Some(true) || is_new {
                known.last = Some(scan);
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::add_folders;
    use crate::names::Names;
    use dray_core::RelPath;
    use std::collections::HashSet;

    #[test]
    fn each_folder_of_a_file_below_the_root_is_found() {
        let names = Names {
            is_absolute: true,
            root: RelPath::parse(b"top").expect("a path"),
        };
        let mut found = HashSet::new();
        for full in [&b"/top/a/b/c"[..], b"/top/a/d", b"/top/f", b"/other/x/y"] {
            add_folders(&names, &names.top(), full, &mut found);
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort();
        assert_eq!(found, [b"/top/a".to_vec(), b"/top/a/b".to_vec()]);
    }
}

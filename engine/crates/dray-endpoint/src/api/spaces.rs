//! The space of the exported roots, for the metrics.
//!
//! Purpose: read the free space of every root at each call, on threads of its own.
//!
//! Invariant owned here: a storage that does not answer delays a call by at most [`PATIENCE`],
//! occupies one thread, and makes only its own values disappear.

use crate::metrics::RootSpace;
use crate::storage;
use crate::workers::Workers;
use dray_api::api_path::ApiPath;
use dray_config::roots::{Root, Roots};
use dray_core::lock::LockExt;
use dray_core::{RelPath, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time for which a call waits for the storage of the roots. The default timeout of a scrape is ten
/// seconds, so a hanging storage does not hide the other metrics.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum age of a value. Scrapers usually come every 15 or 60 seconds.
const KEPT: Duration = Duration::from_secs(60);

/// The roots, with the last value of each.
pub(super) struct Spaces {
    roots: Vec<Arc<Watched>>,
    workers: Workers,
}

struct Watched {
    root: Arc<Root>,
    /// True while a thread reads the space of this root.
    is_reading: AtomicBool,
    last: Mutex<Option<(Instant, RootSpace)>>,
}

impl Spaces {
    /// Prepares to read the space of all roots, and starts the first thread.
    ///
    /// # Errors
    /// `Busy` if the system refuses a thread.
    pub(super) fn new(roots: &Roots) -> Result<Self> {
        let roots: Vec<_> = (roots.iter())
            .map(|root| {
                Arc::new(Watched {
                    root: Arc::clone(root),
                    is_reading: AtomicBool::new(false),
                    last: Mutex::default(),
                })
            })
            .collect();
        // One thread for each root, so that a storage that hangs does not delay the others.
        let workers = Workers::new(roots.len().max(1))?;
        Ok(Self { roots, workers })
    }

    /// Returns the space of each root whose storage answers in time.
    pub(super) async fn read(&self) -> Vec<RootSpace> {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut reads = Vec::new();
        for watched in &self.roots {
            if watched.is_reading.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (done, read) = oneshot::channel();
            let watched = Arc::clone(watched);
            self.workers.hand_in(move || {
                watched.look();
                // The call may no longer wait.
                let _ = done.send(());
            });
            reads.push(read);
        }
        for read in reads {
            // After a timeout, the value of the last call is returned, if it is new enough.
            let _ = tokio::time::timeout_at(until, read).await;
        }
        let values = self.roots.iter().filter_map(|watched| watched.value());
        values.collect()
    }
}

impl Watched {
    fn look(&self) {
        /// Permits the next read, also after a panic.
        struct Ended<'a>(&'a AtomicBool);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _ended = Ended(&self.is_reading);
        let path = ApiPath {
            root: self.root.name().to_owned(),
            path: RelPath::root(),
            is_folder: true,
        };
        // A storage system without this information has no value. An error of the storage shows as
        // a missing value, and in the sessions that use the root.
        let space = storage::space(&self.root, &path).ok();
        let space = space.map(|space| RootSpace {
            root: path.root,
            free: space.available,
            total: space.total,
        });
        *self.last.lock_unpoisoned() = space.map(|space| (Instant::now(), space));
    }

    fn value(&self) -> Option<RootSpace> {
        let last = self.last.lock_unpoisoned();
        let (read, space) = last.as_ref()?;
        (read.elapsed() <= KEPT).then(|| space.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Spaces};
    use dray_config::Config;
    use dray_config::roots::Roots;
    use dray_core::lock::LockExt;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    #[tokio::test]
    async fn a_storage_that_hangs_loses_only_its_own_value() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut text = format!("name = \"a.example\"\nstate = {:?}\n", folder.path());
        for name in ["one", "two"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).expect("made");
            text += &format!("[[root]]\nname = \"{name}\"\npath = {path:?}\n");
        }
        let config = Config::parse("test", &text).expect("good");
        let spaces = Spaces::new(&Roots::open(&config).expect("open")).expect("started");
        let names = |values: Vec<super::RootSpace>| -> Vec<String> {
            values.into_iter().map(|value| value.root).collect()
        };
        let values = spaces.read().await;
        assert!(
            values
                .iter()
                .all(|one| one.total >= one.free && one.total > 0)
        );
        assert_eq!(names(values), ["one", "two"]);
        // A read that has not ended: the last value counts until it is too old.
        spaces.roots[0].is_reading.store(true, Ordering::Release);
        assert_eq!(names(spaces.read().await), ["one", "two"]);
        if let Some((read, _)) = &mut *spaces.roots[0].last.lock_unpoisoned() {
            *read = Instant::now()
                .checked_sub(KEPT * 2)
                .expect("an earlier time");
        }
        assert_eq!(names(spaces.read().await), ["two"]);
        // The read ends.
        spaces.roots[0].is_reading.store(false, Ordering::Release);
        assert_eq!(names(spaces.read().await), ["one", "two"]);
    }
}

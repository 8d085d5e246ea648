//! Watches the destination during a run: a file under a final name must be complete.

use crate::tree::{self, Content, Entry, Tree, Version};
use dray_core::lock::LockExt;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between two looks at the destination.
const INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of violations that are kept; more are only counted.
const KEPT_MAX: usize = 100;

/// The watched folder, and the contents that its files may have.
pub(crate) struct Watched {
    top: PathBuf,
    allowed: BTreeMap<PathBuf, Vec<Content>>,
    seen: Mutex<Seen>,
    is_over: AtomicBool,
    looks: AtomicU64,
}

#[derive(Default)]
struct Seen {
    versions: HashMap<PathBuf, Version>,
    violations: Vec<String>,
}

/// A thread that looks at the destination until it is stopped.
pub(crate) struct Watch {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

impl Watched {
    /// Allows each file the content of the source and its content before the run.
    fn new(top: &Path, source: &Tree, before: &Tree) -> Self {
        let mut allowed: BTreeMap<PathBuf, Vec<Content>> = BTreeMap::new();
        for (path, entry) in source.iter().chain(before) {
            if let Entry::File(content) = entry {
                allowed.entry(path.clone()).or_default().push(*content);
            }
        }
        Self {
            top: top.to_owned(),
            allowed,
            seen: Mutex::new(Seen::default()),
            is_over: AtomicBool::new(false),
            looks: AtomicU64::new(0),
        }
    }

    /// Looks at all files once. A file is read only if it has changed since the last look.
    pub(crate) fn look(&self) {
        let mut seen = self.seen.lock_unpoisoned();
        let walked = tree::walk(&self.top, &mut |found| {
            if found.state.is_file() && !found.is_own {
                self.look_at(found.path, &mut seen);
            }
            Ok(())
        });
        if let Err((path, error)) = walked {
            seen.add(format!("{} cannot be read: {error}", path.display()));
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    fn look_at(&self, path: PathBuf, seen: &mut Seen) {
        // A file that another one has replaced since the walk is looked at in the next round.
        let Ok(file) = File::open(self.top.join(&path)) else {
            return;
        };
        let Ok(state) = file.metadata() else { return };
        let version = tree::version(&state);
        if seen.versions.get(&path) == Some(&version) {
            return;
        }
        let name = path.display().to_string();
        let size = state.len();
        let complaint = match (self.allowed.get(&path), tree::hash(&file)) {
            (None, _) => Some(format!("{name} is not in the source")),
            (Some(_), Err(error)) => Some(format!("{name} cannot be read: {error}")),
            (Some(allowed), Ok(content)) => match allowed.contains(&content) {
                true => None,
                false if allowed.iter().any(|allowed| allowed.size_bytes == size) => {
                    Some(format!("{name} had wrong content under its final name"))
                }
                false => Some(format!("{name} had {size} bytes under its final name")),
            },
        };
        seen.versions.insert(path, version);
        if let Some(complaint) = complaint {
            seen.add(complaint);
        }
    }

    /// Returns the violations so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.seen.lock_unpoisoned().violations.clone()
    }

    /// Returns the number of looks so far.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }
}

impl Seen {
    fn add(&mut self, violation: String) {
        if self.violations.len() < KEPT_MAX && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}

impl Watch {
    /// Starts to watch `top`.
    pub(crate) fn start(top: &Path, source: &Tree, before: &Tree) -> Self {
        let watched = Arc::new(Watched::new(top, source, before));
        let own = Arc::clone(&watched);
        let thread = std::thread::spawn(move || {
            while !own.is_over.load(Ordering::Relaxed) {
                own.look();
                std::thread::sleep(INTERVAL);
            }
        });
        Self {
            watched,
            thread: Some(thread),
        }
    }

    /// Returns the watched folder.
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Stops the thread, and looks a last time.
    pub(crate) fn finish(&mut self) {
        self.stop();
        self.watched.look();
    }

    fn stop(&mut self) {
        self.watched.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread would hide violations, so it continues here.
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watched.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Watched;
    use crate::tree::describe;
    use std::path::Path;

    #[test]
    fn every_lie_is_found_once_and_whole_versions_are_no_lie() {
        let folder = tempfile::tempdir().expect("a folder");
        let (source, sink) = (folder.path().join("source"), folder.path().join("sink"));
        for top in [&source, &sink] {
            std::fs::create_dir(top).expect("a folder");
        }
        let write = |top: &Path, name: &str, bytes: &[u8]| {
            std::fs::write(top.join(name), bytes).expect("written");
        };
        write(&source, "a", b"new");
        write(&source, "b", b"new");
        write(&sink, "a", b"old version");
        let watched = Watched::new(
            &sink,
            &describe(&source).expect("read"),
            &describe(&sink).expect("read"),
        );
        watched.look();
        write(&sink, "a", b"new");
        write(&sink, ".dray-1.part", b"anything");
        watched.look();
        assert_eq!(watched.violations(), [""; 0]);
        write(&sink, "a", b"nex");
        write(&sink, "b", b"ne");
        write(&sink, "c", b"");
        watched.look();
        watched.look();
        let mut found = watched.violations();
        found.sort();
        assert_eq!(
            found,
            [
                "a had wrong content under its final name",
                "b had 2 bytes under its final name",
                "c is not in the source",
            ]
        );
        write(&sink, "b", b"new");
        assert_eq!(watched.violations().len(), 3, "a repaired lie stays a lie");
        assert_eq!(watched.looks(), 4);
    }
}

//! Notices changes in the fast roots between two scans (inotify).
//!
//! An event is only a hint to scan earlier. Versions are found by scans alone, so a lost event or a
//! missing watch delays a version until the next regular scan.

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::path::PathBuf;

/// Maximum number of watched folders. The kernel limits the watches of all programs of a user.
const WATCHES_MAX: usize = 1_024;

/// Size of the buffer for events in bytes.
const BUFFER_BYTES: usize = 4_096;

const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// The changes since the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noticed {
    Nothing,
    Changes,
    /// The kernel has dropped events.
    Overflow,
}

/// The watches of one tier.
#[derive(Debug)]
pub(super) struct Watch {
    /// `None` if the system refuses inotify. Then only regular scans find versions.
    events: Option<OwnedFd>,
    watched: BTreeMap<PathBuf, i32>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        Self {
            events: events
                .inspect_err(|errno| tracing::debug!("cannot watch the fast roots: {errno}"))
                .ok(),
            watched: BTreeMap::new(),
        }
    }

    /// Watches these folders from now on, and no others.
    pub(super) fn set(&mut self, folders: &BTreeSet<PathBuf>) {
        let Some(events) = &self.events else {
            return;
        };
        self.watched.retain(|path, watch| {
            let stays = folders.contains(path);
            if !stays {
                // The kernel has already removed the watch of a deleted folder.
                let _ = remove_watch(events, *watch);
            }
            stays
        });
        for path in folders.iter().take(WATCHES_MAX) {
            // If a folder was deleted and made again, it needs a new watch. If the folder is the
            // same, the second watch replaces the first watch.
            match add_watch(events, path, EVENTS) {
                Ok(watch) => {
                    self.watched.insert(path.clone(), watch);
                }
                Err(errno) => {
                    self.watched.remove(path);
                    tracing::debug!("cannot watch {}: {errno}", path.display());
                }
            }
        }
    }

    /// Reads all events that have arrived.
    pub(super) fn noticed(&self) -> Noticed {
        let Some(events) = &self.events else {
            return Noticed::Nothing;
        };
        let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(events, &mut buffer);
        let mut noticed = Noticed::Nothing;
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    noticed = Noticed::Overflow;
                }
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => {}
                Ok(_) if noticed == Noticed::Nothing => noticed = Noticed::Changes,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return noticed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Noticed, Watch};
    use std::collections::BTreeSet;

    #[test]
    fn changes_in_watched_folders_are_noticed_and_a_lost_event_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let (top, inner) = (folder.path().to_owned(), folder.path().join("a"));
        std::fs::create_dir(&inner).expect("made");
        let mut watch = Watch::new();
        assert_eq!(watch.noticed(), Noticed::Nothing);
        watch.set(&BTreeSet::from([top.clone(), inner.clone()]));
        std::fs::write(inner.join("part"), b"1").expect("written");
        assert_eq!(watch.noticed(), Noticed::Changes);
        assert_eq!(watch.noticed(), Noticed::Nothing);
        watch.set(&BTreeSet::from([top.clone()]));
        std::fs::write(inner.join("part"), b"2").expect("written");
        assert_eq!(watch.noticed(), Noticed::Nothing);
        // A folder that is made again is watched again.
        watch.set(&BTreeSet::from([top.clone(), inner.clone()]));
        std::fs::remove_dir_all(&inner).expect("removed");
        std::fs::create_dir(&inner).expect("made");
        assert_eq!(watch.noticed(), Noticed::Changes);
        watch.set(&BTreeSet::from([top, inner.clone()]));
        std::fs::write(inner.join("part"), b"3").expect("written");
        assert_eq!(watch.noticed(), Noticed::Changes);
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events");
        let limit: usize = limit.expect("read").trim().parse().expect("a number");
        // Equal events in a row count once, so two files take turns.
        for at in 0..limit {
            std::fs::write(inner.join(if at % 2 == 0 { "x" } else { "y" }), b"").expect("written");
        }
        assert_eq!(watch.noticed(), Noticed::Overflow);
    }
}

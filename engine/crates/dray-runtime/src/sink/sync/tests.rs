use super::{Space, SyncPath};
use crate::sink::testing::{key, path, space, store};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_session::sink::SyncGroup;
use dray_store::wrap::{Around, Call, Hook, Operation};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum time for an event that must happen.
const SOON: Duration = Duration::from_secs(20);

/// The sync of the file `slow` waits for a permission. The sync of the file `broken` fails.
struct Slow {
    begun: Mutex<Sender<()>>,
    permitted: Mutex<Receiver<()>>,
    /// First item of each sync that has begun.
    synced: Arc<Mutex<Vec<RelPath>>>,
}

impl Hook for Slow {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if call.operation != Operation::SyncEach {
            return Ok(());
        }
        self.synced.lock_unpoisoned().push(call.path.clone());
        if *call.path == path("broken") {
            return Err(Error::new(ErrorKind::Io, End::Sink, "sync"));
        }
        if *call.path == path("slow") {
            self.begun.lock_unpoisoned().send(()).expect("a test");
            let permitted = self.permitted.lock_unpoisoned().recv_timeout(SOON);
            permitted.expect("a permission");
        }
        Ok(())
    }
}

struct Scene {
    space: Space,
    begun: Receiver<()>,
    permit: Sender<()>,
    synced: Arc<Mutex<Vec<RelPath>>>,
}

impl Scene {
    fn new(folder: &Path) -> Self {
        let (begin, begun) = channel();
        let (permit, permitted) = channel();
        let synced = Arc::default();
        let hook = Slow {
            begun: Mutex::new(begin),
            permitted: Mutex::new(permitted),
            synced: Arc::clone(&synced),
        };
        let store = Arc::new(Around::new(store(folder), hook));
        Self {
            space: space(store, None, "test"),
            begun,
            permit,
            synced,
        }
    }

    /// Creates the partial file of `file`, and writes its bytes.
    fn write(&self, file: &str) -> SyncPath {
        let prepared = self.space.prepare(&path(file), key(), 5, false, None);
        let (open, _) = prepared.expect("begun");
        self.space.write_at(&open, 0, b"bytes").expect("written");
        SyncPath::Partial(open)
    }

    /// Calls `meanwhile` during a sync of the file `slow` in the late group. Returns the result
    /// of this sync.
    fn sync_slowly(&self, meanwhile: impl FnOnce()) -> Result<Vec<(RelPath, Error)>> {
        let (space, slow) = (&self.space, [self.write("slow")]);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| space.sync(SyncGroup::Late, &slow));
            self.begun.recv_timeout(SOON).expect("a sync");
            meanwhile();
            self.permit.send(()).expect("a waiting sync");
            late.join().expect("no panic")
        })
    }
}

#[test]
fn files_and_folders_become_durable_during_a_slow_sync() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene::new(folder.path());
    let fast = [scene.write("fast")];
    let late = scene.sync_slowly(|| {
        for _ in 0..2 {
            let synced = scene.space.sync(SyncGroup::Main, &fast);
            assert_eq!(synced, Ok(Vec::new()));
        }
    });
    assert_eq!(late, Ok(Vec::new()));
    // The first sync of `fast` covered the folder of both partial files.
    let synced = ["slow", "fast", "fast"].map(path);
    assert_eq!(*scene.synced.lock_unpoisoned(), synced);
}

#[test]
fn a_slow_sync_covers_the_folder_of_its_own_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene::new(folder.path());
    assert_eq!(scene.sync_slowly(|| {}), Ok(Vec::new()));
    let synced = [path("slow"), RelPath::root()];
    assert_eq!(*scene.synced.lock_unpoisoned(), synced);
}

#[test]
fn a_failed_sync_fails_a_concurrent_sync_that_needs_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = Scene::new(folder.path());
    let broken = [scene.write("broken")];
    let late = scene.sync_slowly(|| {
        let failed = scene.space.sync(SyncGroup::Main, &broken);
        assert_eq!(failed.map_err(|error| error.kind), Err(ErrorKind::Io));
    });
    assert_eq!(late.map_err(|error| error.kind), Err(ErrorKind::Io));
}

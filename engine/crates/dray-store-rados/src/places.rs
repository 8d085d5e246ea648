//! The placement of a pool, which all stores of a connection share.

use crate::errors::Errno;
use crate::placement::{Commands, Placement, Refresher};
use dray_core::lock::{LockExt, RwLockExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// Pause after a failed refresh. A command to a stopped monitor blocks until its timeout.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// The placement of one pool. If a call finds that the placement is out of date, the call starts a
/// refresh. Calls use the former placement until the refresh has ended.
pub(crate) struct Places {
    current: RwLock<Arc<Placement>>,
    refreshing: Mutex<Refreshing>,
    is_doubted: AtomicBool,
    /// True while a thread refreshes the placement.
    is_asking: AtomicBool,
    begun: Instant,
}

struct Refreshing {
    refresher: Refresher,
    /// Time before which no refresh begins.
    not_before: Duration,
}

impl Places {
    pub(crate) fn new(pool: &str) -> Self {
        Self {
            current: RwLock::default(),
            refreshing: Mutex::new(Refreshing {
                refresher: Refresher::new(pool),
                not_before: Duration::ZERO,
            }),
            is_doubted: AtomicBool::new(false),
            is_asking: AtomicBool::new(false),
            begun: Instant::now(),
        }
    }

    /// Records that an OSD did not answer, so that the next call refreshes the placement.
    pub(crate) fn doubt(&self, errno: Errno) {
        if errno.is_of_the_connection() {
            self.is_doubted.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the placement. If the cluster does not answer, the placement may be out of date or
    /// empty.
    pub(crate) fn now<C>(self: &Arc<Self>, cluster: &Arc<C>) -> Arc<Placement>
    where
        C: Commands + Send + Sync + 'static,
    {
        if self.current.read_unpoisoned().epoch() == 0 {
            // Wait only for the first placement.
            self.refresh(&mut self.refreshing.lock_unpoisoned(), &**cluster);
        } else if self.is_due() && !self.is_asking.swap(true, Ordering::SeqCst) {
            self.refresh_aside(cluster);
        }
        Arc::clone(&self.current.read_unpoisoned())
    }

    fn is_due(&self) -> bool {
        let Ok(refreshing) = self.refreshing.try_lock() else {
            return false;
        };
        let now = self.begun.elapsed();
        let is_doubted = self.is_doubted.load(Ordering::Relaxed);
        now >= refreshing.not_before && (is_doubted || refreshing.refresher.is_due(now))
    }

    /// Refreshes the placement on a thread of its own. A stopped monitor delays its answer by half
    /// a minute. Reads and writes need no monitor, so they must not wait for this answer.
    fn refresh_aside<C>(self: &Arc<Self>, cluster: &Arc<C>)
    where
        C: Commands + Send + Sync + 'static,
    {
        let (places, cluster) = (Arc::clone(self), Arc::clone(cluster));
        let refresh = move || {
            places.refresh(&mut places.refreshing.lock_unpoisoned(), &*cluster);
            places.is_asking.store(false, Ordering::SeqCst);
        };
        let thread = std::thread::Builder::new().name("dray-placement".to_owned());
        if thread.spawn(refresh).is_err() {
            self.is_asking.store(false, Ordering::SeqCst);
        }
    }

    fn refresh(&self, refreshing: &mut Refreshing, cluster: &impl Commands) {
        let now = self.begun.elapsed();
        if now < refreshing.not_before {
            return;
        }
        if self.is_doubted.swap(false, Ordering::Relaxed) {
            refreshing.refresher.doubt();
        }
        match refreshing.refresher.refresh(now, cluster) {
            Ok(false) => {}
            Ok(true) => {
                let placement = Arc::new(refreshing.refresher.placement().clone());
                *self.current.write_unpoisoned() = placement;
            }
            // Without a placement all objects belong to one target, and librados finds the OSDs.
            Err(_) => refreshing.not_before = self.begun.elapsed() + AFTER_FAILURE,
        }
    }
}

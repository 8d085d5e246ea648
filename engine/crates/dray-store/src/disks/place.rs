//! Remembers the disks that were chosen for new files, and reads the free space.

use super::spread::Spread;
use dray_core::RelPath;
use dray_core::lock::LockExt;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two readings of the free space. The value is estimated, not measured.
const FREE_AGE_MAX: Duration = Duration::from_secs(1);

/// Maximum number of files whose chosen disk is remembered; beyond it, the oldest choice is
/// forgotten. The file may then get another disk than the scheduler expected, which costs only
/// speed. A choice takes about 32 bytes.
const CHOICES_MAX: usize = 65_536;

#[derive(Debug)]
struct State {
    spread: Spread,
    read_at: Option<Instant>,
    chosen: HashMap<u64, usize>,
    /// Keys of `chosen`, the oldest first.
    order: VecDeque<u64>,
}

/// Choices of disks, shared by all stores of the same disks in this process.
#[derive(Debug)]
pub(super) struct Placer {
    state: Mutex<State>,
    hasher: RandomState,
}

impl Placer {
    pub(super) fn new(count: usize) -> Self {
        Self {
            state: Mutex::new(State {
                spread: Spread::new(count),
                read_at: None,
                chosen: HashMap::new(),
                order: VecDeque::new(),
            }),
            hasher: RandomState::new(),
        }
    }

    /// Returns the disk that was chosen for `file`, which will have `size` bytes. Chooses a disk if
    /// none was chosen yet, or if the chosen disk has too little room.
    pub(super) fn disk(
        &self,
        file: (&RelPath, &RelPath),
        size: u64,
        free: impl Fn(usize) -> Option<u64>,
    ) -> usize {
        let key = self.key(file);
        self.refresh(free);
        let mut state = self.state.lock_unpoisoned();
        if let Some(disk) = state.chosen.get(&key)
            && state.spread.room(*disk) >= size
        {
            return *disk;
        }
        let disk = state.spread.choose(size, None).unwrap_or(0);
        state.keep(key, disk);
        disk
    }

    /// Returns another disk than `full` with room for `size` bytes.
    pub(super) fn other(
        &self,
        file: (&RelPath, &RelPath),
        size: u64,
        full: usize,
        free: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let key = self.key(file);
        self.state.lock_unpoisoned().read_at = None;
        self.refresh(free);
        let mut state = self.state.lock_unpoisoned();
        let disk = state.spread.choose(size, Some(full));
        let disk = disk.filter(|disk| state.spread.room(*disk) >= size.max(1))?;
        state.keep(key, disk);
        Some(disk)
    }

    pub(super) fn has_room(
        &self,
        disk: usize,
        size: u64,
        free: impl Fn(usize) -> Option<u64>,
    ) -> bool {
        self.refresh(free);
        self.state.lock_unpoisoned().spread.room(disk) >= size
    }

    /// Remembers the disk of a file. Returns the disk that was remembered before.
    pub(super) fn note(&self, file: (&RelPath, &RelPath), disk: usize) -> Option<usize> {
        let key = self.key(file);
        let mut state = self.state.lock_unpoisoned();
        let before = state.chosen.get(&key).copied();
        state.keep(key, disk);
        before
    }

    pub(super) fn promise(&self, disk: usize, bytes: u64) {
        self.state.lock_unpoisoned().spread.promise(disk, bytes);
    }

    pub(super) fn settle(&self, disk: usize, bytes: u64) {
        self.state.lock_unpoisoned().spread.settle(disk, bytes);
    }

    fn key(&self, (top, path): (&RelPath, &RelPath)) -> u64 {
        self.hasher.hash_one((top.as_bytes(), path.as_bytes()))
    }

    /// Reads the free space if the last reading is older than [`FREE_AGE_MAX`]. Does not hold the
    /// lock while it reads.
    fn refresh(&self, free: impl Fn(usize) -> Option<u64>) {
        let now = Instant::now();
        {
            let mut state = self.state.lock_unpoisoned();
            let is_new = |at: Instant| now.saturating_duration_since(at) < FREE_AGE_MAX;
            if state.read_at.is_some_and(is_new) {
                return;
            }
            state.read_at = Some(now);
        }
        for disk in 0.. {
            let Some(bytes) = free(disk) else {
                return;
            };
            self.state.lock_unpoisoned().spread.set_free(disk, bytes);
        }
    }
}

impl State {
    fn keep(&mut self, key: u64, disk: usize) {
        if self.chosen.insert(key, disk).is_none() {
            self.order.push_back(key);
            if self.order.len() > CHOICES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.chosen.remove(&oldest);
            }
        }
    }
}

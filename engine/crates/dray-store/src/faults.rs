//! Storage faults that another program injects into this process.
//!
//! Purpose: `dray chaos` tests how dray handles storage faults. The injector replaces results of
//! the system calls of [`PosixStore`](crate::PosixStore), so the code above handles the faults like
//! real ones.
//!
//! Non-goals: other stores, and calls other than writes and syncs. The wrapper
//! [`chaos`](crate::wrap::chaos) makes any call of any store fail.
//!
//! Invariants: without [`install`], no call changes. With it, a call changes only after the fault
//! was confirmed, so a killed process has confirmed all its faults.

#[cfg(test)]
mod tests;
mod unsynced;

pub(crate) use unsynced::Unsynced;

use crate::null::mix;
use dray_core::lock::LockExt;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use unsynced::Files;

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A write fails with `ENOSPC`.
    NoSpace,
    /// A write fails with `EIO`.
    IoError,
    /// A write writes about half of its bytes, and returns their number.
    ShortWrite,
    /// A sync fails with `EIO`. If it is the sync of one partial file, the bytes that were written
    /// to the file since its last sync become zeros, as after a failed write-back (ext4 then has
    /// unwritten blocks).
    FailedSync,
}

impl Kind {
    /// Returns the kind with this name in a plan of `dray chaos`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "no_space" => Some(Self::NoSpace),
            "io_error" => Some(Self::IoError),
            "short_write" => Some(Self::ShortWrite),
            "failed_sync" => Some(Self::FailedSync),
            _ => None,
        }
    }
}

/// A fault that waits for its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Armed {
    /// Number that confirmations contain.
    pub number: u32,
    /// Kind of the fault.
    pub kind: Kind,
    /// Number of calls to affect.
    pub count: u32,
    /// Probability that the fault affects a call, from 0 to 1.
    pub probability: f64,
    /// Seed of the random choices.
    pub seed: u64,
}

/// Receives the number of each fault immediately before the fault happens. If the function returns
/// false, for example because nobody receives confirmations, the fault does not happen.
pub type Confirm = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// Injects faults into system calls.
pub struct Injector {
    armed: Mutex<Vec<Waiting>>,
    is_armed: AtomicBool,
    confirm: Confirm,
    files: Files,
}

struct Waiting {
    fault: Armed,
    left: u32,
    /// Number of calls so far that the fault could affect.
    calls: u64,
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").finish_non_exhaustive()
    }
}

/// The injector of this process. The system has one set of files for a process, so one injector has
/// to see all its writes and syncs.
static INSTALLED: OnceLock<Injector> = OnceLock::new();

/// Installs the injector of this process. It must be called before the first store is opened.
/// Returns `None` if the process already has an injector.
#[must_use]
pub fn install(confirm: Confirm) -> Option<&'static Injector> {
    let mut is_new = false;
    let injector = INSTALLED.get_or_init(|| {
        is_new = true;
        Injector::new(confirm)
    });
    is_new.then_some(injector)
}

/// Returns the injector of this process.
pub(crate) fn installed() -> Option<&'static Injector> {
    INSTALLED.get()
}

impl Injector {
    pub(crate) fn new(confirm: Confirm) -> Self {
        Self {
            armed: Mutex::default(),
            is_armed: AtomicBool::new(false),
            confirm,
            files: Files::default(),
        }
    }

    /// Lets a fault wait for its calls. Faults are tried in the order in which they were armed. A
    /// fault that affects no call (`count` is 0) is ignored.
    pub fn arm(&self, fault: Armed) {
        if fault.count == 0 {
            return;
        }
        self.armed.lock_unpoisoned().push(Waiting {
            fault,
            left: fault.count,
            calls: 0,
        });
        self.is_armed.store(true, Ordering::Release);
    }

    /// Remembers the bytes that are written to a new partial file, so that a failed sync can lose
    /// them. Returns `None` if the system has no descriptor for it.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Option<Arc<Unsynced>> {
        self.files.watch(fd)
    }

    /// Writes as `pwrite(2)` does. `unit_bytes` is the unit of the length of a short write.
    pub(crate) fn pwrite(
        &self,
        fd: BorrowedFd<'_>,
        bytes: &[u8],
        offset: u64,
        unit_bytes: usize,
    ) -> rustix::io::Result<usize> {
        let half = bytes.len() / 2;
        let half = half - half % unit_bytes;
        let fault = self.next(|kind| match kind {
            Kind::NoSpace | Kind::IoError => true,
            // A write of no bytes would be an error, and not a short write.
            Kind::ShortWrite => half > 0,
            Kind::FailedSync => false,
        });
        match fault {
            Some(Kind::NoSpace) => Err(Errno::NOSPC),
            Some(Kind::IoError) => Err(Errno::IO),
            Some(Kind::ShortWrite) => rustix::io::pwrite(fd, &bytes[..half], offset),
            Some(Kind::FailedSync) | None => rustix::io::pwrite(fd, bytes, offset),
        }
    }

    /// Syncs one file or folder by `sync`.
    pub(crate) fn sync_one(
        &self,
        fd: BorrowedFd<'_>,
        sync: impl FnOnce() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let file = self.files.of(fd);
        // Bytes that are written during the sync may not be durable after it.
        let before = file.as_ref().map(|file| file.take());
        if self.next(|kind| kind == Kind::FailedSync).is_none() {
            return sync();
        }
        if let Some((file, ranges)) = file.zip(before) {
            file.lose(&ranges);
        }
        Err(Errno::IO)
    }

    /// Syncs a file system by `sync`.
    pub(crate) fn sync_all(
        &self,
        sync: impl FnOnce() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        self.files.forget_ranges();
        match self.next(|kind| kind == Kind::FailedSync) {
            None => sync(),
            // No bytes are lost: the system would also report the loss of each file at the next
            // sync of the file.
            Some(_) => Err(Errno::IO),
        }
    }

    /// Returns the fault of the next call, after its confirmation. `may_have` returns true for the
    /// kinds that the call can have.
    fn next(&self, may_have: impl Fn(Kind) -> bool) -> Option<Kind> {
        if !self.is_armed.load(Ordering::Acquire) {
            return None;
        }
        let mut armed = self.armed.lock_unpoisoned();
        let found = armed.iter_mut().find_map(|waiting| {
            if !may_have(waiting.fault.kind) {
                return None;
            }
            waiting.calls += 1;
            let draw = mix(waiting.fault.seed ^ mix(waiting.calls));
            // The upper 53 bits give a number in `0 .. 1` that a double represents exactly.
            let share = (draw >> 11) as f64 / (1u64 << 53) as f64;
            if share >= waiting.fault.probability {
                return None;
            }
            waiting.left -= 1;
            Some(waiting.fault)
        })?;
        armed.retain(|waiting| waiting.left > 0);
        self.is_armed.store(!armed.is_empty(), Ordering::Release);
        drop(armed);
        (self.confirm)(found.number).then_some(found.kind)
    }
}

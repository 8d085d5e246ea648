//! A partial file that a sink has open.

use dray_core::lock::LockExt;
use dray_core::{Layout, Name, RelPath};
use dray_log::FileNumber;
use dray_store::{Partial, PartialId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A partial file that is ready for writes, with its number in the log.
pub struct OpenFile {
    /// Path of the file below the destination.
    pub path: RelPath,
    /// Number of the file in the log.
    pub number: FileNumber,
    /// True if the runtime lets one thread at a time write this file, because writers would
    /// otherwise wait for each other in the store.
    pub takes_one_writer: bool,
    /// Storage targets of the file, if the store chose them when it created the partial file.
    pub layout: Option<Layout>,
    /// Size of the complete file in bytes.
    pub size: u64,
    /// Name of the partial file.
    pub name: Name,
    /// Identity of the partial file, with which the sink opens the file again.
    pub id: PartialId,
    /// True if all unwritten ranges are known to be holes.
    is_one_hole: AtomicBool,
    published: AtomicBool,
    /// True if the name of the partial file is durable.
    name_durable: AtomicBool,
    /// True if bytes of an earlier run were accepted without reading them.
    unread: AtomicBool,
    /// Handle of the partial file. `None` after the sink closed the handle to open other files.
    handle: Mutex<Option<Arc<dyn Partial>>>,
}

impl OpenFile {
    /// Creates the entry of a partial file that was just created, with its handle.
    #[must_use]
    pub fn new(
        path: &RelPath,
        size: u64,
        number: FileNumber,
        name: Name,
        partial: Box<dyn Partial>,
        is_new: bool,
    ) -> Self {
        Self {
            path: path.clone(),
            number,
            takes_one_writer: partial.takes_one_writer(),
            layout: partial.layout(),
            size,
            name,
            id: partial.id(),
            is_one_hole: AtomicBool::new(is_new),
            published: AtomicBool::new(false),
            name_durable: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            handle: Mutex::new(Some(Arc::from(partial))),
        }
    }

    /// Locks the handle, for a caller that uses, opens or closes the file.
    pub fn handle(&self) -> MutexGuard<'_, Option<Arc<dyn Partial>>> {
        self.handle.lock_unpoisoned()
    }

    /// Returns true if all unwritten ranges are known to be holes.
    pub fn is_one_hole(&self) -> bool {
        self.is_one_hole.load(Ordering::Acquire)
    }

    /// Records that unwritten ranges may contain data.
    pub fn set_taken(&self) {
        self.is_one_hole.store(false, Ordering::Release);
    }

    /// Records that the file was published under its final name.
    pub fn set_published(&self) {
        self.published.store(true, Ordering::Release);
    }

    /// Records that the name of the partial file is durable.
    pub fn set_name_durable(&self) {
        self.name_durable.store(true, Ordering::Release);
    }

    /// Returns true if the name of the partial file is durable.
    pub fn is_name_durable(&self) -> bool {
        self.name_durable.load(Ordering::Acquire)
    }

    /// Records that bytes of an earlier run were accepted without reading them.
    pub fn set_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    /// Returns true if bytes of an earlier run were accepted without reading them.
    pub fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    /// Returns true if the file was published under its final name.
    pub fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire)
    }
}

//! The sink's open partial files: a bounded number of handles, whatever the number of files.

use dray_core::lock::LockExt;
use dray_core::{RelPath, Result};
use dray_log::FileNumber;
use dray_store::{Partial, PartialId, PartialRequest, Store};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of open handles: half of the 1024 descriptors that a process has by default. The
/// other half is for folders, streams and files being read.
const OPEN_MAX: usize = 512;

/// A prepared partial file, and its number in the log.
pub struct OpenFile {
    pub(crate) path: RelPath,
    pub(crate) number: FileNumber,
    /// True if unwritten ranges are known to be holes.
    is_one_hole: AtomicBool,
    /// True if its writers are serialised, so that none waits in the store.
    pub(crate) takes_one_writer: bool,
    pub(crate) size: u64,
    pub(crate) name: dray_core::Name,
    id: PartialId,
    published: AtomicBool,
    /// True if bytes of an earlier run were trusted without a read.
    unread: AtomicBool,
    /// Its handle; `None` after it was closed in favour of others.
    handle: Mutex<Option<Arc<dyn Partial>>>,
}

impl OpenFile {
    pub(crate) fn is_one_hole(&self) -> bool {
        self.is_one_hole.load(Ordering::Acquire)
    }

    pub(crate) fn set_taken(&self) {
        self.is_one_hole.store(false, Ordering::Release);
    }

    pub(crate) fn set_published(&self) {
        self.published.store(true, Ordering::Release);
    }

    pub(crate) fn set_unread(&self) {
        self.unread.store(true, Ordering::Release);
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire)
    }

    pub(crate) fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire)
    }
}

/// Opens handles on demand, and closes the oldest if there are too many.
pub(crate) struct Handles {
    store: Arc<dyn Store>,
    opened: Mutex<VecDeque<Weak<OpenFile>>>,
}

impl Handles {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            opened: Mutex::new(VecDeque::new()),
        }
    }

    /// Takes over a partial file that was just begun.
    pub(crate) fn adopt(
        &self,
        path: &RelPath,
        size: u64,
        number: FileNumber,
        name: dray_core::Name,
        partial: Box<dyn Partial>,
        is_new: bool,
    ) -> Arc<OpenFile> {
        let file = Arc::new(OpenFile {
            path: path.clone(),
            number,
            is_one_hole: AtomicBool::new(is_new),
            takes_one_writer: partial.takes_one_writer(),
            size,
            name,
            id: partial.id(),
            published: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            handle: Mutex::new(Some(Arc::from(partial))),
        });
        self.note(&file);
        file
    }

    /// Returns the file's handle, opened again if it was closed.
    ///
    /// # Errors
    /// `NotFound` if the partial file is gone: then none of its ranges is durable.
    pub(crate) fn of(&self, file: &Arc<OpenFile>) -> Result<Arc<dyn Partial>> {
        let mut handle = file.handle.lock_unpoisoned();
        if let Some(handle) = &*handle {
            return Ok(Arc::clone(handle));
        }
        let request = PartialRequest {
            name: file.name.clone(),
            reuse: Some(file.id),
        };
        let opened: Arc<dyn Partial> =
            Arc::from(self.store.begin(&file.path, file.size, &request)?);
        *handle = Some(Arc::clone(&opened));
        drop(handle);
        self.note(file);
        Ok(opened)
    }

    fn note(&self, file: &Arc<OpenFile>) {
        let mut opened = self.opened.lock_unpoisoned();
        opened.push_back(Arc::downgrade(file));
        let oldest = if opened.len() > OPEN_MAX {
            opened.pop_front()
        } else {
            None
        };
        drop(opened);
        if let Some(oldest) = oldest.and_then(|file| file.upgrade()) {
            // A thread that writes with it keeps it alive until then.
            oldest.handle.lock_unpoisoned().take();
        }
    }
}

//! The open handles of the sink's partial files. Their number is bounded, whatever the number of
//! files.

use dray_core::lock::LockExt;
use dray_core::{RelPath, Result};
use dray_link::open_file::OpenFile;
use dray_log::FileNumber;
use dray_store::{Partial, PartialRequest, Store};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of open handles. A process has 1024 descriptors by default. This constant leaves
/// half of them for folders, streams and files that are read.
const OPEN_MAX: usize = 512;

/// Opens handles on demand, and closes the oldest handles if too many are open.
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

    /// Takes the handle of a partial file that was just begun.
    pub(crate) fn adopt(
        &self,
        path: &RelPath,
        size: u64,
        number: FileNumber,
        name: dray_core::Name,
        partial: Box<dyn Partial>,
        is_new: bool,
    ) -> Arc<OpenFile> {
        let file = Arc::new(OpenFile::new(path, size, number, name, partial, is_new));
        self.note(&file);
        file
    }

    /// Returns the file's handle. Opens the file again if its handle was closed.
    ///
    /// # Errors
    /// `NotFound` if the partial file no longer exists. In that case none of its ranges is durable.
    pub(crate) fn of(&self, file: &Arc<OpenFile>) -> Result<Arc<dyn Partial>> {
        let mut handle = file.handle();
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
            // If another thread is using the handle, the handle stays open until the call of that
            // thread ends.
            oldest.handle().take();
        }
    }
}

//! Open files of a memory store. One type of handle serves reading, writing and control files.

use super::tree::{self, Body, Content, Inode, Key, above, now};
use super::{DEVICE, MemoryStore, set};
use crate::store::{ControlFile, Partial, ReadHandle};
use crate::types::{Attributes, PartialId, Publish, ReadState};
use dray_core::lock::RwLockExt;
use dray_core::{ByteRange, ErrorKind, RelPath, Result, Sums};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// An open file of a [`MemoryStore`], for any purpose.
#[derive(Debug)]
pub(super) struct MemoryHandle {
    store: MemoryStore,
    path: RelPath,
    /// Key of the name with which the file was opened. For a partial file, this is the partial
    /// name.
    key: Key,
    /// Number that identifies this handle as the holder of a lock.
    number: u64,
    /// Content of the file. Replacing a control file exchanges the inode.
    inode: RwLock<Arc<Inode>>,
}

impl MemoryHandle {
    pub(super) fn new(store: &MemoryStore, path: &RelPath, key: Key, inode: Arc<Inode>) -> Self {
        static HANDLES: AtomicU64 = AtomicU64::new(1);
        Self {
            store: store.clone(),
            path: path.clone(),
            key,
            number: HANDLES.fetch_add(1, Ordering::Relaxed),
            inode: RwLock::new(inode),
        }
    }

    fn inode(&self) -> Arc<Inode> {
        Arc::clone(&self.inode.read_unpoisoned())
    }

    fn change(&self, operation: &str, end: u64, work: impl FnOnce(&mut Content)) -> Result<()> {
        let inode = self.inode();
        // Limit a file in memory to 1 GiB, because a peer that announces a huge file must not
        // exhaust the host's memory. No test needs a larger file.
        if end > 1 << 30 {
            return Err(self.store.error(ErrorKind::NoSpace, operation, &self.path));
        }
        if let Body::File(content) = &inode.body {
            work(&mut tree::write(content));
            inode.meta().metadata.modified = now();
        }
        Ok(())
    }

    pub(super) fn resize(&self, size: u64) -> Result<()> {
        self.change("set the size of the file", size, |content| {
            content.resize(size as usize);
        })
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.change("write the file", end, |content| {
            content.write_at(offset as usize, bytes);
        })
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let inode = self.inode();
        let Body::File(content) = &inode.body else {
            return 0;
        };
        let content = tree::read(content);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = content.bytes.get(start..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }

    fn sync(&self) {
        let mut tree = self.store.write();
        self.inode().sync();
        // Another file may have taken the name. Make the name durable only if it still refers to
        // this inode.
        let named = tree.names.get(&self.key).map(|inode| inode.number);
        if named == Some(self.inode().number) {
            tree.sync_file(&self.key);
        }
    }
}

impl Drop for MemoryHandle {
    fn drop(&mut self) {
        let free = (self.number, 0, Ordering::AcqRel, Ordering::Relaxed);
        let _ = self
            .inode()
            .locked_by
            .compare_exchange(free.0, free.1, free.2, free.3);
    }
}

impl ReadHandle for MemoryHandle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.read(offset, buffer))
    }

    fn state(&self) -> Result<ReadState> {
        let inode = self.inode();
        let modified = inode.meta().metadata.modified;
        Ok(ReadState {
            size: inode.size(),
            modified,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let rest = ByteRange::between(offset, self.inode().size());
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(self.inode().known_sums())
    }
}

impl Partial for MemoryHandle {
    fn id(&self) -> PartialId {
        PartialId {
            inode: self.inode().number,
            device: DEVICE,
            born: 0,
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    fn punch_hole(&self, range: ByteRange) -> Result<()> {
        self.change("make a hole in the file", range.end(), |content| {
            let all = Arc::make_mut(&mut content.bytes);
            let end = all.len().min(range.end() as usize);
            let start = end.min(range.offset as usize);
            all[start..end].fill(0);
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.read(offset, buffer))
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.resize(size_bytes)
    }

    fn sync(&self) -> Result<()> {
        MemoryHandle::sync(self);
        Ok(())
    }

    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let partial = tree::path_of(&self.key).name();
        let partial = partial.ok_or_else(|| {
            self.store
                .error(ErrorKind::Internal, "publish the file", &self.path)
        })?;
        let inode = self.inode();
        set(&inode, attributes);
        self.store
            .publish(&self.path, &partial, how, Some(inode.number))
    }

    fn abort(&self) -> Result<()> {
        let number = self.inode().number;
        let mut tree = self.store.write();
        let named = tree.names.get(&self.key).map(|inode| inode.number);
        if named == Some(number) {
            tree.names.remove(&self.key);
        }
        Ok(())
    }
}

impl ControlFile for MemoryHandle {
    fn len(&self) -> Result<u64> {
        Ok(self.inode().size())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.read(offset, buffer))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.write(self.inode().size(), bytes)
    }

    fn sync(&self) -> Result<()> {
        MemoryHandle::sync(self);
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.resize(size_bytes)
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        let mut content = Content::default();
        content.write_at(0, bytes);
        let mut tree = self.store.write();
        let inode = tree.put(self.key.clone(), Body::File(RwLock::new(content)), 0o600);
        inode.sync();
        if let Some(folder) = above(&self.key) {
            tree.sync_folder(folder);
        }
        *self.inode.write_unpoisoned() = inode;
        Ok(())
    }

    fn try_lock(&self) -> Result<bool> {
        let inode = self.inode();
        let taken =
            inode
                .locked_by
                .compare_exchange(0, self.number, Ordering::AcqRel, Ordering::Acquire);
        Ok(taken.is_ok() || taken == Err(self.number))
    }

    fn unlock(&self) -> Result<()> {
        let inode = self.inode();
        let _ =
            inode
                .locked_by
                .compare_exchange(self.number, 0, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }
}

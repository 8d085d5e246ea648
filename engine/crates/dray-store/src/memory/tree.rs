//! Names and contents of a memory store. The tree holds the current state and the state that a
//! crash would leave.

use dray_core::lock::{LockExt, RwLockExt};
use dray_core::{Metadata, ModifiedTime, RelPath, Sums};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// A path with zero bytes in place of slashes. Zero sorts before every byte of a name, so in byte
/// order each folder comes directly before its contents, as in a depth-first listing.
pub(super) type Key = Vec<u8>;

pub(super) fn key_of(path: &RelPath) -> Key {
    let slash_to_zero = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    path.as_bytes().iter().map(slash_to_zero).collect()
}

pub(super) fn path_of(key: &[u8]) -> RelPath {
    let zero_to_slash = |byte: &u8| if *byte == 0 { b'/' } else { *byte };
    let bytes: Vec<u8> = key.iter().map(zero_to_slash).collect();
    RelPath::parse(&bytes).unwrap_or_else(|_| RelPath::root())
}

/// Returns the folder of a key; `None` for the root.
pub(super) fn above(key: &[u8]) -> Option<&[u8]> {
    if key.is_empty() {
        return None;
    }
    let end = key.iter().rposition(|byte| *byte == 0).unwrap_or(0);
    Some(&key[..end])
}

/// Returns the key of `name` in the folder of `key`.
pub(super) fn beside(key: &[u8], name: &[u8]) -> Key {
    match above(key) {
        Some(folder) if !folder.is_empty() => [folder, &[0], name].concat(),
        _ => name.to_vec(),
    }
}

/// Content of an inode: a file, a folder or a link.
#[derive(Debug)]
pub(super) enum Body {
    Folder,
    File(RwLock<Content>),
    Link(Vec<u8>),
}

/// The bytes of a file. Until the next write, the current and the durable bytes share one buffer.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Arc<Vec<u8>>,
    durable: Option<Arc<Vec<u8>>>,
}

impl Content {
    pub(super) fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        let all = Arc::make_mut(&mut self.bytes);
        let end = offset + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset..end].copy_from_slice(bytes);
    }

    pub(super) fn resize(&mut self, size: usize) {
        Arc::make_mut(&mut self.bytes).resize(size, 0);
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Meta {
    pub(super) metadata: Metadata,
    /// Stored checksums, with the size and modification time for which they are valid.
    pub(super) sums: Option<(Sums, u64, ModifiedTime)>,
}

/// A file, folder or link, independent of its names.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) body: Body,
    meta: Mutex<Meta>,
    /// Attributes that remain after a crash.
    durable_meta: Mutex<Meta>,
    /// Number of the handle that holds the lock; 0 if no handle holds it.
    pub(super) locked_by: AtomicU64,
}

impl Inode {
    fn new(number: u64, body: Body, mode: u32) -> Self {
        let meta = Meta {
            metadata: Metadata {
                mode,
                modified: now(),
                ..Metadata::default()
            },
            sums: None,
        };
        Self {
            number,
            body,
            durable_meta: Mutex::new(meta.clone()),
            meta: Mutex::new(meta),
            locked_by: AtomicU64::new(0),
        }
    }

    pub(super) fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock_unpoisoned()
    }

    pub(super) fn size(&self) -> u64 {
        match &self.body {
            Body::Folder => 0,
            Body::File(content) => read(content).bytes.len() as u64,
            Body::Link(text) => text.len() as u64,
        }
    }

    /// Returns the stored checksums if the size and modification time have not changed since they
    /// were stored.
    pub(super) fn known_sums(&self) -> Option<Sums> {
        let size = self.size();
        let meta = self.meta();
        let (sums, then, time) = meta.sums?;
        (then == size && time == meta.metadata.modified).then_some(sums)
    }

    pub(super) const fn is_folder(&self) -> bool {
        matches!(self.body, Body::Folder)
    }

    /// Makes the content and attributes durable.
    pub(super) fn sync(&self) {
        let meta = self.meta().clone();
        *self.durable_meta() = meta;
        if let Body::File(content) = &self.body {
            let mut content = write(content);
            content.durable = Some(Arc::clone(&content.bytes));
        }
    }

    fn durable_meta(&self) -> MutexGuard<'_, Meta> {
        self.durable_meta.lock_unpoisoned()
    }

    fn crash(&self) {
        let meta = self.durable_meta().clone();
        *self.meta() = meta;
        if let Body::File(content) = &self.body {
            let mut content = write(content);
            content.bytes = content.durable.clone().unwrap_or_default();
        }
    }
}

/// Names and the inodes to which they refer.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) names: BTreeMap<Key, Arc<Inode>>,
    durable: BTreeMap<Key, Arc<Inode>>,
    next_number: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Arc::new(Inode::new(1, Body::Folder, 0o755));
        let names = BTreeMap::from([(Vec::new(), root)]);
        Self {
            durable: names.clone(),
            names,
            next_number: 2,
        }
    }

    /// Creates an inode with the key `key`. An existing entry with this key is replaced.
    pub(super) fn put(&mut self, key: Key, body: Body, mode: u32) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(self.next_number, body, mode));
        self.next_number += 1;
        self.names.insert(key, Arc::clone(&inode));
        inode
    }

    /// Returns the first name after `key` in key order.
    pub(super) fn after(&self, key: &[u8]) -> Option<(&Key, &Arc<Inode>)> {
        self.names
            .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
            .next()
    }

    /// Returns the first name after all contents of the folder `key`.
    pub(super) fn after_folder(&self, key: &[u8]) -> Option<(&Key, &Arc<Inode>)> {
        // The keys of the folder's contents start with the folder's key and a zero byte. So they
        // all sort before the folder's key followed by the byte 1.
        let end = [key, &[1]].concat();
        self.names
            .range::<[u8], _>((Bound::Included(end.as_slice()), Bound::Unbounded))
            .next()
    }

    pub(super) fn has_children(&self, key: &[u8]) -> bool {
        self.after(key).is_some_and(|(name, _)| is_in(name, key))
    }

    /// Makes a folder and the names in it durable, but not the attributes of its files. Journalling
    /// file systems keep attributes that were set before a durable rename. This store is stricter,
    /// so that tests find missing syncs.
    pub(super) fn sync_folder(&mut self, key: &[u8]) {
        self.keep_folders(key);
        if let Some(folder) = self.names.get(key) {
            folder.sync();
        }
        self.durable
            .retain(|name, _| name.is_empty() || above(name) != Some(key));
        let children = self
            .names
            .iter()
            .filter(|(name, _)| !name.is_empty() && above(name) == Some(key));
        for (name, inode) in children {
            if matches!(inode.body, Body::Link(_)) {
                inode.sync();
            }
            self.durable.insert(name.clone(), Arc::clone(inode));
        }
    }

    /// Makes a file's content durable. The name of a new file becomes durable too, as in
    /// journalling file systems.
    pub(super) fn sync_file(&mut self, key: &[u8]) {
        if let Some(inode) = self.names.get(key).cloned() {
            inode.sync();
            if let Some(folder) = above(key) {
                self.keep_folders(folder);
            }
            self.durable.entry(key.to_vec()).or_insert(inode);
        }
    }

    fn keep_folders(&mut self, key: &[u8]) {
        let mut at = Some(key);
        while let Some(folder) = at {
            if let Some(inode) = self.names.get(folder) {
                let kept = self.durable.entry(folder.to_vec());
                kept.or_insert_with(|| Arc::clone(inode));
            }
            at = above(folder);
        }
    }

    /// Discards all data that is not durable.
    pub(super) fn crash(&mut self) {
        let durable = std::mem::take(&mut self.durable);
        self.names.clear();
        for (name, inode) in durable {
            if above(&name).is_none_or(|folder| self.names.contains_key(folder)) {
                inode.crash();
                inode.locked_by.store(0, Ordering::Release);
                self.names.insert(name, inode);
            }
        }
        self.durable = self.names.clone();
    }
}

pub(super) fn is_in(name: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || (name.starts_with(folder) && name.get(folder.len()) == Some(&0))
}

pub(super) fn read(content: &RwLock<Content>) -> std::sync::RwLockReadGuard<'_, Content> {
    content.read_unpoisoned()
}

pub(super) fn write(content: &RwLock<Content>) -> std::sync::RwLockWriteGuard<'_, Content> {
    content.write_unpoisoned()
}

/// Returns the wall-clock time as a modification time.
pub(super) fn now() -> ModifiedTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    ModifiedTime {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

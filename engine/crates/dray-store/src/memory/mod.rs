//! A store in memory, for tests: it keeps apart what is written and what is durable.

mod list;
mod tree;

use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store};
use crate::targets::{TargetMap, Targets};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileKind, FileState, FreeSpace, ListOptions, MadeDir,
    PartialId, PartialRequest, Publish, ReadPurpose, ReadState, SyncItem, Target,
};
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::{ByteRange, End, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Sums};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tree::{Body, Content, Inode, Key, Tree, above, beside, key_of, now};

/// The device number of everything in memory.
const DEVICE: u64 = 0;

/// Files, folders and links in memory.
///
/// Clones share one tree, so that a test can open the same files as a source and as a sink.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    end: End,
    tree: Arc<RwLock<Tree>>,
    targets: Arc<Targets>,
}

impl MemoryStore {
    /// An empty root.
    #[must_use]
    pub fn new(end: End) -> Self {
        Self::with_targets(end, TargetMap::default())
    }

    /// An empty root whose folders lie on these targets.
    #[must_use]
    pub fn with_targets(end: End, map: TargetMap) -> Self {
        Self {
            end,
            tree: Arc::new(RwLock::new(Tree::new())),
            targets: Arc::new(Targets::new(map)),
        }
    }

    /// The same files, seen from another end.
    #[must_use]
    pub fn seen_from(&self, end: End) -> Self {
        Self {
            end,
            ..self.clone()
        }
    }

    /// Forgets everything that was not synced: contents since their last sync, names since their
    /// folder's. Locks fall. Handles opened before must not be used any more.
    pub fn crash(&self) {
        self.write().crash();
    }

    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, kind: ErrorKind, operation: &str, path: &RelPath) -> Error {
        Error::new(kind, self.end, operation)
            .file(path)
            .cause("in memory")
    }

    /// Fails unless the folder of `key` is there, and says what is wrong on the way to it.
    fn check_folder(&self, tree: &Tree, key: &[u8], operation: &str) -> Result<()> {
        let Some(folder) = above(key) else {
            return Err(self.error(ErrorKind::IsADirectory, operation, &RelPath::root()));
        };
        if tree
            .names
            .get(folder)
            .is_some_and(|inode| inode.is_folder())
        {
            return Ok(());
        }
        let path = tree::path_of(key);
        let mut at = Some(folder);
        while let Some(folder) = at {
            match tree.names.get(folder).map(|inode| &inode.body) {
                Some(Body::Link(_)) => {
                    return Err(self.error(ErrorKind::PathEscapes, operation, &path));
                }
                Some(Body::File(_)) => {
                    return Err(self.error(ErrorKind::NotADirectory, operation, &path));
                }
                Some(Body::Folder) | None => at = above(folder),
            }
        }
        Err(self.error(ErrorKind::NotFound, operation, &path))
    }

    fn find(&self, path: &RelPath, operation: &str) -> Result<Arc<Inode>> {
        let key = key_of(path);
        let tree = self.read();
        if let Some(inode) = tree.names.get(&key) {
            return Ok(Arc::clone(inode));
        }
        self.check_folder(&tree, &key, operation)?;
        Err(self.error(ErrorKind::NotFound, operation, path))
    }

    fn publish(
        &self,
        path: &RelPath,
        partial: &Name,
        how: Publish,
        wanted: Option<u64>,
    ) -> Result<()> {
        let operation = "publish the file";
        let key = key_of(path);
        let partial = beside(&key, partial.as_bytes());
        let mut tree = self.write();
        self.check_folder(&tree, &key, operation)?;
        let found = tree.names.get(&partial).cloned();
        let found = found.filter(|inode| wanted.is_none_or(|number| inode.number == number));
        let Some(inode) = found else {
            return Err(self.error(ErrorKind::NotFound, operation, path));
        };
        match tree.names.get(&key) {
            Some(other) if other.is_folder() => {
                return Err(self.error(ErrorKind::IsADirectory, operation, path));
            }
            Some(_) if how == Publish::IfAbsent => {
                return Err(self.error(ErrorKind::AlreadyExists, operation, path));
            }
            _ => {}
        }
        tree.names.remove(&partial);
        tree.names.insert(key, inode);
        Ok(())
    }

    fn handle(&self, path: &RelPath, key: Key, inode: Arc<Inode>) -> MemoryHandle {
        static HANDLES: AtomicU64 = AtomicU64::new(1);
        MemoryHandle {
            store: self.clone(),
            path: path.clone(),
            key,
            number: HANDLES.fetch_add(1, Ordering::Relaxed),
            inode: RwLock::new(inode),
        }
    }
}

fn set(inode: &Inode, attributes: &Attributes<'_>) {
    let size = inode.size();
    let mut meta = inode.meta();
    meta.metadata = attributes.metadata.clone();
    meta.metadata.mode &= 0o7777;
    let modified = meta.metadata.modified;
    meta.sums = attributes.sums.map(|sums| (sums, size, modified));
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_write: true,
            atomic_rename: true,
            publish_if_absent: true,
            publish_replace: true,
            can_hold_log: true,
            time_precision_nanoseconds: 1,
            xattrs: true,
            symlinks: true,
            mode: true,
            path_bytes_max: PATH_LENGTH_MAX,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.all()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        self.check_folder(&self.read(), &key_of(path), "find the target of the file")?;
        let folder = path.parent().unwrap_or_else(RelPath::root);
        Ok(Layout::Single(self.targets.of(folder.as_bytes(), DEVICE)))
    }

    fn free_space(&self, _path: &RelPath) -> Result<FreeSpace> {
        Ok(FreeSpace {
            free_bytes: u64::MAX,
            total_bytes: u64::MAX,
        })
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        Ok(Box::new(list::MemoryLister::new(self, top, options)?))
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        let operation = "open the file";
        let inode = self.find(path, operation)?;
        match inode.body {
            Body::File(_) => Ok(Box::new(self.handle(path, key_of(path), inode))),
            Body::Folder => Err(self.error(ErrorKind::IsADirectory, operation, path)),
            Body::Link(_) => Err(self.error(ErrorKind::PathEscapes, operation, path)),
        }
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let inode = match self.find(path, "look at the file") {
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let meta = inode.meta().metadata.clone();
        Ok(Some(FileState {
            kind: match inode.body {
                Body::Folder => FileKind::Directory,
                Body::File(_) => FileKind::File,
                Body::Link(_) => FileKind::Symlink,
            },
            size: inode.size(),
            modified: meta.modified,
            mode: meta.mode,
            inode: inode.number,
            device: DEVICE,
        }))
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        let inode = self.find(path, "read the checksums of the file")?;
        let size = inode.size();
        let meta = inode.meta();
        let fits =
            |(sums, then, time)| (then == size && time == meta.metadata.modified).then_some(sums);
        Ok(meta.sums.and_then(fits))
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        let key = key_of(path);
        let operation = "make the folder";
        let mut tree = self.write();
        match tree.names.get(&key) {
            Some(inode) if inode.is_folder() => return Ok(MadeDir::Existed),
            Some(_) => return Err(self.error(ErrorKind::NotADirectory, operation, path)),
            None => {}
        }
        self.check_folder(&tree, &key, operation)?;
        tree.put(key, Body::Folder, 0o700);
        Ok(MadeDir::Created)
    }

    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let inode = self.find(path, "set the attributes of the folder")?;
        set(&inode, &Attributes::of(metadata));
        Ok(())
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()> {
        let key = key_of(path);
        let partial_key = beside(&key, partial.as_bytes());
        {
            let mut tree = self.write();
            self.check_folder(&tree, &key, "make the link")?;
            let body = Body::Link(text.to_vec());
            let inode = tree.put(partial_key, body, 0o777);
            inode.meta().metadata.modified = metadata.modified;
        }
        let made = self.publish(path, partial, how, None);
        if made.is_err() {
            self.discard(path, partial)?;
        }
        made
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        let operation = "begin the file";
        let key = key_of(path);
        let partial = beside(&key, request.name.as_bytes());
        let mut tree = self.write();
        self.check_folder(&tree, &key, operation)?;
        let inode = match request.reuse {
            None => tree.put(partial.clone(), Body::File(RwLock::default()), 0o600),
            Some(id) => {
                let found = tree.names.get(&partial).cloned();
                let wanted = (id.inode, id.device);
                found
                    .filter(|inode| (inode.number, DEVICE) == wanted)
                    .ok_or_else(|| self.error(ErrorKind::NotFound, operation, path))?
            }
        };
        let handle = self.handle(path, partial, inode);
        drop(tree);
        handle.resize(size_bytes)?;
        Ok(Box::new(handle))
    }

    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        attributes: &Attributes<'_>,
    ) -> Result<()> {
        let key = key_of(path);
        let partial = beside(&key, partial.as_bytes());
        let mut content = Content::default();
        content.write_at(0, bytes);
        let mut tree = self.write();
        self.check_folder(&tree, &key, "write the file")?;
        let inode = tree.put(partial, Body::File(RwLock::new(content)), 0o600);
        set(&inode, attributes);
        Ok(())
    }

    fn publish_small(&self, path: &RelPath, partial: &Name, how: Publish) -> Result<()> {
        self.publish(path, partial, how, None)
    }

    fn discard(&self, path: &RelPath, partial: &Name) -> Result<()> {
        let key = beside(&key_of(path), partial.as_bytes());
        self.write().names.remove(&key);
        Ok(())
    }

    fn sync_all(&self, items: &[SyncItem<'_>]) -> Result<()> {
        let mut tree = self.write();
        for item in items {
            let (path, key) = match *item {
                SyncItem::Folder(path) | SyncItem::File(path) => (path, key_of(path)),
                SyncItem::Partial { path, name } => (path, beside(&key_of(path), name.as_bytes())),
            };
            if !tree.names.contains_key(&key) {
                return Err(self.error(ErrorKind::NotFound, "sync", path));
            }
            match item {
                SyncItem::Folder(_) => tree.sync_folder(&key),
                SyncItem::File(_) | SyncItem::Partial { .. } => tree.sync_file(&key),
            }
        }
        Ok(())
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        let key = key_of(path);
        let mut tree = self.write();
        if key.is_empty() {
            return Err(self.error(ErrorKind::IsADirectory, "remove", path));
        }
        if tree.has_children(&key) {
            return Err(self.error(ErrorKind::AlreadyExists, "remove", path));
        }
        tree.names.remove(&key);
        Ok(())
    }

    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        let operation = "open the control file";
        let key = key_of(path);
        let makes = matches!(mode, ControlMode::Create | ControlMode::CreateNew);
        let folder = path.parent().filter(|_| makes);
        if let Some(folder) = folder
            && self.stat(&folder)?.is_none()
        {
            self.make_dir(&folder)?;
        }
        let mut tree = self.write();
        self.check_folder(&tree, &key, operation)?;
        let inode = match tree.names.get(&key).cloned() {
            Some(_) if mode == ControlMode::CreateNew => {
                return Err(self.error(ErrorKind::AlreadyExists, operation, path));
            }
            Some(inode) => inode,
            None if makes => tree.put(key.clone(), Body::File(RwLock::default()), 0o600),
            None => return Err(self.error(ErrorKind::NotFound, operation, path)),
        };
        Ok(Box::new(self.handle(path, key, inode)))
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        let key = key_of(path);
        let mut tree = self.write();
        if tree.names.remove(&key).is_some()
            && let Some(folder) = above(&key)
        {
            tree.sync_folder(folder);
        }
        Ok(())
    }

    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>> {
        let tree = self.read();
        let key = key_of(folder);
        let names = tree.names.keys().filter(|name| above(name) == Some(&key));
        Ok(names
            .filter_map(|name| tree::path_of(name).name())
            .collect())
    }
}

/// An open file of a [`MemoryStore`], for whatever purpose.
#[derive(Debug)]
struct MemoryHandle {
    store: MemoryStore,
    path: RelPath,
    /// The name it was opened by; of a partial file, the partial one.
    key: Key,
    /// Tells who holds a lock.
    number: u64,
    /// Exchanged when a control file is replaced.
    inode: RwLock<Arc<Inode>>,
}

impl MemoryHandle {
    fn inode(&self) -> Arc<Inode> {
        Arc::clone(&self.inode.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, operation: &str, end: u64, work: impl FnOnce(&mut Content)) -> Result<()> {
        let inode = self.inode();
        // A gigabyte is plenty for a test, and no claim may take the host's memory.
        if end > 1 << 30 {
            return Err(self.store.error(ErrorKind::NoSpace, operation, &self.path));
        }
        if let Body::File(content) = &inode.body {
            work(&mut tree::write(content));
            inode.meta().metadata.modified = now();
        }
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
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
        // Its name only while it still has that name.
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
}

impl Partial for MemoryHandle {
    fn id(&self) -> PartialId {
        PartialId {
            inode: self.inode().number,
            device: DEVICE,
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
        self.store.write().names.remove(&self.key);
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
        *self.inode.write().unwrap_or_else(PoisonError::into_inner) = inode;
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

//! A store in memory for tests. It keeps written data and durable data apart, so that a test can
//! simulate a crash.

mod handle;
mod list;
mod tree;

use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store};
use crate::targets::{TargetMap, Targets};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileKind, FileState, FreeSpace, ListOptions, MadeDir,
    PartialId, PartialRequest, Publish, ReadPurpose, SyncItem, Target,
};
use dray_core::lock::RwLockExt;
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::{ByteRange, End, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Sums};
use handle::MemoryHandle;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tree::{Body, Content, Inode, Tree, above, beside, key_of};

/// Device number of all files and folders in memory.
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
    /// Creates an empty root.
    #[must_use]
    pub fn new(end: End) -> Self {
        Self::with_targets(end, TargetMap::default())
    }

    /// Creates an empty root. `map` assigns its folders to storage targets.
    #[must_use]
    pub fn with_targets(end: End, map: TargetMap) -> Self {
        Self {
            end,
            tree: Arc::new(RwLock::new(Tree::new())),
            targets: Arc::new(Targets::new(map)),
        }
    }

    /// Returns a store of the same files for use at another end.
    #[must_use]
    pub fn seen_from(&self, end: End) -> Self {
        Self {
            end,
            ..self.clone()
        }
    }

    /// Simulates a crash of the host. Content that was written since the last sync of its file is
    /// lost. Names that were created since the last sync of their folder are lost. All locks are
    /// released. Handles opened before the crash must not be used afterwards.
    pub fn crash(&self) {
        self.write().crash();
    }

    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read_unpoisoned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write_unpoisoned()
    }

    fn error(&self, kind: ErrorKind, operation: &str, path: &RelPath) -> Error {
        Error::new(kind, self.end, operation)
            .file(path)
            .cause("in memory")
    }

    /// Fails if the folder of `key` does not exist. The kind of the error tells whether an entry on
    /// the path is a link, is a file, or is missing.
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
            sets_times: true,
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
        self.check_folder(
            &self.read(),
            &key_of(path),
            "find the storage device of the file",
        )?;
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
            Body::File(_) => Ok(Box::new(MemoryHandle::new(self, path, key_of(path), inode))),
            Body::Folder => Err(self.error(ErrorKind::IsADirectory, operation, path)),
            Body::Link(_) => Err(self.error(ErrorKind::PathEscapes, operation, path)),
        }
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let inode = match self.find(path, "read the attributes of the file") {
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
        Ok(inode.known_sums())
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        let key = key_of(path);
        let operation = "create the folder";
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
            self.check_folder(&tree, &key, "create the link")?;
            if tree.names.contains_key(&partial_key) {
                return Err(self.error(ErrorKind::Busy, "create the link", path));
            }
            let body = Body::Link(text.to_vec());
            let inode = tree.put(partial_key, body, 0o777);
            inode.meta().metadata.modified = metadata.modified;
        }
        let made = self.publish(path, partial, how, None);
        if made.is_err() {
            self.discard(path, partial, None)?;
        }
        made
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        let operation = "create the partial file";
        let key = key_of(path);
        let partial = beside(&key, request.name.as_bytes());
        let mut tree = self.write();
        self.check_folder(&tree, &key, operation)?;
        let inode = match request.reuse {
            None if tree.names.contains_key(&partial) => {
                return Err(self.error(ErrorKind::AlreadyExists, operation, path));
            }
            None => tree.put(partial.clone(), Body::File(RwLock::default()), 0o600),
            Some(id) => {
                let found = tree.names.get(&partial).cloned();
                let wanted = (id.inode, id.device);
                found
                    .filter(|inode| (inode.number, DEVICE) == wanted)
                    .ok_or_else(|| self.error(ErrorKind::NotFound, operation, path))?
            }
        };
        let handle = MemoryHandle::new(self, path, partial, inode);
        drop(tree);
        handle.resize(size_bytes)?;
        Ok(Box::new(handle))
    }

    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        _holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        let operation = "write the file";
        let key = key_of(path);
        let partial = beside(&key, partial.as_bytes());
        let mut content = Content::default();
        content.write_at(0, bytes);
        let mut tree = self.write();
        self.check_folder(&tree, &key, operation)?;
        if tree.names.contains_key(&partial) {
            return Err(self.error(ErrorKind::AlreadyExists, operation, path));
        }
        let inode = tree.put(partial, Body::File(RwLock::new(content)), 0o600);
        set(&inode, attributes);
        Ok(PartialId {
            inode: inode.number,
            device: DEVICE,
            born: 0,
        })
    }

    fn publish_small(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
        how: Publish,
    ) -> Result<()> {
        self.publish(path, partial, how, Some(id.inode))
    }

    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()> {
        let key = beside(&key_of(path), partial.as_bytes());
        let mut tree = self.write();
        let found = tree.names.get(&key).map(|inode| (inode.number, DEVICE));
        if only.is_none_or(|only| found == Some((only.inode, only.device))) {
            tree.names.remove(&key);
        }
        Ok(())
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut tree = self.write();
        let sync = |item: &SyncItem<'_>| {
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
            Ok(())
        };
        Ok(items.iter().map(sync).collect())
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
        Ok(Box::new(MemoryHandle::new(self, path, key, inode)))
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

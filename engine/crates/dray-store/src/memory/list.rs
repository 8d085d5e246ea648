//! Lists a memory store in key order. Each item costs one look-up, and the lister stores no list of
//! names.

use super::tree::{Body, Inode, Key, above, is_in, key_of, path_of};
use super::{DEVICE, MemoryStore};
use crate::store::{Lister, unsupported};
use crate::types::{ListOptions, Listed};
use dray_core::options::Links;
use dray_core::{EntryKind, ErrorKind, Layout, RelPath, Result};
use std::sync::Arc;

pub(super) struct MemoryLister {
    store: MemoryStore,
    options: ListOptions,
    /// Top of the listing: the folder that contains all listed entries, or the only listed entry.
    top: Key,
    /// Folders whose start was returned and whose end was not.
    open: Vec<Key>,
    /// Key of the item returned last.
    last: Key,
    /// True if the last item is a folder whose contents are skipped.
    skips: bool,
    /// The top, if the options request an item for the top itself.
    first: Option<Arc<Inode>>,
    entered: bool,
}

impl MemoryLister {
    pub(super) fn new(store: &MemoryStore, top: &RelPath, options: &ListOptions) -> Result<Self> {
        if options.links == Links::Follow {
            let error = store.error(ErrorKind::InvalidRequest, "list", top);
            return Err(error.cause("links in memory are not followed"));
        }
        let inode = store.find(top, "list")?;
        let contents = top.is_root() || options.contents;
        if contents && !inode.is_folder() {
            return Err(store.error(ErrorKind::NotADirectory, "list the folder", top));
        }
        let key = key_of(top);
        Ok(Self {
            store: store.clone(),
            options: *options,
            last: key.clone(),
            top: key,
            open: Vec::new(),
            skips: false,
            first: (!contents).then_some(inode),
            entered: false,
        })
    }

    fn item(&mut self, key: &Key, inode: &Inode) -> Result<Listed> {
        let path = path_of(key);
        let name = path.name().ok_or_else(|| {
            self.store
                .error(ErrorKind::Internal, "list", &RelPath::root())
        })?;
        let mut metadata = inode.meta().metadata.clone();
        if !self.options.xattrs {
            metadata.xattrs.clear();
        }
        let depth = self.open.len();
        let kind = match &inode.body {
            Body::Folder if !self.options.recursive => {
                self.skips = true;
                let error = self.store.error(ErrorKind::IsADirectory, "copy", &path);
                return Err(error.remedy("ask for a recursive copy"));
            }
            Body::Folder => {
                self.open.push(key.clone());
                self.entered = true;
                EntryKind::Directory
            }
            Body::File(_) => EntryKind::File {
                size: inode.size(),
                sparse: false,
            },
            Body::Link(_) if self.options.links == Links::Refuse => {
                let cause = "the entry is a symbolic link, and the request refuses links";
                return Err(unsupported(self.store.end, "list", &path, cause));
            }
            Body::Link(text) => EntryKind::Symlink {
                target: text.clone(),
            },
        };
        Ok(self.listed(key, depth, name, kind, metadata))
    }

    fn listed(
        &self,
        key: &Key,
        depth: usize,
        name: dray_core::Name,
        kind: EntryKind,
        metadata: dray_core::Metadata,
    ) -> Listed {
        let folder = match kind {
            EntryKind::Directory | EntryKind::DirectoryEnd => key.as_slice(),
            _ => above(key).unwrap_or_default(),
        };
        let target = self.store.targets.of(path_of(folder).as_bytes(), DEVICE);
        Listed {
            depth,
            name,
            kind,
            metadata,
            layout: Layout::Single(target),
            identity: Vec::new(),
        }
    }

    /// Ends the innermost open folder.
    fn leave(&mut self) -> Option<Listed> {
        let key = self.open.pop()?;
        let name = path_of(&key).name()?;
        let found = self.store.read().names.get(&key).cloned();
        let metadata = found.map(|inode| inode.meta().metadata.clone());
        let mut metadata = metadata.unwrap_or_default();
        if !self.options.xattrs {
            metadata.xattrs.clear();
        }
        let depth = self.open.len();
        Some(self.listed(&key, depth, name, EntryKind::DirectoryEnd, metadata))
    }

    /// Returns the next name in key order that the options do not exclude.
    fn step(&self) -> Option<(Key, Arc<Inode>)> {
        let tree = self.store.read();
        let mut last = self.last.clone();
        let mut skips = self.skips;
        loop {
            let found = if skips {
                tree.after_folder(&last)
            } else {
                tree.after(&last)
            };
            let (key, inode) = found?;
            if !is_in(key, &self.top) {
                return None;
            }
            let is_reserved = path_of(key).name().is_some_and(|name| name.is_reserved());
            let is_wanted = match self.options.own {
                false => !is_reserved,
                true => is_reserved || inode.is_folder(),
            };
            if is_wanted {
                return Some((key.clone(), Arc::clone(inode)));
            }
            last.clone_from(key);
            skips = true;
        }
    }
}

impl Iterator for MemoryLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entered = false;
        if let Some(inode) = self.first.take() {
            let top = self.top.clone();
            return Some(self.item(&top, &inode));
        }
        let found = if self.open.is_empty() && self.skips && self.last == self.top {
            None
        } else {
            self.step()
        };
        if let Some(open) = self.open.last()
            && !found.as_ref().is_some_and(|(key, _)| is_in(key, open))
        {
            return self.leave().map(Ok);
        }
        let (key, inode) = found?;
        self.skips = false;
        self.last.clone_from(&key);
        Some(self.item(&key, &inode))
    }
}

impl Lister for MemoryLister {
    fn skip_folder(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.open.pop();
            self.skips = true;
        }
    }
}

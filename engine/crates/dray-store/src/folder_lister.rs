//! Lists stores that return one folder at a time. Holds one folder of each level, and at most
//! [`DEPTH_MAX`] levels.

use crate::store::Lister;
use crate::types::{FileKind, FileState, ListOptions, Listed};
use dray_core::{
    End, EntryKind, Error, ErrorKind, Layout, Metadata, ModifiedTime, Name, RelPath, Result,
    TargetId,
};
use std::vec::IntoIter;

/// Maximum depth of folders: a server can invent any number (guess, revisit).
const DEPTH_MAX: usize = 256;

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Name of the entry in the folder.
    pub name: Name,
    /// Size of a file in bytes; `None` for a folder.
    pub size: Option<u64>,
    /// Time of the last modification.
    pub modified: ModifiedTime,
}

/// Lists depth first, files before folders, each by name. `entries` returns the entries of a
/// folder.
pub struct FolderLister<F> {
    entries: F,
    options: ListOptions,
    top: Option<(RelPath, FolderEntry)>,
    levels: Vec<Level>,
    is_entered: bool,
}

struct Level {
    path: RelPath,
    /// Entry of the folder; `None` for a top of which only the contents are listed.
    entry: Option<FolderEntry>,
    left: Option<IntoIter<FolderEntry>>,
}

impl<F: FnMut(&RelPath) -> Result<Vec<FolderEntry>>> FolderLister<F> {
    /// Lists `top`, which has the `state` in its store.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without a state; [`ErrorKind::NotADirectory`] if the contents of a
    /// file are requested.
    pub fn new(
        top: &RelPath,
        state: Option<FileState>,
        options: &ListOptions,
        entries: F,
    ) -> Result<Self> {
        let failed = |kind, cause: &str| {
            let error = Error::new(kind, End::Source, "list");
            Err(error.file(top).cause(cause))
        };
        let Some(state) = state else {
            return failed(ErrorKind::NotFound, "the store has no such file or folder");
        };
        let is_folder = state.kind == FileKind::Directory;
        let entry = top.name().map(|name| FolderEntry {
            name,
            size: (!is_folder).then_some(state.size),
            modified: state.modified,
        });
        let mut lister = Self {
            entries,
            options: *options,
            top: None,
            levels: Vec::new(),
            is_entered: false,
        };
        match entry.filter(|_| !options.contents) {
            Some(entry) => lister.top = Some((top.clone(), entry)),
            None if is_folder => lister.enter(top.clone(), None),
            None => return failed(ErrorKind::NotADirectory, "it is a file"),
        }
        Ok(lister)
    }

    fn enter(&mut self, path: RelPath, entry: Option<FolderEntry>) {
        let left = None;
        self.levels.push(Level { path, entry, left });
    }

    fn depth(&self) -> usize {
        let named = self.levels.iter().filter(|level| level.entry.is_some());
        named.count()
    }

    fn item(&mut self, path: RelPath, entry: FolderEntry) -> Result<Listed> {
        let depth = self.depth();
        let Some(size) = entry.size else {
            if !self.options.recursive {
                let error = Error::new(ErrorKind::IsADirectory, End::Source, "copy");
                let error = error.file(&path).cause("it is a folder");
                return Err(error.remedy("add --recursive (-r) to copy it"));
            }
            if depth >= DEPTH_MAX {
                let error = Error::new(ErrorKind::LimitExceeded, End::Source, "list");
                let cause = format!("more than {DEPTH_MAX} nested folders");
                let error = error.file(&path).cause(cause);
                return Err(error.remedy("copy the innermost folders by themselves"));
            }
            self.enter(path, Some(entry.clone()));
            self.is_entered = true;
            return Ok(listed(depth, entry, EntryKind::Directory));
        };
        let sparse = false;
        Ok(listed(depth, entry, EntryKind::File { size, sparse }))
    }
}

fn listed(depth: usize, entry: FolderEntry, kind: EntryKind) -> Listed {
    let mode = match entry.size {
        Some(_) => 0o644,
        None => 0o755,
    };
    Listed {
        depth,
        name: entry.name,
        kind,
        metadata: Metadata {
            mode,
            modified: entry.modified,
            xattrs: Vec::new(),
        },
        layout: Layout::Single(TargetId(0)),
        identity: Vec::new(),
    }
}

impl<F: FnMut(&RelPath) -> Result<Vec<FolderEntry>>> Iterator for FolderLister<F> {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.is_entered = false;
        if let Some((path, entry)) = self.top.take() {
            return Some(self.item(path, entry));
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(left) = &mut level.left else {
                let found = (self.entries)(&level.path);
                let (mut entries, error) = match found {
                    Ok(entries) => (entries, None),
                    Err(error) => (Vec::new(), Some(error)),
                };
                entries
                    .sort_by_cached_key(|one| (one.size.is_none(), one.name.as_bytes().to_vec()));
                level.left = Some(entries.into_iter());
                match error {
                    Some(error) => return Some(Err(error)),
                    None => continue,
                }
            };
            let Some(entry) = left.next() else {
                let entry = self.levels.pop()?.entry?;
                return Some(Ok(listed(self.depth(), entry, EntryKind::DirectoryEnd)));
            };
            // dray keeps nothing of its own in a store that it only reads.
            if entry.name.is_reserved() || self.options.own {
                continue;
            }
            let path = level.path.join(&entry.name);
            return Some(path.and_then(|path| self.item(path, entry)));
        }
    }
}

impl<F: FnMut(&RelPath) -> Result<Vec<FolderEntry>> + Send> Lister for FolderLister<F> {
    fn skip_folder(&mut self) {
        if std::mem::take(&mut self.is_entered) {
            self.levels.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_end_are_listed_to_a_bound() {
        let unknown = ModifiedTime {
            seconds: 0,
            nanoseconds: 0,
        };
        let endless = |_: &RelPath| {
            Ok(vec![FolderEntry {
                name: Name::new(b"a")?,
                size: None,
                modified: unknown,
            }])
        };
        let root = FileState {
            kind: FileKind::Directory,
            size: 0,
            modified: unknown,
            mode: 0o755,
            inode: 0,
            device: 0,
        };
        let options = ListOptions {
            contents: true,
            recursive: true,
            ..ListOptions::default()
        };
        let lister = FolderLister::new(&RelPath::root(), Some(root), &options, endless);
        let mut found = lister.expect("a folder").take(2 * DEPTH_MAX);
        let error = found.find_map(Result::err).expect("a bound");
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        let ends =
            found.filter(|item| matches!(item, Ok(end) if end.kind == EntryKind::DirectoryEnd));
        assert!(ends.count() > 0, "the folders above still end");
    }
}

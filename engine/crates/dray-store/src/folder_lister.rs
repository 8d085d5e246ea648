//! Lists the trees of stores that return the entries of one folder at a time. The lister holds the
//! entries of one folder per level, for at most [`DEPTH_MAX`] levels.

use crate::store::Lister;
use crate::types::{FileKind, FileState, ListOptions, Listed};
use dray_core::{
    End, EntryKind, Error, ErrorKind, Layout, Metadata, ModifiedTime, Name, RelPath, Result,
    TargetId,
};
use std::vec::IntoIter;

/// Maximum depth of folders; a deeper folder is an error item of the listing. The limit bounds
/// memory, because a faulty server can report folders without end. The limit excludes no path of up
/// to 1024 bytes, the length that every store allows: such a path has at most 512 names.
const DEPTH_MAX: usize = 512;

/// A store that returns the entries of one folder at a time.
pub trait FolderSource: Send {
    /// An entry of a folder, in the form that the store reports.
    type Entry: Send;

    /// Returns the end of the transfer that errors report.
    fn end(&self) -> End {
        End::Source
    }

    /// Returns true if the store may contain dray's partial files and logs.
    fn has_own_names(&self) -> bool {
        false
    }

    /// Returns the entries of a folder, in any order.
    ///
    /// # Errors
    /// An error if the folder cannot be read. The listing continues with the next entry.
    fn entries(&mut self, folder: &RelPath) -> Result<FolderEntries<Self::Entry>>;

    /// Returns true if the entry is a folder.
    fn is_folder(entry: &Self::Entry) -> bool;

    /// Returns the size, times and other listed properties of the entry.
    ///
    /// # Errors
    /// An error if the entry cannot be copied. The listing continues with the next entry.
    fn state(&mut self, path: &RelPath, entry: Self::Entry) -> Result<EntryState>;
}

/// Entries of a folder.
#[derive(Debug)]
pub struct FolderEntries<E> {
    /// The entries of the folder. Each entry has a name, or an error if its name is invalid.
    pub entries: Vec<(Result<Name>, E)>,
    /// Set if the folder may have more entries than the store returned.
    pub error: Option<Error>,
}

impl<E> Default for FolderEntries<E> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            error: None,
        }
    }
}

/// Properties of an entry in a listing, other than its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryState {
    /// Size of a file in bytes; ignored for a folder.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
    /// Targets that hold the entry's bytes.
    pub layout: Layout,
    /// Version of the content, as in [`Listed::identity`].
    pub identity: Vec<u8>,
}

/// An entry of a folder, for [`FolderLister::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Name of the entry in the folder.
    pub name: Name,
    /// Size of a file in bytes; `None` for a folder.
    pub size: Option<u64>,
    /// Time of the last modification.
    pub modified: ModifiedTime,
}

/// Makes a [`FolderSource`] of a function that returns the entries of a folder.
pub struct ByFunction<F>(F);

impl<F: FnMut(&RelPath) -> Result<Vec<FolderEntry>> + Send> FolderSource for ByFunction<F> {
    type Entry = FolderEntry;

    fn entries(&mut self, folder: &RelPath) -> Result<FolderEntries<FolderEntry>> {
        let entries = (self.0)(folder)?.into_iter();
        Ok(FolderEntries {
            entries: entries.map(|one| (Ok(one.name.clone()), one)).collect(),
            error: None,
        })
    }

    fn is_folder(entry: &FolderEntry) -> bool {
        entry.size.is_none()
    }

    fn state(&mut self, _path: &RelPath, entry: FolderEntry) -> Result<EntryState> {
        Ok(EntryState {
            size: entry.size.unwrap_or(0),
            modified: entry.modified,
            layout: Layout::Single(TargetId(0)),
            identity: Vec::new(),
        })
    }
}

/// Lists depth first. In each folder, files come before folders, and both are sorted by name.
pub struct FolderLister<S: FolderSource> {
    source: S,
    options: ListOptions,
    top: Option<(RelPath, Name, S::Entry)>,
    levels: Vec<Level<S::Entry>>,
    is_entered: bool,
}

struct Level<E> {
    path: RelPath,
    /// The folder itself. `None` for the top of a listing if only its contents are listed.
    folder: Option<(Name, EntryState)>,
    left: Option<IntoIter<(Result<Name>, E)>>,
}

impl<F: FnMut(&RelPath) -> Result<Vec<FolderEntry>> + Send> FolderLister<ByFunction<F>> {
    /// Lists `top`. `state` is the state of `top` in its store. `entries` returns the entries of a
    /// folder.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if `state` is `None`; otherwise as [`FolderLister::from_top`].
    pub fn new(
        top: &RelPath,
        state: Option<FileState>,
        options: &ListOptions,
        entries: F,
    ) -> Result<Self> {
        let Some(state) = state else {
            let error = Error::new(ErrorKind::NotFound, End::Source, "list").file(top);
            return Err(error.cause("the storage system has no such file or folder"));
        };
        let is_folder = state.kind == FileKind::Directory;
        let entry = FolderEntry {
            // The root has no name. The entry of the root is not listed, so this name is never
            // used.
            name: top.name().map_or_else(|| Name::new(b"root"), Ok)?,
            size: (!is_folder).then_some(state.size),
            modified: state.modified,
        };
        Self::from_top(top, entry, options, ByFunction(entries))
    }
}

impl<S: FolderSource> FolderLister<S> {
    /// Lists the entry `top` of a store.
    ///
    /// # Errors
    /// [`ErrorKind::NotADirectory`] if the options request the contents of `top` and `top` is a
    /// file.
    pub fn from_top(
        top: &RelPath,
        entry: S::Entry,
        options: &ListOptions,
        source: S,
    ) -> Result<Self> {
        let is_folder = S::is_folder(&entry);
        let end = source.end();
        let mut lister = Self::empty(options, source);
        match top.name().filter(|_| !options.contents) {
            // Leave out a top with one of dray's own names, like every other entry with such a
            // name.
            Some(name) if name.is_reserved() && !options.own => {}
            Some(name) => lister.top = Some((top.clone(), name, entry)),
            None if is_folder => lister.enter(top.clone(), None, None),
            None => {
                let error = Error::new(ErrorKind::NotADirectory, end, "list").file(top);
                return Err(error.cause("the path is a file, not a folder"));
            }
        }
        Ok(lister)
    }

    /// Lists the contents of the folder `top`. The caller passes the entries of this folder. The
    /// folder itself is not listed.
    pub fn from_contents(
        top: &RelPath,
        contents: Vec<(Result<Name>, S::Entry)>,
        options: &ListOptions,
        source: S,
    ) -> Self {
        let mut lister = Self::empty(options, source);
        lister.enter(top.clone(), None, Some(sorted::<S>(contents)));
        lister
    }

    fn empty(options: &ListOptions, source: S) -> Self {
        Self {
            source,
            options: *options,
            top: None,
            levels: Vec::new(),
            is_entered: false,
        }
    }

    fn enter(
        &mut self,
        path: RelPath,
        folder: Option<(Name, EntryState)>,
        left: Option<IntoIter<(Result<Name>, S::Entry)>>,
    ) {
        self.levels.push(Level { path, folder, left });
    }

    fn depth(&self) -> usize {
        let named = self.levels.iter().filter(|level| level.folder.is_some());
        named.count()
    }

    fn item(&mut self, path: RelPath, name: Name, entry: S::Entry) -> Result<Listed> {
        let depth = self.depth();
        if !S::is_folder(&entry) {
            let state = self.source.state(&path, entry)?;
            let kind = EntryKind::File {
                size: state.size,
                sparse: false,
            };
            return Ok(listed(depth, name, kind, state));
        }
        let error = |kind, operation| Error::new(kind, self.source.end(), operation).file(&path);
        if !self.options.recursive {
            let error = error(ErrorKind::IsADirectory, "copy").cause("is a folder");
            return Err(error.remedy("add --recursive (-r) to copy the folder"));
        }
        if depth >= DEPTH_MAX {
            let cause = format!("the tree has more than {DEPTH_MAX} nested folders");
            let error = error(ErrorKind::LimitExceeded, "list").cause(cause);
            return Err(error.remedy("copy the innermost folders in a separate transfer"));
        }
        let state = self.source.state(&path, entry)?;
        self.enter(path, Some((name.clone(), state.clone())), None);
        self.is_entered = true;
        Ok(listed(depth, name, EntryKind::Directory, state))
    }

    /// Requests the entries of the innermost folder.
    fn read_folder(&mut self) -> Option<Error> {
        let level = self.levels.last_mut()?;
        if level.left.is_some() {
            return None;
        }
        let FolderEntries { entries, error } =
            self.source
                .entries(&level.path)
                .unwrap_or_else(|error| FolderEntries {
                    error: Some(error),
                    ..FolderEntries::default()
                });
        level.left = Some(sorted::<S>(entries));
        error
    }

    fn is_wanted(&self, name: &Name, entry: &S::Entry) -> bool {
        match self.options.own {
            false => !name.is_reserved(),
            true => self.source.has_own_names() && (name.is_reserved() || S::is_folder(entry)),
        }
    }
}

fn sorted<S: FolderSource>(
    mut entries: Vec<(Result<Name>, S::Entry)>,
) -> IntoIter<(Result<Name>, S::Entry)> {
    entries.sort_by_cached_key(|(name, entry)| {
        let name = name.as_ref().map(|name| name.as_bytes().to_vec());
        (S::is_folder(entry), name.unwrap_or_default())
    });
    entries.into_iter()
}

fn listed(depth: usize, name: Name, kind: EntryKind, state: EntryState) -> Listed {
    let mode = match kind {
        EntryKind::Directory | EntryKind::DirectoryEnd => 0o755,
        _ => 0o644,
    };
    Listed {
        depth,
        name,
        kind,
        metadata: Metadata {
            mode,
            modified: state.modified,
            xattrs: Vec::new(),
        },
        layout: state.layout,
        identity: state.identity,
    }
}

impl<S: FolderSource> Iterator for FolderLister<S> {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.is_entered = false;
        if let Some((path, name, entry)) = self.top.take() {
            return Some(self.item(path, name, entry));
        }
        loop {
            if let Some(error) = self.read_folder() {
                return Some(Err(error));
            }
            let level = self.levels.last_mut()?;
            let Some((name, entry)) = level.left.as_mut().and_then(IntoIter::next) else {
                let (name, state) = self.levels.pop()?.folder?;
                let depth = self.depth();
                return Some(Ok(listed(depth, name, EntryKind::DirectoryEnd, state)));
            };
            let named = name.and_then(|name| Ok((level.path.join(&name)?, name)));
            match named {
                Ok((path, name)) if self.is_wanted(&name, &entry) => {
                    return Some(self.item(path, name, entry));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error.at(self.source.end()))),
            }
        }
    }
}

impl<S: FolderSource> Lister for FolderLister<S> {
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
    #[test]
    fn a_top_with_a_reserved_name_is_left_out() {
        let file = FileState {
            kind: FileKind::File,
            size: 1,
            modified: ModifiedTime {
                seconds: 0,
                nanoseconds: 0,
            },
            mode: 0o644,
            inode: 0,
            device: 0,
        };
        let listed = |name: &[u8]| {
            let top = RelPath::parse(name).expect("a path");
            let options = ListOptions::default();
            let lister =
                FolderLister::new(&top, Some(file), &options, |_: &RelPath| Ok(Vec::new()));
            lister.expect("a file").count()
        };
        assert_eq!(listed(b"x.part"), 1);
        assert_eq!(listed(b".dray-ab.part"), 0);
    }
}

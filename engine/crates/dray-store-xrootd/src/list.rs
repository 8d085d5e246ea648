//! Lists a server's folders, depth first, with one request per folder.

use crate::client::Found;
use crate::located::listed;
use crate::store::XrootdStore;
use dray_core::{EntryKind, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result};
use dray_store::{ListOptions, Listed, Lister, unsupported};
use std::collections::VecDeque;

/// Modes of listed entries: a server's permissions have no meaning elsewhere.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// A folder in progress.
struct Frame {
    path: RelPath,
    /// Name of the folder; `None` for a top of which only the contents are listed.
    name: Option<Name>,
    found: Found,
    /// Remaining entries; `None` before the server was queried.
    left: Option<VecDeque<(Result<Name>, Found)>>,
}

pub(crate) struct RemoteLister {
    store: XrootdStore,
    options: ListOptions,
    frames: Vec<Frame>,
    /// The top itself, if it is listed.
    first: Option<(RelPath, Name, Found)>,
    /// True if the last item was a folder's beginning.
    entered: bool,
}

impl RemoteLister {
    pub(crate) fn new(
        store: &XrootdStore,
        top: &RelPath,
        found: Found,
        options: &ListOptions,
    ) -> Result<Self> {
        let name = top.name().filter(|_| !options.contents);
        let (mut frames, mut first) = (Vec::new(), None);
        match name {
            Some(name) => first = Some((top.clone(), name, found)),
            None if found.is_folder => frames.push(Frame {
                path: top.clone(),
                name: None,
                found,
                left: None,
            }),
            None => {
                let error = store.error(ErrorKind::NotADirectory, "list the folder", top);
                return Err(error.cause("it is a file"));
            }
        }
        Ok(Self {
            store: store.clone(),
            options: *options,
            frames,
            first,
            entered: false,
        })
    }

    fn depth(&self) -> usize {
        self.frames
            .iter()
            .filter(|frame| frame.name.is_some())
            .count()
    }

    fn listed(&self, depth: usize, name: Name, kind: EntryKind, found: Found) -> Listed {
        self.listed_at(depth, name, kind, (found, XrootdStore::whole()))
    }

    fn listed_at(
        &self,
        depth: usize,
        name: Name,
        kind: EntryKind,
        (found, layout): (Found, Layout),
    ) -> Listed {
        let is_file = matches!(kind, EntryKind::File { .. });
        Listed {
            depth,
            name,
            kind,
            metadata: Metadata {
                mode: if is_file { FILE_MODE } else { FOLDER_MODE },
                modified: found.modified,
                xattrs: Vec::new(),
            },
            layout,
            identity: Vec::new(),
        }
    }

    fn item(&mut self, path: RelPath, name: Name, found: Found) -> Result<Listed> {
        let depth = self.depth();
        if found.is_special {
            let cause = "neither a file nor a folder";
            return Err(unsupported(self.store.end(), "list", &path, cause));
        }
        if !found.is_folder {
            let (found, layout) = self.store.examine(&path, found)?;
            let kind = EntryKind::File {
                size: found.size,
                sparse: false,
            };
            return Ok(self.listed_at(depth, name, kind, (found, layout)));
        }
        if !self.options.recursive {
            let error = self.store.error(ErrorKind::IsADirectory, "copy", &path);
            return Err(error.remedy("ask for a recursive copy"));
        }
        self.frames.push(Frame {
            path,
            name: Some(name.clone()),
            found,
            left: None,
        });
        self.entered = true;
        Ok(self.listed(depth, name, EntryKind::Directory, found))
    }

    fn is_wanted(&self, name: &Name, found: &Found) -> bool {
        match self.options.own {
            false => !name.is_reserved(),
            true => name.is_reserved() || found.is_folder,
        }
    }

    /// Queries the innermost folder's entries and sorts them: files first, by name.
    fn ask(&mut self) -> Option<Error> {
        let frame = self.frames.last_mut()?;
        if frame.left.is_some() {
            return None;
        }
        let listed = self.store.entries(&frame.path);
        let (mut entries, error) = listed.unwrap_or_else(|error| (Vec::new(), Some(error)));
        let error = error.map(|error| error.file(&frame.path));
        let key = |entry: &(Result<Name>, Found)| {
            let name = entry.0.as_ref().map(|name| name.as_bytes().to_vec());
            (entry.1.is_folder, name.unwrap_or_default())
        };
        entries.sort_by_cached_key(key);
        frame.left = Some(merged(entries));
        error
    }
}

/// Merges entries of the same name: a cluster's servers may each have the same folder, and replicas
/// of one file.
fn merged(entries: Vec<(Result<Name>, Found)>) -> VecDeque<(Result<Name>, Found)> {
    let mut left: VecDeque<(Result<Name>, Found)> = VecDeque::with_capacity(entries.len());
    let mut replicas = Vec::new();
    for (name, found) in entries {
        match (left.back_mut(), &name) {
            (Some((Ok(before), known)), Ok(again))
                if before == again && known.is_folder == found.is_folder =>
            {
                replicas.push(found);
                *known = listed(&replicas).unwrap_or(found);
            }
            _ => {
                replicas.clear();
                replicas.push(found);
                left.push_back((name, found));
            }
        }
    }
    left
}

impl Iterator for RemoteLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entered = false;
        if let Some((path, name, found)) = self.first.take() {
            return Some(self.item(path, name, found));
        }
        loop {
            if let Some(error) = self.ask() {
                return Some(Err(error));
            }
            let frame = self.frames.last_mut()?;
            let Some((name, found)) = frame.left.as_mut().and_then(VecDeque::pop_front) else {
                let frame = self.frames.pop()?;
                let name = frame.name?;
                let end = EntryKind::DirectoryEnd;
                return Some(Ok(self.listed(self.depth(), name, end, frame.found)));
            };
            let named = name.and_then(|name| Ok((frame.path.join(&name)?, name)));
            match named {
                Ok((path, name)) if self.is_wanted(&name, &found) => {
                    return Some(self.item(path, name, found));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error.at(self.store.end()))),
            }
        }
    }
}

impl Lister for RemoteLister {
    fn skip_folder(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.frames.pop();
        }
    }
}

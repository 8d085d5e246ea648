//! Walks a server's folders, depth first, with one folder in memory for each level.

use crate::dav::Found;
use crate::read::or_unknown;
use crate::store::{Known, Server};
use dray_core::{EntryKind, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, TargetId};
use dray_store::{ListOptions, Listed, Lister};
use std::sync::Arc;
use std::vec::IntoIter;

/// Name of the operation in errors.
const OPERATION: &str = "list";

/// Maximum depth of folders: a server can invent any number (guess, revisit).
const DEPTH_MAX: usize = 256;

/// A listing in progress.
pub(crate) struct Walk {
    server: Arc<Server>,
    options: ListOptions,
    /// Entry at the top, until it is returned.
    top: Option<Found>,
    levels: Vec<Level>,
    /// The last returned folder, whose contents come next.
    entered: Option<(RelPath, Name)>,
}

struct Level {
    /// Name of the folder; `None` for the top of a listing of contents.
    name: Option<Name>,
    rest: IntoIter<Found>,
}

impl Walk {
    pub(crate) fn new(server: Arc<Server>, top: &RelPath, options: &ListOptions) -> Result<Self> {
        let wants_contents = options.contents || top.is_root();
        let mut walk = Self {
            server,
            options: *options,
            top: None,
            levels: Vec::new(),
            entered: None,
        };
        // dray keeps no files of its own on a read-only server.
        if options.own {
            return Ok(walk);
        }
        if wants_contents {
            let children = walk.children(top)?;
            walk.levels.push(Level {
                name: None,
                rest: children,
            });
        } else {
            walk.top = Some(walk.server.look(top, OPERATION)?);
        }
        Ok(walk)
    }

    /// Returns the contents of a folder: files before folders, each by name.
    fn children(&self, folder: &RelPath) -> Result<IntoIter<Found>> {
        let Some(mut found) = self.server.propfind(folder, "1", OPERATION)? else {
            let fault = Error::new(ErrorKind::Unsupported, self.server.end, OPERATION);
            return Err(fault
                .file(folder)
                .cause("the server does not list folders (WebDAV's PROPFIND)")
                .remedy("name its files one by one"));
        };
        let is_folder = |found: &Found| found.path == *folder && found.is_folder;
        if !found.iter().any(is_folder) {
            let fault = Error::new(ErrorKind::NotADirectory, self.server.end, OPERATION);
            return Err(fault
                .file(folder)
                .cause("the server does not call it a folder")
                .remedy("name it without a slash at the end"));
        }
        // Drop all other entries that the server lists: they are not in the folder.
        found.retain(|found| found.path.parent().as_ref() == Some(folder));
        found.sort_by(|one, other| {
            let key = |found: &Found| (found.is_folder, found.path.clone());
            key(one).cmp(&key(other))
        });
        found.dedup_by(|one, other| one.path == other.path);
        Ok(found.into_iter())
    }

    fn item(&self, name: Name, kind: EntryKind, found: Option<&Found>, depth: usize) -> Listed {
        let mode = match kind {
            EntryKind::Directory | EntryKind::DirectoryEnd => 0o755,
            _ => 0o644,
        };
        let tag = found.and_then(|found| found.tag.clone());
        Listed {
            depth,
            name,
            kind,
            metadata: Metadata {
                mode,
                modified: or_unknown(found.and_then(|found| found.modified)),
                xattrs: Vec::new(),
            },
            layout: Layout::Single(TargetId(0)),
            identity: tag.unwrap_or_default().into_bytes(),
        }
    }

    /// Returns the number of folders returned and not ended.
    fn depth(&self) -> usize {
        let named = self.levels.iter().filter(|level| level.name.is_some());
        named.count()
    }

    fn tell(&mut self, found: Found) -> Option<Result<Listed>> {
        let name = found.path.name()?;
        let depth = self.depth();
        if name.is_reserved() {
            return None;
        }
        if found.is_folder {
            if !self.options.recursive {
                let fault = Error::new(ErrorKind::IsADirectory, self.server.end, "copy");
                let fault = fault
                    .file(&found.path)
                    .cause("the server calls it a folder");
                return Some(Err(fault.remedy("add --recursive (-r) to copy it")));
            }
            if depth >= DEPTH_MAX {
                let fault = Error::new(ErrorKind::LimitExceeded, self.server.end, OPERATION);
                let cause = format!("more than {DEPTH_MAX} nested folders");
                return Some(Err(fault.file(&found.path).cause(cause)));
            }
            self.entered = Some((found.path.clone(), name.clone()));
            return Some(Ok(self.item(
                name,
                EntryKind::Directory,
                Some(&found),
                depth,
            )));
        }
        let looked = match found.size.is_some() && found.modified.is_some() {
            true => Ok(found),
            false => self.server.look(&found.path, OPERATION),
        };
        let known = looked.and_then(|found| {
            let known = self.server.as_file(found.clone(), OPERATION)?;
            Ok((found, known))
        });
        let (found, known): (Found, Known) = match known {
            Ok(known) => known,
            Err(error) => return Some(Err(error)),
        };
        let kind = EntryKind::File {
            size: known.size,
            sparse: false,
        };
        let item = self.item(name, kind, Some(&found), depth);
        self.server.remember(&found.path, known);
        Some(Ok(item))
    }
}

impl Iterator for Walk {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(top) = self.top.take() {
                return self.tell(top);
            }
            if let Some((folder, name)) = self.entered.take() {
                let children = self.children(&folder);
                let (rest, failed) = match children {
                    Ok(rest) => (rest, None),
                    Err(error) => (Vec::new().into_iter(), Some(error)),
                };
                self.levels.push(Level {
                    name: Some(name),
                    rest,
                });
                if let Some(error) = failed {
                    return Some(Err(error));
                }
            }
            let level = self.levels.last_mut()?;
            let Some(found) = level.rest.next() else {
                let ended = self.levels.pop()?;
                let depth = self.depth();
                match ended.name {
                    Some(name) => {
                        return Some(Ok(self.item(name, EntryKind::DirectoryEnd, None, depth)));
                    }
                    None => return None,
                }
            };
            if let Some(item) = self.tell(found) {
                return Some(item);
            }
        }
    }
}

impl Lister for Walk {
    fn skip_folder(&mut self) {
        self.entered = None;
    }
}

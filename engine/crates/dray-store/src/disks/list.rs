//! Merges the listings of all disks into one listing.
//!
//! The lister reads one folder at a time, on all disks. It holds a batch of names of each disk for
//! each folder between the top and the current folder.

use super::{Set, target_of};
use crate::posix::list::{Flat, PosixLister};
use crate::store::{Lister, Store};
use crate::types::{FileKind, ListOptions, Listed};
use dray_core::{EntryKind, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of folders of the current path that are open on each disk. In a deeper tree,
/// folders are closed until the listing returns to them. The value is estimated, not measured.
const OPEN_LEVELS_MAX: usize = 8;

/// Listing of one folder on one disk.
struct OnDisk {
    disk: usize,
    lister: PosixLister,
    /// First subfolder that this disk has listed. It waits until all disks have listed their files.
    next_folder: Option<Name>,
    has_ended: bool,
}

/// A folder between the top and the current folder.
struct Level {
    /// Path of the folder.
    path: RelPath,
    /// Name of the folder; `None` if the listing has no items for its start and end.
    name: Option<Name>,
    metadata: Metadata,
    /// Depth of the entries of the folder.
    depth: usize,
    parts: Vec<OnDisk>,
    /// Index in `parts` of the disk that is being read.
    at: usize,
    /// True after all parts have returned the entries before their first subfolder.
    lists_folders: bool,
}

struct DisksLister {
    set: Arc<Set>,
    options: ListOptions,
    levels: Vec<Level>,
    /// Items to return before the lister continues.
    ready: VecDeque<Result<Listed>>,
    /// True if the last item was the start of a folder.
    entered: bool,
    failed_at_folder: bool,
}

pub(super) fn open(
    set: &Arc<Set>,
    top: &RelPath,
    options: &ListOptions,
) -> Result<Box<dyn Lister>> {
    let mut lister = DisksLister {
        set: Arc::clone(set),
        options: *options,
        levels: Vec::new(),
        ready: VecDeque::new(),
        entered: false,
        failed_at_folder: false,
    };
    if top.is_root() || options.contents {
        let level = lister.level(top, None, 0)?;
        lister.levels.push(level);
        return Ok(Box::new(lister));
    }
    let found = set.find(top)?;
    match found.map(|found| (found.disk, found.state.kind)) {
        Some((_, FileKind::Directory)) if options.recursive => {
            let name = top.name();
            let level = lister.level(top, name, 1)?;
            lister.enter(level);
            Ok(Box::new(lister))
        }
        found => {
            let disk = found.map_or(0, |(disk, _)| disk);
            let inner = set.disks[disk].store.list(top, options);
            Ok(Box::new(OneEntry {
                inner: inner.map_err(|error| set.on(disk, error))?,
                disk,
            }))
        }
    }
}

impl DisksLister {
    /// Opens the folder at `path` on each disk that has it.
    fn level(&self, path: &RelPath, name: Option<Name>, depth: usize) -> Result<Level> {
        let options = ListOptions {
            contents: true,
            ..self.options
        };
        let mut held: usize = self.levels.iter().map(Level::names_held).sum();
        let mut parts: Vec<OnDisk> = Vec::new();
        let mut missing = None;
        for (disk, one) in self.set.disks.iter().enumerate() {
            match one.store.lister(path, &options) {
                Ok(mut lister) => {
                    lister.beside(held);
                    held = lister.names_held();
                    parts.push(OnDisk {
                        disk,
                        lister,
                        next_folder: None,
                        has_ended: false,
                    });
                }
                Err(error) if error.kind == ErrorKind::NotFound => {
                    missing = missing.or(Some(error));
                }
                // Another disk may have a folder with the name of this file.
                Err(error) if error.kind == ErrorKind::NotADirectory => missing = Some(error),
                Err(error) => return Err(self.set.on(disk, error)),
            }
        }
        let Some(first) = parts.first() else {
            let gone = || Error::new(ErrorKind::NotFound, self.set.end, "list the folder");
            return Err(missing.unwrap_or_else(|| gone().file(path)));
        };
        let mut metadata = first.lister.folder_metadata();
        for other in &parts {
            metadata.modified = metadata
                .modified
                .max(other.lister.folder_metadata().modified);
        }
        Ok(Level {
            path: path.clone(),
            name,
            metadata,
            depth,
            parts,
            at: 0,
            lists_folders: false,
        })
    }

    /// Enters a folder, and prepares the item for its start.
    fn enter(&mut self, level: Level) {
        if let Some(name) = &level.name {
            self.ready
                .push_back(Ok(level.item(name, EntryKind::Directory)));
        }
        self.levels.push(level);
        if let Some(far) = self.levels.len().checked_sub(OPEN_LEVELS_MAX + 1) {
            for part in &mut self.levels[far].parts {
                part.lister.pause();
            }
        }
    }

    fn leave(&mut self) -> Option<Listed> {
        let level = self.levels.pop()?;
        let name = level.name.as_ref()?;
        Some(level.item(name, EntryKind::DirectoryEnd))
    }

    /// Returns the item of a file that `disk` has listed. If other disks have a file with the same
    /// path, only the newest file is listed, followed by an error.
    fn file(&mut self, path: &RelPath, disk: usize, item: Listed) {
        if self.set.is_mark(path) {
            return;
        }
        if item.name.is_reserved() {
            self.ready.push_back(Ok(item));
            return;
        }
        let others = (0..self.set.disks.len()).filter(|other| *other != disk);
        let mut has_other = false;
        for other in others {
            match self.set.disks[other].store.look(path) {
                Ok(found) => has_other |= found.is_some(),
                Err(error) if error.kind == ErrorKind::NotADirectory => {}
                Err(error) => self.ready.push_back(Err(self.set.on(other, error))),
            }
        }
        if !has_other {
            self.ready.push_back(Ok(item));
            return;
        }
        match self.duplicate(path, disk) {
            Ok(Duplicate::None) => self.ready.push_back(Ok(item)),
            Ok(Duplicate::Older) => {}
            Ok(Duplicate::Newest(error)) => {
                self.ready.push_back(Ok(item));
                self.ready.push_back(Err(error));
            }
            Ok(Duplicate::Folder(error)) | Err(error) => self.ready.push_back(Err(error)),
        }
    }

    /// Looks for files with this path on all disks, under the lock of the path. Without the lock, a
    /// publication in progress could leave the file on two disks for a moment.
    fn duplicate(&self, path: &RelPath, disk: usize) -> Result<Duplicate> {
        let _lock = self.set.lock(path).ok();
        let mut names = Vec::new();
        for (at, one) in self.set.disks.iter().enumerate() {
            let found = one
                .store
                .look(path)
                .map_err(|error| self.set.on(at, error))?;
            if found.is_some() {
                names.push((at, one.name.as_str()));
            }
        }
        let Some(found) = self.set.find(path)? else {
            return Ok(Duplicate::Older);
        };
        if names.len() < 2 {
            return Ok(match found.disk == disk {
                true => Duplicate::None,
                false => Duplicate::Older,
            });
        }
        let of = |at: usize| self.set.disks[at].name.as_str();
        let all: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
        let error = Error::new(ErrorKind::AlreadyExists, self.set.end, "list").file(path);
        if found.state.kind == FileKind::Directory {
            let cause = format!("{} has a file where another disk has a folder", of(disk));
            return Ok(Duplicate::Folder(
                error
                    .cause(cause)
                    .remedy(format!("rename the file on {}", of(disk))),
            ));
        }
        if found.disk != disk {
            return Ok(Duplicate::Older);
        }
        let cause = format!(
            "several disks have the file ({}); the file on {} is listed, because that file was \
                changed last",
            all.join(", "),
            of(disk)
        );
        let remedy = "delete this file on all disks but one";
        Ok(Duplicate::Newest(error.cause(cause).remedy(remedy)))
    }

    /// Enters a subfolder that `disk` has, unless a disk before it has the subfolder too.
    fn folder(&mut self, path: &RelPath, name: Name, depth: usize, disk: usize) {
        for before in 0..disk {
            match self.set.disks[before].store.look(path) {
                Ok(Some((state, _))) if state.kind == FileKind::Directory => return,
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::NotADirectory => {}
                Err(error) => {
                    self.ready.push_back(Err(self.set.on(before, error)));
                    return;
                }
            }
        }
        if !self.options.recursive {
            let error = Error::new(ErrorKind::IsADirectory, self.set.end, "copy").file(path);
            let error = error
                .cause("is a folder")
                .remedy("ask for a recursive copy");
            self.failed_at_folder = true;
            self.ready.push_back(Err(error));
            return;
        }
        match self.level(path, Some(name), depth + 1) {
            Ok(level) => self.enter(level),
            Err(error) => {
                self.failed_at_folder = true;
                self.ready.push_back(Err(error));
            }
        }
    }

    /// Continues the listing of the current folder. Returns `None` at the end of the listing.
    fn step(&mut self) -> Option<()> {
        let level = self.levels.last_mut()?;
        let (path, depth) = (level.path.clone(), level.depth);
        let Some((disk, entry)) = level.next() else {
            match self.leave() {
                Some(end) => self.ready.push_back(Ok(end)),
                None if self.levels.is_empty() => return None,
                None => {}
            }
            return Some(());
        };
        match entry {
            Ok(Flat::Entry(mut item)) => {
                item.depth = depth;
                item.layout = Layout::Single(target_of(disk));
                match path.join(&item.name) {
                    Ok(at) => self.file(&at, disk, item),
                    Err(error) => self.ready.push_back(Err(error.at(self.set.end))),
                }
            }
            Ok(Flat::Folder(name)) => match path.join(&name) {
                Ok(at) => self.folder(&at, name, depth, disk),
                Err(error) => self.ready.push_back(Err(error.at(self.set.end))),
            },
            Err(error) => {
                self.failed_at_folder = true;
                self.ready.push_back(Err(self.set.on(disk, error)));
            }
        }
        Some(())
    }
}

/// Result of a search for files with one path on several disks.
enum Duplicate {
    /// Only one disk has the file.
    None,
    /// Another disk has the newest file.
    Older,
    /// This disk has the newest file. The error names the disks.
    Newest(Error),
    /// Another disk has a folder with this path.
    Folder(Error),
}

impl Level {
    fn item(&self, name: &Name, kind: EntryKind) -> Listed {
        let disk = self.parts.first().map_or(0, |part| part.disk);
        Listed {
            depth: self.depth.saturating_sub(1),
            name: name.clone(),
            kind,
            metadata: self.metadata.clone(),
            layout: Layout::Single(target_of(disk)),
            identity: Vec::new(),
        }
    }

    fn names_held(&self) -> usize {
        self.parts
            .iter()
            .map(|part| part.lister.names_held())
            .max()
            .unwrap_or(0)
    }

    /// Returns the next entry of the folder, and the disk that holds the entry. In the first round,
    /// each disk lists its entries up to its first subfolder. In the second round, each disk lists
    /// its other entries. Within a batch of names, a disk lists files before subfolders. So in a
    /// folder of one batch, the files of all disks come before the subfolders.
    fn next(&mut self) -> Option<(usize, Result<Flat>)> {
        loop {
            let Some(part) = self.parts.get_mut(self.at) else {
                if self.lists_folders {
                    return None;
                }
                (self.lists_folders, self.at) = (true, 0);
                continue;
            };
            if let Some(name) = part.next_folder.take() {
                if self.lists_folders {
                    return Some((part.disk, Ok(Flat::Folder(name))));
                }
                part.next_folder = Some(name);
                self.at += 1;
                continue;
            }
            let next = match part.has_ended {
                true => None,
                false => part.lister.next_flat(),
            };
            match next {
                None => {
                    part.has_ended = true;
                    self.at += 1;
                }
                Some(Ok(Flat::Folder(name))) if !self.lists_folders => {
                    part.next_folder = Some(name);
                }
                Some(entry) => return Some((part.disk, entry)),
            }
        }
    }
}

impl Iterator for DisksLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entered = false;
        loop {
            if let Some(item) = self.ready.pop_front() {
                let is_start = matches!(&item, Ok(listed) if listed.kind == EntryKind::Directory);
                self.entered = is_start;
                self.failed_at_folder &= item.is_err();
                return Some(item);
            }
            self.failed_at_folder = false;
            self.step()?;
        }
    }
}

impl Lister for DisksLister {
    fn skip_folder(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.levels.pop();
        }
    }

    fn failed_at_folder(&self) -> bool {
        self.failed_at_folder
    }
}

/// Listing of a file, a link, or a folder that is not entered.
struct OneEntry {
    inner: Box<dyn Lister>,
    disk: usize,
}

impl Iterator for OneEntry {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.inner.next()?;
        Some(item.map(|listed| Listed {
            layout: Layout::Single(target_of(self.disk)),
            ..listed
        }))
    }
}

impl Lister for OneEntry {
    fn skip_folder(&mut self) {
        self.inner.skip_folder();
    }

    fn failed_at_folder(&self) -> bool {
        self.inner.failed_at_folder()
    }
}

//! Listings. Ceph has no folders and no list by prefix, so a listing reads the names of all objects
//! in the namespace of the files and in the state namespace. It keeps the names below the listed
//! folder.

use crate::errors::Answer;
use crate::files::{Entry, FILE_MODE, FOLDER_MODE, Files, Found, absent, is_own};
use crate::names::{self, State};
use crate::note::Note;
use crate::pool::{Got, Job};
use dray_core::{EntryKind, Error, ErrorKind, Metadata, ModifiedTime, Name, RelPath, Result};
use dray_store::{ListOptions, Listed, Lister};
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

/// Number of files whose attributes are read together.
const BATCH: usize = 256;

const LIST: &str = "list the folder";

/// Orders paths depth first. The files of a folder come before its folders. The path of a folder
/// ends with a slash.
fn depth_first(one: &[u8], other: &[u8]) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let split = |path: &[u8]| path.iter().position(|byte| *byte == b'/');
        match (split(one), split(other)) {
            (None, None) => return one.cmp(other),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(first), Some(second)) => match one[..first].cmp(&other[..second]) {
                Ordering::Equal => (one, other) = (&one[first + 1..], &other[second + 1..]),
                unequal => return unequal,
            },
        }
    }
}

/// The path of an entry, and the attributes of its object; `None` for a folder.
type Looked = (Vec<u8>, Option<Got>);

/// A listing in progress.
pub(crate) struct RadosLister {
    files: Arc<Files>,
    options: ListOptions,
    top: RelPath,
    /// Name of the top folder, until its end was returned. `None` if only its contents are listed.
    top_name: Option<Name>,
    is_begun: bool,
    /// Paths below the top, sorted. Paths of folders end with a slash.
    left: IntoIter<Vec<u8>>,
    looked: VecDeque<Result<Looked>>,
    current: Option<Looked>,
    /// Folders below the top that contain the current entry.
    open: Vec<Name>,
    /// Set if the last item was the begin of a folder.
    is_folder_last: bool,
    /// Path of a folder, with a slash, whose entries are skipped.
    skipped: Option<Vec<u8>>,
}

impl Files {
    /// Lists `top` and everything below it.
    pub(crate) fn list(
        self: &Arc<Self>,
        top: &RelPath,
        options: &ListOptions,
    ) -> Result<Box<dyn Lister>> {
        let entry = self.entry(top)?;
        let is_contents = options.contents || top.is_root();
        if let Some(Entry::File(found, modified)) = entry {
            if is_contents {
                return Err(self
                    .error(ErrorKind::NotADirectory, LIST, top)
                    .cause("a file with this name exists"));
            }
            let name = top
                .name()
                .ok_or_else(|| self.error(ErrorKind::NotFound, LIST, top))?;
            let listed = self.listed(top, 0, name, &found, modified, options);
            return Ok(Box::new(One(Some(listed))));
        }
        let left = self.paths_below(top, options)?;
        if entry.is_none() && left.is_empty() {
            return Err(self
                .error(ErrorKind::NotFound, LIST, top)
                .cause("no file or folder has this name"));
        }
        if !options.recursive && !is_contents {
            let error = self.error(ErrorKind::IsADirectory, LIST, top);
            let error = error.cause("folders are not listed without -r");
            return Ok(Box::new(One(Some(Err(error)))));
        }
        Ok(Box::new(RadosLister {
            files: Arc::clone(self),
            options: *options,
            top: top.clone(),
            top_name: if is_contents { None } else { top.name() },
            is_begun: is_contents,
            left: left.into_iter(),
            looked: VecDeque::new(),
            current: None,
            open: Vec::new(),
            is_folder_last: false,
            skipped: None,
        }))
    }

    /// Returns the paths below a folder in the order of a listing.
    fn paths_below(&self, top: &RelPath, options: &ListOptions) -> Result<Vec<Vec<u8>>> {
        let full = self.full(top)?;
        let is_reserved = |name: &[u8]| Name::new(name).is_ok_and(|name| name.is_reserved());
        let last = |path: &[u8]| {
            path.rsplit(|byte| *byte == b'/')
                .next()
                .is_some_and(is_reserved)
        };
        let is_wanted = |path: &[u8]| match options.own {
            true => last(path),
            false => !path.split(|byte| *byte == b'/').any(is_reserved),
        };
        let mut paths = Vec::new();
        let listed = self.data.each_object(&mut |object| {
            let below = names::file_of_first(object);
            let below = below.and_then(|name| self.names.below(&full, name));
            paths.extend(below.filter(|path| is_wanted(path)).map(<[u8]>::to_vec));
            ControlFlow::Continue(())
        });
        self.about(listed, LIST, top)?;
        let listed = self.state.each_object(&mut |object| {
            let Some((kind, name)) = State::of(object) else {
                return ControlFlow::Continue(());
            };
            let Some(path) = self.names.below(&full, name) else {
                return ControlFlow::Continue(());
            };
            match kind {
                State::Folder if options.own || is_wanted(path) => {
                    paths.push([path, b"/"].concat())
                }
                State::Partial | State::Control if options.own && last(path) => {
                    paths.push(path.to_vec());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        self.about(listed, LIST, top)?;
        paths.sort_unstable_by(|one, other| depth_first(one, other));
        paths.dedup();
        Ok(paths)
    }

    /// Returns the names in a folder: files, folders and dray's own files. Fails if there are more
    /// than `max` names.
    pub(crate) fn names_in(&self, folder: &RelPath, max: usize) -> Result<Vec<Name>> {
        let full = self.full(folder)?;
        let mut found = BTreeSet::new();
        let mut add = |name: Option<&[u8]>| {
            let below = name.and_then(|name| self.names.below(&full, name));
            let first = below.and_then(|path| path.split(|byte| *byte == b'/').next());
            found.extend(first.map(<[u8]>::to_vec));
            match found.len() > max {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let listed = self
            .state
            .each_object(&mut |object| match State::of(object) {
                Some((State::Folder | State::Partial | State::Control, name)) => add(Some(name)),
                _ => ControlFlow::Continue(()),
            });
        self.about(listed, LIST, folder)?;
        if !is_own(folder) {
            let listed = self
                .data
                .each_object(&mut |object| add(names::file_of_first(object)));
            self.about(listed, LIST, folder)?;
        }
        if found.len() > max {
            return Err(self
                .error(ErrorKind::LimitExceeded, LIST, folder)
                .cause(format!("the folder has more than {max} names")));
        }
        found.iter().map(|name| Name::new(name)).collect()
    }

    /// Returns true if files, folders, logs or partial files exist below a folder.
    pub(crate) fn has_entries(&self, folder: &RelPath) -> Result<bool> {
        let full = self.full(folder)?;
        let mut is_any = false;
        let mut look = |name: Option<&[u8]>| {
            is_any |= name.is_some_and(|name| self.names.below(&full, name).is_some());
            match is_any {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let listed = self
            .state
            .each_object(&mut |object| match State::of(object) {
                Some((State::Folder | State::Partial | State::Control, name)) => look(Some(name)),
                _ => ControlFlow::Continue(()),
            });
        self.about(listed, LIST, folder)?;
        let listed = self
            .data
            .each_object(&mut |object| look(names::file_of_first(object)));
        self.about(listed, LIST, folder)?;
        Ok(is_any)
    }

    fn listed(
        &self,
        path: &RelPath,
        depth: usize,
        name: Name,
        found: &Found,
        modified: ModifiedTime,
        options: &ListOptions,
    ) -> Result<Listed> {
        Ok(Listed {
            depth,
            name,
            kind: EntryKind::File {
                size: found.size,
                sparse: false,
            },
            metadata: Metadata {
                mode: found.note.map_or(FILE_MODE, |note| note.mode),
                modified,
                xattrs: if options.xattrs {
                    found.xattrs.clone()
                } else {
                    Vec::new()
                },
            },
            layout: self.layout_of(&self.full(path)?, Some(found)),
            identity: found
                .generation
                .map_or_else(Vec::new, |one| one.text().into_bytes()),
        })
    }
}

/// A listing of one item.
struct One(Option<Result<Listed>>);

impl Iterator for One {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Result<Listed>> {
        self.0.take()
    }
}

impl Lister for One {
    fn skip_folder(&mut self) {}
}

impl RadosLister {
    fn path_of(&self, below: &[u8]) -> Result<RelPath> {
        let below = below.strip_suffix(b"/").unwrap_or(below);
        match (self.top.is_root(), below.is_empty()) {
            (_, true) => Ok(self.top.clone()),
            (true, _) => RelPath::parse(below),
            (false, _) => RelPath::parse(&[self.top.as_bytes(), b"/", below].concat()),
        }
    }

    /// Returns the path of the open folder below the top, with a slash at its end.
    fn folder(&self) -> Vec<u8> {
        let mut folder = Vec::new();
        for name in &self.open {
            folder.extend_from_slice(name.as_bytes());
            folder.push(b'/');
        }
        folder
    }

    /// Reads the attributes of the next entries. Entries that do not exist any more are left out.
    fn look_on(&mut self) {
        let skipped = self.skipped.take();
        let is_kept = |path: &Vec<u8>| {
            !skipped
                .as_ref()
                .is_some_and(|skipped| path.starts_with(skipped))
        };
        let mut batch: Vec<Vec<u8>> = Vec::new();
        while batch.len() < BATCH {
            let Some(path) = self.left.next() else {
                break;
            };
            if is_kept(&path) {
                batch.push(path);
            }
        }
        self.skipped = skipped;
        let is_folder = |path: &[u8]| path.ends_with(b"/");
        let all: Vec<Result<(Vec<u8>, RelPath)>> = batch
            .into_iter()
            .map(|below| self.path_of(&below).map(|path| (below, path)))
            .collect();
        let (mut data, mut state) = (Vec::new(), Vec::new());
        for (below, path) in all.iter().flatten().filter(|(below, _)| !is_folder(below)) {
            let Ok(full) = self.files.full(path) else {
                continue;
            };
            if self.options.own {
                state.push((below, State::Partial.object(&full)));
            }
            let object = names::object(&full, 0);
            let osd = self.files.osd(&object);
            data.push((below, Job::look(object).on(osd)));
        }
        let (belows, jobs): (Vec<_>, Vec<_>) = data.into_iter().unzip();
        let mut answers: Vec<(&Vec<u8>, Answer<Option<Got>>)> = Vec::new();
        answers.extend(
            belows
                .into_iter()
                .zip(self.files.data.run(jobs).into_iter().map(absent)),
        );
        let (belows, objects): (Vec<_>, Vec<_>) = state.into_iter().unzip();
        let jobs = objects.into_iter().map(Job::look).collect();
        let partials: Vec<_> = self.files.state.run(jobs).into_iter().map(absent).collect();
        answers.extend(belows.into_iter().zip(partials));
        let mut found: std::collections::HashMap<&Vec<u8>, Answer<Option<Got>>> =
            std::collections::HashMap::new();
        for (below, answer) in answers {
            if !matches!(found.get(below), Some(Ok(Some(_)))) {
                found.insert(below, answer);
            }
        }
        let mut looked = VecDeque::new();
        for entry in &all {
            match entry {
                Err(error) => looked.push_back(Err(error.clone())),
                Ok((below, _)) if is_folder(below) => looked.push_back(Ok((below.clone(), None))),
                Ok((below, path)) => match found.remove(below) {
                    Some(Ok(Some(got))) => looked.push_back(Ok((below.clone(), Some(got)))),
                    Some(Ok(None)) | None => {}
                    Some(Err(errno)) => {
                        looked.push_back(Err(errno.at(self.files.end, LIST, path)));
                    }
                },
            }
        }
        self.looked = looked;
    }

    /// Returns the next entry that is not skipped.
    fn next_entry(&mut self) -> Option<Result<Looked>> {
        loop {
            if self.looked.is_empty() {
                if self.left.len() == 0 {
                    return None;
                }
                self.look_on();
                continue;
            }
            let next = self.looked.pop_front()?;
            let is_skipped = match (&next, &self.skipped) {
                (Ok((below, _)), Some(skipped)) => below.starts_with(skipped),
                _ => false,
            };
            if !is_skipped {
                return Some(next);
            }
        }
    }

    fn depth(&self) -> usize {
        self.open.len() + usize::from(self.top_name.is_some())
    }

    /// Returns the item for the begin or the end of the folder `below`.
    fn folder_item(
        &self,
        below: &[u8],
        depth: usize,
        name: Name,
        kind: EntryKind,
    ) -> Result<Listed> {
        let path = self.path_of(below)?;
        let full = self.files.full(&path)?;
        let note = self
            .files
            .about(self.files.folder(&full), LIST, &path)?
            .flatten();
        Ok(Listed {
            depth,
            name,
            kind,
            metadata: Metadata {
                mode: note.map_or(FOLDER_MODE, |note: Note| note.mode),
                modified: note.map(|note| note.file.modified).unwrap_or_default(),
                xattrs: Vec::new(),
            },
            layout: self.files.layout_of(&full, None),
            identity: Vec::new(),
        })
    }

    fn end_folder(&mut self) -> Option<Result<Listed>> {
        let folder = self.folder();
        let name = self.open.pop()?;
        Some(self.folder_item(&folder, self.depth(), name, EntryKind::DirectoryEnd))
    }

    /// Returns the error of an entry whose name dray does not support.
    fn unnamed(&self, below: &[u8], error: Error) -> Error {
        error.cause(format!(
            "the name {} has an empty or reserved component",
            String::from_utf8_lossy(below)
        ))
    }

    /// Returns the next item before the current entry, or the entry itself.
    fn step(&mut self) -> Option<Result<Listed>> {
        let Some((below, got)) = self.current.take() else {
            if !self.open.is_empty() {
                return self.end_folder();
            }
            let name = self.top_name.take()?;
            return Some(self.folder_item(b"", 0, name, EntryKind::DirectoryEnd));
        };
        let folder = self.folder();
        let Some(rest) = below.strip_prefix(folder.as_slice()) else {
            self.current = Some((below, got));
            return self.end_folder();
        };
        if let Some(end) = rest.iter().position(|byte| *byte == b'/') {
            let name = match Name::new(&rest[..end]) {
                Ok(name) => name,
                Err(error) => return Some(Err(self.unnamed(&below, error))),
            };
            let whole = below[..folder.len() + end + 1].to_vec();
            self.current = (whole.len() < below.len()).then_some((below, got));
            if !self.options.recursive {
                self.skip(whole.clone());
                let path = self.path_of(&whole);
                return Some(path.and_then(|path| {
                    let error = self.files.error(ErrorKind::IsADirectory, LIST, &path);
                    Err(error.cause("folders are not listed without -r"))
                }));
            }
            let item = self.folder_item(&whole, self.depth(), name.clone(), EntryKind::Directory);
            self.open.push(name);
            self.is_folder_last = item.is_ok();
            return Some(item);
        }
        let name = Name::new(rest);
        Some(name.and_then(|name| self.file_item(&below, name, got)))
    }

    fn file_item(&self, below: &[u8], name: Name, got: Option<Got>) -> Result<Listed> {
        let path = self.path_of(below)?;
        let got = got.unwrap_or_default();
        let found = self.files.parse(&got, &path)?;
        let full = self.files.full(&path)?;
        let modified = self
            .files
            .about(self.files.modified(&full, &found), LIST, &path)?;
        self.files
            .listed(&path, self.depth(), name, &found, modified, &self.options)
    }

    fn skip(&mut self, folder: Vec<u8>) {
        if self
            .current
            .as_ref()
            .is_some_and(|(below, _)| below.starts_with(&folder))
        {
            self.current = None;
        }
        self.skipped = Some(folder);
    }
}

impl Iterator for RadosLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Result<Listed>> {
        self.is_folder_last = false;
        if !self.is_begun {
            self.is_begun = true;
            self.is_folder_last = true;
            let name = self.top_name.clone()?;
            return Some(self.folder_item(b"", 0, name, EntryKind::Directory));
        }
        if self.current.is_none() {
            match self.next_entry() {
                Some(Ok(entry)) => self.current = Some(entry),
                Some(Err(error)) => return Some(Err(error)),
                None => {}
            }
        }
        self.step()
    }
}

impl Lister for RadosLister {
    fn skip_folder(&mut self) {
        if !self.is_folder_last {
            return;
        }
        self.is_folder_last = false;
        let folder = self.folder();
        if self.open.pop().is_none() {
            // The top itself is skipped.
            self.top_name = None;
            self.left = Vec::new().into_iter();
            self.looked.clear();
        }
        self.skip(folder);
    }

    fn failed_at_folder(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::depth_first;

    #[test]
    fn files_come_before_folders_at_every_level() {
        let mut paths: Vec<&[u8]> = vec![
            b"a/b/", b"a/b/2", b"a-b/5", b"a/", b"4", b"a/1", b"a/b/c/3", b"z", b"a/c",
        ];
        paths.sort_unstable_by(|one, other| depth_first(one, other));
        let expected: Vec<&[u8]> = vec![
            b"4", b"z", b"a/", b"a/1", b"a/c", b"a/b/", b"a/b/2", b"a/b/c/3", b"a-b/5",
        ];
        assert_eq!(paths, expected);
    }
}

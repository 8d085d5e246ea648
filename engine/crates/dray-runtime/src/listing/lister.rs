//! A lister that takes unchanged folders from a checkpoint, and records the folders that it lists.

use super::load::{Chunk, Known};
use super::{Checkpoint, Recording, records};
use dray_core::options::Links;
use dray_core::{
    End, Entry, EntryKind, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, TargetId,
};
use dray_store::{FolderVersion, ListOptions, Listed, Lister, Store};
use std::sync::Arc;
use std::time::SystemTime;
use std::vec::IntoIter;

/// Lists a root with the help of a checkpoint.
pub(crate) struct ResumedLister {
    checkpoint: Arc<Checkpoint>,
    store: Arc<dyn Store>,
    options: ListOptions,
    root: u32,
    /// Listings and recorded folders, each inside the folder of the one before it.
    parts: Vec<Part>,
    /// The folders that were entered and not left, from the top.
    open: Vec<Open>,
    /// The folder that was returned last, until it is entered or skipped.
    pending: Option<Pending>,
    failed_at_folder: bool,
}

/// A source of items.
enum Part {
    /// A listing of the store. Its items of depth 0 have this depth.
    Live {
        lister: Box<dyn Lister>,
        depth: usize,
    },
    /// A recorded folder.
    Recorded(Recorded),
}

struct Recorded {
    known: Arc<Known>,
    next_chunk: usize,
    entries: IntoIter<Entry>,
    /// Depth of the entries.
    depth: usize,
    /// The layout of the plain files, if it is known.
    layout: Option<Layout>,
    count: u64,
}

struct Open {
    /// Path in the store; `None` if it is longer than a path may be.
    path: Option<RelPath>,
    /// Name of the folder; `None` for the top of a listing of contents.
    name: Option<Name>,
    layout: Layout,
    recording: Option<Recording>,
}

struct Pending {
    depth: usize,
    /// True if the store's lister is at this folder; false if the folder is a recorded entry.
    is_live: bool,
}

/// Checks that a checkpoint can be used for a listing of `store`. The store must know versions of
/// folders. A listing that follows links finds loops only if it enters the folders itself.
///
/// # Errors
/// The reason why no checkpoint can be used.
pub(crate) fn check_possible(
    store: &dyn Store,
    options: &ListOptions,
) -> std::result::Result<(), &'static str> {
    if !store.capabilities().folder_versions {
        return Err("the storage system does not show whether a folder has changed");
    }
    if options.links == Links::Follow {
        return Err("the listing follows symbolic links");
    }
    Ok(())
}

impl ResumedLister {
    /// Begins the listing of `top`, as [`Store::list`] does.
    ///
    /// # Errors
    /// The errors of [`Store::list`].
    pub(crate) fn new(
        checkpoint: &Arc<Checkpoint>,
        store: &Arc<dyn Store>,
        root: u32,
        top: &RelPath,
        options: &ListOptions,
    ) -> Result<Self> {
        let mut lister = Self {
            checkpoint: Arc::clone(checkpoint),
            store: Arc::clone(store),
            options: *options,
            root,
            parts: Vec::new(),
            open: Vec::new(),
            pending: None,
            failed_at_folder: false,
        };
        if options.contents || top.is_root() {
            let version = store.folder_version(top)?;
            let known = checkpoint.find(root, top, version.as_ref());
            let part = match &known {
                Some(known) => lister.recorded(Arc::clone(known), 0),
                None => Part::Live {
                    lister: store.list(top, options)?,
                    depth: 0,
                },
            };
            lister.parts.push(part);
            lister.open(Some(top.clone()), None, Layout::Single(TargetId(0)));
            if known.is_none() {
                lister.start_recording(version.as_ref());
            }
        } else {
            lister.parts.push(Part::Live {
                lister: store.list(top, options)?,
                depth: 0,
            });
            // The folder above the top is not recorded, because it is not listed.
            lister.open(top.parent(), None, Layout::Single(TargetId(0)));
        }
        Ok(lister)
    }

    fn recorded(&self, known: Arc<Known>, depth: usize) -> Part {
        Part::Recorded(Recorded {
            known,
            next_chunk: 0,
            entries: Vec::new().into_iter(),
            depth,
            layout: None,
            count: 0,
        })
    }

    fn open(&mut self, path: Option<RelPath>, name: Option<Name>, layout: Layout) {
        self.open.push(Open {
            path,
            name,
            layout,
            recording: None,
        });
    }

    fn start_recording(&mut self, version: Option<&FolderVersion>) {
        if let Some(open) = self.open.last_mut()
            && let Some(path) = &open.path
        {
            let now = SystemTime::now();
            open.recording = self.checkpoint.record(self.root, path, version, now);
        }
    }

    /// Records an item of the innermost folder.
    fn note(&mut self, item: &Listed) {
        let Some(open) = self.open.last_mut() else {
            return;
        };
        let Some(recording) = &mut open.recording else {
            return;
        };
        let is_plain = item.layout == open.layout || !matches!(item.kind, EntryKind::File { .. });
        if self.checkpoint.add(recording, item, is_plain).is_err() {
            open.recording = None;
        }
    }

    /// Enters the folder that was returned last: takes it from the checkpoint, or lists it.
    fn enter(&mut self, pending: &Pending) -> Result<()> {
        let Some(path) = self.open.last().and_then(|open| open.path.clone()) else {
            return match pending.is_live {
                // The store lists the folder inside the folder above, without its path.
                true => Ok(()),
                false => Err(too_long()),
            };
        };
        // The listing itself reports an error, if the folder cannot be read.
        let version = self.store.folder_version(&path).unwrap_or_default();
        if let Some(known) = self.checkpoint.find(self.root, &path, version.as_ref()) {
            if pending.is_live
                && let Some(Part::Live { lister, .. }) = self.parts.last_mut()
            {
                lister.skip_folder();
            }
            let part = self.recorded(known, pending.depth + 1);
            self.parts.push(part);
            return Ok(());
        }
        if !pending.is_live {
            let options = ListOptions {
                contents: false,
                ..self.options
            };
            let mut lister = self.store.list(&path, &options)?;
            // The first item is the folder, which was returned from the record of its parent.
            match lister.next() {
                Some(Ok(item)) if item.kind == EntryKind::Directory => {}
                Some(Err(error)) => return Err(error),
                _ => {
                    let cause = "the folder was replaced while it was listed";
                    let error =
                        dray_store::unsupported(dray_core::End::Source, "list", &path, cause);
                    return Err(error);
                }
            }
            let depth = pending.depth;
            self.parts.push(Part::Live { lister, depth });
        }
        self.start_recording(version.as_ref());
        Ok(())
    }

    /// Handles an item of the store's lister.
    fn take(&mut self, mut item: Listed, depth: usize) -> Listed {
        item.depth += depth;
        match item.kind {
            EntryKind::DirectoryEnd => {
                if let Some(open) = self.open.pop()
                    && let Some(recording) = open.recording
                {
                    self.checkpoint.end(recording, &item.name, &item.metadata);
                }
            }
            EntryKind::Directory => {
                self.note(&item);
                self.return_folder(&item, true);
                self.check_path();
            }
            EntryKind::File { .. } | EntryKind::Symlink { .. } => self.note(&item),
        }
        item
    }

    fn return_folder(&mut self, item: &Listed, is_live: bool) {
        let above = self.open.last().and_then(|open| open.path.as_ref());
        let path = above.and_then(|above| above.join(&item.name).ok());
        self.open(path, Some(item.name.clone()), item.layout.clone());
        self.pending = Some(Pending {
            depth: item.depth,
            is_live,
        });
    }

    /// Stops the recording of the folder above, if the path of the folder that was returned last is
    /// too long for a call of the store. From a record, this folder could not be listed.
    fn check_path(&mut self) {
        if let [.., above, folder] = self.open.as_mut_slice()
            && folder.path.is_none()
        {
            above.recording = None;
        }
    }

    /// Returns the next item of the recorded folder, or its end.
    fn next_recorded(&mut self) -> Option<Result<Listed>> {
        let Some(Part::Recorded(recorded)) = self.parts.last_mut() else {
            return None;
        };
        loop {
            if let Some(entry) = recorded.entries.next() {
                recorded.count += 1;
                let path = self.open.last().and_then(|open| open.path.as_ref());
                let item = recorded.item(entry, path, self.store.as_ref());
                if item.kind == EntryKind::Directory {
                    self.return_folder(&item, false);
                }
                return Some(Ok(item));
            }
            let Some(chunk) = recorded.known.chunks.get(recorded.next_chunk) else {
                break;
            };
            recorded.next_chunk += 1;
            match self.checkpoint.read_chunk(*chunk) {
                Ok(entries) => recorded.entries = entries.into_iter(),
                Err(error) => {
                    self.failed_at_folder = true;
                    recorded.next_chunk = usize::MAX;
                    return Some(Err(error));
                }
            }
        }
        self.checkpoint.count_entries(recorded.count);
        let (end, depth) = (recorded.known.end, recorded.depth);
        self.parts.pop();
        let name = self.open.pop()?.name?;
        Some(Ok(self.end_of(name, end, depth.saturating_sub(1))))
    }

    fn end_of(&self, name: Name, end: Chunk, depth: usize) -> Listed {
        let entry = self.checkpoint.read_chunk(end).unwrap_or_default();
        let metadata = entry.into_iter().next().map(|entry| entry.metadata);
        folder_end(name, metadata.unwrap_or_default(), depth)
    }
}

impl Recorded {
    fn item(&mut self, entry: Entry, folder: Option<&RelPath>, store: &dyn Store) -> Listed {
        let layout = match (&entry.kind, records::is_plain(&entry)) {
            (EntryKind::File { .. }, is_plain) => {
                let known = self.layout.clone().filter(|_| is_plain);
                let ask = || {
                    let path = folder.and_then(|folder| folder.join(&entry.name).ok());
                    path.and_then(|path| store.layout(&path).ok())
                };
                // The numbers of targets are valid within one process, so they are not recorded. A
                // wrong layout costs speed, but no data.
                let layout = known.or_else(ask).unwrap_or(Layout::Single(TargetId(0)));
                if is_plain {
                    self.layout = Some(layout.clone());
                }
                layout
            }
            _ => Layout::Single(TargetId(0)),
        };
        Listed {
            depth: self.depth,
            name: entry.name,
            kind: entry.kind,
            metadata: entry.metadata,
            layout,
            identity: Vec::new(),
        }
    }
}

fn too_long() -> Error {
    Error::new(ErrorKind::InvalidName, End::Source, "list the folder")
        .cause("the path has more than 64 KiB")
        .remedy("shorten the names of the folders above")
}

fn folder_end(name: Name, metadata: Metadata, depth: usize) -> Listed {
    Listed {
        depth,
        name,
        kind: EntryKind::DirectoryEnd,
        metadata,
        layout: Layout::Single(TargetId(0)),
        identity: Vec::new(),
    }
}

impl Iterator for ResumedLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.failed_at_folder = false;
        if let Some(pending) = self.pending.take()
            && let Err(error) = self.enter(&pending)
        {
            // The folder was returned, so its end must follow. An empty listing gives it.
            self.failed_at_folder = true;
            let known = Known::empty();
            let part = self.recorded(Arc::new(known), pending.depth + 1);
            self.parts.push(part);
            return Some(Err(error));
        }
        loop {
            match self.parts.last_mut()? {
                Part::Recorded(_) => match self.next_recorded() {
                    Some(item) => return Some(item),
                    None => continue,
                },
                Part::Live { lister, depth } => match lister.next() {
                    Some(Ok(item)) => {
                        let depth = *depth;
                        return Some(Ok(self.take(item, depth)));
                    }
                    Some(Err(error)) => {
                        self.failed_at_folder = lister.failed_at_folder();
                        // The next session must see this error too, or the entry without it.
                        if let Some(open) = self.open.last_mut() {
                            open.recording = None;
                        }
                        return Some(Err(error));
                    }
                    None => {
                        self.parts.pop();
                        if self.parts.is_empty()
                            && let Some(Open {
                                recording: Some(recording),
                                ..
                            }) = self.open.pop()
                        {
                            let end = Metadata::default();
                            let top = records::top_name();
                            if let Some(top) = top {
                                self.checkpoint.end(recording, &top, &end);
                            }
                        }
                    }
                },
            }
        }
    }
}

impl Lister for ResumedLister {
    fn skip_folder(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.open.pop();
        if pending.is_live
            && let Some(Part::Live { lister, .. }) = self.parts.last_mut()
        {
            lister.skip_folder();
        }
    }

    fn failed_at_folder(&self) -> bool {
        self.failed_at_folder
    }
}

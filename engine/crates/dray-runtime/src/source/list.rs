//! The lister: walks the roots on request, and announces in batches the entries that the filter
//! accepts.

use crate::listing::{Checkpoint, ResumedLister, check_possible};
use crate::select::Filter;
use crate::source::Root;
use crossbeam_channel::{Receiver, Sender};
use dray_core::options::{Options, Order};
use dray_core::{
    ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Metadata, Name, RelPath, Result,
    Status,
};
use dray_link::link::SourceEvent;
use dray_link::origin::Origin;
use dray_session::Failure;
use dray_session::source::Listed;
use dray_store::{ListOptions, Lister, ReadState};
use dray_wire::bounds::entry_bytes;
use dray_wire::message::Selection;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

/// Maximum number of entries per batch in [`all`].
const ALL_BATCH: u32 = 512;

/// Maximum size in bytes of the names, link targets and attributes of a batch. A single entry may
/// have a hundred KiB of attributes. The value is estimated, not measured.
const BATCH_BYTES: u64 = 1 << 20;

struct Folder {
    index: FileIndex,
    path: RelPath,
}

struct Walk {
    root: Root,
    lister: Box<dyn Lister>,
}

/// The listing of all roots, in order.
pub(super) struct Listing {
    roots: VecDeque<Root>,
    options: ListOptions,
    filter: Filter,
    range: Option<ByteRange>,
    size: Option<u64>,
    rename: Option<Name>,
    walk: Option<Walk>,
    folders: Vec<Folder>,
    next_index: u64,
    is_shared: bool,
    checkpoint: Option<Arc<Checkpoint>>,
    next_root: u32,
}

#[derive(Default)]
struct Batch {
    entries: Vec<Listed>,
    origins: Vec<(FileIndex, Arc<Origin>)>,
    failed: Vec<Failure>,
    counted: u32,
    bytes: u64,
}

impl Listing {
    pub(super) fn new(roots: Vec<Root>, selection: &Selection, asked: &Options) -> Result<Self> {
        let options = ListOptions {
            recursive: selection.recursive,
            contents: false,
            links: selection.links,
            xattrs: asked.xattrs,
            own: false,
        };
        Ok(Self {
            roots: roots.into(),
            options,
            filter: Filter::new(selection)?,
            range: selection.range,
            size: selection.size,
            rename: selection.rename.clone(),
            walk: None,
            folders: Vec::new(),
            next_index: 0,
            is_shared: !matches!(asked.order, Order::Random { .. }),
            checkpoint: None,
            next_root: 0,
        })
    }

    /// Continues the listing from a checkpoint, and records it there.
    pub(super) fn continued(self, checkpoint: Option<Arc<Checkpoint>>) -> Self {
        if let Some(checkpoint) = &checkpoint {
            checkpoint.begin(SystemTime::now());
        }
        Self { checkpoint, ..self }
    }

    /// Writes the records of the last batch to the checkpoint.
    fn keep(&self, finished: bool) {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.flush();
            if finished {
                checkpoint.note_changes();
            }
        }
    }

    fn list(&mut self, root: &Root, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let number = self.next_root;
        self.next_root += 1;
        let checkpoint = self.checkpoint.as_ref().filter(|_| options.recursive);
        let Some(checkpoint) = checkpoint else {
            return root.store.list(&root.path, options);
        };
        if let Err(why) = check_possible(root.store.as_ref(), options) {
            checkpoint.note_unused(&root.top, why);
            return root.store.list(&root.path, options);
        }
        let lister = ResumedLister::new(checkpoint, &root.store, number, &root.path, options)?;
        Ok(Box::new(lister))
    }

    /// Lists up to `max` entries. Returns true with the last batch.
    fn batch(&mut self, max: u32) -> (Batch, bool) {
        let mut batch = Batch::default();
        while batch.counted < max && batch.failed.len() < max as usize && batch.bytes < BATCH_BYTES
        {
            let Some(walk) = &mut self.walk else {
                match self.roots.pop_front() {
                    Some(root) => self.begin(root, &mut batch),
                    None => return (batch, true),
                }
                continue;
            };
            match walk.lister.next() {
                Some(Ok(item)) => self.take(item, &mut batch),
                Some(Err(error)) => {
                    let is_folder = walk.lister.failed_at_folder();
                    let error = rebase(&walk.root, self.rename.as_ref(), error);
                    if !leaves_out(&self.filter, walk.root.contents, is_folder, &error) {
                        batch.fail(error);
                    }
                }
                None => {
                    self.walk = None;
                    self.folders.clear();
                }
            }
        }
        (batch, false)
    }

    fn begin(&mut self, root: Root, batch: &mut Batch) {
        let options = ListOptions {
            contents: root.contents,
            ..self.options
        };
        match self.list(&root, &options) {
            Ok(lister) => self.walk = Some(Walk { root, lister }),
            Err(error) => batch.fail(rebase(&root, self.rename.as_ref(), error)),
        }
    }

    fn take(&mut self, item: dray_store::Listed, batch: &mut Batch) {
        self.folders
            .truncate(item.depth + usize::from(item.kind == EntryKind::DirectoryEnd));
        if item.kind == EntryKind::DirectoryEnd {
            self.end_folder(item, batch);
            return;
        }
        let Some(found) = self.place_of(&item) else {
            return;
        };
        let is_folder = item.kind == EntryKind::Directory;
        let taken = found.and_then(|(name, path)| Ok((self.kind_of(&item, &path)?, name, path)));
        let ((kind, origin), name, path) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                batch.fail(error);
                return;
            }
        };
        let index = FileIndex(self.next_index);
        self.next_index += 1;
        batch.counted += 1;
        batch.origins.extend(origin.map(|origin| (index, origin)));
        let parent = self.folders.last().map(|folder| folder.index);
        let metadata = if is_folder {
            Metadata::default()
        } else {
            item.metadata
        };
        if is_folder {
            self.folders.push(Folder {
                index,
                path: path.clone(),
            });
        }
        batch.push(Listed {
            entry: Entry {
                index,
                parent,
                name,
                kind,
                metadata,
            },
            path,
            layout: item.layout,
        });
    }

    /// Announces the end of the folder that the lister entered last.
    fn end_folder(&mut self, item: dray_store::Listed, batch: &mut Batch) {
        let Some(folder) = self.folders.pop() else {
            return;
        };
        let parent = self.folders.last().map(|folder| folder.index);
        batch.push(Listed {
            entry: Entry {
                index: folder.index,
                parent,
                name: item.name,
                kind: item.kind,
                metadata: item.metadata,
            },
            path: folder.path,
            layout: item.layout,
        });
    }

    /// Returns the name and path of an announced entry, or `None` if the filter excludes it.
    fn place_of(&mut self, item: &dray_store::Listed) -> Option<Result<(Name, RelPath)>> {
        let walk = self.walk.as_mut()?;
        let is_folder = item.kind == EntryKind::Directory;
        // The filter applies to entries below a path that the caller named, and never to that path
        // itself.
        let named = item.depth == 0 && !walk.root.contents;
        let name = match &self.rename {
            Some(name) if named && !is_folder => name.clone(),
            _ if named => walk.root.name.clone().unwrap_or_else(|| item.name.clone()),
            _ => item.name.clone(),
        };
        let above = self.folders.last();
        let here = above.map_or_else(RelPath::root, |folder| folder.path.clone());
        let path = match here.join(&name) {
            Ok(path) => path,
            Err(error) => {
                if is_folder {
                    walk.lister.skip_folder();
                }
                return Some(Err(error.at(End::Source)));
            }
        };
        if is_folder && !named && !self.filter.enters(&path) {
            walk.lister.skip_folder();
            return None;
        }
        if !(is_folder || named || self.filter.takes(&path)) {
            return None;
        }
        if named && matches!(item.kind, EntryKind::Symlink { .. }) {
            return Some(Err(named_link().file(&path)));
        }
        Some(Ok((name, path)))
    }

    /// Returns the kind with which an entry is announced. For a file, also returns the origin of
    /// the bytes.
    fn kind_of(
        &self,
        item: &dray_store::Listed,
        path: &RelPath,
    ) -> Result<(EntryKind, Option<Arc<Origin>>)> {
        let (EntryKind::File { size, sparse }, Some(walk)) = (&item.kind, &self.walk) else {
            return Ok((item.kind.clone(), None));
        };
        let listed = ReadState {
            size: *size,
            modified: item.metadata.modified,
        };
        let asked = self.size.map_or(Ok(()), |asked| must_be(asked, *size));
        asked.map_err(|error| error.file(path))?;
        let (size, offset) = match self.range {
            Some(range) => cut(range, *size).map_err(|error| error.file(path))?,
            None => (*size, 0),
        };
        // The path in the store: the root's path, followed by the names that the lister found below
        // it.
        let origin = Origin {
            store: Arc::clone(&walk.root.store),
            path: origin_path(&walk.root, &self.folders, path, &item.name)?,
            top: Arc::clone(&walk.root.top),
            offset,
            listed,
            handle: OnceLock::new(),
            noted: Mutex::new(None),
            is_shared: self.is_shared,
        };
        let kind = EntryKind::File {
            size,
            sparse: *sparse,
        };
        Ok((kind, Some(Arc::new(origin))))
    }
}

/// Returns true if the filter excludes an entry that could not be listed. Such an entry is not
/// reported as failed. The filter applies to entries of every type, except a path that the caller
/// named.
fn leaves_out(filter: &Filter, contents: bool, is_folder: bool, error: &Error) -> bool {
    let Some(path) = error.file.as_ref().filter(|path| !path.is_root()) else {
        return false;
    };
    let is_named = !contents && path.components().count() == 1;
    let is_taken = match is_folder {
        true => filter.enters(path),
        false => filter.takes(path),
    };
    !is_named && !is_taken
}

/// Returns the error for a symbolic link that the caller named as the source. Such a link is not
/// copied, because a relative link at the destination could lead to another file, or to no file.
fn named_link() -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Source, "copy")
        .cause("the source is a symbolic link")
        .remedy("give the target of the link as the source, or set the option `links` to `follow`")
}

/// Returns the path in the root's store for the entry that has `path` at the destination.
fn origin_path(
    root: &Root,
    folders: &[Folder],
    path: &RelPath,
    name: &dray_core::Name,
) -> Result<RelPath> {
    if root.contents {
        return root.path.join_path(path);
    }
    if folders.is_empty() {
        return Ok(root.path.clone());
    }
    // Skip the name of the root, because it may differ at the destination.
    let below = path.components().skip(1);
    let joined = below
        .into_iter()
        .try_fold(root.path.clone(), |joined, part| joined.join(&part));
    debug_assert_eq!(path.name().as_ref(), Some(name));
    joined
}

/// Replaces the store's path in an error by the path at the destination, which the caller knows.
fn rebase(root: &Root, rename: Option<&Name>, error: Error) -> Error {
    let Some(path) = error.file.clone() else {
        return error;
    };
    if !path.starts_with(&root.path) {
        return error;
    }
    let own = match (root.contents, rename) {
        (true, _) => None,
        (false, Some(name)) => Some(name.clone()),
        (false, None) => root.name.clone().or_else(|| root.path.name()),
    };
    let below = path.components().skip(root.path.components().count());
    let names = own.into_iter().chain(below);
    match names
        .into_iter()
        .try_fold(RelPath::root(), |joined, name| joined.join(&name))
    {
        Ok(path) => error.file_copied_as(&path, &root.top),
        Err(_) => error,
    }
}

/// Returns an error if the file's size differs from the requested size, because the file is then
/// another file or incomplete.
fn must_be(asked: u64, size: u64) -> Result<()> {
    if asked == size {
        return Ok(());
    }
    Err(
        Error::new(ErrorKind::SourceChanged, End::Source, "select the file")
            .cause(format!(
                "the file has {size} bytes, but the request states a size of {asked} bytes"
            ))
            .remedy("check that the file is complete and is the intended file")
            .status(Status::Permanent),
    )
}

/// Checks that `range` lies within a file of `size` bytes. Returns the length and the offset of the
/// range.
fn cut(range: ByteRange, size: u64) -> Result<(u64, u64)> {
    if range.end() > size {
        let (offset, length) = (range.offset, range.length);
        return Err(Error::new(
            ErrorKind::InvalidRequest,
            End::Source,
            "select the byte range",
        )
        .cause(format!(
            "the range {offset}:{length} ends after the end of the file ({size} bytes)"
        ))
        .remedy("choose a --range inside the file"));
    }
    Ok((range.length, range.offset))
}

impl Batch {
    fn push(&mut self, listed: Listed) {
        self.bytes += entry_bytes(&listed.entry, listed.path.as_bytes().len());
        self.entries.push(listed);
    }

    fn fail(&mut self, error: Error) {
        let path = error.file.clone().unwrap_or_else(RelPath::root);
        self.failed.push(Failure { path, error });
    }
}

/// Lists all entries, in batches.
pub(super) fn all(mut listing: Listing, mut each: impl FnMut(Vec<Listed>, Vec<Failure>)) {
    loop {
        let (batch, finished) = listing.batch(ALL_BATCH);
        each(batch.entries, batch.failed);
        if finished {
            return;
        }
    }
}

/// Answers requests for entries until the executor has ended.
pub(super) fn run(mut listing: Listing, jobs: &Receiver<u32>, events: &Sender<SourceEvent>) {
    for max in jobs {
        let (batch, finished) = listing.batch(max);
        listing.keep(finished);
        let event = SourceEvent::Listed {
            entries: batch.entries,
            origins: batch.origins,
            failed: batch.failed,
            finished,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

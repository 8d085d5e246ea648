//! Lists a tree depth first, in bounded memory.
//!
//! The lister reads a folder in batches of names. It calls `stat` for a batch in inode order, which
//! is roughly the order on the disk, returns the batch sorted by name, and then lists its folders.
//! Memory holds only one batch of a large folder, and a small folder is returned sorted as a whole.

mod flat;

pub(crate) use flat::Flat;

use super::layouts::Layouts;
use super::read::special;
use super::resolve::{FOLDER, Root, split};
use super::{ErrorContext, LinkScope, PosixStore, attributes, device_of, probe};
use crate::store::Lister;
use crate::types::{ListOptions, Listed};
use dray_core::options::Links;
use dray_core::path::{PATH_LENGTH_MAX, RESERVED_PREFIX};
use dray_core::{
    End, EntryKind, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, StripeChoice,
    TargetId,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Stat};
use rustix::io::Errno;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Maximum number of names in a batch. A batch of files with their attributes needs about 200 bytes
/// of memory per name.
const BATCH_NAMES_MAX: usize = 4096;
/// Minimum number of names in a batch, used deep in the tree.
const BATCH_NAMES_MIN: usize = 64;

/// If all open folders together hold more names than this, the lister uses smaller batches.
const HELD_NAMES_MAX: usize = 4 * BATCH_NAMES_MAX;

/// Maximum number of folders kept open. In a deeper tree, the lister closes the folders nearest the
/// top and reopens a folder when the listing returns to this folder.
const OPEN_FOLDERS_MAX: usize = 64;

/// Size in bytes of the buffer for `getdents`. The C library uses the same size.
const BUFFER_BYTES: usize = 32 * 1024;

impl PosixStore {
    pub(crate) fn lister(&self, top: &RelPath, options: &ListOptions) -> Result<PosixLister> {
        let place = self.place(top);
        if options.links == Links::Follow && *self.root.scope() == LinkScope::Never {
            return Err(Error::new(ErrorKind::InvalidRequest, self.end, "list")
                .file(top)
                .cause("the request asks to follow links, but this root does not permit this")
                .remedy("use --links keep or --links refuse"));
        }
        let mut lister = PosixLister {
            root: Arc::clone(&self.root),
            layouts: Arc::clone(&self.layouts),
            end: self.end,
            options: *options,
            sends_stripes: self.stripes == Some(StripeChoice::Source),
            path: Vec::new(),
            frames: Vec::new(),
            held_names: 0,
            top: None,
            entered: false,
            failed_at_folder: false,
            sizeless: Cell::new(None),
            buffer: Vec::new(),
        };
        if top.is_root() || options.contents {
            let failed = |errno| place.error("list the folder", errno);
            let fd = self.root.open(top.as_bytes(), FOLDER).map_err(failed)?;
            let stat = rustix::fs::fstat(&fd).map_err(failed)?;
            lister.path.extend_from_slice(top.as_bytes());
            lister.push(fd, &stat, None, 0);
        } else {
            lister.start_at(top, &place)?;
        }
        Ok(lister)
    }
}

/// A folder between the top and the current folder.
struct Frame {
    /// Descriptor of the folder. `None` while the lister has closed the folder to keep within
    /// [`OPEN_FOLDERS_MAX`].
    fd: Option<OwnedFd>,
    /// Position in the folder at which reading continues after the folder is reopened.
    position: u64,
    device: u64,
    inode: u64,
    target: TargetId,
    metadata: Metadata,
    /// Name of the folder. `None` if the listing has no items for the start and end of this folder.
    name: Option<Name>,
    /// Length in bytes of the path of the parent folder.
    parent_length: usize,
    /// Depth of the entries of this folder.
    depth: usize,
    is_read: bool,
    /// Items of the current batch in reverse order, so that the next item is the last.
    items: Vec<Result<Listed>>,
    folders: Vec<(Name, bool)>,
}

pub(crate) struct PosixLister {
    root: Arc<Root>,
    layouts: Arc<Layouts>,
    end: End,
    options: ListOptions,
    /// True if the attributes of a Lustre file contain its stripes.
    sends_stripes: bool,
    /// Path of the folder of the last frame.
    path: Vec<u8>,
    frames: Vec<Frame>,
    /// Total number of folder names that wait in all frames.
    held_names: usize,
    /// The only item of the listing, if the top is not a folder.
    top: Option<Result<Listed>>,
    /// True if the last item was the start of a folder.
    entered: bool,
    /// True if the last error may concern all entries of a folder.
    failed_at_folder: bool,
    /// Result of the last check of a device: the device number, and true if its files report no
    /// useful size.
    sizeless: Cell<Option<(u64, bool)>>,
    buffer: Vec<u8>,
}

impl PosixLister {
    /// Prepares the item for the top of the listing.
    fn start_at(&mut self, top: &RelPath, place: &ErrorContext) -> Result<()> {
        let (above, name) = split(top.as_bytes());
        let name = Name::new(name)?;
        let failed = |errno| place.error("list", errno);
        let (folder, _) = self.root.open_folder(above).map_err(failed)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(&folder, name.as_bytes(), flags).map_err(failed)?;
        self.path.extend_from_slice(above);
        let device = device_of(&stat);
        let target = self.layouts.of_folder(folder.as_fd(), above, device);
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_link = kind == FileType::Symlink;
        if kind == FileType::Directory || (is_link && self.options.links == Links::Follow) {
            // `next` enters the top from a frame that has no other entry.
            self.frames.push(Frame {
                fd: Some(folder),
                position: 0,
                device,
                inode: 0,
                target,
                metadata: Metadata::default(),
                name: None,
                parent_length: above.len(),
                depth: 0,
                is_read: true,
                items: Vec::new(),
                folders: vec![(name, is_link)],
            });
            self.held_names = 1;
        } else {
            self.top = Some(self.look_at(&folder, name, target, 0, &stat));
        }
        Ok(())
    }

    fn push(&mut self, fd: OwnedFd, stat: &Stat, name: Option<Name>, depth: usize) {
        let parent_length = match &name {
            Some(name) => {
                let parent_length = self.path.len();
                if !self.path.is_empty() {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(name.as_bytes());
                parent_length
            }
            None => self.path.len(),
        };
        let device = device_of(stat);
        let mut metadata = attributes::metadata(stat);
        if self.options.xattrs {
            metadata.xattrs = attributes::xattrs(fd.as_fd()).unwrap_or_default();
        }
        let target = self.layouts.of_folder(fd.as_fd(), &self.path, device);
        self.frames.push(Frame {
            fd: Some(fd),
            position: 0,
            device,
            inode: stat.st_ino,
            target,
            metadata,
            name,
            parent_length,
            depth,
            is_read: false,
            items: Vec::new(),
            folders: Vec::new(),
        });
        self.close_far_up();
    }

    /// Closes folders nearest the top, so that few folders are open at any depth of the tree.
    fn close_far_up(&mut self) {
        let Some(far) = self.frames.len().checked_sub(OPEN_FOLDERS_MAX + 1) else {
            return;
        };
        let frame = &mut self.frames[far];
        if let Some(fd) = frame.fd.take() {
            frame.position = rustix::fs::tell(&fd).unwrap_or(0);
        }
    }

    /// Reopens the folder of the last frame, if it was closed, and sets the position at which
    /// reading stopped.
    fn reopen(&mut self) -> Result<(), Errno> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        if frame.fd.is_none() {
            let fd = self.root.open(&self.path, FOLDER)?;
            let stat = rustix::fs::fstat(&fd)?;
            if (device_of(&stat), stat.st_ino) != (frame.device, frame.inode) {
                return Err(Errno::STALE);
            }
            rustix::fs::seek(&fd, SeekFrom::Start(frame.position))?;
            frame.fd = Some(fd);
        }
        Ok(())
    }

    /// Reads the next batch of names from the folder of the last frame.
    fn fill(&mut self) -> Result<(), Errno> {
        self.reopen()?;
        let wanted = HELD_NAMES_MAX
            .saturating_sub(self.held_names)
            .clamp(BATCH_NAMES_MIN, BATCH_NAMES_MAX);
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let Some(fd) = frame.fd.as_ref() else {
            return Ok(());
        };
        let mut others: Vec<(u64, Name)> = Vec::new();
        let mut failed = None;
        self.buffer.reserve(BUFFER_BYTES);
        let buffer: &mut [MaybeUninit<u8>] = self.buffer.spare_capacity_mut();
        let mut entries = RawDir::new(fd, buffer);
        let mut count = 0;
        let mut has_ended = false;
        // Take all entries out of the buffer. The kernel's position in the folder is behind them,
        // so the next read would miss entries that are left in the buffer.
        while count < wanted || !entries.is_buffer_empty() {
            let Some(entry) = entries.next() else {
                has_ended = true;
                break;
            };
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    failed = Some(errno);
                    break;
                }
            };
            let bytes = entry.file_name().to_bytes();
            let is_own = bytes.starts_with(RESERVED_PREFIX);
            // A `stat` of each file would cost too much: use the file type from `getdents`.
            let is_wanted = match (self.options.own, entry.file_type()) {
                (false, _) => !is_own,
                (true, FileType::Directory | FileType::Unknown) => true,
                (true, _) => is_own,
            };
            if matches!(bytes, b"." | b"..") || !is_wanted {
                continue;
            }
            count += 1;
            match Name::new(bytes) {
                Ok(name) if entry.file_type() == FileType::Directory => {
                    frame.folders.push((name, false));
                }
                Ok(name) => others.push((entry.ino(), name)),
                Err(error) => frame.items.push(Err(error.at(self.end))),
            }
        }
        frame.is_read = has_ended;
        self.look_at_all(others);
        failed.map_or(Ok(()), Err)
    }

    /// Calls `stat` for all entries of a batch that may be files or links, and sorts the batch.
    fn look_at_all(&mut self, mut others: Vec<(u64, Name)>) {
        let Some(mut frame) = self.frames.pop() else {
            return;
        };
        others.sort_unstable_by_key(|(inode, _)| *inode);
        if let Some(fd) = &frame.fd {
            for (_, name) in others {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let stat = match rustix::fs::statat(fd, name.as_bytes(), flags) {
                    Ok(stat) => stat,
                    Err(errno) => {
                        frame.items.push(Err(self.named("list", &name, errno)));
                        continue;
                    }
                };
                let kind = FileType::from_raw_mode(stat.st_mode);
                let is_followed = kind == FileType::Symlink && self.options.links == Links::Follow;
                // Some file systems do not return the file type with the name.
                if kind == FileType::Directory || is_followed {
                    frame.folders.push((name, is_followed));
                    continue;
                }
                if self.options.own && !name.is_reserved() {
                    continue;
                }
                let depth = frame.depth;
                let item = self.look_at(fd, name, frame.target, depth, &stat);
                frame.items.push(item);
            }
        }
        frame.items.sort_by(|a, b| name_in(b).cmp(&name_in(a)));
        frame.folders.sort_unstable_by(|a, b| b.cmp(a));
        self.held_names += frame.folders.len();
        self.frames.push(frame);
    }

    /// Returns true if files of this device report a size of 0 although they have content.
    fn tells_no_size(&self, folder: &OwnedFd, stat: &Stat) -> bool {
        let device = device_of(stat);
        match self.sizeless.get() {
            Some((known, answer)) if known == device => answer,
            _ => {
                let kind = rustix::fs::fstatfs(folder).map(|state| state.f_type as u64);
                let answer = kind.is_ok_and(|kind| probe::SIZELESS.contains(&kind));
                self.sizeless.set(Some((device, answer)));
                answer
            }
        }
    }

    fn look_at(
        &self,
        folder: &OwnedFd,
        name: Name,
        target: TargetId,
        depth: usize,
        stat: &Stat,
    ) -> Result<Listed> {
        let mut metadata = attributes::metadata(stat);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                if stat.st_size == 0 && self.tells_no_size(folder, stat) {
                    let error = self.named("list", &name, Errno::OPNOTSUPP);
                    return Err(error
                        .cause("the file system generates the content and reports no size")
                        .remedy("exclude the entry with --exclude"));
                }
                if self.options.xattrs {
                    metadata.xattrs = self.xattrs(folder, &name, stat)?;
                }
                attributes::file_kind(stat)
            }
            FileType::Symlink if self.options.links == Links::Keep => {
                let text = rustix::fs::readlinkat(folder, name.as_bytes(), Vec::new())
                    .map_err(|errno| self.named("read the link", &name, errno))?;
                EntryKind::Symlink {
                    target: text.into_bytes(),
                }
            }
            FileType::Symlink => {
                let error = self.named("list", &name, Errno::OPNOTSUPP);
                return Err(error
                    .cause("the entry is a symbolic link, and the request refuses links")
                    .remedy("use --exclude for this entry, or --links keep, or --links follow"));
            }
            other => {
                return Err(match self.path_of(&name) {
                    Ok(path) => special(self.end, &path, other),
                    Err(error) => error,
                });
            }
        };
        let layout = match kind {
            EntryKind::File { .. } => {
                self.layouts
                    .of_file(folder.as_fd(), name.as_bytes(), stat, target)
            }
            _ => Layout::Single(target),
        };
        Ok(Listed {
            depth,
            name,
            kind,
            metadata,
            layout,
            identity: Vec::new(),
        })
    }

    fn xattrs(
        &self,
        folder: &OwnedFd,
        name: &Name,
        stat: &Stat,
    ) -> Result<Vec<attributes::Attribute>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut found = rustix::fs::openat(folder, name.as_bytes(), flags, Mode::empty())
            .and_then(|fd| attributes::xattrs(fd.as_fd()))
            .map_err(|errno| self.named("read the attributes of the file", name, errno))?;
        if self.sends_stripes {
            self.layouts
                .add_stripes(folder.as_fd(), name.as_bytes(), stat, &mut found);
        }
        Ok(found)
    }

    /// Opens an entry of the folder of the last frame: a folder, or a link to a folder. Makes the
    /// opened folder the new last frame.
    fn enter(&mut self, name: Name, is_link: bool) -> Result<Listed> {
        let operation = ["list the folder", "follow the link"][usize::from(is_link)];
        let (fd, stat) = match self.open_child(&name, is_link) {
            Ok(opened) => opened,
            Err(errno) => {
                // A link without a target is an error of one entry, not of a folder.
                self.failed_at_folder = !(is_link && errno == Errno::NOENT);
                return Err(self.named(operation, &name, errno));
            }
        };
        let (device, inode) = (device_of(&stat), stat.st_ino);
        let depth = self.frames.last().map_or(0, |above| above.depth);
        if is_link && FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return self.followed_file(name, &stat);
        }
        self.failed_at_folder = true;
        if !self.options.recursive {
            return Err(self
                .named("copy", &name, Errno::ISDIR)
                .cause("is a folder")
                .remedy("ask for a recursive copy"));
        }
        let is_above = |frame: &Frame| (frame.device, frame.inode) == (device, inode);
        if self.options.links == Links::Follow && self.frames.iter().any(is_above) {
            return Err(self
                .named(operation, &name, Errno::LOOP)
                .cause("the link leads to a folder that contains the link")
                .remedy("exclude the entry with --exclude, or use --links keep"));
        }
        if self.path.len() + 1 + name.as_bytes().len() > PATH_LENGTH_MAX {
            return Err(self.named(operation, &name, Errno::NAMETOOLONG));
        }
        let metadata = attributes::metadata(&stat);
        self.push(fd, &stat, Some(name.clone()), depth + 1);
        self.entered = true;
        let target = self.frames.last().map_or(TargetId(0), |frame| frame.target);
        Ok(Listed {
            depth,
            name,
            kind: EntryKind::Directory,
            metadata,
            layout: Layout::Single(target),
            identity: Vec::new(),
        })
    }

    fn open_child(&mut self, name: &Name, is_link: bool) -> Result<(OwnedFd, Stat), Errno> {
        let fd = if is_link {
            // Open the path from the root, because the link target must be checked to be below the
            // root. Use `O_PATH`, because the target may be a pipe or a device.
            let mut path = self.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            let fd = self.root.open(&path, OFlags::PATH | OFlags::CLOEXEC)?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
            if kind == FileType::Directory {
                rustix::fs::openat(&fd, ".", FOLDER, Mode::empty())?
            } else {
                fd
            }
        } else {
            self.reopen()?;
            let above = self.frames.last().and_then(|frame| frame.fd.as_ref());
            let above = above.ok_or(Errno::BADF)?;
            let flags = FOLDER | OFlags::NOFOLLOW;
            rustix::fs::openat(above, name.as_bytes(), flags, Mode::empty())?
        };
        let stat = rustix::fs::fstat(&fd)?;
        Ok((fd, stat))
    }

    fn followed_file(&self, name: Name, stat: &Stat) -> Result<Listed> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            let path = self.path_of(&name)?;
            return Err(special(self.end, &path, kind));
        }
        let mut metadata = attributes::metadata(stat);
        if self.options.xattrs {
            // An `O_PATH` descriptor cannot read attributes, so open the file itself.
            let path = self.path_of(&name)?;
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            metadata.xattrs = self
                .root
                .open(path.as_bytes(), flags)
                .and_then(|fd| attributes::xattrs(fd.as_fd()))
                .map_err(|errno| self.named("read the attributes of the file", &name, errno))?;
        }
        let above = self.frames.last();
        Ok(Listed {
            depth: above.map_or(0, |frame| frame.depth),
            name,
            kind: attributes::file_kind(stat),
            metadata,
            layout: Layout::Single(above.map_or(TargetId(0), |frame| frame.target)),
            identity: Vec::new(),
        })
    }

    fn path_of(&self, name: &Name) -> Result<RelPath> {
        RelPath::parse(&self.path)?.join(name)
    }

    fn named(&self, operation: &str, name: &Name, errno: Errno) -> Error {
        match self.path_of(name) {
            Ok(path) => crate::errno::error(self.end, operation, &path, errno),
            Err(error) => error.at(self.end),
        }
    }

    /// Removes the last frame. Returns the item for the end of its folder, if the folder has items.
    fn leave(&mut self) -> Option<Listed> {
        let frame = self.frames.pop()?;
        self.held_names -= frame.folders.len();
        self.path.truncate(frame.parent_length);
        Some(Listed {
            depth: frame.depth.saturating_sub(1),
            name: frame.name?,
            kind: EntryKind::DirectoryEnd,
            metadata: frame.metadata,
            layout: Layout::Single(frame.target),
            identity: Vec::new(),
        })
    }
}

impl Iterator for PosixLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entered = false;
        self.failed_at_folder = false;
        if let Some(top) = self.top.take() {
            return Some(top);
        }
        loop {
            let frame = self.frames.last_mut()?;
            if let Some(item) = frame.items.pop() {
                return Some(item);
            }
            if let Some((name, is_link)) = frame.folders.pop() {
                self.held_names -= 1;
                return Some(self.enter(name, is_link));
            }
            if !frame.is_read {
                if let Err(errno) = self.fill() {
                    self.failed_at_folder = true;
                    if let Some(frame) = self.frames.last_mut() {
                        frame.is_read = true;
                    }
                    let path = RelPath::parse(&self.path).unwrap_or_else(|_| RelPath::root());
                    let error = crate::errno::error(self.end, "list the folder", &path, errno);
                    return Some(Err(error));
                }
                continue;
            }
            if let Some(end) = self.leave() {
                return Some(Ok(end));
            }
        }
    }
}

impl Lister for PosixLister {
    fn skip_folder(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.leave();
        }
    }

    fn failed_at_folder(&self) -> bool {
        self.failed_at_folder
    }
}

fn name_in(item: &Result<Listed>) -> Option<&Name> {
    item.as_ref().ok().map(|listed| &listed.name)
}

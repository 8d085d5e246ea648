//! Store of files in folders that the Linux kernel serves: local disks, Lustre, GlusterFS, CephFS,
//! NFS.
//!
//! Each method makes as few system calls as possible. Folders stay open (`folders.rs`), so a
//! look-up starts at an open folder and not at the root. No look-up leaves the root (`resolve.rs`).

mod attributes;
mod below;
mod calls;
mod control;
mod direct;
mod file_systems;
mod folders;
mod layouts;
pub(crate) mod list;
mod mounts;
mod probe;
mod read;
mod rename;
mod resolve;
mod share;
mod striped;
mod sync;
mod uncached;
mod version;
mod write;

use crate::errno;
use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store};
use crate::targets::{TargetMap, Targets};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileKind, FileState, FolderVersion, FreeSpace, Holding,
    InodeState, ListOptions, MadeDir, PartialId, PartialRequest, Publish, ReadPurpose, SyncItem,
    Target,
};
use attributes::Refused;
use dray_core::{
    ByteRange, End, Error, ErrorKind, Layout, Metadata, ModifiedTime, Name, RelPath, Result,
    StripeChoice, Sums,
};
use folders::{Folder, Folders};
use layouts::Layouts;
pub use rename::rename_new;
use resolve::Root;
pub use resolve::open_beneath;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Statx, StatxFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Says which symbolic links on a path are followed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LinkScope {
    /// No link is followed, and a link on a path is an error. A sink requires this value.
    #[default]
    Never,
    /// A relative link is followed if its target is below the listed path that contains the link.
    /// The target must not be one of dray's own files. Links on the way from the root to the listed
    /// path are not followed.
    Beneath(Arc<[RelPath]>),
    /// All links are followed. Suitable only for a local user, who can read the targets without
    /// dray too.
    Anywhere,
}

/// Options for opening a [`PosixStore`].
#[derive(Debug, Clone)]
pub struct PosixOptions {
    /// Says which links are followed.
    pub links: LinkScope,
    /// Target names by folder. A folder that is not in the map belongs to the target of its device.
    pub targets: TargetMap,
    /// Create the root and its parent folders if they do not exist.
    pub create: bool,
    /// Permit `openat2`. Only tests disable `openat2`, to test the slower method.
    pub openat2: bool,
    /// Read and write large files without the page cache, if the file system supports it.
    pub direct: bool,
    /// Let [`crate::Partial::take_space`] preallocate space, if the file system supports it.
    pub preallocates: bool,
    /// Let copies share blocks with their source files, if the file system supports it.
    pub shares_blocks: bool,
    /// Lustre stripes of new files. With `None`, new files get the default stripes of their folder.
    /// A source with [`StripeChoice::Source`] sends the stripes of its files. If a sink sets this
    /// option, its root must be on Lustre.
    pub stripes: Option<StripeChoice>,
    /// Extended attribute that is read instead of `lustre.lov`. If set, each file system counts as
    /// Lustre. For tests without Lustre.
    pub lustre_attribute: Option<String>,
}

impl Default for PosixOptions {
    fn default() -> Self {
        Self {
            links: LinkScope::Never,
            targets: TargetMap::default(),
            create: false,
            openat2: true,
            direct: false,
            preallocates: false,
            shares_blocks: false,
            stripes: None,
            lustre_attribute: None,
        }
    }
}

/// A folder on a file system and everything below it.
#[derive(Debug)]
pub struct PosixStore {
    root: Arc<Root>,
    end: End,
    folders: Arc<Folders>,
    targets: Arc<Targets>,
    layouts: Arc<Layouts>,
    capabilities: Capabilities,
    umask: u32,
    is_direct: bool,
    preallocates: bool,
    shares_blocks: bool,
    stripes: Option<StripeChoice>,
    /// Path of the root at the time when it was opened, if the system reported the path.
    opened_at: Option<PathBuf>,
}

/// Mode bits that the owner needs to read a folder and to create entries in it.
const OWNER_ENTERS: u32 = 0o700;

/// Lets the owner create entries in a folder. An earlier run may have set the final mode of the
/// folder, and the source may have new files for this folder since then.
fn let_owner_in(folder: &Folder, name: &[u8]) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(folder.fd(), name, flags, Mode::empty())?;
    let mode = mode_of(&rustix::fs::fstat(&found)?);
    attributes::set_mode(rustix::fd::AsFd::as_fd(&found), mode | OWNER_ENTERS)
}

/// Path and end that an error reports.
#[derive(Debug, Clone)]
struct ErrorContext {
    end: End,
    path: RelPath,
}

impl ErrorContext {
    fn error(&self, operation: &str, errno: Errno) -> Error {
        errno::error(self.end, operation, &self.path, errno)
    }
}

impl PosixStore {
    /// Opens the folder `root` as a source or a sink. `root` itself may be a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`. The cause contains the path of the root.
    pub fn open(root: &Path, end: End, options: PosixOptions) -> Result<Self> {
        let failed = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            let error = errno::error(end, "open the root", &RelPath::root(), errno);
            let cause = format!("{}: {}", root.display(), error.cause);
            Error {
                file: None,
                ..error.cause(cause)
            }
        };
        let shown = root;
        if options.create {
            resolve::make_root(root).map_err(failed)?;
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(root, flags | OFlags::RDONLY, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let opened_at = place_of(rustix::fd::AsFd::as_fd(&fd));
        let capabilities = probe::capabilities(rustix::fd::AsFd::as_fd(&fd), end);
        let root = Arc::new(Root::new(fd, options.links, options.openat2));
        let targets = Arc::new(Targets::new(options.targets));
        let layouts = Layouts::new(Arc::clone(&targets), options.lustre_attribute);
        let layouts = Arc::new(layouts);
        let folders = Arc::new(Folders::new(Arc::clone(&root), Arc::clone(&layouts)));
        let store = Self {
            root,
            end,
            folders,
            targets,
            layouts,
            capabilities,
            umask: umask(),
            is_direct: options.direct,
            preallocates: options.preallocates,
            shares_blocks: options.shares_blocks,
            stripes: options.stripes,
            opened_at,
        };
        store.check_stripes(shown)?;
        Ok(store)
    }

    fn place(&self, path: &RelPath) -> ErrorContext {
        ErrorContext {
            end: self.end,
            path: path.clone(),
        }
    }

    fn failed<'a>(&self, operation: &'a str, path: &'a RelPath) -> impl Fn(Errno) -> Error + 'a {
        let end = self.end;
        move |errno| errno::error(end, operation, path, errno)
    }

    /// Returns the folder at `path`, or the folder that contains `path` if `path` is not a folder.
    fn folder_around(&self, path: &RelPath) -> rustix::io::Result<Arc<folders::Folder>> {
        match self.folders.at(path.as_bytes()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.folders.at(resolve::split(path.as_bytes()).0)
            }
            other => other,
        }
    }

    fn stat_of(&self, path: &RelPath) -> rustix::io::Result<Option<Stat>> {
        let stat = if path.is_root() {
            rustix::fs::fstat(self.root.fd())
        } else {
            // Do not use `beside` here. If a file does not exist, `beside` also checks whether the
            // folder was replaced. This check would double the cost of a `stat`, and at a sink most
            // of the files do not exist yet.
            let (above, name) = resolve::split(path.as_bytes());
            self.folders
                .at(above)
                .and_then(|folder| rustix::fs::statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW))
        };
        match stat {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Store for PosixStore {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.all()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        let (above, name) = resolve::split(path.as_bytes());
        let folder = self.folders.at(above);
        let layout = folder.map(|folder| {
            let single = Layout::Single(folder.target);
            // At a sink, the existing file will be replaced by another one.
            if self.end == End::Sink || name.is_empty() {
                return single;
            }
            match rustix::fs::statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => self
                    .layouts
                    .of_file(folder.fd(), name, &stat, folder.target),
                _ => single,
            }
        });
        layout.map_err(self.failed("find the storage target of the file", path))
    }

    fn free_space(&self, path: &RelPath) -> Result<FreeSpace> {
        let found = self
            .folder_around(path)
            .and_then(|folder| rustix::fs::fstatvfs(folder.fd()));
        let found = found.map_err(self.failed("read the free space", path))?;
        Ok(FreeSpace {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        Ok(Box::new(self.lister(top, options)?))
    }

    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        Ok(Box::new(self.open_file(path, purpose)?))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        let stat = self.stat_of(path);
        let stat = stat.map_err(self.failed("read the attributes of the file", path))?;
        Ok(stat.map(|stat| state_of(&stat)))
    }

    fn folder_version(&self, path: &RelPath) -> Result<Option<FolderVersion>> {
        let stat = self.stat_of(path);
        let stat = stat.map_err(self.failed("read the attributes of the folder", path))?;
        Ok(stat.and_then(|stat| version::of_folder(&stat)))
    }

    fn check_place(&self) -> Result<()> {
        let now = place_of(self.root.fd());
        match (&self.opened_at, now) {
            (Some(then), Some(now)) if *then != now => {
                Err(Error::new(ErrorKind::NotFound, self.end, "use the folder")
                    .cause(format!("{} was moved to {}", then.display(), now.display()))
                    .remedy(
                        "move the folder back, or use its new path, and run the same command again",
                    ))
            }
            _ => Ok(()),
        }
    }

    fn born(&self, path: &RelPath) -> Result<u64> {
        let asked = self.folders.beside(path.as_bytes(), |folder, name| {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::statx(folder.fd(), name, flags, StatxFlags::BTIME)
        });
        match asked {
            Ok(state) => Ok(birth_of(&state)),
            Err(Errno::NOENT | Errno::NOSYS | Errno::NOTSUP) => Ok(0),
            Err(errno) => Err(self.failed("read the attributes of the file", path)(errno)),
        }
    }

    fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        let stat = self.stat_of(path);
        let stat = stat.map_err(self.failed("read the attributes of the file", path))?;
        Ok(stat.map(|stat| holding_of(&stat)))
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.folders
            .beside(path.as_bytes(), |folder, name| {
                let fd = rustix::fs::openat(folder.fd(), name, flags, Mode::empty())?;
                attributes::known_sums(rustix::fd::AsFd::as_fd(&fd))
            })
            .map_err(self.failed("read the checksums of the file", path))
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        if path.is_root() {
            return Ok(MadeDir::Existed);
        }
        let made = self.folders.beside(path.as_bytes(), |folder, name| {
            match rustix::fs::mkdirat(folder.fd(), name, Mode::RWXU) {
                Ok(()) => Ok(MadeDir::Created),
                Err(Errno::EXIST) => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let stat = rustix::fs::statat(folder.fd(), name, flags)?;
                    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                        return Err(Errno::NOTDIR);
                    }
                    let own = rustix::process::geteuid().as_raw() == stat.st_uid;
                    if own && mode_of(&stat) & OWNER_ENTERS != OWNER_ENTERS {
                        // Ignore the error. If the owner really cannot enter the folder, creating
                        // an entry in the folder fails with the same error.
                        let _ = let_owner_in(folder, name);
                    }
                    Ok(MadeDir::Existed)
                }
                Err(errno) => Err(errno),
            }
        });
        if made == Ok(MadeDir::Created) {
            // A folder with this name may have been removed just before, and may still be in the
            // cache of open folders.
            self.folders.forget(path.as_bytes());
        }
        made.map_err(self.failed("create the folder", path))
    }

    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let refused = Refused::default();
        self.folders
            .at(path.as_bytes())
            .and_then(|folder| attributes::set_folder(folder.fd(), metadata, &refused))
            .map_err(|errno| {
                refused.or(self
                    .place(path)
                    .error("set the attributes of the folder", errno))
            })
    }

    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        let refused = Refused::default();
        self.folders
            .beside(path.as_bytes(), |folder, name| {
                attributes::set_file(folder.fd(), name, metadata, &refused)
            })
            .map_err(|errno| {
                refused.or(self
                    .place(path)
                    .error("set the attributes of the file", errno))
            })
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()> {
        self.link(path, partial, text, metadata, how)
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        Ok(Box::new(
            self.begin_partial(path, size_bytes, request, None)?,
        ))
    }

    fn begin_striped(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
        stripes: &[u8],
    ) -> Result<Box<dyn Partial>> {
        let stripes = Some(stripes);
        Ok(Box::new(
            self.begin_partial(path, size_bytes, request, stripes)?,
        ))
    }

    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        self.write_whole(path, partial, bytes, holes, attributes)
    }

    fn publish_small(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
        how: Publish,
    ) -> Result<()> {
        write::publish(&self.folders, &self.place(path), partial, id, how)
    }

    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()> {
        write::discard(&self.folders, &self.place(path), partial, only)
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        self.sync_items(items)
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        let removed =
            self.folders.beside(path.as_bytes(), |folder, name| {
                match rustix::fs::unlinkat(folder.fd(), name, AtFlags::empty()) {
                    Err(Errno::ISDIR) => {
                        rustix::fs::unlinkat(folder.fd(), name, AtFlags::REMOVEDIR)
                    }
                    other => other,
                }
            });
        self.folders.forget(path.as_bytes());
        match removed {
            Err(Errno::NOENT) => Ok(()),
            other => other.map_err(self.failed("remove", path)),
        }
    }

    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        Ok(Box::new(self.control(path, mode)?))
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        self.remove_control_file(path)
    }

    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>> {
        self.control_names(folder)
    }
}

/// Returns the current path of an open folder.
fn place_of(folder: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).ok()
}

/// Returns the mode of new folders for which no mode was requested: 0o777 without the bits of the
/// umask.
#[must_use]
pub fn default_folder_mode() -> u32 {
    match umask() {
        // The umask is unknown.
        0o777 => 0o755,
        mask => 0o777 & !mask,
    }
}

/// Returns the umask of this process, which it reads from /proc. The call `umask(2)` is not used,
/// because it would change the umask for a moment in all threads. If the umask cannot be read,
/// returns 0o777. The store then sets the mode of each new file explicitly.
fn umask() -> u32 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return 0o777;
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o777)
}

fn state_of(stat: &Stat) -> FileState {
    FileState {
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Special,
        },
        size: size_of(stat),
        modified: time_of(stat),
        mode: mode_of(stat),
        inode: stat.st_ino,
        device: device_of(stat),
    }
}

/// Returns the ctime, the time of the last change of content or attributes.
fn changed_of(stat: &Stat) -> ModifiedTime {
    ModifiedTime {
        seconds: stat.st_ctime,
        nanoseconds: u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
    }
}

/// Converts the number of hard links to 64 bits. Some systems use 32 bits.
fn wide(count: impl Into<u64>) -> u64 {
    count.into()
}

fn inode_of(stat: &Stat) -> InodeState {
    InodeState {
        changed: changed_of(stat),
        mode: mode_of(stat),
        owner: (stat.st_uid, stat.st_gid),
        links: wide(stat.st_nlink),
    }
}

fn holding_of(stat: &Stat) -> Holding {
    let inode_changed = changed_of(stat);
    Holding {
        // `st_blocks` counts units of 512 bytes on every file system.
        bytes: u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        changed: time_of(stat).max(inode_changed),
    }
}

/// Returns the creation time in nanoseconds since 1970; 0 if the file system does not store it.
fn birth_of(state: &Statx) -> u64 {
    if state.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let seconds = u64::try_from(state.stx_btime.tv_sec).unwrap_or(0);
    let nanoseconds = u64::from(state.stx_btime.tv_nsec);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn time_of(stat: &Stat) -> ModifiedTime {
    ModifiedTime {
        seconds: stat.st_mtime,
        // The kernel guarantees a value below 10^9.
        nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    }
}

fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

fn device_of(stat: &Stat) -> u64 {
    stat.st_dev
}

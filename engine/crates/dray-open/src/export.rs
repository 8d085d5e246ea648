//! An exported folder that other hosts may read from or write to, and the passive ends that use it.
//!
//! Invariant of this module: no file outside the folder is opened. Paths are resolved below the
//! folder. No link on the way to a destination is followed, not even a link that a program makes
//! while the destination is being opened.

use crate::disks::{self, DisksLocation};
use crate::locations;
use crate::prepare;
use crate::stored_root::StoredRoot;
use crate::targets::{Targets, target_map};
use dray_core::options::{Durability, Links, Options};
use dray_core::url::encode;
use dray_core::{End, Error, ErrorKind, RelPath, Result, StripeChoice, TransferId, plan};
use dray_link::pool::Pool;
use dray_runtime::assembly::{Buffers, Content, Threads, TransferPlan};
use dray_runtime::select::Filter;
use dray_runtime::sink::sweep::Purged;
use dray_runtime::sink::{self, Destination, DestinationRequest, ReadLog, TransferLog};
use dray_runtime::source::{self, Root};
use dray_runtime::sweep::WalkRoot;
use dray_store::lustre::stripes_refused;
use dray_store::posix::open_beneath;
use dray_store::{Capabilities, FileKind, LinkScope, Store, StoreExt};
use dray_wire::message::{Connect, Limits, Selection, optional};
use dray_wire::negotiate::Agreed;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An exported folder.
pub struct Export {
    opened: Opened,
    targets: Targets,
    /// See [`Root::top`].
    top: Arc<str>,
}

enum Opened {
    /// A folder of this host.
    Folder(LocalFolder),
    /// A folder of a store that a URL names.
    Stored(StoredRoot),
}

struct LocalFolder {
    root: PathBuf,
    root_fd: OwnedFd,
    /// The root as a store to write to, which follows no link.
    sink: Arc<dyn Store>,
}

/// A request to write to a folder in an exported root.
#[derive(Debug, Clone)]
pub struct Within {
    /// Path of the folder relative to the root, as the caller typed it.
    pub folder: Vec<u8>,
    /// Entries of the folder that will be written; empty for the whole folder.
    pub claims: Vec<RelPath>,
    /// Id of the transfer.
    pub transfer: TransferId,
    /// Owner of the transfer.
    pub owner: Vec<u8>,
    /// Durability of a finished file.
    pub durability: Durability,
    /// Stripes of new files that the transfer requests.
    pub stripes: Option<StripeChoice>,
}

impl Export {
    /// Opens the folder `root`, which must be an absolute path without links.
    ///
    /// # Errors
    /// If the folder cannot be opened, or a rate limit names an unknown storage target.
    pub fn open(root: PathBuf, targets: Targets) -> Result<Self> {
        targets.check_limits()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = rustix::fs::open(&root, flags, Mode::empty()).map_err(|errno| {
            let operation = format!("open the root {}", root.display());
            let error = dray_store::errno::error(End::Here, &operation, &RelPath::root(), errno);
            let error = match error.kind {
                ErrorKind::Busy => error,
                _ => error.remedy("choose a folder that this user may read"),
            };
            Error {
                file: None,
                ..error
            }
        })?;
        let folder = LocalFolder {
            sink: targets.open(&root, End::Sink, LinkScope::Never, false)?,
            root,
            root_fd,
        };
        Ok(Self {
            opened: Opened::Folder(folder),
            targets,
            top: "/".into(),
        })
    }

    /// Opens the folder that `url` names in a store.
    ///
    /// # Errors
    /// If the store cannot be reached, or lacks a capability that a root needs.
    pub fn open_stored(url: &str, is_read_only: bool, targets: Targets) -> Result<Self> {
        let stored = StoredRoot::open(url, is_read_only, targets.clone())?;
        Ok(Self {
            opened: Opened::Stored(stored),
            targets,
            top: "/".into(),
        })
    }

    /// Opens folders of this host, one on each disk, as one root.
    ///
    /// # Errors
    /// If a folder cannot be opened or a disk is missing, or a rate limit names an unknown disk.
    pub fn open_disks(dirs: &[PathBuf], is_read_only: bool, targets: Targets) -> Result<Self> {
        let options = disks::options_of(&targets);
        let location = Arc::new(DisksLocation::new(dirs.to_vec(), options));
        let stored = StoredRoot::open_at(location, is_read_only, targets.clone())?;
        Ok(Self {
            opened: Opened::Stored(stored),
            targets,
            top: "/".into(),
        })
    }

    /// Returns the object size in bytes that suits the storage system. Returns `None` if the
    /// default size suits it.
    #[must_use]
    pub fn object_bytes(&self) -> Option<u64> {
        match &self.opened {
            Opened::Folder(_) => None,
            Opened::Stored(stored) => stored.object_bytes(),
        }
    }

    /// Opens the same folder again under the account of the calling thread. A handle that another
    /// account opened must not be used, because it has the rights of that account.
    ///
    /// # Errors
    /// The errors of [`Export::open`]. The account must be able to read the folder. A root that is
    /// not a single folder of this host cannot be opened under an account of this host.
    pub fn anew(&self) -> Result<Self> {
        let anew = Self::open(self.local()?.root.clone(), self.targets.clone())?;
        Ok(Self {
            top: Arc::clone(&self.top),
            ..anew
        })
    }

    /// Sets the text that callers write before a path in this root, such as `/data/`. The default
    /// is a slash.
    #[must_use]
    pub fn called(self, top: &str) -> Self {
        Self {
            top: top.into(),
            ..self
        }
    }

    /// Returns the folder of this root on this host, or `None` if the root is not a single folder.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.opened {
            Opened::Folder(folder) => Some(&folder.root),
            Opened::Stored(_) => None,
        }
    }

    /// Returns the folders of this host in which the root has its files.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        match &self.opened {
            Opened::Folder(folder) => vec![folder.root.clone()],
            Opened::Stored(stored) => stored.folders(),
        }
    }

    /// Returns the folder or the URL, for messages.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.opened {
            Opened::Folder(folder) => folder.root.display().to_string(),
            Opened::Stored(stored) => stored.words(),
        }
    }

    /// Opens the root for a sweep that searches it for abandoned partial data. Returns `None` if a
    /// sweep cannot search the root.
    ///
    /// # Errors
    /// The errors of [`WalkRoot::new`] and [`WalkRoot::of_disks`].
    pub fn walk_root(&self) -> Result<Option<WalkRoot>> {
        match &self.opened {
            Opened::Folder(folder) => {
                WalkRoot::new(Arc::clone(&folder.sink), &folder.root).map(Some)
            }
            Opened::Stored(stored) => stored.walk_root(),
        }
    }

    fn local(&self) -> Result<&LocalFolder> {
        match &self.opened {
            Opened::Folder(folder) => Ok(folder),
            Opened::Stored(stored) => {
                Err(
                    Error::new(ErrorKind::Unsupported, End::Here, "open the folder")
                        .cause(format!("{} is not a folder of this host", stored.words()))
                        .remedy("choose a root that is a folder on the endpoint's host"),
                )
            }
        }
    }

    /// Refuses transfer options that the root's store does not support.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] or [`ErrorKind::Unsupported`]; the error names the option.
    pub fn refuse_options(&self, options: &Options) -> Result<()> {
        match &self.opened {
            Opened::Folder(folder) => self.refuse_stripes(folder, options.stripes),
            Opened::Stored(stored) => {
                let refused = stored.refuse_options(options);
                refused.map_err(|error| error.at(End::Sink))
            }
        }
    }

    /// Refuses stripes that would have no effect on new files.
    fn refuse_stripes(&self, folder: &LocalFolder, stripes: Option<StripeChoice>) -> Result<()> {
        if stripes.is_none() {
            return Ok(());
        }
        let targets = self.targets.with_stripes(stripes);
        let opened = targets.open(&folder.root, End::Sink, LinkScope::Never, false);
        opened.map(drop).map_err(|error| match error.kind {
            ErrorKind::Unsupported => stripes_refused(End::Sink, &format!("the root {}", self.top)),
            _ => error,
        })
    }

    /// Returns the number of threads of each storage target.
    #[must_use]
    pub const fn threads(&self) -> Threads {
        self.targets.threads
    }

    /// Returns the root itself as a store that follows no link.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        match &self.opened {
            Opened::Folder(folder) => &folder.sink,
            Opened::Stored(stored) => &stored.store,
        }
    }

    /// Returns the root, or a folder below the root, as a store of its own. Makes the folder if it
    /// does not exist. The folder is opened once, and the store resolves all paths from that handle.
    ///
    /// Each call opens another store, also for the root: after a failed `syncfs`, a store refuses
    /// all later syncs, and only a new store of the next session can sync again.
    fn folder(&self, path: &RelPath, stripes: Option<StripeChoice>) -> Result<Arc<dyn Store>> {
        let LocalFolder { root, sink, .. } = match &self.opened {
            Opened::Folder(folder) => folder,
            Opened::Stored(stored) => return stored.sink(path),
        };
        sink.make_dirs(path, dray_store::posix::default_folder_mode())
            .map_err(|error| match error.kind {
                ErrorKind::NotADirectory => error.remedy("choose another destination"),
                _ => error,
            })?;
        let opened = self
            .beneath(path, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| {
                dray_store::errno::error(End::Sink, "open the destination", path, errno)
            })?;
        let held = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        let options = dray_store::PosixOptions {
            targets: target_map(
                &self.targets.folders,
                &root.join(OsStr::from_bytes(path.as_bytes())),
            )?,
            direct: self.targets.direct,
            preallocates: self.targets.preallocates,
            stripes: stripes.or(self.targets.stripes),
            lustre_attribute: self.targets.lustre_attribute.clone(),
            ..dray_store::PosixOptions::default()
        };
        let store = dray_store::PosixStore::open(&held, End::Sink, options).map_err(|error| {
            let held = held.to_string_lossy();
            let cause = error.cause.replace(held.as_ref(), &path.to_string());
            Error { cause, ..error }
        })?;
        Ok(self.targets.limit(Arc::new(store)))
    }

    /// Opens the entry at `path`, without following any link.
    ///
    /// # Errors
    /// Errors of the system. `EOPNOTSUPP` if the root is not a single folder of this host.
    pub fn beneath(&self, path: &RelPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let Opened::Folder(LocalFolder { root_fd, .. }) = &self.opened else {
            return Err(Errno::OPNOTSUPP);
        };
        open_beneath(root_fd.as_fd(), path, flags)
    }

    /// Opens a folder to write to, with its log and lease. Also returns the capabilities of its
    /// storage.
    ///
    /// # Errors
    /// [`ErrorKind::PathEscapes`] and [`ErrorKind::InvalidName`] for a path that leads out of the
    /// root or is invalid. Errors of making the folder, and of [`Destination::open`].
    pub fn destination(&self, within: Within) -> Result<(Destination, Capabilities)> {
        self.destination_for(within, &Selection::default())
    }

    /// Does the same as [`Self::destination`], for a transfer with a `selection`: see
    /// [`Destination::open_for`].
    ///
    /// # Errors
    /// The errors of [`Self::destination`].
    pub fn destination_for(
        &self,
        within: Within,
        selection: &Selection,
    ) -> Result<(Destination, Capabilities)> {
        let folder = beneath(&within.folder, End::Sink)?.0;
        locations::refuse_reserved(&within.folder).map_err(|error| error.at(End::Sink))?;
        let request = self.request(within, folder)?;
        let can = request.store.capabilities();
        Ok((prepare::open_at(request, selection)?, can))
    }

    /// Removes the partial data of one transfer in a folder, and no other data; see [`Purged`].
    ///
    /// # Errors
    /// The errors of [`Export::destination`] for an invalid path. Errors of
    /// [`DestinationRequest::purge`].
    pub fn purge(&self, within: Within) -> Result<Purged> {
        match self.existing(within)? {
            Some(request) => request.purge(),
            None => Ok(Purged::Nothing),
        }
    }

    /// Reads the object log of one transfer in a folder. Returns `None` if there is no log. `earlier`
    /// is the log that an earlier call has read.
    ///
    /// # Errors
    /// The errors of [`Export::destination`] for an invalid path. Errors of
    /// [`DestinationRequest::read_log`].
    pub fn read_log(
        &self,
        within: Within,
        earlier: Option<&ReadLog>,
    ) -> Result<Option<TransferLog>> {
        match self.existing(within)? {
            Some(request) => request.read_log(earlier),
            None => Ok(None),
        }
    }

    /// Returns the request for a folder that exists. Returns `None` without the folder, which then
    /// contains no partial data. Does not make the folder.
    fn existing(&self, within: Within) -> Result<Option<DestinationRequest>> {
        let folder = beneath(&within.folder, End::Sink)?.0;
        if let Opened::Stored(stored) = &self.opened {
            let found = stored.store.stat(&folder)?.map(|state| state.kind);
            return match found {
                Some(FileKind::Directory) => self.request(within, folder).map(Some),
                _ => Ok(None),
            };
        }
        match self.beneath(&folder, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => self.request(within, folder).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(dray_store::errno::error(
                End::Sink,
                "search for partial data",
                &folder,
                errno,
            )),
        }
    }

    fn request(&self, within: Within, folder: RelPath) -> Result<DestinationRequest> {
        Ok(DestinationRequest {
            store: self.folder(&folder, within.stripes)?,
            above: Some((Arc::clone(self.store()), folder)),
            claims: within.claims,
            transfer: within.transfer,
            owner: within.owner,
            durability: within.durability,
            log: self.targets.log,
            words: match within.folder.is_empty() {
                true => "the root".to_owned(),
                false => encode(&within.folder),
            },
        })
    }

    /// Returns the entries to read below this root. `stripes` are the stripes that the transfer
    /// requests for new files. With [`StripeChoice::Source`], the source sends the stripes of its
    /// files.
    ///
    /// # Errors
    /// The errors of [`Export::destination`] for an invalid path.
    pub fn roots(
        &self,
        paths: &[Vec<u8>],
        links: Links,
        stripes: Option<StripeChoice>,
    ) -> Result<Vec<Root>> {
        let scope = match links {
            // Follow links only within these paths, because the access check covered no other path
            // of the root.
            Links::Follow => LinkScope::Beneath(tops(paths)?),
            Links::Keep | Links::Refuse => LinkScope::Never,
        };
        let store = match &self.opened {
            Opened::Folder(LocalFolder { root, .. }) => {
                let targets = self.targets.with_stripes(stripes);
                targets.open(root, End::Source, scope, false)?
            }
            Opened::Stored(stored) => stored.source()?,
        };
        let root = |path: &Vec<u8>| {
            // Refuse to read the unfinished data of other transfers.
            locations::refuse_reserved(path).map_err(|error| error.at(End::Source))?;
            let (path, contents) = beneath(path, End::Source)?;
            Ok(Root {
                store: Arc::clone(&store),
                path,
                top: Arc::clone(&self.top),
                name: None,
                contents,
            })
        };
        paths.iter().map(root).collect()
    }

    /// Opens the sink that a driver requests. The sink writes as `owner`, with buffers of `pool`
    /// bytes in total.
    ///
    /// # Errors
    /// The errors of [`Export::destination`]. [`ErrorKind::InvalidRequest`] if the request names no
    /// destination.
    pub fn passive_sink(
        &self,
        connect: &Connect,
        limits: &Limits,
        owner: Vec<u8>,
        pool: u64,
    ) -> Result<(sink::Setup, Arc<Pool>)> {
        let (folder, rest) = connect.paths.split_first().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, End::Sink, "read the destination")
                .cause("the request names no destination")
        })?;
        let claims: Result<Vec<_>> = rest.iter().map(|path| RelPath::parse(path)).collect();
        let within = Within {
            folder: folder.clone(),
            claims: claims.map_err(|error| error.at(End::Sink))?,
            transfer: connect.transfer.clone(),
            owner,
            durability: connect.options.durability,
            stripes: connect.options.stripes,
        };
        self.refuse_options(&connect.options)?;
        let (destination, _) = self.destination_for(within, &connect.selection)?;
        let threads = self.targets.threads;
        sink_of(destination, connect, limits, pool, threads)
    }

    /// Opens the source that a driver requests. The buffers of the source have `pool` bytes in
    /// total.
    ///
    /// # Errors
    /// The errors of [`Export::roots`], and the error for an invalid pattern.
    pub fn passive_source(
        &self,
        connect: &Connect,
        agreed: &Agreed,
        pool: u64,
    ) -> Result<source::Setup> {
        let roots = self.roots(
            &connect.paths,
            connect.selection.links,
            connect.options.stripes,
        )?;
        source_of(roots, connect, agreed, pool, self.targets.threads)
    }
}

/// Returns a sink that writes to `destination` as the driver requests. The buffers of the sink have
/// `pool` bytes in total.
///
/// # Errors
/// The errors of [`Pool::new`].
pub(crate) fn sink_of(
    destination: Destination,
    connect: &Connect,
    limits: &Limits,
    pool: u64,
    threads: Threads,
) -> Result<(sink::Setup, Arc<Pool>)> {
    let buffers = buffers(connect, limits, pool);
    let setup = plan(connect, buffers, *limits).sink(destination, None, threads);
    let pool = Pool::new(buffers.count, buffers.bytes).map_err(|error| error.at(End::Sink))?;
    Ok((setup, Arc::new(pool)))
}

/// Returns a source that reads `roots` as the driver requests. The buffers of the source have
/// `pool` bytes in total.
///
/// # Errors
/// If a pattern is invalid.
pub(crate) fn source_of(
    roots: Vec<Root>,
    connect: &Connect,
    agreed: &Agreed,
    pool: u64,
    threads: Threads,
) -> Result<source::Setup> {
    Filter::new(&connect.selection).map_err(|error| error.at(End::Source))?;
    let limits = &agreed.limits;
    let buffers = buffers(connect, limits, pool);
    let selection = connect.selection.clone();
    let mut setup = plan(connect, buffers, *limits).source(roots, selection, threads);
    setup.machine.announces_early = agreed.has(optional::EARLY_ENTRIES);
    Ok(setup)
}

/// Returns the plan of a passive end.
fn plan(connect: &Connect, buffers: Buffers, limits: Limits) -> TransferPlan {
    let content = Content {
        demanded: connect.demanded,
        range: connect.selection.range,
        ..Content::default()
    };
    let options = connect.options.clone();
    TransferPlan::new(options, content, buffers, limits, connect.attempt)
}

/// Returns the paths of a request, relative to the root.
fn tops(paths: &[Vec<u8>]) -> Result<Arc<[RelPath]>> {
    let top = |path: &Vec<u8>| Ok(beneath(path, End::Source)?.0);
    paths.iter().map(top).collect()
}

/// Returns the buffers of an end. The driver may request any object size. `pool` bounds the memory
/// of the buffers in bytes.
fn buffers(connect: &Connect, limits: &Limits, pool: u64) -> Buffers {
    let asked = connect.options.object_bytes;
    let bytes = asked.clamp(plan::OBJECT_BYTES_MIN, limits.object_bytes_max);
    Buffers::new(pool, bytes)
}

/// Parses a path of a request. Also returns true if the path ends with a slash, which means a
/// folder.
fn beneath(path: &[u8], end: End) -> Result<(RelPath, bool)> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let is_folder = trimmed.len() < path.len() || path.is_empty();
    let parsed = RelPath::parse(trimmed).map_err(|error| error.at(end))?;
    Ok((parsed, is_folder))
}

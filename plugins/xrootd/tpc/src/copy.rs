//! One copy. Both ends are in this process, and the object log is in the folder of the destination.

use crate::args::Args;
use crate::config::{Compare, Config, Logins, Reads};
use crate::copy_target::CopyTarget;
use crate::endpoint::EndpointAccess;
use crate::final_check::{FinalCheck, Origin};
use crate::negative_cache::NegativeCache;
use crate::outcome::{Ear, taken, told};
use crate::placeholder::{self, Placeholder, root_of};
use crate::{log, process, ticket};
use dray_core::options::{Links, Options, Overwrite};
use dray_core::{Checksum, End, Error, ErrorKind, Name, RelPath, Result, TransferId};
use dray_open::prepare;
use dray_open::xrootd;
use dray_runtime::assembly::{self, Buffers, Content, ThreadCount, Threads, TransferPlan};
use dray_runtime::drive::{self, Task};
use dray_runtime::handle::Handle;
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_runtime::source::Root;
use dray_store::wrap::Around;
use dray_store::{PosixOptions, PosixStore, ReadOnly, ReadState, Store};
use dray_store_xrootd::{Authorised, Url, XrootdOptions, XrootdStore, set_substreams};
use dray_wire::message::Selection;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Environment variable that shows if the client requested TLS. The scheme of the URL does not show
/// this.
const SOURCE_PROTOCOL: &str = "XRDTPC_SPROT";
/// Environment variable with the folder that the server exports.
pub(crate) const LOCAL_ROOT: &str = "XRDLCLROOT";

/// Maximum number of consecutive sessions with an endpoint that fail without new durable data. The
/// number is small, because the client waits.
const RETRIES: u32 = 3;

/// Maximum length in bytes of an identity in a log.
pub(crate) const IDENTITY_BYTES_MAX: usize = 4096;

/// The copy that the server requests.
pub(crate) struct CopyJob {
    pub(crate) source: Url,
    pub(crate) destination: PathBuf,
    pub(crate) local_root: Option<PathBuf>,
    /// Number of data connections that the client requests.
    pub(crate) streams: Option<u32>,
    pub(crate) config: Config,
}

impl CopyJob {
    /// Creates the job from the arguments and environment that the server has set.
    ///
    /// # Errors
    /// An error if the destination is not an absolute path.
    pub(crate) fn new(args: Args, config: Config) -> Result<Self> {
        let protocol = std::env::var(SOURCE_PROTOCOL).unwrap_or_default();
        let source = match protocol.as_str() {
            "roots" | "xroots" => args.source.with_tls(),
            _ => args.source,
        };
        if !args.destination.is_absolute() {
            let error = Error::new(ErrorKind::InvalidRequest, End::Sink, "write the file");
            return Err(error.cause("the destination is not an absolute path"));
        }
        Ok(Self {
            source,
            destination: args.destination,
            local_root: std::env::var_os(LOCAL_ROOT).map(PathBuf::from),
            streams: args.streams,
            config,
        })
    }

    /// Returns the identity of the content, in addition to size and time. It contains no host and
    /// no key, because the next attempt has another key and may use another address.
    fn identity(&self) -> Vec<u8> {
        let mut identity = b"source:".to_vec();
        identity.extend_from_slice(self.source.path().as_bytes());
        identity.truncate(IDENTITY_BYTES_MAX);
        identity
    }

    /// Returns the number of connections to the source.
    fn connections(&self, logins: Logins) -> u32 {
        let usual = self.config.connections(logins);
        usual.max(self.streams.unwrap_or(1))
    }

    fn open_source(&self) -> Result<XrootdStore> {
        let is_once = self.source.has_key();
        let connections = self.connections(if is_once { Logins::One } else { Logins::Each });
        if is_once {
            // The key permits only one opening, so further connections must be substreams of the
            // first.
            set_substreams(connections)?;
        }
        let options = XrootdOptions {
            authorised: if is_once {
                Authorised::Once
            } else {
                Authorised::Always
            },
            connections,
            pages: self.config.pages,
            is_compared: self.config.compare != Compare::Never,
        };
        XrootdStore::open(self.source.clone(), End::Source, options)
    }

    /// Returns a function that finds a dray endpoint for the source: in the configuration, or by
    /// asking the source server.
    fn find_dray(&self, source: &XrootdStore) -> FindDray {
        if let Some(endpoint) = self.config.endpoint_of(self.source.host()).cloned() {
            let (source, path) = (source.clone(), self.source.path().clone());
            return Box::new(move |_| match source.is_from_several() {
                // Use no endpoint. The endpoint of one replica reports the time of that replica,
                // and not the time of the file.
                true => Ok(None),
                false => endpoint.way(&source, &path).map(Some),
            });
        }
        if !self.config.ask_source {
            return Box::new(|_| Ok(None));
        }
        let (source, streams) = (source.clone(), self.connections(Logins::One));
        let streams = u16::try_from(streams).unwrap_or(u16::MAX);
        Box::new(move |transfer| match source.is_from_several() {
            true => Ok(None),
            false => ticket::ask(&source, transfer, streams, &NegativeCache::of_this_server()),
        })
    }
}

/// Function that finds a dray endpoint for the source of one transfer.
pub(crate) type FindDray = Box<dyn FnOnce(&TransferId) -> Result<Option<EndpointAccess>>>;

/// A source that is open for reading.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// Path of the file in this store.
    pub(crate) path: RelPath,
    pub(crate) origin: Arc<dyn Origin>,
    /// Identity of the content, in addition to size and time.
    pub(crate) identity: Vec<u8>,
    pub(crate) find_dray: FindDray,
}

impl Origin for XrootdStore {
    fn state_now(&self) -> Result<ReadState> {
        Self::state_now(self, self.url().path())
    }

    fn checksum(&self) -> Result<Option<Checksum>> {
        let url = self.url().without_keys();
        dray_store_xrootd::checksum(&url, url.path())
    }

    fn is_from_several(&self) -> bool {
        Self::is_from_several(self)
    }

    fn may_get_new_time(&self) -> bool {
        true
    }

    fn has_new_time(&self) -> bool {
        Self::has_new_time(self)
    }
}

/// Runs the copy.
///
/// # Errors
/// Every error that prevents the destination name from getting the complete file.
pub(crate) fn run(job: &CopyJob) -> Result<()> {
    let (handle, server) = (Handle::default(), process::server());
    let target = CopyTarget {
        destination: &job.destination,
        local_root: job.local_root.as_deref(),
        hides_placeholder: placeholder::are_hidden(),
        may_replace: true,
        demanded: None,
        config: &job.config,
    };
    let open = || {
        process::watch_server(server, handle.clone())?;
        let source = job.open_source()?;
        Ok(Opened {
            path: source.url().path().clone(),
            origin: Arc::new(source.clone()),
            find_dray: job.find_dray(&source),
            store: Arc::new(ReadOnly(source)),
            identity: job.identity(),
        })
    };
    carry(&target, open, &handle, Ear::default())
}

/// Runs a copy of the file that `open` opens.
///
/// # Errors
/// As [`run`].
pub(crate) fn carry(
    target: &CopyTarget<'_>,
    open: impl FnOnce() -> Result<Opened>,
    handle: &Handle,
    ear: Ear,
) -> Result<()> {
    let mut planned = plan(target, open, handle)?;
    let way = planned.find_way();
    if let Some(way) = way
        && let Some(ended) = planned.through_dray(way, handle, &ear)
    {
        return ended;
    }
    planned.through_server(handle, &ear)
}

/// A copy that is ready to start. The destination of the copy is open, and the source of the copy
/// is known.
struct Planned<'a> {
    target: &'a CopyTarget<'a>,
    /// The source file on its server.
    from: Root,
    /// Identity of the content, in addition to size and time.
    identity: Vec<u8>,
    find_dray: Option<FindDray>,
    size: u64,
    folder: PathBuf,
    name: Name,
    path: RelPath,
    store: Arc<dyn Store>,
    transfer: TransferId,
    /// Id of the copy in the object log. If the same copy is requested again, the new process finds
    /// the partial data by this id.
    at: TransferId,
    /// The destination, until the first session uses it.
    destination: Mutex<Option<Destination>>,
    /// Largest object size of an earlier run, in bytes.
    begun_object_bytes: u64,
    options: Options,
}

/// Opens both ends, and prepares the final check, which runs before the file gets its name.
fn plan<'a>(
    target: &'a CopyTarget<'a>,
    open: impl FnOnce() -> Result<Opened>,
    handle: &Handle,
) -> Result<Planned<'a>> {
    let placeholder = Placeholder::look(target.destination, target.hides_placeholder)?;
    let (folder, name) = CopyTarget::place(&placeholder.path)?;
    let path = RelPath::root().join(&name)?;
    let store = PosixStore::open(&folder, End::Sink, PosixOptions::default())?;
    let (can, config) = (store.capabilities(), target.config);
    let begin = || {
        let source = open()?;
        let gate = FinalCheck::new(&source.origin, &placeholder, config, can.xattrs, handle)?;
        Ok((source, gate))
    };
    let (source, gate) = match begin() {
        Ok(begun) => begun,
        Err(error) => {
            forget(&placeholder, target.destination, target.local_root);
            return Err(error);
        }
    };
    let size = gate.size();
    let store: Arc<dyn Store> = Arc::new(Around::new(Arc::new(store), gate));
    let transfer = prepare::new_transfer_id()?;
    let at = [folder.as_os_str().as_bytes(), name.as_bytes()].join(&b'/');
    let at = prepare::id_of(&[at, source.identity.clone()].join(&0))?;
    let destination = open_destination(&folder, target.local_root, Arc::clone(&store), &path, &at)?;
    placeholder.clear(target.destination)?;
    // If the file still exists, another process has written to the server's empty file, or the file
    // was not a placeholder.
    if !target.may_replace && placeholder.is_there() {
        return Err(taken());
    }
    let begun_object_bytes = destination.object_bytes_max();
    let options = Options {
        object_bytes: config.object_bytes(Reads::Server).max(begun_object_bytes),
        // Pass the checksums to the store when the file is published, because the final check in
        // the store needs them. A file system without extended attributes does not store them.
        checksum_attributes: true,
        resume: config.resume,
        rate: config.rate,
        overwrite: match target.may_replace {
            true => Overwrite::IfDifferent,
            false => Overwrite::Never,
        },
        ..Options::default()
    };
    let from = Root {
        path: source.path,
        store: source.store,
        top: "/".into(),
        name: None,
        contents: false,
    };
    Ok(Planned {
        target,
        from,
        identity: source.identity,
        find_dray: Some(source.find_dray),
        size,
        folder,
        name,
        path,
        store,
        transfer,
        at,
        destination: Mutex::new(Some(destination)),
        begun_object_bytes,
        options,
    })
}

impl Planned<'_> {
    fn content(&self) -> Content {
        Content {
            demanded: self.target.demanded,
            named: self.identity.clone(),
            ..Content::default()
        }
    }

    fn selection(&self) -> Selection {
        Selection {
            recursive: false,
            include: Vec::new(),
            exclude: Vec::new(),
            range: None,
            size: Some(self.size),
            rename: Some(self.name.clone()),
            links: Links::Keep,
        }
    }

    /// Returns the destination. After the first session, opens it again.
    fn destination(&self) -> Result<Destination> {
        let first = self.destination.lock();
        if let Some(first) = first.unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(first);
        }
        let store = Arc::clone(&self.store);
        let root = self.target.local_root;
        open_destination(&self.folder, root, store, &self.path, &self.at)
    }

    /// Returns the access to a dray endpoint at the source. Returns `None` if the endpoint denies
    /// access or was unreachable recently.
    fn find_way(&mut self) -> Option<EndpointAccess> {
        let find = self.find_dray.take().filter(|_| self.size > 0)?;
        let way = find(&self.transfer).unwrap_or_else(|error| {
            log::note(&format!(
                "the endpoint at the source denied access ({error}); reading through XRootD instead"
            ));
            None
        })?;
        if NegativeCache::of_this_server().misses(&way.dial.address) {
            log::note(
                "skipping the endpoint at the source, because it was unreachable a short time \
                    ago; reading through XRootD instead",
            );
            return None;
        }
        Some(way)
    }

    /// Copies through the dray endpoint at the source. Returns `None` if the file must be read from
    /// the source server instead.
    fn through_dray(
        &self,
        mut way: EndpointAccess,
        handle: &Handle,
        ear: &Ear,
    ) -> Option<Result<()>> {
        let config = self.target.config;
        let object_bytes = config
            .object_bytes(Reads::Dray)
            .max(self.begun_object_bytes);
        let task = Task {
            transfer: self.transfer.clone(),
            first_session: 1,
            selection: self.selection(),
            options: Options {
                object_bytes,
                ..self.options.clone()
            },
            content: self.content(),
            pool_bytes: config.pool_bytes,
            streams: way.streams,
            tuning: drive::Tuning::default(),
            threads: Threads::Usual,
            clear_data: way.clear_data,
            retries: RETRIES,
            checkpoint: None,
        };
        let can = self.store.capabilities();
        let open = || Ok((self.destination()?, can));
        way.dial.limits = assembly::limits(Buffers::new(config.pool_bytes / 2, object_bytes));
        way.dial.object_bytes_min = self.begun_object_bytes;
        match drive::pull(&task, &way.dial, &[way.path], open, handle, ear) {
            Ok(ended) => match told(&ended, ear) {
                Err(error) if is_of_the_way(&error) && !handle.is_stopped() => instead(&error),
                told => return Some(told),
            },
            Err(error) => {
                if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) {
                    NegativeCache::of_this_server().miss(&way.dial.address);
                }
                instead(&error);
            }
        }
        None
    }

    /// Copies from the source server itself.
    fn through_server(self, handle: &Handle, ear: &Ear) -> Result<()> {
        let destination = self.destination()?;
        let config = self.target.config;
        let (content, selection) = (self.content(), self.selection());
        let pool = config.pool_bytes;
        let plan = TransferPlan::local(self.options.clone(), content, pool, &destination, 1);
        let can = self.from.store.capabilities();
        let mut reads = plan.source(vec![self.from], selection, Threads::Usual);
        reads.machine.readers = ThreadCount::Fixed(config.readers);
        let writes = plan.sink(destination, Some(can), Threads::Usual);
        let ended = drive::copy(reads, writes, handle, ear)?;
        told(&ended, ear)
    }
}

/// Returns true if the error concerns only the dray endpoint or the connection to it. For example,
/// the endpoint lacks the permission to read the file, the endpoint has another file of that name,
/// or this process cannot open another socket. The source server also has the file and has granted
/// access, so the copy can use that server. If the file itself causes the error, the source server
/// reports the error too.
fn is_of_the_way(error: &Error) -> bool {
    let lacks = error.end == End::Here && error.kind == ErrorKind::Busy;
    matches!(error.end, End::Source | End::Network) || lacks
}

fn instead(error: &Error) {
    log::note(&format!(
        "reading from the XRootD server instead of the endpoint ({error})"
    ));
}

/// Removes the placeholder of a copy that cannot start. Does nothing if another copy of the file is
/// running, because the name may already belong to the complete file of that copy.
pub(crate) fn forget(placeholder: &Placeholder, destination: &Path, local_root: Option<&Path>) {
    let forgotten = CopyTarget::place(&placeholder.path).and_then(|(folder, name)| {
        let path = RelPath::root().join(&name)?;
        let store = PosixStore::open(&folder, End::Sink, PosixOptions::default())?;
        let transfer = prepare::new_transfer_id()?;
        let _held = open_destination(&folder, local_root, Arc::new(store), &path, &transfer)?;
        placeholder.forget(destination)
    });
    // Log this error. The client gets the reason why the copy cannot start.
    if let Err(error) = forgotten {
        log::note(&format!(
            "the placeholder at the destination was not removed: {error}"
        ));
    }
}

/// Opens the destination with its log and lease. `folder` is a path without symbolic links, so that
/// every session uses the same log. The path of the destination file cannot be resolved, because
/// the placeholder may have been removed.
fn open_destination(
    folder: &Path,
    local_root: Option<&Path>,
    store: Arc<dyn Store>,
    path: &RelPath,
    transfer: &TransferId,
) -> Result<Destination> {
    let root = root_of(folder, local_root);
    // If the root cannot be read, no log in a parent folder concerns this copy.
    let top = PosixStore::open(&root, End::Sink, PosixOptions::default()).ok();
    let below = folder.strip_prefix(&root).unwrap_or(Path::new(""));
    let below = RelPath::parse(below.as_os_str().as_bytes())?;
    let request = DestinationRequest {
        store,
        above: top.map(|top| (Arc::new(top) as Arc<dyn Store>, below)),
        claims: vec![path.clone()],
        transfer: transfer.clone(),
        // Use the same owner as for writes through the server's own protocol.
        owner: xrootd::OWNER.to_vec(),
        durability: Options::default().durability,
        log: None,
        words: path.to_string(),
    };
    Destination::open_for(request, &Selection::default())
}

#[cfg(test)]
mod tests {
    use super::{CopyTarget, Ear, carry, open_destination};
    use crate::config::Config;
    use crate::placeholder::Placeholder;
    use dray_core::{End, Error, ErrorKind, RelPath, Result};
    use dray_open::prepare;
    use dray_runtime::handle::Handle;
    use dray_runtime::sink::Destination;
    use dray_store::{PosixOptions, PosixStore};
    use std::path::Path;
    use std::sync::Arc;

    /// Takes the lease of a copy to `destination`, which is the server's path of the file.
    fn lease(destination: &Path, local_root: &Path) -> Result<Destination> {
        let found = Placeholder::look(destination, false)?;
        let (folder, name) = CopyTarget::place(&found.path)?;
        let store = Arc::new(PosixStore::open(
            &folder,
            End::Sink,
            PosixOptions::default(),
        )?);
        let path = RelPath::root().join(&name)?;
        let transfer = prepare::new_transfer_id()?;
        open_destination(&folder, Some(local_root), store, &path, &transfer)
    }

    #[test]
    fn a_copy_that_cannot_begin_takes_the_name_from_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("a");
        std::fs::write(&name, b"").expect("writes");
        let config = Config::default();
        let fail = || {
            let target = CopyTarget {
                destination: &name,
                local_root: None,
                hides_placeholder: false,
                may_replace: true,
                demanded: None,
                config: &config,
            };
            let away = || {
                Err(Error::new(
                    ErrorKind::Unreachable,
                    End::Source,
                    "open the file",
                ))
            };
            let ended = carry(&target, away, &Handle::default(), Ear::default());
            assert_eq!(ended.expect_err("no source").kind, ErrorKind::Unreachable);
        };
        let held = lease(&name, folder.path()).expect("free");
        fail();
        assert!(
            name.exists(),
            "another copy was about to give its file that name"
        );
        drop(held);
        fail();
        assert!(!name.exists());
        let left = std::fs::read_dir(folder.path()).expect("lists").count();
        assert_eq!(left, 0, "something of the copies that failed is left");
    }

    #[test]
    fn an_exported_folder_behind_a_link_is_one_place_with_the_placeholder_and_without() {
        let folder = tempfile::tempdir().expect("a folder");
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::create_dir_all(real.join("in")).expect("makes");
        std::os::unix::fs::symlink(&real, &link).expect("links");
        let name = link.join("in/a");
        std::fs::write(&name, b"").expect("writes");
        // Another copy of the file is running.
        let held = lease(&real.join("in/a"), &real).expect("free");
        for is_there in [true, false] {
            let error = lease(&name, &link).map(drop).expect_err("held");
            assert_eq!(error.kind, ErrorKind::LeaseHeld, "placeholder: {is_there}");
            let _ = std::fs::remove_file(&name);
        }
        drop(held);
        lease(&name, &link).expect("free again");
    }
}

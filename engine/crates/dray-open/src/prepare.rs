//! This host's side of a transfer: opens the stores of the requested paths, and the destination
//! with its log and lease.
//!
//! The command line and the Python package both use this module, so each of them can resume a
//! transfer of the other. [`open`] carries out all steps for a copy on this host. A transfer with
//! another host uses the individual steps.

pub use crate::targets::Targets;

use crate::locations::{self, Folder, LocalSource, Places, Sources};
use crate::server_checksum::{Need, Offer};
use crate::store_kind::{ChecksumNeed, Location, Looked, OpenedSink, OpenedSource, writable_with};
use dray_core::options::{Links, Options};
use dray_core::{End, Error, ErrorKind, FileKind, Name, RelPath, Result, TransferId, plan};
use dray_runtime::assembly::{Content, TransferPlan};
use dray_runtime::sink::{
    self, Destination, DestinationRequest, FinalCheck, LogStep, about_folder,
};
use dray_runtime::source::{self, Root};
use dray_session::Failure;
use dray_session::sink::decide::refusal;
pub use dray_store::wrap::limit::RateInTime;
use dray_store::{Capabilities, LinkScope, PosixOptions, PosixStore, Store};
use dray_wire::message::Selection;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Opens one store for all sources on this host. The store starts at `/`, because the numbers of
/// storage targets are valid only within one store.
///
/// # Errors
/// The errors of [`PosixStore::open`].
pub fn open_source(targets: &Targets, links: Links) -> Result<Arc<dyn Store>> {
    let scope = match links {
        // Follow links to any path: the user of this process can also read that path without the
        // link.
        Links::Follow => LinkScope::Anywhere,
        // The paths of the sources have no unresolved links.
        Links::Keep | Links::Refuse => LinkScope::Never,
    };
    targets.open(Path::new("/"), End::Source, scope, false)
}

/// Returns the sources as roots of `store`.
///
/// # Errors
/// If a path is invalid.
pub fn roots(store: &Arc<dyn Store>, sources: &[LocalSource]) -> Result<Vec<Root>> {
    let root = |source: &LocalSource| {
        Ok(Root {
            store: Arc::clone(store),
            path: locations::from_top(&source.path)?,
            top: "/".into(),
            name: source.name.clone(),
            contents: source.contents,
        })
    };
    sources.iter().map(root).collect()
}

/// Returns a failure for each source if none of the sources exists, otherwise an empty list. The
/// caller then does not touch the destination, so a mistyped name leaves no empty folder.
#[must_use]
pub fn nothing_there(sources: &Sources) -> Vec<Failure> {
    let Sources::Local(sources) = sources else {
        return Vec::new();
    };
    let is_missing = |source: &LocalSource| {
        let looked = source.path.symlink_metadata();
        looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    if !sources.iter().all(is_missing) {
        return Vec::new();
    }
    let failure = |source: &LocalSource| {
        let name = source.name.as_ref();
        let path = name.and_then(|name| RelPath::root().join(name).ok());
        Failure {
            path: path.unwrap_or_else(RelPath::root),
            error: Error::new(ErrorKind::NotFound, End::Source, "read")
                .cause(format!("{} does not exist", source.words))
                .remedy("check the path of the source"),
        }
    };
    sources.iter().map(failure).collect()
}

/// Returns the kind of the entry that already exists under the destination name of a single file. A
/// link in `/dev` counts as a device, because it may lead to an open file of a process
/// (`/dev/stdout`). `/dev/shm` is an exception, because it is a folder for users' files.
fn meant(folder: &Path, stands: FileKind) -> FileKind {
    let is_systems = || {
        let folder = folder.canonicalize();
        folder.is_ok_and(|folder| folder.starts_with("/dev") && !folder.starts_with("/dev/shm"))
    };
    match stands {
        FileKind::Symlink if is_systems() => FileKind::Special,
        _ => stands,
    }
}

/// Refuses the existing entry at the destination of a single file, if the sink machine would refuse
/// it later. This check comes first, because the sink machine starts only after a log was created
/// in the folder of the entry, and a log in a folder like `/dev` would be wrong. `stands` is the
/// kind of the entry. `words` is its full path for messages.
///
/// # Errors
/// Errors of [`refusal`].
pub(crate) fn refuse_early(
    stands: Option<FileKind>,
    name: &Name,
    words: String,
    places: &Places,
    options: &Options,
) -> Result<()> {
    let refused = stands.and_then(|stands| refusal(options.overwrite, stands, "write the file"));
    let Some(error) = refused else {
        return Ok(());
    };
    Err(match error.kind {
        ErrorKind::IsADirectory => error
            .cause(words)
            .remedy(format!("write {}/ to copy into the folder", places.words)),
        _ => error.file(&RelPath::root().join(name)?),
    })
}

/// Opens the folder to write to, with its log and lease. Also returns the capabilities of the
/// storage of this folder.
///
/// # Errors
/// - [`ErrorKind::IsADirectory`] if a folder has the name of the single file.
/// - [`ErrorKind::AlreadyExists`] if a device, a pipe, a socket, or a link in `/dev` has that name.
/// - Errors of [`PosixStore::open`] and [`Destination::open`].
pub fn open_destination(
    folder: &Path,
    places: &Places,
    targets: &Targets,
    (transfer, selection): (&TransferId, &Selection),
    options: &Options,
) -> Result<(Destination, Capabilities)> {
    let store = targets.open(folder, End::Sink, LinkScope::Never, true)?;
    if let Some(name) = &places.rename {
        let path = folder.join(OsStr::from_bytes(name.as_bytes()));
        let stands = store.stat(&RelPath::root().join(name)?).ok().flatten();
        let stands = stands.map(|state| meant(folder, state.kind));
        refuse_early(stands, name, locations::shown(&path), places, options)?;
    }
    let can = store.capabilities();
    // If this process cannot open `/`, the folders above the destination are not searched for logs.
    let top = PosixStore::open(Path::new("/"), End::Sink, PosixOptions::default()).ok();
    let above: Option<(Arc<dyn Store>, RelPath)> = match top {
        Some(top) => Some((Arc::new(top), locations::from_top(folder)?)),
        None => None,
    };
    let request = DestinationRequest {
        store,
        above,
        claims: places.claims.clone(),
        transfer: transfer.clone(),
        owner: owner(),
        durability: options.durability,
        log: targets.log,
        words: places.words.clone(),
    };
    let destination = open_at(request, selection)?;
    Ok((destination, can))
}

/// Opens a destination. Errors of its log name the destination folder, because the user knows that
/// folder.
pub(crate) fn open_at(request: DestinationRequest, selection: &Selection) -> Result<Destination> {
    let words = request.words.clone();
    Destination::open_for(request, selection)
        .map_err(|error| about_folder(error, &words, LogStep::Use))
}

/// Opens a destination on this host or in a store.
///
/// # Errors
/// The errors of [`open_destination`]. [`ErrorKind::InvalidRequest`] for a destination on another
/// host.
pub fn open_folder(
    places: &Places,
    targets: &Targets,
    by: (&TransferId, &Selection),
    options: &Options,
) -> Result<(Destination, Capabilities)> {
    match &places.folder {
        Folder::Local(folder) => open_destination(folder, places, targets, by, options),
        Folder::Stored(location) => open_stored(location, places, targets, by, options),
        Folder::Remote(_) | Folder::RemoteNull(_) => Err(invalid(
            "the destination is on another host",
            "use paths on this host",
        )),
    }
}

/// Opens a folder in a store to write to, with its log and lease.
fn open_stored(
    location: &Arc<dyn Location>,
    places: &Places,
    targets: &Targets,
    (transfer, selection): (&TransferId, &Selection),
    options: &Options,
) -> Result<(Destination, Capabilities)> {
    let on_host = location.on_host(targets);
    let location = on_host.as_ref().unwrap_or(location);
    let writable = writable_with(location, options)?;
    let OpenedSink {
        store,
        above,
        owner: store_owner,
    } = writable.open_sink()?;
    let store = targets.limit(store);
    // Do not show DST as typed, because the parameters of the URL may be secret.
    let words = location.words();
    if let Some(name) = &places.rename {
        let exists = store.stat(&RelPath::root().join(name)?)?;
        let exists = exists.map(|state| state.kind);
        refuse_early(exists, name, format!("{words}/{name}"), places, options)?;
    }
    let can = store.capabilities();
    let request = DestinationRequest {
        store,
        above,
        claims: places.claims.clone(),
        transfer: transfer.clone(),
        owner: store_owner.unwrap_or_else(owner),
        durability: options.durability,
        log: targets.log,
        words,
    };
    Ok((Destination::open_for(request, selection)?, can))
}

/// Opens a destination in a store to plan a copy, without changing anything.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the store cannot be opened for a plan. Errors of the store.
pub fn look(location: &Arc<dyn Location>, targets: &Targets) -> Result<Looked> {
    let on_host = location.on_host(targets);
    on_host.as_ref().unwrap_or(location).writable()?.look()
}

/// Opens sources that are in a store. `is_compared` has the meaning of [`Location::open_source`].
fn stored_roots(
    stored: &[Arc<dyn Location>],
    targets: &Targets,
    is_compared: bool,
) -> Result<(Vec<Root>, Need)> {
    let Some(first) = stored.first() else {
        return Ok((Vec::new(), Box::new(|| ChecksumNeed::Optional)));
    };
    let on_host = first.on_host(targets);
    let OpenedSource { store, need } =
        on_host.as_ref().unwrap_or(first).open_source(is_compared)?;
    let store = targets.limit(store);
    let root = |location: &Arc<dyn Location>| Root {
        store: Arc::clone(&store),
        path: location.path(),
        top: location.top().into(),
        name: None,
        contents: location.is_folder(),
    };
    Ok((stored.iter().map(root).collect(), need))
}

/// Opens the sources that are on this host or in a store.
///
/// # Errors
/// The errors of [`open_source`] and [`roots`]. [`ErrorKind::InvalidRequest`] for sources on
/// another host.
pub fn open_roots(sources: &Sources, targets: &Targets, links: Links) -> Result<Vec<Root>> {
    match sources {
        Sources::Local(sources) => roots(&open_source(targets, links)?, sources),
        Sources::Stored(stored) => Ok(stored_roots(stored, targets, false)?.0),
        Sources::Remote(..) => Err(invalid(
            "the source is on another host",
            "use paths on this host",
        )),
    }
}

/// A request for a copy with both ends in this process.
#[derive(Debug, Clone)]
pub struct Request {
    /// Sources and destination. Neither may be on another dray host.
    pub places: Places,
    /// The selection of entries.
    pub selection: Selection,
    /// Options of the transfer.
    pub options: Options,
    /// Requirements on the content of a single file.
    pub content: Content,
    /// Id of the transfer.
    pub transfer: TransferId,
    /// Size in bytes of all buffers, which both ends share.
    pub pool_bytes: u64,
    /// Storage targets of this host.
    pub targets: Targets,
}

/// Opens both ends of a copy on this host, for [`dray_runtime::local::run`].
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if the object size is out of bounds, or if a side is on another
/// host. Errors of [`open_source`] and [`open_destination`].
pub fn open(request: &Request) -> Result<(source::Setup, sink::Setup)> {
    let (places, options) = (&request.places, &request.options);
    let object_bytes = options.object_bytes;
    if !(plan::OBJECT_BYTES_MIN..=plan::OBJECT_BYTES_MAX).contains(&object_bytes) {
        let cause =
            format!("the object size of {object_bytes} bytes is not within 4 KiB to 64 MiB");
        return Err(invalid(cause, "choose an object size from 4 KiB to 64 MiB"));
    }
    let by = (&request.transfer, &request.selection);
    let targets = request.targets.with_stripes(options.stripes);
    let (destination, _) = open_folder(places, &targets, by, options)?;
    let content = &request.content;
    let pool = request.pool_bytes;
    let plan = TransferPlan::local(options.clone(), content.clone(), pool, &destination, 1);
    let links = request.selection.links;
    // A server can offer only the checksum of a whole file.
    let is_whole = content.range.is_none() && !request.selection.recursive;
    let whole_file = match &places.sources {
        Sources::Stored(stored) => match stored.as_slice() {
            [one] if is_whole && !one.is_folder() => Some(one),
            _ => None,
        },
        Sources::Local(_) | Sources::Remote(..) => None,
    };
    let (roots, need) = match &places.sources {
        Sources::Stored(stored) => stored_roots(stored, &targets, whole_file.is_some())?,
        sources => {
            let roots = open_roots(sources, &targets, links)?;
            (roots, Box::new(|| ChecksumNeed::Optional) as Need)
        }
    };
    let source_can = roots.first().map(|root| root.store.capabilities());
    let offer = whole_file
        .filter(|one| content.demanded.is_none() && one.offers_checksum())
        .map(|one| Offer::ask(one, need));
    let destination = destination.compare_with(offer.map(|offer| -> Arc<dyn FinalCheck> { offer }));
    let selection = Selection {
        rename: places.rename.clone(),
        ..request.selection.clone()
    };
    let threads = request.targets.threads;
    Ok((
        plan.source(roots, selection, threads),
        plan.sink(destination, source_can, threads),
    ))
}

/// Returns the transfer id of a command. If the same user repeats the same command on the same
/// host, the id is the same, so the transfer finds its partial data again. The id is no proof of
/// identity: another user can choose the same id.
///
/// # Errors
/// Does not fail in practice, because an id of letters and digits is valid.
pub fn command_id(places: &Places, selection: &Selection) -> Result<TransferId> {
    let user = rustix::process::geteuid().as_raw();
    let host = dray_runtime::sink::host_name();
    let words = format!(
        "{user}\0{host}\0{}\0{}\0{:?}\0{:?}\0{:?}",
        places.sources.identity(),
        places.folder.identity(),
        places.rename,
        places.claims,
        selection
    );
    id_of(words.as_bytes())
}

/// Derives a transfer id from `words`, a text that identifies the transfer.
///
/// # Errors
/// Does not fail in practice, because an id of letters and digits is valid.
pub fn id_of(words: &[u8]) -> Result<TransferId> {
    // FNV-1a, as for the names of logs. The hash only has to be evenly distributed.
    let hash = words.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    TransferId::new(format!("{hash:016x}"))
}

/// Returns a random id for a new transfer.
///
/// # Errors
/// Does not fail in practice, because an id of letters and digits is valid.
pub fn new_transfer_id() -> Result<TransferId> {
    let drawn = RandomState::new().hash_one(std::process::id());
    TransferId::new(format!("{drawn:016x}"))
}

/// Returns the owner that is recorded in logs: the user of this process.
#[must_use]
pub fn owner() -> Vec<u8> {
    format!("uid:{}", rustix::process::geteuid().as_raw()).into_bytes()
}

fn invalid(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::new_transfer_id;

    #[test]
    fn names_differ() {
        let name = || new_transfer_id().expect("a good name");
        assert_ne!(name(), name());
    }
}

//! The destination: finds or makes the object log that speaks for it, and takes its lease.

use crate::sink::log_file::StoredLog;
use crate::sink::other_logs::OtherLogs;
use dray_core::options::Durability;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result, TransferId};
use dray_log::lease::{self, LEASE_BYTES};
use dray_log::{
    BootId, Header, LeaseRecord, LogFile, MemoryFile, ObjectLog, Recovery, Tenure, UniversalLog,
    place, recover, trust,
};
use dray_store::{ControlFile, ControlMode, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a holder may take to end: one whose source has just died is still making durable what it
/// has, and the same command again must find it gone.
const HOLDER_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two looks at the lease.
const HOLDER_PAUSE: Duration = Duration::from_millis(50);

/// What is to be written where, and by whom.
pub struct DestinationRequest {
    /// The destination folder's store.
    pub store: Arc<dyn Store>,
    /// The exported root's store and the destination folder's path in it: logs of whole trees are
    /// looked for in the folders above.
    pub above: Option<(Arc<dyn Store>, RelPath)>,
    /// Paths below the destination folder that will be written; empty for all of it.
    pub claims: Vec<RelPath>,
    /// The transfer.
    pub transfer: TransferId,
    /// Who writes, as the owner mapping says.
    pub owner: Vec<u8>,
    /// What "done" means.
    pub durability: Durability,
    /// The destination in the caller's words, for messages.
    pub words: String,
}

/// The lease on a log. It is given back when dropped.
pub(super) struct Lease {
    file: Box<dyn ControlFile>,
    record: LeaseRecord,
}

impl Lease {
    /// Whether it is still ours.
    pub(super) fn check(&self) -> Result<()> {
        let found = read_lease(self.file.as_ref())?;
        if lease::is_fenced(&self.record, found.as_ref()) {
            return Err(lease::fenced_error(found.as_ref()));
        }
        Ok(())
    }
}

pub(super) type Log = UniversalLog<Box<dyn LogFile + Send>>;

/// Where a log lies.
struct LogPlace {
    store: Arc<dyn Store>,
    /// The folder `.dray-log`.
    folder: RelPath,
    log: Name,
    /// The destination folder as seen from the log's top.
    prefix: RelPath,
}

/// A destination that may be written: its log is open and its lease is held.
pub struct Destination {
    pub(super) store: Arc<dyn Store>,
    pub(super) log: Log,
    pub(super) lease: Option<Lease>,
    /// What the log said when it was opened, without its files.
    pub(super) found: Option<Recovery>,
    /// The log in words.
    pub(super) log_words: String,
    pub(super) prefix: RelPath,
    /// Whether the log was made for this very request, not for one that covers it.
    pub(super) is_own_log: bool,
    pub(super) owner: Vec<u8>,
    pub(super) boot_id: BootId,
    pub(super) durability: Durability,
    pub(super) notices: Vec<Error>,
    /// Whose partial files are not ours to remove.
    pub(super) others: Option<OtherLogs>,
    place: Option<LogPlace>,
    /// Whether the log was removed: nothing more is to be said in it.
    pub(super) is_log_removed: bool,
}

impl Destination {
    /// Finds the log that covers the claims, in the destination folder or above it, or makes one;
    /// takes its lease.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseHeld`] names the transfer that is writing there; `LogVersion` and
    /// `LogDamaged` for logs that cannot be read; what the store says.
    pub fn open(request: DestinationRequest) -> Result<Self> {
        let boot_id = boot_id()?;
        if !request.store.capabilities().can_hold_log {
            return Self::without_log(request, boot_id);
        }
        let place = find(&request)?;
        let is_own_log = place.prefix.is_root() && place.log == place::log_name(&request.claims)?;
        let lease_name = place::lease_of_log(&place.log).ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Sink, "name the lease").cause("no log's name")
        })?;
        let lease_path = place.folder.join(&lease_name)?;
        let log_path = place.folder.join(&place.log)?;
        let (file, mut record) = lock(&place, &lease_path, &request, &boot_id)?;
        let log_file = place.store.open_control(&log_path, ControlMode::Create)?;
        let mut log_file: Box<dyn LogFile + Send> = Box::new(StoredLog::new(log_file));
        let recovery = recover(&mut log_file).map_err(|error| error.file(&log_path))?;
        let log_words = format!("the log {log_path} of {}", request.words);
        // The lease may have been lost and begun anew; the log's holders count as well.
        let logged = recovery.as_ref().map(|recovery| recovery.tenure.epoch);
        if logged.is_some_and(|logged| logged >= record.epoch) {
            record.epoch = lease::next_epoch(Some(&record), logged)?;
            file.write_at(record.slot_offset(), &record.encode()?)?;
        }
        file.sync()?;
        let epoch = record.epoch;
        let tenure = tenure(&request, &boot_id, epoch, &record);
        let mut notices = Vec::new();
        let (log, found) = match recovery {
            None => {
                let log = new_log(log_file, &request, &place, tenure)?;
                // Somebody whose claims overlap ours may have begun at the same moment. Whoever
                // made the later log sees the other's here; both may, and then both give way.
                look_in(&place, &request, Some(&place.log))?;
                (log, None)
            }
            Some(mut recovery) => {
                let judge = trust::Sink {
                    log: &log_words,
                    owner: &request.owner,
                    boot_id: &boot_id,
                    durability: request.durability,
                };
                trust::check_owner(&recovery, &judge)?;
                notices.extend(
                    recovery
                        .damage
                        .as_ref()
                        .map(|damage| damage.error(&log_words)),
                );
                let files = std::mem::take(&mut recovery.files);
                let shell = recovery.clone();
                recovery.files = files;
                (
                    UniversalLog::resume(log_file, recovery, tenure)?,
                    Some(shell),
                )
            }
        };
        Ok(Self {
            others: Some(OtherLogs::new(&request, &place.store, log_path)),
            is_log_removed: false,
            store: request.store,
            log,
            lease: Some(Lease { file, record }),
            found,
            log_words,
            prefix: place.prefix.clone(),
            is_own_log,
            owner: request.owner,
            boot_id,
            durability: request.durability,
            notices,
            place: Some(place),
        })
    }

    /// For a store that keeps no files: the log lives as long as this process.
    fn without_log(request: DestinationRequest, boot_id: BootId) -> Result<Self> {
        let record = record(&request, &boot_id, 1);
        let tenure = tenure(&request, &boot_id, 1, &record);
        let header = header(&request, request.claims.clone(), tenure);
        let file: Box<dyn LogFile + Send> = Box::new(MemoryFile::new());
        Ok(Self {
            others: None,
            is_log_removed: false,
            store: request.store,
            log: UniversalLog::create(file, header)?,
            lease: None,
            found: None,
            log_words: "the log in memory".to_owned(),
            prefix: RelPath::root(),
            is_own_log: true,
            owner: request.owner,
            boot_id,
            durability: request.durability,
            notices: Vec::new(),
            place: None,
        })
    }

    /// What was noticed while opening: damage in a log that could be read in part.
    #[must_use]
    pub fn notices(&self) -> &[Error] {
        &self.notices
    }

    /// The largest object that an unfinished file was cut into; a resume goes on in it, so buffers
    /// should be no smaller. 0 when nothing is unfinished.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        let files = self.log.files();
        files
            .map(|(_, file)| file.object_bytes.get())
            .max()
            .unwrap_or(0)
    }

    /// Removes log and lease, and their folder if nothing else is in it.
    pub(super) fn remove_log(&mut self) -> Result<()> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let lease = place::lease_of_log(&place.log);
        place
            .store
            .remove_control(&place.folder.join(&place.log)?)?;
        if let Some(lease) = lease {
            place.store.remove_control(&place.folder.join(&lease)?)?;
        }
        self.is_log_removed = true;
        // Another transfer's log may lie beside it: then the folder stays.
        let _ = place.store.remove(&place.folder);
        Ok(())
    }
}

fn record(request: &DestinationRequest, boot_id: &BootId, epoch: u64) -> LeaseRecord {
    LeaseRecord {
        epoch,
        holder: format!(
            "dray {} process {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        ),
        transfer: request.transfer.clone(),
        boot_id: boot_id.clone(),
        host: host_name(),
    }
}

fn tenure(
    request: &DestinationRequest,
    boot_id: &BootId,
    epoch: u64,
    record: &LeaseRecord,
) -> Tenure {
    Tenure {
        epoch,
        holder: format!("{} on {}", record.holder, record.host),
        transfer: request.transfer.clone(),
        boot_id: boot_id.clone(),
        durability: request.durability,
    }
}

fn header(request: &DestinationRequest, claims: Vec<RelPath>, tenure: Tenure) -> Header {
    let software = concat!("dray ", env!("CARGO_PKG_VERSION"));
    Header::new(claims, request.owner.clone(), nonce(), software, tenure)
}

fn new_log(
    file: Box<dyn LogFile + Send>,
    request: &DestinationRequest,
    place: &LogPlace,
    tenure: Tenure,
) -> Result<Log> {
    let claims = request
        .claims
        .iter()
        .map(|claim| place.prefix.join_path(claim));
    UniversalLog::create(
        file,
        header(request, claims.collect::<Result<_>>()?, tenure),
    )
}

fn nonce() -> u64 {
    // Only has to differ from other logs': the standard hasher's keys are random for each process.
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The folder `.dray-log` of a folder.
pub(super) fn log_folder(top: &RelPath) -> Result<RelPath> {
    top.join(&place::log_folder_name()?)
}

/// The folders above a folder, the nearest first, each with the folder as seen from it.
pub(super) fn folders_above(folder: &RelPath) -> Result<Vec<(RelPath, RelPath)>> {
    let mut found = Vec::new();
    let (mut at, mut seen) = (folder.clone(), RelPath::root());
    while let (Some(parent), Some(name)) = (at.parent(), at.name()) {
        seen = RelPath::root().join(&name)?.join_path(&seen)?;
        at = parent;
        found.push((at.clone(), seen.clone()));
    }
    Ok(found)
}

/// Looks for a log that covers the claims: beside the destination, then upward to the root.
fn find(request: &DestinationRequest) -> Result<LogPlace> {
    let own = place::log_name(&request.claims)?;
    let here = LogPlace {
        store: Arc::clone(&request.store),
        folder: log_folder(&RelPath::root())?,
        log: own,
        prefix: RelPath::root(),
    };
    if let Some(found) = look_in(&here, request, None)? {
        return Ok(found);
    }
    if let Some((store, top)) = &request.above {
        for (folder, prefix) in folders_above(top)? {
            let candidate = LogPlace {
                store: Arc::clone(store),
                folder: log_folder(&folder)?,
                log: here.log.clone(),
                prefix,
            };
            if let Some(found) = look_in(&candidate, request, None)? {
                return Ok(found);
            }
        }
    }
    Ok(here)
}

/// A log that is there.
pub(super) struct FoundLog {
    pub(super) store: Arc<dyn Store>,
    pub(super) log: RelPath,
    pub(super) lease: RelPath,
    /// The destination folder as seen from the log's top.
    pub(super) prefix: RelPath,
}

/// The log that a transfer to this destination would go on with, if there is one.
pub(super) fn find_existing(request: &DestinationRequest) -> Result<Option<FoundLog>> {
    let at = find(request)?;
    let names = at.store.list_control(&at.folder)?;
    let lease = place::lease_of_log(&at.log).filter(|_| names.contains(&at.log));
    let Some(lease) = lease else {
        return Ok(None);
    };
    Ok(Some(FoundLog {
        log: at.folder.join(&at.log)?,
        lease: at.folder.join(&lease)?,
        store: at.store,
        prefix: at.prefix,
    }))
}

/// The log in one folder that covers the claims, if any. One that overlaps them without covering
/// them must not be in use. `own` is passed over.
fn look_in(
    at: &LogPlace,
    request: &DestinationRequest,
    own: Option<&Name>,
) -> Result<Option<LogPlace>> {
    let names = match at.store.list_control(&at.folder) {
        Ok(names) => names,
        Err(error) if error.kind == ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error),
    };
    let mine: Vec<RelPath> = if request.claims.is_empty() {
        vec![at.prefix.clone()]
    } else {
        let below = request
            .claims
            .iter()
            .map(|claim| at.prefix.join_path(claim));
        below.collect::<Result<_>>()?
    };
    for name in names {
        let Some(lease_name) = place::lease_of_log(&name).filter(|_| own != Some(&name)) else {
            continue;
        };
        let path = at.folder.join(&name)?;
        let file = match at.store.open_control(&path, ControlMode::ReadOnly) {
            Ok(file) => file,
            // It was finished and removed while we looked.
            Err(error) if error.kind == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let found = recover(&mut StoredLog::new(file)).map_err(|error| error.file(&path))?;
        let Some(recovery) = found else {
            continue;
        };
        let theirs = &recovery.header.claims;
        let covers = mine.iter().all(|claim| place::covers(theirs, claim));
        if covers && own.is_none() {
            return Ok(Some(LogPlace {
                store: Arc::clone(&at.store),
                folder: at.folder.clone(),
                log: name,
                prefix: at.prefix.clone(),
            }));
        }
        let overlaps = mine.iter().any(|claim| {
            place::covers(theirs, claim) || theirs.iter().any(|other| other.starts_with(claim))
        });
        if overlaps {
            refuse_if_held(
                at.store.as_ref(),
                &at.folder.join(&lease_name)?,
                &request.words,
            )?;
        }
    }
    Ok(None)
}

/// What a look at a lease shows.
pub(super) enum Lookup {
    /// Somebody holds it.
    Held(Box<dyn ControlFile>),
    /// Nobody does; the epoch of who did last, 0 for nobody.
    Free(u64),
}

/// Looks whether the lease at `path` is held by anybody.
///
/// # Errors
/// Of the store.
pub(super) fn look_at_lease(store: &dyn Store, path: &RelPath) -> Result<Lookup> {
    let file = match store.open_control(path, ControlMode::Existing) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(Lookup::Free(0)),
        Err(error) => return Err(error),
    };
    if !file.try_lock()? {
        return Ok(Lookup::Held(file));
    }
    let last = read_lease(file.as_ref());
    file.unlock()?;
    Ok(Lookup::Free(last?.map_or(0, |record| record.epoch)))
}

/// Refuses when the lease at `path` is held by anybody.
///
/// # Errors
/// [`ErrorKind::LeaseHeld`] names the holder.
pub(super) fn refuse_if_held(store: &dyn Store, path: &RelPath, words: &str) -> Result<()> {
    match look_at_lease(store, path)? {
        Lookup::Held(file) => Err(held(file.as_ref(), words)),
        Lookup::Free(_) => Ok(()),
    }
}

fn held(file: &dyn ControlFile, words: &str) -> Error {
    match read_lease(file) {
        Ok(Some(record)) => record.held_error(words),
        _ => Error::new(ErrorKind::LeaseHeld, End::Sink, "write to the destination")
            .cause(format!("another transfer is beginning to write to {words}"))
            .remedy("wait for it, or cancel it"),
    }
}

/// Takes the lease and notes ourselves in it.
fn lock(
    place: &LogPlace,
    path: &RelPath,
    request: &DestinationRequest,
    boot_id: &BootId,
) -> Result<(Box<dyn ControlFile>, LeaseRecord)> {
    let patience = Instant::now() + HOLDER_PATIENCE;
    loop {
        let file = place.store.open_control(path, ControlMode::Create)?;
        if file.try_lock()? {
            let epoch = lease::next_epoch(read_lease(file.as_ref())?.as_ref(), None)?;
            let record = record(request, boot_id, epoch);
            file.write_at(record.slot_offset(), &record.encode()?)?;
            if is_named(place, path, &record)? {
                return Ok((file, record));
            }
        }
        if Instant::now() >= patience {
            return Err(held(file.as_ref(), &request.words));
        }
        std::thread::sleep(HOLDER_PAUSE);
    }
}

/// Whether the file that was locked is still the one of that name. Between opening and locking it, a
/// transfer that ended may have removed it: then the lock keeps nobody out.
fn is_named(place: &LogPlace, path: &RelPath, record: &LeaseRecord) -> Result<bool> {
    match place.store.open_control(path, ControlMode::ReadOnly) {
        Ok(file) => Ok(read_lease(file.as_ref())?.as_ref() == Some(record)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn read_lease(file: &dyn ControlFile) -> Result<Option<LeaseRecord>> {
    let mut bytes = [0; LEASE_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(filled as u64, &mut bytes[filled..])? {
            0 => break,
            got => filled += got,
        }
    }
    lease::newest(&bytes[..filled])
}

pub(super) fn boot_id() -> Result<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
        Error::new(ErrorKind::Io, End::Sink, "read this host's boot id")
            .cause(error.to_string())
            .remedy("mount /proc")
    })?;
    BootId::new(text.trim().as_bytes())
}

fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    name.chars().take(64).collect()
}

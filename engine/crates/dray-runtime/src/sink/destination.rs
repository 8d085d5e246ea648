//! The destination: finds or makes the object log that speaks for it, and takes its lease.

use crate::offered::Offer;
use crate::sink::hold::{FRESH, Lease, read_slots};
use crate::sink::log_file::StoredLog;
use crate::sink::look::{LogPlace, find, refuse_others};
use crate::sink::other_logs::OtherLogs;
use dray_core::options::Durability;
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_log::lease::{self, LEASE_BYTES};
use dray_log::{
    BootId, Header, LeaseRecord, LogFile, MemoryFile, ObjectLog, Recovery, Tenure, UniversalLog,
    place, recover, trust,
};
use dray_store::errno::too_many_open;
use dray_store::{Capabilities, ControlFile, ControlMode, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a holder may take to end: one whose source has just died is still making durable what it
/// has, and the same command again must find it gone.
pub(super) const HOLDER_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two looks at the lease.
pub(super) const HOLDER_PAUSE: Duration = Duration::from_millis(50);

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

/// What the kernel calls the first numbering of processes, the host's own.
const HOST_NUMBERING: &str = "pid:[4026531836]";

pub(super) type Log = UniversalLog<Box<dyn LogFile + Send>>;

/// A log that was made here and has no records. It goes with its lease, while that is held, if the
/// transfer does not begin.
struct Made {
    place: Option<LogPlace>,
}

impl Made {
    fn stays(&mut self) {
        self.place = None;
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        let is_lost = |lease: &Lease| lease.check().is_err();
        if self.lease.as_ref().is_some_and(is_lost) {
            // What was made here is another's now.
            self.made.stays();
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // Nobody is left to hear of it; an empty log means nothing.
            let _ = place.remove();
        }
    }
}

/// A destination that may be written: its log is open and its lease is held.
pub struct Destination {
    pub(super) store: Arc<dyn Store>,
    pub(super) log: Log,
    /// Before the lease, which is held until it is gone.
    made: Made,
    lease: Option<Lease>,
    /// What the log said when it was opened, without its files.
    pub(super) found: Option<Recovery>,
    /// The log in words.
    pub(super) log_words: String,
    pub(super) prefix: RelPath,
    /// See [`DestinationRequest::claims`].
    pub(super) claims: Vec<RelPath>,
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
    offer: Option<Arc<Offer>>,
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
        let lease_name = place::lease_of_log(&place.log).ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Sink, "name the lease").cause("no log's name")
        })?;
        let lease_path = place.folder.join(&lease_name)?;
        let log_path = place.folder.join(&place.log)?;
        let (file, record) = lock(&place, &lease_path, &request, &boot_id)?;
        let lease = Lease::new(file, record);
        let log_words = format!("the log {log_path} of {}", request.words);
        Self::open_log(place, lease, log_words, request, boot_id)
    }

    /// Reads or makes the log whose lease is held. If that fails, what was made here goes.
    fn open_log(
        place: LogPlace,
        mut lease: Lease,
        log_words: String,
        request: DestinationRequest,
        boot_id: BootId,
    ) -> Result<Self> {
        let is_own_log = place.prefix.is_root() && place.log == place::log_name(&request.claims)?;
        let log_path = place.folder.join(&place.log)?;
        let log_file = place.store.open_control(&log_path, ControlMode::Create)?;
        let mut log_file: Box<dyn LogFile + Send> = Box::new(StoredLog::new(log_file));
        let recovery = recover(&mut log_file).map_err(|error| error.file(&log_path))?;
        let made = Made {
            place: recovery.is_none().then(|| place.clone()),
        };
        // The lease may have been lost and begun anew; the log's holders count as well.
        let logged = recovery.as_ref().map(|recovery| recovery.tenure.epoch);
        let record = &mut lease.record;
        if logged.is_some_and(|logged| logged >= record.epoch) {
            record.epoch = lease::next_epoch(Some(record), logged)?;
            lease
                .file
                .write_at(record.slot_offset(), &record.encode()?)?;
        }
        lease.file.sync()?;
        let tenure = tenure(&request, &boot_id, lease.record.epoch, &lease.record);
        let mut notices = Vec::new();
        let (log, found) = match recovery {
            None => (new_log(log_file, &request, &place, tenure)?, None),
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
        // Somebody whose claims overlap ours may have begun since we looked. Now that our log can be
        // seen, whoever made the later one sees the other's.
        refuse_others(&place, &request)?;
        Ok(Self {
            others: Some(OtherLogs::new(&request, &place.store, log_path)),
            is_log_removed: false,
            offer: None,
            store: request.store,
            log,
            made,
            lease: Some(lease),
            found,
            log_words,
            prefix: place.prefix.clone(),
            claims: request.claims,
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
            offer: None,
            store: request.store,
            log: UniversalLog::create(file, header)?,
            made: Made { place: None },
            lease: None,
            found: None,
            log_words: "the log in memory".to_owned(),
            prefix: RelPath::root(),
            claims: request.claims,
            is_own_log: true,
            owner: request.owner,
            boot_id,
            durability: request.durability,
            notices: Vec::new(),
            place: None,
        })
    }

    /// What is written is compared with what the source's server offers, before it gets its name.
    #[must_use]
    pub(crate) fn compare_with(mut self, offer: Option<Arc<Offer>>) -> Self {
        self.offer = offer;
        self
    }

    /// See [`Self::compare_with`].
    pub(crate) fn offer(&self) -> Option<Arc<Offer>> {
        self.offer.clone()
    }

    /// What was noticed while opening: damage in a log that could be read in part.
    #[must_use]
    pub fn notices(&self) -> &[Error] {
        &self.notices
    }

    /// What its storage can do.
    #[must_use]
    pub fn can(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Whether what is written there is gone: then nothing of it is safe.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        self.can().keeps_nothing
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

    /// Whether device numbers in the log are of this boot: those it was found with are of its last
    /// holder's.
    pub(super) fn is_same_boot(&self) -> bool {
        let found = self.found.as_ref();
        found.is_none_or(|found| found.tenure.boot_id == self.boot_id)
    }

    /// Removes log and lease, and their folder if nothing else is in it.
    pub(super) fn remove_log(&mut self) -> Result<()> {
        self.made.stays();
        if let Some(place) = &self.place {
            place.remove()?;
            self.is_log_removed = true;
        }
        Ok(())
    }

    /// The transfer begins: from now on its end decides what becomes of the log.
    pub(super) fn take_lease(&mut self) -> Option<Lease> {
        self.made.stays();
        self.lease.take()
    }
}

fn record(request: &DestinationRequest, boot_id: &BootId, epoch: u64) -> LeaseRecord {
    LeaseRecord {
        epoch,
        holder: holder(std::process::id()),
        transfer: request.transfer.clone(),
        boot_id: boot_id.clone(),
        host: host_name(),
    }
}

/// This program, and the process that it is.
fn holder(process: u32) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("dray {version} process {process}{}", numbering())
}

/// Whose numbers processes have here, unless it is the host itself that numbers them.
fn numbering() -> String {
    let found = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match found.to_string_lossy().as_ref() {
        HOST_NUMBERING => String::new(),
        other => format!(" in {other}"),
    }
}

/// Whether a holder of before was a process of this host that has ended: nothing of it is on its way.
fn is_gone(before: &LeaseRecord, now: &LeaseRecord) -> bool {
    if before.boot_id != now.boot_id || before.host != now.host {
        return false;
    }
    let process = before.holder.strip_suffix(numbering().as_str());
    let process = process.and_then(|words| words.rsplit(' ').next()?.parse().ok());
    let process = process.and_then(rustix::process::Pid::from_raw);
    process.is_some_and(|process| {
        rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
    })
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

/// Who holds it, in words.
pub(super) fn held(file: &dyn ControlFile, words: &str) -> Error {
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
            let before = read_lease(file.as_ref())?;
            let epoch = lease::next_epoch(before.as_ref(), None)?;
            let record = record(request, boot_id, epoch);
            file.write_at(record.slot_offset(), &record.encode()?)?;
            if is_named(place.store.as_ref(), path, &record)? {
                if let Some(before) = &before {
                    // It was not given back: where locks do not reach, its holder may still work on what it
                    // saw last, and a call of its may still be on the way.
                    let late = match is_gone(before, &record) {
                        true => Duration::ZERO,
                        false => place.store.capabilities().late_calls,
                    };
                    std::thread::sleep(late.max(FRESH));
                }
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
pub(super) fn is_named(store: &dyn Store, path: &RelPath, record: &LeaseRecord) -> Result<bool> {
    match store.open_control(path, ControlMode::ReadOnly) {
        Ok(file) => Ok(read_lease(file.as_ref())?.as_ref() == Some(record)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn read_lease(file: &dyn ControlFile) -> Result<Option<LeaseRecord>> {
    let mut bytes = [0; LEASE_BYTES];
    let length = read_slots(file, &mut bytes)?;
    lease::newest(&bytes[..length])
}

pub(super) fn boot_id() -> Result<BootId> {
    let operation = "read this host's boot id";
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
        too_many_open(End::Sink, operation, &error).unwrap_or_else(|| {
            Error::new(ErrorKind::Io, End::Sink, operation)
                .cause(error.to_string())
                .remedy("mount /proc")
        })
    })?;
    BootId::new(text.trim().as_bytes())
}

pub(super) fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::{holder, host_name, is_gone};
    use dray_core::TransferId;
    use dray_log::{BootId, LeaseRecord};

    fn record(process: u32, host: &str) -> LeaseRecord {
        LeaseRecord {
            epoch: 1,
            holder: holder(process),
            transfer: TransferId::new("test").expect("an id"),
            boot_id: BootId::new(&[7; 16]).expect("sixteen bytes"),
            host: host.to_owned(),
        }
    }

    #[test]
    fn only_a_process_of_this_host_that_has_ended_is_gone() {
        let here = host_name();
        let own = record(std::process::id(), &here);
        assert!(!is_gone(&own, &own), "it is running");
        let mut child = std::process::Command::new("true").spawn().expect("runs");
        let ended = record(child.id(), &here);
        child.wait().expect("ends");
        assert!(is_gone(&ended, &own));
        assert!(!is_gone(&record(child.id(), "elsewhere"), &own));
        let mut earlier = ended.clone();
        earlier.boot_id = BootId::new(&[8; 16]).expect("sixteen bytes");
        assert!(!is_gone(&earlier, &own), "of another boot nothing is known");
        let mut other = ended;
        other.holder.push_str(" in pid:[1]");
        assert!(!is_gone(&other, &own), "numbered by somebody else");
    }
}

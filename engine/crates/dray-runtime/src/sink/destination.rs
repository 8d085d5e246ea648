//! The destination: finds or creates the transfer's own object log, and takes its lease.
//!
//! Not for: the logs of other transfers (`neighbours`, `adopt`).

use crate::sink::asked::Asked;
use crate::sink::final_check::FinalCheck;
use crate::sink::find_logs::{LogPlace, own_place, refuse_same_request};
use crate::sink::lease::{boot_id, lock_lease, raise_epoch, record_of};
use crate::sink::lease_watch::Lease;
use crate::sink::log_file::StoredLog;
use crate::sink::neighbours::Neighbours;
use crate::sink::other_logs::OtherLogs;
use crate::sink::tidy::Left;
use dray_core::options::Durability;
use dray_core::{Error, ErrorKind, RelPath, Result, TransferId};
use dray_log::neighbours::Follower;
use dray_log::{
    BootId, Header, LeaseRecord, LogFile, MemoryFile, ObjectLog, Recovery, Tenure, UniversalLog,
    layout, recover, trust,
};
use dray_store::{Capabilities, ControlMode, Store};
use dray_wire::message::Selection;
use std::sync::Arc;
use std::time::Duration;

/// How long a holder may take to end: one whose source has just died is still making durable what it
/// has, and the same command again must find it gone.
pub(super) const HOLDER_PATIENCE: Duration = Duration::from_secs(2);

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
    pub(super) owner: Vec<u8>,
    pub(super) boot_id: BootId,
    pub(super) durability: Durability,
    pub(super) notices: Vec<Error>,
    /// What earlier runs left here.
    pub(super) left: Left,
    /// See [`DestinationRequest::words`].
    pub(super) words: String,
    /// Whose partial files are not ours to remove.
    pub(super) others: Option<OtherLogs>,
    /// Other transfers' logs, and the files that may be adopted from them.
    pub(super) neighbours: Option<Neighbours>,
    /// The largest object of the files that may be adopted.
    left_object_bytes: u64,
    place: Option<LogPlace>,
    /// Whether the log was removed: nothing more is to be said in it.
    pub(super) is_log_removed: bool,
    final_check: Option<Arc<dyn FinalCheck>>,
    /// The request to the source, if this end made it.
    pub(super) asked: Option<Asked>,
}

impl Destination {
    /// Finds or creates the transfer's log, and takes its lease.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseHeld`] names the session of this transfer that is writing there;
    /// `PermissionDenied` when the log is another owner's; `LogVersion` and `LogDamaged` for a log that
    /// cannot be read; what the store says.
    pub fn open(request: DestinationRequest) -> Result<Self> {
        Self::open_marked(request, 0)
    }

    /// The same for a transfer with a `selection`. It is refused as a whole while another transfer
    /// writes the same names by the same selection.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for(request: DestinationRequest, selection: &Selection) -> Result<Self> {
        let (include, exclude) = (&selection.include, &selection.exclude);
        let mark = layout::request_mark(&request.claims, include, exclude);
        Self::open_marked(request, mark)
    }

    fn open_marked(request: DestinationRequest, mark: u64) -> Result<Self> {
        let boot_id = boot_id()?;
        if !request.store.capabilities().can_hold_log {
            return Self::without_log(request, boot_id);
        }
        let place = own_place(&request)?;
        refuse_owner(&place, &request, &boot_id)?;
        refuse_same_request(&place, &request.words, mark, None, HOLDER_PATIENCE)?;
        let (store, transfer) = (place.store.as_ref(), &request.transfer);
        let record = |epoch| record_of(store, transfer, &boot_id, epoch, mark);
        let (file, record) = lock_lease(&place, &record, &request.words, HOLDER_PATIENCE)?;
        let lease = Lease::new(file, record);
        Self::open_log(place, lease, request, boot_id)
    }

    /// Reads or makes the log whose lease is held. If that fails, what was made here goes.
    fn open_log(
        place: LogPlace,
        mut lease: Lease,
        request: DestinationRequest,
        boot_id: BootId,
    ) -> Result<Self> {
        let log_path = place.folder.join(&place.log)?;
        let log_words = format!("the log {log_path} of {}", request.words);
        let log_file = place.store.open_control(&log_path, ControlMode::Create)?;
        let mut log_file: Box<dyn LogFile + Send> = Box::new(StoredLog::new(log_file));
        let recovery = recover(&mut log_file).map_err(|error| error.file(&log_path))?;
        let made = Made {
            place: recovery.is_none().then(|| place.clone()),
        };
        // The lease may have been lost and begun anew; the log's holders count as well.
        let logged = recovery.as_ref().map(|recovery| recovery.tenure.epoch);
        raise_epoch(&mut lease, logged)?;
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
        // Another transfer of the same request may have begun since the first look. Our lease is
        // visible now, so the later of two transfers sees the other's.
        refuse_same_request(
            &place,
            &request.words,
            lease.record.request,
            Some(&place.log),
            HOLDER_PATIENCE,
        )?;
        let mut neighbours = Neighbours::new(&request, Some(log_path.clone()));
        // Whoever ends well removes its lease.
        let is_own = found.is_some() || lease.record.epoch > 1;
        Ok(Self {
            left: Left::find(is_own, &mut neighbours)?,
            words: request.words.clone(),
            left_object_bytes: neighbours.object_bytes_max(&request.owner)?,
            neighbours: Some(neighbours),
            others: Some(OtherLogs::new(&request, &place.store, log_path)),
            is_log_removed: false,
            final_check: None,
            asked: None,
            store: request.store,
            log,
            made,
            lease: Some(lease),
            found,
            log_words,
            prefix: place.prefix.clone(),
            claims: request.claims,
            owner: request.owner,
            boot_id,
            durability: request.durability,
            notices,
            place: Some(place),
        })
    }

    /// For a store that keeps no files: the log lives as long as this process.
    fn without_log(request: DestinationRequest, boot_id: BootId) -> Result<Self> {
        let store = request.store.as_ref();
        let record = record_of(store, &request.transfer, &boot_id, 1, 0);
        let tenure = tenure(&request, &boot_id, 1, &record);
        let header = header(&request, request.claims.clone(), tenure);
        let file: Box<dyn LogFile + Send> = Box::new(MemoryFile::new());
        Ok(Self {
            left: Left::Nothing,
            words: request.words,
            others: None,
            neighbours: None,
            left_object_bytes: 0,
            is_log_removed: false,
            final_check: None,
            asked: None,
            store: request.store,
            log: UniversalLog::create(file, header)?,
            made: Made { place: None },
            lease: None,
            found: None,
            log_words: "the log in memory".to_owned(),
            prefix: RelPath::root(),
            claims: request.claims,
            owner: request.owner,
            boot_id,
            durability: request.durability,
            notices: Vec::new(),
            place: None,
        })
    }

    /// Each file is compared by `check` before it gets its name.
    #[must_use]
    pub fn compare_with(mut self, check: Option<Arc<dyn FinalCheck>>) -> Self {
        self.final_check = check;
        self
    }

    /// Compares the source's announcements with the request.
    #[must_use]
    pub fn only(mut self, asked: Asked) -> Self {
        self.asked = Some(asked);
        self
    }

    /// See [`Self::compare_with`].
    pub(crate) fn final_check(&self) -> Option<Arc<dyn FinalCheck>> {
        self.final_check.clone()
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

    /// The largest object that an unfinished file was cut into, by this transfer or by one whose
    /// files may be adopted. A resume keeps that size, so buffers should be no smaller. 0 when
    /// nothing is unfinished.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        let files = self.log.files();
        let own = files.map(|(_, file)| file.object_bytes.get()).max();
        own.unwrap_or(0).max(self.left_object_bytes)
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

/// Refuses a log of another owner, before the lease is taken or anything is changed.
fn refuse_owner(at: &LogPlace, request: &DestinationRequest, boot_id: &BootId) -> Result<()> {
    let log = at.folder.join(&at.log)?;
    let opened = at.store.open_control(&log, ControlMode::ReadOnly);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // A log that cannot be read is reported after the lease is taken.
    let Ok(Some(found)) = Follower::begin(&mut StoredLog::new(file)) else {
        return Ok(());
    };
    let words = format!("the log {log} of {}", request.words);
    let judge = trust::Sink {
        log: &words,
        owner: &request.owner,
        boot_id,
        durability: request.durability,
    };
    trust::check_owner_in(found.header(), &judge)
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

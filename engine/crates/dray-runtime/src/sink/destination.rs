//! The destination: finds or creates the transfer's own object log, and takes its lease.
//!
//! Not for: the logs of other transfers (`neighbours`, `adopt`).

use crate::sink::asked::Asked;
use crate::sink::final_check::FinalCheck;
use crate::sink::find_logs::refuse_same_request;
use crate::sink::lease::{HOLDER_PATIENCE, boot_id, lock_lease, raise_epoch, record_of};
use crate::sink::lease_watch::Lease;
use crate::sink::log_file::StoredLog;
use crate::sink::log_place::{LogPlace, own_place};
use crate::sink::neighbours::Neighbours;
use crate::sink::other_logs::OtherLogs;
use crate::sink::request::DestinationRequest;
use crate::sink::strays::Left;
use dray_core::options::Durability;
use dray_core::{Error, ErrorKind, RelPath, Result};
use dray_log::neighbours::Follower;
use dray_log::{
    BootId, Header, LeaseRecord, LogFile, MemoryFile, ObjectLog, Recovery, Tenure, UniversalLog,
    layout, recover, trust,
};
use dray_store::{Capabilities, ControlMode, Store};
use dray_wire::message::Selection;
use std::sync::Arc;

pub(super) type Log = UniversalLog<Box<dyn LogFile + Send>>;

/// A new log without records. Dropping it removes it with its lease, which is still held, if the
/// transfer does not begin.
struct NewLog {
    place: Option<LogPlace>,
}

impl NewLog {
    fn stays(&mut self) {
        self.place = None;
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        let is_lost = |lease: &Lease| lease.check().is_err();
        if self.lease.as_ref().is_some_and(is_lost) {
            // The new log belongs to another holder now.
            self.made.stays();
        }
    }
}

impl Drop for NewLog {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // Ignore errors: an empty log has no effect.
            let _ = place.remove();
        }
    }
}

/// A destination that may be written: its log is open and its lease is held.
pub struct Destination {
    pub(super) store: Arc<dyn Store>,
    pub(super) log: Log,
    /// Declared before the lease, so that it is dropped while the lease is held.
    made: NewLog,
    lease: Option<Lease>,
    /// Content of the log when it was opened, without its files.
    pub(super) found: Option<Recovery>,
    /// Name of the log for messages.
    pub(super) log_words: String,
    pub(super) prefix: RelPath,
    /// See [`DestinationRequest::claims`].
    pub(super) claims: Vec<RelPath>,
    pub(super) owner: Vec<u8>,
    pub(super) boot_id: BootId,
    pub(super) durability: Durability,
    pub(super) notices: Vec<Error>,
    /// Data left here by earlier runs.
    pub(super) left: Left,
    /// See [`DestinationRequest::words`].
    pub(super) words: String,
    /// Logs of other transfers, whose partial files must not be removed.
    pub(super) others: Option<OtherLogs>,
    /// Other transfers' logs, and the files that may be adopted from them.
    pub(super) neighbours: Option<Neighbours>,
    /// Maximum object size of the files that may be adopted.
    left_object_bytes: u64,
    place: Option<LogPlace>,
    /// True if the log was removed: no more records may be written.
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
    /// `PermissionDenied` if the log belongs to another owner; `LogVersion` and `LogDamaged` for a
    /// log that cannot be read; errors of the store.
    pub fn open(request: DestinationRequest) -> Result<Self> {
        Self::open_marked(request, 0)
    }

    /// As [`Self::open`], for a transfer with a `selection`. It is refused as a whole while another
    /// transfer writes the same names with the same selection.
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

    /// Reads or makes the log whose lease is held. On failure a new log is removed.
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
        let made = NewLog {
            place: recovery.is_none().then(|| place.clone()),
        };
        // The lease may have been lost and created again; the log's holders count as well.
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
        // A transfer that ends successfully removes its lease.
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

    /// Returns a destination at a store that keeps no files: the log lives as long as this process.
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
            made: NewLog { place: None },
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

    /// Sets the check that compares each file before it is published.
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

    /// Returns notices from opening: damage in a log that could be read in part.
    #[must_use]
    pub fn notices(&self) -> &[Error] {
        &self.notices
    }

    /// Returns the capabilities of its storage.
    #[must_use]
    pub fn can(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Returns true if the storage discards all writes: then no range is durable.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        self.can().keeps_nothing
    }

    /// Returns the maximum object size of unfinished files, of this transfer or of those that may
    /// be adopted. A resume keeps that size, so buffers should be no smaller. Returns 0 if no file
    /// is unfinished.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        let files = self.log.files();
        let own = files.map(|(_, file)| file.object_bytes.get()).max();
        own.unwrap_or(0).max(self.left_object_bytes)
    }

    /// Returns true if device numbers in the log are of this boot: those in a found log are of its
    /// last holder's boot.
    pub(super) fn is_same_boot(&self) -> bool {
        let found = self.found.as_ref();
        found.is_none_or(|found| found.tenure.boot_id == self.boot_id)
    }

    /// Removes log and lease, and their folder if it is empty then.
    pub(super) fn remove_log(&mut self) -> Result<()> {
        self.made.stays();
        if let Some(place) = &self.place {
            place.remove()?;
            self.is_log_removed = true;
        }
        Ok(())
    }

    /// Called when the transfer begins: from now on its outcome decides about the log.
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
    // An unreadable log is reported after the lease is taken.
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
    // It only has to differ from other logs': the standard hasher's keys are random for each
    // process.
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

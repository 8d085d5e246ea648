//! The destination of a transfer: finds or creates the transfer's own object log, and takes its
//! lease.
//!
//! The modules `neighbours` and `adopt` handle the logs of other transfers.

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
use dray_core::{End, Error, ErrorKind, LogChoice, LogForm, RelPath, Result};
use dray_log::neighbours::Follower;
use dray_log::{
    BootId, Header, LeaseRecord, LogFile, MemoryFile, ObjectLog, Recovery, Tenure, UniversalLog,
    layout, recover, trust,
};
use dray_store::{Capabilities, ControlMode, Store};
use dray_wire::message::Selection;
use std::sync::Arc;

pub(super) type Log = UniversalLog<Box<dyn LogFile + Send>>;

/// A new log without records. If the transfer does not begin, dropping this value removes the log
/// and its lease. The value must be dropped while this process still holds the lease.
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
            // The lease is lost, so the new log now belongs to another holder.
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

/// A destination that this transfer may write to. The log of the transfer is open, and this process
/// holds the lease of the log.
pub struct Destination {
    pub(super) store: Arc<dyn Store>,
    pub(super) log: Log,
    /// Declared before `lease`, so that the log is removed while the lease is still held.
    made: NewLog,
    lease: Option<Lease>,
    /// Content of the log when the log was opened, without the files that the log lists; `None` for
    /// a new log.
    pub(super) found: Option<Recovery>,
    /// Name of the log in messages.
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
    /// Maximum object size in bytes of the files that may be adopted.
    left_object_bytes: u64,
    place: Option<LogPlace>,
    /// True after the log was removed: then no records may be written.
    pub(super) is_log_removed: bool,
    final_check: Option<Arc<dyn FinalCheck>>,
    /// The request that the source received, if this end made it.
    pub(super) asked: Option<Asked>,
}

impl Destination {
    /// Finds or creates the log of the transfer, and takes the lease of the log.
    ///
    /// # Errors
    /// - [`ErrorKind::LeaseHeld`] names a session of this transfer that is writing to the
    ///   destination.
    /// - `PermissionDenied` if the log belongs to another owner.
    /// - `LogVersion` and `LogDamaged` for a log that cannot be read.
    /// - `Unsupported` if the store cannot hold the requested form of the log, or a log in memory is
    ///   requested and an earlier run has left a log.
    /// - Errors of the store.
    pub fn open(request: DestinationRequest) -> Result<Self> {
        Self::open_marked(request, 0)
    }

    /// Does the same as [`Self::open`], for a transfer with a `selection`. If another transfer is
    /// writing the same names with the same selection, this transfer is refused as a whole.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_for(request: DestinationRequest, selection: &Selection) -> Result<Self> {
        let (include, exclude) = (&selection.include, &selection.exclude);
        let mark = layout::request_mark(&request.claims, include, exclude);
        Self::open_marked(request, mark)
    }

    fn open_marked(request: DestinationRequest, mark: u64) -> Result<Self> {
        let boot_id = boot_id()?;
        refuse_form(&request)?;
        if !request.store.capabilities().can_hold_log {
            return Self::without_log(request, boot_id);
        }
        let place = own_place(&request)?;
        refuse_owner(&place, &request, &boot_id)?;
        refuse_memory(&place, &request)?;
        refuse_same_request(&place, &request.words, mark, None, HOLDER_PATIENCE)?;
        let (store, transfer) = (place.store.as_ref(), &request.transfer);
        let record = |epoch| record_of(store, transfer, &boot_id, epoch, mark);
        let (file, record) = lock_lease(&place, &record, &request.words, HOLDER_PATIENCE)?;
        let lease = Lease::new(file, record, &store.capabilities());
        Self::open_log(place, lease, request, boot_id)
    }

    /// Reads or creates the log whose lease is held. On failure, a log that this call created is
    /// removed.
    fn open_log(
        place: LogPlace,
        mut lease: Lease,
        request: DestinationRequest,
        boot_id: BootId,
    ) -> Result<Self> {
        let log_path = place.folder.join(&place.log)?;
        let log_words = format!("the log {log_path} of {}", request.words);
        let mut log_file: Box<dyn LogFile + Send> = if request.log == Some(LogChoice::Memory) {
            Box::new(MemoryFile::new())
        } else {
            let file = place.store.open_control(&log_path, ControlMode::Create)?;
            Box::new(StoredLog::new(file, &place.store, &log_path))
        };
        let recovery = recover(&mut log_file).map_err(|error| error.file(&log_path))?;
        let made = NewLog {
            place: recovery.is_none().then(|| place.clone()),
        };
        // The epoch in the lease may be too low, because a lost lease is created again with a low
        // epoch. The log also records the epoch of its last holder.
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
                notices.extend(other_form(&request, &recovery, &log_words));
                let files = std::mem::take(&mut recovery.files);
                let shell = recovery.clone();
                recovery.files = files;
                (
                    UniversalLog::resume(log_file, recovery, tenure)?,
                    Some(shell),
                )
            }
        };
        // Another transfer of the same request may have begun since the first check. Both leases
        // are visible by now, so at least one of the two transfers finds the other.
        refuse_same_request(
            &place,
            &request.words,
            lease.record.request,
            Some(&place.log),
            HOLDER_PATIENCE,
        )?;
        let mut neighbours = Neighbours::new(&request, Some(log_path.clone()));
        // A transfer that ended successfully has removed its lease. So an existing lease proves
        // that an earlier run was interrupted.
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

    /// Returns a destination in a store that keeps no files. Its log is in memory, and ends with
    /// this process.
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

    /// Sets the request that the source's announcements are compared with.
    #[must_use]
    pub fn only(mut self, asked: Asked) -> Self {
        self.asked = Some(asked);
        self
    }

    /// See [`Self::compare_with`].
    pub(crate) fn final_check(&self) -> Option<Arc<dyn FinalCheck>> {
        self.final_check.clone()
    }

    /// Returns the notices of [`Self::open`]: damage in a log that could still be read in part.
    #[must_use]
    pub fn notices(&self) -> &[Error] {
        &self.notices
    }

    /// Returns the capabilities of the destination's store.
    #[must_use]
    pub fn can(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// Returns true if the store discards all writes. No range is durable in such a store.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        self.can().keeps_nothing
    }

    /// Returns the maximum object size in bytes of unfinished files, both of this transfer and of
    /// other transfers whose files may be adopted. A resumed file keeps its object size, so the
    /// buffers should be no smaller. Returns 0 if there is no unfinished file.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        let files = self.log.files();
        let own = files.map(|(_, file)| file.object_bytes.get()).max();
        own.unwrap_or(0).max(self.left_object_bytes)
    }

    /// Returns the form of the log; `None` if the log is in memory.
    pub(super) fn form(&self) -> Option<LogForm> {
        self.place.as_ref().map(|_| self.log.header().form)
    }

    /// Returns true if the device numbers in the log are valid, because the log's last holder ran
    /// in the same boot of this host. Device numbers may change with a reboot.
    pub(super) fn is_same_boot(&self) -> bool {
        let found = self.found.as_ref();
        found.is_none_or(|found| found.tenure.boot_id == self.boot_id)
    }

    /// Removes the log and its lease. If the folder of the log is then empty, removes the folder
    /// too.
    pub(super) fn remove_log(&mut self) -> Result<()> {
        self.made.stays();
        if let Some(place) = &self.place {
            place.remove()?;
            self.is_log_removed = true;
        }
        Ok(())
    }

    /// Passes the lease to the session when the transfer begins. From then on, dropping the
    /// destination does not remove the log.
    pub(super) fn take_lease(&mut self) -> Option<Lease> {
        self.made.stays();
        self.lease.take()
    }
}

/// Refuses a form of the log that the store cannot hold.
fn refuse_form(request: &DestinationRequest) -> Result<()> {
    let can = request.store.capabilities();
    let Some(form) = request.form().filter(|form| *form != LogForm::default()) else {
        return Ok(());
    };
    if can.can_hold_log_parts {
        return Ok(());
    }
    let why = match (can.keeps_nothing || !can.can_hold_log, can.is_on_disks) {
        (true, _) => "keeps no files",
        (_, true) => "is on several disks",
        _ => "is in a remote store",
    };
    let usual = LogForm::default();
    let operation = "create the object log";
    let error = Error::new(ErrorKind::Unsupported, End::Sink, operation);
    let cause = format!(
        "the destination {} {why}, so its log must have the form {usual}, and {form} was requested",
        request.words
    );
    Err(error
        .cause(cause)
        .remedy("omit --log, or write to a folder of one file system"))
}

/// Refuses a log in memory if an earlier run of the transfer has left a log. Otherwise the transfer
/// would replace the partial files of this log, and leave the log at the destination.
fn refuse_memory(place: &LogPlace, request: &DestinationRequest) -> Result<()> {
    if request.log != Some(LogChoice::Memory) {
        return Ok(());
    }
    let log = place.folder.join(&place.log)?;
    if place.store.stat(&log)?.is_none() {
        return Ok(());
    }
    let error = Error::new(
        ErrorKind::Unsupported,
        End::Sink,
        "keep the object log in memory",
    );
    Err(error
        .cause(format!(
            "an earlier run of this transfer has left the log {log} in {}",
            request.words
        ))
        .remedy("start the server without --log-in-memory to resume the copy, or remove the log"))
}

/// Returns a notice if the log of an earlier run has another form than the requested form.
fn other_form(request: &DestinationRequest, found: &Recovery, log_words: &str) -> Option<Error> {
    let (asked, form) = (request.form()?, found.header.form);
    // An `AlreadyExists` error without a file is shown as its cause only.
    let error = Error::new(ErrorKind::AlreadyExists, End::Sink, "create the object log");
    (asked != form).then(|| {
        error
            .cause(format!(
                "{log_words} has the form {form}, so this run also writes {form} and not {asked}"
            ))
            .remedy("to change the form, finish this copy first")
    })
}

/// Refuses a log of another owner. Called before the lease is taken or anything is changed.
fn refuse_owner(at: &LogPlace, request: &DestinationRequest, boot_id: &BootId) -> Result<()> {
    let log = at.folder.join(&at.log)?;
    let opened = at.store.open_control(&log, ControlMode::ReadOnly);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // An unreadable log is reported later, when the lease is held.
    let Ok(Some(found)) = Follower::begin(&mut StoredLog::new(file, &at.store, &log)) else {
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
        .of_form(request.form().unwrap_or_default())
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
    // The value only has to differ from the values of other logs. The keys of the standard hasher
    // are random in each process.
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

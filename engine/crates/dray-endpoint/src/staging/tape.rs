//! Stages the files of tape requests: submits a transfer for each file, and records its end.
//!
//! One thread does this work in rounds, because a request may name thousands of files. The rows of
//! the files are in the database, so a restart of the endpoint continues with them.
//!
//! Invariant owned here: a fast copy that differs from its slow copy is not replaced.

use super::{refused, submission};
use crate::accounts::Accounts;
use crate::tier::{SpaceRequest, Tiers};
use dray_api::api_path::ApiPath;
use dray_api::{StagedDirection, StagingRequest, TapeFileState, TapeLocality, Timestamp};
use dray_config::Tier;
use dray_config::roots::Roots;
use dray_core::{End, Error, ErrorKind, Result, Status, TransferId};
use dray_queue::{Actor, Queue, StagedRow, Submission, TapeJob, clock};
use dray_store::{FileKind, FileState};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Interval between two rounds.
const ROUND: Duration = Duration::from_millis(500);

/// Maximum number of files of one owner that have a transfer at the same time. More files wait in
/// the database, so that a large request does not fill the queue of its owner.
const TRANSFERS_MAX: u32 = 128;

/// Time after which a file whose storage could not be read is tried again.
const AGAIN: Duration = Duration::from_secs(30);

const STAGE: &str = "stage the file";

/// The slow path and the fast path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Path of the slow copy.
    pub slow: ApiPath,
    /// Path of the fast copy.
    pub fast: ApiPath,
}

impl Pair {
    /// Returns both paths of a file. `text` is the path in the slow root or in the fast root.
    ///
    /// # Errors
    /// `InvalidName` or `PathEscapes` for an invalid path. `InvalidRequest` if the path is in
    /// neither root. `Unsupported` if the endpoint has no slow root or no fast root.
    pub fn of(roots: &Roots, text: &str) -> Result<Self> {
        let (Some(slow), Some(fast)) = (roots.of_tier(Tier::Slow), roots.of_tier(Tier::Fast))
        else {
            return Err(refused(
                ErrorKind::Unsupported,
                STAGE,
                "this endpoint has no pair of a slow root and a fast root".to_owned(),
                "ask the administrator to set tier = \"fast\" for one root of this endpoint and \
                    tier = \"slow\" for another root",
            ));
        };
        let path = ApiPath::parse(text)?;
        if path.root != slow.name() && path.root != fast.name() {
            let cause = format!(
                "{} is neither in the slow root /{} nor in the fast root /{}",
                path.text(),
                slow.name(),
                fast.name()
            );
            let remedy = "name a path in the slow root";
            return Err(refused(ErrorKind::InvalidRequest, STAGE, cause, remedy));
        }
        if path.path.is_root() {
            let cause = format!(
                "{} is a root, but a path below a root is needed",
                path.text()
            );
            let remedy = "name a file in the slow root";
            return Err(refused(ErrorKind::InvalidRequest, STAGE, cause, remedy));
        }
        let in_root = |name: &str| ApiPath {
            root: name.to_owned(),
            path: path.path.clone(),
            is_folder: false,
        };
        Ok(Self {
            slow: in_root(slow.name()),
            fast: in_root(fast.name()),
        })
    }
}

/// The two copies of a file.
#[derive(Debug)]
struct Copies {
    slow: Option<FileState>,
    fast: Option<FileState>,
    /// True if both copies exist and have the same size and time. On a slow root that keeps no
    /// times, the sizes alone decide.
    is_same: bool,
}

/// Looks up the two copies of a file. The calling thread must have the account of the owner.
fn copies(roots: &Roots, accounts: &Accounts, pair: &Pair) -> Result<Copies> {
    let slow_root = accounts.root(roots.find(&pair.slow)?)?;
    let fast_root = accounts.root(roots.find(&pair.fast)?)?;
    let slow = slow_root.store().stat(&pair.slow.path)?;
    let fast = fast_root.store().stat(&pair.fast.path)?;
    let (slow_can, fast_can) = (
        slow_root.store().capabilities(),
        fast_root.store().capabilities(),
    );
    let precision = slow_can.time_precision_nanoseconds;
    let precision = precision.max(fast_can.time_precision_nanoseconds);
    let is_same = match (&slow, &fast) {
        (Some(slow), Some(fast)) => {
            slow.kind == fast.kind
                && slow.size == fast.size
                // A server that keeps no times gives a copy the time of its arrival.
                && (!slow_can.sets_times || slow.modified.equal_at(&fast.modified, precision))
        }
        _ => false,
    };
    Ok(Copies {
        slow,
        fast,
        is_same,
    })
}

/// Returns the places that hold the data of a file. The calling thread must have the account of the
/// owner.
///
/// # Errors
/// `NotFound` if neither root has the file. `IsADirectory` if the path is a folder.
pub fn locality(roots: &Roots, accounts: &Accounts, pair: &Pair) -> Result<TapeLocality> {
    let found = match copies(roots, accounts, pair) {
        Err(error) if error.status == Status::Temporary => return Ok(TapeLocality::Unavailable),
        other => other?,
    };
    let any = found.fast.as_ref().or(found.slow.as_ref());
    let any = any.ok_or_else(|| missing(pair))?;
    check_file(pair, any)?;
    Ok(match (found.slow, found.fast) {
        (Some(_), Some(_)) if found.is_same => TapeLocality::DiskAndTape,
        (_, Some(_)) => TapeLocality::Disk,
        (_, None) => TapeLocality::Tape,
    })
}

fn missing(pair: &Pair) -> Error {
    let cause = format!("{} does not exist", pair.slow.text());
    refused(ErrorKind::NotFound, STAGE, cause, "check the path")
}

fn check_file(pair: &Pair, state: &FileState) -> Result<()> {
    if state.kind == FileKind::File {
        return Ok(());
    }
    let cause = format!("{} is not a regular file", pair.slow.text());
    let remedy = "list the files of the folder in the request, instead of the folder";
    Err(refused(ErrorKind::IsADirectory, STAGE, cause, remedy))
}

/// Stages the files of tape requests in rounds.
pub struct Recalls {
    /// The queue, which has the requests and their files.
    pub queue: Arc<Queue>,
    /// The roots that hold the copies.
    pub roots: Roots,
    /// The system accounts that look up the copies.
    pub accounts: Arc<Accounts>,
    /// Admits bytes to the tiers.
    pub tiers: Arc<Tiers>,
}

/// The result of a look at one file.
enum Look {
    /// The file has a transfer.
    Started,
    /// The file has ended.
    Ended,
    /// Another transfer makes the fast copy.
    Waits,
}

/// The time of the next try for each copy whose storage could not be read.
type Later = BTreeMap<String, Timestamp>;

impl Recalls {
    /// Runs a round every half second until `sleep` returns false. `sleep` waits for the given
    /// time, and returns false when the endpoint stops.
    pub fn run(&self, sleep: &dyn Fn(Duration) -> bool) {
        let mut later = Later::new();
        let mut said = String::new();
        while sleep(ROUND) {
            match self.round(&mut later) {
                Ok(()) => said.clear(),
                Err(error) => {
                    let text = error.to_string();
                    if said != text {
                        tracing::error!("cannot stage the files of tape requests: {text}");
                    }
                    said = text;
                }
            }
        }
    }

    /// Records the ends of transfers, and submits transfers for files that have none.
    ///
    /// # Errors
    /// Errors of the database. The round ends with the first error.
    fn round(&self, later: &mut Later) -> Result<()> {
        let now = clock::now();
        later.retain(|_, again| *again > now);
        self.queue.tape().follow()?;
        let mut started = Vec::new();
        let mut full = BTreeSet::new();
        for job in self.queue.tape().jobs(TRANSFERS_MAX)? {
            let copy = &job.file.copy;
            if later.contains_key(copy) || full.contains(&job.request.owner) {
                continue;
            }
            match self.look(&job) {
                Ok(Look::Started) => started.push(copy.clone()),
                Ok(Look::Ended | Look::Waits) => {}
                // The owner has reached a limit of the queue. Its files wait.
                Err(error) if error.kind == ErrorKind::Busy => {
                    full.insert(job.request.owner.clone());
                }
                Err(error) if error.status == Status::Temporary => {
                    tracing::warn!(
                        "cannot stage {} now, so the endpoint tries again later: {error}",
                        job.file.slow_path
                    );
                    later.insert(copy.clone(), now.after(AGAIN));
                }
                Err(error) => {
                    let state = TapeFileState::Failed;
                    self.queue
                        .tape()
                        .end(copy, state, Some(error.to_string()))?;
                }
            }
        }
        let owner = Actor {
            owner: String::new(),
            is_administrator: true,
        };
        // The caller has cancelled these files while their transfers were being submitted.
        for copy in self.queue.tape().started(started)? {
            drop(self.queue.cancel(&owner, &copy, true));
        }
        Ok(())
    }

    fn look(&self, job: &TapeJob) -> Result<Look> {
        let (request, file) = (&job.request, &job.file);
        let id = TransferId::new(file.copy.as_str())?;
        if self.queue.is_known(&id)? {
            // The endpoint was stopped after it had submitted the transfer.
            return Ok(Look::Started);
        }
        if self.queue.tape().is_arriving(&file.fast_path, &file.copy)? {
            return Ok(Look::Waits);
        }
        let pair = Pair {
            slow: ApiPath::parse(&file.slow_path)?,
            fast: ApiPath::parse(&file.fast_path)?,
        };
        let found = self.accounts.act_as(&request.owner, || {
            copies(&self.roots, &self.accounts, &pair)
        })?;
        if let Some(fast) = &found.fast {
            check_file(&pair, fast)?;
            return self.found(job, &pair, fast, found.is_same);
        }
        let slow = found.slow.ok_or_else(|| missing(&pair))?;
        check_file(&pair, &slow)?;
        let (mut submission, row) = build(job, id.clone(), &pair, true)?;
        submission.claim = self.tiers.claim(&SpaceRequest {
            id: &id,
            to: &pair.fast,
            bytes: Some(slow.size),
            application: row.request.application.as_deref(),
            period_seconds: None,
        })?;
        let submitted = self.queue.submit_staged(submission, row, None);
        submitted.map_err(|refused| refused.error)?;
        Ok(Look::Started)
    }

    /// Ends a file whose fast copy exists.
    fn found(&self, job: &TapeJob, pair: &Pair, fast: &FileState, is_same: bool) -> Result<Look> {
        if !is_same {
            let cause = format!(
                "the fast copy {} exists and differs from {}",
                pair.fast.text(),
                pair.slow.text()
            );
            let remedy = "stage out the fast copy, or remove it";
            return Err(refused(ErrorKind::AlreadyExists, STAGE, cause, remedy));
        }
        let id = TransferId::new(job.file.copy.as_str())?;
        // A fast copy that no staging in has made does not expire.
        let expires = self.queue.tape().is_staged_in(&job.file.fast_path)?;
        let (_, mut row) = build(job, id, pair, expires)?;
        row.is_hit = true;
        row.bytes = fast.size;
        self.queue.tape().hit(row)?;
        Ok(Look::Ended)
    }
}

/// Builds the transfer of a file, and the row of its staged copy.
fn build(
    job: &TapeJob,
    id: TransferId,
    pair: &Pair,
    expires: bool,
) -> Result<(Submission, StagedRow)> {
    let (request, file) = (&job.request, &job.file);
    let seconds = file.lifetime_seconds;
    let mut staging = json!({
        "id": id.as_str(),
        "path": pair.slow.text(),
        "to": pair.fast.text(),
        "pin_seconds": seconds,
        "lifetime_seconds": expires.then_some(seconds),
        "application": file.activity,
        "labels": {"tape_request": request.id},
    });
    if let Some(priority) = file.priority {
        staging["priority"] = json!(priority);
    }
    let staging: StagingRequest = serde_json::from_value(staging).map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, STAGE).cause(error.to_string())
    })?;
    let who = (request.owner.as_str(), request.principal.as_str());
    let submission = submission(&id, &staging, (&pair.slow, &pair.fast), who)?;
    let paths = (pair.slow.text(), pair.fast.text());
    let (id, owner) = (id.to_string(), request.owner.clone());
    let row = StagedRow::new(id, owner, StagedDirection::In, staging, paths);
    Ok((submission, row))
}

//! Staging: copies data from the slow root to the fast root, or from the fast root to the slow
//! root.
//!
//! Each staged copy is a transfer and a row in the database. The row states when the lifetime of
//! the fast copy ends.
//!
//! Not for: deciding when to evict. A caller decides, or the copy's lifetime ends ([`Expiry`]).
//!
//! Invariant owned here: a file of a fast copy is removed only if a slow copy of the same size and
//! time exists (on a server that keeps no times: of the same size and checksum), and no pin holds
//! the file.

mod compare;
mod expiry;
mod nearest;
mod restart;
mod tape;

pub use expiry::{Expiry, Later};
pub use restart::{Copy, between, copy};
pub use tape::{Pair, Recalls, locality};

use crate::accounts::Accounts;
use crate::actor::actor;
use crate::storage::{self, Freed, Given, Seen};
use crate::tier::{SpaceRequest, Tiers};
use compare::Comparison;
use dray_access::{Access, Action, Principal};
use dray_api::api_path::ApiPath;
use dray_api::{
    Place, Request, Route, Selection, Staged, StagedDirection, StagedState, StagingRequest,
    TierVersionState,
};
use dray_config::roots::{Root, Roots};
use dray_config::{ManagedTier, Tier};
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_queue::clock;
use dray_queue::{Queue, Refused, SpaceClaim, StagedRow, Submission, TierChange, TierVersion};
use std::sync::Arc;
use std::time::Duration;

/// Stages and evicts copies for callers.
#[derive(Clone, Copy)]
pub struct Stager<'a> {
    /// The queue, which has the transfers and the rows of staged copies.
    pub queue: &'a Queue,
    /// All roots of the endpoint, including the fast root and the slow root.
    pub roots: &'a Roots,
    /// Checks the permissions of callers.
    pub access: &'a dyn Access,
    /// The system accounts that read and write the copies.
    pub accounts: &'a Accounts,
    /// The tiers of the configuration.
    pub tiers: &'a [ManagedTier],
    /// Admits bytes to the tiers.
    pub admission: &'a Tiers,
    /// Size of the source in bytes, if it was measured.
    pub size: Option<u64>,
}

fn refused(kind: ErrorKind, operation: &str, cause: String, remedy: &str) -> Error {
    Error::new(kind, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

impl Stager<'_> {
    /// Submits the transfer of a staging request. Returns the staged copy, and true if it is new.
    ///
    /// # Errors
    /// `InvalidRequest` for invalid paths, or for more replicas than the request can make.
    /// `Unsupported` if the endpoint has no fast root or no slow root. Also the errors of
    /// [`Queue::submit`].
    pub fn stage(
        &self,
        caller: &Principal,
        mut request: StagingRequest,
        direction: StagedDirection,
    ) -> std::result::Result<(Staged, bool), Refused> {
        if request.replicas != 1 && direction == StagedDirection::In {
            return Err(too_many_replicas(request.replicas, 1).into());
        }
        if request.path.is_empty() && direction == StagedDirection::In {
            return self.restart(caller, request);
        }
        let (from_tier, to_tier) = match direction {
            StagedDirection::In => (Tier::Slow, Tier::Fast),
            StagedDirection::Out => (Tier::Fast, Tier::Slow),
        };
        let from = ApiPath::parse(&request.path)?;
        let to = match &request.to {
            Some(to) => ApiPath::parse(to)?,
            None => ApiPath {
                root: self.root_of(to_tier)?.name().to_owned(),
                ..from.clone()
            },
        };
        for (path, tier, field) in [(&from, from_tier, "path"), (&to, to_tier, "to")] {
            self.check_tier(path, tier, field, request.bypass)?;
        }
        // A bypass reads data that is not in the fast root, as an ordinary transfer does.
        let reads = match request.bypass && direction == StagedDirection::Out {
            true => Action::Read,
            false => Action::Stage,
        };
        self.access.allow(caller, reads, &from)?;
        // `Modify`, because the copy may replace existing files.
        self.access.allow(caller, Action::Modify, &to)?;
        let id = match &request.id {
            Some(id) => TransferId::new(id.as_str())?,
            None => dray_open::prepare::new_transfer_id()?,
        };
        request.id = Some(id.to_string());
        request.to = Some(to.text());
        let size = self.size.or(request.bytes_expected);
        let who = (caller.owner.as_str(), caller.name.as_str());
        let mut submission = submission(&id, &request, (&from, &to), who)?;
        submission.claim = self.claim(&id, &request, &to, size)?;
        let (fast, slow) = match direction {
            StagedDirection::In => (&to, &from),
            StagedDirection::Out => (&from, &to),
        };
        let paths = (from.text(), to.text());
        let owner = caller.owner.clone();
        let row = StagedRow::new(id.to_string(), owner, direction, request, paths);
        let tier = self.tier_of(&row, slow, fast);
        let copies = tier.map_or(1, |tier| 1 + tier.replicas.len());
        if row.request.replicas as usize > copies {
            return Err(too_many_replicas(row.request.replicas, copies).into());
        }
        if let Some(tier) = tier {
            self.bound_demotion(tier, &mut submission, fast);
        }
        let change = tier.and_then(|tier| declared(tier, &row));
        let submitted = self.queue.submit_staged(submission, row, change)?;
        let (_, staged) = self.queue.staging().show(&actor(caller), id.as_str())?;
        Ok((staged, submitted.is_new))
    }

    /// Returns the claim of a copy on the space of a tier.
    fn claim(
        &self,
        id: &TransferId,
        request: &StagingRequest,
        to: &ApiPath,
        bytes: Option<u64>,
    ) -> Result<Option<SpaceClaim>> {
        self.admission.claim(&SpaceRequest {
            id,
            to,
            bytes,
            application: request.application.as_deref(),
            period_seconds: request.period_seconds,
        })
    }

    /// Returns the tier whose version a request stages out. Such a request copies from a fast root
    /// of the tier to its slow root, and names an application and a version.
    fn tier_of(&self, row: &StagedRow, slow: &ApiPath, fast: &ApiPath) -> Option<&ManagedTier> {
        let request = &row.request;
        let is_version = row.direction == StagedDirection::Out
            && !request.bypass
            && request.application.is_some()
            && request.version.is_some();
        let fits = |tier: &&ManagedTier| {
            let is_fast = tier.fast.iter().any(|root| root.as_str() == fast.root);
            is_fast && tier.slow.as_str() == slow.root
        };
        self.tiers.iter().filter(|_| is_version).find(fits)
    }

    /// Returns true if `root` is the endpoint's root of `tier`. For the fast tier, fast roots of
    /// managed tiers with the endpoint's slow root count too.
    fn is_of(&self, root: &str, tier: Tier) -> Result<bool> {
        let own = self.root_of(tier)?.name();
        let slow = self.root_of(Tier::Slow)?.name();
        let has = |one: &ManagedTier| {
            one.slow.as_str() == slow && one.fast.iter().any(|fast| fast.as_str() == root)
        };
        Ok(root == own || tier == Tier::Fast && self.tiers.iter().any(has))
    }

    /// Checks that a path is in a root of the tier. With a bypass, the path for the fast tier must
    /// instead be in a root that is neither a fast root nor the slow root.
    fn check_tier(&self, path: &ApiPath, tier: Tier, field: &str, bypass: bool) -> Result<()> {
        let root = self.root_of(tier)?;
        let (is_fit, wanted, remedy) = match bypass && tier == Tier::Fast {
            true => {
                let is_fit = !self.is_of(&path.root, tier)?
                    && path.root != self.root_of(Tier::Slow)?.name()
                    && self.roots.find(path).is_ok();
                let wanted = format!(
                    "with `bypass`, {} must be in a root that is neither fast nor slow",
                    path.text()
                );
                (
                    is_fit,
                    wanted,
                    "use a root that has no `tier` (in the field `to` for the direction `in`, in \
                        the field `path` for the direction `out`), or omit `bypass`",
                )
            }
            false => (
                self.is_of(&path.root, tier)?,
                format!("{} is not in the root /{}", path.text(), root.name()),
                "direction `in` copies from the slow root to the fast root, and `out` copies \
                    from the fast root to the slow root",
            ),
        };
        if !path.path.is_root() && is_fit {
            return Ok(());
        }
        let cause = match path.path.is_root() {
            true => format!(
                "{field}: {} is a root, but a path below a root is needed",
                path.text()
            ),
            false => format!("{field}: {wanted}"),
        };
        Err(refused(ErrorKind::InvalidRequest, "stage", cause, remedy))
    }

    fn root_of(&self, tier: Tier) -> Result<&Arc<Root>> {
        self.roots.of_tier(tier).ok_or_else(|| {
            refused(
                ErrorKind::Unsupported,
                "stage",
                "this endpoint has no pair of a slow root and a fast root".to_owned(),
                "ask the administrator to set tier = \"fast\" for one root of this endpoint and \
                    tier = \"slow\" for another root",
            )
        })
    }

    /// Pins the fast copy for `seconds` from now. 0 removes the pin.
    ///
    /// # Errors
    /// `NotFound`. `AlreadyExists` if there is no fast copy.
    pub fn pin(&self, caller: &Principal, id: &str, seconds: u64) -> Result<Staged> {
        let (row, staged) = self.queue.staging().show(&actor(caller), id)?;
        if !row.request.bypass {
            let fast = ApiPath::parse(&row.fast_path)?;
            self.access.allow(caller, Action::Stage, &fast)?;
        }
        if matches!(staged.state, StagedState::Failed | StagedState::Evicted) || row.request.bypass
        {
            let (cause, remedy) = match row.request.bypass {
                true => (
                    "the file was staged with `bypass`, so it has no fast copy".to_owned(),
                    "stage the file without `bypass` to get a fast copy",
                ),
                false => (
                    format!("the staging entry has the state `{}`", staged.state.word()),
                    "stage the file or folder again",
                ),
            };
            return Err(refused(
                ErrorKind::AlreadyExists,
                "pin the staged copy",
                cause,
                remedy,
            ));
        }
        let until = (seconds > 0).then(|| clock::now().after(Duration::from_secs(seconds)));
        self.queue.staging().pin(id, until)?;
        Ok(self.queue.staging().show(&actor(caller), id)?.1)
    }

    /// Removes the fast copy file by file. The slow copy and the pins are checked immediately
    /// before each removal.
    ///
    /// # Errors
    /// `AlreadyExists` (409) if a part of the fast copy must stay. The reason is a pin, a transfer
    /// that has not ended, or the lack of a slow copy of the same size and time. In this case no
    /// file is removed. If a file changes during the removal, other files may already be removed,
    /// and the error names the changed file.
    pub fn evict(&self, caller: &Principal, id: &str, given: &Given) -> Result<Staged> {
        let (row, staged) = self.queue.staging().show(&actor(caller), id)?;
        if !row.request.bypass {
            let fast = ApiPath::parse(&row.fast_path)?;
            self.access.allow(caller, Action::Stage, &fast)?;
        }
        match staged.state {
            StagedState::Evicted => return Ok(staged),
            StagedState::Staged => {}
            state => {
                let cause = format!("the staging entry has the state `{}`", state.word());
                return Err(conflict(
                    cause,
                    "wait until the transfer of the staging entry has ended, or cancel this \
                        transfer",
                ));
            }
        }
        // The transfer of the copy may have ended after the last round of the tier.
        self.admission.record_all_demotions()?;
        evict(self.queue, self.roots, self.accounts, &row, given)?;
        Ok(self.queue.staging().show(&actor(caller), id)?.1)
    }
}

/// Returns the version that a stage-out to a tier declares. The transfer of the stage-out is the
/// demotion of that version.
fn declared(tier: &ManagedTier, row: &StagedRow) -> Option<TierChange> {
    let request = &row.request;
    let now = clock::now();
    Some(TierChange::Declared(TierVersion {
        tier: tier.name.to_string(),
        application: request.application.clone()?,
        version: request.version?,
        owner: row.owner.clone(),
        fast_path: row.fast_path.clone(),
        slow_path: row.slow_path.clone(),
        is_folder: request.recursive,
        bytes: 0,
        stamp: String::new(),
        state: TierVersionState::Demoting,
        written_at: now,
        demoted_at: None,
        used_at: now,
        mtbf_seconds: request.mtbf_seconds,
        nodes: request.nodes,
        period_seconds: request.period_seconds,
        transfer: Some(row.id.clone()),
        error: None,
    }))
}

fn too_many_replicas(asked: u32, possible: usize) -> Error {
    refused(
        ErrorKind::InvalidRequest,
        "stage",
        format!("the request asks for {asked} replicas, but at most {possible} can be made"),
        "omit `replicas`, or stage out a version of a tier whose `replicas` has enough roots",
    )
}

fn conflict(cause: String, remedy: &str) -> Error {
    refused(
        ErrorKind::AlreadyExists,
        "evict the staged copy",
        cause,
        remedy,
    )
}

/// Removes the fast copy of a row, and marks the row as evicted. The removal uses the account of
/// the row's owner. Returns the number of removed entries. A row whose request bypasses the fast
/// root has no fast copy, and is only marked.
///
/// # Errors
/// The errors of [`Stager::evict`].
pub fn evict(
    queue: &Queue,
    roots: &Roots,
    accounts: &Accounts,
    row: &StagedRow,
    given: &Given,
) -> Result<u64> {
    let free = |is_dry: bool| {
        // Only the endpoint's account can read the pins. The thread with the owner's account
        // therefore asks the endpoint's thread.
        accounts.act_as_asking(
            &row.owner,
            |holds| free_copy(roots, accounts, row, given, is_dry, holds),
            |held: Vec<String>| {
                let held = held.iter().map(String::as_str);
                queue.staging().holds(held, clock::now())
            },
        )
    };
    let mut removed = 0;
    if !row.request.bypass {
        // Check all files first. If one of them must stay, the removal of the others could make the
        // copy useless.
        free(true)?;
        queue.tiers().deletion_begins(&row.fast_path)?;
        removed = free(false)?;
        queue.tiers().deletion_ended(&row.fast_path)?;
    }
    queue.staging().evicted(&row.fast_path, clock::now())?;
    Ok(removed)
}

/// A function that returns the reason if a pin holds one of the paths.
type Holds<'h> = dyn FnMut(Vec<String>) -> Result<Option<String>> + 'h;

/// Removes the files of a fast copy, or only checks them (`is_dry`). Returns the number of removed
/// entries.
fn free_copy(
    roots: &Roots,
    accounts: &Accounts,
    row: &StagedRow,
    given: &Given,
    is_dry: bool,
    holds: &mut Holds<'_>,
) -> Result<u64> {
    let fast = ApiPath::parse(&row.fast_path)?;
    let slow = ApiPath::parse(&row.slow_path)?;
    let fast_root = accounts.root(roots.find(&fast)?)?;
    let slow_root = accounts.root(roots.find(&slow)?)?;
    if fast_root.is_read_only {
        let cause = format!("the root {} is read-only", fast_root.name());
        let remedy = "ask the endpoint's administrator";
        return Err(refused(
            ErrorKind::ReadOnly,
            "evict the staged copy",
            cause,
            remedy,
        ));
    }
    let comparison = Comparison {
        fast: &fast_root,
        slow: &slow_root,
        given,
    };
    let mut judge = |below: &RelPath, seen: &Seen| {
        let fast_at = fast.path.join_path(below)?;
        let slow_at = slow.path.join_path(below)?;
        if let Some(why) = comparison.reason(&fast_at, &slow_at, seen)? {
            return Ok(Some(why));
        }
        holds(held_by(&fast, &fast_at))
    };
    let freed = match storage::free(&fast_root, &fast, given, is_dry, &mut judge) {
        // The fast copy does not exist any more, so the removal has succeeded.
        Err(error) if error.kind == ErrorKind::NotFound => Freed::default(),
        other => other?,
    };
    if freed.kept > 0 {
        return Err(conflict(
            stays(&fast, &freed, is_dry)?,
            "stage out the files that have no slow copy, wait until pins expire, and evict again",
        ));
    }
    Ok(freed.removed)
}

/// Returns the paths whose pins apply to the entry at `path`: its own path, and the paths of all
/// folders above it.
fn held_by(fast: &ApiPath, path: &RelPath) -> Vec<String> {
    let mut paths = vec![fast.with(path.clone()).text()];
    let mut at = path.clone();
    while let Some(parent) = at.parent() {
        paths.push(fast.with(parent.clone()).text());
        at = parent;
    }
    paths
}

/// Describes the entries that stay, each with its reason.
fn stays(fast: &ApiPath, freed: &Freed, is_dry: bool) -> Result<String> {
    let mut words = Vec::with_capacity(freed.named.len());
    for (below, why) in &freed.named {
        let path = fast.with(fast.path.join_path(below)?).text();
        words.push(format!("{path} was kept: {why}"));
    }
    let more = freed.kept.saturating_sub(freed.named.len() as u64);
    if more > 0 {
        words.push(format!("{more} more files or folders were kept"));
    }
    if !is_dry {
        words.push(format!(
            "removed files and folders of the fast copy: {}",
            freed.removed
        ));
    }
    Ok(words.join("; "))
}

/// Builds the submission of a copy between two paths of this endpoint. The submission has no claim
/// on space.
///
/// # Errors
/// `InvalidRequest` if the request is not valid.
fn submission(
    id: &TransferId,
    request: &StagingRequest,
    (from, to): (&ApiPath, &ApiPath),
    (owner, principal): (&str, &str),
) -> Result<Submission> {
    let moves = transfer(id.clone(), request, from, to);
    Ok(Submission {
        // The source URL and the destination URL are paths of this endpoint. So no host name needs
        // to be recognised.
        route: Route::parse(&moves, |_| false)?,
        request: moves,
        owner: owner.to_owned(),
        principal: principal.to_owned(),
        claim: None,
    })
}

/// Builds the transfer of a staging request: a file that keeps its name, or the contents of a
/// folder.
fn transfer(id: TransferId, request: &StagingRequest, from: &ApiPath, to: &ApiPath) -> Request {
    let url = |path: &ApiPath| match request.recursive {
        true => format!("{}/", path.text()),
        false => path.text(),
    };
    Request {
        id: Some(id),
        selection: Selection {
            recursive: request.recursive,
            ..Selection::default()
        },
        priority: request.priority,
        deadline: request.deadline,
        admission: request.admission,
        bytes_expected: request.bytes_expected,
        labels: request.labels.clone(),
        activity: request.application.clone(),
        bound_seconds: request.bound_seconds,
        ..Request::new(vec![Place::at(url(from))], Place::at(url(to)))
    }
}

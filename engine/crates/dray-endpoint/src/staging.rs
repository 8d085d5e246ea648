//! Staging: a copy in the fast root of what is in the slow one, or the other way.
//!
//! Each is a transfer, and a row that says how long the fast copy stays.
//!
//! Not for: deciding when to evict; a caller or the janitor does.
//!
//! Invariant owned here: a fast copy goes only when a slow one of the same size and time stands.

use crate::access::{Access, Action, Principal};
use crate::api::types::{
    Place, Request, Selection, Staged, StagedDirection, StagedState, StagingRequest,
};
use crate::config::Tier;
use crate::moment::Moment;
use crate::place::ApiPath;
use crate::queue::{Queue, StagedRow, Submission};
use crate::roots::{Root, Roots};
use crate::storage::{self, Given};
use dray_core::{End, EntryKind, Error, ErrorKind, RelPath, Result, TransferId};
use dray_store::{FileKind, ListOptions};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Stages on behalf of callers.
#[derive(Clone, Copy)]
pub struct Stager<'a> {
    /// Where transfers and rows are kept.
    pub queue: &'a Queue,
    /// The two roots.
    pub roots: &'a Roots,
    /// Who may.
    pub access: &'a dyn Access,
}

fn refused(kind: ErrorKind, operation: &str, cause: String, remedy: &str) -> Error {
    Error::new(kind, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

impl Stager<'_> {
    /// Submits the transfer that a request means. Says whether it is new.
    ///
    /// # Errors
    /// `Unsupported` for what is not there yet; as [`Queue::submit`].
    pub fn stage(
        &self,
        caller: &Principal,
        mut request: StagingRequest,
        direction: StagedDirection,
    ) -> Result<(Staged, bool)> {
        if request.replicas != 1 || request.bypass {
            return Err(refused(
                ErrorKind::Unsupported,
                "stage",
                "this endpoint makes one copy, in the fast root".to_owned(),
                "leave out replicas and bypass",
            ));
        }
        let (from_tier, to_tier) = match direction {
            StagedDirection::In => (Tier::Slow, Tier::Fast),
            StagedDirection::Out => (Tier::Fast, Tier::Slow),
        };
        let from = ApiPath::parse(&request.path)?;
        let from_root = self.root_of(from_tier)?;
        let to_root = self.root_of(to_tier)?;
        let to = match &request.to {
            Some(to) => ApiPath::parse(to)?,
            None => ApiPath {
                root: to_root.name().to_owned(),
                ..from.clone()
            },
        };
        for (path, root, field) in [(&from, from_root, "path"), (&to, to_root, "to")] {
            if path.root != root.name() || path.path.is_root() {
                return Err(refused(
                    ErrorKind::InvalidRequest,
                    "stage",
                    format!("{field}: {} does not lie in /{}", path.text(), root.name()),
                    "in goes from the slow root to the fast one, out the other way",
                ));
            }
        }
        self.access.allow(caller, Action::Stage, &from)?;
        // The copy may replace what stands there.
        self.access.allow(caller, Action::Modify, &to)?;
        let id = match &request.id {
            Some(id) => TransferId::new(id.as_str())?,
            None => dray_runtime::prepare::new_transfer_id()?,
        };
        request.id = Some(id.to_string());
        request.to = Some(to.text());
        let submission = Submission {
            request: transfer(id.clone(), &request, &from, &to)?,
            owner: caller.owner.clone(),
            principal: caller.name.clone(),
        };
        let (fast, slow) = match direction {
            StagedDirection::In => (&to, &from),
            StagedDirection::Out => (&from, &to),
        };
        let row = StagedRow {
            id: id.to_string(),
            owner: caller.owner.clone(),
            direction,
            request,
            fast_path: fast.text(),
            slow_path: slow.text(),
            pinned_until: None,
            staged_at: None,
            expires_at: None,
            evicted_at: None,
            bytes: 0,
        };
        let submitted = self.queue.submit_staged(submission, row)?;
        let (_, staged) = self.queue.staging().show(caller, id.as_str())?;
        Ok((staged, submitted.is_new))
    }

    fn root_of(&self, tier: Tier) -> Result<&Arc<Root>> {
        self.roots.of_tier(tier).ok_or_else(|| {
            refused(
                ErrorKind::Unsupported,
                "stage",
                "this endpoint has no slow and no fast root".to_owned(),
                "ask for `tier` in two of its roots",
            )
        })
    }

    /// Keeps the fast copy for so many seconds from now.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` when there is none.
    pub fn pin(&self, caller: &Principal, id: &str, seconds: u64) -> Result<Staged> {
        let (row, staged) = self.queue.staging().show(caller, id)?;
        self.access
            .allow(caller, Action::Stage, &ApiPath::parse(&row.fast_path)?)?;
        if matches!(staged.state, StagedState::Failed | StagedState::Evicted) {
            let cause = format!("it is {}", staged.state.word());
            let remedy = "stage it again";
            return Err(refused(
                ErrorKind::AlreadyExists,
                "pin the copy",
                cause,
                remedy,
            ));
        }
        let until = Moment::now().after(Duration::from_secs(seconds));
        self.queue.staging().pin(id, Some(until))?;
        Ok(self.queue.staging().show(caller, id)?.1)
    }

    /// Frees the fast copy.
    ///
    /// # Errors
    /// `AlreadyExists` (409) while it is pinned or moves, and when a file of it has no slow copy of
    /// the same size and time.
    pub fn evict(&self, caller: &Principal, id: &str, given: &Given) -> Result<Staged> {
        let (row, staged) = self.queue.staging().show(caller, id)?;
        let fast = ApiPath::parse(&row.fast_path)?;
        let slow = ApiPath::parse(&row.slow_path)?;
        self.access.allow(caller, Action::Stage, &fast)?;
        let conflict = |cause: String, remedy: &str| {
            Err(refused(
                ErrorKind::AlreadyExists,
                "evict the copy",
                cause,
                remedy,
            ))
        };
        let now = Moment::now();
        match staged.state {
            StagedState::Evicted => return Ok(staged),
            StagedState::Staged => {}
            state => {
                let cause = format!("it is {}", state.word());
                return conflict(cause, "wait until it is staged, or cancel its transfer");
            }
        }
        if let Some(until) = staged.pinned_until.filter(|until| *until > now) {
            return conflict(format!("it is pinned until {until}"), "wait until then");
        }
        let fast_root = self.roots.find(&fast)?;
        let slow_root = self.roots.find(&slow)?;
        if fast_root.store().stat(&fast.path)?.is_some() {
            if let Some(missing) = without_copy(fast_root, &fast, slow_root, &slow)? {
                let cause = format!("{missing} has no slow copy of the same size and time");
                return conflict(cause, "stage it out first");
            }
            storage::remove(fast_root, &fast, true, given)?;
        }
        self.queue.staging().evicted(id, now)?;
        Ok(self.queue.staging().show(caller, id)?.1)
    }
}

/// The transfer that staging means: a file under the same name, or a folder's contents.
fn transfer(
    id: TransferId,
    request: &StagingRequest,
    from: &ApiPath,
    to: &ApiPath,
) -> Result<Request> {
    let url = |path: &ApiPath| match request.recursive {
        true => format!("{}/", path.text()),
        false => path.text(),
    };
    let minimal = json!({"sources": [{"url": url(from)}], "destination": {"url": url(to)}});
    let minimal: Request = serde_json::from_value(minimal).map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "stage").cause(error.to_string())
    })?;
    Ok(Request {
        id: Some(id),
        selection: Selection {
            recursive: request.recursive,
            ..Selection::default()
        },
        sources: vec![Place {
            ..minimal.sources[0].clone()
        }],
        priority: request.priority,
        deadline: request.deadline,
        labels: request.labels.clone(),
        activity: request.application.clone(),
        ..minimal
    })
}

/// The first file of the fast copy that the slow one lacks. Memory does not grow with the tree.
fn without_copy(
    fast_root: &Root,
    fast: &ApiPath,
    slow_root: &Root,
    slow: &ApiPath,
) -> Result<Option<String>> {
    let precision = |root: &Root| root.store().capabilities().time_precision_nanoseconds;
    let precision = precision(fast_root).max(precision(slow_root));
    let is_kept = |fast_at: &RelPath, slow_at: &RelPath| -> Result<bool> {
        let Some(one) = fast_root.store().stat(fast_at)? else {
            // Gone meanwhile: nothing is lost by it.
            return Ok(true);
        };
        let Some(other) = slow_root.store().stat(slow_at)? else {
            return Ok(false);
        };
        Ok(one.kind == other.kind
            && (one.kind != FileKind::File
                || (one.size == other.size && one.modified.equal_at(&other.modified, precision))))
    };
    let is_folder = fast_root
        .store()
        .stat(&fast.path)?
        .is_some_and(|state| state.kind == FileKind::Directory);
    if !is_folder {
        let is_kept = is_kept(&fast.path, &slow.path)?;
        return Ok((!is_kept).then(|| fast.text()));
    }
    let options = ListOptions {
        contents: true,
        ..ListOptions::default()
    };
    let mut at = RelPath::root();
    for item in fast_root.store().list(&fast.path, &options)? {
        let item = item?;
        if item.kind == EntryKind::DirectoryEnd {
            at = at.parent().unwrap_or_else(RelPath::root);
            continue;
        }
        let below = at.join(&item.name)?;
        if item.kind == EntryKind::Directory {
            at = below;
            continue;
        }
        let (fast_at, slow_at) = (fast.path.join_path(&below)?, slow.path.join_path(&below)?);
        if !is_kept(&fast_at, &slow_at)? {
            return Ok(Some(fast.with(fast_at).text()));
        }
    }
    Ok(None)
}

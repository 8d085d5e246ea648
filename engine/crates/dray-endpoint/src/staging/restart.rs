//! Stages in the version from which an application restarts, and builds the transfers of versions.

use super::{Stager, conflict, refused, submission};
use crate::actor::actor;
use dray_access::{Action, Principal};
use dray_api::api_path::ApiPath;
use dray_api::{Staged, StagedDirection, StagingRequest, TierVersionState as At};
use dray_core::{Error, ErrorKind, Result, TransferId};
use dray_queue::{Refused, StagedRow, Submission, TierChange, TierVersion};
use serde_json::json;
use std::collections::BTreeMap;

/// A copy of a version between the fast root and the slow root of its tier.
pub struct Copy<'c> {
    /// Id of the copy and of its transfer.
    pub id: &'c TransferId,
    /// The version.
    pub version: &'c TierVersion,
    /// Direction of the copy.
    pub direction: StagedDirection,
    /// Principal of the transfer.
    pub principal: &'c str,
    /// Labels of the transfer.
    pub labels: BTreeMap<String, String>,
}

/// Builds the transfer that makes a copy, and the row of the copy.
///
/// # Errors
/// `InvalidRequest` if a path of the version cannot be parsed.
pub fn copy(copy: &Copy<'_>) -> Result<(Submission, StagedRow)> {
    let version = copy.version;
    let (from, to) = match copy.direction {
        StagedDirection::In => (&version.slow_path, &version.fast_path),
        StagedDirection::Out => (&version.fast_path, &version.slow_path),
    };
    let request = requested(copy, from, to)?;
    built(copy, request)
}

fn requested(copy: &Copy<'_>, from: &str, to: &str) -> Result<StagingRequest> {
    let version = copy.version;
    let request = json!({
        "id": copy.id.as_str(),
        "path": from,
        "to": to,
        "recursive": version.is_folder,
        "application": version.application,
        "version": version.version,
        "labels": copy.labels,
    });
    serde_json::from_value(request).map_err(|error| {
        refused(
            ErrorKind::Internal,
            "stage the version",
            error.to_string(),
            "",
        )
    })
}

/// Builds the transfer that copies a version from `from` to `to`, without a row in the table of
/// staged copies.
///
/// # Errors
/// The errors of [`copy`].
pub fn between(copy: &Copy<'_>, from: &ApiPath, to: &ApiPath) -> Result<Submission> {
    let request = requested(copy, &from.text(), &to.text())?;
    submission(copy.id, &request, (from, to), copy.actors())
}

impl Copy<'_> {
    /// Returns the owner and the principal of the transfer.
    fn actors(&self) -> (&str, &str) {
        (&self.version.owner, self.principal)
    }
}

fn built(copy: &Copy<'_>, request: StagingRequest) -> Result<(Submission, StagedRow)> {
    let from = ApiPath::parse(&request.path)?;
    let to = ApiPath::parse(request.to.as_deref().unwrap_or_default())?;
    let submission = submission(copy.id, &request, (&from, &to), copy.actors())?;
    let version = copy.version;
    // The path that a restart reads may be that of a replica. The row names the slow copy.
    let row = StagedRow {
        fast_path: version.fast_path.clone(),
        slow_path: version.slow_path.clone(),
        bytes: version.bytes,
        ..StagedRow::new(
            copy.id.to_string(),
            version.owner.clone(),
            copy.direction,
            request,
            Default::default(),
        )
    };
    Ok((submission, row))
}

impl Stager<'_> {
    /// Stages in the newest complete version of an application, or the version that the request
    /// names. If the fast copy exists, copies nothing: the new staged copy is complete immediately,
    /// and counts as a hit. Otherwise restores the fast copy from the slow copy, or from a replica
    /// if the slow copy is not complete. Returns the staged copy, and true if it is new.
    ///
    /// # Errors
    /// `NotFound` if the owner has no such version on a tier. `Busy` if the version exists only on
    /// a fast root that cannot be reached. `PermissionDenied`. Also the errors of
    /// [`dray_queue::Queue::submit`].
    pub(super) fn restart(
        &self,
        caller: &Principal,
        mut request: StagingRequest,
    ) -> std::result::Result<(Staged, bool), Refused> {
        let version = self.admission.located(self.version(caller, &request)?)?;
        if version.state == At::Deleting {
            let cause = "the fast copy of the version is being deleted".to_owned();
            return Err(conflict(cause, "try again in some seconds").into());
        }
        let fast = ApiPath::parse(&version.fast_path)?;
        let slow = match version.state {
            At::Slow => self.nearest(&version)?,
            _ => ApiPath::parse(&version.slow_path)?,
        };
        let id = match &request.id {
            Some(id) => TransferId::new(id.as_str())?,
            None => dray_open::prepare::new_transfer_id()?,
        };
        self.access.allow(caller, Action::Stage, &slow)?;
        request.id = Some(id.to_string());
        request.path = slow.text();
        request.to = Some(fast.text());
        request.recursive = version.is_folder;
        request.version = Some(version.version);
        let plan = Copy {
            id: &id,
            version: &version,
            direction: StagedDirection::In,
            principal: &caller.name,
            labels: BTreeMap::new(),
        };
        let (mut submission, row) = built(&plan, request)?;
        let wanted = &mut submission.request;
        if wanted.deadline.is_some() && wanted.bytes_expected.is_none() {
            wanted.bytes_expected = Some(version.bytes).filter(|bytes| *bytes > 0);
        }
        if version.state == At::Slow {
            let restoring = version.transfer.as_deref();
            if restoring.is_some_and(|restoring| restoring != id.as_str()) {
                let cause =
                    "another transfer is restoring the fast copy of this version".to_owned();
                return Err(conflict(cause, "wait until the other transfer ends").into());
            }
            self.access.allow(caller, Action::Modify, &fast)?;
            submission.claim = self.claim(&id, &row.request, &fast, Some(version.bytes))?;
            let restored = TierVersion {
                transfer: Some(id.to_string()),
                ..version.clone()
            };
            let change = Some(TierChange::Restored(restored));
            let submitted = self.queue.submit_staged(submission, row, change)?;
            let (_, staged) = self.queue.staging().show(&actor(caller), id.as_str())?;
            return Ok((staged, submitted.is_new));
        }
        self.access.allow(caller, Action::Stage, &fast)?;
        self.queue.tiers().hit(version.clone(), row)?;
        let (_, staged) = self.queue.staging().show(&actor(caller), id.as_str())?;
        Ok((staged, true))
    }

    /// Returns the newest version, or the one that the request names. Of equal versions on several
    /// tiers, prefers the one with a fast copy.
    fn version(&self, caller: &Principal, request: &StagingRequest) -> Result<TierVersion> {
        let application = request.application.as_deref().unwrap_or_default();
        let mut newest: Option<TierVersion> = None;
        for tier in self.tiers {
            let rows = self.queue.tiers().versions(tier.name.as_str())?;
            let fits = |row: &TierVersion| {
                row.application == application
                    && actor(caller).sees(&row.owner)
                    && request.version.is_none_or(|version| version == row.version)
            };
            for row in rows.into_iter().filter(fits) {
                let is_better = newest.as_ref().is_none_or(|best| {
                    let fast = |row: &TierVersion| !matches!(row.state, At::Slow | At::Deleting);
                    (row.version, fast(&row)) > (best.version, fast(best))
                });
                if is_better {
                    newest = Some(row);
                }
            }
        }
        newest.ok_or_else(|| none(application, request.version))
    }
}

fn none(application: &str, version: Option<u64>) -> Error {
    let which = version.map_or_else(
        || "complete version".to_owned(),
        |version| format!("version {version}"),
    );
    let shown: String = application.chars().take(64).collect();
    refused(
        ErrorKind::NotFound,
        "stage the version",
        format!("no tier of this endpoint has a {which} of the application {shown:?}"),
        "list the versions with GET /v1/tiers/NAME, or give a path",
    )
}

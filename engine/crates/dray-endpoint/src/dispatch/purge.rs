//! Removes the partial data of transfers that were cancelled with a purge, and reports the removal.
//!
//! Partial data at this endpoint is removed by the rules of `dray_runtime::sweep::Purged`. Partial
//! data at another endpoint can only be removed by a session with that endpoint. For that purpose
//! this module starts a session and cancels it immediately.

use super::{DispatcherInner, outcome};
use crate::session::SessionBudget;
use dray_core::Result;
use dray_queue::{PurgeJob, PurgeReport, SessionInput};
use dray_runtime::drive;
use dray_runtime::handle::Handle;
use dray_runtime::sweep::Purged;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Maximum number of purges that one round starts.
const PURGES_MAX: u32 = 8;

/// Starts a thread for each transfer that waits for its purge.
pub(super) fn begin(shared: &Arc<DispatcherInner>) {
    let found = match shared.queue.to_purge(PURGES_MAX) {
        Ok(found) => found,
        Err(error) => {
            tracing::error!("cannot look up transfers to purge: {error}");
            return;
        }
    };
    for job in found {
        if !job.has_begun {
            note(
                shared,
                &job,
                PurgeReport::removed(
                    "nothing to purge: the transfer had not started, so it had no data",
                ),
            );
            continue;
        }
        let mut state = shared.state();
        if state.is_stopping || !state.purging.insert(job.input.id.clone()) {
            continue;
        }
        drop(state);
        let (id, name) = (job.input.id.clone(), "dray-purge".to_owned());
        let spawned = std::thread::Builder::new().name(name).spawn({
            let shared = Arc::clone(shared);
            move || {
                let purged = catch_unwind(AssertUnwindSafe(|| purge(&shared, &job)));
                let report = match purged {
                    Ok(Ok(report)) => report,
                    Ok(Err(error)) => PurgeReport::kept(format!(
                        "the partial data of the transfer remains: \
                            {error}"
                    )),
                    Err(_) => PurgeReport::kept(
                        "the partial data of the transfer may remain; see the \
                            endpoint's log",
                    ),
                };
                note(&shared, &job, report);
                shared.state().purging.remove(&job.input.id);
                shared.woken.notify_all();
            }
        });
        if spawned.is_err() {
            shared.state().purging.remove(&id);
        }
    }
}

fn note(shared: &DispatcherInner, job: &PurgeJob, report: PurgeReport) {
    let told = shared.audit.swept(json!({
        "did": "purge",
        "owner": job.input.owner,
        "transfer": job.input.id.as_str(),
        "path": job.input.request.destination.url,
        "what": report.notice,
    }));
    if let Err(error) = told {
        // If the line about the result cannot be written, only report that: the audit log already
        // has the owner's request.
        tracing::error!("{error}");
    }
    if let Err(error) = shared.queue.purged(&job.input.id, Some(report)) {
        tracing::error!("cannot record the result of a purge: {error}");
    }
}

fn purge(shared: &DispatcherInner, job: &PurgeJob) -> Result<PurgeReport> {
    match shared.runner.purge(&job.input)? {
        Some(purged) => Ok(PurgeReport {
            notice: words(&purged),
            is_purged: matches!(purged, Purged::All { .. } | Purged::Nothing),
        }),
        None => elsewhere(shared, &job.input),
    }
}

/// Describes the removed data, or the reason why no data was removed.
fn words(purged: &Purged) -> String {
    match purged {
        Purged::All { files: 1, bytes } => format!("purged: 1 partial file, {bytes} bytes"),
        Purged::All { files, bytes } => format!("purged: {files} partial files, {bytes} bytes"),
        Purged::Nothing => "nothing to purge: the transfer had left no partial data".to_owned(),
        Purged::GoneOn(other) => {
            format!("nothing purged: transfer {other} resumed from the partial data")
        }
        Purged::NotOurs => "nothing purged: the data belongs to another owner".to_owned(),
        Purged::Larger => {
            "nothing purged: the partial data belongs to a larger transfer".to_owned()
        }
    }
}

fn elsewhere(shared: &DispatcherInner, input: &SessionInput) -> Result<PurgeReport> {
    let handle = Handle::default();
    handle.cancel(true);
    let budget = SessionBudget {
        memory: shared.config.limits.memory.0 / 64,
        live_entries: 1,
    };
    let carry = || shared.runner.run(input, budget, &handle, &Nobody);
    let ended = catch_unwind(AssertUnwindSafe(carry)).unwrap_or_else(|_| outcome::panicked());
    match ended.ending {
        drive::Ending::Cancelled | drive::Ending::Done { .. } => {
            let notice = "purged: the other endpoint was asked to remove the transfer's data";
            Ok(PurgeReport::removed(notice))
        }
        drive::Ending::Refused(error)
        | drive::Ending::Unreachable(error)
        | drive::Ending::Interrupted(error) => Err(error),
    }
}

/// An observer that ignores everything.
struct Nobody;

impl dray_runtime::observe::Observer for Nobody {}
impl drive::Watch for Nobody {}

#[cfg(test)]
mod tests {
    use super::words;
    use dray_core::TransferId;
    use dray_runtime::sweep::Purged;

    #[test]
    fn a_purge_reports_the_removed_data_or_the_reason() {
        let other = TransferId::new("t2").expect("an id");
        for (purged, wanted) in [
            (
                Purged::All { files: 1, bytes: 7 },
                "1 partial file, 7 bytes",
            ),
            (
                Purged::All { files: 0, bytes: 7 },
                "0 partial files, 7 bytes",
            ),
            (Purged::Nothing, "no partial data"),
            (Purged::GoneOn(other), "transfer t2 resumed"),
            (Purged::NotOurs, "another owner"),
            (Purged::Larger, "larger"),
        ] {
            let said = words(&purged);
            assert!(said.contains(wanted), "{said}");
        }
    }
}

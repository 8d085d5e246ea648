//! Decides the state of a transfer after a session. Pure.

use super::monitor::Report;
use dray_core::{End, Error, ErrorKind, Status};
use dray_queue::{Ending, SessionInput};
use dray_runtime::drive::{self, Ended};
use dray_session::Progress;

/// Returns the outcome of a session whose thread panicked.
pub(super) fn panicked() -> Ended {
    let error = Error::new(ErrorKind::Internal, End::Here, "run the transfer")
        .cause("the thread of the transfer panicked")
        .remedy("see the endpoint's log, and report this error");
    Ended {
        ending: drive::Ending::Interrupted(error),
        progress: Progress::default(),
        found: None,
    }
}

/// Returns true if the session ended because the dispatcher wanted its slot. Returns false if the
/// session ended for another reason before it followed the dispatcher's request.
pub(super) const fn has_let_go(ending: &Ending, is_leaving: bool) -> bool {
    is_leaving && matches!(ending, Ending::Stopped)
}

/// Decides the state of a transfer after its session ended.
pub(super) fn ending(
    input: &SessionInput,
    ended: &Ended,
    report: &Report,
    is_stopped: bool,
) -> Ending {
    let before = &input.counters;
    let has_progressed = report.counters.bytes.durable > before.bytes.durable
        || report.counters.files.done > before.files.done;
    let broken = |error: Error, is_sources: bool| {
        // After a failure of one replica, the next session reads the next replica. After a failure
        // of the last replica, the next session reads the sources again, unless the error is
        // permanent.
        let count = u32::try_from(input.request.origins()).unwrap_or(1);
        let next = input.source + 1;
        let has_next = is_sources && next < count;
        Ending::Broken {
            error: match has_next {
                true => error.status(Status::Temporary),
                false => error,
            },
            has_progressed,
            is_whole: matches!(ended.ending, drive::Ending::Done { .. }),
            source: is_sources.then_some(if has_next { next } else { 0 }),
        }
    };
    match &ended.ending {
        drive::Ending::Done { failed: 0 } => Ending::Done,
        drive::Ending::Done { .. } => {
            let many = input.request.origins() > 1;
            match (&report.temporary, &report.first) {
                (Some(error), _) => broken(error.clone(), many && report.is_sources),
                (None, Some(error)) if many && report.is_sources => broken(error.clone(), true),
                (None, Some(error)) if report.counters.files.done == 0 => {
                    Ending::Failed(error.clone())
                }
                (None, _) => Ending::Incomplete,
            }
        }
        drive::Ending::Cancelled if is_stopped => Ending::Stopped,
        drive::Ending::Cancelled => {
            let error = Error::new(ErrorKind::Unreachable, End::Network, "run the transfer")
                .cause("the other endpoint cancelled the session");
            broken(error, true)
        }
        drive::Ending::Refused(_)
        | drive::Ending::Unreachable(_)
        | drive::Ending::Interrupted(_)
            if is_stopped =>
        {
            Ending::Stopped
        }
        drive::Ending::Refused(error)
        | drive::Ending::Unreachable(error)
        | drive::Ending::Interrupted(error)
            if error.kind == ErrorKind::NoPlace =>
        {
            let count = u32::try_from(input.request.origins()).unwrap_or(1);
            Ending::TurnedAway {
                error: error.clone(),
                // Another replica may have a free slot.
                source: (error.end != End::Sink).then(|| (input.source + 1) % count.max(1)),
            }
        }
        drive::Ending::Unreachable(error) => broken(error.clone(), true),
        drive::Ending::Refused(error) | drive::Ending::Interrupted(error) => {
            let is_sources = matches!(error.end, End::Source | End::Network);
            broken(error.clone(), is_sources && input.request.origins() > 1)
        }
    }
}

#[cfg(test)]
mod tests;

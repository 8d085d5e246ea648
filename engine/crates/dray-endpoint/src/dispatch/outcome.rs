//! What a session's end means for its transfer: pure.

use super::monitor::Report;
use crate::queue::{Ending, Job};
use dray_core::{End, Error, ErrorKind, Status};
use dray_runtime::drive::{self, Ended};
use dray_session::Progress;

/// The end of a session whose thread panicked.
pub(super) fn panicked() -> Ended {
    let error = Error::new(ErrorKind::Internal, End::Here, "carry the transfer")
        .cause("its thread panicked")
        .remedy("look into the endpoint's log, and report this");
    Ended {
        ending: drive::Ending::Interrupted(error),
        progress: Progress::default(),
    }
}

/// Whether it gave up its session to others, as it was told to: it may have ended by itself before.
pub(super) const fn has_let_go(ending: &Ending, is_leaving: bool) -> bool {
    is_leaving && matches!(ending, Ending::Stopped)
}

/// How `job` goes on after its session ended so.
pub(super) fn ending(job: &Job, ended: &Ended, report: &Report, is_stopped: bool) -> Ending {
    let before = &job.counters;
    let has_progressed = report.counters.bytes.durable > before.bytes.durable
        || report.counters.files.done > before.files.done;
    let broken = |error: Error, is_sources: bool| {
        // Another replica may be better than one that has failed by itself; after the last the
        // first has its turn again, unless trying cannot help.
        let count = u32::try_from(job.request.sources.len()).unwrap_or(1);
        let next = job.source + 1;
        let has_next = is_sources && next < count;
        Ending::Broken {
            error: match has_next {
                true => error.status(Status::Temporary),
                false => error,
            },
            has_progressed,
            source: is_sources.then_some(if has_next { next } else { 0 }),
        }
    };
    match &ended.ending {
        drive::Ending::Done { failed: 0 } => Ending::Done,
        drive::Ending::Done { .. } => {
            let many = job.request.sources.len() > 1;
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
            let error = Error::new(ErrorKind::Unreachable, End::Network, "carry the transfer")
                .cause("the other end cancelled the session");
            broken(error, true)
        }
        drive::Ending::Refused(_)
        | drive::Ending::Unreachable(_)
        | drive::Ending::Interrupted(_)
            if is_stopped =>
        {
            Ending::Stopped
        }
        drive::Ending::Unreachable(error) => broken(error.clone(), true),
        drive::Ending::Refused(error)
            if error.kind == ErrorKind::Busy
                && error.end != End::Here
                && job.request.sources.len() == 1 =>
        {
            Ending::TurnedAway(error.clone())
        }
        drive::Ending::Refused(error) | drive::Ending::Interrupted(error) => {
            let is_sources = matches!(error.end, End::Source | End::Network);
            broken(error.clone(), is_sources && job.request.sources.len() > 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, has_let_go};

    #[test]
    fn who_was_done_before_it_could_leave_has_let_nothing_go() {
        assert!(has_let_go(&Ending::Stopped, true));
        assert!(!has_let_go(&Ending::Stopped, false), "its caller's wish");
        assert!(!has_let_go(&Ending::Done, true));
        assert!(!has_let_go(&Ending::Incomplete, true));
    }
}

//! How a transfer came out: one line for people, or one JSON object, and the exit code.

use crate::exit::Exit;
use crate::output;
use crate::progress::Collected;
use crate::units::{count, human};
use dray_core::{Error, ErrorKind, TransferId};
use dray_session::{Failure, Outcome, Progress};
use serde_json::{Value, json};
use std::time::Duration;

/// Everything there is to say at the end.
pub(crate) struct Report {
    pub(crate) transfer: TransferId,
    pub(crate) ending: Ending,
    /// Counters of the last attempt; what was sent and read, of all.
    pub(crate) progress: Progress,
    pub(crate) collected: Collected,
    pub(crate) took: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Everything was dealt with; so many files failed.
    Done { failed: u64 },
    /// A person stopped it.
    Cancelled,
    /// Nothing moved.
    Refused(Error),
    /// There is no way to the other end.
    Unreachable(Error),
    /// Broken off.
    Interrupted(Error),
}

impl Ending {
    /// How a session ended. `failed` is what this end has counted.
    pub(crate) fn of(outcome: Outcome, failed: u64) -> Self {
        match outcome {
            Outcome::Done(totals) => Self::Done {
                failed: failed.max(totals.files_failed),
            },
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Refused(error) => Self::Refused(error),
            // Running the same command again would meet the new holder.
            Outcome::Failed(error)
                if matches!(error.kind, ErrorKind::LeaseLost | ErrorKind::LeaseHeld) =>
            {
                Self::Refused(error)
            }
            Outcome::Failed(error) => Self::Interrupted(error),
        }
    }

    const fn state(&self) -> &'static str {
        match self {
            Self::Done { failed: 0 } => "done",
            Self::Done { .. } | Self::Unreachable(_) => "failed",
            Self::Cancelled => "cancelled",
            Self::Refused(_) => "refused",
            Self::Interrupted(_) => "interrupted",
        }
    }

    const fn exit(&self) -> Exit {
        match self {
            Self::Done { failed: 0 } => Exit::Safe,
            Self::Done { .. } => Exit::SomeFailed,
            Self::Refused(_) => Exit::Refused,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Cancelled | Self::Interrupted(_) => Exit::Interrupted,
        }
    }

    const fn error(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) | Self::Unreachable(error) | Self::Interrupted(error) => {
                Some(error)
            }
            Self::Done { .. } | Self::Cancelled => None,
        }
    }
}

impl Report {
    /// Says it, and gives the exit code.
    pub(crate) fn tell(&self, as_json: bool, quiet: bool) -> Exit {
        if let Some(error) = self.ending.error() {
            output::note(&error.to_string());
        }
        if as_json {
            output::result(&self.json().to_string());
        } else if !quiet {
            output::result(&self.words());
        }
        self.ending.exit()
    }

    /// Files that are safe under their names: published by this transfer, or adopted because they
    /// stood there and were the same.
    fn files(&self) -> u64 {
        let progress = &self.progress;
        progress.files_done.saturating_sub(progress.files_skipped)
    }

    fn words(&self) -> String {
        let progress = &self.progress;
        let mut words = match &self.ending {
            Ending::Done { failed: 0 } => "done".to_owned(),
            Ending::Done { failed } => format!("{failed} failed"),
            Ending::Cancelled => "stopped; the same command goes on from here".to_owned(),
            Ending::Refused(_) if progress.bytes_sent == 0 => {
                return "refused; nothing was moved".to_owned();
            }
            Ending::Refused(_) => "refused in the middle; what is safe stays safe".to_owned(),
            Ending::Unreachable(_) => "the other end cannot be reached".to_owned(),
            Ending::Interrupted(_) => "broken off; the same command goes on from here".to_owned(),
        };
        let seconds = self.took.as_secs_f64();
        let rate = progress.bytes_sent as f64 / seconds.max(0.001);
        words.push_str(&format!(
            ": {}, {} safe; {} sent in {seconds:.1}s ({}/s)",
            count(self.files(), "file"),
            human(progress.bytes_durable),
            human(progress.bytes_sent),
            human(rate as u64),
        ));
        for (files, what) in [
            (progress.files_adopted, "there already"),
            (progress.files_skipped, "left as they were"),
        ] {
            if files > 0 {
                words.push_str(&format!(", {files} {what}"));
            }
        }
        if progress.bytes_resumed > 0 {
            let resumed = human(progress.bytes_resumed);
            words.push_str(&format!(", {resumed} from an earlier run"));
        }
        words
    }

    fn json(&self) -> Value {
        let progress = &self.progress;
        let failures = self.collected.failures.iter().map(failure);
        let notices = self.collected.notices.iter().map(Error::to_string);
        json!({
            "transfer_id": self.transfer.as_str(),
            "state": self.ending.state(),
            "files": self.files(),
            "bytes": progress.bytes_durable,
            "objects": progress.objects_sent + progress.objects_resumed,
            "objects_sent": progress.objects_sent,
            "objects_resumed": progress.objects_resumed,
            "files_skipped": progress.files_skipped,
            "files_adopted": progress.files_adopted,
            "bytes_sent": progress.bytes_sent,
            "bytes_read": progress.bytes_read,
            "bytes_resumed": progress.bytes_resumed,
            "seconds": (self.took.as_secs_f64() * 1000.0).round() / 1000.0,
            "files_failed": failures.collect::<Vec<_>>(),
            "files_failed_total": match self.ending {
                Ending::Done { failed } => failed,
                _ => self.collected.failures_total,
            },
            "error": self.ending.error().map(in_json),
            "notices": notices.collect::<Vec<_>>(),
        })
    }
}

/// One failed file.
pub(crate) fn failure(failure: &Failure) -> Value {
    let mut object = in_json(&failure.error);
    object["path"] = json!(failure.path.to_string());
    object
}

/// An error and its parts.
pub(crate) fn in_json(error: &Error) -> Value {
    json!({
        "end": error.end,
        "kind": error.kind,
        "status": error.status,
        "cause": error.cause,
        "remedy": error.remedy,
        "message": error.to_string(),
    })
}

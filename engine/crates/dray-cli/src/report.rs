//! Result of a transfer: one line for people, or one JSON object, and the exit code.

use crate::exit::Exit;
use crate::units::{count, human};
use crate::{output, signals};
use dray_core::profile::Stage;
use dray_core::{End, Error, ErrorKind, TransferId};
use dray_runtime::drive::Ending;
use dray_session::{Failure, Progress};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum number of failures, and of notices, in the report. Further failures and notices are only
/// counted.
pub(crate) const KEPT_MAX: usize = 1000;

/// Minimum duration of a copy for which the report names the bottleneck.
pub(crate) const WORTH_A_WORD: Duration = Duration::from_secs(2);

/// Returns a description of a stage, for users who want to remove a bottleneck.
pub(crate) const fn held_up_by(stage: Stage) -> &'static str {
    match stage {
        Stage::List => "listing the source",
        Stage::Decide => "inspecting the destination",
        Stage::Rate => "the rate limit of the transfer",
        Stage::Read => "reading the source",
        Stage::Network | Stage::Arrival => "waiting for the network",
        Stage::Credit => "too few buffers for this network path (--pool)",
        Stage::Retry => "waiting to try again",
        Stage::Verdict => "waiting for answers from the other end",
        Stage::Write => "writing the destination",
        Stage::Sync => "syncing the destination",
        Stage::Publish => "giving files their final names at the destination",
    }
}

/// Results that the feed collects for the report.
#[derive(Debug, Default, Clone)]
pub(crate) struct Collected {
    /// The first [`KEPT_MAX`] failures.
    pub(crate) failures: Vec<Failure>,
    pub(crate) failures_total: u64,
    pub(crate) notices: Vec<Error>,
}

/// Data of the final report.
pub(crate) struct Report {
    pub(crate) transfer: TransferId,
    pub(crate) ending: Ending,
    /// Counters of the last try. The bytes sent, the bytes read and the profile include all tries.
    pub(crate) progress: Progress,
    pub(crate) collected: Collected,
    pub(crate) took: Duration,
    /// True if the source is a server without sessions: a web server or an XRootD server.
    pub(crate) reads_server: bool,
}

/// Returns the name of an ending in JSON.
const fn state(ending: &Ending) -> &'static str {
    match ending {
        Ending::Done { failed: 0 } => "done",
        Ending::Done { .. } | Ending::Unreachable(_) => "failed",
        Ending::Cancelled => "cancelled",
        Ending::Refused(_) => "refused",
        Ending::Interrupted(_) => "interrupted",
    }
}

const fn exit(ending: &Ending) -> Exit {
    match ending {
        Ending::Done { failed: 0 } => Exit::Safe,
        Ending::Done { .. } => Exit::SomeFailed,
        Ending::Refused(_) => Exit::Refused,
        Ending::Unreachable(_) => Exit::Unreachable,
        Ending::Cancelled | Ending::Interrupted(_) => Exit::Interrupted,
    }
}

const fn error(ending: &Ending) -> Option<&Error> {
    match ending {
        Ending::Refused(error) | Ending::Unreachable(error) | Ending::Interrupted(error) => {
            Some(error)
        }
        Ending::Done { .. } | Ending::Cancelled => None,
    }
}

impl Report {
    /// Prints the report, unless another thread has printed it. Returns the exit code.
    pub(crate) fn tell(&self, as_json: bool) -> Exit {
        if !signals::may_tell() {
            return self.exit();
        }
        if let Some(error) = error(&self.ending) {
            output::problem(&error.to_string());
        }
        if as_json {
            output::result(&self.json().to_string());
        } else {
            output::result(&self.words());
        }
        self.exit()
    }

    fn exit(&self) -> Exit {
        match self.is_unreached() {
            true => Exit::Unreachable,
            false => exit(&self.ending),
        }
    }

    /// Returns true if the source is a server without sessions, and all failures in the report say
    /// that it is unreachable. Such a server is contacted once per file.
    fn is_unreached(&self) -> bool {
        let Ending::Done { failed } = self.ending else {
            return false;
        };
        let is_away =
            |error: &Error| error.end == End::Source && error.kind == ErrorKind::Unreachable;
        self.reads_server
            && failed > 0
            && self.progress.files_safe() == 0
            && self.progress.bytes_safe() == 0
            && (self.collected.failures.iter()).all(|failure| is_away(&failure.error))
    }

    fn words(&self) -> String {
        let progress = &self.progress;
        let mut words = match &self.ending {
            Ending::Done { failed: 0 } => "done".to_owned(),
            Ending::Done { failed } => format!("{failed} failed"),
            Ending::Cancelled => "stopped; run the same command to resume".to_owned(),
            Ending::Refused(_) if progress.bytes_sent == 0 => {
                return "refused; no data was copied".to_owned();
            }
            Ending::Refused(_) => "refused during the copy; durable data is kept".to_owned(),
            Ending::Unreachable(_) => "the other host is unreachable".to_owned(),
            Ending::Interrupted(_) => "interrupted; run the same command to resume".to_owned(),
        };
        let seconds = self.took.as_secs_f64();
        let rate = progress.bytes_sent as f64 / seconds.max(0.001);
        let safe = match progress.keeps_nothing {
            true => format!(
                "{} discarded by the null destination; nothing is stored",
                count(progress.files_done, "file")
            ),
            false => format!(
                "{}, {} safe",
                count(progress.files_safe(), "file"),
                human(progress.bytes_safe())
            ),
        };
        words.push_str(&format!(
            ": {safe}; {} sent in {seconds:.1}s ({}/s)",
            human(progress.bytes_sent),
            human(rate as u64),
        ));
        for (files, what) in [
            (progress.files_adopted, "already there"),
            (
                progress.files_updated,
                "with an updated mode or updated attributes",
            ),
            (progress.files_skipped, "left unchanged"),
        ] {
            if files > 0 {
                words.push_str(&format!(", {files} {what}"));
            }
        }
        if progress.bytes_resumed > 0 {
            let resumed = human(progress.bytes_resumed);
            words.push_str(&format!(", {resumed} from an earlier run"));
        }
        if self.took >= WORTH_A_WORD
            && let Some(stage) = progress.profile.bottleneck()
        {
            words.push_str(&format!("; bottleneck: {}", held_up_by(stage)));
        }
        words
    }

    fn json(&self) -> Value {
        let progress = &self.progress;
        let failures = self.collected.failures.iter().map(failure);
        let notices = self.collected.notices.iter().map(Error::to_string);
        json!({
            "transfer_id": self.transfer.as_str(),
            "state": state(&self.ending),
            "files": progress.files_safe(),
            "bytes": progress.bytes_safe(),
            "keeps_nothing": progress.keeps_nothing,
            "objects": progress.objects_sent + progress.objects_resumed,
            "objects_sent": progress.objects_sent,
            "objects_resumed": progress.objects_resumed,
            "files_skipped": progress.files_skipped,
            "files_adopted": progress.files_adopted,
            "files_updated": progress.files_updated,
            "bytes_sent": progress.bytes_sent,
            "bytes_read": progress.bytes_read,
            "bytes_resumed": progress.bytes_resumed,
            "bytes_adopted": progress.bytes_adopted,
            "bytes_read_back": progress.bytes_read_back,
            "log": progress.log_form,
            "seconds": (self.took.as_secs_f64() * 1000.0).round() / 1000.0,
            "files_failed": failures.collect::<Vec<_>>(),
            "files_failed_total": match self.ending {
                Ending::Done { failed } => failed,
                _ => self.collected.failures_total,
            },
            "error": error(&self.ending).map(in_json),
            "notices": notices.collect::<Vec<_>>(),
            "profile": progress.profile,
            "bottleneck": progress.profile.bottleneck(),
        })
    }
}

/// Returns the JSON form of a failed file.
pub(crate) fn failure(failure: &Failure) -> Value {
    let mut object = in_json(&failure.error);
    object["path"] = json!(failure.path.to_string());
    object
}

/// Returns the JSON form of an error.
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

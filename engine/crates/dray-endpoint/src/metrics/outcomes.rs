//! The metrics of ended transfers, failures, repeated work and the sinks of sessions.

use super::{head, line};
use crate::live::SinkCounts;
use dray_api::kind_word;
use dray_queue::{ByKind, Tally};
use std::sync::atomic::Ordering;

/// Adds the metrics of transfers and their failures. Each label value is present from the start of
/// the process, so that a query sees the increase from 0 to 1.
pub(super) fn push(text: &mut String, tally: &Tally) {
    let name = "dray_transfers_ended_total";
    head(text, name, "counter", "Transfers that ended, by state.");
    for (state, count) in tally.ended() {
        line(text, name, &format!("state=\"{}\"", state.word()), count);
    }
    let name = "dray_sessions_failed_total";
    let help = "Sessions of transfers of this endpoint that ended with an error, by kind.";
    by_kind(text, name, help, &tally.sessions_failed);
    let name = "dray_files_failed_total";
    let help = "Files that failed, by the kind of their error.";
    by_kind(text, name, help, &tally.files_failed);
    let name = "dray_retries_total";
    let help = "Sessions that ended with an error and after which the transfer is tried again.";
    head(text, name, "counter", help);
    line(text, name, "", tally.retries.load(Ordering::Relaxed));
    let name = "dray_bytes_resent_total";
    let help = "Bytes of file contents that completed transfers sent more than once.";
    head(text, name, "counter", help);
    line(text, name, "", tally.bytes_resent.load(Ordering::Relaxed));
}

fn by_kind(text: &mut String, name: &str, help: &str, counts: &ByKind) {
    head(text, name, "counter", help);
    for (kind, count) in counts.iter() {
        line(text, name, &format!("kind=\"{}\"", kind_word(kind)), count);
    }
}

/// Adds the metrics of the sessions whose sink runs at this endpoint.
pub(super) fn push_sinks(text: &mut String, sinks: &SinkCounts) {
    let name = "dray_checksum_mismatches_total";
    let help = "Objects that arrived with bytes that differ from their checksums.";
    head(text, name, "counter", help);
    line(text, name, "", sinks.objects_corrupt);
    let name = "dray_log_commit_seconds";
    let help = "Duration of commits of object logs in seconds.";
    head(text, name, "summary", help);
    let seconds = sinks.log_time.as_secs_f64();
    line(text, &format!("{name}_sum"), "", seconds);
    line(text, &format!("{name}_count"), "", sinks.log_commits);
}

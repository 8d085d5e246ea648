//! The verdict of a run: which promises held.

#[cfg(test)]
mod tests;

use crate::plan::{Fault, Plan};
use dray_core::units;
use serde::Serialize;
use std::path::PathBuf;

/// Size of the buffers of a program of dray that has no option `--pool`.
const POOL_USUAL: u64 = 256 << 20;
/// Maximum number of bytes without a record in the object log (docs/design/failure-model.md). It is
/// four times as large for a store whose writes are durable, which no folder of a host is.
const SYNC_GROUP_BYTES: u64 = 64 << 20;
/// Bytes that a connection carries in addition to content: the handshake and control messages. The
/// value is estimated.
const OVERHEAD_BY_CONNECTION: u64 = 32 << 10;
/// Bytes that a connection carries for an entry in addition to content: names, attributes, answers.
/// The value is estimated.
const OVERHEAD_BY_ENTRY: u64 = 1 << 10;
/// Divisor of the bytes carried: frames and TLS records add less than a fiftieth. The value is
/// estimated.
const OVERHEAD_DIVISOR: u64 = 50;

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All faults were injected, and all promises held.
    Holds,
    /// A promise was broken.
    Broken,
    /// No promise was broken, but a fault was not injected, or the bytes that were sent again were
    /// not measured.
    Unproven,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Outcome.
    pub verdict: State,
    /// Seed of the faults.
    pub seed: u64,
    /// True if the copy succeeded within its attempts and within the timeout.
    pub finished: bool,
    /// True if the destination has the content of the source.
    pub identical: bool,
    /// The first differences between source and destination.
    pub differences: Vec<String>,
    /// True if no file under a final name was incomplete or wrong at any time, and no attempt
    /// reported a success while the trees differed.
    pub nothing_false: bool,
    /// The violations of `nothing_false`.
    pub violations: Vec<String>,
    /// Number of times that all files under final names were checked.
    pub looks: u64,
    /// Bytes that were sent more than once.
    pub sent_again: SentAgain,
    /// Files of dray that are left at the destination.
    pub leftovers: Vec<PathBuf>,
    /// Endpoints that ended by themselves.
    pub crashes: Vec<String>,
    /// The attempts.
    pub attempts: Vec<AttemptReport>,
    /// The faults.
    pub faults: Vec<FaultReport>,
    /// Duration of the run.
    pub seconds: f64,
}

/// Bytes that were sent more than once, and the bound.
#[derive(Debug, Clone, Serialize)]
pub struct SentAgain {
    /// Bytes that were sent more than once, with the overhead of the protocol. `None` if they were
    /// not measured.
    pub bytes: Option<u64>,
    /// Instrument: `proxy` or `reports`.
    pub measured_by: Option<&'static str>,
    /// Bytes that had to be sent once.
    pub bytes_to_send: u64,
    /// Number of injections that may each break a session.
    pub injections: u64,
    /// Largest pool of the programs.
    pub pool_bytes: u64,
    /// Number of writes that failed. The sink may drop all bytes of the file.
    pub failed_writes: u64,
    /// Size of the largest file of the source.
    pub largest_file_bytes: u64,
    /// Bound: the pool and a sync group for each injection, and the largest file for each failed
    /// write.
    pub bound_bytes: u64,
    /// Overhead of the protocol that is allowed in addition.
    pub overhead_bytes: u64,
    /// True if the bytes do not exceed the bound and the overhead. `None` if the bytes were not
    /// measured.
    pub within_bound: Option<bool>,
}

/// An attempt of the copy.
#[derive(Debug, Clone, Serialize)]
pub struct AttemptReport {
    /// Number, from 1.
    pub number: u32,
    /// Exit code; `None` if a signal ended the process.
    pub exit_code: Option<i32>,
    /// Signal that ended the process.
    pub signal: Option<i32>,
    /// State in the report of `dray cp`.
    pub state: Option<String>,
    /// Error in the report, or the last words of the process.
    pub error: Option<String>,
    /// Duration.
    pub seconds: f64,
    /// Bytes sent: of content by the report, or of all connections by the proxy.
    pub bytes_sent: Option<u64>,
    /// Durable bytes at the end, as far as the process has told them.
    pub bytes_durable: u64,
    /// Bytes sent that did not become durable, so a later attempt sends them again.
    pub bytes_lost: Option<u64>,
    /// Numbers of the injected faults, which are the reasons for `bytes_lost`.
    pub faults: Vec<u32>,
}

/// A fault of a run.
#[derive(Debug, Clone, Serialize)]
pub struct FaultReport {
    /// Number in the schedule.
    pub number: u32,
    /// Kind.
    pub kind: &'static str,
    /// Name of the program that gets the fault.
    pub target: String,
    /// Planned moment.
    pub at: String,
    /// Kind, details and target in words.
    pub words: String,
    /// Number of injections. Zero: the fault was not injected.
    pub injections: u32,
    /// Reason why the target could not get the fault, if the reason is known.
    pub refusal: Option<String>,
    /// Attempt in which the fault began.
    pub attempt: Option<u32>,
    /// Seconds from the start of the first attempt to the begin of the fault.
    pub seconds: Option<f64>,
}

/// The bytes that a run has measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Bytes that had to be sent once.
    pub(crate) to_send: u64,
    /// Bytes of all connections through the proxies, in the direction of the data.
    pub(crate) carried: u64,
    /// Sum of the reports; `None` if an attempt has no report.
    pub(crate) reported: Option<u64>,
    pub(crate) connections: u64,
    pub(crate) entries: u64,
    /// Size of the largest file of the source.
    pub(crate) largest_file: u64,
}

impl SentAgain {
    /// Compares the bytes with the bound.
    pub(crate) fn new(measured: &Measured, plan: &Plan, faults: &[(Fault, u32)]) -> Self {
        let Measured {
            to_send, carried, ..
        } = *measured;
        // If less than half of the content passed the proxies, the data took another way. Less
        // than the content may pass if an earlier copy has left partial files at the sink.
        let (bytes, measured_by) = match measured.reported {
            _ if carried >= to_send / 2 => (Some(carried.saturating_sub(to_send)), Some("proxy")),
            Some(sent) if sent >= to_send => (Some(sent - to_send), Some("reports")),
            _ => (None, None),
        };
        let injections = faults
            .iter()
            .map(|(fault, hits)| breaks(fault, *hits))
            .sum();
        let pool_bytes = pool_bytes(plan);
        let is_write = |fault: &Fault| matches!(fault, Fault::NoSpace(_) | Fault::IoError(_));
        let failed = faults.iter().filter(|(fault, _)| is_write(fault));
        let failed_writes = failed.map(|(_, hits)| u64::from(*hits)).sum::<u64>();
        let largest_file_bytes = measured.largest_file;
        let bound_bytes = (pool_bytes + SYNC_GROUP_BYTES)
            .saturating_mul(injections)
            .saturating_add(largest_file_bytes.saturating_mul(failed_writes));
        let overhead_bytes = carried / OVERHEAD_DIVISOR
            + measured.connections * OVERHEAD_BY_CONNECTION
            + measured.entries * OVERHEAD_BY_ENTRY;
        Self {
            bytes,
            measured_by,
            bytes_to_send: to_send,
            injections,
            pool_bytes,
            failed_writes,
            largest_file_bytes,
            bound_bytes,
            overhead_bytes,
            within_bound: bytes.map(|bytes| bytes <= bound_bytes.saturating_add(overhead_bytes)),
        }
    }
}

/// Returns the number of sessions that a fault may have broken.
fn breaks(fault: &Fault, hits: u32) -> u64 {
    match fault {
        // A delay breaks at most the sessions whose timeout it exceeds.
        Fault::Delay { .. } => u64::from(hits.min(1)),
        // The system may always write less than requested, so the session continues.
        Fault::ShortWrite(_) => 0,
        _ => u64::from(hits),
    }
}

/// Returns the largest `--pool` of the commands of a plan.
fn pool_bytes(plan: &Plan) -> u64 {
    let endpoints = plan.endpoints.iter().map(|endpoint| &endpoint.command);
    let pools = endpoints.chain([&plan.copy.command]).map(|command| {
        let after = command.iter().zip(command.iter().skip(1));
        let mut values = after
            .filter(|(word, _)| *word == "--pool")
            .map(|(_, value)| value.as_str())
            .chain(
                command
                    .iter()
                    .filter_map(|word| word.strip_prefix("--pool=")),
            );
        let value = values.next().and_then(|value| units::size(value).ok());
        value.unwrap_or(POOL_USUAL)
    });
    pools.max().unwrap_or(POOL_USUAL)
}

impl Verdict {
    /// Sets the outcome from the other fields.
    pub(crate) fn judged(mut self) -> Self {
        let holds = self.finished
            && self.identical
            && self.nothing_false
            && self.sent_again.within_bound != Some(false)
            && self.leftovers.is_empty()
            && self.crashes.is_empty();
        let is_proven = self.missed().next().is_none() && self.sent_again.within_bound.is_some();
        self.verdict = match (holds, is_proven) {
            (false, _) => State::Broken,
            (true, false) => State::Unproven,
            (true, true) => State::Holds,
        };
        self
    }

    /// Returns the faults that were not injected.
    pub fn missed(&self) -> impl Iterator<Item = &FaultReport> {
        self.faults.iter().filter(|fault| fault.injections == 0)
    }
}

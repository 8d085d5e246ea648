//! Counters of ended transfers, failures and repeated work since the process started.

use super::live::Counters;
use dray_api::State;
use dray_core::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter for each kind of error.
#[derive(Debug)]
pub struct ByKind([AtomicU64; ErrorKind::ALL.len()]);

impl Default for ByKind {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl ByKind {
    fn add(&self, kind: ErrorKind) {
        let mut all = ErrorKind::ALL.iter().zip(&self.0);
        if let Some((_, count)) = all.find(|(other, _)| **other == kind) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of each kind of error, also of the kinds with the count 0.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        ErrorKind::ALL.iter().copied().zip(counts)
    }
}

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sessions that ended with an error, by the kind of this error.
    pub sessions_failed: ByKind,
    /// Failed files, by the kind of their error. A file that fails in two sessions counts twice.
    pub files_failed: ByKind,
    /// Sessions that ended with an error and after which the transfer is tried again.
    pub retries: AtomicU64,
    /// Bytes of file contents that transfers have sent more than once. Counted when a transfer is
    /// done.
    pub bytes_resent: AtomicU64,
    ended: [AtomicU64; State::ALL.len()],
}

impl Tally {
    /// Returns the number of transfers that ended in each state.
    pub fn ended(&self) -> impl Iterator<Item = (State, u64)> + '_ {
        let counts = self.ended.iter().map(|count| count.load(Ordering::Relaxed));
        let all = State::ALL.into_iter().zip(counts);
        all.filter(|(state, _)| state.is_terminal())
    }

    pub(super) fn file_failed(&self, kind: ErrorKind) {
        self.files_failed.add(kind);
    }

    pub(super) fn transfer_ended(&self, state: State) {
        let mut all = State::ALL.iter().zip(&self.ended);
        if let Some((_, count)) = all.find(|(other, _)| **other == state) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the end of a session. `state` is the state of the transfer afterwards. `counters` are
    /// those of the attempt.
    pub(super) fn session_ended(
        &self,
        error: Option<ErrorKind>,
        state: State,
        counters: &Counters,
    ) {
        if let Some(kind) = error {
            self.sessions_failed.add(kind);
            let is_again = matches!(state, State::Waiting | State::Queued);
            self.retries
                .fetch_add(u64::from(is_again), Ordering::Relaxed);
        }
        if state == State::Done {
            self.bytes_resent
                .fetch_add(resent(counters), Ordering::Relaxed);
        }
    }
}

/// Returns the bytes that a complete attempt sent more than once
/// ([`dray_session::Found::after`]). Holes count as durable and not as sent, so a file with holes
/// can hide resent bytes.
const fn resent(counters: &Counters) -> u64 {
    let bytes = &counters.bytes;
    let there = bytes.sent.saturating_add(bytes.resumed);
    there
        .saturating_add(bytes.adopted)
        .saturating_sub(bytes.durable)
}

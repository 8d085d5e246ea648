//! The report of a run of the fluid model.

use super::TransferIndex;
use dray_core::Time;

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Records in the order of [`super::Load::transfers`].
    pub transfers: Vec<Record>,
    /// Uses in the order of [`super::Load::resources`].
    pub resources: Vec<Use>,
    /// End of the last transfer.
    pub ended: Time,
    /// Number of the conductor's calls.
    pub asked: usize,
    /// Seconds during which capacity was idle although a transfer could have used it, and bytes
    /// that the transfer with the largest unused rate could have moved meanwhile. Latencies of
    /// [`super::Switching`] do not count: ordered capacity is in use.
    pub idle_seconds: f64,
    /// See `idle_seconds`.
    pub idle_bytes: f64,
}

impl Report {
    /// Returns one transfer's record.
    #[must_use]
    pub fn of(&self, index: TransferIndex) -> &Record {
        &self.transfers[index.0]
    }
}

/// Record of one transfer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// Time of submission.
    pub arrived: Time,
    /// Time of its first rate.
    pub started: Option<Time>,
    /// Time of its last byte.
    pub finished: Option<Time>,
    /// True if it was refused.
    pub is_refused: bool,
    /// Number of times it was stopped before it was done.
    pub preemptions: usize,
    /// Its turns: the periods of movement without a break.
    pub turns: Vec<Turn>,
    /// Bytes moved at each change of its rate; linear between them.
    pub curve: Vec<(Time, f64)>,
}

impl Record {
    /// Returns the seconds from its submission to its end.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        let finished = self.finished?;
        Some(finished.since(self.arrived).as_secs_f64())
    }

    /// Returns the bytes moved at a time.
    #[must_use]
    pub fn bytes_at(&self, time: Time) -> f64 {
        let behind = self.curve.partition_point(|(at, _)| *at <= time);
        let Some(&(from, bytes)) = behind.checked_sub(1).and_then(|last| self.curve.get(last))
        else {
            return 0.0;
        };
        let Some(&(to, then)) = self.curve.get(behind) else {
            return bytes;
        };
        let part = time.since(from).as_secs_f64() / to.since(from).as_secs_f64();
        bytes + (then - bytes) * part
    }
}

/// The period from an order to the following stop, or to the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Time of its rate.
    pub from: Time,
    /// Time of its last byte.
    pub to: Time,
    /// Bytes moved.
    pub bytes: f64,
}

/// Use of a resource until the last transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Use {
    /// Bytes that it could have moved.
    pub offered_bytes: f64,
    /// Bytes moved.
    pub used_bytes: f64,
}

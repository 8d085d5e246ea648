//! The report of a run of the fluid model.

use super::TransferIndex;
use dray_core::Time;

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Records of the transfers, in the order of [`super::Load::transfers`].
    pub transfers: Vec<Record>,
    /// Use of the resources, in the order of [`super::Load::resources`].
    pub resources: Vec<Use>,
    /// Time at which the last transfer ended.
    pub ended: Time,
    /// Number of times that the conductor was called.
    pub asked: usize,
    /// Time in seconds in which capacity was idle although a transfer could have used it. Capacity
    /// that the conductor has ordered for a transfer counts as in use, even during the latencies of
    /// [`super::Switching`].
    pub idle_seconds: f64,
    /// Number of bytes that could have moved in `idle_seconds`. At each moment, only the transfer
    /// with the largest unused rate counts.
    pub idle_bytes: f64,
}

impl Report {
    /// Returns the record of one transfer.
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
    /// Time at which the transfer first got a rate.
    pub started: Option<Time>,
    /// Time at which the transfer's last byte moved.
    pub finished: Option<Time>,
    /// True if the transfer was refused.
    pub is_refused: bool,
    /// Number of times that the transfer was stopped before its end.
    pub preemptions: usize,
    /// Turns of the transfer: periods in which it moved without interruption.
    pub turns: Vec<Turn>,
    /// Number of bytes moved at each change of the rate. Between two points the number grows
    /// linearly.
    pub curve: Vec<(Time, f64)>,
}

impl Record {
    /// Returns the time from submission to end in seconds.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        let finished = self.finished?;
        Some(finished.since(self.arrived).as_secs_f64())
    }

    /// Returns the number of bytes moved at `time`.
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

/// The period from a start order to the next stop order, or to the end of the transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Time at which the rate was ordered.
    pub from: Time,
    /// Time at which the last byte of the turn moved.
    pub to: Time,
    /// Number of bytes moved in the turn.
    pub bytes: f64,
}

/// Use of a resource until the last transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Use {
    /// Number of bytes that the resource could have moved.
    pub offered_bytes: f64,
    /// Number of bytes that the resource moved.
    pub used_bytes: f64,
}

//! What a run of the fluid model was like.

use super::TransferIndex;
use dray_core::Time;

/// What became of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// In the order of [`super::Load::transfers`].
    pub transfers: Vec<Record>,
    /// In the order of [`super::Load::resources`].
    pub resources: Vec<Use>,
    /// When the last transfer ended.
    pub ended: Time,
    /// How often the conductor was asked.
    pub asked: usize,
    /// How long something was idle although somebody there could have used it, and how many bytes
    /// the one who lacked it most could have moved meanwhile. Latencies of [`super::Switching`] do
    /// not count: what was ordered is in use.
    pub idle_seconds: f64,
    /// See `idle_seconds`.
    pub idle_bytes: f64,
}

impl Report {
    /// One transfer's record.
    #[must_use]
    pub fn of(&self, index: TransferIndex) -> &Record {
        &self.transfers[index.0]
    }
}

/// One transfer's story.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// When it was submitted.
    pub arrived: Time,
    /// When it was first given a rate.
    pub started: Option<Time>,
    /// When its last byte was moved.
    pub finished: Option<Time>,
    /// Whether it was turned away.
    pub is_refused: bool,
    /// How often it was held before it was done.
    pub preemptions: usize,
    /// The times it moved without a break.
    pub turns: Vec<Turn>,
    /// Bytes moved until then, wherever its rate changed; straight lines between.
    pub curve: Vec<(Time, f64)>,
}

impl Record {
    /// Seconds from its submission to its end.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        let finished = self.finished?;
        Some(finished.since(self.arrived).as_secs_f64())
    }

    /// Bytes it had moved at a time.
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

/// From an order to the hold, or the end, that followed it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// When it was given a rate.
    pub from: Time,
    /// When it moved its last byte.
    pub to: Time,
    /// What it moved.
    pub bytes: f64,
}

/// How much of a resource was used until the last transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Use {
    /// What it could have moved.
    pub offered_bytes: f64,
    /// What it moved.
    pub used_bytes: f64,
}

//! The hash chain of an endpoint's receipts.
//!
//! Each receipt contains the id of the previous one. A checkpoint replaces the receipts that were
//! removed because of a limit: it is a signed line with the sequence number and the id of the last
//! removed receipt.

use crate::head::Head;
use crate::refused;
use dray_core::{ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Value of `typ` in the header of a checkpoint.
pub const CHECKPOINT_TYPE: &str = "dray-receipt-checkpoint+1";

const CUT: &str = "restore the receipts of the endpoint from a backup; the chain was changed or \
    receipts were removed";

/// The last receipt that was removed because of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Sequence number of the receipt.
    pub sequence: u64,
    /// Id of the receipt.
    pub id: String,
    /// Time at which the checkpoint was written.
    pub issued_at: String,
}

/// Verifies receipts in the order of their sequence numbers.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    checkpoint: Option<Checkpoint>,
    last: Option<(u64, String)>,
    count: u64,
}

impl Chain {
    /// Begins a chain. `checkpoint` is the verified checkpoint, if there is one.
    #[must_use]
    pub fn new(checkpoint: Option<Checkpoint>) -> Self {
        Self {
            checkpoint,
            ..Self::default()
        }
    }

    /// Begins a chain after a known receipt, so that the first added receipt must follow it.
    #[must_use]
    pub fn after(sequence: u64, id: String) -> Self {
        Self {
            last: Some((sequence, id)),
            ..Self::default()
        }
    }

    /// Adds the next receipt: its verified head, and its id.
    ///
    /// # Errors
    /// [`ErrorKind::ChecksumMismatch`] if the receipt does not follow the one that was added before.
    pub fn add(&mut self, head: &Head, id: &str) -> Result<()> {
        let broken = |cause: String| Err(refused(ErrorKind::ChecksumMismatch, cause, CUT));
        let sequence = head.sequence;
        let previous = head.previous.as_deref();
        match (&self.last, &self.checkpoint) {
            (Some((last, last_id)), _) => {
                if sequence != last.saturating_add(1) {
                    return broken(format!(
                        "the receipt {sequence} follows the receipt {last}; receipts between them \
                            are missing"
                    ));
                }
                if previous != Some(last_id) {
                    return broken(format!(
                        "the receipt {sequence} names another receipt {last} than the chain \
                            contains: {} instead of {last_id}",
                        previous.unwrap_or("none")
                    ));
                }
            }
            (None, None) => {
                if sequence != 1 || previous.is_some() {
                    return broken(format!(
                        "the chain begins with the receipt {sequence} and has no checkpoint; \
                            earlier receipts are missing"
                    ));
                }
            }
            (None, Some(point)) => {
                let next = point.sequence.saturating_add(1);
                if sequence > next {
                    return broken(format!(
                        "the checkpoint names the receipt {}, but the next receipt is {sequence}; \
                            receipts between them are missing",
                        point.sequence
                    ));
                }
                if sequence == next && previous != Some(point.id.as_str()) {
                    return broken(format!(
                        "the receipt {sequence} does not follow the receipt of the checkpoint"
                    ));
                }
            }
        }
        let point = self.checkpoint.as_ref();
        if point.is_some_and(|point| point.sequence == sequence && point.id != id) {
            return broken(format!(
                "the receipt {sequence} is not the receipt that the checkpoint names"
            ));
        }
        self.last = Some((sequence, id.to_owned()));
        self.count += 1;
        Ok(())
    }

    /// Returns the number of added receipts.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sequence number and the id of the last receipt, or of the checkpoint if no
    /// receipt was added.
    #[must_use]
    pub fn last(&self) -> Option<(u64, &str)> {
        let point = self.checkpoint.as_ref();
        let point = point.map(|point| (point.sequence, point.id.as_str()));
        let last = self.last.as_ref().map(|(at, id)| (*at, id.as_str()));
        last.or(point)
    }
}

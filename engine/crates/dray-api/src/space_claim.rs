//! The claim of a transfer or of a ticket on the space of a tier.

use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Claim of a transfer on the space of a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpaceClaimAnswer {
    /// Name of the tier.
    pub tier: String,
    /// Claimed bytes; null if the size is not known before the files are listed.
    pub bytes: Option<u64>,
    /// False while the transfer waits for space.
    pub admitted: bool,
    /// Reason for which the transfer waits.
    pub reason: Option<String>,
    /// Time at which the tier expects to have enough space; null if the time is unknown.
    pub free_at: Option<Timestamp>,
}

//! The claim of a transfer on the space of a tier.

use serde::{Deserialize, Serialize};

/// The claim of a transfer, as its row stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceClaim {
    /// Name of the tier.
    pub tier: String,
    /// API path of the destination in a fast root.
    pub to: String,
    /// Claimed bytes. `None` if the size is not known at the submission.
    pub bytes: Option<u64>,
    /// True after the tier has admitted the claim.
    pub is_admitted: bool,
}

//! Rates and classes.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BytesPerSecond(pub u64);

impl BytesPerSecond {
    /// Returns the time that `bytes` take at this rate, rounded up; `None` at rate zero.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Option<Duration> {
        if self.0 == 0 {
            return (bytes == 0).then_some(Duration::ZERO);
        }
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0));
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }
}

/// Class of service, from highest to lowest (BigData Express, section 3).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Gets the rate it needs immediately.
    Realtime,
    /// Gets the rate its deadline needs.
    Deadline,
    /// Gets the remaining rate.
    #[default]
    Background,
}

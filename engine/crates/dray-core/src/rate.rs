//! Rates and classes of service.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A rate in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BytesPerSecond(pub u64);

impl BytesPerSecond {
    /// Returns the time to move `bytes` at this rate, rounded up; `None` if the rate is zero.
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

/// Class of service, ordered from highest to lowest (BigData Express, section 3).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The transfer immediately gets the rate that it requested.
    Realtime,
    /// The transfer gets the rate that it needs to meet its deadline.
    Deadline,
    /// The transfer gets a share of the remaining rate.
    #[default]
    Background,
}

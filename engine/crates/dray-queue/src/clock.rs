//! The host's wall clock.

use dray_api::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the present time of the host's clock.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::from_ms(since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }))
}

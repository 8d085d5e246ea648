//! The host's wall clock.

use dray_api::Moment;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of the host's clock.
#[must_use]
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Moment::from_ms(since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }))
}

//! Decides when to repeat a request that a busy server refused (status 429 or 503).
//!
//! The pause is the server's `Retry-After` (RFC 9110, section 10.2.3). Without this header, the
//! pause doubles each time. During a pause, no thread of the same client sends requests to the
//! server.

use crate::url::Origin;
use dray_core::lock::LockExt;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// First pause without `Retry-After`. Each later pause is twice as long.
const FIRST: Duration = Duration::from_millis(500);

/// Maximum pause without `Retry-After`.
const LONGEST: Duration = Duration::from_secs(8);

/// Maximum number of pauses without `Retry-After` for one request.
const UNASKED_MAX: u32 = 5;

/// Maximum total pause of one request. If the server demands a longer pause, the request fails with
/// `Busy`.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns true if the status means that the same request may succeed later.
pub(crate) const fn is_busy(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Pauses that one request has made so far.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    waited: Duration,
    unasked: u32,
}

impl Patience {
    /// Returns the next pause after a busy answer; `None` if the request must not wait any longer.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Option<Duration> {
        let wait = match asked {
            Some(asked) => spread(asked.max(FIRST)),
            None if self.unasked == UNASKED_MAX => return None,
            None => {
                self.unasked += 1;
                let doubled = FIRST.saturating_mul(1 << (self.unasked - 1));
                spread(doubled.min(LONGEST))
            }
        };
        self.waited = self.waited.saturating_add(wait);
        (self.waited <= PATIENCE).then_some(wait)
    }
}

/// Makes a pause longer by up to a tenth at random, so that several threads do not repeat their
/// requests simultaneously.
fn spread(wait: Duration) -> Duration {
    let draw = RandomState::new().hash_one(0) >> 32;
    let part = u32::try_from(draw).unwrap_or_default();
    wait + wait.mul_f64(0.1 * f64::from(part) / f64::from(u32::MAX))
}

/// Parses the value of `Retry-After`: a number of seconds, or a time by the server's clock. `date`
/// is the value of the `Date` header, which shows the time of that clock.
pub(crate) fn read_retry_after(text: &str, date: Option<&str>) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let now = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    let now = now.unwrap_or_else(SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

/// The time at which the pause of each server ends.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<HashMap<String, Instant>>);

impl Pauses {
    /// Starts a pause for a server.
    pub(crate) fn begin(&self, server: &Origin, wait: Duration) {
        let Some(until) = Instant::now().checked_add(wait) else {
            return;
        };
        let mut pauses = self.0.lock_unpoisoned();
        let held = pauses.entry(server.to_string()).or_insert(until);
        *held = until.max(*held);
    }

    /// Waits until the pause for a server has ended.
    pub(crate) fn sit_out(&self, server: &Origin) {
        loop {
            let left = {
                let mut pauses = self.0.lock_unpoisoned();
                if pauses.is_empty() {
                    return;
                }
                let name = server.to_string();
                let left = pauses
                    .get(&name)
                    .map(|until| until.saturating_duration_since(Instant::now()));
                if left.is_none_or(|left| left.is_zero()) {
                    pauses.remove(&name);
                    return;
                }
                left.unwrap_or_default()
            };
            std::thread::sleep(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, PATIENCE, Patience, Pauses, UNASKED_MAX, read_retry_after};
    use crate::url::HttpUrl;
    use std::time::{Duration, Instant};

    #[test]
    fn retry_after_is_seconds_or_a_time_by_the_servers_clock() {
        let seconds = |text, date| read_retry_after(text, date).map(|wait| wait.as_secs());
        assert_eq!(seconds("7", None), Some(7));
        assert_eq!(seconds(" 0 ", None), Some(0));
        assert_eq!(seconds("99999999999999999999999", None), Some(u64::MAX));
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        for time in [
            "Sun, 06 Nov 1994 08:49:47 GMT",
            "Sunday, 06-Nov-94 08:49:47 GMT",
            "Sun Nov  6 08:49:47 1994",
        ] {
            assert_eq!(seconds(time, date), Some(10), "{time}");
        }
        // The time is in the past, by the clock of the server or by the clock of this host.
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:27 GMT", date), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:27 GMT", None), Some(0));
        for wrong in ["", "-1", "1.5", "soon", "+3"] {
            assert_eq!(seconds(wrong, date), None, "{wrong}");
        }
    }

    #[test]
    fn patience_ends() {
        let mut patience = Patience::default();
        let mut before = Duration::ZERO;
        for _ in 0..UNASKED_MAX {
            let wait = patience.next(None).expect("patient");
            assert!(wait > before && wait <= LONGEST.mul_f64(1.1));
            before = wait;
        }
        assert_eq!(patience.next(None), None);
        let mut patience = Patience::default();
        let twice = PATIENCE / 2;
        assert!(patience.next(Some(twice.mul_f64(0.8))).is_some());
        assert_eq!(patience.next(Some(twice.mul_f64(1.3))), None);
        assert_eq!(Patience::default().next(Some(Duration::MAX / 2)), None);
    }

    #[test]
    fn all_who_ask_a_server_wait_for_it() {
        let server = |text: &str| HttpUrl::read(text.as_bytes()).expect("good").expect("web");
        let pauses = Pauses::default();
        let busy = server("http://a/").origin;
        let since = Instant::now();
        pauses.begin(&busy, Duration::from_millis(100));
        pauses.begin(&busy, Duration::from_millis(10));
        pauses.sit_out(&server("http://b/").origin);
        assert!(since.elapsed() < Duration::from_millis(90));
        pauses.sit_out(&busy);
        assert!(since.elapsed() >= Duration::from_millis(100));
        pauses.sit_out(&busy);
    }
}

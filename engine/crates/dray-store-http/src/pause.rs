//! Decides when to repeat a request that a server refused for now (429, 503).
//!
//! The server's `Retry-After` is honoured (RFC 9110, section 10.2.3). Without one, pauses double.
//! While the pause of any reader lasts, no reader of the same client sends requests to that server.

use crate::url::Origin;
use dray_core::lock::LockExt;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// The first pause without `Retry-After`; later pauses double.
const FIRST: Duration = Duration::from_millis(500);

/// The longest pause without `Retry-After`.
const LONGEST: Duration = Duration::from_secs(8);

/// Maximum number of pauses without `Retry-After` for one request.
const UNASKED_MAX: u32 = 5;

/// Maximum total pause of one request. If a server asks for more, the error is `Busy`, and the
/// caller decides.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns true if the status means that the same request may succeed later.
pub(crate) const fn is_busy(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// The pauses of one request.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    waited: Duration,
    unasked: u32,
}

impl Patience {
    /// Returns the wait after one more busy answer; `None` once patience is used up.
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

/// Returns a wait up to a tenth longer, so that readers do not repeat their requests
/// simultaneously.
fn spread(wait: Duration) -> Duration {
    let draw = RandomState::new().hash_one(0) >> 32;
    let part = u32::try_from(draw).unwrap_or_default();
    wait + wait.mul_f64(0.1 * f64::from(part) / f64::from(u32::MAX))
}

/// Parses `Retry-After`: seconds, or a time by the server's own clock (its `Date`).
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

/// The end of each server's pause.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<HashMap<String, Instant>>);

impl Pauses {
    /// Begins a pause of a server.
    pub(crate) fn begin(&self, server: &Origin, wait: Duration) {
        let Some(until) = Instant::now().checked_add(wait) else {
            return;
        };
        let mut pauses = self.0.lock_unpoisoned();
        let held = pauses.entry(server.to_string()).or_insert(until);
        *held = until.max(*held);
    }

    /// Waits until the pause of a server is over.
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
        // The time is already past, by the server's clock or by ours.
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

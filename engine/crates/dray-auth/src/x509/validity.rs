//! The time in which a certificate or a revocation list is valid.

use super::parse;
use crate::escape::seconds;
use dray_core::Result;

/// Maximum number of seconds before the expiry at which warnings begin: 14 days. The usual programs
/// renew a certificate 30 days before its expiry, so the renewal has then failed more than once.
const WARN_BEFORE_MAX: u64 = 14 * 86_400;

/// For a lifetime that is short, warnings begin in the last third. Programs renew certificates of
/// 90 days, and lists of 30 days, in the last third of their lifetime at the latest.
const WARN_PART: u64 = 3;

/// The time in which a certificate or a revocation list is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First valid second, in seconds since 1970.
    pub not_before: u64,
    /// Last valid second, in seconds since 1970.
    pub not_after: u64,
}

impl Validity {
    /// Returns the reason, if this time does not include `now`, in seconds since 1970: `expired 3
    /// days ago` or `becomes valid in 3 days`.
    #[must_use]
    pub fn problem(self, now: u64) -> Option<String> {
        if now > self.not_after {
            return Some(format!("expired {} ago", seconds(now - self.not_after)));
        }
        let is_early = now < self.not_before;
        is_early.then(|| format!("becomes valid in {}", seconds(self.not_before - now)))
    }

    /// Returns a warning if this time has ended or ends soon: `expired 3 days ago` or `expires in 3
    /// days`. Warnings begin 14 days before the end, or in the last third if that is later.
    #[must_use]
    pub fn warning(self, now: u64) -> Option<String> {
        let part = self.not_after.saturating_sub(self.not_before) / WARN_PART;
        let left = self.not_after.saturating_sub(now);
        self.problem(now).or_else(|| {
            (left <= part.min(WARN_BEFORE_MAX)).then(|| format!("expires in {}", seconds(left)))
        })
    }

    /// Returns the time until the expiry for people, such as `3 days`.
    #[must_use]
    pub fn left(self, now: u64) -> String {
        seconds(self.not_after.saturating_sub(now))
    }
}

/// Returns the validity of a certificate in DER (RFC 5280, 4.1.2.5). Does not check the certificate.
///
/// # Errors
/// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) if the bytes are not a certificate.
pub fn validity(certificate: &[u8]) -> Result<Validity> {
    let (not_before, not_after) = parse(certificate)?.validity();
    Ok(Validity {
        not_before,
        not_after,
    })
}

#[cfg(test)]
mod tests {
    use super::Validity;

    const DAY: u64 = 86_400;

    #[test]
    fn the_reason_names_the_time_outside_the_validity() {
        let validity = Validity {
            not_before: 1_000,
            not_after: 1_000 + 90 * DAY,
        };
        assert_eq!(validity.problem(1_000), None);
        assert_eq!(validity.problem(validity.not_after), None);
        let late = validity.problem(validity.not_after + 3 * DAY);
        assert_eq!(late.as_deref(), Some("expired 3 days ago"));
        assert_eq!(validity.warning(validity.not_after + 3 * DAY), late);
        let early = validity.problem(999);
        assert_eq!(early.as_deref(), Some("becomes valid in 1 second"));
    }

    #[test]
    fn warnings_begin_14_days_before_the_end_or_in_the_last_third() {
        for (days, first) in [(6, 4), (90, 76), (395, 381)] {
            let validity = Validity {
                not_before: 0,
                not_after: days * DAY,
            };
            assert_eq!(validity.warning(first * DAY - 1), None, "{days}");
            let warning = validity.warning(first * DAY).expect("a warning");
            assert_eq!(
                warning,
                format!("expires in {}", validity.left(first * DAY))
            );
        }
    }
}

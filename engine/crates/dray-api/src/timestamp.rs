//! Wall time in the form of the API: milliseconds since 1970, written as RFC 3339 in UTC.

use dray_core::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;

/// 0000-01-01 and 9999-12-31: the range of a year of four digits.
const MS_MIN: i64 = -62_167_219_200_000;
const MS_MAX: i64 = 253_402_300_799_999;

/// A point in time, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the time `ms` milliseconds after the start of 1970, clamped to the years 0 to 9999.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        let ms = if ms < MS_MIN { MS_MIN } else { ms };
        Self(if ms > MS_MAX { MS_MAX } else { ms })
    }

    /// Returns the milliseconds since the start of 1970.
    #[must_use]
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// Returns the time that is `length` later.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        let ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// Returns the time that is `length` earlier.
    #[must_use]
    pub fn before(self, length: Duration) -> Self {
        let ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self::from_ms(self.0.saturating_sub(ms))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later than this time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses RFC 3339: `2026-11-21T17:00:00Z`, with any fraction and any offset.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < 20 || !text.is_ascii() {
            return None;
        }
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = &bytes[from..to];
            let all = digits.iter().all(u8::is_ascii_digit);
            all.then(|| digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
        };
        let is_shaped = bytes[4] == b'-'
            && bytes[7] == b'-'
            && matches!(bytes[10], b'T' | b't' | b' ')
            && bytes[13] == b':'
            && bytes[16] == b':';
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        // A leap second counts as the first second of the next minute.
        if !is_shaped || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = days_from_civil(year, month, day)?;
        let mut at = 19;
        let mut ms = 0;
        if bytes[at] == b'.' {
            let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit());
            let count = digits.count();
            let kept = count.min(3);
            ms = number(at + 1, at + 1 + kept)? * [0, 100, 10, 1][kept];
            if count == 0 {
                return None;
            }
            at += 1 + count;
        }
        let offset = match bytes.get(at)? {
            b'Z' | b'z' if bytes.len() == at + 1 => 0,
            sign @ (b'+' | b'-') if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
                let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let length = (hours * 60 + minutes) * 60_000;
                if *sign == b'+' { length } else { -length }
            }
            _ => return None,
        };
        let time = ((hour * 60 + minute) * 60 + second) * 1000 + ms;
        let whole = days * DAY_MS + time - offset;
        (MS_MIN..=MS_MAX).contains(&whole).then_some(Self(whole))
    }
}

/// Returns the days since 1970 of a date of the Gregorian calendar; `None` for a date that does not
/// exist. (Howard Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`.)
fn days_from_civil(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Returns the date of a day since 1970 (`civil_from_days` of the same source).
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// Converts a timestamp to the time of the pure decisions.
#[must_use]
pub fn time(moment: Timestamp) -> Time {
    let ms = u64::try_from(moment.as_ms()).unwrap_or(0);
    Time::ZERO + Duration::from_millis(ms)
}

/// Converts a time of the pure decisions to a timestamp, rounded up.
#[must_use]
pub fn of_time(time: Time) -> Timestamp {
    let ms = time.as_nanos().div_ceil(1_000_000);
    Timestamp::from_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(DAY_MS));
        let ms = self.0.rem_euclid(DAY_MS);
        let (seconds, ms) = (ms / 1000, ms % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom("no time: write it as 2026-11-21T17:00:00Z (RFC 3339)")
        })
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("RFC 3339"))
            .into()
    }
}

impl utoipa::ToSchema for Timestamp {
    // Name of the schema in the OpenAPI document.
    fn name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn what_is_written_is_read(ms in super::MS_MIN..=super::MS_MAX) {
            let moment = Timestamp::from_ms(ms);
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        }

        #[test]
        fn no_text_is_a_panic(text in "[0-9TZ:.+ -]{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }

    #[test]
    fn known_moments() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2026-11-21T17:00:00.000Z", 1_795_280_400_000),
            ("2000-02-29T23:59:59.999Z", 951_868_799_999),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(
                Timestamp::parse(text),
                Some(Timestamp::from_ms(ms)),
                "{text}"
            );
            assert_eq!(Timestamp::from_ms(ms).to_string(), text);
        }
        let zone = Timestamp::parse("2026-11-21T18:30:00.5+01:30");
        assert_eq!(zone.map(Timestamp::as_ms), Some(1_795_280_400_500));
        for bad in [
            "",
            "2026-11-21",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1",
            "2026-01-01T00:00:00Zé",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn time_does_not_run_past_its_ends() {
        let end = Timestamp::from_ms(i64::MAX);
        assert_eq!(end.after(Duration::MAX), end);
        assert_eq!(end.since(end.after(Duration::from_secs(1))), Duration::ZERO);
    }
}

//! Wall time of the API: milliseconds since 1970, written as RFC 3339 in UTC.

use dray_core::Time;
use dray_core::utc::{self, MS_MAX, MS_MIN};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

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

    /// Returns the duration from `earlier` to this time; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses RFC 3339, such as `2026-11-21T17:00:00Z`, with any fraction and any offset.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        utc::parse(text).map(Self)
    }
}

/// Converts a timestamp to a [`Time`] of the scheduling decisions.
#[must_use]
pub fn time(moment: Timestamp) -> Time {
    let ms = u64::try_from(moment.as_ms()).unwrap_or(0);
    Time::ZERO + Duration::from_millis(ms)
}

/// Converts a [`Time`] of the scheduling decisions to a timestamp, rounded up.
#[must_use]
pub fn of_time(time: Time) -> Timestamp {
    let ms = time.as_nanos().div_ceil(1_000_000);
    Timestamp::from_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        utc::write(self.0, f)
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
            serde::de::Error::custom(
                "not a valid time: write the time as 2026-11-21T17:00:00Z \
                (RFC 3339)",
            )
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
    // Sets the name of the schema in the OpenAPI document.
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
        fn written_timestamps_are_parsed_back(ms in super::MS_MIN..=super::MS_MAX) {
            let moment = Timestamp::from_ms(ms);
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        }

        #[test]
        fn parsing_never_panics(text in "[0-9TZ:.+ -]{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }

    #[test]
    fn known_dates_convert_both_ways() {
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
    fn times_are_clamped_to_the_valid_years() {
        let end = Timestamp::from_ms(i64::MAX);
        assert_eq!(end.after(Duration::MAX), end);
        assert_eq!(end.since(end.after(Duration::from_secs(1))), Duration::ZERO);
    }
}

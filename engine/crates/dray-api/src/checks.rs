//! Checks that the fields of a request are within their bounds.

use dray_core::{End, Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Maximum size of a ticket, a key, an address or an activity in bytes.
pub(crate) const WORD_BYTES_MAX: usize = 256;

/// Maximum of a size in bytes, and of a promised rate in bytes per second. The queue stores sizes
/// and rates as signed 64-bit numbers.
pub(crate) const BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// Maximum of any duration in a request in seconds: ten years.
pub(crate) const SECONDS_MAX: u64 = 10 * 366 * 24 * 3_600;

/// Maximum number of labels of one transfer.
const LABELS_MAX: usize = 32;
const LABEL_KEY_BYTES_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 256;

/// A request that can check its own bounds.
pub trait Check {
    /// Checks that every field is within its bounds.
    ///
    /// # Errors
    /// `InvalidRequest` or `LimitExceeded`; the cause names the field.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the id of the transfer that the request concerns, for the audit log.
    fn transfer(&self) -> Option<&str> {
        None
    }

    /// Returns the paths and names that the request concerns, for the audit log. They contain no
    /// secrets.
    fn about(&self) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) fn refused(field: &str, cause: impl Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
        .cause(format!("{field}: {cause}"))
        .remedy("see GET /v1/openapi.json for the allowed values of each field")
}

/// Maximum number of characters of the JSON reader's message in an error.
const WORDS_MAX: usize = 500;

/// Returns the error about a malformed part of a request.
pub(crate) fn unreadable(cause: impl Display) -> Error {
    let cause: String = cause.to_string().chars().take(WORDS_MAX).collect();
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
        .cause(cause)
        .remedy("see GET /v1/openapi.json for the allowed values of each field")
}

/// Adds the position of a request in its batch to the request's error.
#[must_use]
pub fn of_item(at: usize, mut error: Error) -> Error {
    error.cause = format!("transfers[{at}]: {}", error.cause);
    error
}

pub(crate) fn within<T: PartialOrd + Display>(
    field: &str,
    value: T,
    bounds: &RangeInclusive<T>,
) -> Result<()> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let (low, high) = (bounds.start(), bounds.end());
    Err(refused(
        field,
        format!("{value} is not within {low} to {high}"),
    ))
}

pub(crate) fn within_if<T: PartialOrd + Display + Copy>(
    field: &str,
    value: Option<T>,
    bounds: &RangeInclusive<T>,
) -> Result<()> {
    value.map_or(Ok(()), |value| within(field, value, bounds))
}

/// Checks that a text has at most `bytes_max` bytes and no control characters.
pub(crate) fn text(field: &str, value: &str, bytes_max: usize) -> Result<()> {
    if value.len() > bytes_max {
        let cause = format!(
            "the value has {} bytes; at most {bytes_max} bytes are allowed",
            value.len()
        );
        return Err(refused(field, cause));
    }
    if value.chars().any(char::is_control) {
        return Err(refused(field, "the value contains a control character"));
    }
    Ok(())
}

pub(crate) fn count(field: &str, count: usize, bounds: &RangeInclusive<usize>) -> Result<()> {
    if bounds.contains(&count) {
        return Ok(());
    }
    let (low, high) = (bounds.start(), bounds.end());
    Err(refused(
        field,
        format!("the list has {count} items; {low} to {high} items are allowed"),
    ))
}

/// Checks that a page or a batch has 1 to [`crate::PAGE_MAX`] items. A larger number is the error
/// `LimitExceeded`.
pub(crate) fn page(field: &str, count: u64) -> Result<()> {
    let most = u64::from(crate::PAGE_MAX);
    match count {
        0 => Err(refused(field, "the value must be at least 1")),
        count if count > most => Err(Error::new(
            ErrorKind::LimitExceeded,
            End::Here,
            "read the request",
        )
        .cause(format!(
            "{field} is {count}, but at most {most} items are allowed"
        ))
        .remedy(
            "request fewer items per page, and request the next page with the cursor of the answer",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn labels(labels: &BTreeMap<String, String>) -> Result<()> {
    count("labels", labels.len(), &(0..=LABELS_MAX))?;
    for (key, value) in labels {
        text("labels", key, LABEL_KEY_BYTES_MAX)?;
        text("labels", value, LABEL_BYTES_MAX)?;
        if key.is_empty() || key.contains(':') {
            return Err(refused(
                "labels",
                format!("{key:?} is not a valid key: a key is not empty and has no colon"),
            ));
        }
    }
    Ok(())
}

/// Checks that the minimum rate does not exceed the rate limit.
pub(crate) fn rates(low: Option<u64>, high: Option<u64>) -> Result<()> {
    within_if("rate_min", low, &(1..=BYTES_MAX))?;
    within_if("rate_max", high, &(1..=u64::MAX))?;
    match (low, high) {
        (Some(low), Some(high)) if low > high => {
            Err(refused("rate_min", "rate_min is greater than rate_max"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn seconds(field: &str, seconds: Option<u64>) -> Result<()> {
    within_if(field, seconds, &(1..=SECONDS_MAX))
}

/// Reads an optional field for which `null` has another meaning than absence.
pub(crate) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

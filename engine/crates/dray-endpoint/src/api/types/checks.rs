//! Bounds that hold when a request is read.

use dray_core::{End, Error, ErrorKind, Result};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A request that can say whether it keeps its bounds.
pub trait Check {
    /// Says what is out of bounds.
    ///
    /// # Errors
    /// `InvalidRequest` and the like, naming the field.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The transfer that it is about, for the audit log.
    fn transfer(&self) -> Option<&str> {
        None
    }

    /// Paths and names that it is about, for the audit log: no secrets.
    fn about(&self) -> Vec<String> {
        Vec::new()
    }
}

pub(super) fn refused(field: &str, cause: impl Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
        .cause(format!("{field}: {cause}"))
        .remedy("see GET /v1/openapi.json for what each field may hold")
}

/// A number within its bounds.
pub(super) fn within<T: PartialOrd + Display>(
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

/// A number within its bounds, if it is given.
pub(super) fn within_if<T: PartialOrd + Display + Copy>(
    field: &str,
    value: Option<T>,
    bounds: &RangeInclusive<T>,
) -> Result<()> {
    value.map_or(Ok(()), |value| within(field, value, bounds))
}

/// A text of at most so many bytes, without control characters.
pub(super) fn text(field: &str, value: &str, bytes_max: usize) -> Result<()> {
    if value.len() > bytes_max {
        let cause = format!("{} bytes; {bytes_max} are allowed", value.len());
        return Err(refused(field, cause));
    }
    if value.chars().any(char::is_control) {
        return Err(refused(field, "a control character"));
    }
    Ok(())
}

/// At most so many items.
pub(super) fn count(field: &str, count: usize, bounds: &RangeInclusive<usize>) -> Result<()> {
    if bounds.contains(&count) {
        return Ok(());
    }
    let (low, high) = (bounds.start(), bounds.end());
    Err(refused(
        field,
        format!("{count} items; {low} to {high} are allowed"),
    ))
}

/// Items of a page, or of a batch: more than the limit is its own kind.
pub(super) fn page(field: &str, count: u64) -> Result<()> {
    let most = u64::from(super::PAGE_MAX);
    match count {
        0 => Err(refused(field, "1 at least")),
        count if count > most => {
            Err(
                Error::new(ErrorKind::LimitExceeded, End::Here, "read the request")
                    .cause(format!("{field}: {count}; {most} at the most"))
                    .remedy("ask for fewer, and go on with the cursor"),
            )
        }
        _ => Ok(()),
    }
}

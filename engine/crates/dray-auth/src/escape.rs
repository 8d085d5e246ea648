//! Helpers for the messages of refused credentials. External text in a message is escaped and
//! truncated.

use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind};

/// Maximum number of characters of external text in a message.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Returns external text in a form that is safe in a message: without control characters, and of
/// limited length.
pub(crate) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    escape(cut.as_bytes())
}

/// Formats a duration for people.
pub(crate) fn seconds(count: u64) -> String {
    match count {
        1 => "1 second".to_owned(),
        0..=7_199 => format!("{count} seconds"),
        7_200..=172_799 => format!("{} hours", count / 3_600),
        _ => format!("{} days", count / 86_400),
    }
}

/// Returns the error about a refused credential.
pub(crate) fn unauthorized(operation: &str, cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::Unauthorized, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

/// Returns the error about an invalid configuration.
pub(crate) fn misconfigured(operation: &str, cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

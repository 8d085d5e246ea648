//! Words for refusals: what a stranger wrote is shown escaped and cut.

use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind};

/// Characters of a stranger's text that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Text from outside as it may stand in a message: no control characters, not too long.
pub(crate) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    escape(cut.as_bytes())
}

/// A length of time in plain words.
pub(crate) fn seconds(count: u64) -> String {
    match count {
        1 => "1 second".to_owned(),
        0..=7_199 => format!("{count} seconds"),
        7_200..=172_799 => format!("{} hours", count / 3_600),
        _ => format!("{} days", count / 86_400),
    }
}

/// A refusal of a credential.
pub(crate) fn unauthorized(operation: &str, cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::Unauthorized, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

/// A fault of what an administrator configured.
pub(crate) fn misconfigured(operation: &str, cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}

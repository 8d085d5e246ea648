//! Errors in the form of the API.

use crate::admission::Admitted;
use crate::api_path;
use dray_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error and its parts, as in the Python exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorParts {
    /// Kind of the error: `not_found`, `permission_denied`, ...
    pub kind: String,
    /// `permanent`, `temporary` (a retry can succeed) or `exhausted` (all retries failed).
    pub status: String,
    /// Component that failed: `source`, `sink`, `network` or `here`.
    pub end: String,
    /// Operation that failed.
    pub operation: String,
    /// Path of the file concerned.
    pub file: Option<String>,
    /// Cause of the error.
    pub cause: String,
    /// Remedy for the user.
    pub remedy: String,
    /// All parts in one line.
    pub message: String,
    /// For the kind `not_admitted`: promise that the endpoint could make instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Box<Admitted>>,
}

/// Returns the word for a kind of error in the API, for example `not_found`.
#[must_use]
pub fn kind_word(kind: ErrorKind) -> String {
    word(&kind)
}

fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "other".to_owned(),
    }
}

/// Replaces a remedy for the command line by the remedy for callers of the API.
fn remedy_for_callers(text: &str) -> String {
    text.replace(
        "run the same command again",
        "submit the same transfer again",
    )
}

impl From<&Error> for ErrorParts {
    fn from(error: &Error) -> Self {
        Self {
            kind: word(&error.kind),
            status: word(&error.status),
            end: word(&error.end),
            operation: error.operation.clone(),
            file: error
                .file
                .as_ref()
                .map(|file| api_path::encode(file.as_bytes())),
            cause: error.cause.clone(),
            remedy: remedy_for_callers(&error.remedy),
            message: remedy_for_callers(&error.to_string()),
            admission: None,
        }
    }
}

/// Body of every error answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorAnswer {
    /// The error.
    pub error: ErrorParts,
}

/// A file that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathError {
    /// Path relative to the transfer's root.
    pub path: String,
    /// Error of the file.
    pub error: ErrorParts,
}

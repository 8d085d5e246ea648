//! Errors as callers see them.

use crate::admission::Admitted;
use crate::api_path;
use dray_core::Error;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error and its parts, as in the Python exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorParts {
    /// What: `not_found`, `permission_denied`, ...
    pub kind: String,
    /// Whether trying again can help: `permanent`, `temporary`, `exhausted`.
    pub status: String,
    /// Where: `source`, `sink`, `network`, `here`.
    pub end: String,
    /// While doing what.
    pub operation: String,
    /// Which file.
    pub file: Option<String>,
    /// Why.
    pub cause: String,
    /// What to do.
    pub remedy: String,
    /// All of it in one line.
    pub message: String,
    /// Of `not_admitted`: what could be promised instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Box<Admitted>>,
}

fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "other".to_owned(),
    }
}

/// Rewords the command line's remedies for callers of the API.
fn to_callers(text: &str) -> String {
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
            remedy: to_callers(&error.remedy),
            message: to_callers(&error.to_string()),
            admission: None,
        }
    }
}

/// Every refusal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorAnswer {
    /// The error.
    pub error: ErrorParts,
}

/// A file that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathError {
    /// Relative to the transfer's root.
    pub path: String,
    /// Why.
    pub error: ErrorParts,
}

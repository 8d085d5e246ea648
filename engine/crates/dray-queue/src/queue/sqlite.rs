//! Conversion of database errors and of JSON columns, for all modules of the queue.

use dray_core::{End, Error, ErrorKind, Result};
use serde::Serialize;

/// Returns a function that converts an error of the database during `operation`.
pub(super) fn sql(operation: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    move |error| {
        use rusqlite::ErrorCode as Code;
        let kind = match error.sqlite_error_code() {
            Some(Code::DiskFull) => ErrorKind::NoSpace,
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => ErrorKind::Busy,
            Some(Code::ReadOnly) => ErrorKind::ReadOnly,
            Some(Code::PermissionDenied) => ErrorKind::PermissionDenied,
            Some(Code::ConstraintViolation) | None => ErrorKind::Internal,
            _ => ErrorKind::Io,
        };
        Error::new(kind, End::Here, operation)
            .cause(format!("the queue's database: {error}"))
            .remedy("check the endpoint's state folder")
    }
}

/// Returns a value as JSON for a column.
pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "write to the queue").cause(error.to_string())
    })
}

//! The one map from the engine's errors to the package's exceptions.
//!
//! The classes are in `dray/errors.py`; which of them an error becomes, and the words for its
//! fields, are decided here and nowhere else.

use crate::enums::{file_name, word};
use dray_core::{End, Error, ErrorKind, Status};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception that says what `error` says.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(value) => PyErr::from_value(value),
        // The package itself is broken: that is what the caller must hear.
        Err(broken) => broken,
    }
}

/// The exception as an object, for results that hold errors instead of raising them.
pub(crate) fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("kind", word(&error.kind))?;
    fields.set_item("status", word(&error.status))?;
    fields.set_item("end", word(&error.end))?;
    fields.set_item("operation", &error.operation)?;
    fields.set_item("file", error.file.as_ref().map(file_name))?;
    fields.set_item("cause", &error.cause)?;
    fields.set_item("remedy", &error.remedy)?;
    let class = py.import("dray.errors")?.getattr(class_of(error))?;
    class.call((error.to_string(),), Some(&fields))
}

/// Which class: what the caller wrote wrongly is usage, for the rest the status decides.
fn class_of(error: &Error) -> &'static str {
    match (error.end, error.kind, error.status) {
        (
            End::Here,
            ErrorKind::InvalidRequest | ErrorKind::InvalidName | ErrorKind::PathEscapes,
            _,
        ) => "DrayUsageError",
        (_, _, Status::Permanent) => "DrayPermanentError",
        // What is used up is this run's tries; a later run has its own.
        (_, _, Status::Temporary | Status::Exhausted) => "DrayTemporaryError",
    }
}

/// An argument that makes no sense.
pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "do as told")
        .cause(cause)
        .remedy(remedy)
}

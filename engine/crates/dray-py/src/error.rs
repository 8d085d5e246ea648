//! Converts the errors of the engine to exceptions of the Python package. No other module does
//! this.
//!
//! The exception classes are in `dray/errors.py`. This module selects the class of an error and
//! writes the text of its fields.

use crate::values::{file_name, word};
use dray_core::{End, Error, ErrorKind, Status};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the exception for `error`.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(value) => PyErr::from_value(value),
        // The package is broken, because the exception could not be created. The caller gets the
        // error of the creation.
        Err(broken) => broken,
    }
}

/// Returns the exception for `error` as an object, for results that contain errors.
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

/// Returns the name of the exception class. Invalid arguments give the usage error. The class of
/// all other errors depends on their status.
fn class_of(error: &Error) -> &'static str {
    match (error.end, error.kind, error.status) {
        (
            End::Here,
            ErrorKind::InvalidRequest | ErrorKind::InvalidName | ErrorKind::PathEscapes,
            _,
        ) => "DrayUsageError",
        (_, _, Status::Permanent) => "DrayPermanentError",
        // `Exhausted` counts as temporary, because only the tries of this run are exhausted. A
        // later run may succeed.
        (_, _, Status::Temporary | Status::Exhausted) => "DrayTemporaryError",
    }
}

/// Returns the error for an invalid argument.
pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(remedy)
}

//! The only map from the engine's errors to the package's exceptions.
//!
//! The classes are in `dray/errors.py`; only this module selects the class of an error and the text
//! of its fields.

use crate::values::{file_name, word};
use dray_core::{End, Error, ErrorKind, Status};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the exception for `error`.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(value) => PyErr::from_value(value),
        // The package itself is broken, and the caller must get that error.
        Err(broken) => broken,
    }
}

/// Returns the exception as an object, for results that contain errors instead of raising them.
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

/// Returns the class: wrong arguments give the usage error, otherwise the status decides.
fn class_of(error: &Error) -> &'static str {
    match (error.end, error.kind, error.status) {
        (
            End::Here,
            ErrorKind::InvalidRequest | ErrorKind::InvalidName | ErrorKind::PathEscapes,
            _,
        ) => "DrayUsageError",
        (_, _, Status::Permanent) => "DrayPermanentError",
        // Only this run's tries are exhausted; a later run has its own.
        (_, _, Status::Temporary | Status::Exhausted) => "DrayTemporaryError",
    }
}

/// Returns the error for an invalid argument.
pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(remedy)
}

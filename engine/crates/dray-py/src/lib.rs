//! The native half of the Python package `dray`: converts values between Python and the engine.
//!
//! Goals: one thin function per Python operation, the interpreter lock released during long work,
//! every error converted to an exception of the package. Non-goals: decisions, defaults, own I/O.
//! These belong to the engine's crates, so that Python, C and the command line behave alike.
//!
//! Import this module through the package (`import dray`), never as `dray._native`.

mod copy;
mod enums;
mod error;
mod log;
mod values;
mod watch;

use pyo3::prelude::*;

/// Native half of the package `dray`. Private: its names may change in any release.
#[pymodule]
mod _native {
    use crate::copy::{Asked, Report};
    use crate::log::LogWords;
    use crate::values::{Pair, from_pair, to_pair, word};
    use dray_core::{ErrorKind, Sums};
    use pyo3::prelude::*;
    use pyo3::pybacked::PyBackedBytes;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Return the version of the engine this module was built from.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Return the words for all kinds of errors.
    #[pyfunction]
    fn error_kinds() -> Vec<String> {
        ErrorKind::ALL.iter().map(word).collect()
    }

    /// Return crc32c and adler32 of the bytes. Does not copy the bytes, and lets other threads run.
    // Does not use the buffer protocol, which the stable ABI has only since Python 3.11.
    #[pyfunction]
    fn checksum(python: Python<'_>, data: PyBackedBytes) -> Pair {
        python.detach(|| to_pair(Sums::of(&data)))
    }

    /// Return the checksums of two byte strings joined together, from their own checksums `first`
    /// and `second`. `second_length` is the number of bytes in the second string.
    #[pyfunction]
    fn combine(first: Pair, second: Pair, second_length: u64) -> Pair {
        to_pair(from_pair(first).then(from_pair(second), second_length))
    }

    /// Computes checksums of a stream of bytes.
    #[pyclass]
    struct Summer {
        sums: dray_core::checksum::Summer,
        length: u64,
    }

    #[pymethods]
    impl Summer {
        #[new]
        fn new() -> Self {
            Self {
                sums: dray_core::checksum::Summer::new(),
                length: 0,
            }
        }

        fn update(&mut self, python: Python<'_>, data: PyBackedBytes) {
            python.detach(|| self.sums.update(&data));
            self.length += data.len() as u64;
        }

        fn sums(&self) -> Pair {
            to_pair(self.sums.finish())
        }

        #[getter]
        fn length(&self) -> u64 {
            self.length
        }
    }

    /// Copy on this host. `asked` has the arguments of `dray.copy` by name.
    #[pyfunction]
    fn copy<'py>(
        python: Python<'py>,
        asked: Asked,
        progress: Option<Bound<'py, PyAny>>,
        on_event: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Report<'py>> {
        crate::copy::run(python, asked, progress, on_event)
    }

    /// Return the content of the object log at `path`.
    #[pyfunction]
    fn read_log(python: Python<'_>, path: PyBackedBytes) -> PyResult<LogWords> {
        crate::log::read(python, Path::new(OsStr::from_bytes(&path)))
    }
}

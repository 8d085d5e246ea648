//! The native half of the Python package `dray`: conversions between Python's values and the
//! engine's.
//!
//! Goals: one thin function per thing Python may ask for, the interpreter lock released around work
//! that takes time, every error turned into one of the package's own. Non-goals: decisions,
//! defaults, I/O of its own; those belong to the engine's crates, so that Python, C and the command
//! line behave alike.
//!
//! Import it through the package (`import dray`), never as `dray._native`.

use dray_core::Sums;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// crc32c and adler32, as Python sees them.
type Pair = (u32, u32);

fn to_pair(sums: Sums) -> Pair {
    (sums.crc32c, sums.adler32)
}

fn from_pair((crc32c, adler32): Pair) -> Sums {
    Sums { crc32c, adler32 }
}

/// Native half of the package `dray`. Private: its names may change in any release.
#[pymodule]
mod _native {
    use super::{Pair, PyBackedBytes, Python, Sums, from_pair, pyfunction, to_pair};

    /// Return the version of the engine this module was built from.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Return crc32c and adler32 of the bytes. Other threads run meanwhile; `bytes` are not copied.
    // Not the buffer protocol: the stable ABI has it from Python 3.11 on only.
    #[pyfunction]
    fn checksum(python: Python<'_>, data: PyBackedBytes) -> Pair {
        python.detach(|| to_pair(Sums::of(&data)))
    }

    /// Return the sums of bytes with the sums `first`, followed by `second_length` bytes with the
    /// sums `second`.
    #[pyfunction]
    fn combine(first: Pair, second: Pair, second_length: u64) -> Pair {
        to_pair(from_pair(first).then(from_pair(second), second_length))
    }
}

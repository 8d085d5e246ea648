//! Conversions of the engine's values to Python.

use dray_core::{RelPath, Sums};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// crc32c and adler32 as a Python tuple.
pub(crate) type Pair = (u32, u32);

pub(crate) fn to_pair(sums: Sums) -> Pair {
    (sums.crc32c, sums.adler32)
}

pub(crate) fn from_pair((crc32c, adler32): Pair) -> Sums {
    Sums { crc32c, adler32 }
}

/// Returns the word that represents a value in JSON. So Python and the command line use the same
/// words.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("invariant: kinds, statuses and ends are words, not {other:?}"),
    }
}

/// Returns a path in the form of `os.fsdecode`, so that a path may have any byte and `os.fsencode`
/// restores it.
pub(crate) fn file_name(path: &RelPath) -> &OsStr {
    if path.is_root() {
        OsStr::new(".")
    } else {
        OsStr::from_bytes(path.as_bytes())
    }
}

//! Names of the engine's values in Python.

use crate::error::usage;
use dray_core::options::{Durability, Links, Order, Overwrite, ResumeMode};
use dray_core::{Checksum, RelPath, Result, Sums};
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

/// Returns the word that represents a value in JSON, so that Python and the command line use the
/// same.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("invariant: kinds, statuses and ends are words, not {other:?}"),
    }
}

/// Returns a path as `os.fsdecode` does: any byte survives, and `os.fsencode` restores it.
pub(crate) fn file_name(path: &RelPath) -> &OsStr {
    if path.is_root() {
        OsStr::new(".")
    } else {
        OsStr::from_bytes(path.as_bytes())
    }
}

fn choose<T: Copy>(name: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let last = words.join(", ");
        usage(format!("{name}={text:?}"), format!("say one of {last}"))
    })
}

pub(crate) fn durability(text: &str) -> Result<Durability> {
    let choices = [
        ("none", Durability::None),
        ("file", Durability::File),
        ("object", Durability::Object),
    ];
    choose("durability", text, &choices)
}

pub(crate) fn resume(text: &str) -> Result<ResumeMode> {
    let choices = [("verify", ResumeMode::Verify), ("trust", ResumeMode::Trust)];
    choose("resume", text, &choices)
}

pub(crate) fn overwrite(text: &str) -> Result<Overwrite> {
    let choices = [
        ("never", Overwrite::Never),
        ("if-different", Overwrite::IfDifferent),
        ("always", Overwrite::Always),
    ];
    choose("overwrite", text, &choices)
}

pub(crate) fn links(text: &str) -> Result<Links> {
    let choices = [
        ("keep", Links::Keep),
        ("follow", Links::Follow),
        ("refuse", Links::Refuse),
    ];
    choose("links", text, &choices)
}

pub(crate) fn order(text: &str) -> Result<Order> {
    let seed = text.strip_prefix("random:").map(str::parse);
    match (text, seed) {
        ("layout", _) => Ok(Order::Layout),
        ("file", _) => Ok(Order::File),
        (_, Some(Ok(seed))) => Ok(Order::Random { seed }),
        _ => Err(usage(
            format!("order={text:?}"),
            "say one of layout, file, random:SEED (SEED a number of 64 bits)",
        )),
    }
}

pub(crate) fn checksum(text: &str) -> Result<Checksum> {
    Checksum::parse(text).ok_or_else(|| {
        usage(
            format!("checksum={text:?}"),
            "write it as adler32:HHHHHHHH or crc32c:HHHHHHHH (hexadecimal)",
        )
    })
}

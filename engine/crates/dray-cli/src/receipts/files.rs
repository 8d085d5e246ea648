//! Compares files on disk with the list of a receipt: size and checksums, computed again.

use super::{each_line, failed, first_line, open, unreadable};
use crate::exit::{Exit, Stop};
use crate::units::count;
use dray_api::api_path;
use dray_core::checksum::Summer;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_receipt::{FileLine, Head, ListDigest};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of differences in the error.
const DIFFERENCES_MAX: usize = 5;

const BUFFER_BYTES: usize = 1 << 20;

/// State of a complete file in the list.
const DONE: &str = "done";

/// The result of a comparison without differences.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Number of compared files.
    pub(super) compared: u64,
    /// Number of files among them without a checksum in the receipt. Only their sizes are compared.
    pub(super) by_size: u64,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.compared - self.by_size;
        write!(f, "{} with equal size and checksum", count(sums, "file"))?;
        if self.by_size > 0 {
            write!(
                f,
                "; {} with equal size, for which the receipt has no checksum",
                count(self.by_size, "file")
            )?;
        }
        Ok(())
    }
}

/// Compares the files below `place` with the list of a verified receipt. If the list is about one
/// file and `place` is a file, compares this file.
pub(super) fn compare(receipt: &Path, head: &Head, place: &Path) -> Result<Compared, Stop> {
    let mut compared = Compared::default();
    let mut differences = Vec::new();
    let mut different = 0u64;
    let lines = outcomes(receipt, head).map_err(|error| failed(receipt, error))?;
    let is_single = lines.len() == 1 && place.is_file();
    for (path, line) in lines {
        if line.state != DONE {
            continue;
        }
        let file = match is_single {
            true => place.to_owned(),
            false => place.join(OsStr::from_bytes(path.as_bytes())),
        };
        match difference(&file, &line) {
            Ok(None) => {
                compared.compared += 1;
                compared.by_size += u64::from(line.adler32.is_none() && line.crc32c.is_none());
            }
            Ok(Some(words)) => {
                different += 1;
                if differences.len() < DIFFERENCES_MAX {
                    differences.push(format!("{} {words}", file.display()));
                }
            }
            Err(error) => return Err(unreadable(&file, &error).into()),
        }
    }
    if different == 0 {
        return Ok(compared);
    }
    let error = Error::new(ErrorKind::ChecksumMismatch, End::Here, "verify the files");
    Err(Stop {
        exit: Exit::SomeFailed,
        error: error
            .cause(format!(
                "the copy differs from the receipt in {}: {}",
                count(different, "file"),
                differences.join("; ")
            ))
            .remedy("transfer the files again, or restore them from a backup"),
    })
}

/// Returns the outcome of each path in the list, sorted by path. A path has several lines if several
/// sessions report it, and the last line is its outcome. The list is compared with the head once
/// more, because the file may have changed since its verification.
///
/// # Errors
/// [`ErrorKind::ChecksumMismatch`] if the list is not the signed list, or if the list has fewer
/// complete files than the head counts.
fn outcomes(receipt: &Path, head: &Head) -> Result<Vec<(RelPath, FileLine)>> {
    let mut reader = open(receipt)?;
    first_line(receipt, &mut reader)?;
    let mut digest = ListDigest::default();
    // The outcome of each path, and true if any line of the path has the state `done`.
    let mut found: HashMap<RelPath, (FileLine, bool)> = HashMap::new();
    each_line(receipt, &mut reader, |line| {
        digest.add(line);
        let line = FileLine::parse(line)?;
        // The parsed path is the key, because two texts with different escapes can name one path.
        let path = RelPath::parse(&api_path::decode(&line.path)?)?;
        let was_done = found.get(&path).is_some_and(|(_, was_done)| *was_done);
        let is_done = was_done || line.state == DONE;
        found.insert(path, (line, is_done));
        Ok(())
    })?;
    digest.compare(&head.list)?;
    let done = found.values().filter(|(_, is_done)| *is_done).count() as u64;
    if done < head.files.listed_done() {
        return Err(incomplete(done, head.files.listed_done()));
    }
    let lines = found.into_iter().map(|(path, (line, _))| (path, line));
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    Ok(lines)
}

fn incomplete(done: u64, counted: u64) -> Error {
    Error::new(ErrorKind::ChecksumMismatch, End::Here, "verify the files")
        .cause(format!(
            "the transfer wrote {}, but the list of files has only {done}; the other files cannot \
                be compared",
            count(counted, "complete file")
        ))
        .remedy(
            "compare the destination with the source, for example by a copy with --verify; the \
                notices of the receipt (dray receipt show) name the error that cut off the list",
        )
}

/// Returns the difference between a file and its line, in words.
fn difference(path: &Path, line: &FileLine) -> std::io::Result<Option<String>> {
    let state = match std::fs::symlink_metadata(path) {
        Ok(state) => state,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Some("is missing".to_owned()));
        }
        Err(error) => return Err(error),
    };
    if !state.is_file() {
        return Ok(Some("is not a file".to_owned()));
    }
    if line.size.is_some_and(|size| size != state.len()) {
        return Ok(Some(format!(
            "has {} bytes instead of {}",
            state.len(),
            line.size.unwrap_or_default()
        )));
    }
    if line.adler32.is_none() && line.crc32c.is_none() {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let mut summer = Summer::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        summer.update(buffer.get(..read).unwrap_or_default());
    }
    let sums = summer.finish();
    for (name, signed, found) in [
        ("crc32c", &line.crc32c, sums.crc32c),
        ("adler32", &line.adler32, sums.adler32),
    ] {
        let found = format!("{found:08x}");
        if let Some(signed) = signed.as_ref().filter(|signed| **signed != found) {
            return Ok(Some(format!("has the {name} {found} instead of {signed}")));
        }
    }
    Ok(None)
}

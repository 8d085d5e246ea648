//! The list of files of a receipt: one JSON object on each line.

use crate::head::ListPart;
use crate::jws::sha256_text;
use crate::{CHANGED, refused};
use dray_core::{ErrorKind, Result};
use ring::digest::{Context, SHA256};
use serde::Deserialize;

/// A line of the list: the outcome of one file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileLine {
    /// Path relative to the destination folder, with escapes as in URLs.
    pub path: String,
    /// Outcome: `done` or `failed`.
    pub state: String,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Adler-32 as eight hexadecimal digits.
    pub adler32: Option<String>,
    /// CRC-32C as eight hexadecimal digits.
    pub crc32c: Option<String>,
}

impl FileLine {
    /// Parses a line without its line break.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the line is not the outcome of a file.
    pub fn parse(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).map_err(|error| {
            let cause = format!("a line of the list is not the outcome of a file: {error}");
            refused(ErrorKind::InvalidRequest, cause, CHANGED)
        })
    }
}

/// Counts and hashes a list line by line, in constant memory.
pub struct ListDigest {
    hash: Context,
    part: ListPart,
}

impl Default for ListDigest {
    fn default() -> Self {
        Self {
            hash: Context::new(&SHA256),
            part: ListPart::default(),
        }
    }
}

impl ListDigest {
    /// Adds a line, with its line break.
    pub fn add(&mut self, line: &[u8]) {
        self.hash.update(line);
        self.part.lines += 1;
        self.part.bytes += line.len() as u64;
    }

    /// Returns the description of the list for the head.
    #[must_use]
    pub fn finish(self) -> ListPart {
        ListPart {
            digest: sha256_text(self.hash.finish().as_ref()),
            ..self.part
        }
    }

    /// Compares the list with the description in the head.
    ///
    /// # Errors
    /// [`ErrorKind::ChecksumMismatch`] if the list is not the list that was signed.
    pub fn compare(self, signed: &ListPart) -> Result<()> {
        let found = self.finish();
        if found == *signed {
            return Ok(());
        }
        let cause = match (found.lines, found.bytes) == (signed.lines, signed.bytes) {
            true => "the list of files has the signed length, but another content".to_owned(),
            false => format!(
                "the list of files has {} lines and {} bytes, but the signed list has {} lines and \
                    {} bytes",
                found.lines, found.bytes, signed.lines, signed.bytes
            ),
        };
        Err(refused(ErrorKind::ChecksumMismatch, cause, CHANGED))
    }
}

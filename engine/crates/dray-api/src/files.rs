//! The list of files that a transfer copies from a folder.

use crate::api_path::{TEXT_BYTES_MAX, decode};
use crate::checks::{self, BYTES_MAX, refused};
use dray_core::patterns::PATTERNS_MAX;
use dray_core::{Checksum, RelPath, Required, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A file of a transfer with a list of files, with its required size and checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWish {
    /// Path below the source and below the destination.
    #[schema(max_length = 16384)]
    pub path: String,
    /// Required size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Required checksum: `adler32:HHHHHHHH` or `crc32c:HHHHHHHH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(adler32|crc32c):[0-9A-Fa-f]{1,8}$")]
    pub checksum: Option<String>,
}

impl FileWish {
    fn rel_path(&self) -> Result<RelPath> {
        RelPath::parse(&decode(&self.path)?)
    }

    fn required(&self) -> Required {
        Required {
            size: self.size,
            checksum: self.checksum.as_deref().and_then(Checksum::parse),
        }
    }
}

/// Returns the requirements on the listed files, by the path of each file. The list was checked
/// before, so each path is valid.
#[must_use]
pub(crate) fn required(files: &[FileWish]) -> BTreeMap<RelPath, Required> {
    let file = |file: &FileWish| Some((file.rel_path().ok()?, file.required()));
    files.iter().filter_map(file).collect()
}

/// Returns an include pattern for each listed file. A pattern without a slash would match a name in
/// every folder, so each pattern begins with a slash.
pub(crate) fn patterns(files: &[FileWish]) -> Vec<String> {
    let paths = required(files).into_keys();
    let texts = paths.filter_map(|path| String::from_utf8(path.as_bytes().to_vec()).ok());
    texts.map(|text| pattern(&text)).collect()
}

fn pattern(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len() + 1);
    pattern.push('/');
    for letter in path.chars() {
        if "*?[]{}!\\".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Returns the sum of the sizes of the listed files, if there is a list and all sizes are known.
pub(crate) fn bytes(files: &[FileWish]) -> Option<u64> {
    let sum = |sum: u64, file: &FileWish| Some(sum.saturating_add(file.size?));
    match files.is_empty() {
        true => None,
        false => files.iter().try_fold(0, sum),
    }
}

/// Checks each file of a list, and that no path occurs twice.
pub(crate) fn check(files: &[FileWish]) -> Result<()> {
    checks::count("files", files.len(), &(0..=PATTERNS_MAX))?;
    let mut known = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        let field = format!("files[{index}]");
        checks::text(&format!("{field}.path"), &file.path, TEXT_BYTES_MAX)?;
        checks::within_if(&format!("{field}.size"), file.size, &(0..=BYTES_MAX))?;
        let path = file.rel_path()?;
        if path.is_root() || std::str::from_utf8(path.as_bytes()).is_err() {
            let cause = "write the path of a file below the source, as UTF-8 text";
            return Err(refused(&format!("{field}.path"), cause));
        }
        if file.checksum.is_some() && file.required().checksum.is_none() {
            let cause = "write adler32:HHHHHHHH or crc32c:HHHHHHHH (hexadecimal)";
            return Err(refused(&format!("{field}.checksum"), cause));
        }
        if let Some(first) = known.insert(path, index) {
            let cause = format!("the path is also the path of files[{first}]");
            return Err(refused(&format!("{field}.path"), cause));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

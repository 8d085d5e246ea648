//! The list of files that a transfer copies from a folder.

use crate::api_path::{TEXT_BYTES_MAX, decode};
use crate::checks::{self, BYTES_MAX, refused};
use crate::request::Request;
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

/// Returns the requirements on the files of a request, by the path of each file. The request was
/// checked before, so each path is valid.
#[must_use]
pub fn required(request: &Request) -> BTreeMap<RelPath, Required> {
    let file = |file: &FileWish| Some((file.rel_path().ok()?, file.required()));
    request.files.iter().filter_map(file).collect()
}

/// Returns the include patterns of a request. If the request lists files, each pattern matches one
/// file. A pattern without a slash would match a name in every folder, so each of these patterns
/// begins with a slash.
#[must_use]
pub fn include(request: &Request) -> Vec<String> {
    if request.files.is_empty() {
        return request.selection.include.clone();
    }
    let paths = required(request).into_keys();
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

/// Checks the list of files, and that no other field of the request contradicts it.
pub(crate) fn check(request: &Request) -> Result<()> {
    if request.files.is_empty() {
        return Ok(());
    }
    checks::count("files", request.files.len(), &(1..=PATTERNS_MAX))?;
    let is_folder = |url: &str| url.ends_with('/');
    let selection = &request.selection;
    let mut places = request.origin_places().chain([&request.destination]);
    if request.sources.len() != 1 || !places.all(|place| is_folder(&place.url)) {
        let cause = "a request with files has one source. The URLs of the source, the replicas \
            and the destination must end with a slash";
        return Err(refused("files", cause));
    }
    if !selection.recursive {
        let cause = "a request with files needs \"recursive\": true";
        return Err(refused("selection.recursive", cause));
    }
    if !selection.include.is_empty() || !selection.exclude.is_empty() {
        let cause = "a request with files cannot have patterns";
        return Err(refused("selection", cause));
    }
    let mut known = BTreeMap::new();
    for (index, file) in request.files.iter().enumerate() {
        let field = format!("files[{index}]");
        checks::text(&format!("{field}.path"), &file.path, TEXT_BYTES_MAX)?;
        checks::within_if(&format!("{field}.size"), file.size, &(0..=BYTES_MAX))?;
        let path = file.rel_path()?;
        if path.is_root() || std::str::from_utf8(path.as_bytes()).is_err() {
            let cause = "write the path of a file below the source, as UTF-8 text";
            return Err(refused(&format!("{field}.path"), cause));
        }
        let wanted = file.required();
        if file.checksum.is_some() && wanted.checksum.is_none() {
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

/// Returns the sum of the sizes of the listed files, if all sizes are known.
pub(crate) fn bytes(request: &Request) -> Option<u64> {
    let sum = |sum: u64, file: &FileWish| Some(sum.saturating_add(file.size?));
    match request.files.is_empty() {
        true => None,
        false => request.files.iter().try_fold(0, sum),
    }
}

#[cfg(test)]
mod tests {
    use super::{FileWish, bytes, include, required};
    use crate::{Check, Place, Request};
    use dray_core::{Checksum, RelPath, Required};

    fn file(path: &str) -> FileWish {
        FileWish {
            path: path.to_owned(),
            size: Some(3),
            checksum: Some("adler32:0a".to_owned()),
        }
    }

    fn request(files: Vec<FileWish>) -> Request {
        let source = Place::at("dray://a.example/data/rse/");
        let mut request = Request::new(vec![source], Place::at("/data/rse/"));
        request.selection.recursive = true;
        request.files = files;
        request
    }

    #[test]
    fn listed_files_become_patterns_and_requirements() {
        let asked = request(vec![file("mock/ab/x"), file("y%2Az[1]")]);
        asked.check().expect("a good request");
        assert_eq!(include(&asked), ["/mock/ab/x", "/y\\*z\\[1\\]"]);
        let wanted = Required {
            size: Some(3),
            checksum: Some(Checksum::Adler32(10)),
        };
        let path = RelPath::parse(b"mock/ab/x").expect("a path");
        assert_eq!(required(&asked).get(&path), Some(&wanted));
        assert_eq!(bytes(&asked), Some(6));
        assert_eq!(asked.bytes_stated(), Some(6));
        assert_eq!(asked.files_min(), 2);
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        let cause = |request: &Request| request.check().expect_err("refused").cause;
        let twice = request(vec![file("x"), file("./x")]);
        let twice = twice.check().map_err(|error| error.cause);
        assert!(twice.is_err(), "{twice:?}");
        assert!(cause(&request(vec![file("x"), file("x")])).contains("files[0]"));
        assert!(cause(&request(vec![file("")])).contains("files[0].path"));
        let mut wrong = request(vec![file("x")]);
        wrong.files[0].checksum = Some("md5:1".to_owned());
        assert!(cause(&wrong).contains("files[0].checksum"));
        let mut flat = request(vec![file("x")]);
        flat.selection.recursive = false;
        assert!(cause(&flat).contains("selection.recursive"));
        let mut patterns = request(vec![file("x")]);
        patterns.selection.include = vec!["*".to_owned()];
        assert!(cause(&patterns).contains("patterns"));
        let mut one = request(vec![file("x")]);
        one.destination = Place::at("/data/rse");
        assert!(cause(&one).contains("slash"));
    }
}

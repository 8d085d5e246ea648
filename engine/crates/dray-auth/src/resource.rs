//! The resource of a scope: a path, and a flag for folders.
//!
//! A token contains the resource as a URI path. The WLCG profile does not say how to treat a path
//! that is not normalized. This module refuses such a path. Otherwise the issuer and the endpoint
//! could normalize the path differently, and the token would grant rights to a folder that the
//! issuer did not mean.

use crate::escape::shown;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use std::fmt;

/// A path, and a flag for folders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Path from the top of the endpoint. Its first name is the name of an exported root.
    pub path: RelPath,
    /// True if the path is or will be a folder. A scope whose path ends in `/` covers only a folder
    /// and the paths below it.
    pub is_folder: bool,
}

impl Resource {
    /// Returns the resource of a file, or of a path whose kind is unknown.
    #[must_use]
    pub const fn file(path: RelPath) -> Self {
        Self {
            path,
            is_folder: false,
        }
    }

    /// Returns the resource of a folder.
    #[must_use]
    pub const fn folder(path: RelPath) -> Self {
        Self {
            path,
            is_folder: true,
        }
    }

    /// Parses an absolute URI path (RFC 3986, section 3.3). Names are separated by single slashes.
    /// A byte that a URI path must not contain is written as `%HH`. The path is decoded only once.
    /// A slash at the end means a folder.
    ///
    /// # Errors
    /// [`ErrorKind::PathEscapes`] for `.` and `..`, plain or percent-encoded.
    /// [`ErrorKind::InvalidName`] for any other text that is not a normalized absolute path.
    pub fn parse(uri_path: &str) -> Result<Self> {
        let refuse = |kind, why: &str| {
            Error::new(kind, End::Here, "read a path")
                .cause(format!("{}: {why}", shown(uri_path)))
                .remedy("write an absolute path without `.`, `..` and `//`")
        };
        let Some(rest) = uri_path.strip_prefix('/') else {
            return Err(refuse(
                ErrorKind::InvalidName,
                "the path does not begin with `/`",
            ));
        };
        if rest.is_empty() {
            return Ok(Self::folder(RelPath::root()));
        }
        let (names, is_folder) = match rest.strip_suffix('/') {
            Some(names) => (names, true),
            None => (rest, false),
        };
        let mut decoded = Vec::with_capacity(names.len());
        for name in names.split('/') {
            if !decoded.is_empty() {
                decoded.push(b'/');
            }
            let name = unescaped(name).map_err(|why| refuse(ErrorKind::InvalidName, why))?;
            match name.as_slice() {
                b"" => {
                    return Err(refuse(
                        ErrorKind::InvalidName,
                        "a component of the path is empty",
                    ));
                }
                b"." | b".." => {
                    return Err(refuse(
                        ErrorKind::PathEscapes,
                        "the path leaves its root with `..`",
                    ));
                }
                name if name.contains(&b'/') => {
                    return Err(refuse(
                        ErrorKind::InvalidName,
                        "the path has an escaped slash \
                        inside a name",
                    ));
                }
                name => decoded.extend_from_slice(name),
            }
        }
        let path = RelPath::parse(&decoded)?;
        Ok(Self { path, is_folder })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        for byte in self.path.as_bytes() {
            if *byte == b'/' || is_path_character(*byte) {
                write!(f, "{}", char::from(*byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        if self.is_folder && !self.path.is_root() {
            f.write_str("/")?;
        }
        Ok(())
    }
}

/// Returns true for a `pchar` of RFC 3986, except `%`.
const fn is_path_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+'
        )
        || matches!(byte, b',' | b';' | b'=' | b':' | b'@')
}

fn unescaped(name: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
            let (Some(high), Some(low)) = (digit(), digit()) else {
                return Err("the path has a `%` without two hexadecimal digits");
            };
            bytes.push(u8::try_from(high * 16 + low).unwrap_or(0));
        } else if is_path_character(byte) {
            bytes.push(byte);
        } else {
            return Err("the path has a character that must be written as %HH");
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::Resource;
    use dray_core::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn escaping_paths_and_malformed_paths_have_different_errors() {
        for climbs in ["/a/..", "/.", "/a/%2e/b", "/%2E%2e"] {
            let error = Resource::parse(climbs).expect_err(climbs);
            assert_eq!(error.kind, ErrorKind::PathEscapes, "{climbs}");
        }
        for misspelt in ["", "a", "//", "/a//b", "/a%", "/%2f", "/a b"] {
            let error = Resource::parse(misspelt).expect_err(misspelt);
            assert_eq!(error.kind, ErrorKind::InvalidName, "{misspelt}");
        }
    }

    proptest! {
        #[test]
        fn parsed_paths_are_printed_unchanged_and_no_text_panics(text in "\\PC{0,40}") {
            if let Ok(resource) = Resource::parse(&text) {
                let again = Resource::parse(&resource.to_string()).expect("its own form");
                prop_assert_eq!(again, resource);
            }
        }
    }
}

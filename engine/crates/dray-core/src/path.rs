//! Names and relative paths, as bytes. Messages and JSON show paths in the text form of
//! [`crate::url`]. [`escape`] formats bytes that are not a path. The module `parse_path` creates
//! names and paths.

use crate::url;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// One component of a path: 1 to 255 bytes, no slash, no zero byte, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub(crate) Arc<[u8]>);

/// Maximum length of a name in bytes. All common file systems have this POSIX `NAME_MAX`.
pub const NAME_LENGTH_MAX: usize = 255;

/// Maximum length in bytes of a path below a root. The limit exceeds every `PATH_MAX`, so that deep
/// trees can be copied, and still bounds the memory for a path.
pub const PATH_LENGTH_MAX: usize = 64 * 1024;

/// Prefix of dray's own names: partial files and log folders. The source does not send such names,
/// and the sink rejects them.
pub const RESERVED_PREFIX: &[u8] = b".dray-";

impl Name {
    /// Returns the bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the name is one of dray's own names.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED_PREFIX)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&url::encode(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// A path below a root: zero or more names joined by slashes. The empty path is the root itself.
/// The path contains no `..` and is never absolute.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(pub(crate) Arc<[u8]>);

impl RelPath {
    /// Returns the empty path, which is the root itself.
    #[must_use]
    pub fn root() -> Self {
        Self(Arc::from([]))
    }

    /// Returns the folder that contains this entry; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..end].into()))
    }

    /// Returns the last name; `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<Name> {
        if self.0.is_empty() {
            return None;
        }
        let start = self
            .0
            .iter()
            .rposition(|b| *b == b'/')
            .map_or(0, |slash| slash + 1);
        Some(Name(self.0[start..].into()))
    }

    /// Returns the names of the path, starting below the root.
    pub fn components(&self) -> impl Iterator<Item = Name> + '_ {
        self.0
            .split(|b| *b == b'/')
            .filter(|part| !part.is_empty())
            .map(|part| Name(part.into()))
    }

    /// Returns true if `self` equals `prefix` or is below it.
    #[must_use]
    pub fn starts_with(&self, prefix: &Self) -> bool {
        prefix.0.is_empty()
            || (self.0.starts_with(&prefix.0)
                && (self.0.len() == prefix.0.len() || self.0[prefix.0.len()] == b'/'))
    }

    /// Returns the bytes of the path: its names joined by slashes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if this is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str(".")
        } else {
            f.write_str(&url::encode(&self.0))
        }
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&url::encode(&self.0))
    }
}

/// Formats bytes that are not a path. The bytes of control characters, and bytes that are not valid
/// UTF-8, become `\xHH`. A backslash becomes `\\`. All other characters are unchanged.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                control if control.is_control() => {
                    let mut encoded = [0; 4];
                    for byte in control.encode_utf8(&mut encoded).bytes() {
                        text.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                plain => text.push(plain),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Returns the bytes that [`escape`] formatted; `None` if the text has an invalid escape.
#[must_use]
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next()? {
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_form_is_reversible(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let text = escape(&bytes);
            prop_assert!(text.chars().all(|c| !c.is_control()), "safe on a terminal");
            prop_assert_eq!(unescape(&text), Some(bytes));
        }
    }
}

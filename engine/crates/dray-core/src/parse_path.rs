//! Creates names and paths from bytes.
//!
//! Invariant: no [`Name`] and no [`RelPath`] leads out of its folder or exceeds its maximum length.

use crate::error::{End, Error, ErrorKind};
use crate::path::{NAME_LENGTH_MAX, Name, PATH_LENGTH_MAX, RelPath};
use crate::url;
use serde::{Deserialize, Deserializer};

fn invalid(bytes: &[u8], why: &str) -> Error {
    Error::new(ErrorKind::InvalidName, End::Here, "read a name")
        .cause(format!("{}: {why}", url::encode(bytes)))
        .remedy("rename the entry, or exclude it with --exclude")
}

impl Name {
    /// Checks one component of a path.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] with the reason as its cause.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Err(invalid(bytes, "a component of the path is empty"));
        }
        if bytes.len() > NAME_LENGTH_MAX {
            return Err(invalid(bytes, "a name is longer than 255 bytes"));
        }
        if bytes == b"." || bytes == b".." {
            return Err(invalid(bytes, "the path contains the name `.` or `..`"));
        }
        if bytes.iter().any(|b| *b == b'/' || *b == 0) {
            return Err(invalid(bytes, "a name contains a slash or a zero byte"));
        }
        Ok(Self(bytes.into()))
    }
}

impl RelPath {
    /// Parses names that are joined by slashes. A leading, trailing or double slash is an error.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] or [`ErrorKind::PathEscapes`] with the reason as its cause.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > PATH_LENGTH_MAX {
            return Err(invalid(&bytes[..64], "the path has more than 64 KiB"));
        }
        if bytes.first() == Some(&b'/') || bytes.split(|b| *b == b'/').any(|part| part == b"..") {
            return Err(Error::new(ErrorKind::PathEscapes, End::Here, "read a path")
                .cause(url::encode(bytes))
                .remedy("use a path inside the root"));
        }
        if !bytes.is_empty() {
            for part in bytes.split(|b| *b == b'/') {
                Name::new(part)?;
            }
        }
        Ok(Self(bytes.into()))
    }

    /// Returns the path of the entry `name` in this folder.
    ///
    /// # Errors
    /// [`ErrorKind::NameTooLong`] if the path would exceed [`PATH_LENGTH_MAX`].
    pub fn join(&self, name: &Name) -> Result<Self, Error> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        if !self.0.is_empty() {
            bytes.extend_from_slice(&self.0);
            bytes.push(b'/');
        }
        bytes.extend_from_slice(&name.0);
        if bytes.len() > PATH_LENGTH_MAX {
            return Err(Error::new(ErrorKind::NameTooLong, End::Here, "join a path")
                .file(self)
                .cause("the path has more than 64 KiB"));
        }
        Ok(Self(bytes.into()))
    }

    /// Returns this path with the path `below` appended.
    ///
    /// # Errors
    /// [`ErrorKind::NameTooLong`] if the path would exceed [`PATH_LENGTH_MAX`].
    pub fn join_path(&self, below: &Self) -> Result<Self, Error> {
        below
            .components()
            .try_fold(self.clone(), |path, name| path.join(&name))
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = url::decode(text.as_bytes()).map_err(serde::de::Error::custom)?;
        Self::parse(&bytes).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use crate::error::ErrorKind;
    use crate::path::{Name, RelPath};

    #[test]
    fn paths_cannot_climb() {
        for bad in [&b"../a"[..], b"a/../b", b"/a", b".."] {
            let error = RelPath::parse(bad).expect_err("climbs");
            assert_eq!(error.kind, ErrorKind::PathEscapes);
        }
        for bad in [&b"a//b"[..], b"a/", b"./a", b"a\0b"] {
            assert_eq!(
                RelPath::parse(bad).expect_err("bad").kind,
                ErrorKind::InvalidName
            );
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"\0", &[b'x'; 256]] {
            assert!(Name::new(bad).is_err());
        }
    }

    #[test]
    fn path_arithmetic() {
        let path = RelPath::parse(b"a/b/c").expect("good");
        assert_eq!(path.parent(), RelPath::parse(b"a/b").ok());
        assert_eq!(path.name().map(|n| n.to_string()).as_deref(), Some("c"));
        assert_eq!(path.components().count(), 3);
        assert_eq!(RelPath::root().components().count(), 0);
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(
            RelPath::parse(b"a").expect("good").parent(),
            Some(RelPath::root())
        );
        assert!(path.starts_with(&RelPath::parse(b"a/b").expect("good")));
        assert!(!path.starts_with(&RelPath::parse(b"a/bb").expect("good")));
        assert!(
            !RelPath::parse(b"a/bc")
                .expect("good")
                .starts_with(&RelPath::parse(b"a/b").expect("good"))
        );
    }
}

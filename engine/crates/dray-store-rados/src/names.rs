//! Names of objects.
//!
//! The objects of files are in the namespace of the URL. All other objects (folders, partial files,
//! control files and claims) are in the state namespace, so that other programs do not list them.
//! The first byte of the name of an object in the state namespace is the kind of the object.

use dray_core::{End, Error, ErrorKind, RelPath, Result};
use std::ffi::CString;

/// Maximum length of the full name of a file. The default of `osd_max_object_name_len` is 2048, and
/// the number of an object takes 17 bytes.
const NAME_BYTES_MAX: usize = 2000;

/// Length of the suffix with the number of an object: a dot and 16 digits.
const SUFFIX_BYTES: usize = 17;

/// Suffix of the first object of each file.
pub(crate) const FIRST: &[u8] = b".0000000000000000";

/// Kind of an object in the state namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// A folder.
    Folder,
    /// The first object of a partial file, and its attributes.
    Partial,
    /// An object log or a lease.
    Control,
    /// Names the partial file whose further objects have the final name.
    Claim,
    /// A further object of a partial file.
    Staged,
}

impl State {
    const ALL: [Self; 5] = [
        Self::Folder,
        Self::Partial,
        Self::Control,
        Self::Claim,
        Self::Staged,
    ];

    const fn letter(self) -> u8 {
        match self {
            Self::Folder => b'd',
            Self::Partial => b'p',
            Self::Control => b'l',
            Self::Claim => b'c',
            Self::Staged => b's',
        }
    }

    /// Returns the name of the object for the file with this full name.
    pub(crate) fn object(self, full: &[u8]) -> CString {
        c_string([&[self.letter()], full].concat())
    }

    /// Parses the name of an object. Returns its kind and the full name of its file.
    pub(crate) fn of(object: &[u8]) -> Option<(Self, &[u8])> {
        let (letter, full) = object.split_first()?;
        let kind = Self::ALL
            .into_iter()
            .find(|kind| kind.letter() == *letter)?;
        Some((kind, full))
    }
}

/// Converts a name to a C string. The name has no zero bytes, because [`RelPath`] and URLs have
/// none.
fn c_string(name: Vec<u8>) -> CString {
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    CString::new(&name[..end]).unwrap_or_default()
}

/// Returns the name of an object of a file.
pub(crate) fn object(full: &[u8], number: u64) -> CString {
    c_string([full, format!(".{number:016x}").as_bytes()].concat())
}

/// Returns the name of a staged object of the partial file with this full name.
pub(crate) fn staged(partial: &[u8], number: u64) -> CString {
    let name = [partial, format!(".{number:016x}").as_bytes()].concat();
    State::Staged.object(&name)
}

/// Returns the full name of the file whose first object has this name.
pub(crate) fn file_of_first(object: &[u8]) -> Option<&[u8]> {
    object.strip_suffix(FIRST).filter(|full| !full.is_empty())
}

/// Returns the full name of a file and the number of the object, for an object other than the first.
pub(crate) fn file_of_further(object: &[u8]) -> Option<(&[u8], u64)> {
    let (full, suffix) = object.split_at_checked(object.len().checked_sub(SUFFIX_BYTES)?)?;
    let digits = std::str::from_utf8(suffix.strip_prefix(b".")?).ok()?;
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let number = digits
        .bytes()
        .all(is_hex)
        .then(|| u64::from_str_radix(digits, 16).ok());
    let number = number.flatten().filter(|number| *number > 0)?;
    (!full.is_empty()).then_some((full, number))
}

/// The full names of the files below one folder of a namespace.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// True if full names begin with a slash.
    pub(crate) is_absolute: bool,
    pub(crate) root: RelPath,
}

impl Names {
    /// Returns the full name of a file or folder below the root. The name of the top of the
    /// namespace is empty.
    pub(crate) fn full(&self, end: End, path: &RelPath) -> Result<Vec<u8>> {
        let parts = [self.root.as_bytes(), path.as_bytes()];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let mut full = parts.join(&b'/');
        if full.len() > NAME_BYTES_MAX - SUFFIX_BYTES {
            return Err(Error::new(ErrorKind::NameTooLong, end, "name the object")
                .file(path)
                .cause(format!(
                    "the name has {} bytes; at most {} bytes are allowed",
                    full.len(),
                    NAME_BYTES_MAX - SUFFIX_BYTES
                ))
                .remedy("use a shorter destination path"));
        }
        if self.is_absolute && !full.is_empty() {
            full.insert(0, b'/');
        }
        Ok(full)
    }

    /// Returns the full name of the root, which is empty for the top of the namespace.
    pub(crate) fn top(&self) -> Vec<u8> {
        let slash: &[u8] = match self.is_absolute && !self.root.is_root() {
            true => b"/",
            false => b"",
        };
        [slash, self.root.as_bytes()].concat()
    }

    /// Returns the part of a full name below the folder `top`, which is a full name too. Returns
    /// `None` for files outside of this folder.
    pub(crate) fn below<'a>(&self, top: &[u8], full: &'a [u8]) -> Option<&'a [u8]> {
        let rest = match (top.is_empty(), self.is_absolute) {
            (true, false) => Some(full).filter(|full| !full.starts_with(b"/"))?,
            (true, true) => full.strip_prefix(b"/")?,
            (false, _) => full.strip_prefix(top)?.strip_prefix(b"/")?,
        };
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::{Names, State, file_of_first, file_of_further, object, staged};
    use dray_core::{End, RelPath};

    fn path(text: &str) -> RelPath {
        match text {
            "" => RelPath::root(),
            _ => RelPath::parse(text.as_bytes()).expect("a path"),
        }
    }

    #[test]
    fn full_names_have_the_slash_of_the_url() {
        for (is_absolute, root, below, expected) in [
            (true, "d/e", "f", "/d/e/f"),
            (false, "d/e", "f", "d/e/f"),
            (true, "", "f", "/f"),
            (false, "", "", ""),
            (true, "", "", ""),
            (true, "d", "", "/d"),
        ] {
            let names = Names {
                is_absolute,
                root: path(root),
            };
            let full = names.full(End::Sink, &path(below)).expect("short");
            assert_eq!(full, expected.as_bytes());
        }
        let names = Names {
            is_absolute: true,
            root: path("d"),
        };
        assert_eq!(names.below(b"/d", b"/d/e/f"), Some(&b"e/f"[..]));
        assert_eq!(names.below(b"/d", b"/de/f"), None);
        assert_eq!(names.below(b"", b"/de/f"), Some(&b"de/f"[..]));
        assert_eq!(names.below(b"", b"de/f"), None);
        let names = Names {
            is_absolute: false,
            root: path(""),
        };
        assert_eq!(names.below(b"", b"de/f"), Some(&b"de/f"[..]));
        assert_eq!(names.below(b"", b"/de/f"), None);
        let long = path(&"x".repeat(255)).as_bytes().to_vec();
        let long = path(&String::from_utf8(vec![long; 8].join(&b'/')).expect("text"));
        assert!(names.full(End::Sink, &long).is_err());
    }

    #[test]
    fn objects_are_numbered_in_hexadecimal() {
        assert_eq!(object(b"/a", 26).as_bytes(), b"/a.000000000000001a");
        assert_eq!(staged(b"/a", 1).as_bytes(), b"s/a.0000000000000001");
        assert_eq!(file_of_first(b"/a.0000000000000000"), Some(&b"/a"[..]));
        assert_eq!(file_of_first(b"/a.0000000000000001"), None);
        assert_eq!(
            file_of_further(b"/a.000000000000001a"),
            Some((&b"/a"[..], 26))
        );
        for other in [
            "/a.0000000000000000",
            "/a.000000000000001A",
            ".0000000000000001",
            "/a.1",
        ] {
            assert_eq!(file_of_further(other.as_bytes()), None, "{other}");
        }
        assert_eq!(State::of(b"d/x"), Some((State::Folder, &b"/x"[..])));
        assert_eq!(State::Control.object(b"/x").as_bytes(), b"l/x");
    }
}

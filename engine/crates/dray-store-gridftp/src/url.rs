//! URL of a file or folder on a GridFTP server.

use dray_core::{End, Error, ErrorKind, RelPath, Result, url};
use std::ffi::CString;
use std::fmt;

/// The URL scheme with its separator.
pub const SCHEME: &str = "gsiftp://";

/// Port of GridFTP servers.
const PORT: u16 = 2811;

/// URL of a file or folder on a server: `gsiftp://HOST[:PORT]/PATH`. Paths begin at the root of the
/// server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Server as `HOST:PORT`.
    pub server: String,
    /// Decoded path below the root of the server.
    pub path: RelPath,
    /// True if the URL ends with a slash, and so means the contents of a folder.
    pub is_folder: bool,
}

impl Url {
    /// Parses a URL. Returns `None` for another scheme.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`].
    pub fn parse(text: &[u8]) -> Result<Option<Self>> {
        let Some(rest) = text.strip_prefix(SCHEME.as_bytes()) else {
            return Ok(None);
        };
        let bad = |why: &str| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the URL")
                .cause(format!("{}: {why}", dray_core::path::escape(text)))
                .remedy("write the URL as gsiftp://HOST[:PORT]/PATH")
        };
        let slash = rest.iter().position(|byte| *byte == b'/');
        let (server, path) = rest.split_at(slash.unwrap_or(rest.len()));
        let server = std::str::from_utf8(server).ok();
        let server = server.filter(|one| !one.contains(|c: char| !is_of_host(c)));
        let server = server.and_then(|one| url::with_default_port(one, PORT));
        let server =
            server.ok_or_else(|| bad("the URL has no host, or its port is not a number"))?;
        let is_folder = path.last().is_none_or(|byte| *byte == b'/');
        let path = url::decode(path).map_err(bad)?;
        // Several slashes count as one slash.
        let names = path.split(|byte| *byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
        let path = RelPath::parse(&names.join(&b'/'))?;
        Ok(Some(Self {
            server: server.to_ascii_lowercase(),
            path,
            is_folder,
        }))
    }

    /// Returns the URL of the root of the server, with its separator.
    #[must_use]
    pub fn top(&self) -> String {
        format!("{SCHEME}{}/", self.server)
    }

    /// Returns the URL of another path on the same server.
    #[must_use]
    pub fn with_path(&self, path: &RelPath) -> Self {
        Self {
            path: path.clone(),
            ..self.clone()
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.is_folder && !self.path.is_root() {
            "/"
        } else {
            ""
        };
        write!(f, "{}{}{slash}", self.top(), self.path)
    }
}

fn is_of_host(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._:[]".contains(character)
}

/// Bytes that a path must not contain. The protocol ends a command at the end of a line, so a server
/// would take the rest of the path as another command.
pub(crate) const REFUSED: &[u8] = b"\r\n";

/// Returns the URL of a path below `root` for the library, which decodes the escapes.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a path with one of the bytes in [`REFUSED`].
pub(crate) fn for_library(root: &Url, path: &RelPath, end: End) -> Result<CString> {
    let refuse = || {
        Error::new(ErrorKind::Unsupported, end, "name the file")
            .file(path)
            .cause("GridFTP cannot transport a name with a line break")
            .remedy("rename the file on the server")
    };
    let whole = root.path.join_path(path)?;
    if whole.as_bytes().iter().any(|byte| REFUSED.contains(byte)) {
        return Err(refuse());
    }
    let mut url = root.top();
    for byte in whole.as_bytes() {
        match *byte {
            // The parser of the library accepts few other characters without escapes.
            plain if plain.is_ascii_alphanumeric() || b"-._~/".contains(&plain) => {
                url.push(char::from(plain));
            }
            escaped => url.push_str(&format!("%{escaped:02X}")),
        }
    }
    CString::new(url).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::{Url, for_library};
    use dray_core::{End, ErrorKind, RelPath};

    #[test]
    fn urls_are_read_and_shown() {
        let read = |text: &str| Url::parse(text.as_bytes()).expect(text).expect("gsiftp");
        let url = read("gsiftp://Host.Org//data/a%20b%25%3Fx%23");
        assert_eq!(url.server, "host.org:2811");
        assert_eq!(url.path.as_bytes(), b"data/a b%?x#");
        assert!(!url.is_folder);
        assert_eq!(read(&url.to_string()), url);
        assert_eq!(
            read("gsiftp://[::1]:9/d/").to_string(),
            "gsiftp://[::1]:9/d/"
        );
        assert!(read("gsiftp://h").is_folder && read("gsiftp://h/").path.is_root());
        assert_eq!(Url::parse(b"root://h//f"), Ok(None));
    }

    #[test]
    fn malformed_urls_are_refused() {
        for wrong in [
            "gsiftp://",
            "gsiftp:///f",
            "gsiftp://h:99999/f",
            "gsiftp://me@h/f",
            "gsiftp://h/a%2",
            "gsiftp://h/a?b",
            "gsiftp://h/../f",
        ] {
            let error = Url::parse(wrong.as_bytes()).expect_err(wrong);
            assert!(
                matches!(
                    error.kind,
                    ErrorKind::InvalidRequest | ErrorKind::InvalidName | ErrorKind::PathEscapes
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn a_name_cannot_contain_a_command() {
        let path = RelPath::parse(b"f\r\nDELE g").expect("a path");
        let root = Url::parse(b"gsiftp://h:1/d/")
            .expect("good")
            .expect("gsiftp");
        let error = for_library(&root, &path, End::Source).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Unsupported);
        let path = RelPath::parse(b"a b%\xff").expect("a path");
        let url = for_library(&root, &path, End::Source).expect("a URL");
        assert_eq!(url.as_bytes(), b"gsiftp://h:1/d/a%20b%25%FF");
    }
}

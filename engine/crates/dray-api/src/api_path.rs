//! Paths and URLs in the form of the API.
//!
//! An API path is a text `/ROOT/a/b` with the encoding of [`dray_core::url`].

pub use dray_core::url::{SCHEME, encode};
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result, url};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Maximum size in bytes of a path or URL as text. A byte of a path becomes at most three
/// characters, so every path of up to 5461 bytes fits.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A path of the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiPath {
    /// Name of the exported root.
    pub root: String,
    /// Path below the root.
    pub path: RelPath,
    /// True if the path was written with a slash at the end.
    pub is_folder: bool,
}

impl ApiPath {
    /// Parses `/ROOT/PATH`.
    ///
    /// # Errors
    /// `InvalidName` or `PathEscapes`. Names that dray reserves are refused.
    pub fn parse(text: &str) -> Result<Self> {
        Self::from_bytes(text, &decode(text)?)
    }

    /// Parses the bytes of a path; `text` is quoted in errors.
    fn from_bytes(text: &str, bytes: &[u8]) -> Result<Self> {
        let whole = bytes.strip_prefix(b"/").ok_or_else(|| {
            invalid(
                text,
                "a path must begin with the name of a root: /ROOT/PATH",
            )
        })?;
        let mut parts = whole.splitn(2, |b| *b == b'/');
        let root = parts.next().unwrap_or_default();
        let rest = parts.next();
        if root.is_empty() {
            return Err(invalid(text, "the path names no root")
                .remedy("write the path as /ROOT/PATH; GET /v1/endpoint lists the roots"));
        }
        let root = Name::new(root).map_err(|error| in_path(error, text))?;
        let root = str::from_utf8(root.as_bytes())
            .map_err(|_| invalid(text, "the name of a root must be UTF-8 text"))?
            .to_owned();
        let below = rest.unwrap_or_default();
        let trimmed = below.strip_suffix(b"/").unwrap_or(below);
        // Refuse a doubled slash; `RelPath` would report the remaining path as absolute.
        if trimmed.starts_with(b"/") {
            return Err(invalid(
                text,
                "the path has an empty name between two slashes",
            ));
        }
        let path = RelPath::parse(trimmed).map_err(|error| in_path(error, text))?;
        if path.components().any(|name| name.is_reserved()) {
            return Err(invalid(
                text,
                "names that begin with .dray- are reserved for dray's own \
                files",
            ));
        }
        Ok(Self {
            root,
            is_folder: below.ends_with(b"/") || path.is_root(),
            path,
        })
    }

    /// Returns `path` in the same root.
    #[must_use]
    pub fn with(&self, path: RelPath) -> Self {
        Self {
            root: self.root.clone(),
            path,
            is_folder: false,
        }
    }

    /// Returns the path as text, without a slash at its end.
    #[must_use]
    pub fn text(&self) -> String {
        match self.path.is_root() {
            true => format!("/{}", encode(self.root.as_bytes())),
            false => format!(
                "/{}/{}",
                encode(self.root.as_bytes()),
                encode(self.path.as_bytes())
            ),
        }
    }
}

/// One side of a transfer.
///
/// The text form of a side is `/ROOT/PATH` at this endpoint, and `dray://HOST:PORT/ROOT/PATH` at
/// another endpoint. The queue stores the text form. A stored side at this endpoint stays valid if
/// the endpoint gets another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Side {
    /// A path of this endpoint.
    Local(ApiPath),
    /// A path of another endpoint.
    Remote {
        /// `HOST:PORT`.
        address: String,
        /// Path at that endpoint.
        path: ApiPath,
    },
}

impl Side {
    /// Returns the name of the root; `None` if the side is at another endpoint.
    #[must_use]
    pub fn root(&self) -> Option<String> {
        match self {
            Self::Local(path) => Some(path.root.clone()),
            Self::Remote { .. } => None,
        }
    }

    /// Parses the URL of a side. `is_own` must return true for a `HOST:PORT` of this endpoint.
    ///
    /// # Errors
    /// `InvalidRequest` with a remedy, and the errors of [`ApiPath::parse`].
    pub fn parse(url: &str, is_own: impl Fn(&str) -> bool) -> Result<Self> {
        Self::parse_with(url, ApiPath::parse, is_own)
    }

    fn parse_with(
        url: &str,
        path: impl Fn(&str) -> Result<ApiPath>,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        if url.starts_with('/') {
            return Ok(Self::Local(path(url)?));
        }
        let (address, below) = url::split(url.as_bytes()).map_err(|_| invalid_url(url))?;
        if below.is_empty() {
            return Err(invalid_url(url));
        }
        let path = path(&url[url.len() - below.len()..])?;
        Ok(match is_own(&address) {
            true => Self::Local(path),
            false => Self::Remote { address, path },
        })
    }

    /// Returns the path, whether at this or at another endpoint.
    #[must_use]
    pub const fn path(&self) -> &ApiPath {
        match self {
            Self::Local(path) | Self::Remote { path, .. } => path,
        }
    }

    /// Returns true if the side is at this endpoint.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Returns `HOST:PORT` of the other endpoint; `None` if the side is at this endpoint.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Local(_) => None,
            Self::Remote { address, .. } => Some(address),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Remote { address, .. } = self {
            write!(f, "{SCHEME}{address}")?;
        }
        let path = self.path();
        f.write_str(&path.text())?;
        match path.is_folder && !path.path.is_root() {
            true => f.write_str("/"),
            false => Ok(()),
        }
    }
}

impl From<Side> for String {
    fn from(side: Side) -> Self {
        side.to_string()
    }
}

impl TryFrom<String> for Side {
    type Error = Error;

    /// Reads the text form. Unlike a request, it has no maximum length, because encoding makes a
    /// name longer.
    fn try_from(text: String) -> Result<Self> {
        let path = |text: &str| {
            let bytes = url::decode(text.as_bytes()).map_err(|why| invalid(text, why))?;
            ApiPath::from_bytes(text, &bytes)
        };
        Self::parse_with(&text, path, |_| false)
    }
}

/// Returns a URL or a path in a form that may be logged and quoted. A text that is neither a path
/// nor a valid `dray://` URL may contain secrets: a user name and a password before the host, or a
/// signature after the question mark. These parts are removed.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if text.starts_with('/') || url::split(text.as_bytes()).is_ok() {
        return Cow::Borrowed(text);
    }
    let is_scheme = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric());
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        _ => ("", text),
    };
    // A password may itself contain `/` or `?`, so cut at the last `@` first.
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    match scheme {
        "" => Cow::Borrowed(rest),
        scheme => Cow::Owned(format!("{scheme}://{rest}")),
    }
}

fn invalid_url(url: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the URL")
        .cause(format!(
            "\"{}\" is neither a URL of an endpoint nor a path",
            shortened(url)
        ))
        .remedy("write dray://HOST[:PORT]/ROOT/PATH, or /ROOT/PATH for a path at this endpoint")
}

fn invalid(text: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidName, End::Here, "read the path")
        .cause(format!("\"{}\": {why}", shortened(text)))
        .remedy("write the path as /ROOT/PATH")
}

fn in_path(error: Error, text: &str) -> Error {
    let cause = format!("\"{}\": {}", shortened(text), error.cause);
    Error {
        operation: "read the path".to_owned(),
        remedy: "write the path as /ROOT/PATH".to_owned(),
        ..error.cause(cause)
    }
}

/// Returns a prefix of a text that is long enough for a reader to recognize the text.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let text = &*url::shown(without_secrets(text).as_bytes());
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Decodes a text of the API to the bytes that it encodes.
///
/// # Errors
/// `InvalidName` for a text that [`url::decode`] refuses; `NameTooLong` for a text longer than
/// [`TEXT_BYTES_MAX`].
pub fn decode(text: &str) -> Result<Vec<u8>> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(
            Error::new(ErrorKind::NameTooLong, End::Here, "read the path")
                .cause(format!(
                    "the path has {} bytes; {TEXT_BYTES_MAX} bytes are allowed",
                    text.len()
                ))
                .remedy("use a path with fewer folders or shorter names"),
        );
    }
    url::decode(text.as_bytes()).map_err(|why| invalid(text, why))
}

/// Returns true if the configured name of a peer, `HOST` or `HOST:PORT`, names the peer at
/// `address`.
#[must_use]
pub fn names_peer(name: &str, address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    name == address || name == host
}

#[cfg(test)]
mod tests {
    use super::{ApiPath, Side, without_secrets};
    use dray_core::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_side_is_read_from_its_text_form(
            host in "(|dray://b|dray://B:1|dray://\\[::1\\]:2|dray://own)",
            path in "/(/|\\.|%2e|a|é|%ff|%25|%3F|\u{1}|\u{200b}| ){0,40}",
        ) {
            let parsed = Side::parse(&format!("{host}{path}"), |address| address == "own:4735");
            if let Ok(side) = parsed {
                prop_assert_eq!(Side::try_from(side.to_string()), Ok(side));
            }
        }

        #[test]
        fn no_text_escapes_its_root(text in "(/|\\.|%2e|%2F|%00|a|é|%|dray){0,12}") {
            if let Ok(path) = ApiPath::parse(&text) {
                prop_assert!(path.path.components().all(|name| name.as_bytes() != b".."));
                prop_assert!(!path.root.is_empty() && path.root != "..");
            }
        }
    }

    #[test]
    fn path_consists_of_a_root_and_a_relative_path() {
        let path = ApiPath::parse("/data/run%25/a%FF").expect("good");
        assert_eq!(path.root, "data");
        assert_eq!(path.path.as_bytes(), b"run%/a\xff");
        assert_eq!(path.text(), "/data/run%25/a%FF");
        let root = ApiPath::parse("/data").expect("good");
        assert!(root.path.is_root() && root.is_folder);
        assert!(ApiPath::parse("/data/x/").expect("good").is_folder);
        assert_eq!(ApiPath::parse("/data/").expect("good").text(), "/data");
    }

    #[test]
    fn errors_state_the_fault_of_a_path() {
        for (bad, words) in [
            ("/", "\"/\": the path names no root"),
            ("//a", "\"//a\": the path names no root"),
            (
                "/data//a",
                "\"/data//a\": the path has an empty name between two slashes",
            ),
        ] {
            assert_eq!(ApiPath::parse(bad).expect_err(bad).cause, words);
        }
    }

    #[test]
    fn escaping_and_malformed_paths_are_refused() {
        for (bad, kind) in [
            ("/data/../etc", ErrorKind::PathEscapes),
            ("/data/%2e%2e/etc", ErrorKind::PathEscapes),
            ("/data/a%2F..%2Fb", ErrorKind::InvalidName),
            ("/data/a%2fb", ErrorKind::InvalidName),
            ("/data/a?b", ErrorKind::InvalidName),
            ("/data/a#b", ErrorKind::InvalidName),
            ("/data//a", ErrorKind::InvalidName),
            ("/../etc", ErrorKind::InvalidName),
            ("data/a", ErrorKind::InvalidName),
            ("", ErrorKind::InvalidName),
            ("/", ErrorKind::InvalidName),
            ("/data/a%00", ErrorKind::InvalidName),
            ("/data/%zz", ErrorKind::InvalidName),
            ("/data/%", ErrorKind::InvalidName),
            ("/data/./a", ErrorKind::InvalidName),
            ("/data/.dray-log", ErrorKind::InvalidName),
            ("/data/a/.dray-0123.part/b", ErrorKind::InvalidName),
        ] {
            let error = ApiPath::parse(bad).expect_err(bad);
            assert_eq!(error.kind, kind, "{bad}: {error}");
        }
        let long = format!("/data/{}", "x".repeat(20_000));
        assert!(ApiPath::parse(&long).expect_err("long").to_string().len() < 1000);
    }

    #[test]
    fn the_text_form_of_a_side_may_be_longer_than_a_url() {
        let url = format!("/data{}", format!("/{}", "\u{1}".repeat(200)).repeat(60));
        let side = Side::parse(&url, |_| false).expect("short enough");
        let text = side.to_string();
        assert!(text.len() > super::TEXT_BYTES_MAX);
        assert_eq!(Side::try_from(text), Ok(side));
    }

    #[test]
    fn secrets_in_urls_are_never_logged_or_quoted() {
        for (written, noted) in [
            ("dray://user:secretpw@h:1/data/x", "dray://h:1/data/x"),
            ("dray://user:secretpw/@h/data/x", "dray://h/data/x"),
            ("dray://user:secretpw?@h/data/x", "dray://h/data/x"),
            ("user:secretpw@h/data/x", "h/data/x"),
            ("user:secretpw@h://data/x", "h://data/x"),
            ("https://h/x?sig=secretpw", "https://h/x"),
            ("https://h/x#secretpw", "https://h/x"),
        ] {
            assert_eq!(without_secrets(written), noted);
            let error = Side::parse(written, |_| false).expect_err(written);
            assert!(!error.to_string().contains("secretpw"), "{error}");
        }
        for plain in ["/data/a@b?c#d", "dray://h:1/data/a@b?c", "dray://h/x"] {
            assert_eq!(without_secrets(plain), plain);
        }
    }
}

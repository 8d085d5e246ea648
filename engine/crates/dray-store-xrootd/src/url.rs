//! URL of a file on an XRootD server.

use dray_core::{End, Error, ErrorKind, RelPath, Result};
use std::fmt;

/// Schemes that the XRootD client accepts. The flag is true if the scheme requires TLS.
const SCHEMES: &[(&str, bool)] = &[
    ("root", false),
    ("xroot", false),
    ("roots", true),
    ("xroots", true),
];

/// URL parameter that requests a checksum for each page of 4 KiB, for reads and writes. dray
/// removes the parameter before it sends the URL to a server.
const PAGES: &str = "dray.pages";

/// URL of a file or folder on a server: `root://[user@]host[:port]//path[?cgi]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    tls: bool,
    /// Login name, if the URL has one; never a password.
    user: Option<String>,
    /// Server as `host[:port]`.
    host: String,
    /// Path below the server's root.
    path: RelPath,
    /// Parameters after the question mark. They may contain tokens and keys.
    cgi: String,
    /// Value of the parameter [`PAGES`].
    pages: bool,
}

impl Url {
    /// Returns true if `text` starts with one of the schemes.
    #[must_use]
    pub fn is_meant(text: &[u8]) -> bool {
        let mut schemes = SCHEMES.iter();
        schemes.any(|(scheme, _)| {
            let rest = text.strip_prefix(scheme.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"://"))
        })
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`]. The message omits parts of the URL that may be secret.
    pub fn parse(text: &str) -> Result<Self> {
        Self::read(text.as_bytes())
    }

    /// Parses a URL whose path may contain any bytes.
    ///
    /// # Errors
    /// The errors of [`Self::parse`].
    pub fn read(whole: &[u8]) -> Result<Self> {
        let bad = |why: &str| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the URL")
                .cause(why)
                .remedy("write the URL as root://HOST[:PORT]//PATH")
        };
        if whole.contains(&0) {
            return Err(bad("the URL contains a zero byte"));
        }
        let no_text = |_| bad("only the path of the URL may contain bytes that are not UTF-8");
        let end = whole.iter().position(|byte| *byte == b'?');
        let (place, cgi) = whole.split_at(end.unwrap_or(whole.len()));
        let cgi = std::str::from_utf8(cgi.get(1..).unwrap_or_default()).map_err(no_text)?;
        let server = place.windows(3).position(|part| part == b"://");
        let server = server.ok_or_else(|| bad("the URL has no scheme"))? + 3;
        let path = place[server..].iter().position(|byte| *byte == b'/');
        let (head, path) = place.split_at(path.map_or(place.len(), |at| server + at));
        let head = std::str::from_utf8(head).map_err(no_text)?;
        let (scheme, server) = head
            .split_once("://")
            .ok_or_else(|| bad("the URL has no scheme"))?;
        let mut schemes = SCHEMES.iter();
        let found = schemes.find(|(name, _)| *name == scheme);
        let (_, tls) = found.ok_or_else(|| {
            bad("the URL has a scheme other than root, roots, \
            xroot or xroots")
        })?;
        let (user, host) = match server.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, server),
        };
        if host.is_empty() || host.starts_with(':') {
            return Err(bad("the URL names no host"));
        }
        let user = user.map(|user| user.split_once(':').map_or(user, |(name, _)| name));
        // Several slashes count as one slash, because a server has only absolute paths.
        let names = path.split(|byte| *byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
        let path = RelPath::parse(&names.join(&b'/'))?;
        let (cgi, pages) = without_pages(cgi).ok_or_else(|| bad("dray.pages is 0 or 1"))?;
        Ok(Self {
            tls: *tls,
            user: user.filter(|user| !user.is_empty()).map(str::to_owned),
            host: host.to_owned(),
            path,
            cgi,
            pages,
        })
    }

    /// Returns the same URL with a scheme that requires TLS.
    #[must_use]
    pub const fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Returns the same URL for another server, given as `host[:port]`.
    #[must_use]
    pub(crate) fn with_host(&self, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the URL of another path on the same server.
    #[must_use]
    pub fn with_path(&self, path: &RelPath) -> Self {
        Self {
            path: path.clone(),
            ..self.clone()
        }
    }

    /// Returns the server as `host[:port]`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the host without its port.
    pub(crate) fn host_name(&self) -> &str {
        if let Some((inside, _)) = self
            .host
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            return inside;
        }
        self.host
            .split_once(':')
            .map_or(&*self.host, |(name, _)| name)
    }

    /// Returns the path below the server's root.
    #[must_use]
    pub const fn path(&self) -> &RelPath {
        &self.path
    }

    /// Returns the parameters after the question mark. They may be secret.
    #[must_use]
    pub fn cgi(&self) -> &str {
        &self.cgi
    }

    /// Returns true if the URL requests a checksum for each page (`dray.pages=1`).
    #[must_use]
    pub const fn pages(&self) -> bool {
        self.pages
    }

    /// Returns true if the URL contains the key of a third-party copy. Such a URL may be opened
    /// only once.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.cgi.split('&').any(|pair| pair.starts_with("tpc.key="))
    }

    /// Returns the URL without the parameters of a third-party copy, for requests that do not need
    /// them.
    #[must_use]
    pub fn without_keys(&self) -> Self {
        let pairs = self.cgi.split('&');
        let kept: Vec<&str> = pairs.filter(|pair| !pair.starts_with("tpc.")).collect();
        Self {
            cgi: kept.join("&"),
            ..self.clone()
        }
    }

    /// Returns the server without path, user and secrets, for messages and for the name of a
    /// storage target.
    #[must_use]
    pub fn server(&self) -> String {
        format!("{}://{}", self.scheme(), self.host)
    }

    const fn scheme(&self) -> &'static str {
        match self.tls {
            true => "roots",
            false => "root",
        }
    }

    /// Returns the server in the form that the client needs. `connection` 0 uses the login name of
    /// the URL. Each other number uses another login name, because the client makes a separate
    /// connection for each login name.
    pub(crate) fn login(&self, connection: usize) -> String {
        let user = match (&self.user, connection) {
            (None, 0) => String::new(),
            (Some(user), 0) => format!("{user}@"),
            // Keep the name short, because servers use only the first eight bytes of a login name.
            (user, number) => {
                let name = user.as_deref().unwrap_or("dray");
                let kept: String = name.chars().take(5).collect();
                format!("{kept}{number}@")
            }
        };
        format!("{}://{user}{}", self.scheme(), self.host)
    }

    /// Returns the URL of another path on the same server, in the form that the client needs.
    pub(crate) fn at(&self, path: &RelPath, connection: usize) -> Result<Vec<u8>> {
        let mut at = self.login(connection).into_bytes();
        at.push(b'/');
        at.extend(asked(path, [Some(self.cgi.as_str())])?);
        Ok(at)
    }
}

/// URL parameter that marks dray's own requests. dray's wrapper of the server's storage hides names
/// that begin with `.dray-` from requests without this parameter (see
/// `plugins/xrootd/common/hidden.hh`).
pub(crate) const OWN: &str = "dray.own=1";

/// Returns true if a path is a partial file or a log, or is in a folder of such files.
fn is_own(path: &RelPath) -> bool {
    let mut names = path.as_bytes().split(|byte| *byte == b'/');
    names.any(|name| name.starts_with(b".dray-"))
}

/// Returns a path with its parameters in the form of the server's file system requests.
pub(crate) fn asked<const N: usize>(path: &RelPath, parts: [Option<&str>; N]) -> Result<Vec<u8>> {
    let mut asked = vec![b'/'];
    asked.extend(named(path)?);
    let own = is_own(path).then_some(OWN);
    let parts = parts.into_iter().flatten().chain(own);
    for (count, part) in parts.filter(|part| !part.is_empty()).enumerate() {
        asked.push(if count == 0 { b'?' } else { b'&' });
        asked.extend(part.as_bytes());
    }
    Ok(asked)
}

/// Returns the parameters to send to the server, and true if page checksums are requested. Returns
/// `None` if the parameter [`PAGES`] has an invalid value.
fn without_pages(cgi: &str) -> Option<(String, bool)> {
    let mut pages = false;
    let mut kept = Vec::new();
    // Ignore a leading `&`, because a server starts its copy program with `?&tpc.key=...`.
    for pair in cgi.trim_start_matches('&').split('&') {
        match pair.split_once('=').unwrap_or((pair, "")) {
            (PAGES, "1") => pages = true,
            (PAGES, "0") => pages = false,
            (PAGES, _) => return None,
            _ => kept.push(pair),
        }
    }
    Some((kept.join("&"), pages))
}

/// Returns a path in the form that the client needs. Rejects a question mark, because the client
/// treats it as the end of the path.
fn named(path: &RelPath) -> Result<&[u8]> {
    let name = path.as_bytes();
    if !name.contains(&b'?') {
        return Ok(name);
    }
    Err(
        Error::new(ErrorKind::Unsupported, End::Source, "name the file")
            .file(path)
            .cause("the XRootD client does not accept a name with a question mark")
            .remedy("rename the file on the server"),
    )
}

/// Formats the URL without the parts that may be secret.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}//{}", self.server(), self.path)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::{Url, named};

    fn text(url: dray_core::Result<Vec<u8>>) -> String {
        String::from_utf8(url.expect("good")).expect("text")
    }

    #[test]
    fn names_are_bytes_and_all_else_is_text() {
        let url = Url::read(b"root://h//d/\xff\xfe b?authz=x").expect("good");
        assert_eq!(url.path().as_bytes(), b"d/\xff\xfe b");
        assert_eq!(
            url.at(url.path(), 0).expect("good"),
            b"root://h//d/\xff\xfe b?authz=x"
        );
        assert!(Url::read(b"root://\xff//d").is_err());
        assert!(Url::read(b"root://h//d?authz=\xff").is_err());
        assert!(Url::read(b"root:///d").is_err());
        assert!(Url::read(b"/d").is_err());
        let odd = dray_core::RelPath::parse(b"a?b").expect("good");
        assert!(named(&odd).is_err());
    }

    #[test]
    fn urls_are_read_and_said_without_their_secrets() {
        let given = "xroot://me:pw@[::ffff:127.0.0.1]:18201//d/f8m?&tpc.key=29&authz=secret";
        let url = Url::parse(given).expect("good");
        assert_eq!(url.to_string(), "root://[::ffff:127.0.0.1]:18201//d/f8m");
        assert_eq!(url.path().as_bytes(), b"d/f8m");
        assert_eq!(url.cgi(), "tpc.key=29&authz=secret");
        assert_eq!(
            text(url.at(url.path(), 0)),
            "root://me@[::ffff:127.0.0.1]:18201//d/f8m?tpc.key=29&authz=secret"
        );
        assert_eq!(url.login(3), "root://me3@[::ffff:127.0.0.1]:18201");
        assert!(!format!("{url:?}").contains("secret"));
        assert!(url.has_key());
        assert_eq!(url.without_keys().cgi(), "authz=secret");
        let plain = Url::parse("root://h/a").expect("good");
        assert_eq!(text(plain.at(plain.path(), 0)), "root://h//a");
        assert_eq!(plain.with_tls().login(0), "roots://h");
    }

    #[test]
    fn drays_own_names_are_asked_for_as_such() {
        let url = Url::parse("root://h//a?authz=x").expect("good");
        let at = |path: &[u8]| {
            let path = dray_core::RelPath::parse(path).expect("good");
            text(url.at(&path, 0))
        };
        assert_eq!(at(b"d/.dray"), "root://h//d/.dray?authz=x");
        assert_eq!(
            at(b"d/.dray-1.part"),
            "root://h//d/.dray-1.part?authz=x&dray.own=1"
        );
        assert_eq!(
            at(b".dray-log/a"),
            "root://h//.dray-log/a?authz=x&dray.own=1"
        );
    }

    #[test]
    fn pages_are_asked_for_by_the_url_and_the_server_hears_nothing_of_it() {
        let read = |text: &str| Url::parse(text).expect("good");
        let asked = read("root://h//a?authz=x&dray.pages=1&y=2");
        assert!(
            asked.pages() && asked.cgi() == "authz=x&y=2",
            "{}",
            asked.cgi()
        );
        assert!(asked.with_host("g").pages());
        let only = read("root://h//a?dray.pages=1");
        assert_eq!(text(only.at(only.path(), 0)), "root://h//a");
        assert!(!read("root://h//a?dray.pages=0").pages());
        assert!(Url::parse("root://h//a?dray.pages=yes").is_err());
    }

    #[test]
    fn malformed_urls_are_refused_without_being_shown() {
        for text in [
            "h//a",
            "http://h//a",
            "root://",
            "root://:1//a",
            "root://h//a/../b",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        let error = Url::parse("root://:1//a?authz=secret").expect_err("no host");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(Url::is_meant(b"roots://h//a"));
        assert!(!Url::is_meant(b"root:/h//a"));
        assert!(!Url::is_meant(b"./root://h//a"));
    }
}

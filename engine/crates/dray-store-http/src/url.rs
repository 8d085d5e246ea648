//! URLs of files on a web server (RFC 3986), in the subset that a transfer needs. A URL has a
//! server and a path, which is stored as decoded bytes.

use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use std::fmt;

/// Hexadecimal digits for escapes.
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// A server to which connections are made and to which credentials belong.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// True if connections use TLS.
    pub is_secure: bool,
    /// Server as `host[:port]` in lower case. The port is present only if the URL has one.
    pub authority: String,
}

impl Origin {
    /// Returns the host without the port. An IPv6 address is returned without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        let authority = self.authority.as_str();
        match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => authority.split(':').next().unwrap_or(authority),
        }
    }

    /// Returns `host:port`. If the URL has no port, returns the default port of the scheme.
    #[must_use]
    pub fn server(&self) -> String {
        let after = self.authority.rsplit(']').next().unwrap_or_default();
        match after.rsplit_once(':') {
            Some((_, port)) if !port.is_empty() => self.authority.clone(),
            _ => format!("{}:{}", self.authority.trim_end_matches(':'), self.port()),
        }
    }

    /// Returns true if the host is this host, so that no other host can read the traffic.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address: Option<std::net::IpAddr> = self.host().parse().ok();
        self.host() == "localhost" || address.is_some_and(|address| address.is_loopback())
    }

    /// Returns true if connections to this server stay on this host: its name is a loopback name or
    /// resolves to a loopback address. The call resolves the name.
    pub(crate) fn leads_here(&self) -> bool {
        use std::net::ToSocketAddrs as _;
        if self.is_loopback() {
            return true;
        }
        let port = self.port().parse().unwrap_or(0);
        // A name that cannot be resolved is not this host.
        let mut found = (self.host(), port).to_socket_addrs().into_iter().flatten();
        found.any(|address| {
            let address = address.ip().to_canonical();
            address.is_loopback() || address.is_unspecified()
        })
    }

    /// Returns the port, or the default port of the scheme.
    fn port(&self) -> &str {
        let after = self.authority.rsplit(']').next().unwrap_or_default();
        match after.rsplit_once(':') {
            Some((_, port)) if !port.is_empty() => port,
            _ if self.is_secure => "443",
            _ => "80",
        }
    }

    /// Returns true if both values are the same server.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.is_secure == other.is_secure
            && self.host() == other.host()
            && self.port() == other.port()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// URL of a file or folder on a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    /// Server of the file or folder.
    pub origin: Origin,
    /// Decoded path below the server's root.
    pub path: RelPath,
    /// True if the path ends with a slash. The URL then refers to the contents of a folder.
    pub is_folder: bool,
    /// Query of the URL, not decoded. It may be a secret and is never printed.
    pub query: Option<String>,
}

impl HttpUrl {
    /// Parses a URL with the scheme `http://`, `https://`, `dav://` (as http) or `davs://` (as
    /// https). Returns `None` for another scheme.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the URL is not valid. The message omits the query.
    pub fn read(text: &[u8]) -> Result<Option<Self>> {
        let schemes: [(&[u8], bool); 4] = [
            (b"http://", false),
            (b"https://", true),
            (b"dav://", false),
            (b"davs://", true),
        ];
        let Some((rest, is_secure)) = schemes
            .iter()
            .find_map(|(scheme, secure)| Some((strip(text, scheme)?, *secure)))
        else {
            return Ok(None);
        };
        let shown = text.split(|byte| *byte == b'?').next().unwrap_or_default();
        let bad = |why: &str| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the address")
                .cause(format!("{}: {why}", dray_core::path::escape(shown)))
                .remedy("write the address as https://HOST[:PORT]/PATH")
        };
        let rest = rest.split(|byte| *byte == b'#').next().unwrap_or_default();
        let (place, query) = match rest.iter().position(|byte| *byte == b'?') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let slash = place.iter().position(|byte| *byte == b'/');
        let (authority, path) = place.split_at(slash.unwrap_or(place.len()));
        let authority =
            std::str::from_utf8(authority).map_err(|_| bad("the host name is not UTF-8 text"))?;
        if authority.contains('@') {
            // The message omits the text of the URL, because a password may precede the `@`.
            return Err(
                Error::new(ErrorKind::InvalidRequest, End::Here, "read the address")
                    .cause("the address contains a user or a password before the host")
                    .remedy(
                        "put a bearer token into a file, and set BEARER_TOKEN_FILE to the \
                        path of this file",
                    ),
            );
        }
        if !is_authority(authority) {
            return Err(bad("the address has no host, or its port is not a number"));
        }
        let query = query
            .map(|query| {
                let is_plain = query.iter().all(|byte| (0x21..0x7f).contains(byte));
                let text = std::str::from_utf8(query).ok().filter(|_| is_plain);
                text.map(str::to_owned)
                    .ok_or_else(|| bad("characters after the question mark must be written as %HH"))
            })
            .transpose()?;
        Ok(Some(Self {
            origin: Origin {
                is_secure,
                authority: authority.to_ascii_lowercase(),
            },
            path: read_path(path).map_err(|why| bad(&why))?,
            is_folder: path.last().is_none_or(|byte| *byte == b'/'),
            query,
        }))
    }
}

impl fmt::Display for HttpUrl {
    /// Formats the URL without its query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.is_folder && !self.path.is_root() {
            "/"
        } else {
            ""
        };
        write!(f, "{}/{}{slash}", self.origin, encode(&self.path))
    }
}

/// Returns the text after `scheme`, which is compared without regard to case.
fn strip<'a>(text: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, after)) => (host, after),
            None => return false,
        },
        None => match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        },
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    let is_port = match port.strip_prefix(':') {
        // An empty port means the default port of the scheme (RFC 3986, section 3.2.3).
        Some(port) => port.is_empty() || port.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    !host.is_empty() && host.bytes().all(is_host) && is_port
}

/// Parses the path of a URL. Several slashes in a row count as one slash.
pub(crate) fn read_path(text: &[u8]) -> Result<RelPath, String> {
    let mut path = RelPath::root();
    for part in text.split(|byte| *byte == b'/') {
        if part.is_empty() {
            continue;
        }
        let bytes =
            decode(part).ok_or("the address contains a % without two hexadecimal digits")?;
        let name = Name::new(&bytes).map_err(|error| error.cause)?;
        path = path.join(&name).map_err(|error| error.cause)?;
    }
    Ok(path)
}

/// Decodes escapes. Returns `None` for a malformed escape.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    Some(bytes)
}

/// Encodes a path for a URL. Escapes every byte that can have a meaning in a URL.
#[must_use]
pub(crate) fn encode(path: &RelPath) -> String {
    let mut text = String::with_capacity(path.as_bytes().len());
    for byte in path.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            escape(&mut text, *byte);
        }
    }
    text
}

/// Escapes a URL that a server sent without escapes. XRootD's servers up to version 5.5 redirect to
/// such URLs. Existing escapes are kept.
pub(crate) fn mended(location: &[u8]) -> String {
    let mut text = String::with_capacity(location.len());
    for (at, byte) in location.iter().enumerate() {
        let digits = location.get(at + 1..at + 3).unwrap_or_default();
        let is_escape = digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit);
        let is_good = match byte {
            b'%' => is_escape,
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            byte => byte.is_ascii_graphic(),
        };
        match is_good {
            true => text.push(char::from(*byte)),
            false => escape(&mut text, *byte),
        }
    }
    text
}

fn escape(text: &mut String, byte: u8) {
    text.push('%');
    text.push(char::from(HEX[usize::from(byte >> 4)]));
    text.push(char::from(HEX[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::{HttpUrl, mended};

    fn read(text: &str) -> HttpUrl {
        let url = HttpUrl::read(text.as_bytes()).expect(text);
        url.expect("an address of a web server")
    }

    #[test]
    fn an_address_is_read_and_shown_without_its_query() {
        let url = read("HTTPS://Host.Org:8443//store/a%20b%25.root?authz=secret#part");
        assert_eq!(url.origin.to_string(), "https://host.org:8443");
        assert_eq!(url.path.as_bytes(), b"store/a b%.root");
        assert_eq!(url.query.as_deref(), Some("authz=secret"));
        assert!(!url.is_folder);
        assert_eq!(url.to_string(), "https://host.org:8443/store/a%20b%25.root");
        assert!(read("davs://h/f").origin.is_secure);
        assert!(read("http://h").is_folder && read("http://h/a/").is_folder);
        assert_eq!(HttpUrl::read(b"root://h//f"), Ok(None));
        assert_eq!(HttpUrl::read(b"./http://h"), Ok(None));
    }

    #[test]
    fn an_address_with_bare_names_is_mended() {
        for (given, wanted) in [
            ("http://[::1]:8/a%20b?c=d%2F", "http://[::1]:8/a%20b?c=d%2F"),
            ("http://h/50% off + 1", "http://h/50%25%20off%20+%201"),
            ("http://h/\u{e4}{1}%", "http://h/%C3%A4%7B1%7D%25"),
        ] {
            assert_eq!(mended(given.as_bytes()), wanted);
        }
    }

    #[test]
    fn a_server_is_named_with_its_port() {
        for (written, server) in [
            ("https://H/f", "h:443"),
            ("http://h:/f", "h:80"),
            ("davs://h:8443/f", "h:8443"),
            ("http://[::1]/f", "[::1]:80"),
            ("https://[::1]:1094/f", "[::1]:1094"),
        ] {
            assert_eq!(read(written).origin.server(), server, "{written}");
        }
    }

    #[test]
    fn malformed_urls_are_refused_without_showing_secrets() {
        for wrong in [
            "http://",
            "http:///f",
            "http://h:99999/f",
            "http://h:x/f",
            "http://[::1/f",
            "http://h/a/../b",
            "http://h/%2e%2e/b",
            "http://h/a%zz",
            "http://h/a%2Fb",
            "http://h/f?a b",
            "http://user:secret@h/f",
            "http://h/%00?secret",
        ] {
            let error = HttpUrl::read(wrong.as_bytes()).expect_err(wrong);
            assert!(!error.cause.is_empty() && !error.remedy.is_empty());
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn servers_are_told_apart() {
        let origin = |text| read(text).origin;
        assert!(origin("https://h/").is(&origin("https://h:443/f")));
        assert!(!origin("https://h/").is(&origin("http://h:443/")));
        assert!(!origin("http://h:81/").is(&origin("http://h/")));
        assert!(origin("http://[::1]:81/").is(&origin("http://[::1]:81/f")));
        assert!(origin("http://[::1]:81/").is_loopback());
        assert!(origin("http://127.0.0.1/").is_loopback());
        assert!(!origin("http://127.0.0.1.example.org/").is_loopback());
        for here in [
            "http://127.0.0.1/",
            "http://[::ffff:127.0.0.1]:1/",
            "http://0.0.0.0/",
            "http://127.1/",
            "http://2130706433/",
        ] {
            assert!(origin(here).leads_here(), "{here}");
        }
        assert!(!origin("http://192.0.2.1/").leads_here());
    }
}

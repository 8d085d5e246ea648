//! Targets of requests, and targets of redirects.

use crate::url::{HttpUrl, Origin, decode, encode, mended};
use dray_core::RelPath;

/// A resource on a server, in the form of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestTarget {
    pub(crate) origin: Origin,
    /// Path and query of the resource.
    pub(crate) target: String,
}

impl RequestTarget {
    pub(crate) fn new(origin: &Origin, path: &RelPath, query: Option<&str>) -> Self {
        let target = match query {
            Some(query) => format!("/{}?{query}", encode(path)),
            None => format!("/{}", encode(path)),
        };
        Self {
            origin: origin.clone(),
            target,
        }
    }

    /// Returns the target with a slash at the end of its path, which is the form for a folder.
    pub(crate) fn into_folder(mut self) -> Self {
        let at = self.target.find('?').unwrap_or(self.target.len());
        if !self.target[..at].ends_with('/') {
            self.target.insert(at, '/');
        }
        self
    }

    /// Returns the bytes of the path.
    pub(crate) fn named(&self) -> Vec<u8> {
        let path = self.target.split('?').next().unwrap_or_default();
        decode(path.as_bytes()).unwrap_or_default()
    }

    /// Returns true if both targets name the same file, on any server.
    pub(crate) fn names_as(&self, other: &Self) -> bool {
        self.named() == other.named()
    }

    /// Returns true if the name contains `%HH` or `#`, so that it may be taken for the escaped form
    /// of another name.
    pub(crate) fn may_be_confused(&self) -> bool {
        let name = self.named();
        let is_escape = |part: &[u8]| {
            part.len() == 3 && part[0] == b'%' && part[1..].iter().all(u8::is_ascii_hexdigit)
        };
        name.windows(3).any(is_escape) || name.contains(&b'#')
    }

    /// Corrects the location of a redirect. XRootD's servers up to version 5.5 do not escape names
    /// in locations. If the location contains exactly the requested name, all bytes of the name are
    /// taken literally.
    pub(crate) fn meant(&self, location: &[u8]) -> String {
        let (head, rest) = location.split_at(start_of_path(location));
        let named = self.named();
        match rest.strip_prefix(named.as_slice()) {
            Some(query) if named.len() > 1 && matches!(query.first(), None | Some(b'?')) => {
                let path = self.target.split('?').next().unwrap_or_default();
                format!("{}{path}{}", mended(head), mended(query))
            }
            _ => mended(location),
        }
    }

    /// Returns the target of a redirect.
    pub(crate) fn redirected(&self, location: &str) -> Option<Self> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(Self {
                origin: self.origin.clone(),
                target: location.to_owned(),
            });
        }
        if !has_scheme(location) && !location.starts_with("//") {
            return self.relative(location);
        }
        let scheme = if self.origin.is_secure {
            "https:"
        } else {
            "http:"
        };
        let whole = match location.starts_with("//") {
            true => format!("{scheme}{location}"),
            false => location.to_owned(),
        };
        let location = whole.as_str();
        let url = HttpUrl::read(location.as_bytes()).ok()??;
        let rest = location.split_once("://")?.1;
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let target = rest[at..].split('#').next().unwrap_or_default();
        Some(Self {
            origin: url.origin,
            target: match target.starts_with('/') {
                true => target.to_owned(),
                false => format!("/{target}"),
            },
        })
    }
}

impl RequestTarget {
    /// Resolves a location that has no server and no leading slash (RFC 3986, section 5.2).
    fn relative(&self, location: &str) -> Option<Self> {
        let location = location.split('#').next().unwrap_or_default();
        let path = self.target.split('?').next().unwrap_or_default();
        let target = match location.split_once('?') {
            None if location.is_empty() => return None,
            Some(("", _)) => format!("{path}{location}"),
            found => {
                let (named, query) = found.map_or((location, None), |(a, b)| (a, Some(b)));
                let folder = &path[..=path.rfind('/')?];
                let named = without_dots(&format!("{folder}{named}"));
                query.map_or_else(|| named.clone(), |query| format!("{named}?{query}"))
            }
        };
        Some(Self {
            origin: self.origin.clone(),
            target,
        })
    }
}

/// Returns true if a location starts with a scheme.
fn has_scheme(location: &str) -> bool {
    let head = location.split(['/', '?', '#']).next().unwrap_or_default();
    head.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// Removes `.` and `..` from a path. `..` at the root has no effect.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.trim_start_matches('/').split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Returns the index in a location at which its path starts.
fn start_of_path(location: &[u8]) -> usize {
    let scheme = location.windows(3).position(|part| part == b"://");
    // A location that starts with a slash has no server, even if it contains `://`.
    let Some(scheme) = scheme.filter(|_| !location.starts_with(b"/")) else {
        return 0;
    };
    let host = scheme + 3;
    let path = location[host..].iter().position(|byte| *byte == b'/');
    path.map_or(location.len(), |path| host + path)
}

#[cfg(test)]
mod tests {
    use super::RequestTarget;
    use crate::url::HttpUrl;

    #[test]
    fn a_redirect_to_a_bare_name_leads_to_that_name() {
        for (asked, location, wanted) in [
            // In the first row, the redirecting server escapes the name. In the second row, it does
            // not.
            ("/my%2520file", "http://b:1/my%2520file", "/my%2520file"),
            ("/my%2520file", "http://b:1/my%20file", "/my%2520file"),
            ("/my%20file", "http://b:1/my file?x=%2F", "/my%20file?x=%2F"),
            ("/my%20file", "http://b:1/my%20file", "/my%20file"),
            ("/run%231", "http://b:1/run#1?authz=a", "/run%231?authz=a"),
            ("/run%231", "/run#1", "/run%231"),
            ("/d/a%3Fb", "http://b:1/d/a?b", "/d/a%3Fb"),
            ("/d%25/", "http://b:1/d%/", "/d%25/"),
            ("/a", "http://b:1/other/b%20c?q#z", "/other/b%20c?q"),
            ("/a", "http://b:1/ab", "/ab"),
        ] {
            let url = HttpUrl::read(b"http://h/").expect("good").expect("web");
            let place = RequestTarget {
                origin: url.origin,
                target: asked.to_owned(),
            };
            let next = place.redirected(&place.meant(location.as_bytes()));
            assert_eq!(
                next.expect(location).target,
                wanted,
                "{asked} at {location}"
            );
        }
    }

    #[test]
    fn a_relative_redirect_is_resolved_against_what_was_asked() {
        let url = HttpUrl::read(b"https://h:1/a/b/c?q")
            .expect("good")
            .expect("web");
        let place = RequestTarget::new(&url.origin, &url.path, url.query.as_deref());
        for (location, wanted) in [
            ("d", "https://h:1/a/b/d"),
            ("./d?x#y", "https://h:1/a/b/d?x"),
            ("../d/", "https://h:1/a/d/"),
            ("../../../d", "https://h:1/d"),
            ("..", "https://h:1/a/"),
            ("?x", "https://h:1/a/b/c?x"),
            ("d:e/f", ""),
            ("./d:e", "https://h:1/a/b/d:e"),
            ("//i:2/d", "https://i:2/d"),
            ("mailto:a", ""),
            ("#d", ""),
            ("", ""),
        ] {
            let next = place.redirected(location);
            let next = next.map(|next| format!("{}{}", next.origin, next.target));
            assert_eq!(next.unwrap_or_default(), wanted, "{location}");
        }
    }

    #[test]
    fn a_redirect_leads_to_a_server_or_another_path() {
        let url = HttpUrl::read(b"https://h:1/a/b?q")
            .expect("good")
            .expect("web");
        let place = RequestTarget::new(&url.origin, &url.path, url.query.as_deref());
        let to = |text: &str| {
            let next = place.redirected(text)?;
            Some(format!("{}{}", next.origin, next.target))
        };
        assert_eq!(to("/c?x#y").as_deref(), Some("https://h:1/c?x#y"));
        assert_eq!(
            to("http://i/c%20d?x#y").as_deref(),
            Some("http://i/c%20d?x")
        );
        assert_eq!(to("http://i?x").as_deref(), Some("http://i/?x"));
        for nowhere in ["", "ftp://i/c", "http://", "http://u@i/"] {
            assert_eq!(to(nowhere), None, "{nowhere}");
        }
        assert_eq!(place.into_folder().target, "/a/b/?q");
    }
}

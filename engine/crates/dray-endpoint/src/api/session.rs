//! The cookies of logins, and the checks of calls that show a session instead of a token.
//!
//! A browser sends a cookie with every request to this host, even if a page of another site makes
//! the request. So a call with the cookie of a session must prove that the console made it:
//!
//! - The call has the header `Dray-Console`. A page of another site cannot set this header without
//!   a preflight request (Fetch, "CORS-preflight fetch"), which the endpoint does not permit.
//! - `Sec-Fetch-Site`, which pages cannot set, is `same-origin` if the browser sends it.
//! - `Origin` is the configured address of the console. Only GET and HEAD requests may lack it.
//!
//! Invariant of this module: no call acts for the user of a session unless it passes these checks.

use super::refusal::{Answer, Refusal};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use dray_access::login::{ATTEMPT_SECONDS, Logins, SessionKey, SessionUse, User};
use dray_core::{End, Error, ErrorKind};

/// Header of every call of the console with a session. The value is `active` if the user has done
/// something since the last call, and otherwise `idle`.
const HEADER: &str = "dray-console";

/// The paths of the API and of the calls about the session. No other path gets the cookie.
const SESSION_PATHS: [&str; 2] = ["/v1", "/ui/session"];

/// A cookie of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Id of a session.
    Session,
    /// Secret of a login in progress.
    Attempt,
}

impl Cookie {
    /// Returns the name of the cookie. It contains the port, because browsers send the cookies of a
    /// host to all of its ports. The prefix `__Secure-` makes browsers refuse a cookie of this name
    /// without `Secure`.
    fn name(self, origin: &str) -> String {
        let (prefix, host) = match origin.strip_prefix("https://") {
            Some(host) => ("__Secure-", host),
            None => ("", origin.trim_start_matches("http://")),
        };
        let kind = match self {
            Self::Session => "session",
            Self::Attempt => "login",
        };
        match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => format!("{prefix}dray-{kind}-{port}"),
            _ => format!("{prefix}dray-{kind}"),
        }
    }

    /// Returns the value of the cookie in a request.
    pub(super) fn find<'a>(self, headers: &'a HeaderMap, origin: &str) -> Answer<Option<&'a str>> {
        let name = self.name(origin);
        let lines = headers.get_all(header::COOKIE).iter();
        let pairs = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        let first = values.next();
        match values.next() {
            None => Ok(first),
            // Another service of this host or domain may have set the other one.
            Some(_) => Err(refused(
                &format!("the request has two cookies with the name {name}"),
                "delete the cookies of this site in the browser, and log in again",
            )),
        }
    }
}

/// Returns the attributes that all cookies have. Only a console at a loopback address may lack TLS,
/// and its cookies then lack `Secure`.
fn attributes(origin: &str) -> &'static str {
    match origin.starts_with("https://") {
        true => "HttpOnly; Secure",
        false => "HttpOnly",
    }
}

/// Returns the values of `Set-Cookie` that begin a session. The cookie has no maximum age, so a
/// browser deletes the cookie when the user closes the browser. `SameSite=Strict` is possible
/// because only scripts of the console need the cookie.
pub(super) fn session_cookies(origin: &str, id: &str) -> [String; 2] {
    let (name, rest) = (Cookie::Session.name(origin), attributes(origin));
    SESSION_PATHS.map(|path| format!("{name}={id}; Path={path}; {rest}; SameSite=Strict"))
}

/// Returns the values of `Set-Cookie` that remove the cookie of a session.
pub(super) fn no_session_cookies(origin: &str) -> [String; 2] {
    session_cookies(origin, "").map(|cookie| format!("{cookie}; Max-Age=0"))
}

/// Returns the value of `Set-Cookie` for a login in progress. The cookie is `SameSite=Lax`, because
/// a page of another site, that of the provider, sends the browser back.
pub(super) fn attempt_cookie(origin: &str, login: &str, value: &str) -> String {
    let (name, rest) = (Cookie::Attempt.name(origin), attributes(origin));
    let age = if value.is_empty() { 0 } else { ATTEMPT_SECONDS };
    format!("{name}={value}; Path=/ui/login/{login}; Max-Age={age}; {rest}; SameSite=Lax")
}

fn refused(cause: &str, remedy: &str) -> Refusal {
    Error::new(ErrorKind::Unauthorized, End::Here, "identify the caller")
        .cause(cause)
        .remedy(remedy)
        .into()
}

/// Returns the use of the session if the console of this endpoint made the call.
fn made_by_console(parts: &Parts, origin: &str) -> Answer<SessionUse> {
    let value = |name: &str| parts.headers.get(name).map(|value| value.as_bytes());
    let using = match value(HEADER) {
        Some(b"active") => SessionUse::ByUser,
        Some(b"idle") => SessionUse::ByPage,
        _ => {
            return Err(refused(
                "the call shows a session, but not the header Dray-Console of the console",
                "use the console at /ui/, or send a token",
            ));
        }
    };
    let other = |cause: &str| {
        let remedy = format!("open the console at {origin}/ui/");
        Err(refused(cause, &remedy))
    };
    if value("sec-fetch-site").is_some_and(|site| site != b"same-origin") {
        return other("a web page of another site made the call with the session of the browser");
    }
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    match value(header::ORIGIN.as_str()) {
        Some(from) if from == origin.as_bytes() => Ok(using),
        None if is_read => Ok(using),
        None => other("the call with a session does not contain the header Origin"),
        Some(_) => other("a web page of another address made the call with a session"),
    }
}

/// Returns the user of the session that a call shows. `None` if the call shows no session.
///
/// # Errors
/// `Unauthorized` if the session has ended, or if the console did not make the call.
pub(super) fn by_session(parts: &Parts, logins: &Logins) -> Answer<Option<(User, SessionKey)>> {
    let origin = logins.origin();
    if logins.list().next().is_none() {
        return Ok(None);
    }
    let Some(id) = Cookie::Session.find(&parts.headers, origin)? else {
        return Ok(None);
    };
    let using = made_by_console(parts, origin)?;
    Ok(Some(logins.user(id, using)?))
}

#[cfg(test)]
mod tests {
    use super::{Cookie, attempt_cookie, made_by_console, no_session_cookies, session_cookies};
    use axum::http::request::Parts;
    use axum::http::{Method, Request};
    use dray_access::login::SessionUse;

    const ORIGIN: &str = "https://a.example:4735";

    fn parts(method: Method, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/v1/transfers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn cookies_are_secret_bounded_by_paths_and_named_after_the_port() {
        let cookies = session_cookies(ORIGIN, "id");
        assert_eq!(
            cookies[0],
            "__Secure-dray-session-4735=id; Path=/v1; HttpOnly; Secure; SameSite=Strict"
        );
        assert!(cookies[1].contains("Path=/ui/session;"), "{}", cookies[1]);
        let plain = session_cookies("http://[::1]", "id");
        assert_eq!(
            plain[0],
            "dray-session=id; Path=/v1; HttpOnly; SameSite=Strict"
        );
        for gone in no_session_cookies(ORIGIN) {
            assert!(gone.ends_with("Max-Age=0"), "{gone}");
        }
        assert_eq!(
            attempt_cookie(ORIGIN, "iam", "v"),
            "__Secure-dray-login-4735=v; Path=/ui/login/iam; Max-Age=600; HttpOnly; Secure; \
             SameSite=Lax"
        );
        assert!(attempt_cookie(ORIGIN, "iam", "").contains("Max-Age=0"));
    }

    #[test]
    fn a_cookie_is_found_once() {
        let find = |lines: &[&str]| {
            let headers: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
            let parts = parts(Method::GET, &headers);
            let found = Cookie::Session.find(&parts.headers, ORIGIN);
            found.map(|value| value.map(str::to_owned)).map_err(|_| ())
        };
        let name = "__Secure-dray-session-4735";
        let one = format!("a=b; {name}=x");
        let other = format!("{name}=y; c=d");
        assert_eq!(find(&[&one]), Ok(Some("x".to_owned())));
        assert_eq!(find(&["a=b", &other]), Ok(Some("y".to_owned())));
        assert_eq!(
            find(&["dray-session-4735=x; __Secure-dray-session-4=x"]),
            Ok(None)
        );
        assert_eq!(find(&[]), Ok(None));
        assert_eq!(find(&[&one, &other]), Err(()));
    }

    #[test]
    fn only_the_console_may_use_a_session() {
        let by = |method: Method, headers: &[(&str, &str)]| {
            made_by_console(&parts(method, headers), ORIGIN).ok()
        };
        let (active, idle) = (("dray-console", "active"), ("dray-console", "idle"));
        let own = ("origin", ORIGIN);
        let same = ("sec-fetch-site", "same-origin");
        assert_eq!(by(Method::GET, &[idle]), Some(SessionUse::ByPage));
        assert_eq!(by(Method::GET, &[active, same]), Some(SessionUse::ByUser));
        assert_eq!(
            by(Method::POST, &[active, own, same]),
            Some(SessionUse::ByUser)
        );
        assert_eq!(by(Method::POST, &[idle, own]), Some(SessionUse::ByPage));
        for (method, headers) in [
            (Method::GET, vec![]),
            (Method::GET, vec![("dray-console", "1"), same]),
            (Method::GET, vec![active, ("sec-fetch-site", "same-site")]),
            (Method::GET, vec![active, ("sec-fetch-site", "none")]),
            (Method::GET, vec![active, ("origin", "https://a.example")]),
            (Method::POST, vec![own, same]),
            (Method::POST, vec![active, same]),
            (Method::POST, vec![active, ("origin", "null")]),
            (
                Method::POST,
                vec![active, ("origin", "http://a.example:4735")],
            ),
            (
                Method::POST,
                vec![active, ("origin", "https://a.example:4736")],
            ),
            (
                Method::POST,
                vec![active, own, ("sec-fetch-site", "cross-site")],
            ),
            (Method::DELETE, vec![active]),
            (Method::PATCH, vec![active]),
        ] {
            assert_eq!(by(method.clone(), &headers), None, "{method} {headers:?}");
        }
    }
}

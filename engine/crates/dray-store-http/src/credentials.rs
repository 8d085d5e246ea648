//! Credentials: HTTP headers that are sent to one server only. dray never prints credentials.

use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Interval between reads of the token file. A program that renews the token replaces the file long
/// before the old token expires, so a token that was read within this interval is still valid.
const FILE_FRESH: Duration = Duration::from_secs(30);

/// Maximum length of a token in bytes. Real tokens have one to four KiB.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Credentials for HTTP requests to one server. Other servers, for example after a redirect, do not
/// get them.
#[derive(Default)]
pub struct Credentials {
    /// Headers for the server, as the user gave them.
    headers: Vec<(String, String)>,
    token: Option<Token>,
}

enum Token {
    Given(String),
    File {
        path: PathBuf,
        read: Mutex<Option<(Instant, String)>>,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Credentials")
            .field("headers", &names)
            .field("has_token", &self.token.is_some())
            .finish()
    }
}

impl Credentials {
    /// Returns credentials without headers and without a token.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns credentials that consist of headers. The user gave these headers for one server.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the value of a header cannot be sent, or if the caller must
    /// not set the header. The error contains the name of the header.
    pub fn of_headers(headers: Vec<(String, String)>) -> Result<Self> {
        for (name, value) in &headers {
            let is_name = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            let is_ours = ["host", "range", "if-match", "connection", "content-length"]
                .iter()
                .chain(&["transfer-encoding", "te", "upgrade", "expect", "depth"])
                .any(|ours| name.eq_ignore_ascii_case(ours));
            if !is_name || is_ours || !is_visible(value) {
                let cause = format!(
                    "dray itself sets the header {name:?}, or the header has characters that \
                        its name or value must not contain"
                );
                return Err(unusable(cause).remedy("omit or correct this header"));
            }
        }
        Ok(Self {
            headers,
            token: None,
        })
    }

    /// Returns the bearer token of the environment. This is the value of `BEARER_TOKEN`, or the
    /// content of the file whose path is in `BEARER_TOKEN_FILE`. The file is read again
    /// periodically. `variable` returns the value of an environment variable.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for an invalid token.
    pub fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let given = variable("BEARER_TOKEN").filter(|token| !token.is_empty());
        let token = match (given, variable("BEARER_TOKEN_FILE")) {
            (Some(token), _) => {
                let token = token.into_string().unwrap_or_default();
                Some(Token::Given(usable(&token, "BEARER_TOKEN")?))
            }
            (None, Some(path)) if !path.is_empty() => Some(Token::File {
                path: path.into(),
                read: Mutex::default(),
            }),
            _ => None,
        };
        Ok(Self {
            headers: Vec::new(),
            token,
        })
    }

    /// Returns the headers for the server to which these credentials belong. `is_private` is true
    /// if the connection uses TLS or stays on this host. A token of the environment is sent only
    /// over a private connection, because the user did not give it for a particular server.
    ///
    /// # Errors
    /// An error if the token file cannot be read.
    pub(crate) fn for_server(&self, is_private: bool) -> Result<Vec<(&str, String)>> {
        let given = self.headers.iter();
        let mut headers: Vec<(&str, String)> = given
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        if let (Some(token), true) = (&self.token, is_private) {
            headers.push(("Authorization", format!("Bearer {}", token.now()?)));
        }
        Ok(headers)
    }
}

impl Token {
    fn now(&self) -> Result<String> {
        let (path, read) = match self {
            Self::Given(token) => return Ok(token.clone()),
            Self::File { path, read } => (path, read),
        };
        let mut read = read.lock_unpoisoned();
        if let Some((at, token)) = &*read
            && at.elapsed() < FILE_FRESH
        {
            return Ok(token.clone());
        }
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| unusable(format!("the token file {shown}: {error}")))?;
        let token = usable(&text, &shown)?;
        *read = Some((Instant::now(), token.clone()));
        Ok(token)
    }
}

fn usable(text: &str, place: &str) -> Result<String> {
    let token = text.trim();
    let is_token = !token.is_empty() && token.len() <= TOKEN_BYTES_MAX && is_visible(token);
    match is_token && !token.contains(' ') {
        true => Ok(token.to_owned()),
        false => Err(unusable(format!("{place} does not contain a token"))),
    }
}

fn is_visible(value: &str) -> bool {
    value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

fn unusable(cause: String) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "use the credentials")
        .cause(cause)
        .remedy("set BEARER_TOKEN_FILE to a file that holds one token")
}

#[cfg(test)]
mod tests {
    use super::Credentials;
    use std::ffi::OsString;

    #[test]
    fn a_token_is_found_and_never_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, " se.cr.et \n").expect("written");
        let variable = |name: &str| (name == "BEARER_TOKEN_FILE").then(|| file.clone().into());
        let credentials = Credentials::from_environment(variable).expect("good");
        let headers = credentials.for_server(true).expect("read");
        assert_eq!(headers, [("Authorization", "Bearer se.cr.et".to_owned())]);
        assert_eq!(credentials.for_server(false).expect("none"), []);
        assert!(!format!("{credentials:?}").contains("se.cr.et"));

        let given = |name: &str| (name == "BEARER_TOKEN").then(|| OsString::from("a b"));
        let error = Credentials::from_environment(given).expect_err("no token");
        assert!(!error.to_string().contains("a b"), "{error}");
    }

    #[test]
    fn headers_that_would_break_a_request_are_refused() {
        let one = |name: &str, value: &str| {
            Credentials::of_headers(vec![(name.to_owned(), value.to_owned())])
        };
        let good = one("Authorization", "Bearer x").expect("good");
        assert_eq!(good.for_server(false).expect("given").len(), 1);
        for (name, value) in [
            ("A", "x\r\nB: y"),
            ("A B", "x"),
            ("", "x"),
            ("Host", "elsewhere"),
            ("range", "bytes=0-1"),
        ] {
            assert!(one(name, value).is_err(), "{name}: {value}");
        }
    }
}

//! The secrets of a login between its start and the return of the browser.
//!
//! The endpoint stores nothing about a login in progress, so callers that only start logins cannot
//! fill its memory. A cookie in the browser contains a random number, the end of the attempt and
//! the page to return to. The endpoint derives the other secrets from the cookie with a key that
//! only this process knows.
//!
//! Invariant of this module: an answer of the provider is accepted only from the browser that
//! started the login.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_core::{End, Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Maximum time in seconds from the start of a login to the return of the browser. A user may have
/// to look for a second factor in this time. The value is estimated, not measured.
pub const ATTEMPT_SECONDS: u64 = 600;

/// Maximum length of the page to return to, in bytes.
const PAGE_BYTES_MAX: usize = 512;

/// Length of the random number of an attempt, and of the id of a session, in bytes.
const RANDOM_BYTES: usize = 32;

/// The secrets of one login.
pub(super) struct Attempt {
    /// Value of the cookie that connects the attempt with the browser.
    pub(super) cookie: String,
    /// The part of the console's address after `/ui/`: empty, or `#/` and more.
    pub(super) page: String,
    /// Value that the provider returns (RFC 6749, section 10.12).
    pub(super) state: String,
    /// Value that the ID token must contain.
    pub(super) nonce: String,
    /// Proof that this endpoint started the login (RFC 7636, section 4.1).
    pub(super) verifier: String,
}

impl Attempt {
    /// Returns the challenge of the method S256 (RFC 7636, section 4.2).
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()))
    }
}

/// Derives the secrets of attempts.
pub(super) struct Attempts(hmac::Key);

/// Returns a new random text of 43 characters.
pub(super) fn random_text(random: &SystemRandom) -> Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    random.fill(&mut bytes).map_err(|_| no_chance())?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn no_chance() -> Error {
    Error::new(ErrorKind::Internal, End::Here, "log in")
        .cause("the system provides no random bytes")
        .remedy("report this error, with the endpoint's log")
}

/// Returns `page` if it is an address within the console, and an empty text otherwise. So the
/// endpoint redirects a browser only to the console.
fn page_of_console(page: &str) -> &str {
    let is_page = page.len() <= PAGE_BYTES_MAX
        && page.starts_with("#/")
        && page.bytes().all(|byte| byte.is_ascii_graphic());
    if is_page { page } else { "" }
}

impl Attempts {
    /// Generates the key.
    ///
    /// # Errors
    /// `Internal` if the system provides no random bytes.
    pub(super) fn new(random: &SystemRandom) -> Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, random).map_err(|_| no_chance())?;
        Ok(Self(key))
    }

    /// Starts a login. `login` is the id of the provider. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// `Internal` if the system provides no random bytes.
    pub(super) fn begin(
        &self,
        login: &str,
        page: &str,
        now: u64,
        random: &SystemRandom,
    ) -> Result<Attempt> {
        let cookie = format!(
            "{}.{}.{}",
            now + ATTEMPT_SECONDS,
            random_text(random)?,
            URL_SAFE_NO_PAD.encode(page_of_console(page))
        );
        Ok(self.derive(login, cookie, page_of_console(page).to_owned()))
    }

    /// Continues the login whose browser returns with `cookie`. `state` is the value in the answer
    /// of the provider.
    ///
    /// # Errors
    /// `Unauthorized` if the cookie and the state do not belong together, or if the login has taken
    /// too long.
    pub(super) fn resume(
        &self,
        login: &str,
        cookie: Option<&str>,
        state: &str,
        now: u64,
    ) -> Result<Attempt> {
        let refused = |cause: &str| {
            Error::new(ErrorKind::Unauthorized, End::Here, "log in")
                .cause(cause)
                .remedy("start the login again, in one window only")
        };
        let Some(cookie) = cookie else {
            return Err(refused(
                "this browser has not started a login, or it does not accept cookies",
            ));
        };
        let tag = URL_SAFE_NO_PAD.decode(state).unwrap_or_default();
        let message = message("state", login, cookie);
        // ring compares in constant time.
        if hmac::verify(&self.0, &message, &tag).is_err() {
            return Err(refused(
                "the answer of the provider belongs to another login (state)",
            ));
        }
        // The code above has checked that this endpoint wrote the cookie.
        let mut parts = cookie.split('.');
        let end = parts.next().and_then(|end| end.parse::<u64>().ok());
        if end.is_none_or(|end| now >= end) {
            let minutes = ATTEMPT_SECONDS / 60;
            return Err(refused(&format!(
                "the login took longer than {minutes} minutes"
            )));
        }
        let page = parts.nth(1).and_then(|page| {
            let bytes = URL_SAFE_NO_PAD.decode(page).ok()?;
            String::from_utf8(bytes).ok()
        });
        let page = page_of_console(&page.unwrap_or_default()).to_owned();
        Ok(self.derive(login, cookie.to_owned(), page))
    }

    fn derive(&self, login: &str, cookie: String, page: String) -> Attempt {
        let secret = |label: &str| {
            let tag = hmac::sign(&self.0, &message(label, login, &cookie));
            URL_SAFE_NO_PAD.encode(tag)
        };
        Attempt {
            state: secret("state"),
            nonce: secret("nonce"),
            verifier: secret("verifier"),
            page,
            cookie,
        }
    }
}

/// Returns the bytes from which a secret is derived. A label and an id contain no zero byte, so two
/// different secrets never have the same bytes.
fn message(label: &str, login: &str, cookie: &str) -> Vec<u8> {
    format!("{label}\0{login}\0{cookie}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPT_SECONDS, Attempts, page_of_console};
    use ring::rand::SystemRandom;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_login_continues_only_in_its_browser_and_with_its_provider() {
        let random = SystemRandom::new();
        let attempts = Attempts::new(&random).expect("a key");
        let first = (attempts.begin("iam", "#/site", NOW, &random)).expect("begun");
        let other = (attempts.begin("iam", "#/site", NOW, &random)).expect("begun");
        let resume = |login: &str, cookie: Option<&str>, state: &str, now: u64| {
            attempts.resume(login, cookie, state, now)
        };
        let cookie = Some(&*first.cookie);
        let back = resume("iam", cookie, &first.state, NOW + 5).expect("resumed");
        assert_eq!(back.page, "#/site");
        assert_eq!(back.nonce, first.nonce);
        assert_eq!(back.verifier, first.verifier);
        let secrets = [&first.state, &first.nonce, &first.verifier, &first.cookie];
        for (index, secret) in secrets.iter().enumerate() {
            assert!(secret.len() >= 43, "RFC 7636 demands 43 characters");
            assert!(!secrets[..index].contains(secret), "the secrets differ");
        }
        for (login, cookie, state, now, said) in [
            ("iam", None, &first.state, NOW, "has not started"),
            ("iam", cookie, &other.state, NOW, "another login"),
            ("other", cookie, &first.state, NOW, "another login"),
            (
                "iam",
                Some(&*other.cookie),
                &first.state,
                NOW,
                "another login",
            ),
            ("iam", cookie, &String::new(), NOW, "another login"),
            ("iam", cookie, &"%%".to_owned(), NOW, "another login"),
            (
                "iam",
                cookie,
                &first.state,
                NOW + ATTEMPT_SECONDS,
                "longer than 10 minutes",
            ),
        ] {
            let error = resume(login, cookie, state, now).err().expect(said);
            assert!(error.cause.contains(said), "{error}");
        }
        // A later end in the cookie needs the key of the endpoint.
        let later = first.cookie.replacen(&NOW.to_string()[..4], "1900", 1);
        assert_ne!(later, first.cookie);
        assert!(resume("iam", Some(&later), &first.state, NOW).is_err());
        let another = Attempts::new(&random).expect("a key");
        assert!(another.resume("iam", cookie, &first.state, NOW).is_err());
    }

    #[test]
    fn a_login_returns_only_to_the_console() {
        for good in ["#/", "#/transfers/a%20b", "#/move"] {
            assert_eq!(page_of_console(good), good);
        }
        let long = format!("#/{}", "a".repeat(512));
        for wrong in [
            "",
            "/evil",
            "//evil.example",
            "https://evil.example",
            "#",
            "#x",
            "#/a\r\nSet-Cookie: x",
            "#/ä",
            &long,
        ] {
            assert_eq!(page_of_console(wrong), "", "{wrong}");
        }
    }
}

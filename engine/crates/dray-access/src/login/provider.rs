//! One provider of logins: its addresses, and the requests to it (OpenID Connect Core 1.0, section
//! 3.1; Discovery 1.0).
//!
//! Not for: the choice of rights, sessions.

use super::super::authority_files::AuthorityFiles;
use super::super::keyring::Keyring;
use super::super::keys::{authorities, discovery_url, server_of, source};
use super::attempt::Attempt;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dray_auth::token::{groups_in, name_in};
use dray_auth::{ExpectedLogin, Issuer, Issuers, LoggedIn};
use dray_config::Login;
use dray_core::lock::LockExt;
use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, Result};
use hyper::Method;
use serde_json::{Map, Value};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Age at which the discovery document of a provider is fetched again.
const DISCOVERY_AGE: Duration = Duration::from_secs(3_600);

/// Minimum interval between a failed fetch of the discovery document and the next one.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(5);

/// Minimum interval between two warnings about one login.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Maximum time of one request to a provider.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Age in seconds at which the keys of a provider are fetched again, and further seconds for which
/// they are used while the provider does not answer.
const KEYS_SECONDS: u64 = 3_600;

/// Maximum number of characters of a provider's text that an error repeats.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Maximum size in bytes of the secret of a client.
const SECRET_BYTES_MAX: usize = 4 << 10;

/// The addresses and abilities of a provider.
#[derive(Debug)]
struct Discovery {
    authorization: String,
    token: String,
    userinfo: Option<String>,
    /// True if the provider takes the client's secret only in the form, and not in a header.
    takes_secret_in_form: bool,
    /// True if the answers of the provider contain its URL (RFC 9207).
    names_itself: bool,
}

#[derive(Default)]
struct Found {
    discovery: Option<(Arc<Discovery>, Instant)>,
    failed: Option<(Error, Instant)>,
}

/// A provider, as configured.
pub(super) struct Provider {
    /// The configuration of the login.
    pub(super) login: Login,
    redirect: String,
    secret: Option<String>,
    keyring: Keyring,
    found: Mutex<Found>,
    /// Authorities of the provider's web server.
    authorities: AuthorityFiles,
    warnings: Mutex<Warnings>,
}

/// Limits the rate of warnings.
#[derive(Default)]
struct Warnings {
    last: Option<Instant>,
    left_out: u64,
}

impl Warnings {
    /// Returns the number of warnings that were left out since the last one, if a warning is due.
    fn next(&mut self, now: Instant) -> Option<u64> {
        let is_due = (self.last).is_none_or(|last| now.duration_since(last) >= WARNING_PAUSE);
        if !is_due {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Returns text of a provider in a form that is safe in a message.
fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    escape(cut.as_bytes())
}

fn encoded(fields: &[(&str, &str)]) -> Result<String> {
    serde_html_form::to_string(fields).map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "log in").cause(error.to_string())
    })
}

/// Encodes one text as in a form (RFC 6749, section 2.3.1).
fn encoded_text(text: &str) -> Result<String> {
    let pair = encoded(&[("x", text)])?;
    Ok(pair.strip_prefix("x=").unwrap_or_default().to_owned())
}

fn read_secret(path: &Path) -> Result<String> {
    let operation = || format!("read the secret of the login's client {}", path.display());
    let remedy = "correct secret_file in [[ui.login]], or the mode of the file";
    let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o007 != 0) {
        return Err(
            Error::new(ErrorKind::PermissionDenied, End::Here, operation())
                .cause("the mode of the file lets every user read or write the file")
                .remedy("run chmod o= on the file, and get a new secret from the provider"),
        );
    }
    let bytes = super::super::keys::read(path).map_err(|error| {
        Error::new(error.kind, End::Here, operation())
            .cause(error.cause)
            .remedy(remedy)
    })?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let secret = text.trim();
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX || secret.contains(char::is_control) {
        return Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, operation())
                .cause("the file does not contain exactly one line of text")
                .remedy(remedy),
        );
    }
    Ok(secret.to_owned())
}

impl Provider {
    /// Reads the secret of the client. `origin` is the address of the console in browsers.
    ///
    /// # Errors
    /// If the secret cannot be read, or if the configuration is wrong.
    pub(super) fn open(login: &Login, origin: &str) -> Result<Self> {
        let issuers = Issuers::new([Issuer {
            url: login.issuer.clone(),
            audiences: vec![login.client.clone()],
            base: "/".to_owned(),
            wlcg: false,
        }])?;
        let keys = source(&dray_config::Issuer {
            url: login.issuer.clone(),
            audiences: vec![login.client.clone()],
            keys: None,
            ca: login.ca.clone(),
            base: "/".to_owned(),
            wlcg: false,
            cache_seconds: KEYS_SECONDS,
            stale_seconds: KEYS_SECONDS,
        });
        Ok(Self {
            redirect: format!("{origin}/ui/login/{}/done", login.id),
            secret: login.secret_file.as_deref().map(read_secret).transpose()?,
            keyring: Keyring::new(issuers, [keys]),
            found: Mutex::default(),
            authorities: AuthorityFiles::new(login.ca.clone(), authorities),
            warnings: Mutex::default(),
            login: login.clone(),
        })
    }

    /// Returns an error about this provider.
    pub(super) fn error(&self, kind: ErrorKind, cause: impl Into<String>) -> Error {
        let operation = format!("log in with {}", self.login.shown_name());
        let error = Error::new(kind, End::Here, operation).cause(cause);
        match kind {
            ErrorKind::Unreachable | ErrorKind::TimedOut => {
                error.remedy("try again later, or tell the endpoint's administrator")
            }
            _ => error.remedy("log in again; if that fails too, tell the endpoint's administrator"),
        }
    }

    /// Writes a warning to the log. Everybody may start logins, so the number of warnings is limited.
    fn warn(&self, text: &str) {
        let due = self.warnings.lock_unpoisoned().next(Instant::now());
        match due {
            None => {}
            Some(0) => tracing::warn!(login = self.login.id.as_str(), "{text}"),
            Some(left_out) => tracing::warn!(
                login = self.login.id.as_str(),
                "{text} ({left_out} warnings about this login were left out)"
            ),
        }
    }

    /// Sends one request to the provider.
    async fn request<T>(&self, work: impl Future<Output = Result<T>>, what: &str) -> Result<T> {
        match tokio::time::timeout(REQUEST_TIME, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                self.warn(&format!("{what} failed: {error}"));
                let kind = match error.kind {
                    ErrorKind::TimedOut => ErrorKind::TimedOut,
                    // A missing file of authorities, or a certificate of another server.
                    _ => ErrorKind::Unreachable,
                };
                Err(self.error(kind, format!("{what} failed: {}", error.cause)))
            }
            Err(_) => Err(self.error(
                ErrorKind::TimedOut,
                format!(
                    "{what} failed: the provider sent no answer within {} s",
                    REQUEST_TIME.as_secs()
                ),
            )),
        }
    }

    async fn read(&self, url: &str, token: Option<&str>) -> Result<Value> {
        let server = server_of(url, &self.authorities)?;
        let (mut client, path) = server.ok_or_else(|| self.not_https(url))?;
        client.token = token.map(ToOwned::to_owned);
        client.call(Method::GET, path, None).await
    }

    fn not_https(&self, url: &str) -> Error {
        let cause = format!("the URL {} does not begin with https://", shown(url));
        self.error(ErrorKind::Protocol, cause)
    }

    async fn discovery(&self) -> Result<Arc<Discovery>> {
        {
            let found = self.found.lock_unpoisoned();
            if let Some((discovery, at)) = &found.discovery
                && at.elapsed() < DISCOVERY_AGE
            {
                return Ok(Arc::clone(discovery));
            }
            if let Some((error, at)) = &found.failed
                && at.elapsed() < DISCOVERY_PAUSE
            {
                return match &found.discovery {
                    Some((old, _)) => Ok(Arc::clone(old)),
                    None => Err(error.clone()),
                };
            }
        }
        let url = discovery_url(&self.login.issuer);
        let what = "the request for the provider's configuration";
        let read = self.request(self.read(&url, None), what).await;
        let parsed = read.and_then(|document| self.parse_discovery(&document));
        let mut found = self.found.lock_unpoisoned();
        match (parsed, &found.discovery) {
            (Ok(discovery), _) => {
                let discovery = Arc::new(discovery);
                *found = Found {
                    discovery: Some((Arc::clone(&discovery), Instant::now())),
                    failed: None,
                };
                Ok(discovery)
            }
            (Err(error), old) => {
                let old = old.as_ref().map(|(old, _)| Arc::clone(old));
                found.failed = Some((error.clone(), Instant::now()));
                old.ok_or(error)
            }
        }
    }

    fn parse_discovery(&self, document: &Value) -> Result<Discovery> {
        let wrong = |cause: &str| {
            let cause = format!("the provider's configuration {cause}");
            self.error(ErrorKind::Protocol, cause)
        };
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        // Discovery 1.0, section 4.3: the names must be equal.
        if text("issuer") != Some(&self.login.issuer) {
            let issuer = shown(text("issuer").unwrap_or("(none)"));
            return Err(wrong(&format!("is that of another issuer, {issuer}")));
        }
        let address = |name: &str| match text(name) {
            Some(url) if url.starts_with("https://") => Ok(url.to_owned()),
            Some(_) => Err(wrong(&format!("has no https:// URL in {name}"))),
            None => Err(wrong(&format!("has no {name}"))),
        };
        let list = |name: &str| {
            let values = document.get(name).and_then(Value::as_array);
            values.map(|values| values.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        };
        let challenges = list("code_challenge_methods_supported");
        if challenges.is_some_and(|methods| !methods.contains(&"S256")) {
            return Err(wrong("does not support PKCE with S256"));
        }
        let methods = list("token_endpoint_auth_methods_supported");
        Ok(Discovery {
            authorization: address("authorization_endpoint")?,
            token: address("token_endpoint")?,
            userinfo: match text("userinfo_endpoint") {
                Some(_) => Some(address("userinfo_endpoint")?),
                None => None,
            },
            takes_secret_in_form: methods.is_some_and(|methods| {
                !methods.contains(&"client_secret_basic") && methods.contains(&"client_secret_post")
            }),
            names_itself: document
                .get("authorization_response_iss_parameter_supported")
                .and_then(Value::as_bool)
                .unwrap_or(false),
        })
    }

    /// Returns the address to which the browser of the user must go.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut` or `Protocol` if the provider's configuration cannot be read.
    pub(super) async fn address(&self, attempt: &Attempt) -> Result<String> {
        let discovery = self.discovery().await?;
        let query = encoded(&[
            ("response_type", "code"),
            ("client_id", &self.login.client),
            ("redirect_uri", &self.redirect),
            ("scope", &self.login.scopes.join(" ")),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &attempt.challenge()),
            ("code_challenge_method", "S256"),
        ])?;
        let url = &discovery.authorization;
        let joint = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{joint}{query}"))
    }

    /// Exchanges the code of the provider's answer for an ID token, and verifies it. `issuer` is
    /// the parameter `iss` of the answer.
    ///
    /// # Errors
    /// `Unauthorized` if the provider refuses the code, or if the ID token is not valid.
    /// `Unreachable` or `TimedOut` if the provider does not answer.
    pub(super) async fn user(
        &self,
        attempt: &Attempt,
        code: &str,
        issuer: Option<&str>,
    ) -> Result<LoggedIn> {
        let discovery = self.discovery().await?;
        let is_expected = issuer.is_some_and(|issuer| issuer == self.login.issuer);
        if !is_expected && (issuer.is_some() || discovery.names_itself) {
            return Err(self.error(
                ErrorKind::Unauthorized,
                "the answer comes from another provider (iss)",
            ));
        }
        let answer = self.exchange(&discovery, attempt, code).await?;
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        let token = text("id_token")
            .ok_or_else(|| self.error(ErrorKind::Unauthorized, "the provider sent no ID token"))?;
        let expected = ExpectedLogin {
            client: &self.login.client,
            nonce: &attempt.nonce,
            groups_claim: &self.login.groups_claim,
            name_claim: &self.login.name_claim,
        };
        let verified = self.keyring.verify_login(token, &expected).await;
        let mut user = verified.map_err(|error| self.error(error.kind, error.cause))?;
        if let (None, Some(url), Some(token)) =
            (&user.groups, &discovery.userinfo, text("access_token"))
        {
            let what = "the request for the groups of the user";
            let claims = self.request(self.read(url, Some(token)), what).await?;
            self.complete(&mut user, &claims)?;
        }
        Ok(user)
    }

    /// Adds the groups and the name in the provider's answer about the user (Core 1.0, section
    /// 5.3.2).
    fn complete(&self, user: &mut LoggedIn, claims: &Value) -> Result<()> {
        let none = Map::new();
        let claims = claims.as_object().unwrap_or(&none);
        if claims.get("sub").and_then(Value::as_str) != Some(&user.subject) {
            return Err(self.error(
                ErrorKind::Unauthorized,
                "the provider's answer about the user is about another user",
            ));
        }
        let groups = groups_in(claims, &self.login.groups_claim);
        user.groups = groups.map_err(|error| self.error(error.kind, error.cause))?;
        if user.name.is_none() {
            user.name = name_in(claims, &self.login.name_claim);
        }
        Ok(())
    }

    /// Sends the code to the token endpoint (Core 1.0, section 3.1.3; RFC 7636, section 4.5).
    async fn exchange(
        &self,
        discovery: &Discovery,
        attempt: &Attempt,
        code: &str,
    ) -> Result<Value> {
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &attempt.verifier),
        ];
        let mut authorization = None;
        match &self.secret {
            None => form.push(("client_id", &self.login.client)),
            Some(secret) if discovery.takes_secret_in_form => {
                form.push(("client_id", &self.login.client));
                form.push(("client_secret", secret));
            }
            Some(secret) => {
                let id = encoded_text(&self.login.client)?;
                let pair = format!("{id}:{}", encoded_text(secret)?);
                authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
            }
        }
        let form = encoded(&form)?;
        let server = server_of(&discovery.token, &self.authorities)?;
        let (client, path) = server.ok_or_else(|| self.not_https(&discovery.token))?;
        let what = "the request for the ID token";
        let sent = client.post_form(path, form, authorization.as_deref());
        let (status, answer) = self.request(sent, what).await?;
        if status.is_success() {
            return Ok(answer);
        }
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(shown);
        let code = text("error").unwrap_or_else(|| status.to_string());
        let more = text("error_description").map_or_else(String::new, |text| format!(": {text}"));
        let cause = format!("the provider refused to confirm the login ({code}{more})");
        self.warn(&cause);
        Err(self.error(ErrorKind::Unauthorized, cause))
    }

    /// Returns the error that the provider reports in its answer (RFC 6749, section 4.1.2.1).
    pub(super) fn refusal(&self, code: &str, description: Option<&str>) -> Error {
        let more = description.map_or_else(String::new, |text| format!(": {}", shown(text)));
        let cause = format!("the provider refused the login ({}{more})", shown(code));
        self.error(ErrorKind::Unauthorized, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::{WARNING_PAUSE, Warnings};
    use std::time::{Duration, Instant};

    #[test]
    fn warnings_of_a_minute_are_counted_and_not_written() {
        let mut warnings = Warnings::default();
        let begin = Instant::now();
        assert_eq!(warnings.next(begin), Some(0));
        for second in 0..1_000 {
            let at = begin + Duration::from_millis(second);
            assert_eq!(warnings.next(at), None);
        }
        assert_eq!(warnings.next(begin + WARNING_PAUSE), Some(1_000));
        assert_eq!(warnings.next(begin + 2 * WARNING_PAUSE), Some(0));
    }
}

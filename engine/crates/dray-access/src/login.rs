//! Logins of users by OpenID Connect: the authorization code flow with PKCE (Core 1.0, section 3.1;
//! RFC 7636; RFC 9700), and the sessions after a login.
//!
//! Not for: cookies and pages (dray-endpoint), signatures of ID tokens (dray-auth).
//!
//! Invariant of this module: a session begins only after the provider has confirmed the user to
//! this browser, and only if a grant of the configuration is for this user.

mod attempt;
mod provider;
mod sessions;
mod waiting;

pub use attempt::ATTEMPT_SECONDS;
pub use sessions::{SESSIONS_MAX, SESSIONS_PER_USER_MAX, SessionKey, SessionUse, User};

use super::{Principal, Rights, now};
use attempt::{Attempts, random_text};
use dray_auth::{LoggedIn, Mapping, Scopes};
use dray_config::{Config, Login};
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use provider::Provider;
use ring::rand::SystemRandom;
use sessions::Sessions;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use waiting::Waiting;

/// The logins of an endpoint.
pub struct Logins {
    providers: Vec<Provider>,
    attempts: Attempts,
    sessions: Sessions,
    origin: String,
    mapping: Mapping,
    administrators: Vec<String>,
    waiting: Waiting,
    random: SystemRandom,
}

/// A login that has started.
pub struct Started {
    /// Address of the provider's page for the user.
    pub address: String,
    /// Value of the cookie that connects the login with the browser.
    pub cookie: String,
}

/// A login that has succeeded.
pub struct Succeeded {
    /// Id of the new session: a secret.
    pub session: String,
    /// Part of the console's address after `/ui/`, to which the browser returns.
    pub page: String,
    /// The user.
    pub user: User,
}

/// A login that has failed.
#[derive(Debug)]
pub struct Failed {
    /// Cause and remedy.
    pub error: Error,
    /// Part of the console's address after `/ui/`, to which the browser returns.
    pub page: String,
    /// Principal of the user (`SUB@ISSUER`), if the provider has confirmed the user.
    pub principal: Option<String>,
}

/// The answer of a provider, which the browser brings (RFC 6749, section 4.1.2).
#[derive(Default)]
pub struct ProviderAnswer {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
    iss: Option<String>,
}

impl ProviderAnswer {
    /// Parses the query of the redirect URI. Parameters of other names are ignored.
    ///
    /// # Errors
    /// `InvalidRequest` if the query is not valid, or contains a parameter twice.
    pub fn parse(query: &str) -> Result<Self> {
        let wrong = |cause: &str| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "log in")
                .cause(cause)
                .remedy("log in again; if that fails too, tell the endpoint's administrator")
        };
        let pairs: Vec<(String, String)> = serde_html_form::from_str(query)
            .map_err(|_| wrong("the answer of the provider is not valid"))?;
        let mut answer = Self::default();
        for (name, value) in pairs {
            let field = match name.as_str() {
                "state" => &mut answer.state,
                "code" => &mut answer.code,
                "error" => &mut answer.error,
                "error_description" => &mut answer.error_description,
                "iss" => &mut answer.iss,
                _ => continue,
            };
            if field.replace(value).is_some() {
                return Err(wrong("the answer of the provider has a parameter twice"));
            }
        }
        Ok(answer)
    }
}

impl Logins {
    /// Opens the logins that `config` describes.
    ///
    /// # Errors
    /// If the secret of a client cannot be read, or if the system provides no random bytes.
    pub fn open(config: &Config) -> Result<Self> {
        let ui = &config.ui;
        let origin = ui.url.clone().unwrap_or_default();
        let random = SystemRandom::new();
        let providers = ui.login.iter().map(|login| Provider::open(login, &origin));
        Ok(Self {
            providers: providers.collect::<Result<_>>()?,
            attempts: Attempts::new(&random)?,
            sessions: Sessions::new(
                Duration::from_secs(ui.idle_seconds),
                Duration::from_secs(ui.lifetime_seconds),
            ),
            origin,
            mapping: config.map.clone(),
            administrators: config.administrators.clone(),
            waiting: Waiting::default(),
            random,
        })
    }

    /// Returns the configured logins.
    pub fn list(&self) -> impl Iterator<Item = &Login> {
        self.providers.iter().map(|provider| &provider.login)
    }

    /// Returns the address of the console in browsers, as the header `Origin` contains it. Empty if
    /// it is not configured.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    fn provider(&self, login: &str) -> Result<&Provider> {
        let mut providers = self.providers.iter();
        let found = providers.find(|provider| provider.login.id == login);
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, End::Here, "log in")
                .cause("this endpoint has no such login")
                .remedy("open the console at /ui/ and choose a login there")
        })
    }

    /// Starts a login. `page` is the part of the console's address to return to, and `from` is the
    /// address of the browser.
    ///
    /// # Errors
    /// `NotFound` if there is no such login. `Busy` if too many logins wait, of all clients or
    /// from `from`. `Unreachable`, `TimedOut` or `Protocol` if the provider's configuration cannot be read.
    pub async fn start(&self, login: &str, page: &str, from: IpAddr) -> Result<Started> {
        let provider = self.provider(login)?;
        let attempt = self.attempts.begin(login, page, now(), &self.random)?;
        let _turn = self.waiting.turn(from)?;
        Ok(Started {
            address: provider.address(&attempt).await?,
            cookie: attempt.cookie,
        })
    }

    /// Finishes a login: checks the answer of the provider, and begins a session. `cookie` is the
    /// value of [`Started::cookie`] that the browser has sent, and `from` is its address.
    ///
    /// # Errors
    /// `Unauthorized` if the provider has not confirmed the user to this browser.
    /// `PermissionDenied` if no grant is for the user, or if a rule of the mapping refuses the
    /// user. The errors of [`Logins::start`].
    pub async fn finish(
        &self,
        login: &str,
        cookie: Option<&str>,
        answer: &ProviderAnswer,
        from: IpAddr,
    ) -> std::result::Result<Succeeded, Failed> {
        let at = |page: &str, principal: Option<String>| {
            let page = page.to_owned();
            move |error: Error| Failed {
                error,
                page,
                principal,
            }
        };
        let provider = self.provider(login).map_err(at("", None))?;
        let state = answer.state.as_deref().unwrap_or_default();
        let attempt = self.attempts.resume(login, cookie, state, now());
        let attempt = attempt.map_err(at("", None))?;
        let page = &attempt.page;
        // Only now is the text of the answer shown, because the state proves its origin.
        if let Some(code) = &answer.error {
            let error = provider.refusal(code, answer.error_description.as_deref());
            return Err(at(page, None)(error));
        }
        let code = answer.code.as_deref().ok_or_else(|| {
            let cause = "the answer of the provider has no code";
            at(page, None)(provider.error(ErrorKind::Unauthorized, cause))
        })?;
        let turn = self.waiting.turn(from).map_err(at(page, None))?;
        let user = provider.user(&attempt, code, answer.iss.as_deref()).await;
        drop(turn);
        let logged_in = user.map_err(at(page, None))?;
        let principal = format!("{}@{}", logged_in.subject, logged_in.issuer);
        let with_name = || at(page, Some(principal.clone()));
        let user = (self.admit(provider, &logged_in)).map_err(with_name())?;
        let session = random_text(&self.random).map_err(with_name())?;
        let begun = self.sessions.begin(&session, user.clone(), Instant::now());
        begun.map_err(with_name())?;
        Ok(Succeeded {
            session,
            page: page.clone(),
            user,
        })
    }

    /// Determines the owner and the rights of a user.
    fn admit(&self, provider: &Provider, user: &LoggedIn) -> Result<User> {
        let groups = user.groups.as_deref().unwrap_or_default();
        let grants = provider.login.grants.iter();
        let granted: Vec<&str> = grants
            .filter(|grant| grant.is_for(&user.subject, groups))
            .map(|grant| grant.scope.as_str())
            .collect();
        let name = user.name.as_deref().unwrap_or(&user.subject);
        if granted.is_empty() {
            let why = match &user.groups {
                None => format!(
                    "the provider reports no groups (claim {:?}) of {name:?} (subject {:?})",
                    provider.login.groups_claim, user.subject
                ),
                Some(_) => format!(
                    "no group of {name:?} (subject {:?}) gives access to this endpoint",
                    user.subject
                ),
            };
            let operation = format!("log in with {}", provider.login.shown_name());
            return Err(Error::new(ErrorKind::PermissionDenied, End::Here, operation)
                .cause(why)
                .remedy(
                    "ask the endpoint's administrator for a grant, or the provider's administrator \
                        for membership in a group that has access",
                ));
        }
        let scopes = Scopes::parse(&granted.join(" "), &RelPath::root())?;
        let principal = dray_auth::Principal::Token {
            issuer: user.issuer.clone(),
            subject: user.subject.clone(),
            groups: groups.to_vec(),
        };
        let owner = self.mapping.owner(&principal)?.as_str().to_owned();
        Ok(User {
            principal: Principal {
                name: format!("{}@{}", user.subject, user.issuer),
                is_administrator: self.administrators.contains(&owner),
                owner,
                rights: Rights::Granted(scopes),
            },
            name: name.to_owned(),
        })
    }

    /// Returns the user of a session.
    ///
    /// # Errors
    /// `Unauthorized` if the session has ended or never existed.
    pub fn user(&self, session: &str, using: SessionUse) -> Result<(User, SessionKey)> {
        self.sessions.user(session, using, Instant::now())
    }

    /// Returns true if a session has not ended.
    #[must_use]
    pub fn is_live(&self, session: &SessionKey) -> bool {
        self.sessions.is_live(session, Instant::now())
    }

    /// Ends a session.
    pub fn end(&self, session: &SessionKey) {
        self.sessions.end(session);
    }
}

#[cfg(test)]
mod tests;

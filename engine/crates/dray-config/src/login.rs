//! Logins to the web console by OpenID Connect.

use super::Config;
use dray_auth::Scopes;
use dray_core::RelPath;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Maximum number of providers. The page shows a button for each of them.
const LOGINS_MAX: usize = 8;

/// Maximum length of a login's id, in bytes.
const ID_BYTES_MAX: usize = 32;

/// Maximum lifetime of a session in seconds. The endpoint learns of a removed group only at the
/// next login.
const LIFETIME_SECONDS_MAX: u64 = 24 * 3_600;

/// A provider at which users of the web console log in.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Id of the login in the URLs of the endpoint, such as the redirect URI.
    pub id: String,
    /// Name of the provider on the button. Default: `id`.
    pub name: Option<String>,
    /// URL of the provider (`iss`).
    pub issuer: String,
    /// Id of this endpoint at the provider.
    pub client: String,
    /// File with the secret of a confidential client. Default: the client is public.
    pub secret_file: Option<PathBuf>,
    /// Scopes that the endpoint requests.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// Claim with the groups of a user.
    #[serde(default = "default_groups_claim")]
    pub groups_claim: String,
    /// Claim with the name of a user.
    #[serde(default = "default_name_claim")]
    pub name_claim: String,
    /// File with the authorities of the provider's certificate. Default: the system's authorities.
    pub ca: Option<PathBuf>,
    /// Rights of the users. A user gets the scopes of all grants that match.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

impl Login {
    /// Returns the name on the button.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}

/// Scopes for the users of a group, or for one user.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Group that the user must have, compared exactly.
    pub group: Option<String>,
    /// Subject (`sub`) that the user must have, compared exactly.
    pub subject: Option<String>,
    /// Scopes in the form of a token, such as `storage.read:/ storage.modify:/data`.
    pub scope: String,
}

impl Grant {
    /// Returns true if the grant is for this user.
    #[must_use]
    pub fn is_for(&self, subject: &str, groups: &[String]) -> bool {
        let has_group = (self.group.as_ref()).is_none_or(|group| groups.contains(group));
        let is_subject = (self.subject.as_ref()).is_none_or(|wanted| wanted == subject);
        has_group && is_subject
    }
}

fn default_scopes() -> Vec<String> {
    ["openid", "profile"].map(str::to_owned).to_vec()
}

fn default_groups_claim() -> String {
    "groups".to_owned()
}

fn default_name_claim() -> String {
    "name".to_owned()
}

/// An error of a check: the wrong key, and the cause.
type Wrong = (&'static str, String);

impl Config {
    /// Checks the section `[ui]`.
    pub(super) fn check_ui(&self) -> Result<(), Wrong> {
        let ui = &self.ui;
        if let Some(url) = &ui.url {
            check_origin(url)?;
        }
        if !(1..=LIFETIME_SECONDS_MAX).contains(&ui.lifetime_seconds) {
            let cause = format!("`lifetime_seconds` must be 1 to {LIFETIME_SECONDS_MAX}");
            return Err(("lifetime_seconds", cause));
        }
        if !(1..=ui.lifetime_seconds).contains(&ui.idle_seconds) {
            let cause = "`idle_seconds` must be at least 1 and at most `lifetime_seconds`";
            return Err(("idle_seconds", cause.to_owned()));
        }
        if ui.login.is_empty() {
            return Ok(());
        }
        if !ui.enabled {
            let cause = "[[ui.login]] needs the console: set `enabled = true` in [ui]";
            return Err(("enabled", cause.to_owned()));
        }
        if ui.url.is_none() {
            let cause = "[[ui.login]] needs `url` in [ui], the address of the console in browsers, \
                such as \"https://dtn01.example.org:4735\"";
            return Err(("login", cause.to_owned()));
        }
        if ui.login.len() > LOGINS_MAX {
            return Err(("login", format!("at most {LOGINS_MAX} logins are possible")));
        }
        let mut ids = BTreeSet::new();
        for login in &ui.login {
            if !ids.insert(&login.id) {
                return Err(("id", format!("two logins have the id {:?}", login.id)));
            }
            login.check()?;
        }
        Ok(())
    }
}

/// Checks that `url` is an origin in the form of the header `Origin` (RFC 6454, section 6.2), so
/// that the two can be compared as text.
fn check_origin(url: &str) -> Result<(), Wrong> {
    let wrong = |what: &str| ("url", format!("`url` is {url:?}, {what}"));
    let (is_tls, host) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(host), _) => (true, host),
        (None, Some(host)) => (false, host),
        (None, None) => return Err(wrong("which does not begin with https://")),
    };
    let is_host = !host.is_empty()
        && host.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte)
        });
    if !is_host {
        return Err(wrong(
            "which is not https://HOST:PORT in small letters without a path",
        ));
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let usual = if is_tls { "443" } else { "80" };
    if port == Some(usual) {
        return Err(wrong("but browsers omit the usual port: remove it"));
    }
    // Browsers write a port without leading zeros.
    if port.is_some_and(|port| port.starts_with('0') || port.parse::<u16>().is_err()) {
        return Err(wrong("whose port is not a number of 1 to 65535"));
    }
    if !is_tls && !matches!(name, "localhost" | "127.0.0.1" | "[::1]") {
        return Err(wrong(
            "but without TLS the cookie of a session could be read on the network: use https://, \
                or http:// with localhost",
        ));
    }
    Ok(())
}

impl Login {
    fn check(&self) -> Result<(), Wrong> {
        let id = &self.id;
        let is_id = (1..=ID_BYTES_MAX).contains(&id.len())
            && (id.bytes()).all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
        if !is_id {
            let cause = format!(
                "the id of a login is {id:?}, but it must have 1 to {ID_BYTES_MAX} small letters, \
                    digits and -"
            );
            return Err(("id", cause));
        }
        let host = self.issuer.strip_prefix("https://").unwrap_or_default();
        if host.is_empty() || host.contains(['@', '?', '#']) {
            let cause = format!(
                "the issuer of the login {id} is {:?}, which is not an https:// URL without query \
                    and fragment",
                self.issuer
            );
            return Err(("issuer", cause));
        }
        if self.client.is_empty() {
            return Err(("client", format!("the login {id} has an empty client")));
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            let cause = format!(
                "the scopes of the login {id} do not contain \"openid\", so the provider would \
                    send no ID token"
            );
            return Err(("scopes", cause));
        }
        if self.grants.is_empty() {
            let cause = format!(
                "the login {id} has no [[ui.login.grants]], so nobody could log in: add a grant \
                    with `group` or `subject`, and `scope`"
            );
            return Err(("login", cause));
        }
        for grant in &self.grants {
            if grant.group.is_none() && grant.subject.is_none() {
                let cause = format!(
                    "a grant of the login {id} sets neither `group` nor `subject`, so it would be \
                        for every user of the provider"
                );
                return Err(("grants", cause));
            }
            let scopes = Scopes::parse(&grant.scope, &RelPath::root());
            let cause = match scopes {
                Ok(scopes) if !scopes.as_slice().is_empty() => continue,
                Ok(_) => "it names no storage scope, such as storage.read:/".to_owned(),
                Err(error) => error.cause,
            };
            let cause = format!(
                "the scope {:?} of a grant of the login {id} is not valid: {cause}",
                grant.scope
            );
            return Err(("scope", cause));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Applies ordered rules that map a principal to an account. A default applies to principals that
//! match no rule.

use crate::escape::{misconfigured, shown};
use crate::token::Verified;
use crate::x509::Subject;
use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum length in bytes of an account name that a rule states or takes from a subject. `useradd`
/// has the same limit.
pub const ACCOUNT_BYTES_MAX: usize = 32;

/// The authenticated identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// Authenticated by a bearer token.
    Token {
        /// URL of the issuer.
        issuer: String,
        /// The `sub` claim.
        subject: String,
        /// Groups in the token's `wlcg.groups` claim.
        groups: Vec<String>,
    },
    /// Authenticated by a client certificate.
    Certificate {
        /// Subject of the certificate.
        subject: Subject,
    },
}

impl From<&Verified> for Principal {
    fn from(token: &Verified) -> Self {
        Self::Token {
            issuer: token.issuer.clone(),
            subject: token.subject.clone(),
            groups: token.groups.clone(),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token {
                issuer, subject, ..
            } => write!(f, "{} at {}", shown(subject), shown(issuer)),
            Self::Certificate { subject } => write!(f, "{}", shown(subject.slash())),
        }
    }
}

/// The account that owns transfers, logs and partial files. An owner is text and not a file name:
/// the default owner of a principal may contain slashes and any printable character.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(String);

impl Owner {
    /// Creates an owner from a name that a mapping has produced earlier. Such a name comes from a
    /// queue, a log or the command line.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One rule of a mapping. A rule matches a principal if all its fields match. The first matching
/// rule decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// URL of a token's issuer, in which `*` matches any characters. A rule without this field
    /// applies to certificates only.
    pub issuer: Option<String>,
    /// The token's `sub`, or the certificate's subject in either of its forms (`/DC=org/CN=Alice`,
    /// `CN=Alice,DC=org`). `*` matches any characters.
    pub subject: Option<String>,
    /// Group that a token must have, compared exactly. Only for rules about tokens.
    pub group: Option<String>,
    /// The account: 1 to 32 characters of `a-z A-Z 0-9 . _ -`, not beginning with `-` or `.`. A `*`
    /// in the account is replaced by the text that the only `*` of `subject` matches. If that text
    /// is not a valid account, the rule does not match.
    pub owner: Option<String>,
    /// True if the rule refuses matching principals instead of mapping them to an account.
    pub refuse: bool,
}

/// Default for a principal that no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmapped {
    /// The principal is its own owner. For a token the owner is `SUB@ISSUER`, with the issuer's URL
    /// without `https://`. For a certificate the owner is its subject, such as `/DC=org/CN=Alice`.
    #[default]
    Principal,
    /// The principal is refused.
    Refuse,
}

/// The configured rules for mapping principals to accounts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mapping {
    /// Rules in order. The first matching rule decides.
    pub rules: Vec<Rule>,
    /// Default for principals that no rule matches.
    pub unmapped: Unmapped,
}

impl Mapping {
    /// Checks that the rules are valid. Call this once after parsing the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`], with the number of the invalid rule, counted from 1.
    pub fn check(&self) -> Result<()> {
        for (index, rule) in self.rules.iter().enumerate() {
            rule.check().map_err(|why| {
                let cause = format!("rule {}: {why}", index + 1);
                misconfigured(
                    "read the rules that map callers to owners",
                    cause,
                    "correct the rule in the endpoint's configuration",
                )
            })?;
        }
        Ok(())
    }

    /// Returns the owner to which the rules map a principal.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if a rule refuses the principal, or if no rule matches and
    /// the default is [`Unmapped::Refuse`].
    pub fn owner(&self, principal: &Principal) -> Result<Owner> {
        let refuse = |cause: String| {
            Error::new(
                ErrorKind::PermissionDenied,
                End::Here,
                "find the account of the caller",
            )
            .cause(cause)
            .remedy("ask the endpoint's administrator")
        };
        for rule in &self.rules {
            match rule.judge(principal) {
                Judgement::Owner(name) => return Ok(Owner(name)),
                Judgement::Refused => {
                    return Err(refuse(format!(
                        "a rule in the endpoint's configuration refuses {principal}"
                    )));
                }
                Judgement::Other => {}
            }
        }
        match self.unmapped {
            Unmapped::Principal => Ok(own_account(principal)),
            Unmapped::Refuse => Err(refuse(format!(
                "no rule maps {principal} to an account of \
                this endpoint"
            ))),
        }
    }
}

enum Judgement {
    Owner(String),
    Refused,
    Other,
}

impl Rule {
    fn check(&self) -> Result<(), &'static str> {
        if self.issuer.is_none() && self.subject.is_none() {
            return Err("the rule sets neither `issuer` nor `subject`");
        }
        if self.group.is_some() && self.issuer.is_none() {
            return Err("a rule with `groups` must set `issuer`, because only tokens have groups");
        }
        match (&self.owner, self.refuse) {
            (None, false) => Err("the rule sets neither `owner` nor `refuse`"),
            (Some(_), true) => Err("the rule sets both `owner` and `refuse`"),
            (Some(owner), false) if owner == "*" => {
                let stars = self.subject.as_deref().unwrap_or("").matches('*').count();
                if stars == 1 {
                    Ok(())
                } else {
                    Err("a rule with the owner `*` needs exactly one `*` in its subject")
                }
            }
            (Some(owner), false) if !is_account(owner) => {
                Err("the `owner` of the rule is not a valid account name")
            }
            _ => Ok(()),
        }
    }

    fn judge(&self, principal: &Principal) -> Judgement {
        let Some(taken) = self.fits(principal) else {
            return Judgement::Other;
        };
        match (&self.owner, self.refuse) {
            (_, true) => Judgement::Refused,
            (Some(owner), _) if owner == "*" && is_account(&taken) => Judgement::Owner(taken),
            (Some(owner), _) if is_account(owner) => Judgement::Owner(owner.clone()),
            _ => Judgement::Other,
        }
    }

    /// Returns the text that the first `*` of the subject pattern matches. `None` if a field of the
    /// rule does not match the principal.
    fn fits(&self, principal: &Principal) -> Option<String> {
        match (principal, &self.issuer) {
            (
                Principal::Token {
                    issuer,
                    subject,
                    groups,
                },
                Some(pattern),
            ) => {
                fit(pattern, issuer)?;
                if (self.group.as_ref()).is_some_and(|group| !groups.contains(group)) {
                    return None;
                }
                self.subject_fits(subject)
            }
            (Principal::Certificate { subject }, None) if self.group.is_none() => self
                .subject_fits(subject.slash())
                .or_else(|| self.subject_fits(subject.rfc2253())),
            _ => None,
        }
    }

    fn subject_fits(&self, text: &str) -> Option<String> {
        match &self.subject {
            Some(pattern) => fit(pattern, text),
            None => Some(String::new()),
        }
    }
}

/// Matches text against a pattern in which `*` matches any characters. Returns the text of the
/// first `*`, or `None` if the pattern does not match. Each `*` except the last matches as few
/// characters as possible.
fn fit(pattern: &str, text: &str) -> Option<String> {
    let Some((head, tail)) = pattern.split_once('*') else {
        return (pattern == text).then(String::new);
    };
    let rest = text.strip_prefix(head)?;
    let Some((middle, last)) = tail.rsplit_once('*') else {
        return rest.strip_suffix(tail).map(ToOwned::to_owned);
    };
    // Find each pattern text between two stars at its leftmost position. That leaves the most text
    // for the pattern texts after it.
    let mut left = rest.strip_suffix(last)?;
    let mut taken = None;
    for piece in middle.split('*') {
        let at = left.find(piece)?;
        taken.get_or_insert(&left[..at]);
        left = &left[at + piece.len()..];
    }
    Some(taken.unwrap_or("").to_owned())
}

fn is_account(name: &str) -> bool {
    (1..=ACCOUNT_BYTES_MAX).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
}

/// Returns the default owner of a principal. The three kinds of owners differ in form. The owner of
/// a token has an `@` that follows no `/`. The owner of a certificate begins with `/`. An account
/// of a rule contains neither character. So no principal can choose the owner of another principal.
fn own_account(principal: &Principal) -> Owner {
    match principal {
        Principal::Token {
            issuer, subject, ..
        } => {
            let place = issuer.strip_prefix("https://").unwrap_or(issuer);
            let subject = escape(subject.as_bytes()).replace('/', "\\x2f");
            Owner(format!("{subject}@{place}"))
        }
        Principal::Certificate { subject } => Owner(subject.slash().to_owned()),
    }
}

#[cfg(test)]
mod tests;

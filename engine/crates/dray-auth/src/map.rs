//! Maps a principal to an account: ordered rules, and a default for principals without a matching
//! rule.

use crate::escape::{misconfigured, shown};
use crate::token::Verified;
use crate::x509::Subject;
use dray_core::path::escape;
use dray_core::{End, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum bytes of an owner's name that a rule gives, or takes from a subject. The limit of
/// `useradd`.
pub const ACCOUNT_BYTES_MAX: usize = 32;

/// Authenticated identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// Authenticated by a bearer token.
    Token {
        /// URL of the issuer.
        issuer: String,
        /// The `sub` claim.
        subject: String,
        /// Groups in the profile's `wlcg.groups`.
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

/// The account that owns transfers, logs and partial files. A default owner may contain slashes and
/// any printable character: it is text, not a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(String);

impl Owner {
    /// Creates an owner from a known name: from a queue, a log, the command line.
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

/// One rule. All its fields must match; the first matching rule decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// For tokens: the issuer's URL, with `*` for any run of characters. A rule without it applies
    /// to certificates.
    pub issuer: Option<String>,
    /// The token's `sub`, or the certificate's subject in either of its forms (`/DC=org/CN=Alice`,
    /// `CN=Alice,DC=org`), with `*` for any run of characters.
    pub subject: Option<String>,
    /// For tokens: a group that the token must have, compared exactly.
    pub group: Option<String>,
    /// The account: 1 to 32 of `a-z A-Z 0-9 . _ -`, not beginning with `-` or `.`. `*` is replaced
    /// by the text that the only `*` of `subject` matches; if the result is not an account, the
    /// rule does not match.
    pub owner: Option<String>,
    /// Refuses matching principals, instead of naming an owner.
    pub refuse: bool,
}

/// Default for a principal without a matching rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmapped {
    /// It is its own owner: `SUB@ISSUER` (the URL without `https://`) for a token, the subject
    /// `/DC=org/CN=Alice` for a certificate.
    #[default]
    Principal,
    /// It is refused.
    Refuse,
}

/// All rules, as configured by an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mapping {
    /// Rules in order: the first matching rule decides.
    pub rules: Vec<Rule>,
    /// Default for principals without a matching rule.
    pub unmapped: Unmapped,
}

impl Mapping {
    /// Checks that the rules are valid. Call it once, after reading them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`], naming the rule by its number from 1.
    pub fn check(&self) -> Result<()> {
        for (index, rule) in self.rules.iter().enumerate() {
            rule.check().map_err(|why| {
                let cause = format!("rule {}: {why}", index + 1);
                misconfigured("read the owners", cause, "correct it in the configuration")
            })?;
        }
        Ok(())
    }

    /// Returns the owner of a principal.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] for a principal that a rule refuses, or that matches no rule
    /// under [`Unmapped::Refuse`].
    pub fn owner(&self, principal: &Principal) -> Result<Owner> {
        let refuse = |cause: String| {
            Error::new(ErrorKind::PermissionDenied, End::Here, "find the account")
                .cause(cause)
                .remedy("ask the endpoint's administrator")
        };
        for rule in &self.rules {
            match rule.judge(principal) {
                Judgement::Owner(name) => return Ok(Owner(name)),
                Judgement::Refused => return Err(refuse(format!("{principal} is refused here"))),
                Judgement::Other => {}
            }
        }
        match self.unmapped {
            Unmapped::Principal => Ok(own_account(principal)),
            Unmapped::Refuse => Err(refuse(format!("{principal} has no account here"))),
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
            return Err("it names neither issuer nor subject");
        }
        if self.group.is_some() && self.issuer.is_none() {
            return Err("only tokens have groups: name the issuer");
        }
        match (&self.owner, self.refuse) {
            (None, false) => Err("it names no owner"),
            (Some(_), true) => Err("it names an owner and refuses"),
            (Some(owner), false) if owner == "*" => {
                let stars = self.subject.as_deref().unwrap_or("").matches('*').count();
                if stars == 1 {
                    Ok(())
                } else {
                    Err("the owner `*` needs exactly one `*` in the subject")
                }
            }
            (Some(owner), false) if !is_account(owner) => Err("its owner is no account name"),
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

    /// Returns the text that the first `*` of the subject matches, if all fields match.
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

/// Matches the text with a pattern in which `*` stands for any run of characters, the shortest
/// first. Returns the text of the first `*`.
fn fit(pattern: &str, text: &str) -> Option<String> {
    let Some((head, tail)) = pattern.split_once('*') else {
        return (pattern == text).then(String::new);
    };
    let rest = text.strip_prefix(head)?;
    let Some((middle, last)) = tail.rsplit_once('*') else {
        return rest.strip_suffix(tail).map(ToOwned::to_owned);
    };
    // The text between two stars is found from the left, which never prevents a later match.
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

/// Returns the default owner. A token's contains an `@` with no `/` before it, a certificate's
/// begins with `/`, and accounts of rules have neither: no principal can choose another's owner.
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
mod tests {
    use super::{Mapping, Owner, Principal, Rule, Unmapped, fit};
    use crate::x509::Subject;
    use crate::x509::testing::name;
    use dray_core::ErrorKind;
    use proptest::prelude::*;

    fn token(issuer: &str, subject: &str, groups: &[&str]) -> Principal {
        Principal::Token {
            issuer: issuer.into(),
            subject: subject.into(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    fn certificate(attributes: &[(&str, &str)]) -> Principal {
        Principal::Certificate {
            subject: Subject::read(&name(attributes)).expect("a name"),
        }
    }

    fn rules(json: serde_json::Value) -> Mapping {
        let mapping: Mapping = serde_json::from_value(json).expect("rules");
        mapping.check().expect("good rules");
        mapping
    }

    const VO: &str = "https://vo.example.org/one";

    #[test]
    fn the_first_rule_that_fits_decides() {
        let mapping = rules(serde_json::json!({"unmapped": "refuse", "rules": [
            {"issuer": VO, "subject": "mallory", "refuse": true},
            {"issuer": VO, "subject": "alice", "owner": "alice"},
            {"issuer": VO, "subject": "svc-*", "group": "/vo/production", "owner": "prod"},
            {"issuer": "https://site.example.org", "subject": "*@site", "owner": "*"},
            {"issuer": "https://*.example.org*", "group": "/vo", "owner": "vo"},
            {"subject": "/DC=org/CN=Alice", "owner": "alice"},
            {"subject": "CN=Bob,DC=org", "owner": "bob"},
            {"subject": "/DC=org/DC=users/CN=*", "owner": "*"},
        ]}));
        let owner = |principal| mapping.owner(&principal).map(|owner| owner.to_string());
        let table = [
            (token(VO, "alice", &[]), Some("alice")),
            (token(VO, "svc-1", &["/vo/production"]), Some("prod")),
            (token(VO, "svc-1", &["/vo"]), Some("vo")),
            (token(VO, "svc-1", &["/vo/production/x"]), None),
            (token(VO, "mallory", &["/vo"]), None),
            (
                token("https://site.example.org", "carol@site", &[]),
                Some("carol"),
            ),
            (token("https://site.example.org", "../x@site", &[]), None),
            (token("https://site.example.org", "@site", &[]), None),
            (token("https://elsewhere.org", "alice", &["/vo"]), None),
            (token(VO, "/DC=org/CN=Alice", &[]), None),
            (
                certificate(&[("DC", "org"), ("CN", "Alice")]),
                Some("alice"),
            ),
            (certificate(&[("DC", "org"), ("CN", "Bob")]), Some("bob")),
            (
                certificate(&[("DC", "org"), ("DC", "users"), ("CN", "dan")]),
                Some("dan"),
            ),
            (
                certificate(&[("DC", "org"), ("DC", "users"), ("CN", "d/CN=e")]),
                None,
            ),
            (certificate(&[("CN", "alice")]), None),
        ];
        for (principal, expected) in table {
            let found = owner(principal.clone());
            assert_eq!(found.as_deref().ok(), expected, "{principal}");
            if let Err(error) = found {
                assert_eq!(error.kind, ErrorKind::PermissionDenied);
                assert!(!error.cause.is_empty() && !error.remedy.is_empty());
            }
        }
    }

    #[test]
    fn whom_no_rule_names_is_their_own_owner() {
        let mapping = Mapping::default();
        let owner = |principal| mapping.owner(&principal).expect("an owner").to_string();
        assert_eq!(owner(token(VO, "alice", &[])), "alice@vo.example.org/one");
        assert_eq!(
            owner(token("https://vo.example.org/two", "/CN=x", &[])),
            "\\x2fCN=x@vo.example.org/two"
        );
        assert_eq!(
            owner(certificate(&[("DC", "org"), ("CN", "A")])),
            "/DC=org/CN=A"
        );
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let rule = || Rule {
            issuer: Some(VO.into()),
            subject: Some("*".into()),
            owner: Some("x".into()),
            ..Rule::default()
        };
        let some = |text: &str| Some(text.to_owned());
        let bad = [
            Rule::default(),
            Rule {
                owner: None,
                ..rule()
            },
            Rule {
                refuse: true,
                ..rule()
            },
            Rule {
                issuer: None,
                subject: None,
                ..rule()
            },
            Rule {
                issuer: None,
                group: some("/vo"),
                ..rule()
            },
            Rule {
                owner: some("*"),
                subject: some("*/*"),
                ..rule()
            },
            Rule {
                owner: some("*"),
                subject: None,
                ..rule()
            },
            Rule {
                owner: some("../x"),
                ..rule()
            },
            Rule {
                owner: some(".x"),
                ..rule()
            },
            Rule {
                owner: some(""),
                ..rule()
            },
            Rule {
                owner: some("a@b"),
                ..rule()
            },
            Rule {
                owner: Some("x".repeat(33)),
                ..rule()
            },
        ];
        for rule in bad {
            let mapping = Mapping {
                rules: vec![rule.clone()],
                unmapped: Unmapped::Refuse,
            };
            let error = mapping.check().expect_err("no sense");
            assert!(error.cause.starts_with("rule 1: "), "{error}");
        }
        let misspelt = serde_json::json!({"rules": [{"isuer": "x"}]});
        assert!(serde_json::from_value::<Mapping>(misspelt).is_err());
    }

    #[test]
    fn owners_are_plain_text_in_json() {
        let owner = Owner::named("alice");
        assert_eq!(serde_json::to_string(&owner).expect("json"), "\"alice\"");
    }

    fn fits_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| fits_slowly(rest, &text[at..])),
            Some((first, rest)) => text
                .split_first()
                .is_some_and(|(own, text)| own == first && fits_slowly(rest, text)),
        }
    }

    proptest! {
        #[test]
        fn patterns_fit_as_written(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            let expected = fits_slowly(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(fit(&pattern, &text).is_some(), expected);
        }

        #[test]
        fn no_two_principals_share_an_owner_by_themselves(
            subjects in prop::collection::vec("[a/@x\\\\2f]{1,6}", 2),
            places in prop::collection::vec("[a/x2f]{1,4}", 2),
        ) {
            let mapping = Mapping::default();
            let one = token(&format!("https://{}", places[0]), &subjects[0], &[]);
            let other = token(&format!("https://{}", places[1]), &subjects[1], &[]);
            let owners = (mapping.owner(&one), mapping.owner(&other));
            prop_assert_eq!(one == other, owners.0 == owners.1);
            let name = [("CN", subjects[0].as_str())];
            prop_assert_ne!(mapping.owner(&certificate(&name)), mapping.owner(&other));
        }
    }
}

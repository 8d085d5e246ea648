//! Policies of authorities: the subjects that an authority may certify, from two formats of grid
//! software.
//!
//! Invariant owned here: a certificate is refused unless every format in which a policy of its
//! authority exists permits its subject.

mod namespaces;
mod pattern;
mod signing;

use super::{Parsed, Subject, Trust, der, parse};
use crate::escape::{misconfigured, shown};
use dray_core::Result;
use pattern::Pattern;

/// A format of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Signing,
    Namespaces,
}

impl Format {
    const fn words(self) -> &'static str {
        match self {
            Self::Signing => "signing policy",
            Self::Namespaces => "namespaces file",
        }
    }
}

/// Subjects that one authority may, or must not, certify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    format: Format,
    /// Subject of the authority, in the form of grid software.
    authority: String,
    /// True if the authority may certify these subjects, false if it must not.
    is_permit: bool,
    subjects: Vec<Pattern>,
}

impl Rule {
    /// Returns true if this rule is about the authority with the subject `authority`.
    fn is_of(&self, authority: &str) -> bool {
        let authority = canonical(authority);
        match self.format {
            Format::Signing => self.authority == authority,
            Format::Namespaces => self.authority.eq_ignore_ascii_case(&authority),
        }
    }
}

/// The policies in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy(Vec<Rule>);

impl Policy {
    /// Parses a signing policy, in the format of the Globus Toolkit (`HASH.signing_policy`).
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest), with the number of the line.
    pub fn signing(text: &str) -> Result<Self> {
        signing::parse(text).map(Self)
    }

    /// Parses a namespaces file, in the format of the EUGridPMA (`HASH.namespaces`). `own` has the
    /// certificates of the authorities for which `SELF` stands, in DER.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest), with the number of the line.
    pub fn namespaces(text: &str, own: &[&[u8]]) -> Result<Self> {
        let subject = |der: &&[u8]| Ok(parse(der)?.subject()?.slash().to_owned());
        let own: Vec<String> = own.iter().map(subject).collect::<Result<_>>()?;
        namespaces::parse(text, &own).map(Self)
    }
}

impl Trust {
    /// Adds the policies of a file. An authority without a policy may certify all subjects.
    pub fn add_policy(&mut self, policy: &Policy) {
        self.policies.extend(policy.0.iter().cloned());
    }

    /// Returns true if no trusted authority has one of the names in a policy, so that the policy
    /// has no effect.
    #[must_use]
    pub fn is_policy_idle(&self, policy: &Policy) -> bool {
        let mut rules = policy.0.iter();
        !rules.any(|rule| self.subjects.iter().any(|one| rule.is_of(one.slash())))
    }

    /// Checks that the policies permit the certificates that authorities have signed. Checks all of
    /// them, also those that do not lead to the authority: another certificate of the same name
    /// could otherwise hide the certificate that a policy does not permit.
    pub(super) fn check_policies(&self, signed: &[Parsed]) -> Result<()> {
        if self.policies.is_empty() {
            return Ok(());
        }
        let mut links = Vec::with_capacity(signed.len());
        for one in signed {
            let name = der::only(one.subject_der(), der::SEQUENCE).map(|name| name.content);
            let mut anchors = self.anchors.iter();
            links.push(Link {
                // A certificate without a name could hide the authority above it, so it is refused.
                subject: one.subject()?,
                issuer: one.issuer()?,
                is_trusted: anchors.any(|one| name == Some(one.anchor.subject.as_ref())),
            });
        }
        check(&self.policies, &links)
    }
}

/// The names in a certificate that an authority has signed.
struct Link {
    subject: Subject,
    issuer: Subject,
    /// True if the subject has the name of a trusted authority.
    is_trusted: bool,
}

/// Checks that the policies permit the subjects of all certificates.
///
/// # Errors
/// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) with the authority and the subject.
fn check(rules: &[Rule], links: &[Link]) -> Result<()> {
    let signed = links.iter().filter(|link| link.subject != link.issuer);
    for link in signed {
        let subject = link.subject.slash();
        for authority in binding(rules, &link.issuer, links) {
            let authority = authority.slash();
            for format in [Format::Signing, Format::Namespaces] {
                let own = |rule: &&Rule| rule.format == format && rule.is_of(authority);
                let verb = match verdict(rules.iter().filter(own), subject) {
                    Verdict::None | Verdict::Permitted => continue,
                    Verdict::NotPermitted => "does not permit",
                    Verdict::Denied => "denies",
                };
                let file = format.words();
                let cause = format!(
                    "the {file} of {} {verb} the certificate of {}",
                    shown(authority),
                    shown(subject)
                );
                let remedy = format!(
                    "use a certificate of another authority, or ask the endpoint's administrator \
                        to install the authority's newest {file}"
                );
                return Err(super::refused(cause, &remedy));
            }
        }
    }
    Ok(())
}

/// The result of the rules about one authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// There are no rules.
    None,
    Permitted,
    NotPermitted,
    /// A rule denies the subject. Rules that permit the subject do not matter then.
    Denied,
}

fn verdict<'a>(rules: impl IntoIterator<Item = &'a Rule>, subject: &str) -> Verdict {
    let subject = canonical(subject);
    let mut verdict = Verdict::None;
    for rule in rules {
        let is_match = rule.subjects.iter().any(|one| one.matches(&subject));
        verdict = match (rule.is_permit, is_match, verdict) {
            (false, true, _) => return Verdict::Denied,
            (true, true, _) | (_, _, Verdict::Permitted) => Verdict::Permitted,
            _ => Verdict::NotPermitted,
        };
    }
    verdict
}

/// Returns the authorities whose policies limit the subjects of `issuer`. If `issuer` has no policy
/// and is not trusted itself, these are the authorities that have certified it. Otherwise an
/// authority could evade its policy with an authority of its own.
fn binding<'a>(rules: &[Rule], issuer: &'a Subject, links: &'a [Link]) -> Vec<&'a Subject> {
    let mut names = vec![issuer];
    let mut bound = Vec::new();
    let mut next = 0;
    // Each name is looked at once, and a chain has few names.
    while let Some(name) = names.get(next).copied() {
        next += 1;
        if rules.iter().any(|rule| rule.is_of(name.slash())) {
            bound.push(name);
            continue;
        }
        for link in links {
            let is_above = link.subject == *name && !link.is_trusted;
            if is_above && !names.contains(&&link.issuer) {
                names.push(&link.issuer);
            }
        }
    }
    bound
}

fn refused(format: Format, cause: &str) -> dray_core::Error {
    let file = format.words();
    let remedy = format!("install the {file} of the authority again");
    misconfigured(&format!("read the {file}"), cause, &remedy)
}

/// Writes the attributes with several usual names in one way, as [`super::Subject::slash`] does.
fn canonical(name: &str) -> String {
    name.replace("/Email=", "/emailAddress=")
        .replace("/E=", "/emailAddress=")
        .replace("/USERID=", "/UID=")
}

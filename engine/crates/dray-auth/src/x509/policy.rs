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
pub enum PolicyFormat {
    /// The format of the Globus Toolkit (`HASH.signing_policy`).
    Signing,
    /// The format of the EUGridPMA (`HASH.namespaces`).
    Namespaces,
}

impl PolicyFormat {
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
    format: PolicyFormat,
    /// Subject of the authority, in the form of grid software.
    authority: String,
    /// True if the authority may certify these subjects, false if it must not.
    is_permit: bool,
    /// True if the file could not be parsed. The rule then denies all subjects.
    is_damaged: bool,
    subjects: Vec<Pattern>,
}

impl Rule {
    /// Returns true if this rule is about the authority with the subject `authority`.
    fn is_of(&self, authority: &str) -> bool {
        let authority = canonical(authority);
        match self.format {
            PolicyFormat::Signing => self.authority == authority,
            PolicyFormat::Namespaces => self.authority.eq_ignore_ascii_case(&authority),
        }
    }
}

/// The policies in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy(Vec<Rule>);

impl Policy {
    /// Parses a file. `own` has the certificates of the authorities to which the file belongs, in
    /// DER. In a namespaces file, `SELF` stands for these authorities.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest), with the number of the line.
    pub fn parse(format: PolicyFormat, text: &str, own: &[&[u8]]) -> Result<Self> {
        match format {
            PolicyFormat::Signing => signing::parse(text),
            PolicyFormat::Namespaces => namespaces::parse(text, &subjects(own)?),
        }
        .map(Self)
    }

    /// Returns the policy to use instead of a file that cannot be parsed. This policy denies all
    /// subjects of the authorities to which the file belongs, and of the authorities that the file
    /// still names. `own` has the meaning as in [`Self::parse`].
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) for a damaged certificate in `own`.
    pub fn denying(format: PolicyFormat, text: &str, own: &[&[u8]]) -> Result<Self> {
        let named = match format {
            PolicyFormat::Signing => signing::authorities(text),
            PolicyFormat::Namespaces => namespaces::authorities(text),
        };
        let all = subjects(own)?.into_iter().chain(named);
        let rule = |authority: String| Rule {
            format,
            authority: canonical(&authority),
            is_permit: false,
            is_damaged: true,
            subjects: Vec::new(),
        };
        Ok(Self(all.map(rule).collect()))
    }
}

/// Returns the subjects of certificates, in the form of grid software.
fn subjects(own: &[&[u8]]) -> Result<Vec<String>> {
    let subject = |der: &&[u8]| Ok(parse(der)?.subject()?.slash().to_owned());
    own.iter().map(subject).collect()
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
            for format in [PolicyFormat::Signing, PolicyFormat::Namespaces] {
                let own = |rule: &&Rule| rule.format == format && rule.is_of(authority);
                let (file, of) = (format.words(), shown(authority));
                let verb = match verdict(rules.iter().filter(own), subject) {
                    Verdict::None | Verdict::Permitted => continue,
                    Verdict::NotPermitted => "does not permit",
                    Verdict::Denied => "denies",
                    Verdict::Damaged => {
                        let cause = format!(
                            "the {file} of {of} is damaged, so this endpoint accepts no \
                                certificate of this authority"
                        );
                        let remedy = format!(
                            "ask the endpoint's administrator to install the authority's {file} \
                                again"
                        );
                        return Err(super::refused(cause, &remedy));
                    }
                };
                let of_whom = shown(subject);
                let cause = format!("the {file} of {of} {verb} the certificate of {of_whom}");
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
    /// The rules are unknown, because a file is damaged.
    Damaged,
}

fn verdict<'a>(rules: impl IntoIterator<Item = &'a Rule>, subject: &str) -> Verdict {
    let subject = canonical(subject);
    let mut verdict = Verdict::None;
    for rule in rules {
        if rule.is_damaged {
            return Verdict::Damaged;
        }
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

fn refused(format: PolicyFormat, cause: &str) -> dray_core::Error {
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

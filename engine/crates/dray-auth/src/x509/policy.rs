//! Signing policies: the subjects that an authority may certify, in the format of the Globus
//! Toolkit that the IGTF publishes as `HASH.signing_policy`.
//!
//! An entry has three lines:
//!
//! ```text
//! access_id_CA   X509    '/C=XX/O=Example/CN=Example CA'
//! pos_rights     globus  CA:sign
//! cond_subjects  globus  '"/C=XX/O=Example/*" "/DC=org/DC=example/*"'
//! ```
//!
//! A `*` in a subject stands for any text, and a `?` for one character.

use super::{Subject, Trust};
use crate::escape::{misconfigured, shown};
use dray_core::Result;

/// Maximum number of subjects in one entry. The largest policies of the IGTF have a dozen.
const SUBJECTS_MAX: usize = 1_000;

/// The subjects that one authority may certify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SigningPolicy {
    /// Subject of the authority, in the form of grid software.
    authority: String,
    /// Patterns of subjects.
    subjects: Vec<String>,
}

impl SigningPolicy {
    /// Parses a file, which can have entries for several authorities.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if a line has another form than the
    /// three lines of an entry, or if an entry lacks one of them. An unknown right is an error too,
    /// because ignoring it could permit too much.
    pub(super) fn parse(text: &str) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        let mut has_right = false;
        let mut is_complete = true;
        for (number, line) in text.lines().enumerate() {
            let wrong = |cause: &str| refused(&format!("line {}: {cause}", number + 1));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (keyword, rest) = word(line);
            let (kind, value) = word(rest);
            match (keyword, kind) {
                ("access_id_CA", "X509") if is_complete => {
                    let name = quoted(value).ok_or_else(|| wrong("the name is not in quotes"))?;
                    all.push(Self {
                        authority: canonical(name),
                        subjects: Vec::new(),
                    });
                    (has_right, is_complete) = (false, false);
                }
                ("pos_rights", "globus") if !all.is_empty() && value == "CA:sign" => {
                    has_right = true;
                }
                ("cond_subjects", "globus") if has_right => {
                    let list = quoted(value).ok_or_else(|| wrong("the list is not in quotes"))?;
                    let subjects = subjects(list).ok_or_else(|| wrong("the list is malformed"))?;
                    if let Some(entry) = all.last_mut() {
                        entry.subjects.extend(subjects);
                    }
                    is_complete = true;
                }
                _ => {
                    return Err(wrong(&format!("{} is not expected here", shown(line))));
                }
            }
        }
        match is_complete && !all.is_empty() {
            true => Ok(all),
            false => Err(refused("the last entry has no line cond_subjects")),
        }
    }

    /// Returns true if this policy is about the authority with the subject `authority`.
    pub(super) fn is_of(&self, authority: &str) -> bool {
        self.authority == canonical(authority)
    }

    /// Returns true if the authority may certify `subject`.
    pub(super) fn permits(&self, subject: &str) -> bool {
        let subject: Vec<char> = canonical(subject).chars().collect();
        let mut patterns = self.subjects.iter();
        patterns.any(|pattern| matches(&pattern.chars().collect::<Vec<_>>(), &subject))
    }
}

impl Trust {
    /// Returns true if no trusted authority has one of the names in a signing policy, so that the
    /// policy has no effect.
    ///
    /// # Errors
    /// Those of [`Trust::add_signing_policy`].
    pub fn is_policy_idle(&self, text: &str) -> Result<bool> {
        let policies = SigningPolicy::parse(text)?;
        let mut policies = policies.iter();
        Ok(!policies.any(|policy| self.subjects.iter().any(|one| policy.is_of(one.slash()))))
    }
}

/// The names in a certificate that an authority has signed.
pub(super) struct Link {
    pub(super) subject: Subject,
    pub(super) issuer: Subject,
    /// True if the subject has the name of a trusted authority.
    pub(super) is_trusted: bool,
}

/// Checks that the policies permit the subjects of all certificates.
///
/// # Errors
/// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) with the authority and the subject.
pub(super) fn check(policies: &[SigningPolicy], links: &[Link]) -> Result<()> {
    let signed = links.iter().filter(|link| link.subject != link.issuer);
    for link in signed {
        let subject = link.subject.slash();
        for authority in binding(policies, &link.issuer, links) {
            let authority = authority.slash();
            let mut own = policies.iter().filter(|policy| policy.is_of(authority));
            if !own.any(|policy| policy.permits(subject)) {
                let cause = format!(
                    "the signing policy of {} does not permit the certificate of {}",
                    shown(authority),
                    shown(subject)
                );
                return Err(super::refused(
                    cause,
                    "use a certificate of another authority, or ask the endpoint's administrator \
                        to install the authority's newest signing policy",
                ));
            }
        }
    }
    Ok(())
}

/// Returns the authorities whose policies limit the subjects of `issuer`. If `issuer` has no policy
/// and is not trusted itself, these are the authorities that have certified it. Otherwise an
/// authority could evade its policy with an authority of its own.
fn binding<'a>(
    policies: &[SigningPolicy],
    issuer: &'a Subject,
    links: &'a [Link],
) -> Vec<&'a Subject> {
    let mut names = vec![issuer];
    let mut bound = Vec::new();
    let mut next = 0;
    // Each name is looked at once, and a chain has few names.
    while let Some(name) = names.get(next).copied() {
        next += 1;
        if policies.iter().any(|policy| policy.is_of(name.slash())) {
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

fn refused(cause: &str) -> dray_core::Error {
    let remedy = "install the signing policy of the authority again";
    misconfigured("read the signing policy", cause, remedy)
}

/// Splits the first word off a line.
fn word(line: &str) -> (&str, &str) {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (first, rest.trim())
}

/// Returns the text between quotes, which must be the whole text.
fn quoted(text: &str) -> Option<&str> {
    let mark = text
        .chars()
        .next()
        .filter(|mark| matches!(mark, '\'' | '"'))?;
    text.strip_prefix(mark)?.strip_suffix(mark)
}

/// Returns the subjects of a list, which are separated by spaces. A list with one subject may omit
/// the inner quotes.
fn subjects(list: &str) -> Option<Vec<String>> {
    let list = list.trim();
    if !list.starts_with(['\'', '"']) {
        return (!list.is_empty()).then(|| vec![canonical(list)]);
    }
    let mut found = Vec::new();
    let mut rest = list;
    while let Some(mark) = rest.chars().next() {
        let inner = rest
            .strip_prefix(mark)
            .filter(|_| matches!(mark, '\'' | '"'))?;
        let (subject, after) = inner.split_once(mark)?;
        if found.len() == SUBJECTS_MAX {
            return None;
        }
        found.push(canonical(subject));
        rest = after.trim_start();
    }
    Some(found)
}

/// Writes the attributes with several usual names in one way, as [`super::Subject::slash`] does.
fn canonical(name: &str) -> String {
    name.replace("/Email=", "/emailAddress=")
        .replace("/E=", "/emailAddress=")
        .replace("/USERID=", "/UID=")
}

/// Compares a text with a pattern, in time that is at most the product of both lengths.
fn matches(pattern: &[char], text: &[char]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Positions after the last `*` in the pattern, and of the text that it does not cover yet.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match (pattern.get(next), text.get(at)) {
            (Some('*'), _) => {
                next += 1;
                star = Some((next, at));
            }
            (Some(wanted), Some(found)) if *wanted == '?' || wanted == found => {
                next += 1;
                at += 1;
            }
            _ => {
                let Some((after, covered)) = star else {
                    return false;
                };
                star = Some((after, covered + 1));
                (next, at) = (after, covered + 1);
            }
        }
    }
    pattern.iter().skip(next).all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::SigningPolicy;
    use proptest::prelude::*;

    const TWO: &str = "# A comment\n\n\
        access_id_CA   X509    '/C=XX/O=Example/CN=Example CA'\n\
        pos_rights     globus  CA:sign\n\
        cond_subjects  globus  '\"/C=XX/O=Example/*\" \"/DC=org/DC=example/CN=host?\"'\n\
        access_id_CA\tX509\t\"/C=XX/O=Other/Email=ca@example.org\"\n\
        pos_rights\tglobus\tCA:sign\n\
        cond_subjects\tglobus\t\"/C=XX/O=Other/*\"\n";

    const WORDS: &[&str] = &[
        "access_id_CA ",
        "pos_rights ",
        "cond_subjects ",
        "X509 ",
        "globus ",
        "CA:sign",
        "'",
        "\"",
        "*",
        " ",
        "\n",
        "a",
    ];

    #[test]
    fn an_entry_permits_the_subjects_of_its_authority() {
        let all = SigningPolicy::parse(TWO).expect("good");
        assert_eq!(all.len(), 2);
        assert!(all[0].is_of("/C=XX/O=Example/CN=Example CA"));
        assert!(!all[0].is_of("/C=XX/O=Example/CN=Example"));
        assert!(all[1].is_of("/C=XX/O=Other/emailAddress=ca@example.org"));
        for (subject, is_permitted) in [
            ("/C=XX/O=Example/CN=Alice", true),
            ("/C=XX/O=Example/", true),
            ("/C=XX/O=Examples/CN=Alice", false),
            ("/DC=org/DC=example/CN=host1", true),
            ("/DC=org/DC=example/CN=host12", false),
            ("/C=XX/O=Other/CN=Alice", false),
            ("", false),
        ] {
            assert_eq!(all[0].permits(subject), is_permitted, "{subject}");
        }
    }

    #[test]
    fn a_malformed_policy_is_refused_with_its_line() {
        let entry = TWO.lines().take(5).collect::<Vec<_>>();
        let without = |line: usize| {
            let mut lines = entry.clone();
            lines.remove(line);
            lines.join("\n")
        };
        for (text, words) in [
            (String::new(), "cond_subjects"),
            (without(2), "line 3"),
            (without(3), "line 4"),
            (without(4), "cond_subjects"),
            (
                entry.join("\n").replace("pos_rights", "neg_rights"),
                "line 4",
            ),
            (entry.join("\n").replace("CA:sign", "CA:all"), "line 4"),
            (entry.join("\n").replace("host?\"'", "host?'"), "line 5"),
            ("<html>503</html>".to_owned(), "line 1"),
        ] {
            let error = SigningPolicy::parse(&text).expect_err("malformed");
            assert!(error.cause.contains(words), "{error}: {text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(
            words in prop::collection::vec(prop::sample::select(WORDS), 0..40),
        ) {
            let _ = SigningPolicy::parse(&words.concat());
        }

        #[test]
        fn a_star_matches_every_text(head in "[a-c/]{0,9}", tail in "[a-c/]{0,9}") {
            let text = format!(
                "access_id_CA X509 '/CN=a'\npos_rights globus CA:sign\n\
                 cond_subjects globus '\"{head}*\" \"*{tail}\"'"
            );
            let policy = &SigningPolicy::parse(&text).expect("good")[0];
            let other = format!("{head}xyz{tail}");
            prop_assert!(policy.permits(&other));
            let end_differs = format!("y{head}xyz{tail}y");
            prop_assert_eq!(policy.permits(&end_differs), head.is_empty() || tail.is_empty());
        }
    }
}

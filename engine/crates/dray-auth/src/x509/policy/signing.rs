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

use super::pattern::Pattern;
use super::{PolicyFormat, Rule, canonical};
use crate::escape::shown;
use dray_core::Result;

/// Maximum number of subjects in one entry. The largest policies of the IGTF have a dozen.
const SUBJECTS_MAX: usize = 1_000;

/// Parses a file, which can have entries for several authorities.
///
/// # Errors
/// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if a line has another form than the
/// three lines of an entry, or if an entry lacks one of them. An unknown right is an error too,
/// because ignoring it could permit too much.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>> {
    let refused = |cause: &str| super::refused(PolicyFormat::Signing, cause);
    let mut all: Vec<Rule> = Vec::new();
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
                all.push(Rule {
                    format: PolicyFormat::Signing,
                    authority: canonical(name),
                    is_permit: true,
                    is_damaged: false,
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

/// Returns the names of the authorities in a file that may be damaged.
pub(super) fn authorities(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| word(line.trim()));
    let of = lines.filter(|(keyword, _)| *keyword == "access_id_CA");
    let values = of.map(|(_, rest)| rest.strip_prefix("X509").unwrap_or(rest));
    let names = values.map(|value| value.trim_matches(|c: char| c.is_whitespace() || is_mark(c)));
    names.map(str::to_owned).collect()
}

const fn is_mark(c: char) -> bool {
    matches!(c, '\'' | '"')
}

/// Splits the first word off a line.
fn word(line: &str) -> (&str, &str) {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (first, rest.trim())
}

/// Returns the text between quotes, which must be the whole text.
fn quoted(text: &str) -> Option<&str> {
    let mark = text.chars().next().filter(|mark| is_mark(*mark))?;
    text.strip_prefix(mark)?.strip_suffix(mark)
}

/// Returns the subjects of a list, which are separated by spaces. A list with one subject may omit
/// the inner quotes.
fn subjects(list: &str) -> Option<Vec<Pattern>> {
    let list = list.trim();
    if !list.starts_with(['\'', '"']) {
        return (!list.is_empty()).then(|| vec![wildcards(list)]);
    }
    let mut found = Vec::new();
    let mut rest = list;
    while let Some(mark) = rest.chars().next() {
        let inner = rest.strip_prefix(mark).filter(|_| is_mark(mark))?;
        let (subject, after) = inner.split_once(mark)?;
        if found.len() == SUBJECTS_MAX {
            return None;
        }
        found.push(wildcards(subject));
        rest = after.trim_start();
    }
    Some(found)
}

fn wildcards(subject: &str) -> Pattern {
    Pattern::wildcards(&canonical(subject))
}

#[cfg(test)]
mod tests {
    use super::super::{Rule, Verdict, verdict};
    use super::{authorities, parse};
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

    fn permits(rule: &Rule, subject: &str) -> bool {
        verdict([rule], subject) == Verdict::Permitted
    }

    #[test]
    fn an_entry_permits_the_subjects_of_its_authority() {
        let all = parse(TWO).expect("good");
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
            assert_eq!(permits(&all[0], subject), is_permitted, "{subject}");
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
            let error = parse(&text).expect_err("malformed");
            assert!(error.cause.contains(words), "{error}: {text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(
            words in prop::collection::vec(prop::sample::select(WORDS), 0..40),
        ) {
            let _ = parse(&words.concat());
            let _ = authorities(&words.concat());
        }

        #[test]
        fn a_star_matches_every_text(head in "[a-c/]{0,9}", tail in "[a-c/]{0,9}") {
            let text = format!(
                "access_id_CA X509 '/CN=a'\npos_rights globus CA:sign\n\
                 cond_subjects globus '\"{head}*\" \"*{tail}\"'"
            );
            let rule = &parse(&text).expect("good")[0];
            let other = format!("{head}xyz{tail}");
            prop_assert!(permits(rule, &other));
            let end_differs = format!("y{head}xyz{tail}y");
            prop_assert_eq!(permits(rule, &end_differs), head.is_empty() || tail.is_empty());
        }
    }
}

//! Namespaces files: the subjects that authorities may certify, in the format of the EUGridPMA that
//! the IGTF publishes as `HASH.namespaces` (Groep, Namespaces Format Specification, 2006).
//!
//! ```text
//! #NAMESPACES-VERSION: 1.0
//! TO Issuer "/C=XX/O=Example/CN=Example CA" \
//!   PERMIT Subject "/C=XX/O=Example/.*"
//! TO Issuer SELF DENY Subject "/C=XX/O=Example/OU=Test/.*"
//! ```
//!
//! A statement is on one line, or continues on the next line after a backslash. Keywords ignore case.
//! `SELF` stands for the authority to which the file belongs. The subject is a regular expression.

use super::pattern::Pattern;
use super::{PolicyFormat, Rule, canonical, refused};
use dray_core::Result;
use std::mem;

/// Maximum number of statements in a file. The largest file of the IGTF has a dozen.
const STATEMENTS_MAX: usize = 1_000;

/// The comment that names the version of the format.
const VERSION: &str = "#NAMESPACES-VERSION:";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word<'a> {
    Plain(&'a str),
    Quoted(&'a str),
}

impl Word<'_> {
    fn is(self, keyword: &str) -> bool {
        matches!(self, Self::Plain(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// Parses a file. `own` has the subjects for which `SELF` stands.
///
/// # Errors
/// With the number of the line: if a statement has another form, if a file without an authority
/// contains `SELF`, or if the file contains no statement.
pub(super) fn parse(text: &str, own: &[String]) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    let mut words = Vec::new();
    let mut begin = 1;
    let mut statements = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |line: usize, cause: &str| {
            refused(PolicyFormat::Namespaces, &format!("line {line}: {cause}"))
        };
        if let Some(version) = line.strip_prefix(VERSION)
            && version.trim() != "1.0"
        {
            return Err(wrong(number, "only version 1.0 of the format is known"));
        }
        if words.is_empty() {
            begin = number;
        }
        let is_continued = split(line, &mut words).map_err(|cause| wrong(number, cause))?;
        if is_continued || words.is_empty() {
            continue;
        }
        statements += 1;
        if statements > STATEMENTS_MAX {
            let cause = format!("the file has more than {STATEMENTS_MAX} statements");
            return Err(wrong(number, &cause));
        }
        let statement = mem::take(&mut words);
        rules.extend(rule(&statement, own).map_err(|cause| wrong(begin, &cause))?);
    }
    match words.is_empty() && statements > 0 {
        true => Ok(rules),
        false => {
            let cause = "the file does not end with a complete statement";
            Err(refused(PolicyFormat::Namespaces, cause))
        }
    }
}

/// Returns the names of the authorities in a file that may be damaged: each quoted text after the
/// keyword `Issuer`.
pub(super) fn authorities(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in text.lines() {
        // Ignore the error: the words before a damaged part of a line are in `words`.
        let _ = split(line, &mut words);
    }
    let pairs = words.windows(2);
    let names = pairs.filter_map(|pair| match pair {
        [issuer, Word::Quoted(name)] if issuer.is("Issuer") => Some(name.trim().to_owned()),
        _ => None,
    });
    names.collect()
}

/// Adds the words of a line to `words`. Returns true if the statement continues on the next line.
fn split<'a>(line: &'a str, words: &mut Vec<Word<'a>>) -> Result<bool, &'static str> {
    let mut rest = line.trim();
    while !rest.is_empty() && !rest.starts_with('#') {
        if rest == "\\" {
            return Ok(true);
        }
        if let Some(after) = rest.strip_prefix('"') {
            let (inner, after) = after.split_once('"').ok_or("a quote is not closed")?;
            words.push(Word::Quoted(inner));
            rest = after.trim_start();
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '#' | '\\'));
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            if word.is_empty() {
                return Err("a backslash is not at the end of the line");
            }
            words.push(Word::Plain(word));
            rest = after.trim_start();
        }
    }
    Ok(false)
}

/// Returns the rules of a statement: one for each authority.
fn rule(words: &[Word<'_>], own: &[String]) -> Result<Vec<Rule>, String> {
    const FORM: &str = "the statement does not have the form TO Issuer \"NAME\" PERMIT Subject \
                        \"EXPRESSION\" (or SELF instead of the quoted name, DENY instead of PERMIT)";
    let [
        to,
        issuer,
        authority,
        verb,
        subject,
        Word::Quoted(expression),
    ] = words
    else {
        return Err(FORM.into());
    };
    let has_form = to.is("TO") && issuer.is("Issuer") && subject.is("Subject");
    let is_permit = verb.is("PERMIT");
    if !has_form || !(is_permit || verb.is("DENY")) {
        return Err(FORM.into());
    }
    let authorities = match authority {
        Word::Quoted(name) if name.trim().is_empty() => return Err("the issuer is empty".into()),
        Word::Quoted(name) => vec![canonical(name.trim())],
        word if !word.is("SELF") => return Err(FORM.into()),
        _ if own.is_empty() => {
            return Err(
                "SELF stands for the authority in the file NAME.pem or NAME.0 beside this file \
                    NAME.namespaces, and there is no such authority"
                    .into(),
            );
        }
        _ => own.iter().map(|name| canonical(name)).collect(),
    };
    // Some published files have a space before the closing quote.
    let pattern = Pattern::expression(&canonical(expression.trim()))?;
    let rule = |authority| Rule {
        format: PolicyFormat::Namespaces,
        authority,
        is_permit,
        is_damaged: false,
        subjects: vec![pattern.clone()],
    };
    Ok(authorities.into_iter().map(rule).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Policy, Verdict};
    use super::{authorities, parse};
    use proptest::prelude::*;

    const CA: &str = "/C=XX/O=Example/CN=Example CA";
    const FILE: &str = "##########\n#NAMESPACES-VERSION: 1.0\n#\n\
        TO Issuer \"/C=XX/O=Example/CN=Example CA\" \\\n  PERMIT Subject \"/C=XX/O=Example/.* \"\n\
        \tto issuer self deny SUBJECT\"/C=XX/O=Example/OU=Test#1/.*\"# a comment\n\n\
        TO Issuer \"/C=XX/O=Other/E=ca@example.org\"   \\  \n\
        PERMIT \\\nSubject \"/DC=org/E=.*@example\\.org\"\n";

    const WORDS: &[&str] = &[
        "TO ", "Issuer ", "SELF ", "PERMIT ", "DENY ", "Subject ", "\"", "/CN=a", ".*", "[", "\\",
        "\n", "#",
    ];

    #[test]
    fn a_statement_permits_or_denies_the_subjects_of_its_authority() {
        let policy = Policy(parse(FILE, &[CA.to_owned()]).expect("good"));
        let other = "/C=XX/O=Other/emailAddress=ca@example.org";
        for (authority, subject, verdict) in [
            (CA, "/C=XX/O=Example/CN=Alice", Verdict::Permitted),
            (CA, "/C=xx/O=EXAMPLE/CN=Alice", Verdict::Permitted),
            (CA, "/C=XX/O=Examples/CN=Alice", Verdict::NotPermitted),
            (CA, "/C=XX/O=Example/OU=Test#1/CN=Alice", Verdict::Denied),
            (CA, "/C=XX/O=Example/OU=test#1/CN=Alice", Verdict::Denied),
            (
                other,
                "/DC=org/emailAddress=a@example.org",
                Verdict::Permitted,
            ),
            (
                other,
                "/DC=org/emailAddress=a@example-org",
                Verdict::NotPermitted,
            ),
        ] {
            let rules = policy.0.iter().filter(|rule| rule.is_of(authority));
            assert_eq!(super::super::verdict(rules, subject), verdict, "{subject}");
        }
        assert!(policy.0.iter().any(|rule| rule.is_of(&CA.to_lowercase())));
    }

    #[test]
    fn a_malformed_file_is_refused_with_its_line() {
        let statement = "TO Issuer \"/CN=a\" PERMIT Subject \"/CN=.*\"";
        for (text, words) in [
            (String::new(), "complete statement"),
            ("# only a comment\n".into(), "complete statement"),
            (format!("{statement} \\\n"), "complete statement"),
            (
                format!("\n{statement}\nTO Issuer \"/CN=a\"\n"),
                "line 3: the statement",
            ),
            (
                statement.replace("PERMIT", "PERMITS"),
                "line 1: the statement",
            ),
            (
                statement.replace("\"/CN=a\"", "/CN=a"),
                "line 1: the statement",
            ),
            (
                statement.replace("\"/CN=a\"", "\"\""),
                "the issuer is empty",
            ),
            (statement.replace("\"/CN=a\"", "SELF"), "no such authority"),
            (format!("{statement} {statement}"), "line 1: the statement"),
            (statement.replace(".*", "(a|b)"), "line 1: the character |"),
            (
                statement.trim_end_matches('"').into(),
                "quote is not closed",
            ),
            (
                format!("TO \\ Issuer\n{statement}"),
                "not at the end of the line",
            ),
            (
                format!("#NAMESPACES-VERSION: 2.0\n{statement}"),
                "version 1.0",
            ),
            (
                format!("{statement}\n").repeat(1_001),
                "more than 1000 statements",
            ),
            ("<html>503</html>".into(), "line 1"),
        ] {
            let error = parse(&text, &[]).expect_err(&text);
            assert!(error.cause.contains(words), "{error}: {text}");
            assert!(error.to_string().contains("namespaces file"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(
            words in prop::collection::vec(prop::sample::select(WORDS), 0..40),
        ) {
            let _ = parse(&words.concat(), &[CA.to_owned()]);
            let _ = authorities(&words.concat());
        }
    }
}

//! Rules about text: the width of pages, and the first words of documentation comments.

use crate::Finding;
use crate::lex;

/// Maximum number of columns of a page of documentation.
pub const PAGE_COLUMNS: usize = 100;

/// Words that begin a clause without a subject ("What is safe", "Whether it runs"). A comment must
/// not begin with such a word. It should name its subject instead.
pub const HEADLESS: &[&str] = &[
    "What", "Whether", "Who", "Whose", "Of", "How", "Where", "Which",
];

/// Returns a finding for every line that is too wide in a Markdown page. Tables, code and lines
/// with a long link are permitted.
pub fn check_page_width(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let cannot_wrap = is_code
            || line.starts_with("    ")
            || line.trim_start().starts_with(['|', '#'])
            || line.contains("](")
            || line.contains("://")
            || has_long_code(line);
        let columns = line.chars().count();
        if columns > PAGE_COLUMNS && !cannot_wrap {
            let message =
                format!("{columns} columns, {PAGE_COLUMNS} are allowed: wrap the paragraph");
            findings.push(Finding::at_line(path, index, message));
        }
    }
    findings
}

/// Returns a finding for every documentation comment (`///`, `//!`) that begins with a word of
/// [`HEADLESS`].
pub fn check_openings(path: &str, source: &str) -> Vec<Finding> {
    let comments = lex::split(source).comments;
    let mut findings = Vec::new();
    let mut was_comment = false;
    for (index, line) in comments.lines().enumerate() {
        let line = line.trim_start();
        let text = line.strip_prefix("/// ").or(line.strip_prefix("//! "));
        if let (Some(text), false) = (text, was_comment)
            && let Some(word) = HEADLESS.iter().find(|word| begins_with(text, word))
        {
            let message = format!("the comment begins with \"{word}\": name its subject");
            findings.push(Finding::at_line(path, index, message));
        }
        was_comment = line.starts_with("///") || line.starts_with("//!");
    }
    findings
}

/// Returns a finding for every Python docstring that begins with a word of [`HEADLESS`].
pub fn check_docstring_openings(path: &str, source: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let text = line.trim_start().strip_prefix("\"\"\"");
        if let Some(word) =
            text.and_then(|text| HEADLESS.iter().find(|word| begins_with(text, word)))
        {
            let message = format!("the docstring begins with \"{word}\": name its subject");
            findings.push(Finding::at_line(path, index, message));
        }
    }
    findings
}

/// Returns true if a line has a long piece of code, such as a command, which wrapping would break
/// in two.
fn has_long_code(line: &str) -> bool {
    const LONG: usize = 40;
    let code = line.split('`').skip(1).step_by(2);
    code.into_iter().any(|code| code.chars().count() > LONG)
}

fn begins_with(text: &str, word: &str) -> bool {
    text.strip_prefix(word)
        .is_some_and(|rest| rest.starts_with(' '))
}

/// Checks the subject of a commit message: `area: imperative`, at most 72 characters.
///
/// # Errors
/// A description of the fault.
pub fn check_subject(subject: &str) -> Result<(), String> {
    const SUBJECT_MAX: usize = 72;
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        return Err(format!("{length} characters, {SUBJECT_MAX} are allowed"));
    }
    let Some((area, what)) = subject.split_once(": ") else {
        return Err("no area: write `area: imperative`".into());
    };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || " ,-_/.".contains(c);
    if area.is_empty() || !area.chars().all(is_area) {
        return Err(format!("`{area}` is not an area in lower case"));
    }
    if !what.starts_with(|c: char| c.is_ascii_lowercase() || c == '`') {
        return Err("what follows the area does not begin with a verb in lower case".into());
    }
    if HEADLESS
        .iter()
        .any(|word| begins_with(what, &word.to_lowercase()))
    {
        return Err("it begins with a headless clause".into());
    }
    if what.ends_with('.') {
        return Err("it ends with a full stop".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_of_prose_are_found() {
        let wide = "word ".repeat(21);
        let found = |text: &str| check_page_width("a.md", text).len();
        assert_eq!(found(&wide), 1);
        assert_eq!(found(&format!("```\n{wide}\n```\n| {wide}\n    {wide}")), 0);
        assert_eq!(found(&format!("[x](y) {wide}")), 0);
        assert_eq!(found(&format!("```\n```\n{wide}")), 1);
        assert_eq!(found(&format!("run `{}` {wide}", "x".repeat(50))), 0);
    }

    #[test]
    fn headless_openings_are_found_at_the_start_of_a_comment_only() {
        let found = |text: &str| check_openings("a.rs", text).len();
        assert_eq!(
            found("/// What is safe.\nfn f() {}\n    //! Of those, one.\n"),
            2
        );
        assert_eq!(
            found("/// Durable ranges.\n/// What follows is text.\n// What\n"),
            0
        );
        assert_eq!(found("/// Whatever it is.\nlet a = \"/// What is\";"), 0);
    }

    #[test]
    fn headless_docstrings_are_found() {
        let found = |text: &str| check_docstring_openings("a.py", text).len();
        assert_eq!(found("def f():\n    \"\"\"Whether it runs.\"\"\"\n"), 1);
        assert_eq!(
            found("    \"\"\"Return true if it runs.\n    Whether it does.\"\"\"\n"),
            0
        );
    }

    #[test]
    fn subjects_have_an_area_and_a_verb() {
        for good in [
            "sink: keep modes",
            "docs, tests: name `x`",
            "xrootd/tpc: split copy.rs",
        ] {
            assert_eq!(check_subject(good), Ok(()), "{good}");
        }
        let long = format!("sink: {}", "x".repeat(67));
        for bad in [
            "keep modes",
            "Sink: keep",
            "sink: Keep",
            "sink: what is safe",
            "a: b.",
            &long,
        ] {
            assert!(check_subject(bad).is_err(), "{bad}");
        }
    }
}

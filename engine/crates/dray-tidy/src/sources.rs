//! Rules about single source files: maximum length, the comment of an `unsafe` block, and the issue
//! number of each marker of unfinished work.

use crate::Finding;
use crate::lex;

/// Maximum number of lines of a source file. A file of tests may have [`LINES_MAX_WITH_TESTS`].
/// Unit tests at the end of a Rust file are not counted, because they belong next to the code that
/// they test.
pub const LINES_MAX: usize = 600;

/// Maximum number of lines of a file of tests, or of a file with its unit tests.
pub const LINES_MAX_WITH_TESTS: usize = 1000;

/// A file that may be longer, and the reason.
#[derive(Debug)]
pub struct LongFile {
    /// Path from the top of the tree.
    pub path: &'static str,
    /// Reason why the file should not be split.
    pub reason: &'static str,
}

/// Returns a finding if a file is too long. For a Rust file (`is_rust`), unit tests at the end are
/// not counted.
pub fn check_length(path: &str, text: &str, is_rust: bool, long: &[LongFile]) -> Option<Finding> {
    if long.iter().any(|file| file.path == path) {
        return None;
    }
    let lines: Vec<&str> = text.lines().collect();
    // A file of tests may be longer, because it is a list of cases that are read one at a time.
    let is_test = path
        .split('/')
        .any(|part| part == "tests" || part == "tests.rs" || part.starts_with("test_"));
    let own = if is_test {
        0
    } else if is_rust {
        lines_before_tests(&lines)
    } else {
        lines.len()
    };
    if own > LINES_MAX {
        let message = format!("{own} lines, {LINES_MAX} are allowed: split it by what it tells");
        return Some(Finding::at(path, message));
    }
    if lines.len() > LINES_MAX_WITH_TESTS {
        let message = format!(
            "{} lines with its tests, {LINES_MAX_WITH_TESTS} are allowed: move the tests to a file",
            lines.len()
        );
        return Some(Finding::at(path, message));
    }
    None
}

/// Maximum number of lines of unit tests at the end of the file that they test.
pub const INLINE_TESTS_MAX: usize = 110;

/// Checks that a module has the project's form: the file of a module is beside its folder, as
/// `foo.rs` and `foo/`, and long unit tests are in `foo/tests.rs`. `path` is the path below a
/// crate's `src/`.
pub fn check_module(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(module) = path.strip_suffix("/mod.rs") {
        findings.push(Finding::at(path, format!("name it {module}.rs")));
    }
    if let Some(module) = path.strip_suffix("_tests.rs") {
        findings.push(Finding::at(path, format!("name it {module}/tests.rs")));
    }
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.trim_start().starts_with("#[path = ") {
            let message = "a module's file has the module's path";
            findings.push(Finding::at_line(path, index, message));
        }
    }
    let tests = lines.len() - lines_before_tests(&lines);
    if tests > INLINE_TESTS_MAX {
        let module = path.strip_suffix(".rs").unwrap_or(path);
        let message = format!(
            "{tests} lines of unit tests, {INLINE_TESTS_MAX} are allowed: move them to {module}/tests.rs"
        );
        findings.push(Finding::at(path, message));
    }
    findings
}

/// Maximum number of columns of a line. The formatters wrap code at 100 columns, but not comments
/// and literals. A word that ends slightly beyond 100 is harmless.
pub const COLUMNS_MAX: usize = 110;

/// Returns a finding for every line that is too wide. A line with a URL is permitted, because a URL
/// cannot be wrapped.
pub fn check_width(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.contains("://") {
            let message = format!("{columns} columns, {COLUMNS_MAX} are allowed");
            findings.push(Finding::at_line(path, index, message));
        }
    }
    findings
}

/// Returns a finding for every file in the list of long files that is now short enough or does not
/// exist. Such a file must be removed from the list.
pub fn check_long_list(long: &[LongFile], read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in long {
        let is_short = read(file.path).is_none_or(|text| {
            let is_rust = file.path.ends_with(".rs");
            check_length(file.path, &text, is_rust, &[]).is_none()
        });
        if is_short {
            findings.push(Finding::at(
                file.path,
                "is short enough now: take it off the list",
            ));
        }
        if file.reason.trim().is_empty() {
            findings.push(Finding::at(file.path, "is on the list without a reason"));
        }
    }
    findings
}

/// Returns the number of lines before the last `#[cfg(test)] mod ... {`, if that module extends to
/// the end of the file.
pub(crate) fn lines_before_tests(lines: &[&str]) -> usize {
    let is_tests = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let Some(start) = lines.windows(2).rposition(is_tests) else {
        return lines.len();
    };
    // In formatted code, only the end of a top-level module has a brace in the first column.
    let is_last = !lines[start + 2..lines.len().saturating_sub(1)].contains(&"}");
    if is_last { start } else { lines.len() }
}

/// Returns a finding for every `unsafe` block or impl without a `SAFETY:` comment. The comment must
/// be on the same line, or directly above the statement.
pub fn check_unsafe(path: &str, source: &str) -> Vec<Finding> {
    let split = lex::split(source);
    let comments: Vec<&str> = split.comments.lines().collect();
    let code: Vec<&str> = split.code.lines().collect();
    let tokens = lex::tokens(&split.code);
    let mut findings = Vec::new();
    for pair in tokens.windows(2) {
        // `unsafe fn`, `unsafe trait`, `unsafe extern` and `#[unsafe(...)]` state a contract. The
        // compiler and clippy check these with their `# Safety` rules.
        let is_use = pair[0].text == "unsafe" && matches!(pair[1].text, "{" | "impl");
        if is_use && !is_justified(pair[0].line, &code, &comments) {
            let message = "`unsafe` without a `// SAFETY:` comment right above it";
            findings.push(Finding::at_line(path, pair[0].line, message));
        }
    }
    findings
}

fn is_justified(line: usize, code: &[&str], comments: &[&str]) -> bool {
    // The text of a comment may follow `//`, `///` or `/*`.
    let says_why = |index: usize| {
        comments[index]
            .trim_start_matches([' ', '/', '*', '!'])
            .starts_with("SAFETY:")
    };
    if says_why(line) {
        return true;
    }
    let mut above = line;
    while above > 0 {
        above -= 1;
        let is_comment = !comments[above].trim().is_empty();
        if is_comment && says_why(above) {
            return true;
        }
        let text = code[above].trim();
        let continues = text.ends_with(['=', '(', ',', '.']) || text.starts_with("#[");
        if !is_comment && (text.is_empty() || !continues) {
            return false;
        }
    }
    false
}

/// Returns a finding for every marker of unfinished work that names no issue. The permitted form is
/// `TODO(#12): ...`.
pub fn check_markers(path: &str, text: &str) -> Vec<Finding> {
    // The words are joined by `concat!`, so that this file does not break its own rule.
    let markers = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("HA", "CK"),
    ];
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for marker in markers {
            let names_no_issue = line.match_indices(marker).any(|(at, _)| {
                let after = &line[at + marker.len()..];
                let is_whole =
                    !line[..at].ends_with(is_word_char) && !after.starts_with(is_word_char);
                is_whole && !has_issue(after)
            });
            if names_no_issue {
                let message = format!("`{marker}` without an issue: write `{marker}(#number)`");
                findings.push(Finding::at_line(path, index, message));
            }
        }
    }
    findings
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '`'
}

fn has_issue(after: &str) -> bool {
    let number = after
        .strip_prefix("(#")
        .and_then(|rest| rest.split(')').next());
    number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests;

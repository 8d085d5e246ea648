//! The list of all messages that the programs can print. A person reviews changes to this list.

use crate::lex;
use crate::sources;
use std::collections::BTreeSet;

/// Path of the list from the top of the tree.
pub const LIST: &str = "engine/messages.txt";

/// First words of literals that are not messages, such as SQL statements, assembly and code.
const NOT_FOR_PEOPLE: &[&str] = &[
    "SELECT ",
    "INSERT ",
    "UPDATE ",
    "DELETE ",
    "CREATE ",
    "ALTER ",
    "PRAGMA ",
    "DROP ",
    "WITH ",
    "AND ",
    "WHERE ",
    "ORDER ",
    "VALUES ",
    "FROM ",
    "BEGIN ",
    "SET ",
    "JOIN ",
    "LIMIT ",
    "CASE ",
    "ON ",
    "EXISTS ",
    "INDEXED ",
    "RELEASE ",
    "ROLLBACK ",
    "SAVEPOINT ",
    "{SELECT}",
];

/// Text that marks a part of an SQL statement, if the part begins with another word.
const SQL: &[&str] = &[" WHERE ", " IS NULL", " = ?"];

/// Text before the reason of a silenced lint. Only readers of the source see the reason.
const LINT_REASON: &str = "reason = \"";

/// Returns the sentences in the string literals of a file. Unit tests are left out.
pub fn sentences(source: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = source.lines().collect();
    let own = sources::lines_before_tests(&lines);
    let literals = lex::split(source).literals;
    let own = literals.into_iter().filter(|literal| {
        let is_reason = lines[literal.line].contains(LINT_REASON);
        literal.line < own && !is_reason
    });
    own.map(|literal| literal.text.replace('\n', "\\n"))
        .filter(|text| is_sentence(text))
        .collect()
}

/// Returns true for text that has two consecutive words and is not an SQL statement.
fn is_sentence(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_word = |word: &str| {
        let letters = word.trim_matches(|c: char| !c.is_alphabetic());
        letters.len() > 1
            && letters
                .chars()
                .all(|c| c.is_alphabetic() || c == '-' || c == '\'')
    };
    let has_two = words
        .windows(2)
        .any(|pair| is_word(pair[0]) && is_word(pair[1]));
    let own = text.trim_start_matches("\\n").trim_start();
    has_two
        && !NOT_FOR_PEOPLE.iter().any(|start| own.starts_with(start))
        && !SQL.iter().any(|part| text.contains(part))
}

/// Formats the list of messages. `files` has the paths of the source files and their texts, in
/// order.
pub fn list(files: &[(String, String)]) -> String {
    let mut list = String::from(
        "# Every sentence in the string literals of the programs, file by file.\n\
         # Written by: DRAY_WRITE_MESSAGES=1 cargo test -p dray-tidy\n",
    );
    for (path, source) in files {
        let found = sentences(source);
        if found.is_empty() {
            continue;
        }
        list.push_str(&format!("\n{path}\n"));
        for sentence in found {
            list.push_str(&format!("    {sentence}\n"));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_found_and_statements_and_tests_are_not() {
        let source = concat!(
            "f(\"cannot open the {file}\", \"key\", \"SELECT one FROM two\");\n",
            "#[cfg(test)]\nmod tests {\n    f(\"only a test\");\n}\n",
        );
        let found: Vec<_> = sentences(source).into_iter().collect();
        assert_eq!(found, ["cannot open the {file}"]);
        let list = list(&[
            ("a.rs".into(), source.into()),
            ("b.rs".into(), String::new()),
        ]);
        assert!(list.ends_with("\n\na.rs\n    cannot open the {file}\n"));
    }
}

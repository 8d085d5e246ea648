//! The part of Rust's lexical grammar that is needed to separate code from comments and literals.

/// A source file split into its code and its comments. Both texts have the lines and columns of the
/// original: the code has spaces in place of the comments, and the comments have spaces in place of
/// the code.
#[derive(Debug)]
pub struct Split {
    /// The code. Comments, and the contents of string and character literals, are replaced by
    /// spaces.
    pub code: String,
    /// The comments. All other text is replaced by spaces.
    pub comments: String,
    /// All string literals, in the order of the file.
    pub literals: Vec<Literal>,
}

/// A string literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    /// First line of the literal, counted from 0.
    pub line: usize,
    /// Text without the quotes. Escaped quotes, escaped line ends and continued lines are resolved.
    pub text: String,
}

/// Splits `source` into code, comments and literals. If the text is not Rust, the result has no
/// meaning, but the function never panics.
pub fn split(source: &str) -> Split {
    let chars: Vec<char> = source.chars().collect();
    let mut scanner = Scanner {
        chars: &chars,
        at: 0,
        code: String::new(),
        comments: String::new(),
        literals: Vec::new(),
    };
    scanner.run();
    Split {
        code: scanner.code,
        comments: scanner.comments,
        literals: scanner.literals,
    }
}

struct Scanner<'a> {
    chars: &'a [char],
    at: usize,
    code: String,
    comments: String,
    literals: Vec<Literal>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while self.at < self.chars.len() {
            match (self.chars[self.at], self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                (c, _) if c.is_alphabetic() || c == '_' => self.word(),
                _ => self.keep(1),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Copies `count` characters to the code.
    fn keep(&mut self, count: usize) {
        self.take(count, |c| (c, ' '));
    }

    /// Copies `count` characters to the comments.
    fn comment(&mut self, count: usize) {
        self.take(count, |c| (' ', c));
    }

    /// Replaces `count` characters of a literal by spaces in both texts.
    fn blank(&mut self, count: usize) {
        self.take(count, |_| (' ', ' '));
    }

    fn take(&mut self, count: usize, to: impl Fn(char) -> (char, char)) {
        for _ in 0..count {
            let Some(&c) = self.chars.get(self.at) else {
                return;
            };
            let (code, comment) = if c == '\n' { (c, c) } else { to(c) };
            self.code.push(code);
            self.comments.push(comment);
            self.at += 1;
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.comment(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.comment(2);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.comment(2);
                    if depth == 0 {
                        return;
                    }
                }
                (Some(_), _) => self.comment(1),
                (None, _) => return,
            }
        }
    }

    fn string(&mut self) {
        self.keep(1);
        let start = self.at;
        loop {
            match self.peek(0) {
                Some('\\') => self.blank(2),
                Some('"') => break,
                Some(_) => self.blank(1),
                None => return,
            }
        }
        let text = resolve_escapes(&self.chars[start..self.at]);
        self.literal(start, text);
        self.keep(1);
    }

    /// Records a literal whose text begins at character `start`.
    fn literal(&mut self, start: usize, text: String) {
        let line = self.chars[..start].iter().filter(|c| **c == '\n').count();
        self.literals.push(Literal { line, text });
    }

    /// Reads a character literal (`'a'`, `'\n'`) or a lifetime.
    fn quote(&mut self) {
        let is_char = match self.peek(1) {
            Some('\\') => true,
            Some(_) => self.peek(2) == Some('\''),
            None => false,
        };
        self.keep(1);
        if !is_char {
            return;
        }
        loop {
            match self.peek(0) {
                Some('\\') => self.blank(2),
                Some('\'') => return self.keep(1),
                Some(_) => self.blank(1),
                None => return,
            }
        }
    }

    /// Reads an identifier, or a raw string with its prefix (`r"`, `br##"`, `cr"`).
    fn word(&mut self) {
        let start = self.at;
        while self
            .peek(0)
            .is_some_and(|c| c.is_alphanumeric() || c == '_')
        {
            self.keep(1);
        }
        let word: String = self.chars[start..self.at].iter().collect();
        if !matches!(word.as_str(), "r" | "br" | "cr") {
            return;
        }
        let hashes = self.chars[self.at..]
            .iter()
            .take_while(|c| **c == '#')
            .count();
        if self.peek(hashes) == Some('"') {
            self.keep(hashes + 1);
            self.raw_string_rest(hashes);
        }
    }

    fn raw_string_rest(&mut self, hashes: usize) {
        let start = self.at;
        while let Some(c) = self.peek(0) {
            let closes = c == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if closes {
                self.literal(start, self.chars[start..self.at].iter().collect());
                return self.keep(hashes + 1);
            }
            self.blank(1);
        }
    }
}

/// Returns the text of a string literal with escapes resolved: `\"` becomes a quote, and a `\` at
/// the end of a line joins two lines.
fn resolve_escapes(literal: &[char]) -> String {
    let mut text = String::new();
    let mut rest = literal.iter().copied().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some('\n')) => while rest.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some('n')) => {
                rest.next();
                text.push('\n');
            }
            ('\\', Some('"' | '\'' | '\\')) => text.extend(rest.next()),
            _ => text.push(c),
        }
    }
    text
}

/// A token of code: a word, `::`, or any other single character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token<'a> {
    /// Text of the token.
    pub text: &'a str,
    /// Line of the token, counted from 0.
    pub line: usize,
}

/// Returns the tokens of code from which `split` has removed comments and literals.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (token, after) = rest.split_at(length);
            found.push(Token { text: token, line });
            rest = after.trim_start();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let source = concat!(
            "let a = \"std::fs // no\"; // std::net\n",
            "/* outer /* inner */ still */ let b = 'x'; let c: &'static str = r#\"a\" b\"#;\n",
            "let d = b'\\''; let e = br\"\\\"; f()\n",
        );
        let Split {
            code,
            comments,
            literals,
        } = split(source);
        assert!(!code.contains("std::fs") && !code.contains("still") && !code.contains("a\" b"));
        assert!(comments.contains("std::net") && !comments.contains("std::fs"));
        assert!(code.contains("&'static str") && code.contains("f()"));
        assert_eq!(code.lines().count(), source.lines().count());
        let literals: Vec<_> = literals.iter().map(|one| (one.line, &*one.text)).collect();
        assert_eq!(literals, [(0, "std::fs // no"), (1, "a\" b"), (2, "\\")]);
    }

    #[test]
    fn escapes_of_a_literal_are_resolved() {
        let source = "f(\"say \\\"a\\\" \\\n   b\\n\")";
        assert_eq!(split(source).literals[0].text, "say \"a\" b\n");
    }

    #[test]
    fn unfinished_text_ends() {
        for source in ["\"", "'", "'\\", "/*", "r#\"", "b'", "r", "/", "\"\\"] {
            split(source);
        }
    }

    #[test]
    fn tokens_keep_their_lines() {
        let found = tokens("use std::{fs,\n io};");
        let texts: Vec<_> = found.iter().map(|token| token.text).collect();
        assert_eq!(texts, ["use", "std", "::", "{", "fs", ",", "io", "}", ";"]);
        assert_eq!(found[6].line, 1);
    }
}

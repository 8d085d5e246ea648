//! The house's rules, as tests: what may depend on what, which calls a pure crate must not make,
//! how long a file may be, that versions agree.
//!
//! Goals: each rule is a pure function from text to findings, with a small case beside it that it
//! must find (a rule that cannot fail is no rule); `tests/house.rs` applies them all to the tree.
//! Non-goals: what the compiler, clippy, rustfmt, ruff or mypy already say.
//!
//! Nothing depends on this crate.

pub mod banned_paths;
pub mod layers;
pub mod lex;
pub mod messages;
pub mod packages;
pub mod prose;
pub mod sources;
pub mod text;
pub mod tree;

use std::fmt;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the top of the tree, with the line where that helps:
    /// `engine/crates/x/src/y.rs:12`.
    pub place: String,
    /// What is wrong, and what to do instead.
    pub message: String,
}

impl Finding {
    /// A finding about a whole file or crate.
    pub fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }

    /// A finding about a line; `index` counts from 0, people count from 1.
    pub fn at_line(path: &str, index: usize, message: impl Into<String>) -> Self {
        Self {
            place: format!("{path}:{}", index + 1),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

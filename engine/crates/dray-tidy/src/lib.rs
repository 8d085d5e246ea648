//! The project's rules as tests: permitted dependencies and imports, banned calls in pure crates,
//! lengths of files, equal versions.
//!
//! Goals: each rule is a pure function from text to findings. Each rule has a test with a small
//! violation that it must find, because a rule that finds nothing is useless. `tests/house.rs`
//! applies all rules to the tree. Non-goals: rules that the compiler, clippy, rustfmt, ruff or mypy
//! check.
//!
//! No crate depends on this crate.

pub mod banned_paths;
pub mod circles;
pub mod layers;
pub mod lex;
pub mod messages;
pub mod packages;
pub mod prose;
pub mod sources;
pub mod text;
pub mod tree;

use std::fmt;

/// A violation of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the top of the tree. A finding about a line adds its number:
    /// `engine/crates/x/src/y.rs:12`.
    pub place: String,
    /// Description of the fault and of the alternative.
    pub message: String,
}

impl Finding {
    /// Creates a finding about a whole file or crate.
    pub fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }

    /// Creates a finding about a line. `index` counts from 0, and the number in the finding counts
    /// from 1.
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

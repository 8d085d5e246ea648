//! The content of a span.

use dray_core::TraceContext;
use std::time::SystemTime;

/// Maximum number of characters of a text in an attribute. A longer text is cut.
const TEXT_MAX: usize = 256;

/// Maximum number of texts in an attribute.
const LIST_MAX: usize = 8;

/// Kind of a span (OpenTelemetry, "SpanKind").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operation within the process.
    Internal,
    /// The answer to a call of another program.
    Server,
    /// A call to another program.
    Client,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// True or false.
    Flag(bool),
    /// Several texts.
    List(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.chars().take(TEXT_MAX).collect())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&[String]> for Value {
    fn from(texts: &[String]) -> Self {
        let cut = |text: &String| text.chars().take(TEXT_MAX).collect();
        Self::List(texts.iter().take(LIST_MAX).map(cut).collect())
    }
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) began: SystemTime,
    pub(crate) ended: SystemTime,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) is_failed: bool,
}

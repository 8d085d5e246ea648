//! Identifiers. Each identifier has its own type, so that code cannot confuse two kinds of index or
//! an index and a count.

use crate::error::{End, Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// Position of an entry in the manifest of the transfer. Counted from zero in the order of the
    /// listing.
    FileIndex(u64)
);
id!(
    /// Identifier of one attempt to send one object. If a source sends an object again, it uses a
    /// new identifier. A source never uses an identifier twice in a session.
    BlockId(u64)
);
id!(
    /// Identifier of a buffer of the pool. The state machines know only the identifier; the runtime
    /// owns the memory.
    BufferId(u32)
);
id!(
    /// Identifier of another end of the session. A session has one sink and one or more sources.
    PeerId(u16)
);
id!(
    /// Identifier of a data connection of the session.
    StreamId(u32)
);

/// Identifier of a transfer, chosen by the caller: 1 to 64 characters of `[A-Za-z0-9._:-]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransferId(String);

impl TransferId {
    /// Maximum length of an id in bytes.
    pub const LENGTH_MAX: usize = 64;

    /// Creates an id from text that the caller chose.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the text is empty, too long or contains a forbidden
    /// character.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        let fits = (1..=Self::LENGTH_MAX).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
        if fits {
            Ok(Self(text))
        } else {
            Err(
                Error::new(ErrorKind::InvalidRequest, End::Here, "read the transfer id")
                    .cause(format!(
                        "{text:?} does not consist of 1 to 64 characters of [A-Za-z0-9._:-]"
                    ))
                    .remedy("choose another transfer id (--transfer-id)"),
            )
        }
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TransferId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl From<TransferId> for String {
    fn from(id: TransferId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::TransferId;

    #[test]
    fn transfer_id_refuses_what_cannot_be_a_path_or_a_label() {
        for good in ["a", "dag:run.1-2", &"x".repeat(64)] {
            assert!(TransferId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(TransferId::new(bad).is_err(), "{bad}");
        }
    }
}

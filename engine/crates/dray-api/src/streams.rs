//! Number of data connections of a transfer, as requests and the configuration state it.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};

/// Maximum number of data connections that a request may state.
pub const STREAMS_MAX: u16 = 64;

/// Text for a number that the endpoint tunes.
const AUTO: &str = "auto";

/// Number of data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// A fixed number, 1 to [`STREAMS_MAX`].
    Count(u16),
    /// A number that the endpoint tunes while the transfer runs.
    Auto,
}

impl Streams {
    /// Default number of data connections.
    pub const USUAL: Self = Self::Count(dray_core::options::STREAMS_USUAL);

    /// Returns true if the number is within its bounds.
    #[must_use]
    pub const fn is_possible(self) -> bool {
        match self {
            Self::Count(count) => 1 <= count && count <= STREAMS_MAX,
            Self::Auto => true,
        }
    }
}

impl Serialize for Streams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u16(*count),
            Self::Auto => serializer.serialize_str(AUTO),
        }
    }
}

impl<'de> Deserialize<'de> for Streams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StreamsVisitor;
        impl Visitor<'_> for StreamsVisitor {
            type Value = Streams;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 1 to {STREAMS_MAX}, or \"{AUTO}\"")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<Streams, E> {
                match u16::try_from(count) {
                    // Leave the bounds to the caller (`is_possible`), whose error names the field.
                    Ok(count) => Ok(Streams::Count(count)),
                    Err(_) => Err(E::invalid_value(Unexpected::Unsigned(count), &self)),
                }
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<Streams, E> {
                match u64::try_from(count) {
                    Ok(count) => self.visit_u64(count),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(count), &self)),
                }
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Streams, E> {
                match word {
                    AUTO => Ok(Streams::Auto),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(StreamsVisitor)
    }
}

impl utoipa::PartialSchema for Streams {
    fn schema() -> RefOr<Schema> {
        let count = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
            .minimum(Some(1))
            .maximum(Some(STREAMS_MAX));
        let word = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some([AUTO]));
        OneOfBuilder::new()
            .item(count)
            .item(word)
            .description(Some(
                "Number of data connections, or `auto`: dray tunes the number while the transfer \
                    runs.",
            ))
            .into()
    }
}

impl utoipa::ToSchema for Streams {}

#[cfg(test)]
mod tests {
    use super::Streams;

    #[test]
    fn streams_accepts_only_a_number_or_auto() {
        let read = |text: &str| serde_json::from_str::<Streams>(text);
        for (text, streams) in [
            ("1", Streams::Count(1)),
            ("64", Streams::Count(64)),
            ("\"auto\"", Streams::Auto),
        ] {
            assert_eq!(read(text).expect(text), streams);
            assert!(streams.is_possible());
            assert_eq!(serde_json::to_string(&streams).expect("JSON"), text);
        }
        for text in ["0", "65"] {
            assert!(!read(text).expect("a number").is_possible());
        }
        for text in ["-1", "1.5", "70000", "\"4\"", "\"Auto\"", "null", "[4]"] {
            let said = read(text).expect_err(text).to_string();
            assert!(said.contains("1 to 64"), "{text}: {said}");
        }
    }
}

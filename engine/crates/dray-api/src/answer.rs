//! Reads answers of an endpoint that may be newer than this program.
//!
//! A newer endpoint may add fields to an answer. Most answers contain a
//! [`Request`](crate::Request), and that type refuses unknown fields. Plain deserialization would
//! therefore refuse the whole answer.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Error, Value};

/// Reads an answer and ignores fields that this version does not know.
///
/// # Errors
/// If a known field is missing or has another type.
pub fn read_answer<T: DeserializeOwned>(answer: &Value) -> Result<T, Error> {
    T::deserialize(KnownFields(answer))
}

/// A deserializer of a JSON value. It hides the fields that the target type does not know.
#[derive(Clone, Copy)]
struct KnownFields<'de>(&'de Value);

impl<'de> IntoDeserializer<'de, Error> for KnownFields<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for KnownFields<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(name, value)| (name.as_str(), Self(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Self))),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value::Object(fields) = self.0 else {
            return self.deserialize_any(visitor);
        };
        let fields = fields.iter();
        let fields = fields.filter(|(name, _)| known.contains(&name.as_str()));
        let fields = fields.map(|(name, value)| (name.as_str(), Self(value)));
        visitor.visit_map(MapDeserializer::new(fields))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::read_answer;
    use crate::{MintedTicket, Request, State, Transfer};
    use serde_json::{Value, json};

    fn transfer() -> Value {
        json!({"id": "t", "attempt": 1, "tries": 1, "state": "active", "version": 3,
            "attached": false, "owner": "alice",
            "request": {"sources": [{"url": "dray://b.example/data/x", "size": 7}],
                "destination": {"url": "/data/x"}, "streams": "auto", "labels": {"any": "text"}},
            "submitted_at": "2030-01-01T00:00:00.000Z", "started_at": null, "ended_at": null,
            "next_try_at": null,
            "files": {"listed": 1, "done": 0, "failed": 0, "skipped": 0, "adopted": 0,
                "listing_done": true},
            "bytes": {"listed": 7, "durable": 5, "resumed": 0, "sent": 5},
            "objects": {"sent": 1, "resumed": 0},
            "profile": {"source": {"read": 2}, "sink": {"write": 0.5}},
            "rate": {"now": 3, "mean": null, "granted": null}, "eta": null, "error": null,
            "failures": [], "source": 0, "notices": ["one"]})
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let read: Transfer = read_answer(&transfer()).expect("a transfer");
        assert_eq!(read.state, State::Active);
        assert_eq!(read.request.labels["any"], "text");
        let written = serde_json::to_value(&read).expect("JSON");
        assert_eq!(read_answer::<Transfer>(&written).expect("again"), read);
    }

    #[test]
    fn fields_of_a_newer_endpoint_are_ignored_at_any_depth() {
        let mut newer = transfer();
        newer["colour"] = json!("red");
        newer["request"]["colour"] = json!({"of": ["x"]});
        newer["request"]["sources"][0]["colour"] = json!(1);
        let plain: Transfer = read_answer(&transfer()).expect("a transfer");
        assert_eq!(read_answer::<Transfer>(&newer).expect("the same"), plain);
        // The endpoint must still refuse unknown fields in a request.
        assert!(serde_json::from_value::<Request>(newer["request"].clone()).is_err());
    }

    #[test]
    fn missing_field_or_wrong_type_is_refused() {
        for (field, value) in [
            ("state", json!("odd")),
            ("id", json!(7)),
            ("files", json!(null)),
        ] {
            let mut odd = transfer();
            odd[field] = value;
            assert!(read_answer::<Transfer>(&odd).is_err(), "{field}");
            odd.as_object_mut().expect("an object").remove(field);
            assert!(read_answer::<Transfer>(&odd).is_err(), "no {field}");
        }
    }

    #[test]
    fn a_flattened_answer_is_read() {
        let minted = json!({"id": "k", "transfer": "t", "direction": "read", "paths": ["/d"],
            "owner": "alice", "peer_key": "sha256:00", "issued_at": "2030-01-01T00:00:00Z",
            "expires_at": "2030-01-01T01:00:00Z", "renewable_until": "2030-01-02T00:00:00Z",
            "revoked": false, "sessions": 0, "weight": 100, "rate_min": null, "rate_max": null,
            "ticket": "drt_x", "key": "sha256:11", "address": "h:1", "colour": "red"});
        let minted: MintedTicket = read_answer(&minted).expect("a ticket");
        assert_eq!(
            (minted.about.id.as_str(), minted.address.as_str()),
            ("k", "h:1")
        );
    }
}

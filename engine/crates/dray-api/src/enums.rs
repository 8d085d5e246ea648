//! Enumerations of a request. The types of dray-core stand here a second time, for the schema alone:
//! the core knows nothing of documents.

use dray_core::options::Order;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which object goes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderWord {
    /// By storage target, around busy ones.
    #[default]
    Layout,
    /// File after file.
    File,
}

impl From<OrderWord> for Order {
    fn from(word: OrderWord) -> Self {
        match word {
            OrderWord::Layout => Self::Layout,
            OrderWord::File => Self::File,
        }
    }
}

/// What becomes of a request that cannot be promised what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionWord {
    /// It is refused.
    Required,
    /// It is taken without a promise.
    BestEffort,
}

/// What a transfer is owed.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Class {
    /// Gets what it needs at once.
    Realtime,
    /// Gets the rate its deadline needs.
    Deadline,
    /// Gets what is left.
    Background,
}

/// When bytes count as safe.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Durability {
    /// When they are written.
    None,
    /// On stable storage before the final name appears.
    File,
    /// On stable storage object by object.
    Object,
}

/// What to do with a file that stands at the destination.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub enum Overwrite {
    /// Leave it.
    Never,
    /// Replace it unless size, time and any known checksum match.
    IfDifferent,
    /// Replace it.
    Always,
}

/// How to treat durable ranges of an earlier run.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ResumeMode {
    /// Read them back and compare them.
    Verify,
    /// Trust the log.
    Trust,
}

/// What to do with symbolic links.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Links {
    /// Make them anew.
    Keep,
    /// Copy what they point to.
    Follow,
    /// Fail the entry.
    Refuse,
}

/// Which way the bytes go, seen from the one who issues the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The holder reads here.
    Read,
    /// The holder writes here.
    Write,
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use utoipa::PartialSchema;

    fn same<S: PartialSchema, T: Serialize>(words: &[T]) {
        let schema = serde_json::to_value(S::schema()).expect("JSON");
        assert_eq!(schema["enum"], serde_json::to_value(words).expect("JSON"));
    }

    #[test]
    fn the_words_of_the_schema_are_the_cores() {
        use dray_core::options::{Durability, Links, Overwrite, ResumeMode};
        use dray_core::rate::Class;
        same::<super::Class, _>(&[Class::Realtime, Class::Deadline, Class::Background]);
        same::<super::Durability, _>(&[Durability::None, Durability::File, Durability::Object]);
        same::<super::Overwrite, _>(&[Overwrite::Never, Overwrite::IfDifferent, Overwrite::Always]);
        same::<super::ResumeMode, _>(&[ResumeMode::Verify, ResumeMode::Trust]);
        same::<super::Links, _>(&[Links::Keep, Links::Follow, Links::Refuse]);
    }
}

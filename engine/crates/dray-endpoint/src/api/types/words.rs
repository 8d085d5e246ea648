//! The core's words, for the schema alone: the core knows nothing of documents.

use utoipa::ToSchema;

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
        use dray_core::options::{Durability, Links, Overwrite};
        use dray_core::rate::Class;
        same::<super::Class, _>(&[Class::Realtime, Class::Deadline, Class::Background]);
        same::<super::Durability, _>(&[Durability::None, Durability::File, Durability::Object]);
        same::<super::Overwrite, _>(&[Overwrite::Never, Overwrite::IfDifferent, Overwrite::Always]);
        same::<super::Links, _>(&[Links::Keep, Links::Follow, Links::Refuse]);
    }
}

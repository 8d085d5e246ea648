//! Enumerations of a request. Those of dray-core and dray-sched are declared again for the schema
//! alone, because these crates do not depend on OpenAPI.

use dray_core::options::Order;
use dray_sched::policy;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Order in which objects are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderWord {
    /// By storage target, avoiding busy targets.
    #[default]
    Layout,
    /// One file after another.
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

/// Treatment of a request whose deadline or rate the endpoint cannot promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionWord {
    /// The endpoint refuses the request.
    Required,
    /// The endpoint accepts the request without a promise.
    BestEffort,
}

/// Scheduling class of a transfer.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Class {
    /// Gets the rate it needs immediately.
    Realtime,
    /// Gets the rate that its deadline needs.
    Deadline,
    /// Gets the remaining rate.
    Background,
}

/// Condition under which bytes count as durable.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Durability {
    /// Written: the bytes survive the death of the process, not of the host.
    None,
    /// On stable storage before the final name appears.
    File,
    /// Each object on stable storage before it is acknowledged.
    Object,
}

/// Action for a file that already exists at the destination.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub enum Overwrite {
    /// Keep the existing file.
    Never,
    /// Replace the existing file unless size, modification time and any known checksum match.
    IfDifferent,
    /// Replace the existing file.
    Always,
}

/// Treatment of durable ranges of an earlier run.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ResumeMode {
    /// Read them back and compare them before the file is resumed.
    Verify,
    /// Trust the log without reading them back.
    Trust,
}

/// Treatment of symbolic links.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Links {
    /// Recreate the link.
    Keep,
    /// Copy the target of the link.
    Follow,
    /// Fail the entry.
    Refuse,
}

/// The names of dray-sched's table of policies.
pub struct PolicyName;

impl PartialSchema for PolicyName {
    fn schema() -> RefOr<Schema> {
        let names = policy::Name::ALL.map(policy::Name::as_str);
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Policy that chooses the transfers to run."))
            .enum_values(Some(names))
            .into()
    }
}

impl ToSchema for PolicyName {}

/// Unit that takes turns in `round_robin`.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum RoundRobinBy {
    /// Each owner takes turns.
    Owners,
    /// Each pair of endpoints takes turns.
    Pairs,
}

/// Direction of the data, seen from the endpoint that issues the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The holder of the ticket reads from this endpoint.
    Read,
    /// The holder of the ticket writes to this endpoint.
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
    fn the_schema_has_the_values_of_the_declared_types() {
        use dray_core::options::{Durability, Links, Overwrite, ResumeMode};
        use dray_core::rate::Class;
        use dray_sched::policy::{self, RoundRobinBy};
        same::<super::Class, _>(&[Class::Realtime, Class::Deadline, Class::Background]);
        same::<super::Durability, _>(&[Durability::None, Durability::File, Durability::Object]);
        same::<super::Overwrite, _>(&[Overwrite::Never, Overwrite::IfDifferent, Overwrite::Always]);
        same::<super::ResumeMode, _>(&[ResumeMode::Verify, ResumeMode::Trust]);
        same::<super::PolicyName, _>(&policy::Name::ALL);
        same::<super::RoundRobinBy, _>(&[RoundRobinBy::Owners, RoundRobinBy::Pairs]);
        same::<super::Links, _>(&[Links::Keep, Links::Follow, Links::Refuse]);
    }
}

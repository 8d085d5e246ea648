//! Enumerations of a request. Some repeat enumerations of dray-core and dray-sched. The originals
//! have no schema, because these crates do not depend on the OpenAPI library.

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
    /// Sends objects in the order of storage targets, avoiding busy targets.
    #[default]
    Layout,
    /// Sends the objects of one file after another.
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
    /// The transfer immediately gets the rate that it needs.
    Realtime,
    /// The transfer gets the rate that its deadline needs.
    Deadline,
    /// The transfer gets the rate that other classes leave.
    Background,
}

/// Condition under which bytes count as durable.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Durability {
    /// Bytes are durable when written: they survive the death of the process, not of the host.
    None,
    /// The bytes of a file are on stable storage before its final name appears.
    File,
    /// The bytes of each object are on stable storage before the object is acknowledged.
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
    /// Read the ranges back and compare them before the file is resumed.
    Verify,
    /// Trust the log without reading the ranges back.
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

/// The schema of a policy name: one of the names in dray-sched's table of policies.
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

/// Kind of group that takes turns in `round_robin`.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum RoundRobinBy {
    /// The owners take turns.
    Owners,
    /// The pairs of endpoints take turns.
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
    fn schema_enumerations_match_the_declared_types() {
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

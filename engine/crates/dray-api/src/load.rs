//! The load of the endpoint: its running sessions and its promises.

use crate::timestamp::Timestamp;
use crate::transfer::{MissAnswer, ReasonWord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Direction of a session's bytes, as the endpoint sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionDirection {
    /// The endpoint reads the bytes.
    Out,
    /// The endpoint writes the bytes.
    In,
    /// The endpoint reads and writes the bytes.
    Within,
}

/// A session that runs at the endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionAnswer {
    /// Id of the transfer.
    pub transfer: String,
    /// Owner of the transfer.
    pub owner: String,
    /// Name or address of the other end. `null` if the endpoint reads and writes the bytes.
    pub peer: Option<String>,
    /// Direction of the bytes.
    pub direction: SessionDirection,
    /// True if the endpoint drives the session. False if another end drives it with a ticket.
    pub is_own: bool,
    /// Names of the endpoint's roots that the bytes pass.
    pub roots: Vec<String>,
    /// Rate that the session may use, in bytes per second. `null` means no limit.
    pub granted: Option<u64>,
    /// True if the endpoint or the other end holds the session, so that it moves no data.
    pub held: bool,
    /// Bytes that the session has moved.
    pub moved: u64,
    /// Bytes that the session has listed and that earlier sessions have not made durable.
    pub listed: u64,
    /// Number of files that are at the destination.
    #[serde(default)]
    pub files_done: u64,
    /// Number of files that the session has listed.
    #[serde(default)]
    pub files_listed: u64,
}

/// A promise that the endpoint has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromiseAnswer {
    /// Id of the transfer.
    pub transfer: String,
    /// Owner of the transfer.
    pub owner: String,
    /// Promised bytes. `null` for a promise of a rate alone.
    pub bytes: Option<u64>,
    /// Promised deadline.
    pub deadline: Option<Timestamp>,
    /// Promised minimum rate, in bytes per second.
    pub rate_min: Option<u64>,
    /// Latest time at which the remaining bytes must start to move to meet the deadline, at the
    /// present capacities. It is in the past if the transfer has to run already.
    pub latest_start: Timestamp,
    /// Resources that the bytes pass: `link`, `root:NAME`, `tier:NAME`, `peer:NAME` or
    /// `owner:NAME`.
    pub resources: Vec<String>,
    /// Rate that is planned now, in bytes per second.
    pub planned: Option<u64>,
    /// Reason for the planned rate.
    pub reason: Option<ReasonWord>,
    /// The expected miss of the deadline. `null` if the endpoint expects to keep the promise.
    pub miss: Option<MissAnswer>,
}

/// Numbers of sessions and promises that an answer does not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HiddenLoad {
    /// Number of sessions.
    pub sessions: u64,
    /// Number of promises.
    pub promises: u64,
}

/// The running sessions and the promises of the endpoint, as far as the caller may see them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndpointLoad {
    /// The running sessions, in the order of their start. At most 1000.
    pub sessions: Vec<SessionAnswer>,
    /// The promises, the earliest deadline first. At most 1000.
    pub promises: Vec<PromiseAnswer>,
    /// Sessions and promises of other owners, and those above the maximum.
    pub hidden: HiddenLoad,
}

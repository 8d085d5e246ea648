//! The data of a transfer that a session needs, and that the renewal of its tickets needs.

use super::live::Counters;
use super::row::Row;
use dray_api::{Request, Route, Timestamp};
use dray_core::{Result, TransferId};

/// Session number of a purge. It is higher than the number of any session that moves data.
const PURGE_SESSION: u32 = u32::MAX - 1;

/// The data of a transfer that one of its sessions needs.
#[derive(Debug, Clone)]
pub struct SessionInput {
    /// The transfer's id.
    pub id: TransferId,
    /// Version of the row.
    pub version: u64,
    /// Owner of the transfer.
    pub owner: String,
    /// Name of the principal that submitted the transfer.
    pub principal: String,
    /// Number of the attempt. The name of the attempt's list of files contains this number.
    pub attempt: u32,
    /// Number of the session. Session numbers grow over all attempts.
    pub session: u32,
    /// Index of the source that the session reads.
    pub source: u32,
    /// The request, with later changes and with tickets.
    pub request: Request,
    /// The parsed sources and destination of the request.
    pub route: Route,
    /// Counters of earlier sessions of this attempt.
    pub counters: Counters,
    /// Time at which this attempt was submitted.
    pub submitted_at: Timestamp,
}

impl SessionInput {
    /// Returns the input of the next session of a transfer.
    pub(super) fn next(row: Row) -> Result<Self> {
        let session = row.attempt.saturating_mul(1_000).saturating_add(row.tries);
        Self::new(row, session)
    }

    /// Returns the input of the session that removes a transfer's partial data.
    pub(super) fn purging(row: Row) -> Result<Self> {
        Ok(Self {
            source: 0,
            ..Self::new(row, PURGE_SESSION)?
        })
    }

    fn new(row: Row, session: u32) -> Result<Self> {
        Ok(Self {
            id: TransferId::new(row.id.as_str())?,
            version: row.version,
            attempt: row.attempt,
            session,
            source: row.source,
            request: row.whole_request(),
            route: row.route()?.clone(),
            counters: row.counters,
            submitted_at: row.submitted_at,
            owner: row.owner,
            principal: row.principal,
        })
    }
}

/// A transfer that has tickets.
#[derive(Debug, Clone)]
pub struct TicketHolder {
    /// Sequence number. Numbers grow in the order of submission.
    pub seq: i64,
    /// The transfer's id.
    pub id: TransferId,
    /// The request with its tickets.
    pub request: Request,
    /// The parsed sources and destination of the request.
    pub route: Route,
}

impl TicketHolder {
    pub(super) fn new(row: Row) -> Result<Self> {
        Ok(Self {
            seq: row.seq,
            id: TransferId::new(row.id.as_str())?,
            request: row.whole_request(),
            route: row.route()?.clone(),
        })
    }
}

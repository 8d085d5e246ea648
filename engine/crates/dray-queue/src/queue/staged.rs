//! The rows of the table of staged copies. Each row is written in the same transaction as its
//! transfer.

use super::next_seq;
use super::row::Row;
use super::sqlite::{json, sql};
use dray_api::{StagedDirection, StagingRequest, Timestamp};
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};
use std::time::Duration;

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct StagedRow {
    /// Id of the staged copy, which is also the id of its transfer.
    pub id: String,
    /// Owner of the copy.
    pub owner: String,
    /// Direction of the copy.
    pub direction: StagedDirection,
    /// The request, with default values filled in.
    pub request: StagingRequest,
    /// API path of the fast copy.
    pub fast_path: String,
    /// API path of the slow copy.
    pub slow_path: String,
    /// End of the pin. The fast copy must not be evicted before this time.
    pub pinned_until: Option<Timestamp>,
    /// Time at which the copy was complete; `None` before that.
    pub staged_at: Option<Timestamp>,
    /// Time after which the janitor may evict the copy.
    pub expires_at: Option<Timestamp>,
    /// Time of the eviction; `None` while the copy exists.
    pub evicted_at: Option<Timestamp>,
    /// Size of the copy in bytes.
    pub bytes: u64,
    /// True if the copy already existed at the time of the request. Such a copy has no transfer.
    pub is_hit: bool,
}

impl StagedRow {
    /// Returns the row of a copy that is not complete yet. `from` and `to` are the API paths of its
    /// source and its destination.
    #[must_use]
    pub fn new(
        id: String,
        owner: String,
        direction: StagedDirection,
        request: StagingRequest,
        (from, to): (String, String),
    ) -> Self {
        let (fast_path, slow_path) = match direction {
            StagedDirection::In => (to, from),
            StagedDirection::Out => (from, to),
        };
        Self {
            id,
            owner,
            direction,
            request,
            fast_path,
            slow_path,
            pinned_until: None,
            staged_at: None,
            expires_at: None,
            evicted_at: None,
            bytes: 0,
            is_hit: false,
        }
    }
}

/// Reads a row, and its sequence number.
pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<(StagedRow, i64)> {
    let from_sql = |error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    };
    let moment = |column: &str| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_ms))
    };
    let request: String = row.get("request")?;
    let direction: String = row.get("direction")?;
    let staged = StagedRow {
        id: row.get("id")?,
        owner: row.get("owner")?,
        direction: match direction.as_str() {
            "in" => StagedDirection::In,
            _ => StagedDirection::Out,
        },
        request: serde_json::from_str(&request).map_err(from_sql)?,
        fast_path: row.get("fast_path")?,
        slow_path: row.get("slow_path")?,
        pinned_until: moment("pinned_until")?,
        staged_at: moment("staged_at")?,
        expires_at: moment("expires_at")?,
        bytes: row.get("bytes")?,
        is_hit: row.get("hit")?,
        evicted_at: moment("evicted_at")?,
    };
    Ok((staged, row.get("seq")?))
}

pub(super) fn find(connection: &Connection, id: &str) -> Result<Option<StagedRow>> {
    let found = connection
        .prepare_cached("SELECT * FROM staging WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([id], read).optional())
        .map_err(sql("look up the staging entry"))?;
    Ok(found.map(|(row, _)| row))
}

/// Checks that a new transfer may use an id. If a row with this id describes a copy that still
/// exists, only a transfer that makes the same copy may use the id. `staged` is the copy that the
/// new transfer makes, if any.
pub(super) fn check_reuse(
    connection: &Connection,
    id: &str,
    owner: &str,
    staged: Option<&StagedRow>,
) -> Result<()> {
    let Some(row) = find(connection, id)? else {
        return Ok(());
    };
    let taken = |cause: &str, remedy: &str| {
        Err(
            Error::new(ErrorKind::AlreadyExists, End::Here, "submit the transfer")
                .cause(cause)
                .remedy(remedy),
        )
    };
    if row.owner != owner {
        return taken("the requested id is in use", "choose another id");
    }
    let is_same = staged.is_some_and(|staged| staged.fast_path == row.fast_path);
    if is_same || row.staged_at.is_none() || row.evicted_at.is_some() {
        if staged.is_none() {
            remove(connection, id)?;
        }
        return Ok(());
    }
    taken(
        &format!(
            "the staging entry of {} already has the requested id",
            row.fast_path
        ),
        "choose another id, or evict the existing entry first",
    )
}

/// Stores a row and replaces an earlier row with the same id. If the earlier row's pin ends later,
/// that end is kept.
pub(super) fn put(connection: &Connection, staged: &StagedRow, now: Timestamp) -> Result<()> {
    let before = find(connection, &staged.id)?;
    let pin = before.and_then(|row| row.pinned_until);
    let pin = pin.filter(|until| *until > now).max(staged.pinned_until);
    let direction = match staged.direction {
        StagedDirection::In => "in",
        StagedDirection::Out => "out",
    };
    let values = rusqlite::params![
        staged.id,
        next_seq(connection)?,
        staged.owner,
        direction,
        json(&staged.request)?,
        staged.request.application,
        staged.fast_path,
        staged.slow_path,
        pin.map(Timestamp::as_ms),
    ];
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO staging (id, seq, owner, direction, request,
             application, fast_path, slow_path, pinned_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )
        .and_then(|mut statement| statement.execute(values))
        .map_err(sql("store the staging entry"))?;
    Ok(())
}

/// Stores the row of a copy that existed when it was requested. The copy has no transfer.
///
/// # Errors
/// `AlreadyExists` if the id is in use.
pub(super) fn put_hit(connection: &Connection, staged: &StagedRow, now: Timestamp) -> Result<()> {
    check_reuse(connection, &staged.id, &staged.owner, Some(staged))?;
    if Row::find(connection, &staged.id)?.is_some() {
        let operation = "stage the version";
        return Err(Error::new(ErrorKind::AlreadyExists, End::Here, operation)
            .cause("a transfer already has the requested id")
            .remedy("choose another id"));
    }
    put(connection, staged, now)?;
    let later = |seconds: u64| now.after(Duration::from_secs(seconds)).as_ms();
    let values = rusqlite::params![
        staged.id,
        now.as_ms(),
        staged.request.pin_seconds.map(later),
        staged.request.lifetime_seconds.map(later),
        i64::try_from(staged.bytes).unwrap_or(i64::MAX),
    ];
    connection
        .prepare_cached(
            "UPDATE staging SET hit = 1, staged_at = ?2, expires_at = ?4, bytes = ?5,
             pinned_until = NULLIF(MAX(COALESCE(pinned_until, 0), COALESCE(?3, 0)), 0)
             WHERE id = ?1",
        )
        .and_then(|mut statement| statement.execute(values))
        .map_err(sql("update the record of the staged copy"))?;
    Ok(())
}

/// Records that the transfer of a staged copy is done. The transfer may be deleted later, so the
/// row stores what is needed of it. Does nothing for a transfer without a staged copy.
pub(super) fn arrived(connection: &Connection, transfer: &Row, now: Timestamp) -> Result<()> {
    let Some(row) = find(connection, &transfer.id)? else {
        return Ok(());
    };
    let later = |seconds: u64| now.after(Duration::from_secs(seconds));
    // Keep an earlier pin that lasts longer.
    let pinned_until = row.pinned_until.max(row.request.pin_seconds.map(later));
    let expires_at = row.request.lifetime_seconds.map(later);
    let bytes = i64::try_from(transfer.counters.bytes.durable).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "UPDATE staging SET staged_at = ?2, pinned_until = ?3, expires_at = ?4, bytes = ?5
             WHERE id = ?1",
        )
        .and_then(|mut statement| {
            statement.execute((
                &transfer.id,
                now.as_ms(),
                pinned_until.map(Timestamp::as_ms),
                expires_at.map(Timestamp::as_ms),
                bytes,
            ))
        })
        .map_err(sql("update the staging entry"))?;
    Ok(())
}

/// Resets the row for a new attempt, which makes the copy again.
pub(super) fn begins_anew(connection: &Connection, id: &str) -> Result<()> {
    connection
        .prepare_cached(
            "UPDATE staging SET staged_at = NULL, expires_at = NULL, evicted_at = NULL
             WHERE id = ?1",
        )
        .and_then(|mut statement| statement.execute([id]))
        .map_err(sql("stage the file or folder again"))?;
    Ok(())
}

/// Deletes the row together with its transfer, if the copy does not exist.
pub(super) fn forget_with(connection: &Connection, id: &str) -> Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM staging WHERE id = ?1
             AND (staged_at IS NULL OR evicted_at IS NOT NULL)",
        )
        .and_then(|mut statement| statement.execute([id]))
        .map_err(sql("delete the staging entry"))?;
    Ok(())
}

fn remove(connection: &Connection, id: &str) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM staging WHERE id = ?1")
        .and_then(|mut statement| statement.execute([id]))
        .map_err(sql("delete the staging entry"))?;
    Ok(())
}

//! What was staged: which transfer brings it, how long it stays.

use super::row::{Row, SELECT};
use super::schema::sql;
use super::{Queue, next_seq, not_found, read_cursor};
use crate::access::Principal;
use crate::api::types::{
    Staged, StagedDirection, StagedList, StagedState, StagingQuery, StagingRequest, State,
};
use crate::moment::Moment;
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};
use std::time::Duration;

/// Staged entries that a list looks at to fill one page that asks for a state.
const LOOKED_AT_MAX: u32 = 10_000;

/// One entry of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct StagedRow {
    /// Its id, and that of its transfer.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// Which way.
    pub direction: StagedDirection,
    /// What was asked for, filled in.
    pub request: StagingRequest,
    /// API path of the fast copy.
    pub fast_path: String,
    /// API path of the slow copy.
    pub slow_path: String,
    /// The fast copy stays until then.
    pub pinned_until: Option<Moment>,
    /// When it was evicted.
    pub evicted_at: Option<Moment>,
}

/// The table of what was staged.
#[derive(Debug, Clone, Copy)]
pub struct Staging<'q>(&'q Queue);

impl Queue {
    /// The table of what was staged.
    #[must_use]
    pub const fn staging(&self) -> Staging<'_> {
        Staging(self)
    }
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<(StagedRow, i64)> {
    let from_sql = |error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    };
    let moment = |column: &str| -> rusqlite::Result<Option<Moment>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Moment::from_ms))
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
        evicted_at: moment("evicted_at")?,
    };
    Ok((staged, row.get("seq")?))
}

impl Staging<'_> {
    /// Keeps one, in the place of an earlier one of the same id and owner.
    ///
    /// # Errors
    /// `AlreadyExists` when the id is another owner's.
    pub fn put(&self, staged: &StagedRow) -> Result<()> {
        let staged = staged.clone();
        self.0.write(move |connection, _| {
            let failed = sql("keep what is staged");
            let owner: Option<String> = connection
                .query_row(
                    "SELECT owner FROM staging WHERE id = ?1",
                    [&staged.id],
                    |row| row.get(0),
                )
                .optional()
                .map_err(&failed)?;
            if owner.is_some_and(|owner| owner != staged.owner) {
                return Err(Error::new(ErrorKind::AlreadyExists, End::Here, "stage")
                    .cause("the id is taken")
                    .remedy("choose another id"));
            }
            let direction = match staged.direction {
                StagedDirection::In => "in",
                StagedDirection::Out => "out",
            };
            let values = rusqlite::params![
                staged.id,
                next_seq(connection)?,
                staged.owner,
                direction,
                super::row::json(&staged.request)?,
                staged.request.application,
                staged.fast_path,
                staged.slow_path,
                staged.pinned_until.map(Moment::as_ms),
                staged.evicted_at.map(Moment::as_ms),
            ];
            connection
                .execute(
                    "INSERT OR REPLACE INTO staging (id, seq, owner, direction, request,
                     application, fast_path, slow_path, pinned_until, evicted_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                    values,
                )
                .map_err(failed)?;
            Ok(())
        })
    }

    /// One, with where its transfer stands.
    ///
    /// # Errors
    /// `NotFound`, another owner's as well.
    pub fn show(&self, caller: &Principal, id: &str) -> Result<(StagedRow, Staged)> {
        self.0.read(|connection| {
            let found = connection
                .prepare_cached("SELECT * FROM staging WHERE id = ?1")
                .and_then(|mut statement| statement.query_row([id], read).optional())
                .map_err(sql("look up what is staged"))?;
            let (row, _) = found
                .filter(|(row, _)| caller.sees(&row.owner))
                .ok_or_else(|| not_found(id))?;
            let staged = view(connection, self.0, &row)?;
            Ok((row, staged))
        })
    }

    /// A page of what `caller` may see, newest first.
    ///
    /// # Errors
    /// `InvalidRequest` for a cursor that is none.
    pub fn list(&self, caller: &Principal, query: &StagingQuery) -> Result<StagedList> {
        let before = read_cursor(query.cursor.as_deref())?;
        let owner = (!caller.is_administrator).then_some(caller.owner.as_str());
        let failed = sql("list what is staged");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT * FROM staging WHERE seq < ?1 AND (?2 IS NULL OR owner = ?2)
                     AND (?3 IS NULL OR application = ?3) ORDER BY seq DESC LIMIT ?4",
                )
                .map_err(&failed)?;
            let values = (before, owner, query.application.as_deref(), LOOKED_AT_MAX);
            let rows = statement.query_map(values, read).map_err(&failed)?;
            let mut list = StagedList {
                staging: Vec::new(),
                next: None,
            };
            let mut last = None;
            let mut looked_at = 0;
            for row in rows {
                let (row, seq) = row.map_err(&failed)?;
                if list.staging.len() == query.limit as usize {
                    list.next = last;
                    return Ok(list);
                }
                last = Some(seq.to_string());
                looked_at += 1;
                let staged = view(connection, self.0, &row)?;
                if query.state.is_none_or(|state| state == staged.state) {
                    list.staging.push(staged);
                }
            }
            if looked_at == LOOKED_AT_MAX {
                list.next = last;
            }
            Ok(list)
        })
    }

    /// Pins the fast copy until then, or no longer.
    ///
    /// # Errors
    /// Of the database.
    pub fn pin(&self, id: &str, until: Option<Moment>) -> Result<()> {
        self.set(id, "pinned_until", until)
    }

    /// The fast copy is gone.
    ///
    /// # Errors
    /// Of the database.
    pub fn evicted(&self, id: &str, at: Moment) -> Result<()> {
        self.set(id, "evicted_at", Some(at))
    }

    fn set(&self, id: &str, column: &'static str, value: Option<Moment>) -> Result<()> {
        let id = id.to_owned();
        self.0.write(move |connection, _| {
            let statement = format!("UPDATE staging SET {column} = ?2 WHERE id = ?1");
            connection
                .execute(&statement, (id, value.map(Moment::as_ms)))
                .map_err(sql("change what is staged"))?;
            Ok(())
        })
    }
}

fn view(connection: &Connection, queue: &Queue, row: &StagedRow) -> Result<Staged> {
    let transfer = connection
        .prepare_cached(&format!("{SELECT} WHERE t.id = ?1"))
        .and_then(|mut statement| statement.query_row([&row.id], Row::read).optional())
        .map_err(sql("look the transfer up"))?;
    let ended_at = transfer.as_ref().and_then(|transfer| transfer.ended_at);
    let transfer = transfer.map(|transfer| queue.view(transfer));
    let state = match transfer.as_ref().map(|transfer| transfer.state) {
        _ if row.evicted_at.is_some() => StagedState::Evicted,
        // Transfers are forgotten only once they have ended; a failed one would say so.
        None | Some(State::Done) => StagedState::Staged,
        Some(State::Queued | State::Paused) => StagedState::Queued,
        Some(State::Active | State::Waiting) => StagedState::Moving,
        Some(State::Incomplete | State::Failed | State::Cancelled) => StagedState::Failed,
    };
    let later = |seconds: u64| Some(ended_at?.after(Duration::from_secs(seconds)));
    let is_there = state == StagedState::Staged;
    let pin = row.request.pin_seconds.filter(|_| is_there);
    Ok(Staged {
        request: row.request.clone(),
        direction: row.direction,
        transfer: row.id.clone(),
        state,
        pinned_until: row.pinned_until.or_else(|| pin.and_then(later)),
        expires_at: row
            .request
            .lifetime_seconds
            .filter(|_| is_there)
            .and_then(later),
        bytes: transfer
            .as_ref()
            .map_or(0, |transfer| transfer.bytes.durable),
        error: transfer.and_then(|transfer| transfer.error),
    })
}

//! Resolves the routes of rows that older versions wrote, and checks the stored routes.
//!
//! Invariant of this module: once the queue is open, every transfer that has not ended has a route,
//! and so has every cancelled transfer that waits for its purge.

use super::damage::{damaged, opening};
use super::live;
use super::row::{Row, to_sql};
use super::sqlite::{json, sql};
use super::states::Standing;
use crate::clock;
use dray_api::{Request, Route, State};
use dray_core::{Error, Result};
use rusqlite::Connection;
use std::path::Path;

/// Number of rows that are read in one step.
const PAGE: u32 = 500;

/// A row of an older version, which has no route.
struct Unresolved {
    seq: i64,
    id: String,
    request: String,
    /// True if the transfer has not ended, or waits for its purge.
    is_needed: bool,
}

/// Resolves missing routes with the endpoint's present names, and checks that the routes that
/// sessions need can be read. A transfer whose URLs are not valid fails.
///
/// # Errors
/// Errors of the database. An error if a stored request or route cannot be read.
pub(super) fn resolve(
    connection: &mut Connection,
    path: &Path,
    is_own: impl Fn(&str) -> bool,
) -> Result<()> {
    let failed = sql("resolve the URLs of transfers");
    let transaction = connection.transaction().map_err(&failed)?;
    let mut after = i64::MIN;
    loop {
        let page = unresolved(&transaction, after).map_err(&failed)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for row in &page {
            resolve_one(&transaction, path, row, &is_own)?;
        }
    }
    transaction.commit().map_err(&failed)?;
    check(connection, path)
}

fn unresolved(connection: &Connection, after: i64) -> rusqlite::Result<Vec<Unresolved>> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, id, request, ended_at IS NULL OR (state = 'cancelled' AND wish IS NOT NULL)
         FROM transfers INDEXED BY transfers_unresolved
         WHERE route IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2",
    )?;
    let page = statement.query_map((after, PAGE), |row| {
        Ok(Unresolved {
            seq: row.get(0)?,
            id: row.get(1)?,
            request: row.get(2)?,
            is_needed: row.get(3)?,
        })
    })?;
    page.collect()
}

fn resolve_one(
    connection: &Connection,
    path: &Path,
    row: &Unresolved,
    is_own: impl Fn(&str) -> bool,
) -> Result<()> {
    let id = &row.id;
    let request: Request = match serde_json::from_str(&row.request) {
        Ok(request) => request,
        Err(_) if !row.is_needed => return Ok(()),
        Err(error) => {
            let what = format!("the request of transfer {id} cannot be read: {error}");
            return Err(damaged(path, what));
        }
    };
    match Route::parse(&request, is_own) {
        Ok(route) => {
            connection
                .prepare_cached("UPDATE transfers SET route = ?2 WHERE seq = ?1")
                .and_then(|mut statement| {
                    let route = json(&route).map_err(to_sql)?;
                    statement.execute((row.seq, route))
                })
                .map_err(sql("store the resolved URLs of the transfer"))?;
            Ok(())
        }
        Err(_) if !row.is_needed => Ok(()),
        Err(error) => end(connection, id, &error),
    }
}

/// Ends a transfer whose URLs cannot be read. If the transfer waits for a purge, ends the purge.
fn end(connection: &Connection, id: &str, error: &Error) -> Result<()> {
    tracing::error!(transfer = %id, "cannot resolve the URLs of a transfer: {error}");
    let Some(mut row) = Row::find(connection, id)? else {
        return Ok(());
    };
    row.version += 1;
    if row.standing.state.is_terminal() {
        row.standing.wish = None;
        row.note(format!("the partial data of the transfer remains: {error}"));
    } else {
        row.standing = Standing::of(State::Failed);
        row.error = Some(live::parts(error));
        row.ended_at = Some(clock::now());
        row.next_try_at = None;
    }
    row.write(connection)?;
    connection
        .execute("DELETE FROM promises WHERE transfer = ?1", [id])
        .map_err(sql("remove the promise"))?;
    Ok(())
}

/// Checks that the routes that sessions need can be read.
fn check(connection: &Connection, path: &Path) -> Result<()> {
    let failed = opening(path);
    let mut statement = connection
        .prepare(
            "SELECT id, route FROM transfers WHERE ended_at IS NULL UNION ALL
             SELECT id, route FROM transfers WHERE state = 'cancelled' AND wish IS NOT NULL",
        )
        .map_err(&failed)?;
    let mut rows = statement.query(()).map_err(&failed)?;
    while let Some(row) = rows.next().map_err(&failed)? {
        let id: String = row.get(0).map_err(&failed)?;
        let route: Option<String> = row.get(1).map_err(&failed)?;
        if let Err(error) = serde_json::from_str::<Route>(&route.unwrap_or_default()) {
            let what = format!("the resolved URLs of transfer {id} cannot be read: {error}");
            return Err(damaged(path, what));
        }
    }
    Ok(())
}

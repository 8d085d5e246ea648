//! The table of promises. Each promise is written in the same transaction as its transfer.
//!
//! Invariant of this module: each promise is one row. After every write that was rolled back, the
//! promises in memory are built from the rows again.

use super::refused::Refused;
use super::row::Row;
use super::sqlite::sql;
use super::{Queue, QueuedTransfer};
use crate::clock;
use crate::promises::{Ask, Asked, Given, NO_ROOM, Promise, Promises, asks_promise};
use dray_api::Timestamp;
use dray_api::{Event, EventKind, MissAnswer, State};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashSet;

/// Maximum number of transfers for which one tick asks again for promises, after a capacity has
/// become known. The next tick continues with the remaining transfers.
const AGAIN_MAX: usize = 100;

/// Maximum number of notices in one write, because other calls wait for the write.
const NOTED_MAX: usize = 500;

/// Returns the broker's key of a row.
pub(super) fn key(row: &Row) -> u64 {
    u64::try_from(row.seq).unwrap_or(0)
}

/// Returns the broker's input for a row.
fn ask(row: &Row) -> Result<Ask<'_>> {
    let counted = row.counters.files.listing_done;
    Ok(Ask {
        key: key(row),
        id: &row.id,
        owner: &row.owner,
        request: &row.request,
        route: row.route()?,
        source: row.source,
        bytes: match counted {
            true => Some(row.counters.bytes.listed),
            false => row.request.bytes_stated(),
        },
        done: row.counters.bytes.durable,
    })
}

/// The reasons why a transfer has no promise, as texts for its owner. The function that gets these
/// texts stores them in the transfer's row, or with the counters of a running transfer.
pub(super) type Notices = Vec<String>;

/// Asks for the promise of a new transfer or a new attempt, and writes the promise.
pub(super) fn take(
    connection: &Connection,
    promises: &Promises,
    row: &Row,
    now: Timestamp,
) -> std::result::Result<Notices, Refused> {
    let taken = take_set(connection, promises, &[row], now);
    let mut notices = taken.map_err(|refused| refused.into_refused())?;
    Ok(notices.pop().unwrap_or_default())
}

/// Asks for the promises of many transfers, as [`take`] does for one: either all transfers get
/// their promises, or none. Returns the notices of each transfer.
pub(super) fn take_set(
    connection: &Connection,
    promises: &Promises,
    rows: &[&Row],
    now: Timestamp,
) -> std::result::Result<Vec<Notices>, Box<NotPromised>> {
    let asks: Vec<Ask<'_>> = rows.iter().map(|row| ask(row)).collect::<Result<_>>()?;
    let given = promises.take(&asks, now)?;
    let noted = rows.iter().zip(given);
    let noted = noted.map(|(row, given)| write_given(connection, row, given, now));
    let noted = noted.collect::<Result<Vec<Notices>>>()?;
    if let Some(rate) = promises.measured() {
        put_capacity(connection, rate, now)?;
    }
    Ok(noted)
}

/// Writes the promise of one transfer. If the transfer asked for a promise and got none, returns
/// the reasons.
fn write_given(
    connection: &Connection,
    row: &Row,
    given: Given,
    now: Timestamp,
) -> Result<Notices> {
    match &given.promise {
        Some(promise) => put(connection, promise, now)?,
        None if asks_promise(&row.request) => return Ok(given.answer.reasons),
        None => {}
    }
    Ok(Notices::new())
}

/// Why a set of transfers got no promises: the broker refused them, or the database could not be
/// written.
pub(super) enum NotPromised {
    Refused(Vec<Asked>),
    Broken(dray_core::Error),
}

impl NotPromised {
    /// Returns the refusal for one request of the set, without alternatives. [`Queue::explain`]
    /// adds the alternatives after the write.
    pub(super) fn into_refused(self) -> Refused {
        match self {
            Self::Refused(asked) => {
                let operation = "promise the rate or the deadline of the transfer";
                let error = Error::new(ErrorKind::NotAdmitted, End::Here, operation);
                Refused::untold(error, asked)
            }
            Self::Broken(error) => error.into(),
        }
    }
}

impl From<Vec<Asked>> for Box<NotPromised> {
    fn from(asked: Vec<Asked>) -> Self {
        Self::new(NotPromised::Refused(asked))
    }
}

impl From<dray_core::Error> for Box<NotPromised> {
    fn from(error: dray_core::Error) -> Self {
        Self::new(NotPromised::Broken(error))
    }
}

/// Asks for the promise of a changed request. If the new promise is refused, the old promise stays.
pub(super) fn change(
    connection: &Connection,
    promises: &Promises,
    row: &Row,
    now: Timestamp,
) -> std::result::Result<Notices, Refused> {
    let changed = promises.change(&ask(row)?, now);
    let given = changed.map_err(|asked| NotPromised::Refused(asked).into_refused())?;
    remove(connection, &row.id)?;
    Ok(write_given(connection, row, given, now)?)
}

/// Asks for the promise of a transfer that continues with or without the promise. Returns the
/// reasons if there is no promise.
pub(super) fn ask_again(
    connection: &Connection,
    promises: &Promises,
    row: &Row,
    now: Timestamp,
) -> Result<Notices> {
    if !asks_promise(&row.request) || promises.is_promised(&row.id) {
        return Ok(Notices::new());
    }
    match take(connection, promises, row, now) {
        Err(refused) if refused.untold.is_some() => Ok(vec![NO_ROOM.to_owned()]),
        asked => asked.map_err(|refused| refused.error),
    }
}

/// Updates the promise after a change of state. A transfer that ended or is paused loses its
/// promise. A resumed transfer asks for a promise again.
pub(super) fn follow(
    connection: &Connection,
    promises: &Promises,
    row: &mut Row,
    from: State,
    now: Timestamp,
) -> Result<()> {
    let to = row.standing.state;
    if to.is_terminal() || to == State::Paused {
        let in_time = match (to, row.request.deadline) {
            (State::Done, Some(deadline)) => Some(now <= deadline),
            (State::Done, None) => Some(true),
            (State::Incomplete | State::Failed, _) => Some(false),
            _ => None,
        };
        promises.end(key(row), in_time);
        remove(connection, &row.id)?;
    } else if from == State::Paused {
        row.note_all(ask_again(connection, promises, row, now)?);
    }
    Ok(())
}

fn put(connection: &Connection, promise: &Promise, now: Timestamp) -> Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO promises VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
        .and_then(|mut statement| {
            statement.execute((
                &promise.id,
                promise.key,
                promise.bytes,
                promise.deadline.map(Timestamp::as_ms),
                promise.rate_min,
                serde_json::to_string(&promise.resources).unwrap_or_default(),
                now.as_ms(),
            ))
        })
        .map_err(sql("store the promise"))?;
    Ok(())
}

fn remove(connection: &Connection, id: &str) -> Result<()> {
    connection
        .prepare_cached("DELETE FROM promises WHERE transfer = ?1")
        .and_then(|mut statement| statement.execute([id]))
        .map_err(sql("remove the promise"))?;
    Ok(())
}

fn put_capacity(connection: &Connection, rate: u64, now: Timestamp) -> Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO capacities VALUES ('link', ?1, ?2)")
        .and_then(|mut statement| statement.execute((rate, now.as_ms())))
        .map_err(sql("store the measured rates"))?;
    Ok(())
}

/// Loads the rows into `promises`.
pub(super) fn load(connection: &Connection, promises: &Promises) -> Result<()> {
    let failed = sql("read the promises");
    let mut statement = connection
        .prepare_cached(
            "SELECT transfer, key, bytes, deadline, rate_min, resources FROM promises ORDER BY key",
        )
        .map_err(&failed)?;
    let read = |row: &rusqlite::Row<'_>| {
        let resources: String = row.get(5)?;
        Ok(Promise {
            id: row.get(0)?,
            key: row.get(1)?,
            bytes: row.get(2)?,
            deadline: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_ms),
            rate_min: row.get(4)?,
            resources: serde_json::from_str(&resources).unwrap_or_default(),
        })
    };
    let kept = statement.query_map((), read).map_err(&failed)?;
    let kept: Vec<Promise> = kept.collect::<rusqlite::Result<_>>().map_err(&failed)?;
    let rows: Vec<(Promise, Row)> = kept
        .into_iter()
        .map(|promise| Ok(Row::find(connection, &promise.id)?.map(|row| (promise, row))))
        .filter_map(Result::transpose)
        .collect::<Result<_>>()?;
    let measured = connection
        .prepare_cached("SELECT rate FROM capacities WHERE resource = 'link'")
        .and_then(|mut statement| statement.query_row((), |row| row.get(0)).optional())
        .map_err(&failed)?;
    let held = rows
        .iter()
        .map(|(promise, row)| Ok((promise.clone(), ask(row)?)));
    let held = held.collect::<Result<Vec<_>>>()?;
    promises.restore(held, measured, clock::now());
    rows.iter().for_each(|(_, row)| interrupted(promises, row));
    Ok(())
}

/// Records the interruption of a transfer with its promise.
pub(super) fn interrupted(promises: &Promises, row: &Row) {
    if let Some(since) = row.counters.interrupted_since {
        promises.interrupted(key(row), since);
    }
}

impl Queue {
    /// Adds the alternatives to a refusal. Called outside the transaction, because the search for
    /// alternatives takes time, and other writes would wait for it. Returns the index of the
    /// request that cannot be promised.
    pub(super) fn explain(&self, refused: &mut Refused) -> usize {
        let Some(untold) = refused.untold.take() else {
            return 0;
        };
        let said = *self.promises.explain(&untold.asked, clock::now());
        refused.error = said.error;
        refused.admission = said.answers.into_iter().nth(said.at).map(Box::new);
        said.at
    }

    /// Wakes the dispatcher to look for transfers to start.
    pub fn wake(&self) {
        if let Some(commands) = self.commands.get() {
            commands.wake();
        }
    }

    /// Returns the promises.
    #[must_use]
    pub const fn promises(&self) -> &std::sync::Arc<Promises> {
        &self.promises
    }

    /// Asks for the promise of a running transfer again, with the size that is known after all its
    /// files are listed. If the transfer gets no promise, adds the reason to its notices.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn listed(&self, id: &TransferId, bytes: u64) -> Result<()> {
        let wanted = id.to_string();
        let noted = self.write(move |connection, effects| {
            let Some(mut row) = Row::find(connection, &wanted)? else {
                return Ok(Vec::new());
            };
            if row.standing.state != State::Active {
                return Ok(Vec::new());
            }
            row.counters.files.listing_done = true;
            row.counters.bytes.listed = bytes;
            ask_again(connection, &effects.promises, &row, clock::now())
        })?;
        for notice in noted {
            // The transfer is running. So keep the notices with the transfer's counters, and not in
            // its row.
            self.noticed(id, &notice);
        }
        Ok(())
    }

    /// Publishes that a promise is expected to be missed, or to be kept again. Adds the notice to
    /// the transfer if it is running. Otherwise returns false: the caller must then add the notice
    /// to the row ([`Queue::note_all`]).
    #[must_use]
    pub fn foretold(&self, id: &str, owner: &str, notice: &str, miss: Option<MissAnswer>) -> bool {
        let event = Event {
            transfer: Some(id.to_owned()),
            notice: Some(notice.to_owned()),
            miss,
            ..Event::new(EventKind::Notice, clock::now())
        };
        self.hub.publish(Some(owner.into()), event);
        self.live.noted(id, notice)
    }

    /// Adds each notice in `notes` to the transfer with the same id, and removes the written
    /// notices from `notes`. Writes page by page, so that other calls can write between two pages.
    ///
    /// # Errors
    /// Errors of the database. `notes` then contains the notices that are not written yet.
    pub fn note_all(&self, notes: &mut Vec<(String, String)>) -> Result<()> {
        while !notes.is_empty() {
            let page = notes[..notes.len().min(NOTED_MAX)].to_vec();
            let count = page.len();
            let begun = self.write(move |connection, _| {
                let mut begun = Vec::new();
                for (id, notice) in page {
                    if let Some(row) = Row::find(connection, &id)? {
                        begun.extend(note(connection, row, vec![notice])?);
                    }
                }
                Ok(begun)
            })?;
            notes.drain(..count);
            self.note_begun(begun);
        }
        Ok(())
    }

    /// Stores the notice of each running transfer in memory, beside the counters of the transfer.
    fn note_begun(&self, begun: Vec<(String, String)>) {
        for (id, notice) in begun {
            self.live.noted(&id, &notice);
        }
    }

    /// Returns the transfers among `ids` that wait to start: they are queued, and the time of their
    /// `not_before` has come.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn waiting_of<'i>(
        &self,
        ids: impl IntoIterator<Item = &'i str>,
    ) -> Result<HashSet<String>> {
        // Most transfers that the plan moves are running. Exclude them before rows are read.
        let ids: Vec<&str> = {
            let runs = self.live.lock();
            let ids = ids.into_iter();
            ids.filter(|id| !runs.contains_key(*id)).collect()
        };
        let ids = super::sqlite::json(&ids)?;
        let failed = sql("look up promised transfers");
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT id FROM transfers WHERE id IN (SELECT value FROM json_each(?1))
                     AND state = 'queued' AND held_until IS NULL",
                )
                .map_err(&failed)?;
            let found = statement
                .query_map([ids], |row| row.get(0))
                .map_err(&failed)?;
            found.collect::<rusqlite::Result<_>>().map_err(&failed)
        })
    }

    /// Returns a transfer that waits to start, or `None` if it no longer waits.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn waiting(&self, id: &str) -> Result<Option<QueuedTransfer>> {
        let tail = "WHERE id = ?1 AND state = 'queued' AND held_until IS NULL";
        self.read(|connection| {
            let mut found = Vec::with_capacity(1);
            super::candidates::read(connection, tail, [id], &mut found)?;
            Ok(found.pop())
        })
    }

    /// Asks the broker again for the promises that transfers have requested and not got, after a
    /// capacity has become known. One call handles one page of transfers.
    pub(super) fn promise_more(&self) -> Result<()> {
        let Some(after) = self.promises.take_news() else {
            return Ok(());
        };
        let asked = self.write(move |connection, effects| {
            let statement = format!(
                "{} WHERE t.seq > ?1 AND t.state IN ('queued', 'active', 'waiting')
                 AND (t.deadline IS NOT NULL OR json_extract(t.request, '$.rate_min') IS NOT NULL)
                 AND NOT EXISTS (SELECT 1 FROM promises p WHERE p.transfer = t.id)
                 ORDER BY t.seq LIMIT {AGAIN_MAX}",
                super::row::SELECT
            );
            let found = super::row::rows(connection, &statement, [after])?;
            let is_page = found.len() == AGAIN_MAX;
            let next = found.last().filter(|_| is_page).map(|row| row.seq);
            let mut begun = Vec::new();
            for row in found {
                let more = ask_again(connection, &effects.promises, &row, clock::now())?;
                begun.extend(note(connection, row, more)?);
            }
            Ok((next, begun))
        });
        let (next, begun) = asked.inspect_err(|_| self.promises.more_news(after))?;
        if let Some(next) = next {
            self.promises.more_news(next);
        }
        self.note_begun(begun);
        Ok(())
    }
}

/// Adds notices to a transfer's row. Returns the notices of a running transfer instead, because its
/// row is written at the end of the session.
fn note(connection: &Connection, mut row: Row, notices: Notices) -> Result<Vec<(String, String)>> {
    if row.standing.state == State::Active {
        let begun = notices.into_iter().map(|notice| (row.id.clone(), notice));
        return Ok(begun.collect());
    }
    if !notices.is_empty() {
        row.note_all(notices);
        row.write(connection)?;
    }
    Ok(Vec::new())
}

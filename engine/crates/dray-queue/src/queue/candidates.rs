//! Finds the candidates to run next: the first few transfers of every line.
//!
//! A line is an ordered group of waiting transfers. The policy chooses one of these divisions of
//! the transfers into lines:
//! - within one class and priority, one line per activity of an owner, by deadline;
//! - within one class and priority, one line per owner, by age;
//! - within one class, one line per pair of endpoints, by age.
//!
//! dray-sched decides which line is served next. This module reads the front of every line.
//!
//! Invariant of this module: the work grows with the number of lines, not with the number of
//! waiting transfers.

use super::Queue;
use super::sqlite::sql;
use dray_api::{Side, Timestamp};
use dray_core::rate::Class;
use dray_core::{Result, TransferId};
use dray_sched::policy::{Lines, PRIORITY_MAX};
use rusqlite::Connection;
use std::collections::HashSet;

/// All classes, the most urgent one first.
const CLASSES: [Class; 3] = [Class::Realtime, Class::Deadline, Class::Background];

/// Maximum number of transfers that one tick of the queue adds to their lines because their
/// `not_before` has passed. Other writes wait during this work.
const RELEASED_MAX: u32 = 1_000;

/// A transfer that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedTransfer {
    /// The transfer's id.
    pub id: TransferId,
    /// Version of the row; [`Queue::begin`] needs it.
    pub version: u64,
    /// Owner of the transfer.
    pub owner: String,
    /// The activity that the request names, or an empty string.
    pub activity: String,
    /// Name of the principal that submitted the transfer.
    pub principal: String,
    /// Class of the transfer.
    pub class: Class,
    /// Priority within the class.
    pub priority: u8,
    /// Deadline of the transfer.
    pub deadline: Option<Timestamp>,
    /// Earliest possible start of the transfer: its submission, or its `not_before` if that is
    /// later.
    pub waits_since: Timestamp,
    /// True if a session of this attempt has started before.
    pub has_run: bool,
    /// Sequence number. Numbers grow in the order of submission.
    pub seq: i64,
    /// Bytes that the sessions of this attempt have sent.
    pub sent: u64,
    /// Index of the source that the next session reads.
    pub source: u32,
    /// `HOST:PORT` of the endpoint that the next session reads from; `None` for this endpoint.
    pub source_peer: Option<String>,
    /// `HOST:PORT` of the endpoint that the next session writes to; `None` for this endpoint.
    pub sink_peer: Option<String>,
}

/// Arguments of [`Queue::runnable`]: the lines, and the number of transfers to read.
#[derive(Debug, Clone, Copy)]
pub struct CandidateQuery<'a> {
    /// The way in which transfers are divided into lines.
    pub lines: Lines,
    /// Maximum number of transfers to read from one line: the number that could start from this
    /// line now.
    pub per_line: u32,
    /// Number of transfers to read in addition: the oldest of all lines.
    pub oldest: u32,
    /// Maximum number of transfers in the result.
    pub transfers_max: usize,
    /// The line to start with in each class and priority. If this line does not exist, the call
    /// starts with the next line.
    pub from: &'a str,
}

impl Queue {
    /// Returns transfers that may run now, one waiting line after another. The lines of the most
    /// urgent class and priority come first. The oldest transfers of all lines
    /// ([`CandidateQuery::oldest`]) come last. If there are more transfers than `sight` permits,
    /// also returns the line to start with in the next call.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn runnable(
        &self,
        sight: CandidateQuery<'_>,
    ) -> Result<(Vec<QueuedTransfer>, Option<String>)> {
        self.read(|connection| {
            let mut seen = Vec::new();
            let mut next = None;
            'levels: for class in CLASSES {
                let priorities = match sight.lines {
                    Lines::Pairs => vec![None],
                    _ => (0..=PRIORITY_MAX).rev().map(Some).collect(),
                };
                for priority in priorities {
                    let level = Level::new(connection, sight.lines, class, priority)?;
                    next = level.look(sight, &mut seen)?;
                    if next.is_some() {
                        break 'levels;
                    }
                }
            }
            if sight.oldest > 0 {
                let known: HashSet<i64> = seen.iter().map(|one| one.seq).collect();
                let tail = "INDEXED BY transfers_oldest WHERE state = 'queued'
                    AND held_until IS NULL ORDER BY seq LIMIT ?1";
                let mut oldest = Vec::new();
                read(connection, tail, [sight.oldest], &mut oldest)?;
                seen.extend(oldest.into_iter().filter(|one| !known.contains(&one.seq)));
            }
            Ok((seen, next))
        })
    }

    /// Adds transfers to their lines when the time of their `not_before` has come.
    pub(super) fn release_held(&self, now: Timestamp) -> Result<()> {
        let failed = sql("look up transfers that are due");
        let now = now.as_ms();
        let is_due = self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM transfers WHERE held_until IS NOT NULL
                     AND held_until <= ?1)",
                )
                .and_then(|mut statement| statement.query_row([now], |row| row.get::<_, bool>(0)))
                .map_err(&failed)
        })?;
        if !is_due {
            return Ok(());
        }
        self.write(move |connection, effects| {
            let released = connection
                .prepare_cached(
                    "UPDATE transfers SET held_until = NULL WHERE seq IN
                     (SELECT seq FROM transfers WHERE held_until IS NOT NULL AND held_until <= ?1
                      ORDER BY held_until LIMIT ?2)",
                )
                .and_then(|mut statement| statement.execute((now, RELEASED_MAX)))
                .map_err(sql("queue transfers that are due"))?;
            // More transfers are due, so the next tick must follow immediately.
            effects.is_woken |= released == RELEASED_MAX as usize;
            Ok(())
        })
    }
}

/// The lines of one class, and of one priority if priorities have lines of their own.
struct Level<'c> {
    connection: &'c Connection,
    lines: Lines,
    class: String,
    /// -1 if lines are not divided by priority. No transfer has the priority -1.
    priority: i64,
}

impl<'c> Level<'c> {
    fn new(
        connection: &'c Connection,
        lines: Lines,
        class: Class,
        priority: Option<u8>,
    ) -> Result<Self> {
        let word = super::sqlite::json(&class)?;
        Ok(Self {
            connection,
            lines,
            class: word.trim_matches('"').to_owned(),
            priority: priority.map_or(-1, i64::from),
        })
    }

    /// Adds the first transfers of each line. If there are too many, returns the line to start with
    /// in the next call.
    fn look(
        &self,
        sight: CandidateQuery<'_>,
        seen: &mut Vec<QueuedTransfer>,
    ) -> Result<Option<String>> {
        // Read the lines from `from` to the last one, then the lines before `from`.
        for (mut from, until) in [
            (sight.from.to_owned(), None),
            (String::new(), Some(sight.from)),
        ] {
            while let Some(line) = self.next_line(&from)? {
                if until.is_some_and(|until| line.as_str() >= until) {
                    break;
                }
                if seen.len() >= sight.transfers_max {
                    return Ok(Some(line));
                }
                self.front(&line, sight.per_line, seen)?;
                // The appended zero byte makes the smallest text that sorts after this line.
                from = format!("{line}\0");
            }
        }
        Ok(None)
    }

    /// Returns three SQL texts: the column that contains the name of a line, the index to read by,
    /// and the condition for this class and priority.
    const fn words(&self) -> (&'static str, &'static str, &'static str) {
        match self.lines {
            Lines::Deadlines => ("line", "transfers_line", "class = ?1 AND priority = ?2"),
            Lines::Ages => ("owner", "transfers_age", "class = ?1 AND priority = ?2"),
            Lines::Pairs => ("pair", "transfers_pair", "class = ?1 AND ?2 < 0"),
        }
    }

    /// Returns the first line at or after `from`, by one step in the index.
    fn next_line(&self, from: &str) -> Result<Option<String>> {
        let (column, index, level) = self.words();
        let statement = format!(
            "SELECT MIN({column}) FROM transfers INDEXED BY {index}
             WHERE state = 'queued' AND held_until IS NULL AND {level} AND {column} >= ?3"
        );
        self.connection
            .prepare_cached(&statement)
            .and_then(|mut statement| {
                statement.query_row((&self.class, self.priority, from), |row| row.get(0))
            })
            .map_err(sql(
                "look up the next owner and activity with queued transfers",
            ))
    }

    /// Adds the first transfers of one line.
    fn front(&self, line: &str, count: u32, seen: &mut Vec<QueuedTransfer>) -> Result<()> {
        let (column, index, level) = self.words();
        let order = match self.lines {
            Lines::Deadlines => "deadline IS NULL, deadline, seq",
            Lines::Ages | Lines::Pairs => "seq",
        };
        let tail = format!(
            "INDEXED BY {index} WHERE state = 'queued' AND held_until IS NULL
             AND {level} AND {column} = ?3 ORDER BY {order} LIMIT ?4"
        );
        let values = (&self.class, self.priority, line, count);
        read(self.connection, &tail, values, seen)
    }
}

/// Adds the transfers that the SQL text `tail` selects.
pub(super) fn read(
    connection: &Connection,
    tail: &str,
    values: impl rusqlite::Params,
    seen: &mut Vec<QueuedTransfer>,
) -> Result<()> {
    let failed = sql("read the queue");
    // Do not read whole routes: a route may have many sides, and one decision reads many transfers.
    let statement = format!(
        "SELECT id, version, deadline, seq, source,
         coalesce(CASE WHEN source > 0
             THEN json_extract(route, '$.replicas[' || (source - 1) || ']') END,
             json_extract(route, '$.sources[0]')),
         principal, owner,
         coalesce(activity, ''), class, priority,
         max(submitted_at, coalesce(not_before, submitted_at)),
         started_at IS NOT NULL,
         coalesce((SELECT json_extract(body, '$.bytes.sent') FROM counters
             WHERE transfer = transfers.id), 0),
         json_extract(route, '$.destination')
         FROM transfers {tail}"
    );
    let mut statement = connection.prepare_cached(&statement).map_err(&failed)?;
    let mut rows = statement.query(values).map_err(&failed)?;
    while let Some(row) = rows.next().map_err(&failed)? {
        let id: String = row.get(0).map_err(&failed)?;
        let deadline: Option<i64> = row.get(2).map_err(&failed)?;
        let class: String = row.get(9).map_err(&failed)?;
        seen.push(QueuedTransfer {
            id: TransferId::new(id)?,
            version: row.get(1).map_err(&failed)?,
            owner: row.get(7).map_err(&failed)?,
            activity: row.get(8).map_err(&failed)?,
            principal: row.get(6).map_err(&failed)?,
            class: super::row::class(&class).map_err(&failed)?,
            priority: row.get(10).map_err(&failed)?,
            deadline: deadline.map(Timestamp::from_ms),
            waits_since: Timestamp::from_ms(row.get(11).map_err(&failed)?),
            has_run: row.get(12).map_err(&failed)?,
            seq: row.get(3).map_err(&failed)?,
            sent: row.get(13).map_err(&failed)?,
            source: row.get(4).map_err(&failed)?,
            source_peer: peer(row, 5).map_err(&failed)?,
            sink_peer: peer(row, 14).map_err(&failed)?,
        });
    }
    Ok(())
}

/// Returns the address of the endpoint that a column contains.
fn peer(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let side: String = row.get(column)?;
    let side: Side = super::row::unjson(&serde_json::Value::from(side).to_string())?;
    Ok(side.address().map(str::to_owned))
}

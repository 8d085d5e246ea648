//! What may run next: the first few of every line.
//!
//! What a line is depends on who chooses: of one class and priority, each owner's activity by deadline
//! or each owner by age; of one class, each pair of endpoints by age. Which line is served is for
//! dray-sched; here every line is seen, however long the others are.
//!
//! Invariant owned here: what is read grows with the lines, not with what waits in them.

use super::Queue;
use super::schema::sql;
use dray_api::Timestamp;
use dray_core::rate::Class;
use dray_core::{Result, TransferId};
use dray_sched::policy::PRIORITY_MAX;
use rusqlite::Connection;
use std::collections::HashSet;

/// The best first.
const CLASSES: [Class; 3] = [Class::Realtime, Class::Deadline, Class::Background];

/// Transfers whose time has come that one tick lets into their lines: others' calls wait for it.
const RELEASED_MAX: u32 = 1_000;

/// A transfer that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedTransfer {
    /// Its id.
    pub id: TransferId,
    /// Give it to [`Queue::begin`].
    pub version: u64,
    /// Whose it is.
    pub owner: String,
    /// What it is for; empty where nobody said.
    pub activity: String,
    /// Who submitted it.
    pub principal: String,
    /// What it is owed.
    pub class: Class,
    /// Within its class.
    pub priority: u8,
    /// When it must be done.
    pub deadline: Option<Timestamp>,
    /// Since when it could have begun: its submission, or its `not_before`.
    pub waits_since: Timestamp,
    /// Whether a session of it has begun before.
    pub has_run: bool,
    /// Grows in the order of submission.
    pub seq: i64,
    /// Bytes that its sessions have sent in this attempt.
    pub sent: u64,
    /// The source that its next session begins with.
    pub source_url: String,
    /// Where it goes.
    pub destination_url: String,
}

/// What stands in a line together, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lines {
    /// Of one class and priority an owner's activity, by deadline, then by submission.
    #[default]
    Deadlines,
    /// Of one class and priority an owner, by submission.
    Ages,
    /// Of one class a pair of endpoints and an owner, by submission.
    Pairs,
}

/// How much of the lines is looked at.
#[derive(Debug, Clone, Copy)]
pub struct CandidateQuery<'a> {
    /// What a line is.
    pub lines: Lines,
    /// Transfers of one line: no more than could run of it now.
    pub per_line: u32,
    /// The oldest of all that are seen besides.
    pub oldest: u32,
    /// Transfers in all.
    pub transfers_max: usize,
    /// The line to begin with in each class and priority, or the next after it.
    pub from: &'a str,
}

impl Queue {
    /// Transfers that may run now, line by line, the best class and priority first, then the oldest;
    /// and the line to begin with next time, when there were more than `sight` takes in.
    ///
    /// # Errors
    /// Of the database.
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

    /// Lets those into their lines whose `not_before` has come.
    pub(super) fn release_held(&self, now: Timestamp) -> Result<()> {
        let failed = sql("look for transfers whose time has come");
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
                .map_err(sql("queue transfers whose time has come"))?;
            // There are more of them: now, not at the next look.
            effects.is_woken |= released == RELEASED_MAX as usize;
            Ok(())
        })
    }
}

/// The lines of one class, and of one priority where that makes a line.
struct Level<'c> {
    connection: &'c Connection,
    lines: Lines,
    class: String,
    /// None stands in no index: a number that no priority is.
    priority: i64,
}

impl<'c> Level<'c> {
    fn new(
        connection: &'c Connection,
        lines: Lines,
        class: Class,
        priority: Option<u8>,
    ) -> Result<Self> {
        let word = super::row::json(&class)?;
        Ok(Self {
            connection,
            lines,
            class: word.trim_matches('"').to_owned(),
            priority: priority.map_or(-1, i64::from),
        })
    }

    /// Adds what stands in front. When that is too much: the line to begin with next time.
    fn look(
        &self,
        sight: CandidateQuery<'_>,
        seen: &mut Vec<QueuedTransfer>,
    ) -> Result<Option<String>> {
        // Those from `from` on, then those before it.
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
                // Nothing stands between a line and this.
                from = format!("{line}\0");
            }
        }
        Ok(None)
    }

    /// The column that names a line, the index of it, and who is in this level.
    const fn words(&self) -> (&'static str, &'static str, &'static str) {
        match self.lines {
            Lines::Deadlines => ("line", "transfers_line", "class = ?1 AND priority = ?2"),
            Lines::Ages => ("owner", "transfers_age", "class = ?1 AND priority = ?2"),
            Lines::Pairs => ("pair", "transfers_pair", "class = ?1 AND ?2 < 0"),
        }
    }

    /// The first line from `from` on: a step in the index.
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
            .map_err(sql("look for the next line"))
    }

    /// Adds the first of one line.
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

/// Adds the transfers that `tail` chooses.
pub(super) fn read(
    connection: &Connection,
    tail: &str,
    values: impl rusqlite::Params,
    seen: &mut Vec<QueuedTransfer>,
) -> Result<()> {
    let failed = sql("look at the queue");
    let statement = format!(
        "SELECT id, version, deadline, seq,
         coalesce(CASE WHEN source > 0 THEN
             json_extract(request, '$.replicas[' || (source - 1) || '].url') END, source_url),
         destination_url, principal, owner, coalesce(activity, ''), class, priority,
         max(submitted_at, coalesce(not_before, submitted_at)),
         started_at IS NOT NULL,
         coalesce((SELECT json_extract(body, '$.bytes.sent') FROM counters
             WHERE transfer = transfers.id), 0)
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
            source_url: row.get(4).map_err(&failed)?,
            destination_url: row.get(5).map_err(&failed)?,
        });
    }
    Ok(())
}

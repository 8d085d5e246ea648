//! What may run next: the first few of every owner's line, in every class and priority.
//!
//! One owner's transfers of one class and priority are a line. Which line is served is for
//! dray-sched; here every line is seen, however long the others are.
//!
//! Invariant owned here: what is read grows with the lines, not with what waits in them.

use super::Queue;
use super::schema::sql;
use crate::moment::Moment;
use dray_core::rate::Class;
use dray_core::{Result, TransferId};
use dray_sched::policy::PRIORITY_MAX;
use rusqlite::Connection;

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
    /// Who submitted it.
    pub principal: String,
    /// What it is owed.
    pub class: Class,
    /// Within its class.
    pub priority: u8,
    /// When it must be done.
    pub deadline: Option<Moment>,
    /// Grows in the order of submission.
    pub seq: i64,
    /// Since when it could have begun: its submission, or its `not_before`.
    pub waits_since: Moment,
    /// The source that its next session begins with.
    pub source_url: String,
    /// Where it goes.
    pub destination_url: String,
}

/// How much of the lines is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Transfers of one line: no more than its owner could begin now.
    pub per_line: u32,
    /// Transfers in all.
    pub transfers_max: usize,
    /// The owner to begin with in each class and priority, or the next after it.
    pub from: &'a str,
}

impl Queue {
    /// Transfers that may run now, line by line, the best class and priority first; and the owner to
    /// begin with next time, when there were more lines than `sight` takes in.
    ///
    /// # Errors
    /// Of the database.
    pub fn runnable(&self, sight: Sight<'_>) -> Result<(Vec<QueuedTransfer>, Option<String>)> {
        self.read(|connection| {
            let mut seen = Vec::new();
            for class in CLASSES {
                for priority in (0..=PRIORITY_MAX).rev() {
                    let level = Level::new(connection, class, priority)?;
                    let next = level.look(sight, &mut seen)?;
                    if next.is_some() {
                        return Ok((seen, next));
                    }
                }
            }
            Ok((seen, None))
        })
    }

    /// Lets those into their lines whose `not_before` has come.
    pub(super) fn release_held(&self, now: Moment) -> Result<()> {
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

/// The lines of one class and priority.
struct Level<'c> {
    connection: &'c Connection,
    class: Class,
    word: String,
    priority: u8,
}

impl<'c> Level<'c> {
    fn new(connection: &'c Connection, class: Class, priority: u8) -> Result<Self> {
        let word = super::row::json(&class)?;
        Ok(Self {
            connection,
            class,
            word: word.trim_matches('"').to_owned(),
            priority,
        })
    }

    /// Adds what stands in front. When that is too much: the owner to begin with next time.
    fn look(&self, sight: Sight<'_>, seen: &mut Vec<QueuedTransfer>) -> Result<Option<String>> {
        // Those from `from` on, then those before it.
        for (mut from, until) in [
            (sight.from.to_owned(), None),
            (String::new(), Some(sight.from)),
        ] {
            while let Some(owner) = self.next_owner(&from)? {
                if until.is_some_and(|until| owner.as_str() >= until) {
                    break;
                }
                if seen.len() >= sight.transfers_max {
                    return Ok(Some(owner));
                }
                self.front(&owner, sight.per_line, seen)?;
                // Nothing stands between an owner and this.
                from = format!("{owner}\0");
            }
        }
        Ok(None)
    }

    /// The first owner from `from` on who has a line here: a step in the index.
    fn next_owner(&self, from: &str) -> Result<Option<String>> {
        self.connection
            .prepare_cached(
                "SELECT MIN(owner) FROM transfers INDEXED BY transfers_line
                 WHERE state = 'queued' AND held_until IS NULL
                 AND class = ?1 AND priority = ?2 AND owner >= ?3",
            )
            .and_then(|mut statement| {
                statement.query_row((&self.word, self.priority, from), |row| row.get(0))
            })
            .map_err(sql("look for the next owner"))
    }

    /// Adds the first of one owner's line.
    fn front(&self, owner: &str, count: u32, seen: &mut Vec<QueuedTransfer>) -> Result<()> {
        let failed = sql("look at the queue");
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT id, version, deadline, seq,
                 coalesce(json_extract(request, '$.sources[' || source || '].url'), source_url),
                 destination_url, principal,
                 max(submitted_at, coalesce(not_before, submitted_at))
                 FROM transfers INDEXED BY transfers_line
                 WHERE state = 'queued' AND held_until IS NULL
                 AND class = ?1 AND priority = ?2 AND owner = ?3
                 ORDER BY deadline IS NULL, deadline, seq LIMIT ?4",
            )
            .map_err(&failed)?;
        let mut rows = statement
            .query((&self.word, self.priority, owner, count))
            .map_err(&failed)?;
        while let Some(row) = rows.next().map_err(&failed)? {
            let id: String = row.get(0).map_err(&failed)?;
            let deadline: Option<i64> = row.get(2).map_err(&failed)?;
            seen.push(QueuedTransfer {
                id: TransferId::new(id)?,
                version: row.get(1).map_err(&failed)?,
                owner: owner.to_owned(),
                principal: row.get(6).map_err(&failed)?,
                waits_since: Moment::from_ms(row.get(7).map_err(&failed)?),
                class: self.class,
                priority: self.priority,
                deadline: deadline.map(Moment::from_ms),
                seq: row.get(3).map_err(&failed)?,
                source_url: row.get(4).map_err(&failed)?,
                destination_url: row.get(5).map_err(&failed)?,
            });
        }
        Ok(())
    }
}

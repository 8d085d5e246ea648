//! Records the ends of transfers in the rows of the transferred files.

use super::{Tape, end_file, moment};
use crate::clock;
use crate::queue::sqlite::sql;
use dray_api::{ErrorParts, TapeFileState as At, Timestamp};
use dray_core::Result;

impl Tape<'_> {
    /// Records the ends of transfers in the rows of their files.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn follow(&self) -> Result<()> {
        let failed = sql("look up ended transfers of tape requests");
        let ended: Vec<Ended> = self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT f.copy, t.state, t.error, t.started_at, t.ended_at, s.staged_at
                     FROM tape_files f LEFT JOIN transfers t ON t.id = f.copy
                     LEFT JOIN staging s ON s.id = f.copy
                     WHERE f.finished_at IS NULL AND f.state = 'STARTED'
                     AND (t.id IS NULL OR t.ended_at IS NOT NULL)",
                )
                .map_err(&failed)?;
            let rows = statement.query_map([], Ended::read).map_err(&failed)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&failed)
        })?;
        if ended.is_empty() {
            return Ok(());
        }
        self.0.write(move |connection, _| {
            for one in &ended {
                end_file(
                    connection,
                    &one.copy,
                    one.state,
                    one.error.as_deref(),
                    one.started_at,
                    one.ended_at,
                )?;
            }
            Ok(())
        })
    }
}

/// The end of the transfer of a file.
struct Ended {
    copy: String,
    state: At,
    error: Option<String>,
    started_at: Option<Timestamp>,
    ended_at: Timestamp,
}

impl Ended {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let word: Option<String> = row.get("state")?;
        let staged_at = moment(row, "staged_at")?;
        let said: Option<String> = row.get("error")?;
        let said = said.and_then(|text| serde_json::from_str::<ErrorParts>(&text).ok());
        let said = said.map(|error| error.message);
        let (state, error) = match word.as_deref() {
            Some("done") => (At::Completed, None),
            Some("cancelled") => (At::Cancelled, None),
            Some(other) => (
                At::Failed,
                Some(said.unwrap_or_else(|| format!("the transfer is {other}"))),
            ),
            // The transfer was deleted after it ended.
            None if staged_at.is_some() => (At::Completed, None),
            None => (At::Failed, Some("the transfer was deleted".to_owned())),
        };
        Ok(Self {
            copy: row.get("copy")?,
            state,
            error,
            started_at: moment(row, "started_at")?,
            ended_at: moment(row, "ended_at")?
                .or(staged_at)
                .unwrap_or_else(clock::now),
        })
    }
}

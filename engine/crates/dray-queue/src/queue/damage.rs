//! Checks that the queue's database is intact, when it is opened.
//!
//! SQLite turns an empty file into a new database, and detects a damaged page only when it reads
//! that page. Without this check, transfers could be lost or could wait forever, without any error.
//!
//! Records that are missing at the end of the write-ahead log cannot be detected. SQLite treats
//! them as a write that never finished.

use super::sqlite::sql;
use dray_core::{End, Error, ErrorKind, Result, Status};
use rusqlite::Connection;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Maximum size of a database whose indexes are compared with their tables. The comparison takes at
/// most a second at this size. The value is estimated, not measured.
const INDEXES_BYTES_MAX: u64 = 128 << 20;

/// Maximum size of a database whose pages are all read. Reading them takes some seconds at this
/// size. The value is estimated, not measured.
const PAGES_BYTES_MAX: u64 = 2 << 30;

/// Suffix of a marker file beside the database. The file exists once the database contains a queue.
const MADE: &str = ".made";

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The error of a database that cannot be used.
pub(super) fn damaged(path: &Path, what: impl Display) -> Error {
    Error::new(ErrorKind::Io, End::Here, "open the queue")
        .status(Status::Permanent)
        .cause(format!("{} is damaged: {what}", path.display()))
        .remedy(
            "move queue.db, queue.db-wal and queue.db-shm away. Then restore queue.db from a \
                backup, or start with an empty queue: a transfer that is submitted again resumes",
        )
}

/// Returns a function that converts errors of opening the database. Some of these errors mean that
/// the database is damaged.
pub(super) fn opening(path: &Path) -> impl Fn(rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    let path = path.to_owned();
    move |error| match error.sqlite_error_code() {
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => damaged(&path, error),
        _ => {
            let error = sql("open the queue")(error);
            let cause = format!("{}: {}", path.display(), error.cause);
            error.cause(cause)
        }
    }
}

/// Checks the database file before SQLite opens it. An empty file is accepted only if it never
/// contained a queue. A missing file is accepted too, because an administrator may delete the file.
///
/// # Errors
/// If the database is empty or missing, although its log `queue.db-wal` is not empty. If the
/// database is empty, although it contained a queue before.
pub(super) fn look_before(path: &Path) -> Result<()> {
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    if bytes(path) > 0 {
        return Ok(());
    }
    if bytes(&beside(path, "-wal")) > 0 {
        return Err(damaged(
            path,
            "the database is empty, but the database log queue.db-wal is not",
        ));
    }
    let is_there = path.exists();
    match beside(path, MADE).exists() {
        true if is_there => Err(damaged(
            path,
            "the database is empty, but held a queue before",
        )),
        true => {
            // An administrator has deleted the database on purpose. Delete the marker as well, so
            // that the new file counts as a new queue.
            let _ = std::fs::remove_file(beside(path, MADE));
            let path = path.display();
            tracing::warn!("{path} was removed: the endpoint starts with an empty queue");
            Ok(())
        }
        false => Ok(()),
    }
}

/// Creates the marker file, which says that the database contains a queue.
///
/// # Errors
/// Errors of the file system.
pub(super) fn note_made(path: &Path) -> Result<()> {
    let made = beside(path, MADE);
    if made.exists() {
        return Ok(());
    }
    super::private_file(&made).map(drop)
}

/// Checks the pages of the database before anything is written.
///
/// # Errors
/// The first damage found.
pub(super) fn look_at_pages(connection: &Connection, path: &Path) -> Result<()> {
    let failed = opening(path);
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, u64>(0));
    let pages = number("PRAGMA page_count").map_err(&failed)?;
    let bytes = pages.saturating_mul(number("PRAGMA page_size").map_err(&failed)?);
    let pragma = match bytes {
        bytes if bytes <= INDEXES_BYTES_MAX => "PRAGMA integrity_check(1)",
        bytes if bytes <= PAGES_BYTES_MAX => "PRAGMA quick_check(1)",
        _ => {
            let path = path.display();
            tracing::warn!(
                "{path} ({bytes} bytes) is too large to be checked when the endpoint starts"
            );
            return Ok(());
        }
    };
    let said: String = connection
        .query_row(pragma, [], |row| row.get(0))
        .map_err(&failed)?;
    match said.as_str() {
        "ok" => Ok(()),
        said => Err(damaged(path, said.lines().next().unwrap_or_default())),
    }
}

/// Checks the tables and their rows. The tables must be those of `model`, an empty database of the
/// newest version. This program must be able to read the rows.
///
/// # Errors
/// Names the first missing table or column, or the first transfer whose request cannot be read.
pub(super) fn look_at_rows(connection: &Connection, model: &Connection, path: &Path) -> Result<()> {
    let failed = opening(path);
    let names = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(
            "SELECT m.type || ' ' || m.name || COALESCE('.' || x.name, '')
             FROM sqlite_master m LEFT JOIN pragma_table_xinfo(m.name) x ON m.type = 'table'
             WHERE m.name NOT LIKE 'sqlite%' ORDER BY 1",
        )?;
        let names = statement.query_map([], |row| row.get(0))?;
        names.collect()
    };
    let wanted = names(model).map_err(&failed)?;
    let found = names(connection).map_err(&failed)?;
    if let Some(missing) = wanted.iter().find(|name| !found.contains(name)) {
        return Err(damaged(path, format!("the database has no {missing}")));
    }
    let unreadable = "SELECT id FROM transfers WHERE ended_at IS NULL
        AND NOT json_valid(request) LIMIT 1";
    let unreadable = connection.query_row(unreadable, [], |row| row.get::<_, String>(0));
    match unreadable {
        Ok(id) => Err(damaged(
            path,
            format!("the request of transfer {id} cannot be read"),
        )),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::look_before;
    use dray_core::Result;
    use std::io::{Seek, SeekFrom, Write};
    use std::path::Path;

    fn open(path: &Path) -> Result<rusqlite::Connection> {
        look_before(path)?;
        crate::queue::schema::open(path)
    }

    fn refused(path: &Path) -> String {
        let error = open(path).map(drop).expect_err("damaged");
        let said = error.to_string();
        assert!(said.contains(&*path.to_string_lossy()), "{said}");
        assert!(said.contains("restore queue.db from a backup"), "{said}");
        said
    }

    /// Makes a database with many rows and closes it.
    fn made(path: &Path) {
        let connection = open(path).expect("made");
        let mut add = connection
            .prepare(
                "INSERT INTO transfers (id, seq, owner, principal, state, version, attempt, tries,
                 tries_without_progress, source, essence, request, tickets, class, source_url,
                 destination_url, submitted_at, failures, notices)
                 VALUES (?1, ?2, 'a', 'a', 'queued', 1, 1, 0, 0, 0, '{}', '{}', '[]', 'background', '/d/x',
                 '/d/y', 1, '[]', '[]')",
            )
            .expect("prepared");
        for seq in 0..500 {
            add.execute((format!("transfer-{seq}"), seq))
                .expect("added");
        }
    }

    #[test]
    fn damage_of_every_kind_is_found_at_the_start_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let whole = folder.path().join("whole.db");
        made(&whole);
        let bytes = std::fs::read(&whole).expect("read");
        assert!(bytes.len() > 65_536);
        open(&whole).map(drop).expect("whole");
        let path = folder.path().join("queue.db");
        let damage = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut changed = bytes.clone();
            change(&mut changed);
            std::fs::write(&path, changed).expect("written");
            refused(&path)
        };
        damage(&|bytes| bytes[..100].fill(0));
        let middle = bytes.len() / 2 / 4_096 * 4_096;
        damage(&|bytes| bytes.truncate(middle));
        damage(&|bytes| bytes.truncate(middle + 100));
        damage(&|bytes| bytes[middle..middle + 4_096].fill(0));
    }

    #[test]
    fn an_emptied_queue_is_no_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("queue.db");
        made(&path);
        std::fs::write(&path, "").expect("emptied");
        assert!(refused(&path).contains("held a queue before"));
        // A user who wants a new queue deletes the database.
        std::fs::remove_file(&path).expect("removed");
        open(&path).map(drop).expect("new");
        std::fs::write(folder.path().join("queue.db-wal"), "x").expect("written");
        std::fs::write(&path, "").expect("emptied");
        assert!(refused(&path).contains("queue.db-wal"));
    }

    #[test]
    fn tables_and_rows_that_this_program_did_not_write_are_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("queue.db");
        made(&path);
        let change = |sql: &str| {
            let connection = rusqlite::Connection::open(&path).expect("opened");
            connection.execute_batch(sql).expect("changed");
        };
        change("UPDATE transfers SET request = '{' WHERE id = 'transfer-7'");
        assert!(refused(&path).contains("transfer-7"));
        change("UPDATE transfers SET request = '{}'; DROP TABLE promises");
        assert!(refused(&path).contains("promises"));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("opened");
        file.seek(SeekFrom::Start(0)).expect("there");
        file.write_all(b"not a database at all").expect("written");
        refused(&path);
    }
}

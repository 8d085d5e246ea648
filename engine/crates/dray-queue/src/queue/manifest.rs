//! The outcome of each file of an attempt. Each attempt has a list file with one JSON object per
//! line.
//!
//! Lines are added and never changed, so the cursor of a page is an offset in the file. A crash can
//! leave an incomplete line, which readers skip. The object log of the sink still has that outcome.

use super::actor::Actor;
use super::sqlite::sql;
use super::{Queue, io, not_found};
use dray_api::{FileList, FileOutcome, FileState, FilesQuery};
use dray_core::{End, Error, ErrorKind, Result};
use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 64 * 1024;

/// Maximum length of a line that is read, in bytes. The longest line contains a path of 64 KiB
/// twice, with every byte as `%HH`, and an error.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of lines that are read for one page. If a caller asks for the failures in a list
/// of millions of files with few failures, a page may have fewer entries than requested. Its cursor
/// then continues after the last line that was read.
const LINES_PER_PAGE_MAX: usize = 100_000;

/// Writes the outcomes of one attempt's files.
#[derive(Debug)]
pub struct Manifest {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Manifest {
    pub(super) fn append(folder: &Path, attempt: u32) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        super::make_private(folder)?;
        let path = path_of(folder, attempt);
        let failed = |error: std::io::Error| io("open the list of files", &path, &error);
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        end_torn_line(&mut file).map_err(failed)?;
        Ok(Self {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            path,
        })
    }

    /// Adds an outcome. Readers see it after the next [`Manifest::flush`] at the latest.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn add(&mut self, outcome: &FileOutcome) -> Result<()> {
        let mut line = serde_json::to_vec(outcome).map_err(|error| {
            Error::new(ErrorKind::Internal, End::Here, "write the list of files")
                .cause(error.to_string())
        })?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        written.map_err(|error| io("write the list of files", &self.path, &error))
    }

    /// Writes the added outcomes to the file, so that readers see them.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn flush(&mut self) -> Result<()> {
        let written = self.file.flush();
        written.map_err(|error| io("write the list of files", &self.path, &error))
    }

    /// Same as [`Manifest::flush`], and syncs the file. Called at the end of a session, so that a
    /// power failure cannot remove outcomes of a session whose end is recorded.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        let synced = self.file.get_ref().sync_data();
        synced.map_err(|error| io("sync the list of files", &self.path, &error))
    }
}

/// Adds a line break after a line that a crash has cut off. Readers then skip only that line.
fn end_torn_line(file: &mut File) -> std::io::Result<()> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

pub(super) fn path_of(folder: &Path, attempt: u32) -> PathBuf {
    folder.join(format!("{attempt}.jsonl"))
}

/// Returns the name of the folder for a transfer's lists. The name consists of the transfer's id,
/// with a leading dot escaped, and the transfer's number. Because of the number, a new transfer
/// with the same id uses another folder. The lists of a deleted transfer can then be removed at any
/// time.
pub(super) fn folder_name(id: &str, number: Option<i64>) -> String {
    let name = match id.strip_prefix('.') {
        // The escape is unambiguous, because ids do not contain percent signs.
        Some(rest) => format!("%2E{rest}"),
        None => id.to_owned(),
    };
    match number {
        Some(number) => format!("{name}{NUMBERED}{number}"),
        None => name,
    }
}

/// Separates the id from the number. Ids do not contain this character.
const NUMBERED: char = '~';

/// Removes lists of files whose transfer has no row, unless `is_needed` returns true for the name of
/// their folder. Such lists remain if a process was killed while it deleted a transfer. Called before
/// any transfer runs.
pub(super) fn sweep(
    connection: &Connection,
    folder: &Path,
    is_needed: impl Fn(&str) -> Result<bool>,
) -> Result<()> {
    let failed = |error: std::io::Error| io("look up old lists of files", folder, &error);
    let mut statement = connection
        .prepare("SELECT 1 FROM transfers WHERE id = ?1 AND number = ?2")
        .map_err(sql("look up old lists of files"))?;
    for item in std::fs::read_dir(folder).map_err(failed)? {
        let item = item.map_err(failed)?;
        let Ok(name) = item.file_name().into_string() else {
            continue;
        };
        let Some((id, number)) = name.rsplit_once(NUMBERED) else {
            continue;
        };
        let Ok(number) = number.parse::<i64>() else {
            continue;
        };
        let id = match id.strip_prefix("%2E") {
            Some(rest) => format!(".{rest}"),
            None => id.to_owned(),
        };
        let is_known = statement.exists((id, number));
        let is_known = is_known.map_err(sql("look up old lists of files"))?;
        if !is_known && !is_needed(&name)? {
            remove(&item.path());
        }
    }
    Ok(())
}

/// Removes the lists of a transfer. Ignores errors: a list without a row is removed at the next
/// start.
pub(super) fn remove(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}

impl Queue {
    /// Returns a page of the outcomes of the files in a transfer's last attempt.
    ///
    /// # Errors
    /// `NotFound` if the transfer does not exist, or belongs to another owner. `InvalidRequest` for
    /// an invalid cursor.
    pub fn files(&self, caller: &Actor, id: &str, query: &FilesQuery) -> Result<FileList> {
        let row = self.read(|connection| super::Row::find(connection, id))?;
        let row = row.filter(|row| caller.sees(&row.owner));
        let row = row.ok_or_else(|| not_found(id))?;
        let path = path_of(&self.folder_of(&row), row.attempt);
        let (attempt, offset) = read_cursor(query.cursor.as_deref(), row.attempt)?;
        if attempt != row.attempt {
            return Err(bad_cursor(
                "the cursor belongs to an earlier attempt of the transfer",
            ));
        }
        let failed = |error: std::io::Error| io("read the list of files", &path, &error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(FileList {
                    files: Vec::new(),
                    next: None,
                });
            }
            Err(error) => return Err(failed(error)),
        };
        read_page(file, offset, query.state, query.limit as usize)
            .map_err(failed)
            .map(|(files, next)| FileList {
                files,
                next: next.map(|offset| format!("{attempt}-{offset}")),
            })
    }
}

fn bad_cursor(cause: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the cursor")
        .cause(cause)
        .remedy("read the list again without a cursor")
}

fn read_cursor(cursor: Option<&str>, attempt: u32) -> Result<(u32, u64)> {
    let Some(text) = cursor else {
        return Ok((attempt, 0));
    };
    let parts = text.split_once('-');
    let read = parts.and_then(|(attempt, at)| Some((attempt.parse().ok()?, at.parse().ok()?)));
    read.ok_or_else(|| bad_cursor("the cursor does not belong to this list"))
}

fn read_page(
    mut file: File,
    offset: u64,
    state: Option<FileState>,
    limit: usize,
) -> std::io::Result<(Vec<FileOutcome>, Option<u64>)> {
    let end = file.seek(SeekFrom::End(0))?;
    if offset >= end {
        return Ok((Vec::new(), None));
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut reader = BufReader::new(file);
    let mut at = offset;
    let mut files = Vec::new();
    let mut line = Vec::new();
    for _ in 0..LINES_PER_PAGE_MAX {
        if files.len() == limit {
            return Ok((files, Some(at).filter(|at| *at < end)));
        }
        line.clear();
        let count = (&mut reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        // The last line is incomplete. The next page begins with it.
        if count == 0 || line.last() != Some(&b'\n') {
            return Ok((files, None));
        }
        at += count as u64;
        let Ok(outcome) = serde_json::from_slice::<FileOutcome>(&line) else {
            continue;
        };
        if state.is_none_or(|state| state == outcome.state) {
            files.push(outcome);
        }
    }
    Ok((files, Some(at)))
}

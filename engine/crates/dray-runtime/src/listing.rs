//! Checkpoints of listings: a file at the source that records the folders that were listed
//! completely. After an interruption the next session reads the entries of an unchanged folder from
//! this file, instead of listing the folder again.
//!
//! docs/design/listing-checkpoint.md specifies the bytes and the rules.
//!
//! Not for: which ranges are durable. Only the object log at the sink decides that. A missing,
//! damaged or old checkpoint costs a new listing, but no data.
//!
//! Invariant: the entries of a folder are taken from a checkpoint only if the store reports the
//! version that the folder had before these entries were read.

mod lister;
mod load;
mod records;
mod sweep;

pub(crate) use lister::{ResumedLister, check_possible};
pub use sweep::{SweepBounds, sweep};

use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Metadata, ModifiedTime, Name, RelPath, Result};
use dray_store::{FolderVersion, Listed};
use dray_wire::message::Message;
use load::{Chunk, Known, Loaded};
use records::{CHUNK_BYTES, Record};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Last part of the names of checkpoints that an endpoint keeps.
pub const EXTENSION: &str = "listing";

/// Bounds of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointOptions {
    /// Minimum age of a folder's last change when the folder is listed. A younger folder is not
    /// recorded: a further change in the same tick of the storage's clock would not change the
    /// folder's version.
    pub settled: Duration,
    /// Maximum age of a checkpoint. An older checkpoint is not used.
    pub age_max: Duration,
    /// Maximum size of the file in bytes. Folders beyond it are not recorded.
    pub bytes_max: u64,
}

impl Default for CheckpointOptions {
    /// Two seconds cover the coarsest times in use (FAT, and servers with times in seconds), and the
    /// usual difference between the clocks of a host and its storage. A day bounds the time for
    /// which a listing stands in for the folder. 256 MiB hold about three million entries.
    fn default() -> Self {
        Self {
            settled: Duration::from_secs(2),
            age_max: Duration::from_secs(24 * 3600),
            bytes_max: 256 << 20,
        }
    }
}

/// Counts of a session that used a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointCounts {
    /// Number of folders that were taken from the checkpoint.
    pub folders_resumed: u64,
    /// Number of entries in these folders.
    pub entries_resumed: u64,
    /// Number of recorded folders that had changed and were listed again.
    pub folders_changed: u64,
}

/// The checkpoint of the listing of one transfer.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    file: File,
    key: Vec<u8>,
    options: CheckpointOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Length of the file with the records in `unwritten`.
    length: u64,
    unwritten: Vec<u8>,
    next_folder: u32,
    /// Folders that were recorded completely before this session.
    known: Arc<Loaded>,
    /// True if this session records nothing more.
    is_closed: bool,
    counts: CheckpointCounts,
    first_changed: Option<RelPath>,
    notices: Vec<Error>,
}

/// The recording of one folder.
#[derive(Debug)]
pub(crate) struct Recording {
    folder: u32,
    entries: Vec<dray_core::Entry>,
    bytes: usize,
}

impl Checkpoint {
    /// Opens or creates the file at `path`. `key` identifies the transfer and all that determines
    /// its listing; the checkpoint of another key is not used. The file stays open, so later calls
    /// need no permission on its folder.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if another process uses the checkpoint. Errors of the file system.
    pub fn open(path: &Path, key: &[u8], options: CheckpointOptions) -> Result<Self> {
        let failed = |error: std::io::Error| unusable(ErrorKind::Io, path, &error.to_string());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        let flags = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&file, flags).is_err() {
            return Err(unusable(
                ErrorKind::Busy,
                path,
                "another process uses the file",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            key: digest(key),
            options,
            state: Mutex::default(),
        })
    }

    /// Reads the recorded folders and begins a session. The next sessions of the same process call
    /// this again.
    pub(crate) fn begin(&self, now: SystemTime) {
        let mut state = State::default();
        match load::load(&self.file, &self.key, self.options.age_max, now) {
            Ok(loaded) => {
                state.length = loaded.length;
                state.next_folder = loaded.next_folder;
                state.known = Arc::new(loaded);
            }
            Err(why) => {
                let notice = unusable(ErrorKind::LogDamaged, &self.path, &why);
                state.notices.push(notice);
            }
        }
        if state.length == 0 {
            state.is_closed = self.file.set_len(0).is_err();
            let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let header = Record::Header {
                created: seconds,
                key: &self.key,
            };
            let start = records::prelude();
            state.length = start.len() as u64;
            state.unwritten = start;
            self.put(&mut state, &header);
        } else if self.file.set_len(state.length).is_err() {
            state.is_closed = true;
        }
        *self.state.lock_unpoisoned() = state;
    }

    /// Returns the recorded folder, if it has this version.
    pub(crate) fn find(
        &self,
        root: u32,
        path: &RelPath,
        version: Option<&FolderVersion>,
    ) -> Option<Arc<Known>> {
        let mut state = self.state.lock_unpoisoned();
        let known = state.known.find(root, path)?;
        if version.is_some_and(|version| version.bytes == known.version) {
            state.counts.folders_resumed += 1;
            return Some(known);
        }
        state.counts.folders_changed += 1;
        state.first_changed.get_or_insert_with(|| path.clone());
        None
    }

    /// Begins to record a folder that is about to be listed. Returns `None` if a record of this
    /// folder could not be used later.
    pub(crate) fn record(
        &self,
        root: u32,
        path: &RelPath,
        version: Option<&FolderVersion>,
        now: SystemTime,
    ) -> Option<Recording> {
        let version = version.filter(|version| {
            version.bytes.len() <= FolderVersion::BYTES_MAX
                && is_settled(version.changed, now, self.options.settled)
        })?;
        let mut state = self.state.lock_unpoisoned();
        let folder = state.next_folder;
        state.next_folder = folder.checked_add(1)?;
        let record = Record::Folder {
            folder,
            root,
            path: path.as_bytes(),
            version: &version.bytes,
        };
        self.put(&mut state, &record);
        (!state.is_closed).then_some(Recording {
            folder,
            entries: Vec::new(),
            bytes: 0,
        })
    }

    /// Records an entry of a folder.
    ///
    /// # Errors
    /// If the entry cannot be recorded. The caller then drops the recording.
    pub(crate) fn add(
        &self,
        recording: &mut Recording,
        item: &Listed,
        is_plain: bool,
    ) -> Result<()> {
        let entry = records::entry(item, is_plain);
        recording.bytes += records::bytes_of(&entry);
        recording.entries.push(entry);
        match recording.bytes >= CHUNK_BYTES {
            true => self.write_entries(recording),
            false => Ok(()),
        }
    }

    fn write_entries(&self, recording: &mut Recording) -> Result<()> {
        recording.bytes = 0;
        if recording.entries.is_empty() {
            return Ok(());
        }
        let entries = std::mem::take(&mut recording.entries);
        let frames = records::frames(&Message::NewFiles(entries))?;
        let record = Record::Entries {
            folder: recording.folder,
            frames: &frames,
        };
        self.put(&mut self.state.lock_unpoisoned(), &record);
        Ok(())
    }

    /// Ends the recording of a folder whose listing is complete.
    pub(crate) fn end(&self, mut recording: Recording, name: &Name, metadata: &Metadata) {
        let end = records::folder_end(name, metadata);
        let written = self.write_entries(&mut recording);
        let Ok(frames) = written.and_then(|()| records::frames(&Message::NewFiles(vec![end])))
        else {
            return;
        };
        let record = Record::End {
            folder: recording.folder,
            frames: &frames,
        };
        self.put(&mut self.state.lock_unpoisoned(), &record);
    }

    /// Discards the record of a folder, because one of its files is not as recorded.
    pub(crate) fn forget(&self, path: &RelPath) {
        let path = path.as_bytes();
        self.put(&mut self.state.lock_unpoisoned(), &Record::Forget { path });
        self.flush();
    }

    fn put(&self, state: &mut State, record: &Record<'_>) {
        if state.is_closed {
            return;
        }
        let before = state.unwritten.len();
        records::put(record, state.length, &mut state.unwritten);
        let added = (state.unwritten.len() - before) as u64;
        if state.length + added > self.options.bytes_max {
            state.unwritten.truncate(before);
            self.write(state);
            state.is_closed = true;
            return;
        }
        state.length += added;
        if state.unwritten.len() >= CHUNK_BYTES {
            self.write(state);
        }
    }

    fn write(&self, state: &mut State) {
        let bytes = std::mem::take(&mut state.unwritten);
        let at = state.length.saturating_sub(bytes.len() as u64);
        if self.file.write_all_at(&bytes, at).is_err() {
            // The incomplete record at the end is cut off when the file is read.
            state.is_closed = true;
        }
    }

    /// Writes the records of this session to the file. They need no sync: after a crash of the host
    /// the checksums show which records are complete.
    pub(crate) fn flush(&self) {
        let mut state = self.state.lock_unpoisoned();
        if !state.unwritten.is_empty() {
            self.write(&mut state);
        }
    }

    /// Counts entries that were taken from the checkpoint.
    pub(crate) fn count_entries(&self, count: u64) {
        self.state.lock_unpoisoned().counts.entries_resumed += count;
    }

    /// Returns the counts of the present session.
    #[must_use]
    pub fn counts(&self) -> CheckpointCounts {
        self.state.lock_unpoisoned().counts
    }

    /// Returns the notices that were not returned before.
    pub(crate) fn take_notices(&self) -> Vec<Error> {
        std::mem::take(&mut self.state.lock_unpoisoned().notices)
    }

    /// Adds the notice that the listing of a root uses no checkpoint.
    pub(crate) fn note_unused(&self, root: &str, why: &str) {
        let operation = format!("record the listing of {root}");
        let notice = Error::new(ErrorKind::Unsupported, End::Source, operation);
        let notice = notice
            .cause(why)
            .remedy("omit the checkpoint of the listing");
        self.state.lock_unpoisoned().notices.push(notice);
    }

    /// Adds the notice about changed folders, at the end of the listing.
    pub(crate) fn note_changes(&self) {
        let mut state = self.state.lock_unpoisoned();
        let Some(first) = state.first_changed.take() else {
            return;
        };
        let cause = match state.counts.folders_changed {
            1 => "the folder changed while the transfer was interrupted".to_owned(),
            count => format!(
                "{count} folders changed while the transfer was interrupted; the first is this one"
            ),
        };
        let notice = Error::new(
            ErrorKind::SourceChanged,
            End::Source,
            "continue the listing",
        );
        state.notices.push(
            notice
                .file(&first)
                .cause(cause)
                .remedy("you need not do anything: dray listed each changed folder again"),
        );
    }

    /// Empties the file after the end of the transfer.
    pub(crate) fn finish(&self) {
        self.state.lock_unpoisoned().is_closed = true;
        let _ = self.file.set_len(0);
    }

    /// Removes the file, if the transfer has ended and the file is empty. The caller needs the
    /// permission to change the folder of the file. A file that is not removed costs no data, and
    /// [`sweep`] removes it later.
    pub fn remove_if_finished(&self) {
        if self.file.metadata().is_ok_and(|file| file.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn read_chunk(&self, chunk: Chunk) -> Result<Vec<dray_core::Entry>> {
        let mut bytes = vec![0; chunk.length as usize];
        let read = self.file.read_exact_at(&mut bytes, chunk.offset);
        read.map_err(|error| unusable(ErrorKind::Io, &self.path, &error.to_string()))?;
        records::entries(&bytes).map_err(|why| unusable(ErrorKind::LogDamaged, &self.path, &why))
    }
}

/// Returns a value of fixed length that identifies the key. If another version of the standard
/// library computes another hash, the listing starts over.
fn digest(key: &[u8]) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let mut digest = hasher.finish().to_le_bytes().to_vec();
    digest.extend_from_slice(&dray_core::checksum::crc32c(&[key]).to_le_bytes());
    digest.extend_from_slice(&(key.len() as u64).to_le_bytes());
    digest
}

/// Returns true if the file at `path` has content that does not begin as a checkpoint. A session
/// would replace this content. Returns false if the file does not exist.
///
/// # Errors
/// Errors of the file system.
pub fn is_other_file(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file
            .take(records::MAGIC.len() as u64)
            .read_to_end(&mut start)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(!records::MAGIC.starts_with(&start))
}

/// Returns true if the last change of a folder is at least `settled` before `now`.
fn is_settled(changed: ModifiedTime, now: SystemTime, settled: Duration) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Ok(seconds) = u64::try_from(changed.seconds) else {
        return true;
    };
    let changed = Duration::new(seconds, changed.nanoseconds.min(999_999_999));
    changed.saturating_add(settled) <= now
}

fn unusable(kind: ErrorKind, path: &Path, why: &str) -> Error {
    let operation = format!("use the checkpoint of the listing {}", path.display());
    Error::new(kind, End::Source, operation)
        .cause(why)
        .remedy("you need not do anything: dray lists the source from the beginning")
}

#[cfg(test)]
mod tests;

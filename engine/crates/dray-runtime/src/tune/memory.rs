//! Keeps the tuner's results for each pair of endpoints in a file. An endpoint keeps the file in
//! its state folder. The command line has a file of its own. Times are wall times since 1970.
//!
//! The file is a cache: without it, tuning starts from the default again. A damaged file is
//! therefore renamed, with a warning. A file that cannot be written only causes a warning.
//!
//! Invariant of this module: the file is complete at every moment, and contains at most
//! [`PAIRS_MAX`] pairs.

use dray_core::lock::LockExt;
use dray_core::{Time, plan, utc};
use dray_sched::tuner::memory::{Kept, Memory, Pair};
use dray_sched::tuner::{Remembered, Setting};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// The file's name in the state folder.
pub const FILE: &str = "tuner.json";

/// Maximum number of pairs. A grid has some hundred sites. The value is estimated, not measured.
pub const PAIRS_MAX: usize = 1_000;

/// Maximum age of a result. An older result is dropped, because the network path may have changed.
/// The value is estimated, not measured.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Maximum size of the file in bytes. Each pair takes some hundred bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum length in bytes of an endpoint name. The API permits addresses of this length.
const NAME_BYTES_MAX: usize = 256;

const VERSION: u32 = 1;

/// The name of this endpoint as one side of a pair.
const HERE: &str = "here";

/// Returns the pair of this endpoint and `other`. `other` is the public key of the other endpoint.
/// If the other endpoint has no key, `other` is its address. `reads_here` is true if this endpoint
/// is the source.
#[must_use]
pub fn pair(other: &str, reads_here: bool) -> Pair {
    let (here, other) = (HERE.to_owned(), other.to_owned());
    let (source, sink) = match reads_here {
        true => (here, other),
        false => (other, here),
    };
    Pair { source, sink }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    pairs: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    source: String,
    sink: String,
    streams: u32,
    /// Wall time at which `streams` was found, in RFC 3339 format.
    found_at: String,
    /// Highest number of streams that has not failed, if a higher one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    streams_most: Option<u32>,
    /// Wall time at which a higher number failed, in RFC 3339 format.
    failed_at: String,
}

impl Line {
    fn of((pair, kept): &(Pair, Kept)) -> Self {
        let most = kept.known.most.streams;
        Self {
            source: pair.source.clone(),
            sink: pair.sink.clone(),
            streams: kept.known.setting.streams,
            found_at: text_of(kept.at),
            streams_most: (most != Setting::UNBOUNDED.streams).then_some(most),
            failed_at: text_of(kept.failed_at),
        }
    }

    /// Returns the pair and its result, or `None` if a value is invalid.
    fn read(self) -> Option<(Pair, Kept)> {
        let streams_most = self.streams_most.unwrap_or(Setting::UNBOUNDED.streams);
        let is_named = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len());
        if self.streams == 0
            || streams_most == 0
            || !is_named(&self.source)
            || !is_named(&self.sink)
        {
            return None;
        }
        let known = Remembered {
            // An endpoint stores only the tuned number of streams.
            setting: Setting {
                streams: self.streams,
                readers: 1,
                writers: 1,
                object_bytes: plan::OBJECT_BYTES_DEFAULT,
            },
            most: Setting {
                streams: streams_most,
                ..Setting::UNBOUNDED
            },
        };
        let pair = Pair {
            source: self.source,
            sink: self.sink,
        };
        let kept = Kept {
            known,
            at: time_of(&self.found_at)?,
            failed_at: time_of(&self.failed_at)?,
        };
        Some((pair, kept))
    }
}

/// Returns a time since 1970 as text in RFC 3339 format, rounded up to milliseconds.
fn text_of(time: Time) -> String {
    let ms = i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = utc::write(ms.min(utc::MS_MAX), &mut text);
    text
}

/// Parses a wall time. Times before 1970 become 1970.
fn time_of(text: &str) -> Option<Time> {
    let ms = u64::try_from(utc::parse(text)?).unwrap_or(0);
    Some(Time::ZERO + Duration::from_millis(ms))
}

/// The stored results by pair. The head of the module describes the file.
pub struct Pairs {
    /// Shows a warning to the administrator or user.
    warn: fn(&str),
    file: PathBuf,
    /// True if the file exists and could not be read. The file may be intact, so it is not
    /// overwritten.
    leaves_alone: bool,
    memory: Mutex<Memory>,
}

impl Pairs {
    /// Reads the stored results. Renames a damaged file. If the file exists but cannot be read now,
    /// starts without results, and [`Self::keep`] does not overwrite the file.
    #[must_use]
    pub fn open(state: &Path, now: Time, warn: fn(&str)) -> Self {
        let file = state.join(FILE);
        let mut leaves_alone = false;
        let memory = read(&file, now).unwrap_or_else(|unread| {
            warn(&unread.dealt_with(&file));
            leaves_alone = matches!(unread, Unread::Now(_));
            Memory::new(PAIRS_MAX, AGE_MAX)
        });
        Self {
            warn,
            file,
            leaves_alone,
            memory: Mutex::new(memory),
        }
    }

    /// Returns the last result of a pair.
    #[must_use]
    pub fn of(&self, pair: &Pair, now: Time) -> Option<Remembered> {
        let memory = self.memory.lock_unpoisoned();
        memory.of(pair, now)
    }

    /// Stores a result in memory and in the file. The calling thread runs as the endpoint's own
    /// account.
    pub fn keep(&self, pair: Pair, found: Remembered, now: Time) {
        if pair.source.len().max(pair.sink.len()) > NAME_BYTES_MAX {
            return;
        }
        let mut memory = self.memory.lock_unpoisoned();
        memory.keep(pair, found, now);
        if self.leaves_alone {
            return;
        }
        let written = Written {
            version: VERSION,
            pairs: memory.entries().map(Line::of).collect(),
        };
        // Write while the lock is held, so that the file ends with the latest result.
        if let Err(error) = write(&self.file, &written) {
            let file = self.file.display();
            (self.warn)(&format!(
                "cannot save the measured numbers of streams in {file}: {error}. dray measures the \
                    numbers again at the next start. Check the folder and its permissions"
            ));
        }
    }
}

/// The reason why a file could not be read.
enum Unread {
    /// The system returned an error, for example because of the file's mode.
    Now(std::io::Error),
    /// The content is invalid.
    Damaged(String),
}

impl Unread {
    /// Renames a damaged file, and returns the warning.
    fn dealt_with(&self, file: &Path) -> String {
        match self {
            Self::Damaged(cause) => set_aside(file, cause),
            Self::Now(error) => format!(
                "cannot read the measured numbers of streams in {}: {error}. The file stays \
                 unchanged, and new numbers are not saved. Permit the program's user to read the \
                 file",
                file.display()
            ),
        }
    }
}

/// Reads the results in a file. Returns an empty memory if the file does not exist.
fn read(file: &Path, now: Time) -> Result<Memory, Unread> {
    let mut memory = Memory::new(PAIRS_MAX, AGE_MAX);
    let opened = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(memory),
        opened => opened.map_err(Unread::Now)?,
    };
    let mut text = Vec::new();
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    if read.map_err(Unread::Now)? as u64 > FILE_BYTES_MAX {
        return Err(Unread::Damaged(format!(
            "the file has more than {FILE_BYTES_MAX} bytes"
        )));
    }
    let damaged = |cause: &str| Unread::Damaged(cause.to_owned());
    let written: Written =
        serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
    if written.version != VERSION {
        return Err(damaged(&format!(
            "the file has the unsupported version {}",
            written.version
        )));
    }
    for line in written.pairs {
        let found = line.read();
        let (pair, kept) =
            found.ok_or_else(|| damaged("a number, a name or a time in the file is not valid"))?;
        memory.restore(pair, kept, now);
    }
    Ok(memory)
}

/// Renames a damaged file, and returns the warning.
fn set_aside(file: &Path, cause: &str) -> String {
    let aside = file.with_extension("json.damaged");
    let moved = match std::fs::rename(file, &aside) {
        Ok(()) => format!("the file was renamed to {}", aside.display()),
        Err(error) => format!("the file could not be renamed ({error}) and will be overwritten"),
    };
    let file = file.display();
    format!(
        "cannot read the measured numbers of streams in {file}: {cause}. {moved}. dray measures \
            the numbers again; no other data is lost"
    )
}

fn write(file: &Path, written: &Written) -> std::io::Result<()> {
    let text = serde_json::to_vec(written)?;
    // Two commands may end at the same time, so each process writes a temporary file with its own
    // name.
    let whole = file.with_extension(format!("json.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true).truncate(true);
    let mut new = options.mode(0o600).open(&whole)?;
    new.write_all(&text)?;
    // Without the sync, a crash of the host could leave an empty file under the final name.
    new.sync_data()?;
    std::fs::rename(&whole, file)
}

#[cfg(test)]
mod tests;

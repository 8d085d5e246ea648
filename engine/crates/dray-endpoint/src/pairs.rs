//! Keeps the tuner's results for each pair of endpoints in a file of the state folder. The command
//! line keeps its own file in the same way.
//!
//! The file is a cache: without it, tuning starts from the default again. So a file that cannot be
//! read is set aside with a warning, and one that cannot be written only causes a warning.
//!
//! Invariant owned here: the file is complete at every moment, and holds at most [`PAIRS_MAX`]
//! pairs.

use dray_api::{Timestamp, timestamp};
use dray_core::lock::LockExt;
use dray_core::plan;
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

/// Maximum number of pairs: a grid has some hundred sites (guess, revisit).
pub const PAIRS_MAX: usize = 1_000;

/// Age at which a result that was not found again is dropped: by then the network path may have
/// changed (guess, revisit).
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Maximum size of the file: each pair takes some hundred bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum length of a stored endpoint name; the API permits addresses of this length.
const NAME_BYTES_MAX: usize = 256;

const VERSION: u32 = 1;

/// The name of this endpoint as one side of a pair.
const HERE: &str = "here";

/// Returns the pair of this endpoint and another, which is named by its key or else its address.
/// `reads_here` is true if this endpoint is the source.
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
    found_at: Timestamp,
    /// A larger number of streams failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    streams_most: Option<u32>,
    failed_at: Timestamp,
}

impl Line {
    fn of((pair, kept): &(Pair, Kept)) -> Self {
        let most = kept.known.most.streams;
        Self {
            source: pair.source.clone(),
            sink: pair.sink.clone(),
            streams: kept.known.setting.streams,
            found_at: timestamp::of_time(kept.at),
            streams_most: (most != Setting::UNBOUNDED.streams).then_some(most),
            failed_at: timestamp::of_time(kept.failed_at),
        }
    }

    /// Returns the pair and its result; `None` if a value is invalid.
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
            // Nothing else is tuned of an endpoint's transfers.
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
            at: timestamp::time(self.found_at),
            failed_at: timestamp::time(self.failed_at),
        };
        Some((pair, kept))
    }
}

/// Results by pair; see the module's head.
pub struct Pairs {
    /// Reports a warning to the administrator or user.
    warn: fn(&str),
    file: PathBuf,
    /// Set when the file could not be read now and may be intact: it is not overwritten.
    leaves_alone: bool,
    memory: Mutex<Memory>,
}

impl Pairs {
    /// Reads the stored results. Sets a damaged file aside, and leaves a file that cannot be read now
    /// unchanged.
    #[must_use]
    pub fn open(state: &Path, now: Timestamp, warn: fn(&str)) -> Self {
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
    pub fn of(&self, pair: &Pair, now: Timestamp) -> Option<Remembered> {
        let memory = self.memory.lock_unpoisoned();
        memory.of(pair, timestamp::time(now))
    }

    /// Stores a result, also across a restart. The caller runs as the endpoint's own account.
    pub fn keep(&self, pair: Pair, found: Remembered, now: Timestamp) {
        if pair.source.len().max(pair.sink.len()) > NAME_BYTES_MAX {
            return;
        }
        let mut memory = self.memory.lock_unpoisoned();
        memory.keep(pair, found, timestamp::time(now));
        if self.leaves_alone {
            return;
        }
        let written = Written {
            version: VERSION,
            pairs: memory.entries().map(Line::of).collect(),
        };
        // Written under the lock, so the file has the last result.
        if let Err(error) = write(&self.file, &written) {
            let file = self.file.display();
            (self.warn)(&format!(
                "cannot save the tuned numbers of streams in {file}: {error}. They are measured \
                 again at the next start. Check the folder and its permissions"
            ));
        }
    }
}

/// The reason why a file was not read.
enum Unread {
    /// The system does not permit reading it now.
    Now(std::io::Error),
    /// The content is invalid.
    Damaged(String),
}

impl Unread {
    /// Sets a damaged file aside, and returns the warning.
    fn dealt_with(&self, file: &Path) -> String {
        match self {
            Self::Damaged(cause) => set_aside(file, cause),
            Self::Now(error) => format!(
                "cannot read the tuned numbers of streams in {}: {error}. The file stays \
                 unchanged, and new numbers are not saved. Give the program's user read permission",
                file.display()
            ),
        }
    }
}

/// Reads the results in a file; an empty memory if the file does not exist.
fn read(file: &Path, now: Timestamp) -> Result<Memory, Unread> {
    let mut memory = Memory::new(PAIRS_MAX, AGE_MAX);
    let opened = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(memory),
        opened => opened.map_err(Unread::Now)?,
    };
    let mut text = Vec::new();
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    if read.map_err(Unread::Now)? as u64 > FILE_BYTES_MAX {
        return Err(Unread::Damaged(format!(
            "it has more than {FILE_BYTES_MAX} bytes"
        )));
    }
    let damaged = |cause: &str| Unread::Damaged(cause.to_owned());
    let written: Written =
        serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
    if written.version != VERSION {
        return Err(damaged(&format!("it is of version {}", written.version)));
    }
    for line in written.pairs {
        let found = line.read();
        let (pair, kept) = found.ok_or_else(|| damaged("a number or a name in it cannot be"))?;
        memory.restore(pair, kept, timestamp::time(now));
    }
    Ok(memory)
}

/// Sets a damaged file aside, and returns the warning.
fn set_aside(file: &Path, cause: &str) -> String {
    let aside = file.with_extension("json.damaged");
    let moved = match std::fs::rename(file, &aside) {
        Ok(()) => format!("it is {} now", aside.display()),
        Err(error) => format!("it could not be moved ({error}) and will be overwritten"),
    };
    let file = file.display();
    format!(
        "cannot read the tuned numbers of streams in {file}: {cause}. {moved}. They are measured \
         again; no other data is lost"
    )
}

fn write(file: &Path, written: &Written) -> std::io::Result<()> {
    let text = serde_json::to_vec(written)?;
    // Two commands may end at the same time.
    let whole = file.with_extension(format!("json.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true).truncate(true);
    let mut new = options.mode(0o600).open(&whole)?;
    new.write_all(&text)?;
    // Without the sync, a crash of the host could leave the new name without its bytes.
    new.sync_data()?;
    std::fs::rename(&whole, file)
}

#[cfg(test)]
mod tests {
    use super::{FILE, PAIRS_MAX, Pairs, pair};
    use crate::clock;
    use dray_api::Timestamp;
    use dray_sched::tuner::{Remembered, Setting};
    use std::path::Path;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn open(state: &Path, now: Timestamp) -> Pairs {
        // The test checks files and results; of a warning only its subject.
        Pairs::open(state, now, |words| {
            assert!(words.contains("streams"), "{words}")
        })
    }

    fn found(streams: u32, most: Option<u32>) -> Remembered {
        Remembered {
            setting: Setting {
                streams,
                readers: 1,
                writers: 1,
                object_bytes: 1 << 20,
            },
            most: Setting {
                streams: most.unwrap_or(Setting::UNBOUNDED.streams),
                ..Setting::UNBOUNDED
            },
        }
    }

    #[test]
    fn what_was_found_is_there_after_a_restart_for_each_direction() {
        let state = tempfile::tempdir().expect("a folder");
        let now = clock::now();
        let pairs = open(state.path(), now);
        assert_eq!(pairs.of(&pair("sha256:aa", true), now), None);
        pairs.keep(pair("sha256:aa", true), found(12, None), now);
        pairs.keep(pair("sha256:aa", false), found(7, Some(9)), now);
        let again = open(state.path(), now.after(DAY));
        let of = |other: &str, reads_here, days: u32| {
            again.of(&pair(other, reads_here), now.after(days * DAY))
        };
        assert_eq!(of("sha256:aa", true, 1), Some(found(12, None)));
        assert_eq!(of("sha256:aa", false, 1), Some(found(7, Some(9))));
        assert_eq!(of("sha256:bb", true, 1), None);
        assert_eq!(of("sha256:aa", true, 29), Some(found(12, None)));
        assert_eq!(of("sha256:aa", true, 31), None, "that is long ago");
        let late = open(state.path(), now.after(31 * DAY));
        assert_eq!(late.of(&pair("sha256:aa", true), now), None);
        assert!(!state.path().join("tuner.json.damaged").exists());
    }

    #[test]
    fn there_are_so_many_pairs_at_the_most() {
        let state = tempfile::tempdir().expect("a folder");
        let now = clock::now();
        let pairs = open(state.path(), now);
        // Names of the maximum length: the file must still be readable.
        let name = |number: usize| format!("{number:0>256}");
        for number in 0..PAIRS_MAX {
            let mut memory = pairs.memory.lock().expect("not poisoned");
            let time = dray_api::timestamp::time(now);
            memory.keep(pair(&name(number), true), found(4, Some(64)), time);
        }
        pairs.keep(pair(&name(PAIRS_MAX), true), found(5, None), now);
        let again = open(state.path(), now);
        assert_eq!(again.of(&pair(&name(0), true), now), None, "the oldest");
        assert!(again.of(&pair(&name(1), true), now).is_some());
        assert!(again.of(&pair(&name(PAIRS_MAX), true), now).is_some());
        pairs.keep(pair(&"x".repeat(257), true), found(5, None), now);
        assert!(
            open(state.path(), now)
                .of(&pair(&name(1), true), now)
                .is_some()
        );
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_does_no_harm() {
        let state = tempfile::tempdir().expect("a folder");
        let (file, aside) = (
            state.path().join(FILE),
            state.path().join("tuner.json.damaged"),
        );
        let now = clock::now();
        let key = || pair("sha256:aa", true);
        open(state.path(), now).keep(key(), found(12, None), now);
        let good = std::fs::read_to_string(&file).expect("written");
        for damaged in [
            good[..good.len() / 2].to_owned(),
            String::new(),
            good.replace("\"streams\":12", "\"streams\":0"),
            good.replace("\"version\":1", "\"version\":2"),
            good.replace("sha256:aa", ""),
            format!("{good}{}", " ".repeat(1 << 20)),
            "\u{0}\u{1}".to_owned(),
        ] {
            assert_ne!(damaged, good);
            std::fs::write(&file, &damaged).expect("written");
            let pairs = open(state.path(), now);
            assert_eq!(pairs.of(&key(), now), None, "{damaged:.80}");
            assert_eq!(std::fs::read_to_string(&aside).expect("kept"), damaged);
            assert!(!file.exists());
            pairs.keep(key(), found(3, None), now);
            let again = open(state.path(), now);
            assert_eq!(again.of(&key(), now), Some(found(3, None)));
        }
        // A file that cannot be read now may be intact.
        std::fs::remove_file(&file).expect("removed");
        std::fs::create_dir(&file).expect("made");
        let pairs = open(state.path(), now);
        pairs.keep(key(), found(3, None), now);
        assert_eq!(pairs.of(&key(), now), Some(found(3, None)));
        assert!(file.is_dir(), "stays unchanged");
        // Nor does one that cannot be written.
        let pairs = open(&state.path().join("none"), now);
        pairs.keep(key(), found(3, None), now);
        assert_eq!(pairs.of(&key(), now), Some(found(3, None)));
    }
}

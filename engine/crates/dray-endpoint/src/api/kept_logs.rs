//! A cache of object logs for the next pages of their unfinished files.
//!
//! The endpoint must read the whole log to answer for one page. With this cache, the endpoint reads
//! a large log once for several pages.
//!
//! Invariant: the number, the memory and the age of the kept logs are bounded.

use dray_core::lock::LockExt;
use dray_runtime::sink::ReadLog;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum number of logs kept. The oldest log is dropped first. The value is estimated, not
/// measured.
const LOGS_MAX: usize = 4;

/// Maximum memory of all kept logs in bytes. It suffices for about 100 000 unfinished files. The
/// value is estimated, not measured.
const BYTES_MAX: usize = 32 << 20;

/// Maximum age of a kept log. A caller that reads all pages asks for the next page immediately.
const AGE_MAX: Duration = Duration::from_secs(30);

struct Kept {
    /// Transfer and place of the log.
    key: String,
    log: ReadLog,
    bytes: usize,
    read_at: Instant,
}

/// The logs that are kept for next pages.
pub(super) struct KeptLogs {
    kept: Mutex<VecDeque<Kept>>,
    bytes_max: usize,
    age_max: Duration,
}

impl Default for KeptLogs {
    fn default() -> Self {
        Self::new(BYTES_MAX, AGE_MAX)
    }
}

impl KeptLogs {
    fn new(bytes_max: usize, age_max: Duration) -> Self {
        Self {
            kept: Mutex::default(),
            bytes_max,
            age_max,
        }
    }

    /// Returns the kept log with this key. The caller must compare it with the file of the log.
    pub(super) fn find(&self, key: &str) -> Option<ReadLog> {
        let mut kept = self.kept.lock_unpoisoned();
        kept.retain(|one| one.read_at.elapsed() < self.age_max);
        let found = kept.iter().find(|one| one.key == key)?;
        Some(found.log.clone())
    }

    /// Keeps a log that was read now. Replaces the kept log with the same key. A log that needs more
    /// memory than all kept logs together may have is not kept.
    pub(super) fn keep(&self, key: String, log: &ReadLog) {
        let bytes = log.bytes_in_memory();
        let mut kept = self.kept.lock_unpoisoned();
        kept.retain(|one| one.read_at.elapsed() < self.age_max && one.key != key);
        if bytes > self.bytes_max {
            return;
        }
        let total = |kept: &VecDeque<Kept>| kept.iter().map(|one| one.bytes).sum::<usize>();
        while kept.len() >= LOGS_MAX || total(&kept) + bytes > self.bytes_max {
            kept.pop_front();
        }
        kept.push_back(Kept {
            key,
            log: log.clone(),
            bytes,
            read_at: Instant::now(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{KeptLogs, LOGS_MAX};
    use crate::api::tests::logs::{interrupted, read_log};
    use std::time::Duration;

    #[test]
    fn kept_logs_are_bounded_in_number_memory_and_time() {
        let folder = tempfile::tempdir().expect("a folder");
        interrupted(folder.path(), "t", &["a", "b"]);
        let log = read_log(folder.path(), "t");
        let has = |logs: &KeptLogs, key: &str| logs.find(key).is_some();
        let long = Duration::from_secs(3600);
        let logs = KeptLogs::new(usize::MAX, long);
        for number in 0..=LOGS_MAX {
            logs.keep(number.to_string(), &log);
        }
        assert!(!has(&logs, "0") && has(&logs, "1"));
        let two = KeptLogs::new(2 * log.bytes_in_memory(), long);
        for key in ["a", "b", "c"] {
            two.keep(key.to_owned(), &log);
        }
        assert_eq!(
            ["a", "b", "c"].map(|key| has(&two, key)),
            [false, true, true]
        );
        two.keep("c".to_owned(), &log);
        assert!(has(&two, "b"), "a log replaces itself");
        let none = KeptLogs::new(log.bytes_in_memory() - 1, long);
        none.keep("a".to_owned(), &log);
        assert!(!has(&none, "a"));
        let short = KeptLogs::new(usize::MAX, Duration::ZERO);
        short.keep("a".to_owned(), &log);
        assert!(!has(&short, "a"));
    }
}

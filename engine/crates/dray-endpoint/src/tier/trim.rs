//! After deletions, tells the fast devices which blocks are free (TRIM), at a limited rate.
//!
//! At most once per second, a round starts the program `fstrim` for the next part of a file system.
//! The round does not wait for the program to end.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Shortest time between the starts of two parts. A part has the number of bytes that may be
/// trimmed in this time.
const PART_INTERVAL: Duration = Duration::from_secs(1);

/// Lowest number of bytes of a part. A file system frees no smaller extents.
const PART_MIN: u64 = 1 << 20;

/// TRIM of the file system of one fast root.
#[derive(Debug)]
pub(super) struct Trim {
    path: PathBuf,
    /// Bytes of a part.
    part: u64,
    /// Start of the last part.
    started: Option<Instant>,
    /// Begin of the next part; `None` if no deletion needs a TRIM.
    next: Option<u64>,
    /// True if a deletion happened after the present pass over the file system had begun.
    is_due: bool,
    running: Option<Child>,
    /// Reason for which the device is not trimmed.
    pub(super) error: Option<String>,
}

impl Trim {
    /// Prepares the TRIM of a file system at `rate` bytes per second.
    pub(super) fn new(path: &Path, rate: u64) -> Self {
        Self {
            path: path.to_owned(),
            part: rate.max(PART_MIN),
            started: None,
            next: None,
            is_due: false,
            running: None,
            error: None,
        }
    }

    /// Notes that files were deleted.
    pub(super) const fn deleted(&mut self) {
        self.is_due = true;
    }

    /// Starts `fstrim` for the next part of the file system, if the program for the previous part
    /// has ended and the interval of that part is over. After an error, for example because the
    /// device cannot trim, starts no further part.
    pub(super) fn round(&mut self, size: u64) {
        if let Some(child) = &mut self.running {
            match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) if status.success() => {}
                Ok(Some(_)) => self.error = Some(said(child)),
                Err(error) => self.error = Some(error.to_string()),
            }
            self.running = None;
        }
        if self.error.is_some() || !self.is_part_due(Instant::now()) {
            return;
        }
        let Some(begin) = self.begin(size) else {
            return;
        };
        self.started = Some(Instant::now());
        let started = Command::new("fstrim")
            .arg("--offset")
            .arg(begin.to_string())
            .arg("--length")
            .arg(self.part.to_string())
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        match started {
            Ok(child) => self.running = Some(child),
            Err(error) => self.error = Some(format!("fstrim: {error}")),
        }
    }

    /// Returns true if [`PART_INTERVAL`] has passed since the start of the previous part. The next
    /// round may begin earlier: while a demotion runs, rounds follow each other within less than a
    /// second.
    fn is_part_due(&self, now: Instant) -> bool {
        self.started
            .is_none_or(|at| now.saturating_duration_since(at) >= PART_INTERVAL)
    }

    /// Returns the begin of the part to trim now, and moves to the part after it.
    const fn begin(&mut self, size: u64) -> Option<u64> {
        let begin = match self.next {
            Some(begin) => begin,
            None if self.is_due => {
                self.is_due = false;
                0
            }
            None => return None,
        };
        let end = begin.saturating_add(self.part);
        self.next = if end < size { Some(end) } else { None };
        Some(begin)
    }
}

impl Drop for Trim {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            // Stop `fstrim`. It would end by itself, but perhaps only after the endpoint has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the message of a program that has failed.
fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(output) = &mut child.stderr {
        let _ = output.take(1_024).read_to_string(&mut text);
    }
    match text.trim() {
        "" => "fstrim failed".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{PART_INTERVAL, PART_MIN, Trim};
    use std::path::Path;
    use std::time::{Duration, Instant};

    #[test]
    fn a_pass_covers_the_file_system_in_parts_after_a_deletion() {
        let mut trim = Trim::new(Path::new("/none"), 2 * PART_MIN);
        let size = 5 * PART_MIN;
        assert_eq!(trim.begin(size), None);
        trim.deleted();
        let mut parts = vec![trim.begin(size), trim.begin(size)];
        // Another deletion needs another pass.
        trim.deleted();
        parts.extend([trim.begin(size), trim.begin(size)]);
        let mib = |number: u64| Some(number * PART_MIN);
        assert_eq!(parts, [mib(0), mib(2), mib(4), mib(0)]);
        assert_eq!(trim.begin(PART_MIN), mib(2));
        assert_eq!(trim.begin(size), None);
    }

    #[test]
    fn parts_start_at_most_once_per_second() {
        let mut trim = Trim::new(Path::new("/none"), PART_MIN);
        let now = Instant::now();
        assert!(trim.is_part_due(now));
        trim.started = Some(now);
        assert!(!trim.is_part_due(now + Duration::from_millis(200)));
        assert!(trim.is_part_due(now + PART_INTERVAL));
    }
}

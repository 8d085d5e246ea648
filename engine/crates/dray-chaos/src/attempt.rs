//! One run of the command of the copy: its process, its progress and its report.

use crate::children::{ChildId, Children, Output};
use crate::clock::Clock;
use crate::hub::Hub;
use dray_core::Result;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Maximum number of bytes of the feed that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A running command of the copy.
pub(crate) struct Attempt {
    /// Number of the attempt, from 1.
    pub(crate) number: u32,
    child: ChildId,
    children: Children,
    output: Output,
    began: Instant,
    feed: Feed,
    continues: Option<Instant>,
    /// Numbers of the faults that were injected during the attempt.
    pub(crate) faults: Vec<u32>,
    is_killed: bool,
}

/// A command of the copy that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// Exit code; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    /// Signal that ended the process.
    pub(crate) signal: Option<i32>,
    pub(crate) seconds: f64,
    /// The report of `dray cp --json`.
    pub(crate) report: Option<Value>,
    /// Durable bytes in the last progress or in the report.
    pub(crate) durable_bytes: u64,
    /// Bytes of content that the attempt has sent, if its output says so.
    pub(crate) sent_bytes: Option<u64>,
    /// The last lines of standard error.
    pub(crate) last_words: String,
    /// True if the run has killed the process.
    pub(crate) is_killed: bool,
}

impl Attempt {
    /// Starts the command. It must accept the options of `dray cp` at its end.
    ///
    /// # Errors
    /// If the system cannot start the program.
    pub(crate) fn start(
        number: u32,
        command: &[String],
        folder: &Path,
        children: &Children,
        (hub, clock): (Option<&Hub>, Option<&Clock>),
    ) -> Result<Self> {
        let output = Output::new(folder, &format!("attempt-{number}"))
            .with_faults(hub)
            .with_clock(clock);
        let mut command = command.to_vec();
        if !command.iter().any(|word| word == "--json") {
            command.push("--json".to_owned());
        }
        command.extend(["--progress", "json"].map(str::to_owned));
        let child = children.start(&command, &output)?;
        Ok(Self {
            number,
            child,
            children: children.clone(),
            output,
            began: Instant::now(),
            feed: Feed::default(),
            continues: None,
            faults: Vec::new(),
            is_killed: false,
        })
    }

    /// Returns true if the process is not stopped.
    pub(crate) const fn is_up(&self) -> bool {
        self.continues.is_none() && !self.is_killed
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.is_killed = true;
        self.children.signal(self.child, Signal::KILL);
    }

    /// Stops the process by SIGSTOP. It continues after this time.
    pub(crate) fn stop(&mut self, duration: Duration) {
        self.children.signal(self.child, Signal::STOP);
        self.continues = Some(Instant::now() + duration);
    }

    /// Steps the clock of the process.
    ///
    /// # Errors
    /// The reason if the clock cannot step.
    pub(crate) fn step_clock(
        &self,
        clock: &mut Clock,
        by_ms: i64,
    ) -> std::result::Result<(), String> {
        clock.step(by_ms, &self.children.group(self.child))
    }

    /// Reads the new progress. Returns the durable bytes so far.
    pub(crate) fn durable_bytes(&mut self) -> u64 {
        self.feed.read(&self.output.log);
        self.feed.durable_bytes
    }

    /// Continues the process when the time has come. Returns the result of an ended process.
    pub(crate) fn tick(&mut self) -> Option<Ended> {
        if self.continues.is_some_and(|until| Instant::now() >= until) {
            self.children.signal(self.child, Signal::CONT);
            self.continues = None;
        }
        let status = self.children.ended(self.child)?;
        Some(self.ended(status))
    }

    fn ended(&mut self, status: ExitStatus) -> Ended {
        self.feed.read(&self.output.log);
        let report = report(&self.output.out);
        let number = |name: &str| report.as_ref().and_then(|report| report[name].as_u64());
        let durable = number("bytes").unwrap_or(0);
        Ended {
            code: status.code(),
            signal: status.signal(),
            seconds: self.began.elapsed().as_secs_f64(),
            durable_bytes: durable.max(self.feed.durable_bytes),
            sent_bytes: number("bytes_sent"),
            report,
            last_words: self.output.last_words(),
            is_killed: self.is_killed,
        }
    }
}

/// Returns the object in the last line of the output.
fn report(path: &Path) -> Option<Value> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    serde_json::from_str(last).ok().filter(Value::is_object)
}

/// The lines of `--progress json` that were read so far.
#[derive(Debug, Default)]
struct Feed {
    read_bytes: u64,
    line: Vec<u8>,
    durable_bytes: u64,
}

impl Feed {
    fn read(&mut self, path: &Path) {
        let Ok(mut file) = File::open(path) else {
            return;
        };
        let mut new = Vec::new();
        let skipped = file.seek(SeekFrom::Start(self.read_bytes));
        let read = skipped.and_then(|_| file.take(PIECE_BYTES).read_to_end(&mut new));
        // An unreadable log gives no progress. The copy then ends without it.
        self.read_bytes += read.unwrap_or(0) as u64;
        for byte in new {
            match byte {
                b'\n' => self.line_ended(),
                byte => self.line.push(byte),
            }
        }
    }

    fn line_ended(&mut self) {
        let line = std::mem::take(&mut self.line);
        let Ok(event) = serde_json::from_slice::<Value>(&line) else {
            return;
        };
        if event["event"] == "progress"
            && let Some(durable) = event["bytes_durable"].as_u64()
        {
            self.durable_bytes = self.durable_bytes.max(durable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Feed, report};

    #[test]
    fn the_feed_is_read_in_pieces_and_ignores_other_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut feed = Feed::default();
        feed.read(&path);
        let mut text =
            String::from("a note\n{\"event\":\"start\"}\n{\"event\":\"progress\",\"byte");
        std::fs::write(&path, &text).expect("written");
        feed.read(&path);
        assert_eq!(feed.durable_bytes, 0);
        text.push_str("s_durable\":70}\n{\"event\":\"progress\",\"bytes_durable\":60}\n");
        std::fs::write(&path, &text).expect("written");
        feed.read(&path);
        assert_eq!(feed.durable_bytes, 70);
    }

    #[test]
    fn the_report_is_the_last_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        std::fs::write(&path, "{\"a\":1}\n{\"bytes\":2}\n\n").expect("written");
        assert_eq!(report(&path).expect("an object")["bytes"], 2);
        std::fs::write(&path, "7\n").expect("written");
        assert!(report(&path).is_none());
    }
}

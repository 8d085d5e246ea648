//! The only module that writes to the terminal.
//!
//! A write error does not stop a transfer: the output is dropped. If a result cannot be written to
//! standard output, standard error and the exit code report that, except if the reader has closed
//! the pipe.

use dray_core::Error;
use dray_core::lock::LockExt;
use dray_core::url::drives_terminal;
use indicatif::ProgressBar;
use serde_json::json;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The progress bar on the screen, if there is one. Other lines are written above the bar.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// True if every line on standard error must be a JSON object.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// True if only errors are printed (--quiet).
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// True if results are not printed. `--quiet` sets it, except if `--json` asks for an object.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Set when a result could not be written, so that the exit code reports it.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// Returns true if a result could not be written to standard output.
pub(crate) fn is_missing() -> bool {
    IS_MISSING.load(Ordering::Relaxed)
}

fn note_missing(written: std::io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != std::io::ErrorKind::BrokenPipe && !IS_MISSING.swap(true, Ordering::Relaxed) {
        problem(&format!(
            "cannot write the output: {error}; redirect the output to a file system with free space"
        ));
    }
}

/// From this call on, writes only JSON objects to standard error.
pub(crate) fn set_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// From this call on, prints only errors, and with `json` also the objects of `--json`.
pub(crate) fn set_quiet(json: bool) {
    IS_QUIET.store(true, Ordering::Relaxed);
    IS_SILENT.store(!json, Ordering::Relaxed);
}

/// Sets the progress bar, above which all other lines are written. `None` removes the bar.
pub(crate) fn set_bar(bar: Option<ProgressBar>) {
    *BAR.lock_unpoisoned() = bar;
}

/// Writes a result: one line on standard output.
pub(crate) fn result(line: &str) {
    if IS_SILENT.load(Ordering::Relaxed) {
        return;
    }
    let mut out = std::io::stdout().lock();
    note_missing(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Writes text unchanged to standard output (help, completions, reference).
pub(crate) fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    note_missing(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Writes a note: one line on standard error. With `--quiet` the note is dropped.
pub(crate) fn note(line: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        problem(line);
    }
}

/// Writes an error: one line on standard error.
pub(crate) fn problem(line: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        json(&json!({"event": "note", "message": line}));
    } else {
        error_line(&one_line(&format!("dray: {line}")));
    }
}

/// Writes the message of an error.
pub(crate) fn complain(error: &Error) {
    problem(&error.to_string());
}

/// Writes an event for programs: one JSON object on a line of standard error.
pub(crate) fn json(object: &serde_json::Value) {
    error_line(&object.to_string());
}

fn error_line(line: &str) {
    let write = || {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    };
    let bar = BAR.lock_unpoisoned().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Escapes the characters of a text that could break the line or control the terminal. The text may
/// come from another host. All other characters are unchanged, including quotes and backslashes.
pub(crate) fn one_line(line: &str) -> String {
    if !line.chars().any(drives_terminal) {
        return line.to_owned();
    }
    let mut safe = String::with_capacity(line.len());
    for character in line.chars() {
        if drives_terminal(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_peer_cannot_drive_the_terminal() {
        assert_eq!(one_line("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(one_line("a\u{202e}b\u{2028}c"), "a\\u{202e}b\\u{2028}c");
        assert_eq!(one_line("plain \\ ü"), "plain \\ ü");
        assert_eq!(one_line("an \"endpoint's\""), "an \"endpoint's\"");
    }
}

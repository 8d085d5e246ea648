//! `dray log explain`: which ranges of an unfinished file the next run trusts, and why.

use super::{FoundLog, head, log_json};
use crate::output;
use crate::units::human;
use dray_core::{ByteRange, RelPath, Result};
use dray_log::LoggedFile;
use dray_runtime::sink::{FileVerdict, Outlook};
use serde_json::{Value, json};

/// Prints which ranges of each file of a log are trusted. Returns the JSON form.
///
/// # Errors
/// Errors of the store that has the partial files.
pub(super) fn explain(found: &FoundLog, is_json: bool) -> Result<Value> {
    if !is_json {
        for line in head(found) {
            output::result(&line);
        }
    }
    let mut files = Vec::new();
    for (path, file) in found.files() {
        let outlook = Outlook::of(found.store.as_ref(), path, &found.recovery, file)?;
        if is_json {
            files.push(in_json(&outlook, path, file));
        } else {
            lines(&outlook, path)
                .iter()
                .for_each(|line| output::result(line));
        }
    }
    Ok(log_json(found, files))
}

const fn word(verdict: FileVerdict) -> &'static str {
    match verdict {
        FileVerdict::Trusted => "trusted",
        FileVerdict::NotTrusted => "not trusted",
        FileVerdict::Refused => "refused",
    }
}

fn in_json(outlook: &Outlook, path: &RelPath, file: &LoggedFile) -> Value {
    let ranges = |ranges: &[ByteRange]| -> Vec<Value> {
        let ranges = ranges.iter();
        ranges
            .map(|range| json!({"offset": range.offset, "length": range.length}))
            .collect()
    };
    json!({
        "path": path.to_string(),
        "bytes": file.key.size,
        "bytes_logged": file.done.bytes(),
        "partial": file.partial.name.to_string(),
        "verdict": word(outlook.verdict),
        "why": outlook.why,
        "trusted": ranges(&outlook.trusted),
        "sent_again": ranges(&outlook.again),
    })
}

fn lines(outlook: &Outlook, path: &RelPath) -> Vec<String> {
    let verdict = word(outlook.verdict);
    let mut lines = vec![format!("  {path}: {verdict}: {}", outlook.why)];
    for (ranges, what) in [
        (&outlook.trusted, "trusted"),
        (&outlook.again, "sent by the source"),
    ] {
        for range in ranges {
            let (start, end) = (range.offset, range.end());
            let size = human(range.length);
            lines.push(format!("    bytes {start} to {end} ({size}): {what}"));
        }
    }
    lines
}

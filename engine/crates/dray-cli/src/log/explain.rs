//! `dray log explain`: which ranges of an unfinished file the next run trusts, and why.

use super::{FoundLog, head, log_json};
use crate::output;
use crate::units::human;
use dray_core::{ByteRange, LogForm, RelPath, Result};
use dray_log::trust::{Trusted, Verdict};
use dray_log::{LoggedFile, Recovery};
use dray_runtime::sink::judge_left;
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
        let recovery = &found.recovery;
        let verdict = judge_left(found.store.as_ref(), path, recovery, file)?;
        let told = Told::new(recovery, file, &verdict);
        if is_json {
            files.push(told.json(path, file));
        } else {
            told.lines(path)
                .iter()
                .for_each(|line| output::result(line));
        }
    }
    Ok(log_json(found, files))
}

/// The explanation of one file.
struct Told {
    verdict: &'static str,
    why: String,
    trusted: Vec<ByteRange>,
    /// Ranges that the source sends.
    again: Vec<ByteRange>,
}

impl Told {
    fn new(recovery: &Recovery, file: &LoggedFile, verdict: &Verdict) -> Self {
        let (verdict, why, trusted) = match verdict {
            Verdict::Trusted(trusted) => {
                let ranges = trusted.done.iter().map(|(range, _)| range).collect();
                ("trusted", reason(recovery, trusted), ranges)
            }
            Verdict::StartOver(error) => ("not trusted", error.cause.clone(), Vec::new()),
            Verdict::Refused(error) => ("refused", error.cause.clone(), Vec::new()),
        };
        Self {
            verdict,
            why,
            again: gaps(&trusted, file.key.size),
            trusted,
        }
    }

    fn json(&self, path: &RelPath, file: &LoggedFile) -> Value {
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
            "verdict": self.verdict,
            "why": self.why,
            "trusted": ranges(&self.trusted),
            "sent_again": ranges(&self.again),
        })
    }

    fn lines(&self, path: &RelPath) -> Vec<String> {
        let mut lines = vec![format!("  {path}: {}: {}", self.verdict, self.why)];
        for (ranges, what) in [
            (&self.trusted, "trusted"),
            (&self.again, "sent by the source"),
        ] {
            for range in ranges {
                let (start, end) = (range.offset, range.end());
                let size = human(range.length);
                lines.push(format!("    bytes {start} to {end} ({size}): {what}"));
            }
        }
        lines
    }
}

/// Returns the reason why ranges are trusted, and the steps of the sink before it uses them.
fn reason(recovery: &Recovery, trusted: &Trusted) -> String {
    let form: LogForm = recovery.header.form;
    if trusted.done.is_empty() {
        return "the log has no range of the file that counts".to_owned();
    }
    let logged = match (trusted.must_sync, form.has_sums) {
        (true, _) => "logged without a sync, and the host has not restarted since",
        (false, true) => "logged after a sync, and the partial file is the recorded one",
        (false, false) => "logged after a sync, and the host has not restarted since",
    };
    let next = match (trusted.is_doubtful, form.has_sums) {
        (true, _) => {
            "a write to the partial file has failed, so the next run copies the ranges that match \
                their checksums to a new partial file"
        }
        (false, true) => {
            "the next run reads them back and compares their checksums, except with --resume trust"
        }
        (false, false) => {
            "the log has no checksums, so the next run reads them back without a comparison"
        }
    };
    format!("{logged}; {next}")
}

/// Returns the ranges of a file of `size` bytes that are not in `ranges`, which ascend.
fn gaps(ranges: &[ByteRange], size: u64) -> Vec<ByteRange> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for range in ranges {
        if at < range.offset {
            gaps.push(ByteRange::between(at, range.offset));
        }
        at = range.end();
    }
    if at < size {
        gaps.push(ByteRange::between(at, size));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::gaps;
    use dray_core::ByteRange;

    #[test]
    fn gaps_and_ranges_make_the_whole_file() {
        let range = ByteRange::between;
        assert_eq!(gaps(&[], 9), [range(0, 9)]);
        assert_eq!(gaps(&[range(0, 9)], 9), []);
        assert_eq!(
            gaps(&[range(2, 4), range(4, 5), range(7, 8)], 9),
            [range(0, 2), range(5, 7), range(8, 9)]
        );
        assert_eq!(gaps(&[], 0), []);
    }
}

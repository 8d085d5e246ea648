//! `--trace`: writes the order in which objects are sent, as JSON lines.
//!
//! A local source writes `{"at_us", "file", "path", "bytes"}` for each listed file. When the source
//! passes an object to a stream, it writes `{"at_us", "object", "stream", "target", "parts":
//! [{"file", "offset", "length", "hole"}]}`. When an object arrives, a local sink writes the same
//! line without the field `stream`.

use dray_core::lock::LockExt;
use dray_core::{End, EntryKind, Error, ErrorKind, Result, StreamId};
use dray_session::source::Listed;
use dray_wire::message::{BlockHead, SegmentKind};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

/// Returns true if the path has a file that a trace must not replace. An empty file or an earlier
/// trace may be replaced.
fn is_something_else(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else {
        return false;
    };
    let mut begin = [0; 2];
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    is_file && matches!(file.read(&mut begin), Ok(1..) if begin != *b"{\"")
}

/// A trace in progress. Write errors are ignored, because a trace must not make a transfer fail.
pub(crate) struct Trace {
    began: Instant,
    file: Mutex<BufWriter<File>>,
}

impl Trace {
    /// Starts a trace in the file `path`. Replaces an empty file or an earlier trace.
    ///
    /// # Errors
    /// If the file cannot be created, or contains other data.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let refused = |cause: String| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "write the trace")
                .cause(format!("{}: {cause}", path.display()))
                .remedy("choose another file for --trace")
        };
        if is_something_else(path) {
            return Err(refused("the file exists and is not a trace".to_owned()));
        }
        let file = File::create(path).map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            began: Instant::now(),
            file: Mutex::new(BufWriter::new(file)),
        })
    }

    fn write(&self, mut line: serde_json::Value) {
        line["at_us"] = json!(self.began.elapsed().as_micros() as u64);
        let mut file = self.file.lock_unpoisoned();
        let _ = writeln!(file, "{line}");
    }

    pub(crate) fn listed(&self, entries: &[Listed]) {
        for listed in entries {
            if let EntryKind::File { size, .. } = listed.entry.kind {
                let path = listed.path.to_string();
                self.write(json!({"file": listed.entry.index.0, "path": path, "bytes": size}));
            }
        }
    }

    pub(crate) fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        let parts: Vec<_> = head
            .segments
            .iter()
            .map(|part| {
                json!({
                    "file": part.file.0,
                    "offset": part.range.offset,
                    "length": part.range.length,
                    "hole": part.kind == SegmentKind::Hole,
                })
            })
            .collect();
        self.write(json!({
            "object": head.id.0,
            "stream": stream.map(|stream| stream.0),
            "target": head.target.0,
            "parts": parts,
        }));
    }

    /// Writes the buffered lines.
    pub(crate) fn finish(&self) {
        let mut file = self.file.lock_unpoisoned();
        let _ = file.flush();
    }
}

//! Reports each call of a store: operation, file, byte range, time, duration and outcome.

use super::{Call, Hook};
use dray_core::Error;
use dray_core::lock::LockExt;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A call of a store that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// The call that ended.
    pub call: Call<'a>,
    /// Time at which the call started, since the start of the trace.
    pub at: Duration,
    /// Duration of the call.
    pub took: Duration,
    /// Error of the call; `None` if the call succeeded.
    pub error: Option<&'a Error>,
}

/// Function that receives the events. It runs on the thread that made the call.
pub type TraceSink = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// A hook that reports calls.
pub struct Trace {
    began: Instant,
    sink: TraceSink,
}

impl Trace {
    /// Creates a hook that reports calls to `sink`. The trace starts now.
    #[must_use]
    pub fn new(sink: TraceSink) -> Self {
        Self {
            began: Instant::now(),
            sink,
        }
    }
}

impl Hook for Trace {
    const WANTS_AFTER: bool = true;

    fn after(&self, call: &Call<'_>, error: Option<&Error>, started: Instant, took: Duration) {
        (self.sink)(&Event {
            call: *call,
            at: started.saturating_duration_since(self.began),
            took,
            error,
        });
    }
}

/// Returns a [`TraceSink`] that writes one JSON object per line with the fields `at_us`, `took_us`,
/// `operation`, `path`, and, if known, `offset`, `length`, `error`. Write errors are ignored.
#[must_use]
pub fn json_lines(writer: impl Write + Send + 'static) -> TraceSink {
    let writer = Mutex::new(writer);
    Arc::new(move |event| {
        let call = &event.call;
        let mut line = serde_json::json!({
            "at_us": event.at.as_micros() as u64,
            "took_us": event.took.as_micros() as u64,
            "operation": call.operation.name(),
            "path": call.path.to_string(),
        });
        if !call.range.is_empty() {
            line["offset"] = call.range.offset.into();
            line["length"] = call.range.length.into();
        }
        if let Some(error) = event.error {
            line["error"] = error.to_string().into();
        }
        let mut writer = writer.lock_unpoisoned();
        // Write each line with one call, so that lines of several threads do not mix. Ignore
        // errors, because a trace must not make a transfer fail.
        let _ = writer.write_all(format!("{line}\n").as_bytes());
    })
}

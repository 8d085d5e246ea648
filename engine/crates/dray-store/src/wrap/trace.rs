//! Reports each call: operation, file, byte range, time, duration and outcome.

use super::{Call, Hook};
use dray_core::Error;
use dray_core::lock::LockExt;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One completed call.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// The call.
    pub call: Call<'a>,
    /// Time since the trace began.
    pub at: Duration,
    /// Duration of the call.
    pub took: Duration,
    /// Error of the call, if it failed.
    pub error: Option<&'a Error>,
}

/// Receives the events on the thread that made the call.
pub type TraceSink = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The hook.
pub struct Trace {
    began: Instant,
    sink: TraceSink,
}

impl Trace {
    /// Returns a trace that reports to `sink`, with times from now on.
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

/// Returns a sink that writes one JSON object per line: `at_us`, `took_us`, `operation`, `path`,
/// and where present `offset`, `length`, `error`. Write errors are ignored.
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
        // One write per line keeps lines whole; a trace must not fail a transfer.
        let _ = writer.write_all(format!("{line}\n").as_bytes());
    })
}

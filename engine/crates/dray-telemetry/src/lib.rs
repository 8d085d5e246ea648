//! Spans of transfers in the form of OpenTelemetry, and their export to a collector by OTLP over
//! HTTP.
//!
//! Non-goals: metrics and logs; the files of `dray cp --trace`, which contain the order of objects.
//!
//! Invariant of this crate: a call on a span never waits for the collector. If the queue is full,
//! the span is dropped and counted.

mod data;
mod export;
mod otlp;
mod session;
mod settings;
mod span;

pub use data::{Kind, Value};
pub use export::{Counts, QUEUE_MAX};
pub use session::{SessionSpans, Traced};
pub use settings::{Sampler, Settings};
pub use span::{Span, Telemetry};

//! The maker of spans, and a span: an operation with its begin, its end, its attributes and its
//! place in a trace.

use crate::data::{Ended, Kind, Value};
use crate::export::{Counts, Queue};
use crate::settings::{Sampler, Settings};
use dray_core::{Error, Result, TraceContext};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Maximum number of attributes of a span. Further attributes are dropped.
const ATTRIBUTES_MAX: usize = 32;

struct Exporter {
    queue: Queue,
    sampler: Sampler,
    random: SystemRandom,
}

/// Creates spans, and exports them if there is a collector. Clones share the exporter.
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<Exporter>>);

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Telemetry({})", if self.is_on() { "on" } else { "off" })
    }
}

impl Telemetry {
    /// Returns a value that exports nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Starts the thread that sends spans to the collector. The thread calls `tell` once when the
    /// collector stops accepting spans, and once when it accepts spans again.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub fn start(settings: Settings, tell: impl Fn(&str) + Send + 'static) -> Result<Self> {
        let sampler = settings.sampler;
        let queue = Queue::start(settings, tell)?;
        Ok(Self(Some(Arc::new(Exporter {
            queue,
            sampler,
            random: SystemRandom::new(),
        }))))
    }

    /// Returns true if spans are exported.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span. Without `parent`, the span begins a trace.
    #[must_use]
    pub fn span(&self, name: &'static str, kind: Kind, parent: Option<TraceContext>) -> Span {
        let context = self.0.as_ref().and_then(|exporter| exporter.next(parent));
        let Some(context) = context else {
            return Span::silent(self, parent);
        };
        let now = SystemTime::now();
        let open = Ended {
            context,
            parent: parent.map(|parent| parent.span),
            name,
            kind,
            began: now,
            ended: now,
            attributes: Vec::new(),
            is_failed: false,
        };
        Span::open(self, open)
    }

    fn pass(&self, span: Ended) {
        if let Some(exporter) = &self.0 {
            exporter.queue.pass(span);
        }
    }

    /// Returns the numbers of exported and dropped spans.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let exporter = self.0.as_ref();
        exporter.map_or_else(Counts::default, |exporter| exporter.queue.counts())
    }

    /// Sends the waiting spans and ends the thread. Waits at most `patience`; spans that are not
    /// sent by then are lost.
    pub fn finish(&self, patience: Duration) {
        if let Some(exporter) = &self.0 {
            exporter.queue.finish(patience);
        }
    }
}

impl Exporter {
    /// Returns the context of the next span. `None` if the system provides no random bytes.
    fn next(&self, parent: Option<TraceContext>) -> Option<TraceContext> {
        let mut span = [0; 8];
        self.random.fill(&mut span).ok()?;
        let trace = match parent {
            Some(parent) => parent.trace,
            None => {
                let mut trace = [0; 16];
                self.random.fill(&mut trace).ok()?;
                trace
            }
        };
        // All zero is not valid, and practically never drawn.
        let is_valid = trace != [0; 16] && span != [0; 8];
        let is_sampled = match parent {
            Some(parent) if self.sampler.follows_parent => parent.is_sampled,
            _ => is_chosen(&trace, self.sampler.ratio),
        };
        is_valid.then_some(TraceContext {
            trace,
            span,
            is_sampled,
        })
    }
}

/// Returns true for a fraction `ratio` of all traces. All programs that use the last 56 bits of the
/// trace for the choice choose the same traces (W3C Trace Context Level 2, "Random Trace ID Flag").
fn is_chosen(trace: &[u8; 16], ratio: f64) -> bool {
    const BITS: u32 = 56;
    let number = trace
        .iter()
        .skip(9)
        .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    ratio >= 1.0 || (number as f64) < ratio * (1_u64 << BITS) as f64
}

/// A span in progress. It is exported only if [`Span::end`] is called, and only if its trace is
/// recorded.
#[derive(Debug)]
pub struct Span {
    telemetry: Telemetry,
    /// Context of the caller, which [`Span::context`] returns if nothing is exported.
    above: Option<TraceContext>,
    open: Option<Ended>,
}

impl Span {
    /// Returns a span that is not exported. Its context is `above`.
    fn silent(telemetry: &Telemetry, above: Option<TraceContext>) -> Self {
        Self {
            telemetry: telemetry.clone(),
            above,
            open: None,
        }
    }

    fn open(telemetry: &Telemetry, open: Ended) -> Self {
        Self {
            telemetry: telemetry.clone(),
            above: None,
            open: Some(open),
        }
    }

    /// Returns the context for the parts of this operation, also in other processes. Without an
    /// exporter, this is the context of the caller, so that a trace passes through this process.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.open.as_ref().map(|open| open.context).or(self.above)
    }

    /// Begins a part of this operation.
    #[must_use]
    pub fn child(&self, name: &'static str, kind: Kind) -> Self {
        self.telemetry.span(name, kind, self.context())
    }

    /// Sets the begin of the span.
    #[must_use]
    pub fn since(mut self, began: SystemTime) -> Self {
        if let Some(open) = &mut self.open {
            open.began = began;
        }
        self
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.open
            && open.attributes.len() < ATTRIBUTES_MAX
        {
            open.attributes.push((key, value.into()));
        }
    }

    /// Marks the operation as failed, with the kind of the error (`error.type` of the semantic
    /// conventions). The text of the error stays in the record of the transfer, because it may
    /// contain names of files.
    pub fn fail(&mut self, error: &Error) {
        let kind = serde_json::to_value(error.kind).ok();
        let kind = kind.as_ref().and_then(serde_json::Value::as_str);
        self.set("error.type", kind.unwrap_or("other"));
        if let Some(open) = &mut self.open {
            open.is_failed = true;
        }
    }

    /// Ends the span now, and passes it to the exporter.
    pub fn end(self) {
        self.end_at(SystemTime::now());
    }

    /// Ends the span at a time, and passes it to the exporter.
    pub fn end_at(self, at: SystemTime) {
        if let Some(mut open) = self.open
            && open.context.is_sampled
        {
            open.ended = at.max(open.began);
            self.telemetry.pass(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Telemetry, is_chosen};
    use crate::export::{BATCH_MAX, QUEUE_MAX};
    use crate::{Kind, Settings};
    use dray_core::TraceContext;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    fn started(url: &str) -> Telemetry {
        let settings = Settings::of(Some(url), "test", |_| None);
        let settings = settings.expect("valid").expect("on");
        Telemetry::start(settings, |_| {}).expect("a thread")
    }

    #[test]
    fn a_full_queue_drops_spans_and_never_waits() {
        // A collector that accepts connections and never answers.
        let collector = TcpListener::bind("127.0.0.1:0").expect("a port");
        let telemetry = started(&format!(
            "http://{}",
            collector.local_addr().expect("bound")
        ));
        let began = Instant::now();
        let more = 1_000 + BATCH_MAX as u64;
        for _ in 0..QUEUE_MAX as u64 + more {
            telemetry.span("x", Kind::Internal, None).end();
        }
        assert!(began.elapsed() < Duration::from_secs(3));
        let counts = telemetry.counts();
        assert_eq!(counts.exported, 0);
        assert!((1_000 - 1..=more).contains(&counts.dropped), "{counts:?}");
        let began = Instant::now();
        telemetry.finish(Duration::from_millis(100));
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_trace_passes_through_a_program_that_exports_nothing() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let caller = TraceContext::parse(text);
        let off = Telemetry::off();
        assert_eq!(off.span("x", Kind::Server, caller).context(), caller);
        assert_eq!(off.span("x", Kind::Server, None).context(), None);
    }

    #[test]
    fn a_span_is_recorded_if_its_parent_is() {
        let telemetry = started("http://127.0.0.1:9");
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let caller = TraceContext::parse(text);
        let span = telemetry.span("x", Kind::Server, caller);
        let own = span.context().expect("a context");
        assert_eq!(Some(own.trace), caller.map(|caller| caller.trace));
        assert_ne!(Some(own.span), caller.map(|caller| caller.span));
        assert!(!own.is_sampled);
        let child = span
            .child("y", Kind::Internal)
            .context()
            .expect("a context");
        assert!(!child.is_sampled && child.trace == own.trace && child.span != own.span);
        let root = telemetry.span("x", Kind::Server, None).context();
        assert!(root.is_some_and(|root| root.is_sampled));
        telemetry.finish(Duration::ZERO);
    }

    #[test]
    fn the_ratio_chooses_a_fraction_of_the_traces() {
        let chosen = (0..=255_u8).filter(|byte| {
            let mut trace = [7; 16];
            trace[9] = *byte;
            is_chosen(&trace, 0.25)
        });
        assert_eq!(chosen.count(), 64);
        assert!(is_chosen(&[0xff; 16], 1.0) && !is_chosen(&[0; 16], 0.0));
    }
}

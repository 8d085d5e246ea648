//! The spans of one session, derived from the reports of an [`Observer`].
//!
//! A session may move a million objects, so no object and no file has a span of its own. Each span
//! `objects` covers a window of time. The windows become longer, so their number grows with the
//! logarithm of the session's duration.

use crate::data::{Kind, Value};
use crate::span::{Span, Telemetry};
use dray_core::lock::LockExt;
use dray_core::{End, Error, Result, StreamId, TraceContext};
use dray_runtime::drive::Watch;
use dray_runtime::observe::{Observer, TargetLoad};
use dray_session::source::Listed;
use dray_session::{Event, Progress, UnderWay};
use dray_wire::message::{BlockHead, Totals};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Duration of the first windows.
const WINDOW: Duration = Duration::from_secs(1);

/// Number of windows after which the duration of the windows doubles. A session of a day has about
/// two hundred windows.
const WINDOWS_OF_A_LENGTH: u32 = 16;

/// The time from the first to the last of several operations, with a sum over all of them.
#[derive(Clone, Copy)]
struct Stretch {
    began: SystemTime,
    last: SystemTime,
    sum: u64,
}

impl Stretch {
    fn add(this: &mut Option<Self>, sum: u64) {
        let now = SystemTime::now();
        let stretch = this.get_or_insert(Self {
            began: now,
            last: now,
            sum: 0,
        });
        stretch.last = now;
        stretch.sum = stretch.sum.saturating_add(sum);
    }
}

/// The window of the present span `objects`.
struct Window {
    began: SystemTime,
    opened: Instant,
    length: Duration,
    count: u32,
    base: Progress,
}

impl Window {
    fn new() -> Self {
        Self {
            began: SystemTime::now(),
            opened: Instant::now(),
            length: WINDOW,
            count: 0,
            base: Progress::default(),
        }
    }
}

struct State {
    session: Span,
    handshake: Option<Span>,
    enumeration: Option<Span>,
    window: Window,
    published: Option<Stretch>,
    verified: Option<Stretch>,
    last: Progress,
    targets: Vec<String>,
    /// Number of the session, once the driver has reported it.
    number: Option<u32>,
}

/// The spans of the sessions of one transfer, one session after the other.
pub struct SessionSpans {
    telemetry: Telemetry,
    parent: Option<TraceContext>,
    kind: Kind,
    attributes: Vec<(&'static str, Value)>,
    /// True if the sink runs in this process. Only the sink publishes and reads back.
    has_sink: bool,
    state: Mutex<State>,
}

impl SessionSpans {
    /// Begins the span of a session. `attributes` are those of every session of the transfer.
    #[must_use]
    pub fn begin(
        telemetry: &Telemetry,
        parent: Option<TraceContext>,
        kind: Kind,
        has_sink: bool,
        attributes: Vec<(&'static str, Value)>,
    ) -> Self {
        let state = State::begin(telemetry, parent, kind, &attributes);
        Self {
            telemetry: telemetry.clone(),
            parent,
            kind,
            attributes,
            has_sink,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }

    /// Returns the context of the present session.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        self.state().session.context()
    }

    /// Begins a part of the present session.
    #[must_use]
    pub fn child(&self, name: &'static str) -> Span {
        self.state().session.child(name, Kind::Internal)
    }

    /// Ends the present session. Its counters are those of its last report. The final counters of a
    /// driver are sums over all sessions, so they do not fit the span of one session.
    pub fn end(&self, error: Option<&Error>) {
        let next = State::begin(&Telemetry::off(), None, self.kind, &[]);
        let ended = std::mem::replace(&mut *self.state(), next);
        ended.end(error, self.has_sink);
    }

    /// Begins the span of the session `number`. The first session has already begun.
    fn session(&self, number: u32) {
        let mut state = self.state();
        if state.number.is_some() {
            *state = State::begin(&self.telemetry, self.parent, self.kind, &self.attributes);
        }
        state.number = Some(number);
        state.session.set("dray.session.number", number);
        state.handshake = Some(state.session.child("handshake", Kind::Internal));
        state.enumeration = None;
    }

    fn connected(&self) {
        let mut state = self.state();
        if let Some(handshake) = state.handshake.take() {
            handshake.end();
        }
        state.enumeration = Some(state.session.child("enumeration", Kind::Internal));
        state.window.began = SystemTime::now();
        state.window.opened = Instant::now();
    }

    fn lost(&self, error: &Error) {
        self.end(Some(error));
        // The next call of `session` replaces this state.
        self.state().number = Some(0);
    }

    fn progress(&self, progress: &Progress) {
        self.state().progress(progress);
    }

    fn event(&self, event: &Event) {
        if let (Event::FileDone { .. }, true) = (event, self.has_sink) {
            Stretch::add(&mut self.state().published, 1);
        }
    }

    fn targets(&self, targets: &[TargetLoad]) {
        let mut state = self.state();
        for target in targets {
            if state.targets.len() < 8 && !state.targets.contains(&target.name) {
                state.targets.push(target.name.clone());
            }
        }
    }
}

impl State {
    fn begin(
        telemetry: &Telemetry,
        parent: Option<TraceContext>,
        kind: Kind,
        attributes: &[(&'static str, Value)],
    ) -> Self {
        let mut session = telemetry.span("session", kind, parent);
        for (key, value) in attributes {
            session.set(key, value.clone());
        }
        Self {
            handshake: None,
            enumeration: Some(session.child("enumeration", Kind::Internal)),
            session,
            window: Window::new(),
            published: None,
            verified: None,
            last: Progress::default(),
            targets: Vec::new(),
            number: None,
        }
    }

    fn progress(&mut self, progress: &Progress) {
        if progress.listing_done
            && let Some(mut enumeration) = self.enumeration.take()
        {
            enumeration.set("dray.files", progress.files_listed);
            enumeration.set("dray.bytes", progress.bytes_listed);
            enumeration.end();
        }
        let read_back = (progress.bytes_read_back).saturating_sub(self.last.bytes_read_back);
        if read_back > 0 {
            Stretch::add(&mut self.verified, read_back);
        }
        self.last = *progress;
        if self.window.opened.elapsed() >= self.window.length {
            self.close_window(progress);
        }
    }

    /// Ends the present window. Windows in which nothing moved have no span.
    fn close_window(&mut self, progress: &Progress) {
        let base = self.window.base;
        let window = &mut self.window;
        let now = SystemTime::now();
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let durable = since(progress.bytes_durable, base.bytes_durable);
        let numbers = [
            (
                "dray.bytes.sent",
                since(progress.bytes_sent, base.bytes_sent),
            ),
            (
                "dray.bytes.read",
                since(progress.bytes_read, base.bytes_read),
            ),
            (
                "dray.bytes.written",
                since(progress.bytes_written, base.bytes_written),
            ),
            ("dray.bytes.durable", durable),
            (
                "dray.objects.sent",
                since(progress.objects_sent, base.objects_sent),
            ),
            (
                "dray.log.commits",
                since(progress.log_commits, base.log_commits),
            ),
        ];
        if numbers.iter().any(|(_, number)| *number > 0) {
            let objects = self.session.child("objects", Kind::Internal);
            let mut objects = objects.since(window.began);
            for (key, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
                objects.set(key, number);
            }
            if !self.targets.is_empty() {
                objects.set("dray.targets", self.targets.as_slice());
            }
            objects.end_at(now);
            window.count += 1;
            if window.count.is_multiple_of(WINDOWS_OF_A_LENGTH) {
                window.length = window.length.saturating_mul(2);
            }
        }
        window.began = now;
        window.opened = Instant::now();
        window.base = *progress;
    }

    fn end(mut self, error: Option<&Error>, has_sink: bool) {
        let progress = self.last;
        self.close_window(&progress);
        for span in [self.handshake.take(), self.enumeration.take()] {
            if let (Some(mut span), Some(error)) = (span, error) {
                span.fail(error);
                span.end();
            }
        }
        for (name, key, stretch) in [
            ("publish", "dray.files", self.published),
            ("verification", "dray.bytes", self.verified),
        ] {
            if let Some(stretch) = stretch {
                let span = self.session.child(name, Kind::Internal);
                let mut span = span.since(stretch.began);
                span.set(key, stretch.sum);
                span.end_at(stretch.last);
            }
        }
        let session = &mut self.session;
        session.set("dray.files.done", progress.files_done);
        session.set("dray.files.failed", progress.files_failed);
        session.set("dray.bytes.durable", progress.bytes_safe());
        session.set("dray.bytes.resumed", progress.bytes_resumed);
        if has_sink {
            session.set("dray.objects.corrupt", progress.objects_corrupt);
        } else {
            session.set("dray.bytes.sent", progress.bytes_sent);
        }
        if let Some(error) = error {
            session.fail(error);
        }
        self.session.end();
    }
}

/// Passes on the reports of a session, and derives its spans.
pub struct Traced<'a, O: ?Sized> {
    /// The observer that gets the reports.
    pub inner: &'a O,
    /// The spans of the session.
    pub spans: &'a SessionSpans,
}

impl<O: Observer + ?Sized> Observer for Traced<'_, O> {
    fn event(&self, event: &Event) {
        self.spans.event(event);
        self.inner.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.spans.progress(progress);
        self.inner.progress(progress);
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.spans.targets(targets);
        self.inner.targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.inner.wants_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.inner.under_way(end, found);
    }

    fn listed(&self, entries: &[Listed]) {
        self.inner.listed(entries);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        self.inner.object(stream, head);
    }

    fn store_verdict(&self, totals: &Totals) -> Result<()> {
        self.inner.store_verdict(totals)
    }
}

impl<O: Watch + ?Sized> Watch for Traced<'_, O> {
    fn session(&self, number: u32) {
        self.spans.session(number);
        self.inner.session(number);
    }

    fn connected(&self) {
        self.spans.connected();
        self.inner.connected();
    }

    fn trace(&self) -> Option<TraceContext> {
        self.spans.context()
    }

    fn trying_again(&self, error: Error) {
        self.spans.lost(&error);
        self.inner.trying_again(error);
    }
}

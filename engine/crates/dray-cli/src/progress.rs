//! Progress of a running transfer on standard error: a bar, plain lines, or JSON lines.
//!
//! The event loop only stores counters and queues events. One thread of this module draws. The
//! queue is bounded, so a slow reader of JSON lines delays the transfer, but gets every event.

mod rate;
mod view;

use crate::args::{Say, Show};
use crate::output;
use crate::report::{Collected, KEPT_MAX};
use crate::trace::Trace;
use dray_core::lock::LockExt;
use dray_core::{Error, RelPath, StreamId, Sums, TransferId};
use dray_link::threads::refused;
use dray_runtime::drive::Watch;
use dray_runtime::observe::Observer;
use dray_session::source::Listed;
use dray_session::{Event, Failure, Progress};
use dray_wire::message::BlockHead;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rate::{Rate, Silence};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use view::View;

/// Maximum number of events that wait for the drawing thread.
const QUEUE_MAX: usize = 1 << 14;

/// Interval between two updates of the bar.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two JSON lines.
const JSON_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two plain lines.
const LINES_INTERVAL: Duration = Duration::from_secs(5);

enum Line {
    Done(RelPath, u64, Option<Sums>),
    Failed(Failure),
    Notice(Error),
}

#[derive(Default)]
struct FeedState {
    progress: Progress,
    collected: Collected,
}

/// Observes a transfer and shows its progress.
pub(crate) struct Feed {
    shared: Arc<Mutex<FeedState>>,
    queue: SyncSender<Line>,
    drawer: JoinHandle<()>,
    trace: Option<Trace>,
    /// True if completed files are not shown.
    quiet_files: bool,
}

impl Feed {
    /// Starts the drawing thread.
    ///
    /// # Errors
    /// If the trace cannot be written, or if the system refuses the thread.
    pub(crate) fn start(say: &Say) -> Result<Self, Error> {
        let trace = say.trace.as_deref().map(Trace::create).transpose()?;
        let show = match say.progress {
            _ if say.quiet => Show::None,
            Show::Auto if std::io::stderr().is_terminal() => Show::Bar,
            Show::Auto => Show::Lines,
            other => other,
        };
        if show == Show::Json {
            output::set_json();
        }
        let shared = Arc::new(Mutex::new(FeedState::default()));
        let (queue, lines) = sync_channel(QUEUE_MAX);
        let drawer = Drawer::new(show, say.quiet, Arc::clone(&shared));
        let drawer = std::thread::Builder::new().spawn(move || drawer.run(&lines));
        Ok(Self {
            shared,
            queue,
            drawer: drawer.map_err(|error| refused(&error))?,
            trace,
            quiet_files: show != Show::Json,
        })
    }

    /// Prints the id of the transfer. Called once.
    pub(crate) fn began(&self, transfer: &TransferId) {
        match self.quiet_files {
            true => output::note(&format!("transfer {transfer}")),
            false => output::json(&json!({"event": "start", "transfer_id": transfer.as_str()})),
        }
    }

    /// Resets the counters for a new try, which sends the failed files again.
    fn restart(&self) {
        let mut shared = self.shared.lock_unpoisoned();
        shared.progress = Progress::default();
        shared.collected.failures.clear();
        shared.collected.failures_total = 0;
    }

    /// Reports a notice that does not come from a state machine.
    fn notice(&self, error: Error) {
        self.event(&Event::Notice(error));
    }

    /// Returns a function that reads the current counters and results. Any thread may call it.
    pub(crate) fn so_far(&self) -> impl Fn() -> (Progress, Collected) + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let shared = shared.lock_unpoisoned();
            (shared.progress, shared.collected.clone())
        }
    }

    /// Stops the drawing thread and returns the results.
    pub(crate) fn finish(self) -> Collected {
        drop(self.queue);
        let _ = self.drawer.join();
        if let Some(trace) = &self.trace {
            trace.finish();
        }
        let mut shared = self.shared.lock_unpoisoned();
        std::mem::take(&mut shared.collected)
    }
}

impl Watch for Feed {
    fn session(&self, _number: u32) {
        self.restart();
    }

    fn trying_again(&self, error: Error) {
        self.notice(error);
    }
}

impl Observer for Feed {
    fn event(&self, event: &Event) {
        let line = match event {
            Event::FileDone { .. } if self.quiet_files => return,
            Event::FileDone { path, size, sums } => Line::Done(path.clone(), *size, *sums),
            Event::Failed(failure) => {
                let mut shared = self.shared.lock_unpoisoned();
                let collected = &mut shared.collected;
                collected.failures_total += 1;
                if collected.failures.len() < KEPT_MAX {
                    collected.failures.push(failure.clone());
                }
                Line::Failed(failure.clone())
            }
            Event::Notice(error) => {
                let mut shared = self.shared.lock_unpoisoned();
                if shared.collected.notices.len() < KEPT_MAX {
                    shared.collected.notices.push(error.clone());
                }
                Line::Notice(error.clone())
            }
        };
        // Sending fails only if the drawing thread has ended. The line is then dropped.
        let _ = self.queue.send(line);
    }

    fn progress(&self, progress: &Progress) {
        let mut shared = self.shared.lock_unpoisoned();
        shared.progress = *progress;
    }

    fn listed(&self, entries: &[Listed]) {
        if let Some(trace) = &self.trace {
            trace.listed(entries);
        }
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        if let Some(trace) = &self.trace {
            trace.object(stream, head);
        }
    }
}

struct Drawer {
    show: Show,
    quiet: bool,
    shared: Arc<Mutex<FeedState>>,
    bar: Option<ProgressBar>,
    began: Instant,
    rate: Rate,
    silence: Silence,
    failures: u64,
}

impl Drawer {
    fn new(show: Show, quiet: bool, shared: Arc<Mutex<FeedState>>) -> Self {
        let bar = (show == Show::Bar).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
                bar.set_style(style);
            }
            output::set_bar(Some(bar.clone()));
            bar
        });
        Self {
            show,
            quiet,
            shared,
            bar,
            began: Instant::now(),
            rate: Rate::default(),
            silence: Silence::default(),
            failures: 0,
        }
    }

    fn run(mut self, lines: &Receiver<Line>) {
        let interval = match self.show {
            Show::Json => JSON_INTERVAL,
            Show::Lines => LINES_INTERVAL,
            Show::Bar | Show::Auto | Show::None => BAR_INTERVAL,
        };
        let mut next_draw = self.began + interval;
        let mut next_sample = self.began;
        loop {
            let next = next_draw.min(next_sample);
            match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(line) => self.say(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Instant::now();
            if now >= next_sample {
                next_sample = now + BAR_INTERVAL;
                self.sample(now);
            }
            if now >= next_draw {
                next_draw = now + interval;
                self.draw();
            }
        }
        if self.show == Show::Json {
            self.sample(Instant::now());
            self.draw();
        }
        output::set_bar(None);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.failures > KEPT_MAX as u64 && self.show != Show::Json {
            let more = self.failures - KEPT_MAX as u64;
            output::problem(&format!("{more} more files failed"));
        }
    }

    fn say(&mut self, line: Line) {
        match (self.show, line) {
            (Show::Json, line) => output::json(&json_of(&line)),
            (_, Line::Failed(failure)) => {
                self.failures += 1;
                if self.failures <= KEPT_MAX as u64 {
                    output::problem(&failure.error.to_string());
                }
            }
            (_, Line::Notice(error)) if !self.quiet => {
                output::note(&format!("note: {error}"));
            }
            (_, Line::Notice(_) | Line::Done(..)) => {}
        }
    }

    fn progress(&self) -> Progress {
        let shared = self.shared.lock_unpoisoned();
        shared.progress
    }

    fn sample(&mut self, now: Instant) {
        let progress = self.progress();
        self.rate.add(now, moved(&progress), progress.profile);
        self.silence.observe(now, &progress);
    }

    fn draw(&mut self) {
        let progress = self.progress();
        let view = View {
            progress,
            rate: self.rate.bytes_per_second(),
            bottleneck: self.rate.profile().bottleneck(),
            silent_seconds: self.silence.seconds(),
        };
        match self.show {
            Show::Json => {
                output::json(&view.json(self.began.elapsed().as_secs_f64()));
            }
            Show::Lines => output::note(&view.words()),
            Show::Bar => {
                if let Some(bar) = &self.bar {
                    bar.set_length(progress.bytes_listed.max(1));
                    bar.set_position(progress.bytes_durable);
                    bar.set_message(view.words());
                }
            }
            Show::Auto | Show::None => {}
        }
    }
}

/// Returns the number of bytes that this run made durable. A rate must not include the bytes of an
/// earlier run.
fn moved(progress: &Progress) -> u64 {
    progress
        .bytes_durable
        .saturating_sub(progress.bytes_resumed)
}

fn json_of(line: &Line) -> serde_json::Value {
    match line {
        Line::Done(path, size, sums) => {
            let mut object = json!({
                "event": "file", "state": "done", "path": path.to_string(), "bytes": size,
            });
            if let Some(sums) = sums {
                object["crc32c"] = json!(format!("{:08x}", sums.crc32c));
                object["adler32"] = json!(format!("{:08x}", sums.adler32));
            }
            object
        }
        Line::Failed(failure) => {
            let mut object = crate::report::failure(failure);
            object["event"] = json!("file");
            object["state"] = json!("failed");
            object
        }
        Line::Notice(error) => json!({
            "event": "notice", "kind": error.kind, "message": error.to_string(),
        }),
    }
}

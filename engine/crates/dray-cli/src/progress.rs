//! Progress of a running transfer on standard error: a bar, plain lines, or JSON lines.
//!
//! The thread of the executor only stores counters and queues events. One thread of this module
//! draws. The queue is bounded, so a slow reader of JSON lines delays the transfer, but gets every
//! event.

use crate::args::{Say, Show};
use crate::output;
use crate::report::{Collected, KEPT_MAX, held_up_by};
use crate::trace::Trace;
use crate::units::{duration, human};
use dray_core::lock::LockExt;
use dray_core::profile::{Profile, Stage, Times};
use dray_core::{Error, RelPath, StreamId, Sums, TransferId};
use dray_link::threads::refused;
use dray_runtime::drive::Watch;
use dray_runtime::observe::Observer;
use dray_session::source::Listed;
use dray_session::{Event, Failure, Progress};
use dray_wire::message::BlockHead;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of events that wait for the drawing thread.
const QUEUE_MAX: usize = 1 << 14;

/// Number of seconds without moved bytes after which a transfer counts as silent. A sync group
/// usually takes less time (guess, revisit).
const SILENT_SECONDS: u64 = 10;

/// Time over which a rate is measured. It spans several sync groups, and is short enough to show a
/// change (guess, revisit).
const WINDOW: Duration = Duration::from_secs(10);

/// Interval between two updates of each kind of display.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
const JSON_INTERVAL: Duration = Duration::from_secs(1);
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
    /// If the trace cannot be written.
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
    stood: Stood,
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
            stood: Stood::default(),
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
        self.stood.look(now, &progress);
    }

    fn draw(&mut self) {
        let progress = self.progress();
        let view = View {
            progress,
            rate: self.rate.bytes_per_second(),
            bottleneck: self.rate.profile().bottleneck(),
            silent_seconds: self.stood.seconds(),
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

struct View {
    progress: Progress,
    rate: u64,
    /// Bottleneck during the last window.
    bottleneck: Option<Stage>,
    /// Number of seconds since bytes last moved, if the transfer is silent.
    silent_seconds: Option<u64>,
}

impl View {
    /// Returns the number of listed files that are neither done nor failed. More files may follow
    /// while the listing is incomplete.
    fn files_remaining(&self) -> u64 {
        let ended = self.progress.files_done + self.progress.files_failed;
        self.progress.files_listed.saturating_sub(ended)
    }

    fn bytes_remaining(&self) -> u64 {
        let progress = &self.progress;
        progress.bytes_listed.saturating_sub(progress.bytes_durable)
    }

    fn eta_seconds(&self) -> Option<u64> {
        // A silent transfer has no estimated finish.
        (self.progress.listing_done && self.rate > 0 && self.silent_seconds.is_none())
            .then(|| self.bytes_remaining().div_ceil(self.rate))
    }

    fn words(&self) -> String {
        let progress = &self.progress;
        let more = if progress.listing_done { "" } else { "+" };
        let failed = match progress.files_failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let eta = self
            .eta_seconds()
            .map_or_else(String::new, |eta| format!(", ETA {}", duration(eta)));
        if let Some(seconds) = self.silent_seconds {
            return format!(
                "{} of {}{more}, files {} of {}{more}{failed}, {} silent for {}",
                human(progress.bytes_durable),
                human(progress.bytes_listed),
                progress.files_done,
                progress.files_listed,
                silent_end(self.bottleneck),
                duration(seconds),
            );
        }
        let held = self
            .bottleneck
            .map_or_else(String::new, |stage| format!(" ({})", held_up_by(stage)));
        let read_back = match progress.bytes_read_back {
            0 => String::new(),
            bytes => format!(", {} read back", human(bytes)),
        };
        format!(
            "{} of {}{more}, files {} of {}{more}{failed}{read_back}, {}/s{held}{eta}",
            human(progress.bytes_durable),
            human(progress.bytes_listed),
            progress.files_done,
            progress.files_listed,
            human(self.rate),
        )
    }

    fn json(&self, seconds: f64) -> serde_json::Value {
        let progress = &self.progress;
        json!({
            "event": "progress",
            "seconds": (seconds * 1000.0).round() / 1000.0,
            "listing_done": progress.listing_done,
            "files_listed": progress.files_listed,
            "files_done": progress.files_done,
            "files_failed": progress.files_failed,
            "files_remaining": self.files_remaining(),
            "bytes_listed": progress.bytes_listed,
            "bytes_durable": progress.bytes_safe(),
            "bytes_remaining": self.bytes_remaining(),
            "bytes_read_back": progress.bytes_read_back,
            "bytes_per_second": self.rate,
            "eta_seconds": self.eta_seconds(),
            "silent_seconds": self.silent_seconds,
            "profile": progress.profile,
            "bottleneck": self.bottleneck,
            "streams": progress.streams,
            "readers": progress.readers,
            "writers": progress.writers,
        })
    }
}

/// Returns a phrase that names the end for which the transfer waits.
const fn silent_end(bottleneck: Option<Stage>) -> &'static str {
    match bottleneck {
        Some(Stage::List | Stage::Read) => "the source has been",
        Some(Stage::Credit | Stage::Write | Stage::Sync | Stage::Publish | Stage::Decide) => {
            "the destination has been"
        }
        Some(Stage::Rate) => "limited by the rate of the transfer:",
        _ => "the other end has been",
    }
}

/// Measures the time since bytes last moved.
#[derive(Default)]
struct Stood {
    last: Option<(Instant, u64)>,
    seconds: u64,
}

impl Stood {
    fn look(&mut self, now: Instant, progress: &Progress) {
        let parts = [
            progress.bytes_durable,
            progress.bytes_sent,
            progress.bytes_read,
            progress.bytes_written,
            progress.files_done,
            progress.files_failed,
            progress.files_listed,
        ];
        let sum = parts.iter().fold(0u64, |sum, part| sum.wrapping_add(*part));
        match self.last {
            Some((since, before)) if before == sum => {
                self.seconds = now.saturating_duration_since(since).as_secs();
            }
            _ => (self.last, self.seconds) = (Some((now, sum)), 0),
        }
    }

    fn seconds(&self) -> Option<u64> {
        Some(self.seconds).filter(|seconds| *seconds >= SILENT_SECONDS)
    }
}

/// A rate over a moving window of time.
#[derive(Default)]
struct Rate {
    samples: VecDeque<(Instant, u64, Profile)>,
}

impl Rate {
    fn add(&mut self, now: Instant, bytes: u64, profile: Profile) {
        let last = self.samples.back();
        if last.is_some_and(|(_, last, _)| *last > bytes) {
            // The counters restart from zero with each new try.
            self.samples.clear();
        }
        self.samples.push_back((now, bytes, profile));
        while self.samples.len() > 2
            && self
                .samples
                .front()
                .is_some_and(|(then, ..)| now.saturating_duration_since(*then) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the times that each end spent in each stage during the window. If an end has
    /// reported no time in the window, its times since the start are returned.
    fn profile(&self) -> Profile {
        let ends = (self.samples.front(), self.samples.back());
        let (Some((.., from)), Some((.., to))) = ends else {
            return Profile::default();
        };
        let of_late = |from: &Times, to: &Times| match to.since(from) {
            none if none.is_empty() => *to,
            some => some,
        };
        Profile {
            source: of_late(&from.source, &to.source),
            sink: of_late(&from.sink, &to.sink),
        }
    }

    fn bytes_per_second(&self) -> u64 {
        let (Some((start, from, _)), Some((end, to, _))) =
            (self.samples.front(), self.samples.back())
        else {
            return 0;
        };
        let seconds = end.saturating_duration_since(*start).as_secs_f64();
        if seconds > 0.0 {
            (to.saturating_sub(*from) as f64 / seconds) as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, Stood, View, WINDOW};
    use dray_core::profile::{Profile, Stage};
    use dray_session::Progress;
    use std::time::{Duration, Instant};

    #[test]
    fn rates_follow_the_window() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        assert_eq!(rate.bytes_per_second(), 0);
        rate.add(start, 0, Profile::default());
        rate.add(start + Duration::from_secs(1), 100, Profile::default());
        assert_eq!(rate.bytes_per_second(), 100);
        for second in 2..60 {
            rate.add(start + Duration::from_secs(second), 100, Profile::default());
        }
        assert_eq!(rate.bytes_per_second(), 0, "nothing moved for {WINDOW:?}");
        rate.add(start + Duration::from_secs(60), 7, Profile::default());
        assert_eq!(rate.bytes_per_second(), 0, "a new attempt");
    }

    #[test]
    fn words_while_listing_goes_on() {
        let progress = Progress {
            files_listed: 3,
            files_done: 1,
            files_failed: 1,
            bytes_listed: 4096,
            bytes_durable: 1024,
            ..Progress::default()
        };
        let view = View {
            progress,
            rate: 1024,
            bottleneck: None,
            silent_seconds: None,
        };
        assert_eq!(
            view.words(),
            "1.0 KiB of 4.0 KiB+, files 1 of 3+, 1 failed, 1.0 KiB/s"
        );
        assert_eq!(view.files_remaining(), 1);
        assert_eq!(view.eta_seconds(), None, "unknown while listing goes on");
        let held = View {
            bottleneck: Some(Stage::Rate),
            ..view
        };
        assert!(
            held.words()
                .ends_with(", 1.0 KiB/s (the rate limit of the transfer)")
        );
        let silent = View {
            progress: Progress {
                listing_done: true,
                ..held.progress
            },
            bottleneck: Some(Stage::Read),
            silent_seconds: Some(37),
            ..held
        };
        let words = silent.words();
        assert!(
            words.ends_with(", the source has been silent for 37s"),
            "{words}"
        );
        assert_eq!(silent.eta_seconds(), None);
    }

    #[test]
    fn a_stalled_transfer_is_silent_until_it_moves() {
        let (mut stood, start) = (Stood::default(), Instant::now());
        let mut progress = Progress::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        stood.look(at(0), &progress);
        stood.look(at(9), &progress);
        assert_eq!(stood.seconds(), None);
        stood.look(at(10), &progress);
        assert_eq!(stood.seconds(), Some(10));
        progress.bytes_sent = 1;
        stood.look(at(11), &progress);
        assert_eq!(stood.seconds(), None);
    }

    #[test]
    fn the_bottleneck_is_that_of_the_recent_window() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let mut profile = Profile::default();
        for second in 0..60 {
            let stage = match second {
                0..30 => Stage::Read,
                _ => Stage::Network,
            };
            profile.source.add(stage, Duration::from_secs(1));
            rate.add(start + Duration::from_secs(second), second, profile);
        }
        assert_eq!(rate.profile().bottleneck(), Some(Stage::Network));
        assert_eq!(rate.profile().source.of(Stage::Read), Duration::ZERO);
        // The other end reports its times less often than this end.
        profile.sink.add(Stage::Write, Duration::from_secs(50));
        profile.source.add(Stage::Credit, Duration::from_secs(50));
        for second in 60..80 {
            rate.add(start + Duration::from_secs(second), second, profile);
        }
        assert_eq!(rate.profile().sink, profile.sink, "all that is known of it");
    }
}

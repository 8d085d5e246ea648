//! Runs a transfer on its own threads, and reports to the calling Python thread.
//!
//! The engine's threads never run Python code. They store the newest counters in a slot, and events
//! in a bounded queue. The calling thread polls both, calls the callbacks, and lets Python handle
//! signals. So a callback may be slow: counters are then skipped, and a full queue of events delays
//! the transfer.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads::refused;
use dray_runtime::local::{self, Ends, Stopper};
use dray_runtime::observe::Observer;
use dray_runtime::{sink, source};
use dray_session::{Event, Failure, Progress};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum interval between two calls of the progress callback.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum delay until a signal is noticed. Users do not notice such a delay. The value is
/// estimated, not measured.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of events that wait for a slow callback. If the queue is full, the transfer
/// waits.
const EVENTS_WAITING_MAX: usize = 4096;

/// Maximum number of failed entries in a result, as on the command line. Further entries are only
/// counted.
const FAILURES_MAX: usize = 1000;

enum Update {
    Event(Event),
    Ended(Box<Result<Ends>>),
}

/// Result of a finished transfer.
pub(crate) struct Finished {
    pub(crate) ends: Ends,
    pub(crate) failures: Vec<Failure>,
    pub(crate) seconds: f64,
}

/// The callbacks of a caller. If a callback raises an exception, the transfer stops.
pub(crate) struct Callbacks<P, E> {
    pub(crate) progress: Option<P>,
    pub(crate) event: Option<E>,
}

struct Watcher {
    progress: Arc<Mutex<Option<Progress>>>,
    failures: Arc<Mutex<Vec<Failure>>>,
    events: Option<Sender<Update>>,
}

impl Observer for Watcher {
    fn event(&self, event: &Event) {
        if let Event::Failed(failure) = event {
            let mut failures = self.failures.lock_unpoisoned();
            if failures.len() < FAILURES_MAX {
                failures.push(failure.clone());
            }
        }
        if let Some(events) = &self.events {
            // Sending fails only if the calling thread has returned. The event is then dropped.
            let _ = events.send(Update::Event(event.clone()));
        }
    }

    fn progress(&self, progress: &Progress) {
        *self.progress.lock_unpoisoned() = Some(*progress);
    }
}

fn internal(cause: &str) -> Error {
    Error::new(ErrorKind::Internal, End::Here, "run the transfer")
        .cause(cause)
        .remedy("report this error, and run the same copy again")
}

/// Runs a transfer to its end. Other Python threads can run during the transfer.
///
/// # Errors
/// The exception of a callback or a signal handler. It is raised after the transfer has stopped,
/// and durable data is kept. After a second signal, the function does not wait for the stop.
/// Otherwise the errors of [`local::run`].
pub(crate) fn run<P, E>(
    py: Python<'_>,
    source: source::Setup,
    sink: sink::Setup,
    mut callbacks: Callbacks<P, E>,
) -> PyResult<Finished>
where
    P: FnMut(&Progress, f64) -> PyResult<()>,
    E: FnMut(&Event) -> PyResult<()>,
{
    let begin = Instant::now();
    let (updates_out, updates) = bounded(EVENTS_WAITING_MAX);
    let progress = Arc::new(Mutex::new(None));
    let failures = Arc::new(Mutex::new(Vec::new()));
    let watcher = Watcher {
        progress: Arc::clone(&progress),
        failures: Arc::clone(&failures),
        events: callbacks.event.is_some().then(|| updates_out.clone()),
    };
    let (stopper_out, stopper) = bounded(1);
    let work = move || {
        let ends = local::run(source, sink, &watcher, |stopper| {
            let _ = stopper_out.send(stopper);
        });
        drop(watcher);
        let _ = updates_out.send(Update::Ended(Box::new(ends)));
    };
    std::thread::Builder::new()
        .name("dray-copy".to_owned())
        .spawn(work)
        .map_err(|error| crate::error::to_python(py, &refused(&error)))?;
    let mut call = Call {
        stopper,
        raised: None,
    };
    let mut next_progress = begin;
    let ends = loop {
        match py.detach(|| updates.recv_timeout(SIGNAL_INTERVAL)) {
            Ok(Update::Event(event)) => {
                if let (Some(callback), true) = (&mut callbacks.event, call.goes_on()) {
                    call.check(py, callback(&event));
                }
            }
            Ok(Update::Ended(ends)) => break *ends,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break Err(internal(
                    "the thread of the transfer \
                panicked",
                ));
            }
        }
        if let Err(signal) = py.check_signals() {
            if !call.goes_on() {
                return Err(signal);
            }
            call.check(py, Err(signal));
        }
        let now = Instant::now();
        if now >= next_progress && call.goes_on() && callbacks.progress.is_some() {
            next_progress = now + PROGRESS_INTERVAL;
            let newest = progress.lock_unpoisoned().take();
            if let (Some(newest), Some(callback)) = (newest, &mut callbacks.progress) {
                call.check(py, callback(&newest, begin.elapsed().as_secs_f64()));
            }
        }
    };
    let seconds = begin.elapsed().as_secs_f64();
    if let Some(raised) = call.raised {
        return Err(raised);
    }
    let ends = ends.map_err(|error| crate::error::to_python(py, &error))?;
    if let Some(callback) = &mut callbacks.progress {
        callback(&ends.progress(), seconds)?;
    }
    let failures = std::mem::take(&mut *failures.lock_unpoisoned());
    Ok(Finished {
        ends,
        failures,
        seconds,
    })
}

/// The state of a running call.
struct Call {
    stopper: Receiver<Stopper>,
    /// The exception that has stopped the transfer.
    raised: Option<PyErr>,
}

impl Call {
    fn goes_on(&self) -> bool {
        self.raised.is_none()
    }

    /// Stops the transfer at the first exception.
    fn check(&mut self, py: Python<'_>, result: PyResult<()>) {
        let Err(error) = result else { return };
        self.raised.get_or_insert(error);
        // The transfer sends its stopper when it starts. If no stopper arrives, the transfer never
        // started, and there is nothing to stop.
        if let Ok(stopper) = py.detach(|| self.stopper.recv()) {
            stopper.stop(false);
        }
    }
}

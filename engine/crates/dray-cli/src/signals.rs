//! Handles Ctrl-C, SIGTERM and SIGHUP. The first signal stops the transfer and keeps durable data.
//! The second signal ends the program immediately. The transfer can resume in both cases, because
//! only logged data is trusted. If the program was started with SIGHUP ignored (`nohup`), it
//! continues to ignore SIGHUP.

use crate::exit::Exit;
use crate::output;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads::refused;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type Hook = Box<dyn Fn() + Send>;

struct State {
    asked: u32,
    stop: Option<Hook>,
    at_once: Option<Hook>,
}

static STATE: Mutex<State> = Mutex::new(State {
    asked: 0,
    stop: None,
    at_once: None,
});

/// Set when the outcome has been printed.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Returns true to the first caller, which must print the outcome. Returns false to all later
/// callers.
pub(crate) fn may_tell() -> bool {
    !IS_TOLD.swap(true, Ordering::Relaxed)
}

/// Starts the thread that waits for signals. The thread prints `words` at the first signal.
///
/// # Errors
/// If the system refuses a signal handler or a thread.
pub(crate) fn watch(words: &'static str) -> Result<()> {
    let mut asked = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        asked.push(SIGHUP);
    }
    // Catching SIGXFSZ prevents it from ending the program. A write beyond the limit (RLIMIT_FSIZE)
    // then fails with EFBIG, and the error names the file.
    asked.push(SIGXFSZ);
    let mut signals = Signals::new(asked).map_err(|error| {
        Error::new(ErrorKind::Busy, End::Here, "listen for signals")
            .cause(error.to_string())
            .remedy("raise the limit of open files (ulimit -n)")
    })?;
    let hear = move || {
        let told = signals.forever().filter(|signal| *signal != SIGXFSZ);
        told.for_each(|_| on_signal(words));
    };
    let thread = thread::Builder::new().name("dray-signals".to_owned());
    thread
        .spawn(hear)
        .map(drop)
        .map_err(|error| refused(&error))
}

/// Returns true if the program was started with the signal ignored (proc_pid_status(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn on_signal(words: &str) {
    let mut state = STATE.lock_unpoisoned();
    state.asked += 1;
    if state.asked > 1 {
        if let Some(last_words) = &state.at_once {
            last_words();
        }
        dray_open::xrootd::end_process(Exit::Interrupted as u8);
    }
    output::note(words);
    if let Some(stop) = &state.stop {
        stop();
    }
}

/// Sets the action for the first signal. If a signal has already arrived, runs the action
/// immediately.
pub(crate) fn on_stop(stop: impl Fn() + Send + 'static) {
    let mut state = STATE.lock_unpoisoned();
    if state.asked > 0 {
        stop();
    }
    state.stop = Some(Box::new(stop));
}

/// Sets the function that prints the last output before the second signal ends the program.
pub(crate) fn at_once(last_words: impl Fn() + Send + 'static) {
    let mut state = STATE.lock_unpoisoned();
    state.at_once = Some(Box::new(last_words));
}

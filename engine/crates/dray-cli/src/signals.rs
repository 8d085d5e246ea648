//! Ctrl-C, SIGTERM and SIGHUP: the first stops and keeps what is safe, the second stops at once. Both
//! are resumable, because nothing is trusted that was not logged. Whoever starts a program that is to
//! outlive the terminal has it ignore SIGHUP (nohup), and so it does.

use crate::exit::Exit;
use crate::output;
use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::threads::refused;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
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

/// Whether the outcome has been said.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether the outcome is the caller's to say: once, by whoever asks first.
pub(crate) fn may_tell() -> bool {
    !IS_TOLD.swap(true, Ordering::Relaxed)
}

/// Begins to listen. `words` is said at the first signal.
///
/// # Errors
/// When the system gives no signal handler, or no thread to hear them.
pub(crate) fn watch(words: &'static str) -> Result<()> {
    let mut asked = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        asked.push(SIGHUP);
    }
    // Nothing is to be done at it: taken, it no longer ends the program, and the write that goes beyond
    // the limit (RLIMIT_FSIZE) fails with EFBIG, which names the file.
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

/// Whether this program was started with the signal ignored (proc_pid_status(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

fn on_signal(words: &str) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
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

/// What the first signal does from now on; at once when it has come already.
pub(crate) fn on_stop(stop: impl Fn() + Send + 'static) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.asked > 0 {
        stop();
    }
    state.stop = Some(Box::new(stop));
}

/// What is said right before the second signal ends the program.
pub(crate) fn at_once(last_words: impl Fn() + Send + 'static) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.at_once = Some(Box::new(last_words));
}

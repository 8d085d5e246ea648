//! Ctrl-C and SIGTERM: the first stops and keeps what is safe, the second stops at once. Both are
//! resumable, because nothing is trusted that was not logged.

use crate::exit::Exit;
use crate::output;
use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::threads::refused;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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
/// When the system gives no signal handler.
pub(crate) fn watch(words: &'static str) -> Result<()> {
    ctrlc::set_handler(move || on_signal(words)).map_err(|error| match error {
        // They are heard by a thread of their own.
        ctrlc::Error::System(error) => refused(&error),
        _ => Error::new(ErrorKind::Internal, End::Here, "listen for signals")
            .cause(error.to_string()),
    })
}

fn on_signal(words: &str) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked += 1;
    if state.asked > 1 {
        if let Some(last_words) = &state.at_once {
            last_words();
        }
        std::process::exit(Exit::Interrupted as i32);
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

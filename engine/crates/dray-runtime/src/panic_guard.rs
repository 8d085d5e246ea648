//! Panics, a defect of ours, become an error of the session: a thread that is gone would be waited for
//! forever, by its conductor and then by the other end.

use crossbeam_channel::Sender;
use dray_core::{End, Error, ErrorKind, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs something; a panic is an error of kind [`ErrorKind::Internal`] that says what was going on.
///
/// What it shares with others must bear a panic: buffers hold bytes of no meaning afterwards, and the
/// log is given up.
pub fn caught<T>(operation: &str, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        Error::new(ErrorKind::Internal, End::Here, operation)
            .cause(format!("a thread panicked: {}", words(panic.as_ref())))
            .remedy("report this; what is safe stays safe: run the same command again")
    })
}

/// As [`caught`], for a thread whose conductor hears of it.
pub(crate) fn or_tell<E>(
    operation: &str,
    events: &Sender<E>,
    broken: fn(Error) -> E,
    run: impl FnOnce(),
) {
    if let Err(error) = caught(operation, run) {
        // Without a conductor nobody waits.
        let _ = events.send(broken(error));
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (None, Some(words)) => words,
        (None, None) => "it did not say why",
    }
}

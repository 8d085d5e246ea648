//! Turns panics, which are defects of dray, into an error of the session. Without this error the
//! executor and the other end would wait forever for results of the ended thread.

use crossbeam_channel::Sender;
use dray_core::{End, Error, ErrorKind, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `run`. If `run` panics, returns an error of kind [`ErrorKind::Internal`] that names the
/// operation.
///
/// State that `run` shares with other threads must stay usable after a panic. Sessions fulfil this:
/// buffers may hold arbitrary bytes at any time, and the sink does not use the log after a panic.
pub fn caught<T>(operation: &str, run: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        Error::new(ErrorKind::Internal, End::Here, operation)
            .cause(format!("a thread panicked: {}", words(panic.as_ref())))
            .remedy("report this error, then run the same command again; durable data is kept")
    })
}

/// Calls `run` as [`caught`] does, and sends the error of a panic to the executor.
pub fn or_tell<E>(operation: &str, events: &Sender<E>, broken: fn(Error) -> E, run: impl FnOnce()) {
    if let Err(error) = caught(operation, run) {
        // If the executor has ended, the report has no receiver.
        let _ = events.send(broken(error));
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (None, Some(words)) => words,
        (None, None) => "the panic has no message",
    }
}

//! What goes wrong on a network, in the words of [`dray_core::Error`].

use dray_core::{End, Error, ErrorKind};
use dray_store::errno::too_many_open;
use std::io;

/// An error of a socket while doing `operation`.
pub(super) fn io_error(operation: impl Into<String>, error: &io::Error) -> Error {
    let operation = operation.into();
    // Nobody was asked: it is this process that may open no socket.
    if let Some(lack) = too_many_open(End::Here, &operation, error) {
        return lack;
    }
    let (kind, remedy) = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (
            ErrorKind::TimedOut,
            "look whether the network drops packets, then run the same command again",
        ),
        // rustls reports what the peer did wrong, and what we refused of it, as invalid data.
        io::ErrorKind::InvalidData => (
            ErrorKind::Protocol,
            "see that the peer speaks dray's protocol and that nothing between changes bytes",
        ),
        _ => (
            ErrorKind::Unreachable,
            "look whether the other end still runs, then run the same command again",
        ),
    };
    Error::new(kind, End::Network, operation)
        .cause(io_words(error))
        .remedy(remedy)
}

/// What a socket's error says, without the words for "no answer in time" that differ by system.
fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
        io::ErrorKind::UnexpectedEof => "the peer closed the connection".to_owned(),
        _ => dray_store::errno::io_words(error),
    }
}

/// A connection that the peer broke.
pub(super) fn protocol(operation: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, End::Network, operation)
        .cause(cause)
        .remedy("use the same version of dray at both ends and report this")
}

/// What TLS refuses of what came in.
pub(super) fn tls(error: &rustls::Error) -> Error {
    let mut error = protocol("hear from the peer", format!("TLS: {error}"));
    "see that nothing between the ends changes bytes, then run the same command again"
        .clone_into(&mut error.remedy);
    error
}

/// A connection that ended.
pub(super) fn lost(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, End::Network, "talk to the peer")
        .cause(cause)
        .remedy("run the same command again; durable data is kept")
}

/// A defect of our own.
pub(super) fn internal(operation: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, End::Here, operation)
        .cause(cause)
        .remedy("report this")
}

/// Something the system would not give: random bytes. Of threads [`crate::threads::refused`] tells.
pub(super) fn system(operation: impl Into<String>, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Busy, End::Here, operation)
        .cause(cause.to_string())
        .remedy("look at the limits of this process, then run the same command again")
}

//! Network errors, as [`dray_core::Error`].

use dray_core::{End, Error, ErrorKind};
use dray_store::errno::too_many_open;
use std::io;

/// Returns the error of a socket operation.
pub(super) fn io_error(operation: impl Into<String>, error: &io::Error) -> Error {
    let operation = operation.into();
    // The cause is local: this process has no file descriptor for another socket.
    if let Some(lack) = too_many_open(End::Here, &operation, error) {
        return lack;
    }
    let (kind, remedy) = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => (
            ErrorKind::TimedOut,
            "check whether the network drops packets, then run the same command again",
        ),
        // rustls reports protocol violations of the peer, and data that this end rejects, as
        // `InvalidData`.
        io::ErrorKind::InvalidData => (
            ErrorKind::Protocol,
            "check that the peer runs dray and that no device between the two hosts changes bytes",
        ),
        _ => (
            ErrorKind::Unreachable,
            "check that the program at the other end still runs, then run the same command again",
        ),
    };
    Error::new(kind, End::Network, operation)
        .cause(io_words(error))
        .remedy(remedy)
}

/// Returns the message of a socket error. The two error kinds for a timeout, which depend on the
/// system, get the same message.
fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "no answer arrived in time".to_owned()
        }
        io::ErrorKind::UnexpectedEof => "the peer closed the connection".to_owned(),
        _ => dray_store::errno::io_words(error),
    }
}

/// Returns the error for a violation of the protocol by the peer.
pub(super) fn protocol(operation: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, End::Network, operation)
        .cause(cause)
        .remedy("use the same version of dray at both ends, and report this error")
}

/// Returns the error for received data that TLS rejects.
pub(super) fn tls(error: &rustls::Error) -> Error {
    let mut error = protocol("receive from the peer", format!("TLS: {error}"));
    "check that no device between the two hosts changes bytes, then run the same command again"
        .clone_into(&mut error.remedy);
    error
}

/// Returns the error for a connection to the peer that has ended.
pub(super) fn lost(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, End::Network, "talk to the peer")
        .cause(cause)
        .remedy("run the same command again; durable data is kept")
}

pub(super) fn internal(operation: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, End::Here, operation)
        .cause(cause)
        .remedy("report this error")
}

/// Returns the error for a resource, such as random bytes, that the system refused. For threads,
/// use [`dray_link::threads::refused`].
pub(super) fn system(operation: impl Into<String>, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Busy, End::Here, operation)
        .cause(cause.to_string())
        .remedy("check the limits of the process (ulimit -a), then run the same command again")
}

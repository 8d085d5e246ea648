//! How the program ends: documented numbers, and the error that goes with them.

use dray_core::{End, Error, ErrorKind};

/// Exit codes. They are part of the interface: docs/reference/cli.md lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for is safe.
    Safe = 0,
    /// Some files failed, or the output could not be written; the others are safe.
    SomeFailed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Refused before anything moved.
    Refused = 3,
    /// The other end cannot be reached.
    Unreachable = 4,
    /// Broken off; the same command goes on from there.
    Interrupted = 5,
}

/// A command that ended before it began.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) exit: Exit,
    pub(crate) error: Error,
}

impl From<Error> for Stop {
    /// What goes wrong before anything has moved.
    fn from(error: Error) -> Self {
        let exit = match error.kind {
            ErrorKind::InvalidRequest | ErrorKind::InvalidName if error.end == End::Here => {
                Exit::Usage
            }
            ErrorKind::Unreachable | ErrorKind::TimedOut => Exit::Unreachable,
            _ => Exit::Refused,
        };
        Self { exit, error }
    }
}

/// A command line that makes no sense, and how to mend it.
pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run this command")
        .cause(cause)
        .remedy(remedy)
}

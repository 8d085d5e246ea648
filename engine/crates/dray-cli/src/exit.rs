//! Exit codes, and errors that end a command.

use dray_core::{End, Error, ErrorKind};

/// Exit codes. They are part of the interface and documented in docs/reference/cli.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All requested data is durable.
    Safe = 0,
    /// Some files failed, or the output could not be written. All other files are durable.
    SomeFailed = 1,
    /// Usage error.
    Usage = 2,
    /// Refused before any data was moved.
    Refused = 3,
    /// The other host is unreachable.
    Unreachable = 4,
    /// Interrupted. The same command resumes the copy.
    Interrupted = 5,
}

/// The error and the exit code of a command that ended before any data was moved.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) exit: Exit,
    pub(crate) error: Error,
}

impl From<Error> for Stop {
    /// Converts an error that occurred before any data was moved.
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

/// Returns a usage error with its remedy.
pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(remedy)
}

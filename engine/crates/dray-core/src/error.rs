//! Errors. An error contains its kind, and the end, the operation and the file that it concerns. It
//! also contains a status that tells whether a retry can help, the cause, and a remedy for the
//! user.

use crate::path::RelPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result type with [`Error`] as the default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// End of the transfer at which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The error occurred at the end that reads.
    Source,
    /// The error occurred at the end that writes.
    Sink,
    /// The error occurred on the network between the ends.
    Network,
    /// The error occurred in this process, before it contacted either end.
    Here,
}

impl End {
    /// Returns the number of this end in the wire protocol.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Source => 0,
            Self::Sink => 1,
            Self::Network => 2,
            Self::Here => 3,
        }
    }

    /// Returns the end for a number of the wire protocol.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Source),
            1 => Some(Self::Sink),
            2 => Some(Self::Network),
            3 => Some(Self::Here),
            _ => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Network => "network",
            Self::Here => "here",
        })
    }
}

/// Says if a retry can succeed after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A retry will fail in the same way.
    Permanent,
    /// A later retry may succeed.
    Temporary,
    /// The error was temporary, and no retries are left.
    Exhausted,
}

impl Status {
    /// Returns the number of this status in the wire protocol.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Permanent => 0,
            Self::Temporary => 1,
            Self::Exhausted => 2,
        }
    }

    /// Returns the status for a number of the wire protocol.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Permanent),
            1 => Some(Self::Temporary),
            2 => Some(Self::Exhausted),
            _ => None,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $text:literal;)*) => {
        /// Kind of an error. The numbers are part of the wire protocol, so a number never changes
        /// its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            /// All kinds of errors.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the number of this kind in the wire protocol.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self { $(Self::$name => $code,)* }
            }

            /// Returns the kind for a number of the wire protocol. An unknown number, sent by a
            /// newer peer, gives [`Self::Other`].
            #[must_use]
            pub const fn from_code(code: u16) -> Self {
                match code { $($code => Self::$name,)* _ => Self::Other }
            }

            /// Returns the usual status of errors of this kind. [`Error::status()`] sets another
            /// status.
            #[must_use]
            pub const fn default_status(self) -> Status {
                match self { $(Self::$name => Status::$status,)* }
            }

            /// Returns a short description.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// An error of no other kind.
    Other = 0, Temporary, "error of unknown kind";
    /// No file or folder exists at the path.
    NotFound = 1, Permanent, "not found";
    /// The system refused access.
    PermissionDenied = 2, Permanent, "permission denied";
    /// A folder exists where a file is needed.
    IsADirectory = 3, Permanent, "is a folder";
    /// A file or a link exists where a folder is needed.
    NotADirectory = 4, Permanent, "a file or a link exists where a folder is needed";
    /// A file, folder or link already exists at the destination and must not be replaced.
    AlreadyExists = 5, Permanent, "already exists";
    /// The storage is full, or a quota is used up.
    NoSpace = 6, Permanent, "no space left";
    /// The storage is read-only.
    ReadOnly = 7, Permanent, "read-only";
    /// A name or path is longer than the storage permits.
    NameTooLong = 8, Permanent, "name too long";
    /// A path leads out of its root.
    PathEscapes = 9, Permanent, "the path leaves its root";
    /// An entry must not have this name: it is empty, `.` or `..`, contains a slash or a zero byte,
    /// or is one of dray's own names.
    InvalidName = 10, Permanent, "the name is not allowed";
    /// The request is not valid.
    InvalidRequest = 11, Permanent, "the request is not valid";
    /// This end does not support the operation, or its storage does not.
    Unsupported = 12, Permanent, "not supported";
    /// The file changed while dray read it.
    SourceChanged = 13, Temporary, "the source has changed";
    /// The bytes do not match their checksum.
    ChecksumMismatch = 14, Temporary, "checksum mismatch";
    /// The file is shorter than the size that the source announced.
    ShortRead = 15, Temporary, "the file is shorter than announced";
    /// The object log has another version, or the file is not an object log.
    LogVersion = 16, Permanent, "the object log has a format that this version cannot read";
    /// The object log is damaged, and not only at its end.
    LogDamaged = 17, Permanent, "the object log is damaged";
    /// Another transfer holds the destination's lease.
    LeaseHeld = 18, Temporary, "another transfer is writing to the destination";
    /// A newer transfer has taken the destination's lease from this transfer.
    LeaseLost = 19, Permanent, "another transfer took over the lease";
    /// The peer violated the protocol.
    Protocol = 20, Permanent, "the peer broke the protocol";
    /// A limit on memory, a count or a length was exceeded.
    LimitExceeded = 21, Permanent, "over a limit";
    /// The two ends have no common protocol version, or one end does not know a mandatory feature.
    IncompatiblePeer = 22, Permanent, "the two ends are not compatible";
    /// A key, token or signature was rejected.
    Unauthorized = 23, Permanent, "not authorized";
    /// The connection cannot be made, or it was lost.
    Unreachable = 24, Temporary, "unreachable";
    /// No answer came in time.
    TimedOut = 25, Temporary, "timed out";
    /// A user stopped the transfer.
    Cancelled = 26, Permanent, "cancelled";
    /// The device reported an error.
    Io = 27, Temporary, "input/output error";
    /// The storage is busy, or one of its resources is exhausted.
    Busy = 28, Temporary, "busy";
    /// dray has a bug.
    Internal = 29, Permanent, "internal error";
    /// The deadline or rate cannot be promised in addition to the existing promises.
    NotAdmitted = 30, Permanent, "cannot be promised";
    /// All session slots are in use. The transfer and the storage have no error.
    NoPlace = 31, Temporary, "no place for the session at present";
    /// The source has fewer files than the request demands.
    NothingMatched = 32, Permanent, "nothing to copy";
    /// No caller has asked about the transfer within its bound.
    Unattended = 33, Temporary, "no caller has asked about the transfer";
}

impl From<std::io::ErrorKind> for ErrorKind {
    /// Returns the kind for an error kind of the standard library.
    fn from(found: std::io::ErrorKind) -> Self {
        use std::io::ErrorKind as Found;
        match found {
            Found::NotFound => Self::NotFound,
            Found::PermissionDenied => Self::PermissionDenied,
            Found::IsADirectory => Self::IsADirectory,
            Found::NotADirectory => Self::NotADirectory,
            Found::AlreadyExists => Self::AlreadyExists,
            Found::StorageFull | Found::QuotaExceeded => Self::NoSpace,
            Found::ReadOnlyFilesystem => Self::ReadOnly,
            Found::AddrInUse | Found::ResourceBusy => Self::Busy,
            _ => Self::Io,
        }
    }
}

/// An error with the information that a user needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Error {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Says if a retry can succeed.
    pub status: Status,
    /// End at which the error occurred.
    pub end: End,
    /// Failed operation, as an infinitive: "open the file".
    pub operation: String,
    /// Path of the file, relative to the root of the transfer.
    pub file: Option<RelPath>,
    /// Cause, often the message of the operating system.
    pub cause: String,
    /// Advice for the user.
    pub remedy: String,
}

impl Error {
    /// Creates an error with the default status of its kind.
    #[must_use]
    pub fn new(kind: ErrorKind, end: End, operation: impl Into<String>) -> Self {
        Self {
            kind,
            status: kind.default_status(),
            end,
            operation: operation.into(),
            file: None,
            cause: String::new(),
            remedy: String::new(),
        }
    }

    /// Sets the path of the file.
    #[must_use]
    pub fn file(mut self, file: &RelPath) -> Self {
        self.file = Some(file.clone());
        self
    }

    /// Sets the file to its name at the destination, because callers know the file by that name. If
    /// the error already names a file with another name, that file is the source file. The cause
    /// then contains the path of the source file, with the prefix `top`.
    #[must_use]
    pub fn file_copied_as(mut self, file: &RelPath, top: &str) -> Self {
        let source = self.file.replace(file.clone());
        let Some(source) = source.filter(|own| own.name() != file.name()) else {
            return self;
        };
        let cause = match self.cause.is_empty() {
            true => format!("the source file is {top}{source}"),
            false => format!("the source file is {top}{source}: {}", self.cause),
        };
        self.cause(cause)
    }

    /// Sets the cause.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = cause.into();
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Sets the status, instead of the default of the kind.
    #[must_use]
    pub const fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// Sets the end.
    #[must_use]
    pub const fn at(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::Here | End::Network => write!(f, "cannot {}", self.operation)?,
            end => write!(f, "cannot {} at the {end}", self.operation)?,
        }
        if let Some(file) = &self.file {
            write!(f, ": {file}")?;
        }
        if self.cause_says_all() {
            write!(f, ": {}", self.cause)?;
        } else {
            write!(f, ": {}", self.kind.words())?;
            if !self.cause.is_empty() && !self.cause.eq_ignore_ascii_case(self.kind.words()) {
                write!(f, " ({})", self.cause)?;
            }
        }
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl Error {
    /// Returns true if the message shows the cause without the kind, because the kind would only
    /// repeat the cause.
    fn cause_says_all(&self) -> bool {
        let repeats = match self.kind {
            // Example of such a message: "cannot connect to h:1: Connection refused".
            ErrorKind::Unreachable => true,
            // Without a file, an error of this kind is a state conflict, and the cause describes
            // the state.
            ErrorKind::AlreadyExists => self.file.is_none(),
            _ => false,
        };
        repeats && !self.cause.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Error, ErrorKind};
    use crate::path::RelPath;

    #[test]
    fn codes_are_distinct_and_round_trip() {
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(ErrorKind::from_code(kind.code()), *kind);
            assert!(
                ErrorKind::ALL[index + 1..]
                    .iter()
                    .all(|other| other.code() != kind.code())
            );
        }
        assert_eq!(ErrorKind::from_code(65_000), ErrorKind::Other);
    }

    #[test]
    fn a_copy_under_another_name_tells_its_source() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let error = |file| {
            let error = Error::new(ErrorKind::NotFound, End::Source, "list");
            error.file(&path(file)).cause("gone")
        };
        let told = error("fast/huge").file_copied_as(&path("huge1"), "/");
        assert_eq!(told.file, Some(path("huge1")));
        assert_eq!(told.cause, "the source file is /fast/huge: gone");
        assert_eq!(
            error("fast/huge").file_copied_as(&path("huge"), "/").cause,
            "gone"
        );
        let told = error("pw").cause("").file_copied_as(&path("p"), "/data/");
        assert_eq!(told.cause, "the source file is /data/pw");
        let told = error("none").file_copied_as(&RelPath::root(), "https://h/");
        assert_eq!(
            told.cause, "the source file is https://h/none: gone",
            "a folder's contents"
        );
    }

    #[test]
    fn a_message_does_not_repeat_its_cause() {
        let error = |kind, cause: &str| {
            let error = Error::new(kind, End::Network, "connect to h:1");
            error.cause(cause).to_string()
        };
        let refused = error(ErrorKind::Unreachable, "Connection refused");
        assert_eq!(refused, "cannot connect to h:1: Connection refused");
        let bare = error(ErrorKind::Unreachable, "");
        assert_eq!(bare, "cannot connect to h:1: unreachable");
        let twice = error(ErrorKind::Io, "Input/output error");
        assert_eq!(twice, "cannot connect to h:1: input/output error");
        let late = error(ErrorKind::TimedOut, "no answer within 5 s");
        assert_eq!(
            late,
            "cannot connect to h:1: timed out (no answer within 5 s)"
        );
    }

    #[test]
    fn what_a_state_does_not_allow_exists_not_already() {
        let error = Error::new(ErrorKind::AlreadyExists, End::Here, "cancel the transfer")
            .cause("it is done");
        assert_eq!(error.to_string(), "cannot cancel the transfer: it is done");
        let path = RelPath::parse(b"f").expect("a good path");
        assert!(error.file(&path).to_string().contains("already exists"));
    }

    #[test]
    fn one_line_names_operation_end_file_cause_and_remedy() {
        let path = RelPath::parse(b"run/a.root").expect("a good path");
        let error = Error::new(ErrorKind::NoSpace, End::Sink, "write the file")
            .file(&path)
            .cause("ENOSPC")
            .remedy("free some space and run the same command again");
        assert_eq!(
            error.to_string(),
            "cannot write the file at the sink: run/a.root: no space left (ENOSPC); \
             free some space and run the same command again"
        );
    }
}

//! Errors of librados as errors of the store.

use dray_core::{End, Error, ErrorKind, RelPath};

/// Error number of an operation, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Result of an operation on one object.
pub(crate) type Answer<T> = std::result::Result<T, Errno>;

impl Errno {
    pub(crate) const PERMISSION: Self = Self(1);
    pub(crate) const NOT_FOUND: Self = Self(2);
    pub(crate) const ACCESS: Self = Self(13);
    pub(crate) const BUSY: Self = Self(16);
    pub(crate) const EXISTS: Self = Self(17);
    pub(crate) const OUT_OF_RANGE: Self = Self(34);
    pub(crate) const NO_DATA: Self = Self(61);
    pub(crate) const OVERFLOW: Self = Self(75);
    /// The monitors have put this client on the blocklist.
    pub(crate) const BLOCKLISTED: Self = Self(108);
    /// A comparison in an operation failed.
    pub(crate) const CANCELED: Self = Self(125);

    /// Converts a return value of the library.
    pub(crate) fn check(value: i32) -> Answer<i32> {
        match value < 0 {
            true => Err(Self(value.saturating_neg())),
            false => Ok(value),
        }
    }

    /// Returns true if an OSD or a monitor could not be reached.
    pub(crate) const fn is_of_the_connection(self) -> bool {
        matches!(self.0, 107 | 110)
    }

    const fn kind(self) -> ErrorKind {
        match self.0 {
            1 | 13 => ErrorKind::PermissionDenied,
            2 => ErrorKind::NotFound,
            16 => ErrorKind::Busy,
            17 => ErrorKind::AlreadyExists,
            22 | 95 => ErrorKind::Unsupported,
            27 | 90 => ErrorKind::LimitExceeded,
            28 | 122 => ErrorKind::NoSpace,
            30 => ErrorKind::ReadOnly,
            36 => ErrorKind::NameTooLong,
            107 => ErrorKind::Unreachable,
            108 => ErrorKind::LeaseLost,
            110 => ErrorKind::TimedOut,
            125 => ErrorKind::SourceChanged,
            _ => ErrorKind::Io,
        }
    }

    const fn cause(self) -> Option<&'static str> {
        match self.0 {
            90 => Some("the operation is larger than the setting `osd_max_write_size` of the OSD"),
            108 => Some("the Ceph cluster has blocklisted this client"),
            110 => Some("an OSD or a monitor did not answer within the timeout"),
            122 => Some("the pool has reached its quota"),
            125 => Some("another writer has replaced the object"),
            _ => None,
        }
    }

    const fn remedy(self) -> Option<&'static str> {
        match self.0 {
            1 | 13 => Some("give the Ceph user read and write capabilities for the pool"),
            28 | 122 => Some(
                "free space in the pool or raise its quota, then run the same command again; \
                 durable data is kept and not sent again",
            ),
            108 => Some(
                "another process took over this transfer; check the transfer before you run the \
                 command again",
            ),
            110 => Some("check the cluster with `ceph -s`, then run the same command again"),
            _ => None,
        }
    }

    /// Returns the error of an operation of the store.
    pub(crate) fn error(self, end: End, operation: &str) -> Error {
        let error = Error::new(self.kind(), end, operation);
        let error = match self.cause() {
            Some(cause) => error.cause(cause),
            None => error.cause(std::io::Error::from_raw_os_error(self.0).to_string()),
        };
        match self.remedy() {
            Some(remedy) => error.remedy(remedy),
            None => error,
        }
    }

    /// Returns the error of an operation on the file at `path`.
    pub(crate) fn at(self, end: End, operation: &str, path: &RelPath) -> Error {
        self.error(end, operation).file(path)
    }
}

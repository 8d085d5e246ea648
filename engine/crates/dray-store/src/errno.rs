//! Converts error numbers of the operating system to [`Error`]s. All conversions are in this
//! module.

use dray_core::{End, Error, ErrorKind, RelPath, Status};
use rustix::io::Errno;
use std::io;

/// Returns the error for `errno` at `end`. `operation` is the failed operation as an infinitive,
/// such as "open the file".
#[must_use]
pub fn error(end: End, operation: &str, file: &RelPath, errno: Errno) -> Error {
    let (kind, remedy) = meaning(errno);
    let error = Error::new(kind, end, operation)
        .file(file)
        .cause(words(errno))
        .remedy(remedy);
    match errno {
        // The file system itself is damaged, so a retry cannot succeed.
        Errno::UCLEAN => error.status(Status::Permanent),
        _ => error,
    }
}

/// Returns an error if the process or the host has reached its limit of open files or sockets;
/// `None` for any other cause.
#[must_use]
pub fn too_many_open(end: End, operation: &str, error: &io::Error) -> Option<Error> {
    let errno = Errno::from_io_error(error)?;
    matches!(errno, Errno::MFILE | Errno::NFILE).then(|| {
        let (kind, remedy) = meaning(errno);
        Error::new(kind, end, operation)
            .cause(words(errno))
            .remedy(remedy)
    })
}

/// Returns the error kind and the remedy for an error number.
fn meaning(errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match errno {
        Errno::NOENT => (K::NotFound, "check the path"),
        Errno::ACCESS | Errno::PERM => (
            K::PermissionDenied,
            "give the user access, or run the command as a user with access",
        ),
        Errno::ISDIR => (
            K::IsADirectory,
            "move the folder away, or choose another destination",
        ),
        Errno::NOTDIR => (
            K::NotADirectory,
            "move the existing entry away, or choose another destination",
        ),
        Errno::EXIST => (
            K::AlreadyExists,
            "remove the existing file, or allow its replacement with --overwrite",
        ),
        Errno::NOTEMPTY => (K::AlreadyExists, "remove the contents of the folder first"),
        Errno::NOSPC => (
            K::NoSpace,
            "free some space and run the same command again; durable data is kept and not sent \
                again",
        ),
        Errno::DQUOT => (
            K::NoSpace,
            "free some space or ask for more quota, and run the same command again",
        ),
        Errno::FBIG => (
            K::LimitExceeded,
            "choose a destination on a file system that permits files of this size",
        ),
        Errno::ROFS => (
            K::ReadOnly,
            "mount the file system writable, or choose another destination",
        ),
        Errno::NAMETOOLONG => (
            K::NameTooLong,
            "rename the file, or exclude it with --exclude",
        ),
        // `openat2` returns these numbers with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, and
        // `open` returns `ELOOP` with `O_NOFOLLOW`.
        Errno::LOOP | Errno::XDEV => (
            K::PathEscapes,
            "a part of the path is a symbolic link: use the real path",
        ),
        Errno::IO | Errno::NODEV | Errno::NXIO | Errno::STALE | Errno::REMOTEIO | Errno::BADMSG => {
            (
                K::Io,
                "check the storage; the system's log may have details",
            )
        }
        Errno::UCLEAN => (
            K::Io,
            "repair the damaged file system (fsck), and run the same command again",
        ),
        Errno::MFILE => (
            K::Busy,
            "raise the limit of open files for this process (ulimit -n)",
        ),
        Errno::NFILE => (
            K::Busy,
            "end other programs, or raise the limit of open files for this host (fs.file-max)",
        ),
        Errno::NOMEM => (K::Busy, "free memory on this host, and try again"),
        Errno::AGAIN | Errno::BUSY | Errno::TXTBSY | Errno::INTR | Errno::NOLCK => {
            (K::Busy, "try again later")
        }
        other => meaning_of_rest(other),
    }
}

/// Continues [`meaning`] with the error numbers of network file systems, and of operations that a
/// file system lacks.
fn meaning_of_rest(errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match errno {
        Errno::TIMEDOUT => (K::TimedOut, "check the storage server"),
        Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NOTCONN
        | Errno::CONNREFUSED
        | Errno::CONNRESET
        | Errno::SHUTDOWN => (K::Unreachable, "check the storage server"),
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE => (
            K::Unsupported,
            "use a folder on a file system that supports this operation",
        ),
        Errno::ILSEQ => (
            K::InvalidName,
            "rename the file to a name that the file system accepts",
        ),
        _ => (K::Other, ""),
    }
}

/// Returns the system's message for an error number, without the number.
fn words(errno: Errno) -> String {
    io_words(&io::Error::from(errno))
}

/// Returns the message of a standard library error, without the error number of the system.
#[must_use]
pub fn io_words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// Returns the error for an operation that a backend does not support.
#[must_use]
pub fn unsupported(end: End, operation: &str, path: &RelPath, cause: &str) -> Error {
    Error::new(ErrorKind::Unsupported, end, operation)
        .file(path)
        .cause(cause)
}

#[cfg(test)]
mod tests {
    use super::{error, too_many_open};
    use dray_core::{End, ErrorKind, RelPath, Status};
    use rustix::io::Errno;

    #[test]
    fn a_lack_of_descriptors_is_told_apart_from_what_is_not_there() {
        let told = |errno: Errno| too_many_open(End::Sink, "read", &errno.into());
        let lack = told(Errno::MFILE).expect("a lack");
        assert_eq!(lack.kind, ErrorKind::Busy);
        assert!(lack.remedy.contains("ulimit -n"), "{lack}");
        assert!(told(Errno::NOENT).is_none());
    }

    #[test]
    fn common_errors_have_a_kind_and_a_remedy() {
        let path = RelPath::parse(b"run/a").expect("good");
        for (errno, kind) in [
            (Errno::ACCESS, ErrorKind::PermissionDenied),
            (Errno::PERM, ErrorKind::PermissionDenied),
            (Errno::NOENT, ErrorKind::NotFound),
            (Errno::ISDIR, ErrorKind::IsADirectory),
            (Errno::NOTDIR, ErrorKind::NotADirectory),
            (Errno::EXIST, ErrorKind::AlreadyExists),
            (Errno::NOSPC, ErrorKind::NoSpace),
            (Errno::DQUOT, ErrorKind::NoSpace),
            (Errno::ROFS, ErrorKind::ReadOnly),
            (Errno::NAMETOOLONG, ErrorKind::NameTooLong),
            (Errno::LOOP, ErrorKind::PathEscapes),
            (Errno::XDEV, ErrorKind::PathEscapes),
            (Errno::IO, ErrorKind::Io),
            (Errno::MFILE, ErrorKind::Busy),
            (Errno::BUSY, ErrorKind::Busy),
        ] {
            let error = error(End::Sink, "open the file", &path, errno);
            assert_eq!(error.kind, kind, "{errno:?}");
            assert!(!error.remedy.is_empty() && !error.cause.is_empty());
            assert!(!error.cause.contains("os error"), "{}", error.cause);
        }
        let damaged = error(End::Sink, "open the file", &path, Errno::UCLEAN);
        assert_eq!(damaged.status, Status::Permanent);
    }
}

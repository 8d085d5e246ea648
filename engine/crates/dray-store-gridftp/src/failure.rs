//! Errors of the library as errors of the store.

use dray_core::{End, Error, ErrorKind, RelPath};

/// An operation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server answered with an error, or the library reported one. The code is that of the
    /// server's answer (RFC 959), or 0 for an error of the library.
    Reported(u32, String),
    /// The server sent nothing for this number of seconds.
    Silent(u64),
    /// The server sent an answer that the protocol does not permit.
    Broken(&'static str),
}

/// Parts of a line that names the cause better than the last line does.
const TELLING: &[&str] = &[
    "expired",
    "too permissive",
    "not yet valid",
    "Untrusted",
    "could not be found in any",
    "does not match",
    "timed out",
];

impl Failure {
    /// Returns true if the connection to the server cannot be used any more.
    pub(crate) const fn is_of_the_connection(&self) -> bool {
        !matches!(self, Self::Reported(100..=599, _)) || matches!(self, Self::Reported(421, _))
    }

    fn kind(&self) -> ErrorKind {
        let (code, text) = match self {
            Self::Silent(_) => return ErrorKind::TimedOut,
            Self::Broken(_) => return ErrorKind::Protocol,
            Self::Reported(code, text) => (*code, text.as_str()),
        };
        let has = |part: &str| text.contains(part);
        match code {
            // A busy server closes the connection during the authentication.
            0 if has("reset") || has("closed") || has("EOF") => ErrorKind::Unreachable,
            // The library reports a failed authentication at either end by errors of GSS.
            0 if has("GSS") || has("credential") => ErrorKind::Unauthorized,
            0 => ErrorKind::Unreachable,
            _ if has("No such file or directory") => ErrorKind::NotFound,
            _ if has("Permission denied") || has("not permitted") => ErrorKind::PermissionDenied,
            _ if has("Is a directory") => ErrorKind::IsADirectory,
            _ if has("Not a directory") => ErrorKind::NotADirectory,
            _ if has("File name too long") => ErrorKind::NameTooLong,
            421 => ErrorKind::Busy,
            425 | 426 => ErrorKind::Unreachable,
            // Do not search these answers for common words: they contain the path of the file.
            502 | 504 => ErrorKind::Unsupported,
            500 | 501 if has("nrecognized") || has("not implemented") => ErrorKind::Unsupported,
            530 | 535 => ErrorKind::Unauthorized,
            _ => ErrorKind::Io,
        }
    }

    fn cause(&self) -> String {
        match self {
            Self::Silent(seconds) => format!("the server sent nothing for {seconds} s"),
            Self::Broken(cause) => (*cause).to_owned(),
            Self::Reported(_, text) => telling_line(text),
        }
    }

    const fn remedy(kind: ErrorKind) -> &'static str {
        match kind {
            ErrorKind::Unauthorized => {
                "make a new proxy (grid-proxy-init or voms-proxy-init), set X509_USER_PROXY to its \
                 path and X509_CERT_DIR to the folder of the trusted authorities"
            }
            ErrorKind::PermissionDenied => {
                "ask the administrator of the server to grant access to the file"
            }
            ErrorKind::Busy => "run the same command again later",
            ErrorKind::Unreachable | ErrorKind::TimedOut => {
                "check the server and the network, then run the same command again"
            }
            ErrorKind::Unsupported | ErrorKind::Protocol => {
                "copy the file with another program, or through another server of the site"
            }
            _ => "",
        }
    }

    /// Returns the error of an operation of the store on the file at `path`.
    pub(crate) fn at(&self, end: End, operation: &str, path: &RelPath) -> Error {
        let kind = self.kind();
        let error = Error::new(kind, end, operation).file(path);
        error.cause(self.cause()).remedy(Self::remedy(kind))
    }
}

/// Returns the line of a message that names the cause. The messages have up to 40 lines. The cause
/// usually is in the last line, except for credentials.
fn telling_line(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim();
        // An answer of several lines repeats the code: `550-GridFTP-Reason: ...`, `550 End.`
        let bare = line.trim_start_matches(|one: char| one.is_ascii_digit() || one == ' ');
        match bare.len() < line.len() {
            true => bare.strip_prefix('-').unwrap_or(bare),
            false => line,
        }
    });
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && *line != "End." && *line != "-")
        .collect();
    let telling = |line: &&&str| TELLING.iter().any(|part| line.contains(part));
    let found = lines.iter().find(telling).or(lines.last());
    let words = found.map_or("the library gave no reason", |line| line);
    let words = words
        .strip_prefix("GridFTP-Error-String: ")
        .unwrap_or(words);
    let words = dray_core::path::escape(words.as_bytes());
    // The library names the credential two lines before.
    match words.starts_with("expired") {
        true => format!("the proxy {}", words.trim_end_matches('.')),
        false => words,
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;
    use dray_core::{End, ErrorKind, RelPath};

    fn error(code: u32, text: &str) -> dray_core::Error {
        Failure::Reported(code, text.to_owned()).at(End::Source, "read", &RelPath::root())
    }

    #[test]
    fn answers_of_servers_have_kinds_and_short_causes() {
        let missing = "globus_ftp_client: the server responded with an error\n\
            550 550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n\
            550-GridFTP-Reason: System error in stat\r\n\
            550-GridFTP-Error-String: No such file or directory\r\n550 End.\r\n\n";
        let found = error(550, missing);
        assert_eq!(found.kind, ErrorKind::NotFound);
        assert_eq!(found.cause, "No such file or directory");
        let folder = "globus_ftp_client: the server responded with an error\n500 500-Command \
            failed. : callback failed.\r\n500-globus_xio: System error in read: Is a directory\r\n\
            500-globus_xio: A system call failed: Is a directory\r\n500 End.\r\n";
        assert_eq!(error(500, folder).kind, ErrorKind::IsADirectory);
        assert_eq!(
            error(500, "500 Unrecognized command MLST.").kind,
            ErrorKind::Unsupported
        );
        assert_eq!(error(421, "421 Idle timeout").kind, ErrorKind::Busy);
    }

    #[test]
    fn errors_of_the_library_have_kinds_and_short_causes() {
        let refused = "globus_xio: Unable to connect to localhost:9\n\
            globus_xio: A system call failed: Connection refused\n";
        let found = error(0, refused);
        assert_eq!(found.kind, ErrorKind::Unreachable);
        assert_eq!(
            found.cause,
            "globus_xio: A system call failed: Connection refused"
        );
        let expired = "globus_ftp_control: gss_init_sec_context failed\nGSS failure: \n\
            globus_credential: Error with credential: The proxy credential: /p\n      with subject: \
            /CN=a\n      expired 5 minutes ago.\n\n";
        let found = error(0, expired);
        assert_eq!(found.kind, ErrorKind::Unauthorized);
        assert_eq!(found.cause, "the proxy expired 5 minutes ago");
    }

    #[test]
    fn only_an_answer_leaves_the_connection_usable() {
        let reported = |code| Failure::Reported(code, String::new()).is_of_the_connection();
        assert!(reported(0) && reported(421) && !reported(550));
        assert!(Failure::Silent(1).is_of_the_connection());
    }
}

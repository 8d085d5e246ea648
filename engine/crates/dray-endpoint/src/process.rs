//! Checks the limits that the system sets for this process, before any file is opened. With limits
//! that are too low, a signal would kill the endpoint, or the endpoint would answer no calls.

use dray_config::Config;
use dray_core::units::human;
use dray_core::{End, Error, ErrorKind, Result, Status};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lowest limit of open files with which the endpoint starts. It suffices for the listeners, the
/// queue and its readers, the log, and one transfer with a few files and streams. The value is
/// estimated, not measured.
const FILES_MIN: u64 = 128;

/// Number of open files of a session with many small files. The value is estimated, not measured.
const FILES_OF_SESSION: u64 = 16;

/// Bytes of address space that the process needs in addition to the buffers: for the program,
/// thread stacks, TLS and the allocator. The value is estimated, not measured.
const ADDRESSES_MIN: u64 = 512 << 20;

/// Size in bytes that the queue's database and its write-ahead log can reach in normal operation.
/// The value is estimated, not measured.
const FILE_BYTES_MIN: u64 = 64 << 20;

/// The limits of a process. `None` means unlimited.
#[derive(Debug, Clone, Copy)]
struct Limits {
    files: Option<u64>,
    addresses: Option<u64>,
    file_bytes: Option<u64>,
}

/// Raises the limit of open files, and refuses to start with limits that are too low.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`], with the name of the limit, its value and the required value.
pub(crate) fn check(config: &Config) -> Result<()> {
    let files = getrlimit(Resource::Nofile);
    if files.current != files.maximum {
        let raised = Rlimit {
            current: files.maximum,
            maximum: files.maximum,
        };
        // If the system refuses, the endpoint continues with the current limit.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let limits = Limits {
        files: getrlimit(Resource::Nofile).current,
        addresses: getrlimit(Resource::As).current,
        file_bytes: getrlimit(Resource::Fsize).current,
    };
    let memory = config.limits.memory.0;
    for warning in judge(limits, memory, u64::from(config.limits.transfers_active))? {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Returns warnings about limits that allow a start but are low.
///
/// # Errors
/// If a limit is too low for a start.
fn judge(limits: Limits, memory: u64, sessions: u64) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if let Some(files) = limits.files {
        if files < FILES_MIN {
            let cause = format!("the limit is {files} open files, but {FILES_MIN} are needed");
            return Err(refused(
                cause,
                "raise the limit of open files (ulimit -n, LimitNOFILE=)",
            ));
        }
        let wanted = FILES_MIN + sessions * FILES_OF_SESSION;
        if files < wanted {
            warnings.push(format!(
                "the limit is {files} open files, but {sessions} transfers may need {wanted}: \
                    raise the limit of open files (ulimit -n, LimitNOFILE=)"
            ));
        }
    }
    if let Some(addresses) = limits.addresses {
        let needed = memory.saturating_add(ADDRESSES_MIN);
        if addresses < needed {
            let cause = format!(
                "the limit of the address space is {}, but limits.memory needs {}",
                human(addresses),
                human(needed)
            );
            let remedy = "raise the limit of the address space (ulimit -v, LimitAS=), or lower \
                limits.memory";
            return Err(refused(cause, remedy));
        }
    }
    if let Some(bytes) = limits.file_bytes {
        let remedy = "raise the limit of file sizes (ulimit -f, LimitFSIZE=)";
        if bytes < FILE_BYTES_MIN {
            let cause = format!(
                "the limit of file sizes is {}, but the queue needs {}",
                human(bytes),
                human(FILE_BYTES_MIN)
            );
            return Err(refused(cause, remedy));
        }
        warnings.push(format!(
            "the limit of file sizes is {}: larger files fail; {remedy}",
            human(bytes)
        ));
    }
    Ok(warnings)
}

fn refused(cause: String, remedy: &str) -> Error {
    Error::new(ErrorKind::LimitExceeded, End::Here, "start the endpoint")
        .status(Status::Permanent)
        .cause(cause)
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES_MIN, Limits, judge};

    const MEMORY: u64 = 1 << 30;

    #[test]
    fn limits_that_are_too_low_are_named_with_what_is_needed() {
        let enough = Limits {
            files: Some(1_024),
            addresses: Some(MEMORY + ADDRESSES_MIN),
            file_bytes: None,
        };
        assert!(judge(enough, MEMORY, 50).expect("enough").is_empty());
        let none = Limits {
            files: None,
            addresses: None,
            file_bytes: None,
        };
        assert!(judge(none, u64::MAX, 1 << 20).expect("enough").is_empty());
        let said = |limits: Limits| judge(limits, MEMORY, 50).expect_err("too low").to_string();
        let files = Limits {
            files: Some(16),
            ..enough
        };
        assert!(said(files).contains("ulimit -n"), "{}", said(files));
        let addresses = Limits {
            addresses: Some(MEMORY),
            ..enough
        };
        assert!(
            said(addresses).contains("limits.memory"),
            "{}",
            said(addresses)
        );
        let bytes = Limits {
            file_bytes: Some(8_192),
            ..enough
        };
        assert!(said(bytes).contains("ulimit -f"), "{}", said(bytes));
        // Enough files for a start, but too few for the maximum number of transfers.
        let few = Limits {
            files: Some(512),
            file_bytes: Some(1 << 30),
            ..enough
        };
        assert_eq!(judge(few, MEMORY, 50).expect("enough").len(), 2);
    }
}

//! Probes the capabilities of the file system under a root.

use super::{attributes, size_of, time_of};
use crate::types::Capabilities;
use dray_core::path::{NAME_LENGTH_MAX, PATH_LENGTH_MAX, RESERVED_PREFIX};
use dray_core::{End, ModifiedTime};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};

/// A time with digits in every place, so that rounding is visible; an odd second for file systems
/// with a resolution of two seconds.
const TIME: ModifiedTime = ModifiedTime {
    seconds: 1_234_567_891,
    nanoseconds: 123_456_789,
};

/// Bytes of the file that tests holes: larger than any block size in use.
const HOLE_BYTES: u64 = 1 << 20;

const POSIX: Capabilities = Capabilities {
    random_write: true,
    atomic_rename: true,
    publish_if_absent: true,
    publish_replace: true,
    minimal_part_bytes: 1,
    write_alignment_bytes: 1,
    can_hold_log: true,
    sets_times: true,
    time_precision_nanoseconds: 1,
    holes: true,
    xattrs: true,
    symlinks: true,
    mode: true,
    refused_name_bytes: b"",
    name_bytes_max: NAME_LENGTH_MAX,
    path_bytes_max: PATH_LENGTH_MAX,
    keeps_nothing: false,
    compares_sums: false,
    takes_many: false,
    late_calls: std::time::Duration::ZERO,
};

/// Returns the capabilities of the file system that holds `root`. A source is not written to: its
/// time precision does not matter, since the engine compares times at the coarser end's precision.
pub(super) fn capabilities(root: BorrowedFd<'_>, end: End) -> Capabilities {
    let mut found = POSIX;
    found.xattrs = attributes::are_supported(root);
    if end == End::Sink {
        // If the root is not writable, the first real write fails with the reason.
        if let Ok((precision, holes)) = try_out(root) {
            found.time_precision_nanoseconds = precision;
            found.holes = holes;
        }
    }
    found
}

fn try_out(root: BorrowedFd<'_>) -> Result<(u32, bool)> {
    let file = nameless(root)?;
    rustix::fs::futimens(&file, &attributes::times(TIME))?;
    let kept = time_of(&rustix::fs::fstat(&file)?);
    rustix::fs::ftruncate(&file, HOLE_BYTES)?;
    let stat = rustix::fs::fstat(&file)?;
    let taken = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    Ok((precision(kept), taken < size_of(&stat)))
}

/// Opens a file without a name, which the system removes on close.
fn nameless(root: BorrowedFd<'_>) -> Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(root, ".", flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        other => return other,
    }
    let id = rustix::process::getpid().as_raw_nonzero();
    let name = [RESERVED_PREFIX, format!("probe-{id}").as_bytes()].concat();
    let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(root, &name, flags, mode)?;
    rustix::fs::unlinkat(root.as_fd(), &name, AtFlags::empty())?;
    Ok(file)
}

/// Returns the resolution of times in nanoseconds, derived from the stored value of [`TIME`].
fn precision(kept: ModifiedTime) -> u32 {
    if kept.seconds != TIME.seconds {
        return 2_000_000_000;
    }
    let steps = [1, 100, 1000, 1_000_000, 10_000_000];
    let is_kept = |step: &u32| kept.nanoseconds == TIME.nanoseconds / step * step;
    steps.into_iter().find(is_kept).unwrap_or(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::{TIME, precision};
    use dray_core::ModifiedTime;

    #[test]
    fn the_step_of_times_is_read_from_what_was_kept() {
        for step in [1, 100, 1000, 1_000_000, 1_000_000_000] {
            let nanoseconds = TIME.nanoseconds / step * step;
            let kept = ModifiedTime {
                nanoseconds,
                ..TIME
            };
            assert_eq!(precision(kept), step);
        }
        let even = ModifiedTime {
            seconds: TIME.seconds - 1,
            nanoseconds: 0,
        };
        assert_eq!(precision(even), 2_000_000_000);
    }
}

//! Determines the capabilities of the file system of a root.

use super::file_systems::kind_of;
use super::{attributes, size_of, time_of};
use crate::types::Capabilities;
use dray_core::path::{NAME_LENGTH_MAX, PATH_LENGTH_MAX, RESERVED_PREFIX};
use dray_core::{End, ModifiedTime};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::time::Duration;

/// Time for the test of the time resolution. It has a nonzero digit in every place, so that
/// rounding is visible. Its number of seconds is odd, because some file systems have a resolution
/// of two seconds.
const TIME: ModifiedTime = ModifiedTime {
    seconds: 1_234_567_891,
    nanoseconds: 123_456_789,
};

/// Size in bytes of the file for the test of holes. It is larger than any block size in use.
const HOLE_BYTES: u64 = 1 << 20;

/// File systems whose files report size 0 although they have content: proc, cgroup, cgroup2,
/// debugfs, tracefs and securityfs (`linux/magic.h`).
pub(super) const SIZELESS: [u64; 6] = [
    0x9fa0,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
];

/// Kind of FUSE file systems (linux/magic.h).
const FUSE: u64 = 0x6573_5546;

/// Time for which a read on a FUSE file system may return old content: by default, the kernel trusts
/// the attributes of an open file for a second, and a client of GlusterFS trusts its own caches for
/// another second.
const FUSE_STALE_READS: Duration = Duration::from_secs(2);

const POSIX: Capabilities = Capabilities {
    random_write: true,
    atomic_rename: true,
    publish_if_absent: true,
    publish_replace: true,
    minimal_part_bytes: 1,
    write_alignment_bytes: 1,
    can_hold_log: true,
    can_hold_log_parts: true,
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
    late_calls: Duration::ZERO,
    stale_reads: Duration::ZERO,
    // `fsync` reports the lost writes of one file only. The lock in `FileSystem::sync` orders calls
    // of `syncfs`, and a loss that one call reports fails every later call.
    syncs_apart: true,
    writes_durably: false,
    is_on_disks: false,
    folder_versions: true,
};

/// Returns the capabilities of the file system of `root`. The store does not write to a source, so
/// the time precision of a source is not tested. This is harmless, because the engine compares
/// times at the precision of the less precise end.
pub(super) fn capabilities(root: BorrowedFd<'_>, end: End) -> Capabilities {
    let mut found = POSIX;
    found.xattrs = attributes::are_supported(root);
    if kind_of(root) == Some(FUSE) {
        found.stale_reads = FUSE_STALE_READS;
        // Some FUSE file systems report constant times of folders.
        found.folder_versions = false;
    }
    if end == End::Sink {
        // If the root is not writable, the test fails, and the first real write reports the reason.
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

/// Creates a file without a name. The system deletes the file when it is closed.
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

/// Returns the resolution of modification times in nanoseconds. `kept` is the value that the file
/// system stored for [`TIME`].
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

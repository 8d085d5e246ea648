//! Mode, time, extended attributes, and the checksums kept among them.

use super::{mode_of, size_of, time_of};
use crate::types::Attributes;
use dray_core::{Metadata, ModifiedTime, Sums};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Mode, Stat, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::{Errno, Result};

/// Attributes that people set and that need no privilege; others (security, system, trusted) belong
/// to the host.
const CARRIED_PREFIX: &[u8] = b"user.";

/// Dray's own; not carried, since they speak of one file at one place.
const OWN_PREFIX: &[u8] = b"user.dray.";

/// Where the checksums of a published file are kept.
const SUMS_NAME: &str = "user.dray.sums";

/// Most bytes of attribute names, and of one value, that are read (the kernel's own bounds,
/// `XATTR_LIST_MAX` and `XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// Sets everything on an open file or folder. `mode_is_set` says that the mode is right already.
///
/// The mode comes last: one that forbids writing would forbid setting attributes, too.
pub(super) fn set(
    fd: BorrowedFd<'_>,
    attributes: &Attributes<'_>,
    mode_is_set: bool,
) -> Result<()> {
    let metadata = attributes.metadata;
    for (name, value) in &metadata.xattrs {
        rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty())?;
    }
    rustix::fs::futimens(fd, &times(metadata.modified))?;
    if let Some(sums) = attributes.sums {
        // The time as the file system keeps it, which may be coarser than the one asked for.
        let stat = rustix::fs::fstat(fd)?;
        let value = sums_text(sums, size_of(&stat), time_of(&stat));
        rustix::fs::fsetxattr(fd, SUMS_NAME, value.as_bytes(), XattrFlags::empty())?;
    }
    if !mode_is_set {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(metadata.mode & 0o7777))?;
    }
    Ok(())
}

/// Of a folder: what is made in it has its group.
const SET_GROUP_ID: u32 = 0o2000;

/// Sets a folder's attributes. The bit that it has taken from where it was made stays: files that are made in
/// it later have its group, too.
pub(super) fn set_folder(fd: BorrowedFd<'_>, metadata: &Metadata) -> Result<()> {
    let inherited = mode_of(&rustix::fs::fstat(fd)?) & SET_GROUP_ID;
    if inherited != 0 && metadata.mode & SET_GROUP_ID == 0 {
        let mode = metadata.mode | inherited;
        let with_group = Metadata {
            mode,
            ..metadata.clone()
        };
        match set(fd, &Attributes::of(&with_group), false) {
            // A service may be denied to set that bit (RestrictSUIDSGID).
            Err(Errno::PERM) => {}
            set => return set,
        }
    }
    set(fd, &Attributes::of(metadata), false)
}

/// Gives a file or folder another mode, where `fd` may be one that was opened for nothing (`O_PATH`): its
/// mode may forbid its owner to open it for anything else.
pub(super) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(mode & 0o7777))
}

/// The modification time to set; the access time stays.
pub(super) fn times(modified: ModifiedTime) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}

/// What is listed of a file or folder.
pub(super) fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        mode: mode_of(stat),
        modified: time_of(stat),
        xattrs: Vec::new(),
    }
}

/// The attributes to carry of an open file or folder, sorted by name.
pub(super) fn xattrs(fd: BorrowedFd<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::flistxattr(fd, names.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|b| *b == 0) {
        if !name.starts_with(CARRIED_PREFIX) || name.starts_with(OWN_PREFIX) {
            continue;
        }
        match value(fd, name) {
            Ok(value) => found.push((name.to_vec(), value)),
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    found.sort();
    Ok(found)
}

fn value(fd: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = match rustix::fs::fgetxattr(fd, name, value.as_mut_slice()) {
        Err(Errno::RANGE) => {
            value.resize(XATTR_BYTES_MAX, 0);
            rustix::fs::fgetxattr(fd, name, value.as_mut_slice())?
        }
        other => other?,
    };
    value.truncate(length);
    Ok(value)
}

/// Whether extended attributes can be had here.
pub(super) fn are_supported(fd: BorrowedFd<'_>) -> bool {
    !matches!(value(fd, SUMS_NAME.as_bytes()), Err(Errno::OPNOTSUPP))
}

/// The checksums kept with an open file, if they were taken of the file as it is now.
pub(super) fn known_sums(fd: BorrowedFd<'_>) -> Result<Option<Sums>> {
    let text = match value(fd, SUMS_NAME.as_bytes()) {
        Ok(text) => text,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(fd)?;
    let sums = std::str::from_utf8(&text).ok().and_then(parse_sums);
    Ok(sums.filter(|sums| {
        // Written again and compared as a whole: size and time must be those of then.
        sums_text(*sums, size_of(&stat), time_of(&stat)).as_bytes() == text
    }))
}

fn sums_text(sums: Sums, size: u64, modified: ModifiedTime) -> String {
    format!(
        "crc32c:{:08x} adler32:{:08x} size:{size} modified:{}.{:09}",
        sums.crc32c, sums.adler32, modified.seconds, modified.nanoseconds
    )
}

fn parse_sums(text: &str) -> Option<Sums> {
    let mut words = text.split(' ');
    let crc32c = words.next()?.strip_prefix("crc32c:")?;
    let adler32 = words.next()?.strip_prefix("adler32:")?;
    Some(Sums {
        crc32c: u32::from_str_radix(crc32c, 16).ok()?,
        adler32: u32::from_str_radix(adler32, 16).ok()?,
    })
}

//! Sets and reads mode, modification time and extended attributes. One extended attribute stores
//! the checksums of a file.

use super::{mode_of, size_of, time_of};
use crate::types::Attributes;
use dray_core::attribute::{AttributeRule, STRIPES_NAME, attribute_rule};
use dray_core::path::escape;
use dray_core::{End, EntryKind, Error, ErrorKind, Metadata, ModifiedTime, Sums};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::{Errno, Result};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Extended attribute that holds the checksums of a published file.
const SUMS_NAME: &str = "user.dray.sums";

/// Maximum size in bytes of the list of attribute names, and of one attribute value. These are the
/// limits of the kernel (`XATTR_LIST_MAX` and `XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// Name and value of an extended attribute.
pub(super) type Attribute = (Vec<u8>, Vec<u8>);

/// Sets all attributes of an open file or folder. `mode_is_set` is true if the file already has its
/// final mode.
///
/// The mode is set last, because a mode without write permission would prevent the other attributes
/// from being set.
pub(super) fn set(
    fd: BorrowedFd<'_>,
    attributes: &Attributes<'_>,
    mode_is_set: bool,
    refused: &Refused,
) -> Result<()> {
    let metadata = attributes.metadata;
    for (name, value) in settable(metadata) {
        // The sink has already dropped all attributes that a peer must not set. This function
        // permits attributes that storage systems trust, because a local program may use this store
        // to save a checksum for its storage system. It refuses only attributes of the host, which
        // could grant rights, and dray's own attributes.
        if attribute_rule(name) == AttributeRule::Reserved {
            return Err(Errno::PERM);
        }
        rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty())
            .inspect_err(|errno| refused.note(fd, name, value.len(), *errno))?;
    }
    rustix::fs::futimens(fd, &times(metadata.modified))?;
    if let Some(sums) = attributes.sums {
        // Read the modification time back, because the file system may have rounded it.
        let stat = rustix::fs::fstat(fd)?;
        let value = sums_text(sums, size_of(&stat), time_of(&stat));
        rustix::fs::fsetxattr(fd, SUMS_NAME, value.as_bytes(), XattrFlags::empty())?;
    }
    if !mode_is_set {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(metadata.mode & 0o7777))?;
    }
    Ok(())
}

/// Returns the attributes that are set on the file. The stripes apply when the file is created.
fn settable(metadata: &Metadata) -> impl Iterator<Item = &Attribute> {
    let xattrs = metadata.xattrs.iter();
    xattrs.filter(|(name, _)| name != STRIPES_NAME)
}

/// Returns the stripes among the attributes that the source has sent.
pub(super) fn stripes_sent<'a>(attributes: &'a Attributes<'_>) -> Option<&'a [u8]> {
    let mut xattrs = attributes.metadata.xattrs.iter();
    let found = xattrs.find(|(name, _)| name == STRIPES_NAME);
    found.map(|(_, value)| value.as_slice())
}

/// The set-group-ID bit. New entries in a folder with this bit get the group of the folder.
const SET_GROUP_ID: u32 = 0o2000;

/// Sets the attributes of a folder. Keeps a set-group-ID bit that the folder has inherited from its
/// parent, so that files created later in the folder also get the group of the folder.
pub(super) fn set_folder(fd: BorrowedFd<'_>, metadata: &Metadata, refused: &Refused) -> Result<()> {
    let inherited = mode_of(&rustix::fs::fstat(fd)?) & SET_GROUP_ID;
    if inherited != 0 && metadata.mode & SET_GROUP_ID == 0 {
        let mode = metadata.mode | inherited;
        let with_group = Metadata {
            mode,
            ..metadata.clone()
        };
        match set(fd, &Attributes::of(&with_group), false, refused) {
            // The sandbox of a service may forbid setting this bit (RestrictSUIDSGID in systemd).
            Err(Errno::PERM) => {}
            set => return set,
        }
    }
    set(fd, &Attributes::of(metadata), false, refused)
}

/// Sets the low nine mode bits and the extended attributes of an existing file, if they differ.
/// Returns true if a value was changed.
pub(super) fn set_file(
    folder: BorrowedFd<'_>,
    name: &[u8],
    metadata: &Metadata,
    refused: &Refused,
) -> Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::NOENT);
    }
    // Use the path of the open descriptor, because another file may have taken the name.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut is_changed = false;
    for (name, value) in settable(metadata) {
        if attribute_rule(name) == AttributeRule::Reserved {
            return Err(Errno::PERM);
        }
        let mut found = vec![0; value.len() + 1];
        let length = rustix::fs::getxattr(&path, name.as_slice(), found.as_mut_slice());
        if length.is_ok_and(|length| found.get(..length) == Some(value.as_slice())) {
            continue;
        }
        rustix::fs::setxattr(&path, name.as_slice(), value, XattrFlags::empty())
            .inspect_err(|errno| refused.note(fd.as_fd(), name, value.len(), *errno))?;
        is_changed = true;
    }
    if (mode_of(&stat) ^ metadata.mode) & 0o777 != 0 {
        set_mode(fd.as_fd(), metadata.mode & 0o777)?;
        is_changed = true;
    }
    Ok(is_changed)
}

/// An attribute that the file system refused. `ENOSPC` for an attribute usually does not mean that
/// the disk is full, so this error has its own message.
#[derive(Debug, Default)]
pub(super) struct Refused(RefCell<Option<Error>>);

/// If at least this many bytes are free, the disk does not count as full.
const FREE_BYTES: u64 = 1 << 20;

impl Refused {
    fn note(&self, fd: BorrowedFd<'_>, name: &[u8], bytes: usize, errno: Errno) {
        let is_full = || {
            let state = rustix::fs::fstatvfs(fd);
            state.is_ok_and(|state| state.f_bavail.saturating_mul(state.f_frsize) < FREE_BYTES)
        };
        let (name, operation) = (escape(name), "set an extended attribute");
        let error = match errno {
            Errno::NOSPC if is_full() => return,
            Errno::TOOBIG | Errno::NOSPC | Errno::RANGE => {
                Error::new(ErrorKind::LimitExceeded, End::Sink, operation)
                    .cause(format!(
                        "{name} has {bytes} bytes, which is more than the file system can store"
                    ))
                    .remedy(
                        "shorten or remove the attribute at the source, or run the command \
                        without --xattrs",
                    )
            }
            Errno::OPNOTSUPP => Error::new(ErrorKind::Unsupported, End::Sink, operation)
                .cause(format!(
                    "{name}: the file system does not support extended attributes"
                ))
                .remedy("run the command without --xattrs, or choose another destination"),
            _ => return,
        };
        self.0.replace(Some(error));
    }

    /// Returns the error for the refused attribute if there is one; otherwise returns `error`.
    pub(super) fn or(self, error: Error) -> Error {
        match (self.0.into_inner(), &error.file) {
            (Some(told), Some(file)) => told.file(file).at(error.end),
            _ => error,
        }
    }
}

/// Sets the mode of a file or folder. `fd` may be an `O_PATH` descriptor, because the current mode
/// may forbid the owner to open the entry for reading or writing.
pub(super) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(mode & 0o7777))
}

/// Returns timestamps that set the modification time and do not change the access time.
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

/// Returns the metadata of a file or folder for a listing.
pub(super) fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        mode: mode_of(stat),
        modified: time_of(stat),
        xattrs: Vec::new(),
    }
}

/// Returns the kind of a regular file for a listing.
pub(super) fn file_kind(stat: &Stat) -> EntryKind {
    let size = size_of(stat);
    EntryKind::File {
        size,
        // `st_blocks` counts units of 512 bytes on every file system.
        sparse: u64::try_from(stat.st_blocks).unwrap_or(0) * 512 < size,
    }
}

/// Returns those extended attributes of an open file or folder that a transfer copies, sorted by
/// name.
pub(super) fn xattrs(fd: BorrowedFd<'_>) -> Result<Vec<Attribute>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::flistxattr(fd, names.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|b| *b == 0) {
        if attribute_rule(name) != AttributeRule::Carried {
            continue;
        }
        match value(fd, name) {
            Ok(value) => found.push((name.to_vec(), value)),
            // The attribute was removed after the names were listed.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    found.sort();
    Ok(found)
}

/// Returns a hash of the names and values of all extended attributes, also of attributes that are
/// not copied. Returns 0 if there are no attributes.
pub(super) fn fingerprint(fd: BorrowedFd<'_>) -> u64 {
    // If the attributes cannot be listed, they cannot be compared either.
    let length = rustix::fs::flistxattr_query(fd);
    if length.unwrap_or(0) == 0 {
        return 0;
    }
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = rustix::fs::flistxattr(fd, names.as_mut_slice()).unwrap_or(0);
    names.truncate(length);
    let mut hasher = DefaultHasher::new();
    for name in names.split(|byte| *byte == 0) {
        name.hash(&mut hasher);
        value(fd, name).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
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

/// Returns true if the file system supports extended attributes.
pub(super) fn are_supported(fd: BorrowedFd<'_>) -> bool {
    !matches!(value(fd, SUMS_NAME.as_bytes()), Err(Errno::OPNOTSUPP))
}

/// Returns the checksums stored with an open file, if the file still has the size and modification
/// time stored with them.
pub(super) fn known_sums(fd: BorrowedFd<'_>) -> Result<Option<Sums>> {
    let text = match value(fd, SUMS_NAME.as_bytes()) {
        Ok(text) => text,
        // GlusterFS gives `ESTALE` for an open file that was replaced.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::STALE) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(fd)?;
    let sums = std::str::from_utf8(&text).ok().and_then(parse_sums);
    Ok(sums.filter(|sums| {
        // The stored text contains the size and time. Comparing the whole text checks both.
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

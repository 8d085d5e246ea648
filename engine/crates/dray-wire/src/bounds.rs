//! Bounds of single fields. Whole frames, payloads and counts are bounded by the [`Limits`] that
//! two ends agree on; these are fixed, because a field must fit in the smallest frame allowed.

use crate::message::Limits;
use dray_core::{End, Entry, EntryKind, Error, ErrorKind, Result, plan};

/// Longest body of a HELLO, and of whatever else comes before both have been read: a stranger may
/// make this end hold no more than this.
pub const HELLO_BYTES_MAX: u32 = 64 << 10;

/// Smallest [`Limits::control_bytes_max`] an end may declare. The largest thing that cannot be
/// split is an entry with a symlink and all its attributes: at most 205 101 bytes.
pub const CONTROL_BYTES_MIN: u32 = 256 << 10;

/// Longest text of a symbolic link (Linux stops at 4 KiB; others do not).
pub const SYMLINK_BYTES_MAX: usize = 64 << 10;

/// Most extended attributes of one entry.
pub const XATTRS_MAX: usize = 1024;
/// Longest name of an extended attribute (Linux: `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute (Linux: `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of all names and values of one entry's extended attributes.
pub const XATTRS_BYTES_MAX: usize = 128 << 10;

/// Most targets of one layout (Lustre stripes over 2 000 OSTs at most).
pub const LAYOUT_TARGETS_MAX: usize = 4096;

/// Bytes of entries announced and not closed: for each that may be live, so many (guess, revisit: a
/// path and a few attributes), and
const LIVE_ENTRY_BYTES: u64 = 1 << 10;
/// so many more: a deep path of folders and the largest entry that can travel always find room.
const LIVE_BYTES_MORE: u64 = 512 << 10;

/// Separate runs of bytes of one file that a sink has, or DONE names, at the most. A quarter of
/// its objects at random makes most; this is 2^20 objects of such a file.
pub const RUNS_PER_FILE_MAX: usize = 1 << 18;
/// The same of all files announced and not closed: about 100 bytes of memory each.
pub const RUNS_MAX: usize = 1 << 20;

/// Blocks of one source without a payload that have no final state yet at the most: they spend no
/// credit (guess, revisit: as many as a sync interval of half a second brings).
pub const HOLE_BLOCKS_MAX: u32 = 4096;

/// Most storage targets that a sink may name in one session, in layouts and in CREDIT (Lustre has
/// up to 2 000 OSTs, and the source remembers a queue of each).
pub const SINK_TARGETS_MAX: usize = 1 << 14;

/// Most objects and targets that are remembered one by one, of live files on several targets. A
/// file beyond this bound is sent as if it lay on one target.
pub const STRIPED_MAX: u64 = 1 << 18;

/// Most blocks of a source without a final state, and most ranges that wait to be sent again: they
/// are remembered whether or not they hold a buffer.
pub const BLOCKS_MAX: usize = 1 << 16;

/// Most paths in one CONNECT.
pub const PATHS_MAX: usize = 4096;
pub use dray_core::patterns::{PATTERN_BYTES_MAX, PATTERNS_MAX};

/// Most addresses in a CONNECT or ACCEPT.
pub const ADDRESSES_MAX: usize = 64;
/// Longest address: a DNS name of 255 bytes, a colon, a port, brackets.
pub const ADDRESS_BYTES_MAX: usize = 272;

/// Longest [`crate::message::Hello::software`].
pub const SOFTWARE_BYTES_MAX: usize = 256;
/// Longest [`crate::message::Hello::token`] (WLCG tokens are a few KiB).
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Most checksum algorithms in a HELLO.
pub const CHECKSUMS_MAX: usize = 32;

/// Longest operation of an error; longer ones are cut by the sender.
pub const ERROR_OPERATION_BYTES_MAX: usize = 256;
/// Longest cause of an error; longer ones are cut by the sender.
pub const ERROR_CAUSE_BYTES_MAX: usize = 4096;
/// Longest remedy of an error; longer ones are cut by the sender.
pub const ERROR_REMEDY_BYTES_MAX: usize = 1024;

/// Permission bits that travel.
pub const MODE_BITS: u32 = 0o7777;

impl Default for Limits {
    fn default() -> Self {
        Self {
            control_bytes_max: 1 << 20,
            object_bytes_max: plan::OBJECT_BYTES_MAX,
            // One object of 1 MiB full of files of 256 bytes.
            segments_max: 4096,
            live_entries_max: 1 << 16,
        }
    }
}

impl Limits {
    /// What holds on a control connection until both HELLOs have been read.
    #[must_use]
    pub const fn before_hello() -> Self {
        Self {
            control_bytes_max: HELLO_BYTES_MAX,
            object_bytes_max: 0,
            segments_max: 0,
            live_entries_max: 0,
        }
    }
}

/// Bytes of names, link texts and attributes of entries announced and not closed at the most, as
/// [`entry_bytes`] counts them.
#[must_use]
pub const fn live_bytes_max(live_entries_max: u32) -> u64 {
    live_entries_max as u64 * LIVE_ENTRY_BYTES + LIVE_BYTES_MORE
}

/// What an entry whose whole path has `path_bytes` takes of [`live_bytes_max`] until it is closed. A
/// directory takes its path when it begins and its attributes when it ends.
#[must_use]
pub fn entry_bytes(entry: &Entry, path_bytes: usize) -> u64 {
    let xattrs = entry.metadata.xattrs.iter();
    let xattrs = xattrs.map(|(name, value)| name.len() + value.len()).sum();
    let bytes = match &entry.kind {
        EntryKind::Directory => path_bytes,
        EntryKind::DirectoryEnd => xattrs,
        EntryKind::File { .. } => path_bytes + xattrs,
        EntryKind::Symlink { target } => path_bytes + target.len() + xattrs,
    };
    bytes as u64
}

/// Whether an entry can travel. The lister asks before it announces one, so that an odd entry fails
/// alone and not the frame it would have been in.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] or [`ErrorKind::InvalidRequest`] naming the field.
pub fn check_entry(entry: &Entry) -> Result<()> {
    let over = |field: &str, have: usize, most: usize| {
        Err(
            Error::new(ErrorKind::LimitExceeded, End::Source, "announce an entry")
                .cause(format!(
                    "{}: {field} is {have}, at most {most} travel",
                    entry.name
                ))
                .remedy("leave the entry out with --exclude, or shorten it"),
        )
    };
    if let EntryKind::Symlink { target } = &entry.kind
        && target.len() > SYMLINK_BYTES_MAX
    {
        return over("bytes of the link's text", target.len(), SYMLINK_BYTES_MAX);
    }
    let xattrs = &entry.metadata.xattrs;
    if xattrs.len() > XATTRS_MAX {
        return over("number of extended attributes", xattrs.len(), XATTRS_MAX);
    }
    let mut total = 0;
    for (name, value) in xattrs {
        if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
            return over(
                "bytes of an attribute's name",
                name.len(),
                XATTR_NAME_BYTES_MAX,
            );
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return over(
                "bytes of an attribute's value",
                value.len(),
                XATTR_VALUE_BYTES_MAX,
            );
        }
        total += name.len() + value.len();
    }
    if total > XATTRS_BYTES_MAX {
        return over("bytes of all attributes", total, XATTRS_BYTES_MAX);
    }
    if entry.metadata.mode > MODE_BITS || entry.metadata.modified.nanoseconds > 999_999_999 {
        return Err(
            Error::new(ErrorKind::InvalidRequest, End::Source, "announce an entry")
                .cause(format!("{}: its mode or time is no such thing", entry.name)),
        );
    }
    Ok(())
}

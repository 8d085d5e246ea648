//! Limits on single fields. The limits on whole frames, payloads and counts ([`Limits`]) are
//! negotiated. The limits on fields are constants, because every field must fit in the smallest
//! frame that an end may declare.

use crate::message::Limits;
use dray_core::{End, Entry, EntryKind, Error, ErrorKind, Result, plan};

/// Maximum size in bytes of the body of a HELLO, and of every frame before both HELLOs have been
/// read. A peer that is not yet authenticated can make this end allocate at most this many bytes.
pub const HELLO_BYTES_MAX: u32 = 64 << 10;

/// Minimum [`Limits::control_bytes_max`] that an end may declare. The largest part that cannot be
/// split is an entry for a symlink with all its attributes: at most 205 101 bytes.
pub const CONTROL_BYTES_MIN: u32 = 256 << 10;

/// Maximum length in bytes of the target of a symbolic link. Linux permits 4 KiB, other systems
/// permit more.
pub const SYMLINK_BYTES_MAX: usize = 64 << 10;

/// Maximum number of extended attributes of one entry.
pub const XATTRS_MAX: usize = 1024;
/// Maximum length in bytes of the name of an extended attribute (Linux: `XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Maximum length in bytes of the value of an extended attribute (Linux: `XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum total length in bytes of the names and values of one entry's extended attributes.
pub const XATTRS_BYTES_MAX: usize = 128 << 10;

pub use dray_core::layout::{LAYOUT_EXTENTS_MAX, LAYOUT_STRIPES_MAX, LAYOUT_TARGETS_MAX};

/// Memory budget in bytes for one entry that is announced and not closed: a path and a few
/// attributes. The value is estimated, not measured.
const LIVE_ENTRY_BYTES: u64 = 1 << 10;
/// Memory budget in bytes for one deep path and the largest permitted entry, in addition to
/// [`LIVE_ENTRY_BYTES`] per entry.
const LIVE_BYTES_MORE: u64 = 512 << 10;

/// Maximum number of separate byte ranges of one file at a sink or in DONE messages. A file whose
/// objects arrive in random order has at most one separate range per four objects, so the limit
/// suffices for 2^20 objects.
pub const RUNS_PER_FILE_MAX: usize = 1 << 18;
/// Maximum number of separate byte ranges of all files that are announced and not closed. Each
/// range takes about 100 bytes of memory.
pub const RUNS_MAX: usize = 1 << 20;

/// Maximum number of hole blocks without a final state at one source. Hole blocks have no payload,
/// so credit does not limit them. The value is an estimate of the number of hole blocks that a
/// source sends within a sync interval (half a second).
pub const HOLE_BLOCKS_MAX: u32 = 4096;

/// Maximum number of storage targets that a sink may name in layouts and CREDIT messages during one
/// session. The source has a queue for each target. Lustre has up to 2 000 OSTs.
pub const SINK_TARGETS_MAX: usize = 1 << 14;

/// Maximum number of objects of striped files in the queues of the source. The other unsent objects
/// of these files wait as ranges.
pub const STRIPED_MAX: u64 = 1 << 18;

/// Maximum memory in bytes of the layouts of all unclosed files at a source. If a layout would
/// exceed the limit, the source handles the file of this layout as if all bytes were on one target.
pub const LAYOUT_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of blocks without a final state and of ranges that wait to be sent again, counted
/// together, at one source. Such blocks and ranges take memory even without a buffer, so the buffer
/// pool does not limit them.
pub const BLOCKS_MAX: usize = 1 << 16;

/// Maximum length in bytes of the trace context in one CONNECT. Version 00 has 55 bytes, and later
/// versions may have more.
pub const TRACE_BYTES_MAX: usize = 128;

/// Maximum number of paths in one CONNECT.
pub const PATHS_MAX: usize = 4096;
pub use dray_core::patterns::{PATTERN_BYTES_MAX, PATTERNS_MAX};

/// Maximum number of addresses in a CONNECT or ACCEPT.
pub const ADDRESSES_MAX: usize = 64;
/// Maximum length in bytes of an address: a DNS name of 255 bytes, a colon, a port and brackets.
pub const ADDRESS_BYTES_MAX: usize = 272;

/// Maximum length of [`crate::message::Hello::software`] in bytes.
pub const SOFTWARE_BYTES_MAX: usize = 256;
/// Maximum length of [`crate::message::Hello::token`] in bytes. WLCG tokens have a few KiB.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Maximum number of checksum algorithms in a HELLO.
pub const CHECKSUMS_MAX: usize = 32;

/// Maximum length in bytes of an error's operation. The sender truncates longer text.
pub const ERROR_OPERATION_BYTES_MAX: usize = 256;
/// Maximum length in bytes of an error's cause. The sender truncates longer text.
pub const ERROR_CAUSE_BYTES_MAX: usize = 4096;
/// Maximum length in bytes of an error's remedy. The sender truncates longer text.
pub const ERROR_REMEDY_BYTES_MAX: usize = 1024;

/// The bits of a file mode that are sent.
pub const MODE_BITS: u32 = 0o7777;

impl Default for Limits {
    fn default() -> Self {
        Self {
            control_bytes_max: 1 << 20,
            object_bytes_max: plan::OBJECT_BYTES_MAX,
            // A 1 MiB object that packs files of 256 bytes has 4096 segments.
            segments_max: 4096,
            live_entries_max: 1 << 16,
        }
    }
}

impl Limits {
    /// Returns the limits of a control connection until both HELLOs have been read.
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

/// Returns the maximum bytes of names, link texts and attributes of all announced and unclosed
/// entries. [`entry_bytes`] computes the share of one entry.
#[must_use]
pub const fn live_bytes_max(live_entries_max: u32) -> u64 {
    live_entries_max as u64 * LIVE_ENTRY_BYTES + LIVE_BYTES_MORE
}

/// Returns the number of bytes of an entry that count towards [`live_bytes_max`] until the entry is
/// closed. `path_bytes` is the length of the full path. A directory has two entries: the path counts
/// with `Directory`, and the attributes count with `DirectoryEnd`.
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

/// Checks that an entry can be sent. The lister calls this function before it announces an entry,
/// so that an invalid entry does not make its whole frame fail.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] or [`ErrorKind::InvalidRequest`]. The error contains the name of
/// the field.
pub fn check_entry(entry: &Entry) -> Result<()> {
    let over = |field: &str, have: usize, most: usize| {
        Err(
            Error::new(ErrorKind::LimitExceeded, End::Source, "announce an entry")
                .cause(format!(
                    "{}: {have} {field}; at most {most} are allowed",
                    entry.name
                ))
                .remedy("exclude the entry with --exclude, or shorten its name or attributes"),
        )
    };
    if let EntryKind::Symlink { target } = &entry.kind
        && target.len() > SYMLINK_BYTES_MAX
    {
        return over(
            "bytes in the target of the link",
            target.len(),
            SYMLINK_BYTES_MAX,
        );
    }
    let xattrs = &entry.metadata.xattrs;
    if xattrs.len() > XATTRS_MAX {
        return over("extended attributes", xattrs.len(), XATTRS_MAX);
    }
    let mut total = 0;
    for (name, value) in xattrs {
        if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
            return over(
                "bytes in an attribute's name",
                name.len(),
                XATTR_NAME_BYTES_MAX,
            );
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return over(
                "bytes in an attribute's value",
                value.len(),
                XATTR_VALUE_BYTES_MAX,
            );
        }
        total += name.len() + value.len();
    }
    if total > XATTRS_BYTES_MAX {
        return over("bytes in all attributes", total, XATTRS_BYTES_MAX);
    }
    if entry.metadata.mode > MODE_BITS || entry.metadata.modified.nanoseconds > 999_999_999 {
        return Err(
            Error::new(ErrorKind::InvalidRequest, End::Source, "announce an entry").cause(format!(
                "{}: the mode or time of the entry is not valid",
                entry.name
            )),
        );
    }
    Ok(())
}

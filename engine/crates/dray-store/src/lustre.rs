//! Layouts of Lustre files: the value of the extended attribute `lustre.lov`, decoded and encoded.
//!
//! The structures are those of Lustre's `lustre_user.h`: `lov_user_md_v1`, `lov_user_md_v3`,
//! `lov_comp_md_v1` and `lov_comp_md_entry_v1`. All numbers are little-endian, and the structures
//! have no padding. The decoder accepts any bytes: it reads only within the value, and the memory
//! that it uses is proportional to the length of the value.
//!
//! The module does no I/O. The POSIX store reads and sets the attribute.

mod bytes;
mod stripes;

pub use dray_core::stripes::STRIPE_BYTES_MIN;
pub use stripes::{StripePart, Stripes};

use bytes::{u16_at, u32_at, u64_at};
use dray_core::{End, Error, ErrorKind};
use std::collections::BTreeMap;

/// Name of the extended attribute that has the layout of a file or a folder on Lustre.
pub const LAYOUT_ATTRIBUTE: &str = "lustre.lov";

/// Maximum size in bytes of a layout. This is the limit of the kernel for the value of an extended
/// attribute (`XATTR_SIZE_MAX`).
pub const LAYOUT_BYTES_MAX: usize = 64 * 1024;

/// Returns the error for a destination that cannot give its new files the stripes that a user
/// requests. `words` describes the destination.
#[must_use]
pub fn stripes_refused(end: End, words: &str) -> Error {
    Error::new(ErrorKind::Unsupported, end, "set the stripes of new files")
        .cause(format!("{words} is not a folder on a Lustre file system"))
        .remedy("omit the stripes (`--stripe` or the field `stripe`), or choose a folder on Lustre")
}

/// `LOV_USER_MAGIC_V1`: one component, without a pool name.
const MAGIC_V1: u32 = 0x0BD1_0BD0;
/// `LOV_USER_MAGIC_V3`: one component, with a pool name.
const MAGIC_V3: u32 = 0x0BD3_0BD0;
/// `LOV_USER_MAGIC_SPECIFIC`: as version 3, with the servers that the creator requested.
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
/// `LOV_USER_MAGIC_COMP_V1`: several components.
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
/// `LOV_USER_MAGIC_FOREIGN`: data that Lustre does not store itself.
const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;
/// `LOV_USER_MAGIC_SEL`: as a composite layout, with components that Lustre can extend.
const MAGIC_EXTENDABLE: u32 = 0x0BD8_0BD0;

/// Size in bytes of `lov_user_md_v1` without its objects.
const V1_BYTES: usize = 32;
/// Size in bytes of the pool name that `lov_user_md_v3` adds (`LOV_MAXPOOLNAME` + 1).
const POOL_NAME_BYTES: usize = 16;
/// Size in bytes of `lov_user_ost_data_v1`, the record of one object.
const OBJECT_BYTES: usize = 24;
/// Size in bytes of `lov_comp_md_v1` without its entries.
const COMPOSITE_BYTES: usize = 32;
/// Size in bytes of `lov_comp_md_entry_v1`.
const ENTRY_BYTES: usize = 48;

/// `LOV_PATTERN_RAID0`: stripes on object storage targets.
const PATTERN_STRIPED: u32 = 0x1;
/// `LOV_PATTERN_MDT`: the bytes are on the metadata server (data on MDT).
const PATTERN_MDT: u32 = 0x100;
/// `LOV_PATTERN_F_RELEASED`: the bytes are only in the archive (HSM).
const PATTERN_RELEASED: u32 = 0x8000_0000;

/// `LCME_FL_STALE`: the component does not have the newest bytes.
const FLAG_STALE: u32 = 0x1;
/// `LCME_FL_PREF_RD` and `LCME_FL_PREF_WR`: the administrator prefers this mirror.
const FLAG_PREFERRED: u32 = 0x6;
/// `LCME_FL_OFFLINE`: the component is not available.
const FLAG_OFFLINE: u32 = 0x8;
/// `LCME_FL_INIT`: the component has objects.
const FLAG_HAS_OBJECTS: u32 = 0x10;
/// `LCME_FL_EXTENSION`: space by which Lustre can extend the component before it.
const FLAG_EXTENSION: u32 = 0x40;
/// `LCME_FL_PARITY`: parity of other components, no bytes of the file.
const FLAG_PARITY: u32 = 0x80;

/// Number of bits by which `lcme_id` is shifted to get the mirror (`MIRROR_ID_SHIFT`).
const MIRROR_SHIFT: u32 = 16;
/// Bits of the mirror in `lcme_id`, after the shift (`MIRROR_ID_MASK`).
const MIRROR_MASK: u32 = 0x7FFF;

/// Stripe count that means "the default of the parent folder".
const COUNT_DEFAULT: u16 = 0;
/// Largest index of an object storage target. Lustre formats the index with four hexadecimal
/// digits.
pub const OST_INDEX_MAX: u32 = 0xFFFF;

/// The layout of a file, or the default layout that a folder gives to new files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LustreLayout {
    /// Components in the order of their ranges. Ranges do not overlap, but there may be gaps
    /// between them. For a mirrored file, these are the components of one mirror.
    pub components: Vec<Component>,
}

/// A range of a file with one kind of striping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// First byte of the range.
    pub start: u64,
    /// End of the range; `u64::MAX` is the end of the file.
    pub end: u64,
    /// Size of a stripe in bytes; zero means the default of the file system.
    pub stripe_bytes: u64,
    /// Requested or actual number of stripes. Zero means the default of the file system, and
    /// `u16::MAX` means one stripe on each target.
    pub stripe_count: u16,
    /// Place of the bytes.
    pub place: Place,
    /// Name of the pool from which Lustre chooses targets, if there is one.
    pub pool: Option<Vec<u8>>,
}

/// Place of the bytes of a [`Component`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Indices of the object storage targets, in the order of the stripes; never empty. Stripe `n`
    /// of the file, counted from the start of the file, is on the target `n` modulo the number of
    /// targets.
    Osts(Vec<u32>),
    /// The metadata server (data on MDT).
    Metadata,
    /// The bytes have no place yet, because no byte of the component was written. The default
    /// layout of a folder has this value too.
    Unwritten,
    /// The bytes are in an archive or in another storage system.
    Elsewhere,
}

/// Reason why the value of the attribute is not a valid layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The value, or a part of the value, ends too early.
    TooShort,
    /// The value is longer than [`LAYOUT_BYTES_MAX`].
    TooLong,
    /// The value begins with an unknown number.
    Magic(u32),
    /// A field has an impossible value.
    Field(&'static str),
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooShort => write!(f, "the layout ends too early"),
            Self::TooLong => write!(f, "the layout has more than {LAYOUT_BYTES_MAX} bytes"),
            Self::Magic(magic) => write!(f, "the layout has the unknown format {magic:#010x}"),
            Self::Field(name) => write!(f, "the field {name} of the layout has a wrong value"),
        }
    }
}

impl LustreLayout {
    /// Decodes the value of [`LAYOUT_ATTRIBUTE`] of a file or a folder.
    ///
    /// # Errors
    /// [`LayoutError`] if the bytes are not a layout of a known format.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        if bytes.len() > LAYOUT_BYTES_MAX {
            return Err(LayoutError::TooLong);
        }
        let components = match u32_at(bytes, 0)? {
            MAGIC_COMPOSITE | MAGIC_EXTENDABLE => composite(bytes)?,
            MAGIC_FOREIGN => vec![foreign(0, u64::MAX)],
            _ => vec![plain(bytes, 0, u64::MAX, true)?],
        };
        Ok(Self { components })
    }
}

/// Returns the component of a part that Lustre does not store.
const fn foreign(start: u64, end: u64) -> Component {
    Component {
        start,
        end,
        stripe_bytes: 0,
        stripe_count: 0,
        place: Place::Elsewhere,
        pool: None,
    }
}

/// Decodes `lov_user_md_v1` or `lov_user_md_v3`. If `may_have_objects` is false, the component has
/// only a requested stripe count, and no records of objects follow.
fn plain(
    bytes: &[u8],
    start: u64,
    end: u64,
    may_have_objects: bool,
) -> Result<Component, LayoutError> {
    let objects_at = match u32_at(bytes, 0)? {
        MAGIC_V1 => V1_BYTES,
        MAGIC_V3 | MAGIC_SPECIFIC => V1_BYTES + POOL_NAME_BYTES,
        MAGIC_FOREIGN => return Ok(foreign(start, end)),
        other => return Err(LayoutError::Magic(other)),
    };
    if bytes.len() < objects_at {
        return Err(LayoutError::TooShort);
    }
    let pattern = u32_at(bytes, 4)?;
    // Bytes 8 to 24 are the identity of the file (`lmm_oi`).
    let stripe_bytes = u64::from(u32_at(bytes, 24)?);
    let stripe_count = u16_at(bytes, 28)?;
    let pool = bytes.get(V1_BYTES..objects_at).unwrap_or_default();
    let pool = pool.split(|byte| *byte == 0).next().unwrap_or_default();
    let records = bytes.get(objects_at..).unwrap_or_default();
    let place = if pattern & PATTERN_RELEASED != 0 {
        Place::Elsewhere
    } else if pattern & PATTERN_MDT != 0 {
        Place::Metadata
    } else if pattern & PATTERN_STRIPED == 0 && pattern != 0 {
        Place::Elsewhere
    } else if !may_have_objects || records.is_empty() || stripe_count == COUNT_DEFAULT {
        Place::Unwritten
    } else {
        if stripe_bytes == 0 {
            return Err(LayoutError::Field("lmm_stripe_size"));
        }
        Place::Osts(osts(records, stripe_count)?)
    };
    Ok(Component {
        start,
        end,
        stripe_bytes,
        stripe_count,
        place,
        pool: (!pool.is_empty()).then(|| pool.to_vec()),
    })
}

/// Decodes the records of `count` objects.
fn osts(records: &[u8], count: u16) -> Result<Vec<u32>, LayoutError> {
    let length = usize::from(count) * OBJECT_BYTES;
    let records = records.get(..length).ok_or(LayoutError::TooShort)?;
    let index = |record: &[u8]| match u32_at(record, 20)? {
        index if index <= OST_INDEX_MAX => Ok(index),
        _ => Err(LayoutError::Field("l_ost_idx")),
    };
    records.chunks_exact(OBJECT_BYTES).map(index).collect()
}

struct Entry<'a> {
    mirror: u32,
    flags: u32,
    start: u64,
    end: u64,
    blob: &'a [u8],
}

impl<'a> Entry<'a> {
    fn decode(layout: &'a [u8], at: usize) -> Result<Self, LayoutError> {
        let (start, end) = (u64_at(layout, at + 8)?, u64_at(layout, at + 16)?);
        let blob_at = u32_at(layout, at + 24)? as usize;
        let blob_bytes = u32_at(layout, at + 28)? as usize;
        if layout.len() < at + ENTRY_BYTES {
            return Err(LayoutError::TooShort);
        }
        let blob = layout
            .get(blob_at..)
            .and_then(|rest| rest.get(..blob_bytes));
        if start >= end {
            return Err(LayoutError::Field("lcme_extent"));
        }
        Ok(Self {
            mirror: u32_at(layout, at)? >> MIRROR_SHIFT & MIRROR_MASK,
            flags: u32_at(layout, at + 4)?,
            start,
            end,
            blob: blob.ok_or(LayoutError::TooShort)?,
        })
    }
}

/// Decodes `lov_comp_md_v1`, and chooses one mirror.
fn composite(bytes: &[u8]) -> Result<Vec<Component>, LayoutError> {
    if bytes.len() < COMPOSITE_BYTES {
        return Err(LayoutError::TooShort);
    }
    // `lcm_size` may be smaller than the value: the kernel may return a padded buffer.
    let size = u32_at(bytes, 4)? as usize;
    let layout = bytes.get(..size).ok_or(LayoutError::TooShort)?;
    let count = usize::from(u16_at(layout, 14)?);
    let entries = (0..count)
        .map(|number| Entry::decode(layout, COMPOSITE_BYTES + number * ENTRY_BYTES))
        .collect::<Result<Vec<_>, _>>()?;
    let entries = entries
        .into_iter()
        .filter(|entry| entry.flags & FLAG_PARITY == 0);
    let mut mirrors: BTreeMap<u32, Vec<Entry<'_>>> = BTreeMap::new();
    let mut order = Vec::new();
    for entry in entries {
        if !mirrors.contains_key(&entry.mirror) {
            order.push(entry.mirror);
        }
        mirrors.entry(entry.mirror).or_default().push(entry);
    }
    let has = |mirror: &u32, flags: u32| {
        let entries = mirrors.get(mirror).into_iter().flatten();
        entries.into_iter().any(|entry| entry.flags & flags != 0)
    };
    let unusable = FLAG_STALE | FLAG_OFFLINE;
    let chosen = order
        .iter()
        .min_by_key(|mirror| (has(mirror, unusable), !has(mirror, FLAG_PREFERRED)));
    let chosen = chosen
        .copied()
        .ok_or(LayoutError::Field("lcm_entry_count"))?;
    let mut entries = mirrors.remove(&chosen).unwrap_or_default();
    entries.sort_by_key(|entry| entry.start);
    if entries.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(LayoutError::Field("lcme_extent"));
    }
    let component = |entry: &Entry<'_>| {
        let has_objects = entry.flags & FLAG_HAS_OBJECTS != 0;
        let is_extension = entry.flags & FLAG_EXTENSION != 0;
        plain(
            entry.blob,
            entry.start,
            entry.end,
            has_objects && !is_extension,
        )
    };
    entries.iter().map(component).collect()
}

#[cfg(test)]
mod tests;

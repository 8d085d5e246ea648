//! Values that several messages use: entries, ranges, errors, options, layouts. Each value has a
//! `put_` and a `read_` function. Both use the field order of docs/design/wire-protocol.md.

use super::bytes::{
    Reader, put_bytes, put_cut_text, put_flag, put_i64, put_list, put_option, put_u8, put_u16,
    put_u32, put_u64,
};
use crate::bounds;
use crate::message::{Limits, Selection};
use dray_core::options::{Durability, Links, Options, Order, Overwrite, ResumeMode};
use dray_core::path::{NAME_LENGTH_MAX, PATH_LENGTH_MAX};
use dray_core::{
    ByteRange, Checksum, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Metadata,
    ModifiedTime, Name, RelPath, Result, Status, Sums,
};

/// Minimum length in bytes of an encoded entry: index 8, no parent 1, name 4 + 1, kind 1, mode 4,
/// time 12, no attributes 4.
pub(super) const ENTRY_BYTES_MIN: usize = 35;
pub(super) const RANGE_BYTES: usize = 16;
/// Minimum length in bytes of an encoded error: kind 2, status 1, end 1, no file 1, three empty
/// texts 12.
pub(super) const ERROR_BYTES_MIN: usize = 17;

pub(super) fn put_range(out: &mut Vec<u8>, range: &ByteRange) {
    put_u64(out, range.offset);
    put_u64(out, range.length);
}

pub(super) fn read_range(reader: &mut Reader<'_>, field: &str) -> Result<ByteRange> {
    let (offset, length) = (reader.u64(field)?, reader.u64(field)?);
    ByteRange::new(offset, length).ok_or_else(|| {
        reader.wrong(
            field,
            format_args!("{offset} + {length} does not fit into 64 bits"),
        )
    })
}

pub(super) fn put_sums(out: &mut Vec<u8>, sums: &Sums) {
    put_u32(out, sums.crc32c);
    put_u32(out, sums.adler32);
}

pub(super) fn read_sums(reader: &mut Reader<'_>) -> Result<Sums> {
    Ok(Sums {
        crc32c: reader.u32("sums.crc32c")?,
        adler32: reader.u32("sums.adler32")?,
    })
}

pub(super) fn put_checksum(out: &mut Vec<u8>, checksum: Option<&Checksum>) {
    match checksum {
        None => put_u8(out, 0),
        Some(Checksum::Crc32c(value)) => {
            put_u8(out, 1);
            put_u32(out, *value);
        }
        Some(Checksum::Adler32(value)) => {
            put_u8(out, 2);
            put_u32(out, *value);
        }
    }
}

pub(super) fn read_checksum(reader: &mut Reader<'_>) -> Result<Option<Checksum>> {
    Ok(match reader.u8("demanded")? {
        0 => None,
        1 => Some(Checksum::Crc32c(reader.u32("demanded.value")?)),
        2 => Some(Checksum::Adler32(reader.u32("demanded.value")?)),
        other => return Err(reader.wrong("demanded", format_args!("algorithm {other} is unknown"))),
    })
}

pub(super) fn put_error(out: &mut Vec<u8>, error: &Error) {
    put_u16(out, error.kind.code());
    put_u8(out, error.status.code());
    put_u8(out, error.end.code());
    put_option(out, error.file.as_ref(), |out, path| {
        // A `RelPath` has at most 64 KiB, so the conversion cannot fail.
        put_u32(out, u32::try_from(path.as_bytes().len()).unwrap_or(0));
        out.extend_from_slice(path.as_bytes());
    });
    put_cut_text(out, &error.operation, bounds::ERROR_OPERATION_BYTES_MAX);
    put_cut_text(out, &error.cause, bounds::ERROR_CAUSE_BYTES_MAX);
    put_cut_text(out, &error.remedy, bounds::ERROR_REMEDY_BYTES_MAX);
}

pub(super) fn read_error(reader: &mut Reader<'_>) -> Result<Error> {
    let kind = ErrorKind::from_code(reader.u16("error.kind")?);
    let status = reader.u8("error.status")?;
    let status = Status::from_code(status).ok_or_else(|| {
        reader.wrong(
            "error.status",
            format_args!("the status {status} is unknown"),
        )
    })?;
    let end = reader.u8("error.end")?;
    let end = End::from_code(end)
        .ok_or_else(|| reader.wrong("error.end", format_args!("the end {end} is unknown")))?;
    let file = reader.option("error.file", |reader| {
        let bytes = reader.bytes("error.file", PATH_LENGTH_MAX)?;
        RelPath::parse(bytes).map_err(|error| reader.wrong("error.file", error.cause))
    })?;
    Ok(Error {
        kind,
        status,
        end,
        operation: reader.text("error.operation", bounds::ERROR_OPERATION_BYTES_MAX)?,
        file,
        cause: reader.text("error.cause", bounds::ERROR_CAUSE_BYTES_MAX)?,
        remedy: reader.text("error.remedy", bounds::ERROR_REMEDY_BYTES_MAX)?,
    })
}

pub(super) fn put_entry(out: &mut Vec<u8>, entry: &Entry) -> Result<()> {
    bounds::check_entry(entry)?;
    put_u64(out, entry.index.0);
    put_option(out, entry.parent.as_ref(), |out, parent| {
        put_u64(out, parent.0)
    });
    put_bytes(out, "entry.name", entry.name.as_bytes(), NAME_LENGTH_MAX)?;
    match &entry.kind {
        EntryKind::File { size, sparse } => {
            put_u8(out, 1);
            put_u64(out, *size);
            put_flag(out, *sparse);
        }
        EntryKind::Directory => put_u8(out, 2),
        EntryKind::DirectoryEnd => put_u8(out, 3),
        EntryKind::Symlink { target } => {
            put_u8(out, 4);
            put_bytes(out, "entry.symlink", target, bounds::SYMLINK_BYTES_MAX)?;
        }
    }
    put_u32(out, entry.metadata.mode);
    put_i64(out, entry.metadata.modified.seconds);
    put_u32(out, entry.metadata.modified.nanoseconds);
    put_list(
        out,
        "entry.xattrs",
        &entry.metadata.xattrs,
        bounds::XATTRS_MAX,
        |out, attribute| {
            put_bytes(
                out,
                "entry.xattr.name",
                &attribute.0,
                bounds::XATTR_NAME_BYTES_MAX,
            )?;
            put_bytes(
                out,
                "entry.xattr.value",
                &attribute.1,
                bounds::XATTR_VALUE_BYTES_MAX,
            )
        },
    )
}

pub(super) fn read_entry(reader: &mut Reader<'_>) -> Result<Entry> {
    let index = FileIndex(reader.u64("entry.index")?);
    let parent = reader.option("entry.parent", |reader| reader.u64("entry.parent"))?;
    let name = Name::new(reader.bytes("entry.name", NAME_LENGTH_MAX)?)
        .map_err(|error| reader.wrong("entry.name", error.cause))?;
    let kind = match reader.u8("entry.kind")? {
        1 => EntryKind::File {
            size: reader.u64("entry.size")?,
            sparse: reader.flag("entry.sparse")?,
        },
        2 => EntryKind::Directory,
        3 => EntryKind::DirectoryEnd,
        4 => EntryKind::Symlink {
            target: reader
                .bytes("entry.symlink", bounds::SYMLINK_BYTES_MAX)?
                .to_vec(),
        },
        other => {
            return Err(reader.wrong("entry.kind", format_args!("the value {other} is unknown")));
        }
    };
    let metadata = read_metadata(reader)?;
    Ok(Entry {
        index,
        parent: parent.map(FileIndex),
        name,
        kind,
        metadata,
    })
}

fn read_metadata(reader: &mut Reader<'_>) -> Result<Metadata> {
    let mode = reader.u32("entry.mode")?;
    if mode > bounds::MODE_BITS {
        return Err(reader.wrong(
            "entry.mode",
            format_args!("the mode {mode:o} has more than twelve bits"),
        ));
    }
    let seconds = reader.i64("entry.modified.seconds")?;
    let nanoseconds = reader.u32("entry.modified.nanoseconds")?;
    if nanoseconds > 999_999_999 {
        let why = format_args!("{nanoseconds} nanoseconds are not less than one second");
        return Err(reader.wrong("entry.modified.nanoseconds", why));
    }
    let mut total = 0;
    let xattrs = reader.list("entry.xattrs", bounds::XATTRS_MAX, 9, |reader| {
        let name = reader.bytes("entry.xattr.name", bounds::XATTR_NAME_BYTES_MAX)?;
        if name.is_empty() {
            return Err(reader.wrong("entry.xattr.name", "empty"));
        }
        let value = reader.bytes("entry.xattr.value", bounds::XATTR_VALUE_BYTES_MAX)?;
        total += name.len() + value.len();
        if total > bounds::XATTRS_BYTES_MAX {
            let most = bounds::XATTRS_BYTES_MAX as u64;
            return Err(reader.over("entry.xattrs", total as u64, most));
        }
        Ok((name.to_vec(), value.to_vec()))
    })?;
    Ok(Metadata {
        mode,
        modified: ModifiedTime {
            seconds,
            nanoseconds,
        },
        xattrs,
    })
}

pub(super) fn put_options(out: &mut Vec<u8>, options: &Options) {
    put_u8(
        out,
        match options.durability {
            Durability::None => 0,
            Durability::File => 1,
            Durability::Object => 2,
        },
    );
    put_u8(
        out,
        match options.overwrite {
            Overwrite::Never => 0,
            Overwrite::IfDifferent => 1,
            Overwrite::Always => 2,
        },
    );
    match options.order {
        Order::Layout => put_u8(out, 0),
        Order::File => put_u8(out, 1),
        Order::Random { seed } => {
            put_u8(out, 2);
            put_u64(out, seed);
        }
    }
    put_u64(out, options.object_bytes);
    put_flag(out, options.verify);
    put_flag(out, options.xattrs);
    put_flag(out, options.checksum_attributes);
    put_option(out, options.rate.as_ref(), |out, rate| put_u64(out, *rate));
}

pub(super) fn read_options(reader: &mut Reader<'_>) -> Result<Options> {
    let durability = match reader.u8("options.durability")? {
        0 => Durability::None,
        1 => Durability::File,
        2 => Durability::Object,
        other => {
            return Err(reader.wrong(
                "options.durability",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    let overwrite = match reader.u8("options.overwrite")? {
        0 => Overwrite::Never,
        1 => Overwrite::IfDifferent,
        2 => Overwrite::Always,
        other => {
            return Err(reader.wrong(
                "options.overwrite",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    let order = match reader.u8("options.order")? {
        0 => Order::Layout,
        1 => Order::File,
        2 => Order::Random {
            seed: reader.u64("options.order.seed")?,
        },
        other => {
            return Err(reader.wrong(
                "options.order",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    Ok(Options {
        durability,
        overwrite,
        order,
        object_bytes: reader.u64_above_zero("options.object_bytes")?,
        verify: reader.flag("options.verify")?,
        // CONNECT encodes `resume` not here but after its last older field, because older peers
        // ignore additional fields at the end.
        resume: ResumeMode::default(),
        xattrs: reader.flag("options.xattrs")?,
        checksum_attributes: reader.flag("options.checksum_attributes")?,
        rate: reader.option("options.rate", |reader| reader.u64("options.rate"))?,
        // CONNECT encodes this option after `resume`.
        stripes: None,
    })
}

pub(super) fn put_selection(out: &mut Vec<u8>, selection: &Selection) -> Result<()> {
    put_flag(out, selection.recursive);
    for (field, patterns) in [
        ("selection.include", &selection.include),
        ("selection.exclude", &selection.exclude),
    ] {
        put_list(
            out,
            field,
            patterns,
            bounds::PATTERNS_MAX,
            |out, pattern| put_bytes(out, field, pattern.as_bytes(), bounds::PATTERN_BYTES_MAX),
        )?;
    }
    put_option(out, selection.range.as_ref(), put_range);
    put_option(out, selection.size.as_ref(), |out, size| {
        put_u64(out, *size)
    });
    put_flag(out, selection.rename.is_some());
    if let Some(name) = &selection.rename {
        put_bytes(out, "selection.rename", name.as_bytes(), NAME_LENGTH_MAX)?;
    }
    put_u8(
        out,
        match selection.links {
            Links::Keep => 0,
            Links::Follow => 1,
            Links::Refuse => 2,
        },
    );
    Ok(())
}

pub(super) fn read_selection(reader: &mut Reader<'_>) -> Result<Selection> {
    let recursive = reader.flag("selection.recursive")?;
    let mut patterns = |field| {
        reader.list(field, bounds::PATTERNS_MAX, 4, |reader| {
            reader.text(field, bounds::PATTERN_BYTES_MAX)
        })
    };
    let include = patterns("selection.include")?;
    let exclude = patterns("selection.exclude")?;
    let range = reader.option("selection.range", |reader| {
        read_range(reader, "selection.range")
    })?;
    let size = reader.option("selection.size", |reader| reader.u64("selection.size"))?;
    let rename = reader.option("selection.rename", |reader| {
        Name::new(reader.bytes("selection.rename", NAME_LENGTH_MAX)?)
            .map_err(|error| reader.wrong("selection.rename", error.cause))
    })?;
    let links = match reader.u8("selection.links")? {
        0 => Links::Keep,
        1 => Links::Follow,
        2 => Links::Refuse,
        other => {
            return Err(reader.wrong(
                "selection.links",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    Ok(Selection {
        recursive,
        include,
        exclude,
        range,
        size,
        rename,
        links,
    })
}

pub(super) fn put_limits(out: &mut Vec<u8>, limits: &Limits) {
    put_u32(out, limits.control_bytes_max);
    put_u64(out, limits.object_bytes_max);
    put_u32(out, limits.segments_max);
    put_u32(out, limits.live_entries_max);
}

pub(super) fn read_limits(reader: &mut Reader<'_>) -> Result<Limits> {
    Ok(Limits {
        control_bytes_max: reader.u32("limits.control_bytes_max")?,
        object_bytes_max: reader.u64("limits.object_bytes_max")?,
        segments_max: reader.u32("limits.segments_max")?,
        live_entries_max: reader.u32("limits.live_entries_max")?,
    })
}

//! Encodes and decodes layouts. A decoded layout is within the bounds of [`dray_core::layout`].

use super::bytes::{Reader, put_list, put_u8, put_u16, put_u32, put_u64};
use crate::bounds::{LAYOUT_EXTENTS_MAX, LAYOUT_STRIPES_MAX, LAYOUT_TARGETS_MAX};
use dray_core::layout::{Extent, StripeTable};
use dray_core::{Layout, Result, TargetId};
use std::sync::Arc;

/// Minimum length in bytes of an encoded extent: end 8, stripe 8, one target 4 + 4.
const EXTENT_BYTES_MIN: usize = 24;

fn put_targets(out: &mut Vec<u8>, targets: &[TargetId]) -> Result<()> {
    put_list(
        out,
        "layout.targets",
        targets,
        LAYOUT_TARGETS_MAX,
        |out, target| {
            put_u32(out, target.0);
            Ok(())
        },
    )
}

fn read_targets(reader: &mut Reader<'_>) -> Result<Vec<TargetId>> {
    let targets = reader.list("layout.targets", LAYOUT_TARGETS_MAX, 4, |reader| {
        Ok(TargetId(reader.u32("layout.target")?))
    })?;
    if targets.is_empty() {
        return Err(reader.wrong("layout.targets", "the list has no targets"));
    }
    Ok(targets)
}

pub(super) fn put_layout(out: &mut Vec<u8>, layout: &Layout) -> Result<()> {
    match layout {
        Layout::Single(target) => {
            put_u8(out, 1);
            put_u32(out, target.0);
            Ok(())
        }
        Layout::Striped {
            stripe_bytes,
            targets,
        } => {
            put_u8(out, 2);
            put_u64(out, *stripe_bytes);
            put_targets(out, targets)
        }
        Layout::Table(table) => {
            put_u8(out, 3);
            put_u64(out, table.stripe_bytes());
            put_targets(out, table.targets())?;
            let (stripes, most) = (table.stripes(), LAYOUT_STRIPES_MAX);
            put_list(out, "layout.stripes", stripes, most, |out, place| {
                put_u16(out, *place);
                Ok(())
            })
        }
        Layout::Composite(extents) => {
            put_u8(out, 4);
            let most = LAYOUT_EXTENTS_MAX;
            put_list(out, "layout.extents", extents, most, |out, extent| {
                put_u64(out, extent.end);
                put_u64(out, extent.stripe_bytes);
                put_targets(out, &extent.targets)
            })
        }
    }
}

pub(super) fn read_layout(reader: &mut Reader<'_>) -> Result<Layout> {
    match reader.u8("layout")? {
        1 => Ok(Layout::Single(TargetId(reader.u32("layout.target")?))),
        2 => Ok(Layout::Striped {
            stripe_bytes: reader.u64_above_zero("layout.stripe_bytes")?,
            targets: read_targets(reader)?,
        }),
        3 => read_table(reader),
        4 => read_composite(reader),
        other => Err(reader.wrong("layout", format_args!("kind {other} is unknown"))),
    }
}

fn read_table(reader: &mut Reader<'_>) -> Result<Layout> {
    let stripe_bytes = reader.u64_above_zero("layout.stripe_bytes")?;
    let targets = read_targets(reader)?;
    let stripes = reader.list("layout.stripes", LAYOUT_STRIPES_MAX, 2, |reader| {
        reader.u16("layout.stripe")
    })?;
    match StripeTable::new(stripe_bytes, targets, stripes) {
        Some(table) => Ok(Layout::Table(Arc::new(table))),
        None => Err(reader.wrong(
            "layout.stripes",
            "the list of stripes is empty, or a stripe refers to a target that the list of targets \
                does not have",
        )),
    }
}

fn read_composite(reader: &mut Reader<'_>) -> Result<Layout> {
    let (mut end, mut named) = (0, 0);
    let most = LAYOUT_EXTENTS_MAX;
    let extents = reader.list("layout.extents", most, EXTENT_BYTES_MIN, |reader| {
        let extent = Extent {
            end: reader.u64("layout.end")?,
            stripe_bytes: reader.u64_above_zero("layout.stripe_bytes")?,
            targets: read_targets(reader)?,
        };
        if extent.end <= end {
            let why = format_args!("the end {} is not after the previous end {end}", extent.end);
            return Err(reader.wrong("layout.end", why));
        }
        end = extent.end;
        named += extent.targets.len();
        if named > LAYOUT_TARGETS_MAX {
            return Err(reader.over("layout.targets", named as u64, LAYOUT_TARGETS_MAX as u64));
        }
        Ok(extent)
    })?;
    if extents.len() < 2 {
        return Err(reader.wrong(
            "layout.extents",
            "a composite layout must have at least two extents",
        ));
    }
    Ok(Layout::Composite(extents.into()))
}

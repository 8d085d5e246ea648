//! Stripes that a new file gets, and the attribute value that requests them.

use super::{
    COMPOSITE_BYTES, ENTRY_BYTES, LustreLayout, MAGIC_COMPOSITE, MAGIC_V1, PATTERN_MDT,
    PATTERN_STRIPED, Place, V1_BYTES,
};
use dray_core::stripes::{StripeError, stripe_bytes};
use std::fmt;
use std::str::FromStr;

/// Maximum number of parts. A text with more parts is not parsed.
const PARTS_MAX: usize = 64;

/// Value of `lmm_stripe_offset` with which Lustre chooses the targets itself.
const ANY_TARGET: u16 = u16::MAX;

/// Requested striping of a new file: one part for each range of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripes {
    parts: Vec<StripePart>,
}

/// Striping of a range of a new file. The range begins at the end of the part before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripePart {
    /// End of the range in bytes; `u64::MAX` is the end of the file.
    pub end: u64,
    /// Number of stripes. Zero is the default of the file system, and `u16::MAX` means all targets.
    pub count: u16,
    /// Size of a stripe in bytes; zero is the default of the file system.
    pub stripe_bytes: u32,
    /// True if the range is on the metadata server (data on MDT).
    pub is_metadata: bool,
}

impl Stripes {
    /// Returns the striping of a whole file. Zero stripes or bytes mean the default of the file
    /// system, and `u16::MAX` stripes mean all targets.
    ///
    /// # Errors
    /// [`StripeError`] if Lustre does not permit the stripe size.
    pub fn whole(count: u16, bytes: u64) -> Result<Self, StripeError> {
        Ok(Self::fixed(count, stripe_bytes(bytes)?))
    }

    /// Returns the striping of a whole file with a stripe size that was checked before.
    #[must_use]
    pub fn fixed(count: u16, stripe_bytes: u32) -> Self {
        let part = StripePart {
            end: u64::MAX,
            count,
            stripe_bytes,
            is_metadata: false,
        };
        Self { parts: vec![part] }
    }

    /// Returns the striping of an existing file. Returns `None` if the file is not stored in
    /// stripes, for example because its bytes are in an archive.
    #[must_use]
    pub fn of_layout(layout: &LustreLayout) -> Option<Self> {
        let part = |component: &super::Component| {
            let is_metadata = component.place == Place::Metadata;
            Some(StripePart {
                end: component.end,
                count: if is_metadata {
                    0
                } else {
                    component.stripe_count
                },
                stripe_bytes: stripe_bytes(component.stripe_bytes).ok()?,
                is_metadata,
            })
        };
        let components = &layout.components;
        if components.iter().any(|part| part.place == Place::Elsewhere) {
            return None;
        }
        // A gap cannot be requested.
        let mut at = 0;
        for component in components {
            if component.start != at {
                return None;
            }
            at = component.end;
        }
        Self::of(components.iter().map(part).collect::<Option<_>>()?).ok()
    }

    fn of(parts: Vec<StripePart>) -> Result<Self, StripeError> {
        if parts.is_empty() || parts.len() > PARTS_MAX {
            return Err(StripeError(format!(
                "the layout must have 1 to {PARTS_MAX} components"
            )));
        }
        let are_in_order = parts.windows(2).all(|pair| pair[0].end < pair[1].end);
        if !are_in_order || parts[0].end == 0 {
            return Err(StripeError(
                "the components of the layout are not in order".to_owned(),
            ));
        }
        if parts.iter().skip(1).any(|part| part.is_metadata) {
            return Err(StripeError(
                "only the first component of the layout can be on the metadata server".to_owned(),
            ));
        }
        if parts
            .iter()
            .any(|part| part.is_metadata && part.end == u64::MAX)
        {
            return Err(StripeError(
                "a component on the metadata server has no end".to_owned(),
            ));
        }
        Ok(Self { parts })
    }

    /// Returns the parts in the order of their ranges; never empty.
    #[must_use]
    pub fn parts(&self) -> &[StripePart] {
        &self.parts
    }

    /// Returns the value of `lustre.lov` with which a new file gets these stripes: a
    /// `lov_user_md_v1`, or a `lov_comp_md_v1` if there are several parts.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.parts.as_slice() {
            [part] if part.end == u64::MAX => blob(part).to_vec(),
            parts => {
                let blobs_at = COMPOSITE_BYTES + parts.len() * ENTRY_BYTES;
                let size = blobs_at + parts.len() * V1_BYTES;
                let mut out = Vec::with_capacity(size);
                out.extend(MAGIC_COMPOSITE.to_le_bytes());
                out.extend(narrow(size).to_le_bytes());
                out.extend([0; 6]); // lcm_layout_gen, lcm_flags
                out.extend((parts.len() as u16).to_le_bytes());
                out.extend([0; 16]); // lcm_mirror_count to lcm_padding2
                let mut start = 0_u64;
                for (number, part) in parts.iter().enumerate() {
                    out.extend([0; 8]); // lcme_id, lcme_flags
                    out.extend(start.to_le_bytes());
                    out.extend(part.end.to_le_bytes());
                    out.extend(narrow(blobs_at + number * V1_BYTES).to_le_bytes());
                    out.extend(narrow(V1_BYTES).to_le_bytes());
                    out.extend([0; 16]); // lcme_layout_gen to the end
                    start = part.end;
                }
                parts.iter().for_each(|part| out.extend(blob(part)));
                out
            }
        }
    }
}

/// Converts a size that [`PARTS_MAX`] bounds.
fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Encodes `lov_user_md_v1` without objects.
fn blob(part: &StripePart) -> [u8; V1_BYTES] {
    let pattern = match part.is_metadata {
        true => PATTERN_MDT,
        false => PATTERN_STRIPED,
    };
    let mut out = [0; V1_BYTES];
    out[0..4].copy_from_slice(&MAGIC_V1.to_le_bytes());
    out[4..8].copy_from_slice(&pattern.to_le_bytes());
    out[24..28].copy_from_slice(&part.stripe_bytes.to_le_bytes());
    out[28..30].copy_from_slice(&part.count.to_le_bytes());
    out[30..32].copy_from_slice(&ANY_TARGET.to_le_bytes());
    out
}

/// Writes each part as `END:COUNT:BYTES`: its end offset, number of stripes and stripe size. Commas
/// separate the parts. A part on the metadata server is `END:mdt:BYTES`. The source sends this text
/// to the sink.
impl fmt::Display for Stripes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match part.is_metadata {
                true => write!(f, "{comma}{}:mdt:{}", part.end, part.stripe_bytes)?,
                false => write!(
                    f,
                    "{comma}{}:{}:{}",
                    part.end, part.count, part.stripe_bytes
                )?,
            }
        }
        Ok(())
    }
}

impl FromStr for Stripes {
    type Err = StripeError;

    fn from_str(text: &str) -> Result<Self, StripeError> {
        let wrong =
            || StripeError("a component of the layout lacks the form END:COUNT:BYTES".to_owned());
        let part = |text: &str| {
            let mut words = text.split(':');
            let mut next = || words.next().ok_or_else(wrong);
            let (end, count, bytes) = (next()?, next()?, next()?);
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
            if words.next().is_some() {
                return Err(wrong());
            }
            let is_metadata = count == "mdt";
            let count = if is_metadata { 0 } else { number(count)? };
            Ok(StripePart {
                end: number(end)?,
                count: u16::try_from(count).map_err(|_| wrong())?,
                stripe_bytes: stripe_bytes(number(bytes)?)?,
                is_metadata,
            })
        };
        let parts = text.split(',').take(PARTS_MAX + 1).map(part);
        Self::of(parts.collect::<Result<_, StripeError>>()?)
    }
}

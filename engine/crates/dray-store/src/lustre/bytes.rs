//! Reads and writes little-endian numbers at offsets.

use super::LayoutError;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, LayoutError> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, LayoutError> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, LayoutError> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], LayoutError> {
    let rest = bytes.get(at..).ok_or(LayoutError::TooShort)?;
    rest.first_chunk().copied().ok_or(LayoutError::TooShort)
}

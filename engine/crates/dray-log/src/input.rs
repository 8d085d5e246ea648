//! Reads the fields of a body in order. A false length in a body cannot cause a large allocation.

use dray_core::{RelPath, Sums};

/// The part of a body that is not decoded yet.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, longest: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        if length > longest {
            return None;
        }
        self.take(length)
    }

    pub(crate) fn text(&mut self, longest: usize) -> Option<String> {
        String::from_utf8(self.bytes(longest)?.to_vec()).ok()
    }

    pub(crate) fn path(&mut self) -> Option<RelPath> {
        RelPath::parse(self.bytes(dray_core::path::PATH_LENGTH_MAX)?).ok()
    }

    pub(crate) fn sums(&mut self) -> Option<Sums> {
        Some(Sums {
            crc32c: self.u32()?,
            adler32: self.u32()?,
        })
    }
}

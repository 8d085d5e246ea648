//! The layout of files in libradosstriper: which bytes of a file are in which object.

use crate::url::FileLayout;
use dray_core::ByteRange;

/// Attribute of the first object with the size of the file, as decimal text.
pub(crate) const SIZE: &std::ffi::CStr = c"striper.size";
/// Attributes of the first object with the layout, as decimal text.
pub(crate) const OBJECT_SIZE: &std::ffi::CStr = c"striper.layout.object_size";
pub(crate) const STRIPE_UNIT: &std::ffi::CStr = c"striper.layout.stripe_unit";
pub(crate) const STRIPE_COUNT: &std::ffi::CStr = c"striper.layout.stripe_count";

/// A part of a file within one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the object in the file.
    pub(crate) object: u64,
    /// Offset in the object.
    pub(crate) offset: u64,
    /// Range of the file.
    pub(crate) range: ByteRange,
}

impl FileLayout {
    fn units_per_object(&self) -> u64 {
        (self.object_size / self.stripe_unit.max(1)).max(1)
    }

    /// Returns the object that holds the stripe unit with this number, and the offset in it.
    fn unit_at(&self, unit: u64) -> (u64, u64) {
        let count = self.stripe_count.max(1);
        let (stripe, column) = (unit / count, unit % count);
        let (set, row) = (
            stripe / self.units_per_object(),
            stripe % self.units_per_object(),
        );
        (set * count + column, row * self.stripe_unit)
    }

    /// Returns the number of the object that holds the byte at `offset`.
    pub(crate) fn object_at(&self, offset: u64) -> u64 {
        self.unit_at(offset / self.stripe_unit.max(1)).0
    }

    /// Returns the parts of a range, in the order of the file. Neighbouring parts of one object are
    /// joined.
    pub(crate) fn pieces(&self, range: ByteRange) -> Vec<Piece> {
        let unit_bytes = self.stripe_unit.max(1);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let (object, start) = self.unit_at(at / unit_bytes);
            let within = at % unit_bytes;
            let end = range.end().min(at - within + unit_bytes);
            let piece = Piece {
                object,
                offset: start + within,
                range: ByteRange::between(at, end),
            };
            match pieces.last_mut() {
                Some(last)
                    if last.object == object && last.offset + last.range.length == piece.offset =>
                {
                    last.range = ByteRange::between(last.range.offset, end);
                }
                _ => pieces.push(piece),
            }
            at = end;
        }
        pieces
    }

    /// Returns the size of the object with the number `object` in a file of `size` bytes. An object
    /// without bytes has the size 0 and need not exist.
    pub(crate) fn object_bytes(&self, size: u64, object: u64) -> u64 {
        let count = self.stripe_count.max(1);
        let unit = self.stripe_unit.max(1);
        let set_bytes = self.object_size * count;
        let left = size
            .saturating_sub(object / count * set_bytes)
            .min(set_bytes);
        let column = object % count;
        let (stripes, rest) = (left / (unit * count), left % (unit * count));
        stripes * unit + rest.saturating_sub(column * unit).min(unit)
    }

    /// Returns the number of the last object with bytes, plus one. Returns at least 1, because the
    /// first object always exists.
    pub(crate) fn objects(&self, size: u64) -> u64 {
        let count = self.stripe_count.max(1);
        let set_bytes = self.object_size.max(1) * count;
        let (sets, rest) = (size / set_bytes, size % set_bytes);
        let last = rest.div_ceil(self.stripe_unit.max(1)).min(count);
        (sets * count + last).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::FileLayout;
    use dray_core::ByteRange;
    use std::collections::BTreeMap;

    fn layout(object_size: u64, stripe_unit: u64, stripe_count: u64) -> FileLayout {
        FileLayout {
            object_size,
            stripe_unit,
            stripe_count,
        }
    }

    #[test]
    fn units_go_round_the_objects_of_a_set() {
        // Two objects of two units each make one set.
        let layout = layout(20, 10, 2);
        let units: Vec<_> = (0..6).map(|unit| layout.unit_at(unit)).collect();
        assert_eq!(units, [(0, 0), (1, 0), (0, 10), (1, 10), (2, 0), (3, 0)]);
        let pieces = layout.pieces(ByteRange::between(5, 25));
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.object, piece.offset, piece.range.length))
            .collect();
        assert_eq!(pieces, [(0, 5, 5), (1, 0, 10), (0, 10, 5)]);
    }

    #[test]
    fn plain_layouts_have_one_piece_for_each_object() {
        let layout = layout(40, 10, 1);
        let pieces = layout.pieces(ByteRange::between(35, 95));
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.object, piece.offset, piece.range.length))
            .collect();
        assert_eq!(pieces, [(0, 35, 5), (1, 0, 40), (2, 0, 15)]);
    }

    #[test]
    fn sizes_and_numbers_of_objects_agree_with_the_pieces() {
        for layout in [layout(40, 10, 1), layout(20, 10, 3), layout(10, 10, 4)] {
            for size in 0..400 {
                let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
                for piece in layout.pieces(ByteRange::between(0, size)) {
                    let end = ends.entry(piece.object).or_default();
                    *end = (*end).max(piece.offset + piece.range.length);
                }
                let last = ends.keys().max().map_or(1, |last| last + 1);
                assert_eq!(layout.objects(size), last, "{layout:?} {size}");
                for object in 0..last + 5 {
                    let expected = ends.get(&object).copied().unwrap_or(0);
                    assert_eq!(
                        layout.object_bytes(size, object),
                        expected,
                        "{layout:?} {size}"
                    );
                }
            }
        }
    }
}

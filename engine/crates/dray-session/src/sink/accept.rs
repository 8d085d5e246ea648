//! Checks arriving bytes. A piece is a range of a file that arrives in one block, in one or several
//! adjacent segments. Each piece must be a whole object, or the missing part of an object. Each
//! byte may arrive only once, and the number of separate ranges is limited. These checks limit the
//! memory that a source can make this end use.

use super::tree::{File, Node, Stage};
use super::{BlockKey, Sink};
use dray_core::plan::Grid;
use dray_core::{ByteRange, ErrorKind, FileIndex};
use dray_wire::bounds::{HOLE_BLOCKS_MAX, RUNS_MAX, RUNS_PER_FILE_MAX};
use dray_wire::message::{Segment, SegmentKind};
use std::num::NonZeroU64;

/// A protocol violation by a source: kind and cause of the resulting error.
pub(super) type Violation = (ErrorKind, String);

fn wrong<T>(cause: String) -> Result<T, Violation> {
    Err((ErrorKind::Protocol, cause))
}

impl Sink {
    /// Checks the segments of a block against their files, and marks their bytes as arrived.
    /// Ignores the segments of files that are already closed.
    pub(super) fn accept(&mut self, segments: &[Segment]) -> Result<(), Violation> {
        let is_next = |before: &Segment, after: &Segment| {
            before.file == after.file && before.range.end() == after.range.offset
        };
        for piece in segments.chunk_by(is_next) {
            let (Some(first), Some(last)) = (piece.first(), piece.last()) else {
                continue;
            };
            if piece.iter().any(|segment| segment.range.is_empty()) {
                return wrong(format!(
                    "the source sent an empty range of entry {}",
                    first.file
                ));
            }
            let range = ByteRange::between(first.range.offset, last.range.end());
            let is_hole = piece
                .iter()
                .all(|segment| segment.kind == SegmentKind::Hole);
            self.accept_piece(first.file, range, is_hole)?;
        }
        Ok(())
    }

    fn accept_piece(
        &mut self,
        index: FileIndex,
        piece: ByteRange,
        is_hole: bool,
    ) -> Result<(), Violation> {
        let Some(live) = self.live.get_mut(&index) else {
            return Ok(());
        };
        let Node::File(file) = &mut live.node else {
            return wrong(format!(
                "the source sent bytes for entry {index}, which is not a file"
            ));
        };
        if file.stage != Stage::Open {
            return wrong(format!(
                "the source sent bytes for entry {index}, which needs no bytes"
            ));
        }
        if piece.end() > file.key.size {
            return wrong(format!(
                "the source sent bytes past the end of entry {index}"
            ));
        }
        if file.accepted.overlaps(piece) {
            return wrong(format!("the source sent bytes of entry {index} twice"));
        }
        if !is_whole(file, piece, is_hole) {
            let (from, to) = (piece.offset, piece.end());
            let cause = format!(
                "the source sent bytes {from} to {to} of entry {index}, which are not a \
                    whole object"
            );
            return wrong(cause);
        }
        self.mark(index, piece, true);
        let of_file = self.file(index).map_or(0, |file| file.accepted.run_count());
        if of_file > RUNS_PER_FILE_MAX || self.runs > RUNS_MAX {
            let cause =
                format!("the received ranges of entry {index} are in too many separate pieces");
            return Err((ErrorKind::LimitExceeded, cause));
        }
        Ok(())
    }

    /// Marks a range of a file as arrived, or removes the mark if `has_arrived` is false.
    pub(super) fn mark(&mut self, index: FileIndex, range: ByteRange, has_arrived: bool) {
        let Some(file) = self.file(index) else { return };
        let before = file.accepted.run_count();
        if has_arrived {
            file.accepted.insert(range);
        } else {
            file.accepted.remove(range);
        }
        let after = file.accepted.run_count();
        self.runs = (self.runs + after).saturating_sub(before);
    }

    /// Counts a block that arrived without payload. Returns true if the source has at most
    /// [`HOLE_BLOCKS_MAX`] such blocks.
    pub(super) fn count_hole_block(&mut self, key: BlockKey) -> bool {
        let Some(peer) = self.peers.get_mut(&key.peer) else {
            return true;
        };
        peer.hole_blocks += 1;
        peer.hole_blocks <= HOLE_BLOCKS_MAX
    }

    /// Removes a block for which the sink will send no further state to the source.
    pub(super) fn forget_block(&mut self, key: BlockKey) -> Option<super::arrive::Block> {
        let block = self.blocks.remove(&key)?;
        if block.is_hole
            && let Some(peer) = self.peers.get_mut(&key.peer)
        {
            peer.hole_blocks = peer.hole_blocks.saturating_sub(1);
        }
        Some(block)
    }
}

/// Returns true if a piece covers all missing bytes of its object. A hole may cover several
/// objects. The hole must then cover all missing bytes of each of these objects. An object is
/// partly present only if the sink has reported some of its bytes as durable in a DONE message.
fn is_whole(file: &File, piece: ByteRange, is_hole: bool) -> bool {
    let object_bytes = NonZeroU64::new(file.object_bytes).unwrap_or(NonZeroU64::MIN);
    let grid = Grid::new(file.key.size, object_bytes);
    let is_safe = |offset| file.accepted.overlaps(ByteRange { offset, length: 1 });
    let is_edge =
        |offset: u64| offset == file.key.size || grid.range(grid.index_of(offset)).offset == offset;
    let begins = is_edge(piece.offset) || is_safe(piece.offset - 1);
    let ends = is_edge(piece.end()) || is_safe(piece.end());
    let is_one = grid.index_of(piece.offset) == grid.index_of(piece.end() - 1);
    begins && ends && (is_hole || is_one)
}

//! Arriving objects: receives, checks and writes them, and answers a source's questions about
//! objects on lost streams.

use super::tree::Node;
use super::{BlockKey, Effect, LogRecord, Sink, SyncGroup, WritePart};
use crate::mutants::Mutant;
use dray_core::{
    BlockId, BufferId, ByteRange, End, Error, ErrorKind, FileIndex, PeerId, Status, StreamId, Sums,
    TargetId, Time,
};
use dray_sched::congestion::Moved;
use dray_wire::bounds::HOLE_BLOCKS_MAX;
use dray_wire::message::{BlockHead, BlockState, Segment, SegmentKind};

/// Maximum number of streams that a source reports as lost before this end detects their loss. A
/// source that reports more violates the protocol.
const ASKED_STREAMS_MAX: usize = 1024;

/// Maximum number of ranges of seen block numbers for each source. If there are more ranges, the
/// sink also counts the numbers between the first two ranges as seen. Blocks with these numbers
/// cannot arrive, because the source, with far fewer buffers, has failed to read them.
const SEEN_RUNS_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Block {
    pub(super) segments: Vec<Segment>,
    target: TargetId,
    /// Buffer that contains the payload. `None` after the payload is written.
    pub(super) buffer: Option<BufferId>,
    /// True if the block arrived without a payload.
    pub(super) is_hole: bool,
    /// True if the block has used a credit that the ledger still counts.
    holds_credit: bool,
    /// Time at which the machine requested the write.
    began: Option<Time>,
    pub(super) written: bool,
    /// Number of small files in the block that are not yet closed.
    pub(super) small_left: u32,
}

/// The parts of a block that were written, for files that are not closed.
struct WrittenParts {
    /// Number of small files that are complete with this block.
    small_files: u32,
    last_file: FileIndex,
    /// End offset of the block's last part in its file.
    last_end: u64,
    /// The group that the parts belong to.
    group: SyncGroup,
}

impl Sink {
    pub(super) fn on_arrived(
        &mut self,
        peer: PeerId,
        mut head: BlockHead,
        buffer: Option<BufferId>,
        verified: Result<(), Error>,
        now: Time,
    ) {
        let key = BlockKey {
            peer,
            block: head.id,
        };
        if !self.mark_seen(key) {
            // The block arrived a second time, or after the sink had reported it as dropped. Its
            // credit belongs to another attempt, so do not charge credit.
            self.out.extend(buffer.map(Effect::Free));
            return;
        }
        let holds_credit = head.payload_bytes().is_some_and(|bytes| bytes > 0);
        if holds_credit && !self.spend_credit(peer, head.target) {
            self.out.extend(buffer.map(Effect::Free));
            self.protocol_error(
                peer,
                format!(
                    "the source sent an object for {}, although the sink had granted no credit",
                    head.target
                ),
            );
            return;
        }
        if !matches!(self.phase, super::Phase::Moving) {
            self.out.extend(buffer.map(Effect::Free));
            return;
        }
        if let Err(error) = verified {
            self.out.extend(buffer.map(Effect::Free));
            self.state(key, BlockState::Nack(error));
            return;
        }
        head.segments = self.own_segments(peer, head.segments);
        // The file may have failed, or the source may have aborted it, while the block was in
        // transit.
        let is_alive = |segment: &Segment| self.live.contains_key(&segment.file);
        if !head.segments.iter().any(is_alive) {
            self.out.extend(buffer.map(Effect::Free));
            self.state(key, BlockState::Nack(closed()));
            return;
        }
        let accepted = self.accept(&head.segments).and_then(|()| {
            let in_pieces = self.small_in_pieces(&head.segments);
            in_pieces.map_or(Ok(()), |cause| Err((ErrorKind::Protocol, cause)))
        });
        if let Err((kind, cause)) = accepted {
            self.out.extend(buffer.map(Effect::Free));
            self.violation(peer, kind, cause);
            return;
        }
        let is_hole = !holds_credit;
        if is_hole && !self.count_hole_block(key) {
            let cause = format!("the source sent more than {HOLE_BLOCKS_MAX} holes in one message");
            self.violation(peer, ErrorKind::LimitExceeded, cause);
            return;
        }
        // The block holds its buffer until the write ends. Until then its credit counts as granted.
        let holds_credit = holds_credit && self.ledger.hold(head.target, now);
        let block = Block {
            segments: head.segments,
            target: head.target,
            buffer,
            is_hole,
            holds_credit,
            began: None,
            written: false,
            small_left: 0,
        };
        if self.planted.is(Mutant::SinkAcceptsSecondAttempt) {
            self.accept_again(key, &block);
        }
        self.blocks.insert(key, block);
        if self.config.ordered_window.is_some() {
            self.hold_for_turn(key, now);
        } else {
            self.write(key, now);
        }
    }

    /// Adds a second attempt for the same object. This is the planted defect
    /// `SinkAcceptsSecondAttempt`.
    fn accept_again(&mut self, key: BlockKey, block: &Block) {
        let again = Block {
            segments: block.segments.clone(),
            buffer: None,
            ..*block
        };
        let block = BlockId(key.block.0 + (1 << 40));
        self.blocks.insert(BlockKey { block, ..key }, again);
    }

    /// Records a block number as seen. Returns true if the source is known and the number is new.
    fn mark_seen(&mut self, key: BlockKey) -> bool {
        let Some(known) = self.peers.get_mut(&key.peer) else {
            return false;
        };
        let number = ByteRange {
            offset: key.block.0,
            length: 1,
        };
        let is_new = known.seen.insert(number) > 0;
        if known.seen.run_count() > SEEN_RUNS_MAX {
            let (first, second) = {
                let mut runs = known.seen.iter();
                (runs.next(), runs.next())
            };
            if let (Some(first), Some(second)) = (first, second) {
                let gap = ByteRange::between(first.end(), second.offset);
                known.seen.insert(gap);
            }
        }
        is_new
    }

    /// Returns an error if a small file arrived only in part. The sink publishes a small file in
    /// one step, so one block must contain all its data and holes.
    fn small_in_pieces(&mut self, segments: &[Segment]) -> Option<String> {
        segments.iter().find_map(|segment| {
            let file = self.file(segment.file)?;
            let in_pieces = file.small && file.accepted.bytes() < file.key.size;
            let index = segment.file;
            in_pieces.then(|| format!("the source sent entry {index}, a small file, in pieces"))
        })
    }

    /// Writes a block if it is next in its file. Otherwise holds the block until the preceding
    /// blocks are written. A held block occupies a buffer. If half of the buffers contain held
    /// blocks, the sink refuses the block, so that buffers remain for the preceding blocks.
    fn hold_for_turn(&mut self, key: BlockKey, now: Time) {
        let Some(block) = self.blocks.get(&key) else {
            return;
        };
        let [segment, ..] = block.segments.as_slice() else {
            return;
        };
        let (index, offset) = (segment.file, segment.range.offset);
        let end = block
            .segments
            .iter()
            .map(|s| s.range.end())
            .max()
            .unwrap_or(offset);
        let is_pack = block.segments.iter().any(|other| other.file != index);
        let Some(file) = self.file(index) else {
            self.write(key, now);
            return;
        };
        let is_next = is_pack || file.small || offset == file.next_offset;
        if is_next {
            self.write(key, now);
        } else if self.held < self.config.buffers / 2 {
            self.held += 1;
            if let Some(file) = self.file(index) {
                let range = ByteRange::between(offset, end);
                file.held.push_back((range, key));
            }
        } else {
            let error = Error::new(ErrorKind::Busy, End::Sink, "write objects in file order")
                .cause("too many received objects of the file wait for an earlier object");
            self.send_back(key, error);
        }
    }

    /// Refuses a block that was not written, and tells the source. Frees the buffer and the credit
    /// of the block.
    fn send_back(&mut self, key: BlockKey, error: Error) {
        let Some(block) = self.forget_block(key) else {
            return;
        };
        for segment in &block.segments {
            self.mark(segment.file, segment.range, false);
        }
        self.out.extend(block.buffer.map(Effect::Free));
        if block.holds_credit {
            self.ledger.free(block.target);
        }
        self.state(key, BlockState::Nack(error));
    }

    /// Refuses the held blocks of a failed file, and tells the source.
    pub(super) fn release_held(&mut self, file: &super::tree::File, error: &Error) {
        for (_, key) in &file.held {
            self.held = self.held.saturating_sub(1);
            self.send_back(*key, error.clone());
        }
    }

    /// After a write to an ordered file, writes the block that is next if that block is held.
    fn write_next_in_turn(&mut self, index: dray_core::FileIndex, end: u64, now: Time) {
        let Some(file) = self.file(index) else { return };
        file.next_offset = file.next_offset.max(end);
        // Skip a range that an earlier run made durable.
        let next = file.next_offset;
        let safe = file
            .known
            .iter()
            .map(|(run, _)| run)
            .find(|run| run.offset <= next && run.end() > next);
        file.next_offset = safe.map_or(next, |run| run.end());
        let next = file.next_offset;
        if let Some(place) = file.held.iter().position(|(range, _)| range.offset == next)
            && let Some((_, key)) = file.held.remove(place)
        {
            self.held = self.held.saturating_sub(1);
            self.write(key, now);
        }
    }

    fn write(&mut self, key: BlockKey, now: Time) {
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        block.began = Some(now);
        if self.planted.is(Mutant::SinkGroupsUnwrittenBlock) {
            self.gathering.touch(now);
            self.gathering.blocks.push(key);
        }
        self.congestion.began(block.target, now);
        *self.writes.entry(block.target).or_default() += 1;
        let parts = block.segments.iter().map(|segment| {
            let small = self
                .live
                .get(&segment.file)
                .and_then(|live| match &live.node {
                    Node::File(file) if file.small => {
                        Some((live.path.clone(), file.metadata.clone()))
                    }
                    _ => None,
                });
            WritePart {
                file: segment.file,
                range: segment.range,
                hole: segment.kind == SegmentKind::Hole,
                small,
            }
        });
        let effect = Effect::Write {
            block: key,
            buffer: block.buffer,
            target: block.target,
            parts: parts.collect(),
        };
        self.writing += 1;
        self.out.push_back(effect);
    }

    pub(super) fn on_written(&mut self, key: BlockKey, results: &[Result<(), Error>], now: Time) {
        self.writing = self.writing.saturating_sub(1);
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        block.written = true;
        let began = block.began.take();
        let (target, is_credit_free) = (block.target, std::mem::take(&mut block.holds_credit));
        let segments = std::mem::take(&mut block.segments);
        self.out.extend(block.buffer.map(Effect::Free));
        if !self.planted.is(Mutant::SinkKeepsFreedBuffer) {
            block.buffer = None;
        }
        if let Some(began) = began {
            self.observe_write(target, began, &segments, results, now);
        }
        if is_credit_free {
            self.ledger.free(target);
        }
        self.fail_files_that_refuse(&segments, results, began);
        if let Some(error) = self.error_to_retry(&segments, results) {
            for segment in &segments {
                self.mark(segment.file, segment.range, false);
            }
            self.forget_block(key);
            self.state(key, BlockState::Nack(error));
            return;
        }
        match self.gather_parts(key, &segments, results, now) {
            Ok(parts) => self.block_written(key, parts, now),
            Err(error) => {
                // All files of the block have failed, so none of its data can become durable.
                self.forget_block(key);
                self.state(key, BlockState::Nack(error));
            }
        }
    }

    /// Reports the end of a write to the congestion control of `target` and to the thread tuner.
    fn observe_write(
        &mut self,
        target: TargetId,
        began: Time,
        segments: &[Segment],
        results: &[Result<(), Error>],
        now: Time,
    ) {
        // A write that failed or had no data says nothing about the speed of the target.
        let all_good = results.iter().all(Result::is_ok);
        let moved = all_good.then(|| moved(segments));
        self.congestion.ended(target, began, moved, now);
        if let Some(writes) = self.writes.get_mut(&target) {
            *writes = writes.saturating_sub(1);
        }
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            self.writers.failed(error);
        }
    }

    /// Fails the files whose parts had a permanent error. Other files in the block are not
    /// affected.
    fn fail_files_that_refuse(
        &mut self,
        segments: &[Segment],
        results: &[Result<(), Error>],
        began: Option<Time>,
    ) {
        let is_doubtful = self.may_have_logged_since(began);
        for (segment, result) in segments.iter().zip(results) {
            if let Err(error) = result
                && error.status != Status::Temporary
            {
                let discard = is_doubtful && error.status == Status::Exhausted;
                self.fail(segment.file, error.clone(), discard);
            }
        }
    }

    /// Returns the first temporary error of a part whose file is not closed.
    fn error_to_retry(&self, segments: &[Segment], results: &[Result<(), Error>]) -> Option<Error> {
        let mut parts = segments.iter().zip(results);
        parts.find_map(|(segment, result)| match result {
            Err(error)
                if error.status == Status::Temporary && self.live.contains_key(&segment.file) =>
            {
                Some(error.clone())
            }
            _ => None,
        })
    }

    /// Adds written parts to the current sync group. Fails the files with unwritten parts.
    ///
    /// # Errors
    /// If no written part belongs to a file that is still open.
    fn gather_parts(
        &mut self,
        key: BlockKey,
        segments: &[Segment],
        results: &[Result<(), Error>],
        now: Time,
    ) -> Result<WrittenParts, Error> {
        let mut small_files = 0;
        let mut last = None;
        let mut failed = None;
        let target = self.blocks.get(&key).map(|block| block.target);
        let group = target.map_or(SyncGroup::Main, |target| self.group_of(target));
        let first = self.group(group).record_count();
        for (segment, result) in segments.iter().zip(results) {
            match result {
                Err(error) => {
                    failed = Some(error.clone());
                    self.fail(segment.file, error.clone(), false);
                }
                Ok(()) if !self.live.contains_key(&segment.file) => {}
                Ok(()) => {
                    let sums = match segment.kind {
                        SegmentKind::Data(sums) => sums,
                        SegmentKind::Hole => Sums::of_zeros(segment.range.length),
                    };
                    self.progress.bytes_written += segment.range.length;
                    let completes = self.part_written((key, group), segment, sums, now);
                    small_files += u32::from(completes);
                    last = Some((segment.file, segment.range.end()));
                }
            }
        }
        self.group(group).merge_neighbours(first);
        match last {
            Some((last_file, last_end)) => Ok(WrittenParts {
                small_files,
                last_file,
                last_end,
                group,
            }),
            None => Err(failed.unwrap_or_else(closed)),
        }
    }

    /// Reports the block as written. Adds the block to the current group. A block that completed
    /// small files is not added: it is durable when these files are closed.
    fn block_written(&mut self, key: BlockKey, parts: WrittenParts, now: Time) {
        self.state(key, BlockState::Written);
        match self.blocks.get_mut(&key) {
            Some(block) if parts.small_files > 0 => block.small_left = parts.small_files,
            _ => self.group(parts.group).blocks.push(key),
        }
        self.group(parts.group).touch(now);
        if self.config.ordered_window.is_some() {
            self.write_next_in_turn(parts.last_file, parts.last_end, now);
        }
    }

    /// Records a written part. Returns true if the part completed a small file.
    fn part_written(
        &mut self,
        (key, group): (BlockKey, SyncGroup),
        segment: &Segment,
        sums: Sums,
        now: Time,
    ) -> bool {
        let index = segment.file;
        let is_known = self.planted.is(Mutant::SinkKnowsUnloggedRange);
        let Some(file) = self.file(index) else {
            return false;
        };
        if is_known {
            file.known.insert(segment.range, sums);
        }
        file.written += segment.range.length;
        let (all, small) = (file.written == file.key.size, file.small);
        if small {
            file.known.insert(segment.range, sums);
            file.pack = all.then_some(key);
        }
        let size = file.key.size;
        if all {
            self.count_wanting(key.peer, false);
        }
        if !small {
            // A lost hole is cheap to send again, so holes do not count as unsafe bytes.
            let data_bytes = match segment.kind {
                SegmentKind::Data(_) => segment.range.length,
                SegmentKind::Hole => 0,
            };
            self.unsafe_bytes += data_bytes;
            let (file, range) = (index, segment.range);
            let record = LogRecord { file, range, sums };
            self.group(group).add_record(record, data_bytes, now);
        } else if all {
            self.unsafe_bytes += size;
            self.group(group).add_small(index, size, now);
        }
        small && all
    }

    /// Records that a small file of a pack was closed. The pack is durable when its last file is
    /// closed.
    pub(super) fn small_closed(&mut self, key: BlockKey, bytes: u64) {
        self.unsafe_bytes = self.unsafe_bytes.saturating_sub(bytes);
        if let Some(block) = self.blocks.get_mut(&key) {
            block.small_left = block.small_left.saturating_sub(1);
            if block.small_left == 0 && block.written {
                self.forget_block(key);
                self.state(key, BlockState::Durable);
            }
        }
    }

    /// Handles a source's question about the objects on a stream that the source has lost. Objects
    /// may still arrive until the sink detects the loss too, so the sink answers only after it has
    /// detected the loss.
    pub(super) fn on_asked(&mut self, peer: PeerId, stream: StreamId, blocks: Vec<BlockId>) {
        let Some(known) = self.peers.get_mut(&peer) else {
            return;
        };
        if known.dead_streams.contains(&stream) {
            self.answer(peer, blocks);
            return;
        }
        // Each object in transit has used a credit or is a hole. So a source can ask about at most
        // this many objects.
        let blocks_max = self.config.buffers as usize + HOLE_BLOCKS_MAX as usize;
        known.asked_blocks += blocks.len();
        if known.asked.len() < ASKED_STREAMS_MAX && known.asked_blocks <= blocks_max {
            // A source may split one long question into several messages.
            known.asked.entry(stream).or_default().extend(blocks);
        } else {
            let cause = "the source asked about too many lost streams or objects".to_owned();
            self.violation(peer, ErrorKind::LimitExceeded, cause);
        }
    }

    pub(super) fn on_stream_lost(&mut self, peer: PeerId, stream: StreamId) {
        let Some(known) = self.peers.get_mut(&peer) else {
            return;
        };
        known.dead_streams.insert(stream);
        if let Some(blocks) = known.asked.remove(&stream) {
            known.asked_blocks -= blocks.len();
            self.answer(peer, blocks);
        }
    }

    fn answer(&mut self, peer: PeerId, blocks: Vec<BlockId>) {
        for id in blocks {
            let key = BlockKey { peer, block: id };
            match self.blocks.get(&key).map(|block| block.written) {
                Some(true) => self.state(key, BlockState::Written),
                // The block is being written. The end of the write answers the question.
                Some(false) => {}
                None => {
                    // If the number was seen before, the block already has its final state.
                    if self.mark_seen(key) {
                        self.state(key, BlockState::Dropped);
                    }
                }
            }
        }
    }

    /// Returns the error for bytes that do not match their checksums. The receiver of a stream
    /// calls this function.
    #[must_use]
    pub fn mismatch(path: Option<&dray_core::RelPath>) -> Error {
        let error = Error::new(
            ErrorKind::ChecksumMismatch,
            End::Network,
            "receive an object",
        )
        .cause("the received bytes differ from the checksum computed at the source")
        .remedy("the object is sent again; check the network and the memory if this error recurs");
        match path {
            Some(path) => error.file(path),
            None => error,
        }
    }
}

/// Returns the number of bytes and files in a write of these segments. Segments of the same file
/// must be adjacent.
fn moved(segments: &[Segment]) -> Moved {
    let data = segments.iter().filter(|one| one.kind != SegmentKind::Hole);
    let changes = segments.windows(2).filter(|two| two[0].file != two[1].file);
    Moved {
        bytes: data.map(|one| one.range.length).sum(),
        files: 1 + changes.count(),
    }
}

/// Returns the error with which the sink refuses an object whose files have all failed.
fn closed() -> Error {
    Error::new(ErrorKind::Cancelled, End::Sink, "write the object")
        .cause("the file was closed while the object was in transit")
}

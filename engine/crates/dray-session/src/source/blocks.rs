//! Blocks at the source. A block is picked, read, sent, written and made durable. If a block is
//! lost, its objects are picked again.

use super::{Effect, ReadOutcome, ReadPart, Source};
use crate::PING_VALUE;
use crate::mutants::Mutant;
use crate::progress::Event;
use dray_core::profile::Stage;
use dray_core::{
    BlockId, BufferId, ByteRange, End, Error, ErrorKind, FileIndex, RangeSet, Status, StreamId,
    TargetId, Time,
};
use dray_sched::blocking::WAITS_AFTER;
use dray_sched::congestion::Moved;
use dray_sched::streams::Verdict;
use dray_wire::bounds::{BLOCKS_MAX, HOLE_BLOCKS_MAX};
use dray_wire::message::{BlockHead, BlockState, Message, Segment, SegmentKind};
use std::time::Duration;

/// Maximum number of blocks that are passed to a stream and not yet reported as sent. One block is
/// being sent, and one waits so that the stream is never idle.
const STREAM_WINDOW: u32 = 2;

#[derive(Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// The block is read and waits for a free stream.
    Ready,
    /// The block was passed to a stream. It is queued, being sent, or at the sink.
    Sent(StreamId),
    /// The stream of the block was lost, and the source has asked the sink whether the block
    /// arrived.
    Asked,
    /// The sink has written the block and not yet made it durable.
    Written,
}

#[derive(Debug)]
pub(super) struct Block {
    source: TargetId,
    sink: TargetId,
    /// Time at which the machine requested the read.
    began: Time,
    pub(super) parts: Vec<(FileIndex, ByteRange)>,
    segments: Vec<Segment>,
    pub(super) buffer: Option<BufferId>,
    /// True if the block has no payload.
    is_hole: bool,
    state: State,
}

/// An object that its stream has not yet accepted completely.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) stream: StreamId,
    pub(super) buffer: Option<BufferId>,
    /// Number of payload bytes, until the object is counted as sent.
    pub(super) uncounted: Option<u64>,
}

impl Source {
    /// Picks objects and starts their reads, as far as buffers, credit, readers and pace permit.
    pub(super) fn read_more(&mut self, now: Time) {
        self.pace_wake = None;
        // The limit on hole blocks applies to all reads: any read may find a hole, and a hole needs
        // no credit.
        while !self.free.is_empty()
            && !self.streams.is_empty()
            && self.hole_blocks + self.reading < HOLE_BLOCKS_MAX
            && self.blocks.len() < BLOCKS_MAX
        {
            if let Some(then) = self.pacer.wait_until(now) {
                self.pace_wake = Some(then);
                return;
            }
            let Some(assignment) = self.objects.pick(now) else {
                if self.objects.is_held_back() && self.reading > 0 {
                    self.look_again.get_or_insert(now + WAITS_AFTER);
                }
                self.balance_credit();
                return;
            };
            let Some(buffer) = self.free.pop() else {
                return;
            };
            self.pacer
                .spend(assignment.parts.iter().map(|(_, range)| range.length).sum());
            let holes = self.ready.is_some_and(|ready| ready.holes);
            let parts = assignment.parts.iter().filter_map(|(index, range)| {
                self.files.get(index).map(|file| ReadPart {
                    file: *index,
                    path: file.path.clone(),
                    range: *range,
                    size: file.size,
                    modified: file.modified,
                    sparse: file.sparse && holes,
                })
            });
            let block = BlockId(self.next_block);
            let effect = Effect::Read {
                block,
                buffer,
                target: assignment.source,
                parts: parts.collect(),
            };
            self.next_block += 1;
            self.reading += 1;
            self.blocks.insert(
                block,
                Block {
                    source: assignment.source,
                    sink: assignment.sink,
                    began: now,
                    parts: assignment.parts,
                    segments: Vec::new(),
                    buffer: Some(buffer),
                    is_hole: false,
                    state: State::Reading,
                },
            );
            self.out.push_back(effect);
        }
    }

    /// Removes the limit on concurrent reads of a target whose reads have begun to block, so that
    /// several reads of the target can wait concurrently.
    pub(super) fn lift_bounds(&mut self, now: Time) {
        if self.look_again.is_none_or(|then| then > now) {
            return;
        }
        self.look_again = None;
        for block in self.blocks.values() {
            if block.state == State::Reading && now.since(block.began) >= WAITS_AFTER {
                self.objects.set_enough(block.source, None);
            }
        }
    }

    /// Returns unused credit to the sink, and requests credit for starving sink targets. A starving
    /// target has objects to send but neither credit nor objects in transit. Without a request the
    /// target could wait forever, if other targets hold all the credit and do not use it.
    fn balance_credit(&mut self) {
        let mut starving = self.objects.starving();
        // The blocks that a target has in transit normally return credit when they are written, so
        // such a target does not starve. But a sink that writes in order may keep these blocks until
        // an earlier block arrives, and the source cannot send that block without credit. For such a
        // sink, ignore the blocks in transit.
        let holds = self
            .ready
            .is_some_and(|ready| ready.ordered_window.is_some());
        if !holds && !starving.is_empty() {
            for block in self.blocks.values() {
                if block.state != State::Written {
                    starving.remove(&block.sink);
                }
            }
        }
        if starving.is_empty() {
            self.give_back_all_if_done();
            return;
        }
        let mut credit = self.objects.take_idle_credit();
        // The sink does not grant the returned credit again before the source requests it.
        for (target, _) in &credit {
            self.asked.remove(target);
        }
        starving.retain(|target| self.asked.insert(*target));
        credit.extend(starving.iter().map(|target| (*target, 0)));
        if !credit.is_empty() {
            self.out.push_back(Effect::Message(Message::Credit(credit)));
        }
    }

    /// Returns all credit if no object is left to send, because other sources can use the credit.
    fn give_back_all_if_done(&mut self) {
        let is_done = self.end_announced
            && self.undecided == 0
            && self.blocks.is_empty()
            && self.later.is_empty()
            && self.objects.is_idle();
        if !is_done {
            return;
        }
        let credit = self.objects.take_idle_credit();
        if !credit.is_empty() {
            self.asked.clear();
            self.out.push_back(Effect::Message(Message::Credit(credit)));
        }
    }

    pub(super) fn on_read(&mut self, id: BlockId, outcome: ReadOutcome, now: Time) {
        let Some(mut block) = self.blocks.remove(&id) else {
            return;
        };
        // A read that failed or had no data says nothing about the speed of the target.
        let data = data_bytes(&outcome.segments);
        let moved = Moved {
            bytes: data,
            files: block.parts.len(),
        };
        let telling = (outcome.failed.is_empty() && data > 0).then_some(moved);
        self.objects
            .read_ended(block.source, block.began, telling, now);
        self.objects.set_enough(block.source, outcome.enough);
        self.reading = self.reading.saturating_sub(1);
        for (index, error) in outcome.failed {
            let range = block
                .parts
                .iter()
                .find(|(part, _)| *part == index)
                .map(|(_, r)| *r);
            block.parts.retain(|(part, _)| *part != index);
            self.objects.settled(index);
            self.readers.failed(&error);
            let changed = matches!(error.kind, ErrorKind::SourceChanged | ErrorKind::ShortRead);
            match range {
                Some(range) if !changed => self.retry(index, range, error, now),
                _ => self.abort_file(index, error.status(Status::Permanent)),
            }
        }
        block.segments = outcome.segments;
        // Keep the segments of failed files if the block has other files. The bytes of failed files
        // lie between the bytes of the other files in the buffer, and the sink skips the bytes of
        // failed files.
        let is_wanted = |(index, _): &(FileIndex, ByteRange)| self.files.contains_key(index);
        if !block.parts.iter().any(is_wanted) {
            block.segments.clear();
            block.parts.clear();
        }
        if let (Some(hole_end), [(index, range)]) = (outcome.hole_until, block.parts.as_slice()) {
            let (index, range) = (*index, *range);
            let mut runs = self.take_hole(index, range, hole_end).into_iter();
            if let Some(whole) = runs.next() {
                block.parts = vec![(index, whole)];
                block.segments = vec![hole_segment(index, whole)];
            }
            for run in runs {
                self.send_hole(index, run, &block);
            }
        }
        let data = data_bytes(&block.segments);
        self.progress.bytes_read += data;
        if data == 0 {
            // A block without payload needs neither a buffer nor credit of the sink.
            self.free.extend(block.buffer.take());
            self.objects.refund(block.sink);
        }
        if block.segments.is_empty() {
            return;
        }
        block.is_hole = data == 0;
        self.hole_blocks += u32::from(block.is_hole);
        block.state = State::Ready;
        self.blocks.insert(id, block);
        self.to_send.push_back(id);
    }

    /// Removes a block that needs no further handling.
    fn forget_block(&mut self, id: BlockId) -> Option<Block> {
        let block = self.blocks.remove(&id)?;
        self.hole_blocks -= u32::from(block.is_hole);
        Some(block)
    }

    /// Returns true if at least one file of the block is not closed.
    fn is_wanted(&self, block: &Block) -> bool {
        let mut segments = block.segments.iter();
        segments.any(|segment| self.files.contains_key(&segment.file))
    }

    /// Returns `range`, in which a read has found a hole, and the unsent ranges of the same hole
    /// that come after `range`. The number of ranges is limited by [`HOLE_BLOCKS_MAX`]. The object
    /// in which the hole ends is not included, because objects are sent whole.
    fn take_hole(&mut self, index: FileIndex, range: ByteRange, hole_end: u64) -> Vec<ByteRange> {
        let mut found = RangeSet::new();
        found.insert(range);
        if let Some(size) = self.files.get(&index).map(|file| file.size) {
            let end = match hole_end {
                end if end >= size => size,
                end => self.objects.object_at(index, end),
            };
            let hole = ByteRange::between(range.end(), end.max(range.end()));
            let room = HOLE_BLOCKS_MAX.saturating_sub(self.hole_blocks + self.reading);
            let more = self.objects.take_open(index, hole, room as usize);
            more.iter().for_each(|run| {
                found.insert(run);
            });
        }
        found.iter().collect()
    }

    /// Creates and queues a block for a range of a hole. No read is needed.
    fn send_hole(&mut self, index: FileIndex, range: ByteRange, found_by: &Block) {
        let id = BlockId(self.next_block);
        self.next_block += 1;
        self.hole_blocks += 1;
        let block = Block {
            source: found_by.source,
            sink: found_by.sink,
            began: found_by.began,
            parts: vec![(index, range)],
            segments: vec![hole_segment(index, range)],
            buffer: None,
            is_hole: true,
            state: State::Ready,
        };
        self.blocks.insert(id, block);
        self.to_send.push_back(id);
    }

    pub(super) fn send_ready(&mut self, now: Time) {
        // If the rate is zero, do not send objects that are already read. A held transfer then
        // sends only the objects that its streams have already accepted, even if its pool is large.
        if self.pacer.is_shut() {
            return;
        }
        while let Some(id) = self.to_send.front().copied() {
            let is_wanted = self
                .blocks
                .get(&id)
                .is_some_and(|block| self.is_wanted(block));
            if !is_wanted {
                self.to_send.pop_front();
                if let Some(block) = self.forget_block(id)
                    && let Some(buffer) = block.buffer
                {
                    self.free.push(buffer);
                    self.objects.refund(block.sink);
                }
                continue;
            }
            let Some(block) = self.blocks.get_mut(&id) else {
                continue;
            };
            let room = self
                .streams
                .iter_mut()
                .filter(|(_, stream)| !stream.is_given_up)
                .take(self.streams_most)
                .filter(|(_, stream)| stream.queued < STREAM_WINDOW)
                // Compare the number of unacknowledged objects too. The socket of a slow stream may
                // accept much data while no object arrives, and such a stream must not get more
                // objects than others.
                .min_by_key(|(id, stream)| (stream.queued, self.carriers.on_the_way(**id)));
            let Some((stream_id, stream)) = room else {
                return;
            };
            stream.queued += 1;
            block.state = State::Sent(*stream_id);
            for (index, range) in &block.parts {
                if let Some(file) = self.files.get_mut(index) {
                    file.bytes_on_the_way += range.length;
                }
            }
            self.carriers.handed(*stream_id, id, block.sink, now);
            let head = BlockHead {
                id,
                target: block.sink,
                segments: block.segments.clone(),
            };
            let buffer = block.buffer.take();
            if self.planted.is(Mutant::SourceFreesUnsentBuffer) {
                self.free.extend(buffer);
            }
            let sending = Sending {
                stream: *stream_id,
                buffer,
                uncounted: head.payload_bytes(),
            };
            self.sending.insert(id, sending);
            self.out.push_back(Effect::Send {
                stream: *stream_id,
                buffer,
                head,
            });
            self.to_send.pop_front();
        }
    }

    /// Returns true if no stream has room for another block.
    pub(super) fn is_every_stream_full(&self) -> bool {
        let streams = self.streams.values();
        let mut used = streams
            .filter(|stream| !stream.is_given_up)
            .take(self.streams_most);
        used.all(|stream| stream.queued >= STREAM_WINDOW)
    }

    /// Handles the runtime's report that the stream has accepted all bytes of a block, so that the
    /// buffer is free. The bytes may not have reached the sink yet.
    pub(super) fn on_sent(&mut self, id: BlockId, now: Time) {
        self.count_sent(id);
        let Some(sent) = self.sending.remove(&id) else {
            return;
        };
        self.free.extend(sent.buffer);
        self.carriers.taken(sent.stream, now);
        if let Some(stream) = self.streams.get_mut(&sent.stream) {
            stream.queued = stream.queued.saturating_sub(1);
        }
    }

    /// Counts an object as sent. Called when the stream has accepted all of the object or was lost,
    /// or when the sink has sent an answer about the object. An object that is incomplete at the
    /// end of the session does not count.
    fn count_sent(&mut self, id: BlockId) {
        let sending = self.sending.get_mut(&id);
        if let Some(bytes) = sending.and_then(|sending| sending.uncounted.take()) {
            self.progress.objects_sent += 1;
            self.progress.bytes_sent += bytes;
        }
    }

    /// Moves the time that a stream has waited for its rate limit from the stage "network" to the
    /// stage "rate" of the profile.
    pub(super) fn on_held(&mut self, time: Duration) {
        let streams = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let share = time / streams.max(1);
        let times = &mut self.progress.profile.source;
        times.reassign(Stage::Network, Stage::Rate, share);
    }

    pub(super) fn on_stream_lost(&mut self, lost: StreamId) {
        if self.streams.remove(&lost).is_none() {
            return;
        }
        self.carriers.lost(lost);
        let on_lost: Vec<BlockId> = (self.sending.iter())
            .filter(|(_, sending)| sending.stream == lost)
            .map(|(id, _)| *id)
            .collect();
        for id in on_lost {
            // The object may have arrived, so count it as sent.
            self.count_sent(id);
            self.free
                .extend(self.sending.remove(&id).and_then(|lost| lost.buffer));
        }
        let mut unknown = Vec::new();
        for (id, block) in &mut self.blocks {
            if block.state == State::Sent(lost) {
                block.state = State::Asked;
                unknown.push(*id);
            }
        }
        unknown.sort_unstable();
        let message = Message::StreamLost {
            stream: lost,
            blocks: unknown,
        };
        self.out.push_back(Effect::Message(message));
    }

    /// Ends a stream whose objects no longer arrive. The runtime then reports the stream as lost,
    /// and the source sends those objects again that have not arrived.
    pub(super) fn give_up_stuck(&mut self, now: Time) {
        // Ignore a stream whose end was requested and whose loss is not reported yet.
        let alive = self.streams.values().filter(|stream| !stream.is_given_up);
        match self.carriers.look(alive.count(), now) {
            Some(Verdict::Ask) => self
                .out
                .push_back(Effect::Message(Message::Ping(PING_VALUE))),
            Some(Verdict::GiveUp(stuck, objects)) => {
                if let Some(stream) = self.streams.get_mut(&stuck) {
                    stream.is_given_up = true;
                }
                let operation = format!("send objects on stream {stuck}");
                let error = Error::new(ErrorKind::TimedOut, End::Network, operation)
                    .cause(format!(
                        "the sink did not acknowledge {objects} objects on this stream, but \
                            acknowledged later objects on other streams"
                    ))
                    .remedy(
                        "the source sends the objects again on other streams; check the network \
                            if this error recurs",
                    );
                self.out.push_back(Effect::GiveUp(stuck, error.clone()));
                self.out.push_back(Effect::Report(Event::Notice(error)));
            }
            None => {}
        }
    }

    pub(super) fn on_block_state(&mut self, id: BlockId, state: BlockState, now: Time) {
        if state != BlockState::Dropped {
            self.carriers.answered(id, now);
            self.count_sent(id);
        }
        let Some(block) = self.blocks.get_mut(&id) else {
            return;
        };
        if matches!(block.state, State::Reading | State::Ready) {
            self.protocol_error(format!("the sink answered block {id}, which was not sent"));
            return;
        }
        match state {
            BlockState::Written => {
                if block.state != State::Written {
                    block.state = State::Written;
                    for (index, range) in &block.parts {
                        self.objects.settled(*index);
                        self.progress.bytes_written += range.length;
                        if self.planted.is(Mutant::SourceReopensWrittenObject) {
                            self.objects.put_back(*index, *range);
                        }
                    }
                }
            }
            BlockState::Durable => {
                let settled = block.state == State::Written;
                for (index, range) in &block.parts {
                    if !settled {
                        self.objects.settled(*index);
                        self.progress.bytes_written += range.length;
                    }
                    self.tries.remove(&(*index, range.offset));
                    if let Some(file) = self.files.get_mut(index) {
                        file.bytes_durable += range.length;
                        file.bytes_on_the_way = file.bytes_on_the_way.saturating_sub(range.length);
                        self.progress.bytes_durable += range.length;
                    }
                }
                self.forget_block(id);
            }
            BlockState::Nack(error) => self.retry_block(id, Some(error), now),
            BlockState::Dropped => {
                // The block never arrived, so the sink has not charged its credit.
                let carries = |segment: &Segment| segment.kind != SegmentKind::Hole;
                if block.segments.iter().any(carries) {
                    self.objects.refund(block.sink);
                }
                self.retry_block(id, None, now);
            }
        }
    }

    /// Removes a failed attempt and schedules its objects again.
    fn retry_block(&mut self, id: BlockId, error: Option<Error>, now: Time) {
        let Some(block) = self.forget_block(id) else {
            return;
        };
        let is_pack = block.parts.len() > 1;
        for (index, range) in block.parts {
            if block.state != State::Written {
                self.objects.settled(index);
            }
            if let Some(file) = self.files.get_mut(&index) {
                file.bytes_on_the_way = file.bytes_on_the_way.saturating_sub(range.length);
            }
            if is_pack && error.is_some() {
                // A pack is an object with several small files. Send each file of a failed pack in
                // its own object, to find the file that causes the error.
                self.objects.go_alone(index);
            }
            match &error {
                Some(error) => self.retry(index, range, error.clone(), now),
                None => self.objects.put_back(index, range),
            }
        }
    }
}

fn data_bytes(segments: &[Segment]) -> u64 {
    let data = |segment: &&Segment| segment.kind != SegmentKind::Hole;
    let lengths = segments.iter().filter(data);
    lengths.map(|segment| segment.range.length).sum()
}

fn hole_segment(file: FileIndex, range: ByteRange) -> Segment {
    Segment {
        file,
        range,
        kind: SegmentKind::Hole,
    }
}

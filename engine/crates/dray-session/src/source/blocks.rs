//! The life of a block at the source: picked, read, sent, written, durable; or lost and picked
//! again.

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

/// Maximum number of blocks on a stream that are not reported as sent: one on the wire, one behind
/// it.
const STREAM_WINDOW: u32 = 2;

#[derive(Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// Read; waits for a stream.
    Ready,
    /// Passed to a stream: queued there, on the wire, or at the sink.
    Sent(StreamId),
    /// Its stream was lost; the sink was asked about it.
    Asked,
    /// The sink has written it.
    Written,
}

#[derive(Debug)]
pub(super) struct Block {
    source: TargetId,
    sink: TargetId,
    /// Time at which its read was requested.
    began: Time,
    pub(super) parts: Vec<(FileIndex, ByteRange)>,
    segments: Vec<Segment>,
    pub(super) buffer: Option<BufferId>,
    /// True if it has no payload.
    is_hole: bool,
    state: State,
}

/// An object that its stream has not accepted completely.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) stream: StreamId,
    pub(super) buffer: Option<BufferId>,
    /// Its payload bytes, until they are counted.
    pub(super) uncounted: Option<u64>,
}

impl Source {
    /// Picks objects and starts their reads, as long as buffers, credit, readers and pace allow.
    pub(super) fn read_more(&mut self, now: Time) {
        self.pace_wake = None;
        // Any read may find a hole, and holes need no credit from the sink.
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

    /// Lifts the read limit of targets whose reads block now but did not before: the other reads
    /// continue in parallel.
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

    /// Returns idle credit, and requests credit for starving sink targets. A target without credit
    /// and without objects in transit would wait forever if all credit is held for targets that
    /// cannot use it.
    fn balance_credit(&mut self) {
        let mut starving = self.objects.starving();
        // A sink that writes in order may hold blocks in transit until it gets the starving
        // target's blocks.
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
        // The sink does not grant returned credit before it is requested again.
        for (target, _) in &credit {
            self.asked.remove(target);
        }
        starving.retain(|target| self.asked.insert(*target));
        credit.extend(starving.iter().map(|target| (*target, 0)));
        if !credit.is_empty() {
            self.out.push_back(Effect::Message(Message::Credit(credit)));
        }
    }

    /// Returns all credit if no object is left to send: only other sources of the sink can use it.
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
        // A failed read, or a read without data, does not measure the speed of the target.
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
        // Segments of files that failed meanwhile are kept: their bytes lie in the buffer between
        // the others, and the sink skips them.
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
            // Without payload, neither the buffer nor the sink's credit is needed.
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

    /// Removes an attempt that has ended.
    fn forget_block(&mut self, id: BlockId) -> Option<Block> {
        let block = self.blocks.remove(&id)?;
        self.hole_blocks -= u32::from(block.is_hole);
        Some(block)
    }

    /// Returns true if any of the block's files is still to be sent.
    fn is_wanted(&self, block: &Block) -> bool {
        let mut segments = block.segments.iter();
        segments.any(|segment| self.files.contains_key(&segment.file))
    }

    /// Takes the open ranges of a file within the hole that a read of `range` has found: first
    /// `range` with the open ranges directly after it, then open ranges behind objects that are
    /// currently being read. Excludes the object in which the hole ends: objects are sent whole.
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

    /// Queues a run of a hole that needs no read as a separate object.
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
        // Objects that were read before the rate became zero stay here too: a held transfer is off
        // the wire after the objects that its streams already have, however large its pool is.
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
                // A stream whose socket accepts much while no object arrives gets no more than
                // others.
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

    /// Returns true if no stream would accept another object.
    pub(super) fn is_every_stream_full(&self) -> bool {
        let streams = self.streams.values();
        let mut used = streams
            .filter(|stream| !stream.is_given_up)
            .take(self.streams_most);
        used.all(|stream| stream.queued >= STREAM_WINDOW)
    }

    /// The runtime no longer needs the buffer. This does not mean that the sink has received the
    /// bytes.
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

    /// Counts an object after its stream has accepted all of it: a session that ends before has not
    /// sent it. An answer of the sink proves the same, and may arrive first.
    fn count_sent(&mut self, id: BlockId) {
        let sending = self.sending.get_mut(&id);
        if let Some(bytes) = sending.and_then(|sending| sending.uncounted.take()) {
            self.progress.objects_sent += 1;
            self.progress.bytes_sent += bytes;
        }
    }

    /// Reassigns the time that a stream has waited for its rate: it was counted as network time.
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
            // The object may have arrived.
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

    /// Ends a stream on which no object arrives any more. Its loss is reported as for any other
    /// stream; only objects that have not arrived are sent again.
    pub(super) fn give_up_stuck(&mut self, now: Time) {
        // A stream that was given up carries no objects, though its loss is not reported yet.
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
                        "{objects} objects on it were not acknowledged, while later objects on \
                         other streams were"
                    ))
                    .remedy(
                        "the objects are sent on other streams; check the network if this \
                             repeats",
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
            self.protocol_error(format!("an answer to block {id}, which was not sent"));
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
            BlockState::Nack(error) => self.again(id, Some(error), now),
            BlockState::Dropped => {
                // The block never arrived, so the sink has not taken its credit back.
                let carries = |segment: &Segment| segment.kind != SegmentKind::Hole;
                if block.segments.iter().any(carries) {
                    self.objects.refund(block.sink);
                }
                self.again(id, None, now);
            }
        }
    }

    /// Ends a failed attempt and reopens its objects.
    fn again(&mut self, id: BlockId, error: Option<Error>, now: Time) {
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
                // Sent alone, so that the file at fault becomes known.
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

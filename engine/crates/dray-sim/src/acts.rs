//! Executes the events of a world: passes inputs to a machine, starts the machine's effects, and
//! completes each effect after a delay.

use crate::event::Event;
use crate::faults::Fault;
use crate::link::is_intact;
use crate::mutants::Mutant;
use crate::session::Attempt;
use crate::world::{PEER, World};
use dray_core::{BlockId, End, Error, ErrorKind, StreamId, Time};
use dray_session::{sink, source};
use dray_wire::message::{BlockState, Message};
use std::time::Duration;

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, End::Network, "reach the other end").cause("simulated")
}

impl World {
    /// Executes an event.
    pub fn happen(&mut self, at: usize, event: Event) {
        match event {
            Event::Source(input) => self.source(at, input),
            Event::Sink(input) => self.sink(at, input),
            Event::WakeSource => {
                self.sessions[at].source_wake = None;
                self.source(at, source::Input::Tick);
            }
            Event::WakeSink => {
                self.sessions[at].sink_wake = None;
                self.sink(at, sink::Input::Tick);
            }
            Event::ControlToSource(bytes) => self.control_to_source(at, &bytes),
            Event::ControlToSink(bytes) => self.control_to_sink(at, &bytes),
            Event::Transmitted(stream) => self.transmitted(at, stream),
            Event::Arrived(stream, bytes) => self.arrived(at, stream, bytes),
            Event::SourceDone(effect) => self.source_done(at, effect),
            Event::SinkDone(effect, until) => {
                if self.sessions[at].sink_lives {
                    self.sink_done(at, *effect, until);
                }
            }
            Event::StreamLostAtSink(stream) => {
                let link = &mut self.sessions[at].link;
                if let Some(known) = link.streams.get_mut(&stream)
                    && !std::mem::replace(&mut known.is_lost_at_sink, true)
                {
                    self.sink(at, sink::Input::StreamLost(PEER, StreamId(stream)));
                }
            }
        }
        if self.disk.borrow().is_dead {
            self.hit(at, Fault::SinkCrash);
            self.crash_host();
        }
    }

    /// Passes an input to the source's machine and starts the effects that the machine returns.
    pub fn source(&mut self, at: usize, input: source::Input) {
        if self.sessions[at].source_is_over() {
            return;
        }
        self.say(|| format!("{at} source <- {input:?}"));
        if let source::Input::StreamLost(stream) = &input {
            self.give_up(at, stream.0);
        }
        let now = self.now;
        self.sessions[at].source.handle(input, now);
        // Check the invariants before the effects start: the checkers of the effects would report
        // the same violation in other words.
        if let Err(invariant) = self.sessions[at].source.check_invariants() {
            self.violate(invariant, "the source's state".into());
            return;
        }
        while let Some(effect) = self.sessions[at].source.poll() {
            self.say(|| format!("{at} source -> {effect:?}"));
            self.begin_source(at, effect);
        }
        let session = &mut self.sessions[at];
        if session.source.buffers_in_use() > self.setup.buffers {
            self.violate("bytes_in_flight_never_exceed_pool", "source".into());
            return;
        }
        if let (Some(wake), false) = (session.source.next_wake(), session.source_is_over())
            && session.source_wake.is_none_or(|known| wake < known)
        {
            session.source_wake = Some(wake);
            self.at(at, wake.max(now), Event::WakeSource);
        }
    }

    /// Passes an input to the sink's machine and starts the effects that the machine returns.
    pub fn sink(&mut self, at: usize, input: sink::Input) {
        if self.sessions[at].sink_is_over() {
            return;
        }
        self.say(|| format!("{at} sink <- {input:?}"));
        let now = self.now;
        self.sessions[at].sink.handle(input, now);
        if let Err(invariant) = self.sessions[at].sink.check_invariants() {
            self.violate(invariant, "the sink's state".into());
            return;
        }
        while let Some(effect) = self.sessions[at].sink.poll() {
            self.say(|| format!("{at} sink -> {effect:?}"));
            self.begin_sink(at, effect);
        }
        let session = &mut self.sessions[at];
        if session.sink.credit_out() > self.setup.buffers {
            self.violate("bytes_in_flight_never_exceed_pool", "credit".into());
            return;
        }
        if let (Some(wake), false) = (session.sink.next_wake(), session.sink_is_over())
            && session.sink_wake.is_none_or(|known| wake < known)
        {
            session.sink_wake = Some(wake);
            self.at(at, wake.max(now), Event::WakeSink);
        }
    }

    fn begin_source(&mut self, at: usize, effect: source::Effect) {
        match effect {
            source::Effect::Message(message) => {
                let arrival = self.arrival(&message);
                match self.sessions[at].link.to_sink.send(&message, arrival) {
                    Ok((bytes, time)) => self.at(at, time, Event::ControlToSink(bytes)),
                    Err(error) => self.violate("no_panic", error.to_string()),
                }
            }
            source::Effect::Read { .. } => {
                let wait = self.check_read(at, &effect);
                self.after(at, wait, Event::SourceDone(effect));
            }
            source::Effect::Send {
                stream,
                buffer,
                head,
            } => {
                self.check_send(at, buffer, &head);
                let link = &mut self.sessions[at].link;
                let Some(known) = link.streams.get_mut(&stream.0) else {
                    self.violate(
                        "no_panic",
                        format!("the source sends on stream {stream}, which does not exist"),
                    );
                    return;
                };
                known.queue.push_back((head, buffer));
                if known.queue.len() == 1 {
                    self.transmit(at, stream.0);
                }
            }
            source::Effect::List { .. } | source::Effect::StoreVerdict(_) => {
                let wait = self.delay(20, 400);
                self.after(at, wait, Event::SourceDone(effect));
            }
            // No stream of the simulator stalls, so the source must not give up a stream.
            source::Effect::GiveUp(stream, _) => {
                self.violate("session_ends", format!("stream {stream} was given up"));
            }
            source::Effect::CloseFile(_) | source::Effect::Report(_) => {}
            source::Effect::End(outcome) => {
                self.check_reason(at, &outcome);
                let session = &mut self.sessions[at];
                session.source_end = Some(outcome);
                let time = session.link.to_sink.last.max(self.now) + Duration::from_micros(50);
                self.at(at, time, Event::Sink(sink::Input::PeerLost(PEER, lost())));
            }
        }
    }

    fn source_done(&mut self, at: usize, effect: source::Effect) {
        if !self.sessions[at].source_lives {
            return;
        }
        let input = match effect {
            source::Effect::List { max } => self.sessions[at].source_host.list(max),
            source::Effect::Read {
                block,
                buffer,
                parts,
                ..
            } => {
                let session = &mut self.sessions[at];
                let had = session.source_host.trouble;
                let outcome = session.source_host.read(&self.tree, buffer, &parts);
                let has = session.source_host.trouble;
                if let Some(attempt) = session.attempts.get_mut(&block) {
                    let failed = |file| outcome.failed.iter().any(|(other, _)| *other == file);
                    attempt.parts.retain(|(file, _)| !failed(*file));
                }
                if had.error && !has.error {
                    self.hit(at, Fault::ReadError);
                }
                if had.short && !has.short {
                    self.hit(at, Fault::ShortRead);
                }
                source::Input::ReadDone { block, outcome }
            }
            source::Effect::StoreVerdict(_) => {
                self.sessions[at].is_verdict_stored = true;
                source::Input::VerdictStored(Ok(()))
            }
            _ => return,
        };
        self.source(at, input);
    }

    fn transmit(&mut self, at: usize, stream: u32) {
        let link = &self.sessions[at].link;
        let Some(known) = link.streams.get(&stream) else {
            return;
        };
        if let Some((head, _)) = known.queue.front() {
            // The link has a rate of 1 MB/s, so each byte takes one microsecond.
            let micros = 20 + head.payload_bytes().unwrap_or(0);
            let now = self.now;
            let timing = self.timing.as_mut();
            let wait = timing.map_or(Duration::from_micros(micros), |timing| timing.link(now));
            self.after(at, wait, Event::Transmitted(stream));
        }
    }

    fn transmitted(&mut self, at: usize, stream: u32) {
        let arrival = self.now + self.delay(100, 3000);
        let session = &mut self.sessions[at];
        if session.source_is_over() {
            return;
        }
        let Some(known) = session.link.streams.get_mut(&stream) else {
            return;
        };
        if known.cut.is_some() {
            return;
        }
        let Some((head, buffer)) = known.queue.pop_front() else {
            return;
        };
        known.last = known.last.max(arrival) + Duration::from_nanos(1);
        let last = known.last;
        let payload = buffer.map_or(Vec::new(), |buffer| {
            session.source_host.in_use.remove(&buffer);
            session.source_host.buffers[buffer.0 as usize].clone()
        });
        match session.link.encode(&head, &payload) {
            Ok(bytes) => self.at(at, last, Event::Arrived(stream, bytes)),
            Err(error) => self.violate("no_panic", error.to_string()),
        }
        self.transmit(at, stream);
        self.source(at, source::Input::Sent { block: head.id });
    }

    fn arrived(&mut self, at: usize, stream: u32, mut bytes: Vec<u8>) {
        let now = self.now;
        let session = &mut self.sessions[at];
        let is_cut = session.link.cut.is_some_and(|(sink, _)| now > sink);
        let known = session.link.streams.get(&stream);
        let is_lost = known
            .is_none_or(|known| known.is_lost_at_sink || known.cut.is_some_and(|cut| now > cut));
        if is_cut || is_lost || session.sink_is_over() {
            return;
        }
        if std::mem::take(&mut session.link.trouble.head) {
            let bit = self.draw.below(28 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.hit(at, Fault::CorruptHead);
            self.lose_stream(at, stream, true);
            return;
        }
        let (mut head, mut payload) = match self.sessions[at].link.decode(&bytes) {
            Ok(found) => found,
            Err(error) => {
                self.violate("no_panic", error.to_string());
                return;
            }
        };
        if !payload.is_empty() && self.sessions[at].link.trouble.payload {
            self.sessions[at].link.trouble.payload = false;
            self.sessions[at].link.was_corrupted = true;
            let bit = self.draw.below(payload.len() as u64 * 8) as usize;
            payload[bit / 8] ^= 1 << (bit % 8);
            self.hit(at, Fault::CorruptPayload);
        }
        if !payload.is_empty() && self.sessions[at].host.free.is_empty() {
            if !self.sessions[at].link.was_doubled {
                self.violate(
                    "bytes_in_flight_never_exceed_pool",
                    "an object arrives, but no buffer is free".into(),
                );
            }
            self.sessions[at].waiting.push_back((stream, bytes));
            return;
        }
        let intact = is_intact(&head, &payload);
        if !intact && !self.sessions[at].link.was_corrupted {
            let what = "a buffer was used again before its object was sent";
            self.violate("bytes_in_flight_never_exceed_pool", what.into());
        }
        let session = &mut self.sessions[at];
        let buffer = match payload.is_empty() {
            true => None,
            false => session.host.free.pop_first(),
        };
        if self.mutant == Some(Mutant::WrongBit) && !payload.is_empty() && head.id.0 % 7 == 3 {
            payload[0] ^= 1;
        }
        if self.mutant == Some(Mutant::OffsetNotBound) {
            move_elsewhere(&mut head);
        }
        if let Some(buffer) = buffer {
            session.host.buffers[buffer.0 as usize] = payload;
        }
        let twice = std::mem::take(&mut session.link.trouble.twice);
        if twice {
            session.link.was_doubled = true;
            self.hit(at, Fault::Duplicate);
            let wait = self.delay(0, 4000);
            self.after(at, wait, Event::Arrived(stream, bytes));
        }
        let verified = if intact {
            Ok(())
        } else {
            Err(sink::Sink::mismatch(None))
        };
        self.sink(
            at,
            sink::Input::BlockArrived {
                peer: PEER,
                head,
                buffer,
                verified,
            },
        );
    }

    /// Returns a buffer to the sink's pool.
    pub fn free_buffer(&mut self, at: usize, buffer: dray_core::BufferId) {
        let session = &mut self.sessions[at];
        if !session.host.free.insert(buffer) {
            let what = format!("{buffer} was freed twice");
            self.violate("bytes_in_flight_never_exceed_pool", what);
            return;
        }
        if let Some((stream, bytes)) = session.waiting.pop_front() {
            self.after(at, Duration::ZERO, Event::Arrived(stream, bytes));
        }
    }

    fn control_to_source(&mut self, at: usize, bytes: &[u8]) {
        let session = &mut self.sessions[at];
        if session.source_is_over() || session.link.cut.is_some_and(|(_, cut)| self.now > cut) {
            return;
        }
        match session.link.to_source.receive(bytes) {
            Err(error) => self.violate("no_panic", error.to_string()),
            Ok(messages) => {
                for mut message in messages {
                    self.settle_attempts(at, &mut message);
                    self.source(at, source::Input::Message(message));
                }
            }
        }
    }

    fn control_to_sink(&mut self, at: usize, bytes: &[u8]) {
        let session = &mut self.sessions[at];
        if session.sink_is_over() || session.link.cut.is_some_and(|(cut, _)| self.now > cut) {
            return;
        }
        match session.link.to_sink.receive(bytes) {
            Err(error) => self.violate("no_panic", error.to_string()),
            Ok(messages) => {
                for message in messages {
                    self.sink(at, sink::Input::Message(PEER, message));
                }
            }
        }
    }

    /// Updates the record of attempts from a message of the sink. Changes the message if a mutant
    /// requires this.
    fn settle_attempts(&mut self, at: usize, message: &mut Message) {
        let session = &mut self.sessions[at];
        match message {
            Message::BlockSync(states) => {
                if self.mutant == Some(Mutant::AttemptDoubled) {
                    let safe = states
                        .iter()
                        .find(|(_, state)| *state == BlockState::Written);
                    if let Some((block, _)) = safe.cloned() {
                        let dropped = |(id, _): &&mut (BlockId, BlockState)| *id == block;
                        if let Some((_, state)) = states.iter_mut().find(dropped) {
                            *state = BlockState::Dropped;
                        }
                        return;
                    }
                }
                for (block, state) in states {
                    if matches!(state, BlockState::Nack(_) | BlockState::Dropped)
                        && let Some(Attempt { bytes, .. }) = session.attempts.remove(block)
                    {
                        session.wasted += bytes;
                    }
                }
            }
            Message::Credit(grants) if self.mutant == Some(Mutant::CreditDoubled) => {
                for (_, count) in grants {
                    *count *= 2;
                }
            }
            _ => {}
        }
    }

    /// Returns the duration of an effect on `target`. If the target stalls, the duration includes
    /// the time until the stall ends.
    pub fn slow(&mut self, at: usize, target: u32, wait: Duration) -> Duration {
        match self.sessions[at].stall {
            Some((slow, until)) if slow == target && self.now < until => {
                wait + until.since(self.now)
            }
            _ => wait,
        }
    }

    /// Cuts the link of one session: no more data arrives, and both ends get a report of the loss.
    pub fn cut(&mut self, at: usize) {
        if self.sessions[at].link.cut.is_some() {
            return;
        }
        let to_sink = self.now + self.delay(0, 1500);
        let to_source = self.now + self.delay(0, 1500);
        self.sessions[at].link.cut = Some((to_sink, to_source));
        let heard: Time = to_sink + self.delay(1, 3000);
        self.at(at, heard, Event::Sink(sink::Input::PeerLost(PEER, lost())));
        let heard = to_source + self.delay(1, 3000);
        self.at(at, heard, Event::Source(source::Input::PeerLost(lost())));
    }

    /// Drops the queue of a stream after the source got the report of its loss.
    fn give_up(&mut self, at: usize, stream: u32) {
        let session = &mut self.sessions[at];
        if let Some(known) = session.link.streams.get_mut(&stream) {
            for (_, buffer) in std::mem::take(&mut known.queue) {
                if let Some(buffer) = buffer {
                    session.source_host.in_use.remove(&buffer);
                }
            }
        }
    }

    /// Cuts a stream. A part of the data in flight still arrives, and then both ends are told of
    /// the loss.
    pub fn lose_stream(&mut self, at: usize, stream: u32, at_once: bool) {
        let cut = if at_once {
            self.now
        } else {
            self.now + self.delay(0, 2500)
        };
        let Some(known) = self.sessions[at].link.streams.get_mut(&stream) else {
            return;
        };
        if known.cut.is_some() {
            return;
        }
        known.cut = Some(cut);
        let source_hears = self.delay(1, 4000);
        self.after(
            at,
            source_hears,
            Event::Source(source::Input::StreamLost(StreamId(stream))),
        );
        let sink_hears = cut + self.delay(1, 4000);
        self.at(at, sink_hears, Event::StreamLostAtSink(stream));
        let back = source_hears + self.delay(500, 6000);
        self.open_stream(at, back);
    }
}

/// Moves an object with a single segment to the offset of the preceding object. This is a planted
/// defect.
fn move_elsewhere(head: &mut dray_wire::message::BlockHead) {
    if let [segment] = head.segments.as_mut_slice() {
        let length = segment.range.length;
        if head.id.0 % 5 == 2 && segment.range.offset >= length {
            segment.range.offset -= length;
        }
    }
}

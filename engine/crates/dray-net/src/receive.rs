//! The receiving half of a data stream. It reads each object directly into a buffer of the pool,
//! and computes the checksums while the bytes are in the processor's cache.

use super::channel::Channel;
use super::hub::{Hub, Registration};
use super::socket::shut;
use super::{PEER, fail};
use crossbeam_channel::Sender;
use dray_core::checksum::Summer;
use dray_core::{BufferId, Error, Result};
use dray_link::link::SinkEvent;
use dray_link::numa::stay_near_connection;
use dray_link::pace::SharedRates;
use dray_link::pool::{PIECE_BYTES, Pool};
use dray_session::sink::{Input, Sink};
use dray_wire::codec::{PREFIX_BYTES, Prefix, decode_block_head, head_bytes_max};
use dray_wire::message::{BlockHead, Segment, SegmentKind};
use std::io::{self, Read};
use std::sync::Arc;

/// Size in bytes of the read buffer of a stream. One read then returns the prefix of a frame, the
/// head of the frame and perhaps the prefix of the next frame. The number is small because payload
/// bytes in the read buffer must be copied.
const AHEAD_BYTES: usize = 1 << 10;

/// The receiver thread of one stream at the sink.
pub(super) struct StreamReceiver {
    channel: io::BufReader<Channel>,
    registration: Registration,
    events: Sender<SinkEvent>,
    pool: Arc<Pool>,
    shared: SharedRates,
    head: Vec<u8>,
}

enum End {
    /// The stream is not usable any more; the session continues.
    Stream(Error),
    /// The peer violated the protocol in a way that ends the session.
    Session(Error),
}

impl StreamReceiver {
    pub(super) fn new(
        channel: Channel,
        registration: Registration,
        events: Sender<SinkEvent>,
        pool: Arc<Pool>,
        shared: SharedRates,
    ) -> Self {
        Self {
            channel: io::BufReader::with_capacity(AHEAD_BYTES, channel),
            registration,
            events,
            pool,
            shared,
            head: Vec::new(),
        }
    }

    fn hub(&self) -> &Hub {
        self.registration.hub()
    }

    /// Receives objects until the stream ends. The executor gets all received objects before the
    /// report of the lost stream.
    pub(super) fn run(mut self) {
        stay_near_connection(self.channel.get_ref().socket().stream());
        let end = loop {
            match self.receive() {
                Ok(()) => {}
                Err(end) => break end,
            }
        };
        // Shut the socket before the loss is reported: the driver then dials another stream, and a
        // dead stream must not count as one of the granted streams.
        shut(self.channel.get_ref().socket().stream());
        let stream = self.registration.stream();
        let _ = self
            .events
            .send(SinkEvent::Input(Input::StreamLost(PEER, stream)));
        match end {
            End::Stream(error) => self.hub().stream_lost(error),
            End::Session(error) => self.hub().break_off(error),
        }
    }

    /// Receives one object, or skips one frame whose kind allows skipping.
    fn receive(&mut self) -> Result<(), End> {
        let Some(head) = self.read_head().map_err(End::Stream)? else {
            return Ok(());
        };
        // `decode_block_head` has checked that the total length is within the agreed limit.
        let bytes = head.payload_bytes().unwrap_or(u64::MAX);
        if bytes == 0 {
            // Objects without payload need no credit. So only the executor's queue limits their
            // number.
            self.hub().wait_for_room(self.head.len());
            self.arrived(head, None, Ok(()));
            return Ok(());
        }
        let length = match usize::try_from(bytes) {
            Ok(length) if length <= self.pool.buffer_bytes() => length,
            _ => {
                let cause = format!(
                    "the object has {bytes} bytes, but buffers have {} bytes",
                    self.pool.buffer_bytes()
                );
                return Err(End::Session(fail::protocol("receive an object", cause)));
            }
        };
        let Some(buffer) = self.pool.take() else {
            let cause = "the peer sent an object, although this end had granted no credit";
            return Err(End::Session(fail::protocol("receive an object", cause)));
        };
        match self.read_payload(&head, buffer, length) {
            Ok(verified) => {
                self.hub().note_progress();
                self.arrived(head, Some(buffer), verified);
                Ok(())
            }
            Err(error) => {
                self.pool.give(buffer);
                Err(End::Stream(fail::io_error("receive an object", &error)))
            }
        }
    }

    fn arrived(&self, head: BlockHead, buffer: Option<BufferId>, verified: Result<()>) {
        let input = Input::BlockArrived {
            peer: PEER,
            head,
            buffer,
            verified,
        };
        // If the send fails, the executor has ended and needs no further objects.
        let _ = self.events.send(SinkEvent::Input(input));
    }

    /// Reads the head of a frame. Returns `None` for a frame that was skipped.
    fn read_head(&mut self) -> Result<Option<BlockHead>> {
        let failed = |error: io::Error| fail::io_error("receive an object", &error);
        let mut prefix = [0; PREFIX_BYTES];
        self.channel.read_exact(&mut prefix).map_err(failed)?;
        let limits = *self.hub().limits();
        let prefix = Prefix::parse(&prefix, head_bytes_max(&limits))?;
        self.head.clear();
        // The buffer grows with the bytes received. The prefix may claim a greater length.
        let read = (&mut self.channel)
            .take(prefix.body_bytes.into())
            .read_to_end(&mut self.head)
            .map_err(failed)?;
        if u32::try_from(read) != Ok(prefix.body_bytes) {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        decode_block_head(&prefix, &self.head, &limits)
    }

    fn read_payload(
        &mut self,
        head: &BlockHead,
        buffer: BufferId,
        length: usize,
    ) -> io::Result<Result<()>> {
        let Some(mut guard) = self.pool.buffer(buffer) else {
            return Err(io::Error::other("the buffer does not belong to the pool"));
        };
        let payload = guard.bytes_mut().get_mut(..length);
        let mut rest = payload.ok_or(io::ErrorKind::InvalidInput)?;
        let mut check = Check::new(&head.segments);
        while !rest.is_empty() {
            let piece = rest.len().min(PIECE_BYTES);
            let read = match self.channel.read(&mut rest[..piece]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (filled, empty) = rest.split_at_mut(read);
            check.update(filled);
            rest = empty;
            // Wait for the rate limit of this end, which the source does not know. The wait delays
            // the next read, so the socket buffer fills up and slows the source.
            if !self.shared.came(read, || self.hub().is_over()) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(match check.matches {
            true => Ok(()),
            false => Err(Sink::mismatch(None)),
        })
    }
}

/// Computes the checksums of the data segments of a payload while bytes arrive, and compares the
/// checksum of each complete segment.
struct Check<'a> {
    segments: std::slice::Iter<'a, Segment>,
    summer: Summer,
    /// The current data segment, and the number of its bytes that have not arrived yet.
    current: Option<(&'a Segment, u64)>,
    matches: bool,
}

impl<'a> Check<'a> {
    fn new(segments: &'a [Segment]) -> Self {
        let mut check = Self {
            segments: segments.iter(),
            summer: Summer::new(),
            current: None,
            matches: true,
        };
        check.step();
        check
    }

    /// Compares segments that are complete, and advances to the next incomplete data segment.
    fn step(&mut self) {
        loop {
            match self.current {
                Some((_, 1..)) => return,
                Some((segment, 0)) => {
                    self.matches &= segment.kind == SegmentKind::Data(self.summer.finish());
                    self.summer = Summer::new();
                }
                None => {}
            }
            self.current = self
                .segments
                .find(|segment| matches!(segment.kind, SegmentKind::Data(_)))
                .map(|segment| (segment, segment.range.length));
            if self.current.is_none() {
                return;
            }
        }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while let Some((_, to_come)) = &mut self.current
            && !bytes.is_empty()
        {
            let part = usize::try_from(*to_come)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let (now, later) = bytes.split_at(part);
            self.summer.update(now);
            *to_come -= part as u64;
            bytes = later;
            self.step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Check;
    use dray_core::{ByteRange, FileIndex, Sums};
    use dray_wire::message::{Segment, SegmentKind};

    fn segment(length: u64, kind: SegmentKind) -> Segment {
        Segment {
            file: FileIndex(0),
            range: ByteRange { offset: 0, length },
            kind,
        }
    }

    #[test]
    fn each_segment_is_compared_with_its_own_sums_for_any_piece_size() {
        let (first, second) = (b"hello", b"objects");
        let payload = b"helloobjects";
        let good = [
            segment(5, SegmentKind::Data(Sums::of(first))),
            segment(99, SegmentKind::Hole),
            segment(0, SegmentKind::Data(Sums::EMPTY)),
            segment(7, SegmentKind::Data(Sums::of(second))),
        ];
        let swapped = [good[3], good[0]];
        for piece in 1..=payload.len() {
            for (segments, matches) in [(&good[..], true), (&swapped[..], false)] {
                let mut check = Check::new(segments);
                payload.chunks(piece).for_each(|bytes| check.update(bytes));
                assert_eq!(check.matches, matches, "pieces of {piece}");
                assert!(check.current.is_none());
            }
        }
    }
}

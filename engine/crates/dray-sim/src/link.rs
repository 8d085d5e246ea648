//! The link between the two ends: a control connection in each direction, and ordered data streams
//! with delay and bandwidth. Each connection can break. A part of the data in flight then still
//! arrives.

use dray_core::{BufferId, Error, Sums, Time};
use dray_wire::codec::{
    Decoder, PREFIX_BYTES, Prefix, decode_block_head, encode, encode_block_head, head_bytes_max,
};
use dray_wire::message::{BlockHead, Limits, Message, SegmentKind};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// One direction of the control connection.
#[derive(Debug)]
pub struct Control {
    limits: Limits,
    decoder: Decoder,
    /// Arrival time of the last message sent.
    pub last: Time,
}

impl Control {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            decoder: Decoder::new(limits),
            last: Time::ZERO,
        }
    }

    /// Encodes a message. Returns its bytes and its arrival time, which is later than that of all
    /// earlier messages.
    ///
    /// # Errors
    /// If the message exceeds the limits that both ends agreed on. This is a defect of the source
    /// machine or of the sink machine.
    pub fn send(&mut self, message: &Message, at: Time) -> Result<(Vec<u8>, Time), Error> {
        let mut bytes = Vec::new();
        encode(message, &self.limits, &mut bytes)?;
        self.last = self.last.max(at) + Duration::from_nanos(1);
        Ok((bytes, self.last))
    }

    /// Decodes the messages in the bytes received.
    ///
    /// # Errors
    /// If the bytes are invalid.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Message>, Error> {
        let mut messages = Vec::new();
        let mut rest = bytes;
        while let Some(message) = self.decoder.next(&mut rest)? {
            messages.push(message);
        }
        Ok(messages)
    }
}

/// A data stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Objects that are queued and not sent yet.
    pub queue: VecDeque<(BlockHead, Option<BufferId>)>,
    /// Arrival time of the last object sent.
    pub last: Time,
    /// Time after which no data arrives. `None` if the stream is not cut.
    pub cut: Option<Time>,
    /// True if the sink got the report of the loss.
    pub is_lost_at_sink: bool,
}

/// Corruptions that apply to the next object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trouble {
    /// Flip a bit of the payload.
    pub payload: bool,
    /// Flip a bit of the head.
    pub head: bool,
    /// Deliver the object twice.
    pub twice: bool,
}

/// The link of a session.
#[derive(Debug)]
pub struct Link {
    limits: Limits,
    /// Control connection from the source to the sink.
    pub to_sink: Control,
    /// Control connection from the sink to the source.
    pub to_source: Control,
    /// Data streams by number.
    pub streams: BTreeMap<u32, Stream>,
    /// Number of the next stream.
    pub next_stream: u32,
    /// Times after which no data arrives: at the sink, and at the source. `None` if the link is not
    /// cut.
    pub cut: Option<(Time, Time)>,
    /// Corruptions that apply to the next object.
    pub trouble: Trouble,
    /// True if the simulator has corrupted an object.
    pub was_corrupted: bool,
    /// True if the simulator has delivered an object twice.
    pub was_doubled: bool,
}

impl Link {
    /// Creates a link with these agreed limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            to_sink: Control::new(limits),
            to_source: Control::new(limits),
            streams: BTreeMap::new(),
            next_stream: 0,
            cut: None,
            trouble: Trouble::default(),
            was_corrupted: false,
            was_doubled: false,
        }
    }

    /// Encodes an object.
    ///
    /// # Errors
    /// If the head exceeds the limits that both ends agreed on. This is a defect of the source
    /// machine.
    pub fn encode(&self, head: &BlockHead, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        encode_block_head(head, &self.limits, &mut bytes)?;
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }

    /// Decodes an object: its head and its payload.
    ///
    /// # Errors
    /// If the head is invalid.
    pub fn decode(&self, bytes: &[u8]) -> Result<(BlockHead, Vec<u8>), Error> {
        let broken = || {
            Error::new(
                dray_core::ErrorKind::Protocol,
                dray_core::End::Network,
                "read an object",
            )
        };
        let (prefix, rest) = bytes
            .split_first_chunk::<PREFIX_BYTES>()
            .ok_or_else(broken)?;
        let prefix = Prefix::parse(prefix, head_bytes_max(&self.limits))?;
        let length = prefix.body_bytes as usize;
        let body = rest.get(..length).ok_or_else(broken)?;
        let head = decode_block_head(&prefix, body, &self.limits)?.ok_or_else(broken)?;
        Ok((head, rest[length..].to_vec()))
    }
}

/// Returns true if the segments of the payload match the checksums in the head.
#[must_use]
pub fn is_intact(head: &BlockHead, payload: &[u8]) -> bool {
    let mut at = 0;
    for segment in &head.segments {
        if let SegmentKind::Data(sums) = segment.kind {
            let end = at + segment.range.length as usize;
            match payload.get(at..end) {
                Some(bytes) if Sums::of(bytes) == sums => at = end,
                _ => return false,
            }
        }
    }
    at == payload.len()
}

//! The link: a control connection each way and ordered data streams with delay and bandwidth, all
//! of which may break; what was under way when they broke arrives in part.

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
    /// When the message sent last arrives.
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

    /// A message as bytes, and when they arrive: never before those sent before.
    ///
    /// # Errors
    /// When the message cannot be said within the limits: a defect of the machine.
    pub fn send(&mut self, message: &Message, at: Time) -> Result<(Vec<u8>, Time), Error> {
        let mut bytes = Vec::new();
        encode(message, &self.limits, &mut bytes)?;
        self.last = self.last.max(at) + Duration::from_nanos(1);
        Ok((bytes, self.last))
    }

    /// The messages in bytes that came.
    ///
    /// # Errors
    /// When they are none.
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
    /// Handed over and not yet sent.
    pub queue: VecDeque<(BlockHead, Option<BufferId>)>,
    /// When what was sent last arrives.
    pub last: Time,
    /// After this nothing arrives any more.
    pub cut: Option<Time>,
    /// Whether the sink has been told that it is dead.
    pub is_lost_at_sink: bool,
}

/// Corruptions and the like that wait for the next object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trouble {
    /// A wrong bit in a payload.
    pub payload: bool,
    /// A wrong bit in a head.
    pub head: bool,
    /// An object arrives twice.
    pub twice: bool,
}

/// See the module's head.
#[derive(Debug)]
pub struct Link {
    limits: Limits,
    /// From the source.
    pub to_sink: Control,
    /// From the sink.
    pub to_source: Control,
    /// The streams.
    pub streams: BTreeMap<u32, Stream>,
    /// Number of the next stream.
    pub next_stream: u32,
    /// After this nothing arrives any more, at the sink and at the source.
    pub cut: Option<(Time, Time)>,
    /// See [`Trouble`].
    pub trouble: Trouble,
    /// Whether anything was corrupted on purpose.
    pub was_corrupted: bool,
    /// Whether anything was delivered twice on purpose.
    pub was_doubled: bool,
}

impl Link {
    /// A link with these agreed limits.
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

    /// An object as bytes.
    ///
    /// # Errors
    /// When its head is over the limits: a defect of the machine.
    pub fn encode(&self, head: &BlockHead, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        encode_block_head(head, &self.limits, &mut bytes)?;
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }

    /// An object from bytes: its head and its payload.
    ///
    /// # Errors
    /// When the head is not one.
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

/// Whether a payload's segments have the sums their head says.
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

//! The sending half of a data stream.

use super::channel::Channel;
use super::fail;
use super::hub::Registration;
use super::socket::shut;
use dray_core::{Error, Result};
use dray_link::link::BlockSender;
use dray_link::numa::stay_near_connection;
use dray_link::pace::Pace;
use dray_link::pool::Buffer;
use dray_wire::codec::encode_block_head;
use dray_wire::message::BlockHead;
use std::io;
use std::sync::Arc;

pub(super) struct StreamSender {
    channel: Channel,
    registration: Registration,
    head: Vec<u8>,
    is_placed: bool,
}

impl StreamSender {
    pub(super) const fn new(channel: Channel, registration: Registration) -> Self {
        Self {
            channel,
            registration,
            head: Vec::new(),
            is_placed: false,
        }
    }

    fn send_block(&mut self, head: &BlockHead, payload: &[u8], pace: &mut Pace<'_>) -> Result<()> {
        self.head.clear();
        encode_block_head(head, self.registration.hub().limits(), &mut self.head)?;
        self.write(payload, pace)
            .map_err(|error| fail::io_error("send an object", &error))
    }

    /// Writes head and payload in one call. If a rate limit applies, writes them in pieces.
    fn write(&mut self, payload: &[u8], pace: &mut Pace<'_>) -> io::Result<()> {
        let (mut head, mut rest) = (&self.head[..], payload);
        loop {
            let piece = match pace.is_limited() && !rest.is_empty() {
                true => pace.piece(rest.len()),
                false => Some(rest.len()),
            };
            let over = || io::Error::new(io::ErrorKind::ConnectionAborted, "the session has ended");
            let (now, later) = rest.split_at(piece.ok_or_else(over)?);
            self.channel.write_both(head, now)?;
            pace.passed(now.len());
            if later.is_empty() {
                return Ok(());
            }
            (head, rest) = (&[], later);
        }
    }
}

impl BlockSender for StreamSender {
    fn send(
        &mut self,
        head: &BlockHead,
        payload: Option<&mut Buffer>,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        // The thread of the first call also sends all later objects of the stream. So bind this
        // thread near the processor of the connection.
        if !std::mem::replace(&mut self.is_placed, true) {
            stay_near_connection(self.channel.socket().stream());
        }
        let length = head
            .payload_bytes()
            .and_then(|length| usize::try_from(length).ok());
        let bytes = payload.as_deref().map_or(&[][..], Buffer::bytes);
        let sent = match length.and_then(|length| bytes.get(..length)) {
            Some(payload) => self.send_block(head, payload, pace),
            None => Err(fail::internal(
                "send an object",
                "the buffer of the object is shorter than the segments of the object",
            )),
        };
        if let Err(error) = &sent {
            self.give_up(error);
        }
        sent
    }

    fn cutter(&self) -> Option<Box<dyn Fn() + Send>> {
        let stream = Arc::clone(self.channel.socket().stream());
        Some(Box::new(move || shut(&stream)))
    }

    fn give_up(&mut self, error: &Error) {
        // Shut the socket before the loss is reported. The driver dials another stream after the
        // report, and the dead stream must then no longer count as one of the granted streams.
        shut(self.channel.socket().stream());
        self.registration.end();
        self.registration.hub().stream_lost(error.clone());
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        // Ends the stream regularly if no object is being sent. After a failure the call has no
        // effect.
        self.channel.end();
    }
}

//! A control connection before its session begins. A single thread sends and receives one message
//! at a time.

use super::channel::{Channel, RawBytes};
use super::fail;
use super::socket::Socket;
use dray_core::{ErrorKind, Result};
use dray_wire::codec::{Decoder, encode};
use dray_wire::message::{Hello, Limits, Message, optional};
use dray_wire::negotiate::{
    Agreed, CHECKSUMS_KNOWN, MANDATORY_USED, OPTIONAL_KNOWN, VERSION_NEWEST, VERSION_OLDEST,
};
use rustls::Connection;
use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Number of plaintext bytes in one read during the greeting.
const PIECE_BYTES: usize = 4096;

/// A control connection that is still being set up.
pub(super) struct Greeting {
    channel: Channel,
    decoder: Decoder,
    limits: Limits,
    peer_reads_layouts: bool,
    piece: Vec<u8>,
}

/// The parts of a completed greeting, with which a control connection starts.
pub(super) struct Greeted {
    pub(super) socket: Socket,
    pub(super) tls: Connection,
    /// Ciphertext that was read and not yet passed to TLS.
    pub(super) raw: RawBytes,
    pub(super) decoder: Decoder,
    /// Plaintext that was not yet passed to the decoder.
    pub(super) plain: Vec<u8>,
    pub(super) limits: Limits,
    /// True if both ends have set the optional bit LAYOUTS.
    pub(super) peer_reads_layouts: bool,
}

impl Greeting {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            decoder: Decoder::default(),
            limits: Limits::before_hello(),
            peer_reads_layouts: false,
            piece: Vec::new(),
        }
    }

    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        self.channel.socket_mut()
    }

    /// Applies the agreement to all later messages.
    pub(super) fn agree(&mut self, agreed: &Agreed) {
        self.limits = agreed.limits;
        self.peer_reads_layouts = agreed.has(optional::LAYOUTS);
        self.decoder.set_limits(agreed.limits);
    }

    pub(super) fn send(&mut self, message: &Message) -> Result<()> {
        let mut frames = Vec::new();
        encode(message, &self.limits, &mut frames)?;
        self.write(&frames)
    }

    /// Sends `first`. Sends `second` directly after it, if `second` fits within the limits that
    /// apply before HELLO. Returns true if `second` was sent.
    pub(super) fn send_both(&mut self, first: &Message, second: &Message) -> Result<bool> {
        let mut frames = Vec::new();
        encode(first, &self.limits, &mut frames)?;
        let fits = encode(second, &self.limits, &mut frames).is_ok();
        self.write(&frames)?;
        Ok(fits)
    }

    fn write(&mut self, frames: &[u8]) -> Result<()> {
        self.channel
            .write_both(frames, &[])
            .map_err(|error| fail::io_error("talk to the peer", &error))
    }

    /// Ends the sending direction, and waits at most `patience` until the peer closes. Reads and
    /// discards data that the peer still sends: closing a socket with unread data may reset the
    /// connection, and the peer would lose the last message.
    pub(super) fn leave(&mut self, patience: Duration) {
        self.channel.end();
        let socket = self.channel.socket_mut();
        socket.set_deadline(Instant::now() + patience);
        if socket.stream().shutdown(Shutdown::Write).is_err() {
            return;
        }
        self.piece.resize(PIECE_BYTES, 0);
        while socket.read(&mut self.piece).is_ok_and(|read| read > 0) {}
    }

    pub(super) fn receive(&mut self) -> Result<Message> {
        loop {
            let mut input = self.piece.as_slice();
            let message = self.decoder.next(&mut input)?;
            let taken = self.piece.len() - input.len();
            self.piece.drain(..taken);
            if let Some(message) = message {
                return Ok(message);
            }
            self.piece.resize(PIECE_BYTES, 0);
            let read = self.channel.read(&mut self.piece);
            let read = read.map_err(|error| fail::io_error("receive from the peer", &error));
            self.piece.truncate(*read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(fail::lost(
                    "the peer closed the connection before a session began",
                ));
            }
        }
    }

    /// Returns the parts from which the session's control connection is built.
    pub(super) fn finish(self) -> Result<Greeted> {
        let (socket, tls, raw) = self.channel.into_tls().ok_or_else(|| {
            fail::internal(
                "begin a session",
                "the control connection is not encrypted with TLS",
            )
        })?;
        Ok(Greeted {
            socket,
            tls,
            raw,
            decoder: self.decoder,
            plain: self.piece,
            limits: self.limits,
            peer_reads_layouts: self.peer_reads_layouts,
        })
    }
}

pub(super) fn hello(software: &str, limits: Limits, optional: u64, token: &[u8]) -> Hello {
    Hello {
        versions: (VERSION_OLDEST, VERSION_NEWEST),
        mandatory: MANDATORY_USED,
        optional: optional & OPTIONAL_KNOWN,
        limits,
        checksums: CHECKSUMS_KNOWN.to_vec(),
        software: software.to_owned(),
        token: token.to_vec(),
    }
}

/// Returns the error for a message other than `awaited`. If the message is REFUSE, returns the
/// peer's error.
pub(super) fn unexpected(awaited: &str, message: &Message) -> dray_core::Error {
    if let Message::Refuse(error) = message {
        return error.clone();
    }
    let mut error = fail::protocol(
        "begin a session",
        format!("the peer sent a different message instead of the expected {awaited}"),
    );
    error.kind = ErrorKind::Protocol;
    error
}

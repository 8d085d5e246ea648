//! Frames: encodes messages as bytes and decodes them. docs/design/wire-protocol.md specifies the
//! layout, and `integration/wire/decoder.py` is an independent implementation.
//!
//! A control connection starts with a [`Preamble`] and the TLS handshake. All later bytes are
//! frames. [`encode`] appends a message to a buffer, in as many frames as the peer's limits
//! require. [`Decoder`] takes bytes as they arrive. Callers that read exact lengths use
//! [`Prefix::parse`] and [`decode`].
//!
//! A data connection starts with a [`Preamble`], the listener's [`Challenge`] and the dialler's
//! JOIN. All later bytes are blocks: a head and its payload ([`encode_block_head`],
//! [`decode_block_head`]).

mod bytes;
mod control;
mod data;
mod decoder;
mod fields;
mod layouts;
mod setup;

pub use control::{decode, encode};
pub use data::{
    CHALLENGE_FRAME_BYTES, Challenge, Connection, JOIN_FRAME_BYTES, MAGIC, PREAMBLE_BYTES,
    Preamble, Security, decode_block_head, decode_challenge, decode_join, encode_block_head,
    encode_challenge, encode_join, head_bytes_max,
};
pub use decoder::Decoder;

use bytes::{refused, unsendable};
use dray_core::checksum::crc32c;
use dray_core::{ErrorKind, Result};

/// Length in bytes of the prefix before the body of every frame.
pub const PREFIX_BYTES: usize = 12;

/// Flag of a frame whose body may end with fields that the agreed version does not define. A reader
/// ignores the bytes after the last field that it knows. Without the flag, such bytes are an error.
pub const FLAG_EXTENDED: u8 = 1;

/// Lowest frame type that a peer may skip if it does not know the type.
pub const TYPE_IGNORABLE: u8 = 0x80;

/// Numbers of the frame types.
pub mod frame_type {
    #![expect(
        missing_docs,
        reason = "each is the number of the message of that name"
    )]
    pub const HELLO: u8 = 0x01;
    pub const CONNECT: u8 = 0x02;
    pub const ACCEPT: u8 = 0x03;
    pub const REFUSE: u8 = 0x04;
    pub const READY: u8 = 0x05;
    pub const NEW_FILES: u8 = 0x10;
    pub const LIST_END: u8 = 0x11;
    pub const DONE: u8 = 0x12;
    pub const FILE_IDS: u8 = 0x13;
    pub const FILE_CLOSE: u8 = 0x14;
    pub const FILE_ABORT: u8 = 0x15;
    pub const LIST_FAILED: u8 = 0x16;
    pub const CREDIT: u8 = 0x20;
    pub const BLOCK_SYNC: u8 = 0x21;
    pub const STREAM_LOST: u8 = 0x22;
    pub const RATE: u8 = 0x23;
    pub const STALL: u8 = 0x24;
    pub const PING: u8 = 0x30;
    pub const PONG: u8 = 0x31;
    pub const GO_AWAY: u8 = 0x32;
    pub const CANCEL: u8 = 0x33;
    pub const VERDICT: u8 = 0x34;
    pub const VERDICT_STORED: u8 = 0x35;
    pub const BYE: u8 = 0x36;
    pub const CHALLENGE: u8 = 0x40;
    pub const JOIN: u8 = 0x41;
    pub const BLOCK: u8 = 0x42;
    pub const PROFILE: u8 = 0x80;
    pub const STREAMS: u8 = 0x81;
    pub const STRIPES: u8 = 0x82;
}

/// Returns the name of a frame type for the specification and for error messages.
#[must_use]
pub const fn frame_name(number: u8) -> &'static str {
    match number {
        frame_type::HELLO => "HELLO",
        frame_type::CONNECT => "CONNECT",
        frame_type::ACCEPT => "ACCEPT",
        frame_type::REFUSE => "REFUSE",
        frame_type::READY => "READY",
        frame_type::NEW_FILES => "NEW_FILES",
        frame_type::LIST_END => "LIST_END",
        frame_type::DONE => "DONE",
        frame_type::FILE_IDS => "FILE_IDS",
        frame_type::FILE_CLOSE => "FILE_CLOSE",
        frame_type::FILE_ABORT => "FILE_ABORT",
        frame_type::LIST_FAILED => "LIST_FAILED",
        frame_type::CREDIT => "CREDIT",
        frame_type::BLOCK_SYNC => "BLOCK_SYNC",
        frame_type::STREAM_LOST => "STREAM_LOST",
        frame_type::RATE => "RATE",
        frame_type::STALL => "STALL",
        frame_type::PING => "PING",
        frame_type::PONG => "PONG",
        frame_type::GO_AWAY => "GO_AWAY",
        frame_type::CANCEL => "CANCEL",
        frame_type::VERDICT => "VERDICT",
        frame_type::VERDICT_STORED => "VERDICT_STORED",
        frame_type::BYE => "BYE",
        frame_type::CHALLENGE => "CHALLENGE",
        frame_type::JOIN => "JOIN",
        frame_type::BLOCK => "BLOCK",
        frame_type::PROFILE => "PROFILE",
        frame_type::STREAMS => "STREAMS",
        frame_type::STRIPES => "STRIPES",
        _ => "unknown",
    }
}

/// The prefix of a frame's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Length in bytes of the body that follows. For a BLOCK, the length of the head without the
    /// payload.
    pub body_bytes: u32,
    /// Type of the frame; one of [`frame_type`].
    pub frame_type: u8,
    /// Flags of the frame, such as [`FLAG_EXTENDED`].
    pub flags: u8,
    /// crc32c of the first eight bytes of the prefix and the body.
    pub crc32c: u32,
}

impl Prefix {
    /// Parses a prefix. `body_bytes_max` is the maximum length of the body:
    /// [`crate::message::Limits::control_bytes_max`] on a control connection, or [`head_bytes_max`]
    /// for a block.
    ///
    /// # Errors
    /// [`ErrorKind::LimitExceeded`] for a longer body; [`ErrorKind::Protocol`] for an unknown type
    /// that must not be ignored, an unknown flag, or reserved bytes that are not zero.
    pub fn parse(bytes: &[u8; PREFIX_BYTES], body_bytes_max: u32) -> Result<Self> {
        let [b0, b1, b2, b3, frame_type, flags, r0, r1, c0, c1, c2, c3] = *bytes;
        let prefix = Self {
            body_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            frame_type,
            flags,
            crc32c: u32::from_le_bytes([c0, c1, c2, c3]),
        };
        let name = frame_name(frame_type);
        if !prefix.is_passed_over() && name == "unknown" {
            let cause = format!("frame type {frame_type:#04x} is unknown");
            return Err(refused(ErrorKind::Protocol, "control or data", cause));
        }
        if (r0, r1) != (0, 0) || (flags & !FLAG_EXTENDED != 0 && !prefix.is_passed_over()) {
            let cause = format!(
                "the flags {flags:#04x} or the reserved bytes {r0:#04x} {r1:#04x} are \
                not valid"
            );
            return Err(refused(ErrorKind::Protocol, name, cause));
        }
        if prefix.body_bytes > body_bytes_max {
            let body_bytes = prefix.body_bytes;
            let cause = format!(
                "the body of {body_bytes} bytes exceeds the limit of {body_bytes_max} bytes"
            );
            return Err(refused(ErrorKind::LimitExceeded, name, cause));
        }
        Ok(prefix)
    }

    /// Returns true if the reader must skip the frame: this version does not know its type, and the
    /// type is in the ignorable range.
    #[must_use]
    pub fn is_passed_over(&self) -> bool {
        self.frame_type >= TYPE_IGNORABLE && frame_name(self.frame_type) == "unknown"
    }

    const fn is_extended(&self) -> bool {
        self.flags & FLAG_EXTENDED != 0
    }

    fn head(&self) -> [u8; 8] {
        let [b0, b1, b2, b3] = self.body_bytes.to_le_bytes();
        [b0, b1, b2, b3, self.frame_type, self.flags, 0, 0]
    }

    /// Checks the length and checksum of the body against the prefix.
    fn check(&self, body: &[u8]) -> Result<()> {
        let name = frame_name(self.frame_type);
        if u32::try_from(body.len()) != Ok(self.body_bytes) {
            let cause = format!(
                "the body has {} bytes, but {} bytes were announced",
                body.len(),
                self.body_bytes
            );
            return Err(refused(ErrorKind::Protocol, name, cause));
        }
        let found = crc32c(&[&self.head(), body]);
        if found != self.crc32c {
            let cause = format!("its crc32c is {found:08x}, {:08x} announced", self.crc32c);
            return Err(refused(ErrorKind::Protocol, name, cause));
        }
        Ok(())
    }
}

/// A frame at the end of a buffer that is not complete yet.
struct OpenFrame {
    start: usize,
    frame_type: u8,
    flags: u8,
}

impl OpenFrame {
    fn begin(out: &mut Vec<u8>, frame_type: u8) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        Self {
            start,
            frame_type,
            flags: 0,
        }
    }

    /// Marks the body as one that ends with fields that an older peer may ignore.
    const fn extended(mut self) -> Self {
        self.flags |= FLAG_EXTENDED;
        self
    }

    fn body_bytes(&self, out: &[u8]) -> usize {
        out.len() - self.start - PREFIX_BYTES
    }

    fn seal(self, out: &mut [u8], body_bytes_max: u32) -> Result<()> {
        let length = self.body_bytes(out);
        let body_bytes = match u32::try_from(length) {
            Ok(body_bytes) if body_bytes <= body_bytes_max => body_bytes,
            _ => {
                let what = format!("bytes of a {} frame", frame_name(self.frame_type));
                return Err(unsendable(&what, length as u64, body_bytes_max.into()));
            }
        };
        let mut prefix = Prefix {
            body_bytes,
            frame_type: self.frame_type,
            flags: self.flags,
            crc32c: 0,
        };
        let (head, body) = out[self.start..].split_at_mut(PREFIX_BYTES);
        prefix.crc32c = crc32c(&[&prefix.head(), body]);
        head[..8].copy_from_slice(&prefix.head());
        head[8..].copy_from_slice(&prefix.crc32c.to_le_bytes());
        Ok(())
    }
}

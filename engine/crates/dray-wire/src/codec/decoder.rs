//! Decodes a control connection's messages from bytes as they arrive.

use super::{PREFIX_BYTES, Prefix, decode};
use crate::message::{Limits, Message};
use dray_core::{Error, Result};

/// First allocation for an incomplete frame; it then grows with the received bytes, so that an
/// announced length costs nothing.
const BUFFER_BYTES_FIRST: usize = 4096;

/// Takes bytes in pieces of any size and returns messages. It holds at most one incomplete frame:
/// never more than `control_bytes_max` and a prefix.
///
/// Order of calls: [`Self::next`] with a slice, until it returns `None` and the slice is empty;
/// then again with the next received bytes. After HELLO, [`Self::set_limits`]. At the end of the
/// connection, [`Self::is_between_frames`] distinguishes a clean end from a torn one. After an
/// error all further calls return the same error: the position in the byte stream is lost.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    partial: Vec<u8>,
    failed: Option<Error>,
}

/// A prefix, its body, and the bytes after it.
type WholeFrame<'a> = (Prefix, &'a [u8], &'a [u8]);

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Limits::before_hello())
    }
}

impl Decoder {
    /// Creates a decoder at the start of a frame. [`Default`] creates one for the start of a
    /// connection.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            partial: Vec::new(),
            failed: None,
        }
    }

    /// Changes the limits for the next frames.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns true if the decoder holds no part of a frame.
    #[must_use]
    pub const fn is_between_frames(&self) -> bool {
        self.partial.is_empty()
    }

    /// Returns the bytes allocated for an incomplete frame.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.partial.capacity()
    }

    /// Consumes bytes from the front of `input` up to the end of the next message and returns it;
    /// `None` if more bytes are needed, and `input` is then empty.
    ///
    /// # Errors
    /// Those of [`Prefix::parse`] and [`decode`].
    /// Those of [`Prefix::parse`] and [`decode`].
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Message>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let outcome = self.advance(input);
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.partial = Vec::new();
        }
        outcome
    }

    fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Message>> {
        loop {
            if self.partial.is_empty() {
                // The usual case: the frame is complete in `input` and is decoded in place.
                if let Some((prefix, body, rest)) = self.whole_frame(input)? {
                    *input = rest;
                    match decode(&prefix, body, &self.limits)? {
                        Some(message) => return Ok(Some(message)),
                        None => continue,
                    }
                }
            }
            if !self.fill(input, PREFIX_BYTES) {
                return Ok(None);
            }
            let prefix = self.held_prefix()?;
            let frame_bytes = frame_bytes(&prefix);
            if !self.fill(input, frame_bytes) {
                return Ok(None);
            }
            let body = self.partial.get(PREFIX_BYTES..).unwrap_or_default();
            let message = decode(&prefix, body, &self.limits)?;
            // Freed, so that a connection that once had a long frame does not keep its memory for
            // ever.
            self.partial = Vec::new();
            if message.is_some() {
                return Ok(message);
            }
        }
    }

    fn whole_frame<'a>(&self, input: &'a [u8]) -> Result<Option<WholeFrame<'a>>> {
        let Some((bytes, rest)) = input.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let prefix = Prefix::parse(bytes, self.limits.control_bytes_max)?;
        let body_bytes = frame_bytes(&prefix) - PREFIX_BYTES;
        Ok(rest
            .split_at_checked(body_bytes)
            .map(|(body, rest)| (prefix, body, rest)))
    }

    fn held_prefix(&self) -> Result<Prefix> {
        let mut bytes = [0; PREFIX_BYTES];
        for (to, from) in bytes.iter_mut().zip(&self.partial) {
            *to = *from;
        }
        Prefix::parse(&bytes, self.limits.control_bytes_max)
    }

    /// Moves bytes from `input` until `wanted` are held. Returns true if they are.
    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        let length = self.partial.len() + taken.len();
        if length > self.partial.capacity() {
            // Vec would double past the limit.
            let ceiling = PREFIX_BYTES.saturating_add(self.limits.control_bytes_max as usize);
            let doubled = self
                .partial
                .capacity()
                .saturating_mul(2)
                .max(BUFFER_BYTES_FIRST);
            let capacity = doubled.min(ceiling).max(length);
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(taken);
        self.partial.len() >= wanted
    }
}

fn frame_bytes(prefix: &Prefix) -> usize {
    usize::try_from(prefix.body_bytes)
        .unwrap_or(usize::MAX)
        .saturating_add(PREFIX_BYTES)
}

//! Decodes the messages of a control connection from bytes as they arrive.

use super::{PREFIX_BYTES, Prefix, decode};
use crate::message::{Limits, Message};
use dray_core::{Error, Result};

/// Size in bytes of the first allocation for an incomplete frame. The buffer grows only as bytes
/// arrive. So a peer cannot make this end allocate memory by announcing a long frame.
const BUFFER_BYTES_FIRST: usize = 4096;

/// Decodes messages from pieces of input of any size. The decoder stores at most one incomplete
/// frame: `control_bytes_max` bytes and a prefix.
///
/// Order of calls: call [`Self::next`] with a slice of input until it returns `None` and the slice
/// is empty. Then continue with the next received bytes. Call [`Self::set_limits`] after HELLO.
/// When the connection ends, [`Self::is_between_frames`] is false if a frame is incomplete. After
/// an error the position in the input is unknown, so all further calls return the same error.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    partial: Vec<u8>,
    failed: Option<Error>,
}

/// A complete frame: its prefix, its body, and the input after the frame.
type WholeFrame<'a> = (Prefix, &'a [u8], &'a [u8]);

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Limits::before_hello())
    }
}

impl Decoder {
    /// Creates a decoder for input that starts with a frame. [`Default`] uses the limits that apply
    /// before HELLO.
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

    /// Returns true if the decoder stores no part of a frame.
    #[must_use]
    pub const fn is_between_frames(&self) -> bool {
        self.partial.is_empty()
    }

    /// Returns the number of bytes allocated for an incomplete frame.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.partial.capacity()
    }

    /// Consumes `input` up to the end of the next message and returns the message. If the message
    /// is incomplete, consumes all of `input` and returns `None`.
    ///
    /// # Errors
    /// The errors of [`Prefix::parse`] and [`decode`].
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
                // In the usual case `input` contains the complete frame. Decode it there, without a
                // copy.
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
            // Free the buffer. Otherwise the connection would keep memory for its longest frame
            // until the connection ends.
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

    /// Moves bytes from `input` until the buffer has `wanted` bytes. Returns true if the buffer has
    /// this many bytes.
    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        let length = self.partial.len() + taken.len();
        if length > self.partial.capacity() {
            // Reserve the exact size, because `Vec` would double its capacity and exceed the limit.
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

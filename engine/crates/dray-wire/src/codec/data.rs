//! The first bytes of every connection, and the frames of data connections.

use super::bytes::{Reader, put_u8, put_u32, put_u64, refused, unsendable};
use super::fields::{put_range, put_sums, read_range, read_sums};
use super::{OpenFrame, PREFIX_BYTES, Prefix, frame_name, frame_type};
use crate::message::{BlockHead, Join, Limits, Segment, SegmentKind};
use dray_core::{BlockId, ErrorKind, FileIndex, Result, StreamId, TargetId};

/// Length in bytes of the preamble, which starts every connection.
pub const PREAMBLE_BYTES: usize = 8;

/// The first bytes of every connection. A listener recognises the dray protocol by these bytes.
pub const MAGIC: [u8; 4] = *b"DRAY";

/// Length in bytes of a CHALLENGE frame with its prefix.
pub const CHALLENGE_FRAME_BYTES: usize = PREFIX_BYTES + 32;

/// Length in bytes of a JOIN frame with its prefix.
pub const JOIN_FRAME_BYTES: usize = PREFIX_BYTES + 16 + 4 + 32;

/// Length in bytes of the fixed fields of a block head: id 8, target 4, segment count 4.
const HEAD_BYTES_FIXED: u32 = 16;
/// Length in bytes of an encoded hole segment: kind 1, file 8, range 16.
const HOLE_BYTES: usize = 25;
/// Length in bytes of an encoded data segment: the 25 bytes of a hole segment and 8 bytes of
/// checksums.
const SEGMENT_BYTES_MAX: u32 = 33;

/// Purpose of a connection, as stated in its preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// The connection transports the messages of one session.
    Control,
    /// The connection is one stream of objects.
    Data,
}

/// Protocol layer that follows the preamble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// A TLS 1.3 handshake. All frames are encrypted.
    Tls,
    /// Frames without encryption. A control connection may use such frames only if the
    /// administrator permits this.
    Clear,
}

/// First bytes that the dialler sends, without encryption. A listener uses them to reject other
/// protocols before it allocates memory for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// Purpose of the connection.
    pub connection: Connection,
    /// Protocol layer that follows the preamble.
    pub security: Security,
}

impl Preamble {
    /// Returns the preamble as bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let [m0, m1, m2, m3] = MAGIC;
        let connection = match self.connection {
            Connection::Control => 1,
            Connection::Data => 2,
        };
        let security = match self.security {
            Security::Tls => 0,
            Security::Clear => 1,
        };
        [m0, m1, m2, m3, connection, security, 0, 0]
    }

    /// Parses a preamble.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] if the bytes are not a valid preamble.
    pub fn parse(bytes: &[u8; PREAMBLE_BYTES]) -> Result<Self> {
        let [m0, m1, m2, m3, connection, security, 0, 0] = *bytes else {
            return Err(not_a_preamble(bytes));
        };
        let connection = match connection {
            1 => Connection::Control,
            2 => Connection::Data,
            _ => return Err(not_a_preamble(bytes)),
        };
        let security = match security {
            0 => Security::Tls,
            1 => Security::Clear,
            _ => return Err(not_a_preamble(bytes)),
        };
        if [m0, m1, m2, m3] != MAGIC {
            return Err(not_a_preamble(bytes));
        }
        Ok(Self {
            connection,
            security,
        })
    }
}

fn not_a_preamble(bytes: &[u8]) -> dray_core::Error {
    let cause = format!(
        "the connection does not begin as dray requires, but with {}",
        bytes.escape_ascii()
    );
    refused(ErrorKind::Protocol, "preamble", cause)
}

/// The listener's first frame on a data connection: new random bytes. The proof in a JOIN covers
/// the challenge. So a recorded JOIN cannot be used on another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge(pub [u8; 32]);

/// Encodes a CHALLENGE frame.
#[must_use]
pub fn encode_challenge(challenge: &Challenge) -> [u8; CHALLENGE_FRAME_BYTES] {
    sealed(frame_type::CHALLENGE, |out| {
        out.extend_from_slice(&challenge.0)
    })
}

/// Decodes a CHALLENGE frame.
///
/// # Errors
/// [`ErrorKind::Protocol`] if the frame is not a valid CHALLENGE.
pub fn decode_challenge(frame: &[u8; CHALLENGE_FRAME_BYTES]) -> Result<Challenge> {
    let mut reader = open_fixed(frame, frame_type::CHALLENGE)?;
    let challenge = Challenge(reader.array("challenge")?);
    reader.end(false)?;
    Ok(challenge)
}

/// Encodes a JOIN frame.
#[must_use]
pub fn encode_join(join: &Join) -> [u8; JOIN_FRAME_BYTES] {
    sealed(frame_type::JOIN, |out| {
        out.extend_from_slice(&join.ticket);
        put_u32(out, join.stream.0);
        out.extend_from_slice(&join.proof);
    })
}

/// Decodes a JOIN frame. The caller must check the proof with the key of the session.
///
/// # Errors
/// [`ErrorKind::Protocol`] if the frame is not a valid JOIN.
pub fn decode_join(frame: &[u8; JOIN_FRAME_BYTES]) -> Result<Join> {
    let mut reader = open_fixed(frame, frame_type::JOIN)?;
    let join = Join {
        ticket: reader.array("ticket")?,
        stream: StreamId(reader.u32("stream")?),
        proof: reader.array("proof")?,
    };
    reader.end(false)?;
    Ok(join)
}

/// Encodes a frame of fixed length. `N` is its length in bytes, including the prefix.
fn sealed<const N: usize>(number: u8, put: impl FnOnce(&mut Vec<u8>)) -> [u8; N] {
    let mut out = Vec::with_capacity(N);
    let frame = OpenFrame::begin(&mut out, number);
    put(&mut out);
    let length = frame.seal(&mut out, u32::MAX).map(|()| out.len());
    debug_assert_eq!(length, Ok(N));
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(out) {
        *to = from;
    }
    bytes
}

/// Returns a reader for the body of a frame of fixed length. CHALLENGE and JOIN come before any
/// negotiation on their connection, so no extension can change them, and a frame with flags or
/// another length is an error.
fn open_fixed(frame: &[u8], number: u8) -> Result<Reader<'_>> {
    let name = frame_name(number);
    let wrong = |cause| refused(ErrorKind::Protocol, name, cause);
    let (bytes, body) = frame
        .split_first_chunk::<PREFIX_BYTES>()
        .ok_or_else(|| wrong(format!("a frame of {} bytes is too short", frame.len())))?;
    let prefix = Prefix::parse(bytes, u32::try_from(body.len()).unwrap_or(u32::MAX))?;
    if prefix.frame_type != number || prefix.flags != 0 {
        let found = frame_name(prefix.frame_type);
        return Err(wrong(format!(
            "the peer sent a {found} frame with flags {} instead",
            prefix.flags
        )));
    }
    prefix.check(body)?;
    Ok(Reader::new(body, name))
}

/// Returns the maximum length in bytes of a block head under `limits`.
#[must_use]
pub const fn head_bytes_max(limits: &Limits) -> u32 {
    HEAD_BYTES_FIXED.saturating_add(limits.segments_max.saturating_mul(SEGMENT_BYTES_MAX))
}

/// Appends the frame of a block head to `out`. The caller must then send the payload.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] if the block exceeds the agreed limits. `out` is then unchanged.
pub fn encode_block_head(head: &BlockHead, limits: &Limits, out: &mut Vec<u8>) -> Result<()> {
    let payload = head.payload_bytes();
    if payload.is_none_or(|payload| payload > limits.object_bytes_max) {
        let have = payload.unwrap_or(u64::MAX);
        return Err(unsendable(
            "bytes of a block",
            have,
            limits.object_bytes_max,
        ));
    }
    let count = match u32::try_from(head.segments.len()) {
        Ok(count) if (1..=limits.segments_max).contains(&count) => count,
        _ => {
            let have = head.segments.len() as u64;
            return Err(unsendable(
                "segments of a block",
                have,
                limits.segments_max.into(),
            ));
        }
    };
    let frame = OpenFrame::begin(out, frame_type::BLOCK);
    put_u64(out, head.id.0);
    put_u32(out, head.target.0);
    put_u32(out, count);
    for segment in &head.segments {
        match &segment.kind {
            SegmentKind::Data(sums) => {
                put_u8(out, 1);
                put_u64(out, segment.file.0);
                put_range(out, &segment.range);
                put_sums(out, sums);
            }
            SegmentKind::Hole => {
                put_u8(out, 2);
                put_u64(out, segment.file.0);
                put_range(out, &segment.range);
            }
        }
    }
    frame.seal(out, head_bytes_max(limits))
}

/// Decodes the head of a block. Returns `None` for a frame of an unknown type that may be ignored.
/// A returned head has at least one segment, and its payload has at most `limits.object_bytes_max`
/// bytes.
///
/// # Errors
/// [`ErrorKind::Protocol`] if the checksum or a field is wrong; [`ErrorKind::LimitExceeded`] if the
/// block exceeds the agreed limits. The cause contains the name of the field.
pub fn decode_block_head(
    prefix: &Prefix,
    body: &[u8],
    limits: &Limits,
) -> Result<Option<BlockHead>> {
    prefix.check(body)?;
    if prefix.is_passed_over() {
        return Ok(None);
    }
    let mut reader = Reader::new(body, frame_name(prefix.frame_type));
    if prefix.frame_type != frame_type::BLOCK {
        return Err(reader.wrong(
            "type",
            "this frame is not allowed on a data stream after JOIN",
        ));
    }
    let id = BlockId(reader.u64("id")?);
    let target = TargetId(reader.u32("target")?);
    let segments_max = usize::try_from(limits.segments_max).unwrap_or(usize::MAX);
    let segments = reader.list("segments", segments_max, HOLE_BYTES, read_segment)?;
    if segments.is_empty() {
        return Err(reader.wrong("segments", "none"));
    }
    let head = BlockHead {
        id,
        target,
        segments,
    };
    match head.payload_bytes() {
        None => {
            return Err(reader.wrong(
                "segments",
                "the sum of the segments' lengths does not fit into 64 bits",
            ));
        }
        Some(payload) if payload > limits.object_bytes_max => {
            return Err(reader.over("segments", payload, limits.object_bytes_max));
        }
        Some(_) => {}
    }
    reader.end(prefix.is_extended())?;
    Ok(Some(head))
}

fn read_segment(reader: &mut Reader<'_>) -> Result<Segment> {
    let number = reader.u8("segment.kind")?;
    let file = FileIndex(reader.u64("segment.file")?);
    let range = read_range(reader, "segment.range")?;
    if range.is_empty() {
        return Err(reader.wrong("segment.range", "empty"));
    }
    let kind = match number {
        1 => SegmentKind::Data(read_sums(reader)?),
        2 => SegmentKind::Hole,
        other => {
            return Err(reader.wrong(
                "segment.kind",
                format_args!(
                    "the value {other} is \
            unknown"
                ),
            ));
        }
    };
    Ok(Segment { file, range, kind })
}

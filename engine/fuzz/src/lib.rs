//! Helpers of the fuzz targets. A fuzzer cannot guess a CRC, so the targets write the right CRC
//! into their inputs. The tests of dray-wire cover wrong CRCs.

use dray_wire::codec::PREFIX_BYTES;

/// Writes the right length and CRC into a frame.
pub fn seal(frame: &mut [u8]) {
    let Some(body_bytes) = frame.len().checked_sub(PREFIX_BYTES) else {
        return;
    };
    let Ok(body_bytes) = u32::try_from(body_bytes) else {
        return;
    };
    frame[..4].copy_from_slice(&body_bytes.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..8]), &frame[PREFIX_BYTES..]);
    frame[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Returns `data` as one frame with the right length and CRC. The first bytes are the prefix, and
/// the rest is the body. Returns `None` if `data` is shorter than a prefix.
#[must_use]
pub fn framed(data: &[u8]) -> Option<Vec<u8>> {
    if data.len() < PREFIX_BYTES {
        return None;
    }
    let mut frame = data.to_vec();
    // Clear all flags except the one that decoders read, and clear the reserved bytes. Decoders
    // would only refuse other values.
    frame[5] &= 1;
    frame[6..8].fill(0);
    seal(&mut frame);
    Some(frame)
}

/// Writes the right CRC into every complete frame of a stream.
pub fn seal_stream(stream: &mut [u8]) {
    let mut rest = stream;
    while rest.len() >= PREFIX_BYTES {
        let body_bytes = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let Some(frame_bytes) = body_bytes.checked_add(PREFIX_BYTES) else {
            return;
        };
        let Some((frame, after)) = rest.split_at_mut_checked(frame_bytes) else {
            return;
        };
        seal(frame);
        rest = after;
    }
}

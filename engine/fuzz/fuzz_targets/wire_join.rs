//! Parses arbitrary bytes as the messages that open a connection: preamble, challenge and join.
//! Tests challenge and join with the CRC of the input and with the right CRC. If a message is
//! accepted, encoding it gives the same bytes.
#![no_main]

use dray_wire::codec::{
    CHALLENGE_FRAME_BYTES, JOIN_FRAME_BYTES, PREAMBLE_BYTES, Preamble, decode_challenge,
    decode_join, encode_challenge, encode_join,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<PREAMBLE_BYTES>()
        && let Ok(preamble) = Preamble::parse(bytes)
    {
        assert_eq!(preamble.to_bytes(), *bytes);
    }
    for is_sealed in [false, true] {
        if let Some(mut frame) = data.first_chunk::<CHALLENGE_FRAME_BYTES>().copied() {
            if is_sealed {
                dray_fuzz::seal(&mut frame);
            }
            if let Ok(challenge) = decode_challenge(&frame) {
                assert_eq!(encode_challenge(&challenge), frame);
            }
        }
        if let Some(mut frame) = data.first_chunk::<JOIN_FRAME_BYTES>().copied() {
            if is_sealed {
                dray_fuzz::seal(&mut frame);
            }
            if let Ok(join) = decode_join(&frame) {
                assert_eq!(encode_join(&join), frame);
            }
        }
    }
});

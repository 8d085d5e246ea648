//! Parses arbitrary bytes as one control frame. No input may cause a panic. An accepted frame
//! decodes to the same message after it is encoded again.
#![no_main]

use dray_wire::codec::{PREFIX_BYTES, Prefix, decode, encode};
use dray_wire::message::{Limits, Message};
use libfuzzer_sys::fuzz_target;

fn decoded(frame: &[u8], limits: &Limits) -> Option<Message> {
    let (prefix, body) = frame.split_first_chunk::<PREFIX_BYTES>()?;
    let prefix = Prefix::parse(prefix, limits.control_bytes_max).ok()?;
    decode(&prefix, body, limits).ok()?
}

fuzz_target!(|data: &[u8]| {
    let limits = Limits::default();
    let Some(frame) = dray_fuzz::framed(data) else {
        return;
    };
    if let Some(message) = decoded(&frame, &limits) {
        let mut again = Vec::new();
        let frames = encode(&message, &limits, &mut again).expect("what was taken can be sent");
        assert_eq!(frames, 1);
        assert_eq!(decoded(&again, &limits), Some(message));
    }
});

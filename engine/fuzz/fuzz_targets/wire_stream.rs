//! Decodes a control connection in pieces. The decoded messages and the result at the end must be
//! the same as for a stream that is decoded in one piece. The decoder must hold no more bytes than
//! its limit.
#![no_main]

use dray_wire::codec::{Decoder, PREFIX_BYTES};
use dray_wire::message::{Limits, Message};
use libfuzzer_sys::fuzz_target;

/// Limit of a control frame in bytes. The limit is low, so that some frames exceed it.
const CONTROL_BYTES_MAX: u32 = 1000;

fn messages(stream: &[u8], piece_bytes: usize) -> (Vec<Message>, bool, bool) {
    let mut decoder = Decoder::new(Limits {
        control_bytes_max: CONTROL_BYTES_MAX,
        ..Limits::default()
    });
    let mut found = Vec::new();
    for mut piece in stream.chunks(piece_bytes) {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => return (found, false, true),
            }
            assert!(decoder.bytes_held() <= CONTROL_BYTES_MAX as usize + PREFIX_BYTES);
        }
        assert!(decoder.bytes_held() <= CONTROL_BYTES_MAX as usize + PREFIX_BYTES);
    }
    (found, decoder.is_between_frames(), false)
}

fuzz_target!(|data: &[u8]| {
    // The last byte chooses the size of the pieces. The other bytes of a golden file stay in place.
    let Some((&choice, stream)) = data.split_last() else {
        return;
    };
    let mut stream = stream.to_vec();
    // If the choice is a multiple of 8, the stream keeps its CRCs.
    if !choice.is_multiple_of(8) {
        dray_fuzz::seal_stream(&mut stream);
    }
    let pieces = messages(&stream, usize::from(choice) + 1);
    assert_eq!(pieces, messages(&stream, stream.len().max(1)));
});

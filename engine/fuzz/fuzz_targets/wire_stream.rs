//! A control connection in pieces: the same messages, and the same end, as in one piece; memory
//! within the limit.
#![no_main]

use dray_wire::codec::{Decoder, PREFIX_BYTES};
use dray_wire::message::{Limits, Message};
use libfuzzer_sys::fuzz_target;

/// Low, so that frames over the limit occur as well.
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
    // The last byte, so that a golden file is a valid stream.
    let Some((&choice, stream)) = data.split_last() else {
        return;
    };
    let mut stream = stream.to_vec();
    // Every eighth stream keeps its CRCs.
    if !choice.is_multiple_of(8) {
        dray_fuzz::seal_stream(&mut stream);
    }
    let pieces = messages(&stream, usize::from(choice) + 1);
    assert_eq!(pieces, messages(&stream, stream.len().max(1)));
});

//! Parses the head of a block from arbitrary bytes. No input may cause a panic. An accepted head is
//! within the limits. A head without extensions has the same bytes when it is encoded again.
#![no_main]

use dray_wire::codec::{
    FLAG_EXTENDED, PREFIX_BYTES, Prefix, decode_block_head, encode_block_head, frame_type,
    head_bytes_max,
};
use dray_wire::message::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let limits = Limits {
        segments_max: 40,
        ..Limits::default()
    };
    // Drop the payload, which follows the head in a golden block.
    let announced = data
        .first_chunk()
        .map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let length = data.len().min(announced.saturating_add(PREFIX_BYTES));
    let mut data = data[..length].to_vec();
    // Make most inputs blocks. A type number of 0xf0 or more is kept.
    if let Some(number) = data.get_mut(4)
        && *number < 0xf0
    {
        *number = frame_type::BLOCK;
    }
    let Some(frame) = dray_fuzz::framed(&data) else {
        return;
    };
    let Some((bytes, body)) = frame.split_first_chunk::<PREFIX_BYTES>() else {
        return;
    };
    let Ok(prefix) = Prefix::parse(bytes, head_bytes_max(&limits)) else {
        return;
    };
    if let Ok(Some(head)) = decode_block_head(&prefix, body, &limits) {
        let payload = head.payload_bytes().expect("its length is known");
        assert!(payload <= limits.object_bytes_max);
        assert!((1..=40).contains(&head.segments.len()));
        let mut again = Vec::new();
        encode_block_head(&head, &limits, &mut again).expect("what was taken can be sent");
        if prefix.flags & FLAG_EXTENDED == 0 {
            assert_eq!(again, frame);
        }
    }
});

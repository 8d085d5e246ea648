//! Every message is unchanged after encoding and decoding. The decoder accepts only the one frame
//! that the encoder makes for a message.

use dray_wire::codec::{
    Decoder, PREFIX_BYTES, Prefix, decode, decode_block_head, decode_join, encode,
    encode_block_head, encode_join, head_bytes_max,
};
use dray_wire::message::{BlockHead, Limits, Message};
use dray_wire::testing;
use proptest::prelude::*;

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &Limits::default(), &mut out).expect("within the limits");
    out
}

/// Decodes one complete frame.
fn decoded(frame: &[u8]) -> dray_core::Result<Option<Message>> {
    let limits = Limits::default();
    let (prefix, body) = frame.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
    decode(
        &Prefix::parse(prefix, limits.control_bytes_max)?,
        body,
        &limits,
    )
}

fn encoded_head(head: &BlockHead) -> Vec<u8> {
    let mut out = Vec::new();
    encode_block_head(head, &Limits::default(), &mut out).expect("within the limits");
    out
}

fn decoded_head(frame: &[u8]) -> dray_core::Result<Option<BlockHead>> {
    let limits = Limits::default();
    let (prefix, body) = frame.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
    decode_block_head(
        &Prefix::parse(prefix, head_bytes_max(&limits))?,
        body,
        &limits,
    )
}

/// Replaces the crc of a frame whose body was changed, so that the decoder checks the fields and
/// does not stop at the crc.
fn reseal(frame: &mut [u8]) {
    let length = u32::try_from(frame.len() - PREFIX_BYTES).expect("short");
    frame[..4].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..8]), &frame[PREFIX_BYTES..]);
    frame[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// For a CONNECT with optional fields at its end: returns the lengths of the frames without the last
/// of these fields, and the messages that these shorter frames contain. `length` is the length of
/// the whole frame.
fn without_extensions(message: &Message, length: usize) -> Vec<(usize, Message)> {
    let Message::Connect(connect) = message else {
        return Vec::new();
    };
    let mut older = connect.clone();
    let mut shorter = Vec::new();
    let mut length = length;
    if let Some(trace) = older.trace.take() {
        length -= 4 + trace.to_string().len();
        shorter.push((length, Message::Connect(older.clone())));
    }
    if connect.trace.is_some() || older.options.stripes.is_some() {
        let stripes = older.options.stripes.take();
        length -= 4 + stripes.map_or(0, |stripes| stripes.to_string().len());
        shorter.push((length, Message::Connect(older)));
    }
    shorter
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn every_message_survives(message in testing::message()) {
        prop_assert_eq!(decoded(&encoded(&message)), Ok(Some(message)));
    }

    #[test]
    fn every_block_head_survives(head in testing::block_head()) {
        prop_assert_eq!(decoded_head(&encoded_head(&head)), Ok(Some(head)));
    }

    #[test]
    fn every_join_survives(join in testing::join()) {
        prop_assert_eq!(decode_join(&encode_join(&join)), Ok(join));
    }

    #[test]
    fn flipped_bit_in_a_frame_is_detected(
        message in testing::message(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut frame = encoded(&message);
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decoded(&frame).is_err(), "bit {}", bit);
    }

    #[test]
    fn flipped_bit_in_a_block_head_is_detected(
        head in testing::block_head(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut frame = encoded_head(&head);
        let bit = bit.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decoded_head(&frame).is_err(), "bit {}", bit);
    }

    #[test]
    fn decoded_messages_do_not_depend_on_chunking(
        messages in prop::collection::vec(testing::message(), 0..6),
        cuts in prop::collection::vec(1..200usize, 1..50),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(encoded).collect();
        let mut decoder = Decoder::new(Limits::default());
        let mut found = Vec::new();
        let mut rest = &stream[..];
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let length = cuts.next().map_or(1, |cut| (*cut).min(rest.len()));
            let (mut piece, after) = rest.split_at(length);
            rest = after;
            while let Some(message) = decoder.next(&mut piece).expect("good bytes") {
                found.push(message);
            }
            prop_assert!(piece.is_empty());
        }
        prop_assert!(decoder.is_between_frames());
        prop_assert_eq!(found, messages);
    }

    #[test]
    fn truncated_frames_are_detected(message in testing::message()) {
        let whole = encoded(&message);
        let older = without_extensions(&message, whole.len());
        for length in 0..whole.len() {
            let mut decoder = Decoder::new(Limits::default());
            let mut piece = &whole[..length];
            prop_assert_eq!(decoder.next(&mut piece), Ok(None), "incomplete at {}", length);
            prop_assert_eq!(decoder.is_between_frames(), length == 0);
            if length >= PREFIX_BYTES {
                // Make a frame whose prefix contains the shorter length of the body.
                let mut frame = whole[..length].to_vec();
                reseal(&mut frame);
                if let Some((_, message)) = older.iter().find(|(at, _)| *at == length) {
                    prop_assert_eq!(decoded(&frame), Ok(Some(message.clone())));
                    continue;
                }
                // A shortened HELLO is also invalid, because a HELLO has no optional fields at its
                // end.
                prop_assert!(decoded(&frame).is_err(), "cut at {}", length);
            }
        }
    }

    #[test]
    fn truncated_block_heads_are_detected(head in testing::block_head()) {
        let whole = encoded_head(&head);
        for length in PREFIX_BYTES..whole.len() {
            let mut frame = whole[..length].to_vec();
            prop_assert!(decoded_head(&frame).is_err());
            reseal(&mut frame);
            prop_assert!(decoded_head(&frame).is_err());
        }
    }

    #[test]
    fn random_bodies_never_panic_and_accepted_bodies_are_canonical(
        number in any::<u8>(),
        body in prop::collection::vec(prop_oneof![Just(0u8), Just(1u8), any::<u8>()], 0..200),
    ) {
        let mut frame = vec![0, 0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&body);
        reseal(&mut frame);
        if let Ok(Some(message)) = decoded(&frame) {
            let again = encoded(&message);
            let is_hello = matches!(message, Message::Hello(_));
            // The decoder converts error kinds of a newer peer to `Other`. All other fields are
            // unchanged.
            if !is_hello && !format!("{message:?}").contains("kind: Other") {
                prop_assert_eq!(again, frame);
            }
        }
    }
}

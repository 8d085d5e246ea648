//! The encoder and the decoder check the limits on a block head independently of each other.

use crate::common::framed;
use dray_core::{BlockId, ByteRange, ErrorKind, FileIndex, Sums, TargetId};
use dray_wire::codec::{
    FLAG_EXTENDED, PREFIX_BYTES, Prefix, decode_block_head, encode_block_head, frame_type,
    head_bytes_max,
};
use dray_wire::message::{BlockHead, Limits, Segment, SegmentKind};

#[test]
fn encoder_and_decoder_enforce_block_bounds() {
    let limits = Limits {
        object_bytes_max: 100,
        segments_max: 2,
        ..Limits::default()
    };
    let data = |length| Segment {
        file: FileIndex(1),
        range: ByteRange { offset: 4, length },
        kind: SegmentKind::Data(Sums::EMPTY),
    };
    let hole = Segment {
        kind: SegmentKind::Hole,
        ..data(u64::MAX - 4)
    };
    let head = |segments| BlockHead {
        id: BlockId(1),
        target: TargetId(2),
        segments,
    };
    let wide = Limits {
        object_bytes_max: u64::MAX,
        segments_max: 9,
        ..Limits::default()
    };
    let check = |segments: Vec<Segment>, is_good: bool, why: &str| {
        let head = head(segments);
        let mut out = Vec::new();
        assert_eq!(
            encode_block_head(&head, &limits, &mut out).is_ok(),
            is_good,
            "{why}"
        );
        assert_eq!(out.is_empty(), !is_good);
        // Encode with limits that permit everything, so that the decoder's own check is tested.
        out.clear();
        encode_block_head(&head, &wide, &mut out).expect("within wide limits");
        let (prefix, body) = out.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
        let found = Prefix::parse(prefix, head_bytes_max(&limits))
            .and_then(|prefix| decode_block_head(&prefix, body, &limits));
        match found {
            Ok(found) => assert!(is_good && found == Some(head), "{why}"),
            Err(error) => {
                assert!(!is_good, "{why}: {error}");
                assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
            }
        }
    };
    check(vec![data(50), data(50)], true, "exactly the payload");
    check(vec![data(50), data(51)], false, "a byte more");
    check(vec![data(100), hole], true, "a hole has no payload");
    check(vec![hole; 3], false, "three segments");
    check(vec![data(1); 3], false, "three longer segments");

    let mut out = Vec::new();
    assert!(
        encode_block_head(&head(Vec::new()), &limits, &mut out).is_err(),
        "no segment"
    );
    let empty = framed(frame_type::BLOCK, 0, &[0; 16]);
    let (prefix, body) = empty.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
    let prefix = Prefix::parse(prefix, 16).expect("a good prefix");
    assert!(
        decode_block_head(&prefix, body, &limits).is_err(),
        "no segment"
    );

    // Body: segment count 1, kind 1, file, offset, length 0, checksums.
    let nothing = framed(
        frame_type::BLOCK,
        0,
        &[&[0; 12][..], &[1, 0, 0, 0, 1], &[0; 32]].concat(),
    );
    let (prefix, body) = nothing
        .split_first_chunk::<PREFIX_BYTES>()
        .expect("a prefix");
    let prefix = Prefix::parse(prefix, 100).expect("a good prefix");
    let error = decode_block_head(&prefix, body, &limits).expect_err("an empty segment");
    assert!(error.cause.contains("segment.range: empty"), "{error}");

    let overflow = vec![data(u64::MAX - 4), data(u64::MAX - 4)];
    assert!(
        encode_block_head(&head(overflow), &wide, &mut out).is_err(),
        "does not fit into 64 bits"
    );
}

#[test]
fn bytes_after_the_last_segment_need_the_extended_flag() {
    let limits = Limits::default();
    // Body: segment count 1, kind 2, file, offset 0, length 1.
    let body = [
        &[0; 12][..],
        &[1, 0, 0, 0, 2],
        &[0; 16],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[9],
    ]
    .concat();
    for (flags, is_good) in [(0, false), (FLAG_EXTENDED, true)] {
        let frame = framed(frame_type::BLOCK, flags, &body);
        let (prefix, body) = frame.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
        let prefix = Prefix::parse(prefix, head_bytes_max(&limits)).expect("a good prefix");
        let found = decode_block_head(&prefix, body, &limits);
        assert_eq!(found.is_ok(), is_good, "{found:?}");
    }
}

//! Layouts in the formats of `lustre_user.h`. Each record is built field by field; the comments
//! name the fields and their offsets.

use super::*;
use proptest::prelude::*;

/// `lov_user_ost_data_v1`, 24 bytes.
fn object(index: u32) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0x0000_0001_0003_0000_u64.to_le_bytes()); // 0: l_ost_oi, sequence
    out.extend(0x0000_0000_0000_2a07_u64.to_le_bytes()); // 8: l_ost_oi, object
    out.extend(0_u32.to_le_bytes()); // 16: l_ost_gen
    out.extend(index.to_le_bytes()); // 20: l_ost_idx
    out
}

/// The fields that `lov_user_md_v1` and `lov_user_md_v3` have in common, 32 bytes.
fn head(magic: u32, pattern: u32, stripe_bytes: u32, count: u16) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(magic.to_le_bytes()); // 0: lmm_magic
    out.extend(pattern.to_le_bytes()); // 4: lmm_pattern
    out.extend([0xAB; 16]); // 8: lmm_oi
    out.extend(stripe_bytes.to_le_bytes()); // 24: lmm_stripe_size
    out.extend(count.to_le_bytes()); // 28: lmm_stripe_count
    out.extend(2_u16.to_le_bytes()); // 30: lmm_layout_gen
    out
}

fn v1(stripe_bytes: u32, osts: &[u32]) -> Vec<u8> {
    let mut out = head(0x0BD1_0BD0, 1, stripe_bytes, osts.len() as u16);
    osts.iter().for_each(|index| out.extend(object(*index)));
    out
}

fn v3(stripe_bytes: u32, pool: &[u8], osts: &[u32]) -> Vec<u8> {
    let mut out = head(0x0BD3_0BD0, 1, stripe_bytes, osts.len() as u16);
    let mut name = [0; 16];
    name[..pool.len()].copy_from_slice(pool);
    out.extend(name); // 32: lmm_pool_name
    osts.iter().for_each(|index| out.extend(object(*index)));
    out
}

/// An entry of [`composite`]: id, flags, range and layout.
type Part = (u32, u32, std::ops::Range<u64>, Vec<u8>);

fn composite_bytes(mirrors: u16, parts: &[Part]) -> Vec<u8> {
    let blobs_at = 32 + 48 * parts.len();
    let size = blobs_at + parts.iter().map(|part| part.3.len()).sum::<usize>();
    let mut out = Vec::new();
    out.extend(0x0BD6_0BD0_u32.to_le_bytes()); // 0: lcm_magic
    out.extend((size as u32).to_le_bytes()); // 4: lcm_size
    out.extend(7_u32.to_le_bytes()); // 8: lcm_layout_gen
    out.extend(0_u16.to_le_bytes()); // 12: lcm_flags
    out.extend((parts.len() as u16).to_le_bytes()); // 14: lcm_entry_count
    out.extend((mirrors - 1).to_le_bytes()); // 16: lcm_mirror_count
    out.extend([0; 14]); // 18: lcm_ec_count, padding
    let mut at = blobs_at;
    for (id, flags, range, blob) in parts {
        out.extend(id.to_le_bytes()); // 0: lcme_id
        out.extend(flags.to_le_bytes()); // 4: lcme_flags
        out.extend(range.start.to_le_bytes()); // 8: lcme_extent.e_start
        out.extend(range.end.to_le_bytes()); // 16: lcme_extent.e_end
        out.extend((at as u32).to_le_bytes()); // 24: lcme_offset
        out.extend((blob.len() as u32).to_le_bytes()); // 28: lcme_size
        out.extend(7_u32.to_le_bytes()); // 32: lcme_layout_gen
        out.extend(0_u64.to_le_bytes()); // 36: lcme_timestamp
        out.extend([0; 4]); // 44: padding
        at += blob.len();
    }
    parts.iter().for_each(|part| out.extend(&part.3));
    out
}

fn places(bytes: &[u8]) -> Vec<(u64, u64, Place)> {
    let layout = LustreLayout::decode(bytes).expect("decoded");
    let place = |part: Component| (part.start, part.end, part.place);
    layout.components.into_iter().map(place).collect()
}

const INIT: u32 = 0x10;
const MIB: u64 = 1 << 20;

/// `lfs setstripe -c 2 -S 4M`, in the bytes of the attribute.
const RECORDED_V1: &str = "d00bd10b 01000000 0304000000000000 0100000000000000 00004000 0200 0000 \
    4200000000000000 0000000000000000 00000000 03000000 \
    5100000000000000 0000000000000000 00000000 0b000000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hexadecimal");
        u8::from_str_radix(pair, 16).expect("hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

#[test]
fn plain_layouts_name_their_targets() {
    let whole = |osts: &[u32]| vec![(0, u64::MAX, Place::Osts(osts.to_vec()))];
    assert_eq!(places(&hex(RECORDED_V1)), whole(&[3, 11]));
    let found = LustreLayout::decode(&v1(1 << 20, &[7])).expect("decoded");
    assert_eq!(found.components[0].stripe_bytes, MIB);
    assert_eq!(places(&v1(1 << 20, &[7, 0, 65535])), whole(&[7, 0, 65535]));
    let pooled = LustreLayout::decode(&v3(1 << 22, b"flash", &[1, 2])).expect("decoded");
    assert_eq!(pooled.components[0].pool.as_deref(), Some(&b"flash"[..]));
    assert_eq!(pooled.components[0].place, Place::Osts(vec![1, 2]));
    // If a pool name fills its field, no zero byte follows the name.
    let full = LustreLayout::decode(&v3(1 << 22, b"sixteen_letters_", &[1])).expect("decoded");
    assert_eq!(
        full.components[0].pool.as_deref(),
        Some(&b"sixteen_letters_"[..])
    );
}

#[test]
fn composite_layouts_have_the_ranges_of_their_components() {
    let bytes = composite_bytes(
        1,
        &[
            (1, INIT, 0..4 * MIB, v1(1 << 20, &[5])),
            (
                2,
                INIT,
                4 * MIB..64 * MIB,
                v3(1 << 20, b"disk", &[6, 7, 8, 9]),
            ),
            (3, 0, 64 * MIB..u64::MAX, head(0x0BD1_0BD0, 1, 1 << 22, 16)),
        ],
    );
    let expected = vec![
        (0, 4 * MIB, Place::Osts(vec![5])),
        (4 * MIB, 64 * MIB, Place::Osts(vec![6, 7, 8, 9])),
        (64 * MIB, u64::MAX, Place::Unwritten),
    ];
    assert_eq!(places(&bytes), expected);
    let mut padded = bytes;
    padded.extend([0; 100]);
    assert_eq!(places(&padded), expected);
}

#[test]
fn a_current_mirror_is_chosen_and_a_preferred_one_first() {
    let (stale, preferred, offline) = (1, 2, 8);
    let chosen = |flags: [u32; 3]| {
        let mirror = |at: usize| {
            let id = (at as u32 + 1) << 16 | 1;
            (id, INIT | flags[at], 0..u64::MAX, v1(1 << 20, &[at as u32]))
        };
        match places(&composite_bytes(3, &[mirror(0), mirror(1), mirror(2)])).as_slice() {
            [(0, u64::MAX, Place::Osts(osts))] => osts[0],
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(chosen([0, 0, 0]), 0);
    assert_eq!(chosen([stale, 0, 0]), 1);
    assert_eq!(chosen([0, 0, preferred]), 2);
    assert_eq!(chosen([0, stale | preferred, 0]), 0);
    assert_eq!(chosen([stale, offline, 0]), 2);
    assert_eq!(chosen([stale, stale, stale]), 0);
}

#[test]
fn other_places_are_recognised() {
    let dom = composite_bytes(
        1,
        &[
            (1, INIT, 0..MIB, head(0x0BD1_0BD0, 0x100, 1 << 20, 0)),
            (2, INIT, MIB..u64::MAX, v1(1 << 20, &[4])),
        ],
    );
    let expected = [
        (0, MIB, Place::Metadata),
        (MIB, u64::MAX, Place::Osts(vec![4])),
    ];
    assert_eq!(places(&dom), expected);
    let whole = |place| vec![(0, u64::MAX, place)];
    // The default layout of a folder has no objects; `lmm_layout_gen` is `lmm_stripe_offset` there.
    let folder = head(0x0BD1_0BD0, 1, 1 << 22, 8);
    assert_eq!(places(&folder), whole(Place::Unwritten));
    let mut folder = head(0x0BD3_0BD0, 0, 0, 0);
    folder.extend([0; 16]);
    assert_eq!(places(&folder), whole(Place::Unwritten));
    // A file whose bytes are in the archive keeps its records (`LOV_PATTERN_F_RELEASED`).
    let mut released = v1(1 << 20, &[1]);
    released[7] = 0x80;
    assert_eq!(places(&released), whole(Place::Elsewhere));
    // `lov_foreign_md`: magic, length, type, flags, value.
    let foreign = hex("d00bd70b 04000000 00000000 00000000 64617461");
    assert_eq!(places(&foreign), whole(Place::Elsewhere));
    // An extension component has a layout, but no bytes (`LCME_FL_EXTENSION`).
    let extended = composite_bytes(
        1,
        &[
            (1, INIT, 0..MIB, v1(1 << 20, &[4])),
            (2, 0x40, MIB..u64::MAX, head(0x0BD1_0BD0, 1, 1 << 20, 1)),
        ],
    );
    assert_eq!(places(&extended)[1].2, Place::Unwritten);
}

#[test]
fn damaged_layouts_are_refused() {
    let error = |bytes: &[u8]| LustreLayout::decode(bytes).expect_err("refused");
    assert_eq!(error(b""), LayoutError::TooShort);
    assert_eq!(error(&[0; 64]), LayoutError::Magic(0));
    assert_eq!(error(&vec![0; LAYOUT_BYTES_MAX + 1]), LayoutError::TooLong);
    // The stripe count exceeds the records.
    let mut short = v1(1 << 20, &[1, 2]);
    short.truncate(short.len() - 1);
    assert_eq!(error(&short), LayoutError::TooShort);
    assert_eq!(error(&v1(0, &[1])), LayoutError::Field("lmm_stripe_size"));
    assert_eq!(
        error(&v1(1 << 20, &[65536])),
        LayoutError::Field("l_ost_idx")
    );
    let overlapping = composite_bytes(
        1,
        &[
            (1, INIT, 0..8 * MIB, v1(1 << 20, &[1])),
            (2, INIT, 4 * MIB..u64::MAX, v1(1 << 20, &[2])),
        ],
    );
    assert_eq!(error(&overlapping), LayoutError::Field("lcme_extent"));
    let mut far = composite_bytes(1, &[(1, INIT, 0..MIB, v1(1 << 20, &[1]))]);
    far[32 + 24..32 + 28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(error(&far), LayoutError::TooShort);
    assert_eq!(
        error(&composite_bytes(1, &[])),
        LayoutError::Field("lcm_entry_count")
    );
    // A component that is itself composite would permit recursion.
    let inner = composite_bytes(1, &[(1, INIT, 0..MIB, v1(1 << 20, &[1]))]);
    let nested = composite_bytes(1, &[(1, INIT, 0..MIB, inner)]);
    assert_eq!(error(&nested), LayoutError::Magic(0x0BD6_0BD0));
}

#[test]
fn requested_stripes_are_encoded_as_lustre_reads_them() {
    let four = Stripes::whole(4, 4 * MIB).expect("good").encode();
    let expected = "d00bd10b 01000000 0000000000000000 0000000000000000 00004000 0400 ffff";
    assert_eq!(four, hex(expected));
    let found = LustreLayout::decode(&four).expect("decoded");
    assert_eq!(found.components[0].stripe_count, 4);
    assert_eq!(found.components[0].place, Place::Unwritten);
    assert!(Stripes::whole(1, 65_537).is_err());
    assert!(Stripes::whole(1, 1 << 32).is_err());
}

#[test]
fn stripes_of_a_file_can_be_requested_for_its_copy() {
    let of = |bytes: &[u8]| {
        let layout = LustreLayout::decode(bytes).expect("decoded");
        Stripes::of_layout(&layout)
    };
    let progressive = composite_bytes(
        1,
        &[
            (1, INIT, 0..MIB, head(0x0BD1_0BD0, 0x100, 1 << 20, 0)),
            (2, INIT, MIB..64 * MIB, v3(1 << 20, b"disk", &[6, 7])),
            (3, 0, 64 * MIB..u64::MAX, head(0x0BD1_0BD0, 1, 1 << 22, 16)),
        ],
    );
    let stripes = of(&progressive).expect("striped");
    let text = "1048576:mdt:1048576,67108864:2:1048576,18446744073709551615:16:4194304";
    assert_eq!(stripes.to_string(), text);
    assert_eq!(text.parse(), Ok(stripes.clone()));
    let again = of(&stripes.encode()).expect("striped");
    assert_eq!(again, stripes);
    assert_eq!(
        of(&hex("d00bd70b 04000000 00000000 00000000 64617461")),
        None
    );
    for wrong in [
        "",
        "1",
        "0:8:0",
        "5:1:65536:7",
        "5:1:7",
        "9:1:65536,9:1:65536",
        "1:70000:65536",
    ] {
        assert!(wrong.parse::<Stripes>().is_err(), "{wrong}");
    }
    assert!("9:mdt:65536,99:mdt:65536".parse::<Stripes>().is_err());
    assert!("1:1:65536,".repeat(100).parse::<Stripes>().is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = LustreLayout::decode(&bytes);
    }

    #[test]
    fn changed_layouts_are_decoded_or_refused(
        at in 0..400_usize, byte in any::<u8>(), cut in 0..500_usize,
    ) {
        let mut bytes = composite_bytes(
            2,
            &[
                (0x1_0001, INIT, 0..MIB, v1(1 << 20, &[5])),
                (0x1_0002, INIT, MIB..u64::MAX, v3(1 << 20, b"disk", &[6, 7])),
                (0x2_0001, INIT | 1, 0..u64::MAX, v1(1 << 20, &[8])),
            ],
        );
        if let Some(found) = bytes.get_mut(at) {
            *found = byte;
        }
        bytes.truncate(cut);
        if let Ok(layout) = LustreLayout::decode(&bytes) {
            let mut before = 0;
            for component in &layout.components {
                prop_assert!(before <= component.start && component.start < component.end);
                before = component.end;
                if let Place::Osts(osts) = &component.place {
                    prop_assert!(!osts.is_empty() && osts.len() <= bytes.len() / OBJECT_BYTES);
                }
            }
            if let Some(stripes) = Stripes::of_layout(&layout) {
                prop_assert_eq!(stripes.to_string().parse(), Ok(stripes));
            }
        }
    }
}

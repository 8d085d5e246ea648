//! Tests of the negotiation. Both ends compute the same parameters, or both report the reason why
//! they cannot agree.

use dray_core::{ErrorKind, StreamId, plan};
use dray_wire::bounds::CONTROL_BYTES_MIN;
use dray_wire::codec::{
    Challenge, Connection, Preamble, Security, decode_challenge, decode_join, encode_challenge,
};
use dray_wire::message::{Hello, Limits, mandatory, optional};
use dray_wire::negotiate::{negotiate, proof_input};
use dray_wire::testing;
use proptest::prelude::*;

fn hello() -> Hello {
    Hello {
        versions: (1, 1),
        mandatory: mandatory::PACKS,
        optional: optional::HOLES | optional::XATTRS,
        limits: Limits::default(),
        checksums: vec![1],
        software: "dray 1".into(),
        token: Vec::new(),
    }
}

proptest! {
    #[test]
    fn both_ends_negotiate_the_same_parameters(
        mut ours in testing::hello(),
        mut theirs in testing::hello(),
        versions in any::<[(u16, u16); 2]>(),
        is_known in any::<bool>(),
    ) {
        ours.versions = (versions[0].0 % 4, 4 + versions[0].1 % 4);
        theirs.versions = (versions[1].0 % 8, 8 + versions[1].1 % 4);
        if is_known {
            ours.mandatory &= mandatory::PACKS;
            theirs.mandatory &= mandatory::PACKS;
            ours.checksums.insert(0, 1);
            theirs.checksums.push(1);
        }
        match (negotiate(&ours, &theirs), negotiate(&theirs, &ours)) {
            (Ok(here), Ok(there)) => {
                prop_assert_eq!(here, there);
                prop_assert!(here.version <= 7 && here.version >= theirs.versions.0);
                prop_assert_eq!(here.optional & !(ours.optional & theirs.optional), 0);
                prop_assert!(ours.checksums.contains(&here.checksum));
                prop_assert!(theirs.checksums.contains(&here.checksum));
                prop_assert!(here.limits.segments_max <= ours.limits.segments_max);
                prop_assert!(here.limits.segments_max <= theirs.limits.segments_max);
            }
            (Err(here), Err(there)) => {
                prop_assert_eq!(here.kind, ErrorKind::IncompatiblePeer);
                prop_assert_eq!(here.kind, there.kind);
                prop_assert!(!here.cause.is_empty() && !here.remedy.is_empty());
            }
            (here, there) => prop_assert!(false, "{here:?} but {there:?}"),
        }
    }
}

#[test]
fn newest_common_version_is_chosen_and_a_gap_names_both_ranges() {
    let wide = Hello {
        versions: (1, 5),
        ..hello()
    };
    let narrow = Hello {
        versions: (3, 4),
        ..hello()
    };
    assert_eq!(
        negotiate(&wide, &narrow).map(|agreed| agreed.version),
        Ok(4)
    );
    let old = Hello {
        versions: (1, 2),
        ..hello()
    };
    let error = negotiate(&old, &narrow).expect_err("no common version");
    assert_eq!(error.kind, ErrorKind::IncompatiblePeer);
    assert!(
        error.cause.contains("1 to 2") && error.cause.contains("3 to 4"),
        "{error}"
    );
    assert!(error.remedy.contains("this end"), "{error}");
    let error = negotiate(&narrow, &old).expect_err("no common version");
    assert!(error.remedy.contains("the peer"), "{error}");
}

#[test]
fn unknown_mandatory_bits_are_refused_and_unknown_optional_bits_ignored() {
    let newer = Hello {
        mandatory: mandatory::PACKS | 1 << 9 | 1 << 40,
        ..hello()
    };
    let error = negotiate(&hello(), &newer).expect_err("unknown bits");
    assert_eq!(error.kind, ErrorKind::IncompatiblePeer);
    assert!(error.cause.contains("9, 40"), "{error}");

    let playful = Hello {
        optional: u64::MAX,
        ..hello()
    };
    let agreed = negotiate(&playful, &playful).expect("good");
    assert!(agreed.has(optional::CLEAR_DATA) && !agreed.has(1 << 60));
    let agreed = negotiate(&hello(), &playful).expect("good");
    assert!(agreed.has(optional::HOLES) && !agreed.has(optional::CLEAR_DATA));
    let plain = Hello {
        mandatory: 0,
        ..hello()
    };
    let agreed = negotiate(&plain, &hello()).expect("good");
    assert_eq!(
        agreed.mandatory,
        mandatory::PACKS,
        "one end's use is enough"
    );
}

#[test]
fn lower_limits_apply_and_too_low_limits_are_refused() {
    let limits = Limits::default();
    let small = Limits {
        segments_max: 3,
        control_bytes_max: CONTROL_BYTES_MIN,
        ..limits
    };
    let agreed = negotiate(
        &hello(),
        &Hello {
            limits: small,
            ..hello()
        },
    )
    .expect("good");
    assert_eq!(agreed.limits, small);
    for (name, limits) in [
        (
            "control_bytes_max",
            Limits {
                control_bytes_max: CONTROL_BYTES_MIN - 1,
                ..limits
            },
        ),
        (
            "object_bytes_max",
            Limits {
                object_bytes_max: plan::OBJECT_BYTES_MIN - 1,
                ..limits
            },
        ),
        (
            "segments_max",
            Limits {
                segments_max: 0,
                ..limits
            },
        ),
        (
            "live_entries_max",
            Limits {
                live_entries_max: 0,
                ..limits
            },
        ),
    ] {
        let error = negotiate(&hello(), &Hello { limits, ..hello() }).expect_err(name);
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        assert!(error.cause.contains(name), "{error}");
    }
}

#[test]
fn missing_common_checksum_is_refused() {
    let other = Hello {
        checksums: vec![9, 8],
        ..hello()
    };
    let error = negotiate(&hello(), &other).expect_err("none in common");
    assert!(
        error.cause.contains("[9, 8]") && error.cause.contains("[1]"),
        "{error}"
    );
    let both = Hello {
        checksums: vec![9, 1],
        ..hello()
    };
    assert_eq!(
        negotiate(&both, &other).map(|agreed| agreed.checksum),
        Ok(9)
    );
}

#[test]
fn proof_input_contains_ticket_stream_and_challenge() {
    let input = proof_input(&[1; 16], StreamId(0x0403_0201), &[2; 32]);
    assert_eq!(&input[..16], b"dray join v1\0\0\0\0");
    assert_eq!(input[16..32], [1; 16]);
    assert_eq!(input[32..36], [1, 2, 3, 4]);
    assert_eq!(input[36..], [2; 32]);
}

#[test]
fn preambles_round_trip_and_other_bytes_are_refused() {
    for connection in [Connection::Control, Connection::Data] {
        for security in [Security::Tls, Security::Clear] {
            let preamble = Preamble {
                connection,
                security,
            };
            assert_eq!(Preamble::parse(&preamble.to_bytes()), Ok(preamble));
        }
    }
    for garbage in [
        b"GET / HT",
        b"DRAY\0\0\0\0",
        b"DRAY\x03\0\0\0",
        b"DRAY\x01\x02\0\0",
        b"DRAY\x01\0\x01\0",
        b"dray\x01\0\0\0",
        b"\x16\x03\x01\x02\0\x01\0\x01",
    ] {
        let error = Preamble::parse(garbage).expect_err("garbage");
        assert_eq!(error.kind, ErrorKind::Protocol);
    }
}

#[test]
fn join_and_challenge_are_not_confused() {
    let challenge = Challenge([7; 32]);
    let frame = encode_challenge(&challenge);
    assert_eq!(decode_challenge(&frame), Ok(challenge));
    let mut longer = [0; 64];
    longer[..44].copy_from_slice(&frame);
    assert!(decode_join(&longer).is_err());
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_challenge(&flipped).is_err(), "bit {bit}");
    }
}

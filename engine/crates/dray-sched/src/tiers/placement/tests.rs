use super::{Admission, Candidate, Claim, Need, admit, choose, deletions};
use crate::tiers::victims::{self, Order, Version, VersionState};
use proptest::prelude::*;

const fn device(is_reachable: bool, available: u64, load: u64) -> Candidate {
    Candidate {
        is_reachable,
        available,
        load,
    }
}

const fn claim(device: usize, bytes: u64) -> Claim {
    Claim { device, bytes }
}

#[test]
fn data_goes_to_a_reachable_device_with_space() {
    let full = device(true, 10, 0);
    let loaded = device(true, 100, 50);
    let gone = device(false, 500, 0);
    assert_eq!(choose(&[], 1), None);
    assert_eq!(choose(&[full, loaded, gone], 20), Some(1));
    assert_eq!(choose(&[full, loaded, gone], 10), Some(0), "lower load");
    assert_eq!(choose(&[full, gone], 400), Some(0), "nothing fits");
    assert_eq!(choose(&[gone], 1), Some(0), "no other device");
}

#[test]
fn a_full_device_delays_only_its_own_claims() {
    let claims = [claim(0, 40), claim(1, 30), claim(0, 5), claim(1, 20)];
    let found = admit(100, &claims, &[10, 60]);
    assert_eq!(found.admitted, [false, true, false, true]);
    assert_eq!(found.missing.devices, [30, 0]);
    assert_eq!(found.missing.total, 0);
    // The bytes of the oldest claim stay reserved: 60 of 90 bytes are left for the others.
    let found = admit(90, &claims, &[10, 60]);
    assert_eq!(found.admitted, [false, true, false, false]);
    assert_eq!(found.missing.total, 5);
}

#[test]
fn a_claim_above_the_free_capacity_delays_all_younger_claims() {
    let found = admit(30, &[claim(0, 40), claim(1, 1)], &[100, 100]);
    assert_eq!(found.admitted, [false, false]);
    assert_eq!((found.missing.total, found.missing.most()), (10, 10));
    assert_eq!(found.missing.devices, [0, 0]);
    let none = Admission::default();
    assert_eq!(admit(0, &[], &[]), none);
}

#[test]
fn copies_are_deleted_on_the_device_that_needs_space() {
    let clean = |application: &str, mtbf: f64| Version {
        application: application.to_owned(),
        number: 1,
        bytes: 80,
        written_at: 0.0,
        used_at: 0.0,
        demoted_at: None,
        mtbf,
        state: VersionState::Demoted,
        is_pinned: false,
        is_replicated: false,
        deadline: None,
    };
    // By the order alone, the version "rare" would be deleted first, but it is on the device with
    // enough space.
    let versions = [clean("rare", 900.0), clean("b", 60.0), clean("c", 50.0)];
    let need = |total, first, second| Need {
        total,
        devices: vec![first, second],
    };
    let found = deletions(&versions, &[0, 1, 1], &need(0, 0, 10), Order::Bbos);
    assert_eq!((found.indices, found.freed), (vec![1], 80));
    let found = deletions(&versions, &[0, 1, 1], &need(81, 0, 10), Order::Bbos);
    assert_eq!(found.indices, [1, 0]);
    let found = deletions(&versions, &[0, 1, 1], &need(10, 0, 0), Order::Bbos);
    assert_eq!(found.indices, [0]);
}

fn any_claims() -> impl Strategy<Value = Vec<Claim>> {
    let one = (0_usize..3, 1_u64..60).prop_map(|(device, bytes)| claim(device, bytes));
    prop::collection::vec(one, 0..12)
}

fn any_version() -> impl Strategy<Value = (Version, usize)> {
    let state = prop_oneof![
        Just(VersionState::OnFast),
        Just(VersionState::Demoting),
        Just(VersionState::Demoted),
        Just(VersionState::SlowOnly),
    ];
    (
        0_u64..9,
        1_u64..90,
        1_u32..99,
        state,
        any::<bool>(),
        0_usize..3,
    )
        .prop_map(|(number, bytes, mtbf, state, is_pinned, home)| {
            let version = Version {
                application: (number % 3).to_string(),
                number,
                bytes,
                written_at: number as f64,
                used_at: number as f64,
                demoted_at: None,
                mtbf: mtbf.into(),
                state,
                is_pinned,
                is_replicated: false,
                deadline: None,
            };
            (version, home)
        })
}

proptest! {
    #[test]
    fn no_claim_exceeds_its_device_or_the_capacity_or_overtakes(
        claims in any_claims(),
        free in 0_u64..200,
        devices in prop::collection::vec(0_u64..100, 3),
    ) {
        let found = admit(free, &claims, &devices);
        let admitted = || claims.iter().zip(&found.admitted).filter(|(_, is)| **is);
        let sum: u64 = admitted().map(|(one, _)| one.bytes).sum();
        prop_assert!(sum <= free);
        for (index, space) in devices.iter().enumerate() {
            let own = admitted().filter(|(one, _)| one.device == index);
            prop_assert!(own.map(|(one, _)| one.bytes).sum::<u64>() <= *space);
            let own = claims.iter().zip(&found.admitted).filter(|(one, _)| one.device == index);
            let flags: Vec<bool> = own.map(|(_, is)| *is).collect();
            prop_assert!(flags.windows(2).all(|pair| pair[0] || !pair[1]), "{flags:?}");
        }
        // Younger claims do not change the admission of older claims.
        for count in 0..claims.len() {
            let fewer = admit(free, &claims[..count], &devices);
            prop_assert_eq!(&fewer.admitted[..], &found.admitted[..count]);
        }
        // A claim that waits has a reason: something is missing.
        let waits = found.admitted.iter().any(|is| !is);
        prop_assert_eq!(waits, found.missing.is_any());
    }

    #[test]
    fn the_oldest_claim_is_admitted_once_its_missing_bytes_are_free(
        oldest in (0_usize..3, 1_u64..60),
        free in 0_u64..80,
        mut devices in prop::collection::vec(0_u64..80, 3),
    ) {
        let claims = [claim(oldest.0, oldest.1)];
        let missing = admit(free, &claims, &devices).missing;
        for (space, more) in devices.iter_mut().zip(&missing.devices) {
            *space += more;
        }
        prop_assert_eq!(admit(free + missing.total, &claims, &devices).admitted, [true]);
    }

    #[test]
    fn deletions_free_what_each_device_needs_and_nothing_unsafe(
        tier in prop::collection::vec(any_version(), 0..14),
        total in 0_u64..400,
        devices in prop::collection::vec(0_u64..150, 3),
    ) {
        let (versions, homes): (Vec<_>, Vec<_>) = tier.into_iter().unzip();
        let need = Need { total, devices };
        let found = deletions(&versions, &homes, &need, Order::Bbos);
        let is_clean = |index: &usize| {
            versions[*index].state == VersionState::Demoted && !versions[*index].is_pinned
        };
        prop_assert!(found.indices.iter().all(is_clean));
        let sum = |keep: &dyn Fn(usize) -> bool, of: &[usize]| -> u64 {
            let kept = of.iter().filter(|index| keep(**index));
            kept.map(|index| versions[*index].bytes).sum()
        };
        let clean: Vec<usize> = (0..versions.len()).filter(|index| is_clean(index)).collect();
        prop_assert!(found.freed >= total.min(sum(&|_| true, &clean)));
        for (device, bytes) in need.devices.iter().enumerate() {
            let here = |index: usize| homes[index] == device;
            prop_assert!(sum(&here, &found.indices) >= *bytes.min(&sum(&here, &clean)));
        }
        // If no single device needs bytes, the choice is that of `victims::deletions`.
        let plain = Need { total, devices: vec![0; 3] };
        let one = victims::deletions(&versions, total, Order::Bbos);
        prop_assert_eq!(deletions(&versions, &homes, &plain, Order::Bbos), one);
    }
}

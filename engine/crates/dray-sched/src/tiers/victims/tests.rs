use super::VersionState::{Demoted, Demoting, Incomplete, OnFast, SlowOnly};
use super::{
    Demotion, Order, Reason, Version, VersionState, deletions, kept_because, newest_complete,
    next_demotion, next_replication,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Returns a version of 80 bytes. It was written and used at the time `number`.
fn version(application: &str, number: u64, mtbf: f64, state: VersionState) -> Version {
    Version {
        application: application.to_owned(),
        number,
        bytes: 80,
        written_at: number as f64,
        used_at: number as f64,
        demoted_at: None,
        mtbf,
        state,
        is_pinned: false,
        is_replicated: false,
        deadline: None,
    }
}

const fn demote(index: usize, delete_after: bool) -> Option<Demotion> {
    Some(Demotion {
        index,
        delete_after,
    })
}

#[test]
fn older_versions_come_before_the_highest_mtbf() {
    // E-order (versions older than the newest) before V-order (newest versions, by MTBF): "the old
    // version checkpoint files do not need to be in the BB, and thus they have the highest priority
    // to be cold files" (BBOS, section 5.1.2).
    let versions = [
        version("rare", 1, 6_000.0, OnFast),
        version("often", 2, 60.0, OnFast),
        version("often", 3, 60.0, OnFast),
        version("often", 4, 60.0, OnFast),
    ];
    assert_eq!(next_demotion(&versions, Order::Bbos), demote(1, true));
    assert_eq!(next_demotion(&versions[2..], Order::Bbos), demote(0, true));
    let newest = [versions[0].clone(), versions[3].clone()];
    assert_eq!(next_demotion(&newest, Order::Bbos), demote(0, false));
    assert_eq!(next_demotion(&[], Order::Bbos), None);
}

#[test]
fn other_orders_ignore_newer_versions() {
    let mut versions = [
        version("rare", 3, 6_000.0, OnFast),
        version("often", 1, 60.0, OnFast),
        version("often", 2, 60.0, OnFast),
    ];
    versions[1].used_at = 9.0;
    assert_eq!(next_demotion(&versions, Order::MtbfOnly), demote(0, false));
    assert_eq!(next_demotion(&versions, Order::Fifo), demote(1, false));
    assert_eq!(next_demotion(&versions, Order::Lru), demote(2, false));
}

#[test]
fn a_version_is_old_only_after_a_newer_one_is_complete() {
    let versions = [
        version("a", 1, 60.0, OnFast),
        version("a", 2, 60.0, Incomplete),
    ];
    assert_eq!(next_demotion(&versions, Order::Bbos), demote(0, false));
    // A checkpoint that bypassed the fast tier also makes older ones useless.
    for state in [OnFast, Demoting, Demoted, SlowOnly] {
        let versions = [version("a", 1, 60.0, OnFast), version("a", 2, 60.0, state)];
        assert_eq!(next_demotion(&versions, Order::Bbos), demote(0, true));
    }
}

#[test]
fn a_pinned_version_is_demoted_but_its_fast_copy_stays() {
    let mut versions = [
        version("a", 1, 60.0, OnFast),
        version("a", 2, 60.0, Demoted),
    ];
    versions[0].is_pinned = true;
    assert_eq!(next_demotion(&versions, Order::Bbos), demote(0, false));
    versions[0].state = Demoted;
    assert_eq!(kept_because(&versions[0]), Some(Reason::Pinned));
}

#[test]
fn a_deadline_decides_among_equals_only() {
    let mut versions = [
        version("a", 5, 60.0, OnFast),
        version("b", 5, 60.0, OnFast),
        version("c", 5, 60.0, OnFast),
        version("d", 5, 61.0, OnFast),
    ];
    versions[1].deadline = Some(200.0);
    versions[2].deadline = Some(100.0);
    assert_eq!(next_demotion(&versions, Order::Bbos), demote(3, false));
    assert_eq!(next_demotion(&versions[..3], Order::Bbos), demote(2, false));
    assert_eq!(next_demotion(&versions[..2], Order::Bbos), demote(1, false));
}

#[test]
fn space_is_freed_from_older_versions_then_from_the_highest_mtbf() {
    let mut versions = vec![
        version("often", 1, 60.0, Demoted),
        version("often", 2, 60.0, Demoted),
        version("some", 3, 600.0, Demoted),
        version("rare", 4, 6_000.0, Demoted),
    ];
    let freed = |needed| deletions(&versions, needed, Order::Bbos).indices;
    assert_eq!(freed(1), [0]);
    assert_eq!(freed(81), [0, 3]);
    assert_eq!(freed(240), [0, 3, 2]);
    assert!(freed(0).is_empty());
    let by_mtbf = deletions(&versions, 80, Order::MtbfOnly);
    assert_eq!((by_mtbf.indices, by_mtbf.freed), (vec![3], 80));
    versions[0].used_at = 9.0;
    assert_eq!(deletions(&versions, 80, Order::Lru).indices, [1]);
    assert_eq!(deletions(&versions, 80, Order::Fifo).indices, [0]);
}

#[test]
fn every_kept_copy_has_its_reason() {
    let mut versions = [
        version("a", 1, 60.0, Incomplete),
        version("b", 1, 60.0, OnFast),
        version("c", 1, 60.0, Demoting),
        version("d", 1, 60.0, Demoted),
        version("e", 1, 60.0, Demoted),
        version("f", 1, 60.0, SlowOnly),
        version("g", 1, 50.0, Demoted),
    ];
    versions[3].is_pinned = true;
    let found = deletions(&versions, 80, Order::Bbos);
    assert_eq!((&found.indices[..], found.freed), (&[4][..], 80));
    let reasons = [
        (0, Reason::Incomplete),
        (1, Reason::NotDemoted),
        (2, Reason::Demoting),
        (3, Reason::Pinned),
        (6, Reason::EnoughFreed),
    ];
    assert_eq!(found.kept, reasons);
    assert_eq!(Reason::Pinned.text(), "pinned");
}

#[test]
fn replication_follows_demotion_oldest_first() {
    let mut versions = [
        version("a", 1, 60.0, OnFast),
        version("b", 1, 60.0, Demoted),
        version("c", 1, 60.0, SlowOnly),
        version("d", 1, 60.0, Demoting),
    ];
    versions[1].demoted_at = Some(20.0);
    versions[2].demoted_at = Some(10.0);
    assert_eq!(next_replication(&versions), Some(2));
    versions[2].is_replicated = true;
    assert_eq!(next_replication(&versions), Some(1));
    versions[1].is_replicated = true;
    assert_eq!(next_replication(&versions), None);
}

#[test]
fn restart_uses_the_newest_complete_version_from_the_fastest_tier() {
    let versions = [
        version("a", 1, 60.0, Demoted),
        version("a", 3, 60.0, Incomplete),
        version("a", 2, 60.0, SlowOnly),
        version("b", 9, 60.0, OnFast),
    ];
    assert_eq!(newest_complete(&versions, "a"), Some(2));
    assert_eq!(newest_complete(&versions, "c"), None);
    assert_eq!(newest_complete(&versions[1..2], "a"), None);
    let twice = [
        version("a", 2, 60.0, Demoted),
        version("a", 2, 60.0, SlowOnly),
    ];
    assert_eq!(newest_complete(&twice, "a"), Some(0));
}

fn any_version() -> impl Strategy<Value = Version> {
    let state = prop_oneof![
        Just(Incomplete),
        Just(OnFast),
        Just(Demoting),
        Just(Demoted),
        Just(SlowOnly)
    ];
    let of = (0u8..5, 0u64..5, 1u64..100, state);
    let rest = (0u8..4, any::<[bool; 2]>(), proptest::option::of(0u8..4));
    (of, rest, 0u8..9, 0u8..9).prop_map(|(of, rest, written, later)| {
        let (application, number, bytes, state) = of;
        let (mtbf, [is_pinned, is_replicated], deadline) = rest;
        let mut one = version(&application.to_string(), number, f64::from(mtbf), state);
        one.bytes = bytes;
        one.written_at = f64::from(written);
        one.used_at = one.written_at + f64::from(later);
        one.is_pinned = is_pinned;
        one.is_replicated = is_replicated;
        one.demoted_at = state.is_durable_on_slow().then_some(one.used_at);
        one.deadline = deadline.map(f64::from);
        one
    })
}

/// Returns versions whose application and number are unique.
fn any_tier() -> impl Strategy<Value = Vec<Version>> {
    proptest::collection::vec(any_version(), 0..24).prop_map(|all| {
        let unique: BTreeMap<(String, u64), Version> = all
            .into_iter()
            .map(|each| ((each.application.clone(), each.number), each))
            .collect();
        let mut all: Vec<Version> = unique.into_values().collect();
        // Not in the order of applications: the choice must not depend on the order of the slice.
        all.sort_by_key(|each| (each.bytes, each.number));
        all
    })
}

fn any_order() -> impl Strategy<Value = Order> {
    proptest::sample::select(Order::ALL.to_vec())
}

fn newest_numbers(versions: &[Version]) -> Vec<Option<u64>> {
    (0u8..5)
        .map(|application| {
            newest_complete(versions, &application.to_string()).map(|at| versions[at].number)
        })
        .collect()
}

proptest! {
    #[test]
    fn deletions_are_durable_and_unpinned_and_free_enough_or_all(
        versions in any_tier(),
        order in any_order(),
        needed in 0u64..1_500,
    ) {
        let found = deletions(&versions, needed, order);
        for index in &found.indices {
            prop_assert!(versions[*index].state == Demoted && !versions[*index].is_pinned);
        }
        let freeable: u64 = versions
            .iter()
            .filter(|each| each.state == Demoted && !each.is_pinned)
            .map(|each| each.bytes)
            .sum();
        let freed: u64 = found.indices.iter().map(|at| versions[*at].bytes).sum();
        prop_assert_eq!(found.freed, freed);
        if freeable >= needed {
            prop_assert!(freed >= needed);
            // The last deletion was necessary.
            let last = found.indices.last().map_or(0, |at| versions[*at].bytes);
            prop_assert!(found.indices.is_empty() || freed - last < needed);
        } else {
            prop_assert_eq!(freed, freeable);
        }
        // Each fast copy is deleted or has a reason, not both.
        let mut named: Vec<usize> = found.kept.iter().map(|(at, _)| *at).collect();
        named.extend(&found.indices);
        named.sort_unstable();
        let on_fast: Vec<usize> =
            (0..versions.len()).filter(|at| versions[*at].state.is_on_fast()).collect();
        prop_assert_eq!(named, on_fast);
    }

    #[test]
    fn newest_complete_version_survives_deletions(
        mut versions in any_tier(),
        order in any_order(),
        needed in 0u64..1_500,
    ) {
        let before = newest_numbers(&versions);
        for index in deletions(&versions, needed, order).indices {
            prop_assert!(versions[index].state.is_durable_on_slow());
            versions[index].state = SlowOnly;
        }
        prop_assert_eq!(newest_numbers(&versions), before);
    }

    #[test]
    fn older_versions_are_demoted_and_deleted_before_newest(
        versions in any_tier(),
        needed in 0u64..1_500,
    ) {
        let newest = newest_numbers(&versions);
        let is_outdated = |version: &Version| {
            let application: usize = version.application.parse().expect("a digit");
            newest[application].is_some_and(|number| version.number < number)
        };
        if let Some(chosen) = next_demotion(&versions, Order::Bbos) {
            let version = &versions[chosen.index];
            let waits = |each: &&Version| each.state == OnFast;
            if is_outdated(version) {
                prop_assert_eq!(chosen.delete_after, !version.is_pinned);
            } else {
                prop_assert!(!chosen.delete_after);
                prop_assert!(!versions.iter().filter(waits).any(is_outdated));
                // V-order: no other version has a higher MTBF.
                prop_assert!(versions.iter().filter(waits).all(|each| each.mtbf <= version.mtbf));
            }
        }
        let found = deletions(&versions, needed, Order::Bbos).indices;
        let old: Vec<bool> = found.iter().map(|at| is_outdated(&versions[*at])).collect();
        prop_assert!(old.windows(2).all(|pair| pair[0] >= pair[1]), "{:?}", old);
    }

    #[test]
    fn every_complete_version_is_demoted_and_replicated_once(
        mut versions in any_tier(),
        order in any_order(),
    ) {
        let waiting = versions.iter().filter(|each| each.state == OnFast).count();
        for step in 0..waiting {
            let chosen = next_demotion(&versions, order).expect("one waits");
            prop_assert_eq!(versions[chosen.index].state, OnFast);
            let version = &mut versions[chosen.index];
            version.state = if chosen.delete_after { SlowOnly } else { Demoted };
            version.demoted_at = Some(100.0 + step as f64);
        }
        prop_assert_eq!(next_demotion(&versions, order), None);
        let unreplicated =
            versions.iter().filter(|each| each.state.is_durable_on_slow() && !each.is_replicated);
        let mut last = f64::NEG_INFINITY;
        for _ in 0..unreplicated.count() {
            let index = next_replication(&versions).expect("one waits");
            let demoted_at = versions[index].demoted_at.expect("it is durable");
            prop_assert!(demoted_at >= last);
            last = demoted_at;
            versions[index].is_replicated = true;
        }
        prop_assert_eq!(next_replication(&versions), None);
    }

    #[test]
    fn choices_do_not_depend_on_the_order_of_the_slice(
        versions in any_tier(),
        order in any_order(),
        needed in 0u64..1_500,
    ) {
        let reversed: Vec<Version> = versions.iter().rev().cloned().collect();
        let turned = |index: usize| versions.len() - 1 - index;
        prop_assert_eq!(
            next_demotion(&versions, order),
            next_demotion(&reversed, order)
                .map(|found| Demotion { index: turned(found.index), ..found })
        );
        let found = deletions(&reversed, needed, order).indices;
        let found: Vec<usize> = found.into_iter().map(turned).collect();
        prop_assert_eq!(deletions(&versions, needed, order).indices, found);
        prop_assert_eq!(next_replication(&versions), next_replication(&reversed).map(turned));
    }
}

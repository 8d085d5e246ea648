use super::{Bounds, Lack, Live, Moving, Way, share};
use dray_api::RateWish;
use dray_core::{ErrorKind, TransferId};

fn moving(owner: &str) -> Moving {
    let transfer = TransferId::new("t").expect("an id");
    Moving::new(
        transfer,
        owner.to_owned(),
        String::new(),
        Way::In,
        RateWish::default(),
    )
}

fn bounds(memory: u64, sessions: u32, per_owner: u32) -> Bounds {
    Bounds {
        memory,
        sessions,
        own: sessions,
        per_owner,
        own_of_owner: per_owner,
    }
}

#[test]
fn entries_of_all_sessions_have_one_bound() {
    for (memory, active) in [
        (128 << 20, 4),
        (128 << 20, 8),
        (1 << 30, 50),
        (64 << 20, 1000),
    ] {
        let bounds = Bounds::for_active(memory, active, active);
        let mut used = 0;
        for count in 0..bounds.sessions {
            let got = bounds.live_entries(count, used);
            assert!(got >= 1 && got <= bounds.live_entries_max());
            used += got;
        }
        assert!(
            used <= bounds.live_entries_all(),
            "{memory} {active} {used}"
        );
    }
    let usual = Bounds::for_active(1 << 30, 50, 25);
    assert_eq!(usual.live_entries_max(), 8 << 10);
}

#[test]
fn objects_fit_every_session_and_are_whole_blocks() {
    let usual = Bounds::for_active(1 << 30, 50, 25);
    assert_eq!(usual.object_bytes_max(), 1 << 20);
    for active in [1, 3, 4, 50, 100, 1000] {
        let bounds = Bounds::for_active(1 << 30, active, active);
        let bytes = bounds.object_bytes_max();
        assert!(
            bytes.is_power_of_two() && bytes <= bounds.least() / 8,
            "{bytes}"
        );
        assert!(
            bytes * 2 > bounds.least() / 8 || bytes == 64 << 20,
            "{bytes}"
        );
    }
    assert_eq!(Bounds::for_active(0, 1, 1).object_bytes_max(), 0);
}

fn own(owner: &str) -> Moving {
    let mut moving = moving(owner);
    moving.is_own = true;
    moving
}

#[test]
fn sessions_driven_here_leave_slots_for_passive_sessions() {
    for active in [1, 2, 3, 4, 50, 10_000] {
        let bounds = Bounds::for_active(1 << 40, active, active);
        assert!(bounds.own > active, "a promise begins beside all others");
        assert!(bounds.own < bounds.sessions && bounds.own_of_owner < bounds.per_owner);
        assert!(bounds.sessions >= 2 * active);
    }
    // The limits are two sessions of one owner and four sessions in total. For promised transfers,
    // each limit is one higher.
    let live = Live::new(Bounds::for_active(1 << 30, 4, 2));
    let mut slots: Vec<_> = (0..3)
        .map(|_| live.enter(own("a")).expect("room"))
        .collect();
    assert_eq!(live.lack("a"), Some(Lack::OfOwner));
    assert!(live.enter(own("a")).is_err());
    // A session of the same owner gets a slot if another end drives it.
    slots.push(live.enter(moving("a")).expect("room"));
    assert!(live.enter(moving("a")).is_err(), "four of an owner in all");
    assert_eq!(live.lack("b"), None);
    slots.extend((0..2).map(|_| live.enter(own("b")).expect("room")));
    assert_eq!(live.lack("c"), Some(Lack::InAll));
    assert!(live.enter(own("c")).is_err());
    slots.extend((0..2).map(|_| live.enter(moving("c")).expect("room")));
    assert!(live.enter(moving("d")).is_err(), "all eight are taken");
    slots.truncate(1);
    assert_eq!(live.lack("a"), None);
}

#[test]
fn memory_is_enough_for_every_slot_and_never_exceeds_the_limit() {
    for sessions in [1, 2, 7, 100, 1000] {
        let bounds = bounds(1 << 30, sessions, u32::MAX);
        let mut used = 0;
        for count in 0..sessions {
            let memory = share(&bounds, count, used);
            assert!(memory >= bounds.least());
            used += memory;
            assert!(used <= bounds.memory, "{sessions} {count} {used}");
        }
    }
}

#[test]
fn slots_are_limited_in_total_and_for_each_owner_and_are_freed() {
    let live = Live::new(bounds(1 << 20, 3, 2));
    let first = live.enter(moving("a")).expect("room");
    let second = live.enter(moving("a")).expect("room");
    let error = live
        .enter(moving("a"))
        .err()
        .expect("too many of one owner");
    assert_eq!(error.kind, ErrorKind::NoPlace);
    assert_eq!(live.lack("a"), Some(Lack::OfOwner));
    let third = live.enter(moving("b")).expect("room");
    assert!(live.enter(moving("c")).is_err(), "full");
    assert_eq!(live.lack("c"), Some(Lack::InAll));
    drop((first, second));
    assert!(live.enter(moving("a")).is_ok());
    drop(third);
    assert_eq!((live.all().len(), live.memory()), (0, 0));
}

#[test]
fn the_number_of_a_session_is_never_reused() {
    let live = Live::new(bounds(1 << 20, 3, 3));
    let stays = live.enter(moving("a")).expect("room");
    let mut seen = std::collections::BTreeSet::from([0, stays.moving.number()]);
    for _ in 0..100 {
        let slot = live.enter(moving("a")).expect("room");
        assert!(seen.insert(slot.moving.number()), "{seen:?}");
    }
}

#[test]
fn a_held_session_has_no_share_and_resumes_with_its_former_rate() {
    let live = Live::new(bounds(1 << 20, 3, 3));
    let slot = live.enter(moving("a")).expect("room");
    let other = live.enter(moving("b")).expect("room");
    slot.moving.grant(Some(7));
    assert_eq!(slot.moving.handle.rate(), Some(Some(7)));
    slot.moving.hold(true);
    assert_eq!(slot.moving.handle.rate(), Some(Some(0)));
    let numbers = |all: Vec<std::sync::Arc<Moving>>| -> Vec<u64> {
        all.iter().map(|moving| moving.number()).collect()
    };
    assert_eq!(numbers(live.flowing()), [other.moving.number()]);
    assert_eq!(live.all().len(), 2, "it keeps its place");
    // A session that the other end holds does not use its share either.
    let mut progress = dray_session::Progress {
        is_held_there: true,
        ..dray_session::Progress::default()
    };
    other.moving.note(&progress);
    assert_eq!(numbers(live.flowing()), [0; 0]);
    progress.is_held_there = false;
    other.moving.note(&progress);
    assert_eq!(numbers(live.flowing()), [other.moving.number()]);
    // A grant during the hold takes effect when the session resumes.
    slot.moving.grant(None);
    assert_eq!(slot.moving.handle.rate(), Some(Some(0)));
    slot.moving.grant(Some(9));
    slot.moving.hold(false);
    assert_eq!(slot.moving.handle.rate(), Some(Some(9)));
    assert_eq!(live.flowing().len(), 2);
}

use super::{MEGA, SECOND, at, background, drawn, foretold, is_accepted, loaded, rate};
use crate::broker::need::Padding;
use crate::broker::{Answer, Broker, Outlook, Rates, ResourceId, TransferKey, Wish, plan};
use crate::rng::Rng;
use dray_core::Time;
use dray_core::rate::Class;
use std::time::Duration;

const NOW: Time = Time::ZERO;

/// Checks that no resource exceeds its capacity, and that no transfer could get more.
fn check_rates(broker: &Broker, rates: &Rates, now: Time) {
    let mut used = vec![0u128; broker.resources.len()];
    for rate in &rates.rates {
        let wish = &broker.transfers[&rate.key].wish;
        let given = rate.given.expect("all resources are known").0;
        for resource in broker.indices(wish) {
            used[resource] += u128::from(given);
        }
    }
    let capacities: Vec<u128> = (broker.resources.values())
        .map(|capacity| u128::from(capacity.present().expect("known")))
        .collect();
    for (used, capacity) in used.iter().zip(&capacities) {
        assert!(used <= capacity, "overdrawn: {used} of {capacity}");
    }
    for rate in &rates.rates {
        let taken = &broker.transfers[&rate.key];
        let given = rate.given.expect("known").0;
        let ceiling = taken.wish.ceiling.map_or(u64::MAX, |ceiling| ceiling.0);
        assert!(given <= ceiling);
        let is_open = taken.wish.start(now) <= now && taken.wish.bytes != Some(0);
        if !is_open {
            assert_eq!(given, 0);
            continue;
        }
        let is_full = |resource: &usize| used[*resource] == capacities[*resource];
        assert!(
            given == ceiling || broker.indices(&taken.wish).iter().any(is_full),
            "{:?} could have more",
            rate
        );
    }
}

#[test]
fn usable_capacity_is_never_idle_and_never_exceeded() {
    for seed in 0..1_000 {
        let mut draw = Rng::new(seed);
        let (mut broker, _) = loaded(&mut draw, 12);
        if seed % 2 == 0 {
            // Half of the cases have less capacity than was promised.
            broker.set_resource(ResourceId(0), Some(rate(1 + draw.below(60))));
        }
        let rates = broker.rates(NOW);
        check_rates(&broker, &rates, NOW);
        for rate in &rates.rates {
            // Planned rates are rounded up, so tolerate a few bytes per second.
            let has_planned = rate.planned.0 <= rate.given.expect("known").0 + 12;
            assert!(has_planned || seed % 2 == 0, "seed {seed}: {rate:?}");
        }
    }
}

#[test]
fn admitted_transfers_have_a_plan() {
    for seed in 0..1_000 {
        let mut draw = Rng::new(20_000 + seed);
        let (broker, _) = loaded(&mut draw, 15);
        let mut need = broker.need_at(Outlook::Mean, NOW);
        for (wish, resources) in broker.promises(NOW) {
            assert!(need.add(wish, &resources, Padding::With));
        }
        let kept = broker.kept(NOW);
        assert_eq!(kept.lost, [], "seed {seed}");
        let planned: usize = kept.parts.iter().map(|(part, _)| part.demands.len()).sum();
        assert_eq!(planned, need.demands.len());
        for (part, plan) in &kept.parts {
            assert_eq!(plan::check(part, plan), Ok(()), "seed {seed}");
        }
    }
}

#[test]
fn an_offered_promise_is_admitted() {
    let mut offers = 0;
    for seed in 0..1_500 {
        let mut draw = Rng::new(40_000 + seed);
        let (mut broker, resources) = loaded(&mut draw, 14);
        let count = 1 + draw.below(2) * draw.below(3);
        let wishes: Vec<Wish> = (0..count)
            .map(|n| drawn(&mut draw, 100 + n, 0, resources))
            .collect();
        let Answer::Refused(refusal) = broker.admit(&wishes, NOW) else {
            continue;
        };
        let Some(offer) = refusal.offer else { continue };
        offers += 1;
        let mut later = wishes.clone();
        for wish in &mut later {
            let of_wish = offer.iter().find(|(key, _)| *key == wish.key);
            wish.deadline = of_wish.map(|(_, deadline)| *deadline);
        }
        assert!(
            later
                .iter()
                .zip(&wishes)
                .all(|(late, wish)| late.deadline >= wish.deadline),
            "seed {seed}"
        );
        assert!(is_accepted(&broker.would(&later, NOW)), "seed {seed}");
        // The offer is still valid five seconds later, if every transfer has run at its rate.
        let soon = NOW + Duration::from_secs(5);
        run(&mut broker, NOW, soon);
        assert!(is_accepted(&broker.admit(&later, soon)), "seed {seed}");
    }
    assert!(offers > 300, "{offers}");
}

#[test]
fn an_easier_request_than_an_admitted_one_is_admitted() {
    let mut accepted = 0;
    for seed in 0..1_500 {
        let mut draw = Rng::new(60_000 + seed);
        let (broker, resources) = loaded(&mut draw, 12);
        let wish = drawn(&mut draw, 100, 0, resources);
        if !is_accepted(&broker.would(std::slice::from_ref(&wish), NOW)) {
            continue;
        }
        accepted += 1;
        for _ in 0..4 {
            let mut easier = wish.clone();
            let mut other = broker.clone();
            match draw.below(4) {
                0 => {
                    let later = Duration::from_millis(draw.below(100_000));
                    easier.deadline = easier.deadline.map(|deadline| deadline + later);
                }
                1 => easier.bytes = easier.bytes.map(|bytes| bytes - draw.below(bytes)),
                2 => easier.ceiling = None,
                _ => {
                    let id = ResourceId(draw.next_u32() % resources);
                    let more =
                        broker.resources[&id].present().expect("known") + draw.below(90 * MEGA);
                    other.set_resource(id, Some(dray_core::rate::BytesPerSecond(more)));
                }
            }
            let answer = other.would(std::slice::from_ref(&easier), NOW);
            assert!(
                is_accepted(&answer),
                "seed {seed}: {wish:?}\n{easier:?}\n{answer:?}"
            );
        }
    }
    assert!(accepted > 300, "{accepted}");
}

/// Moves all transfers at their rates from `from` to `until`, in whole bytes, rounded down. Returns
/// the transfers that finished, with their finish times.
fn run(broker: &mut Broker, from: Time, until: Time) -> Vec<(Wish, Time)> {
    let mut now = from;
    let mut done = Vec::new();
    while now < until && !broker.transfers.is_empty() {
        let rates = broker.rates(now);
        check_rates(broker, &rates, now);
        let mut next = rates.wake_at.unwrap_or(until).min(until);
        for rate in &rates.rates {
            let left = broker.transfers[&rate.key].wish.bytes;
            let given = rate.given.expect("known");
            if let Some(lasts) = left.and_then(|left| given.time_for(left)) {
                next = next.min(now + lasts.max(Duration::from_millis(1)));
            }
        }
        for rate in &rates.rates {
            let given = rate.given.expect("known").0;
            let wish = broker.transfers[&rate.key].wish.clone();
            let nanos = u64::try_from((next - now).as_nanos()).expect("short");
            let moved = u128::from(given) * u128::from(nanos) / u128::from(SECOND);
            let Some(left) = wish.bytes else { continue };
            let left = left.saturating_sub(u64::try_from(moved).expect("small"));
            broker.progress(rate.key, left);
            // A remainder of one byte comes from rounding.
            if left <= 1 {
                broker.end(rate.key);
                done.push((wish, next));
            }
        }
        now = next;
    }
    done
}

/// Transfers are added, ended and changed. Every promise is kept and every transfer finishes.
#[test]
fn no_reshuffle_loses_a_promise_or_a_transfer() {
    let (mut promised, mut background_done) = (0, 0);
    for seed in 0..150 {
        let mut draw = Rng::new(80_000 + seed);
        let (mut broker, resources) = loaded(&mut draw, 6);
        let mut now = 0;
        let mut all: Vec<(Wish, Time)> = Vec::new();
        for key in 10..25 {
            let next = now + 1 + draw.below(20);
            all.extend(run(&mut broker, at(now), at(next)));
            now = next;
            let mut wish = drawn(&mut draw, key, now, resources);
            if wish.class == Class::Realtime && wish.bytes.is_some() {
                wish.floor = rate(5);
                wish.ceiling = None;
            }
            let _ = broker.take_on(&[wish], at(now));
            if draw.below(4) == 0 {
                let present: Vec<TransferKey> = broker.transfers.keys().copied().collect();
                if let Some(key) = present.get(draw.below(present.len() as u64) as usize) {
                    let mut wish = broker.transfers[key].wish.clone();
                    wish.bytes = wish.bytes.map(|bytes| bytes + 100 * MEGA);
                    let _ = broker.change(&wish, at(now));
                }
            }
            assert_eq!(foretold(&broker, at(now)), [], "seed {seed}");
        }
        all.extend(run(&mut broker, at(now), at(now + 10_000)));
        assert!(
            broker.transfers.is_empty(),
            "seed {seed}: {:?}",
            broker.transfers
        );
        for (wish, end) in all {
            promised += usize::from(wish.deadline.is_some());
            background_done += usize::from(wish.deadline.is_none());
            assert!(
                wish.deadline.is_none_or(|deadline| end <= deadline),
                "seed {seed}: {wish:?} ended at {end:?}"
            );
        }
    }
    assert!(
        promised > 500 && background_done > 200,
        "{promised} {background_done}"
    );
}

#[test]
fn background_is_never_at_zero_while_something_is_spare() {
    for seed in 0..300 {
        let mut draw = Rng::new(90_000 + seed);
        let (mut broker, _) = loaded(&mut draw, 10);
        let key = TransferKey(200);
        let answer = broker.admit(&[background(200, 1_000, &[0])], NOW);
        assert!(is_accepted(&answer));
        let rates = broker.rates(NOW);
        let mut planned = 0;
        let mut realtime = false;
        for rate in &rates.rates {
            let wish = &broker.transfers[&rate.key].wish;
            if wish.resources.contains(&ResourceId(0)) {
                planned += rate.planned.0;
                realtime |= wish.class == Class::Realtime && wish.ceiling != Some(wish.floor);
            }
        }
        let capacity = broker.resources[&ResourceId(0)].present().expect("known");
        if !realtime && planned < capacity {
            let part = (capacity - planned) / 9 / 30;
            assert!(rates.given(key).expect("known").0 >= part, "seed {seed}");
        }
    }
}

#[test]
fn fewer_promises_are_broken_than_if_all_were_late() {
    for seed in 0..200 {
        let mut draw = Rng::new(95_000 + seed);
        let (mut broker, resources) = loaded(&mut draw, 14);
        let promises = broker.promises(NOW).count();
        for id in 0..resources {
            let capacity = broker.resources[&ResourceId(id)].present().expect("known");
            let less = dray_core::rate::BytesPerSecond(capacity * 7 / 10);
            broker.set_resource(ResourceId(id), Some(less));
        }
        let misses = foretold(&broker, NOW);
        assert!(misses.len() <= promises);
        let kept = broker.kept(NOW);
        // Each part with kept promises has a valid plan.
        for (part, plan) in &kept.parts {
            assert_eq!(plan::check(part, plan), Ok(()), "seed {seed}");
        }
        let kept: usize = kept.parts.iter().map(|(part, _)| part.demands.len()).sum();
        let held = broker
            .promises(NOW)
            .filter(|(wish, _)| wish.deadline.is_none())
            .count();
        assert!(kept + held + misses.len() >= promises, "seed {seed}");
    }
}

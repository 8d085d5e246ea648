//! Tests of the broker's promises, with fixed and with random cases.

mod decisions;
mod plans;
mod properties;

use super::{Answer, Broker, Config, Miss, ResourceId, TransferKey, Wish};
use crate::rng::Rng;
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};

const SECOND: u64 = 1_000_000_000;

/// Unit of bytes and rates in these tests. It is so large that rounding to bytes does not matter.
const MEGA: u64 = 1_000_000;

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * SECOND)
}

fn rate(megas: u64) -> BytesPerSecond {
    BytesPerSecond(megas * MEGA)
}

fn uses(resources: &[u32]) -> Vec<ResourceId> {
    resources.iter().copied().map(ResourceId).collect()
}

fn background(key: u64, megas: u64, resources: &[u32]) -> Wish {
    Wish::new(TransferKey(key), megas * MEGA, &uses(resources))
}

fn due(key: u64, megas: u64, deadline: u64, resources: &[u32]) -> Wish {
    background(key, megas, resources).due(at(deadline))
}

/// Returns a broker with resources of these capacities in MB/s.
fn broker(capacities: &[u64]) -> Broker {
    let mut broker = Broker::new(Config::default());
    for (id, megas) in (0..).zip(capacities) {
        broker.set_resource(ResourceId(id), Some(rate(*megas)));
    }
    broker
}

/// Returns a random realistic request. Some requests are background, some are reserved in advance,
/// and some have floors.
fn drawn(draw: &mut Rng, key: u64, now: u64, resources: u32) -> Wish {
    let mut used: Vec<u32> = (0..resources).filter(|_| draw.below(2) == 0).collect();
    if used.is_empty() {
        used.push(draw.next_u32() % resources);
    }
    let mut wish = background(key, 100 + draw.below(4_000), &used);
    wish.owner = format!("o{}", draw.below(3));
    let begin = now + draw.below(60) * draw.below(2);
    if begin > now {
        wish.not_before = Some(at(begin));
    }
    wish.ceiling = (draw.below(4) == 0).then(|| rate(20 + draw.below(80)));
    match draw.below(6) {
        0 => {}
        1 => {
            wish.class = Class::Realtime;
            wish.floor = rate(1 + draw.below(15));
            wish.ceiling = (draw.below(2) == 0).then_some(wish.floor);
        }
        _ => wish = wish.due(at(begin + 10 + draw.below(200))),
    }
    wish
}

/// Returns a broker that has accepted as many of `wishes` random requests as fit, and its number of
/// resources.
fn loaded(draw: &mut Rng, wishes: u64) -> (Broker, u32) {
    let resources = 1 + draw.below(4);
    let capacities: Vec<u64> = (0..resources).map(|_| 60 + draw.below(120)).collect();
    let mut broker = broker(&capacities);
    let resources = u32::try_from(resources).expect("few");
    for key in 0..wishes {
        let wish = drawn(draw, key, 0, resources);
        let _ = broker.take_on(&[wish], Time::ZERO);
    }
    (broker, resources)
}

fn is_accepted(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted(_))
}

/// Returns the promises that the broker reports as missed.
fn foretold(broker: &Broker, now: Time) -> Vec<Miss> {
    broker.misses(&broker.kept(now), now)
}

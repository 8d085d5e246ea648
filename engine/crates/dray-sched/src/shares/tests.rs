use super::{Demand, Grants, NodeId, Share, Tree};
use crate::pace::Pacer;
use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

fn weight(weight: u32) -> Share {
    Share {
        weight,
        ..Share::default()
    }
}

fn floor(rate: u64) -> Share {
    Share {
        floor: BytesPerSecond(rate),
        ..Share::default()
    }
}

fn cap(rate: u64) -> Share {
    Share {
        cap: Some(BytesPerSecond(rate)),
        ..Share::default()
    }
}

fn capacity(rate: u64) -> Tree {
    Tree::new(Some(BytesPerSecond(rate)))
}

fn rate(grants: &Grants, node: NodeId) -> u64 {
    grants.rate(node).map_or(u64::MAX, |rate| rate.0)
}

#[test]
fn weights_divide_the_rate_of_unlimited_leaves() {
    let mut tree = capacity(900);
    let root = tree.root();
    let one = tree.add_leaf(root, weight(100), None);
    let two = tree.add_leaf(root, weight(200), None);
    let grants = tree.allocate();
    assert_eq!((rate(&grants, one), rate(&grants, two)), (300, 600));
    assert!(!grants.is_short());
}

#[test]
fn an_owner_with_many_transfers_gets_no_more_than_one_with_few() {
    let mut tree = capacity(1_000);
    let peer = tree.add(tree.root(), Share::default());
    let (many, few) = (
        tree.add(peer, Share::default()),
        tree.add(peer, Share::default()),
    );
    let of_many: Vec<_> = (0..10)
        .map(|_| tree.add_leaf(many, Share::default(), None))
        .collect();
    let of_few = tree.add_leaf(few, Share::default(), None);
    let grants = tree.allocate();
    assert_eq!(rate(&grants, of_few), 500);
    assert!(of_many.iter().all(|leaf| rate(&grants, *leaf) == 50));
}

#[test]
fn unused_rate_goes_to_siblings_first_and_then_to_other_parents() {
    let mut tree = capacity(1_000);
    let root = tree.root();
    let (left, right) = (tree.add(root, weight(1)), tree.add(root, weight(1)));
    let slow = tree.add_leaf(left, weight(1), Some(BytesPerSecond(10)));
    let capped = tree.add_leaf(left, cap(100), None);
    let fast = tree.add_leaf(right, weight(1), None);
    let grants = tree.allocate();
    assert_eq!(rate(&grants, slow), 10);
    assert_eq!(rate(&grants, capped), 100);
    assert_eq!(rate(&grants, fast), 890);
}

#[test]
fn floors_come_first_and_the_rest_goes_by_weight() {
    let mut tree = capacity(1_000);
    let root = tree.root();
    let owed = tree.add_leaf(root, floor(400), None);
    let other = tree.add_leaf(root, Share::default(), None);
    let grants = tree.allocate();
    assert_eq!((rate(&grants, owed), rate(&grants, other)), (700, 300));
    // A floor below an inner node takes precedence over the weights of higher nodes.
    let mut tree = capacity(1_000);
    let root = tree.root();
    let (left, right) = (tree.add(root, weight(1)), tree.add(root, weight(199)));
    let owed = tree.add_leaf(left, floor(800), None);
    let other = tree.add_leaf(right, Share::default(), None);
    let grants = tree.allocate();
    assert_eq!((rate(&grants, owed), rate(&grants, other)), (801, 199));
    // A floor that its leaf cannot use takes nothing from other nodes.
    let mut tree = capacity(1_000);
    let root = tree.root();
    let idle = Some(BytesPerSecond(5));
    let owed = tree.add_leaf(root, floor(400), idle);
    let other = tree.add_leaf(root, Share::default(), None);
    let grants = tree.allocate();
    assert_eq!((rate(&grants, owed), rate(&grants, other)), (5, 995));
    assert!(!grants.is_short());
}

#[test]
fn floors_that_are_too_much_shrink_in_proportion_and_are_reported() {
    let mut tree = capacity(300);
    let root = tree.root();
    let one = tree.add_leaf(root, floor(200), None);
    let two = tree.add_leaf(root, floor(400), None);
    let none = tree.add_leaf(root, weight(1_000), None);
    let grants = tree.allocate();
    let rates = [one, two, none].map(|leaf| rate(&grants, leaf));
    assert_eq!(rates, [100, 200, 0]);
    assert!(grants.is_short());
    assert_eq!(grants.missing(two), BytesPerSecond(200));
    assert_eq!(grants.missing(none), BytesPerSecond(0));
}

#[test]
fn without_a_capacity_only_caps_and_demands_bind() {
    let mut tree = Tree::new(None);
    let root = tree.root();
    let free = tree.add_leaf(root, Share::default(), None);
    let bound = tree.add_leaf(root, cap(7), None);
    let grants = tree.allocate();
    assert_eq!(grants.rate(free), None);
    assert_eq!(grants.rate(bound), Some(BytesPerSecond(7)));
    // Weights of zero and an empty tree must not cause a division by zero.
    assert_eq!(
        Tree::new(None).allocate().rate(root),
        Some(BytesPerSecond(0))
    );
    let mut tree = capacity(10);
    let leaf = tree.add_leaf(tree.root(), weight(0), None);
    assert_eq!(rate(&tree.allocate(), leaf), 10);
}

#[test]
fn ten_thousand_leaves_are_shared_at_once() {
    let mut tree = capacity(12_500_000_000);
    let mut leaves = Vec::new();
    for peer in 0..10u32 {
        let peer = tree.add(tree.root(), weight(peer + 1));
        for owner in 0..100u32 {
            let owner = tree.add(peer, weight(owner + 1));
            leaves.extend((0..10).map(|n| {
                let demand = (n % 2 == 0).then_some(BytesPerSecond(1_000 * n));
                tree.add_leaf(owner, weight(u32::try_from(n).expect("small")), demand)
            }));
        }
    }
    let grants = tree.allocate();
    let sum: u64 = leaves.iter().map(|leaf| rate(&grants, *leaf)).sum();
    assert_eq!(sum, 12_500_000_000);
}

/// A random leaf: owner, weight, floor, cap and demand.
type Drawn = (usize, u32, u64, Option<u64>, Option<u64>);

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let bound = || prop_oneof![Just(None), (0..2_000u64).prop_map(Some)];
    let floors = prop_oneof![Just(0), 0..400u64];
    prop::collection::vec((0..4usize, 0..5u32, floors, bound(), bound()), 1..12)
}

struct Built {
    tree: Tree,
    owners: Vec<NodeId>,
    leaves: Vec<NodeId>,
}

/// Builds a tree with two peers, two owners for each peer, and these leaves.
fn built(capacity: u64, leaves: &[Drawn], owner_cap: Option<u64>) -> Built {
    let mut tree = self::capacity(capacity);
    let root = tree.root();
    let peers = [tree.add(root, weight(1)), tree.add(root, weight(3))];
    let owners: Vec<_> = (0..4u32)
        .map(|n| {
            let share = Share {
                weight: n + 1,
                cap: owner_cap.filter(|_| n == 0).map(BytesPerSecond),
                ..Share::default()
            };
            tree.add(peers[n as usize / 2], share)
        })
        .collect();
    let leaves = leaves
        .iter()
        .map(|(owner, weight, floor, cap, demand)| {
            let share = Share {
                weight: *weight,
                floor: BytesPerSecond(*floor),
                cap: cap.map(BytesPerSecond),
            };
            tree.add_leaf(owners[*owner], share, demand.map(BytesPerSecond))
        })
        .collect();
    Built {
        tree,
        owners,
        leaves,
    }
}

fn use_max(leaf: &Drawn) -> u64 {
    leaf.3.unwrap_or(u64::MAX).min(leaf.4.unwrap_or(u64::MAX))
}

proptest! {
    #[test]
    fn shares_use_all_capacity_and_never_exceed_it(
        capacity in 0..5_000u64, leaves in drawn(), owner_cap in prop::option::of(0..500u64),
    ) {
        let built = built(capacity, &leaves, owner_cap);
        let grants = built.tree.allocate();
        let rates: Vec<_> = built.leaves.iter().map(|leaf| rate(&grants, *leaf)).collect();
        let sum: u64 = rates.iter().sum();
        prop_assert!(sum <= capacity);
        let mut idle = false;
        for (leaf, rate) in leaves.iter().zip(&rates) {
            prop_assert!(*rate <= use_max(leaf));
            let is_owner_full = leaf.0 == 0
                && owner_cap.is_some_and(|cap| self::rate(&grants, built.owners[0]) == cap);
            idle |= *rate < use_max(leaf) && !is_owner_full;
        }
        // If some leaf could use more, the whole capacity is granted.
        prop_assert!(!idle || sum == capacity);
        let inner: u64 = built.owners.iter().map(|owner| rate(&grants, *owner)).sum();
        prop_assert_eq!(inner, sum);
        prop_assert_eq!(&grants, &built.tree.allocate());
    }

    #[test]
    fn floors_are_held_when_they_can_be(capacity in 0..5_000u64, leaves in drawn()) {
        let built = built(capacity, &leaves, None);
        let grants = built.tree.allocate();
        let owed = |leaf: &Drawn| leaf.2.min(use_max(leaf));
        let all: u64 = leaves.iter().map(owed).sum();
        prop_assert_eq!(grants.is_short(), all > capacity);
        for (leaf, node) in leaves.iter().zip(&built.leaves) {
            let short = owed(leaf).saturating_sub(rate(&grants, *node));
            prop_assert_eq!(grants.missing(*node), BytesPerSecond(short));
        }
    }

    #[test]
    fn siblings_with_unmet_demand_share_by_weight(
        capacity in 0..50_000u64, leaves in drawn(),
    ) {
        let built = built(capacity, &leaves, None);
        let grants = built.tree.allocate();
        if grants.is_short() {
            return Ok(());
        }
        // Returns the rate of a leaf above its floor, and its weight.
        let level = |at: usize| {
            let beyond = rate(&grants, built.leaves[at]) - leaves[at].2.min(use_max(&leaves[at]));
            (beyond, u64::from(leaves[at].1.max(1)))
        };
        for one in 0..leaves.len() {
            for other in 0..leaves.len() {
                let is_hungry = rate(&grants, built.leaves[one]) < use_max(&leaves[one]);
                if leaves[one].0 != leaves[other].0 || !is_hungry {
                    continue;
                }
                // If a leaf could use more, no other leaf gets more rate per unit of weight, apart
                // from rounding.
                let ((own, own_weight), (their, their_weight)) = (level(one), level(other));
                prop_assert!(
                    their.saturating_sub(1) * own_weight <= (own + 1) * their_weight,
                    "{one} has {own}, {other} has {their}"
                );
            }
        }
    }

    #[test]
    fn more_capacity_lowers_no_share(
        capacity in 0..5_000u64, more in 0..1_000u64, leaves in drawn(),
    ) {
        let small = built(capacity, &leaves, None);
        let large = built(capacity + more, &leaves, None);
        let (before, after) = (small.tree.allocate(), large.tree.allocate());
        for leaf in &small.leaves {
            // Tolerate one byte of rounding at each level.
            prop_assert!(rate(&before, *leaf) <= rate(&after, *leaf) + 3);
        }
    }

    #[test]
    fn more_weight_never_gives_less(
        capacity in 0..5_000u64, mut leaves in drawn(), more in 1..5u32,
    ) {
        let before = built(capacity, &leaves, None);
        leaves[0].1 += more;
        let after = built(capacity, &leaves, None);
        let (node, grants) = (before.leaves[0], before.tree.allocate());
        prop_assert!(rate(&grants, node) <= rate(&after.tree.allocate(), node) + 3);
    }

    #[test]
    fn the_largest_rates_do_not_overflow(
        rates in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u64>()), 0..6),
        capacity in any::<u64>(),
    ) {
        let mut tree = self::capacity(capacity);
        let root = tree.root();
        for (floor, weight, demand) in rates {
            let share = Share { weight, floor: BytesPerSecond(floor), cap: None };
            tree.add_leaf(root, share, Some(BytesPerSecond(demand)));
        }
        let _ = tree.allocate();
    }
}

const MIB: u64 = 1024 * 1024;
const OBJECT: u64 = MIB;
const TICK: Duration = Duration::from_millis(200);

/// A simulated transfer: a source of `able` bytes per second behind a pace gate.
struct Worker {
    able: u64,
    gate: Pacer,
    demand: Demand,
    granted: Option<BytesPerSecond>,
    made: u64,
    moved: u64,
    /// Values of `moved`, one for each millisecond. The demand sees them with the delay `delay`.
    news: VecDeque<u64>,
    delay: usize,
}

impl Worker {
    fn new(able: u64) -> Self {
        Self {
            able,
            gate: Pacer::unlimited(),
            demand: Demand::new(OBJECT),
            granted: None,
            made: 0,
            moved: 0,
            news: VecDeque::new(),
            delay: 0,
        }
    }

    /// Creates a transfer whose gate is at the other end. A grant takes half of the delay to
    /// arrive, and a count takes the other half to return. The test delays the counts by the sum.
    fn far(able: u64, delay_ms: usize) -> Self {
        Self {
            delay: delay_ms,
            ..Self::new(able)
        }
    }

    fn heard(&self) -> u64 {
        if self.news.len() > self.delay {
            self.news[self.news.len() - 1 - self.delay]
        } else {
            0
        }
    }

    /// Simulates one millisecond: the source produces bytes, and the gate lets bytes pass.
    fn work(&mut self, now: Time) {
        // The source may have at most one further object ready while an object waits at the gate.
        self.made = (self.made + self.able / 1_000).min(self.moved + 2 * OBJECT);
        while self.made >= self.moved + OBJECT && self.gate.wait_until(now).is_none() {
            self.gate.spend(OBJECT);
            self.moved += OBJECT;
        }
        self.news.push_back(self.moved);
        if self.news.len() > self.delay + 1 {
            self.news.pop_front();
        }
    }
}

/// Runs transfers that share one capacity. Returns their mean rates between the times `from` and
/// `until` (in ms).
fn run(
    workers: &mut [Worker],
    capacity: u64,
    (from, until): (u64, u64),
    end: u64,
    change: impl Fn(u64, &mut [Worker]),
) -> Vec<u64> {
    let mut marks = vec![0; workers.len()];
    let mut means = vec![0; workers.len()];
    for milli in 0..end {
        let now = Time::ZERO + Duration::from_millis(milli);
        change(milli, workers);
        if milli % 200 == 0 {
            let mut tree = self::capacity(capacity);
            let leaves: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let demand = worker.demand.observe(now, worker.granted, worker.heard());
                    tree.add_leaf(tree.root(), Share::default(), demand)
                })
                .collect();
            let grants = tree.allocate();
            for (worker, leaf) in workers.iter_mut().zip(&leaves) {
                worker.granted = grants.rate(*leaf);
                worker.gate.set_rate(worker.granted, OBJECT, now);
            }
        }
        for (at, worker) in workers.iter_mut().enumerate() {
            worker.work(now);
            if milli == from {
                marks[at] = worker.moved;
            }
            if milli + 1 == until {
                means[at] = (worker.moved - marks[at]) * 1_000 / (until - from);
            }
        }
    }
    means
}

#[test]
fn rate_unused_by_a_slow_leaf_is_shared_until_the_leaf_speeds_up() {
    let capacity = 100 * MIB;
    for slow in [0, MIB / 4, 3 * MIB, 10 * MIB, 30 * MIB] {
        let workers = || [Worker::new(slow), Worker::new(1_000 * MIB)];
        let wake = |milli, workers: &mut [Worker]| {
            if milli == 6_000 {
                workers[0].able = 1_000 * MIB;
            }
        };
        let slept = run(&mut workers(), capacity, (2_000, 6_000), 6_000, wake);
        assert!(slept[0] + OBJECT >= slow, "{slow}: {slept:?}");
        // The slow leaf is granted some more than it uses, so tolerate that headroom.
        let spare = capacity - slow - slow / 4 - 5 * MIB;
        assert!(slept[1] >= spare, "{slow}: {slept:?}");
        // One second after the slow leaf has become fast, it gets half of the capacity.
        let woken = run(&mut workers(), capacity, (7_000, 9_000), 9_000, wake);
        assert!(woken[0] >= 47 * MIB, "{slow}: {woken:?}");
        assert!(woken[1] >= 47 * MIB, "{slow}: {woken:?}");
    }
}

#[test]
fn a_distant_leaf_gets_its_share_despite_late_reports() {
    let capacity = 100 * MIB;
    let wake = |milli, workers: &mut [Worker]| {
        if milli == 4_000 {
            workers[0].able = 1_000 * MIB;
        }
    };
    for delay in [100, 200, 300, 400] {
        let mut workers = [Worker::far(3 * MIB, delay), Worker::new(1_000 * MIB)];
        let woken = run(&mut workers, capacity, (6_000, 12_000), 12_000, wake);
        assert!(woken[0] >= 45 * MIB, "{delay}: {woken:?}");
    }
}

#[test]
fn a_leaf_that_limits_itself_keeps_only_its_headroom() {
    let mut workers = [Worker::new(200 * MIB), Worker::new(2_000 * MIB)];
    let means = run(&mut workers, 1_000 * MIB, (2_000, 6_000), 6_000, |_, _| {});
    assert!(means[0] >= 198 * MIB, "{means:?}");
    assert!(means[1] >= 740 * MIB, "{means:?}");
}

#[test]
fn leaves_with_demand_are_not_idle_between_two_objects() {
    // Each of the 200 leaves moves one object in two seconds, which is three times the window.
    let mut workers: Vec<_> = (0..200).map(|_| Worker::new(1_000 * MIB)).collect();
    workers.push(Worker::new(1_000 * MIB));
    let means = run(&mut workers, 100 * MIB, (4_000, 24_000), 24_000, |_, _| {});
    let (least, most) = (means.iter().min(), means.iter().max());
    let (least, most) = least.zip(most).expect("some");
    assert!(*least * 5 >= *most * 4, "{least} to {most}");
    let sum: u64 = means.iter().sum();
    assert!(sum >= 95 * MIB, "{}", sum / MIB);
}

/// Returns the number of bytes that a leaf moves in 20 s. This end grants at most the rate `here`.
/// The other end limits the same gate to the rate `other`, a function of the time in milliseconds.
fn behind_another_end(here: u64, other: impl Fn(u64) -> u64, object: u64) -> u64 {
    let mut demand = Demand::new(object);
    let mut gate = Pacer::unlimited();
    let (mut moved, mut granted) = (0, Some(BytesPerSecond(here)));
    for milli in 0..20_000 {
        let now = Time::ZERO + Duration::from_millis(milli);
        if milli % 200 == 0 {
            let asked = demand.observe(now, granted, moved);
            granted = Some(asked.map_or(BytesPerSecond(here), |asked| {
                BytesPerSecond(asked.0.min(here))
            }));
        }
        let rate = granted.map(|granted| BytesPerSecond(granted.0.min(other(milli))));
        gate.set_rate(rate, object, now);
        while gate.wait_until(now).is_none() {
            gate.spend(object);
            moved += object;
        }
    }
    moved
}

#[test]
fn a_leaf_limited_by_the_other_end_is_not_idle_between_two_objects() {
    // If two ends set rates at one gate, the lower rate applies and is fully used.
    for (here, other, object) in [
        (3 * MIB, MIB, MIB),
        (16 * MIB, MIB, MIB),
        (100 * MIB, MIB / 2, MIB),
        (100 * MIB, 8 * MIB, 16 * MIB),
    ] {
        let moved = behind_another_end(here, |_| other, object);
        assert!(
            moved + 2 * object >= 20 * other,
            "{here} {other}: {moved} of {}",
            20 * other
        );
    }
    // The other end lowers the rate after five seconds.
    let lowered = |milli| if milli < 5_000 { 8 * MIB } else { MIB };
    let moved = behind_another_end(8 * MIB, lowered, MIB);
    assert!(moved >= (5 * 8 + 15 - 2) * MIB, "{}", moved / MIB);
}

#[test]
fn leaves_that_stop_free_their_rate_within_seconds() {
    let stop = |milli, workers: &mut [Worker]| {
        if milli == 2_000 {
            for worker in &mut workers[..64] {
                worker.able = 0;
            }
        }
    };
    let mut workers: Vec<_> = (0..65).map(|_| Worker::new(1_000 * MIB)).collect();
    let means = run(&mut workers, 100 * MIB, (8_000, 10_000), 10_000, stop);
    assert!(means[64] >= 94 * MIB, "{}", means[64] / MIB);
}

#[test]
fn many_idle_leaves_hold_little_rate() {
    let mut workers: Vec<_> = (0..64).map(|_| Worker::new(0)).collect();
    workers.push(Worker::new(1_000 * MIB));
    let means = run(&mut workers, 100 * MIB, (3_000, 6_000), 6_000, |_, _| {});
    assert!(means[64] >= 94 * MIB, "{}", means[64] / MIB);
}

#[test]
fn many_leaves_share_evenly_if_an_object_exceeds_a_round_s_share() {
    // Each of the 40 leaves gets half an object (0.5 MiB) in a round of 200 ms.
    let mut workers: Vec<_> = (0..40).map(|_| Worker::new(1_000 * MIB)).collect();
    let means = run(&mut workers, 100 * MIB, (2_000, 12_000), 12_000, |_, _| {});
    let sum: u64 = means.iter().sum();
    // All leaves move their objects at the same times. So when the measurement ends, the last of
    // the 25 objects of each leaf may be missing.
    assert!(sum >= 95 * MIB, "{}", sum / MIB);
    let (least, most) = (means.iter().min(), means.iter().max());
    assert!(
        least
            .zip(most)
            .is_some_and(|(least, most)| most - least <= MIB / 2)
    );
}

#[test]
fn rounds_in_quick_succession_do_not_hide_a_slow_leaf() {
    let mut demand = Demand::new(OBJECT);
    let granted = Some(BytesPerSecond(100 * MIB));
    let mut asked = None;
    for milli in 0..1_000u64 {
        let now = Time::ZERO + Duration::from_millis(milli);
        asked = demand.observe(now, granted, milli * 10 * MIB / 1_000);
    }
    let asked = asked.expect("a bound").0;
    assert!((10 * MIB..17 * MIB).contains(&asked), "{asked}");
}

#[test]
fn a_transfer_without_a_granted_rate_has_no_demand_estimate() {
    let mut demand = Demand::new(OBJECT);
    assert_eq!(demand.observe(Time::ZERO, None, 0), None);
    assert_eq!(demand.observe(Time::ZERO + TICK, None, 5), None);
    // A decreasing counter or a stopped clock must not cause a panic.
    assert_eq!(
        demand.observe(Time::ZERO + TICK, Some(BytesPerSecond(1)), 0),
        None
    );
    assert_eq!(
        demand.observe(Time::ZERO, Some(BytesPerSecond(u64::MAX)), u64::MAX),
        None
    );
}

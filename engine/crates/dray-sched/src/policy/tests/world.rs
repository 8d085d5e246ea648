use super::super::{
    Decision, Limits, Name, OwnerRules, PRIORITY_MAX, Pair, Phase, RoundRobinBy, Scheduler,
    Settings, Transfer, View,
};
use crate::rng::Rng;
use dray_core::Time;
use dray_core::rate::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const CLASSES: [Class; 3] = [Class::Realtime, Class::Deadline, Class::Background];

/// A simulated transfer, with the number of bytes that it has left.
struct SimulatedTransfer {
    id: String,
    submitted: u64,
    owner: &'static str,
    activity: &'static str,
    pair: Pair<'static>,
    class: Class,
    priority: u8,
    deadline: Option<Time>,
    not_before: Option<Time>,
    phase: Phase,
    since: Time,
    served: u64,
    bytes: u64,
}

impl SimulatedTransfer {
    fn drawn(draw: &mut Rng, submitted: u64, now: Time) -> Self {
        let mut name = || NAMES[draw.below(3) as usize];
        let (owner, activity, source, sink) = (name(), name(), name(), name());
        let later = |draw: &mut Rng, seconds| {
            let is_there = draw.below(4) == 0;
            is_there.then(|| now + Duration::from_secs(draw.below(seconds)))
        };
        Self {
            id: submitted.to_string(),
            submitted,
            owner,
            activity,
            pair: Pair { source, sink },
            class: CLASSES[draw.below(3) as usize],
            priority: draw.below(12) as u8,
            deadline: later(draw, 5_000),
            not_before: later(draw, 500),
            phase: Phase::Waiting,
            since: now,
            served: 0,
            bytes: draw.below(2_000),
        }
    }

    fn seen(&self) -> Transfer<'_> {
        Transfer {
            id: &self.id,
            owner: self.owner,
            activity: self.activity,
            pair: self.pair,
            peer: Some(self.pair.sink).filter(|sink| *sink != "a"),
            class: self.class,
            priority: self.priority,
            deadline: self.deadline,
            not_before: self.not_before,
            submitted: self.submitted,
            phase: self.phase,
            since: self.since,
            served: self.served,
        }
    }
}

fn settings(draw: &mut Rng, name: Name) -> Settings {
    Settings {
        name,
        max_running: (draw.below(2) == 0).then(|| 1 + draw.below(4) as usize),
        quota: 1 + draw.below(1_000),
        round_robin_by: if draw.below(2) == 0 {
            RoundRobinBy::Owners
        } else {
            RoundRobinBy::Pairs
        },
        aging: Duration::from_secs(1 + draw.below(100)),
        patience: Duration::from_secs(1 + draw.below(300)),
    }
}

fn limits(draw: &mut Rng) -> Limits {
    let own = OwnerRules {
        weight: draw.below(300) as u32,
        running_max: Some(1 + draw.below(3) as usize),
        activities: BTreeMap::from([("b".to_owned(), 7)]),
    };
    Limits {
        running_max: 1 + draw.below(6) as usize,
        owner_max: 1 + draw.below(4) as usize,
        peer_max: 1 + draw.below(4) as usize,
        held_max: draw.below(6) as usize,
        owners: BTreeMap::from([("a".to_owned(), own)]),
    }
}

/// Returns true if a transfer of the same pair runs. Policy `pairs` then runs no other transfer of
/// the pair.
fn of_one_pair(run: &[&Transfer<'_>], one: &Transfer<'_>) -> bool {
    run.iter().any(|other| other.pair == one.pair)
}

/// Checks the properties that decisions of all policies have.
fn check(view: &View<'_, '_>, decision: &Decision<'_>, is_fair: bool, now: Time) {
    let find = |id: &str| {
        view.transfers
            .iter()
            .find(|one| one.id == id)
            .expect("of the view")
    };
    let run: Vec<_> = decision.run.iter().map(|id| find(id)).collect();
    let ids: BTreeSet<_> = decision.run.iter().collect();
    assert_eq!(ids.len(), run.len(), "each once");
    let limits = view.limits;
    let of = |owner: &str| run.iter().filter(|one| one.owner == owner).count();
    let with = |peer: &str| run.iter().filter(|one| one.peer == Some(peer)).count();
    let owner_max = |owner: &str| {
        let own = limits.owners.get(owner).and_then(|rules| rules.running_max);
        own.unwrap_or(limits.owner_max)
    };
    let is_within = |one: &Transfer<'_>| {
        of(one.owner) <= owner_max(one.owner)
            && one.peer.is_none_or(|peer| with(peer) <= limits.peer_max)
            && run.len() <= limits.running_max
    };
    for one in &run {
        // Policy `fair` never holds a transfer. So more transfers may run than the limits permit,
        // if another policy started them.
        assert!(
            is_within(one) || (is_fair && one.phase == Phase::Running),
            "{one:?}"
        );
        let may_begin = one.not_before.is_none_or(|time| time <= now);
        assert!(may_begin || one.phase == Phase::Running, "{one:?}");
    }
    let held: Vec<_> = view
        .transfers
        .iter()
        .filter(|one| one.phase == Phase::Running && !ids.contains(&one.id))
        .map(|one| one.id)
        .collect();
    assert_eq!(
        held.iter().collect::<BTreeSet<_>>(),
        decision.hold.iter().collect()
    );
    assert!(!is_fair || held.is_empty());
    // A transfer of a higher class keeps its slot, unless a transfer with the same owner or peer
    // has taken the slot.
    for one in decision.hold.iter().map(|id| find(id)) {
        let is_below = |other: &&Transfer<'_>| {
            other.class > one.class && other.owner != one.owner && other.peer != one.peer
        };
        let is_stopped_by_a_limit = of(one.owner) >= owner_max(one.owner)
            || one.peer.is_some_and(|peer| with(peer) >= limits.peer_max);
        let below = run.iter().find(|other| is_below(other));
        assert!(
            is_stopped_by_a_limit || of_one_pair(&run, one) || below.is_none(),
            "{one:?} is held for {below:?}"
        );
    }
    for id in &decision.release {
        assert!(find(id).phase != Phase::Waiting && !ids.contains(id));
    }
    let idle = view.transfers.iter().filter(|one| !ids.contains(&one.id));
    let idle_held = idle
        .clone()
        .filter(|one| one.phase != Phase::Waiting)
        .count();
    assert!(idle_held - decision.release.len() <= limits.held_max);
    // If a transfer could run, at least one transfer runs.
    let is_ready = |one: &&Transfer<'_>| one.not_before.is_none_or(|time| time <= now);
    if run.is_empty() {
        assert_eq!(idle.filter(is_ready).count(), 0, "somebody could run");
    }
    assert!(
        decision.look_again.is_none_or(|time| time > now),
        "{decision:?}"
    );
    for (id, bytes) in &decision.look_after {
        assert!(*bytes > find(id).served && ids.contains(id));
    }
}

/// Simulates until all transfers have ended. Returns the number of decisions.
fn play(seed: u64, names: &[Name]) -> usize {
    let draw = &mut Rng::new(seed);
    let pick = |draw: &mut Rng| names[draw.below(names.len() as u64) as usize];
    let (mut now, mut submitted) = (Time::ZERO, 0);
    let mut name = pick(draw);
    let mut scheduler = Scheduler::new(settings(draw, name));
    let mut limits_now = limits(draw);
    let (mut jobs, mut ended): (Vec<SimulatedTransfer>, Vec<SimulatedTransfer>) =
        (Vec::new(), Vec::new());
    for look in 0..20_000 {
        if look < 100 && draw.below(3) == 0 {
            for _ in 0..draw.below(4) {
                submitted += 1;
                jobs.push(SimulatedTransfer::drawn(draw, submitted, now));
            }
        }
        if draw.below(10) == 0 {
            name = pick(draw);
            scheduler.change(settings(draw, name));
            limits_now = limits(draw);
        }
        let transfers: Vec<_> = jobs.iter().map(SimulatedTransfer::seen).collect();
        let left: Vec<_> = ended.iter().map(SimulatedTransfer::seen).collect();
        let view = View {
            transfers: &transfers,
            ended: &left,
            limits: &limits_now,
        };
        let decision = scheduler.decide(&view, now);
        check(&view, &decision, name == Name::Fair, now);
        let is_in = |ids: &[&str], id: &str| ids.contains(&id);
        let phases: Vec<_> = transfers
            .iter()
            .map(|one| {
                if is_in(&decision.run, one.id) {
                    Phase::Running
                } else if is_in(&decision.release, one.id) || one.phase == Phase::Waiting {
                    Phase::Waiting
                } else {
                    Phase::Held
                }
            })
            .collect();
        drop(decision);
        for (job, phase) in jobs.iter_mut().zip(phases) {
            if job.phase != phase {
                (job.phase, job.since) = (phase, now);
            }
            if phase == Phase::Running {
                job.served += draw.below(500);
            }
        }
        now = now + Duration::from_secs(1 + draw.below(20));
        (ended, jobs) = jobs.into_iter().partition(|job| job.served >= job.bytes);
        if look >= 100 && jobs.is_empty() {
            return look;
        }
    }
    panic!("seed {seed}: {} of {submitted} never end", jobs.len());
}

#[test]
fn every_policy_keeps_the_limits_and_brings_all_to_their_end() {
    for seed in 0..60 {
        for name in Name::ALL {
            play(seed, &[name]);
        }
    }
}

#[test]
fn a_change_of_policy_loses_no_transfer() {
    for seed in 0..300 {
        play(seed, &Name::ALL);
    }
}

/// Simulates one session slot, one transfer of the owner "patient", and an endless stream of new
/// transfers. Each new transfer needs the slot for `length` seconds. Returns the time in seconds
/// until the patient transfer has ended.
fn patient(settings: &Settings, length: u64) -> u64 {
    let mut scheduler = Scheduler::new(settings.clone());
    let mut job = SimulatedTransfer::drawn(&mut Rng::new(1), 1_000, Time::ZERO);
    (job.owner, job.pair) = (
        "patient",
        Pair {
            source: "p",
            sink: "p",
        },
    );
    (job.class, job.priority, job.bytes) = (Class::Background, 0, 60);
    (job.deadline, job.not_before) = (None, None);
    let mut jobs = vec![job];
    let limits = Limits::of(1);
    let mut ended = Vec::new();
    for second in 0..10_000 {
        let now = Time::from_nanos(second * 1_000_000_000);
        // Two new transfers are always waiting. Both were submitted before the patient transfer.
        while jobs.len() < 3 {
            let mut one = SimulatedTransfer::drawn(&mut Rng::new(2), second, now);
            one.id = format!("{second} {}", jobs.len());
            (one.owner, one.pair) = (
                "hasty",
                Pair {
                    source: "h",
                    sink: "h",
                },
            );
            (one.class, one.priority, one.bytes) = (Class::Realtime, PRIORITY_MAX, length);
            (one.deadline, one.not_before) = (Some(now), None);
            jobs.push(one);
        }
        let transfers: Vec<_> = jobs.iter().map(SimulatedTransfer::seen).collect();
        let left: Vec<_> = ended.iter().map(SimulatedTransfer::seen).collect();
        let view = View {
            transfers: &transfers,
            ended: &left,
            limits: &limits,
        };
        let decision = scheduler.decide(&view, now);
        let run = decision.run[0].to_owned();
        for job in &mut jobs {
            let phase = match job.phase {
                _ if job.id == run => Phase::Running,
                Phase::Running => Phase::Held,
                phase => phase,
            };
            if phase != job.phase {
                (job.phase, job.since) = (phase, now);
            }
            job.served += u64::from(job.id == run);
        }
        (ended, jobs) = jobs
            .into_iter()
            .partition(|job: &SimulatedTransfer| job.served >= job.bytes);
        if ended.iter().any(|job| job.owner == "patient") {
            return second;
        }
    }
    u64::MAX
}

#[test]
fn no_transfer_starves_behind_a_stream_of_others() {
    let with = |name| Settings {
        quota: 30,
        aging: Duration::from_secs(60),
        patience: Duration::from_secs(600),
        ..Settings::of(name)
    };
    // Turns of thirty seconds alternate.
    assert!(patient(&with(Name::RoundRobin), 10) <= 130);
    // One of the new transfers runs first, then the patient transfer.
    assert!(patient(&with(Name::Pairs), 50) <= 120);
    // The priority of the patient transfer rises by thirty steps, one step per minute. The transfer
    // then runs for one minute.
    let priority = patient(&with(Name::Priority), 50);
    assert!(priority <= 2_000, "{priority}");
    // After ten minutes, the patient transfer gets the next slot.
    assert!(patient(&with(Name::Fair), 50) <= 720);
    // The transfers of the first thousand seconds were submitted before the patient transfer.
    assert!(patient(&with(Name::Fcfs), 50) <= 1_110);
}

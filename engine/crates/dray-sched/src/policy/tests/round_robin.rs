use super::super::{Limits, Pair, Policy, RoundRobin, RoundRobinBy, Transfer, View};
use super::{NOW, decide, running};

/// Simulates transfers of several owners. Each running transfer moves a fixed number of bytes
/// between two decisions.
struct Play {
    policy: RoundRobin,
    transfers: Vec<Transfer<'static>>,
}

impl Play {
    fn new(quota: u64, transfers: &[(&'static str, &'static str)]) -> Self {
        let transfers = transfers.iter().enumerate();
        Self {
            policy: RoundRobin::new(1, quota, RoundRobinBy::Owners),
            transfers: transfers
                .map(|(at, (id, owner))| Transfer {
                    owner,
                    ..Transfer::new(id, at as u64)
                })
                .collect(),
        }
    }

    fn run(&mut self) -> &'static str {
        let decision = decide(&mut self.policy, &self.transfers, &Limits::of(9), NOW);
        let run = decision.run[0];
        for one in &mut self.transfers {
            one.phase = match (one.id == run, one.phase) {
                (true, _) => super::Phase::Running,
                (false, super::Phase::Running) => super::Phase::Held,
                (false, phase) => phase,
            };
        }
        run
    }

    fn moves(&mut self, id: &str, bytes: u64) {
        let one = self
            .transfers
            .iter_mut()
            .find(|one| one.id == id)
            .expect("there");
        one.served += bytes;
    }

    /// Returns the names of the transfers that ran at `looks` consecutive decisions. Each moves
    /// `bytes` bytes.
    fn story(&mut self, bytes: u64, looks: usize) -> String {
        (0..looks)
            .map(|_| {
                let id = self.run();
                self.moves(id, bytes);
                id
            })
            .collect()
    }
}

#[test]
fn turns_end_when_the_quota_is_used_up() {
    let mut play = Play::new(400, &[("a", "x"), ("b", "y"), ("c", "z")]);
    assert_eq!(play.story(100, 16), "aaaabbbbccccaaaa");
    let mut play = Play::new(400, &[("a", "x"), ("b", "y")]);
    assert_eq!(play.story(400, 5), "ababa");
}

#[test]
fn the_excess_is_deducted_from_the_next_turn() {
    let mut play = Play::new(400, &[("a", "x"), ("b", "y")]);
    // Each decision moves 300 bytes, so the first turn takes two decisions and exceeds the quota by
    // 200 bytes. The next turn has the remaining 200 bytes, which take one decision.
    assert_eq!(play.story(300, 12), "aabbababaabb");
    // A very large object costs as many turns as its size contains quotas.
    let mut play = Play::new(400, &[("a", "x"), ("b", "y")]);
    assert_eq!(play.run(), "a");
    play.moves("a", 2_000);
    // Party x has a debt of four turns, so party y gets five turns first.
    assert_eq!(play.story(400, 6), "bbbbba");
}

#[test]
fn the_quota_of_a_party_is_shared_by_its_transfers() {
    let mut play = Play::new(400, &[("a", "x"), ("A", "x"), ("b", "y")]);
    assert_eq!(play.story(100, 4), "aaaa");
    assert_eq!(play.story(100, 4), "bbbb");
    // The transfer `a` ends in the middle of the turn of party `x`. The transfer `A` of the same
    // party uses the remaining bytes of this turn.
    assert_eq!(play.story(100, 2), "aa");
    let gone = play.transfers.remove(0);
    let limits = Limits::of(9);
    let view = View {
        transfers: &play.transfers,
        ended: &[gone],
        limits: &limits,
    };
    assert_eq!(play.policy.decide(&view, NOW).run, ["A"]);
    assert_eq!(play.story(100, 4), "AAbb");
}

#[test]
fn a_party_that_leaves_with_a_debt_still_owes_it() {
    let mut play = Play::new(400, &[("a", "x"), ("b", "y")]);
    assert_eq!(play.run(), "a");
    let mut gone = play.transfers.remove(0);
    gone.served = 2_000;
    let limits = Limits::of(9);
    let view = View {
        transfers: &play.transfers,
        ended: &[gone],
        limits: &limits,
    };
    assert_eq!(play.policy.decide(&view, NOW).run, ["b"]);
    play.transfers.push(Transfer {
        owner: "x",
        ..Transfer::new("c", 9)
    });
    // The party has a debt of four turns, so the other party gets five turns first.
    assert_eq!(play.story(400, 6), "bbbbbc");
}

#[test]
fn a_lone_party_owes_nothing_and_absence_saves_no_quota() {
    let mut play = Play::new(400, &[("a", "x")]);
    assert_eq!(play.run(), "a");
    // Party x moves ten quotas and half of the next.
    play.moves("a", 4_200);
    play.transfers.push(Transfer {
        owner: "y",
        ..Transfer::new("b", 9)
    });
    assert_eq!(play.story(200, 9), "abbaabbaa");
}

#[test]
fn the_next_decision_is_due_when_the_quota_is_used_up() {
    let one = |id, owner| Transfer {
        owner,
        served: 1_000,
        ..Transfer::new(id, 1)
    };
    let mut policy = RoundRobin::new(2, 400, RoundRobinBy::Owners);
    let transfers = [one("a", "x"), one("b", "x"), one("c", "y")];
    let decision = decide(&mut policy, &transfers, &Limits::of(9), NOW);
    // Two transfers run concurrently, each with half of the quota.
    assert_eq!(decision.look_after, [("a", 1_200), ("b", 1_200)]);
    // No other party waits, so no further decision is needed.
    let mut policy = RoundRobin::new(9, 400, RoundRobinBy::Owners);
    assert!(
        decide(&mut policy, &transfers, &Limits::of(9), NOW)
            .look_after
            .is_empty()
    );
}

#[test]
fn pairs_can_take_turns_instead_of_owners() {
    let one = |id, source| Transfer {
        pair: Pair { source, sink: "z" },
        owner: source,
        ..Transfer::new(id, 1)
    };
    let transfers = |served| {
        [
            running(Transfer {
                served,
                ..one("a", "x")
            }),
            Transfer {
                owner: "x",
                ..one("b", "y")
            },
        ]
    };
    for (round_robin_by, next) in [(RoundRobinBy::Pairs, "b"), (RoundRobinBy::Owners, "a")] {
        let mut policy = RoundRobin::new(1, 400, round_robin_by);
        let run = decide(&mut policy, &transfers(0), &Limits::of(9), NOW).run;
        assert_eq!(run, ["a"]);
        let run = decide(&mut policy, &transfers(400), &Limits::of(9), NOW).run;
        assert_eq!(run, [next], "{round_robin_by:?}");
    }
}

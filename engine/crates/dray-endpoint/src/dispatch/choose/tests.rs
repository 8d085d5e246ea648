use super::{Chooser, TransferView, limits};
use dray_api::Timestamp;
use dray_api::{Scheduling, SchedulingPatch};
use dray_config::Config;
use dray_core::TransferId;
use dray_core::rate::Class;
use dray_sched::policy::{Lines, Name, Phase};
use serde_json::json;
use std::time::Duration;

fn config(more: &str) -> Config {
    let text = format!(
        "name = \"a.example\"\nstate = \"/s\"\n[[root]]\nname = \"data\"\npath = \"/data\"\n\
         [limits]\ntransfers_active = 3\nper_owner_active = 2\n{more}"
    );
    Config::parse("test", &text).expect("good")
}

fn chooser(config: &Config) -> Chooser {
    Chooser::new(Scheduling::from(&config.scheduling), Timestamp::from_ms(0))
}

fn patch(value: serde_json::Value) -> SchedulingPatch {
    serde_json::from_value(value).expect("good")
}

fn seen(id: &str, priority: u8, phase: Phase) -> TransferView {
    TransferView {
        id: TransferId::new(id).expect("good"),
        owner: "alice".to_owned(),
        activity: String::new(),
        source: "a.example".to_owned(),
        sink: "b.example".to_owned(),
        peer: Some("b.example".to_owned()),
        class: Class::Background,
        priority,
        deadline: None,
        submitted: u64::from(id.as_bytes()[0]),
        phase,
        since: Timestamp::from_ms(1_000),
        served: 0,
    }
}

fn words(ids: &[TransferId]) -> Vec<&str> {
    ids.iter().map(TransferId::as_str).collect()
}

#[test]
fn a_higher_priority_holds_a_lower_one_until_it_ends() {
    let config = config("[scheduling]\npolicy = \"priority\"\n");
    let mut chooser = chooser(&config);
    let now = Timestamp::from_ms(2_000);
    let both = [seen("a", 3, Phase::Running), seen("b", 7, Phase::Waiting)];
    let plan = chooser.decide(&both, &[], &config, now);
    assert_eq!(
        (words(&plan.hold), words(&plan.start)),
        (vec!["a"], vec!["b"])
    );
    assert!(plan.go_on.is_empty() && plan.release.is_empty());
    assert!(plan.look_again.is_some(), "it rises while it is held");
    let held = [seen("a", 3, Phase::Held)];
    let plan = chooser.decide(&held, &[], &config, now);
    assert_eq!(words(&plan.go_on), ["a"]);
}

#[test]
fn held_sessions_fit_in_the_slots_that_running_ones_leave() {
    let config = config("[scheduling]\npolicy = \"priority\"\n");
    let mut chooser = chooser(&config);
    let mut all = vec![seen("z", 9, Phase::Waiting), seen("r", 5, Phase::Running)];
    for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
        let mut one = seen(id, 1, Phase::Held);
        one.since = Timestamp::from_ms(1_000 + i64::try_from(at).expect("small"));
        all.push(one);
    }
    let plan = chooser.decide(&all, &[], &config, Timestamp::from_ms(2_000));
    assert_eq!(words(&plan.start), ["z"]);
    assert_eq!(
        (words(&plan.hold), words(&plan.release)),
        (vec!["r"], vec!["a", "b"])
    );
}

#[test]
fn a_turn_ends_by_its_bytes_and_a_left_session_is_charged_once() {
    let config = config("[scheduling]\npolicy = \"round_robin\"\nquota = 100\n");
    let mut chooser = chooser(&config);
    let now = Timestamp::from_ms(2_000);
    let mut bobs = seen("b", 3, Phase::Waiting);
    bobs.owner = "bob".to_owned();
    let mut own = seen("a", 3, Phase::Running);
    let plan = chooser.decide(&[own.clone(), bobs.clone()], &[], &config, now);
    assert_eq!(plan.look_after, [(own.id.clone(), 100)]);
    own.served = 100;
    // The transfer left its session and is queued again. Its bytes are charged only once.
    chooser.left(own.clone(), now, false);
    own.phase = Phase::Waiting;
    let plan = chooser.decide(&[own.clone(), bobs.clone()], &[], &config, now);
    assert_eq!(words(&plan.start), ["b"]);
    bobs.phase = Phase::Running;
    bobs.served = 100;
    let plan = chooser.decide(&[own, bobs], &[], &config, now);
    assert_eq!(
        (words(&plan.start), words(&plan.hold)),
        (vec!["a"], vec!["b"])
    );
}

#[test]
fn each_policy_gets_the_candidates_of_its_entry() {
    let config = config("");
    let mut chooser = chooser(&config);
    assert!(chooser.sight(&config, 0, 0).is_none(), "it holds nobody");
    let look = |chooser: &Chooser, free| {
        let sight = chooser.sight(&config, free, 0).expect("it looks");
        (sight.lines, sight.per_line)
    };
    assert_eq!(look(&chooser, 3), (Lines::Deadlines, 2));
    assert!(
        chooser.sight(&config, 0, 1).is_some(),
        "what is held goes on"
    );
    for (rules, lines) in [
        (json!({"policy": "fcfs"}), (Lines::Ages, 2)),
        (json!({"policy": "priority"}), (Lines::Ages, 1)),
        (json!({"policy": "round_robin"}), (Lines::Ages, 1)),
        (
            json!({"round_robin_by": "pairs", "max_running": 2}),
            (Lines::Pairs, 2),
        ),
        (
            json!({"policy": "pairs", "max_running": null}),
            (Lines::Pairs, 1),
        ),
    ] {
        chooser.change(&patch(rules.clone()));
        assert_eq!(look(&chooser, 0), lines, "{rules}");
    }
    assert_eq!(chooser.rules().max_running, None);
}

#[test]
fn the_earliest_left_session_is_forgotten_first_at_the_limit() {
    let config = config("");
    let mut chooser = chooser(&config);
    let count = i64::try_from(super::LEFT_MAX).expect("small");
    for at in 0..=count {
        let one = seen(&format!("t{at}"), 3, Phase::Running);
        chooser.left(one, Timestamp::from_ms(at), false);
    }
    assert_eq!(chooser.left.len(), super::LEFT_MAX);
    let has = |at: i64| {
        let id = TransferId::new(format!("t{at}")).expect("good");
        chooser.left.contains_key(&id)
    };
    assert_eq!((has(0), has(1), has(count)), (false, true, true));
}

#[test]
fn promised_transfers_take_slots_and_block_no_other() {
    let config = config("");
    let now = Timestamp::from_ms(2_000);
    let promised = |id: &str, owner: &str| TransferView {
        owner: owner.to_owned(),
        served: 1 << 40,
        ..seen(id, 9, Phase::Running)
    };
    let many = [
        promised("p", "alice"),
        promised("q", "alice"),
        promised("r", "alice"),
    ];
    for name in Name::ALL.map(Name::as_str) {
        let mut chooser = chooser(&config);
        chooser.change(&patch(json!({"policy": name})));
        // The promised transfers exceed the limits of the owner and of the endpoint. A running
        // session continues. A held session stays held, or is released if the policy permits no
        // held sessions.
        let own = [seen("a", 3, Phase::Running)];
        let plan = chooser.decide(&own, &many, &config, now);
        assert_eq!((plan.hold.len(), plan.release.len()), (0, 0), "{name}");
        let own = [seen("a", 3, Phase::Held), seen("b", 3, Phase::Waiting)];
        let plan = chooser.decide(&own, &many, &config, now);
        let begun = (plan.start.len(), plan.go_on.len(), plan.release.len());
        let held_max = limits(chooser.rules(), &config).held_max;
        assert_eq!(begun, (0, 0, 1_usize.saturating_sub(held_max)), "{name}");
        // The promised transfer takes one of three slots in total, and one of two slots of its
        // owner.
        let mut bobs = seen("c", 3, Phase::Waiting);
        bobs.owner = "bob".to_owned();
        bobs.peer = Some("c.example".to_owned());
        bobs.sink = "c.example".to_owned();
        let waiting = [
            seen("a", 3, Phase::Waiting),
            seen("b", 3, Phase::Waiting),
            bobs,
        ];
        let plan = chooser.decide(&waiting, &many[..1], &config, now);
        let begun = match name {
            // These policies run one transfer at a time, regardless of the promised transfers that
            // run.
            "priority" | "round_robin" => vec!["a"],
            _ => vec!["a", "c"],
        };
        assert_eq!(words(&plan.start), begun, "{name}");
    }
}

#[test]
fn promised_transfers_use_up_no_turn() {
    let config = config("[scheduling]\npolicy = \"round_robin\"\nquota = 100\n");
    let mut chooser = chooser(&config);
    let now = Timestamp::from_ms(2_000);
    let mut promised = seen("p", 3, Phase::Running);
    let mut bobs = seen("b", 3, Phase::Waiting);
    bobs.owner = "bob".to_owned();
    let own = seen("a", 3, Phase::Running);
    for served in [0, 1_000, 5_000] {
        promised.served = served;
        let both = [own.clone(), bobs.clone()];
        let plan = chooser.decide(&both, std::slice::from_ref(&promised), &config, now);
        assert!(plan.hold.is_empty(), "{served}");
    }
    // The end of the promised transfer does not change the turn of the other transfers.
    chooser.left(promised, now, true);
    let plan = chooser.decide(&[own, bobs], &[], &config, now);
    assert!(plan.hold.is_empty());
}

#[test]
fn a_transfer_that_ran_before_waits_since_its_session_ended() {
    let config = config("");
    let mut chooser = Chooser::new(
        Scheduling::from(&config.scheduling),
        Timestamp::from_ms(50_000),
    );
    let mut queued = dray_queue::QueuedTransfer {
        id: TransferId::new("t").expect("good"),
        version: 1,
        owner: "alice".to_owned(),
        activity: String::new(),
        principal: "alice".to_owned(),
        class: Class::Background,
        priority: 3,
        deadline: None,
        waits_since: Timestamp::from_ms(10_000),
        has_run: false,
        seq: 1,
        sent: 0,
        source: 0,
        source_peer: Some("b.example:4735".to_owned()),
        sink_peer: None,
    };
    let one = chooser.waiting(&queued, &config);
    assert_eq!(one.since, queued.waits_since);
    assert_eq!(
        (one.source.as_str(), one.sink.as_str()),
        ("b.example:4735", "a.example")
    );
    // The transfer had a session in an earlier process.
    queued.has_run = true;
    assert_eq!(
        chooser.waiting(&queued, &config).since,
        Timestamp::from_ms(50_000)
    );
    let then = Timestamp::from_ms(50_000).after(Duration::from_secs(9));
    chooser.left(one.clone(), then, false);
    assert_eq!(chooser.waiting(&queued, &config).since, then);
    // The transfer has ended. A later attempt has no session yet.
    chooser.left(one, then, true);
    assert!(chooser.left.is_empty());
}

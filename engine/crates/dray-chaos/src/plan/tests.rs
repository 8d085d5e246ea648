//! Tests of the text of plans.

use super::{At, EXAMPLE, Fault, Kind, Plan, Target};
use std::time::Duration;

const HEAD: &str = r#"
[copy]
source = "/a"
destination = "/b"
command = ["dray", "cp"]
"#;
const SINK: &str = r#"
[[endpoint]]
name = "sink"
command = ["dray", "serve"]
address = "127.0.0.1:4735"
"#;

fn refused(text: &str) -> String {
    Plan::parse("plan.toml", text)
        .expect_err("a mistake")
        .to_string()
}

#[test]
fn the_example_is_a_plan_with_every_kind() {
    let plan = Plan::parse("example", EXAMPLE).expect("valid");
    // The fault `clock_step` is a comment, because the example must run without libfaketime.
    let (before, after) = EXAMPLE.split_once("\n# [[fault]]\n").expect("a comment");
    let (comment, after) = after.split_once("\n\n").expect("an empty line");
    let comment = comment.replace("# ", "");
    let text = format!("{before}\n[[fault]]\n{comment}\n\n{after}");
    let with_step = Plan::parse("example", &text).expect("valid");
    for kind in Kind::ALL {
        let mut faults = with_step.faults.iter();
        assert!(faults.any(|fault| fault.fault.kind() == *kind), "{kind:?}");
        let is_drawn = plan.random_kinds.contains(kind);
        assert_eq!(is_drawn, *kind != Kind::ClockStep, "{kind:?}");
    }
    let step = Fault::ClockStep {
        step_ms: -3_600_000,
    };
    assert!(with_step.faults.iter().any(|each| each.fault == step));
    assert_eq!((plan.seed, plan.random), (Some(7), 3));
    assert_eq!(plan.copy.attempts, 30);
    let restart_after = Duration::from_millis(300);
    assert_eq!(plan.faults[0].fault, Fault::Kill { restart_after });
    assert_eq!(plan.faults[0].target, Some(Target::Endpoint(0)));
    assert_eq!(plan.faults[0].at, Some(At::Share(0.2)));
    assert_eq!(plan.faults[3].at, Some(At::Time(Duration::from_secs(3))));
    assert_eq!(plan.faults[5].target, None);
}

/// Fails unless the error of each plan names its line and contains its reason.
fn check_refused<const N: usize>(mistakes: [(String, usize, &str); N]) {
    for (text, line, reason) in mistakes {
        let words = refused(&text);
        let place = format!("plan.toml, line {line}:");
        assert!(words.contains(&place), "{words}\n{text}");
        assert!(words.contains(reason), "{words}\n{text}");
    }
}

#[test]
fn each_mistake_of_the_copy_and_the_endpoints_names_its_line() {
    check_refused([
        (format!("sed = 7\n{HEAD}"), 1, "unknown field `sed`"),
        (
            HEAD.replace("\"/a\"", "\"a\"") + "[random]\nfaults = 1",
            3,
            "not an absolute path",
        ),
        (
            HEAD.replace("\"/b\"", "\"/a/b\""),
            4,
            "must not contain each other",
        ),
        (
            HEAD.replace("\"dray\", \"cp\"", ""),
            5,
            "`command` is empty",
        ),
        (
            HEAD.replace("\"cp\"", "\"--progress=bar\""),
            5,
            "adds its own",
        ),
        (format!("{HEAD}attempts = 0"), 6, "from 1 to"),
        (
            SINK.replace("sink", "Sink") + HEAD,
            3,
            "not a name of an endpoint",
        ),
        (
            SINK.replace("sink", "client") + HEAD,
            3,
            "not a name of an endpoint",
        ),
        (
            format!("{HEAD}writer = \"sink\"\n"),
            6,
            "\"sink\" is not a program of the plan; the programs are client",
        ),
        (
            format!("{SINK}{SINK}{HEAD}"),
            8,
            "two endpoints have the name \"sink\"",
        ),
        (SINK.replace(":4735", "") + HEAD, 5, "not HOST:PORT"),
        (
            format!("{HEAD}[random]\nfaults = 1\nkinds = []"),
            7,
            "`kinds` is empty",
        ),
    ]);
    assert!(refused(HEAD).contains("the plan has no fault"));
    assert!(refused(&format!("{HEAD}[random]\nfaults = 1001")).contains("at most 1000"));
}

#[test]
fn each_mistake_of_a_fault_names_its_line() {
    let fault = |body: &str| format!("{HEAD}{SINK}\n[[fault]]\n{body}\n");
    let one = |body: &str| format!("{HEAD}\n[[fault]]\nkind = \"kill\"\n{body}\n");
    check_refused([
        (
            fault("kind = \"kil\""),
            13,
            "unknown kind \"kil\"; the kinds are kill, stop",
        ),
        (
            fault("kind = \"cut\"\ntarget = \"client\""),
            14,
            "the targets are sink",
        ),
        (
            fault("kind = \"cut\"\ncount = 2"),
            14,
            "`count` has no meaning",
        ),
        (
            fault("kind = \"kill\"\nat = \"100%\""),
            14,
            "share of the durable bytes",
        ),
        (
            fault("kind = \"kill\"\nat = \"soon\""),
            14,
            "not a duration",
        ),
        (
            fault("kind = \"stop\"\nduration = \"25h\""),
            14,
            "more than a day",
        ),
        (
            fault("kind = \"corrupt\"\nprobability = 0.0"),
            14,
            "more than 0.0",
        ),
        (fault("kind = \"corrupt\"\ncount = 0"), 14, "at least 1"),
        (fault("kind = \"no_space\"\ncount = 0"), 14, "at least 1"),
        (
            fault("kind = \"io_error\"\nprobability = 2.0"),
            14,
            "at most 1.0",
        ),
        (
            fault("kind = \"failed_sync\"\nduration = \"1s\""),
            14,
            "`duration` has no meaning",
        ),
        (
            fault("kind = \"short_write\"\ntarget = \"disk\""),
            14,
            "the targets are client, sink",
        ),
        (
            format!("{HEAD}[[fault]]\nkind = \"cut\""),
            7,
            "needs an [[endpoint]]",
        ),
        (
            one("target = \"client\"\nrestart_after = \"1s\""),
            10,
            "no meaning for the client",
        ),
        (one("target = \"sink\""), 9, "the targets are client"),
    ]);
}

#[test]
fn each_mistake_of_a_clock_step_names_its_line() {
    let step = |step: &str| format!("{HEAD}[[fault]]\nkind = \"clock_step\"\nstep = \"{step}\"\n");
    check_refused([
        (step("0s"), 8, "at least 1ms"),
        (step("--1h"), 8, "not a duration"),
        (
            format!("clock_library = \"lib.so\"\n{}", step("1h")),
            1,
            "`clock_library` must be an absolute path",
        ),
    ]);
}

#[test]
fn a_plan_without_endpoints_draws_faults_of_the_client_only() {
    let text = format!("{HEAD}[random]\nfaults = 9");
    let plan = Plan::parse("plan", &text).expect("valid");
    let process = [Kind::Kill, Kind::Stop];
    let storage = Kind::ALL.iter().filter(|kind| kind.is_storage());
    let kinds: Vec<_> = process.iter().chain(storage).copied().collect();
    assert_eq!((plan.random_kinds, kinds.len()), (kinds, 6));
    assert_eq!(plan.writer, Some(Target::Client));
    assert_eq!(plan.timeout, Duration::from_secs(600));
}

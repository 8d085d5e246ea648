//! Tests of the verdict.

use super::{FaultReport, Measured, SYNC_GROUP_BYTES, SentAgain, State, Verdict};
use crate::plan::{Fault, Injections, Plan};
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn measured(carried: u64, reported: Option<u64>) -> Measured {
    Measured {
        to_send: 100 * MIB,
        carried,
        reported,
        connections: 2,
        entries: 3,
        largest_file: 70 * MIB,
    }
}

fn again(carried: u64, reported: Option<u64>) -> SentAgain {
    let plan = Plan::parse("plan", crate::EXAMPLE).expect("valid");
    let injections = Injections {
        probability: 1.0,
        count: 2,
    };
    let delay = Fault::Delay {
        duration: Duration::from_secs(1),
        delay: Duration::from_secs(1),
        probability: 1.0,
    };
    let faults = [
        (Fault::Cut, 1),
        (Fault::Corrupt(injections), 2),
        (delay, 9),
        (Fault::ShortWrite(injections), 2),
        (Fault::FailedSync(injections), 1),
        (Fault::IoError(injections), 2),
    ];
    SentAgain::new(&measured(carried, reported), &plan, &faults)
}

#[test]
fn bytes_are_compared_with_the_bytes_that_each_injection_may_lose() {
    let bound = 7 * (32 * MIB + SYNC_GROUP_BYTES) + 2 * 70 * MIB;
    let within = again(100 * MIB + bound, None);
    assert_eq!(within.bound_bytes, bound);
    assert_eq!(within.bytes, Some(bound));
    assert_eq!(within.within_bound, Some(true));
    assert_eq!(again(130 * MIB + bound, None).within_bound, Some(false));
    assert_eq!(again(MIB, None).within_bound, None, "not measured");
}

#[test]
fn reports_count_if_the_data_took_another_way_than_the_proxy() {
    let again = |carried, reported| {
        let again = again(carried, reported);
        (again.bytes, again.measured_by)
    };
    assert_eq!(again(MIB, Some(101 * MIB)), (Some(MIB), Some("reports")));
    assert_eq!(again(MIB, None), (None, None));
    assert_eq!(again(102 * MIB, None), (Some(2 * MIB), Some("proxy")));
}

#[test]
fn each_broken_promise_breaks_the_verdict() {
    let fault = |injections| FaultReport {
        number: 1,
        kind: "cut",
        target: String::new(),
        at: String::new(),
        words: String::new(),
        injections,
        refusal: None,
        attempt: None,
        seconds: None,
    };
    let good = Verdict {
        verdict: State::Broken,
        seed: 1,
        finished: true,
        identical: true,
        differences: Vec::new(),
        nothing_false: true,
        violations: Vec::new(),
        looks: 1,
        sent_again: again(100 * MIB, None),
        leftovers: Vec::new(),
        crashes: Vec::new(),
        attempts: Vec::new(),
        faults: vec![fault(1)],
        seconds: 1.0,
    };
    assert_eq!(good.clone().judged().verdict, State::Holds);
    let changes: [fn(&mut Verdict); 6] = [
        |verdict| verdict.finished = false,
        |verdict| verdict.identical = false,
        |verdict| verdict.nothing_false = false,
        |verdict| verdict.sent_again.within_bound = Some(false),
        |verdict| verdict.leftovers = vec![PathBuf::from(".dray-log")],
        |verdict| verdict.crashes = vec!["ended".to_owned()],
    ];
    for change in changes {
        let mut verdict = good.clone();
        change(&mut verdict);
        assert_eq!(verdict.judged().verdict, State::Broken);
    }
    let mut missed = good.clone();
    missed.faults.push(fault(0));
    assert_eq!(missed.judged().verdict, State::Unproven);
    let mut unmeasured = good;
    unmeasured.sent_again = again(MIB, None);
    assert_eq!(unmeasured.judged().verdict, State::Unproven);
}

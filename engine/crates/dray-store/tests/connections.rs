//! Tests `dray_store::connections::Connections` with real connections. The threads of the server
//! sleep for each byte. So the speed of the machine does not change the ratio between the
//! throughput of several connections and that of one. `integration/bench/connections.py` measures
//! more cases.

#[path = "../examples/connections/load.rs"]
mod load;
#[path = "../examples/connections/server.rs"]
mod server;

use dray_core::connections::{Direction, Flow, Mapping, Rule};
use load::{Came, Case};
use server::Rates;
use std::time::Duration;

fn run(flow: Flow, threads: u32, rule: Rule, whole: Option<f64>) -> Came {
    let case = Case {
        flow,
        threads,
        connections: 4,
        rule,
        before: Duration::from_millis(300),
        length: Duration::from_secs(1),
    };
    let rates = Rates {
        whole,
        ..Rates::default()
    };
    load::run(&case, rates).expect("a server on this host")
}

#[test]
fn one_thread_carries_several_times_as_much_by_several_connections() {
    let single = Rule::Always(Mapping::ThreadToSingle);
    for flow in [
        Flow {
            direction: Direction::Read,
            waits: true,
        },
        Flow {
            direction: Direction::Write,
            waits: false,
        },
    ] {
        let one = run(flow, 1, single, None);
        let all = run(flow, 1, Rule::Automatic, None);
        assert_eq!(one.carried.iter().filter(|each| each.calls > 0).count(), 1);
        assert!(
            all.carried
                .iter()
                .all(|each| each.calls > 0 && each.broken == 0)
        );
        let times = all.rate / one.rate;
        assert!(
            times > 2.0,
            "{flow:?}: {times:.2} times, by {:?}",
            all.setting
        );
    }
}

#[test]
fn several_connections_carry_no_more_than_the_server_does() {
    let whole = 24.0 * 1048576.0;
    let flow = Flow {
        direction: Direction::Read,
        waits: true,
    };
    let came = run(flow, 8, Rule::Automatic, Some(whole));
    // The tolerance covers bytes that were in flight when the measured second began.
    assert!(came.rate < 1.25 * whole, "{:.0} of {whole}", came.rate);
}

#[test]
fn threads_with_connections_of_their_own_do_not_wait_for_locks_at_the_server() {
    let flow = Flow {
        direction: Direction::Write,
        waits: false,
    };
    let came = run(flow, 4, Rule::Automatic, None);
    assert_eq!(came.setting.mapping, Mapping::ThreadToSingle);
    let few = run(flow, 2, Rule::Always(Mapping::ThreadToMultiple), None);
    assert_eq!((came.lock_waits, came.lock_seconds), (0, 0.0));
    assert!(few.lock_waits > 0 && few.lock_seconds > 0.0);
}

//! Measures the throughput of several connections to one server. Threads read or write through a
//! pool of connections. The server runs on the loopback interface. Each thread of the server serves
//! one connection at a fixed rate.
//!
//! ```text
//! connections read|write sync|async THREADS CONNECTIONS single|multiple|auto [NAME=NUMBER...]
//! ```
//!
//! The program prints one JSON object. `integration/bench/connections.py` runs all cases.
#![expect(clippy::print_stdout, reason = "a program")]

mod load;
mod server;

use dray_core::connections::{Direction, Flow, Mapping, Rule};
use load::Case;
use serde_json::json;
use std::time::Duration;

const USAGE: &str = "connections read|write sync|async THREADS CONNECTIONS single|multiple|auto \
                     [before=SECONDS] [seconds=SECONDS] [server=MIB] [locked=SHARE]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [direction, mode, threads, connections, rule, more @ ..] = &words[..] else {
        return Err(USAGE.into());
    };
    let direction = match direction.as_str() {
        "read" => Direction::Read,
        "write" => Direction::Write,
        _ => return Err(USAGE.into()),
    };
    let waits = match mode.as_str() {
        "sync" => true,
        "async" => false,
        _ => return Err(USAGE.into()),
    };
    let mut case = Case {
        flow: Flow { direction, waits },
        threads: threads.parse()?,
        connections: connections.parse()?,
        rule: match rule.as_str() {
            "single" => Rule::Always(Mapping::ThreadToSingle),
            "multiple" => Rule::Always(Mapping::ThreadToMultiple),
            "auto" => Rule::Automatic,
            _ => return Err(USAGE.into()),
        },
        before: Duration::from_millis(500),
        length: Duration::from_secs(2),
    };
    let mut rates = server::Rates::default();
    for word in more {
        let (name, number) = word.split_once('=').ok_or(USAGE)?;
        let number: f64 = number.parse()?;
        match name {
            "before" => case.before = Duration::try_from_secs_f64(number)?,
            "seconds" => case.length = Duration::try_from_secs_f64(number)?,
            "server" => rates.whole = Some(number * 1048576.0),
            "locked" if (0.0..=1.0).contains(&number) => rates.locked = number,
            _ => return Err(USAGE.into()),
        }
    }
    let came = load::run(&case, rates)?;
    let carried: Vec<u64> = came.carried.iter().map(|each| each.bytes).collect();
    println!(
        "{}",
        json!({
            "bytes_per_second": came.rate,
            "of_one": came.rate / rates.connection,
            "lock_waits": came.lock_waits,
            "lock_seconds": came.lock_seconds,
            "setting": format!("{:?}", came.setting),
            "carried": carried,
        })
    );
    Ok(())
}

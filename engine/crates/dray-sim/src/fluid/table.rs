//! Runs a load that is read as a table. This serves experiments in which another program decides
//! about later transfers. The other program runs a table of the first transfers, reads the end
//! times, adds the next transfers to the table, and runs the whole table again. Later transfers do
//! not change the results of earlier transfers, so the last run contains all results.

use super::{Admission, Brokered, Load, Plain, Report, Resource, ResourceIndex, Sizes, run};
use super::{Conductor, Transfer};
use dray_core::Time;
use dray_core::rate::Class;
use dray_sched::broker::Config;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of transfers in a table. A larger table is refused as a mistake.
const TRANSFERS_MAX: usize = 10_000;

/// Maximum time in a table in seconds, about ten years.
const SECONDS_MAX: f64 = 3.2e8;

/// Runs a table with these fields:
///
/// - `rule`: `broker`, `fair`, `edf` or `fcfs`;
/// - `resources`: bytes per second, by name;
/// - `transfers`: objects with `name`, `arrives` (seconds), `bytes`, `resources`, and optionally
///   `owner` and `deadline` (seconds).
///
/// Returns one result for each transfer, by name. The result is the end time of the transfer, or
/// that the transfer was refused, or that the broker reported a missed promise.
///
/// # Errors
/// A message for an invalid table.
pub fn results(text: &str) -> Result<Value, String> {
    let table: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let load = read(&table)?;
    let rule = table["rule"].as_str().unwrap_or("broker");
    if rule == "broker" {
        let config = Config::default();
        let mut broker = Brokered::new(&load, config, Admission::Tested, Sizes::Configured);
        let report = conducted(&load, &mut broker)?;
        let foretold: Vec<usize> = broker.foretold.iter().map(|(index, _)| index.0).collect();
        return Ok(told(&load, &report, &foretold));
    }
    let mut plain = (Plain::ALL.into_iter().find(|plain| plain.name() == rule))
        .ok_or_else(|| format!("the rule {rule:?} does not exist"))?;
    let report = conducted(&load, &mut plain)?;
    Ok(told(&load, &report, &[]))
}

fn conducted(load: &Load, conductor: &mut dyn Conductor) -> Result<Report, String> {
    run(load, conductor).map_err(|fault| fault.to_string())
}

fn told(load: &Load, report: &Report, foretold: &[usize]) -> Value {
    let each = load.transfers.iter().zip(&report.transfers).enumerate();
    let transfers = each.map(|(at, (transfer, record))| {
        let finished = record.finished.map(|time| time.since(Time::ZERO));
        let said = json!({
            "finished": finished.map(|length| length.as_secs_f64()),
            "is_refused": record.is_refused,
            "is_foretold": foretold.contains(&at),
        });
        (transfer.name.clone(), said)
    });
    json!({
        "transfers": Value::Object(transfers.collect()),
        "idle_seconds": report.idle_seconds,
    })
}

fn read(table: &Value) -> Result<Load, String> {
    let mut load = Load::default();
    let mut known: BTreeMap<&str, ResourceIndex> = BTreeMap::new();
    let resources = table["resources"]
        .as_object()
        .ok_or("the table has no resources")?;
    for (name, rate) in resources {
        let rate = number(rate).filter(|rate| *rate >= 1.0);
        let rate = rate.ok_or_else(|| format!("resource {name} has no rate"))?;
        known.insert(name, load.share(Resource::steady(name, rate)));
    }
    let transfers = table["transfers"]
        .as_array()
        .ok_or("the table has no transfers")?;
    if transfers.len() > TRANSFERS_MAX {
        return Err(format!("more than {TRANSFERS_MAX} transfers"));
    }
    for words in transfers {
        let name = words["name"].as_str().ok_or("a transfer has no name")?;
        let bad = |what: &str| format!("transfer {name}: {what}");
        if load.transfers.iter().any(|other| other.name == name) {
            return Err(bad("two transfers have this name"));
        }
        let used = words["resources"].as_array();
        let used = used.ok_or_else(|| bad("the field `resources` is missing or is not a list"))?;
        let used: Option<Vec<ResourceIndex>> = (used.iter())
            .map(|resource| known.get(resource.as_str()?).copied())
            .collect();
        let used =
            used.ok_or_else(|| bad("the transfer uses a resource that the table does not define"))?;
        let arrives = time(&words["arrives"])
            .ok_or_else(|| bad("the transfer has no valid time of arrival"))?;
        let bytes = words["bytes"]
            .as_u64()
            .ok_or_else(|| bad("the transfer has no valid size"))?;
        let mut transfer = Transfer::new(name, arrives, bytes, &used);
        words["owner"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut transfer.owner);
        if !words["deadline"].is_null() {
            let deadline = time(&words["deadline"])
                .ok_or_else(|| bad("the deadline of the transfer is not valid"))?;
            transfer.deadline = Some(deadline);
            transfer.class = Class::Deadline;
        }
        load.submit(transfer);
    }
    Ok(load)
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

fn time(value: &Value) -> Option<Time> {
    let seconds = number(value).filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds))?;
    Some(Time::ZERO + Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::results;
    use serde_json::{Value, json};

    fn table(rule: &str) -> Value {
        json!({
            "rule": rule,
            "resources": {"link": 1e8},
            "transfers": [
                {"name": "bulk", "arrives": 0, "bytes": 100_000_000_000_u64,
                 "resources": ["link"], "owner": "x"},
                {"name": "due", "arrives": 10, "bytes": 9_000_000_000_u64,
                 "resources": ["link"], "owner": "y", "deadline": 120},
            ],
        })
    }

    fn finished(value: &Value, name: &str) -> f64 {
        value["transfers"][name]["finished"]
            .as_f64()
            .expect("it is done")
    }

    #[test]
    fn a_deadline_of_a_table_is_kept_by_the_broker_and_missed_by_equal_shares() {
        let kept = results(&table("broker").to_string()).expect("it runs");
        assert!(finished(&kept, "due") <= 120.0, "{kept}");
        let late = results(&table("fair").to_string()).expect("it runs");
        assert!((finished(&late, "due") - 190.0).abs() < 1e-6, "{late}");
        assert!((finished(&late, "bulk") - 1_090.0).abs() < 1e-6, "{late}");
    }

    #[test]
    fn later_arrivals_change_no_earlier_event() {
        let mut longer = table("broker");
        let before = results(&longer.to_string()).expect("it runs");
        let due = finished(&before, "due");
        let more = json!({"name": "more", "arrives": due, "bytes": 5_000_000_000_u64, "resources": ["link"],
            "deadline": due + 60.0});
        longer["transfers"]
            .as_array_mut()
            .expect("a list")
            .push(more);
        let after = results(&longer.to_string()).expect("it runs");
        assert!((finished(&after, "due") - due).abs() < 1e-9);
        assert!(finished(&after, "more") <= due + 60.0);
    }

    #[test]
    fn what_cannot_be_promised_is_refused_and_what_makes_no_sense_is_said() {
        let mut much = table("broker");
        much["transfers"][1]["deadline"] = json!(50);
        let refused = results(&much.to_string()).expect("it runs");
        assert_eq!(refused["transfers"]["due"]["is_refused"], json!(true));
        for (place, value, words) in [
            ("/rule", json!("none"), "does not exist"),
            ("/resources/link", json!(0), "has no rate"),
            (
                "/transfers/0/resources",
                json!(["other"]),
                "a resource that the table does not define",
            ),
            (
                "/transfers/0/arrives",
                json!(-1),
                "no valid time of arrival",
            ),
            ("/transfers/0/bytes", json!("x"), "has no valid size"),
            (
                "/transfers/0/name",
                json!("due"),
                "two transfers have this name",
            ),
            (
                "/transfers/1/deadline",
                json!("soon"),
                "the deadline of the transfer is not valid",
            ),
        ] {
            let mut wrong = table("broker");
            *wrong.pointer_mut(place).expect("it is there") = value;
            let error = results(&wrong.to_string()).expect_err(place);
            assert!(error.contains(words), "{place}: {error}");
        }
        assert!(results("{").is_err());
    }
}

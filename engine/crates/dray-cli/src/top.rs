//! `dray top`: shows the transfers of an endpoint, their owners, the state of their promises, and
//! the tiers.
//! On a terminal the view refreshes every second. Otherwise it is printed once.

use crate::args::Top;
use crate::exit::{Exit, Stop};
use crate::output;
use crate::peer;
use crate::transfers::why_held;
use crate::units::{count, human};
use dray_api::{
    State, TargetEnd, TargetList, TargetState, TierList, Timestamp, Transfer, TransferList,
};
use dray_client::{Answer, Client};
use dray_core::rate::Class;
use dray_core::url::SCHEME;
use dray_core::{ErrorKind, Result};
use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

/// Interval between two refreshes on a terminal.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum number of transfers that are fetched. If the endpoint has more, the output says so.
const TRANSFERS_MAX: u32 = 1_000;

/// Terminal sequence that moves the cursor to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs `dray top`.
pub(crate) fn run(top: &Top) -> Result<Exit, Stop> {
    let address = peer::endpoint(top.endpoint.as_deref())?;
    let client = peer::client(&top.ask.who, &address)?;
    let is_live = !top.once && !top.ask.json && std::io::stdout().is_terminal();
    loop {
        let (transfers, is_all) = look(&client)?;
        let tiers = tiers(&client)?;
        let targets = targets(&client)?;
        if top.ask.json {
            let mut sums = sums(&transfers, is_all);
            sums["targets"] = targets.map_or(json!([]), |all| all.json["targets"].clone());
            sums["tiers"] = tiers.map_or(json!([]), |tiers| tiers.json["tiers"].clone());
            output::result(&sums.to_string());
            return Ok(Exit::Safe);
        }
        let why_held = match transfers.iter().any(|one| one.read.held) {
            true => why_held(&client),
            false => String::new(),
        };
        let mut lines = lines(&address, &transfers, is_all, &why_held);
        lines.extend(targets.iter().flat_map(|all| target_lines(&all.read)));
        for tier in tiers.iter().flat_map(|tiers| &tiers.read.tiers) {
            lines.push(String::new());
            lines.extend(crate::tiers::lines(tier));
        }
        if !is_live {
            lines.iter().for_each(|line| output::result(line));
            return Ok(Exit::Safe);
        }
        output::text(&format!("{CLEAR}{}\n", lines.join("\n")));
        std::thread::sleep(EVERY);
    }
}

fn look(client: &Client) -> Result<(Vec<Answer<Transfer>>, bool)> {
    let query = format!("/v1/transfers?state=live&limit={TRANSFERS_MAX}");
    let answer = client.ask::<TransferList>(Method::GET, &query, None)?;
    let jsons = answer.json.get("transfers").and_then(Value::as_array);
    let all = answer
        .read
        .transfers
        .into_iter()
        .zip(jsons.into_iter().flatten());
    let all = all.map(|(read, json)| Answer {
        read,
        json: json.clone(),
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|one| order(&one.read));
    Ok((all, answer.read.next.is_none()))
}

/// Returns the tiers of the endpoint. Returns `None` if an older endpoint does not know tiers.
fn tiers(client: &Client) -> Result<Option<Answer<TierList>>> {
    match client.ask(Method::GET, "/v1/tiers", None) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the storage targets of the endpoint's sessions. Returns `None` if an older endpoint does
/// not know this call.
fn targets(client: &Client) -> Result<Option<Answer<TargetList>>> {
    match client.ask(Method::GET, "/v1/targets", None) {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a table of the storage targets. Empty if no session uses a target.
fn target_lines(all: &TargetList) -> Vec<String> {
    if all.targets.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        String::new(),
        format!(
            "{:<28} {:<6} {:>9} {:>12}  STATE",
            "TARGET", "END", "UNDER WAY", "SERVICE"
        ),
    ];
    for target in &all.targets {
        let end = match target.end {
            TargetEnd::Source => "source",
            TargetEnd::Sink => "sink",
        };
        let state = match target.state {
            TargetState::Fair => "fair",
            TargetState::Congested => "congested",
            TargetState::Stuck => "STUCK",
        };
        let service = target.service_seconds;
        let service = service.map_or(String::new(), |time| format!("{:.1} ms", time * 1e3));
        lines.push(format!(
            "{:<28} {end:<6} {:>9} {service:>12}  {state}",
            shown(&target.name),
            target.under_way
        ));
    }
    lines
}

/// Sort key: promised transfers first, then transfers without a promise. In each of these two
/// groups, transfers without a deadline come first, then the other transfers in the order of their
/// deadlines. Among equal deadlines, running transfers come first, then the transfer that was
/// submitted first.
fn order(transfer: &Transfer) -> (bool, Option<Timestamp>, bool, Timestamp) {
    let runs = transfer.state == State::Active;
    let due = transfer.request.deadline;
    (!transfer.promised, due, !runs, transfer.submitted_at)
}

fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}

fn time(moment: Option<Timestamp>) -> String {
    moment.map_or(String::new(), |moment| moment.to_string())
}

/// Returns the host of the other endpoint, as the transfer's URL names it.
fn other(transfer: &Transfer) -> String {
    let request = &transfer.request;
    let origin = match transfer.source.checked_sub(1) {
        None => request.sources.first(),
        Some(replica) => request.replicas.get(replica as usize),
    };
    let places = origin.into_iter().chain([&request.destination]);
    let mut hosts = places.filter_map(|place| place.url.strip_prefix(SCHEME)?.split('/').next());
    hosts.next().map_or_else(|| "(within)".to_owned(), shown)
}

fn class(transfer: &Transfer) -> String {
    let class = match (transfer.request.class, transfer.request.deadline) {
        (Some(class), _) => class,
        (None, Some(_)) => Class::Deadline,
        (None, None) => Class::Background,
    };
    match class {
        Class::Realtime => "realtime".to_owned(),
        Class::Deadline => "deadline".to_owned(),
        Class::Background => "background".to_owned(),
    }
}

fn owner(transfer: &Transfer) -> String {
    shown(&transfer.owner)
}

/// Returns one word for the state of the transfer's promise.
fn standing(transfer: &Transfer) -> &'static str {
    match (transfer.promised, transfer.miss.is_some()) {
        (true, true) => "LATE",
        (true, false) => "kept",
        (false, _) if transfer.request.deadline.is_some() => "no",
        _ => "",
    }
}

/// Groups the transfers by the result of `name`. Returns three values for each group: the number of
/// transfers, the sum of their current rates, and the sum of their planned rates.
fn by(
    transfers: &[Answer<Transfer>],
    name: fn(&Transfer) -> String,
) -> BTreeMap<String, (u64, u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for transfer in transfers {
        let transfer = &transfer.read;
        let sum = sums.entry(name(transfer)).or_default();
        sum.0 += 1;
        sum.1 += transfer.rate.now.unwrap_or(0);
        sum.2 += transfer.rate.planned.unwrap_or(0);
    }
    sums
}

fn sums(transfers: &[Answer<Transfer>], is_all: bool) -> Value {
    let group = |name: fn(&Transfer) -> String| {
        let sums = by(transfers, name).into_iter();
        let sums = sums.map(|(name, (count, now, planned))| {
            let sum = json!({"transfers": count, "rate_now": now, "rate_planned": planned});
            (name, sum)
        });
        Value::Object(sums.collect())
    };
    json!({
        "transfers": transfers.iter().map(|one| &one.json).collect::<Vec<_>>(),
        "is_all": is_all,
        "peers": group(other),
        "owners": group(owner),
        "classes": group(class),
    })
}

/// Adds the row of a transfer, and the reasons why it waits or will be late.
fn push_transfer(lines: &mut Vec<String>, one: &Transfer, why_held: &str) {
    lines.push(format!(
        "{:<20} {:<10} {:<10} {:<8} {:>12} {:>12} {:>12} {:>7} {:<7} {:<24}",
        shown(&one.id),
        owner(one),
        class(one),
        match one.held {
            true => "held",
            false => one.state.word(),
        },
        human(one.bytes.durable),
        human(one.rate.now.unwrap_or(0)),
        human(one.rate.planned.unwrap_or(0)),
        one.streams
            .map_or(String::new(), |streams| streams.to_string()),
        standing(one),
        time(one.request.deadline),
    ));
    if one.held {
        lines.push(format!("    {why_held}"));
    }
    if let Some(miss) = one.miss.as_ref().filter(|miss| !miss.cause.is_empty()) {
        let earliest = time(miss.earliest_finish);
        let cause = shown(&miss.cause);
        lines.push(format!("    {cause}; done at the earliest at {earliest}"));
    }
}

fn lines(
    address: &str,
    transfers: &[Answer<Transfer>],
    is_all: bool,
    why_held: &str,
) -> Vec<String> {
    let held = transfers.iter().filter(|one| one.read.held).count() as u64;
    let total = by(transfers, |_| String::new())
        .remove("")
        .unwrap_or_default();
    let late = transfers
        .iter()
        .filter(|one| standing(&one.read) == "LATE")
        .count();
    let mut lines = vec![
        format!(
            "{address}: {}{}, {}/s now, {}/s planned{}",
            count(total.0, "transfer"),
            match held {
                0 => String::new(),
                held => format!(", {held} held"),
            },
            human(total.1),
            human(total.2),
            match late {
                0 => String::new(),
                late => format!(", {} will be missed", count(late as u64, "promise")),
            },
        ),
        format!(
            "{:<20} {:<10} {:<10} {:<8} {:>12} {:>12} {:>12} {:>7} {:<7} {:<24}",
            "ID",
            "OWNER",
            "CLASS",
            "STATE",
            "SAFE",
            "NOW/s",
            "PLANNED/s",
            "STREAMS",
            "PROMISE",
            "DEADLINE"
        ),
    ];
    for one in transfers {
        push_transfer(&mut lines, &one.read, why_held);
    }
    for (title, sums) in [
        ("peer", by(transfers, other)),
        ("owner", by(transfers, owner)),
    ] {
        for (name, (of_it, now, planned)) in sums {
            lines.push(format!(
                "{title} {name}: {}, {}/s now, {}/s planned",
                count(of_it, "transfer"),
                human(now),
                human(planned)
            ));
        }
    }
    if !is_all {
        lines.push(format!(
            "more than {TRANSFERS_MAX} transfers have not ended; the list shows the newest of them"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{TargetList, lines, order, sums, target_lines};
    use crate::fixtures::answer;
    use dray_api::Transfer;
    use dray_client::Answer;
    use serde_json::{Value, json};

    fn transfer(id: &str, more: Value) -> Answer<Transfer> {
        let mut fields = json!({"id": id, "bytes": {"durable": 5 << 20},
            "rate": {"now": 3 << 20}});
        let more = more.as_object().cloned().unwrap_or_default();
        fields.as_object_mut().expect("an object").extend(more);
        answer(&fields)
    }

    #[test]
    fn targets_are_shown_with_their_service_time_and_state() {
        let all: TargetList = serde_json::from_value(json!({"targets": [
            {"end": "source", "name": "osd.2", "sessions": 1, "under_way": 3,
                "service_seconds": 0.0125, "state": "congested"},
            {"end": "sink", "name": "disk", "sessions": 1, "under_way": 0,
                "service_seconds": null, "state": "fair"}]}))
        .expect("targets");
        let lines = target_lines(&all);
        assert!(lines[2].starts_with("osd.2 ") && lines[2].contains(" 12.5 ms  congested"));
        assert!(lines[3].contains(" sink ") && lines[3].ends_with("  fair"));
        let none = TargetList {
            targets: Vec::new(),
        };
        assert!(target_lines(&none).is_empty());
    }

    #[test]
    fn a_held_transfer_is_shown_with_its_reason() {
        let all = [
            transfer("waits", json!({"held": true})),
            transfer("moves", json!({"held": false})),
        ];
        let lines = lines("a.example:4735", &all, true, "held by the policy x: y");
        assert!(lines[0].contains("2 transfers, 1 held, "), "{}", lines[0]);
        assert!(lines[2].contains(" held ") && !lines[2].contains("active"));
        assert_eq!(lines[3], "    held by the policy x: y");
        assert!(lines[4].contains(" active "));
    }

    #[test]
    fn how_many_streams_carry_a_transfer_is_shown_where_it_is_known() {
        let all = [
            transfer("tuned", json!({"streams": 12})),
            transfer("waits", json!({"streams": null})),
        ];
        let lines = lines("a.example:4735", &all, true, "");
        let at = lines[1].find("STREAMS").expect("a column");
        let cell = |line: usize| lines[line][at..at + 7].trim();
        assert_eq!((cell(2), cell(3)), ("12", ""));
    }

    #[test]
    fn promised_transfers_come_first_and_a_miss_has_its_cause() {
        let due = json!({"sources": [{"url": "/data/y"}],
            "destination": {"url": "dray://c.example/x"},
            "deadline": "2030-01-01T00:00:00Z"});
        let late = transfer(
            "late",
            json!({"promised": true, "request": due, "rate": {"now": 1 << 20, "planned": 2 << 20},
                "miss": {"cause": "a slow disk", "deadline": null,
                    "earliest_finish": "2030-01-01T01:00:00Z"}}),
        );
        let mut all = vec![transfer("plain", json!({"owner": "bob"})), late];
        all.sort_by_key(|one| order(&one.read));
        assert_eq!(all[0].read.id, "late");
        let text = lines("a.example:4735", &all, true, "").join("\n");
        for said in [
            "2 transfers, 4.0 MiB/s now, 2.0 MiB/s planned, 1 promise will be missed",
            "LATE",
            "a slow disk; done at the earliest at 2030-01-01T01:00:00.000Z",
            "peer b.example:4735: 1 transfer, 3.0 MiB/s now",
            "peer c.example: 1 transfer",
            "owner bob: 1 transfer",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        let sums = sums(&all, false);
        assert_eq!(sums["classes"]["deadline"]["rate_planned"], json!(2 << 20));
        assert_eq!(sums["is_all"], json!(false));
    }
}

//! `dray top`: what an endpoint moves now, for whom, and which deadlines it keeps. Once a second on a
//! terminal, else once.

use crate::args::Top;
use crate::exit::{Exit, Stop};
use crate::output;
use crate::peer::{self, odd_answer};
use crate::transfers::{is_held, why_held};
use crate::units::{count, human};
use dray_client::Client;
use dray_core::Result;
use hyper::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

/// How often a terminal is written anew.
const EVERY: Duration = Duration::from_secs(1);

/// Transfers that are looked at; an endpoint that has more of them live says so.
const TRANSFERS_MAX: u32 = 1_000;

/// Back to the first cell, and all below it empty.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs `dray top`.
pub(crate) fn run(top: &Top) -> Result<Exit, Stop> {
    let address = peer::endpoint(top.endpoint.as_deref())?;
    let client = peer::client(&top.ask.who, &address)?;
    let is_live = !top.once && !top.ask.json && std::io::stdout().is_terminal();
    loop {
        let (transfers, is_all) = look(&client)?;
        if top.ask.json {
            output::result(&sums(&transfers, is_all).to_string());
            return Ok(Exit::Safe);
        }
        let why_held = match transfers.iter().any(is_held) {
            true => why_held(&client),
            false => String::new(),
        };
        let lines = lines(&address, &transfers, is_all, &why_held);
        if !is_live {
            lines.iter().for_each(|line| output::result(line));
            return Ok(Exit::Safe);
        }
        output::text(&format!("{CLEAR}{}\n", lines.join("\n")));
        std::thread::sleep(EVERY);
    }
}

fn look(client: &Client) -> Result<(Vec<Value>, bool)> {
    let query = format!("/v1/transfers?state=live&limit={TRANSFERS_MAX}");
    let answer = client.call_and_wait(Method::GET, &query, None)?;
    let all = answer.get("transfers").and_then(Value::as_array);
    let mut all = all.ok_or_else(|| odd_answer("transfers"))?.clone();
    all.sort_by_key(order);
    Ok((all, answer.get("next").is_none_or(Value::is_null)))
}

/// What is promised first, by deadline; then what runs; then the rest.
fn order(transfer: &Value) -> (bool, String, bool, String) {
    let is_promised = transfer.get("promised").and_then(Value::as_bool) == Some(true);
    let runs = text(transfer, "/state") == "active";
    let due = text(transfer, "/request/deadline");
    (!is_promised, due, !runs, text(transfer, "/submitted_at"))
}

fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn number(value: &Value, pointer: &str) -> u64 {
    // Rates of now are whole numbers too.
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// The other endpoint, as its URL names it.
fn other(transfer: &Value) -> String {
    let source = transfer.get("source").and_then(Value::as_u64).unwrap_or(0);
    let origin = match source.checked_sub(1) {
        None => "/request/sources/0/url".to_owned(),
        Some(replica) => format!("/request/replicas/{replica}/url"),
    };
    let urls = [
        text(transfer, &origin),
        text(transfer, "/request/destination/url"),
    ];
    let mut hosts = (urls.iter()).filter_map(|url| url.strip_prefix("dray://")?.split('/').next());
    hosts.next().unwrap_or("(within)").to_owned()
}

fn class(transfer: &Value) -> String {
    match text(transfer, "/request/class") {
        named if !named.is_empty() => named,
        _ if !text(transfer, "/request/deadline").is_empty() => "deadline".to_owned(),
        _ => "background".to_owned(),
    }
}

/// How it stands with its promise, in a word.
fn standing(transfer: &Value) -> &'static str {
    let is_promised = transfer.get("promised").and_then(Value::as_bool) == Some(true);
    let has_miss = transfer.get("miss").is_some_and(|miss| !miss.is_null());
    match (is_promised, has_miss) {
        (true, true) => "LATE",
        (true, false) => "kept",
        (false, _) if !text(transfer, "/request/deadline").is_empty() => "no",
        _ => "",
    }
}

/// Rates by `name`: of now, and planned.
fn by(transfers: &[Value], name: fn(&Value) -> String) -> BTreeMap<String, (u64, u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for transfer in transfers {
        let sum = sums.entry(name(transfer)).or_default();
        sum.0 += 1;
        sum.1 += number(transfer, "/rate/now");
        sum.2 += number(transfer, "/rate/planned");
    }
    sums
}

fn sums(transfers: &[Value], is_all: bool) -> Value {
    let group = |name: fn(&Value) -> String| {
        let sums = by(transfers, name).into_iter();
        let sums = sums.map(|(name, (count, now, planned))| {
            let sum = json!({"transfers": count, "rate_now": now, "rate_planned": planned});
            (name, sum)
        });
        Value::Object(sums.collect())
    };
    json!({
        "transfers": transfers,
        "is_all": is_all,
        "peers": group(other),
        "owners": group(|transfer| text(transfer, "/owner")),
        "classes": group(class),
    })
}

fn lines(address: &str, transfers: &[Value], is_all: bool, why_held: &str) -> Vec<String> {
    let held = transfers.iter().filter(|one| is_held(one)).count() as u64;
    let total = by(transfers, |_| String::new())
        .remove("")
        .unwrap_or_default();
    let late = transfers
        .iter()
        .filter(|one| standing(one) == "LATE")
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
        lines.push(format!(
            "{:<20} {:<10} {:<10} {:<8} {:>12} {:>12} {:>12} {:>7} {:<7} {:<24}",
            text(one, "/id"),
            text(one, "/owner"),
            class(one),
            match is_held(one) {
                true => "held".to_owned(),
                false => text(one, "/state"),
            },
            human(number(one, "/bytes/durable")),
            human(number(one, "/rate/now")),
            human(number(one, "/rate/planned")),
            text(one, "/streams"),
            standing(one),
            text(one, "/request/deadline"),
        ));
        if is_held(one) {
            lines.push(format!("    {why_held}"));
        }
        let cause = text(one, "/miss/cause");
        if !cause.is_empty() {
            let earliest = text(one, "/miss/earliest_finish");
            lines.push(format!("    {cause}; at the earliest {earliest}"));
        }
    }
    let owner = |transfer: &Value| text(transfer, "/owner");
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
            "more than {TRANSFERS_MAX} are live: these are the newest"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{lines, order, sums};
    use serde_json::{Value, json};

    fn transfer(id: &str, more: Value) -> Value {
        let mut one = json!({"id": id, "owner": "alice", "state": "active", "source": 0,
            "request": {"sources": [{"url": "dray://b.example:4735/data/x"}],
                "destination": {"url": "/data/x"}},
            "bytes": {"durable": 5 << 20}, "rate": {"now": 3 << 20, "planned": null},
            "promised": false, "miss": null});
        let fields = more.as_object().cloned().unwrap_or_default();
        one.as_object_mut().expect("an object").extend(fields);
        one
    }

    #[test]
    fn who_is_held_is_shown_so_with_the_reason() {
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
    fn what_is_promised_comes_first_and_a_miss_says_why() {
        let due = json!({"sources": [], "destination": {"url": "dray://c.example/x"},
            "deadline": "2030-01-01T00:00:00Z"});
        let late = transfer(
            "late",
            json!({"promised": true, "request": due, "rate": {"now": 1 << 20, "planned": 2 << 20},
                "miss": {"cause": "a slow disk", "earliest_finish": "2030-01-01T01:00:00Z"}}),
        );
        let mut all = vec![transfer("plain", json!({"owner": "bob"})), late];
        all.sort_by_key(order);
        assert_eq!(all[0]["id"], "late");
        let text = lines("a.example:4735", &all, true, "").join("\n");
        for said in [
            "2 transfers, 4.0 MiB/s now, 2.0 MiB/s planned, 1 promise will be missed",
            "LATE",
            "a slow disk; at the earliest 2030-01-01T01:00:00Z",
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

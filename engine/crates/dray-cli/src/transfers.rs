//! Commands that ask an endpoint about its transfers.

use crate::args::{Ask, Cancel, ShowTransfer, Transfers};
use crate::exit::{Exit, Stop};
use crate::output;
use crate::peer::{self, odd_answer};
use crate::report::held_up_by;
use crate::units::{count, duration, human};
use dray_client::Client;
use dray_core::profile::Stage;
use dray_core::{Error, ErrorKind, Result};
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long `dray cancel` waits for a session to end.
const CANCEL_SECONDS: u64 = 5;

/// Seconds of one long poll.
const POLL_SECONDS: u64 = 30;

/// Wait before an endpoint is asked again that could not be reached.
const AGAIN: Duration = Duration::from_secs(2);

/// How long an endpoint that is waited for may take to answer for the first time: it is asked right
/// after a start, too. A wrong address should not take longer than a person looks at it (guess,
/// revisit).
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Text of a query with all that may not stand in one as it is written as `%HH`.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                quoted.push(char::from(byte));
            }
            // Into a string nothing fails.
            other => drop(write!(quoted, "%{other:02X}")),
        }
    }
    quoted
}

/// The text of a field, escaped for a terminal; nothing for what is none.
pub(crate) fn text(value: &Value, field: &str) -> String {
    match value.get(field) {
        Some(Value::String(text)) => output::one_line(text),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// The texts of a field that is a list, each escaped for a terminal.
fn texts(value: &Value, field: &str) -> Vec<String> {
    let all = value.get(field).and_then(Value::as_array);
    let all = all.into_iter().flatten().filter_map(Value::as_str);
    all.map(output::one_line).collect()
}

pub(crate) fn number(value: &Value, group: &str, field: &str) -> u64 {
    let group = if group.is_empty() {
        Some(value)
    } else {
        value.get(group)
    };
    let number = group.and_then(|group| group.get(field));
    number.and_then(Value::as_u64).unwrap_or(0)
}

fn client(endpoint: Option<&str>, ask: &Ask) -> Result<Client> {
    peer::client(&ask.who, &peer::endpoint(endpoint)?)
}

/// Runs `dray transfers`.
pub(crate) fn transfers(list: &Transfers) -> Result<Exit, Stop> {
    let client = client(list.endpoint.as_deref(), &list.ask)?;
    let mut query = format!("/v1/transfers?limit={}", list.limit);
    for state in &list.state {
        query += &format!("&state={}", quoted(state));
    }
    for label in &list.label {
        query += &format!("&label={}", quoted(label));
    }
    if let Some(activity) = &list.activity {
        query += &format!("&activity={}", quoted(activity));
    }
    let answer = client.call_and_wait(Method::GET, &query, None)?;
    if list.ask.json {
        output::result(&answer.to_string());
        return Ok(Exit::Safe);
    }
    let all = answer.get("transfers").and_then(Value::as_array);
    for transfer in all.ok_or_else(|| odd_answer("transfers"))? {
        output::result(&line(transfer));
    }
    if !text(&answer, "next").is_empty() {
        output::note("there are more: raise --limit, or narrow it with --state or --label");
    }
    Ok(Exit::Safe)
}

/// A transfer in one line.
pub(crate) fn line(transfer: &Value) -> String {
    let files = number(transfer, "files", "done") + number(transfer, "files", "skipped");
    let failed = match number(transfer, "files", "failed") {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = match number(transfer, "rate", "now") {
        0 => String::new(),
        rate => format!(", {}/s", human(rate)),
    };
    let error = match transfer.get("error") {
        Some(error) if !error.is_null() => format!("; {}", text(error, "message")),
        _ => String::new(),
    };
    let safe = match is_purged(transfer) {
        // The counters know what was safe before.
        true => " safe, the rest purged".to_owned(),
        false => format!(
            "{failed}, {} safe",
            human(number(transfer, "bytes", "durable"))
        ),
    };
    let held = match is_held(transfer) {
        true => ", held",
        false => "",
    };
    format!(
        "{} {}{held}: {}{safe}{rate}{error}",
        text(transfer, "id"),
        text(transfer, "state"),
        count(files, "file"),
    )
}

/// Whether what was unfinished is gone: the last notice says so (docs/reference/api.md).
fn is_purged(transfer: &Value) -> bool {
    let notices = transfer.get("notices").and_then(Value::as_array);
    let last = notices.and_then(|notices| notices.last()?.as_str());
    text(transfer, "state") == "cancelled" && last.is_some_and(|last| last.starts_with("purged: "))
}

/// Whether a transfer has a session and moves nothing, for others' sake.
pub(crate) fn is_held(transfer: &Value) -> bool {
    transfer.get("held").and_then(Value::as_bool) == Some(true)
}

/// Why what is held is held: what the endpoint's policy is.
pub(crate) fn why_held(client: &Client) -> String {
    // Said as well as it is known: an endpoint that is away says nothing.
    let about = client.call_and_wait(Method::GET, "/v1/endpoint", None);
    let about = about.unwrap_or_default();
    why_held_by(about.get("scheduling").unwrap_or(&Value::Null))
}

fn why_held_by(scheduling: &Value) -> String {
    let others = match text(scheduling, "policy").as_str() {
        "priority" => "others of a higher priority or class move first",
        "round_robin" => "it is others' turn",
        "pairs" => "another of the same two endpoints moves first",
        "fcfs" => "others that were submitted before it move first",
        _ => "others move first",
    };
    let policy = match text(scheduling, "policy") {
        name if name.is_empty() => String::new(),
        name => format!(" {name}"),
    };
    format!("held by the policy{policy}: {others}; it keeps its session and goes on by itself")
}

/// Runs `dray show`.
pub(crate) fn show(show: &ShowTransfer) -> Result<Exit, Stop> {
    let client = client(show.endpoint.as_deref(), &show.ask)?;
    let transfer = match show.wait {
        true => wait(&client, show.id.as_str(), |_| {})?,
        false => {
            let path = format!("/v1/transfers/{}", quoted(show.id.as_str()));
            client.call_and_wait(Method::GET, &path, None)?
        }
    };
    tell(&transfer, show.ask.json);
    if is_held(&transfer) && !show.ask.json {
        output::result(&format!("  {}", why_held(&client)));
    }
    Ok(match show.wait {
        true => exit_of(&transfer),
        false => Exit::Safe,
    })
}

/// Waits until a transfer has ended, however often the endpoint is away meanwhile; `seen` is given
/// each state of it.
pub(crate) fn wait(client: &Client, id: &str, mut seen: impl FnMut(&Value)) -> Result<Value> {
    let mut version = 0;
    let mut was_there = false;
    let begun = Instant::now();
    loop {
        // Answered when its state or its request changes; counters alone do not.
        let path = format!(
            "/v1/transfers/{}/wait?after={version}&timeout={POLL_SECONDS}",
            quoted(id)
        );
        match client.call_and_wait(Method::GET, &path, None) {
            Ok(transfer) => {
                was_there = true;
                version = number(&transfer, "", "version");
                seen(&transfer);
                if is_terminal(&transfer) {
                    return Ok(transfer);
                }
            }
            // An endpoint that restarts comes back, and the transfer with it.
            Err(error) if is_away(&error) && (was_there || begun.elapsed() < FIRST_ANSWER) => {
                std::thread::sleep(AGAIN);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_away(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy
    )
}

fn is_terminal(transfer: &Value) -> bool {
    let state = transfer.get("state").and_then(Value::as_str);
    matches!(state, Some("done" | "incomplete" | "failed" | "cancelled"))
}

/// How a command ends that waited for a transfer.
pub(crate) fn exit_of(transfer: &Value) -> Exit {
    match transfer.get("state").and_then(Value::as_str) {
        Some("done") => Exit::Safe,
        Some("cancelled") => Exit::Interrupted,
        Some("failed") if number(transfer, "files", "failed") == 0 => Exit::Refused,
        _ => Exit::SomeFailed,
    }
}

/// Says what there is to say of a transfer.
pub(crate) fn tell(transfer: &Value, json: bool) {
    if json {
        output::result(&transfer.to_string());
        return;
    }
    for line in lines(transfer) {
        output::result(&line);
    }
    for notice in texts(transfer, "notices") {
        output::result(&format!("  {notice}"));
    }
    let bottleneck = text(transfer, "bottleneck");
    let stage = Stage::ALL.into_iter().find(|one| one.name() == bottleneck);
    if let Some(stage) = stage {
        output::result(&format!("  held up most by {}", held_up_by(stage)));
    }
    for line in moments(transfer) {
        output::result(&format!("  {line}"));
    }
    if transfer.get("promised").and_then(Value::as_bool) == Some(true) {
        output::result(&promise_line(transfer));
    }
}

/// A transfer, and the files of it that failed.
pub(crate) fn lines(transfer: &Value) -> Vec<String> {
    let mut lines = vec![line(transfer)];
    let failures = transfer.get("failures").and_then(Value::as_array);
    for failure in failures.into_iter().flatten() {
        let error = failure.get("error").cloned().unwrap_or_default();
        let (path, message) = (text(failure, "path"), text(&error, "message"));
        lines.push(format!("  {path}: {message}"));
    }
    lines
}

/// When things of a transfer were, or will be.
fn moments(transfer: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let mut add = |words: &str, moment: String| {
        if !moment.is_empty() {
            all.push(format!("{words} {moment}"));
        }
    };
    add("submitted", text(transfer, "submitted_at"));
    // Of interest as long as it may be what it waits for.
    if matches!(text(transfer, "state").as_str(), "queued" | "paused") {
        let request = transfer.get("request").unwrap_or(&Value::Null);
        add("begins not before", text(request, "not_before"));
    }
    for (field, words) in [
        ("started_at", "started"),
        ("ended_at", "ended"),
        ("next_try_at", "next try at"),
        ("eta", "done about"),
    ] {
        add(words, text(transfer, field));
    }
    if let Some(seconds) = transfer.get("silent_seconds").and_then(Value::as_u64) {
        add("nothing has moved for", duration(seconds));
    }
    all
}

/// What is promised of it, and how that stands.
fn promise_line(transfer: &Value) -> String {
    let part = |name: &str| transfer.get(name).cloned().unwrap_or_default();
    let (request, between, miss) = (part("request"), part("eta_between"), part("miss"));
    let mut line = match text(&request, "deadline") {
        deadline if deadline.is_empty() => "  promised its rate".to_owned(),
        deadline => format!("  promised for {deadline}"),
    };
    match number(transfer, "rate", "planned") {
        0 => {}
        rate => line += &format!(", {}/s planned", human(rate)),
    }
    let early = text(&between, "early");
    if !early.is_empty() {
        let late = text(&between, "late");
        line += &format!(", done between {early} and {late}");
    }
    let cause = text(&miss, "cause");
    if !cause.is_empty() {
        line += &format!("; will be missed: {cause}");
    }
    line
}

/// Runs `dray cancel`.
pub(crate) fn cancel(cancel: &Cancel) -> Result<Exit, Stop> {
    let client = client(cancel.endpoint.as_deref(), &cancel.ask)?;
    let path = format!("/v1/transfers/{}/cancel", quoted(cancel.id.as_str()));
    let body = json!({"purge": cancel.purge});
    let asked = client.call_and_wait(Method::POST, &path, Some(&body))?;
    // Its session ends within moments: that is worth a wait, and no more.
    let path = format!(
        "/v1/transfers/{}/wait?after={}&timeout={CANCEL_SECONDS}",
        quoted(cancel.id.as_str()),
        version_before_end(&asked, cancel.purge)
    );
    let mut transfer = match client.call_and_wait(Method::GET, &path, None) {
        Ok(transfer) => transfer,
        // It was asked for, and stands.
        Err(error) if is_away(&error) => asked,
        Err(error) => return Err(error.into()),
    };
    if !cancel.ask.json && !is_terminal(&transfer) {
        transfer["state"] = json!("cancelling");
    }
    tell(&transfer, cancel.ask.json);
    Ok(Exit::Safe)
}

/// The version before the one that has nothing more to do, after a transfer was asked to be cancelled
/// so: one step for its session to end, one for its partial data to go.
fn version_before_end(asked: &Value, purge: bool) -> u64 {
    let steps = u64::from(!is_terminal(asked)) + u64::from(purge);
    (number(asked, "", "version") + steps).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::{line, moments, quoted};
    use serde_json::json;

    #[test]
    fn a_notice_of_another_end_drives_no_terminal() {
        let transfer = json!({"notices": ["ab\u{1b}[2Jc\nd", 7, "plain"]});
        assert_eq!(
            super::texts(&transfer, "notices"),
            ["ab\\u{1b}[2Jc\\nd", "plain"]
        );
        assert!(super::texts(&json!({}), "notices").is_empty());
    }

    #[test]
    fn what_is_to_come_is_told_as_such() {
        let waiting = json!({"state": "waiting", "submitted_at": "T1", "started_at": "T2",
            "next_try_at": "T3", "request": {"not_before": "T0"}});
        assert_eq!(
            moments(&waiting),
            ["submitted T1", "started T2", "next try at T3"]
        );
        let queued = json!({"state": "queued", "submitted_at": "T1", "started_at": null,
            "request": {"not_before": "T9"}});
        assert_eq!(moments(&queued), ["submitted T1", "begins not before T9"]);
    }

    #[test]
    fn nothing_of_what_was_purged_is_called_safe() {
        let mut transfer = json!({"id": "t", "state": "cancelled", "files": {"done": 1},
            "bytes": {"durable": 5 << 20}, "notices": ["purged: 1 partial file, 7 bytes"]});
        assert_eq!(line(&transfer), "t cancelled: 1 file safe, the rest purged");
        transfer["notices"] = json!(["nothing purged: what is there is another owner's"]);
        assert_eq!(line(&transfer), "t cancelled: 1 file, 5.0 MiB safe");
    }

    #[test]
    fn nothing_of_a_path_gets_out_of_its_place_in_a_query() {
        assert_eq!(quoted("/a b&c=ü?#%"), "/a%20b%26c%3D%C3%BC%3F%23%25");
    }
}

//! Commands that ask an endpoint: its transfers, and what lies beneath its roots.

use crate::args::{Algorithm, Ask, At, Cancel, Rm, ShowTransfer, Sum, Transfers};
use crate::exit::{Exit, Stop, usage};
use crate::output;
use crate::peer::{self, odd_answer};
use crate::units::{count, human};
use dray_core::{Error, ErrorKind, Result};
use dray_endpoint::client::Client;
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Entries that one answer may hold.
const PAGE: u32 = 1_000;

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
fn text(value: &Value, field: &str) -> String {
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

fn number(value: &Value, group: &str, field: &str) -> u64 {
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
    output::result(&line(transfer));
    let failures = transfer.get("failures").and_then(Value::as_array);
    for failure in failures.into_iter().flatten() {
        let error = failure.get("error").cloned().unwrap_or_default();
        output::result(&format!(
            "  {}: {}",
            text(failure, "path"),
            text(&error, "message")
        ));
    }
    for notice in texts(transfer, "notices") {
        output::result(&format!("  {notice}"));
    }
    for line in moments(transfer) {
        output::result(&format!("  {line}"));
    }
    if transfer.get("promised").and_then(Value::as_bool) == Some(true) {
        output::result(&promise_line(transfer));
    }
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

/// What a URL names.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// An endpoint, and with it all its roots.
    Roots(String),
    /// A path at an endpoint.
    Path(String, String),
}

/// What a URL names; for an endpoint alone its name is enough.
fn place(url: &str) -> Result<Place> {
    let rest = match url.strip_prefix("dray://") {
        None if url.trim_end_matches('/').contains('/') => return Err(no_place(url)),
        rest => rest.unwrap_or(url),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if host.is_empty() {
        return Err(no_place(url));
    }
    let address = peer::endpoint(Some(host))?;
    Ok(match path.trim_end_matches('/').is_empty() {
        true => Place::Roots(address),
        false => Place::Path(address, path.to_owned()),
    })
}

fn no_place(url: &str) -> Error {
    usage(
        format!("{url:?} is no place at an endpoint"),
        "write dray://HOST[:PORT]/ROOT/PATH",
    )
}

/// The endpoint and the path of a URL.
pub(crate) fn split(url: &str) -> Result<(String, String)> {
    match place(url)? {
        Place::Path(address, path) => Ok((address, path)),
        Place::Roots(_) => Err(no_place(url)),
    }
}

fn at(at: &At) -> Result<(Client, String)> {
    let (address, path) = split(&at.url)?;
    Ok((peer::client(&at.ask.who, &address)?, path))
}

/// Runs `dray ls`.
pub(crate) fn list(at: &At) -> Result<Exit, Stop> {
    let (address, path) = match place(&at.url)? {
        Place::Roots(address) => return roots(at, &address),
        Place::Path(address, path) => (address, path),
    };
    let client = peer::client(&at.ask.who, &address)?;
    let mut cursor = String::new();
    let mut all = Vec::new();
    loop {
        let query = format!(
            "/v1/storage/list?path={}&limit={PAGE}{cursor}",
            quoted(&path)
        );
        let answer = client.call_and_wait(Method::GET, &query, None)?;
        let entries = answer.get("entries").and_then(Value::as_array);
        for entry in entries.ok_or_else(|| odd_answer("entries"))? {
            if at.ask.json {
                all.push(entry.clone());
            } else {
                output::result(&entry_line(entry));
            }
        }
        let next = answer.get("next").and_then(Value::as_str);
        let Some(next) = next else { break };
        cursor = format!("&cursor={}", quoted(next));
    }
    if at.ask.json {
        output::result(&json!({"entries": all}).to_string());
    }
    Ok(Exit::Safe)
}

/// An endpoint's roots: what a path begins with.
fn roots(at: &At, address: &str) -> Result<Exit, Stop> {
    let client = peer::client(&at.ask.who, address)?;
    let about = client.call_and_wait(Method::GET, "/v1/endpoint", None)?;
    let roots = about.get("roots").and_then(Value::as_array);
    let roots = roots.ok_or_else(|| odd_answer("roots"))?;
    if at.ask.json {
        let entries = roots.iter().map(|root| {
            let name = root.get("name").cloned().unwrap_or_default();
            let path = format!("/{}", name.as_str().unwrap_or_default());
            let can = |right: &str| root.get(right).cloned().unwrap_or_default();
            json!({"path": path, "name": name, "type": "directory", "read": can("read"),
                "write": can("write"), "stage": can("stage")})
        });
        let entries: Vec<Value> = entries.collect();
        output::result(&json!({"entries": entries}).to_string());
        return Ok(Exit::Safe);
    }
    for root in roots {
        output::result(&root_line(root));
    }
    Ok(Exit::Safe)
}

/// A root, and what the caller may do in all of it.
pub(crate) fn root_line(root: &Value) -> String {
    let can = |right: &&str| root.get(*right).and_then(Value::as_bool) == Some(true);
    let rights: Vec<&str> = ["read", "write", "stage"].into_iter().filter(can).collect();
    format!("/{}: {}", text(root, "name"), rights.join(", "))
}

fn entry_line(entry: &Value) -> String {
    let kind = match entry.get("type").and_then(Value::as_str) {
        Some("directory") => 'd',
        Some("symlink") => 'l',
        Some("file") => '-',
        _ => '?',
    };
    let link = match text(entry, "link") {
        link if link.is_empty() => link,
        link => format!(" -> {link}"),
    };
    format!(
        "{kind} {:>4} {:>12} {} {}{link}",
        text(entry, "mode"),
        number(entry, "", "size"),
        text(entry, "modified_at"),
        text(entry, "name"),
    )
}

/// Runs `dray stat`.
pub(crate) fn stat(place: &At) -> Result<Exit, Stop> {
    let (client, path) = at(place)?;
    let query = format!("/v1/storage/stat?path={}", quoted(&path));
    let entry = client.call_and_wait(Method::GET, &query, None)?;
    output::result(&match place.ask.json {
        true => entry.to_string(),
        false => entry_line(&entry),
    });
    Ok(Exit::Safe)
}

/// Runs `dray rm`.
pub(crate) fn remove(rm: &Rm) -> Result<Exit, Stop> {
    let (client, path) = at(&rm.at)?;
    let body = json!({"path": path, "recursive": rm.recursive});
    let answer = client.call_and_wait(Method::POST, "/v1/storage/rm", Some(&body))?;
    output::result(&match rm.at.ask.json {
        true => answer.to_string(),
        false => format!("removed {}", number(&answer, "", "removed")),
    });
    Ok(Exit::Safe)
}

/// Runs `dray checksum`.
pub(crate) fn checksum(sum: &Sum) -> Result<Exit, Stop> {
    let (client, path) = at(&sum.at)?;
    let algorithm = match sum.algorithm {
        Algorithm::Adler32 => "adler32",
        Algorithm::Crc32c => "crc32c",
    };
    let body = json!({"path": path, "algorithm": algorithm});
    let answer = client.call_and_wait(Method::POST, "/v1/storage/checksum", Some(&body))?;
    output::result(&match sum.at.ask.json {
        true => answer.to_string(),
        false => format!(
            "{algorithm}:{} {}",
            text(&answer, "checksum"),
            text(&answer, "path")
        ),
    });
    Ok(Exit::Safe)
}

#[cfg(test)]
mod tests {
    use super::{Place, line, moments, place, quoted, split};
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

    #[test]
    fn a_place_has_a_host_and_a_path() {
        let (address, path) = split("dray://a.example/data/x").expect("a place");
        assert_eq!(
            (address.as_str(), path.as_str()),
            ("a.example:4735", "/data/x")
        );
        for wrong in [
            "dray://a.example",
            "/data/x",
            "http://a/data",
            "dray:///data/x",
            "a.example/data/x",
        ] {
            let error = split(wrong).expect_err(wrong);
            assert!(error.remedy.contains("dray://HOST"), "{error:?}");
        }
    }

    #[test]
    fn an_endpoint_alone_is_asked_for_its_roots_and_nothing_else_is() {
        for all in [
            "dray://a.example",
            "dray://a.example/",
            "a.example",
            "a.example/",
        ] {
            let roots = Place::Roots("a.example:4735".to_owned());
            assert_eq!(place(all).expect("an endpoint"), roots, "{all}");
        }
        for wrong in [
            "a.example/data/x",
            "/data",
            "/",
            "",
            "dray://",
            "http://a.example/x",
        ] {
            let error = place(wrong).expect_err(wrong);
            assert!(error.remedy.contains("dray://HOST"), "{error:?}");
        }
    }
}

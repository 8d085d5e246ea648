//! Commands on the transfers of an endpoint: `transfers`, `show` and `cancel`.

use crate::args::{Ask, Cancel, ShowTransfer, Transfers};
use crate::exit::{Exit, Stop};
use crate::output;
use crate::peer;
use crate::report::held_up_by;
use crate::units::{count, duration, human};
use dray_api::{EndpointAnswer, PolicyName, State, Timestamp, Transfer, TransferList};
use dray_client::{Answer, Client};
use dray_core::{Error, ErrorKind, Result};
use hyper::Method;
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Number of seconds that `dray cancel` waits for the end of the session.
const CANCEL_SECONDS: u64 = 5;

/// Timeout of one long poll in seconds.
const POLL_SECONDS: u64 = 30;

/// Pause before the next call to an unreachable endpoint.
const AGAIN: Duration = Duration::from_secs(2);

/// Maximum time for which `wait` retries before the first answer. The endpoint may be starting just
/// now, but a user with a wrong address should get an error soon. The value is estimated, not
/// measured.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Returns text in the form that a query needs, with reserved bytes as `%HH`.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                quoted.push(char::from(byte));
            }
            // `write!` to a string cannot fail.
            other => drop(write!(quoted, "%{other:02X}")),
        }
    }
    quoted
}

pub(crate) fn client(endpoint: Option<&str>, ask: &Ask) -> Result<Client> {
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
    let answer = client.ask::<TransferList>(Method::GET, &query, None)?;
    if list.ask.json {
        output::result(&answer.json.to_string());
        return Ok(Exit::Safe);
    }
    for transfer in &answer.read.transfers {
        output::result(&line(transfer));
    }
    if answer.read.next.is_some() {
        output::note(
            "there are more transfers: raise --limit, or narrow the list with --state or \
            --label",
        );
    }
    Ok(Exit::Safe)
}

/// Returns a transfer as one line.
pub(crate) fn line(transfer: &Transfer) -> String {
    line_as(transfer, transfer.state.word())
}

/// Returns one line that describes a transfer. The line shows `state` instead of the transfer's own
/// state.
fn line_as(transfer: &Transfer, state: &str) -> String {
    let files = transfer.files.done + transfer.files.skipped;
    let failed = match transfer.files.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let rate = match transfer.rate.now.unwrap_or(0) {
        0 => String::new(),
        rate => format!(", {}/s", human(rate)),
    };
    let error = match &transfer.error {
        Some(error) => format!("; {}", output::one_line(&error.message)),
        None => String::new(),
    };
    let safe = match transfer.purged {
        // The counters also count the data that the purge has removed.
        true => " safe; all partial data was purged".to_owned(),
        false => format!("{failed}, {} safe", human(transfer.bytes.durable)),
    };
    let tries = match transfer.state {
        State::Failed if transfer.tries > 1 => format!(" after {} tries", transfer.tries),
        _ => String::new(),
    };
    let held = match transfer.held {
        true => ", held",
        false => "",
    };
    format!(
        "{} {state}{tries}{held}: {}{safe}{rate}{error}",
        output::one_line(&transfer.id),
        count(files, "file"),
    )
}

/// Returns the reason why transfers are held, with the name of the endpoint's policy.
pub(crate) fn why_held(client: &Client) -> String {
    // If the endpoint is unreachable, the policy's name is left out.
    let about = client.ask::<EndpointAnswer>(Method::GET, "/v1/endpoint", None);
    why_held_by(about.ok().map(|about| about.read.scheduling.policy))
}

fn why_held_by(policy: Option<PolicyName>) -> String {
    let others = policy.map_or("other transfers move first", PolicyName::precedence);
    let policy = policy.map_or(String::new(), |policy| format!(" {}", policy.as_str()));
    format!(
        "held by the policy{policy}: {others}; the transfer keeps its session and resumes \
        automatically"
    )
}

/// Runs `dray show`.
pub(crate) fn show(show: &ShowTransfer) -> Result<Exit, Stop> {
    let client = client(show.endpoint.as_deref(), &show.ask)?;
    let transfer = match show.wait {
        true => wait(&client, show.id.as_str(), |_| {})?,
        false => {
            let path = format!("/v1/transfers/{}", quoted(show.id.as_str()));
            client.ask(Method::GET, &path, None)?
        }
    };
    tell(&transfer, show.ask.json);
    if transfer.read.held && !show.ask.json {
        output::result(&format!("  {}", why_held(&client)));
    }
    Ok(match show.wait {
        true => exit_of(&transfer.read),
        false => Exit::Safe,
    })
}

/// Waits for the end of a transfer, even if the endpoint is unreachable for a time. Calls `seen`
/// with each state of the transfer.
pub(crate) fn wait(
    client: &Client,
    id: &str,
    mut seen: impl FnMut(&Answer<Transfer>),
) -> Result<Answer<Transfer>> {
    let mut version = 0;
    let mut was_there = false;
    let begun = Instant::now();
    loop {
        // The call returns when the state or the request of the transfer changes, and not for
        // counters alone.
        let path = format!(
            "/v1/transfers/{}/wait?after={version}&timeout={POLL_SECONDS}",
            quoted(id)
        );
        match client.ask::<Transfer>(Method::GET, &path, None) {
            Ok(transfer) => {
                was_there = true;
                version = transfer.read.version;
                seen(&transfer);
                if transfer.read.state.is_terminal() {
                    return Ok(transfer);
                }
            }
            // Retry: a restarted endpoint still has the transfer.
            Err(error) if is_away(&error) && (was_there || begun.elapsed() < FIRST_ANSWER) => {
                std::thread::sleep(AGAIN);
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn is_away(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy
    )
}

/// Returns the exit code for the final state of a transfer.
pub(crate) fn exit_of(transfer: &Transfer) -> Exit {
    match transfer.state {
        State::Done => Exit::Safe,
        State::Cancelled => Exit::Interrupted,
        State::Failed if transfer.files.failed == 0 => Exit::Refused,
        _ => Exit::SomeFailed,
    }
}

/// Prints a transfer.
pub(crate) fn tell(transfer: &Answer<Transfer>, json: bool) {
    match json {
        true => output::result(&transfer.json.to_string()),
        false => show_as(&transfer.read, transfer.read.state.word()),
    }
}

/// Prints a transfer as text that shows `state` as its state.
fn show_as(transfer: &Transfer, state: &str) {
    output::result(&line_as(transfer, state));
    for line in failures(transfer).chain(notices(transfer)) {
        output::result(&line);
    }
    if let Some(stage) = transfer.bottleneck {
        output::result(&format!("  bottleneck: {}", held_up_by(stage.into())));
    }
    for line in moments(transfer) {
        output::result(&format!("  {line}"));
    }
    if transfer.promised {
        output::result(&promise_line(transfer));
    }
}

/// Returns the line of a transfer, and a line for each of its failed files.
pub(crate) fn lines(transfer: &Transfer) -> Vec<String> {
    std::iter::once(line(transfer))
        .chain(failures(transfer))
        .collect()
}

fn failures(transfer: &Transfer) -> impl Iterator<Item = String> {
    transfer.failures.iter().map(|failure| {
        let path = output::one_line(&failure.path);
        let message = output::one_line(&failure.error.message);
        format!("  {path}: {message}")
    })
}

/// Returns the notices as lines, escaped for a terminal.
fn notices(transfer: &Transfer) -> impl Iterator<Item = String> {
    let notices = transfer.notices.iter();
    notices.map(|notice| format!("  {}", output::one_line(notice)))
}

/// Returns lines with the past and the planned times of a transfer.
fn moments(transfer: &Transfer) -> Vec<String> {
    let mut all = vec![format!("submitted {}", transfer.submitted_at)];
    let mut add = |words: &str, moment: Option<Timestamp>| {
        all.extend(moment.map(|moment| format!("{words} {moment}")));
    };
    // `not_before` is shown only if the transfer has not started.
    if matches!(transfer.state, State::Queued | State::Paused) {
        add("starts at the earliest at", transfer.request.not_before);
    }
    add("started", transfer.started_at);
    add("ended", transfer.ended_at);
    add("next try at", transfer.next_try_at);
    add("expected end", transfer.eta);
    all.extend(space_wait(transfer));
    if let Some(seconds) = transfer.silent_seconds {
        all.push(format!("no bytes moved for {}", duration(seconds)));
    }
    all
}

/// Returns a text about the space on a tier that a transfer waits for.
fn space_wait(transfer: &Transfer) -> Option<String> {
    let space = transfer.space.as_ref().filter(|space| !space.admitted)?;
    let mut text = format!(
        "waits for space on the tier {}",
        output::one_line(&space.tier)
    );
    if let Some(reason) = &space.reason {
        text += &format!(": {}", output::one_line(reason));
    }
    if let Some(at) = space.free_at {
        text += &format!("; space is expected at {at}");
    }
    Some(text)
}

/// Returns a line about the transfer's promise and the state of the promise.
fn promise_line(transfer: &Transfer) -> String {
    let mut line = match transfer.request.deadline {
        None => "  promise: at least the minimum rate".to_owned(),
        Some(deadline) => format!("  promise: done by {deadline}"),
    };
    match transfer.rate.planned.unwrap_or(0) {
        0 => {}
        rate => line += &format!(", {}/s planned", human(rate)),
    }
    if let Some(between) = &transfer.eta_between {
        let late = between.late.map_or(String::new(), |late| late.to_string());
        line += &format!(", expected end between {} and {late}", between.early);
    }
    match &transfer.miss {
        Some(miss) if !miss.cause.is_empty() => {
            line += &format!(
                "; the promise will be missed: {}",
                output::one_line(&miss.cause)
            );
        }
        _ => {}
    }
    line
}

/// Runs `dray cancel`.
pub(crate) fn cancel(cancel: &Cancel) -> Result<Exit, Stop> {
    let client = client(cancel.endpoint.as_deref(), &cancel.ask)?;
    let path = format!("/v1/transfers/{}/cancel", quoted(cancel.id.as_str()));
    let body = json!({"purge": cancel.purge});
    let asked = client.ask::<Transfer>(Method::POST, &path, Some(&body))?;
    // Wait briefly for the end of the session, which usually ends soon after the cancellation.
    let path = format!(
        "/v1/transfers/{}/wait?after={}&timeout={CANCEL_SECONDS}",
        quoted(cancel.id.as_str()),
        version_before_end(&asked.read, cancel.purge)
    );
    let transfer = match client.ask(Method::GET, &path, None) {
        Ok(transfer) => transfer,
        // The endpoint has already accepted the cancellation, so an unreachable endpoint is not an
        // error here.
        Err(error) if is_away(&error) => asked,
        Err(error) => return Err(error.into()),
    };
    match cancel.ask.json || transfer.read.state.is_terminal() {
        true => tell(&transfer, cancel.ask.json),
        false => show_as(&transfer.read, "cancelling"),
    }
    Ok(Exit::Safe)
}

/// Returns the version number that a cancelled transfer has immediately before its last change. Two
/// changes may follow the cancellation, and each increases the version by one: the end of the
/// session and, with `purge`, the removal of the partial data.
fn version_before_end(asked: &Transfer, purge: bool) -> u64 {
    let steps = u64::from(!asked.state.is_terminal()) + u64::from(purge);
    (asked.version + steps).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::{line, line_as, moments, notices, quoted, why_held_by};
    use crate::fixtures::answer;
    use dray_api::{PolicyName, Transfer};
    use serde_json::{Value, json};

    fn transfer(fields: &Value) -> Transfer {
        answer(fields).read
    }

    #[test]
    fn a_notice_of_another_end_drives_no_terminal() {
        let noted = transfer(&json!({"notices": ["ab\u{1b}[2Jc\nd", "plain"]}));
        let lines: Vec<String> = notices(&noted).collect();
        assert_eq!(lines, ["  ab\\u{1b}[2Jc\\nd", "  plain"]);
    }

    #[test]
    fn a_wait_for_space_has_its_reason_and_its_expected_end() {
        let at = "2030-01-01T00:00:00.000Z";
        let space = json!({"tier": "burst", "bytes": 5, "admitted": false,
            "reason": "5 bytes do not fit", "free_at": at});
        let waiting = transfer(&json!({"state": "queued", "submitted_at": at, "space": space}));
        let wanted = "waits for space on the tier burst: 5 bytes do not fit; \
                      space is expected at 2030-01-01T00:00:00.000Z";
        assert_eq!(moments(&waiting)[1..], [wanted.to_owned()]);
        let admitted = json!({"tier": "burst", "bytes": 5, "admitted": true,
            "reason": null, "free_at": null});
        let admitted = transfer(&json!({"state": "queued", "submitted_at": at, "space": admitted}));
        assert_eq!(moments(&admitted).len(), 1);
    }

    #[test]
    fn what_is_to_come_is_told_as_such() {
        let day = |day: u8| format!("2030-01-0{day}T00:00:00.000Z");
        let waiting = transfer(&json!({"state": "waiting", "submitted_at": day(1),
            "started_at": day(2), "next_try_at": day(3), "request": {"not_before": day(1)}}));
        assert_eq!(
            moments(&waiting),
            [
                format!("submitted {}", day(1)),
                format!("started {}", day(2)),
                format!("next try at {}", day(3)),
            ]
        );
        let queued = transfer(&json!({"state": "queued", "submitted_at": day(1),
            "request": {"not_before": day(9)}}));
        assert_eq!(
            moments(&queued),
            [
                format!("submitted {}", day(1)),
                format!("starts at the earliest at {}", day(9)),
            ]
        );
    }

    #[test]
    fn purged_data_is_not_reported_as_durable() {
        let mut fields = json!({"state": "cancelled", "files": {"done": 1},
            "bytes": {"durable": 5 << 20}, "purged": true});
        assert_eq!(
            line(&transfer(&fields)),
            "t cancelled: 1 file safe; all partial data was purged"
        );
        fields["purged"] = json!(false);
        fields["notices"] = json!(["nothing purged: the data belongs to another owner"]);
        assert_eq!(
            line(&transfer(&fields)),
            "t cancelled: 1 file, 5.0 MiB safe"
        );
    }

    #[test]
    fn a_transfer_that_is_being_cancelled_is_shown_so() {
        let said = line_as(&transfer(&json!({"held": true})), "cancelling");
        assert_eq!(said, "t cancelling, held: 0 files, 0 B safe");
    }

    #[test]
    fn the_policy_that_holds_is_named_where_it_is_known() {
        assert!(
            why_held_by(Some(PolicyName::RoundRobin))
                .starts_with("held by the policy round_robin: ")
        );
        assert!(why_held_by(None).starts_with("held by the policy: other transfers move first"));
    }

    #[test]
    fn a_path_is_quoted_in_a_query() {
        assert_eq!(quoted("/a b&c=ü?#%"), "/a%20b%26c%3D%C3%BC%3F%23%25");
    }
}

//! `dray stage`: stages copies between the slow and the fast root of an endpoint, and lists, pins
//! and evicts them.

use crate::args::{AtEndpoint, HowToStage, ListStaged, Stage, StageIn, StageOut};
use crate::exit::{Exit, Stop, usage};
use crate::transfers::{exit_of, line as transfer_line, lines, quoted, wait};
use crate::units::human;
use crate::{output, peer, signals};
use dray_api::{AdmissionWord, Staged, StagedDirection, StagedList, StagingRequest, Transfer};
use dray_client::{Answer, Client};
use dray_core::{End, Error, ErrorKind, Result};
use hyper::Method;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval between two updates of the bar.
const BAR_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `dray stage`.
pub(crate) fn run(stage: &Stage) -> std::result::Result<Exit, Stop> {
    match stage {
        Stage::In(StageIn {
            path: None, how, ..
        }) if how.application.is_none() => Err(usage(
            "the command names neither a path nor an application",
            "give a path in the slow root, or --application for the newest version on a tier",
        )
        .into()),
        Stage::In(stage) => submit(&stage.how, &request_in(stage), StagedDirection::In),
        Stage::Out(stage) => submit(&stage.how, &request_out(stage), StagedDirection::Out),
        Stage::List(list) => self::list(list),
        Stage::Show(one) => call(&one.at, Method::GET, one.id.as_str(), None),
        Stage::Pin(pin) => {
            let body = json!({"lifetime_seconds": pin.lifetime.as_secs()});
            let path = format!("{}/pin", pin.one.id);
            call(&pin.one.at, Method::POST, &path, Some(&body))
        }
        Stage::Unpin(one) => {
            let body = json!({"lifetime_seconds": 0});
            call(
                &one.at,
                Method::POST,
                &format!("{}/pin", one.id),
                Some(&body),
            )
        }
        Stage::Evict(one) => {
            let path = format!("{}/evict", one.id);
            call(&one.at, Method::POST, &path, Some(&json!({})))
        }
    }
}

fn client(at: &AtEndpoint) -> Result<Client> {
    peer::client(&at.ask.who, &peer::endpoint(at.endpoint.as_deref())?)
}

/// Makes a call about one copy and prints the answer.
fn call(
    at: &AtEndpoint,
    method: Method,
    path: &str,
    body: Option<&serde_json::Value>,
) -> std::result::Result<Exit, Stop> {
    let path = format!("/v1/staging/{}", quoted(path));
    let answer = client(at)?.ask::<Staged>(method, &path, body)?;
    tell(&answer, at.ask.json);
    Ok(Exit::Safe)
}

fn list(list: &ListStaged) -> std::result::Result<Exit, Stop> {
    let mut query = format!("/v1/staging?limit={}", list.limit);
    if let Some(application) = &list.application {
        query += &format!("&application={}", quoted(application));
    }
    if let Some(state) = list.state {
        query += &format!("&state={}", state.word());
    }
    let answer = client(&list.at)?.ask::<StagedList>(Method::GET, &query, None)?;
    if list.at.ask.json {
        output::result(&answer.json.to_string());
        return Ok(Exit::Safe);
    }
    for staged in &answer.read.staging {
        output::result(&line(staged));
    }
    if answer.read.next.is_some() {
        output::note("there are more copies: raise --limit, or narrow the list with --state");
    }
    Ok(Exit::Safe)
}

/// Returns a request with the options of both directions.
fn request(how: &HowToStage, path: &str) -> StagingRequest {
    StagingRequest {
        id: how.id.as_ref().map(ToString::to_string),
        path: path.to_owned(),
        to: how.to.clone(),
        recursive: how.recursive,
        pin_seconds: None,
        lifetime_seconds: None,
        application: how.application.clone(),
        version: how.version,
        period_seconds: None,
        mtbf_seconds: None,
        nodes: None,
        replicas: 1,
        bypass: how.bypass,
        priority: how.priority,
        deadline: how.deadline,
        admission: how.best_effort.then_some(AdmissionWord::BestEffort),
        bytes_expected: how.bytes,
        labels: BTreeMap::new(),
        bound_seconds: None,
    }
}

fn request_in(stage: &StageIn) -> StagingRequest {
    StagingRequest {
        pin_seconds: stage.pin.map(|time| time.as_secs()),
        lifetime_seconds: stage.lifetime.map(|time| time.as_secs()),
        ..request(&stage.how, stage.path.as_deref().unwrap_or_default())
    }
}

fn request_out(stage: &StageOut) -> StagingRequest {
    StagingRequest {
        period_seconds: stage.period.map(|time| time.as_secs()),
        mtbf_seconds: stage.mtbf.map(|time| time.as_secs()),
        nodes: stage.nodes,
        replicas: stage.replicas,
        ..request(&stage.how, &stage.path)
    }
}

/// Submits a request, and waits for the end of its transfer.
fn submit(
    how: &HowToStage,
    request: &StagingRequest,
    direction: StagedDirection,
) -> std::result::Result<Exit, Stop> {
    let client = client(&how.at)?;
    let path = match direction {
        StagedDirection::In => "/v1/staging/in",
        StagedDirection::Out => "/v1/staging/out",
    };
    let body = serde_json::to_value(request).map_err(|error| {
        Error::new(ErrorKind::Internal, End::Here, "write the request").cause(error.to_string())
    })?;
    signals::watch("no longer watching; the endpoint continues the copy")?;
    let submitted = client.ask::<Staged>(Method::POST, path, Some(&body))?;
    // A hit (the fast copy exists already) starts no transfer.
    if how.no_wait || submitted.read.hit {
        tell(&submitted, how.at.ask.json);
        return Ok(Exit::Safe);
    }
    let (id, json) = (submitted.read.transfer.clone(), how.at.ask.json);
    if !json {
        let at = &client.address;
        output::note(&format!(
            "copy {id} was submitted to {at} and continues if this program ends"
        ));
    }
    signals::on_stop(move || {
        if json && signals::may_tell() {
            tell(&submitted, true);
        }
        dray_open::xrootd::end_process(Exit::Interrupted as u8)
    });
    let ended = watch(&client, &id, json)?;
    let entry = client.ask::<Staged>(Method::GET, &staging(&id), None)?;
    if signals::may_tell() {
        tell(&entry, json);
        if !json {
            lines(&ended.read)
                .iter()
                .skip(1)
                .for_each(|line| output::result(line));
        }
    }
    Ok(exit_of(&ended.read))
}

fn staging(id: &str) -> String {
    format!("/v1/staging/{}", quoted(id))
}

/// Waits for the end of a transfer. On a terminal, shows a progress bar. Otherwise prints a line
/// for each change of the transfer's state. With `json`, shows no progress.
fn watch(client: &Client, id: &str, json: bool) -> Result<Answer<Transfer>> {
    if json {
        return wait(client, id, |_| {});
    }
    if !std::io::stderr().is_terminal() {
        return wait(client, id, |transfer| {
            output::note(&transfer_line(&transfer.read));
        });
    }
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
        bar.set_style(style);
    }
    output::set_bar(Some(bar.clone()));
    let (done, is_done) = channel::<()>();
    let drawn = bar.clone();
    // The long poll of `wait` does not answer when only counters change.
    let other = Client {
        answer_bytes_max: dray_client::ANSWER_BYTES_MAX,
        kept: dray_client::Keeper::default(),
        ..client.clone()
    };
    let path = format!("/v1/transfers/{}", quoted(id));
    let draw = move || {
        while is_done.recv_timeout(BAR_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            // An error is ignored here, because `wait` reports or outlasts it.
            if let Ok(transfer) = other.ask::<Transfer>(Method::GET, &path, None) {
                drawn.set_length(transfer.read.bytes.listed.max(1));
                drawn.set_position(transfer.read.bytes.durable);
                drawn.set_message(transfer_line(&transfer.read));
            }
        }
    };
    let drawer = std::thread::Builder::new().spawn(draw);
    let ended = wait(client, id, |_| {});
    drop(done);
    if let Ok(drawer) = drawer {
        let _ = drawer.join();
    }
    output::set_bar(None);
    bar.finish_and_clear();
    ended
}

fn tell(entry: &Answer<Staged>, json: bool) {
    match json {
        true => output::result(&entry.json.to_string()),
        false => output::result(&line(&entry.read)),
    }
}

/// Describes a staged copy in one line.
fn line(staged: &Staged) -> String {
    let request = &staged.request;
    let mut line = format!(
        "{} {}: {} -> {}",
        output::one_line(&staged.transfer),
        staged.state.word(),
        output::one_line(&request.path),
        output::one_line(request.to.as_deref().unwrap_or_default()),
    );
    if let Some(application) = &request.application {
        let version = request.version;
        line += &format!(", {}", output::one_line(application));
        line += &version.map_or_else(String::new, |version| format!(" {version}"));
    }
    if staged.bytes > 0 {
        line += &format!(", {}", human(staged.bytes));
    }
    if staged.hit {
        line += ", hit";
    }
    if let Some(until) = staged.pinned_until {
        line += &format!(", pinned until {until}");
    }
    if let Some(at) = staged.expires_at {
        line += &format!(", expires at {at}");
    }
    if let Some(error) = &staged.error {
        line += &format!("; {}", output::one_line(&error.message));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::line;
    use dray_api::{Staged, read_answer};
    use serde_json::json;

    #[test]
    fn a_copy_is_one_line() {
        let mut entry = json!({"id": "t", "path": "/slow/a/8", "to": "/fast/a/8",
            "direction": "in", "transfer": "t", "hit": true, "state": "staged",
            "application": "a\u{1b}", "version": 8, "pinned_until": "2030-01-01T00:00:00Z",
            "expires_at": null, "bytes": 3 << 20, "error": null});
        let staged: Staged = read_answer(&entry).expect("an entry");
        assert_eq!(
            line(&staged),
            "t staged: /slow/a/8 -> /fast/a/8, a\\u{1b} 8, 3.0 MiB, hit, pinned until \
                2030-01-01T00:00:00.000Z"
        );
        entry["application"] = json!(null);
        entry["hit"] = json!(false);
        entry["pinned_until"] = json!(null);
        entry["bytes"] = json!(0);
        let staged: Staged = read_answer(&entry).expect("an entry");
        assert_eq!(line(&staged), "t staged: /slow/a/8 -> /fast/a/8");
    }
}

//! `dray cp` between two endpoints: gets a ticket from one endpoint and submits the transfer to the
//! other. The program then only watches the transfer. If the program is killed, the transfer
//! continues.

use crate::args::{Class, Cp, Owed, What, Who};
use crate::exit::{Exit, Stop, usage};
use crate::peer;
use crate::storage::split;
use crate::transfers::{exit_of, line, lines, quoted, tell, wait};
use crate::units::human;
use crate::{output, signals};
use dray_api::{
    AdmissionAnswer, Admitted, Decision, EndpointAnswer, Entry, EntryType, MintedTicket,
    STREAMS_MAX, Streams, Transfer,
};
use dray_client::Client;
use dray_core::lock::LockExt;
use dray_core::options::{Durability, Order, Overwrite};
use dray_core::url::Url;
use dray_core::{Error, Result, Status, TransferId};
use dray_link::threads;
use dray_net::Trust;
use dray_runtime::drive::StreamCount;
use hyper::Method;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};

/// Returns true if all paths of a command are URLs of endpoints.
pub(crate) fn is_meant(paths: &[OsString]) -> bool {
    let is_remote = |path: &OsString| Url::is_meant(path.as_encoded_bytes());
    !paths.is_empty() && paths.iter().all(is_remote)
}

/// Submits the transfer to the destination's endpoint and watches it.
pub(crate) fn run(cp: &Cp, transfer: &TransferId) -> Result<Exit, Stop> {
    let (sources, destination) = ends(&cp.what)?;
    let first = first(&sources)?;
    let (from, to) = (&first.address, &destination.address);
    let who = &cp.peer.who;
    let active = peer::client(who, to)?;
    let mut places: Vec<Value> = sources.iter().map(place).collect();
    let mut minted = Vec::new();
    let mut connected = Ok(());
    if from != to {
        let passive = peer::client(who, from)?;
        let paths: Vec<String> = sources.iter().map(Url::api_path).collect();
        let ticket;
        (ticket, connected) = ticket_and_way(&active, &passive, transfer, &paths)?;
        // The ticket covers all sources.
        show(&mut places[0], &ticket);
        minted.push(Minted::of(passive, &ticket));
    }
    let mut replicas = Vec::new();
    if !cp.replica.is_empty() {
        measure(&mut places[0], &peer::client(who, from)?, first)?;
    }
    for replica in &cp.replica {
        let replica = split(replica)?;
        let client = peer::client(who, &replica.address)?;
        let mut place = place(&replica);
        measure(&mut place, &client, &replica)?;
        if replica.address != *to {
            let key = key_of(&active)?;
            let ticket = ticket(&client, transfer, &[replica.api_path()], &key)?;
            show(&mut place, &ticket);
            minted.push(Minted::of(client, &ticket));
        }
        replicas.push(place);
    }
    let is_sent = connected.is_ok();
    let submitted = connected
        .and_then(|()| request(cp, transfer, (places, replicas), &destination.to_string()))
        .and_then(|request| active.ask::<Transfer>(Method::POST, "/v1/transfers", Some(&request)));
    // Revoke the tickets of a refused transfer, because they are unused. After a temporary error
    // the endpoint may have received the request, so the tickets are kept.
    if let Err(error) = &submitted
        && (!is_sent || error.status == Status::Permanent)
    {
        minted.iter().for_each(Minted::revoke);
    }
    let submitted = submitted?;
    let id = submitted.read.id.clone();
    if cp.detach {
        tell(&submitted, cp.what.json);
        return Ok(Exit::Safe);
    }
    output::note(&format!(
        "transfer {id} at {to}: it continues without this program"
    ));
    let last_seen = Arc::new(Mutex::new(submitted));
    let (seen, json) = (Arc::clone(&last_seen), cp.what.json);
    signals::on_stop(move || {
        if json && signals::may_tell() {
            tell(&seen.lock_unpoisoned(), true);
        }
        dray_open::xrootd::end_process(Exit::Interrupted as u8)
    });
    let ended = wait(&active, &id, |transfer| {
        last_seen.lock_unpoisoned().clone_from(transfer);
        if !cp.what.json {
            output::note(&line(&transfer.read));
        }
    })?;
    if signals::may_tell() {
        tell(&ended, cp.what.json);
        if cp.say.quiet && exit_of(&ended.read) != Exit::Safe {
            lines(&ended.read)
                .iter()
                .for_each(|line| output::problem(line));
        }
    }
    Ok(exit_of(&ended.read))
}

/// Parses the sources and the destination of a command. All of them must be URLs.
fn ends(what: &What) -> Result<(Vec<Url>, Url)> {
    let (destination, sources) = what.paths.split_last().ok_or_else(no_source)?;
    let sources: Vec<Url> = sources
        .iter()
        .map(|typed| split(typed))
        .collect::<Result<_>>()?;
    let from = &first(&sources)?.address;
    if let Some(other) = sources.iter().find(|source| source.address != *from) {
        let cause = format!("the sources are on two hosts, {from} and {}", other.address);
        return Err(usage(
            cause,
            "copy from one host at a time, or give equal copies of a file with --replica",
        ));
    }
    Ok((sources, split(destination)?))
}

fn first(sources: &[Url]) -> Result<&Url> {
    sources.first().ok_or_else(no_source)
}

fn no_source() -> Error {
    usage("SRC and DST are needed", "give both SRC and DST")
}

fn place(url: &Url) -> Value {
    json!({"url": url.to_string()})
}

/// Adds the ticket, and the key and the address of its endpoint, to the request's entry for the
/// source.
fn show(place: &mut Value, ticket: &MintedTicket) {
    place["ticket"] = json!(ticket.ticket);
    place["key"] = json!(ticket.key);
    place["address"] = json!(ticket.address);
}

/// Adds the size of a file to the request's entry for a source, because the endpoint compares the
/// sizes of replicas.
fn measure(place: &mut Value, client: &Client, url: &Url) -> Result<()> {
    let query = format!("/v1/storage/stat?path={}", quoted(&url.api_path()));
    let entry = client.ask::<Entry>(Method::GET, &query, None)?.read;
    if entry.kind == EntryType::File {
        place["size"] = json!(entry.size);
    }
    Ok(())
}

/// A ticket that must be revoked if the transfer is refused.
struct Minted {
    client: Client,
    id: String,
}

impl Minted {
    fn of(client: Client, ticket: &MintedTicket) -> Self {
        let id = quoted(&ticket.about.id);
        Self { client, id }
    }

    fn revoke(&self) {
        let path = format!("/v1/tickets/{}", self.id);
        if let Err(error) = self.client.call_and_wait(Method::DELETE, &path, None) {
            output::problem(&format!(
                "cannot revoke the ticket for the source, so the ticket stays valid until it \
                    expires: {error}"
            ));
        }
    }
}

/// Requests the ticket that lets the destination's endpoint read the sources. Connects to both
/// endpoints concurrently, because both may be far away. The second result is an error if the
/// destination's endpoint is unreachable. A pinned key is also the key of the sessions, so the
/// endpoint is asked for its key only if no key is pinned.
fn ticket_and_way(
    active: &Client,
    passive: &Client,
    transfer: &TransferId,
    paths: &[String],
) -> Result<(MintedTicket, Result<()>)> {
    thread::scope(|scope| match &active.trust {
        Trust::Key(key) => {
            let way = threads::start(scope, || active.connect_ahead())?;
            let ticket = ticket(passive, transfer, paths, &key.to_string());
            Ok((ticket?, ended(way)))
        }
        Trust::Authority(_) => {
            let way = threads::start(scope, || passive.connect_ahead())?;
            let key = key_of(active)?;
            ended(way)?;
            Ok((ticket(passive, transfer, paths, &key)?, Ok(())))
        }
    })
}

/// Returns the key that an endpoint uses for its sessions.
fn key_of(active: &Client) -> Result<String> {
    if let Trust::Key(key) = &active.trust {
        return Ok(key.to_string());
    }
    let about = active.ask::<EndpointAnswer>(Method::GET, "/v1/endpoint", None)?;
    Ok(about.read.key)
}

fn ended(way: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    way.join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Requests a ticket with which the holder of this key can read the paths.
fn ticket(
    passive: &Client,
    transfer: &TransferId,
    paths: &[String],
    key: &str,
) -> Result<MintedTicket> {
    let body = json!({
        "transfer": transfer.as_str(),
        "direction": "read",
        "paths": paths,
        "peer_key": key,
    });
    let answer = passive.ask(Method::POST, "/v1/tickets", Some(&body))?;
    Ok(answer.read)
}

fn request(
    cp: &Cp,
    transfer: &TransferId,
    (sources, replicas): (Vec<Value>, Vec<Value>),
    destination: &str,
) -> Result<Value> {
    let what = &cp.what;
    let options = cp.options();
    let range = what
        .range
        .map(|range| json!({"offset": range.offset, "length": range.length}));
    let mut request = json!({
        "id": transfer.as_str(),
        "sources": sources,
        "replicas": replicas,
        "destination": {"url": destination},
        "selection": {
            "recursive": what.recursive,
            "include": what.include,
            "exclude": what.exclude,
            "links": what.selection().links,
        },
        "durability": match options.durability {
            Durability::None => "none",
            Durability::File => "file",
            Durability::Object => "object",
        },
        "overwrite": match options.overwrite {
            Overwrite::Never => "never",
            Overwrite::IfDifferent => "if-different",
            Overwrite::Always => "always",
        },
        "order": match options.order {
            Order::Layout => "layout",
            Order::File => "file",
            Order::Random { .. } => {
                return Err(usage(
                    "endpoints support --order layout and --order file only",
                    "run the command without --order random",
                ));
            }
        },
        "object_size": options.object_bytes,
        "verify": options.verify,
        "resume": options.resume,
        "xattrs": options.xattrs,
        "checksum_attributes": options.checksum_attributes,
        "clear_data": cp.peer.clear_data,
    });
    if cp.allow_empty {
        request["files_min"] = json!(0);
    }
    if let Some(range) = range {
        request["selection"]["range"] = range;
    }
    if let Some(streams) = cp.streams {
        request["streams"] = json!(match streams {
            StreamCount::Fixed(count) => Streams::Count(count.min(STREAMS_MAX)),
            StreamCount::Tuned => Streams::Auto,
        });
    }
    if let Some(rate) = options.rate {
        request["rate_max"] = json!(rate);
    }
    if let Some(checksum) = what.checksum {
        request["content"] = json!({"checksum": checksum.to_string()});
    }
    owe(&mut request, &cp.owed);
    Ok(request)
}

/// Adds the deadline and the rate that the user asks for to a request.
fn owe(request: &mut Value, owed: &Owed) {
    if let Some(deadline) = owed.deadline {
        request["deadline"] = json!(deadline);
    }
    if let Some(begin) = owed.not_before {
        request["not_before"] = json!(begin);
    }
    if let Some(bytes) = owed.bytes {
        request["bytes_expected"] = json!(bytes);
    }
    if let Some(rate) = owed.rate_min {
        request["rate_min"] = json!(rate);
    }
    if let Some(class) = owed.class {
        request["class"] = json!(match class {
            Class::Realtime => "realtime",
            Class::Deadline => "deadline",
            Class::Background => "background",
        });
    }
    if owed.best_effort {
        request["admission"] = json!("best_effort");
    }
}

/// Refuses options for promises, which only endpoints make.
pub(crate) fn refuse_owed(owed: &Owed) -> Result<()> {
    let mut asked = json!({});
    owe(&mut asked, owed);
    let named = asked.as_object().and_then(|asked| asked.keys().next());
    match named {
        None => Ok(()),
        Some(name) => Err(usage(
            format!("{name} works only between two endpoints"),
            "write source and destination as dray://HOST/ROOT/PATH, or omit the option",
        )),
    }
}

/// Asks the destination's endpoint if it would accept the transfer. Nothing is changed.
pub(crate) fn plan(what: &What, owed: &Owed, who: &Who) -> Result<Exit, Stop> {
    let (sources, destination) = ends(what)?;
    let mut request = json!({
        "sources": sources.iter().map(place).collect::<Vec<_>>(),
        "destination": {"url": destination.to_string()},
        "selection": {"recursive": what.recursive},
    });
    owe(&mut request, owed);
    let client = peer::client(who, &destination.address)?;
    let body = json!({"transfers": [request]});
    let answer = client.ask::<AdmissionAnswer>(Method::POST, "/v1/admission", Some(&body))?;
    let is_taken = answer.read.decision == Decision::Accept;
    if what.json {
        output::result(&answer.json.to_string());
    } else if let Some(verdict) = answer.read.transfers.first() {
        for line in verdict_lines(is_taken, verdict) {
            output::result(&line);
        }
    }
    Ok(if is_taken { Exit::Safe } else { Exit::Refused })
}

fn verdict_lines(is_taken: bool, verdict: &Admitted) -> Vec<String> {
    let mut lines = vec![match (is_taken, verdict.promised) {
        (false, _) => "would be refused".to_owned(),
        (true, true) => "would be promised".to_owned(),
        (true, false) => "would be accepted without a promise".to_owned(),
    }];
    for (rate, words) in [
        (verdict.rate, "planned rate"),
        (verdict.rate_needed, "needs"),
        (verdict.rate_available, "could be promised"),
    ] {
        lines.extend(rate.map(|rate| format!("  {words} {}/s", human(rate))));
    }
    for (moment, words) in [
        (verdict.finish, "done by plan at"),
        (verdict.latest, "done at the latest at"),
        (
            verdict.earliest_finish,
            "the earliest deadline that could be promised is",
        ),
    ] {
        lines.extend(moment.map(|moment| format!("  {words} {moment}")));
    }
    let reasons = verdict.reasons.iter();
    lines.extend(reasons.map(|reason| format!("  {}", reason.escape_debug())));
    lines
}

#[cfg(test)]
mod tests {
    use super::{refuse_owed, request, verdict_lines};
    use crate::args::{Command, Dray, Owed};
    use clap::Parser as _;
    use dray_api::{Admitted, read_answer};
    use dray_core::TransferId;
    use serde_json::{Value, json};

    #[test]
    fn the_number_of_streams_is_asked_for_as_it_was_given() {
        let asked = |more: &[&str]| -> Value {
            let words = ["dray", "cp", "dray://a/r/x", "dray://b/r/y"];
            let words = words.iter().chain(more);
            let Command::Cp(cp) = Dray::try_parse_from(words).expect("good").command else {
                panic!("another command");
            };
            let transfer = TransferId::new("one").expect("good");
            let source = json!({"url": "dray://a/r/x"});
            request(&cp, &transfer, (vec![source], Vec::new()), "dray://b/r/y")
                .expect("good")["streams"]
                .clone()
        };
        assert_eq!(asked(&[]), json!(null), "the endpoint's to say");
        assert_eq!(asked(&["--streams", "auto"]), json!("auto"));
        assert_eq!(asked(&["--streams", "7"]), json!(7));
        let most = asked(&["--streams", "200"]);
        assert_eq!(most, json!(64), "the most that an endpoint takes");
    }

    #[test]
    fn a_refusal_says_what_could_be() {
        let verdict = json!({"promised": false, "rate_needed": 5 << 20, "rate_available": 2 << 20,
            "earliest_finish": "2030-01-01T00:00:00Z", "reasons": ["it is promised to others"]});
        let read = |verdict: Value| read_answer::<Admitted>(&verdict).expect("a verdict");
        let text = verdict_lines(false, &read(verdict)).join("\n");
        for said in [
            "refused",
            "needs 5.0 MiB/s",
            "2030-01-01",
            "promised to others",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(verdict_lines(true, &read(json!({"promised": true})))[0].contains("promised"));
    }

    #[test]
    fn a_copy_without_an_endpoint_refuses_deadlines_and_rates() {
        assert!(refuse_owed(&Owed::default()).is_ok());
        let owed = Owed {
            best_effort: true,
            ..Owed::default()
        };
        assert!(refuse_owed(&owed).is_err());
    }
}

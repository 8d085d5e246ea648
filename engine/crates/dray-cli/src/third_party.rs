//! `dray cp` between two endpoints: gets a ticket from one endpoint and submits the transfer to the
//! other. The program then only watches the transfer. If the program is killed, the transfer
//! continues.

use crate::args::{Cp, Owed, What, Who};
use crate::exit::{Exit, Stop, usage};
use crate::peer;
use crate::storage::split;
use crate::transfers::{exit_of, line, lines, quoted, tell, wait};
use crate::units::human;
use crate::{output, signals};
use dray_api::{
    AdmissionAnswer, AdmissionRequest, AdmissionWord, Admitted, Content, Decision, Direction,
    EndpointAnswer, Entry, EntryType, MintedTicket, OrderWord, Place, Range, Request, STREAMS_MAX,
    Selection, Streams, TicketRequest, Transfer,
};
use dray_client::Client;
use dray_core::lock::LockExt;
use dray_core::options::{Order, Overwrite};
use dray_core::url::Url;
use dray_core::{Error, Result, Status, TraceContext, TransferId};
use dray_link::threads;
use dray_net::Trust;
use dray_runtime::drive::StreamCount;
use hyper::Method;
use serde_json::json;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};

/// Returns true if all paths of a command are URLs of endpoints.
pub(crate) fn is_meant(paths: &[OsString]) -> bool {
    let is_remote = |path: &OsString| Url::is_meant(path.as_encoded_bytes());
    !paths.is_empty() && paths.iter().all(is_remote)
}

/// Submits the transfer to the destination's endpoint and watches it.
pub(crate) fn run(
    cp: &Cp,
    transfer: &TransferId,
    trace: Option<TraceContext>,
) -> Result<Exit, Stop> {
    let (sources, destination) = ends(&cp.what)?;
    let first = first(&sources)?;
    let (from, to) = (&first.address, &destination.address);
    let who = &cp.peer.who;
    let mut active = peer::client(who, to)?;
    active.trace = trace;
    let mut places: Vec<Place> = sources.iter().map(place).collect();
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
        .and_then(|()| request(cp, transfer, (places, replicas), &destination))
        .and_then(|request| {
            active.ask::<Transfer>(Method::POST, "/v1/transfers", Some(&json!(request)))
        });
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
        "transfer {id} was submitted to {to} and continues if this program ends"
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
    usage("the command has no SRC or no DST", "give both SRC and DST")
}

fn place(url: &Url) -> Place {
    Place::at(url.to_string())
}

/// Adds the ticket, and the key and the address of its endpoint, to the request's entry for the
/// source.
fn show(place: &mut Place, ticket: &MintedTicket) {
    place.ticket = Some(ticket.ticket.clone());
    place.key = Some(ticket.key.clone());
    place.address = Some(ticket.address.clone());
}

/// Adds the size of a file to the request's entry for a source, because the endpoint compares the
/// sizes of replicas.
fn measure(place: &mut Place, client: &Client, url: &Url) -> Result<()> {
    let query = format!("/v1/storage/stat?path={}", quoted(&url.api_path()));
    let entry = client.ask::<Entry>(Method::GET, &query, None)?.read;
    if entry.kind == EntryType::File {
        place.size = Some(entry.size);
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

/// Requests the ticket that lets the destination's endpoint (`active`) read the sources at
/// `passive`. Connects to both endpoints concurrently, because both may be far away. The second
/// result is an error if `active` is unreachable.
///
/// The ticket is bound to the session key of `active`. If the user has pinned a key for `active`,
/// that key is the session key. Otherwise this function first asks `active` for its key.
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
    let request = TicketRequest {
        transfer: transfer.as_str().to_owned(),
        direction: Direction::Read,
        paths: paths.to_vec(),
        bytes: None,
        peer_key: key.to_owned(),
        lifetime_seconds: None,
        renewable_seconds: None,
        overwrite: Overwrite::default(),
    };
    let answer = passive.ask(Method::POST, "/v1/tickets", Some(&json!(request)))?;
    Ok(answer.read)
}

fn request(
    cp: &Cp,
    transfer: &TransferId,
    (sources, replicas): (Vec<Place>, Vec<Place>),
    destination: &Url,
) -> Result<Request> {
    let what = &cp.what;
    let order = match cp.order {
        Order::Layout => OrderWord::Layout,
        Order::File => OrderWord::File,
        Order::Random { .. } => {
            return Err(usage(
                "endpoints support --order layout and --order file only",
                "run the command without --order random",
            ));
        }
    };
    let streams = cp.streams.map(|streams| match streams {
        StreamCount::Fixed(count) => Streams::Count(count.min(STREAMS_MAX)),
        StreamCount::Tuned => Streams::Auto,
    });
    let content = what.checksum.map(|checksum| Content {
        checksum: Some(checksum.to_string()),
        size: None,
    });
    let request = Request {
        id: Some(transfer.clone()),
        replicas,
        content,
        selection: Selection {
            recursive: what.recursive,
            include: what.include.clone(),
            exclude: what.exclude.clone(),
            range: what.range.map(|range| Range {
                offset: range.offset,
                length: range.length,
            }),
            links: what.selection().links,
        },
        files_min: cp.allow_empty.then_some(0),
        rate_max: cp.rate,
        durability: what.durability.into(),
        overwrite: what.overwrite.into(),
        verify: cp.verify,
        resume: cp.resume.into(),
        xattrs: cp.xattrs,
        stripe: cp.stripe,
        checksum_attributes: cp.checksum_attributes,
        order,
        object_size: what.object_size,
        streams,
        clear_data: cp.peer.clear_data,
        ..Request::new(sources, place(destination))
    };
    Ok(owe(request, &cp.owed))
}

/// Returns the request with the deadline and the rate that the user asks for.
fn owe(request: Request, owed: &Owed) -> Request {
    Request {
        deadline: owed.deadline,
        not_before: owed.not_before,
        bytes_expected: owed.bytes,
        rate_min: owed.rate_min,
        class: owed.class.map(Into::into),
        admission: owed.best_effort.then_some(AdmissionWord::BestEffort),
        ..request
    }
}

/// Refuses options for promises, which only endpoints make.
pub(crate) fn refuse_owed(owed: &Owed) -> Result<()> {
    let given = [
        ("--deadline", owed.deadline.is_some()),
        ("--not-before", owed.not_before.is_some()),
        ("--bytes", owed.bytes.is_some()),
        ("--rate-min", owed.rate_min.is_some()),
        ("--class", owed.class.is_some()),
        ("--best-effort", owed.best_effort),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(usage(
            format!("{option} works only between two endpoints"),
            format!("write source and destination as dray://HOST/ROOT/PATH, or omit {option}"),
        )),
    }
}

/// Asks the destination's endpoint if it would accept the transfer. Nothing is changed.
pub(crate) fn plan(what: &What, owed: &Owed, who: &Who) -> Result<Exit, Stop> {
    let (sources, destination) = ends(what)?;
    let request = Request {
        selection: Selection {
            recursive: what.recursive,
            ..Selection::default()
        },
        ..owe(
            Request::new(sources.iter().map(place).collect(), place(&destination)),
            owed,
        )
    };
    let client = peer::client(who, &destination.address)?;
    let question = AdmissionRequest {
        transfers: vec![request],
    };
    let body = json!(question);
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
        (verdict.rate_needed, "needed rate"),
        (verdict.rate_available, "rate that could be promised"),
    ] {
        lines.extend(rate.map(|rate| format!("  {words} {}/s", human(rate))));
    }
    for (moment, words) in [
        (verdict.finish, "planned end"),
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
    use dray_api::{Admitted, Place, Streams, read_answer};
    use dray_core::TransferId;
    use dray_core::url::Url;
    use serde_json::{Value, json};

    #[test]
    fn the_number_of_streams_is_asked_for_as_it_was_given() {
        let asked = |more: &[&str]| -> Option<Streams> {
            let words = ["dray", "cp", "dray://a/r/x", "dray://b/r/y"];
            let words = words.iter().chain(more);
            let Command::Cp(cp) = Dray::try_parse_from(words).expect("good").command else {
                panic!("another command");
            };
            let transfer = TransferId::new("one").expect("good");
            let destination = Url::parse(b"dray://b/r/y").expect("good");
            let source = Place::at("dray://a/r/x");
            request(&cp, &transfer, (vec![source], Vec::new()), &destination)
                .expect("good")
                .streams
        };
        assert_eq!(asked(&[]), None, "the endpoint's to say");
        assert_eq!(asked(&["--streams", "auto"]), Some(Streams::Auto));
        assert_eq!(asked(&["--streams", "7"]), Some(Streams::Count(7)));
        let most = asked(&["--streams", "200"]);
        assert_eq!(
            most,
            Some(Streams::Count(64)),
            "the most that an endpoint takes"
        );
    }

    #[test]
    fn a_refusal_says_what_could_be() {
        let verdict = json!({"promised": false, "rate_needed": 5 << 20, "rate_available": 2 << 20,
            "earliest_finish": "2030-01-01T00:00:00Z", "reasons": ["it is promised to others"]});
        let read = |verdict: Value| read_answer::<Admitted>(&verdict).expect("a verdict");
        let text = verdict_lines(false, &read(verdict)).join("\n");
        for said in [
            "refused",
            "needed rate 5.0 MiB/s",
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

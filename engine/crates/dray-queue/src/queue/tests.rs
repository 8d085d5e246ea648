mod candidates;
mod claims;
mod files;
mod list;
mod promised;
mod routes;
mod secrets;
mod staging;
mod tiers;
mod unattended;
mod writes;

use super::{Actor, Commands, Counters, Ending, Queue, Settings, Submission, Wish};
use crate::clock;
use crate::events::Hub;
use crate::promises;
use dray_api::{Patch, Request, RetryWish, State, StateWord, TransferQuery};
use dray_core::{End, Error, ErrorKind, RelPath, TransferId};
use routes::{retry, route};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn settings(state: &Path) -> Settings {
    Settings {
        state: state.to_owned(),
        transfers: 2_000,
        transfers_of_owner: 50_000,
        tickets_of_owner: 200_000,
        retry: RetryWish {
            tries: 1,
            interval_seconds: 10,
        },
        keep: Duration::from_secs(30 * 86_400),
        keep_count: 5,
        promises: promise_settings(None),
        is_own: Arc::new(|address| address.starts_with("a.example:")),
    }
}

/// Returns the settings of an endpoint `a.example` with one root and this rate.
fn promise_settings(rate: Option<u64>) -> promises::Settings {
    promises::Settings {
        transfers_max: 100_000,
        rate,
        roots: vec![promises::RootRate {
            name: "data".to_owned(),
            rate: None,
        }],
        tiers: Vec::new(),
        shares: Vec::new(),
    }
}

fn open(state: &Path) -> Arc<Queue> {
    let hub = Arc::new(Hub::new(4, clock::now()));
    Queue::open(settings(state), hub).expect("opened")
}

struct QueueInFolder {
    _folder: tempfile::TempDir,
    queue: Arc<Queue>,
}

fn queue() -> QueueInFolder {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    QueueInFolder {
        _folder: folder,
        queue,
    }
}

impl std::ops::Deref for QueueInFolder {
    type Target = Queue;
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

fn actor(owner: &str) -> Actor {
    Actor {
        owner: owner.to_owned(),
        is_administrator: owner == "root",
    }
}

fn request(id: &str) -> Request {
    serde_json::from_value(json!({
        "id": id,
        "sources": [{"url": "dray://b.example/data/x", "ticket": "drt_one"}],
        "destination": {"url": "/data/x"},
    }))
    .expect("good")
}

fn by(owner: &str, request: Request) -> Submission {
    Submission {
        route: route(&request),
        request,
        owner: owner.to_owned(),
        principal: format!("{owner}@test"),
        claim: None,
    }
}

fn id(text: &str) -> TransferId {
    TransferId::new(text).expect("good")
}

fn begin(queue: &Queue, text: &str) -> super::SessionInput {
    let version = queue.show(&actor("root"), text).expect("there").version;
    let begun = queue.begin(&id(text), version).expect("written");
    begun.expect("still queued")
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, End::Network, "send")
}

fn broken(has_progressed: bool) -> Ending {
    Ending::Broken {
        error: lost(),
        has_progressed,
        source: None,
    }
}

#[test]
fn submission_follows_the_table() {
    let queue = queue();
    let alice = actor("alice");
    let first = queue.submit(by("alice", request("t"))).expect("taken");
    assert!(first.is_new && !first.transfer.attached);
    assert_eq!((first.transfer.attempt, first.transfer.version), (1, 1));

    // The same request with a newer ticket, submitted while the transfer runs, attaches to the
    // transfer.
    let mut renewed = request("t");
    renewed.sources[0].ticket = Some("drt_two".into());
    let again = queue.submit(by("alice", renewed)).expect("taken");
    assert!(!again.is_new && again.transfer.attached);
    assert_eq!(again.transfer.attempt, 1);
    let shown = serde_json::to_string(&again.transfer).expect("JSON");
    assert!(!shown.contains("drt_"), "{shown}");
    let job = begin(&queue, "t");
    assert_eq!(job.request.sources[0].ticket.as_deref(), Some("drt_two"));

    // A different request and a request of another owner are refused.
    let mut other = request("t");
    other.verify = true;
    let error = queue.submit(by("alice", other.clone())).expect_err("other");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    let error = queue.submit(by("bob", request("t"))).expect_err("bob's");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    assert!(!error.to_string().contains("alice") && !error.to_string().contains("active"));
    let error = queue.show(&actor("bob"), "t").expect_err("hidden");
    assert_eq!(error.kind, ErrorKind::NotFound);

    // After the transfer has ended, the same submission begins a new attempt.
    queue.ended(&id("t"), Ending::Incomplete).expect("ended");
    let error = queue.submit(by("bob", other.clone())).expect_err("bob's");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    let anew = queue.submit(by("alice", other)).expect("taken");
    assert!(anew.is_new && anew.transfer.request.verify);
    assert_eq!(
        (anew.transfer.attempt, anew.transfer.state),
        (2, State::Queued)
    );
    assert!(anew.transfer.version > again.transfer.version);
    let shown = queue.show(&alice, "t").expect("there");
    assert_eq!(shown.tries, 0);
    assert!(shown.ended_at.is_none() && shown.error.is_none());
}

#[test]
fn a_patched_transfer_is_still_the_same_request() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    let patch: Patch =
        serde_json::from_value(json!({"priority": 9, "rate_max": 5, "labels": {"a": "b"}}))
            .expect("good");
    let changed = queue.patch(&alice, "t", &patch).expect("changed");
    assert_eq!(changed.request.priority, 9);
    assert_eq!(changed.version, 2);
    let same = queue.patch(&alice, "t", &patch).expect("nothing to do");
    assert_eq!(same.version, 2);
    let back: Patch = serde_json::from_value(json!({"rate_max": null})).expect("good");
    let changed = queue.patch(&alice, "t", &back).expect("changed");
    assert_eq!(changed.request.rate_max, None);
    assert!(
        !queue
            .submit(by("alice", request("t")))
            .expect("taken")
            .is_new
    );
    let bad: Patch = serde_json::from_value(json!({"rate_min": 7, "rate_max": 6})).expect("read");
    assert!(queue.patch(&alice, "t", &bad).is_err());
}

#[test]
fn a_batch_is_all_or_none_when_asked() {
    let queue = queue();
    queue.submit(by("bob", request("taken"))).expect("taken");
    let batch = || {
        vec![
            Ok(by("alice", request("one"))),
            Ok(by("alice", request("taken"))),
            Err(lost()),
        ]
    };
    let none = queue.submit_all(batch(), true).expect("answered");
    let kinds: Vec<_> = none
        .iter()
        .map(|one| one.as_ref().expect_err("none").kind)
        .collect();
    assert_eq!(
        kinds,
        [
            ErrorKind::Cancelled,
            ErrorKind::AlreadyExists,
            ErrorKind::Unreachable
        ]
    );
    assert!(queue.show(&actor("alice"), "one").is_err());
    let some = queue.submit_all(batch(), false).expect("answered");
    assert!(some[0].is_ok() && some[1].is_err() && some[2].is_err());
    assert!(queue.show(&actor("alice"), "one").is_ok());
}

#[test]
fn who_cancels_what_it_has_seen_cancels_nothing_else() {
    let queue = queue();
    let alice = actor("alice");
    let seen = queue.submit(by("alice", request("t"))).expect("taken");
    let seen = seen.transfer.version;
    let patch = Patch {
        priority: Some(7),
        ..Patch::default()
    };
    let now = queue.patch(&alice, "t", &patch).expect("changed").version;
    let refused = queue.cancel_as_seen(&alice, "t", false, seen);
    assert_eq!(refused.expect_err("changed").kind, ErrorKind::AlreadyExists);
    assert_eq!(queue.show(&alice, "t").expect("there").state, State::Queued);
    let cancelled = queue.cancel_as_seen(&alice, "t", false, now);
    assert_eq!(cancelled.expect("as seen").state, State::Cancelled);
    // A caller that got no answer to its cancellation repeats it.
    assert!(queue.cancel_as_seen(&alice, "t", false, now).is_ok());
}

#[test]
fn a_full_queue_says_so_and_takes_what_is_there() {
    let queue = queue();
    let many = (0..2000).map(|at| Ok(by("alice", request(&format!("t{at}")))));
    let taken = queue.submit_all(many.collect(), false).expect("answered");
    assert!(taken.iter().all(Result::is_ok));
    let error = queue
        .submit(by("alice", request("more")))
        .expect_err("full");
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(queue.submit(by("alice", request("t7"))).is_ok(), "attached");
}

#[test]
fn who_is_refused_a_new_attempt_takes_no_place() {
    let queue = queue();
    queue.submit(by("alice", request("purged"))).expect("taken");
    begin(&queue, "purged");
    queue
        .ended(&id("purged"), Ending::Failed(lost()))
        .expect("ended");
    queue
        .cancel(&actor("alice"), "purged", true)
        .expect("asked");
    let many = (0..1999).map(|at| Ok(by("alice", request(&format!("t{at}")))));
    let taken = queue.submit_all(many.collect(), false).expect("answered");
    assert!(taken.iter().all(Result::is_ok));
    let batch = vec![
        Ok(by("alice", request("purged"))),
        Ok(by("alice", request("last"))),
        Ok(by("alice", request("more"))),
    ];
    let taken = queue.submit_all(batch, false).expect("answered");
    let kinds = taken
        .iter()
        .map(|one| one.as_ref().err().map(|error| error.kind));
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(
        kinds,
        [Some(ErrorKind::AlreadyExists), None, Some(ErrorKind::Busy)]
    );
    queue
        .cancel(&actor("alice"), "t7", false)
        .expect("cancelled");
    queue.submit(by("alice", request("more"))).expect("taken");
    let full = retry(&queue, &actor("alice"), "t7").expect_err("full");
    assert!(
        full.to_string().contains("try the transfer again"),
        "{full}"
    );
}

#[test]
fn one_owner_fills_neither_the_queue_nor_the_tickets() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = settings(folder.path());
    settings.transfers_of_owner = 3;
    settings.tickets_of_owner = 2;
    let queue = Queue::open(settings, Arc::new(Hub::new(4, clock::now()))).expect("opened");
    let batch = |owner: &str, names: &[&str]| {
        let of = |name: &&str| Ok(by(owner, request(name)));
        names.iter().map(of).collect::<Vec<_>>()
    };
    let taken = queue.submit_all(batch("alice", &["a", "b", "c", "d"]), false);
    let taken = taken.expect("answered");
    assert!(taken[..3].iter().all(Result::is_ok));
    let error = &taken[3].as_ref().expect_err("one too many").error;
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(
        error.to_string().contains("3 transfers of alice"),
        "{error}"
    );
    assert!(queue.submit(by("bob", request("e"))).is_ok());
    begin(&queue, "a");
    queue.ended(&id("a"), Ending::Incomplete).expect("ended");
    assert!(
        queue.submit(by("alice", request("d"))).is_ok(),
        "a place is free"
    );
    assert!(
        queue.submit(by("alice", request("a"))).is_err(),
        "no second one"
    );

    let again = retry(&queue, &actor("alice"), "a").expect_err("by hand neither");
    assert_eq!(again.kind, ErrorKind::Busy);

    let ticket = |id: &str, owner: &str| super::TicketRow {
        id: id.to_owned(),
        transfer: "t".to_owned(),
        direction: dray_api::Direction::Read,
        paths: vec!["/data/x".to_owned()],
        overwrite: dray_core::options::Overwrite::Never,
        owner: owner.to_owned(),
        principal: owner.to_owned(),
        peer_key: String::new(),
        issued_at: clock::now(),
        expires_at: clock::now(),
        renewable_until: clock::now(),
        is_revoked: false,
        wish: dray_api::RateWish::default(),
        claim: None,
    };
    let keep = |id: &str, owner: &str, secret: u8| {
        let kept = queue.tickets().insert(&ticket(id, owner), [secret; 32]);
        kept.map_err(|error| error.kind)
    };
    assert_eq!(keep("one", "alice", 1), Ok(()));
    assert_eq!(keep("two", "alice", 2), Ok(()));
    assert_eq!(keep("three", "alice", 3), Err(ErrorKind::Busy));
    assert_eq!(keep("three", "bob", 3), Ok(()));
}

#[test]
fn pages_are_stable_while_others_submit() {
    let queue = queue();
    for at in 0..10 {
        let owner = if at % 2 == 0 { "alice" } else { "bob" };
        queue
            .submit(by(owner, request(&format!("t{at}"))))
            .expect("taken");
    }
    let alice = actor("alice");
    let mut query = TransferQuery {
        limit: 2,
        ..TransferQuery::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = queue.list(&alice, &query).expect("listed");
        seen.extend(page.transfers.iter().map(|transfer| transfer.id.clone()));
        queue
            .submit(by("alice", request(&format!("new{}", seen.len()))))
            .expect("taken");
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["t8", "t6", "t4", "t2", "t0"]);
    query.cursor = Some("x".into());
    assert!(queue.list(&alice, &query).is_err());
    let all = TransferQuery {
        limit: 1000,
        ..TransferQuery::default()
    };
    assert_eq!(
        queue
            .list(&actor("root"), &all)
            .expect("listed")
            .transfers
            .len(),
        13
    );
}

#[test]
fn filters_find_what_they_name() {
    let queue = queue();
    let mut labelled = request("one");
    labelled.labels = [("run".to_owned(), "42:7".to_owned())].into();
    labelled.activity = Some("Data'; DROP".into());
    queue.submit(by("alice", labelled)).expect("taken");
    queue.submit(by("alice", request("two"))).expect("taken");
    begin(&queue, "two");
    let alice = actor("alice");
    let count = |change: &dyn Fn(&mut TransferQuery)| {
        let mut query = TransferQuery {
            limit: 10,
            ..TransferQuery::default()
        };
        change(&mut query);
        let list = queue.list(&alice, &query).expect("listed");
        let mut ids: Vec<_> = list.transfers.into_iter().map(|t| t.id).collect();
        ids.sort();
        ids.join(" ")
    };
    assert_eq!(count(&|q| q.state = vec![StateWord::Active]), "two");
    assert_eq!(count(&|q| q.state = vec![StateWord::Live]), "one two");
    assert_eq!(count(&|q| q.state = vec![StateWord::Terminal]), "");
    assert_eq!(count(&|q| q.label = vec!["run:42:7".into()]), "one");
    assert_eq!(count(&|q| q.label = vec!["run:42".into()]), "");
    assert_eq!(count(&|q| q.activity = Some("Data'; DROP".into())), "one");
    assert_eq!(count(&|q| q.source = Some("dray://b.".into())), "one two");
    assert_eq!(count(&|q| q.source = Some("%".into())), "");
    assert_eq!(count(&|q| q.owner = Some("bob".into())), "");
    let soon = clock::now().after(Duration::from_secs(60));
    assert_eq!(count(&|q| q.submitted_after = Some(soon)), "");
    assert_eq!(count(&|q| q.submitted_before = Some(soon)), "one two");
    let found = queue
        .query(&alice, &["one".into(), "three".into()])
        .expect("asked");
    assert!(found["one"].0.is_some() && found["three"].0.is_none());
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn say(&self, what: String) {
        self.0.lock().expect("whole").push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("whole"))
    }
}

impl Commands for Heard {
    fn wake(&self) {
        self.say("wake".into());
    }
    fn stop(&self, id: &TransferId, wish: Wish) {
        self.say(format!("stop {id} {}", wish.word()));
    }
    fn changed(&self, id: &TransferId) {
        self.say(format!("changed {id}"));
    }
    fn purge(&self) {
        self.say("purge".into());
    }
}

#[test]
fn what_is_asked_of_a_running_transfer_reaches_its_dispatcher() {
    let queue = queue();
    let heard = Arc::new(Heard::default());
    queue.set_commands(Arc::clone(&heard) as Arc<dyn Commands>);
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    assert_eq!(heard.take(), ["wake"]);
    begin(&queue, "t");
    let patch: Patch = serde_json::from_value(json!({"weight": 7})).expect("good");
    queue.patch(&alice, "t", &patch).expect("changed");
    assert_eq!(heard.take(), ["changed t", "wake"]);
    let asked = queue.pause(&alice, "t").expect("asked");
    assert_eq!(asked.state, State::Active, "until its session has ended");
    assert_eq!(heard.take(), ["stop t pause"]);
    queue.pause(&alice, "t").expect("asked again");
    assert_eq!(heard.take(), Vec::<String>::new());
    assert_eq!(queue.wish(&id("t")).expect("read"), Some(Wish::Pause));
    let state = queue.ended(&id("t"), Ending::Stopped).expect("ended");
    assert_eq!(state, Some(State::Paused));
    queue.resume(&alice, "t").expect("asked");
    begin(&queue, "t");
    queue.cancel(&alice, "t", true).expect("asked");
    assert!(heard.take().contains(&"stop t purge".to_owned()));
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    assert!(heard.take().contains(&"purge".to_owned()));
    assert_eq!(queue.to_purge(10).expect("read").len(), 1);
    assert!(
        queue.delete(&alice, "t").is_err(),
        "not while it is removed"
    );
    assert!(queue.submit(by("alice", request("t"))).is_err());
    queue.purged(&id("t"), None).expect("written");
    assert!(queue.to_purge(10).expect("read").is_empty());
    assert_eq!(
        queue.delete(&alice, "t").expect("gone").state,
        State::Cancelled
    );
    assert!(queue.show(&alice, "t").is_err());
}

#[test]
fn what_never_began_has_nothing_to_be_purged_unless_it_began_before() {
    let queue = queue();
    let alice = actor("alice");
    let purges = |queue: &Queue| {
        let jobs = queue.to_purge(10).expect("read");
        let told = jobs
            .iter()
            .map(|job| (job.input.id.to_string(), job.has_begun));
        told.collect::<Vec<_>>()
    };
    for name in ["never", "again"] {
        queue.submit(by("alice", request(name))).expect("taken");
    }
    begin(&queue, "again");
    let lost = Ending::Failed(lost());
    queue.ended(&id("again"), lost).expect("ended");
    retry(&queue, &alice, "again").expect("a second attempt");
    for name in ["never", "again"] {
        queue.cancel(&alice, name, true).expect("cancelled");
    }
    let wanted = [("never".to_owned(), false), ("again".to_owned(), true)];
    assert_eq!(purges(&queue), wanted);
    let report = crate::queue::PurgeReport {
        notice: "purged: nothing".to_owned(),
        is_purged: true,
    };
    queue.purged(&id("never"), Some(report)).expect("noted");
    assert_eq!(purges(&queue), wanted[1..]);
    let shown = queue.show(&alice, "never").expect("there");
    assert_eq!(shown.notices, ["purged: nothing"]);
    assert!(shown.purged);
    let again = queue.show(&alice, "again").expect("there");
    assert!(!again.purged, "not yet");
    queue
        .delete(&alice, "never")
        .expect("nothing is left to do");
}

#[test]
fn partial_data_of_what_failed_can_be_given_up() {
    let queue = queue();
    let alice = actor("alice");
    let endings = [
        ("failed", Ending::Failed(lost())),
        ("incomplete", Ending::Incomplete),
        ("done", Ending::Done),
    ];
    for (name, ending) in endings {
        queue.submit(by("alice", request(name))).expect("taken");
        begin(&queue, name);
        queue.ended(&id(name), ending).expect("ended");
        let error = queue.cancel(&alice, name, false).expect_err("it ended");
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
    }
    assert!(
        queue.cancel(&alice, "done", true).is_err(),
        "nothing is partial"
    );
    for name in ["failed", "incomplete"] {
        let asked = queue.cancel(&alice, name, true).expect("asked");
        assert_eq!(asked.state, State::Cancelled);
        assert!(
            retry(&queue, &alice, name).is_err(),
            "not while it is removed"
        );
    }
    let shown = queue.show(&alice, "failed").expect("there");
    assert!(shown.error.is_some(), "why it failed can still be read");
    let jobs = queue.to_purge(10).expect("read");
    assert_eq!(jobs.iter().filter(|job| job.has_begun).count(), 2);
    for name in ["failed", "incomplete"] {
        queue.purged(&id(name), None).expect("written");
        retry(&queue, &alice, name).expect("a new attempt");
    }
}

#[test]
fn who_is_turned_away_for_want_of_a_place_is_tried_again_without_end() {
    let queue = queue();
    let alice = actor("alice");
    let full = Ending::TurnedAway {
        error: Error::new(ErrorKind::NoPlace, End::Sink, "begin a session"),
        source: None,
    };
    let tries = |name: &str, ending: &Ending| {
        begin(&queue, name);
        queue.ended(&id(name), ending.clone()).expect("written");
        let soon = clock::now().after(Duration::from_secs(3_600));
        queue.tick(soon).expect("looked after");
        queue.show(&alice, name).expect("there").state
    };
    for name in ["there", "two", "once"] {
        let mut wanted = request(name);
        if name == "once" {
            wanted.retry = Some(dray_api::RetryWish {
                tries: 0,
                interval_seconds: 1,
            });
        }
        queue.submit(by("alice", wanted)).expect("taken");
    }
    for _ in 0..15 {
        assert_eq!(tries("there", &full), State::Queued);
    }
    // A refusal for lack of a slot also does not count towards the tries after later breaks.
    assert_eq!(tries("there", &broken(false)), State::Queued);
    assert_eq!(tries("there", &broken(false)), State::Failed);
    // A request without retries fails, even if the other end only had no free slot.
    assert_eq!(tries("once", &full), State::Failed);
    // With several replicas, the next session reads the next one.
    let next = Ending::TurnedAway {
        error: Error::new(ErrorKind::NoPlace, End::Source, "begin a session"),
        source: Some(1),
    };
    assert_eq!(tries("two", &next), State::Queued);
    assert_eq!(begin(&queue, "two").source, 1);
}

#[test]
fn what_is_being_cancelled_is_neither_retried_nor_attached_to() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    queue.cancel(&alice, "t", false).expect("asked");
    let retried = retry(&queue, &alice, "t").expect_err("lost otherwise");
    let again = queue.submit(by("alice", request("t")));
    for error in [retried, again.expect_err("lost otherwise").error] {
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
        assert!(error.cause.contains("being cancelled"), "{error}");
    }
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    let again = queue.submit(by("alice", request("t"))).expect("taken");
    assert!(again.is_new && again.transfer.attempt == 2);
}

#[test]
fn a_transfer_that_breaks_off_waits_and_then_fails() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    let state = queue.ended(&id("t"), broken(false)).expect("ended");
    assert_eq!(state, Some(State::Waiting));
    let shown = queue.show(&alice, "t").expect("there");
    let next = shown.next_try_at.expect("a time");
    assert!(shown.error.is_some());
    assert_eq!(queue.tick(clock::now()).expect("ticked").due, 0);
    assert!(candidates::all(&queue).is_empty());
    assert_eq!(queue.tick(next).expect("ticked").due, 1);
    let runnable = candidates::all(&queue);
    assert_eq!(runnable.len(), 1);
    assert!(
        queue.begin(&id("t"), 1).expect("asked").is_none(),
        "an old version"
    );
    let job = queue
        .begin(&id("t"), runnable[0].version)
        .expect("asked")
        .expect("queued");
    assert_eq!(job.session % 1_000, 2);
    assert!(queue.begin(&id("t"), job.version).expect("asked").is_none());
    let state = queue.ended(&id("t"), broken(false)).expect("ended");
    assert_eq!(state, Some(State::Failed));
    let failed = queue.show(&alice, "t").expect("there");
    assert_eq!(failed.error.expect("why").status, "exhausted");
    assert!(failed.ended_at.is_some() && failed.next_try_at.is_none());
    assert_eq!(queue.ended(&id("t"), Ending::Done).expect("asked"), None);
    let retried = retry(&queue, &alice, "t").expect("retried");
    assert_eq!((retried.attempt, retried.state), (2, State::Queued));
}

#[test]
fn a_killed_process_loses_nothing_it_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let alice = actor("alice");
    let queue = open(&state);
    for name in ["a", "b", "c", "d"] {
        queue.submit(by("alice", request(name))).expect("taken");
    }
    begin(&queue, "a");
    begin(&queue, "b");
    queue.cancel(&alice, "b", false).expect("asked");
    begin(&queue, "c");
    queue.ended(&id("c"), broken(true)).expect("ended");
    queue.pause(&alice, "d").expect("paused");
    let mut manifest = queue.manifest(&id("a"), 1).expect("opened");
    manifest.add(&files::outcome("x")).expect("added");
    manifest.flush().expect("written");
    // Copy the files while the queue still has them open: the copy is in the state that a kill
    // would leave.
    let left = folder.path().join("left");
    std::fs::create_dir(&left).expect("made");
    for name in ["queue.db", "queue.db-wal"] {
        std::fs::copy(state.join(name), left.join(name)).expect("copied");
    }
    let queue = open(&left);
    assert_eq!(queue.requeue_interrupted().expect("requeued"), 3);
    let states = ["a", "b", "c", "d"].map(|name| queue.show(&alice, name).expect("there").state);
    assert_eq!(
        states,
        [
            State::Queued,
            State::Cancelled,
            State::Queued,
            State::Paused
        ]
    );
    assert_eq!(queue.requeue_interrupted().expect("nothing"), 0);
}

#[test]
fn counters_of_sessions_add_up_and_survive() {
    let folder = tempfile::tempdir().expect("a folder");
    let alice = actor("alice");
    let queue = open(folder.path());
    queue.submit(by("alice", request("t"))).expect("taken");
    let job = begin(&queue, "t");
    let mut counters = Counters::default();
    (
        counters.bytes.sent,
        counters.bytes.durable,
        counters.bytes.resumed,
        counters.bytes.read_back,
    ) = (100, 90, 10, 10);
    queue.progress(&job.id, &counters);
    queue.file_failed(&job.id, &RelPath::parse(b"a%\xff").expect("good"), &lost());
    for at in 0..20 {
        queue.noticed(&job.id, &format!("notice {at}"));
    }
    let shown = queue.show(&alice, "t").expect("there");
    assert_eq!(shown.bytes.sent, 100);
    assert_eq!(shown.failures[0].path, "a%25%FF");
    assert_eq!(shown.notices.len(), 10);
    queue.ended(&job.id, Ending::Stopped).expect("ended");
    let job = begin(&queue, "t");
    (
        counters.bytes.sent,
        counters.bytes.durable,
        counters.bytes.resumed,
        counters.bytes.read_back,
    ) = (50, 140, 90, 90);
    queue.progress(&job.id, &counters);
    let bytes = queue.show(&alice, "t").expect("there").bytes;
    assert_eq!((bytes.sent, bytes.durable, bytes.resumed), (150, 140, 10));
    assert_eq!(bytes.read_back, 100);
    queue.ended(&job.id, Ending::Done).expect("ended");
    drop(queue);
    let shown = open(folder.path()).show(&alice, "t").expect("there");
    assert_eq!((shown.state, shown.bytes.sent), (State::Done, 150));
    assert_eq!(shown.notices[9], "notice 19");
}

#[test]
fn nobody_asks_for_it_and_it_is_cancelled() {
    let queue = queue();
    let mut bound = request("bound");
    bound.bound_seconds = Some(1);
    queue.submit(by("alice", bound)).expect("taken");
    queue.submit(by("alice", request("free"))).expect("taken");
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 0);
    std::thread::sleep(Duration::from_millis(600));
    queue.show(&actor("alice"), "bound").expect("asked for");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 1);
    let shown = queue.show(&actor("alice"), "bound").expect("there");
    assert_eq!(shown.state, State::Cancelled);
    assert!(shown.notices[0].contains("no caller"));
}

#[test]
fn history_forgets_the_oldest() {
    let queue = queue();
    let alice = actor("alice");
    for at in 0..8 {
        let name = format!("t{at}");
        queue.submit(by("alice", request(&name))).expect("taken");
        queue.cancel(&alice, &name, false).expect("cancelled");
        std::thread::sleep(Duration::from_millis(3));
    }
    queue.submit(by("alice", request("live"))).expect("taken");
    assert_eq!(queue.tick(clock::now()).expect("ticked").pruned, 3);
    assert!(queue.show(&alice, "t2").is_err());
    assert!(queue.show(&alice, "t3").is_ok());
    let later = clock::now().after(Duration::from_secs(31 * 86_400));
    assert_eq!(queue.tick(later).expect("ticked").pruned, 5);
    assert!(queue.show(&alice, "live").is_ok());
}

#[test]
fn many_callers_share_syncs_and_versions_grow() {
    let queue = queue();
    let start = Instant::now();
    let shared = &queue.queue;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for at in 0..25 {
                    let name = format!("t{thread}-{at}");
                    shared.submit(by("alice", request(&name))).expect("taken");
                    let paused = shared.pause(&actor("alice"), &name).expect("paused");
                    assert_eq!(paused.version, 2);
                }
            });
        }
    });
    // On a disk, 400 writes with one sync each would take far longer than this.
    assert!(start.elapsed() < Duration::from_secs(60));
    let heard = queue.hub().since(0, usize::MAX, |_| true);
    assert_eq!(heard.events.len(), 400);
    let mut versions = std::collections::HashMap::new();
    for published in &heard.events {
        let name = published.event.transfer.clone().expect("named");
        let before = versions.insert(name, published.event.version);
        assert!(before.flatten() < published.event.version);
    }
}

#[test]
fn a_defect_in_one_write_ends_no_other() {
    let queue = queue();
    let error = queue
        .write(|connection, _| -> dray_core::Result<()> {
            let changed = connection.execute("UPDATE numbers SET value = 1000", []);
            panic!("a defect after {changed:?}");
        })
        .expect_err("a defect");
    assert_eq!(error.kind, ErrorKind::Internal);
    let taken = queue.submit(by("alice", request("t"))).expect("goes on");
    assert!(taken.is_new);
    let seq = candidates::all(&queue)[0].seq;
    assert_eq!(seq, 1, "what it wrote is undone");
}

#[test]
fn two_processes_do_not_share_a_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = open(folder.path());
    let hub = Arc::new(Hub::new(4, clock::now()));
    let error = Queue::open(settings(folder.path()), hub).expect_err("taken");
    assert_eq!(error.kind, ErrorKind::Busy);
    for name in ["queue.db", "queue.db-wal", "queue.db.made", "lock"] {
        use std::os::unix::fs::PermissionsExt;
        let state = std::fs::metadata(folder.path().join(name)).expect("there");
        assert_eq!(state.permissions().mode() & 0o777, 0o600, "{name}");
    }
    drop(one);
    open(folder.path());
}

/// A receiver of commands that panics at its first wake-up.
struct Fails(std::sync::atomic::AtomicBool);

impl Commands for Fails {
    fn wake(&self) {
        let first = self.0.swap(false, std::sync::atomic::Ordering::Relaxed);
        assert!(!first, "a defect");
    }
    fn stop(&self, _: &TransferId, _: Wish) {}
    fn changed(&self, _: &TransferId) {}
    fn purge(&self) {}
}

#[test]
fn a_defect_in_who_is_told_does_not_end_the_writing() {
    let queue = queue();
    queue.set_commands(Arc::new(Fails(true.into())));
    assert!(queue.submit(by("alice", request("one"))).is_err());
    queue.submit(by("alice", request("two"))).expect("goes on");
    // The request is on the disk, so a repeated submission attaches to it.
    let again = queue.submit(by("alice", request("one"))).expect("there");
    assert!(!again.is_new);
}

#[test]
fn what_is_bound_is_not_cancelled_before_its_caller_could_ask() {
    let queue = queue();
    let mut bound = request("bound");
    bound.bound_seconds = Some(1);
    // Wait until no caller has asked about any transfer for longer than the bound.
    std::thread::sleep(Duration::from_millis(1100));
    // The dispatcher's round runs after the write, and before the caller's request is recorded.
    let taken = queue.write(move |connection, effects| {
        let (submission, now) = (by("alice", bound), clock::now());
        let alone = super::submit::Promising::Alone;
        let places = super::quota::Limits {
            all: 1,
            of_owner: 1,
        };
        let mut room = super::quota::Quota::count(connection, places, super::submit::SUBMIT)?;
        super::submit::take(
            connection,
            effects,
            (submission, None),
            &mut room,
            alone,
            now,
        )
        .map_err(|refused| refused.error)
    });
    assert!(taken.expect("taken").1);
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 0);
    let shown = queue.show(&actor("root"), "bound").expect("there");
    assert_eq!(shown.state, State::Queued);
}

#[test]
fn counters_never_fall() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    let job = begin(&queue, "t");
    let mut counters = Counters::default();
    (counters.bytes.sent, counters.bytes.durable) = (100, 90);
    (counters.files.listed, counters.files.done) = (5, 3);
    queue.progress(&job.id, &counters);
    queue.ended(&job.id, Ending::Stopped).expect("ended");
    // A session that ends early has not found the durable data of earlier sessions again.
    let job = begin(&queue, "t");
    queue.progress(&job.id, &Counters::default());
    let shown = queue.show(&alice, "t").expect("there");
    assert_eq!((shown.bytes.durable, shown.files.done), (90, 3));
    assert_eq!(shown.files.listed, 5);
    queue.ended(&job.id, Ending::Incomplete).expect("ended");
    assert_eq!(queue.bytes_sent(), 100);
    retry(&queue, &alice, "t").expect("retried");
    assert_eq!(queue.bytes_sent(), 100);
    let job = begin(&queue, "t");
    (counters.bytes.sent, counters.bytes.durable) = (7, 97);
    queue.progress(&job.id, &counters);
    queue.ended(&job.id, Ending::Done).expect("ended");
    assert_eq!(queue.bytes_sent(), 107);
    queue.delete(&alice, "t").expect("forgotten");
    assert_eq!(queue.bytes_sent(), 107);
}

#[test]
fn what_is_held_says_so_to_who_asks_and_who_listens() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    queue.granted(&id("t"), Some(9));
    let shown = || queue.show(&alice, "t").expect("there");
    assert!(!shown().held);
    let before = queue.hub().last();
    // Holding a held transfer again is not counted.
    queue.held(&id("t"), true);
    queue.held(&id("t"), true);
    let held = shown();
    assert_eq!(
        (held.state, held.held, held.rate.granted),
        (State::Active, true, Some(0))
    );
    queue.held(&id("t"), false);
    assert_eq!((shown().held, shown().rate.granted), (false, Some(9)));
    assert_eq!(queue.hub().last(), before + 2);
    // A hold does not end a transfer. A transfer that has ended is not held.
    queue.held(&id("t"), true);
    queue.ended(&id("t"), Ending::Stopped).expect("written");
    assert_eq!((shown().state, shown().held), (State::Queued, false));
}

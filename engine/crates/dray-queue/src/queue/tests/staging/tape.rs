//! Tests of the tables of tape requests.

use crate::clock;
use crate::queue::tests::{QueueInFolder, actor, begin, id, queue};
use crate::queue::{Ending, StagedRow, Submission, TapeFile, TapeRequest};
use dray_api::{Route, StagedDirection, TapeFileState as At};
use dray_core::ErrorKind;
use serde_json::json;
use std::time::Duration;

fn tape(id: &str, owner: &str) -> TapeRequest {
    TapeRequest {
        id: id.to_owned(),
        owner: owner.to_owned(),
        principal: format!("{owner}@test"),
        created_at: clock::now(),
    }
}

fn file(copy: &str, name: &str) -> TapeFile {
    TapeFile {
        path: format!("/slow/{name}"),
        copy: copy.to_owned(),
        slow_path: format!("/slow/{name}"),
        fast_path: format!("/fast/{name}"),
        activity: None,
        priority: None,
        lifetime_seconds: 60,
        state: At::Submitted,
        started_at: None,
        finished_at: None,
        error: None,
    }
}

fn row(file: &TapeFile, owner: &str) -> StagedRow {
    let request = json!({"id": file.copy, "path": file.slow_path, "to": file.fast_path,
        "pin_seconds": 60, "lifetime_seconds": 60});
    StagedRow {
        id: file.copy.clone(),
        owner: owner.to_owned(),
        direction: StagedDirection::In,
        request: serde_json::from_value(request).expect("good"),
        fast_path: file.fast_path.clone(),
        slow_path: file.slow_path.clone(),
        pinned_until: None,
        staged_at: None,
        expires_at: None,
        evicted_at: None,
        bytes: 0,
        is_hit: false,
    }
}

fn submit(queue: &QueueInFolder, file: &TapeFile, owner: &str) {
    let request = json!({"id": file.copy, "sources": [{"url": file.slow_path}],
        "destination": {"url": file.fast_path}});
    let request = serde_json::from_value(request).expect("good");
    let submission = Submission {
        route: Route::parse(&request, |_| false).expect("good"),
        request,
        owner: owner.to_owned(),
        principal: owner.to_owned(),
        claim: None,
    };
    let submitted = queue.submit_staged(submission, row(file, owner), None);
    assert!(submitted.expect("submitted").is_new);
    let ended = queue.tape().started(vec![file.copy.clone()]);
    assert!(ended.expect("noted").is_empty());
}

/// Returns the states of the files of a request, by path.
fn states(queue: &QueueInFolder, owner: &str, request: &str) -> Vec<At> {
    let (_, files) = queue.tape().show(&actor(owner), request).expect("shown");
    files.into_iter().map(|file| file.state).collect()
}

#[test]
fn a_file_follows_its_transfer_and_keeps_its_last_state() {
    let queue = queue();
    let tape_of = queue.tape();
    let files = vec![file("c-a", "a"), file("c-b", "b"), file("c-c", "c")];
    tape_of
        .submit(tape("r", "alice"), files.clone())
        .expect("stored");
    assert_eq!(states(&queue, "alice", "r"), [At::Submitted; 3]);
    for one in &files {
        submit(&queue, one, "alice");
    }
    tape_of.follow().expect("followed");
    assert_eq!(states(&queue, "alice", "r"), [At::Submitted; 3]);
    begin(&queue, "c-a");
    assert_eq!(states(&queue, "alice", "r")[0], At::Started);
    queue.ended(&id("c-a"), Ending::Done).expect("ended");
    queue
        .cancel(&actor("alice"), "c-b", false)
        .expect("cancelled");
    tape_of.follow().expect("followed");
    let wanted = [At::Completed, At::Cancelled, At::Submitted];
    assert_eq!(states(&queue, "alice", "r"), wanted);
    // A state that has ended a file stays.
    assert!(!tape_of.end("c-a", At::Failed, None).expect("asked"));
    assert!(
        tape_of
            .cancelled(vec!["c-a".to_owned()])
            .expect("asked")
            .is_empty()
    );
    queue.delete(&actor("alice"), "c-a").expect("deleted");
    tape_of.follow().expect("followed");
    assert_eq!(states(&queue, "alice", "r"), wanted);
}

#[test]
fn a_file_that_is_cancelled_during_its_submission_is_named() {
    let queue = queue();
    let one = file("c-a", "a");
    queue
        .tape()
        .submit(tape("r", "alice"), vec![one])
        .expect("stored");
    let live = queue.tape().cancelled(vec!["c-a".to_owned()]);
    assert_eq!(live.expect("noted"), ["c-a"]);
    let ended = queue.tape().started(vec!["c-a".to_owned()]);
    assert_eq!(ended.expect("noted"), ["c-a"]);
    assert_eq!(states(&queue, "alice", "r"), [At::Cancelled]);
}

#[test]
fn each_owner_has_its_own_number_of_transfers() {
    let queue = queue();
    let of_alice: Vec<_> = (0..5)
        .map(|at| file(&format!("a-{at}"), &format!("a{at}")))
        .collect();
    queue
        .tape()
        .submit(tape("r-a", "alice"), of_alice.clone())
        .expect("stored");
    queue
        .tape()
        .submit(tape("r-b", "bob"), vec![file("b-0", "b0")])
        .expect("stored");
    let copies = || -> Vec<String> {
        let jobs = queue.tape().jobs(3).expect("listed");
        jobs.into_iter().map(|job| job.file.copy).collect()
    };
    assert_eq!(copies(), ["a-0", "a-1", "a-2", "b-0"]);
    submit(&queue, &of_alice[0], "alice");
    submit(&queue, &of_alice[1], "alice");
    assert_eq!(copies(), ["a-2", "b-0"]);
    let arriving = |copy| queue.tape().is_arriving("/fast/a0", copy).expect("asked");
    assert!(arriving("other"));
    assert!(!arriving("a-0"), "its own transfer");
}

#[test]
fn a_request_belongs_to_its_owner() {
    let queue = queue();
    let stored = queue
        .tape()
        .submit(tape("r", "alice"), vec![file("c-a", "a")]);
    stored.expect("stored");
    let error = queue.tape().show(&actor("bob"), "r").expect_err("hidden");
    assert_eq!(error.kind, ErrorKind::NotFound);
    let paths = ["/slow/a".to_owned()];
    let of = |owner| queue.tape().files_of(owner, &paths).expect("listed").len();
    assert_eq!((of("alice"), of("bob")), (1, 0));
    queue.tape().delete("r").expect("deleted");
    assert_eq!(of("alice"), 0);
}

#[test]
fn a_release_ends_the_pin_and_the_lifetime_of_what_was_staged() {
    let queue = queue();
    let (one, two) = (file("c-a", "a"), file("c-b", "b"));
    let files = vec![one.clone(), two.clone()];
    queue
        .tape()
        .submit(tape("r", "alice"), files)
        .expect("stored");
    let mut kept = row(&two, "alice");
    kept.request.lifetime_seconds = None;
    queue.tape().hit(row(&one, "alice")).expect("noted");
    queue.tape().hit(kept).expect("noted");
    assert_eq!(states(&queue, "alice", "r"), [At::Completed; 2]);
    assert!(queue.tape().is_staged_in("/fast/a").expect("asked"));
    assert!(!queue.tape().is_staged_in("/fast/b").expect("asked"));
    let shown = |copy| {
        queue
            .staging()
            .show(&actor("alice"), copy)
            .expect("shown")
            .0
    };
    assert!(shown("c-a").pinned_until > Some(clock::now()));
    let copies = vec!["c-a".to_owned(), "c-b".to_owned()];
    queue.tape().release(copies).expect("released");
    assert_eq!(shown("c-a").pinned_until, None);
    assert!(shown("c-a").expires_at <= Some(clock::now()));
    assert_eq!(
        (shown("c-b").pinned_until, shown("c-b").expires_at),
        (None, None)
    );
    queue.tape().delete("r").expect("deleted");
    let is_kept = |copy| queue.staging().show(&actor("alice"), copy).is_ok();
    assert!(is_kept("c-a"), "its eviction ends it");
    assert!(!is_kept("c-b"), "nothing else would end it");
}

#[test]
fn old_requests_are_forgotten_when_all_files_have_ended() {
    let queue = queue();
    let mut over = file("c-a", "a");
    over.state = At::Failed;
    over.finished_at = Some(clock::now());
    queue
        .tape()
        .submit(tape("over", "alice"), vec![over.clone()])
        .expect("stored");
    let live = vec![
        TapeFile {
            copy: "c-b".to_owned(),
            ..over
        },
        file("c-c", "c"),
    ];
    queue
        .tape()
        .submit(tape("live", "alice"), live)
        .expect("stored");
    let later = clock::now().after(Duration::from_secs(1));
    queue
        .forget_tape(clock::now().before(Duration::from_secs(60)))
        .expect("looked");
    assert_eq!(states(&queue, "alice", "over"), [At::Failed]);
    queue.forget_tape(later).expect("forgotten");
    assert!(queue.tape().show(&actor("alice"), "over").is_err());
    assert_eq!(states(&queue, "alice", "live").len(), 2);
}

//! Tests of staging through the API: permissions, pins and the times of evictions.

use super::{House, house, with_a_third_root, with_a_tier};
use crate::accounts::Accounts;
use crate::accounts::tests::{ALICE, Made, may_act};
use crate::audit::Audit;
use crate::staging::{Expiry, Later};
use crate::storage::Given;
use dray_api::TierVersionState;
use dray_core::TransferId;
use dray_queue::Ending;
use dray_queue::clock;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Stages `what` in for `owner` under the id `id`, and creates the fast copy.
pub(super) async fn staged(house: &House, owner: &str, id: &str, what: &str, more: Value) {
    let mut wanted = json!({"id": id, "path": format!("/slow/{what}"), "recursive": true});
    for (key, value) in more.as_object().expect("fields") {
        wanted[key] = value.clone();
    }
    let (code, answer) = house.post(owner, "/v1/staging/in", wanted).await;
    assert_eq!(code, 201, "{answer}");
    let queue = &house.api.queue;
    let transfer = TransferId::new(id).expect("good");
    queue.begin(&transfer, 1).expect("written").expect("queued");
    let to = house.place.join("fast").join(what);
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("made");
    let from = house.place.join("slow").join(what);
    let copy = Command::new("cp").arg("-aT").args([&from, &to]).status();
    assert!(copy.expect("ran").success());
    queue.ended(&transfer, Ending::Done).expect("ended");
}

fn fill(house: &House) {
    std::fs::create_dir_all(house.place.join("slow/run/deep")).expect("made");
    std::fs::create_dir(house.place.join("slow/other")).expect("made");
    for name in ["a", "deep/b"] {
        std::fs::write(house.place.join("slow/run").join(name), name).expect("written");
    }
}

async fn unpin(house: &House, owner: &str, id: &str) -> (u16, Value) {
    let path = format!("/v1/staging/{id}/pin");
    house
        .post(owner, &path, json!({"lifetime_seconds": 0}))
        .await
}

async fn evict(house: &House, owner: &str, id: &str) -> (u16, Value) {
    let path = format!("/v1/staging/{id}/evict");
    house.post(owner, &path, Value::Null).await
}

#[tokio::test]
async fn a_staging_stores_its_bound_and_refuses_a_bound_of_zero() {
    let house = house();
    fill(&house);
    let wanted = json!({"id": "all", "path": "/slow/run", "recursive": true, "bound_seconds": 60});
    let (code, answer) = house.post("alice", "/v1/staging/in", wanted).await;
    assert_eq!(
        (code, &answer["bound_seconds"]),
        (201, &json!(60)),
        "{answer}"
    );
    let transfer = house
        .call("alice", "GET /v1/transfers/all", Value::Null)
        .await
        .1;
    assert_eq!(transfer["request"]["bound_seconds"], 60, "{transfer}");
    let never = json!({"path": "/slow/other", "bound_seconds": 0});
    assert_eq!(house.post("alice", "/v1/staging/in", never).await.0, 400);
}

#[tokio::test]
async fn a_file_pinned_by_another_owner_and_its_folder_are_kept() {
    let house = house();
    fill(&house);
    staged(&house, "alice", "all", "run", json!({})).await;
    let pinned = json!({"recursive": false, "pin_seconds": 3600});
    staged(&house, "bob", "one", "run/deep/b", pinned).await;
    let (code, error) = evict(&house, "alice", "all").await;
    assert_eq!(code, 409, "{error}");
    let cause = error["error"]["cause"].as_str().expect("a text");
    assert!(
        cause.starts_with("/fast/run/deep/b was kept: the fast copy is pinned until 20"),
        "{cause}"
    );
    assert!(house.place.join("fast/run/a").exists(), "all or nothing");
    // After its pin is removed, Bob's copy is not protected. The eviction of the folder also evicts
    // Bob's entry inside.
    let (code, one) = unpin(&house, "bob", "one").await;
    assert_eq!((code, &one["pinned_until"]), (200, &Value::Null), "{one}");
    assert_eq!(unpin(&house, "bob", "one").await.0, 200, "twice is once");
    let (code, gone) = evict(&house, "alice", "all").await;
    assert_eq!((code, &gone["state"]), (200, &json!("evicted")), "{gone}");
    assert!(!house.place.join("fast/run").exists());
    let (_, one) = house.get("bob", "/v1/staging/one").await;
    assert_eq!(one["state"], "evicted");
}

#[tokio::test]
async fn changed_new_and_incomplete_files_are_kept_and_reported() {
    let house = house();
    fill(&house);
    staged(&house, "alice", "all", "run", json!({})).await;
    let fast = house.place.join("fast/run");
    std::fs::write(fast.join("a"), "b").expect("the same size, another time");
    std::fs::write(fast.join("deep/new"), "new").expect("written");
    std::fs::create_dir(fast.join("deep/.dray-log")).expect("made");
    for (at, text) in [(&fast, "run-1"), (&house.place.join("slow/run"), "run-2")] {
        std::os::unix::fs::symlink(text, at.join("latest")).expect("linked");
    }
    let (code, error) = evict(&house, "alice", "all").await;
    assert_eq!(code, 409);
    let cause = error["error"]["cause"].as_str().expect("a text");
    for word in [
        "/fast/run/a was kept: the slow copy and the fast copy differ in size or modification time",
        "/fast/run/latest was kept: the slow copy and the fast copy are links with different \
            targets",
        "/fast/run/deep/new was kept: the file has no slow copy",
        "/fast/run/deep/.dray-log was kept: it belongs to an unfinished",
    ] {
        assert!(cause.contains(word), "{word}: {cause}");
    }
    assert!(fast.join("deep/b").exists(), "nothing went");
}

#[tokio::test]
async fn a_copy_whose_transfer_was_deleted_can_be_evicted() {
    let house = house();
    fill(&house);
    staged(&house, "alice", "all", "run", json!({"pin_seconds": 3600})).await;
    let forgotten = house.call("alice", "DELETE /v1/transfers/all", Value::Null);
    assert_eq!(forgotten.await.0, 200);
    let (_, kept) = house.get("alice", "/v1/staging/all").await;
    assert_eq!(kept["state"], "staged");
    assert_eq!(evict(&house, "alice", "all").await.0, 409, "its pin holds");
    let pin = json!({"lifetime_seconds": 1});
    assert_eq!(house.post("alice", "/v1/staging/all/pin", pin).await.0, 200);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(evict(&house, "alice", "all").await.0, 200);
}

/// Returns the part of the endpoint that evicts expired copies, with the audit log `log`.
fn expiry_of(house: &House, log: &Path) -> Expiry {
    Expiry {
        queue: Arc::clone(&house.api.queue),
        roots: (*house.api.roots).clone(),
        accounts: Arc::clone(&house.api.accounts),
        audit: Arc::new(Audit::open(Some(log)).expect("opened")),
        tiers: Arc::clone(&house.api.tiers),
        is_dry_run: false,
    }
}

#[tokio::test]
async fn an_expired_version_is_evicted_before_the_next_round_of_its_tier() {
    let house = with_a_tier();
    let at = |name: &str| house.place.join(name);
    std::fs::create_dir_all(at("fast/sim/1")).expect("made");
    std::fs::write(at("fast/sim/1/a"), "a").expect("written");
    let wanted = json!({"id": "out", "path": "/fast/sim/1", "recursive": true,
        "application": "sim", "version": 1, "lifetime_seconds": 60});
    let (code, answer) = house.post("alice", "/v1/staging/out", wanted).await;
    assert_eq!(code, 201, "{answer}");
    let transfer = TransferId::new("out").expect("good");
    let queue = &house.api.queue;
    queue.begin(&transfer, 1).expect("written").expect("queued");
    let copy = Command::new("cp")
        .arg("-a")
        .args([at("fast/sim"), at("slow/sim")])
        .status();
    assert!(copy.expect("ran").success());
    // The tier has no running thread in this test, so no round records the end of the transfer.
    queue.ended(&transfer, Ending::Done).expect("ended");
    let versions = queue.tiers().versions("burst").expect("read");
    assert_eq!(versions[0].state, TierVersionState::Demoting);
    let now = clock::now().after(Duration::from_secs(70));
    let expiry = expiry_of(&house, &at("audit.jsonl"));
    let looked = expiry.look(now, &Given::default(), &mut Later::new());
    looked.expect("looked");
    let log = std::fs::read_to_string(at("audit.jsonl")).expect("read");
    assert!(!at("fast/sim/1").exists(), "{log}");
}

#[tokio::test]
async fn expired_copies_are_evicted_unless_they_must_be_kept() {
    let house = house();
    fill(&house);
    let log = house.place.join("audit.jsonl");
    let expiry = |is_dry_run: bool| Expiry {
        is_dry_run,
        ..expiry_of(&house, &log)
    };
    let life = json!({"lifetime_seconds": 60, "pin_seconds": 90});
    staged(&house, "alice", "all", "run", life).await;
    staged(&house, "alice", "kept", "other", json!({})).await;
    let after = |seconds: u64| clock::now().after(Duration::from_secs(seconds));
    let (given, mut later) = (Given::default(), Later::new());
    let mut look = |seconds: u64, is_dry_run: bool| {
        let looked = expiry(is_dry_run).look(after(seconds), &given, &mut later);
        looked.expect("looked");
    };
    let is_there = || house.place.join("fast/run").exists();
    look(30, false);
    look(70, false);
    assert!(is_there() && std::fs::read(&log).expect("read").is_empty());
    // The pin has expired at the time that `look` gets, but not at the time of the clock.
    look(100, false);
    assert!(is_there(), "a pin holds");
    let pin = json!({"lifetime_seconds": 1});
    assert_eq!(house.post("alice", "/v1/staging/all/pin", pin).await.0, 200);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    look(100, false);
    assert!(is_there(), "put off for an hour");
    let untold = Expiry {
        audit: Arc::new(Audit::open(Some("/dev/full".as_ref())).expect("opened")),
        ..expiry(false)
    };
    let error = untold.look(after(3_800), &given, &mut Later::new());
    assert!(error.is_err() && is_there(), "nobody can be told");
    look(3_800, true);
    assert!(is_there(), "only said");
    look(3_800, false);
    assert!(is_there(), "said, and put off for a day");
    look(24 * 3_600 + 3_900, false);
    assert!(!is_there());
    assert_eq!(
        house.get("alice", "/v1/staging/all").await.1["state"],
        "evicted"
    );
    assert_eq!(
        house.get("alice", "/v1/staging/kept").await.1["state"],
        "staged"
    );
    let text = std::fs::read_to_string(&log).expect("read");
    let did = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&line["path"], &line["reason"]),
            (&json!("/fast/run"), &json!("lifetime"))
        );
        line["did"].as_str().expect("a word").to_owned()
    });
    let wanted = ["removes", "left", "would_remove", "removes", "removed"];
    assert_eq!(did.collect::<Vec<_>>(), wanted, "{text}");
}

#[tokio::test]
async fn a_cancelled_staging_reports_the_cancellation() {
    let house = house();
    fill(&house);
    let wanted = json!({"id": "all", "path": "/slow/run", "recursive": true});
    assert_eq!(house.post("alice", "/v1/staging/in", wanted).await.0, 201);
    let cancel = "/v1/transfers/all/cancel";
    assert_eq!(house.post("alice", cancel, json!({})).await.0, 200);
    let (_, all) = house.get("alice", "/v1/staging/all").await;
    assert_eq!(
        (&all["state"], &all["error"]["kind"]),
        (&json!("failed"), &json!("cancelled"))
    );
    assert_eq!(
        all["error"]["cause"],
        "the transfer of the staged copy was cancelled"
    );
}

/// Sends a staging request with a bypass and the fields `more`.
async fn bypass(house: &House, way: &str, more: Value) -> (u16, Value) {
    let mut wanted = json!({"bypass": true, "recursive": true});
    for (key, value) in more.as_object().expect("fields") {
        wanted[key] = value.clone();
    }
    house
        .post("alice", &format!("/v1/staging/{way}"), wanted)
        .await
}

#[tokio::test]
async fn a_bypass_needs_a_root_that_is_neither_fast_nor_slow() {
    let house = with_a_third_root("", |config| Accounts::open(config).expect("opened"));
    fill(&house);
    for (way, wrong, said) in [
        ("in", json!({"path": "/slow/run"}), "/fast/run"),
        (
            "in",
            json!({"path": "/slow/run", "to": "/slow/run2"}),
            "/slow/run2",
        ),
        (
            "in",
            json!({"path": "/third/run", "to": "/third/b"}),
            "/slow",
        ),
        ("out", json!({"path": "/fast/run"}), "/fast/run"),
        (
            "out",
            json!({"path": "/third/run", "to": "/third/run"}),
            "/slow",
        ),
        (
            "in",
            json!({"path": "/slow/run", "to": "/third"}),
            "is a root, but a path below a root is needed",
        ),
        (
            "in",
            json!({"path": "/slow/run", "to": "/none/run"}),
            "/none/run",
        ),
        (
            "in",
            json!({"path": "/slow/run", "to": "/third/run", "pin_seconds": 9}),
            "lifetime_seconds are not allowed",
        ),
    ] {
        let (code, refused) = bypass(&house, way, wrong.clone()).await;
        let words = refused["error"]["message"].as_str().expect("words");
        assert_eq!(code, 400, "{wrong}: {refused}");
        assert!(words.contains(said), "{wrong}: {words}");
    }
}

#[tokio::test]
async fn a_bypass_makes_no_fast_copy() {
    let house = with_a_third_root("", |config| Accounts::open(config).expect("opened"));
    fill(&house);
    let (code, staged) = bypass(
        &house,
        "in",
        json!({"id": "x", "path": "/slow/run", "to": "/third/run"}),
    )
    .await;
    assert_eq!(code, 201, "{staged}");
    let (_, transfer) = house.get("alice", "/v1/transfers/x").await;
    assert_eq!(transfer["request"]["destination"]["url"], "/third/run/");
    let id = TransferId::new("x").expect("good");
    house
        .api
        .queue
        .begin(&id, 1)
        .expect("written")
        .expect("queued");
    std::fs::create_dir(house.place.join("third/run")).expect("made");
    house.api.queue.ended(&id, Ending::Done).expect("ended");
    let pin = json!({"lifetime_seconds": 60});
    let (code, refused) = house.post("alice", "/v1/staging/x/pin", pin).await;
    assert_eq!(code, 409);
    assert!(
        refused.to_string().contains("staged with `bypass`")
            && refused.to_string().contains("without `bypass`"),
        "{refused}"
    );
    // The entry ends as evicted. Files of a bypass are kept, because they are not in the fast root.
    let (code, gone) = evict(&house, "alice", "x").await;
    assert_eq!((code, &gone["state"]), (200, &json!("evicted")));
    assert!(house.place.join("third/run").exists());
    let (code, staged) = bypass(&house, "out", json!({"id": "y", "path": "/third/run"})).await;
    assert_eq!(code, 201, "{staged}");
    assert_eq!(staged["to"], "/slow/run");
}

#[tokio::test]
async fn a_copy_is_evicted_as_its_owners_account() {
    if !may_act() {
        return;
    }
    let house = with_a_third_root("", |_| Accounts::made(Box::new(Made)));
    let of = |path: &str| house.place.join(path);
    std::fs::set_permissions(&house.place, Permissions::from_mode(0o755)).expect("its mode");
    fill(&house);
    // Alice may not enter Bob's folder, and only the endpoint may enter its state folder.
    for owner in ["alice", "bob"] {
        staged(
            &house,
            owner,
            owner,
            "run",
            json!({"to": format!("/fast/{owner}")}),
        )
        .await;
        std::fs::rename(of("fast/run"), of(&format!("fast/{owner}"))).expect("renamed");
    }
    let chown = |path: &str, uid: u32| {
        let owner = format!("{uid}:{uid}");
        let done = Command::new("chown")
            .args(["-R", &owner])
            .arg(of(path))
            .status();
        assert!(done.expect("ran").success());
    };
    chown("fast/alice", ALICE);
    std::fs::set_permissions(of("state"), Permissions::from_mode(0o700)).expect("its mode");
    // Alice does not own the parent folder, so her account may not remove its entries.
    let (code, error) = evict(&house, "alice", "alice").await;
    assert_eq!(code, 409, "{error}");
    let cause = error["error"]["cause"].to_string();
    assert!(
        cause.contains("/fast/alice was kept: Permission denied"),
        "{cause}"
    );
    assert!(of("fast/alice/a").exists(), "all or nothing");
    chown("fast", ALICE);
    chown("fast/bob", 0);
    let (code, error) = evict(&house, "bob", "bob").await;
    assert_eq!(code, 409, "{error}");
    assert!(
        of("fast/bob/a").exists(),
        "bob's account may not, though the endpoint might"
    );
    // A pin of the folder prevents the eviction. Without the pin, the eviction succeeds.
    let pin = json!({"lifetime_seconds": 60});
    house.post("alice", "/v1/staging/alice/pin", pin).await;
    let (code, error) = evict(&house, "alice", "alice").await;
    assert!(
        code == 409 && error.to_string().contains("pinned"),
        "{error}"
    );
    assert_eq!(unpin(&house, "alice", "alice").await.0, 200);
    let (code, gone) = evict(&house, "alice", "alice").await;
    assert_eq!((code, &gone["state"]), (200, &json!("evicted")), "{gone}");
    assert!(!of("fast/alice").exists());
}

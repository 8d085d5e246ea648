//! The versions of a tier survive a restart, and change only from the state that a caller has seen.

use super::staging::row;
use super::{actor, by, open, queue, request};
use crate::clock;
use crate::queue::{TierChange, TierReplica, TierVersion};
use dray_api::{StagedState, TierVersionState as At, Timestamp};
use dray_core::ErrorKind;

fn version(application: &str, number: u64, state: At) -> TierVersion {
    TierVersion {
        tier: "burst".to_owned(),
        application: application.to_owned(),
        version: number,
        owner: "alice".to_owned(),
        fast_path: format!("/fast/{application}/{number}"),
        slow_path: format!("/slow/{application}/{number}"),
        is_folder: true,
        bytes: 7,
        stamp: "1:7:0".to_owned(),
        state,
        written_at: Timestamp::from_ms(1_000),
        demoted_at: None,
        used_at: Timestamp::from_ms(2_000),
        mtbf_seconds: Some(60),
        nodes: None,
        period_seconds: Some(9),
        transfer: None,
        error: None,
    }
}

#[test]
fn versions_survive_a_restart_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let queue = open(&state);
    let all = [
        version("b", 1, At::Written),
        version("a", 1, At::Demoted),
        version("a", 2, At::Slow),
    ];
    let new = all.iter().map(|one| (None, one.clone())).collect();
    queue.tiers().change(new).expect("stored");
    drop(queue);
    let queue = open(&state);
    let [b1, a1, a2] = all;
    assert_eq!(
        queue.tiers().versions("burst").expect("read"),
        [a2, a1.clone(), b1]
    );
    assert!(queue.tiers().versions("other").expect("read").is_empty());
    queue.tiers().forget(vec![a1]).expect("forgotten");
    assert_eq!(queue.tiers().versions("burst").expect("read").len(), 2);
}

#[test]
fn a_change_needs_the_state_that_the_caller_has_seen() {
    let queue = queue();
    let written = version("a", 1, At::Written);
    let tiers = queue.tiers();
    tiers.change(vec![(None, written.clone())]).expect("stored");
    let demoting = version("a", 1, At::Demoting);
    tiers
        .change(vec![(Some(At::Slow), demoting.clone())])
        .expect("ignored");
    tiers
        .change(vec![(None, demoting.clone())])
        .expect("ignored");
    assert_eq!(
        tiers.versions("burst").expect("read"),
        std::slice::from_ref(&written)
    );
    tiers
        .change(vec![(Some(At::Written), demoting.clone())])
        .expect("stored");
    tiers.forget(vec![written]).expect("ignored");
    assert_eq!(tiers.versions("burst").expect("read"), [demoting]);
}

#[test]
fn a_declared_version_is_stored_with_its_transfer_and_a_restart_is_counted() {
    let queue = queue();
    let declared = version("a", 3, At::Demoting);
    let change = Some(TierChange::Declared(declared.clone()));
    let staged = row("s", "alice", &declared.fast_path);
    queue
        .submit_staged(by("alice", request("s")), staged, change)
        .expect("taken");
    assert_eq!(
        queue.tiers().versions("burst").expect("read"),
        std::slice::from_ref(&declared)
    );
    let mut hit = row("h", "alice", &declared.fast_path);
    hit.bytes = 7;
    queue
        .tiers()
        .hit(declared.clone(), hit.clone())
        .expect("stored");
    let (_, shown) = queue.staging().show(&actor("alice"), "h").expect("there");
    assert_eq!(
        (shown.state, shown.hit, shown.bytes),
        (StagedState::Staged, true, 7)
    );
    assert!(shown.pinned_until.is_some() && shown.expires_at.is_some());
    let pins = queue.tiers().pins(clock::now()).expect("read");
    assert_eq!(pins.keys().collect::<Vec<_>>(), [&declared.fast_path]);
    let restarts = queue.tiers().restarts("burst").expect("read");
    assert_eq!(
        (restarts["a"].count, restarts["a"].since),
        (1, declared.written_at)
    );
    let used_at = queue.tiers().versions("burst").expect("read")[0].used_at;
    assert!(used_at > declared.used_at);
    hit.id = "s".to_owned();
    let error = queue
        .tiers()
        .hit(declared, hit)
        .expect_err("the id of a transfer");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
}

#[test]
fn a_replica_is_stored_with_its_transfer_and_forgotten_with_its_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let queue = open(&state);
    let one = version("a", 1, At::Slow);
    queue
        .tiers()
        .change(vec![(None, one.clone())])
        .expect("stored");
    let replica = TierReplica {
        tier: "burst".to_owned(),
        application: "a".to_owned(),
        version: 1,
        root: "mirror".to_owned(),
        path: "/mirror/a/1".to_owned(),
        stamp: "7".to_owned(),
        transfer: Some("r".to_owned()),
        replicated_at: None,
        error: None,
    };
    queue
        .submit_replica(by("alice", request("r")), replica.clone())
        .expect("taken");
    // The id belongs to another owner, so neither the transfer nor the row is stored.
    let other = TierReplica {
        root: "other".to_owned(),
        ..replica.clone()
    };
    queue
        .submit_replica(by("bob", request("r")), other)
        .expect_err("the id is in use");
    drop(queue);
    let queue = open(&state);
    let tiers = queue.tiers();
    assert!(replica.is_running());
    assert_eq!(
        tiers.replicas("burst").expect("read"),
        std::slice::from_ref(&replica)
    );
    let done = TierReplica {
        replicated_at: Some(Timestamp::from_ms(9)),
        ..replica
    };
    tiers.change_replicas(vec![done.clone()]).expect("stored");
    assert_eq!(tiers.replicas("burst").expect("read"), [done]);
    // `forget` keeps a version, and the replicas of the version, if the state of the version
    // differs from the state that the caller has seen.
    let seen = TierVersion {
        state: At::Written,
        ..one.clone()
    };
    tiers.forget(vec![seen]).expect("ignored");
    assert_eq!(tiers.replicas("burst").expect("read").len(), 1);
    tiers.forget(vec![one]).expect("forgotten");
    assert!(tiers.replicas("burst").expect("read").is_empty());
}

#[test]
fn a_deletion_changes_the_versions_in_and_around_its_path() {
    let queue = queue();
    let tiers = queue.tiers();
    let mut demoted = version("a", 1, At::Demoted);
    demoted.transfer = Some("copy".to_owned());
    let all = [
        demoted.clone(),
        version("a", 10, At::Demoted),
        version("a", 2, At::Written),
        version("b", 1, At::Demoted),
    ];
    let new = all.iter().map(|one| (None, one.clone())).collect();
    tiers.change(new).expect("stored");
    let states = || -> Vec<_> {
        let rows = queue.tiers().versions("burst").expect("read");
        let name =
            |row: TierVersion| format!("{}/{} {}", row.application, row.version, row.state.word());
        rows.into_iter().map(name).collect()
    };
    // Deleting a file of version 1 makes version 1 incomplete, but not version 10.
    tiers.deletion_begins("/fast/a/1/part").expect("changed");
    assert_eq!(
        states(),
        ["a/10 demoted", "a/2 written", "a/1 deleting", "b/1 demoted"]
    );
    // After the deletion of one file, the version stays incomplete.
    tiers.deletion_ended("/fast/a/1/part").expect("changed");
    assert_eq!(states()[2], "a/1 deleting");
    let refused = tiers
        .hit(demoted, row("h", "alice", "/fast/a/1"))
        .expect_err("deleting");
    assert_eq!(refused.kind, ErrorKind::AlreadyExists);
    // Deleting the folder of all versions also deletes the demoted version 10.
    tiers.deletion_begins("/fast/a").expect("changed");
    tiers.deletion_ended("/fast/a").expect("changed");
    assert_eq!(
        states(),
        ["a/10 slow", "a/2 written", "a/1 slow", "b/1 demoted"]
    );
    let rows = tiers.versions("burst").expect("read");
    assert!(rows.iter().all(|row| row.transfer.is_none()));
}

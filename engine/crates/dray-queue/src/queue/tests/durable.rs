//! Tests of the writer: kills, concurrent callers, defects and locks.

use super::{actor, begin, broken, by, candidates, files, id, open, queue, request, settings};
use crate::clock;
use crate::events::Hub;
use crate::queue::Queue;
use dray_api::State;
use dray_core::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn answered_changes_survive_a_kill() {
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
fn concurrent_callers_share_syncs_and_versions_increase() {
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
fn a_panic_in_one_write_is_undone_and_ends_no_other() {
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

//! The data of receipts: stored with the end of an attempt, kept until the receipt is written.

use super::{actor, begin, broken, by, id, request, settings};
use crate::clock;
use crate::events::Hub;
use crate::queue::{
    DueReceipt, Ending, Queue, RECEIPTS_MAX, ReceiptState, Settings, WrittenReceipt,
};
use dray_api::{FileOutcome, FileState, ReceiptReference};
use std::path::Path;
use std::sync::Arc;

fn open(state: &Path) -> Arc<Queue> {
    let settings = Settings {
        keeps_receipts: true,
        ..settings(state)
    };
    Queue::open(settings, Arc::new(Hub::new(4, clock::now()))).expect("opened")
}

fn written(run: i64, sequence: u64) -> WrittenReceipt {
    WrittenReceipt {
        run,
        receipt: ReceiptReference {
            id: format!("sha256:{sequence}"),
            sequence,
        },
        issued_at: clock::now(),
    }
}

fn ends(queue: &Queue, text: &str) {
    queue.submit(by("alice", request(text))).expect("taken");
    begin(queue, text);
    queue.ended(&id(text), Ending::Done).expect("written");
}

fn due_now(queue: &Queue) -> Vec<DueReceipt> {
    let page = queue.receipts_due(0).expect("read");
    assert!(page.unreadable.is_empty());
    page.receipts
}

fn state(queue: &Queue, text: &str) -> ReceiptState {
    queue.receipt_of(&actor("alice"), text).expect("there")
}

#[test]
fn an_attempt_has_a_receipt_as_soon_as_it_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    queue.submit(by("alice", request("one"))).expect("taken");
    assert_eq!(state(&queue, "one"), ReceiptState::Missing);
    begin(&queue, "one");
    queue.ended(&id("one"), Ending::Done).expect("written");
    assert_eq!(state(&queue, "one"), ReceiptState::Due);
    let due = due_now(&queue);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].transfer.state, dray_api::State::Done);
    assert!(due[0].transfer.ended_at.is_some());
    let new = written(due[0].run, 1);
    queue.receipts_written(vec![new.clone()]).expect("written");
    assert_eq!(
        state(&queue, "one"),
        ReceiptState::Written(new.receipt.clone())
    );
    let shown = queue.show(&actor("alice"), "one").expect("there");
    assert_eq!(shown.receipt, Some(new.receipt.clone()));
    assert_eq!(queue.last_receipt().expect("read"), Some(new.receipt));
    assert!(due_now(&queue).is_empty());
    let other = queue.receipt_of(&actor("bob"), "one");
    assert_eq!(
        other.expect_err("refused").kind,
        dray_core::ErrorKind::NotFound
    );
}

#[test]
fn a_new_attempt_keeps_the_data_of_the_last_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    queue.submit(by("alice", request("one"))).expect("taken");
    begin(&queue, "one");
    queue.ended(&id("one"), broken(true)).expect("written");
    queue
        .tick(clock::now().after(std::time::Duration::from_secs(60)))
        .expect("ticked");
    begin(&queue, "one");
    drop(queue);
    // The process ended during the second session.
    let queue = open(&folder.path().join("state"));
    queue.requeue_interrupted().expect("queued");
    begin(&queue, "one");
    queue.ended(&id("one"), Ending::Done).expect("written");
    ends(&queue, "one");
    let due = due_now(&queue);
    let attempts: Vec<_> = due.iter().map(|one| one.transfer.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    let breaks = due[0].breaks.iter();
    let breaks: Vec<_> = breaks.map(|one| (one.number, one.kind.as_str())).collect();
    assert_eq!(breaks, [(1, "unreachable"), (2, "interrupted")]);
    assert!(due[1].breaks.is_empty());
    queue
        .receipts_written(vec![written(due[0].run, 1)])
        .expect("written");
    assert_eq!(
        state(&queue, "one"),
        ReceiptState::Due,
        "the receipt of the second attempt"
    );
}

#[test]
fn the_list_of_a_deleted_transfer_stays_until_its_receipt_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    queue.submit(by("alice", request("one"))).expect("taken");
    let input = begin(&queue, "one");
    let mut list = queue.manifest(&input.id, input.attempt).expect("opened");
    list.add(&FileOutcome {
        path: "a".to_owned(),
        state: FileState::Done,
        size: Some(1),
        adler32: None,
        crc32c: None,
        error: None,
    })
    .expect("added");
    list.sync().expect("synced");
    drop(list);
    queue.ended(&id("one"), Ending::Done).expect("written");
    queue.delete(&actor("alice"), "one").expect("deleted");
    drop(queue);
    let queue = open(&folder.path().join("state"));
    let due = due_now(&queue);
    let lines = std::fs::read_to_string(&due[0].list).expect("the list is still there");
    assert!(lines.contains("\"path\":\"a\""), "{lines}");
    queue
        .receipts_written(vec![written(due[0].run, 1)])
        .expect("written");
    assert!(!due[0].list.exists());
}

#[test]
fn old_records_are_removed_but_not_the_end_of_the_chain() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    for (at, text) in ["one", "two", "three"].into_iter().enumerate() {
        ends(&queue, text);
        let due = due_now(&queue);
        queue
            .receipts_written(vec![written(due[0].run, at as u64 + 1)])
            .expect("written");
    }
    let later = clock::now().after(std::time::Duration::from_secs(1));
    assert_eq!(queue.receipts_before(later).expect("read"), Some(3));
    queue.receipts_removed(3).expect("removed");
    assert_eq!(state(&queue, "two"), ReceiptState::Missing);
    assert!(matches!(state(&queue, "three"), ReceiptState::Written(_)));
    // No two receipts can have the same number.
    ends(&queue, "four");
    let due = due_now(&queue);
    queue
        .receipts_written(vec![written(due[0].run, 3)])
        .expect_err("a fork of the chain");
    assert_eq!(state(&queue, "four"), ReceiptState::Due);
}

#[test]
fn a_slow_clock_makes_no_earlier_receipt_old() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    let now = clock::now();
    let day = std::time::Duration::from_secs(86_400);
    let times = [now.before(day * 9), now, now.before(day * 8)];
    for (at, (text, issued_at)) in ["one", "two", "three"].into_iter().zip(times).enumerate() {
        ends(&queue, text);
        let due = due_now(&queue);
        let new = WrittenReceipt {
            issued_at,
            ..written(due[0].run, at as u64 + 1)
        };
        queue.receipts_written(vec![new]).expect("written");
    }
    let before = |at| queue.receipts_before(at).expect("read");
    assert_eq!(before(now.before(day * 10)), None);
    assert_eq!(before(now.before(day)), Some(1), "the second is young");
    assert_eq!(before(now.after(day)), Some(3));
}

#[test]
fn an_unreadable_row_hides_no_other_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    for text in ["one", "two", "three"] {
        ends(&queue, text);
    }
    let runs: Vec<i64> = due_now(&queue).iter().map(|due| due.run).collect();
    queue
        .write(|connection, _| {
            let cut = "UPDATE receipts_due SET ended = substr(ended, 1, length(ended) / 2)
                WHERE run = (SELECT min(run) FROM receipts_due)";
            connection.execute_batch(cut).expect("damaged");
            // Text that is not UTF-8.
            let bytes = "UPDATE receipts_due SET ended = CAST(x'7bff' AS TEXT)
                WHERE run = (SELECT max(run) FROM receipts_due)";
            connection.execute_batch(bytes).expect("damaged");
            Ok(())
        })
        .expect("written");
    let page = queue.receipts_due(0).expect("read");
    let good: Vec<_> = page.receipts.iter().map(|due| due.run).collect();
    let bad: Vec<_> = page.unreadable.iter().map(|(run, _)| *run).collect();
    assert_eq!((good, bad), (vec![runs[1]], vec![runs[0], runs[2]]));
    assert_eq!(page.last, Some(runs[2]));
    assert_eq!(queue.receipts_due(runs[2]).expect("read").last, None);
    let (run, error) = &page.unreadable[0];
    assert!(error.cause.contains("one"), "{error}");
    let before = queue.hub().since(0, usize::MAX, |_| true).events.len();
    queue.receipt_failed(*run, error).expect("published");
    let heard = queue.hub().since(0, usize::MAX, |_| true);
    let event = &heard.events[before].event;
    assert_eq!(event.transfer.as_deref(), Some("one"));
    assert!(
        event
            .notice
            .as_ref()
            .is_some_and(|words| words.contains("receipt")),
        "{event:?}"
    );
}

#[test]
fn the_receipts_that_are_due_come_in_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    let most = RECEIPTS_MAX as usize;
    for at in 0..=most {
        ends(&queue, &format!("t{at}"));
    }
    let page = queue.receipts_due(0).expect("read");
    assert_eq!(page.receipts.len(), most);
    let rest = queue
        .receipts_due(page.last.expect("a page"))
        .expect("read");
    assert_eq!(rest.receipts.len(), 1);
}

#[test]
fn receipts_that_are_turned_off_keep_no_lists() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    ends(&queue, "one");
    let due = due_now(&queue);
    let lists = due[0].list.parent().expect("a folder").to_owned();
    std::fs::create_dir_all(&lists).expect("made");
    queue.delete(&actor("alice"), "one").expect("deleted");
    assert!(lists.exists());
    drop(queue);
    let queue = super::open(folder.path());
    assert!(due_now(&queue).is_empty());
    assert!(!lists.exists());
}

#[test]
fn without_receipts_nothing_is_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = super::open(folder.path());
    ends(&queue, "one");
    assert!(due_now(&queue).is_empty());
    assert_eq!(state(&queue, "one"), ReceiptState::Missing);
}

#[test]
fn the_receipt_of_an_ended_attempt_is_never_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    for number in 1..=200 {
        let name = format!("t{number}");
        ends(&queue, &name);
        let due = due_now(&queue);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match state(&queue, &name) {
                        ReceiptState::Due => {}
                        found => return found,
                    }
                }
            });
            let new = written(due[0].run, number);
            queue.receipts_written(vec![new.clone()]).expect("written");
            let found = reader.join().expect("no panic");
            assert_eq!(found, ReceiptState::Written(new.receipt));
        });
    }
}

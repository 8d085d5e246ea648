//! Tests of lists, filters and the history.

use super::super::row::SELECT;
use super::super::run::{IS_DUE, NEXT_TRY};
use super::{actor, begin, by, queue, request};
use crate::clock;
use dray_api::{StateWord, TransferQuery};
use std::time::Duration;

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
fn filters_select_by_state_label_and_time() {
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

#[test]
fn history_is_pruned_by_count_and_age() {
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

/// Each tick runs these statements, and an unreachable site can have 100 000 waiting transfers.
#[test]
fn waiting_transfers_are_found_by_an_index() {
    let queue = queue();
    for statement in [NEXT_TRY.to_owned(), format!("{SELECT} WHERE {IS_DUE}")] {
        let statement = format!("EXPLAIN QUERY PLAN {}", statement.replace("?1", "1"));
        let plan = queue.read(|connection| {
            let mut steps = connection.prepare(&statement).expect("prepared");
            let details = steps.query_map([], |row| row.get::<_, String>(3));
            let details: rusqlite::Result<Vec<_>> = details.expect("explained").collect();
            Ok(details.expect("a step").join("\n"))
        });
        let plan = plan.expect("read");
        assert!(plan.contains("transfers_next_try"), "{statement}: {plan}");
    }
}

//! Tests of pages and queries with large transfers.

use super::{actor, by, queue, request};
use dray_api::{Request, TransferQuery};
use dray_core::ErrorKind;

const COUNT: usize = 280;

/// Returns a request of nearly the maximum size.
fn large(number: usize) -> Request {
    let mut request = request(&format!("t{number:03}"));
    request.selection.exclude = vec!["x".repeat(1000); 60];
    request
}

#[test]
fn pages_are_bounded_in_bytes_and_a_query_too() {
    let queue = queue();
    let all = (0..COUNT).map(|number| Ok(by("alice", large(number))));
    let taken = queue.submit_all(all.collect(), false).expect("answered");
    assert!(taken.iter().all(Result::is_ok));
    let alice = actor("alice");
    let mut query = TransferQuery {
        limit: 1000,
        ..TransferQuery::default()
    };
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let page = queue.list(&alice, &query).expect("a page");
        let bytes = serde_json::to_string(&page).expect("JSON").len();
        assert!(bytes < 5 << 20, "{bytes}");
        pages += 1;
        seen.extend(page.transfers.into_iter().map(|one| one.id.to_string()));
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    let newest_first: Vec<String> = (0..COUNT).rev().map(|at| format!("t{at:03}")).collect();
    assert_eq!(seen, newest_first);
    assert!((4..8).contains(&pages), "{pages}");

    // A repeated id counts once.
    let same = vec!["t000".to_owned(); 1000];
    assert_eq!(queue.query(&alice, &same).expect("one").len(), 1);
    let error = queue.query(&alice, &newest_first).expect_err("too large");
    assert_eq!(error.kind, ErrorKind::LimitExceeded);
    let some = &newest_first[..100];
    assert_eq!(queue.query(&alice, some).expect("some").len(), 100);
    // Transfers of other owners do not count against the limit.
    let others = queue.query(&actor("bob"), &newest_first).expect("none");
    assert!(others.len() == COUNT && others.values().all(|one| one.0.is_none()));
}

//! Tickets of a transfer are kept for its next attempt, for a limited time.

use super::{actor, begin, by, id, lost, queue, request};
use crate::clock;
use crate::queue::Ending;
use dray_api::State;
use std::time::Duration;

#[test]
fn tickets_of_what_ended_a_day_ago_are_forgotten() {
    let queue = queue();
    let ticket = |name: &str| {
        let request = queue.request(&id(name)).expect("read").expect("there");
        request.sources[0].ticket.clone()
    };
    for name in ["ended", "purged", "lives"] {
        queue.submit(by("alice", request(name))).expect("taken");
        begin(&queue, name);
    }
    queue.ended(&id("ended"), Ending::Done).expect("ended");
    queue
        .ended(&id("purged"), Ending::Failed(lost()))
        .expect("ended");
    queue
        .cancel(&actor("alice"), "purged", true)
        .expect("asked");
    let tick = |hours: u64| {
        let then = clock::now().after(Duration::from_secs(hours * 3_600));
        queue.tick(then).expect("looked after");
    };
    tick(23);
    assert!(ticket("ended").is_some(), "a new attempt may use it");
    tick(25);
    assert_eq!(ticket("ended"), None);
    assert!(ticket("lives").is_some());
    assert!(
        ticket("purged").is_some(),
        "what it left elsewhere is still to go"
    );
    let shown = queue.show(&actor("alice"), "ended").expect("there");
    assert_eq!((shown.state, shown.attempt), (State::Done, 1));
    // The tickets of a transfer that ends later are deleted too.
    queue.ended(&id("lives"), Ending::Done).expect("ended");
    tick(26);
    assert_eq!(ticket("lives"), None);
    // The tickets of a transfer that is purged late are deleted too, although later transfers were
    // handled before.
    queue.purged(&id("purged"), None).expect("purged");
    tick(27);
    assert_eq!(ticket("purged"), None);
}

#[test]
fn tickets_of_many_that_ended_in_one_moment_are_all_forgotten() {
    let queue = queue();
    let many = (0..1_100).map(|at| Ok(by("alice", request(&format!("t{at}")))));
    queue.submit_all(many.collect(), false).expect("answered");
    let now = clock::now();
    let end = "UPDATE transfers SET state = 'cancelled', ended_at = ?1";
    queue
        .write(move |connection, _| {
            connection
                .execute(end, [now.as_ms()])
                .map_err(crate::queue::sqlite::sql("end them"))
        })
        .expect("written");
    let holding = || -> u64 {
        let count = "SELECT COUNT(*) FROM transfers WHERE instr(tickets, 'drt_') > 0";
        let found = queue.read(|connection| {
            let row = connection.query_row(count, (), |row| row.get(0));
            row.map_err(crate::queue::sqlite::sql("count them"))
        });
        found.expect("counted")
    };
    assert_eq!(holding(), 1_100);
    let then = now.after(Duration::from_secs(25 * 3_600));
    for left in [600, 100, 0] {
        queue.tick(then).expect("looked after");
        assert_eq!(holding(), left);
    }
}

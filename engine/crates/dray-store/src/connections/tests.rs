//! Threads that use connections. The connections open, break, or cannot be opened.

use super::{ConnectionOptions, Connections, Lease};
use dray_core::connections::{Direction, Flow, Mapping, Rule};
use dray_core::{End, Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

const READ: Flow = Flow {
    direction: Direction::Read,
    waits: true,
};
const BYTES: u64 = 1 << 20;

fn options(most: usize, depth: u32, rule: Rule) -> ConnectionOptions {
    ConnectionOptions { most, depth, rule }
}

const MULTIPLE: Rule = Rule::Always(Mapping::ThreadToMultiple);

/// Returns a pool in which the value of a connection is its number.
fn numbers(options: &ConnectionOptions) -> Connections<usize> {
    Connections::new(options, Ok)
}

fn refused(at: usize) -> Error {
    Error::new(ErrorKind::Unreachable, End::Source, format!("open {at}"))
}

#[test]
fn connections_are_opened_when_they_are_needed_and_counted() {
    let pool = numbers(&options(3, 1, MULTIPLE));
    pool.lease(READ, BYTES).expect("open").carried();
    let opened = |pool: &Connections<usize>| -> Vec<u64> {
        pool.carried().iter().map(|each| each.opened).collect()
    };
    assert_eq!(opened(&pool), [1, 0, 0]);
    let two = [pool.lease(READ, 1), pool.lease(READ, 1)].map(|lease| lease.expect("open"));
    assert_eq!([two[0].number(), *two[1]], [1, 2]);
    drop(two);
    assert_eq!(opened(&pool), [1, 1, 1]);
    let carried = pool.carried();
    assert_eq!((carried[0].calls, carried[0].bytes), (1, BYTES));
    assert_eq!((carried[1].calls, carried[1].bytes), (0, 0));
}

#[test]
fn a_panic_while_opening_releases_waiting_threads() {
    let (begun_in, begun) = sync_channel(1);
    let (go_on_in, go_on) = sync_channel::<()>(1);
    let go_on = Mutex::new(go_on);
    let is_first = AtomicBool::new(true);
    // One connection serves both calls.
    let pool = Connections::new(&options(1, 2, MULTIPLE), move |at| {
        if is_first.swap(false, Ordering::SeqCst) {
            begun_in.send(()).expect("heard");
            let _ = go_on.lock().expect("whole").recv();
            panic!("on purpose");
        }
        Ok(at)
    });
    let lease = |pool: Connections<usize>| move || pool.lease(READ, 1).map(Lease::carried);
    let first = thread::spawn(lease(pool.clone()));
    begun.recv().expect("it opens");
    let (done_in, done) = channel();
    let second = lease(pool.clone());
    thread::spawn(move || done_in.send(second()));
    go_on_in.send(()).expect("heard");
    assert!(first.join().is_err(), "it panicked");
    let second = done.recv_timeout(Duration::from_secs(20));
    second.expect("it waits for ever").expect("open");
    assert_eq!((pool.carried()[0].opened, pool.carried()[0].broken), (1, 1));
}

#[test]
fn a_call_is_cut_where_threads_are_few_and_its_parts_are_the_whole() {
    let pool = numbers(&options(4, 1, Rule::Automatic));
    let parts = pool.lease_parts(READ, BYTES + 1).expect("open");
    let mut offset = 0;
    for part in &parts {
        assert_eq!(part.offset, offset);
        offset += part.bytes;
    }
    assert_eq!((parts.len(), offset), (4, BYTES + 1));
    drop(parts);
    assert_eq!(*pool.lease(READ, BYTES).expect("open"), 0);
}

#[test]
fn never_more_calls_are_on_a_connection_than_its_depth_and_all_are_served() {
    const THREADS: usize = 12;
    for rule in [
        Rule::Automatic,
        MULTIPLE,
        Rule::Always(Mapping::ThreadToSingle),
    ] {
        let pool = Connections::new(&options(3, 2, rule), |_| Ok(AtomicUsize::new(0)));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..200 {
                        for part in pool.lease_parts(READ, BYTES).expect("open") {
                            let calls = part.lease.fetch_add(1, Ordering::SeqCst) + 1;
                            assert!(calls <= 2, "{calls} calls");
                            thread::yield_now();
                            part.lease.fetch_sub(1, Ordering::SeqCst);
                            part.lease.carried();
                        }
                    }
                });
            }
        });
        let carried = pool.carried();
        let bytes: u64 = carried.iter().map(|each| each.bytes).sum();
        assert_eq!(bytes, THREADS as u64 * 200 * BYTES);
        assert!(carried.iter().all(|each| each.calls > 0), "{carried:?}");
    }
}

#[test]
fn a_thread_keeps_its_connection_and_another_has_another() {
    let pool = numbers(&options(2, 1, Rule::Always(Mapping::ThreadToSingle)));
    let turn = Barrier::new(2);
    let of_thread = || {
        let mut seen = Vec::new();
        for _ in 0..5 {
            let lease = pool.lease(READ, BYTES).expect("open");
            seen.push(*lease);
            turn.wait();
            lease.carried();
        }
        seen.dedup();
        seen
    };
    let found = thread::scope(|scope| {
        let threads = [scope.spawn(of_thread), scope.spawn(of_thread)];
        threads.map(|thread| thread.join().expect("ends"))
    });
    assert!(found == [[0], [1]] || found == [[1], [0]], "{found:?}");
}

#[test]
fn a_connection_that_broke_is_opened_anew_and_once_however_many_say_so() {
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let pool = Connections::new(&options(1, 4, MULTIPLE), move |_| {
        Ok(counted.fetch_add(1, Ordering::SeqCst))
    });
    let three: Vec<_> = (0..3).map(|_| pool.lease(READ, 1).expect("open")).collect();
    let mut three = three.into_iter();
    three.next().expect("first").broken();
    let anew = pool.lease(READ, 1).expect("opened anew");
    assert_eq!(*anew, 1);
    for late in three {
        assert_eq!(*late, 0);
        late.broken();
    }
    assert_eq!(*pool.lease(READ, 1).expect("still open"), 1);
    assert_eq!((pool.carried()[0].opened, pool.carried()[0].broken), (2, 1));
}

#[test]
fn one_that_cannot_be_opened_leaves_its_calls_to_the_others() {
    let open = |at| if at == 0 { Ok(at) } else { Err(refused(at)) };
    let pool: Connections<usize> = Connections::new(&options(3, 8, Rule::Automatic), open);
    for _ in 0..20 {
        let parts = pool.lease_parts(READ, BYTES).expect("one is open");
        assert!(parts.iter().all(|part| *part.lease == 0));
        parts.into_iter().for_each(|part| part.lease.carried());
    }
    let carried = pool.carried();
    assert_eq!(carried[0].bytes, 20 * BYTES);
    assert!(
        carried[1].broken > 0 && carried[1].opened == 0,
        "{carried:?}"
    );
}

#[test]
fn where_none_can_be_opened_the_error_is_told_and_the_next_call_tries_again() {
    let is_up = Arc::new(AtomicBool::new(false));
    let asked = is_up.clone();
    let pool = Connections::new(&options(2, 1, MULTIPLE), move |at| -> Result<usize> {
        asked
            .load(Ordering::SeqCst)
            .then_some(at)
            .ok_or_else(|| refused(at))
    });
    for _ in 0..3 {
        let error = pool.lease(READ, 1).expect_err("nobody is there");
        assert_eq!(error.kind, ErrorKind::Unreachable);
    }
    is_up.store(true, Ordering::SeqCst);
    pool.lease(READ, 1).expect("somebody is").carried();
}

#[test]
fn a_connection_that_is_slow_to_open_holds_up_nobody_else() {
    let (open_now, may_open) = sync_channel::<()>(0);
    let (begins, begun) = channel();
    let may_open = Mutex::new(may_open);
    let pool = Connections::new(&options(2, 1, MULTIPLE), move |at| {
        if at == 0 {
            begins.send(()).expect("heard");
            may_open.lock().expect("one").recv().expect("told");
        }
        Ok(at)
    });
    let other = pool.clone();
    let thread = thread::spawn(move || other.lease(READ, 1).map(Lease::carried));
    begun.recv().expect("it opens");
    for _ in 0..3 {
        assert_eq!(*pool.lease(READ, 1).expect("opens"), 1);
    }
    open_now.send(()).expect("it waits");
    thread.join().expect("ends").expect("opened");
    assert_eq!(pool.carried()[0].calls, 1);
}

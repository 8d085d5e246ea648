use super::{Job, Start, Workers};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn spawns(run: Job) -> io::Result<()> {
    std::thread::Builder::new().spawn(run).map(drop)
}

fn workers(threads_max: usize, idle: Duration, start: Start) -> Workers {
    Workers::with(threads_max, idle, start).expect("started")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < late, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn calls_run_side_by_side_up_to_the_bound_and_the_rest_in_turn() {
    let workers = workers(3, LONG, spawns);
    let (begun, begins) = channel();
    let together = Arc::new(Barrier::new(4));
    let call = |number: u32| {
        let (begun, together) = (begun.clone(), Arc::clone(&together));
        workers.call(move || {
            begun.send(number).expect("heard");
            together.wait();
            number
        })
    };
    let answers: Vec<_> = (0..6).map(call).collect();
    for _ in 0..2 {
        let begun: Vec<u32> = begins.iter().take(3).collect();
        assert_eq!(begun.len(), 3);
        assert!(begins.recv_timeout(Duration::from_millis(50)).is_err());
        assert_eq!(workers.0.state().threads, 3);
        together.wait();
    }
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer.blocking_recv().expect("answered"), number);
    }
}

#[test]
fn idle_workers_end_except_one_and_new_workers_start_later() {
    let workers = workers(8, Duration::from_millis(20), spawns);
    for _ in 0..2 {
        let together = Arc::new(Barrier::new(4));
        let call = |_| {
            let together = Arc::clone(&together);
            workers.call(move || together.wait().is_leader())
        };
        let answers: Vec<_> = (0..4).map(call).collect();
        let leaders = answers.into_iter().map(|one| one.blocking_recv());
        assert_eq!(leaders.filter(|one| *one == Ok(true)).count(), 1);
        until("more than one stays", || workers.0.state().threads == 1);
    }
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(workers.0.state().threads, 1);
}

#[test]
fn one_worker_does_all_calls_if_no_further_thread_can_be_started() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let only_one = |run: Job| match ASKED.fetch_add(1, Ordering::Relaxed) {
        0 => spawns(run),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    };
    let workers = workers(8, LONG, only_one);
    let answers: Vec<_> = (0..50).map(|number| workers.call(move || number)).collect();
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer.blocking_recv().expect("answered"), number);
    }
    assert_eq!(workers.0.state().threads, 1);
    assert!(ASKED.load(Ordering::Relaxed) < 20, "{ASKED:?}");
}

#[test]
fn no_pool_begins_without_a_thread() {
    let none = |_: Job| Err(io::ErrorKind::WouldBlock.into());
    let refused = Workers::with(8, LONG, none).err().expect("refused");
    assert!(refused.to_string().contains("start a thread"), "{refused}");
}

#[test]
fn an_abandoned_call_is_not_begun_and_submitted_work_is() {
    let workers = workers(1, LONG, spawns);
    let (let_go, goes_on) = channel::<()>();
    let held = workers.call(move || goes_on.recv().is_ok());
    let (tell, told) = channel();
    let (given_up, handed_in) = (tell.clone(), tell);
    drop(workers.call(move || given_up.send("given up")));
    workers.hand_in(move || handed_in.send("handed in").expect("heard"));
    let_go.send(()).expect("heard");
    assert_eq!(held.blocking_recv(), Ok(true));
    workers.wait(LONG);
    assert_eq!(told.iter().collect::<Vec<_>>(), ["handed in"]);
}

#[test]
fn a_call_that_panics_has_no_answer_and_the_next_one_has() {
    let workers = workers(1, LONG, spawns);
    let broken = workers.call(|| -> u32 { panic!("broken, as the test wants it") });
    assert!(broken.blocking_recv().is_err());
    assert_eq!(workers.call(|| 7).blocking_recv(), Ok(7));
}

#[test]
fn submitted_work_is_completed_before_the_threads_end() {
    let workers = workers(2, LONG, spawns);
    let answers: Vec<_> = (0..20).map(|number| workers.call(move || number)).collect();
    let shared = Arc::clone(&workers.0);
    drop(workers);
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer.blocking_recv(), Ok(number));
    }
    until("a thread stays", || shared.state().threads == 0);
}

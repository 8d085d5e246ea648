use super::{POOLS_MAX, TargetPools, Worker};
use dray_core::{End, Error, ErrorKind, TargetId};
use std::cell::RefCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn each_target_has_its_own_up_to_a_bound() {
    let mut groups = TargetPools::new(1, 1);
    let started = RefCell::new(Vec::new());
    for _ in 0..2 {
        for target in 0..100 {
            let start = |worker: Worker<u32>, _: &()| {
                started.borrow_mut().push(worker);
                Ok(())
            };
            let given = groups.give(TargetId(target), target, || (), start);
            given.expect("started");
        }
    }
    let started = started.into_inner();
    assert_eq!(started.len(), POOLS_MAX);
    let taken: Vec<Vec<u32>> = started
        .iter()
        .map(|worker| worker.jobs.try_iter().collect())
        .collect();
    assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 200);
    assert_eq!(taken[63], [63, 63], "its own");
    assert_eq!(taken[0], [0, 64, 0, 64], "one past the bound shares");
}

#[test]
fn threads_are_started_as_they_are_needed_and_no_more_than_may_run() {
    let started = AtomicU32::new(0);
    let mut groups = TargetPools::new(3, 1);
    let workers = RefCell::new(Vec::new());
    let start = |worker: Worker<u32>, _: &()| {
        started.fetch_add(1, Ordering::Relaxed);
        workers.borrow_mut().push(worker);
        Ok(())
    };
    let started = || started.load(Ordering::Relaxed);
    let give = |groups: &mut TargetPools<u32, ()>, job| {
        let given = groups.give(TargetId(0), job, || (), start);
        given.expect("started");
    };
    give(&mut groups, 0);
    assert_eq!(started(), 1);
    // A thread that has finished a job takes the next one.
    let done = || {
        let workers = workers.borrow();
        let worker = workers.first().expect("one");
        worker.next().expect("a job");
        worker.done(true);
    };
    done();
    give(&mut groups, 1);
    assert_eq!(started(), 1);
    for job in 0..9 {
        give(&mut groups, job);
    }
    assert_eq!(started(), 3, "no more than may run");
    groups.set_threads(5);
    give(&mut groups, 10);
    assert_eq!(started(), 5, "there are jobs for them");
    groups.set_threads(2);
    for worker in workers.borrow().iter().take(3) {
        assert_eq!(worker.next(), None, "too many");
    }
    let workers = workers.borrow();
    let left: Vec<u32> = std::iter::from_fn(|| {
        (!workers[3].jobs.is_empty()).then(|| workers[4].next().expect("one of two"))
    })
    .collect();
    assert_eq!(left.len(), 11, "nothing is lost");
}

#[test]
fn jobs_behind_one_that_begins_to_wait_are_done_by_others() {
    let mut groups = TargetPools::new(4, 1);
    let (done, begun) = (AtomicU32::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        let (done, begun) = (&done, &begun);
        let start = |worker: Worker<u32>, _: &()| {
            scope.spawn(move || {
                while let Some(job) = worker.next() {
                    worker.work(|| {
                        if job == 99 {
                            begun.wait();
                        }
                    });
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            Ok(())
        };
        let give = |groups: &mut TargetPools<u32, ()>, job| {
            let given = groups.give(TargetId(0), job, || (), start);
            given.expect("started");
        };
        for job in 0..16 {
            give(&mut groups, job);
            while done.load(Ordering::SeqCst) <= job {
                std::thread::yield_now();
            }
        }
        // The first of these jobs waits until the test releases it. The other jobs do not wait.
        for job in [99, 100, 101] {
            give(&mut groups, job);
        }
        // On a busy host, a second thread may have started and done the other jobs.
        let until = Instant::now() + Duration::from_secs(30);
        while !groups.are_held_back() && done.load(Ordering::SeqCst) < 18 {
            if Instant::now() > until {
                // The scope waits for this thread.
                begun.wait();
                panic!("the jobs behind a waiting job are neither held back nor done");
            }
            std::thread::yield_now();
        }
        while done.load(Ordering::SeqCst) < 18 {
            groups.start_more(start).expect("started");
            std::thread::sleep(Duration::from_millis(1));
        }
        begun.wait();
        drop(groups);
    });
    assert_eq!(done.into_inner(), 19);
}

#[test]
fn running_threads_do_all_jobs_if_no_thread_can_be_started() {
    let mut groups = TargetPools::new(4, 1);
    let workers = RefCell::new(Vec::new());
    let refused = || Err(Error::new(ErrorKind::Busy, End::Here, "start a thread"));
    let start = |worker: Worker<u32>, _: &()| {
        let mut workers = workers.borrow_mut();
        match workers.is_empty() {
            true => workers.push(worker),
            false => return refused(),
        }
        Ok(())
    };
    let given = groups.give(TargetId(0), 0, || (), |_, ()| refused());
    assert!(given.is_err(), "nobody would do it");
    for job in 1..9 {
        let given = groups.give(TargetId(0), job, || (), start);
        given.expect("one runs");
    }
    let worker = workers.into_inner().pop().expect("one");
    for job in 0..9 {
        assert_eq!(worker.next(), Some(job));
        worker.done(true);
    }
}

#[test]
fn a_pool_has_few_threads_until_operations_wait() {
    let mut groups = TargetPools::new(4, 2);
    let workers = RefCell::new(Vec::new());
    let start = |worker: Worker<u32>, _: &()| {
        workers.borrow_mut().push(worker);
        Ok(())
    };
    let give = |groups: &mut TargetPools<u32, ()>, jobs: u32| {
        for job in 0..jobs {
            let given = groups.give(TargetId(0), job, || (), start);
            given.expect("started");
        }
    };
    let done = |jobs: u32, has_waited: bool| {
        let workers = workers.borrow();
        let worker = workers.last().expect("one");
        for _ in 0..jobs {
            worker.jobs.recv().expect("a job");
            worker.done(has_waited);
        }
    };
    give(&mut groups, 20);
    assert_eq!(workers.borrow().len(), 4, "nothing is known");
    done(8, false);
    for worker in workers.borrow().iter().take(2) {
        assert_eq!(worker.next(), None, "two are enough");
    }
    give(&mut groups, 4);
    assert_eq!(workers.borrow().len(), 4, "none is started");
    done(1, true);
    give(&mut groups, 1);
    assert_eq!(workers.borrow().len(), 4, "one is chance");
    done(1, true);
    give(&mut groups, 1);
    assert_eq!(workers.borrow().len(), 6, "it makes wait");
}

#[test]
fn each_job_is_done_while_the_number_of_threads_changes() {
    let (done, most, now) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let begun = Barrier::new(2);
    std::thread::scope(|scope| {
        let mut groups = TargetPools::new(4, 1);
        let (done, most, now, begun) = (&done, &most, &now, &begun);
        for job in 0..4_000_u32 {
            // Raise and lower the number of threads. One of the steps allows a single thread.
            groups.set_threads([1, 16, 2, 7][job as usize / 100 % 4]);
            let given = groups.give(
                TargetId(job % 3),
                job,
                || (),
                |worker, ()| {
                    scope.spawn(move || {
                        while let Some(job) = worker.next() {
                            most.fetch_max(
                                now.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            if job == 3_999 {
                                begun.wait();
                            }
                            std::thread::sleep(Duration::from_micros(20));
                            now.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                            worker.done(true);
                        }
                    });
                    Ok(())
                },
            );
            given.expect("started");
        }
        begun.wait();
    });
    assert_eq!(done.into_inner(), 4_000);
    assert!(most.into_inner() <= 3 * 16);
}

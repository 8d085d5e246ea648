//! Schedules the threads of a transfer as batch work (`SCHED_BATCH`, sched(7)).
//!
//! An object passes through five threads and more, and each wakes the next. A woken thread may
//! preempt the one that woke it, so on few processors each object cost a dozen context switches and
//! more, and a tenth of the time. Batch work does not preempt: it waits until the running thread
//! blocks, and finds several objects by then (0035). Threads that answer users are not scheduled
//! like this.

use std::marker::PhantomData;

/// While it lives, this thread, and threads that it starts meanwhile, are batch work.
#[derive(Debug)]
pub struct Batch {
    /// A policy belongs to a thread: the thread that set it must reset it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Batch {
    /// Sets the policy. Returns `None` if another policy than the default is set, which stays, or
    /// if the system has no batch policy.
    pub fn begin() -> Option<Self> {
        // Make a value only after a change: dropping it resets the policy.
        (policy() == libc::SCHED_OTHER && set(libc::SCHED_BATCH)).then(|| Self {
            _of_this_thread: PhantomData,
        })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Neither change needs a privilege.
        set(libc::SCHED_OTHER);
    }
}

/// Returns the policy of this thread.
#[expect(unsafe_code, reason = "no crate here has the call")]
fn policy() -> i32 {
    // SAFETY: takes a number and touches no memory; 0 is the calling thread.
    unsafe { libc::sched_getscheduler(0) }
}

#[expect(unsafe_code, reason = "no crate here has the call")]
fn set(policy: i32) -> bool {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a whole `sched_param`, which is only read, and outlives the call; 0
    // is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::{Batch, policy, set};

    #[test]
    fn a_thread_and_those_it_starts_are_batch_work_until_it_is_over() {
        assert_eq!(policy(), libc::SCHED_OTHER);
        {
            let _batch = Batch::begin().expect("the kernel knows it");
            assert_eq!(policy(), libc::SCHED_BATCH);
            let started = std::thread::spawn(policy).join().expect("ended");
            assert_eq!(started, libc::SCHED_BATCH);
            assert!(Batch::begin().is_none(), "it is that already");
            assert_eq!(policy(), libc::SCHED_BATCH, "and stays it");
        }
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn a_policy_set_by_others_stays() {
        let chosen = std::thread::spawn(|| {
            assert!(set(libc::SCHED_IDLE));
            let batch = Batch::begin();
            let is_batch = batch.is_some();
            drop(batch);
            (is_batch, policy())
        });
        let chosen = chosen.join().expect("ended");
        assert_eq!(chosen, (false, libc::SCHED_IDLE));
    }
}

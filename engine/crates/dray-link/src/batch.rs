//! Schedules the threads of a transfer as batch work (`SCHED_BATCH`, sched(7)).
//!
//! An object passes through at least five threads, and each thread wakes the next one. Under the
//! default policy a woken thread may preempt the waking thread. On a host with few processors each
//! object then cost a dozen context switches, and a tenth of the time was lost. A batch thread does
//! not preempt other threads. It starts when the running thread blocks, and several objects are
//! ready for it by then (decision 0035). Threads that answer user requests keep the default policy.

use std::marker::PhantomData;

/// Keeps the calling thread under the batch policy until dropped. Threads that the calling thread
/// starts in this time inherit the policy.
#[derive(Debug)]
pub struct Batch {
    /// Makes the type `!Send`: a scheduling policy belongs to a thread, so the thread that set the
    /// policy must reset it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Batch {
    /// Sets the batch policy for the calling thread. Returns `None`, and changes nothing, if the
    /// thread already has a policy other than the default, or if the system has no batch policy.
    pub fn begin() -> Option<Self> {
        // `then` evaluates the value only after a change, because dropping a `Batch` resets the
        // policy.
        (policy() == libc::SCHED_OTHER && set(libc::SCHED_BATCH)).then(|| Self {
            _of_this_thread: PhantomData,
        })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Neither setting nor resetting the batch policy needs a privilege.
        set(libc::SCHED_OTHER);
    }
}

#[expect(unsafe_code, reason = "no safe crate offers this system call")]
fn policy() -> i32 {
    // SAFETY: the call takes a number and touches no memory. 0 means the calling thread.
    unsafe { libc::sched_getscheduler(0) }
}

#[expect(unsafe_code, reason = "no safe crate offers this system call")]
fn set(policy: i32) -> bool {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer refers to a whole `sched_param` that outlives the call. The kernel only
    // reads the value. 0 means the calling thread.
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

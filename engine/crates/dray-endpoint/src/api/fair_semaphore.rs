//! A semaphore for calls that may take long. It limits the number of concurrent calls, and many
//! calls of one owner cannot block a call of another owner.
//!
//! An owner can start another call only while the owner has fewer running calls than there are free
//! permits. Thus a single owner gets half of the permits, and two owners get a third each. While
//! there are fewer owners than permits, the next owner finds a free permit (dynamic thresholds:
//! Choudhury and Hahne, 1998). When a permit becomes free, the waiting owner with the fewest
//! running calls gets it. Among equal owners, the earliest call gets it.
//!
//! Invariant owned here: no call waits while a permit is free that the call may take.

use super::refusal::{Answer, Refusal};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Debug, Default)]
struct State {
    free: usize,
    running: HashMap<String, usize>,
    waiting: VecDeque<(String, oneshot::Sender<()>)>,
}

/// A semaphore that is fair between owners. Clones share the permits.
#[derive(Debug, Clone)]
pub(super) struct FairSemaphore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places: usize,
    state: Mutex<State>,
}

/// Maximum time that a call waits for a permit.
pub(super) const TURN_TIME: Duration = Duration::from_secs(10);

/// Returns the error of a call that gets no permit because other calls have them.
pub(super) fn busy(operation: &'static str, cause: String) -> Error {
    Error::new(ErrorKind::Busy, End::Here, operation)
        .cause(cause)
        .remedy("try again in a moment")
}

/// A permit. Dropping this value returns the permit.
#[derive(Debug)]
pub(super) struct Turn {
    turns: FairSemaphore,
    owner: String,
}

/// A waiting call. If the call is cancelled after it has received a permit, dropping this value
/// returns the permit.
struct Wait<'t> {
    turns: &'t FairSemaphore,
    owner: &'t str,
    turn: oneshot::Receiver<()>,
    is_over: bool,
}

impl State {
    fn running(&self, owner: &str) -> usize {
        self.running.get(owner).copied().unwrap_or(0)
    }

    fn may_take(&self, owner: &str) -> bool {
        self.running(owner) < self.free
    }

    fn take(&mut self, owner: &str) {
        self.free -= 1;
        *self.running.entry(owner.to_owned()).or_default() += 1;
    }

    fn give_back(&mut self, owner: &str) {
        self.free += 1;
        if let Some(count) = self.running.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(owner);
            }
        }
    }

    /// Passes free permits to waiting calls.
    fn call(&mut self) {
        loop {
            let all = self.waiting.iter().enumerate();
            let ready = all.filter(|(_, (owner, _))| self.may_take(owner));
            let next = ready.min_by_key(|(at, (owner, _))| (self.running(owner), *at));
            let Some((at, _)) = next else { return };
            let Some((owner, turn)) = self.waiting.remove(at) else {
                return;
            };
            // If the send fails, the call was cancelled and takes no permit.
            if turn.send(()).is_ok() {
                self.take(&owner);
            }
        }
    }
}

impl FairSemaphore {
    pub(super) fn new(places: usize) -> Self {
        let state = State {
            free: places,
            ..State::default()
        };
        Self(Arc::new(Shared {
            places,
            state: Mutex::new(state),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock_unpoisoned()
    }

    /// Waits for a permit, at most [`TURN_TIME`].
    ///
    /// # Errors
    /// `Busy` if the time has passed. If calls of the same owner hold the permits, the error states
    /// that the owner has reached its own limit.
    pub(super) async fn enter(&self, owner: &str, operation: &'static str) -> Answer<Turn> {
        if let Ok(turn) = tokio::time::timeout(TURN_TIME, self.take(owner)).await {
            return Ok(turn);
        }
        let own = self.state().running(owner);
        let cause = match own {
            0 => format!(
                "{} calls are in progress, which is the limit",
                self.0.places
            ),
            own => format!("{own} of your calls are in progress, which is the limit"),
        };
        let error = busy(operation, cause);
        Err(match own {
            0 => error.into(),
            _ => Refusal::own_limit(error),
        })
    }

    /// Waits for a permit without a time limit.
    async fn take(&self, owner: &str) -> Turn {
        let (turn, waiting) = oneshot::channel();
        {
            let mut state = self.state();
            state.waiting.push_back((owner.to_owned(), turn));
            state.call();
        }
        let mut wait = Wait {
            turns: self,
            owner,
            turn: waiting,
            is_over: false,
        };
        // The result is always a permit. The table of waiting calls keeps the sender until it sends
        // the permit, and the table exists longer than every waiting call.
        let _given = (&mut wait.turn).await;
        wait.is_over = true;
        Turn {
            turns: self.clone(),
            owner: owner.to_owned(),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.turns.state();
        self.turn.close();
        if self.turn.try_recv().is_ok() {
            state.give_back(self.owner);
        }
        state.waiting.retain(|(_, turn)| !turn.is_closed());
        state.call();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.give_back(&self.owner);
        state.call();
    }
}

#[cfg(test)]
mod tests {
    use super::{FairSemaphore, Turn};
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    /// Returns a permit if one is free now.
    fn now(turns: &FairSemaphore, owner: &str) -> Option<Turn> {
        poll(pin!(turns.take(owner)))
    }

    fn poll(take: Pin<&mut impl Future<Output = Turn>>) -> Option<Turn> {
        match take.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn as_many_as_may(turns: &FairSemaphore, owner: &str) -> Vec<Turn> {
        std::iter::from_fn(|| now(turns, owner)).collect()
    }

    #[test]
    fn an_owner_at_the_limit_leaves_permits_for_other_owners() {
        let turns = FairSemaphore::new(16);
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for owner in ["a", "b", "c", "d", "e"] {
            let taken = as_many_as_may(&turns, owner);
            counts.push(taken.len());
            held.push(taken);
        }
        assert_eq!(counts, [8, 4, 2, 1, 1]);
        assert!(now(&turns, "f").is_none(), "all are taken");
        drop(held);
        assert_eq!(as_many_as_may(&turns, "f").len(), 8);
        assert!(turns.state().running.is_empty());
        assert_eq!(turns.state().free, 16);
    }

    #[test]
    fn the_owner_with_the_fewest_permits_is_next_and_then_the_first_call() {
        let turns = FairSemaphore::new(2);
        let (first, second) = (now(&turns, "a"), now(&turns, "b"));
        assert!(first.is_some() && second.is_some());
        let mut more = pin!(turns.take("a"));
        let mut newcomer = pin!(turns.take("c"));
        let mut later = pin!(turns.take("d"));
        assert!(poll(more.as_mut()).is_none());
        assert!(poll(newcomer.as_mut()).is_none());
        assert!(poll(later.as_mut()).is_none());
        drop(second);
        let newcomer = poll(newcomer.as_mut());
        assert!(newcomer.is_some());
        assert!(poll(more.as_mut()).is_none() && poll(later.as_mut()).is_none());
        drop(first);
        // Neither owner has a running call now, and this call arrived first.
        assert!(poll(more.as_mut()).is_some());
    }

    #[test]
    fn a_call_that_ended_its_wait_holds_no_permit() {
        let turns = FairSemaphore::new(1);
        let held = now(&turns, "a");
        {
            // This call gets a permit when `held` is dropped. The call itself is then dropped
            // without another poll.
            let mut gone = Box::pin(turns.take("b"));
            assert!(poll(gone.as_mut()).is_none());
            drop(held);
        }
        {
            let held = now(&turns, "a");
            assert!(held.is_some());
            let mut waits = Box::pin(turns.take("b"));
            assert!(poll(waits.as_mut()).is_none());
        }
        assert!(turns.state().waiting.is_empty());
        assert!(now(&turns, "c").is_some());
        assert_eq!(turns.state().free, 1);
    }
}

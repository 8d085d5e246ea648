//! Starts the transfers that may run, holds sessions, and records how sessions ended.
//!
//! dray-sched decides which transfers run. dray-queue decides the state of a transfer after a
//! session. One thread runs a scheduling round each second. The thread also runs a round when the
//! queue changes, at a time that the policy chose, at the time of the next try of a transfer, or when
//! a transfer has moved a number of bytes that the policy chose. Each session runs on its own thread.
//!
//! Invariant owned here: a transfer has at most one session of this endpoint at a time. A thread
//! that needs the lock of the chooser and the lock of the state takes the lock of the chooser
//! first.

mod choose;
mod gates;
mod monitor;
mod notes;
mod outcome;
mod preempt;
mod purge;
mod rate_limits;
mod renew;
mod rules;
mod share;
mod spans;
mod wake;

pub use share::Shares;

use crate::audit::{Audit, Deed};
use crate::live::{Live, Moving, SessionSlot, Way};
use crate::queue_settings::failed_at_start;
use crate::session::{SessionBudget, SessionRunner};
use crate::supervisor::Supervisor;
use crate::traits::Scheduler;
use choose::{Chooser, Plan, TransferView};
use dray_access::{Access, Action};
use dray_api::timestamp::time;
use dray_api::{
    RateWish, Request, Route, Scheduling, SchedulingPatch, Side, State as TransferState,
};
use dray_config::Config;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_link::threads;
use dray_queue::clock;
use dray_queue::{Commands, Ending, Queue, QueuedTransfer, SessionInput, Wish};
use dray_runtime::drive;
use dray_sched::policy::Phase;
use dray_telemetry::{Telemetry, Traced};
use monitor::Monitor;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use wake::Wake;

/// Maximum time for sessions to end when the endpoint stops.
const DRAIN: Duration = Duration::from_secs(20);

/// The running session of a transfer.
struct Running {
    view: TransferView,
    /// Bytes that earlier sessions of the transfer sent.
    base: u64,
    /// Set when the dispatcher has told the session to end in favour of another transfer. The
    /// policy then ignores the session.
    is_leaving: bool,
    /// Set when a caller has changed the request after the policy read it.
    is_stale: bool,
    moving: Arc<Moving>,
}

impl Running {
    fn stop(&self, wish: Wish) {
        stop(&self.moving, wish);
    }

    /// Returns the policy's view of the session, with the current byte count.
    fn view(&self) -> TransferView {
        TransferView {
            served: self.base.saturating_add(self.moving.moved()),
            ..self.view.clone()
        }
    }
}

/// Ends the session as `wish` demands. After a purge, this endpoint removes its own partial data of
/// the transfer and reports the removal ([`purge`]). Partial data at the other endpoint can be
/// removed only by the session, so the session of an outgoing transfer is told to purge.
fn stop(moving: &Moving, wish: Wish) {
    moving
        .handle
        .cancel(wish == Wish::Purge && moving.way == Way::Out);
}

#[derive(Default)]
struct State {
    running: HashMap<TransferId, Running>,
    purging: BTreeSet<TransferId>,
    is_woken: bool,
    is_stopping: bool,
    wake: Wake,
    /// Outcomes of transfers that failed before a session and could not be written to the queue yet.
    unwritten: Vec<(TransferId, Ending)>,
}

/// Starts, holds and ends sessions. The module documentation describes the rounds.
#[derive(Clone)]
pub struct Dispatcher(Arc<DispatcherInner>);

struct DispatcherInner {
    queue: Arc<Queue>,
    runner: Arc<SessionRunner>,
    config: Arc<Config>,
    live: Live,
    access: Arc<dyn Access>,
    audit: Arc<Audit>,
    state: Mutex<State>,
    woken: Condvar,
    chooser: Mutex<Chooser>,
    telemetry: Telemetry,
    /// Time at which the last session of each waiting transfer ended. Empty without an exporter.
    ended: Mutex<HashMap<TransferId, SystemTime>>,
}

impl Dispatcher {
    /// Creates a dispatcher and connects it to the queue's commands.
    #[must_use]
    pub fn new(
        queue: Arc<Queue>,
        runner: Arc<SessionRunner>,
        config: Arc<Config>,
        live: Live,
        access: Arc<dyn Access>,
        audit: Arc<Audit>,
        telemetry: Telemetry,
    ) -> Self {
        let rules = Scheduling::from(&config.scheduling);
        let dispatcher = Self(Arc::new(DispatcherInner {
            queue,
            runner,
            config,
            live,
            access,
            audit,
            state: Mutex::default(),
            woken: Condvar::new(),
            chooser: Mutex::new(Chooser::new(rules, clock::now())),
            telemetry,
            ended: Mutex::default(),
        }));
        dispatcher
            .0
            .queue
            .set_commands(Arc::new(dispatcher.clone()));
        dispatcher
    }

    /// Runs until [`Dispatcher::stop`], and then until all sessions have ended.
    ///
    /// # Errors
    /// If interrupted transfers cannot be queued again, or the system creates no thread.
    pub fn run(&self) -> Result<()> {
        let shared = &self.0;
        let interrupted = shared.queue.requeue_interrupted()?;
        if interrupted > 0 {
            tracing::info!("{interrupted} interrupted transfers are queued again");
        }
        if let Some(bounds) = failed_at_start(&shared.config) {
            let failed = shared.queue.retry_failed(bounds)?;
            tracing::info!("{failed} failed transfers are tried again (retry.at_start)");
        }
        let stop = || self.stop();
        std::thread::scope(|scope| {
            let parts = Supervisor::new(scope, &stop);
            let renewing = parts.spawn(|| renew::run(shared))?;
            parts.run(|| self.dispatch());
            renewing.join().map_err(|_| {
                Error::new(ErrorKind::Internal, End::Here, "renew the tickets")
                    .cause("a thread of the endpoint panicked")
                    .remedy("report this error, with the endpoint's log")
            })
        })
    }

    fn dispatch(&self) {
        let shared = &self.0;
        loop {
            match shared.queue.tick(clock::now()) {
                Ok(ticked) => shared.state().wake.next_try_at = ticked.next_try_at.map(time),
                Err(error) => tracing::error!("cannot maintain the queue: {error}"),
            }
            purge::begin(shared);
            if let Err(error) = self.begin() {
                tracing::error!("cannot start transfers: {error}");
            }
            if !shared.wait() {
                break;
            }
        }
        self.drain();
    }

    /// Starts no further session and ends the running sessions. Durable data is kept.
    pub fn stop(&self) {
        let mut state = self.0.state();
        state.is_stopping = true;
        for running in state.running.values() {
            running.moving.handle.cancel(false);
        }
        self.0.woken.notify_all();
    }

    /// Waits at most [`DRAIN`] for the running sessions to end.
    fn drain(&self) {
        let until = Instant::now() + DRAIN;
        let mut state = self.0.state();
        while !(state.running.is_empty() && state.purging.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!(
                    "{} sessions did not end before the time limit",
                    state.running.len()
                );
                return;
            }
            let waited = self.0.woken.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Runs one round: starts promised transfers, asks the policy, and carries out its plan.
    fn begin(&self) -> Result<()> {
        let shared = &self.0;
        shared.write_down_again();
        shared.refresh();
        // Promised transfers that move bytes now according to the plan of promises. The list stays
        // the same for the whole round.
        let movers = shared.queue.promises().movers(clock::now());
        let starts = preempt::starts(&movers);
        // Promised transfers start before the policy decides, so that other transfers cannot delay
        // them.
        self.begin_promised(&movers, &starts);
        let (plan, queued) = shared.plan(&starts)?;
        // Holds and releases are carried out before starts, because they free slots.
        for id in &plan.hold {
            shared.hold(id, true);
        }
        for id in &plan.release {
            shared.release(id);
        }
        for id in &plan.go_on {
            shared.hold(id, false);
        }
        for id in &plan.start {
            if let Some(chosen) = queued.iter().find(|one| one.id == *id) {
                if let Err(error) = self.begin_one(chosen) {
                    // An error of one transfer does not stop the other transfers.
                    tracing::error!(transfer = %id, "cannot start a transfer: {error}");
                    continue;
                }
                if !shared.is_running(id) {
                    shared.free_slot_of_held(&chosen.owner, &starts);
                }
            }
        }
        self.watch(&plan);
        Ok(())
    }

    /// Arranges the wake-ups that the policy asked for: at a time, or after a number of bytes.
    fn watch(&self, plan: &Plan) {
        let mut state = self.0.state();
        state.wake.look_at = plan.look_again;
        let watched = plan.look_after.iter().filter_map(|(id, bytes)| {
            let running = state.running.get(id)?;
            let left = bytes.saturating_sub(running.base);
            Some((Arc::clone(&running.moving), left))
        });
        let watched: Vec<_> = watched.collect();
        // Unlock first: `call_at` calls the alarm immediately if the session has already moved
        // enough bytes, and the alarm takes this lock.
        drop(state);
        for (moving, bytes) in watched {
            let shared = Arc::downgrade(&self.0);
            moving.call_at(bytes, move || {
                if let Some(shared) = shared.upgrade() {
                    shared.state().is_woken = true;
                    shared.woken.notify_all();
                }
            });
        }
    }

    /// Starts a transfer if its owner still has access and a slot is free.
    fn begin_one(&self, chosen: &QueuedTransfer) -> Result<()> {
        let shared = &self.0;
        // Read here, because a caller may have changed or deleted the transfer since it was queued.
        let Some((request, route)) = shared.queue.request_and_route(&chosen.id)? else {
            return Ok(());
        };
        if shared.awaits_root(&chosen.id) {
            return Ok(());
        }
        let is_staging = shared.queue.staging().is_staging(&chosen.id)?;
        let allowed = shared.ask_again(chosen, &route, is_staging);
        let slot = match allowed.and_then(|()| shared.take_slot(chosen, &request, &route)) {
            Ok(slot) => slot,
            Err(error) if error.kind == ErrorKind::NoPlace => return Ok(()),
            Err(error) => {
                // The configuration has changed since the submission: a root no longer exists, or
                // the owner has lost access.
                if shared.queue.begin(&chosen.id, chosen.version)?.is_some() {
                    shared.write_down_here(&chosen.id, Ending::Failed(error));
                }
                return Ok(());
            }
        };
        let Some(input) = shared.queue.begin(&chosen.id, chosen.version)? else {
            return Ok(());
        };
        self.start(input, chosen, slot);
        Ok(())
    }

    /// Starts a session on a new thread.
    fn start(&self, input: SessionInput, chosen: &QueuedTransfer, slot: SessionSlot) {
        let shared = Arc::clone(&self.0);
        let id = input.id.clone();
        let seen = shared.chooser().waiting(chosen, &shared.config);
        {
            let mut state = shared.state();
            if state.is_stopping {
                slot.moving.handle.cancel(false);
            }
            let running = Running {
                view: TransferView {
                    phase: Phase::Running,
                    since: clock::now(),
                    ..seen
                },
                base: input.counters.bytes.sent,
                is_leaving: false,
                // A caller may have changed the request after it was read.
                is_stale: true,
                moving: Arc::clone(&slot.moving),
            };
            state.running.insert(id.clone(), running);
            slot.moving.changed();
        }
        let name = "dray-carry".to_owned();
        let spawned = std::thread::Builder::new().name(name).spawn({
            let shared = Arc::clone(&shared);
            move || shared.session(&input, slot)
        });
        if let Err(error) = spawned {
            let broken = Ending::Broken {
                error: threads::refused(&error),
                has_progressed: false,
                is_whole: false,
                source: None,
            };
            shared.write_down_here(&id, broken);
            shared.leave(&id, false);
        }
    }
}

impl Commands for Dispatcher {
    fn wake(&self) {
        self.0.state().is_woken = true;
        self.0.woken.notify_all();
    }

    fn stop(&self, id: &TransferId, wish: Wish) {
        if let Some(running) = self.0.state().running.get(id) {
            running.stop(wish);
        }
    }

    fn changed(&self, id: &TransferId) {
        // The next division of the bandwidth reads the changed request. The next decision of the
        // policy uses the changed class, priority and deadline.
        if let Some(running) = self.0.state().running.get_mut(id) {
            running.moving.changed();
            running.is_stale = true;
        }
        self.wake();
    }

    fn purge(&self) {
        self.wake();
    }
}

impl Scheduler for Dispatcher {
    fn rules(&self) -> Scheduling {
        self.0.chooser().rules().clone()
    }

    fn change(&self, patch: &SchedulingPatch) -> Scheduling {
        let mut chooser = self.0.chooser();
        chooser.change(patch);
        let rules = chooser.rules().clone();
        drop(chooser);
        self.wake();
        rules
    }
}

impl DispatcherInner {
    fn chooser(&self) -> MutexGuard<'_, Chooser> {
        self.chooser.lock_unpoisoned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }

    /// Waits for a wake-up or for the time of the next round. Returns false when the dispatcher
    /// must end.
    fn wait(&self) -> bool {
        let mut state = self.state();
        if !state.is_woken && !state.is_stopping {
            let wait = state.wake.take_wait(time(clock::now()));
            let waited = self.woken.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_woken = false;
        !state.is_stopping
    }

    fn is_running(&self, id: &TransferId) -> bool {
        let state = self.state();
        state.is_stopping || state.running.contains_key(id)
    }

    fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    /// Checks that the roots of the submission still exist, and that the owner still has the access
    /// that was checked at submission.
    fn ask_again(&self, one: &QueuedTransfer, route: &Route, is_staging: bool) -> Result<()> {
        self.runner.check_roots(route)?;
        let ask = |action, side: &Side| match side {
            Side::Local(path) => {
                let access = &self.access;
                access.still_allow(&one.owner, &one.principal, action, path)
            }
            Side::Remote { .. } => Ok(()),
        };
        let reading = match is_staging {
            true => Action::Stage,
            false => Action::Read,
        };
        for source in route.origin_sides() {
            ask(reading, source)?;
        }
        ask(Action::Modify, route.destination())
    }

    fn take_slot(
        &self,
        one: &QueuedTransfer,
        request: &Request,
        route: &Route,
    ) -> Result<SessionSlot> {
        let source = one.source as usize;
        let reads = route.source(source).is_some_and(Side::is_local);
        let way = match (reads, route.destination().is_local()) {
            (true, true) => Way::Within,
            (true, false) => Way::Out,
            (false, _) => Way::In,
        };
        let peer = route.peer(source).unwrap_or_default().to_owned();
        let wish = RateWish {
            weight: request.weight,
            rate_min: request.rate_min,
            rate_max: request.rate_max,
            class: request.class(),
        };
        let mut moving = Moving::new(one.id.clone(), one.owner.clone(), peer, way, wish);
        moving.is_own = true;
        moving.roots = route.ends(source).filter_map(Side::root).collect();
        moving.grain = request.object_size.unwrap_or(moving.grain);
        self.live.enter(moving)
    }

    /// Runs one session and records how it ended.
    fn session(self: &Arc<Self>, input: &SessionInput, slot: SessionSlot) {
        let budget = SessionBudget {
            memory: slot.memory,
            live_entries: slot.live_entries,
        };
        let monitor = Monitor::new(&self.queue, input, Arc::clone(&slot.moving));
        // A caller may have asked to stop the transfer before the session was in the table of
        // running sessions. So read the stored wish of the caller and stop the session now.
        if let Ok(Some(wish)) = self.queue.wish(&input.id) {
            stop(&slot.moving, wish);
        }
        let spans = self.begin_spans(input, &slot.moving);
        let watch = Traced {
            inner: &monitor,
            spans: &spans,
        };
        let carry = || (self.runner).run(input, budget, &slot.moving.handle, &watch);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(carry));
        let ended = ran.unwrap_or_else(|_| outcome::panicked());
        spans.end(spans::error_of(&ended));
        let report = monitor.finish(&ended);
        let is_stopped = slot.moving.handle.is_stopped();
        let ending = outcome::ending(input, &ended, &report, is_stopped);
        let is_leaving = (self.state().running.get(&input.id)).is_some_and(|one| one.is_leaving);
        if outcome::has_let_go(&ending, is_leaving) {
            self.queue.lets_go(&input.id);
        }
        self.tell(input, &ended, &slot.moving);
        // Free the slot before the queue learns of the end, so that the next transfer finds a free
        // slot.
        drop(slot);
        let state = self.write_down(&input.id, ending);
        let is_over = state.is_none_or(TransferState::is_terminal);
        self.note_end(&input.id, is_over);
        self.leave(&input.id, state.is_some_and(TransferState::is_terminal));
    }

    fn leave(&self, id: &TransferId, has_ended: bool) {
        let left = self.state().running.get(id).map(Running::view);
        if let Some(seen) = left {
            // Report the session to the policy before it leaves the table, so that the next
            // decision counts the bytes of the session.
            self.chooser().left(seen, clock::now(), has_ended);
        }
        let mut state = self.state();
        state.running.remove(id);
        state.is_woken = true;
        self.woken.notify_all();
    }

    /// Writes the outcome of a session to the queue. Retries until the write succeeds or the
    /// endpoint stops, because otherwise the outcome would be lost. Returns the new state of the
    /// transfer.
    fn write_down(&self, id: &TransferId, ending: Ending) -> Option<TransferState> {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.queue.ended(id, ending.clone()) {
                Ok(state) => return state,
                Err(error) => tracing::error!(transfer = %id, "cannot record the end of the \
                    transfer: {error}"),
            }
            if self.is_stopping() {
                // The next process finds the transfer marked as running, and queues it again.
                return None;
            }
            std::thread::sleep(wait);
            wait = (2 * wait).min(Duration::from_secs(30));
        }
    }

    /// Same as [`DispatcherInner::write_down`], for the dispatcher's own thread, which must not
    /// block. A failed write is tried again in each round.
    fn write_down_here(&self, id: &TransferId, ending: Ending) {
        if let Err(error) = self.queue.ended(id, ending.clone()) {
            tracing::error!(transfer = %id, "cannot record the end of the transfer: {error}");
            self.state().unwritten.push((id.clone(), ending));
        }
    }

    fn write_down_again(&self) {
        let unwritten = std::mem::take(&mut self.state().unwritten);
        for (id, ending) in unwritten {
            self.write_down_here(&id, ending);
        }
    }

    fn tell(&self, input: &SessionInput, ended: &drive::Ended, moving: &Moving) {
        let error = spans::error_of(ended);
        let deed = Deed {
            owner: input.owner.clone(),
            principal: input.principal.clone(),
            peer: moving.peer.clone(),
            what: moving.way.word().to_owned(),
            transfer: Some(input.id.to_string()),
            paths: input
                .request
                .origin(input.source as usize)
                .iter()
                .chain([&input.request.destination])
                .map(|place| place.url.clone())
                .collect(),
        };
        self.audit.session(&deed, &ended.progress, error);
    }
}

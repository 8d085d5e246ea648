//! Starts what may run, holds what is not to, and writes down how it ended.
//!
//! Which transfers run is decided by dray-sched; how one ended means what `queue` says. One
//! thread looks each second and whenever the queue, a counter or the policy wakes it; each session
//! has a thread of its own.
//!
//! Invariant owned here: a transfer has at most one session of this endpoint at a time.
//! Locks are taken in the order chooser, state.

mod choose;
mod gates;
mod monitor;
mod notes;
mod outcome;
mod preempt;
mod purge;
mod renew;
mod rules;
mod share;

pub use share::Shares;

use crate::access::{Access, Action};
use crate::audit::{Audit, Deed};
use crate::clock;
use crate::config::Config;
use crate::live::{Live, Moving, RateWish, Seat, Way};
use crate::queue::{Commands, Ending, Job, Queue, QueuedTransfer, Wish};
use crate::session::{Job as Session, SessionRunner};
use crate::supervisor::Supervisor;
use crate::traits::Scheduler;
use choose::{Chooser, Plan, Seen};
use dray_api::api_path::Side;
use dray_api::timestamp::time;
use dray_api::{Request, Scheduling, SchedulingPatch, State as TransferState};
use dray_core::{End, Error, ErrorKind, Result, Time, TransferId};
use dray_runtime::{drive, threads};
use dray_sched::policy::Phase;
use monitor::Monitor;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it looks when nobody wakes it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the sessions may take to leave when the endpoint ends.
const DRAIN: Duration = Duration::from_secs(20);

/// A transfer's session.
struct Running {
    seen: Seen,
    /// What earlier sessions sent.
    base: u64,
    /// Whether it was told to give up its session: the policy has no more to do with it.
    is_leaving: bool,
    /// Whether its request was changed since the policy saw it.
    is_stale: bool,
    moving: Arc<Moving>,
}

impl Running {
    fn stop(&self, wish: Wish) {
        stop(&self.moving, wish);
    }

    /// As it is now.
    fn seen(&self) -> Seen {
        Seen {
            served: self.base.saturating_add(self.moving.moved()),
            ..self.seen.clone()
        }
    }
}

/// Ends a session as wished. What it wrote here is removed when it has ended, with a word on what it
/// was ([`purge`]); elsewhere only a session can.
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
    /// When the policy wants to be asked again.
    look_at: Option<Time>,
    /// Transfers that have ended without a session, which could not be written down yet.
    unwritten: Vec<(TransferId, Ending)>,
}

/// See the module's head.
#[derive(Clone)]
pub struct Dispatcher(Arc<Shared>);

struct Shared {
    queue: Arc<Queue>,
    runner: Arc<SessionRunner>,
    config: Arc<Config>,
    live: Live,
    access: Arc<dyn Access>,
    audit: Arc<Audit>,
    state: Mutex<State>,
    woken: Condvar,
    chooser: Mutex<Chooser>,
}

impl Dispatcher {
    /// Ready to run; hears of changes from now on.
    #[must_use]
    pub fn new(
        queue: Arc<Queue>,
        runner: Arc<SessionRunner>,
        config: Arc<Config>,
        live: Live,
        access: Arc<dyn Access>,
        audit: Arc<Audit>,
    ) -> Self {
        let rules = Scheduling::from(&config.scheduling);
        let dispatcher = Self(Arc::new(Shared {
            queue,
            runner,
            config,
            live,
            access,
            audit,
            state: Mutex::default(),
            woken: Condvar::new(),
            chooser: Mutex::new(Chooser::new(rules, clock::now())),
        }));
        dispatcher
            .0
            .queue
            .set_commands(Arc::new(dispatcher.clone()));
        dispatcher
    }

    /// Runs until [`Dispatcher::stop`], and then until all sessions have left.
    ///
    /// # Errors
    /// When what was interrupted cannot be queued again, or the system gives no thread.
    pub fn run(&self) -> Result<()> {
        let shared = &self.0;
        let interrupted = shared.queue.requeue_interrupted()?;
        if interrupted > 0 {
            tracing::info!("{interrupted} interrupted transfers are queued again");
        }
        let stop = || self.stop();
        std::thread::scope(|scope| {
            let parts = Supervisor::new(scope, &stop);
            let renewing = parts.spawn(|| renew::run(shared))?;
            parts.run(|| self.dispatch());
            renewing.join().map_err(|_| {
                Error::new(ErrorKind::Internal, End::Here, "renew the tickets")
                    .cause("it panicked")
                    .remedy("report it, with the endpoint's log")
            })
        })
    }

    fn dispatch(&self) {
        let shared = &self.0;
        loop {
            if let Err(error) = shared.queue.tick(clock::now()) {
                tracing::error!("cannot maintain the queue: {error}");
            }
            purge::begin(shared);
            if let Err(error) = self.begin() {
                tracing::error!("cannot begin transfers: {error}");
            }
            if !shared.wait() {
                break;
            }
        }
        self.drain();
    }

    /// Begins nothing more and ends what runs; what is safe stays.
    pub fn stop(&self) {
        let mut state = self.0.state();
        state.is_stopping = true;
        for running in state.running.values() {
            running.moving.handle.cancel(false);
        }
        self.0.woken.notify_all();
    }

    /// Waits for the sessions that were told to stop.
    fn drain(&self) {
        let until = Instant::now() + DRAIN;
        let mut state = self.0.state();
        while !(state.running.is_empty() && state.purging.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("{} sessions did not end in time", state.running.len());
                return;
            }
            let waited = self.0.woken.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks the policy, and does what it says.
    fn begin(&self) -> Result<()> {
        let shared = &self.0;
        shared.write_down_again();
        shared.refresh();
        // What the plan has moving, for all of this look.
        let movers = shared.queue.promises().movers(clock::now());
        let starts = preempt::starts(&movers);
        // The plan counts on them, whoever waits besides and however many run.
        self.begin_promised(&movers, &starts);
        let (plan, queued) = shared.plan(&starts)?;
        // First what makes room.
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
                    // What one row has against it holds nobody else up.
                    tracing::error!(transfer = %id, "cannot begin a transfer: {error}");
                    continue;
                }
                if !shared.is_running(id) {
                    shared.make_room_beside_held(&chosen.owner, &starts);
                }
            }
        }
        self.watch(&plan);
        Ok(())
    }

    /// Wakes when the policy wants to be asked again.
    fn watch(&self, plan: &Plan) {
        let mut state = self.0.state();
        state.look_at = plan.look_again;
        let watched = plan.look_after.iter().filter_map(|(id, bytes)| {
            let running = state.running.get(id)?;
            let left = bytes.saturating_sub(running.base);
            Some((Arc::clone(&running.moving), left))
        });
        let watched: Vec<_> = watched.collect();
        // Who has moved so much already rings at once, and takes this lock.
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

    /// Begins one, if it still may and there is a place.
    fn begin_one(&self, chosen: &QueuedTransfer) -> Result<()> {
        let shared = &self.0;
        // As patched by now; it may be gone.
        let Some(request) = shared.queue.request(&chosen.id)? else {
            return Ok(());
        };
        let is_staging = shared.queue.staging().is_staging(&chosen.id)?;
        let allowed = shared.ask_again(chosen, &request, is_staging);
        let seat = match allowed.and_then(|()| shared.seat(chosen, &request)) {
            Ok(seat) => seat,
            Err(error) if error.kind == ErrorKind::NoPlace => return Ok(()),
            Err(error) => {
                // It names nothing that is here any more, or what its owner may not touch: the
                // configuration was changed.
                if shared.queue.begin(&chosen.id, chosen.version)?.is_some() {
                    shared.write_down_here(&chosen.id, Ending::Failed(error));
                }
                return Ok(());
            }
        };
        let Some(job) = shared.queue.begin(&chosen.id, chosen.version)? else {
            return Ok(());
        };
        self.start(job, chosen, seat);
        Ok(())
    }

    /// Gives a session its thread.
    fn start(&self, job: Job, chosen: &QueuedTransfer, seat: Seat) {
        let shared = Arc::clone(&self.0);
        let id = job.id.clone();
        let seen = shared.chooser().waiting(chosen, &shared.config);
        {
            let mut state = shared.state();
            if state.is_stopping {
                seat.moving.handle.cancel(false);
            }
            let running = Running {
                seen: Seen {
                    phase: Phase::Running,
                    since: clock::now(),
                    ..seen
                },
                base: job.counters.bytes.sent,
                is_leaving: false,
                // It may have been changed since it was looked at.
                is_stale: true,
                moving: Arc::clone(&seat.moving),
            };
            state.running.insert(id.clone(), running);
            seat.moving.changed();
        }
        let name = "dray-carry".to_owned();
        let spawned = std::thread::Builder::new().name(name).spawn({
            let shared = Arc::clone(&shared);
            move || shared.session(&job, seat)
        });
        if let Err(error) = spawned {
            let broken = Ending::Broken {
                error: threads::refused(&error),
                has_progressed: false,
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
        // The shares ask for the request when they are given out next; the queue's order is looked
        // at anew.
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

impl Shared {
    fn chooser(&self) -> MutexGuard<'_, Chooser> {
        self.chooser.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a wake or the next look; false when it is to end.
    fn wait(&self) -> bool {
        let mut state = self.state();
        if !state.is_woken && !state.is_stopping {
            let now = time(clock::now());
            let wait = state.look_at.take().map(|at| at.since(now));
            let wait = wait.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL);
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

    /// The other endpoint of a transfer, with the source that its next session begins with.
    fn peer(&self, one: &QueuedTransfer) -> Option<String> {
        [&one.source_url, &one.destination_url]
            .into_iter()
            .filter_map(|url| self.config.side(url).ok())
            .find_map(|side| match side {
                Side::Remote { address, .. } => Some(address),
                Side::Local(_) => None,
            })
    }

    /// Whether what was allowed when it was submitted is allowed now.
    fn ask_again(&self, one: &QueuedTransfer, request: &Request, is_staging: bool) -> Result<()> {
        let ask = |action, url: &str| match self.config.side(url)? {
            Side::Local(path) => {
                let access = &self.access;
                access.still_allow(&one.owner, &one.principal, action, &path)
            }
            Side::Remote { .. } => Ok(()),
        };
        let reading = match is_staging {
            true => Action::Stage,
            false => Action::Read,
        };
        for source in request.origin_places() {
            ask(reading, &source.url)?;
        }
        ask(Action::Modify, &request.destination.url)
    }

    fn seat(&self, one: &QueuedTransfer, request: &Request) -> Result<Seat> {
        let from = self.config.side(&one.source_url)?;
        let to = self.config.side(&request.destination.url)?;
        let way = match (from.is_local(), to.is_local()) {
            (true, true) => Way::Within,
            (true, false) => Way::Out,
            (false, _) => Way::In,
        };
        let peer = self.peer(one).unwrap_or_default();
        let wish = RateWish {
            weight: request.weight,
            rate_min: request.rate_min,
            rate_max: request.rate_max,
            class: request.class(),
        };
        let mut moving = Moving::new(one.id.clone(), one.owner.clone(), peer, way, wish);
        moving.is_own = true;
        moving.roots = [&from, &to].into_iter().filter_map(Side::root).collect();
        moving.grain = request.object_size.unwrap_or(moving.grain);
        self.live.enter(moving)
    }

    /// Runs one session and writes down how it ended.
    fn session(self: &Arc<Self>, job: &Job, seat: Seat) {
        let source = job.source as usize;
        let session = Session {
            transfer: job.id.clone(),
            request: job.request.clone(),
            owner: job.owner.clone(),
            session: job.attempt.saturating_mul(1_000).saturating_add(job.tries),
            source,
            memory: seat.memory,
            live_entries: seat.live_entries,
        };
        let monitor = Monitor::new(&self.queue, job, Arc::clone(&seat.moving));
        // A wish may have come between the begin and the place in the table.
        if let Ok(Some(wish)) = self.queue.wish(&job.id) {
            stop(&seat.moving, wish);
        }
        let carry = || self.runner.run(&session, &seat.moving.handle, &monitor);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(carry));
        let ended = ran.unwrap_or_else(|_| outcome::panicked());
        let report = monitor.finish(&ended);
        let is_stopped = seat.moving.handle.is_stopped();
        let ending = outcome::ending(job, &ended, &report, is_stopped);
        let is_leaving = (self.state().running.get(&job.id)).is_some_and(|one| one.is_leaving);
        if outcome::has_let_go(&ending, is_leaving) {
            self.queue.lets_go(&job.id);
        }
        self.tell(job, &ended, &seat.moving);
        // The place first: whoever is begun next finds it free.
        drop(seat);
        let state = self.write_down(&job.id, ending);
        self.leave(&job.id, state.is_some_and(TransferState::is_terminal));
    }

    fn leave(&self, id: &TransferId, has_ended: bool) {
        let left = self.state().running.get(id).map(Running::seen);
        if let Some(seen) = left {
            // Before its place is free: the next decision knows what it has moved.
            self.chooser().left(seen, clock::now(), has_ended);
        }
        let mut state = self.state();
        state.running.remove(id);
        state.is_woken = true;
        self.woken.notify_all();
    }

    /// Tries until it stands: a transfer that ended and is not known to have would be lost. Says
    /// where it stands now.
    fn write_down(&self, id: &TransferId, ending: Ending) -> Option<TransferState> {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.queue.ended(id, ending.clone()) {
                Ok(state) => return state,
                Err(error) => tracing::error!(transfer = %id, "cannot note how it ended: {error}"),
            }
            if self.is_stopping() {
                // The next process finds it interrupted.
                return None;
            }
            std::thread::sleep(wait);
            wait = (2 * wait).min(Duration::from_secs(30));
        }
    }

    /// The same in the dispatcher's own thread, which others wait for: tried once in each look.
    fn write_down_here(&self, id: &TransferId, ending: Ending) {
        if let Err(error) = self.queue.ended(id, ending.clone()) {
            tracing::error!(transfer = %id, "cannot note how it ended: {error}");
            self.state().unwritten.push((id.clone(), ending));
        }
    }

    fn write_down_again(&self) {
        let unwritten = std::mem::take(&mut self.state().unwritten);
        for (id, ending) in unwritten {
            self.write_down_here(&id, ending);
        }
    }

    fn tell(&self, job: &Job, ended: &drive::Ended, moving: &Moving) {
        let error = match &ended.ending {
            drive::Ending::Refused(error)
            | drive::Ending::Unreachable(error)
            | drive::Ending::Interrupted(error) => Some(error),
            drive::Ending::Done { .. } | drive::Ending::Cancelled => None,
        };
        let deed = Deed {
            owner: job.owner.clone(),
            principal: job.principal.clone(),
            peer: moving.peer.clone(),
            what: match moving.way {
                Way::Out => "push",
                Way::In => "pull",
                Way::Within => "copy",
            }
            .to_owned(),
            transfer: Some(job.id.to_string()),
            paths: job
                .request
                .origin(job.source as usize)
                .iter()
                .chain([&job.request.destination])
                .map(|place| place.url.clone())
                .collect(),
        };
        self.audit.session(&deed, &ended.progress, error);
    }
}

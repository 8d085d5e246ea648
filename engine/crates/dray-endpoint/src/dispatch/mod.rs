//! Starts what may run, and writes down how it ended.
//!
//! Which transfer is next is decided by dray-sched; how it ended means what `queue` says. One
//! thread looks each second and whenever the queue wakes it; each session has a thread of its own.
//!
//! Invariant owned here: a transfer has at most one session of this endpoint at a time.

mod monitor;
mod outcome;
mod purge;
mod renew;
mod share;

pub use share::Shares;

use crate::access::{Access, Action};
use crate::api::types::Request;
use crate::audit::{Audit, Deed};
use crate::carry::{Carrier, Job as Session};
use crate::config::Config;
use crate::live::{Live, Moving, Seat, Way, Wish as RateWish};
use crate::moment::Moment;
use crate::place::Side;
use crate::queue::{Commands, Ending, Job, Queue, QueuedTransfer, Sight, Wish};
use dray_core::rate::Class;
use dray_core::{ErrorKind, Result, Time, TransferId};
use dray_runtime::drive;
use dray_sched::policy::{Limits, OwnerRules, Phase, Scheduler, Transfer, View};
use monitor::Monitor;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it looks when nobody wakes it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Queued transfers that are looked at for one choice: where so many owners wait that this is too
/// few, the next choice begins with those it left out.
const WAITING_MAX: usize = 2_000;

/// How long the sessions may take to leave when the endpoint ends.
const DRAIN: Duration = Duration::from_secs(20);

/// A transfer's session.
struct Running {
    owner: String,
    peer: Option<String>,
    moving: Arc<Moving>,
}

impl Running {
    fn stop(&self, wish: Wish) {
        stop(&self.moving, wish);
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
}

/// See the module's head.
#[derive(Clone)]
pub struct Dispatcher(Arc<Shared>);

struct Shared {
    queue: Arc<Queue>,
    carrier: Arc<Carrier>,
    config: Arc<Config>,
    live: Live,
    access: Arc<dyn Access>,
    audit: Arc<Audit>,
    state: Mutex<State>,
    woken: Condvar,
    scheduler: Mutex<Scheduler>,
    /// The owner to begin with in the next choice.
    from: Mutex<String>,
}

impl Dispatcher {
    /// Ready to run; hears of changes from now on.
    #[must_use]
    pub fn new(
        queue: Arc<Queue>,
        carrier: Arc<Carrier>,
        config: Arc<Config>,
        live: Live,
        access: Arc<dyn Access>,
        audit: Arc<Audit>,
    ) -> Self {
        let dispatcher = Self(Arc::new(Shared {
            queue,
            carrier,
            config,
            live,
            access,
            audit,
            state: Mutex::default(),
            woken: Condvar::new(),
            scheduler: Mutex::default(),
            from: Mutex::default(),
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
    /// When what was interrupted cannot be queued again.
    pub fn run(&self) -> Result<()> {
        let shared = &self.0;
        let interrupted = shared.queue.requeue_interrupted()?;
        if interrupted > 0 {
            tracing::info!("{interrupted} interrupted transfers are queued again");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| renew::run(shared));
            loop {
                if let Err(error) = shared.queue.tick(Moment::now()) {
                    tracing::error!("cannot look after the queue: {error}");
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
        });
        Ok(())
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
                tracing::warn!("{} sessions did not leave in time", state.running.len());
                return;
            }
            let waited = self.0.woken.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Begins what may.
    fn begin(&self) -> Result<()> {
        let shared = &self.0;
        let queued = shared.waiting()?;
        for id in shared.choose(&queued, Moment::now()) {
            let Some(chosen) = queued.iter().find(|one| one.id.as_str() == id) else {
                continue;
            };
            // As patched by now; it may be gone.
            let Some(request) = shared.queue.request(&chosen.id)? else {
                continue;
            };
            let is_staging = shared.queue.staging().is_staging(&chosen.id)?;
            let allowed = shared.ask_again(chosen, &request, is_staging);
            let seat = match allowed.and_then(|()| shared.seat(chosen, &request)) {
                Ok(seat) => seat,
                Err(error) if error.kind == ErrorKind::Busy => continue,
                Err(error) => {
                    // It names nothing that is here any more, or what its owner may not touch: the
                    // configuration was changed.
                    if shared.queue.begin(&chosen.id, chosen.version)?.is_some() {
                        shared.write_down(&chosen.id, Ending::Failed(error));
                    }
                    continue;
                }
            };
            let Some(job) = shared.queue.begin(&chosen.id, chosen.version)? else {
                continue;
            };
            self.start(job, seat);
        }
        Ok(())
    }

    /// Gives a session its thread.
    fn start(&self, job: Job, seat: Seat) {
        let shared = Arc::clone(&self.0);
        let id = job.id.clone();
        {
            let mut state = shared.state();
            if state.is_stopping {
                seat.moving.handle.cancel(false);
            }
            let running = Running {
                owner: job.owner.clone(),
                peer: (!seat.moving.peer.is_empty()).then(|| seat.moving.peer.clone()),
                moving: Arc::clone(&seat.moving),
            };
            state.running.insert(id.clone(), running);
            // It may have been changed since it was looked at.
            seat.moving.changed();
        }
        let name = "dray-carry".to_owned();
        let spawned = std::thread::Builder::new().name(name).spawn({
            let shared = Arc::clone(&shared);
            move || shared.session(&job, seat)
        });
        if let Err(error) = spawned {
            let error = dray_core::Error::new(
                ErrorKind::Busy,
                dray_core::End::Here,
                "start a thread for a session",
            )
            .cause(error.to_string());
            let broken = Ending::Broken {
                error,
                has_progressed: false,
                source: None,
            };
            shared.write_down(&id, broken);
            shared.leave(&id);
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
        if let Some(running) = self.0.state().running.get(id) {
            running.moving.changed();
        }
        self.wake();
    }

    fn purge(&self) {
        self.wake();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a wake or the next look; false when it is to end.
    fn wait(&self) -> bool {
        let mut state = self.state();
        if !state.is_woken && !state.is_stopping {
            let waited = self.woken.wait_timeout(state, LOOK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_woken = false;
        !state.is_stopping
    }

    fn is_stopping(&self) -> bool {
        self.state().is_stopping
    }

    fn limits(&self) -> Limits {
        let limits = &self.config.limits;
        let active = limits.transfers_active as usize;
        let mut owners = BTreeMap::new();
        for share in &self.config.share {
            if let Some(owner) = &share.owner {
                let rules = OwnerRules {
                    weight: share.weight,
                    ..OwnerRules::default()
                };
                owners.insert(owner.clone(), rules);
            }
        }
        Limits {
            owner_max: limits.per_owner_active as usize,
            owners,
            ..Limits::of(active)
        }
    }

    /// The front of every line, as far as anything could begin.
    fn waiting(&self) -> Result<Vec<QueuedTransfer>> {
        let limits = &self.config.limits;
        let running = u32::try_from(self.state().running.len()).unwrap_or(u32::MAX);
        let free = limits.transfers_active.saturating_sub(running);
        if free == 0 {
            return Ok(Vec::new());
        }
        let mut from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, next) = self.queue.runnable(Sight {
            per_line: free.min(limits.per_owner_active),
            transfers_max: WAITING_MAX,
            from: &from,
        })?;
        *from = next.unwrap_or_default();
        Ok(seen)
    }

    /// Which of the queued ones begin, in order.
    fn choose(&self, queued: &[QueuedTransfer], now: Moment) -> Vec<String> {
        let peers: Vec<Option<String>> = queued.iter().map(|one| self.peer(one)).collect();
        let state = self.state();
        if state.is_stopping {
            return Vec::new();
        }
        // A session that is leaving still has its place, and its transfer may be queued again already.
        let is_free =
            |one: &&(&QueuedTransfer, &Option<String>)| !state.running.contains_key(&one.0.id);
        let queued: Vec<_> = queued.iter().zip(&peers).collect();
        let mut transfers: Vec<Transfer<'_>> = (queued.iter().filter(is_free))
            .map(|(one, peer)| Transfer {
                owner: &one.owner,
                peer: peer.as_deref(),
                class: self.class(one),
                priority: one.priority,
                deadline: one.deadline.map(time),
                // Whose time has not come stands in no line.
                not_before: None,
                since: time(one.waits_since),
                ..Transfer::new(one.id.as_str(), u64::try_from(one.seq).unwrap_or(0))
            })
            .collect();
        transfers.extend(state.running.iter().map(|(id, running)| Transfer {
            owner: &running.owner,
            peer: running.peer.as_deref(),
            phase: Phase::Running,
            ..Transfer::new(id.as_str(), 0)
        }));
        let limits = self.limits();
        let view = View {
            transfers: &transfers,
            ended: &[],
            limits: &limits,
        };
        let mut scheduler = self
            .scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let decision = scheduler.decide(&view, time(now));
        let waits = |id: &&&str| !state.running.keys().any(|other| other.as_str() == **id);
        let begin = decision.run.iter().filter(waits);
        begin.map(|id| (*id).to_owned()).collect()
    }

    /// What was promised something begins before all that was not: its plan counts on it.
    fn class(&self, one: &QueuedTransfer) -> Class {
        match self.queue.promises().is_promised(one.id.as_str()) {
            true => Class::Realtime,
            false => one.class,
        }
    }

    /// The other endpoint of a transfer, with the source that its next session begins with.
    fn peer(&self, one: &QueuedTransfer) -> Option<String> {
        [&one.source_url, &one.destination_url]
            .into_iter()
            .filter_map(|url| Side::parse(url, &self.config).ok())
            .find_map(|side| match side {
                Side::Remote { address, .. } => Some(address),
                Side::Local(_) => None,
            })
    }

    /// Whether what was allowed when it was submitted is allowed now.
    fn ask_again(&self, one: &QueuedTransfer, request: &Request, is_staging: bool) -> Result<()> {
        let ask = |action, url: &str| match Side::parse(url, &self.config)? {
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
        for source in &request.sources {
            ask(reading, &source.url)?;
        }
        ask(Action::Modify, &request.destination.url)
    }

    fn seat(&self, one: &QueuedTransfer, request: &Request) -> Result<Seat> {
        let from = Side::parse(&one.source_url, &self.config)?;
        let to = Side::parse(&request.destination.url, &self.config)?;
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
        // Until the shares are given out next.
        moving.grant(
            self.config
                .rate_at_first(&moving.peer, &moving.owner, request.rate_max),
        );
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
        };
        let monitor = Monitor::new(&self.queue, job, Arc::clone(&seat.moving));
        // A wish may have come between the begin and the place in the table.
        if let Ok(Some(wish)) = self.queue.wish(&job.id) {
            stop(&seat.moving, wish);
        }
        let carry = || self.carrier.carry(&session, &seat.moving.handle, &monitor);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(carry));
        let ended = ran.unwrap_or_else(|_| outcome::panicked());
        let report = monitor.finish(&ended);
        let is_stopped = seat.moving.handle.is_stopped();
        let ending = outcome::ending(job, &ended, &report, is_stopped);
        self.tell(job, &ended, &seat.moving);
        // The place first: whoever is begun next finds it free.
        drop(seat);
        self.write_down(&job.id, ending);
        self.leave(&job.id);
    }

    fn leave(&self, id: &TransferId) {
        let mut state = self.state();
        state.running.remove(id);
        state.is_woken = true;
        self.woken.notify_all();
    }

    /// Tries until it stands: a transfer that ended and is not known to have would be lost.
    fn write_down(&self, id: &TransferId, ending: Ending) {
        let mut wait = Duration::from_millis(100);
        loop {
            match self.queue.ended(id, ending.clone()) {
                Ok(_) => return,
                Err(error) => tracing::error!(transfer = %id, "cannot note how it ended: {error}"),
            }
            if self.is_stopping() {
                // The next process finds it interrupted.
                return;
            }
            std::thread::sleep(wait);
            wait = (2 * wait).min(Duration::from_secs(30));
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
                .sources
                .get(job.source as usize)
                .into_iter()
                .chain([&job.request.destination])
                .map(|place| place.url.clone())
                .collect(),
        };
        self.audit.session(&deed, &ended.progress, error);
    }
}

/// A point on the clock that the choice is made on.
fn time(moment: Moment) -> Time {
    let ms = u64::try_from(moment.as_ms()).unwrap_or(0);
    Time::ZERO + Duration::from_millis(ms)
}

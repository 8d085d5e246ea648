//! Promises to transfers: the deadlines and rates that this endpoint has accepted, the rates that
//! keep these promises, and the promises that the endpoint expects to miss.
//!
//! Purpose: converts requests of the endpoint to calls of `dray_sched::broker`. The resources of
//! the broker are the endpoint's link, roots, tiers, peers and owners. The broker's clock is the
//! host's wall clock.
//!
//! Non-goals: database rows (`queue`), the rate limits of sessions (`dispatch`), HTTP.
//!
//! Invariant of this module: the broker has exactly the promises in the table of promises. After a
//! write was rolled back, the promises are read from the table again.

mod admission;
mod answer;
mod interruptions;
mod link;
mod list;
mod restore;
mod round;
mod settings;
mod slots;
#[cfg(test)]
mod tests;
mod wish;

pub(crate) use answer::NO_ROOM;
pub use answer::{Given, NotAdmitted};
pub use round::{Report, Round, SessionProgress};
pub use settings::{RootRate, Settings, Share, TierRate};
pub use slots::{Lack, Mover, Standing};
pub use wish::{Ask, Asked, asks_promise};

use dray_api::timestamp::{Timestamp, of_time, time};
use dray_api::{Admitted, MissAnswer, ReasonWord};
use dray_core::Time;
use dray_core::lock::LockExt;
use dray_core::rate::{BytesPerSecond, Class};
use dray_sched::broker::{Answer, Broker, Grant, Rate, Reason, ResourceId, TransferKey, Wish};
use interruptions::Interruptions;
use link::Link;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use wish::Resources;

/// Time that a transfer needs after its bytes have moved: to sync and to publish its files. The
/// plan moves all bytes of a transfer at least this long before its deadline. The value is an
/// estimate.
const SETTLE: Duration = Duration::from_secs(1);

/// If there are more promises than this, [`Promises::eta`] returns no estimate, because its cost
/// grows with the number of promises. The value is estimated, not measured.
const ETA_PROMISES_MAX: usize = 32;

/// A promise as the queue stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Id of the transfer.
    pub id: String,
    /// Number of the transfer in the order of submission.
    pub key: u64,
    /// Number of promised bytes; `None` for a promise of a rate alone.
    pub bytes: Option<u64>,
    /// Deadline of the transfer.
    pub deadline: Option<Timestamp>,
    /// Promised minimum rate, in bytes per second.
    pub rate_min: Option<u64>,
    /// Names of the resources that the transfer's bytes use.
    pub resources: Vec<String>,
}

/// The state of a transfer's promise, as the API shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// True if the transfer has a promise.
    pub is_promised: bool,
    /// The planned rate, in bytes per second.
    pub planned: Option<u64>,
    /// Reason for the planned rate.
    pub reason: Option<ReasonWord>,
    /// The expected miss and its cause; `None` if the promise will be kept.
    pub miss: Option<MissAnswer>,
}

/// Counters of promises for the metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of promises that were kept.
    pub kept: AtomicU64,
    /// Number of promises that were missed.
    pub missed: AtomicU64,
    /// Number of missed promises that were reported as missed before the deadline.
    pub foretold: AtomicU64,
    /// Number of requests that were refused a promise.
    pub refused: AtomicU64,
}

#[derive(Debug, Clone)]
struct PromisedTransfer {
    id: Arc<str>,
    owner: Arc<str>,
    /// Size of the whole transfer in bytes, if it is known. Includes the bytes that have already
    /// moved.
    bytes: Option<u64>,
    promise: Promise,
    interruptions: Interruptions,
}

/// The promises of this endpoint.
pub struct Promises {
    places: Resources,
    state: Mutex<BrokerState>,
    /// Counts of kept, missed and refused promises.
    pub counts: Counts,
}

struct BrokerState {
    broker: Broker,
    held: BTreeMap<TransferKey, PromisedTransfer>,
    by_id: HashMap<String, TransferKey>,
    rates: BTreeMap<TransferKey, Rate>,
    /// The planned rates that callers were last informed of.
    told: BTreeMap<TransferKey, u64>,
    misses: BTreeMap<TransferKey, MissAnswer>,
    wake_at: Option<Time>,
    /// Time of the last round.
    at: Time,
    is_changed: bool,
    /// True if a promise was made or dropped since [`Promises::mark`].
    is_touched: bool,
    /// Set while the queue must ask again for the promises of waiting transfers, because a capacity
    /// has become known and these transfers may get a promise now. The queue asks page by page. The
    /// value is the sequence number after which it continues.
    asks_from: Option<i64>,
    link: Link,
    /// Bytes that all sessions have moved.
    moved: u64,
    uses: HashMap<u64, round::Use>,
    unseated: slots::Unseated,
}

impl Promises {
    /// Creates the state of an endpoint without promises.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let places = Resources::new(settings);
        let state = BrokerState {
            broker: places.broker(),
            held: BTreeMap::new(),
            by_id: HashMap::new(),
            rates: BTreeMap::new(),
            told: BTreeMap::new(),
            misses: BTreeMap::new(),
            wake_at: None,
            is_changed: false,
            is_touched: false,
            asks_from: None,
            at: Time::ZERO,
            link: Link::default(),
            moved: 0,
            uses: HashMap::new(),
            unseated: slots::Unseated::new(),
        };
        Self {
            places,
            state: Mutex::new(state),
            counts: Counts::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, BrokerState> {
        self.state.lock_unpoisoned()
    }

    /// Returns the answers that these requests would get. Changes nothing.
    ///
    /// # Errors
    /// If a request that requires a promise cannot get one. The error refuses the whole set and
    /// names alternatives.
    pub fn would(&self, asks: &[Ask<'_>], now: Timestamp) -> Result<Vec<Given>, Box<NotAdmitted>> {
        let state = self.state();
        let mut broker = state.broker.clone();
        let held = state.held.clone();
        drop(state);
        self.decide(&mut broker, &held, asks, now)
    }

    /// Promises these requests, all or none. The caller writes each [`Given::promise`] to the
    /// queue.
    ///
    /// # Errors
    /// If the requests cannot be promised, returns them for [`Promises::explain`]. This method does
    /// not search for alternatives, because the search plans many times, and would delay the writer
    /// of the queue.
    pub fn take(&self, asks: &[Ask<'_>], now: Timestamp) -> Result<Vec<Given>, Vec<Asked>> {
        if !asks.iter().any(Ask::wants) {
            let plain = |_: &Ask<'_>| Given::unpromised(Vec::new());
            return Ok(asks.iter().map(plain).collect());
        }
        let mut state = self.state();
        let Some(given) = self.taken(&mut state.broker, asks, now) else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(asks.iter().map(Asked::from).collect());
        };
        state.is_changed = true;
        for (ask, given) in asks.iter().zip(&given) {
            state.give(ask, given);
        }
        Ok(given)
    }

    /// Same as [`Promises::take`], but on the given broker. A refusal contains no reason.
    fn taken(&self, broker: &mut Broker, asks: &[Ask<'_>], now: Timestamp) -> Option<Vec<Given>> {
        let ask = |broker: &mut Broker, _: &[usize], wishes: &[Wish]| {
            broker.take_on(wishes, time(now)).ok_or(())
        };
        self.walk(broker, asks, ask, |_, ()| Given::no_room()).ok()
    }

    /// Asks a broker for promises in two steps. The first step asks for all requests that require a
    /// promise: either all of them get promises, or none. The second step asks for the best-effort
    /// requests one by one. `ask` gets the indices of the requests. `without` returns the answer to
    /// a best-effort request that gets no promise.
    fn walk<R>(
        &self,
        broker: &mut Broker,
        asks: &[Ask<'_>],
        mut ask: impl FnMut(&mut Broker, &[usize], &[Wish]) -> Result<Vec<Grant>, R>,
        without: impl Fn(usize, R) -> Given,
    ) -> Result<Vec<Given>, R> {
        let (must, may) = sorted(asks);
        let mut given: Vec<Given> = asks.iter().map(|_| Given::default()).collect();
        let mut set = |set: &[usize]| {
            let wishes = set.iter().map(|at| self.places.wish(&asks[*at]));
            let wishes: Vec<Wish> = wishes.collect();
            let grants = ask(broker, set, &wishes)?;
            for ((at, wish), grant) in set.iter().zip(&wishes).zip(&grants) {
                given[*at] = self.given(broker, &asks[*at], wish, grant);
            }
            Ok(())
        };
        set(&must)?;
        let refused: Vec<(usize, R)> = (may.into_iter())
            .filter_map(|at| Some((at, set(&[at]).err()?)))
            .collect();
        for (at, refused) in refused {
            given[at] = without(at, refused);
        }
        Ok(given)
    }

    /// Explains a refusal and offers alternatives. The broker reserves the offered capacity until a
    /// request uses the offer or the offer expires.
    #[must_use]
    pub fn explain(&self, asked: &[Asked], now: Timestamp) -> Box<NotAdmitted> {
        let asks: Vec<Ask<'_>> = asked.iter().map(Asked::ask).collect();
        let state = self.state();
        let mut broker = state.broker.clone();
        let held = state.held.clone();
        drop(state);
        for ask in &asks {
            // If the request changes a promised transfer, the broker already has a promise under
            // this key. Plan without the old promise, because the new promise would replace it.
            broker.end(TransferKey(ask.key));
        }
        let Err(refused) = self.decide(&mut broker, &held, &asks, now) else {
            return Box::new(NotAdmitted::late(&asks));
        };
        let must = asks.iter().zip(&refused.answers);
        let must = must.filter(|(ask, _)| ask.wants() && !ask.is_best_effort());
        let (wishes, offers): (Vec<Wish>, Vec<_>) = must
            .filter_map(|(ask, answer)| {
                let earliest = due(answer.earliest_finish?);
                Some((self.places.wish(ask), (TransferKey(ask.key), earliest)))
            })
            .unzip();
        let mut state = self.state();
        // A transfer that already has a promise gets no reservation for the alternative.
        let is_free = |wish: &Wish| !state.held.contains_key(&wish.key);
        if !wishes.is_empty() && wishes.iter().all(is_free) {
            state.broker.remember(&wishes, &offers, time(now));
            state.is_changed = true;
        }
        refused
    }

    /// Replaces a transfer's promise by a promise for a changed request. If the new promise cannot
    /// be made, a best-effort request loses its old promise. Any other request is refused and keeps
    /// its old promise.
    ///
    /// # Errors
    /// The errors of [`Promises::take`].
    pub fn change(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Given, Vec<Asked>> {
        let key = TransferKey(ask.key);
        let mut state = self.state();
        if !ask.wants() {
            state.drop_promise(key);
            return Ok(Given::default());
        }
        let wish = self.places.wish(ask);
        let given = match state.broker.change(&wish, time(now)) {
            Some(grant) => self.given(&mut state.broker, ask, &wish, &grant),
            None if ask.is_best_effort() => Given::no_room(),
            None => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                return Err(vec![Asked::from(ask)]);
            }
        };
        if given.promise.is_none() {
            state.drop_promise(key);
        }
        state.is_changed = true;
        state.give(ask, &given);
        Ok(given)
    }

    fn decide(
        &self,
        broker: &mut Broker,
        held: &BTreeMap<TransferKey, PromisedTransfer>,
        asks: &[Ask<'_>],
        now: Timestamp,
    ) -> Result<Vec<Given>, Box<NotAdmitted>> {
        let names = answer::Names::new(&self.places, held, asks);
        let ask = |broker: &mut Broker, set: &[usize], wishes: &[Wish]| {
            let refusal = match broker.admit(wishes, time(now)) {
                Answer::Accepted(grants) => return Ok(grants),
                Answer::Refused(refusal) => refusal,
            };
            let asked: Vec<&Ask<'_>> = set.iter().map(|at| &asks[*at]).collect();
            let mut refused = names.refused(&asked, &refusal);
            // Put the answers back into the order of the requests.
            refused.at = set.get(refused.at).copied().unwrap_or(0);
            let mut answers: Vec<Admitted> = asks.iter().map(|_| Admitted::default()).collect();
            for (index, answer) in set.iter().zip(refused.answers) {
                answers[*index] = answer;
            }
            refused.answers = answers;
            Err(Box::new(refused))
        };
        self.walk(broker, asks, ask, |at, mut refused| Given {
            answer: refused.answers.swap_remove(at),
            ..Given::default()
        })
    }

    fn given(&self, broker: &mut Broker, ask: &Ask<'_>, wish: &Wish, grant: &Grant) -> Given {
        if !grant.is_promised {
            // The broker needs to know more, such as a capacity or the size of the transfer. The
            // queue asks again when more is known.
            broker.end(wish.key);
            return Given::unpromised(self.places.why_unpromised(ask, wish, broker));
        }
        Given {
            answer: answer::granted(grant),
            promise: Some(Promise {
                id: ask.id.to_owned(),
                key: ask.key,
                bytes: ask.bytes,
                deadline: ask.request.deadline,
                rate_min: ask.request.rate_min,
                resources: self.places.names(&wish.resources),
            }),
            present: grant.present.0,
        }
    }

    /// Drops the promise of a transfer that has ended or is paused. `in_time` is true if the
    /// promise was kept, false if it was missed, and `None` if the transfer counts as neither.
    pub fn end(&self, key: u64, in_time: Option<bool>) {
        let key = TransferKey(key);
        let mut state = self.state();
        if !state.held.contains_key(&key) {
            return;
        }
        state.drop_promise(key);
        drop(state);
        let counter = match in_time {
            Some(true) => &self.counts.kept,
            Some(false) => &self.counts.missed,
            None => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if a transfer has a promise.
    #[must_use]
    pub fn is_promised(&self, id: &str) -> bool {
        self.state().by_id.contains_key(id)
    }

    /// Returns the present state of a transfer's promise.
    #[must_use]
    pub fn view(&self, id: &str) -> View {
        let state = self.state();
        let Some(key) = state.by_id.get(id) else {
            return View::default();
        };
        let rate = state.rates.get(key);
        View {
            is_promised: true,
            planned: rate.map(|rate| rate.planned.0),
            reason: rate.map(|rate| answer::reason_word(rate.reason)),
            miss: state.misses.get(key).cloned(),
        }
    }

    /// Returns the earliest and the latest expected end of a promised transfer. The earliest end
    /// assumes that the transfer gets all spare rate. The latest end is the deadline, or the end
    /// that the plan expects if the deadline will be missed. Returns `None` if the transfer has no
    /// promise, or if there are more than `ETA_PROMISES_MAX` promises.
    #[must_use]
    pub fn eta(&self, id: &str, now: Timestamp) -> Option<(Timestamp, Option<Timestamp>)> {
        let state = self.state();
        let key = *state.by_id.get(id)?;
        if state.held.len() > ETA_PROMISES_MAX {
            return None;
        }
        let deadline = state.held.get(&key)?.promise.deadline;
        let late = match state.misses.get(&key) {
            Some(miss) => miss.earliest_finish,
            None => deadline,
        };
        let broker = state.broker.clone();
        drop(state);
        let eta = broker.eta(key, time(now))?;
        Some((settled(eta.early), late))
    }

    /// Returns a sequence number if a capacity has become known. The queue must then ask again for
    /// the promises of all waiting transfers that have a higher number. Returns the number only
    /// once.
    pub(crate) fn take_news(&self) -> Option<i64> {
        self.state().asks_from.take()
    }

    /// Records that the queue must ask again for the promises of all waiting transfers that have a
    /// sequence number above `after`.
    pub(crate) fn more_news(&self, after: i64) {
        let mut state = self.state();
        state.asks_from = Some(state.asks_from.map_or(after, |from| from.min(after)));
    }

    /// Changes the class and the weight of a transfer. Its promise stays the same.
    pub fn weigh(&self, key: u64, class: Class, weight: u32) {
        let key = TransferKey(key);
        let mut state = self.state();
        if state.held.contains_key(&key) {
            state.broker.weigh(key, class, weight);
            (state.is_touched, state.is_changed) = (true, true);
        }
    }
}

impl BrokerState {
    fn hold(&mut self, owner: &str, promise: Promise) {
        let key = TransferKey(promise.key);
        self.by_id.insert(promise.id.clone(), key);
        let held = PromisedTransfer {
            id: promise.id.as_str().into(),
            owner: owner.into(),
            bytes: promise.bytes,
            promise,
            interruptions: Interruptions::default(),
        };
        self.held.insert(key, held);
    }

    /// Returns true if the present plan moves bytes of the transfer.
    fn moves(&self, key: TransferKey) -> bool {
        (self.rates.get(&key)).is_some_and(|rate| rate.planned.0 > 0)
    }

    /// Stores the promise of one request.
    fn give(&mut self, ask: &Ask<'_>, given: &Given) {
        let Some(promise) = &given.promise else {
            return;
        };
        self.is_touched = true;
        self.hold(ask.owner, promise.clone());
        let rate = Rate {
            key: TransferKey(promise.key),
            planned: BytesPerSecond(given.present),
            given: None,
            reason: match given.present {
                0 => Reason::Suspended,
                _ => Reason::Planned,
            },
        };
        // The transfer may start before the next round. Until then, this rate applies.
        self.rates.insert(rate.key, rate);
    }

    fn drop_promise(&mut self, key: TransferKey) {
        self.broker.end(key);
        if let Some(held) = self.held.remove(&key) {
            self.by_id.remove(&*held.id);
            self.is_touched = true;
            self.is_changed = true;
        }
        self.rates.remove(&key);
        self.told.remove(&key);
        self.misses.remove(&key);
    }
}

/// Returns the indices of the requests that require a promise, and of the best-effort requests.
fn sorted(asks: &[Ask<'_>]) -> (Vec<usize>, Vec<usize>) {
    let asking = (0..asks.len()).filter(|at| asks[*at].wants());
    asking.partition(|at| !asks[*at].is_best_effort())
}

/// The resource for the endpoint's link.
const LINK: ResourceId = ResourceId(0);

/// Returns the time by which all bytes must have moved to meet a deadline.
fn due(deadline: Timestamp) -> Time {
    time(deadline.before(SETTLE))
}

/// Returns the time at which a transfer is done if its bytes have moved by `time`.
fn settled(time: Time) -> Timestamp {
    of_time(time).after(SETTLE)
}

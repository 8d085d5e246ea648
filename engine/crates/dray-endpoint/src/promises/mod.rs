//! What transfers are promised: which deadlines and rates this endpoint has said yes to, at which
//! rates it keeps them, and which it sees it will miss.
//!
//! Purpose: asks `dray_sched::broker` in the endpoint's words. Resources are the endpoint's link, its
//! roots and its peers; time is the queue's.
//!
//! Not for: rows (`queue`), sessions' gates (`dispatch`), HTTP.
//!
//! Invariant owned here: what the broker holds is what stands in the table of promises, and is read
//! from there again when a write was undone.

mod admission;
mod answer;
mod link;
mod restore;
mod round;
mod slots;
#[cfg(test)]
mod tests;
mod wish;

pub(crate) use answer::NO_ROOM;
pub use answer::{Given, NotAdmitted};
pub use round::{Look, Seen, Told};
pub use slots::{Mover, Standing};
pub use wish::{Ask, Asked, asks_promise};

use crate::config::Config;
use dray_api::timestamp::{Timestamp, of_time, time};
use dray_api::{Admitted, MissAnswer, ReasonWord};
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};
use dray_sched::broker::{Answer, Broker, Grant, Rate, Reason, ResourceId, TransferKey, Wish};
use link::Link;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wish::Places;

/// What a transfer needs besides the time of its bytes: to be begun, to be synced, to be given its name.
/// It is planned to have moved everything so long before its deadline. Guess, revisit.
const SETTLE: Duration = Duration::from_secs(1);

/// Promises beside which an estimate is made: it follows the plans of all of them. Guess, revisit.
const ETA_PROMISES_MAX: usize = 32;

/// A promise as it is kept in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// The transfer.
    pub id: String,
    /// Its number in the order of submission.
    pub key: u64,
    /// How many bytes it was promised for; `None` for a rate alone.
    pub bytes: Option<u64>,
    /// When it is to be done.
    pub deadline: Option<Timestamp>,
    /// The rate it is to have.
    pub rate_min: Option<u64>,
    /// What it passes, by name.
    pub resources: Vec<String>,
}

/// What is said of a transfer's promise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Whether anything is promised.
    pub is_promised: bool,
    /// The planned rate, bytes per second.
    pub planned: Option<u64>,
    /// Why so much.
    pub reason: Option<ReasonWord>,
    /// That it will be missed, and why.
    pub miss: Option<MissAnswer>,
}

/// Counters, for the metrics.
#[derive(Debug, Default)]
pub struct Counts {
    /// Promises that were kept.
    pub kept: AtomicU64,
    /// Promises that were not.
    pub missed: AtomicU64,
    /// Promises of which it was said beforehand that they will be missed.
    pub foretold: AtomicU64,
    /// Requests that were refused.
    pub refused: AtomicU64,
}

/// A transfer that was promised something.
#[derive(Debug, Clone)]
struct Held {
    id: Arc<str>,
    owner: Arc<str>,
    /// All of it, done or not, as far as it is known.
    bytes: Option<u64>,
    promise: Promise,
}

/// See the module's head.
pub struct Promises {
    config: Arc<Config>,
    places: Places,
    desk: Mutex<Desk>,
    /// What became of them.
    pub counts: Counts,
}

struct Desk {
    broker: Broker,
    held: BTreeMap<TransferKey, Held>,
    by_id: HashMap<String, TransferKey>,
    rates: BTreeMap<TransferKey, Rate>,
    /// The planned rates that callers were told of last.
    told: BTreeMap<TransferKey, u64>,
    misses: BTreeMap<TransferKey, MissAnswer>,
    wake_at: Option<Time>,
    /// When it was looked last.
    at: Time,
    is_changed: bool,
    /// Whether anything was changed since [`Promises::mark`].
    is_touched: bool,
    /// What waits for a capacity that has become known since: from behind which number on it is still
    /// to be asked for again.
    asks_from: Option<i64>,
    link: Link,
    /// Bytes that all sessions have moved.
    moved: u64,
    uses: HashMap<u64, round::Use>,
    unseated: slots::Unseated,
}

impl Promises {
    /// Nothing is promised yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let config = Arc::new(config.clone());
        let places = Places::new(&config);
        let desk = Desk {
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
            desk: Mutex::new(desk),
            counts: Counts::default(),
            config,
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What these would be answered; changes nothing.
    ///
    /// # Errors
    /// Those that cannot be promised, all of them or none, with what could be.
    pub fn would(&self, asks: &[Ask<'_>], now: Timestamp) -> Result<Vec<Given>, Box<NotAdmitted>> {
        let desk = self.desk();
        let mut broker = desk.broker.clone();
        let held = desk.held.clone();
        drop(desk);
        self.decide(&mut broker, &held, asks, now)
    }

    /// Promises these, all or none: the caller writes down what [`Given::promise`] says.
    ///
    /// # Errors
    /// Those that cannot be promised: what could be is told by [`Promises::explain`]. That is looked for
    /// with many plans, and whoever writes the queue has no time for it.
    pub fn take(&self, asks: &[Ask<'_>], now: Timestamp) -> Result<Vec<Given>, Vec<Asked>> {
        if !asks.iter().any(Ask::wants) {
            let plain = |_: &Ask<'_>| Given::unpromised(Vec::new());
            return Ok(asks.iter().map(plain).collect());
        }
        let mut desk = self.desk();
        let Some(given) = self.taken(&mut desk.broker, asks, now) else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(asks.iter().map(Asked::from).collect());
        };
        desk.is_changed = true;
        for (ask, given) in asks.iter().zip(&given) {
            desk.give(ask, given);
        }
        Ok(given)
    }

    /// The same of a broker; why not is not asked.
    fn taken(&self, broker: &mut Broker, asks: &[Ask<'_>], now: Timestamp) -> Option<Vec<Given>> {
        let ask = |broker: &mut Broker, _: &[usize], wishes: &[Wish]| {
            broker.take_on(wishes, time(now)).ok_or(())
        };
        self.walk(broker, asks, ask, |_, ()| Given::no_room()).ok()
    }

    /// Asks a broker for those that must be promised what they ask for, all or none, then for those that
    /// are taken on all the same, one by one. `ask` is told which they are; `without` says what one of
    /// the latter gets that was refused.
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

    /// What those that were refused are told. What is offered to them is kept free for a while.
    #[must_use]
    pub fn explain(&self, asked: &[Asked], now: Timestamp) -> Box<NotAdmitted> {
        let asks: Vec<Ask<'_>> = asked.iter().map(Asked::ask).collect();
        let desk = self.desk();
        let mut broker = desk.broker.clone();
        let held = desk.held.clone();
        drop(desk);
        for ask in &asks {
            // What a change would have put another wish in the place of.
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
        let mut desk = self.desk();
        // What is promised already is not put aside for what could be promised instead.
        let is_free = |wish: &Wish| !desk.held.contains_key(&wish.key);
        if !wishes.is_empty() && wishes.iter().all(is_free) {
            desk.broker.remember(&wishes, &offers, time(now));
            desk.is_changed = true;
        }
        refused
    }

    /// Puts another wish in the place of what a transfer was promised. When that cannot be, it keeps
    /// what it had; one that is to be taken on all the same has no promise then.
    ///
    /// # Errors
    /// As [`Promises::take`].
    pub fn change(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Given, Vec<Asked>> {
        let key = TransferKey(ask.key);
        let mut desk = self.desk();
        if !ask.wants() {
            desk.drop_promise(key);
            return Ok(Given::default());
        }
        let wish = self.places.wish(ask);
        let given = match desk.broker.change(&wish, time(now)) {
            Some(grant) => self.given(&mut desk.broker, ask, &wish, &grant),
            None if ask.is_best_effort() => Given::no_room(),
            None => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                return Err(vec![Asked::from(ask)]);
            }
        };
        if given.promise.is_none() {
            desk.drop_promise(key);
        }
        desk.is_changed = true;
        desk.give(ask, &given);
        Ok(given)
    }

    fn decide(
        &self,
        broker: &mut Broker,
        held: &BTreeMap<TransferKey, Held>,
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
            // In the order of the requests.
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
            // It is asked again when more is known.
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

    /// A transfer has ended, is paused, or is not wanted any more. `in_time` says whether what was promised
    /// was kept, where that can be said.
    pub fn end(&self, key: u64, in_time: Option<bool>) {
        let key = TransferKey(key);
        let mut desk = self.desk();
        if !desk.held.contains_key(&key) {
            return;
        }
        desk.drop_promise(key);
        drop(desk);
        let counter = match in_time {
            Some(true) => &self.counts.kept,
            Some(false) => &self.counts.missed,
            None => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a transfer is promised something.
    #[must_use]
    pub fn is_promised(&self, id: &str) -> bool {
        self.desk().by_id.contains_key(id)
    }

    /// What is promised to a transfer, as it stands.
    #[must_use]
    pub fn view(&self, id: &str) -> View {
        let desk = self.desk();
        let Some(key) = desk.by_id.get(id) else {
            return View::default();
        };
        let rate = desk.rates.get(key);
        View {
            is_promised: true,
            planned: rate.map(|rate| rate.planned.0),
            reason: rate.map(|rate| answer::reason_word(rate.reason)),
            miss: desk.misses.get(key).cloned(),
        }
    }

    /// Between which times a promised transfer will be done: with all that is spare, and with what is
    /// planned alone. O(promises) times the work of a plan; nothing where there are too many for that.
    #[must_use]
    pub fn eta(&self, id: &str, now: Timestamp) -> Option<(Timestamp, Option<Timestamp>)> {
        let desk = self.desk();
        let key = *desk.by_id.get(id)?;
        if desk.held.len() > ETA_PROMISES_MAX {
            return None;
        }
        let deadline = desk.held.get(&key)?.promise.deadline;
        let late = match desk.misses.get(&key) {
            Some(miss) => miss.earliest_finish,
            None => deadline,
        };
        let broker = desk.broker.clone();
        drop(desk);
        let eta = broker.eta(key, time(now))?;
        Some((settled(eta.early), late))
    }

    /// Whether something has become known so that more can be promised, and behind which number those
    /// stand that were not asked for again since.
    pub(crate) fn take_news(&self) -> Option<i64> {
        self.desk().asks_from.take()
    }

    /// There are more of them behind this number.
    pub(crate) fn more_news(&self, after: i64) {
        let mut desk = self.desk();
        desk.asks_from = Some(desk.asks_from.map_or(after, |from| from.min(after)));
    }

    /// What a transfer counts for among others was changed: what it is promised is the same.
    pub fn weigh(&self, key: u64, class: Class, weight: u32) {
        let key = TransferKey(key);
        let mut desk = self.desk();
        if desk.held.contains_key(&key) {
            desk.broker.weigh(key, class, weight);
            (desk.is_touched, desk.is_changed) = (true, true);
        }
    }
}

impl Desk {
    fn hold(&mut self, owner: &str, promise: Promise) {
        let key = TransferKey(promise.key);
        self.by_id.insert(promise.id.clone(), key);
        let held = Held {
            id: promise.id.as_str().into(),
            owner: owner.into(),
            bytes: promise.bytes,
            promise,
        };
        self.held.insert(key, held);
    }

    /// Whether one is to move now by plan.
    fn moves(&self, key: TransferKey) -> bool {
        (self.rates.get(&key)).is_some_and(|rate| rate.planned.0 > 0)
    }

    /// Notes what one was given.
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
        // Until the next round: it may begin before that.
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

/// Those that must be promised what they ask for, and those that are taken on all the same.
fn sorted(asks: &[Ask<'_>]) -> (Vec<usize>, Vec<usize>) {
    let asking = (0..asks.len()).filter(|at| asks[*at].wants());
    asking.partition(|at| !asks[*at].is_best_effort())
}

/// The endpoint's link.
const LINK: ResourceId = ResourceId(0);

/// When all bytes must have moved for a deadline.
fn due(deadline: Timestamp) -> Time {
    time(deadline.before(SETTLE))
}

/// When a transfer is done that has moved its bytes by then.
fn settled(time: Time) -> Timestamp {
    of_time(time).after(SETTLE)
}

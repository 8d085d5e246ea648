//! Admission: decides whether requests can be promised. If not, finds deadlines that could be
//! promised.

use super::fill;
use super::need::{Grid, Need, Padding};
use super::wish::{ResourceId, TransferKey, Wish, rate_for};
use super::{Broker, Config, OFFERS_MAX};
use super::{plan, search};
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};
use std::time::Duration;

/// Number of steps in a search. Each step halves the interval.
const SEARCH_STEPS: u32 = 12;

/// The longest offered delay is one second doubled this many times, about seventeen years. A
/// request that needs a longer delay gets no offer.
const DOUBLINGS_MAX: u32 = 29;

const SECOND: u64 = 1_000_000_000;

/// Answer to a set of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// All requests are accepted.
    Accepted(Vec<Grant>),
    /// All requests are refused.
    Refused(Refusal),
}

/// Guarantees and estimates for one accepted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Key of the transfer.
    pub key: TransferKey,
    /// True if a finish time or a rate is promised.
    pub is_promised: bool,
    /// Planned rate at the start of the transfer, which may be later than now.
    pub rate: BytesPerSecond,
    /// Planned rate at this moment. Zero for a transfer that starts later.
    pub present: BytesPerSecond,
    /// Planned finish. `None` if the plan does not contain the transfer's end.
    pub finish: Option<Time>,
    /// Promised latest finish. `None` if no finish is promised.
    pub latest: Option<Time>,
}

/// Reason for a refusal, with deadlines that could be promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The first request that does not fit.
    pub key: TransferKey,
    /// The obstacle to this request.
    pub obstacle: Obstacle,
    /// Rate that this request would need.
    pub rate_needed: Option<BytesPerSecond>,
    /// Rate that is available to this request in its time window, if all promises are kept.
    pub rate_there_is: Option<BytesPerSecond>,
    /// Deadlines with which all requests would be accepted. All are later than requested, by the
    /// same delay. An offer of [`Broker::admit`] is valid for [`Config::offer_holds`], unless
    /// another promise is made in that time or a transfer runs slower than its rate.
    pub offer: Option<Vec<(TransferKey, Time)>>,
}

/// The obstacle that prevents a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// A resource, and the promises that need the resource at the same time.
    Resource(ResourceId, Vec<TransferKey>),
    /// The request's own ceiling is too low: the floor is higher than the ceiling, or the deadline
    /// is too early for the rate of the ceiling.
    Ceiling,
    /// The request's deadline is not after its start.
    Window,
    /// The request names an unknown resource.
    Unknown(ResourceId),
    /// The transfer key is already in use, or two of the requests have it.
    Taken,
    /// The broker already handles the maximum number of transfers, which is the value.
    Full(usize),
}

impl Broker {
    /// Accepts all requests, or none of them.
    pub fn admit(&mut self, wishes: &[Wish], now: Time) -> Answer {
        if let Some(grants) = self.take_on(wishes, now) {
            return Answer::Accepted(grants);
        }
        let answer = self.would(wishes, now);
        if let Answer::Refused(refusal) = &answer
            && let Some(offer) = &refusal.offer
        {
            self.remember(wishes, offer, now);
        }
        answer
    }

    /// Accepts all requests or none, as [`Self::admit`] does. If the requests are refused, does not
    /// search for later deadlines to offer, because this search takes a hundred times as long.
    pub fn take_on(&mut self, wishes: &[Wish], now: Time) -> Option<Vec<Grant>> {
        let is_ours = |wish: &Wish| wishes.iter().any(|ours| ours.key == wish.key);
        self.offers
            .retain(|(until, offered)| *until > now && !offered.iter().any(is_ours));
        self.check(wishes, now).ok()?;
        let parts = self.test(wishes, now).ok()?;
        let grants = self.grants(wishes, &parts, now);
        for (wish, grant) in wishes.iter().zip(&grants) {
            self.insert(wish.clone(), grant.is_promised);
        }
        Some(grants)
    }

    /// Returns the answer that [`Broker::admit`] would give, and changes nothing.
    ///
    /// An acceptable request remains acceptable with a later deadline, fewer bytes, or more
    /// capacity. The exception is a request with both a floor and a deadline. The floor is reserved
    /// until the deadline, so a later deadline can be harder to promise.
    pub fn would(&self, wishes: &[Wish], now: Time) -> Answer {
        if let Err((key, obstacle)) = self.check(wishes, now) {
            return Answer::Refused(Refusal {
                key,
                obstacle,
                rate_needed: None,
                rate_there_is: None,
                offer: None,
            });
        }
        match self.test(wishes, now) {
            Ok(parts) => Answer::Accepted(self.grants(wishes, &parts, now)),
            Err(_) => Answer::Refused(self.refusal(wishes, now)),
        }
    }

    /// Checks the requests for errors that are independent of existing promises.
    fn check(&self, wishes: &[Wish], now: Time) -> Result<(), (TransferKey, Obstacle)> {
        let refuse = |key, obstacle| Err((key, obstacle));
        if let Some(wish) = wishes.first()
            && self.transfers.len() + wishes.len() > self.config.transfers_max
        {
            return refuse(wish.key, Obstacle::Full(self.config.transfers_max));
        }
        for (at, wish) in wishes.iter().enumerate() {
            let is_twice = wishes[..at].iter().any(|other| other.key == wish.key);
            if is_twice || self.transfers.contains_key(&wish.key) {
                return refuse(wish.key, Obstacle::Taken);
            }
            if wish.ceiling.is_some_and(|ceiling| ceiling < wish.floor) {
                return refuse(wish.key, Obstacle::Ceiling);
            }
            if let Some(unknown) = (wish.resources.iter()).find(|id| self.index(**id).is_none()) {
                return refuse(wish.key, Obstacle::Unknown(*unknown));
            }
            // No plan is made for a request of unknown size or on unknown capacities. So check here
            // whether its deadline has passed.
            let is_planned = wish.bytes.is_some() && self.can_promise(wish);
            if !is_planned && (wish.deadline).is_some_and(|due| due <= wish.start(now)) {
                return refuse(wish.key, Obstacle::Window);
            }
        }
        Ok(())
    }

    /// Stores an offer. From then on, the rates that the broker sets leave capacity for the offer,
    /// until a request uses the offer or the offer expires. [`Broker::admit`] stores its own
    /// offers. Another caller calls this function only for an offer that a copy of this broker
    /// made.
    pub fn remember(&mut self, wishes: &[Wish], offer: &[(TransferKey, Time)], now: Time) {
        let until = now + self.config.offer_holds;
        let offered = wishes.iter().map(|wish| {
            let deadline = offer.iter().find(|(key, _)| *key == wish.key);
            Wish {
                deadline: deadline.map(|(_, deadline)| *deadline),
                not_before: Some(wish.start(until)),
                ..wish.clone()
            }
        });
        self.offers.push((until, offered.collect()));
        if self.offers.len() > OFFERS_MAX {
            self.offers.remove(0);
        }
    }

    /// Replaces the request of a transfer, and keeps the transfer's observed maximum rate. If the
    /// new request cannot be promised, the old request remains.
    pub fn change(&mut self, wish: &Wish, now: Time) -> Option<Grant> {
        let old = self.transfers.remove(&wish.key);
        let grants = self.take_on(std::slice::from_ref(wish), now);
        match (grants, old) {
            (Some(mut grants), old) => {
                let most = old.and_then(|old| old.use_max);
                self.set_use(wish.key, most.map(BytesPerSecond));
                grants.pop()
            }
            (None, Some(old)) => {
                self.transfers.insert(old.wish.key, old);
                None
            }
            (None, None) => None,
        }
    }

    /// Sets the class and the weight of a transfer. Promises are not affected.
    pub fn weigh(&mut self, key: TransferKey, class: Class, weight: u32) {
        if let Some(taken) = self.transfers.get_mut(&key) {
            (taken.wish.class, taken.wish.weight) = (class, weight);
        }
    }

    /// Plans the promises together with the requests. The parts of the need ([`Need::parts`]) are
    /// planned separately. Returns the parts that contain a request, each with its plan. If there
    /// is no plan for a part, returns this part as the error. The result depends only on promises,
    /// requests, capacities and time.
    fn test(&self, wishes: &[Wish], now: Time) -> Result<Vec<(Need, plan::Plan)>, Option<Need>> {
        let mut need = self.empty_need(now);
        for (wish, resources) in self.promises(now) {
            need.add(wish, &resources, Padding::With);
        }
        for wish in wishes.iter().filter(|wish| self.can_promise(wish)) {
            if !need.add(wish, &self.indices(wish), Padding::With) {
                return Err(None);
            }
        }
        let mut plans = Vec::new();
        for part in need.parts() {
            let is_ours = |key: TransferKey| wishes.iter().any(|wish| wish.key == key);
            if !(part.demands.iter().any(|demand| is_ours(demand.key))
                || part.holds.iter().any(|hold| is_ours(hold.key)))
            {
                continue;
            }
            match search::find(&part) {
                Some(plan) => plans.push((part, plan)),
                None => return Err(Some(part)),
            }
        }
        Ok(plans)
    }

    fn grants(&self, wishes: &[Wish], parts: &[(Need, plan::Plan)], now: Time) -> Vec<Grant> {
        let grant = |wish: &Wish| {
            let (mut rate, mut present) = (0, 0);
            let mut finish = None;
            for (need, plan) in parts {
                for hold in need.holds.iter().filter(|hold| hold.key == wish.key) {
                    rate += hold.rate;
                    present += if hold.from <= now { hold.rate } else { 0 };
                    finish = finish.max(hold.until);
                }
                if let Some(at) = plan.keys.iter().position(|key| *key == wish.key) {
                    rate += plan.first_rate(at);
                    present += plan.rate(at);
                    finish = finish.max(Some(plan.finish(at)));
                }
            }
            let is_promised = self.can_promise(wish);
            Grant {
                key: wish.key,
                is_promised,
                rate: BytesPerSecond(rate),
                present: BytesPerSecond(present),
                finish: finish.map(|finish| {
                    wish.deadline
                        .map_or(finish, |latest| finish.min(latest.max(now)))
                }),
                latest: wish.deadline.filter(|_| is_promised),
            }
        };
        wishes.iter().map(grant).collect()
    }

    /// Builds a refusal with its reason and offer. The available rate and the offer are found by
    /// repeating the admission test.
    fn refusal(&self, wishes: &[Wish], now: Time) -> Refusal {
        // Find the first request that does not fit together with the requests before it.
        let at = (0..wishes.len())
            .find(|at| self.test(&wishes[..=*at], now).is_err())
            .unwrap_or(0);
        let wish = &wishes[at];
        let start = wish.start(now);
        let needs_time = wish.deadline.is_some_and(|deadline| deadline <= start);
        let obstacle = if needs_time {
            Obstacle::Window
        } else {
            self.obstacle(&wishes[..=at], now)
        };
        let window = wish.deadline.map_or(0, |deadline| {
            deadline.as_nanos().saturating_sub(start.as_nanos())
        });
        let by_deadline = wish.bytes.filter(|_| window > 0);
        let rate_needed = match by_deadline {
            Some(bytes) => Some(rate_for(bytes, window).max(wish.floor.0)),
            None => (wish.floor.0 > 0).then_some(wish.floor.0),
        };
        let rate_there_is = rate_needed.map(|_| self.largest(wishes, at, now));
        Refusal {
            key: wish.key,
            obstacle,
            rate_needed: rate_needed.map(BytesPerSecond),
            rate_there_is: rate_there_is.map(|part| {
                let needed = u128::from(rate_needed.unwrap_or(0));
                let there_is = (needed * u128::from(part)) >> SEARCH_STEPS;
                BytesPerSecond(u64::try_from(there_is).unwrap_or(u64::MAX))
            }),
            offer: self.offer(wishes, now),
        }
    }

    /// Returns the largest fraction of the request `at`, in units of 1/4096, that fits together
    /// with the requests before it.
    fn largest(&self, wishes: &[Wish], at: usize, now: Time) -> u64 {
        let mut tried = wishes[..=at].to_vec();
        let whole = &wishes[at];
        let scaled = |value: u64, part: u64| {
            u64::try_from((u128::from(value) * u128::from(part)) >> SEARCH_STEPS).unwrap_or(value)
        };
        let (mut fits, mut fails) = (0, 1 << SEARCH_STEPS);
        while fails - fits > 1 {
            let middle = fits + (fails - fits) / 2;
            tried[at].floor = BytesPerSecond(scaled(whole.floor.0, middle));
            if whole.deadline.is_some() {
                tried[at].bytes = whole.bytes.map(|bytes| scaled(bytes, middle));
            }
            if self.test(&tried, now).is_ok() {
                fits = middle;
            } else {
                fails = middle;
            }
        }
        fits
    }

    /// Returns deadlines with which all requests would be accepted, with the shortest common delay.
    fn offer(&self, wishes: &[Wish], now: Time) -> Option<Vec<(TransferKey, Time)>> {
        let Config { offer_holds, .. } = self.config;
        let later = |delay: u64| -> Vec<Wish> {
            let mut wishes = wishes.to_vec();
            for wish in &mut wishes {
                wish.deadline = wish.deadline.map(|deadline| rounded(deadline, now, delay));
            }
            wishes
        };
        // The client may request the offer at any time until it expires, so the offer must fit
        // then, too.
        let fits = |delay: u64| {
            let now_or_soon = later(delay);
            let mut soon = now_or_soon.clone();
            for wish in &mut soon {
                wish.not_before = Some(wish.start(now + offer_holds));
            }
            self.test(&soon, now).is_ok() && self.test(&now_or_soon, now).is_ok()
        };
        if wishes.iter().all(|wish| wish.deadline.is_none()) {
            return None;
        }
        let high = (0..=DOUBLINGS_MAX)
            .map(|doublings| SECOND << doublings)
            .find(|delay| fits(*delay))?;
        let (mut low, mut high) = (high / 2, high);
        for _ in 0..SEARCH_STEPS {
            // Deadlines are rounded to whole seconds from now, so a finer search is useless.
            if high - low <= SECOND {
                break;
            }
            let middle = low + (high - low) / 2;
            if fits(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        let of_offer = later(high).into_iter();
        Some(
            of_offer
                .filter_map(|wish| Some((wish.key, wish.deadline?)))
                .collect(),
        )
    }

    /// Returns the obstacle to the last of these requests.
    fn obstacle(&self, wishes: &[Wish], now: Time) -> Obstacle {
        let Some(wish) = wishes.last() else {
            return Obstacle::Window;
        };
        let resources = self.indices(wish);
        let mut alone = self.empty_need(now);
        alone.add(wish, &resources, Padding::With);
        let mut whole = alone.clone();
        for (wish, resources) in self.promises(now) {
            whole.add(wish, &resources, Padding::With);
        }
        for wish in wishes.iter().rev().skip(1) {
            whole.add(wish, &self.indices(wish), Padding::With);
        }
        let unbound = |need: &Need| {
            let mut need = need.clone();
            for demand in &mut need.demands {
                demand.ceiling = None;
            }
            need
        };
        if search::find(&alone).is_none() && search::find(&unbound(&alone)).is_some() {
            return Obstacle::Ceiling;
        }
        let is_alone = search::find(&alone).is_none();
        let need = if is_alone { &alone } else { &whole };
        let start = wish.start(now);
        let overlaps = |from: Time, until: Option<Time>| {
            until.is_none_or(|until| until > start)
                && wish.deadline.is_none_or(|deadline| from < deadline)
        };
        let grid = Grid::new(need);
        let over = need.overheld().map(|(resource, _)| resource);
        let known = (resources.iter().copied()).filter(|at| need.capacities[*at].is_some());
        // Prefer a resource whose reserved rates exceed its capacity, then a resource that its own
        // demands overload, then the resource with the highest demand relative to its free
        // capacity.
        let worst = known.max_by_key(|resource| {
            let asked: u128 = (need.demands.iter())
                .filter(|demand| demand.resources.contains(resource))
                .filter(|demand| overlaps(demand.from, Some(demand.until)))
                .map(|demand| u128::from(demand.bytes))
                .sum();
            let held = need.held(*resource, start);
            let capacity = need.capacities[*resource].map_or(1, u128::from);
            let left = capacity.saturating_sub(held).max(1);
            (
                over == Some(*resource),
                fill::does_overload(need, &grid, *resource),
                (asked << 32) / left,
                std::cmp::Reverse(*resource),
            )
        });
        let Some(resource) = worst else {
            return Obstacle::Ceiling;
        };
        let mut promises: Vec<TransferKey> = (need.demands.iter())
            .filter(|demand| demand.resources.contains(&resource))
            .filter(|demand| overlaps(demand.from, Some(demand.until)))
            .map(|demand| demand.key)
            .chain(
                (need.holds.iter())
                    .filter(|hold| hold.resources.contains(&resource))
                    .filter(|hold| overlaps(hold.from, hold.until))
                    .map(|hold| hold.key),
            )
            .filter(|key| *key != wish.key)
            .collect();
        promises.sort_unstable();
        promises.dedup();
        Obstacle::Resource(self.id(resource), promises)
    }
}

/// Returns the deadline plus `delay` (in nanoseconds), rounded up to whole seconds from now.
fn rounded(deadline: Time, now: Time, delay: u64) -> Time {
    let late = deadline.max(now).as_nanos().saturating_add(delay);
    let seconds = (late - now.as_nanos()).div_ceil(SECOND);
    now + Duration::from_secs(seconds)
}

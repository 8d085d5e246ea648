//! The clock of the fluid model, and the checks of a conductor's orders.

use super::{
    Conductor, Event, Fault, Knowledge, Load, Orders, Record, Report, ResourceIndex, Scene,
    Transfer, TransferIndex, TransferView, Turn, Use, Wrong,
};
use dray_core::Time;

/// Permitted relative error of sums of rates. It covers the rounding of floating-point additions.
const TOLERANCE: f64 = 1e-9;

/// Maximum number of events for each transfer and each change of a capacity. A run with more events
/// fails with [`Wrong::Endless`].
const EVENTS_EACH_MAX: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Coming,
    Present,
    Gone,
}

/// State of a transfer during a run.
struct Moving<'a> {
    transfer: &'a Transfer,
    phase: Phase,
    /// Number of bytes moved.
    served: f64,
    /// Rate that the conductor has ordered, in bytes per second.
    ordered: f64,
    /// Actual rate in bytes per second.
    rate: f64,
    /// Set while a stopped transfer completes its object: the total number of bytes at which it
    /// stops, and its rate until then.
    stopping: Option<(f64, f64)>,
    /// Time at which the first byte moves after a start.
    silent_until: Option<Time>,
    /// Time at which, at the current rate, the transfer ends, stops, or reaches the bytes after
    /// which the conductor wants a call. The second value is the total number of bytes at that
    /// time.
    hit: Option<(Time, f64)>,
    turn: Option<Turn>,
    record: Record,
}

impl Moving<'_> {
    fn mark(&mut self, now: Time) {
        let curve = &mut self.record.curve;
        if curve.last().is_some_and(|(at, _)| *at == now) {
            curve.pop();
        }
        curve.push((now, self.served));
    }

    fn close_turn(&mut self, now: Time) {
        if let Some(mut turn) = self.turn.take() {
            turn.to = now;
            turn.bytes = self.served - turn.bytes;
            self.record.turns.push(turn);
        }
    }
}

struct Model<'a> {
    load: &'a Load,
    now: Time,
    moving: Vec<Moving<'a>>,
    capacities: Vec<f64>,
    /// Capacities as the conductor sees them.
    known: Vec<f64>,
    /// Number of changes of each resource that have already occurred.
    changed: Vec<usize>,
    uses: Vec<Use>,
    orders: Orders,
    idle_seconds: f64,
    idle_bytes: f64,
}

/// Runs a load under a conductor until every transfer has ended or was refused.
///
/// # Errors
/// If the conductor's orders are invalid, or if the run does not end.
pub fn run(load: &Load, conductor: &mut dyn Conductor) -> Result<Report, Fault> {
    let capacities: Vec<f64> = load.resources.iter().map(|one| one.capacity).collect();
    let moving = load.transfers.iter().map(|transfer| Moving {
        transfer,
        phase: Phase::Coming,
        served: 0.0,
        ordered: 0.0,
        rate: 0.0,
        stopping: None,
        silent_until: None,
        hit: None,
        turn: None,
        record: Record {
            arrived: transfer.arrives,
            ..Record::default()
        },
    });
    let mut model = Model {
        load,
        now: Time::ZERO,
        moving: moving.collect(),
        known: capacities.clone(),
        changed: vec![0; capacities.len()],
        uses: vec![Use::default(); capacities.len()],
        capacities,
        orders: Orders::default(),
        idle_seconds: 0.0,
        idle_bytes: 0.0,
    };
    let changes: usize = load.resources.iter().map(|one| one.changes.len()).sum();
    let events_max = EVENTS_EACH_MAX.saturating_mul(load.transfers.len() + changes + 1);
    let mut asked = 0;
    for _ in 0..events_max {
        let events = model.happen();
        if !events.is_empty() {
            asked += 1;
            let orders = model.ask(&events, conductor);
            model.apply(orders)?;
        }
        if model.moving.iter().all(|one| one.phase == Phase::Gone) {
            return Ok(model.report(asked));
        }
        model.set_rates();
        model.advance()?;
    }
    Err(model.fault(Wrong::Endless))
}

impl<'a> Model<'a> {
    fn fault(&self, what: Wrong) -> Fault {
        Fault { at: self.now, what }
    }

    /// Handles all events of the present time.
    fn happen(&mut self) -> Vec<Event> {
        let now = self.now;
        let mut events = Vec::new();
        let is_told = self.load.knowledge == Knowledge::Told;
        for (at, resource) in self.load.resources.iter().enumerate() {
            while let Some(&(time, capacity)) = resource.changes.get(self.changed[at]) {
                if time > now {
                    break;
                }
                self.changed[at] += 1;
                self.capacities[at] = capacity;
                if is_told {
                    self.known[at] = capacity;
                    events.push(Event::Capacity(ResourceIndex(at)));
                }
            }
        }
        let look_after = &mut self.orders.look_after;
        for (at, one) in self.moving.iter_mut().enumerate() {
            let index = TransferIndex(at);
            match one.phase {
                Phase::Coming if one.transfer.arrives <= now => {
                    one.phase = Phase::Present;
                    events.push(Event::Arrival(index));
                }
                Phase::Coming | Phase::Gone => continue,
                Phase::Present => {}
            }
            if one.silent_until.is_some_and(|until| until <= now) {
                one.silent_until = None;
            }
            // A transfer of zero bytes ends as soon as it has begun.
            let has_begun = one.record.started.is_some();
            if one.served >= one.transfer.bytes as f64 && has_begun && one.silent_until.is_none() {
                one.phase = Phase::Gone;
                one.record.finished = Some(now);
                one.mark(now);
                one.close_turn(now);
                (one.ordered, one.rate, one.stopping, one.hit) = (0.0, 0.0, None, None);
                events.push(Event::Finish(index));
                continue;
            }
            if one.stopping.is_some_and(|(until, _)| one.served >= until) {
                one.stopping = None;
                one.close_turn(now);
            }
            let named = look_after.iter().position(|(named, _)| *named == index);
            if let Some(named) = named
                && one.served >= look_after[named].1 as f64
            {
                look_after.remove(named);
                events.push(Event::Served(index));
            }
        }
        if self.orders.look_again.is_some_and(|time| time <= now) {
            self.orders.look_again = None;
            events.push(Event::Wake);
        }
        events
    }

    fn ask(&self, events: &[Event], conductor: &mut dyn Conductor) -> Orders {
        let present: Vec<TransferView<'_>> = (self.moving.iter().enumerate())
            .filter(|(_, one)| one.phase == Phase::Present)
            .map(|(at, one)| TransferView {
                index: TransferIndex(at),
                transfer: one.transfer,
                served: one.served,
                rate: one.ordered,
                has_begun: one.record.started.is_some(),
            })
            .collect();
        conductor.conduct(&Scene {
            now: self.now,
            events,
            present: &present,
            capacities: &self.known,
        })
    }

    /// Checks the conductor's orders and applies them.
    fn apply(&mut self, orders: Orders) -> Result<(), Fault> {
        let now = self.now;
        let mut rates = vec![None; self.moving.len()];
        for &(index, rate) in &orders.rates {
            let Some(one) = self.moving.get(index.0) else {
                return Err(self.fault(Wrong::NotThere(index)));
            };
            let ceiling = one.transfer.ceiling.unwrap_or(f64::INFINITY);
            let is_good = rate.is_finite() && rate >= 0.0 && rate <= ceiling * (1.0 + TOLERANCE);
            if !is_good {
                return Err(self.fault(Wrong::BadRate(index, rate)));
            }
            let may_begin = one.transfer.not_before.is_none_or(|time| time <= now);
            if one.phase != Phase::Present || (rate > 0.0 && !may_begin) {
                return Err(self.fault(Wrong::NotThere(index)));
            }
            if rates[index.0].replace(rate).is_some() {
                return Err(self.fault(Wrong::Twice(index)));
            }
        }
        for &index in &orders.refuse {
            match self.moving.get_mut(index.0) {
                Some(one) if one.phase == Phase::Present && rates[index.0].is_none() => {
                    one.phase = Phase::Gone;
                    one.record.is_refused = true;
                    one.mark(now);
                    one.close_turn(now);
                    (one.ordered, one.rate, one.stopping, one.hit) = (0.0, 0.0, None, None);
                }
                _ => return Err(self.fault(Wrong::NotThere(index))),
            }
        }
        if orders.look_again.is_some_and(|time| time <= now) {
            return Err(self.fault(Wrong::AsksAtOnce));
        }
        for (nth, &(index, bytes)) in orders.look_after.iter().enumerate() {
            let Some(one) = self.moving.get(index.0) else {
                return Err(self.fault(Wrong::NotThere(index)));
            };
            if one.phase != Phase::Present || one.served >= bytes as f64 {
                return Err(self.fault(Wrong::AsksAtOnce));
            }
            if orders.look_after[..nth]
                .iter()
                .any(|(other, _)| *other == index)
            {
                return Err(self.fault(Wrong::Twice(index)));
            }
        }
        if self.load.knowledge == Knowledge::Told {
            self.check_capacities(&rates)?;
        }
        for (one, rate) in self.moving.iter_mut().zip(rates) {
            if one.phase == Phase::Present {
                switch(one, rate.unwrap_or(0.0), now, self.load);
            }
        }
        self.orders = orders;
        Ok(())
    }

    fn check_capacities(&self, rates: &[Option<f64>]) -> Result<(), Fault> {
        let mut sums = vec![0.0; self.capacities.len()];
        for (one, rate) in self.moving.iter().zip(rates) {
            for resource in &one.transfer.resources {
                sums[resource.0] += rate.unwrap_or(0.0);
            }
        }
        for (at, (&ordered, &capacity)) in sums.iter().zip(&self.capacities).enumerate() {
            if ordered > capacity * (1.0 + TOLERANCE) {
                let resource = ResourceIndex(at);
                return Err(self.fault(Wrong::Overdrawn {
                    resource,
                    ordered,
                    capacity,
                }));
            }
        }
        Ok(())
    }

    /// Returns, for each resource, the fraction of the demand that the capacity `free` satisfies.
    fn parts(&self, free: &[f64], wanted: impl Fn(&Moving<'a>) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; free.len()];
        for one in &self.moving {
            for resource in &one.transfer.resources {
                sums[resource.0] += wanted(one);
            }
        }
        let part = |(sum, free): (&f64, &f64)| if sum > free { free / sum } else { 1.0 };
        sums.iter().zip(free).map(part).collect()
    }

    /// Sets the actual rates. Capacity first goes to stopped transfers that still complete an
    /// object, and then to transfers for which the conductor has ordered a rate. Rates are reduced
    /// where a capacity is too small.
    fn set_rates(&mut self) {
        let stopping = |one: &Moving<'_>| one.stopping.map_or(0.0, |(_, rate)| rate);
        let ordered = |one: &Moving<'_>| match one.phase {
            Phase::Present if one.stopping.is_none() => one.ordered,
            _ => 0.0,
        };
        let least = |parts: &[f64], one: &Moving<'_>| {
            let resources = one.transfer.resources.iter();
            resources
                .map(|resource| parts[resource.0])
                .fold(1.0, f64::min)
        };
        let of_stopping = self.parts(&self.capacities, stopping);
        let mut free = self.capacities.clone();
        for one in &self.moving {
            let rate = stopping(one) * least(&of_stopping, one);
            for resource in &one.transfer.resources {
                free[resource.0] = (free[resource.0] - rate).max(0.0);
            }
        }
        let of_ordered = self.parts(&free, ordered);
        let now = self.now;
        let look_after = &self.orders.look_after;
        for (at, one) in self.moving.iter_mut().enumerate() {
            let rate = if one.stopping.is_some() {
                stopping(one) * least(&of_stopping, one)
            } else if one.silent_until.is_some() {
                0.0
            } else {
                ordered(one) * least(&of_ordered, one)
            };
            #[expect(clippy::float_cmp, reason = "a rate that was not touched is the same")]
            if rate != one.rate {
                one.mark(now);
                one.rate = rate;
            }
            one.hit = None;
            if rate > 0.0 {
                let mut until = one.transfer.bytes as f64;
                if let Some((stop, _)) = one.stopping {
                    until = until.min(stop);
                }
                if let Some((_, bytes)) = look_after.iter().find(|(named, _)| named.0 == at) {
                    until = until.min((*bytes as f64).max(one.served));
                }
                let nanos = ((until - one.served) / rate * 1e9).ceil().max(1.0);
                one.hit = Some((
                    Time::from_nanos(now.as_nanos().saturating_add(nanos as u64)),
                    until,
                ));
            }
        }
    }

    /// Advances the clock to the next event.
    fn advance(&mut self) -> Result<(), Fault> {
        let of_transfers = self.moving.iter().filter_map(|one| match one.phase {
            Phase::Coming => Some(one.transfer.arrives),
            Phase::Present => {
                let hit = one.hit.map(|(time, _)| time);
                hit.into_iter().chain(one.silent_until).min()
            }
            Phase::Gone => None,
        });
        let of_resources = self.load.resources.iter().zip(&self.changed);
        let of_resources =
            of_resources.filter_map(|(one, &next)| one.changes.get(next).map(|(time, _)| *time));
        let is_moving = self.moving.iter().any(|one| one.phase != Phase::Gone);
        let next = of_transfers
            .chain(of_resources.filter(|_| is_moving))
            .chain(self.orders.look_again)
            .min();
        let Some(next) = next else {
            let left = (self.moving.iter().enumerate())
                .filter(|(_, one)| one.phase == Phase::Present)
                .map(|(at, _)| TransferIndex(at));
            return Err(self.fault(Wrong::Stuck(left.collect())));
        };
        let seconds = next.since(self.now).as_secs_f64();
        self.count(seconds);
        for one in &mut self.moving {
            if let Some((time, served)) = one.hit {
                one.served = if time == next {
                    served
                } else {
                    (one.served + one.rate * seconds).min(served)
                };
            }
        }
        self.now = next;
        Ok(())
    }

    /// Adds `seconds` to the statistics of used and idle capacity.
    fn count(&mut self, seconds: f64) {
        // Ordered capacity counts as used, even before the first byte moves.
        let mut slack = self.capacities.clone();
        for one in &self.moving {
            for resource in &one.transfer.resources {
                self.uses[resource.0].used_bytes += one.rate * seconds;
                slack[resource.0] -= one.rate.max(one.ordered);
            }
        }
        for (one, capacity) in self.uses.iter_mut().zip(&self.capacities) {
            one.offered_bytes += capacity * seconds;
        }
        let now = self.now;
        let room = |one: &Moving<'_>| {
            let may_begin = one.transfer.not_before.is_none_or(|time| time <= now);
            if one.phase != Phase::Present || one.stopping.is_some() || !may_begin {
                return 0.0;
            }
            let ceiling = one.transfer.ceiling.unwrap_or(f64::INFINITY);
            let resources = one.transfer.resources.iter();
            let room = resources.map(|resource| {
                let left = slack[resource.0];
                if left > self.capacities[resource.0] * TOLERANCE {
                    left
                } else {
                    0.0
                }
            });
            room.fold((ceiling - one.ordered).max(0.0), f64::min)
        };
        let most = self.moving.iter().map(room).fold(0.0, f64::max);
        if most > 0.0 {
            self.idle_seconds += seconds;
            self.idle_bytes += most * seconds;
        }
    }

    fn report(self, asked: usize) -> Report {
        let ended = self.moving.iter().filter_map(|one| one.record.finished);
        Report {
            ended: ended.max().unwrap_or(self.now),
            transfers: self.moving.into_iter().map(|one| one.record).collect(),
            resources: self.uses,
            asked,
            idle_seconds: self.idle_seconds,
            idle_bytes: self.idle_bytes,
        }
    }
}

/// Applies an ordered rate, with the costs of stopping and starting.
fn switch(one: &mut Moving<'_>, rate: f64, now: Time, load: &Load) {
    let was = std::mem::replace(&mut one.ordered, rate);
    if rate > 0.0 {
        if one.stopping.take().is_some() {
            // The transfer was still completing its object, so it was not preempted.
            one.record.preemptions -= 1;
            return;
        }
        if was > 0.0 {
            return;
        }
        let cost = if one.record.started.is_some() {
            load.switching.resume
        } else {
            load.switching.begin
        };
        one.record.started.get_or_insert(now);
        one.silent_until = (!cost.is_zero()).then(|| now + cost);
        one.turn = Some(Turn {
            from: now,
            to: now,
            // Number of bytes moved before this turn. At the end of the turn, the number of bytes
            // of the turn replaces the value.
            bytes: one.served,
        });
    } else if was > 0.0 {
        one.record.preemptions += 1;
        let is_silent = one.silent_until.take().is_some();
        let object = load.switching.object_bytes as f64;
        let until = if object > 0.0 {
            let end = (one.served / object).ceil() * object;
            end.min(one.transfer.bytes as f64)
        } else {
            one.served
        };
        if until > one.served && one.rate > 0.0 && !is_silent {
            one.stopping = Some((until, one.rate));
        } else {
            one.close_turn(now);
        }
    }
}

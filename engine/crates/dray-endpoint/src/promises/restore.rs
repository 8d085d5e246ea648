//! What is kept in the queue, taken up again: at a start, and when a write was undone.

use super::{Ask, Desk, Held, LINK, Promise, Promises, due, round, time};
use dray_api::Timestamp;
use dray_core::rate::BytesPerSecond;
use dray_sched::broker::{ResourceId, TransferKey};
use std::collections::BTreeMap;

impl Promises {
    /// What was measured of the link, to be kept with what was promised of it.
    #[must_use]
    pub fn measured(&self) -> Option<u64> {
        self.desk().link.rate()
    }

    /// Begins from what is kept. What was promised before is forgotten; what is known of those that are
    /// still promised something is not.
    pub fn restore(&self, kept: Vec<(Promise, Ask<'_>)>, measured: Option<u64>, now: Timestamp) {
        let mut desk = self.desk();
        let desk = &mut *desk;
        desk.broker = self.places.broker();
        let before = std::mem::take(&mut desk.held);
        desk.by_id.clear();
        if let Some(rate) = desk.link.rate().or(measured)
            && self.config.rate.is_none()
        {
            desk.link.set(rate);
            let _ = desk.broker.measure(LINK, BytesPerSecond(rate), time(now));
        }
        for (promise, ask) in kept {
            let mut wish = self.places.wish(&ask);
            wish.bytes = promise.bytes.map(|bytes| bytes.saturating_sub(ask.done));
            wish.deadline = promise.deadline.map(due);
            wish.floor = BytesPerSecond(promise.rate_min.unwrap_or(0));
            wish.resources = self.places.ids(&promise.resources);
            // A share that came later holds for what was promised before, too.
            let of_owner = self.places.of_owner(ask.owner);
            let is_new = |id: &ResourceId| !wish.resources.contains(id);
            if let Some(id) = of_owner.filter(is_new) {
                wish.resources.push(id);
            }
            desk.broker.restore([wish]);
            desk.hold(ask.owner, promise);
        }
        desk.forget_all_but_held(&before);
        // Whoever begins transfers must know which move by plan before they look.
        if desk.held.keys().any(|key| !desk.rates.contains_key(key)) {
            let rates = desk.broker.rates(time(now)).rates;
            desk.rates = rates.into_iter().map(|rate| (rate.key, rate)).collect();
        }
        desk.is_changed = true;
    }

    /// From here on it is noted whether anything is promised or given up.
    pub(crate) fn mark(&self) {
        self.desk().is_touched = false;
    }

    /// Whether anything was since.
    pub(crate) fn is_touched(&self) -> bool {
        self.desk().is_touched
    }
}

impl Desk {
    /// Numbers of what was undone are given out again.
    fn forget_all_but_held(&mut self, before: &BTreeMap<TransferKey, Held>) {
        let held = &self.held;
        let is_same = |key: &TransferKey| {
            let (old, new) = (before.get(key), held.get(key));
            old.zip(new).is_some_and(|(old, new)| old.id == new.id)
        };
        self.rates.retain(|key, _| is_same(key));
        self.told.retain(|key, _| is_same(key));
        self.misses.retain(|key, _| is_same(key));
        for (key, bound) in self.uses.values().filter_map(round::Use::slow) {
            if is_same(&key) {
                self.broker.set_use(key, Some(bound));
            }
        }
        self.wake_at = None;
    }
}

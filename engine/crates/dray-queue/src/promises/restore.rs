//! Restores the promises from the queue, when the queue is opened and after a write was rolled
//! back.

use super::{Ask, BrokerState, LINK, Promise, PromisedTransfer, Promises, due, round, time};
use dray_api::Timestamp;
use dray_core::rate::BytesPerSecond;
use dray_sched::broker::{ResourceId, TransferKey};
use std::collections::BTreeMap;

impl Promises {
    /// Returns the measured capacity of the link in bytes per second. The queue stores it with the
    /// promises.
    #[must_use]
    pub fn measured(&self) -> Option<u64> {
        self.state().link.rate()
    }

    /// Replaces all promises by the stored ones. Transfers that still have a promise keep their
    /// rates, misses, interruptions and measured use.
    pub fn restore(&self, kept: Vec<(Promise, Ask<'_>)>, measured: Option<u64>, now: Timestamp) {
        let mut state = self.state();
        let state = &mut *state;
        state.broker = self.places.broker();
        let before = std::mem::take(&mut state.held);
        state.by_id.clear();
        if let Some(rate) = state.link.rate().or(measured)
            && self.places.is_measured()
        {
            state.link.set(rate);
            let _ = state.broker.measure(LINK, BytesPerSecond(rate), time(now));
        }
        for (promise, ask) in kept {
            let mut wish = self.places.wish(&ask);
            wish.bytes = promise.bytes.map(|bytes| bytes.saturating_sub(ask.done));
            wish.deadline = promise.deadline.map(due);
            wish.floor = BytesPerSecond(promise.rate_min.unwrap_or(0));
            wish.resources = self.places.ids(&promise.resources);
            // If a share of the owner was configured after this promise was made, the share applies
            // to the promise too.
            let of_owner = self.places.of_owner(ask.owner);
            let is_new = |id: &ResourceId| !wish.resources.contains(id);
            if let Some(id) = of_owner.filter(is_new) {
                wish.resources.push(id);
            }
            state.broker.restore([wish]);
            let key = TransferKey(promise.key);
            state.hold(ask.owner, promise);
            let old = before.get(&key);
            if let (Some(held), Some(old)) = (state.held.get_mut(&key), old)
                && held.id == old.id
            {
                held.interruptions = old.interruptions;
            }
        }
        state.forget_all_but_held(&before);
        // Plan now: the dispatcher must know before the first round which transfers the plan moves.
        if state.held.keys().any(|key| !state.rates.contains_key(key)) {
            let rates = state.broker.rates(time(now)).rates;
            state.rates = rates.into_iter().map(|rate| (rate.key, rate)).collect();
        }
        state.is_changed = true;
    }

    /// Starts to record whether a promise is made or dropped.
    pub(crate) fn mark(&self) {
        self.state().is_touched = false;
    }

    /// Returns true if a promise was made or dropped since [`Promises::mark`].
    pub(crate) fn is_touched(&self) -> bool {
        self.state().is_touched
    }
}

impl BrokerState {
    /// Drops the rates and misses of promises that no longer exist. After a rollback, other
    /// transfers will use the keys of these promises.
    fn forget_all_but_held(&mut self, before: &BTreeMap<TransferKey, PromisedTransfer>) {
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

//! The list of promises, as the API shows it.

use super::{Promises, answer};
use dray_api::timestamp::{Timestamp, of_time, time};
use dray_api::{PAGE_MAX, PromiseAnswer};

impl Promises {
    /// Returns the promises to `owner`, or to all owners without one, the earliest deadline first,
    /// and the number of the other promises. The list has at most [`PAGE_MAX`] promises.
    #[must_use]
    pub fn list(&self, owner: Option<&str>, now: Timestamp) -> (Vec<PromiseAnswer>, u64) {
        let state = self.state();
        let seen = state.held.iter();
        let seen = seen.filter(|(_, held)| owner.is_none_or(|owner| *held.owner == *owner));
        let mut seen: Vec<_> = seen.collect();
        // Promises of a rate alone have no deadline, and are the last ones.
        seen.sort_by_key(|(key, held)| {
            let deadline = held.promise.deadline;
            (deadline.is_none(), deadline, **key)
        });
        seen.truncate(PAGE_MAX as usize);
        let hidden = (state.held.len() - seen.len()) as u64;
        let shown = seen.into_iter().map(|(key, held)| {
            let rate = state.rates.get(key);
            let start = state.broker.latest_start(*key, time(now));
            PromiseAnswer {
                transfer: held.id.to_string(),
                owner: held.owner.to_string(),
                bytes: held.bytes,
                deadline: held.promise.deadline,
                rate_min: held.promise.rate_min,
                latest_start: start.map_or(now, of_time),
                resources: held.promise.resources.clone(),
                planned: rate.map(|rate| rate.planned.0),
                reason: rate.map(|rate| answer::reason_word(rate.reason)),
                miss: state.misses.get(key).cloned(),
            }
        });
        (shown.collect(), hidden)
    }
}

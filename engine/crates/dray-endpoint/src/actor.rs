//! Converts an authenticated principal to the caller type of the queue.

use dray_access::Principal;
use dray_queue::Actor;

/// Returns `principal` as a caller of the queue.
pub(crate) fn actor(principal: &Principal) -> Actor {
    Actor {
        owner: principal.owner.clone(),
        is_administrator: principal.is_administrator,
    }
}

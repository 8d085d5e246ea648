//! The caller of the queue on whose behalf a principal acts.

use dray_access::Principal;
use dray_queue::Actor;

/// Returns a principal as the caller of the queue.
pub(crate) fn actor(principal: &Principal) -> Actor {
    Actor {
        owner: principal.owner.clone(),
        is_administrator: principal.is_administrator,
    }
}

//! Renews the tickets that this endpoint's transfers hold at other endpoints. A ticket is renewed
//! as long as its transfer waits or runs.

use super::DispatcherInner;
use dray_api::Timestamp;
use dray_api::{Place, Side};
use dray_client::{Client, Keeper};
use dray_core::TransferId;
use dray_net::Trust;
use dray_queue::{TicketHolder, clock};
use dray_runtime::drive;
use hyper::Method;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Interval between two rounds of renewals.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of transfers in one round. The next round continues with the following transfers.
const PAGE: u32 = 500;

/// Maximum number of calls in one round, so that an endpoint that does not answer delays the other
/// renewals only briefly.
const CALLS_MAX: usize = 64;

/// Maximum time until a failed renewal is tried again. If the ticket expires soon, the time is the
/// ticket's remaining validity divided by [`AGAIN_PART`]. So a transfer does not lose its ticket
/// because the other endpoint is briefly unreachable.
const AGAIN: Duration = Duration::from_secs(30);
const AGAIN_PART: i64 = 4;

/// The renewal times of the tickets of one transfer.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Time of the next renewal.
    next: Timestamp,
    /// Expiry of the ticket that expires first, if it is known.
    expires: Option<Timestamp>,
}

type Due = HashMap<TransferId, Kept>;

/// Runs until the endpoint stops.
pub(super) fn run(shared: &Arc<DispatcherInner>) {
    let mut due = Due::new();
    let mut after = 0;
    while !shared.is_stopping() {
        match shared.queue.with_tickets(after, PAGE) {
            Ok(page) => {
                if page.is_empty() {
                    match shared.queue.live_of(due.keys()) {
                        Ok(live) => due.retain(|id, _| live.contains(id.as_str())),
                        Err(error) => tracing::error!("cannot look up tickets to renew: {error}"),
                    }
                }
                after = look(shared, &mut due, page).unwrap_or(0);
            }
            Err(error) => tracing::error!("cannot look up tickets to renew: {error}"),
        }
        let until = std::time::Instant::now() + LOOK_INTERVAL;
        while std::time::Instant::now() < until && !shared.is_stopping() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Renews the due tickets of a page of transfers. Returns the number of the last transfer that was
/// handled.
fn look(shared: &DispatcherInner, due: &mut Due, page: Vec<TicketHolder>) -> Option<i64> {
    let now = clock::now();
    let mut calls = 0;
    let mut last = None;
    // Endpoints that did not answer in this round. They are not called again in this round, so each
    // of these endpoints costs only one timeout per round.
    let mut away = BTreeSet::new();
    for holder in page {
        if calls >= CALLS_MAX || shared.is_stopping() {
            return last;
        }
        last = Some(holder.seq);
        let before = due.get(&holder.id).copied();
        if before.is_some_and(|kept| kept.next > now) {
            continue;
        }
        let before = before.and_then(|kept| kept.expires);
        let mut kept = Kept {
            next: now.after(Duration::from_secs(24 * 3_600)),
            expires: None,
        };
        let request = &holder.request;
        let places = request.origin_places().chain([&request.destination]);
        let tickets = places.zip(holder.route.sides());
        for (place, side) in tickets.filter(|(place, _)| place.ticket.is_some()) {
            let address = place.address.as_ref().unwrap_or(&place.url);
            let renewed = match away.contains(address) {
                true => None,
                false => {
                    calls += 1;
                    renew(shared, place, side).unwrap_or_else(|Unanswered| {
                        away.insert(address.clone());
                        None
                    })
                }
            };
            let (next, expires) = match renewed {
                Some(expires) => (half_way(now, expires), Some(expires)),
                None => (again(now, before), before),
            };
            kept.next = kept.next.min(next);
            kept.expires = [kept.expires, expires].into_iter().flatten().min();
        }
        due.insert(holder.id, kept);
    }
    last
}

/// An endpoint that does not answer.
struct Unanswered;

/// Renews one ticket. Returns its new expiry if the ticket was renewed.
fn renew(
    shared: &DispatcherInner,
    place: &Place,
    side: &Side,
) -> Result<Option<Timestamp>, Unanswered> {
    let Some(address) = side.address() else {
        return Ok(None);
    };
    let trust = match (&place.key, shared.runner.authority()) {
        (Some(key), _) => key.parse().ok().map(Trust::Key),
        (None, authority) => authority.cloned().map(Trust::Authority),
    };
    let Some(trust) = trust else {
        return Ok(None);
    };
    let client = Client {
        address: (place.address.as_deref()).unwrap_or(address).to_owned(),
        trust,
        identity: Some(shared.runner.identity()),
        token: None,
        answer_bytes_max: dray_client::ANSWER_BYTES_MAX,
        trace: None,
        kept: Keeper::default(),
    };
    let body = json!({"ticket": place.ticket});
    let answer = client.call_and_wait(Method::POST, "/v1/tickets/renew", Some(&body));
    match answer {
        Ok(ticket) => {
            let expires = ticket.get("expires_at").cloned().unwrap_or(Value::Null);
            Ok(serde_json::from_value(expires).ok())
        }
        Err(error) if drive::is_lost(&error) => Err(Unanswered),
        Err(error) => {
            // The session that uses the ticket reports the error to the owner.
            tracing::debug!(peer = client.address, "cannot renew a ticket: {error}");
            Ok(None)
        }
    }
}

fn half_way(now: Timestamp, then: Timestamp) -> Timestamp {
    let left = then.as_ms().saturating_sub(now.as_ms()).max(2_000);
    Timestamp::from_ms(now.as_ms() + left / 2)
}

/// Returns the time of the next try after a failed renewal.
fn again(now: Timestamp, expires: Option<Timestamp>) -> Timestamp {
    let left = expires.map(|expires| expires.as_ms().saturating_sub(now.as_ms()));
    let longest = i64::try_from(AGAIN.as_millis()).unwrap_or(i64::MAX);
    let shortest = i64::try_from(LOOK_INTERVAL.as_millis()).unwrap_or(longest);
    let wait = match left {
        Some(left) if left > 0 => (left / AGAIN_PART).clamp(shortest, longest),
        // The ticket has already expired, or its expiry is unknown because the ticket was just
        // issued. Wait for a quarter of the maximum time.
        _ => longest / AGAIN_PART,
    };
    Timestamp::from_ms(now.as_ms().saturating_add(wait))
}

#[cfg(test)]
mod tests {
    use super::{again, half_way};
    use dray_api::Timestamp;

    #[test]
    fn a_ticket_is_tried_again_often_enough_before_it_ends() {
        for lifetime in [5_000, 12_000, 60_000, 3_600_000] {
            let ends = Timestamp::from_ms(lifetime);
            // All renewals fail from the first try on.
            let mut now = half_way(Timestamp::from_ms(0), ends);
            let mut tries = 0;
            while now < ends {
                tries += 1;
                let next = again(now, Some(ends));
                let wait = next.as_ms() - now.as_ms();
                assert!((1_000..=30_000).contains(&wait), "{lifetime}: {wait}");
                now = next;
            }
            assert!(tries >= 3, "{lifetime}: {tries}");
        }
        let now = Timestamp::from_ms(1_000);
        for unknown in [None, Some(now), Some(Timestamp::from_ms(0))] {
            let wait = again(now, unknown).as_ms() - now.as_ms();
            assert!((5_000..=30_000).contains(&wait), "{wait}");
        }
    }
}

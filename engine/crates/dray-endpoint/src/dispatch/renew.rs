//! Keeps tickets of transfers that are not ended good: those at other endpoints, as long as the
//! transfer waits or runs.

use super::Shared;
use crate::api::types::{Place, Request};
use crate::client::Client;
use crate::moment::Moment;
use crate::place::Side;
use dray_core::TransferId;
use dray_runtime::drive;
use dray_runtime::net::Trust;
use hyper::Method;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Transfers looked at in one look; the next go on behind them.
const PAGE: u32 = 500;

/// Calls in one look, so that the queue of a dead peer holds nobody else up for long.
const CALLS_MAX: usize = 64;

/// A ticket that could not be renewed is tried again after so long.
const AGAIN: Duration = Duration::from_secs(30);

/// When each transfer's tickets are looked at next.
type Due = HashMap<TransferId, Moment>;

/// Runs until the endpoint stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut due = Due::new();
    let mut after = 0;
    while !shared.is_stopping() {
        match shared.queue.with_tickets(after, PAGE) {
            Ok(page) => {
                if page.is_empty() {
                    let live: Vec<_> = due.keys().cloned().collect();
                    for id in live {
                        if !shared.queue.is_live(&id).unwrap_or(true) {
                            due.remove(&id);
                        }
                    }
                }
                after = look(shared, &mut due, page).unwrap_or(0);
            }
            Err(error) => tracing::error!("cannot look for tickets: {error}"),
        }
        let until = std::time::Instant::now() + LOOK_INTERVAL;
        while std::time::Instant::now() < until && !shared.is_stopping() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Looks at a page; says how far it came.
fn look(shared: &Shared, due: &mut Due, page: Vec<(i64, TransferId, Request)>) -> Option<i64> {
    let now = Moment::now();
    let mut calls = 0;
    let mut last = None;
    // Endpoints that do not answer now: one wait for each is enough.
    let mut away = BTreeSet::new();
    for (seq, id, request) in page {
        if calls >= CALLS_MAX || shared.is_stopping() {
            return last;
        }
        last = Some(seq);
        if due.get(&id).is_some_and(|at| *at > now) {
            continue;
        }
        let mut next = now.after(Duration::from_secs(24 * 3_600));
        let places = request.sources.iter().chain([&request.destination]);
        for place in places.filter(|place| place.ticket.is_some()) {
            let address = place.address.as_ref().unwrap_or(&place.url);
            if away.contains(address) {
                next = next.min(now.after(AGAIN));
                continue;
            }
            calls += 1;
            let at = match renew(shared, place) {
                Ok(Some(expires)) => half_way(now, expires),
                Ok(None) => now.after(AGAIN),
                Err(Away) => {
                    away.insert(address.clone());
                    now.after(AGAIN)
                }
            };
            next = next.min(at);
        }
        due.insert(id, next);
    }
    last
}

/// An endpoint that does not answer.
struct Away;

/// Renews one; says until when it is good now, if it could be renewed.
fn renew(shared: &Shared, place: &Place) -> Result<Option<Moment>, Away> {
    let Ok(Side::Remote { address, .. }) = Side::parse(&place.url, &shared.config) else {
        return Ok(None);
    };
    let trust = match (&place.key, shared.carrier.authority()) {
        (Some(key), _) => key.parse().ok().map(Trust::Key),
        (None, authority) => authority.cloned().map(Trust::Authority),
    };
    let Some(trust) = trust else {
        return Ok(None);
    };
    let client = Client {
        address: place.address.clone().unwrap_or(address),
        trust,
        identity: Some(Arc::clone(shared.carrier.identity())),
        token: None,
    };
    let body = json!({"ticket": place.ticket});
    let answer = client.call_and_wait(Method::POST, "/v1/tickets/renew", Some(&body));
    match answer {
        Ok(ticket) => {
            let expires = ticket.get("expires_at").cloned().unwrap_or(Value::Null);
            Ok(serde_json::from_value(expires).ok())
        }
        Err(error) if drive::is_lost(&error) => Err(Away),
        Err(error) => {
            // The session itself will say it to whom it concerns.
            tracing::debug!(peer = client.address, "cannot renew a ticket: {error}");
            Ok(None)
        }
    }
}

/// In the middle between now and then.
fn half_way(now: Moment, then: Moment) -> Moment {
    let left = then.as_ms().saturating_sub(now.as_ms()).max(2_000);
    Moment::from_ms(now.as_ms() + left / 2)
}

//! `/v1/events`: server-sent events, or a long poll.

use super::Api;
use super::extract::{Caller, Query};
use super::refusal::{Answer, Refusal};
use crate::actor::actor;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use dray_api::{ErrorAnswer, Event, EventKind, Events, EventsQuery};
use dray_core::{End, Error, ErrorKind};
use dray_queue::Asking;
use dray_queue::clock;
use dray_queue::events::{Heard, Hub, Listening, Published};
use futures_util::stream::{self, Stream};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Maximum number of events in the answer of a long poll, and in one read for an event stream.
const PAGE_MAX: usize = 1_000;

/// Interval of keep-alive comments on a silent event stream, so that both ends notice a lost
/// connection.
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The events that a caller has asked for.
struct Wanted {
    api: Arc<Api>,
    owner: Option<String>,
    transfer: Option<String>,
    /// While this value exists, the watched transfers are not cancelled because of their
    /// `bound_seconds`.
    _asking: Asking,
    /// While this value exists, the request counts as a request of its owner, and the connection of
    /// the request counts as busy.
    caller: Caller,
}

impl Wanted {
    fn has(&self, published: &Published) -> bool {
        let may_hear = match (&self.owner, &published.owner) {
            (None, _) | (_, None) => true,
            (Some(owner), Some(whose)) => **owner == **whose,
        };
        let is_meant = match &self.transfer {
            None => true,
            Some(id) => {
                published.event.kind == EventKind::Planned
                    || published.event.transfer.as_ref() == Some(id)
            }
        };
        may_hear && is_meant
    }

    /// Returns true if the caller must get no more events.
    fn must_end(&self) -> bool {
        self.api.is_stopping() || self.caller.has_left(&self.api)
    }

    fn hub(&self) -> &Hub {
        self.api.queue.hub()
    }

    fn hear(&self, after: u64) -> Heard {
        self.hub()
            .since(after, PAGE_MAX, |published| self.has(published))
    }
}

/// Returns the event of the kind `Gap`, which reports that events were lost. If `heard` contains
/// events, the id is one less than the id of the first of these events. Otherwise the id is the id
/// of the last event that was read.
fn gap(heard: &Heard) -> Event {
    let first = heard.events.first().map(|published| published.event.id);
    Event {
        id: first.map_or(heard.last, |first| first - 1),
        ..Event::new(EventKind::Gap, clock::now())
    }
}

/// Returns events: server-sent events with `Accept: text/event-stream`, else a long poll.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last received event; the \
            stream continues after this event.")),
    responses((status = 200, description = "The stream of events.",
            content((Events = "application/json"), (Event = "text/event-stream"))),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn events(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Answer<Response> {
    let last = last_event_id(&headers)?;
    if let Some(id) = query.transfer.clone() {
        let principal = caller.clone();
        // Returns `NotFound` if the caller may not see the transfer.
        api.call(move |api| api.queue.show(&actor(&principal), &id))
            .await?;
    }
    let wanted = Wanted {
        owner: (!caller.is_administrator).then(|| caller.owner.clone()),
        _asking: api.queue.asking(query.transfer.as_deref(), &caller.owner),
        transfer: query.transfer,
        api: Arc::clone(&api),
        caller,
    };
    let after = last.or(query.after);
    let after = after.unwrap_or_else(|| wanted.hub().last());
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        let listening = api
            .queue
            .hub()
            .listen(&wanted.caller.owner)
            .map_err(Refusal::own_limit)?;
        let alive = KeepAlive::new().interval(ALIVE_INTERVAL);
        let stream = listen(wanted, after, listening);
        return Ok(Sse::new(stream).keep_alive(alive).into_response());
    }
    let timeout = Duration::from_secs(query.timeout);
    Ok(Json(poll(&wanted, after, timeout).await).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Answer<Option<u64>> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    text.parse().map(Some).map_err(|_| {
        Error::new(
            ErrorKind::InvalidRequest,
            End::Here,
            "read the header Last-Event-ID",
        )
        .cause(format!("{text:?} is not a number"))
        .remedy("send the id of the last received event, or omit the header Last-Event-ID")
        .into()
    })
}

async fn poll(wanted: &Wanted, mut after: u64, timeout: Duration) -> Events {
    let deadline = Instant::now() + timeout;
    let mut happened = wanted.hub().watch();
    let mut stopping = wanted.api.stopping.subscribe();
    loop {
        let mut heard = wanted.hear(after);
        if wanted.caller.has_left(&wanted.api) {
            heard.events.clear();
            (heard.is_gap, heard.last) = (false, after);
        }
        let is_over = Instant::now() >= deadline || wanted.must_end();
        if heard.is_gap || !heard.events.is_empty() || is_over {
            let mut events: Vec<Event> = Vec::with_capacity(heard.events.len() + 1);
            if heard.is_gap {
                events.push(gap(&heard));
            }
            events.extend(heard.events.iter().map(|published| published.event.clone()));
            return Events {
                events,
                last: heard.last,
            };
        }
        // Continue after all events that were read, including those that this caller does not get.
        // Then the hub can drop such events without a gap for this caller.
        after = heard.last;
        let until = deadline.min(Instant::now() + ALIVE_INTERVAL);
        let _ = timeout_at(until, next(&mut happened, &mut stopping)).await;
    }
}

async fn next(happened: &mut watch::Receiver<u64>, stopping: &mut watch::Receiver<bool>) {
    tokio::select! {
        _ = happened.changed() => {}
        _ = stopping.changed() => {}
    }
}

/// One stream of server-sent events.
struct Listener {
    wanted: Wanted,
    after: u64,
    waiting: VecDeque<Event>,
    /// True once the listener has received all past events. If the listener later falls behind, the
    /// endpoint ends its stream.
    has_caught_up: bool,
    happened: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    _listening: Listening,
}

fn listen(
    wanted: Wanted,
    after: u64,
    listening: Listening,
) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    let listener = Listener {
        happened: wanted.hub().watch(),
        stopping: wanted.api.stopping.subscribe(),
        wanted,
        after,
        waiting: VecDeque::new(),
        has_caught_up: false,
        _listening: listening,
    };
    stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        let data = serde_json::to_string(&event).ok()?;
        let kind = serde_json::to_value(event.kind).ok()?;
        let sent = SseEvent::default()
            .id(event.id.to_string())
            .event(kind.as_str().unwrap_or_default())
            .data(data);
        Some((Ok(sent), listener))
    })
}

impl Listener {
    /// Returns the next event. `None` ends the stream, because the endpoint is stopping, the session
    /// of the caller has ended, or the listener was too slow. The listener can reconnect with
    /// `Last-Event-ID`.
    async fn next(&mut self) -> Option<Event> {
        loop {
            // Events that were queued before the user logged out must not be sent after it.
            if self.wanted.caller.has_left(&self.wanted.api) {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.wanted.must_end() {
                return None;
            }
            let behind = self.wanted.hub().last().saturating_sub(self.after);
            if self.has_caught_up && behind > self.wanted.api.config.limits.events_behind {
                return None;
            }
            let heard = self.wanted.hear(self.after);
            if heard.is_gap {
                self.waiting.push_back(gap(&heard));
            }
            let events = heard.events.iter().map(|published| published.event.clone());
            self.waiting.extend(events);
            self.after = heard.last;
            if self.waiting.is_empty() {
                self.has_caught_up = true;
                let until = Instant::now() + ALIVE_INTERVAL;
                let _ = timeout_at(until, next(&mut self.happened, &mut self.stopping)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{House, house};
    use super::{Caller, Listener, VecDeque, Wanted, poll};
    use axum::extract::FromRequestParts;
    use axum::http::Request;
    use std::sync::Arc;
    use std::time::Duration;

    async fn wanted(house: &House) -> Wanted {
        let request = Request::builder().header("authorization", "Bearer alice");
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        let caller = Caller::from_request_parts(&mut parts, &house.api).await;
        Wanted {
            api: Arc::clone(&house.api),
            owner: Some("alice".to_owned()),
            transfer: None,
            _asking: house.api.queue.asking(None, "alice"),
            caller: caller.expect("alice"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn queued_events_are_not_sent_after_a_logout() {
        let house = house();
        let after = house.api.queue.hub().last();
        for id in ["a", "b", "c"] {
            let body = serde_json::json!({
                "id": id,
                "sources": [{"url": "/slow/x"}],
                "destination": {"url": format!("/slow/{id}")},
            });
            house.post("alice", "/v1/transfers", body).await;
        }
        let wanted_now = wanted(&house).await;
        let mut listener = Listener {
            happened: wanted_now.hub().watch(),
            stopping: house.api.stopping.subscribe(),
            _listening: house.api.queue.hub().listen("alice").expect("a place"),
            wanted: wanted_now,
            after,
            waiting: VecDeque::new(),
            has_caught_up: false,
        };
        let first = listener.next().await.expect("an event");
        assert_eq!(first.transfer.as_deref(), Some("a"));
        assert!(!listener.waiting.is_empty());
        listener.wanted.caller.leave();
        assert!(listener.next().await.is_none());

        let mut wanted = wanted(&house).await;
        let told = poll(&wanted, after, Duration::ZERO).await;
        assert_eq!(told.events.len(), 3);
        wanted.caller.leave();
        let told = poll(&wanted, after, Duration::ZERO).await;
        assert!(told.events.is_empty());
        assert_eq!(told.last, after);
    }
}

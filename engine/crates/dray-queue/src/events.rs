//! The numbered events of the endpoint, for listeners.
//!
//! One ring holds the last [`EVENTS_MAX`] events. Its size in bytes is bounded too. A listener is
//! only a position in the ring, so a slow listener costs no memory for events. If a listener is too
//! far behind, its stream ends.
//!
//! Invariant of this module: event numbers grow, also across restarts, and a listener is informed
//! if it missed events.

use dray_api::Event;
use dray_api::Timestamp;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// Maximum number of events in the ring.
pub const EVENTS_MAX: usize = 10_000;

/// Approximate maximum size of the ring in bytes. If the ring is larger, it drops its oldest
/// events.
const RING_BYTES_MAX: usize = 16 << 20;

/// Maximum size in bytes of a text in an event. A longer text is cut. A path can have 64 KiB; the
/// transfer's list of files contains it completely.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Number of low bits of an event number that count the events of one millisecond. The first event
/// number of a process contains its start time in milliseconds in the high bits. So numbers grow
/// across restarts, if there are fewer than a million events per second on average. Numbers stay
/// below 2^53, so JSON clients read them exactly.
const IDS_PER_MS_BITS: u32 = 10;

/// An event and its owner.
#[derive(Debug, Clone)]
pub struct Published {
    /// The owner whose listeners may receive the event; `None` for all listeners.
    pub owner: Option<Arc<str>>,
    /// The event.
    pub event: Event,
}

/// The result of one read of the ring.
#[derive(Debug, Clone)]
pub struct Heard {
    /// True if the ring dropped earlier events before this listener read them.
    pub is_gap: bool,
    /// The events, in order.
    pub events: Vec<Arc<Published>>,
    /// Event number to pass as `after` to the next read.
    pub last: u64,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<Published>>,
    bytes: usize,
    last: u64,
}

impl Ring {
    fn push(&mut self, published: Published) {
        self.bytes += bytes_of(&published);
        self.events.push_back(Arc::new(published));
        while self.events.len() > EVENTS_MAX || self.bytes > RING_BYTES_MAX {
            match self.events.pop_front() {
                Some(oldest) => self.bytes -= bytes_of(&oldest),
                None => break,
            }
        }
    }
}

fn texts(event: &mut Event) -> impl Iterator<Item = &mut String> {
    let error = event.error.as_mut().map(|error| {
        let parts = [
            &mut error.operation,
            &mut error.cause,
            &mut error.remedy,
            &mut error.message,
        ];
        parts.into_iter().chain(error.file.as_mut())
    });
    let own = [event.path.as_mut(), event.notice.as_mut()];
    own.into_iter().flatten().chain(error.into_iter().flatten())
}

/// Returns the approximate size of an event in memory, in bytes.
fn bytes_of(published: &Published) -> usize {
    let event = &published.event;
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let error = event.error.as_ref().map_or(0, |error| {
        let file = error.file.as_ref().map_or(0, String::len);
        error.operation.len() + error.cause.len() + error.remedy.len() + error.message.len() + file
    });
    size_of::<Published>() + text(&event.path) + text(&event.notice) + error
}

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
        text.shrink_to_fit();
    }
}

/// The ring of events and its listeners.
#[derive(Debug)]
pub struct Hub {
    ring: Mutex<Ring>,
    changed: watch::Sender<u64>,
    listeners: Mutex<HashMap<String, u32>>,
    listeners_per_owner: u32,
}

impl Hub {
    /// Creates an empty ring.
    #[must_use]
    pub fn new(listeners_per_owner: u32, now: Timestamp) -> Self {
        let last = u64::try_from(now.as_ms()).unwrap_or(0) << IDS_PER_MS_BITS;
        Self {
            ring: Mutex::new(Ring {
                events: VecDeque::new(),
                bytes: 0,
                last,
            }),
            changed: watch::Sender::new(last),
            listeners: Mutex::default(),
            listeners_per_owner,
        }
    }

    /// Publishes an event to all listeners that may receive it, and returns its number. Does not
    /// wait for slow listeners.
    pub fn publish(&self, owner: Option<Arc<str>>, mut event: Event) -> u64 {
        texts(&mut event).for_each(cut);
        let mut ring = self.ring();
        ring.last += 1;
        event.id = ring.last;
        ring.push(Published { owner, event });
        let last = ring.last;
        drop(ring);
        self.changed.send_replace(last);
        last
    }

    /// Returns the number of the last event.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.ring().last
    }

    /// Returns at most `most` events with numbers above `after`, for which `is_wanted` returns
    /// true.
    pub fn since(&self, after: u64, most: usize, is_wanted: impl Fn(&Published) -> bool) -> Heard {
        let ring = self.ring();
        // If the clock was set back before a restart, `after` can be higher than any event number.
        let is_unknown = after > ring.last;
        let oldest = ring.last - ring.events.len() as u64;
        let is_gap = is_unknown || after < oldest;
        let skipped = if is_gap { 0 } else { after - oldest };
        let mut heard = Heard {
            is_gap,
            events: Vec::new(),
            last: ring.last,
        };
        // `skipped` is at most [`EVENTS_MAX`], which fits into `usize`.
        let skipped = usize::try_from(skipped).unwrap_or(EVENTS_MAX);
        for published in ring.events.iter().skip(skipped) {
            if heard.events.len() == most {
                heard.last = published.event.id - 1;
                break;
            }
            if is_wanted(published) {
                heard.events.push(Arc::clone(published));
            }
        }
        heard
    }

    /// Returns a channel that signals each new event.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Takes one of the owner's listener slots. Dropping the result frees the slot.
    ///
    /// # Errors
    /// `Busy` if all slots of the owner are taken.
    pub fn listen(self: &Arc<Self>, owner: &str) -> Result<Listening> {
        let mut listeners = self.listeners.lock_unpoisoned();
        let count = listeners.entry(owner.to_owned()).or_default();
        if *count >= self.listeners_per_owner {
            return Err(Error::new(ErrorKind::Busy, End::Here, "listen to events")
                .cause(format!(
                    "{owner} already has {count} event listeners, which is the limit"
                ))
                .remedy(
                    "close an event listener, or use one event listener for several transfers",
                ));
        }
        *count += 1;
        Ok(Listening {
            hub: Arc::clone(self),
            owner: owner.to_owned(),
        })
    }

    /// Returns the number of listeners.
    #[must_use]
    pub fn listeners(&self) -> u32 {
        let listeners = self.listeners.lock_unpoisoned();
        listeners.values().sum()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock_unpoisoned()
    }
}

/// A taken listener slot.
#[derive(Debug)]
pub struct Listening {
    hub: Arc<Hub>,
    owner: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let listeners = &self.hub.listeners;
        let mut listeners = listeners.lock_unpoisoned();
        if let Some(count) = listeners.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                listeners.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENTS_MAX, Hub};
    use dray_api::Timestamp;
    use dray_api::{ErrorParts, Event, EventKind};
    use dray_core::{End, Error, ErrorKind, RelPath};
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp::from_ms(1_795_280_400_000);

    fn publish(hub: &Hub, count: usize) {
        for _ in 0..count {
            hub.publish(Some("alice".into()), Event::new(EventKind::State, NOW));
        }
    }

    #[test]
    fn a_listener_goes_on_where_it_was() {
        let hub = Hub::new(2, NOW);
        let start = hub.last();
        publish(&hub, 5);
        let heard = hub.since(start, 3, |_| true);
        assert!(!heard.is_gap);
        assert_eq!((heard.events.len(), heard.last), (3, start + 3));
        let rest = hub.since(heard.last, 100, |_| true);
        assert_eq!((rest.events.len(), rest.last), (2, start + 5));
        assert!(hub.since(rest.last, 100, |_| true).events.is_empty());
        assert!(
            hub.since(start, 100, |p| p.owner.is_none())
                .events
                .is_empty()
        );
    }

    #[test]
    fn who_missed_something_is_told() {
        let hub = Hub::new(2, NOW);
        let start = hub.last();
        publish(&hub, EVENTS_MAX);
        assert!(!hub.since(start, 1, |_| true).is_gap);
        publish(&hub, 1);
        let heard = hub.since(start, usize::MAX, |_| true);
        assert!(heard.is_gap);
        assert_eq!(heard.events.len(), EVENTS_MAX);
        assert!(hub.since(start + 1, 1, |_| true).is_gap.eq(&false));
        let later = Hub::new(2, Timestamp::from_ms(NOW.as_ms() + 1));
        assert!(
            later.since(hub.last(), 1, |_| true).is_gap,
            "before a restart"
        );
        assert!(later.since(u64::MAX, 1, |_| true).is_gap);
    }

    #[test]
    fn events_with_long_texts_are_cut_and_bounded_in_bytes() {
        let hub = Hub::new(2, NOW);
        let start = hub.last();
        let path = "\u{e9}".repeat(32 << 10);
        for _ in 0..EVENTS_MAX {
            let file = RelPath::parse(b"run/x").expect("a path");
            let mut error = ErrorParts::from(
                &Error::new(ErrorKind::Io, End::Here, "read")
                    .file(&file)
                    .cause(path.clone()),
            );
            error.file = Some(path.clone());
            let event = Event {
                path: Some(path.clone()),
                error: Some(error),
                ..Event::new(EventKind::FileFailed, NOW)
            };
            hub.publish(Some("alice".into()), event);
        }
        let heard = hub.since(start, usize::MAX, |_| true);
        assert!(heard.is_gap, "the oldest are gone");
        let sizes = heard
            .events
            .iter()
            .map(|published| serde_json::to_string(&published.event).expect("JSON").len());
        let (mut most, mut all) = (0, 0);
        sizes.for_each(|size| (most, all) = (most.max(size), all + size));
        assert!(most < 6 << 10, "{most}");
        assert!((1 << 20..17 << 20).contains(&all), "{all}");
        let cut = heard.events[0].event.path.as_ref().expect("a path");
        assert!(cut.ends_with("\u{e9}..."), "{cut}");
    }

    #[test]
    fn listeners_of_one_owner_are_bounded() {
        let hub = Arc::new(Hub::new(2, NOW));
        let one = hub.listen("alice").expect("a place");
        let _two = hub.listen("alice").expect("a place");
        assert!(hub.listen("alice").is_err());
        assert!(hub.listen("bob").is_ok());
        drop(one);
        assert!(hub.listen("alice").is_ok());
        assert_eq!(hub.listeners(), 1);
    }
}

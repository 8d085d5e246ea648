//! Limits on connections, in all and from one address.
//!
//! If all slots are taken, a new connection gets the slot of a connection without an authenticated
//! request. So a caller without a credential cannot occupy slots and keep other callers out.

use crate::metrics::Metrics;
use dray_core::lock::LockExt;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Time that a new connection has for the handshake and the first request. While this time runs,
/// other idle connections lose their slots first. Without this time, callers that already hold
/// slots could keep all new callers out.
const GRACE: Duration = Duration::from_secs(2);

/// Number of slots above the limit for connections from one address. On a connection in such a
/// slot, the API refuses all calls except health checks, counters and cancellations. The value is
/// estimated, not measured.
const SPARE_OF_ADDRESS: usize = 8;
/// Number of such slots for all addresses together. The value is estimated, not measured.
const SPARE: usize = 32;

/// Minimum interval between two log lines about full limits.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The state of a connection.
#[derive(Debug)]
struct Place {
    address: IpAddr,
    /// Start of the connection's idle time. This is the time of the answer to the last
    /// authenticated request on the connection. Before the first such answer, this is the time at
    /// which the connection arrived.
    since: Instant,
    /// True if the connection had an authenticated request.
    has_proved: bool,
    /// Number of authenticated requests in progress on the connection.
    busy: u32,
    /// True if the connection has a slot above the limits.
    is_spare: bool,
    cut: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    taken: BTreeMap<u64, Place>,
    /// Time of the last log line about full limits.
    told: Option<Instant>,
}

/// The table of all connections and their slots.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    all_max: usize,
    address_max: usize,
    grace: Duration,
    places: Mutex<Places>,
}

/// The slot of one connection. Dropping this value frees the slot.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    metrics: Arc<Metrics>,
    number: u64,
    is_spare: bool,
    cut: Arc<Notify>,
}

/// A reference from a request to the slot of its connection. The server adds it to the extensions
/// of each request.
#[derive(Debug, Clone)]
pub struct SlotReference {
    table: Arc<ConnectionTable>,
    number: u64,
    is_spare: bool,
}

/// An authenticated request in progress. The connection of the request cannot lose its slot while
/// this value exists.
#[derive(Debug)]
pub struct Busy(SlotReference);

impl ConnectionTable {
    pub(crate) fn new(all_max: u32, address_max: u32) -> Arc<Self> {
        Self::with_grace(all_max, address_max, GRACE)
    }

    fn with_grace(all_max: u32, address_max: u32, grace: Duration) -> Arc<Self> {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX).max(1);
        Arc::new(Self {
            all_max: count(all_max),
            address_max: count(address_max),
            grace,
            places: Mutex::default(),
        })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock_unpoisoned()
    }

    /// Gives a new connection a slot. If no slot is free, the idle connection that
    /// [`Places::weakest`] returns loses its slot. If all connections have requests in progress,
    /// the new connection gets one of a few slots above the limits. If these are taken too, an idle
    /// connection from the same address that has such a slot loses it to the new connection.
    /// Returns `None` if there is no such connection.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        metrics: &Arc<Metrics>,
    ) -> Option<ConnectionSlot> {
        let mut places = self.places();
        let here = places.taken.values();
        let here = here.filter(|place| !place.is_spare && place.address == address);
        let is_full_here = here.count() >= self.address_max;
        let in_all = places.taken.values().filter(|place| !place.is_spare);
        let mut is_spare = false;
        if is_full_here || in_all.count() >= self.all_max {
            let of = is_full_here.then_some(address);
            let weakest = places.weakest(of, self.grace, false);
            let mut gone = weakest;
            if weakest.is_none() {
                is_spare = true;
                places.tell(address, is_full_here);
                if places.are_spares_taken(address) {
                    gone = places.weakest(Some(address), self.grace, true);
                    if gone.is_none() {
                        metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
                        return None;
                    }
                }
            }
            if let Some(place) = gone.and_then(|number| places.taken.remove(&number)) {
                place.cut.notify_one();
                metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        let number = places.next;
        places.next += 1;
        let cut = Arc::new(Notify::new());
        let place = Place {
            address,
            since: Instant::now(),
            has_proved: false,
            busy: 0,
            is_spare,
            cut: Arc::clone(&cut),
        };
        places.taken.insert(number, place);
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionSlot {
            table: Arc::clone(self),
            metrics: Arc::clone(metrics),
            number,
            is_spare,
            cut,
        })
    }
}

impl Places {
    /// Returns the number of the idle connection that loses its slot next.
    ///
    /// Connections without an authenticated request come first if they are idle for longer than
    /// `grace`. Connections with an authenticated request follow. The other connections come last.
    /// In each group the connection with the longest idle time comes first. With `address`, only
    /// connections from that address are considered. If `is_spare` is true, only connections in
    /// slots above the limits are considered, otherwise only the others.
    fn weakest(&self, address: Option<IpAddr>, grace: Duration, is_spare: bool) -> Option<u64> {
        let all = self.taken.iter();
        let idle = all.filter(|(_, place)| {
            place.busy == 0
                && place.is_spare == is_spare
                && address.is_none_or(|address| place.address == address)
        });
        let rank = |place: &Place| match (place.has_proved, place.since.elapsed() < grace) {
            (false, false) => 0,
            (true, _) => 1,
            (false, true) => 2,
        };
        let weakest = idle.min_by_key(|(_, place)| (rank(place), place.since));
        weakest.map(|(number, _)| *number)
    }
}

impl Places {
    fn are_spares_taken(&self, address: IpAddr) -> bool {
        let spares = || self.taken.values().filter(|place| place.is_spare);
        let here = spares().filter(|place| place.address == address).count();
        here >= SPARE_OF_ADDRESS || spares().count() >= SPARE
    }

    /// Logs that a limit is full, at most once per [`TOLD_EVERY`].
    fn tell(&mut self, address: IpAddr, is_full_here: bool) {
        if self.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let (whose, limit) = match is_full_here {
            true => (format!("of {address}"), "limits.connections_per_address"),
            false => ("of all addresses".to_owned(), "limits.connections"),
        };
        tracing::warn!(
            "all permitted connections {whose} are waiting for answers, so the endpoint answers \
                further API calls with 503. Raise {limit}, or let callers send several calls \
                over one connection."
        );
    }
}

impl ConnectionSlot {
    /// Waits until a new connection takes this slot.
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }

    pub(crate) fn reference(&self) -> SlotReference {
        SlotReference {
            table: Arc::clone(&self.table),
            number: self.number,
            is_spare: self.is_spare,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.places().taken.remove(&self.number);
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SlotReference {
    /// Returns true if the connection is above the limits.
    #[must_use]
    pub const fn is_spare(&self) -> bool {
        self.is_spare
    }

    /// Marks the connection as authenticated. The connection keeps its slot while the returned
    /// value exists.
    #[must_use]
    pub fn begin_request(&self) -> Busy {
        if let Some(place) = self.table.places().taken.get_mut(&self.number) {
            place.has_proved = true;
            place.busy += 1;
        }
        Busy(self.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(place) = self.0.table.places().taken.get_mut(&self.0.number) {
            place.busy = place.busy.saturating_sub(1);
            place.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionTable;
    use crate::metrics::Metrics;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
    }

    #[test]
    fn a_new_connection_takes_the_slot_of_an_unauthenticated_one_and_of_no_busy_one() {
        let table = ConnectionTable::with_grace(3, 3, Duration::ZERO);
        let metrics = Arc::new(Metrics::default());
        let take = |last| table.take(address(last), &metrics);
        let works = take(1).expect("a free slot");
        let busy = works.reference().begin_request();
        let proved = take(2).expect("a free slot");
        drop(proved.reference().begin_request());
        let silent = take(3).expect("a free slot");
        let new = take(4).expect("the silent one's place");
        let newer = take(5).expect("the new one's place, who has proved nothing either");
        let has_slot =
            |slot: &super::ConnectionSlot| table.places().taken.contains_key(&slot.number);
        assert!(!has_slot(&silent) && !has_slot(&new) && has_slot(&works) && has_slot(&proved));
        let busier = newer.reference().begin_request();
        let newest = take(6).expect("the idle one's place");
        assert!(!has_slot(&proved) && has_slot(&works));
        let busiest = newest.reference().begin_request();
        let spare = take(7).expect("a place beyond the bounds");
        assert!(spare.reference().is_spare(), "all work");
        drop((busy, busier, busiest));
        assert!(!take(7).expect("a free slot").reference().is_spare());
    }

    #[test]
    fn slots_above_the_limits_are_few_and_an_idle_connection_loses_its_slot() {
        let table = ConnectionTable::with_grace(2, 2, Duration::ZERO);
        let metrics = Arc::new(Metrics::default());
        let take = |last| table.take(address(last), &metrics);
        let works: Vec<_> = (0..2).filter_map(|_| take(1)).collect();
        let busy: Vec<_> = works
            .iter()
            .map(|slot| slot.reference().begin_request())
            .collect();
        let spares: Vec<_> = (0..100).filter_map(|_| take(1)).collect();
        assert_eq!(spares.len(), 100, "each took the place of the one before");
        assert_eq!(table.places().taken.len(), 2 + super::SPARE_OF_ADDRESS);
        let held: Vec<_> = spares
            .iter()
            .map(|slot| slot.reference().begin_request())
            .collect();
        assert!(take(1).is_none(), "those that work keep their places");
        assert!(take(2).expect("another address").reference().is_spare());
        drop((busy, held));
        assert!(!take(1).expect("a free slot").reference().is_spare());
    }

    #[test]
    fn a_young_connection_is_not_the_first_to_lose_its_slot() {
        let table = ConnectionTable::with_grace(2, 2, Duration::from_secs(3_600));
        let metrics = Arc::new(Metrics::default());
        let take = |last| table.take(address(last), &metrics);
        let idle = take(1).expect("a free slot");
        drop(idle.reference().begin_request());
        let new = take(2).expect("a free slot");
        let newer = take(3).expect("the idle one's place");
        let has_slot =
            |slot: &super::ConnectionSlot| table.places().taken.contains_key(&slot.number);
        assert!(!has_slot(&idle) && has_slot(&new) && has_slot(&newer));
    }

    #[test]
    fn one_address_uses_only_the_slots_of_one_address() {
        let (table, metrics) = (ConnectionTable::new(10, 2), Arc::new(Metrics::default()));
        let slots: Vec<_> = (0..6)
            .filter_map(|_| table.take(address(1), &metrics))
            .collect();
        assert_eq!(slots.len(), 6, "each took the place of the one before");
        assert_eq!(table.places().taken.len(), 2);
        drop(slots);
        assert!(table.places().taken.is_empty());
    }
}

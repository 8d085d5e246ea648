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

/// Time that a new connection has for the handshake and the first request. During this time the
/// connection loses its slot last. Without this time, callers that already hold slots could keep
/// all new callers out.
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
    /// Start of the connection's idle time. This is the time of the answer to the last request on
    /// the connection. Before the first answer, this is the time at which the connection arrived.
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
pub(crate) struct Room {
    all_max: usize,
    address_max: usize,
    grace: Duration,
    places: Mutex<Places>,
}

/// The slot of one connection. Dropping this value frees the slot.
#[derive(Debug)]
pub(crate) struct Seat {
    room: Arc<Room>,
    metrics: Arc<Metrics>,
    number: u64,
    is_spare: bool,
    cut: Arc<Notify>,
}

/// A reference from a request to the slot of its connection. The server adds it to the extensions
/// of each request.
#[derive(Debug, Clone)]
pub struct Sitting {
    room: Arc<Room>,
    number: u64,
    is_spare: bool,
}

/// An authenticated request in progress. The connection of the request cannot lose its slot while
/// this value exists.
#[derive(Debug)]
pub struct Busy(Sitting);

impl Room {
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

    /// Gives a new connection a slot. If no slot is free, the weakest idle connection loses its
    /// slot. If all connections have requests in progress, the new connection gets one of a few
    /// slots above the limits. Returns `None` if these are taken too.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr, metrics: &Arc<Metrics>) -> Option<Seat> {
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
        Some(Seat {
            room: Arc::clone(self),
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
    /// Connections without an authenticated request that are older than `grace` come first, then
    /// connections with an authenticated request, then connections younger than `grace`. In each
    /// group the connection with the longest idle time comes first. With `address`, only
    /// connections from that address are considered.
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

impl Seat {
    /// Waits until a new connection takes this slot.
    pub(crate) async fn cut(&self) {
        self.cut.notified().await;
    }

    pub(crate) fn sitting(&self) -> Sitting {
        Sitting {
            room: Arc::clone(&self.room),
            number: self.number,
            is_spare: self.is_spare,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.places().taken.remove(&self.number);
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sitting {
    /// Returns true if the connection is above the limits.
    #[must_use]
    pub const fn is_spare(&self) -> bool {
        self.is_spare
    }

    /// Marks the connection as authenticated. The connection keeps its slot while the returned
    /// value exists.
    #[must_use]
    pub fn works(&self) -> Busy {
        if let Some(place) = self.room.places().taken.get_mut(&self.number) {
            place.has_proved = true;
            place.busy += 1;
        }
        Busy(self.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(place) = self.0.room.places().taken.get_mut(&self.0.number) {
            place.busy = place.busy.saturating_sub(1);
            place.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Room;
    use crate::metrics::Metrics;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
    }

    #[test]
    fn a_newcomer_takes_the_place_of_who_has_proved_nothing_and_of_nobody_who_works() {
        let room = Room::with_grace(3, 3, Duration::ZERO);
        let metrics = Arc::new(Metrics::default());
        let take = |last| room.take(address(last), &metrics);
        let works = take(1).expect("room");
        let busy = works.sitting().works();
        let proved = take(2).expect("room");
        drop(proved.sitting().works());
        let silent = take(3).expect("room");
        let new = take(4).expect("the silent one's place");
        let newer = take(5).expect("the new one's place, who has proved nothing either");
        let sits = |seat: &super::Seat| room.places().taken.contains_key(&seat.number);
        assert!(!sits(&silent) && !sits(&new) && sits(&works) && sits(&proved));
        let busier = newer.sitting().works();
        let newest = take(6).expect("the idle one's place");
        assert!(!sits(&proved) && sits(&works));
        let busiest = newest.sitting().works();
        let spare = take(7).expect("a place beyond the bounds");
        assert!(spare.sitting().is_spare(), "all work");
        drop((busy, busier, busiest));
        assert!(!take(7).expect("room").sitting().is_spare());
    }

    #[test]
    fn places_beyond_the_bounds_are_few_and_none_of_them_is_held() {
        let room = Room::with_grace(2, 2, Duration::ZERO);
        let metrics = Arc::new(Metrics::default());
        let take = |last| room.take(address(last), &metrics);
        let works: Vec<_> = (0..2).filter_map(|_| take(1)).collect();
        let busy: Vec<_> = works.iter().map(|seat| seat.sitting().works()).collect();
        let spares: Vec<_> = (0..100).filter_map(|_| take(1)).collect();
        assert_eq!(spares.len(), 100, "each took the place of the one before");
        assert_eq!(room.places().taken.len(), 2 + super::SPARE_OF_ADDRESS);
        let held: Vec<_> = spares.iter().map(|seat| seat.sitting().works()).collect();
        assert!(take(1).is_none(), "those that work keep their places");
        assert!(take(2).expect("another address").sitting().is_spare());
        drop((busy, held));
        assert!(!take(1).expect("room").sitting().is_spare());
    }

    #[test]
    fn who_has_just_come_is_not_the_first_to_go() {
        let room = Room::with_grace(2, 2, Duration::from_secs(3_600));
        let metrics = Arc::new(Metrics::default());
        let take = |last| room.take(address(last), &metrics);
        let idle = take(1).expect("room");
        drop(idle.sitting().works());
        let new = take(2).expect("room");
        let newer = take(3).expect("the idle one's place");
        let sits = |seat: &super::Seat| room.places().taken.contains_key(&seat.number);
        assert!(!sits(&idle) && sits(&new) && sits(&newer));
    }

    #[test]
    fn one_address_fills_its_own_places_alone() {
        let (room, metrics) = (Room::new(10, 2), Arc::new(Metrics::default()));
        let seats: Vec<_> = (0..6)
            .filter_map(|_| room.take(address(1), &metrics))
            .collect();
        assert_eq!(seats.len(), 6, "each took the place of the one before");
        assert_eq!(room.places().taken.len(), 2);
        drop(seats);
        assert!(room.places().taken.is_empty());
    }
}

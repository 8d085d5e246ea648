//! The sessions that run at this endpoint, driven by this endpoint or by other ends: their owners,
//! peers, rates and memory.
//!
//! Invariant owned here: the memory of all sessions together never exceeds the configured bound. A
//! session that gets a slot always gets its minimum memory too.

mod moving;
mod rates;
mod targets;
mod totals;
mod under_way;

pub use moving::{Moving, Way};
pub use totals::SinkCounts;

use dray_config::Config;
use dray_core::lock::LockExt;
use dray_core::plan;
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::promises::Lack;
use dray_runtime::assembly::BUFFERS_MIN;
use dray_runtime::handle::Handle;
use rates::Rates;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use totals::SinkTotals;

/// A new session gets its minimum memory and 1/`EXTRA_PART` of the memory that is neither used nor
/// reserved. The minimum memory of each free slot is reserved. So the first sessions get more
/// memory, and later sessions still get a part. The value is estimated, not measured.
const EXTRA_PART: u64 = 8;

/// Bytes of memory, for all sessions together, for entries that are announced and not closed. A
/// further 1/8 of the memory for buffers is added.
const LIVE_BYTES: u64 = 24 << 20;

/// Bytes of memory for one entry at each end. Measured: 900 bytes with a name of usual length, and
/// 1 700 bytes with a name of 200 bytes.
const LIVE_ENTRY_BYTES: u64 = 2 << 10;

/// Maximum number of entries of one session: two sync groups of small files.
const LIVE_ENTRIES_MOST: u32 = 8 << 10;

/// Minimum number of entries of one session. It exceeds the depth of any folder tree by far.
const LIVE_ENTRIES_LEAST: u32 = 256;

/// A new session gets at most 1/4 of the free entries. The value is estimated, not measured.
const LIVE_ENTRIES_PART: u32 = 4;

/// Bytes of memory for compiled patterns. A further 1/16 of the memory for buffers is added.
const PATTERN_BYTES: u64 = 40 << 20;

/// Bounds on concurrent sessions.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Total bytes of the buffers of all sessions.
    pub memory: u64,
    /// Maximum number of concurrent sessions, driven by this endpoint or by other ends.
    pub sessions: u32,
    /// Maximum number of concurrent sessions that this endpoint drives. The remaining slots are
    /// reserved for sessions that other ends drive.
    pub own: u32,
    /// Maximum number of concurrent sessions of one owner.
    pub per_owner: u32,
    /// Maximum number of concurrent sessions of one owner that this endpoint drives.
    pub own_of_owner: u32,
}

#[derive(Default)]
struct Table {
    next: u64,
    memory: u64,
    live_entries: u32,
    sessions: BTreeMap<u64, (Arc<Moving>, u64)>,
}

/// The table of all sessions of this endpoint. Clones share the table.
#[derive(Clone)]
pub struct Live(Arc<Inner>);

struct Inner {
    bounds: Bounds,
    rates: Rates,
    table: Mutex<Table>,
    sinks: Arc<SinkTotals>,
}

/// The slot of one session. Dropping this value frees the slot.
pub struct SessionSlot {
    live: Live,
    /// The session in this slot.
    pub moving: Arc<Moving>,
    /// Bytes that the session may use for buffers.
    pub memory: u64,
    /// Maximum number of entries of the session that are announced and not closed.
    pub live_entries: u32,
}

impl Live {
    /// Creates an empty table without configured rates.
    #[cfg(test)]
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self::with(bounds, Rates::default())
    }

    /// Creates an empty table with the rates of the configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self::with(Bounds::of(config), Rates::of(config))
    }

    fn with(bounds: Bounds, rates: Rates) -> Self {
        Self(Arc::new(Inner {
            bounds,
            rates,
            table: Mutex::default(),
            sinks: Arc::default(),
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock_unpoisoned()
    }

    /// Adds a session. Its first rate applies until the next round of shares.
    ///
    /// # Errors
    /// [`ErrorKind::NoPlace`] if no slot is free, or if the owner has the maximum number of
    /// sessions.
    pub fn enter(&self, mut moving: Moving) -> Result<SessionSlot> {
        let bounds = self.0.bounds;
        let mut table = self.table();
        let full = |cause: String| {
            Error::new(ErrorKind::NoPlace, End::Here, "begin a session")
                .cause(cause)
                .remedy("try again later")
        };
        match table.lack(&bounds, &moving.owner, moving.is_own) {
            None => {}
            Some(Lack::InAll) => {
                let count = table.sessions.len();
                return Err(full(format!(
                    "{count} sessions are running, which is the limit"
                )));
            }
            Some(Lack::OfOwner) => {
                let owner = &moving.owner;
                let count = table.count(|other| other.owner == *owner);
                return Err(full(format!(
                    "{count} sessions of {owner} are running, which is the \
                    limit"
                )));
            }
        }
        let count = u32::try_from(table.sessions.len()).unwrap_or(u32::MAX);
        let memory = share(&bounds, count, table.memory);
        let live_entries = bounds.live_entries(count, table.live_entries);
        table.next += 1;
        let number = table.next;
        moving.number = number;
        moving.sinks = Arc::clone(&self.0.sinks);
        table.memory += memory;
        table.live_entries += live_entries;
        let others = table.sessions.values().map(|(other, _)| &**other);
        let (shared, rate) = self.0.rates.first(&moving, others);
        moving.handle = Handle::sharing(shared);
        if rate.is_some() {
            moving.grant(rate);
        }
        let moving = Arc::new(moving);
        table.sessions.insert(number, (Arc::clone(&moving), memory));
        Ok(SessionSlot {
            live: self.clone(),
            moving,
            memory,
            live_entries,
        })
    }

    /// Returns all sessions.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Moving>> {
        let table = self.table();
        table
            .sessions
            .values()
            .map(|(moving, _)| Arc::clone(moving))
            .collect()
    }

    /// Returns the sums of the counters of all sinks since the process started.
    #[must_use]
    pub fn sinks(&self) -> SinkCounts {
        self.0.sinks.read()
    }

    /// Returns the exhausted limit that prevents this endpoint from driving another session of this
    /// owner. Returns `None` if a slot is free.
    #[must_use]
    pub fn lack(&self, owner: &str) -> Option<Lack> {
        self.table().lack(&self.0.bounds, owner, true)
    }

    /// Returns the sessions that neither end holds. Only these sessions can use a share of the
    /// rate.
    #[must_use]
    pub fn flowing(&self) -> Vec<Arc<Moving>> {
        let mut all = self.all();
        all.retain(|moving| !moving.is_still());
        all
    }

    /// Returns the sessions that were opened with a ticket.
    #[must_use]
    pub fn of_ticket(&self, ticket: &str) -> Vec<Arc<Moving>> {
        let mut all = self.all();
        all.retain(|moving| moving.ticket.as_deref() == Some(ticket));
        all
    }

    /// Returns the total bytes of buffers of all sessions.
    #[cfg(test)]
    fn memory(&self) -> u64 {
        self.table().memory
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut table = self.live.table();
        if let Some((_, memory)) = table.sessions.remove(&self.moving.number) {
            table.memory -= memory;
            table.live_entries -= self.live_entries;
        }
    }
}

impl Table {
    fn count(&self, is_counted: impl Fn(&Moving) -> bool) -> usize {
        let sessions = self.sessions.values();
        sessions.filter(|(moving, _)| is_counted(moving)).count()
    }

    fn lack(&self, bounds: &Bounds, owner: &str, is_own: bool) -> Option<Lack> {
        let is_full = |most: u32, of: &dyn Fn(&Moving) -> bool| self.count(of) >= most as usize;
        let is_owners = |other: &Moving| other.owner == owner;
        let is_owner_full = is_full(bounds.per_owner, &is_owners)
            || is_own
                && is_full(bounds.own_of_owner, &|other| {
                    is_owners(other) && other.is_own
                });
        // The owner's limit is checked first. If it is exhausted, a slot that another owner frees
        // does not help.
        if is_owner_full {
            return Some(Lack::OfOwner);
        }
        let is_full_in_all = is_full(bounds.sessions, &|_| true)
            || is_own && is_full(bounds.own, &|other| other.is_own);
        is_full_in_all.then_some(Lack::InAll)
    }
}

impl Bounds {
    /// Returns the bounds that a configuration sets.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let limits = &config.limits;
        let (active, of_owner) = (limits.transfers_active, limits.per_owner_active);
        Self::for_active(limits.memory.0, active, of_owner)
    }

    /// Returns the size in bytes of the largest object that a session with minimum memory can hold.
    /// The limit applies to all sessions: a session with minimum memory must be able to resume a
    /// transfer that a session with more memory started. The result is a power of two, so that no
    /// block of the storage belongs to two objects.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        let fits = self.least() / BUFFERS_MIN;
        let power = fits.checked_ilog2().map_or(0, |power| 1 << power);
        power.min(plan::OBJECT_BYTES_MAX)
    }

    /// Returns bounds for `active` transfers that this endpoint drives, and for `of_owner`
    /// transfers of one owner.
    ///
    /// The number of session slots is twice `active`. The first half is for sessions that this
    /// endpoint drives, and the second half is for sessions that other ends drive. Promised
    /// transfers may exceed the first half by a quarter. They then use slots of the second half.
    /// The other slots of the second half stay reserved for sessions that other ends drive. So if
    /// two endpoints each drive their maximum number of sessions to the other, each endpoint has
    /// slots for the other endpoint's sessions.
    #[must_use]
    pub fn for_active(memory: u64, active: u32, of_owner: u32) -> Self {
        let own = |active: u32| active.saturating_add(active.div_ceil(4));
        // Have at least one slot more than `own`, so that other ends always have a slot. With one
        // active transfer, `own` is two, and twice `active` would also be two.
        let all = |active: u32| active.saturating_mul(2).max(own(active).saturating_add(1));
        let (active, of_owner) = (active.max(1), of_owner.max(1));
        Self {
            memory,
            sessions: all(active),
            own: own(active),
            per_owner: all(of_owner),
            own_of_owner: own(of_owner),
        }
    }

    /// Returns the maximum number of announced and not closed entries of all sessions.
    fn live_entries_all(&self) -> u32 {
        let all = (self.memory / 8).saturating_add(LIVE_BYTES) / LIVE_ENTRY_BYTES;
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    /// Returns the maximum number of entries for one more session, when `count` sessions have
    /// `used` entries. The minimum for every later session stays reserved.
    fn live_entries(&self, count: u32, used: u32) -> u32 {
        let (all, sessions) = (self.live_entries_all(), self.sessions.max(1));
        let least = LIVE_ENTRIES_LEAST.min(all / sessions).max(1);
        let kept = least.saturating_mul(sessions.saturating_sub(count));
        let free = all.saturating_sub(used).saturating_sub(kept);
        least + (free / LIVE_ENTRIES_PART).min(LIVE_ENTRIES_MOST.saturating_sub(least))
    }

    /// Returns the number of entries that the first session gets, which is the maximum.
    #[must_use]
    pub fn live_entries_max(&self) -> u32 {
        self.live_entries(0, 0)
    }

    /// Returns the maximum memory in bytes for the compiled patterns of all sessions. This memory
    /// is not part of the buffers.
    #[must_use]
    pub fn patterns(&self) -> u64 {
        (self.memory / 16).saturating_add(PATTERN_BYTES)
    }

    /// Returns the minimum memory of a session in bytes. Four fifths of the memory are reserved for
    /// these minimums.
    #[must_use]
    pub fn least(&self) -> u64 {
        let places = u64::from(self.sessions.max(1));
        self.memory / (5 * places) * 4
    }
}

/// Returns the memory in bytes for one more session, when `count` sessions have `used` bytes.
fn share(bounds: &Bounds, count: u32, used: u64) -> u64 {
    let places = u64::from(bounds.sessions.max(1));
    let least = bounds.least();
    let kept = least * places.saturating_sub(u64::from(count));
    let extra = bounds.memory.saturating_sub(used).saturating_sub(kept);
    least + extra / EXTRA_PART
}

#[cfg(test)]
mod tests;

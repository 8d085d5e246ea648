//! Counters of running transfers. The counters change often, so this module keeps them in memory.
//! The writing thread stores them in the database once a second.

use super::sqlite::sql;
use crate::events::Hub;
use dray_api::Timestamp;
use dray_api::api_path;
use dray_api::{
    Bytes, ErrorParts, Event, EventKind, Files, Objects, PathError, RateLimitAnswer, Rates, State,
};
use dray_core::lock::LockExt;
use dray_core::profile::Profile;
use dray_core::{Error, RelPath, Result};
use dray_session::Found;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of failures in a transfer's row, and maximum number of notices. The transfer's
/// list of files has all failures.
pub const FAILURES_MAX: usize = 10;

/// Maximum number of `file_failed` events of one transfer per second. Without this limit, a tree of
/// a million unreadable files would displace the events of other transfers.
const FAILED_EVENTS_MAX: u32 = 20;

/// Maximum length of a notice, in bytes.
const NOTICE_BYTES_MAX: usize = 1_024;

/// Time without progress after which a transfer counts as silent. It is longer than a sync group
/// usually takes. The value is estimated, not measured.
const SILENT: Duration = Duration::from_secs(10);

const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Time in seconds over which the present rate is smoothed. The value is estimated, not measured.
const SMOOTH_SECONDS: f64 = 5.0;

/// Time for which a session must have moved data before its rate gives an expected end. The first
/// objects of a session are slow, because the session opens files and connections meanwhile.
const MEASURED: Duration = Duration::from_secs(5);

/// The counters of the present attempt of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Counters of files.
    pub files: Files,
    /// Counters of bytes.
    pub bytes: Bytes,
    /// Counters of objects.
    pub objects: Objects,
    /// Times that the sessions of the attempt spent in each stage.
    pub profile: Profile,
    /// Time at which a session broke off, after which no session has moved data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted_since: Option<Timestamp>,
    /// Number of data streams that are in use; 0 if this end does not know it. Not stored.
    #[serde(skip)]
    pub streams: u32,
}

impl Counters {
    /// Adds the counters of earlier sessions of the same attempt to the counters of a session.
    fn after(mut self, base: &Self) -> Self {
        let has_moved = self.bytes.sent > 0;
        let found = |bytes: &Bytes| Found {
            resumed: bytes.resumed,
            adopted: bytes.adopted,
        };
        let found = found(&self.bytes).after(found(&base.bytes), base.bytes.sent);
        (self.bytes.resumed, self.bytes.adopted) = (found.resumed, found.adopted);
        let known = base.objects.resumed.saturating_add(base.objects.sent);
        self.objects.resumed = base.objects.resumed + self.objects.resumed.saturating_sub(known);
        // A session counts a file as adopted if an earlier session of this attempt has published
        // it. The counters of the attempt must not count such a file as adopted.
        let brought = base.files.done.saturating_sub(base.files.adopted);
        let adopted = self.files.adopted.saturating_sub(brought);
        self.files.adopted = adopted.max(base.files.adopted);
        // With `overwrite: never`, a session skips such a file. For the attempt, the file is done.
        let skipped = self.files.skipped.saturating_sub(brought);
        let skipped = skipped.max(base.files.skipped);
        let found = self.files.skipped.saturating_sub(skipped);
        self.files.done = self.files.done.saturating_add(found);
        self.files.skipped = skipped;
        // Until a session has inspected all files, it has not found all durable data of the earlier
        // sessions again. `settled` drops these maxima.
        self.bytes.listed = self.bytes.listed.max(base.bytes.listed);
        self.bytes.durable = self.bytes.durable.max(base.bytes.durable);
        self.files.listed = self.files.listed.max(base.files.listed);
        self.files.done = self.files.done.max(base.files.done);
        self.bytes.sent = self.bytes.sent.saturating_add(base.bytes.sent);
        self.bytes.read_back = self.bytes.read_back.saturating_add(base.bytes.read_back);
        self.objects.sent = self.objects.sent.saturating_add(base.objects.sent);
        self.profile.join(&base.profile);
        self.interrupted_since = base.interrupted_since.filter(|_| !has_moved);
        self
    }

    /// Returns the counters of the attempt after `session`, which processed all files. The numbers
    /// of listed, complete and durable data are those of this session alone: the session may have
    /// found that data is lost which an earlier session reported as durable. Files that the session
    /// skipped, because an earlier session of the attempt published them, count as complete.
    fn settled(mut self, session: &Self) -> Self {
        let brought = session.files.skipped.saturating_sub(self.files.skipped);
        (self.bytes.listed, self.bytes.durable) = (session.bytes.listed, session.bytes.durable);
        self.files.listed = session.files.listed;
        self.files.done = session.files.done.saturating_add(brought);
        self
    }
}

/// The counters, failures and notices of an attempt at the end of a session.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) counters: Counters,
    /// The counters if the session processed all files. `None` if it has not listed all files.
    pub(super) settled: Option<Counters>,
    /// Duration of the session.
    pub(super) lasted: Duration,
    pub(super) failures: Vec<PathError>,
    pub(super) notices: Vec<String>,
}

/// A running transfer.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) owner: Arc<str>,
    pub(super) version: u64,
    base: Counters,
    /// The counters that the session reported last.
    session: Counters,
    pub(super) counters: Counters,
    pub(super) failures: Vec<PathError>,
    pub(super) notices: VecDeque<String>,
    began: Instant,
    sampled: (Instant, u64),
    /// Time at which the session began to move data.
    flowing: Option<Instant>,
    now: Option<f64>,
    /// The sum of moved bytes and files, with the time of its last change.
    stood: (Instant, u64),
    granted: Option<u64>,
    limit: Option<RateLimitAnswer>,
    /// True if the transfer has a session, and the policy lets it move nothing.
    pub(super) is_held: bool,
    told: Option<Instant>,
    failed_told: (Instant, u32),
    is_dirty: bool,
    /// True after the end of the session. Later counts are dropped.
    is_ended: bool,
}

impl Run {
    pub(super) fn new(
        owner: Arc<str>,
        version: u64,
        base: Counters,
        failures: Vec<PathError>,
        notices: Vec<String>,
    ) -> Self {
        let now = Instant::now();
        Self {
            owner,
            version,
            base,
            session: Counters::default(),
            counters: base,
            failures,
            notices: notices.into(),
            began: now,
            sampled: (now, 0),
            flowing: None,
            now: None,
            stood: (now, 0),
            granted: None,
            limit: None,
            is_held: false,
            told: None,
            failed_told: (now, 0),
            is_dirty: false,
            is_ended: false,
        }
    }

    /// Ends the counting of a session and returns the final counters, failures and notices. Later
    /// counts are dropped.
    pub(super) fn end(&mut self) -> Counted {
        (self.is_ended, self.is_dirty) = (true, false);
        let is_listed = self.session.files.listing_done;
        Counted {
            counters: self.counters,
            settled: is_listed.then(|| self.counters.settled(&self.session)),
            lasted: self.began.elapsed(),
            failures: self.failures.clone(),
            notices: self.notices.iter().cloned().collect(),
        }
    }

    pub(super) fn rates(&self) -> Rates {
        let seconds = self.began.elapsed().as_secs_f64();
        let session = self
            .counters
            .bytes
            .sent
            .saturating_sub(self.base.bytes.sent);
        Rates {
            now: self
                .now
                .map(|rate| if self.is_held { 0 } else { rate as u64 }),
            mean: (seconds > 0.1).then(|| (session as f64 / seconds) as u64),
            planned: None,
            reason: None,
            granted: if self.is_held { Some(0) } else { self.granted },
        }
    }

    /// Returns the number of data streams that are in use, or `None` if it is unknown.
    pub(super) fn streams(&self) -> Option<u32> {
        let streams = self.counters.streams;
        (streams > 0 && !self.is_ended).then_some(streams)
    }

    pub(super) fn eta(&self, now: Timestamp) -> Option<Timestamp> {
        let bytes = &self.counters.bytes;
        let rate = self.rates().now.filter(|rate| *rate > 0)?;
        // The smoothed rate of a silent transfer would only decay slowly, so return no rate.
        if self.silent_seconds().is_some() {
            return None;
        }
        if !self.counters.files.listing_done {
            return None;
        }
        if self.flowing?.elapsed() < MEASURED {
            return None;
        }
        let rest = bytes.listed.saturating_sub(bytes.durable);
        Some(now.after(Duration::from_secs(rest / rate)))
    }

    /// Returns the seconds since bytes last moved, if the transfer is silent. Returns `None` for a
    /// held transfer, because it is silent on purpose.
    pub(super) fn silent_seconds(&self) -> Option<u64> {
        let silent = self.stood.0.elapsed();
        (silent >= SILENT && !self.is_held && !self.is_ended).then_some(silent.as_secs())
    }

    /// Returns the limit that determines the granted rate.
    pub(super) fn limit(&self) -> Option<RateLimitAnswer> {
        self.limit
            .clone()
            .filter(|_| !self.is_held && !self.is_ended)
    }

    fn note(&mut self, notice: String) {
        // Keep a repeated notice only once, as the newest one.
        self.notices.retain(|known| *known != notice);
        if self.notices.len() == FAILURES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    fn sample(&mut self, sent: u64) {
        let (then, before) = self.sampled;
        let seconds = then.elapsed().as_secs_f64();
        if seconds < 0.2 {
            return;
        }
        let rate = sent.saturating_sub(before) as f64 / seconds;
        if sent > before {
            self.flowing.get_or_insert(then);
        }
        // Until the session has moved data for the whole time of the smoothing, the present rate is
        // the mean rate since the first data.
        let flowed = self
            .flowing
            .map_or(0.0, |since| since.elapsed().as_secs_f64());
        let weight = (seconds / flowed.clamp(seconds, seconds.max(SMOOTH_SECONDS))).min(1.0);
        self.now = Some(match self.now {
            None => rate,
            Some(now) => now + (rate - now) * weight,
        });
        self.sampled = (Instant::now(), sent);
    }
}

/// All running transfers.
#[derive(Debug, Default)]
pub(super) struct Live {
    runs: Mutex<HashMap<String, Run>>,
    bytes_sent: AtomicU64,
    pub(super) holds: Holds,
}

/// Counters of held transfers since the start of the process. A held transfer moves no data,
/// because the policy prefers other transfers. It keeps its session, or gives up the session to
/// another transfer.
#[derive(Debug, Default)]
pub struct Holds {
    /// Number of times that the policy held a transfer.
    pub begun: AtomicU64,
    /// Number of sessions that transfers gave up in favour of other transfers.
    pub release: AtomicU64,
}

impl Live {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        self.runs.lock_unpoisoned()
    }

    pub(super) fn progress(&self, hub: &Hub, id: &str, session: &Counters, now: Timestamp) {
        let mut runs = self.lock();
        let Some(run) = runs.get_mut(id).filter(|run| !run.is_ended) else {
            return;
        };
        run.sample(session.bytes.sent);
        let before = run.counters.bytes.sent;
        (run.session, run.counters) = (*session, session.after(&run.base));
        let (bytes, files) = (&session.bytes, &session.files);
        let parts = [
            bytes.sent,
            bytes.durable,
            bytes.listed,
            files.done,
            files.failed,
            files.listed,
        ];
        let sum = parts.iter().fold(0u64, |sum, part| sum.wrapping_add(*part));
        if run.stood.1 != sum {
            run.stood = (Instant::now(), sum);
        }
        let more = run.counters.bytes.sent.saturating_sub(before);
        self.bytes_sent.fetch_add(more, Ordering::Relaxed);
        run.is_dirty = true;
        if run.told.is_some_and(|told| told.elapsed() < EVENT_INTERVAL) {
            return;
        }
        run.told = Some(Instant::now());
        let event = Event {
            transfer: Some(id.to_owned()),
            state: Some(State::Active),
            version: Some(run.version),
            files: Some(run.counters.files),
            bytes: Some(run.counters.bytes),
            rate: Some(run.rates()),
            streams: run.streams(),
            ..Event::new(EventKind::Progress, now)
        };
        let owner = Arc::clone(&run.owner);
        drop(runs);
        hub.publish(Some(owner), event);
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }

    pub(super) fn granted(&self, id: &str, rate: Option<u64>, limit: Option<RateLimitAnswer>) {
        if let Some(run) = self.lock().get_mut(id) {
            (run.granted, run.limit) = (rate, limit);
        }
    }

    /// Records that a running transfer is held or resumes, and publishes the event.
    pub(super) fn held(&self, hub: &Hub, id: &str, is_held: bool, now: Timestamp) {
        let mut runs = self.lock();
        let Some(run) = runs.get_mut(id).filter(|run| !run.is_ended) else {
            return;
        };
        if std::mem::replace(&mut run.is_held, is_held) == is_held {
            return;
        }
        if is_held {
            self.holds.begun.fetch_add(1, Ordering::Relaxed);
        }
        let event = Event {
            transfer: Some(id.to_owned()),
            state: Some(State::Active),
            version: Some(run.version),
            held: Some(is_held),
            ..Event::new(EventKind::State, now)
        };
        let owner = Arc::clone(&run.owner);
        drop(runs);
        hub.publish(Some(owner), event);
    }

    pub(super) fn held_now(&self) -> usize {
        let runs = self.lock();
        runs.values()
            .filter(|run| run.is_held && !run.is_ended)
            .count()
    }

    pub(super) fn file_failed(
        &self,
        hub: &Hub,
        id: &str,
        path: &RelPath,
        error: &Error,
        now: Timestamp,
    ) {
        let mut runs = self.lock();
        let Some(run) = runs.get_mut(id) else {
            return;
        };
        let failure = PathError {
            path: api_path::encode(path.as_bytes()),
            error: error.into(),
        };
        if run.failures.len() < FAILURES_MAX {
            run.failures.push(failure.clone());
        }
        let (since, count) = &mut run.failed_told;
        if since.elapsed() >= EVENT_INTERVAL {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        if *count > FAILED_EVENTS_MAX {
            return;
        }
        let owner = Arc::clone(&run.owner);
        drop(runs);
        let event = Event {
            transfer: Some(id.to_owned()),
            path: Some(failure.path),
            error: Some(failure.error),
            ..Event::new(EventKind::FileFailed, now)
        };
        hub.publish(Some(owner), event);
    }

    pub(super) fn noticed(&self, hub: &Hub, id: &str, notice: &str, now: Timestamp) {
        let mut runs = self.lock();
        let Some(run) = runs.get_mut(id) else {
            return;
        };
        let fits = |(at, character): &(usize, char)| at + character.len_utf8() <= NOTICE_BYTES_MAX;
        let characters = notice.char_indices().take_while(fits);
        let notice: String = characters.map(|(_, character)| character).collect();
        run.note(notice.clone());
        let owner = Arc::clone(&run.owner);
        drop(runs);
        let event = Event {
            transfer: Some(id.to_owned()),
            notice: Some(notice),
            ..Event::new(EventKind::Notice, now)
        };
        hub.publish(Some(owner), event);
    }

    /// Adds a notice to a running transfer, but publishes no event. Returns false if the transfer
    /// is not running.
    pub(super) fn noted(&self, id: &str, notice: &str) -> bool {
        let mut runs = self.lock();
        let run = runs.get_mut(id).filter(|run| !run.is_ended);
        run.map(|run| run.note(notice.to_owned())).is_some()
    }

    /// Writes the changed counters to the database.
    pub(super) fn flush(&self, connection: &Connection) -> Result<()> {
        let changed: Vec<(String, Counters)> = {
            let mut runs = self.lock();
            let changed = runs.iter_mut().filter(|(_, run)| run.is_dirty);
            changed
                .map(|(id, run)| {
                    run.is_dirty = false;
                    (id.clone(), run.counters)
                })
                .collect()
        };
        for (id, counters) in changed {
            write(connection, &id, &counters)?;
        }
        Ok(())
    }
}

pub(super) fn write(connection: &Connection, id: &str, counters: &Counters) -> Result<()> {
    let body = super::sqlite::json(counters)?;
    // Write only if the transfer still exists. It may have been deleted since.
    connection
        .prepare_cached(
            "INSERT INTO counters (transfer, body) SELECT id, ?2 FROM transfers WHERE id = ?1
             ON CONFLICT (transfer) DO UPDATE SET body = excluded.body",
        )
        .and_then(|mut statement| statement.execute((id, body)))
        .map_err(sql("store the counters of the transfer"))?;
    Ok(())
}

/// Converts an error to the type of the API.
pub(super) fn parts(error: &Error) -> ErrorParts {
    error.into()
}

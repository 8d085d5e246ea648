//! Changes a running transfer from another thread, in the current session and in later ones.

use crate::local;
use crossbeam_channel::Sender;
use dray_core::Error;
use dray_core::lock::LockExt;
use dray_link::link::{SinkEvent, SourceEvent};
use dray_link::pace::SharedRates;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Event channel of a running session.
#[derive(Clone)]
pub(crate) enum Live {
    Source(Sender<SourceEvent>),
    Sink(Sender<SinkEvent>),
}

#[derive(Default)]
struct Wishes {
    /// Set when the transfer must stop. True if the partial data must be deleted too.
    stop: Option<bool>,
    /// The rate limit that was set last; `None` if it was never set.
    rate: Option<Option<u64>>,
    /// Rates that the sessions of this transfer share with sessions of other transfers.
    shared: Option<SharedRates>,
    live: Option<Live>,
}

/// Changes a running transfer from another thread.
#[derive(Clone, Default)]
pub struct Handle(Arc<(Mutex<Wishes>, Condvar)>);

impl Handle {
    /// Creates the handle of a transfer that is subject to the `shared` rates from its first byte.
    #[must_use]
    pub fn sharing(shared: SharedRates) -> Self {
        let handle = Self::default();
        handle.wishes().shared = Some(shared);
        handle
    }

    /// Returns the rates that the sessions of this transfer share with other sessions. A sink
    /// passes the rates to its receivers when they start.
    #[must_use]
    pub fn shared_rates(&self) -> SharedRates {
        self.wishes().shared.get_or_insert_default().clone()
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.0.0.lock_unpoisoned()
    }

    /// Stops the transfer. Durable data is kept, unless `purge` is set.
    pub fn cancel(&self, purge: bool) {
        let mut wishes = self.wishes();
        wishes.stop = Some(purge);
        if let Some(live) = &wishes.live {
            live.cancel(purge);
        }
        self.0.1.notify_all();
    }

    /// Ends the current session and keeps the durable data. The other end receives `error` as the
    /// reason. The transfer is not cancelled: a driver may start another session, unless `error` is
    /// permanent.
    pub fn end_session(&self, error: Error) {
        match &self.wishes().live {
            Some(Live::Source(events)) => {
                let stopping = dray_session::source::Input::Stopping(error);
                let _ = events.send(SourceEvent::Input(stopping));
            }
            Some(Live::Sink(events)) => {
                let stopping = dray_session::sink::Input::Stopping(error);
                let _ = events.send(SinkEvent::Input(stopping));
            }
            None => {}
        }
    }

    /// Sets the rate limit in bytes per second. `None` removes the limit. 0 pauses the transfer,
    /// even within an object, and keeps the session.
    pub fn set_rate(&self, rate: Option<u64>) {
        let mut wishes = self.wishes();
        wishes.rate = Some(rate);
        if let Some(live) = &wishes.live {
            live.set_rate(rate);
        }
    }

    /// Returns the rate limit that was set last, or `None` if no limit was ever set.
    #[must_use]
    pub fn rate(&self) -> Option<Option<u64>> {
        self.wishes().rate
    }

    /// Returns true if a stop was requested.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.wishes().stop.is_some()
    }

    /// Attaches the executor of a session. The executor gets the requests that were made before the
    /// session began.
    pub(crate) fn attach(&self, live: Live) {
        let mut wishes = self.wishes();
        if let (Live::Source(events), Some(shared)) = (&live, &wishes.shared) {
            let _ = events.send(SourceEvent::Shared(shared.clone()));
        }
        if let Some(rate) = wishes.rate {
            live.set_rate(rate);
        }
        if let Some(purge) = wishes.stop {
            live.cancel(purge);
        }
        wishes.live = Some(live);
    }

    /// Attaches a copy on this host. The copy gets the requests that were made before it began.
    pub fn attach_local(&self, stopper: &local::Stopper) {
        self.attach(Live::Source(stopper.events().clone()));
    }

    /// Does the same as [`Handle::attach_local`], for a session that another host drives and in
    /// which this end reads.
    pub fn attach_source(&self, events: &Sender<SourceEvent>) {
        self.attach(Live::Source(events.clone()));
    }

    /// Does the same as [`Handle::attach_source`], for a session in which this end writes.
    pub fn attach_sink(&self, events: &Sender<SinkEvent>) {
        self.attach(Live::Sink(events.clone()));
    }

    /// Waits for `wait`, and returns true. Returns false early if a stop is requested.
    pub(crate) fn sleep(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut wishes = self.wishes();
        while wishes.stop.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.0.1.wait_timeout(wishes, left);
            wishes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

impl Live {
    fn cancel(&self, purge: bool) {
        // If the executor has ended, sending fails. The executor then needs no request.
        match self {
            Self::Source(events) => {
                let cancel = dray_session::source::Input::Cancel { purge };
                let _ = events.send(SourceEvent::Input(cancel));
            }
            Self::Sink(events) => {
                let cancel = dray_session::sink::Input::Cancel { purge };
                let _ = events.send(SinkEvent::Input(cancel));
            }
        }
    }

    fn set_rate(&self, rate: Option<u64>) {
        match self {
            Self::Source(events) => {
                let set = dray_session::source::Input::SetRate(rate);
                let _ = events.send(SourceEvent::Input(set));
            }
            Self::Sink(events) => {
                let set = dray_session::sink::Input::SetRate(rate);
                let _ = events.send(SinkEvent::Input(set));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Handle;
    use dray_link::link::SourceEvent;
    use dray_session::source::Input;
    use std::time::{Duration, Instant};

    #[test]
    fn requests_made_before_a_session_reach_the_session() {
        let handle = Handle::default();
        handle.set_rate(Some(7));
        handle.cancel(true);
        let (events_in, events) = crossbeam_channel::unbounded();
        handle.attach_source(&events_in);
        let heard: Vec<_> = events.try_iter().collect();
        assert!(matches!(
            heard.as_slice(),
            [
                SourceEvent::Input(Input::SetRate(Some(7))),
                SourceEvent::Input(Input::Cancel { purge: true })
            ]
        ));
    }

    #[test]
    fn a_stop_ends_a_wait() {
        let handle = Handle::default();
        let other = handle.clone();
        let began = Instant::now();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.cancel(false);
        });
        assert!(!handle.sleep(Duration::from_secs(60)));
        assert!(began.elapsed() < Duration::from_secs(30));
        stopper.join().expect("ran");
    }
}

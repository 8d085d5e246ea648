//! Changes a running transfer from another thread, whichever of its sessions runs.

use crate::link::{SinkEvent, SourceEvent};
use crate::local;
use crate::pace::SharedRates;
use crossbeam_channel::Sender;
use dray_core::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A running session's ear.
#[derive(Clone)]
pub(super) enum Live {
    Source(Sender<SourceEvent>),
    Sink(Sender<SinkEvent>),
}

#[derive(Default)]
struct Wishes {
    /// Whether it is to stop, and then whether partial data go too.
    stop: Option<bool>,
    /// The rate, once somebody has said one.
    rate: Option<Option<u64>>,
    /// What its sessions share with those of others.
    shared: Option<SharedRates>,
    live: Option<Live>,
}

/// Changes a running transfer from another thread.
#[derive(Clone, Default)]
pub struct Handle(Arc<(Mutex<Wishes>, Condvar)>);

impl Handle {
    /// For a transfer whose bytes are also subject to these rates, from the first byte.
    #[must_use]
    pub fn sharing(shared: SharedRates) -> Self {
        let handle = Self::default();
        handle.wishes().shared = Some(shared);
        handle
    }

    /// What its sessions share with those of others. A sink's receivers are given it when they begin.
    #[must_use]
    pub fn shared_rates(&self) -> SharedRates {
        self.wishes().shared.get_or_insert_default().clone()
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to stop; what is safe stays safe, unless `purge`.
    pub fn cancel(&self, purge: bool) {
        let mut wishes = self.wishes();
        wishes.stop = Some(purge);
        if let Some(live) = &wishes.live {
            live.cancel(purge);
        }
        self.0.1.notify_all();
    }

    /// Ends the session that runs now, keeping what is safe; the other end hears why. No
    /// cancellation: a driver may come again, unless the error tells it not to.
    pub fn leave(&self, error: Error) {
        match &self.wishes().live {
            Some(Live::Source(events)) => {
                let leave = dray_session::source::Input::Leave(error);
                let _ = events.send(SourceEvent::Input(leave));
            }
            Some(Live::Sink(events)) => {
                let leave = dray_session::sink::Input::Leave(error);
                let _ = events.send(SinkEvent::Input(leave));
            }
            None => {}
        }
    }

    /// Bytes per second from now on; `None` lifts the limit, 0 stops it within an object and keeps the
    /// session.
    pub fn set_rate(&self, rate: Option<u64>) {
        let mut wishes = self.wishes();
        wishes.rate = Some(rate);
        if let Some(live) = &wishes.live {
            live.set_rate(rate);
        }
    }

    /// What was said last of its rate, if anything was.
    #[must_use]
    pub fn rate(&self) -> Option<Option<u64>> {
        self.wishes().rate
    }

    /// Whether somebody asked to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.wishes().stop.is_some()
    }

    /// A session's conductor listens: it hears what was wished before it began.
    pub(super) fn attach(&self, live: Live) {
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

    /// The same for a copy on this host.
    pub fn attach_local(&self, stopper: &local::Stopper) {
        self.attach(Live::Source(stopper.events().clone()));
    }

    /// The same for a session that another host drives and this end reads for.
    pub fn attach_source(&self, events: &Sender<SourceEvent>) {
        self.attach(Live::Source(events.clone()));
    }

    /// The same where this end writes.
    pub fn attach_sink(&self, events: &Sender<SinkEvent>) {
        self.attach(Live::Sink(events.clone()));
    }

    /// Waits; false when somebody asked to stop.
    pub(super) fn sleep(&self, wait: Duration) -> bool {
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
        // A conductor that has ended does not listen.
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
    use crate::link::SourceEvent;
    use dray_session::source::Input;
    use std::time::{Duration, Instant};

    #[test]
    fn wishes_from_before_a_session_reach_it() {
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

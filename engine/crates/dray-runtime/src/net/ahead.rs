//! Data connections that are made while their session is still being asked for.
//!
//! A connection needs TCP, TLS and a challenge before it can join: three round trips, for which the
//! session's ticket is not needed. So the driver does them beside those of the control connection, and
//! has streams to join when ACCEPT brings the ticket. Those that are not needed then are closed.

use super::channel::Channel;
use super::dial::secure;
use super::{Timing, fail, join, socket};
use crossbeam_channel::{Receiver, unbounded};
use dray_core::Result;
use dray_wire::codec::{Challenge, Connection, Security};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Connections made ahead at the most. Each has one of the listener's places for those that have not
/// proved themselves, as long as the other end prepares the session (guess, revisit).
const AHEAD_MAX: u16 = 4;

/// How streams of one session are connected, wherever to.
pub(super) struct Way {
    pub(super) bind: Vec<IpAddr>,
    pub(super) timing: Timing,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    pub(super) security: Security,
}

/// A connection that may join, and has not said whom.
pub(super) struct Ready {
    pub(super) channel: Channel,
    pub(super) challenge: Challenge,
    since: Instant,
}

impl Way {
    /// Connects to `address`, from number `turn` of this host's addresses, and hears the challenge.
    pub(super) fn connect(&self, address: &str, turn: usize) -> Result<Ready> {
        let since = Instant::now();
        let stream = socket::connect(address, &self.bind, turn, self.timing.connect)?;
        let until = Instant::now() + self.timing.handshake;
        let socket = socket::Socket::new(Arc::new(stream), until);
        let mut channel = secure(
            socket,
            Connection::Data,
            self.security,
            &self.tls,
            &self.name,
        )
        .map_err(|error| fail::io_error(format!("open a stream to {address}"), &error))?;
        let challenge = join::hear(&mut channel)?;
        Ok(Ready {
            channel,
            challenge,
            since,
        })
    }
}

/// Connections under way; dropped, they are closed.
pub(super) struct Ahead {
    way: Arc<Way>,
    ready: Receiver<Result<Ready>>,
    unclaimed: AtomicUsize,
}

impl Ahead {
    /// Begins to connect to `address`, for `streams` of them if they are not too many.
    pub(super) fn begin(way: &Arc<Way>, address: &str, streams: u16) -> Self {
        let (ready_in, ready) = unbounded();
        let mut started = 0;
        for turn in 0..streams.min(AHEAD_MAX) {
            let (way, to, done) = (Arc::clone(way), address.to_owned(), ready_in.clone());
            let connect = move || {
                let connected = way.connect(&to, turn.into());
                if let Err(unwanted) = done.send(connected) {
                    give_back(unwanted.into_inner());
                }
            };
            let thread = thread::Builder::new().name("dray-ahead".to_owned());
            // One that is not made ahead is made when it is due.
            started += usize::from(thread.spawn(connect).is_ok());
        }
        Self {
            way: Arc::clone(way),
            ready,
            unclaimed: AtomicUsize::new(started),
        }
    }

    /// The next of them, waited for; `None` when one has to be made anew. That is so as well when
    /// the listener may have lost patience with it.
    pub(super) fn next(&self) -> Option<Result<Ready>> {
        let claim = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.unclaimed.fetch_update(order, order, claim).ok()?;
        let next = self.ready.recv().ok()?;
        match &next {
            Ok(ready) if ready.since.elapsed() > self.way.timing.handshake / 2 => {
                give_back(next);
                None
            }
            _ => Some(next),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.ready.try_iter().for_each(give_back);
    }
}

/// Says that nothing comes, so that the listener need not wonder.
fn give_back(connected: Result<Ready>) {
    if let Ok(mut ready) = connected {
        ready.channel.end();
    }
}

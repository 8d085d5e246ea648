//! Data connections that the driver makes while the passive end still prepares the session.
//!
//! A connection needs TCP, TLS and a challenge before it can join a session. These three round
//! trips do not need the session's ticket. So the driver makes the connections in parallel with the
//! control connection, and has streams ready to join when ACCEPT brings the ticket. The driver
//! closes connections that the session does not use.

use super::channel::{Channel, secure};
use super::socket::has_left;
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

/// Maximum number of connections made in advance for one session. Each one occupies an entry in the
/// listener's set of pending connections while the other end prepares the session. The value is
/// estimated, not measured.
const PRECONNECT_MAX: u16 = 4;

/// Maximum number of connections made in advance by all sessions of this process. All sessions may
/// dial the same listener, so this is half of the listener's `pending_max`. The value is estimated,
/// not measured.
const PRECONNECT_IN_PROCESS_MAX: usize = 32;

/// Number of connections, over all sessions, that were made in advance and that no session has
/// taken yet.
static PRECONNECTED: AtomicUsize = AtomicUsize::new(0);

/// Parameters with which the streams of a session are connected. The address is a separate
/// argument.
pub(super) struct Dialer {
    pub(super) bind: Vec<IpAddr>,
    pub(super) timing: Timing,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    pub(super) security: Security,
}

/// A connection that has received the challenge, and can join any session.
pub(super) struct Ready {
    pub(super) channel: Channel,
    pub(super) challenge: Challenge,
    since: Instant,
}

impl Dialer {
    /// Connects to `address` and receives the challenge. `turn` selects one of the local addresses
    /// in `bind`.
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

/// One unit of a limited counter. Dropping it decrements the counter.
struct Counted(&'static AtomicUsize);

impl Counted {
    fn take(count: &'static AtomicUsize, most: usize) -> Option<Self> {
        let claim = |taken: usize| (taken < most).then_some(taken + 1);
        let order = Ordering::Relaxed;
        count.fetch_update(order, order, claim).ok()?;
        Some(Self(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Result of a connection attempt. The attempt counts as made ahead until it is claimed.
struct Attempt {
    connected: Result<Ready>,
    _counted: Counted,
}

/// Connections that are being made in advance. Dropping this closes the connections that no stream
/// has claimed.
pub(super) struct Preconnected {
    way: Arc<Dialer>,
    made: Receiver<Attempt>,
    unclaimed: AtomicUsize,
}

impl Preconnected {
    /// Starts to connect to `address`, once for each of `streams` streams, but at most
    /// [`PRECONNECT_MAX`] times, and only while the process has fewer than
    /// [`PRECONNECT_IN_PROCESS_MAX`] such connections.
    pub(super) fn begin(way: &Arc<Dialer>, address: &str, streams: u16) -> Self {
        let (made_in, made) = unbounded();
        let mut started = 0;
        for turn in 0..streams.min(PRECONNECT_MAX) {
            let Some(counted) = Counted::take(&PRECONNECTED, PRECONNECT_IN_PROCESS_MAX) else {
                break;
            };
            let (way, to, done) = (Arc::clone(way), address.to_owned(), made_in.clone());
            let connect = move || {
                let made = Attempt {
                    connected: way.connect(&to, turn.into()),
                    _counted: counted,
                };
                if let Err(unwanted) = done.send(made) {
                    give_back(unwanted.into_inner().connected);
                }
            };
            let thread = thread::Builder::new().name("dray-ahead".to_owned());
            // If the system refuses the thread, the stream connects later.
            started += usize::from(thread.spawn(connect).is_ok());
        }
        Self {
            way: Arc::clone(way),
            made,
            unclaimed: AtomicUsize::new(started),
        }
    }

    /// Waits for the next connection that was made in advance. Returns `None` if the caller must
    /// make a new connection: because no connection is left, because the listener's timeout for the
    /// connection may have passed, or because the listener has evicted the connection.
    pub(super) fn next(&self) -> Option<Result<Ready>> {
        let claim = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.unclaimed.fetch_update(order, order, claim).ok()?;
        let next = self.made.recv().ok()?.connected;
        let patience = self.way.timing.handshake / 2;
        let is_late = |ready: &Ready| {
            ready.since.elapsed() > patience || has_left(ready.channel.socket().stream())
        };
        if next.as_ref().is_ok_and(is_late) {
            give_back(next);
            return None;
        }
        Some(next)
    }
}

impl Drop for Preconnected {
    fn drop(&mut self) {
        self.made
            .try_iter()
            .for_each(|made| give_back(made.connected));
    }
}

/// Ends an unused connection in the way that the protocol demands, so that the listener neither
/// waits for it nor reports an error.
fn give_back(connected: Result<Ready>) {
    if let Ok(mut ready) = connected {
        ready.channel.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Dialer, Preconnected};
    use crate::{Fingerprint, Timing, Trust, client_config};
    use dray_wire::codec::{Challenge, PREAMBLE_BYTES, Security, encode_challenge};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_connection_that_the_listener_has_closed_is_not_given() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address").to_string();
        let pin = format!("sha256:{}", "5a".repeat(32));
        let pin = pin.parse::<Fingerprint>().expect("a fingerprint");
        let (tls, _) = client_config(&Trust::Key(pin), None).expect("a configuration");
        let way = Arc::new(Dialer {
            bind: Vec::new(),
            timing: Timing::default(),
            tls,
            name: "localhost".try_into().expect("a name"),
            security: Security::Clear,
        });
        let ahead = Preconnected::begin(&way, &address, 2);
        let challenge = || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut preamble = [0; PREAMBLE_BYTES];
            stream.read_exact(&mut preamble).expect("a preamble");
            let frame = encode_challenge(&Challenge([0x5a; 32]));
            stream.write_all(&frame).expect("sent");
            stream
        };
        let (shown_out, _kept) = (challenge(), challenge());
        drop(shown_out);
        let given: Vec<_> = (0..2).map(|_| ahead.next()).collect();
        let alive = given.iter().flatten().filter(|ready| ready.is_ok()).count();
        assert_eq!((alive, given.iter().flatten().count()), (1, 1));
        assert!(ahead.next().is_none(), "there were two");
    }

    #[test]
    fn all_sessions_together_make_so_many_ahead() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let first = Counted::take(&COUNT, 2).expect("the first");
        let _second = Counted::take(&COUNT, 2).expect("the second");
        assert!(Counted::take(&COUNT, 2).is_none());
        drop(first);
        assert!(Counted::take(&COUNT, 2).is_some());
    }
}

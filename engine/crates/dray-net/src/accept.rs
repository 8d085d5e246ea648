//! Accepts connections. Each connection gets its own thread, which determines the kind of the
//! connection.
//!
//! If the system refuses a thread, the **porter** serves the connection. The porter is one thread
//! that the listener starts at the beginning; it serves such connections in sequence. A caller that
//! requests a session receives from the porter the reason why the session is refused. A data stream
//! is not refused: the porter adds the stream to the session that the stream names, because a data
//! stream may need no thread of its own.

use super::channel::Channel;
use super::handler::Handler;
use super::handshake::Greeting;
use super::passive::ListenerState;
use super::pending::PendingSlot;
use super::sniff::{self, FirstBytes};
use super::socket::{self, Socket};
use super::{Caller, fail};
use crossbeam_channel::{Receiver, Sender, bounded};
use dray_core::{Error, Result};
use dray_link::threads::refused;
use dray_wire::codec::{Connection, PREAMBLE_BYTES, Preamble, Security};
use rustls::ServerConnection;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Pause after the system refused a connection. It keeps the accept loop from spinning while file
/// descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval at which the listener checks whether the threads of evicted connections have ended.
const ENDING_PAUSE: Duration = Duration::from_millis(1);

/// Maximum time for which the porter waits for one connection, because all other new connections
/// wait meanwhile. The value is estimated, not measured.
const PORTER_TIME: Duration = Duration::from_secs(1);

/// Counts one running connection thread until dropped.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection for which the system refused a thread.
pub(super) struct Unattended {
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    /// The system's error when the thread was refused.
    lack: Error,
}

/// Handle to the porter. The porter ends after the last handle is dropped.
#[derive(Clone)]
pub(super) struct Porter(Sender<Unattended>);

impl Porter {
    /// Returns a handle to a porter with a queue of at most `waiting_max` connections, and the
    /// receiver of the queue.
    pub(super) fn new(waiting_max: usize) -> (Self, Receiver<Unattended>) {
        let (waiting_in, waiting) = bounded(waiting_max.max(1));
        (Self(waiting_in), waiting)
    }

    /// Queues a connection for the porter, or closes it if the queue is full.
    ///
    /// # Errors
    /// If the queue is full: the error with which the system refused a thread for this connection.
    fn leave(&self, caller: Unattended) -> Result<()> {
        (self.0.try_send(caller)).map_err(|full| full.into_inner().lack)
    }
}

impl ListenerState {
    /// Accepts the connections of a socket until the listener stops.
    pub(super) fn accept<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        socket: &TcpListener,
        handler: &'env dyn Handler,
        porter: &Porter,
    ) {
        // Count `pending_max` twice: the threads of evicted connections may still run for a short
        // time.
        let most = 2 * self.serve.pending_max.max(1) + self.serve.sessions_max;
        loop {
            let accepted = socket.accept();
            if self.is_stopping.load(Ordering::Acquire) {
                return;
            }
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Some(lack) = self.lack.of(&error) {
                        handler.nobody_gets_in(&lack);
                    }
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            // If the maximum number of threads runs, accept no further connection until one of them
            // ends. Otherwise a flood of connections could exhaust threads, and other callers would
            // be refused.
            while self.running.load(Ordering::Acquire) >= most {
                if self.is_stopping.load(Ordering::Acquire) {
                    return;
                }
                thread::sleep(ENDING_PAUSE);
            }
            self.running.fetch_add(1, Ordering::AcqRel);
            let running = Running(&self.running);
            let stream = Arc::new(stream);
            let own = Arc::clone(&stream);
            // Admit the connection here and not in its thread, so that connections are admitted in
            // the order in which they arrived. Otherwise the late thread of an older connection
            // could evict a newer one.
            let pending = self.pending.admit(&stream);
            let started = thread::Builder::new()
                .name("dray-session".to_owned())
                .spawn_scoped(scope, move || {
                    let _running = running;
                    self.attended(own, peer, pending, handler, None);
                });
            if let Err(error) = started {
                let lack = refused(&error);
                let caller = Unattended { stream, peer, lack };
                let _ = (porter.leave(caller)).inspect_err(|lack| handler.rejected(peer, lack));
            }
        }
    }

    /// Runs the porter: serves the queued connections in sequence, until all handles are dropped.
    pub(super) fn attend(&self, unattended: &Receiver<Unattended>, handler: &dyn Handler) {
        for Unattended { stream, peer, lack } in unattended {
            if !self.is_stopping.load(Ordering::Acquire) {
                let pending = self.pending.admit(&stream);
                self.attended(stream, peer, pending, handler, Some(&lack));
            }
        }
    }

    /// Serves a connection, and reports a failure to the handler.
    fn attended(
        &self,
        stream: Arc<TcpStream>,
        peer: SocketAddr,
        pending: PendingSlot<'_>,
        handler: &dyn Handler,
        lack: Option<&Error>,
    ) {
        let serve = AssertUnwindSafe(|| self.connection(stream, peer, pending, handler, lack));
        let died = |_| {
            Err(fail::internal(
                "serve a connection",
                "the thread of the connection \
            panicked",
            ))
        };
        if let Err(error) = catch_unwind(serve).unwrap_or_else(died) {
            handler.rejected(peer, &error);
        }
    }

    /// Serves a connection. `lack` is the system's error if the connection has no thread of its
    /// own.
    fn connection(
        &self,
        stream: Arc<TcpStream>,
        peer: SocketAddr,
        pending: PendingSlot<'_>,
        handler: &dyn Handler,
        lack: Option<&Error>,
    ) -> Result<()> {
        let failed = |error: io::Error| fail::io_error("accept a connection", &error);
        let handshake = self.serve.timing.handshake;
        let patience = lack.map_or(handshake, |_| handshake.min(PORTER_TIME));
        let until = Instant::now() + patience;
        socket::prepare(&stream).map_err(failed)?;
        let first = match sniff::look(&stream, patience) {
            // Do not report a peer that closes the connection without sending anything.
            Ok(FirstBytes::Nothing) if pending.is_held() => return Ok(()),
            Err(error) if socket::is_hung_up(&error) && pending.is_held() => return Ok(()),
            first => first.map_err(failed)?,
        };
        if let FirstBytes::Foreign(byte) = first {
            let own = stream.try_clone().map_err(failed)?;
            // From here on the handler limits the duration and the number of foreign connections.
            drop((pending, stream));
            return handler.foreign(own, byte).map_err(|_| {
                let cause = format!(
                    "the first byte of the connection is {byte:#04x}, with which no protocol of \
                        dray begins"
                );
                fail::protocol("accept a connection", cause)
            });
        }
        let mut socket = Socket::new(stream, until);
        let mut preamble = [0; PREAMBLE_BYTES];
        socket.read_exact(&mut preamble).map_err(failed)?;
        let preamble = Preamble::parse(&preamble)?;
        let channel = match preamble.security {
            Security::Clear => Channel::Clear(socket),
            Security::Tls => {
                let tls = ServerConnection::new(Arc::clone(&self.tls));
                let tls = tls.map_err(|error| fail::tls(&error))?;
                // Do not report that a driver has closed an unused data connection. A driver may
                // open data connections in advance, and closes these connections if its session is
                // refused.
                let is_unwanted = |error: &io::Error| {
                    preamble.connection == Connection::Data
                        && socket::is_hung_up(error)
                        && pending.is_held()
                };
                match Channel::tls(socket, tls.into()) {
                    Ok(channel) => channel,
                    Err(error) if is_unwanted(&error) => return Ok(()),
                    Err(error) => return Err(failed(error)),
                }
            }
        };
        let certificates = channel.peer_certificates();
        match (preamble.connection, preamble.security) {
            (Connection::Control, Security::Clear) => {
                let cause = "the control connection is not encrypted, which would reveal the token";
                Err(fail::protocol("accept a connection", cause))
            }
            (Connection::Control, Security::Tls) => {
                let mut greeting = Greeting::new(channel);
                if let Some(lack) = lack {
                    // Do not identify the caller. This thread is the porter, and all its other
                    // connections would wait if the handler needed a slow look-up.
                    return Err(self.turn_away(&mut greeting, lack.clone()));
                }
                let caller = |token| Caller::new(token, certificates, peer);
                let request = self.greet(&mut greeting, caller, handler);
                drop(pending);
                self.session(greeting, request?, handler)
            }
            (Connection::Data, security) => {
                self.stream(channel, &pending, security == Security::Clear)
            }
        }
    }
}

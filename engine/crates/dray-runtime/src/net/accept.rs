//! Who comes in: each connection gets a thread of its own, and it is found out what it is.
//!
//! One that the system gives no thread for is left to the **porter**, a thread that the listener has had from
//! the beginning, and which serves them one after the other. Whoever asks for a session hears from it why
//! there is none; a stream joins its session, which may be able to do without a further thread.

use super::channel::Channel;
use super::handler::Handler;
use super::handshake::Greeting;
use super::serve::Shared;
use super::sniff::{self, FirstBytes};
use super::socket::{self, Socket};
use super::{Caller, fail};
use crate::threads::refused;
use crossbeam_channel::{Receiver, Sender, bounded};
use dray_core::{Error, Result};
use dray_wire::codec::{Connection, PREAMBLE_BYTES, Preamble, Security};
use rustls::ServerConnection;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Wait after the system refused a connection, so that a lack of descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Wait for connections that were shown out and have not ended yet.
const ENDING_PAUSE: Duration = Duration::from_millis(1);

/// How long a connection may take of the porter's time, as all others wait meanwhile (guess, revisit).
const PORTER_TIME: Duration = Duration::from_secs(1);

/// Counts a thread of a connection.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection without a thread.
pub(super) struct Unattended {
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    /// Why it has none.
    lack: Error,
}

/// The way to the porter, who ends when the last of these is dropped.
#[derive(Clone)]
pub(super) struct Porter(Sender<Unattended>);

impl Porter {
    /// Gives the way to a porter for whom so many may wait, and those who do.
    pub(super) fn new(waiting_max: usize) -> (Self, Receiver<Unattended>) {
        let (waiting_in, waiting) = bounded(waiting_max.max(1));
        (Self(waiting_in), waiting)
    }

    /// Leaves a connection to it, or closes it when too many wait already.
    ///
    /// # Errors
    /// Then: why it has no thread.
    fn leave(&self, caller: Unattended) -> Result<()> {
        (self.0.try_send(caller)).map_err(|full| full.into_inner().lack)
    }
}

impl Shared {
    /// Lets connections of one socket in until the listener stops.
    pub(super) fn accept<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        socket: &TcpListener,
        handler: &'env dyn Handler,
        porter: &Porter,
    ) {
        // Those that were shown out of a full waiting room end soon, but may not have yet.
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
            // Whoever it is waits for them: a flood is no reason to turn somebody else away.
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
            let started = thread::Builder::new()
                .name("dray-session".to_owned())
                .spawn_scoped(scope, move || {
                    let _running = running;
                    self.attended(own, peer, handler, None);
                });
            if let Err(error) = started {
                let lack = refused(&error);
                let caller = Unattended { stream, peer, lack };
                let _ = (porter.leave(caller)).inspect_err(|lack| handler.rejected(peer, lack));
            }
        }
    }

    /// The porter: serves connections that have no thread, one after the other, until nobody brings any.
    pub(super) fn attend(&self, unattended: &Receiver<Unattended>, handler: &dyn Handler) {
        for Unattended { stream, peer, lack } in unattended {
            if !self.is_stopping.load(Ordering::Acquire) {
                self.attended(stream, peer, handler, Some(&lack));
            }
        }
    }

    /// Serves a connection, and tells the handler if it came to nothing.
    fn attended(
        &self,
        stream: Arc<TcpStream>,
        peer: SocketAddr,
        handler: &dyn Handler,
        lack: Option<&Error>,
    ) {
        let serve = AssertUnwindSafe(|| self.connection(stream, peer, handler, lack));
        let died = |_| Err(fail::internal("serve a connection", "its thread panicked"));
        if let Err(error) = catch_unwind(serve).unwrap_or_else(died) {
            handler.rejected(peer, &error);
        }
    }

    /// Serves one; `lack` is why it has no thread of its own, if it has none.
    fn connection(
        &self,
        stream: Arc<TcpStream>,
        peer: SocketAddr,
        handler: &dyn Handler,
        lack: Option<&Error>,
    ) -> Result<()> {
        let failed = |error: io::Error| fail::io_error("let a connection in", &error);
        let handshake = self.serve.timing.handshake;
        let patience = lack.map_or(handshake, |_| handshake.min(PORTER_TIME));
        let until = Instant::now() + patience;
        socket::prepare(&stream).map_err(failed)?;
        let place = self.pending.admit(&stream);
        let first = match sniff::look(&stream, patience) {
            // Who leaves without a word was not turned away.
            Ok(FirstBytes::Nothing) if place.is_held() => return Ok(()),
            Err(error) if socket::is_hung_up(&error) && place.is_held() => return Ok(()),
            first => first.map_err(failed)?,
        };
        if let FirstBytes::Foreign(byte) = first {
            let own = stream.try_clone().map_err(failed)?;
            // From now on its bounds are the taker's.
            drop((place, stream));
            return handler.foreign(own, byte).map_err(|_| {
                let cause = format!("the connection begins with {byte:#04x}");
                fail::protocol("let a connection in", cause)
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
                // One made ahead ends with its driver, whose session came to nothing meanwhile.
                let is_unwanted = |error: &io::Error| {
                    preamble.connection == Connection::Data
                        && socket::is_hung_up(error)
                        && place.is_held()
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
                let cause = "a control connection in clear, which would show the token";
                Err(fail::protocol("let a connection in", cause))
            }
            (Connection::Control, Security::Tls) => {
                let mut greeting = Greeting::new(channel);
                if let Some(lack) = lack {
                    // Who it is would have to be looked up, for which others wait.
                    return Err(self.turn_away(&mut greeting, lack.clone()));
                }
                let caller = |token| Caller::new(token, certificates, peer);
                let request = self.greet(&mut greeting, caller, handler);
                drop(place);
                self.session(greeting, request?, handler)
            }
            (Connection::Data, security) => {
                self.stream(channel, &place, security == Security::Clear)
            }
        }
    }
}

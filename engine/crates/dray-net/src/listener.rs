//! Listens on sockets, and runs each accepted connection on its own thread.

use super::accept::Porter;
use super::handler::Handler;
use super::passive::ListenerState;
use super::serve::Serve;
use super::socket::resolve;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads;
use dray_store::errno::too_many_open;
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

/// A passive end that listens for connections.
pub struct Listener(Arc<Listening>);

/// Sockets of a listener, and the state of its connections.
struct Listening {
    state: ListenerState,
    sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

/// Stops a [`Listener`] from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Listening>);

impl Stopper {
    /// Stops listening, and asks the sessions to stop and keep their durable data.
    /// [`Listener::run`] returns after the sessions have ended.
    pub fn stop(&self) {
        self.0.state.is_stopping.store(true, Ordering::Release);
        for socket in &self.0.sockets {
            // The shutdown wakes the thread that accepts connections.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
        self.0.state.pending.cut();
        self.0.state.sessions.stop();
    }

    /// Does the same as [`Stopper::stop`], and ends all connections immediately.
    pub fn abort(&self) {
        self.stop();
        self.0.state.sessions.cut();
    }
}

impl Listener {
    /// Listens on each of `addresses` (`host:port`). For port 0 the system selects a port.
    ///
    /// # Errors
    /// If this host cannot listen on an address, or if the identity's key cannot be used.
    pub fn bind(addresses: &[String], serve: Serve) -> Result<Self> {
        let state = ListenerState::new(serve)?;
        let mut sockets = Vec::new();
        let mut bound = Vec::new();
        for address in addresses {
            for to in resolve(address)? {
                let socket = TcpListener::bind(to).map_err(|error| cannot_listen(to, &error))?;
                let at = socket
                    .local_addr()
                    .map_err(|error| cannot_listen(to, &error))?;
                sockets.push(socket);
                bound.push(at);
            }
        }
        Ok(Self(Arc::new(Listening {
            state,
            sockets,
            addresses: bound,
        })))
    }

    /// Returns the addresses on which the listener listens, with the actual ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// Returns a handle that stops this listener.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.0))
    }

    /// Accepts and serves connections until the listener is stopped and all sessions have ended.
    ///
    /// # Errors
    /// If the system cannot start a thread that accepts the connections to one address, or the
    /// porter: the thread that serves a connection if the system refuses a thread for it.
    pub fn run(&self, handler: &dyn Handler) -> Result<()> {
        let state = &self.0.state;
        let Some((first, others)) = self.0.sockets.split_first() else {
            return Ok(());
        };
        thread::scope(|scope| {
            let stop = |_: &Error| self.stopper().stop();
            let (porter, unattended) = Porter::new(state.serve.pending_max);
            threads::start(scope, move || state.attend(&unattended, handler)).inspect_err(stop)?;
            for socket in others {
                let porter = porter.clone();
                threads::start(scope, move || {
                    state.accept(scope, socket, handler, &porter);
                })
                .inspect_err(stop)?;
            }
            state.accept(scope, first, handler, &porter);
            Ok(())
        })
    }
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let operation = format!("listen on {address}");
    if let Some(lack) = too_many_open(End::Here, &operation, error) {
        return lack;
    }
    let kind = match error.kind() {
        io::ErrorKind::AddrNotAvailable => ErrorKind::InvalidRequest,
        other => other.into(),
    };
    Error::new(kind, End::Here, operation)
        .cause(error.to_string())
        .remedy("choose another address or port")
}

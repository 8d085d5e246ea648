//! Decisions of the program that runs a passive end: access, and the content of a session.

use super::Caller;
use dray_core::{Error, Result};
use dray_link::link::{SinkLink, SourceLink};
use dray_link::pace::SharedRates;
use dray_link::pool::Pool;
use dray_wire::message::Connect;
use dray_wire::negotiate::Agreed;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Request of a driver that has proved its identity.
#[derive(Debug)]
pub struct Request {
    /// The request. Its paths are not checked.
    pub connect: Connect,
    /// Parameters that both ends agreed on; the machine's configuration must respect them.
    pub agreed: Agreed,
    /// Identity and address of the driver.
    pub caller: Caller,
    /// Name and version of the driver's program, as it reports them; shown to people only escaped.
    pub peer_software: String,
}

/// A passive end's part of a session, ready to run. `run` gets the link and returns at the end of
/// the session; it is called on its own thread.
pub enum Prepared<'h> {
    /// This end writes.
    Sink {
        /// The pool that its receivers fill: the one that `run` passes to its executor.
        pool: Arc<Pool>,
        /// Rates that its receivers share with other sessions.
        shared: SharedRates,
        /// Runs the executor.
        run: Box<dyn FnOnce(SinkLink) + Send + 'h>,
    },
    /// This end reads.
    Source {
        /// Runs the executor.
        run: Box<dyn FnOnce(SourceLink) + Send + 'h>,
    },
}

/// Decides on requests. Called from many threads.
pub trait Handler: Sync {
    /// Decides if `caller` may send requests. Called with data from strangers, before this end
    /// reveals anything. A caller that was evicted meanwhile keeps its thread until this returns:
    /// if the handler waits here for another program, fewer than [`super::Serve::pending_max`]
    /// callers may wait at the same time.
    ///
    /// # Errors
    /// The error with which the driver is refused.
    fn admit(&self, caller: &Caller) -> Result<()>;

    /// Opens the paths of `request`, within [`super::Timing::prepare`].
    ///
    /// # Errors
    /// The error with which the driver is refused.
    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>>;

    /// Takes a connection that begins with the unread byte `first` and not with a preamble. A
    /// handler that takes it must bound its time and number; a connection that is returned is
    /// closed and reported to [`Handler::rejected`].
    ///
    /// # Errors
    /// The connection, if it is not for this handler.
    fn foreign(&self, stream: TcpStream, first: u8) -> Result<(), TcpStream> {
        let _ = first;
        Err(stream)
    }

    /// Reports a caller that was refused, or whose request failed before a session began. A caller
    /// that leaves before it has requested anything is not reported. Strangers can cause this call
    /// at any rate, so a handler that logs it should limit the rate.
    fn rejected(&self, peer: SocketAddr, error: &Error) {
        let _ = (peer, error);
    }

    /// Reports that [`Handler::prepare`] refused an admitted caller. A handler that has already
    /// logged it with a name has nothing to do.
    fn unprepared(&self, peer: SocketAddr, error: &Error) {
        self.rejected(peer, error);
    }

    /// Reports that the system refuses descriptors for new connections, so no caller can connect.
    /// Repeated every minute while this persists.
    fn nobody_gets_in(&self, error: &Error) {
        let _ = error;
    }
}

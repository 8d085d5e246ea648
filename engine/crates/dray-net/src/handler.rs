//! Decisions that the program of a passive end makes: access, and the content of a session.

use super::Caller;
use dray_core::{Error, Result};
use dray_link::link::{SinkLink, SourceLink};
use dray_link::pace::SharedRates;
use dray_link::pool::Pool;
use dray_wire::message::Connect;
use dray_wire::negotiate::Agreed;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// Request of an admitted driver.
#[derive(Debug)]
pub struct Request {
    /// The CONNECT message. Its paths are not checked yet.
    pub connect: Connect,
    /// Parameters that both ends agreed on. The configuration of the machine must stay within them.
    pub agreed: Agreed,
    /// Identity and address of the driver.
    pub caller: Caller,
    /// Name and version of the driver's program, as the driver reports them. Escape this text
    /// before showing it.
    pub peer_software: String,
}

/// The passive end's part of a session, ready to run. The listener calls `run` with the link, on
/// the session's thread; `run` returns at the end of the session.
pub enum Prepared<'h> {
    /// The passive end is the sink.
    Sink {
        /// The pool that the receivers fill. `run` must pass the same pool to its executor.
        pool: Arc<Pool>,
        /// Rates that the receivers share with other sessions.
        shared: SharedRates,
        /// Runs the executor.
        run: Box<dyn FnOnce(SinkLink) + Send + 'h>,
    },
    /// The passive end is the source.
    Source {
        /// Runs the executor.
        run: Box<dyn FnOnce(SourceLink) + Send + 'h>,
    },
}

/// Decides on requests. Many threads call the methods concurrently.
pub trait Handler: Sync {
    /// Decides whether `caller` may send requests. The data in `caller` comes from a stranger, to
    /// whom this end has revealed nothing yet. If a newer connection evicts the caller's connection
    /// during the call, the thread continues until this method returns. So if the handler waits for
    /// another program here, it must let fewer than [`super::Serve::pending_max`] callers wait
    /// concurrently.
    ///
    /// # Errors
    /// The error with which the driver is refused.
    fn admit(&self, caller: &Caller) -> Result<()>;

    /// Opens the paths of `request`. The driver waits at most [`super::Timing::prepare`].
    ///
    /// # Errors
    /// The error with which the driver is refused.
    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>>;

    /// Takes over a connection that does not begin with a preamble. `first` is its first byte,
    /// which is still unread. A handler that takes over connections must limit their duration and
    /// number. A connection that the handler returns is closed and reported to
    /// [`Handler::rejected`].
    ///
    /// # Errors
    /// The connection, if the handler does not take it over.
    fn foreign(&self, stream: TcpStream, first: u8) -> Result<(), TcpStream> {
        let _ = first;
        Err(stream)
    }

    /// Reports a caller that was refused, or whose request failed before a session began. A caller
    /// that disconnects before its first request is not reported. Strangers can cause this call at
    /// any rate, so a handler that logs it should limit the rate.
    fn rejected(&self, peer: SocketAddr, error: &Error) {
        let _ = (peer, error);
    }

    /// Reports that [`Handler::prepare`] refused an admitted caller. A handler that logs refusals
    /// in `prepare`, where it knows the caller's name, can ignore this call.
    fn unprepared(&self, peer: SocketAddr, error: &Error) {
        self.rejected(peer, error);
    }

    /// Reports that the system refuses file descriptors for new connections, so no caller can
    /// connect. The report is repeated every minute until the condition ends.
    fn nobody_gets_in(&self, error: &Error) {
        let _ = error;
    }
}

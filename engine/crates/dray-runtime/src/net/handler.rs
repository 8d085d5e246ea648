//! What the passive end asks of whoever runs it: who may do what, and what a session is.

use super::Caller;
use crate::link::{SinkLink, SourceLink};
use crate::pace::SharedRates;
use crate::pool::Pool;
use dray_core::{Error, Result};
use dray_wire::message::Connect;
use dray_wire::negotiate::Agreed;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// What a driver that has proved itself asks for.
#[derive(Debug)]
pub struct Request {
    /// The request itself. Paths in it are not checked.
    pub connect: Connect,
    /// What both ends agreed on; the machine's configuration must keep to it.
    pub agreed: Agreed,
    /// Who the driver says it is, and where it connected from.
    pub caller: Caller,
    /// Name and version of its program, as it says; shown to people only escaped.
    pub peer_software: String,
}

/// A passive end's part of a session, ready to run. `run` gets the link and returns when the session
/// is over; it is called on a thread of its own.
pub enum Prepared<'h> {
    /// This end writes.
    Sink {
        /// The pool its receivers fill: the one `run` gives its conductor.
        pool: Arc<Pool>,
        /// Rates that its receivers share with other sessions.
        shared: SharedRates,
        /// Runs the conductor.
        run: Box<dyn FnOnce(SinkLink) + Send + 'h>,
    },
    /// This end reads.
    Source {
        /// Runs the conductor.
        run: Box<dyn FnOnce(SourceLink) + Send + 'h>,
    },
}

/// Decides what a request means. Called from many threads.
pub trait Handler: Sync {
    /// Whether `caller` may ask at all. Called before anything of this end is told, with what
    /// strangers send. A caller that was shown out meanwhile keeps its thread until this returns: whoever
    /// waits here for somebody else does so for fewer than [`super::Serve::pending_max`] at a time.
    ///
    /// # Errors
    /// What the driver is refused with.
    fn admit(&self, caller: &Caller) -> Result<()>;

    /// Opens what `request` asks for, within [`super::Timing::prepare`].
    ///
    /// # Errors
    /// What the driver is refused with.
    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>>;

    /// A connection that begins with no preamble but with `first`, unread. Whoever takes it answers
    /// for its bounds; given back, it is closed and [`Handler::rejected`].
    ///
    /// # Errors
    /// The connection, when it is not for this handler.
    fn foreign(&self, stream: TcpStream, first: u8) -> Result<(), TcpStream> {
        let _ = first;
        Err(stream)
    }

    /// Somebody was turned away, or asked for something and came to nothing before a session began. Who
    /// leaves by itself before it has asked for anything is not told of. Strangers can cause this as
    /// often as they like: whoever writes it down should have a limit.
    fn rejected(&self, peer: SocketAddr, error: &Error) {
        let _ = (peer, error);
    }

    /// [`Handler::prepare`] refused somebody who had been admitted. A handler that has written it down
    /// itself, with a name, has nothing left to do.
    fn unprepared(&self, peer: SocketAddr, error: &Error) {
        self.rejected(peer, error);
    }

    /// The system gives no descriptor for those who call, so nobody gets in. Told again each minute, as
    /// long as it is so.
    fn nobody_gets_in(&self, error: &Error) {
        let _ = error;
    }
}

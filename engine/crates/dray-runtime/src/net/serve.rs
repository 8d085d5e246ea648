//! The passive end: listens, admits callers with the token, and runs each session on its own
//! thread.

use super::accept::Porter;
use super::channel::Channel;
use super::control::{self, Threads};
use super::fd_exhaustion::Lack;
use super::handler::{Handler, Prepared, Request};
use super::handshake::{Greeting, hello, unexpected};
use super::hub::{Closer, Hub, Inbox};
use super::pending::{Pending, Place};
use super::session::{Found, Sessions};
use super::socket::resolve;
use super::tls::server_config;
use super::{Caller, Identity, SOFTWARE, Timing, fail, join};
use crate::link::{SinkLink, SourceLink};
use crate::threads;
use crossbeam_channel::unbounded;
use dray_core::{End, Error, ErrorKind, Result};
use dray_store::errno::too_many_open;
use dray_wire::message::{Accept, Hello, Limits, Message, Role, mandatory, optional};
use dray_wire::negotiate::{OPTIONAL_KNOWN, negotiate};
use rustls::ServerConfig;
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Configuration of a passive end.
#[derive(Debug)]
pub struct Serve {
    /// Identity of this end.
    pub identity: Identity,
    /// Limits of this end. No buffer of a passive sink's pool needs to be longer than
    /// `object_bytes_max`.
    pub limits: Limits,
    /// True if data streams may run in clear.
    pub allow_clear_data: bool,
    /// True if this end discards the data it receives: only drivers that declare that they expect
    /// this may write.
    pub keeps_nothing: bool,
    /// True if a driver that discards the data may read here. A handler that admits such a driver
    /// must not report its data as durable.
    pub may_keep_nothing: bool,
    /// Maximum number of data streams granted to a session.
    pub streams_max: u16,
    /// Maximum number of concurrent sessions.
    pub sessions_max: usize,
    /// Maximum number of concurrent connections that have not proved themselves. A further
    /// connection evicts one of the holder with the most.
    pub pending_max: usize,
    /// Addresses (`host:port`) at which streams may join, sent to the driver; if empty, the driver
    /// uses the address of its control connection.
    pub advertise: Vec<String>,
    /// Timeouts and intervals.
    pub timing: Timing,
}

impl Serve {
    /// Creates a configuration with this identity and default values.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            limits: Limits::default(),
            allow_clear_data: false,
            keeps_nothing: false,
            may_keep_nothing: false,
            // A DTN's eight NICs with eight streams each: guess, revisit.
            streams_max: 64,
            sessions_max: 64,
            pending_max: 64,
            advertise: Vec::new(),
            timing: Timing::default(),
        }
    }
}

/// State shared by the threads of a listener.
pub(super) struct Shared {
    pub(super) serve: Serve,
    pub(super) tls: Arc<ServerConfig>,
    sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    pub(super) pending: Pending,
    sessions: Sessions,
    /// Number of threads that serve connections, including sessions.
    pub(super) running: AtomicUsize,
    pub(super) is_stopping: AtomicBool,
    pub(super) lack: Lack,
}

/// A listening passive end.
pub struct Listener(Arc<Shared>);

/// Stops a [`Listener`] from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops listening and asks the sessions to stop and keep their durable data; [`Listener::run`]
    /// returns after they have.
    pub fn stop(&self) {
        self.0.is_stopping.store(true, Ordering::Release);
        for socket in &self.0.sockets {
            // Wakes the accepting thread.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
        self.0.pending.cut();
        self.0.sessions.stop();
    }

    /// As [`Stopper::stop`], and ends all connections immediately.
    pub fn abort(&self) {
        self.stop();
        self.0.sessions.cut();
    }
}

impl Listener {
    /// Listens on each of `addresses` (`host:port`; with port 0 the system selects a port).
    ///
    /// # Errors
    /// If an address cannot be listened on, or the identity's key cannot be used.
    pub fn bind(addresses: &[String], serve: Serve) -> Result<Self> {
        let tls = server_config(&serve.identity)?;
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
        Ok(Self(Arc::new(Shared {
            tls,
            sockets,
            addresses: bound,
            pending: Pending::new(serve.pending_max),
            sessions: Sessions::new(serve.sessions_max, serve.timing.handshake),
            running: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            lack: Lack::default(),
            serve,
        })))
    }

    /// Returns the addresses it listens on, with the actual ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// Returns a handle that stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.0))
    }

    /// Accepts and serves connections until it is stopped and all sessions have ended.
    ///
    /// # Errors
    /// If the system refuses a thread for the porter, or for a further address.
    pub fn run(&self, handler: &dyn Handler) -> Result<()> {
        let shared = &*self.0;
        let Some((first, others)) = shared.sockets.split_first() else {
            return Ok(());
        };
        thread::scope(|scope| {
            let stop = |_: &Error| self.stopper().stop();
            let (porter, unattended) = Porter::new(shared.serve.pending_max);
            threads::start(scope, move || shared.attend(&unattended, handler)).inspect_err(stop)?;
            for socket in others {
                let porter = porter.clone();
                threads::start(scope, move || {
                    shared.accept(scope, socket, handler, &porter);
                })
                .inspect_err(stop)?;
            }
            shared.accept(scope, first, handler, &porter);
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

impl Shared {
    /// Receives the caller's identity and its request, and checks both.
    pub(super) fn greet(
        &self,
        greeting: &mut Greeting,
        caller: impl FnOnce(Vec<u8>) -> Caller,
        handler: &dyn Handler,
    ) -> Result<Request> {
        let mut theirs = match greeting.receive()? {
            Message::Hello(theirs) => theirs,
            other => return Err(unexpected("HELLO", &other)),
        };
        let caller = caller(std::mem::take(&mut theirs.token));
        if let Err(error) = handler.admit(&caller) {
            return Err(self.turn_away(greeting, error));
        }
        let ours = self.hello();
        greeting.send(&Message::Hello(ours.clone()))?;
        let drops = theirs.mandatory & mandatory::KEEPS_NOTHING != 0;
        let agreed = negotiate(&ours, &theirs).and_then(|agreed| {
            if drops && !self.serve.may_keep_nothing {
                return Err(keeps_nothing());
            }
            // The driver may have sent CONNECT with its HELLO, before it knew that this end
            // discards data.
            match self.serve.keeps_nothing && !agreed.has(optional::NULL_MEANT) {
                true => Err(not_meant()),
                false => Ok(agreed),
            }
        });
        let agreed = match agreed {
            Ok(agreed) => agreed,
            Err(error) => return Err(self.turn_away(greeting, error)),
        };
        greeting.set_limits(agreed.limits);
        match greeting.receive()? {
            Message::Connect(connect) => Ok(Request {
                connect,
                agreed,
                caller,
                peer_software: theirs.software,
            }),
            other => Err(unexpected("CONNECT", &other)),
        }
    }

    /// Refuses a driver, and drops its early CONNECT unread.
    pub(super) fn turn_away(&self, greeting: &mut Greeting, error: Error) -> Error {
        let error = refuse(greeting, error);
        greeting.leave(self.serve.timing.linger);
        error
    }

    fn hello(&self) -> Hello {
        let bits = match self.serve.allow_clear_data {
            true => OPTIONAL_KNOWN,
            false => OPTIONAL_KNOWN & !optional::CLEAR_DATA,
        };
        let mut hello = hello(SOFTWARE, self.serve.limits, bits, &[]);
        if self.serve.keeps_nothing {
            hello.mandatory |= mandatory::KEEPS_NOTHING;
        }
        hello
    }

    /// Runs a session until it ends.
    pub(super) fn session(
        &self,
        mut greeting: Greeting,
        request: Request,
        handler: &dyn Handler,
    ) -> Result<()> {
        let timing = self.serve.timing;
        greeting
            .socket_mut()
            .set_deadline(Instant::now() + timing.prepare);
        let mut seat = match self.sessions.reserve() {
            Ok(seat) => seat,
            Err(error) => return Err(refuse(&mut greeting, error)),
        };
        let (agreed, role) = (request.agreed, request.connect.passive_role);
        let clear_data = request.connect.clear_data;
        let streams = request
            .connect
            .streams
            .clamp(1, self.serve.streams_max.max(1));
        if clear_data && !agreed.has(optional::CLEAR_DATA) {
            return Err(refuse(&mut greeting, no_clear_data()));
        }
        let peer = request.caller.peer;
        let prepared = match handler.prepare(request) {
            Ok(prepared) => prepared,
            Err(error) => {
                handler.unprepared(peer, &refuse(&mut greeting, error));
                return Ok(());
            }
        };
        let (inbox, run): (_, Runner<'_>) = match (prepared, role) {
            (Prepared::Sink { pool, shared, run }, Role::Sink) => {
                let (events_in, events) = unbounded();
                let inbox = Inbox::Sink(events_in.clone(), pool, shared);
                let run = move |out, closer: Closer| {
                    run(SinkLink {
                        events,
                        events_in,
                        control: Box::new(out),
                        close: Box::new(move || closer.close()),
                    });
                };
                (inbox, Box::new(run))
            }
            (Prepared::Source { run }, Role::Source) => {
                let (events_in, events) = unbounded();
                let inbox = Inbox::Source(events_in.clone());
                let run = move |out, closer: Closer| {
                    run(SourceLink {
                        events,
                        events_in,
                        control: Box::new(out),
                        close: Box::new(move || closer.close()),
                    });
                };
                (inbox, Box::new(run))
            }
            _ => {
                let error = fail::internal("begin a session", "the other role was prepared");
                return Err(refuse(&mut greeting, error));
            }
        };
        let hub = Hub::new(inbox, agreed.limits, timing, streams, None);
        let closer = Closer::new(Arc::clone(&hub));
        let threads = match Threads::reserve(&hub) {
            Ok(threads) => threads,
            Err(error) => return Err(refuse(&mut greeting, error)),
        };
        // Streams may join as soon as the driver has read its ticket.
        let (ticket, key) = seat.seat(&hub, clear_data)?;
        greeting.send(&Message::Accept(Accept {
            ticket,
            key,
            addresses: self.serve.advertise.clone(),
            streams,
        }))?;
        let (out, control) = control::start(greeting.finish()?, timing, &hub, &threads)?;
        hub.set_control(control);
        run(out, closer);
        // An executor that returned without closing its link has dropped it.
        Ok(())
    }

    /// Lets a data stream join, or closes it without a message.
    pub(super) fn stream(
        &self,
        mut channel: Channel,
        place: &Place<'_>,
        is_clear: bool,
    ) -> Result<()> {
        let Some(challenge) = join::challenge(&mut channel)? else {
            return Ok(());
        };
        place.awaits_join();
        let Some(join) = join::answer(&mut channel)? else {
            return Ok(());
        };
        match self.sessions.find(&join, &challenge, is_clear) {
            Found::Session(hub) => match hub.attach(join.stream, channel) {
                Err(_) if hub.is_over() => Ok(()),
                attached => attached,
            },
            // The stream was connecting when its session ended, so it is not reported as a
            // stranger.
            Found::Ended => Ok(()),
            Found::Nothing => {
                Err(
                    Error::new(ErrorKind::Unauthorized, End::Network, "join a stream")
                        .cause("no session with that ticket, key and security"),
                )
            }
        }
    }
}

type Runner<'h> = Box<dyn FnOnce(control::Out, Closer) + 'h>;

/// Sends the error to the driver, if the connection still works.
fn refuse(greeting: &mut Greeting, error: Error) -> Error {
    let _ = greeting.send(&Message::Refuse(error.clone()));
    error
}

fn keeps_nothing() -> Error {
    Error::new(ErrorKind::IncompatiblePeer, End::Sink, "begin a session")
        .cause("it is a null end: it keeps nothing")
        .remedy("read into a folder; to measure, read from a host that runs dray serve")
}

fn not_meant() -> Error {
    Error::new(ErrorKind::IncompatiblePeer, End::Here, "begin a session")
        .cause("it is a null end, which was not requested")
        .remedy("name another host; to measure, let dray cp write to dray://HOST/null:")
}

fn no_clear_data() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        End::Network,
        "open clear data streams",
    )
    .cause("the other end does not allow them")
    .remedy("leave out the option, or have clear data allowed there")
}

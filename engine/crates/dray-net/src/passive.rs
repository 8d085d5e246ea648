//! Admits the callers of a listener, runs their sessions, and lets data streams join.

use super::attach::attach;
use super::channel::Channel;
use super::connection::Out;
use super::control::{self, Threads};
use super::fd_exhaustion::Lack;
use super::handler::{Handler, Prepared, Request};
use super::handshake::{Greeting, hello, unexpected};
use super::hub::{Closer, Hub};
use super::inbox::Inbox;
use super::pending::{Pending, PendingSlot};
use super::serve::Serve;
use super::session::{JoinTarget, Sessions};
use super::tls::server_config;
use super::{Caller, SOFTWARE, fail, join};
use crossbeam_channel::unbounded;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::link::{SinkLink, SourceLink};
use dray_wire::message::{Accept, Hello, Message, Role, mandatory, optional};
use dray_wire::negotiate::{OPTIONAL_KNOWN, negotiate};
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

/// State shared by the threads of a listener.
pub(super) struct ListenerState {
    pub(super) serve: Serve,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) pending: Pending,
    pub(super) sessions: Sessions,
    /// Number of threads that serve connections, including those of sessions.
    pub(super) running: AtomicUsize,
    pub(super) is_stopping: AtomicBool,
    pub(super) lack: Lack,
}

impl ListenerState {
    /// Creates the state of a listener without sessions.
    ///
    /// # Errors
    /// If the identity's key cannot be used.
    pub(super) fn new(serve: Serve) -> Result<Self> {
        Ok(Self {
            tls: server_config(&serve.identity)?,
            pending: Pending::new(serve.pending_max),
            sessions: Sessions::new(serve.sessions_max, serve.timing.handshake),
            running: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            lack: Lack::default(),
            serve,
        })
    }

    /// Receives HELLO and CONNECT from the driver, and has the handler check the caller.
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
            // The driver may have sent CONNECT together with HELLO, before it knew that this end
            // discards data. So check before reading CONNECT whether its HELLO requests an end that
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
        greeting.agree(&agreed);
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

    /// Refuses a driver with `error`. A CONNECT that the driver has already sent is discarded
    /// unread.
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
        let mut slot = match self.sessions.reserve() {
            Ok(slot) => slot,
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
                let error = fail::internal(
                    "begin a session",
                    "the session was prepared for the opposite role (source or sink)",
                );
                return Err(refuse(&mut greeting, error));
            }
        };
        let hub = Hub::new(inbox, agreed.limits, timing, streams, None);
        let closer = Closer::new(Arc::clone(&hub));
        let threads = match Threads::reserve(&hub) {
            Ok(threads) => threads,
            Err(error) => return Err(refuse(&mut greeting, error)),
        };
        // The driver's streams may join as soon as the driver has read this message, so register
        // the session first.
        let (ticket, key) = slot.register(&hub, clear_data)?;
        greeting.send(&Message::Accept(Accept {
            ticket,
            key,
            addresses: self.serve.advertise.clone(),
            streams,
        }))?;
        let (out, control) = control::start(greeting.finish()?, timing, &hub, &threads)?;
        hub.set_control(control);
        run(out, closer);
        // An executor that returns without closing its link drops the link, and this ends the
        // session.
        Ok(())
    }

    /// Lets a data stream join its session, or closes the stream without a message.
    pub(super) fn stream(
        &self,
        mut channel: Channel,
        pending: &PendingSlot<'_>,
        is_clear: bool,
    ) -> Result<()> {
        let Some(challenge) = join::challenge(&mut channel)? else {
            return Ok(());
        };
        pending.awaits_join();
        let Some(join) = join::answer(&mut channel)? else {
            return Ok(());
        };
        match self.sessions.find(&join, &challenge, is_clear) {
            JoinTarget::Session(hub) => match attach(&hub, join.stream, channel) {
                Err(_) if hub.is_over() => Ok(()),
                attached => attached,
            },
            // Do not report this stream: it was still connecting when its session ended.
            JoinTarget::Ended => Ok(()),
            JoinTarget::Nothing => {
                Err(
                    Error::new(ErrorKind::Unauthorized, End::Network, "join a stream").cause(
                        "no session at this host has the ticket, the key and the \
                            encryption that the client sent",
                    ),
                )
            }
        }
    }
}

type Runner<'h> = Box<dyn FnOnce(Out, Closer) + 'h>;

/// Sends the error to the driver, if the connection still works. Returns the error.
fn refuse(greeting: &mut Greeting, error: Error) -> Error {
    let _ = greeting.send(&Message::Refuse(error.clone()));
    error
}

fn keeps_nothing() -> Error {
    Error::new(ErrorKind::IncompatiblePeer, End::Sink, "begin a session")
        .cause("the destination is a null end, which stores no data")
        .remedy(
            "copy into a folder; to measure without storage, read from a host that runs dray serve",
        )
}

fn not_meant() -> Error {
    Error::new(ErrorKind::IncompatiblePeer, End::Here, "begin a session")
        .cause("this host serves a null end, which the client did not request")
        .remedy(
            "use another host; to measure without storing data, run dray cp with the \
            destination dray://HOST/null:",
        )
}

fn no_clear_data() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        End::Network,
        "open unencrypted data streams",
    )
    .cause("the other host does not allow unencrypted data streams")
    .remedy(
        "omit the option for unencrypted data streams, or allow unencrypted data streams at \
        the other host",
    )
}

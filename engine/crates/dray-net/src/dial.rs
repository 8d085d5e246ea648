//! The driver's side: a single call returns a link.

use super::channel::secure;
use super::growth::Growth;
use super::handshake::{Greeting, hello, unexpected};
use super::hub::{Closer, Hub};
use super::inbox::Inbox;
use super::preconnect::{Dialer, Preconnected};
use super::redial::{self, Streams};
use super::socket::{self, Socket};
use super::tls::{Pinned, Trust, client_config};
use super::{Identity, SOFTWARE, Timing, Token, control, fail};
use crossbeam_channel::unbounded;
use dray_core::retry::RetryPolicy;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::link::{ControlSender, SinkLink, SourceLink};
use dray_link::pace::SharedRates;
use dray_link::pool::Pool;
use dray_wire::codec::{Connection, Security};
use dray_wire::message::{Accept, Connect, Limits, Message, Role, mandatory, optional};
use dray_wire::negotiate::{Agreed, OPTIONAL_KNOWN, negotiate};
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

/// Parameters to reach a passive end.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Address at which it listens: `host:port`.
    pub address: String,
    /// Key or authority by which it is recognised.
    pub trust: Trust,
    /// The key that this end presents, if any.
    pub identity: Option<Arc<Identity>>,
    /// Token that this end sends.
    pub token: Token,
    /// Addresses of this host to connect from, used in turn; empty leaves the choice to the system.
    pub bind: Vec<IpAddr>,
    /// Maximum number of granted streams that are opened at the start.
    pub streams_first: u16,
    /// Limits of this end.
    pub limits: Limits,
    /// Delays and number of attempts to dial a lost stream again; attempts are counted from the
    /// last object that is known to have arrived.
    pub retry: RetryPolicy,
    /// Timeouts and intervals.
    pub timing: Timing,
    /// True if the other end may discard the data: a caller that sets this reports no data as
    /// durable.
    pub may_keep_nothing: bool,
    /// True if the other end must discard the data, as the user requested.
    pub must_keep_nothing: bool,
    /// True if this end's own sink discards the data, which the other end must know.
    pub keeps_nothing: bool,
    /// Size in bytes of the objects in which earlier data is durable. If the other end accepts only
    /// smaller objects, that data would be sent again, so the session is refused. 0: any size is
    /// accepted.
    pub object_bytes_min: u64,
    /// Rates that the receivers of a [`pull`] share with other sessions.
    pub shared: SharedRates,
}

impl Dial {
    /// Creates parameters with default values for the other fields.
    #[must_use]
    pub fn new(address: impl Into<String>, trust: impl Into<Trust>, token: Token) -> Self {
        Self {
            address: address.into(),
            trust: trust.into(),
            identity: None,
            token,
            bind: Vec::new(),
            streams_first: u16::MAX,
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            timing: Timing::default(),
            may_keep_nothing: false,
            must_keep_nothing: false,
            keeps_nothing: false,
            object_bytes_min: 0,
            shared: SharedRates::default(),
        }
    }
}

/// A session that was established.
pub struct Dialled<L> {
    /// The link for an executor. If it is dropped without a run, the session ends.
    pub link: L,
    /// Parameters that both ends agreed on; the machine's configuration must respect them.
    pub agreed: Agreed,
    /// Number of data streams granted.
    pub streams: u16,
    /// Opens more of the granted streams, if fewer were opened at the start.
    pub growth: Growth,
    /// Name and version of the peer's program, as it reports them; shown to people only escaped.
    pub peer_software: String,
}

/// Begins a session with a passive sink: this end is the source. The role in `connect` is set here.
///
/// # Errors
/// [`ErrorKind::Unreachable`] or [`ErrorKind::TimedOut`] naming the address,
/// [`ErrorKind::Unauthorized`] for another key (naming both) or a wrong token,
/// [`ErrorKind::IncompatiblePeer`], [`ErrorKind::Unsupported`] for clear data that the peer does
/// not allow, and any error with which the passive end refuses the request.
pub fn push(dial: &Dial, connect: Connect) -> Result<Dialled<SourceLink>> {
    let (events_in, events) = unbounded();
    let inbox = Inbox::Source(events_in.clone());
    let begun = begin(dial, connect, Role::Sink, dial.limits, inbox)?;
    Ok(begun.dialled(|control, close| SourceLink {
        events,
        events_in,
        control,
        close,
    }))
}

/// Begins a session with a passive source: this end is the sink, and its executor uses `pool`.
/// Objects are never longer than the pool's buffers. The role in `connect` is set here.
///
/// # Errors
/// As [`push`].
pub fn pull(dial: &Dial, connect: Connect, pool: Arc<Pool>) -> Result<Dialled<SinkLink>> {
    let (events_in, events) = unbounded();
    let mut limits = dial.limits;
    limits.object_bytes_max = limits.object_bytes_max.min(pool.buffer_bytes() as u64);
    let inbox = Inbox::Sink(events_in.clone(), pool, dial.shared.clone());
    let begun = begin(dial, connect, Role::Source, limits, inbox)?;
    Ok(begun.dialled(|control, close| SinkLink {
        events,
        events_in,
        control,
        close,
    }))
}

type Close = Box<dyn FnOnce() + Send>;

struct Begun {
    control: Box<dyn ControlSender>,
    closer: Closer,
    agreed: Agreed,
    streams: u16,
    growth: Growth,
    peer_software: String,
}

impl Begun {
    fn dialled<L>(self, link: impl FnOnce(Box<dyn ControlSender>, Close) -> L) -> Dialled<L> {
        let closer = self.closer;
        Dialled {
            link: link(self.control, Box::new(move || closer.close())),
            agreed: self.agreed,
            streams: self.streams,
            growth: self.growth,
            peer_software: self.peer_software,
        }
    }
}

fn begin(
    dial: &Dial,
    mut connect: Connect,
    passive_role: Role,
    limits: Limits,
    inbox: Inbox,
) -> Result<Begun> {
    connect.passive_role = passive_role;
    connect.streams = connect.streams.max(1);
    let name = server_name(&dial.address)?;
    let (tls, pinned) = client_config(&dial.trust, dial.identity.as_deref())?;
    let stream = socket::connect(&dial.address, &dial.bind, 0, dial.timing.connect)?;
    let control_address = stream
        .peer_addr()
        .map_or_else(|_| dial.address.clone(), |peer| peer.to_string());
    let way = Arc::new(Dialer {
        bind: dial.bind.clone(),
        timing: dial.timing,
        tls,
        name,
        security: match connect.clear_data {
            false => Security::Tls,
            true => Security::Clear,
        },
    });
    let first = connect.streams.min(dial.streams_first);
    let ahead = Preconnected::begin(&way, &control_address, first);
    let mut greeting = reach(dial, stream, &way, pinned.as_deref())?;
    let greeted = greet(dial, &connect, limits, &mut greeting)?;
    let agreed = greeted.agreed;
    if connect.clear_data && !agreed.has(optional::CLEAR_DATA) {
        return Err(no_clear_data(dial));
    }
    let object_bytes = agreed.limits.object_bytes_max;
    if object_bytes < dial.object_bytes_min {
        return Err(too_small(dial, object_bytes));
    }
    let accept = request(dial, &connect, greeted.is_asked, &mut greeting)?;
    let granted = accept.streams.clamp(1, connect.streams);
    let (lost, notes) = unbounded();
    let hub = Hub::new(inbox, agreed.limits, dial.timing, granted, Some(lost));
    let closer = Closer::new(Arc::clone(&hub));
    let ahead = match accept.addresses.is_empty() {
        true => ahead,
        // The connections made ahead went to an address at which no stream may join.
        false => Preconnected::begin(&way, &control_address, 0),
    };
    let streams = Arc::new(Streams {
        addresses: match accept.addresses.is_empty() {
            true => vec![control_address],
            false => accept.addresses,
        },
        way,
        ticket: accept.ticket,
        key: accept.key,
        next: AtomicU32::new(0),
        first: granted.min(dial.streams_first).into(),
    });
    let threads = control::Threads::reserve(&hub)?;
    let (out, connection) = control::start(greeting.finish()?, dial.timing, &hub, &threads)?;
    hub.set_control(connection);
    // The executor need not wait for streams: announcements use the control connection.
    let (opener, opened) = (Arc::clone(&hub), Arc::clone(&streams));
    hub.spawn("dray-open", move || opened.open_first(&opener, &ahead))?;
    let (redialler, retry) = (Arc::clone(&hub), dial.retry);
    hub.spawn("dray-redial", move || {
        redial::run(&redialler, &streams, &notes, retry);
    })?;
    Ok(Begun {
        control: Box::new(out),
        closer,
        agreed,
        streams: granted,
        growth: Growth::new(hub),
        peer_software: greeted.peer_software,
    })
}

/// Runs the TLS handshake on a new connection, which proves that the peer is the trusted end.
fn reach(
    dial: &Dial,
    stream: TcpStream,
    way: &Dialer,
    pinned: Option<&Pinned>,
) -> Result<Greeting> {
    let until = Instant::now() + dial.timing.handshake;
    let socket = Socket::new(Arc::new(stream), until);
    let channel = secure(
        socket,
        Connection::Control,
        Security::Tls,
        &way.tls,
        &way.name,
    );
    channel.map(Greeting::new).map_err(|error| {
        let operation = format!("open a session with {}", dial.address.escape_debug());
        let unauthorized = || Error::new(ErrorKind::Unauthorized, End::Network, operation.clone());
        match (&dial.trust, pinned.and_then(Pinned::other_key)) {
            (Trust::Key(pin), Some(offered)) => unauthorized()
                .cause(format!("its key is {offered}, but {pin} is pinned"))
                .remedy(
                    "compare with what that end prints when it starts; if it has a new key, pin that",
                ),
            (Trust::Authority(_), _) if error.kind() == io::ErrorKind::InvalidData => {
                unauthorized()
                    .cause(format!("its certificate is not trusted: {error}"))
                    .remedy("pin its key, or name the authority that it has its certificate from")
            }
            _ => fail::io_error(operation, &error),
        }
    })
}

/// Returns the host in `host:port`, which a certificate must name; a pinned key does not depend on
/// it.
fn server_name(address: &str) -> Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    ServerName::try_from(host).map_err(|error| {
        let operation = format!("open a session with {}", address.escape_debug());
        Error::new(ErrorKind::InvalidRequest, End::Here, operation)
            .cause(error.to_string())
            .remedy("write HOST:PORT, or [IPV6]:PORT")
    })
}

/// Result of the HELLO exchange.
struct Greeted {
    agreed: Agreed,
    peer_software: String,
    /// True if CONNECT was sent together with HELLO.
    is_asked: bool,
}

fn greet(
    dial: &Dial,
    connect: &Connect,
    limits: Limits,
    greeting: &mut Greeting,
) -> Result<Greeted> {
    let bits = match dial.may_keep_nothing {
        true => OPTIONAL_KNOWN,
        false => OPTIONAL_KNOWN & !optional::NULL_MEANT,
    };
    let mut ours = hello(SOFTWARE, limits, bits, dial.token.bytes());
    if dial.keeps_nothing {
        ours.mandatory |= mandatory::KEEPS_NOTHING;
    }
    let hello = Message::Hello(ours.clone());
    let is_asked = match dial.must_keep_nothing {
        // An end that stores data would create the named folder, so CONNECT waits for its HELLO.
        true => greeting.send(&hello).map(|()| false)?,
        false => greeting.send_both(&hello, &Message::Connect(connect.clone()))?,
    };
    let theirs = match greeting.receive()? {
        Message::Hello(theirs) => theirs,
        other => return Err(refused(connect, unexpected("HELLO", &other))),
    };
    let agreed = negotiate(&ours, &theirs).and_then(|agreed| {
        keeps_as_asked(dial, connect.passive_role, agreed.keeps_nothing())?;
        Ok(agreed)
    });
    match agreed {
        Ok(agreed) => {
            greeting.set_limits(agreed.limits);
            Ok(Greeted {
                agreed,
                peer_software: theirs.software,
                is_asked,
            })
        }
        Err(error) => {
            let _ = greeting.send(&Message::Refuse(error.clone()));
            Err(error)
        }
    }
}

/// Refuses an end that discards data if the caller does not allow this, or that keeps data if the
/// caller requires an end that discards it.
fn keeps_as_asked(dial: &Dial, role: Role, keeps_nothing: bool) -> Result<()> {
    let address = dial.address.escape_debug();
    let operation = format!("open a session with {address}");
    let end = role.end();
    match keeps_nothing {
        true if !dial.may_keep_nothing => {
            let error = Error::new(ErrorKind::IncompatiblePeer, end, operation);
            Err(error
                .cause("it is a null end: it keeps nothing")
                .remedy(format!(
                    "name another host; to measure, let dray cp write to dray://{address}/null:"
                )))
        }
        false if dial.must_keep_nothing => {
            let error = Error::new(ErrorKind::InvalidRequest, end, operation);
            Err(error
                .cause("it is not a null end: it keeps its data")
                .remedy(format!(
                    "name a host that serves null:; a file of this name is dray://{address}/./null:"
                )))
        }
        _ => Ok(()),
    }
}

fn request(
    dial: &Dial,
    connect: &Connect,
    is_asked: bool,
    greeting: &mut Greeting,
) -> Result<Accept> {
    if !is_asked {
        greeting.send(&Message::Connect(connect.clone()))?;
    }
    greeting
        .socket_mut()
        .set_deadline(Instant::now() + dial.timing.prepare);
    match greeting.receive()? {
        Message::Accept(accept) => Ok(accept),
        other => Err(refused(connect, unexpected("ACCEPT", &other))),
    }
}

/// Replaces `End::Here` in the passive end's error, where it means the peer's host, by the peer's
/// role.
fn refused(connect: &Connect, error: Error) -> Error {
    match error.end {
        End::Here => error.at(connect.passive_role.end()),
        _ => error,
    }
}

/// Returns the error for an end whose objects are smaller than those in which earlier data is
/// durable.
fn too_small(dial: &Dial, object_bytes: u64) -> Error {
    let (address, safe) = (dial.address.escape_debug(), dial.object_bytes_min);
    Error::new(
        ErrorKind::Unsupported,
        End::Network,
        "resume from durable data",
    )
    .cause(format!(
        "the log has objects of {safe} bytes, and {address} takes at most {object_bytes}"
    ))
    .remedy("give that end as much memory for a session as such objects need")
}

fn no_clear_data(dial: &Dial) -> Error {
    let operation = format!("open clear data streams to {}", dial.address.escape_debug());
    Error::new(ErrorKind::Unsupported, End::Network, operation)
        .cause("the other end does not allow them")
        .remedy("leave out the option, or have clear data allowed there")
}

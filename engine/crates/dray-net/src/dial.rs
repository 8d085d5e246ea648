//! Dials a passive end and establishes a session; one call returns the link.

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

/// Address, credentials and limits with which the driver dials a passive end.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Address at which the passive end listens: `host:port`.
    pub address: String,
    /// Key or authority by which the passive end is recognised.
    pub trust: Trust,
    /// Key and certificate that this end presents, if any.
    pub identity: Option<Arc<Identity>>,
    /// Token that this end sends.
    pub token: Token,
    /// Addresses of this host to connect from, used in rotation. If empty, the system chooses.
    pub bind: Vec<IpAddr>,
    /// Maximum number of streams to open at the start, out of the granted number.
    pub streams_first: u16,
    /// Limits of this end.
    pub limits: Limits,
    /// Delays between attempts to dial a lost stream again, and the maximum number of attempts. An
    /// object that arrives resets the count of attempts.
    pub retry: RetryPolicy,
    /// Timeouts and intervals.
    pub timing: Timing,
    /// True if the other end may discard the data. A caller that sets this must not report the data
    /// as durable.
    pub may_keep_nothing: bool,
    /// True if the other end must discard the data because the user requested this.
    pub must_keep_nothing: bool,
    /// True if this end's own sink discards the data. The other end is informed.
    pub keeps_nothing: bool,
    /// Size in bytes of the objects whose ranges the log of an earlier run lists. If the other end
    /// accepts only smaller objects, the durable data could not be used, so the session is refused.
    /// 0 accepts any size.
    pub object_bytes_min: u64,
    /// Rates that the receivers of a [`pull`] share with other sessions.
    pub shared: SharedRates,
}

impl Dial {
    /// Creates parameters with default values for all other fields.
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
    /// The link for an executor. Dropping the link without running an executor ends the session.
    pub link: L,
    /// Parameters that both ends agreed on. The configuration of the machine must stay within them.
    pub agreed: Agreed,
    /// Number of data streams that the passive end has granted.
    pub streams: u16,
    /// Opens more of the granted streams while the session runs.
    pub growth: Growth,
    /// Name and version of the peer's program, as the peer reports them. Escape this text before
    /// showing it.
    pub peer_software: String,
}

/// Begins a session with a passive sink; this end is the source. The function sets the role in
/// `connect`.
///
/// # Errors
/// - [`ErrorKind::Unreachable`] or [`ErrorKind::TimedOut`], with the address.
/// - [`ErrorKind::Unauthorized`] for a wrong token, or for a key other than the expected one. The
///   error names both keys.
/// - [`ErrorKind::IncompatiblePeer`].
/// - [`ErrorKind::Unsupported`] if the peer does not allow clear data.
/// - Any error with which the passive end refuses the request.
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

/// Begins a session with a passive source; this end is the sink, and its executor uses `pool`.
/// Objects are never longer than the buffers of `pool`. The function sets the role in `connect`.
///
/// # Errors
/// The errors of [`push`].
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
        // The passive end wants streams at other addresses, so the connections made in advance to
        // the control address cannot be used.
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
    // Open the streams on another thread, because the executor can announce files over the control
    // connection before a stream is open.
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

/// Runs the TLS handshake on a new connection. The handshake proves the identity of the passive
/// end.
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
                .cause(format!(
                    "the key of the other host is {offered}, but {pin} is pinned"
                ))
                .remedy(
                    "compare the offered key with the key that the server at the other host \
                        prints when it starts; if the other host has changed its key, pin the \
                        new key",
                ),
            (Trust::Authority(_), _) if error.kind() == io::ErrorKind::InvalidData => {
                unauthorized()
                    .cause(format!(
                        "the certificate of the other host is not trusted: {error}"
                    ))
                    .remedy(
                        "pin the key of the other host (--peer-key), or name the authority of its \
                            certificate (--ca, or tls.peers_ca of an endpoint)",
                    )
            }
            _ => fail::io_error(operation, &error),
        }
    })
}

/// Returns the host of `host:port` as the name that a certificate must contain. A pinned key is
/// checked without the name.
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
        // A passive end that stores data would create the destination folder on CONNECT. So wait
        // for the HELLO of the passive end, which says whether the passive end discards data.
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
            greeting.agree(&agreed);
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

/// Refuses an end that discards data if the caller did not allow this. Refuses an end that keeps
/// data if the caller requires an end that discards data.
fn keeps_as_asked(dial: &Dial, role: Role, keeps_nothing: bool) -> Result<()> {
    let address = dial.address.escape_debug();
    let operation = format!("open a session with {address}");
    let end = role.end();
    match keeps_nothing {
        true if !dial.may_keep_nothing => {
            let error = Error::new(ErrorKind::IncompatiblePeer, end, operation);
            Err(error
                .cause("the other host serves a null end, which stores no data")
                .remedy(format!(
                    "use another host; to measure without storing data, run dray cp with the \
                        destination dray://{address}/null:"
                )))
        }
        false if dial.must_keep_nothing => {
            let error = Error::new(ErrorKind::InvalidRequest, end, operation);
            Err(error
                .cause(
                    "the other host does not serve a null end; the other host stores the data \
                    that it receives",
                )
                .remedy(format!(
                    "use a host that serves null:, or write dray://{address}/./null: for a file \
                        with the name null:"
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

/// Replaces `End::Here` in an error of the passive end by the passive end's role. In such an error,
/// `Here` means the peer's host.
fn refused(connect: &Connect, error: Error) -> Error {
    match error.end {
        End::Here => error.at(connect.passive_role.end()),
        _ => error,
    }
}

/// Returns the error for a passive end that only accepts objects smaller than the objects of the
/// earlier run.
fn too_small(dial: &Dial, object_bytes: u64) -> Error {
    let (address, safe) = (dial.address.escape_debug(), dial.object_bytes_min);
    Error::new(
        ErrorKind::Unsupported,
        End::Network,
        "resume from durable data",
    )
    .cause(format!(
        "the object log has objects of {safe} bytes, but {address} accepts objects of at most \
            {object_bytes} bytes"
    ))
    .remedy(
        "at the other host, raise the memory of a session: --pool of dray serve, or \
        limits.memory of an endpoint",
    )
}

fn no_clear_data(dial: &Dial) -> Error {
    let operation = format!(
        "open unencrypted data streams to {}",
        dial.address.escape_debug()
    );
    Error::new(ErrorKind::Unsupported, End::Network, operation)
        .cause("the other host does not allow unencrypted data streams")
        .remedy(
            "omit the option for unencrypted data streams, or allow unencrypted data streams \
            at the other host",
        )
}

//! Calls to the control API of an endpoint. The command line uses this crate. An endpoint uses it
//! too, to call the endpoint at the other side of a transfer.
//!
//! A client keeps its connection open for the next call. To connect takes several round trips, and
//! a call takes only one. A kept connection may be dead, or the endpoint may have closed it to free
//! a slot. The client then repeats the call on a new connection if the endpoint cannot have
//! received the call, or if the method is idempotent.

mod form;

use dray_api::api_path;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, RelPath, Result, Status, TraceContext};
use dray_link::threads::refused;
use dray_net::{Identity, Trust, client_config};
use dray_store::errno::too_many_open;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

/// Maximum size of an answer in bytes: a page of a thousand transfers, and a margin.
pub const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Timeout for connecting. The time includes the name lookup and the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for an answer. The endpoint answers a long poll after up to 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum idle time after which a connection is used again. A firewall may silently drop the state
/// of a connection that is idle for longer. Endpoints keep idle connections open for longer than
/// this.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Maximum idle time of a kept connection if the next call has a method that is not idempotent. The
/// limit is shorter, because such a call must not be repeated.
const IDLE_MAX_NOT_IDEMPOTENT: Duration = Duration::from_secs(2);

/// Maximum time that sent data may stay unacknowledged before the connection counts as dead.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// Remedy if no trusted authority has issued the endpoint's certificate.
const UNTRUSTED: &str = "pin the endpoint's key (--peer-key), or name the authority of its \
    certificate (--ca)";

/// The sending half of a connection.
type Sender = http1::SendRequest<Full<Bytes>>;

/// An idle connection, and the async runtime that drives it.
struct IdleConnection {
    runtime: Runtime,
    sender: Sender,
    used_at: Instant,
}

/// The idle connection of a client. Clones of the client share it.
#[derive(Clone, Default)]
pub struct Keeper(Arc<Mutex<Option<IdleConnection>>>);

impl Keeper {
    /// Takes the kept connection if it is open and has not been idle for too long. The maximum idle
    /// time is shorter if `method` is not idempotent.
    fn take(&self, method: &Method) -> Option<IdleConnection> {
        let kept = self.0.lock_unpoisoned().take();
        let most = match method.is_idempotent() {
            true => IDLE_MAX,
            false => IDLE_MAX_NOT_IDEMPOTENT,
        };
        let mut kept = kept.filter(|kept| kept.used_at.elapsed() <= most)?;
        // Let the task of the connection run first. The task then notices whether the peer has
        // closed the connection.
        let ready = kept.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::time::timeout(CONNECT_TIMEOUT, kept.sender.ready()).await
        });
        matches!(ready, Ok(Ok(()))).then_some(kept)
    }

    fn put(&self, kept: IdleConnection) {
        *self.0.lock_unpoisoned() = Some(kept);
    }
}

/// Outcome of a call.
enum CallOutcome {
    /// An answer, or a refusal by the endpoint.
    Answered(Result<Value>),
    /// The connection was lost before an answer arrived.
    Lost {
        error: Error,
        /// True if the endpoint may have received the call.
        may_be_done: bool,
    },
}

impl CallOutcome {
    /// Returns the error of a call that was not answered.
    fn into_error(self) -> Error {
        match self {
            Self::Lost { error, .. } | Self::Answered(Err(error)) => error,
            Self::Answered(Ok(_)) => Error::new(ErrorKind::Internal, End::Here, "make a call"),
        }
    }

    const fn not_sent(error: Error) -> Self {
        Self::Lost {
            error,
            may_be_done: false,
        }
    }
}

/// An answer, parsed and as raw JSON.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// The parsed answer.
    pub read: T,
    /// The raw JSON, including fields that this version does not know.
    pub json: Value,
}

/// An endpoint, and the credentials for calls to it.
#[derive(Clone)]
pub struct Client {
    /// `HOST:PORT`.
    pub address: String,
    /// The keys or authorities that the endpoint's certificate must match.
    pub trust: Trust,
    /// The key that the client presents, if any.
    pub identity: Option<Arc<Identity>>,
    /// The bearer token that the client presents, if any.
    pub token: Option<String>,
    /// The span to which the calls belong, for the header `traceparent`.
    pub trace: Option<TraceContext>,
    /// Maximum size of an answer in bytes, usually [`ANSWER_BYTES_MAX`]. The parsed answer may take
    /// sixteen times as much memory.
    pub answer_bytes_max: usize,
    /// The idle connection that [`Client::call_and_wait`] uses for the next call.
    pub kept: Keeper,
}

// `Debug` is not derived, so that debug output never contains the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.address)
    }
}

/// Resolves `HOST:PORT` on a separate thread, because the resolver of the async runtime panics if
/// the system refuses to create a thread.
///
/// # Errors
/// If the system refuses to create the thread.
fn resolve(address: &str) -> Result<oneshot::Receiver<io::Result<Vec<SocketAddr>>>> {
    let (sender, receiver) = oneshot::channel();
    if let Ok(one) = address.parse() {
        let _ = sender.send(Ok(vec![one]));
        return Ok(receiver);
    }
    let address = address.to_owned();
    let looks = move || drop(sender.send(address.to_socket_addrs().map(Iterator::collect)));
    let started = Builder::new().name("resolve".to_owned()).spawn(looks);
    started.map(|_| receiver).map_err(|error| refused(&error))
}

impl Client {
    /// Makes a call and blocks until the answer arrives. Must not be called from an async task.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] and [`ErrorKind::TimedOut`]. [`ErrorKind::Unauthorized`] if the
    /// endpoint does not prove the expected identity. Otherwise the error in the endpoint's answer.
    pub fn call_and_wait(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        if let Some(kept) = self.kept.take(&method) {
            match self.call_on(kept, method.clone(), path, body) {
                CallOutcome::Answered(answer) => return answer,
                // The kept connection was lost and the call can be repeated safely, so the code
                // below makes the call again on a new connection.
                CallOutcome::Lost { may_be_done, .. } if !may_be_done || method.is_idempotent() => {
                }
                CallOutcome::Lost { error, .. } => return Err(error),
            }
        }
        match self.call_on(self.connected()?, method, path, body) {
            CallOutcome::Answered(answer) => answer,
            CallOutcome::Lost { error, .. } => Err(error),
        }
    }

    /// Makes a call, blocks until the answer arrives, and parses the answer.
    ///
    /// # Errors
    /// The errors of [`Client::call_and_wait`]. [`ErrorKind::Protocol`] if the answer does not have
    /// the form of `T`.
    pub fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer<T>> {
        let json = self.call_and_wait(method, path, body)?;
        match dray_api::read_answer(&json) {
            Ok(read) => Ok(Answer { read, json }),
            Err(error) => Err(self
                .error(
                    ErrorKind::Protocol,
                    format!("the endpoint's answer is not valid: {error}"),
                )
                .remedy("use the same version of dray at both ends, and report this error")),
        }
    }

    /// Connects now and keeps the connection, so that a call that follows soon takes less time.
    ///
    /// # Errors
    /// The errors of [`Client::call_and_wait`].
    pub fn connect_ahead(&self) -> Result<()> {
        self.connected().map(|kept| self.kept.put(kept))
    }

    fn connected(&self) -> Result<IdleConnection> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                let operation = "start the runtime for a call";
                Error::new(ErrorKind::Internal, End::Here, operation).cause(error.to_string())
            })?;
        let sender = runtime.block_on(self.connect())?;
        Ok(IdleConnection {
            runtime,
            sender,
            used_at: Instant::now(),
        })
    }

    /// Makes a call on the connection `kept`, and keeps the connection if an answer arrives.
    fn call_on(
        &self,
        mut kept: IdleConnection,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> CallOutcome {
        let exchange = self.exchange(&mut kept.sender, method, path, body);
        match kept.runtime.block_on(self.with_timeout(exchange)) {
            Ok((status, bytes)) => {
                kept.used_at = Instant::now();
                self.kept.put(kept);
                CallOutcome::Answered(self.parse_answer(status, &bytes))
            }
            Err(lost) => lost,
        }
    }

    /// Makes a call on a new connection. `path` includes the query. Returns the answer as JSON, or
    /// null for an empty answer.
    ///
    /// # Errors
    /// The errors of [`Client::call_and_wait`].
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let called = async {
            let mut sender = self.connect().await.map_err(CallOutcome::not_sent)?;
            self.exchange(&mut sender, method, path, body).await
        };
        match self.with_timeout(called).await {
            Ok((status, bytes)) => self.parse_answer(status, &bytes),
            Err(CallOutcome::Answered(answer)) => answer,
            Err(CallOutcome::Lost { error, .. }) => Err(error),
        }
    }

    async fn with_timeout<T>(
        &self,
        called: impl Future<Output = std::result::Result<T, CallOutcome>>,
    ) -> std::result::Result<T, CallOutcome> {
        let late = || CallOutcome::Lost {
            error: self.error(ErrorKind::TimedOut, "the endpoint sent no answer"),
            may_be_done: true,
        };
        tokio::time::timeout(CONNECT_TIMEOUT + ANSWER_TIMEOUT, called)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    fn parse_answer(&self, status: StatusCode, bytes: &Bytes) -> Result<Value> {
        let json: Option<Value> = match bytes.is_empty() {
            true => Some(Value::Null),
            false => serde_json::from_slice(bytes).ok(),
        };
        match json {
            Some(json) if status.is_success() => Ok(json),
            Some(json) => Err(error_in(&json).unwrap_or_else(|| self.unexpected_answer(status))),
            None => Err(self.unexpected_answer(status)),
        }
    }

    async fn connect(&self) -> Result<Sender> {
        let lost = |error: &dyn fmt::Display| self.error(ErrorKind::Unreachable, error);
        let (tls, pinned) = client_config(&self.trust, self.identity.as_deref())?;
        let mut tls = (*tls).clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = self
            .address
            .rsplit_once(':')
            .map_or(&*self.address, |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| self.error(ErrorKind::InvalidRequest, error))?;
        let connected = async {
            let addresses = resolve(&self.address)?;
            let addresses = addresses
                .await
                .unwrap_or_else(|gone| Err(io::Error::other(gone)));
            let addresses = addresses.map_err(|error| lost(&error))?;
            let socket = TcpStream::connect(&*addresses).await.map_err(|error| {
                let lack = too_many_open(End::Here, &self.operation(), &error);
                lack.unwrap_or_else(|| lost(&error))
            })?;
            // Disable Nagle's algorithm: a call is written completely, so no later data could share
            // its last segment.
            let _ = socket.set_nodelay(true);
            let _ = rustix::net::sockopt::set_tcp_user_timeout(
                &socket,
                u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX),
            );
            let handshake = TlsConnector::from(Arc::new(tls)).connect(name, socket);
            handshake.await.map_err(|error| {
                match pinned.as_ref().and_then(|pinned| pinned.other_key()) {
                    Some(offered) => self
                        .error(
                            ErrorKind::Unauthorized,
                            format!(
                                "the endpoint's key is {offered}, \
                            not the pinned key"
                            ),
                        )
                        .remedy(
                            "compare the offered key with the key that the endpoint prints when \
                                it starts",
                        ),
                    None if error.kind() == std::io::ErrorKind::InvalidData => {
                        self.error(ErrorKind::Unauthorized, error).remedy(UNTRUSTED)
                    }
                    None => lost(&error),
                }
            })
        };
        let socket = tokio::time::timeout(CONNECT_TIMEOUT, connected)
            .await
            .unwrap_or_else(|_| {
                Err(self.error(
                    ErrorKind::TimedOut,
                    "the client could not connect to the endpoint",
                ))
            })?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(|error| lost(&error))?;
        // The spawned task ends when `sender` is dropped.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn exchange(
        &self,
        sender: &mut Sender,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> std::result::Result<(StatusCode, Bytes), CallOutcome> {
        let answer = self.send(sender, method, path, body).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), self.answer_bytes_max).collect();
        let body = body.await.map_err(|error| CallOutcome::Lost {
            error: self.error(ErrorKind::Unreachable, error),
            may_be_done: true,
        })?;
        Ok((status, body.to_bytes()))
    }

    async fn send(
        &self,
        sender: &mut Sender,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> std::result::Result<Response<Incoming>, CallOutcome> {
        let lost = |error: hyper::Error| CallOutcome::Lost {
            // hyper reports a call as cancelled only if it has sent no byte of the request.
            may_be_done: !error.is_canceled(),
            error: self.error(ErrorKind::Unreachable, error),
        };
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(HOST, &self.address);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(trace) = self.trace {
            request = request.header("traceparent", trace.to_string());
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                body.to_string().into_bytes()
            }
            None => Vec::new(),
        };
        let request = request
            .body(Full::new(Bytes::from(bytes)))
            .map_err(|error| CallOutcome::not_sent(self.error(ErrorKind::InvalidRequest, error)))?;
        sender.send_request(request).await.map_err(lost)
    }

    /// Makes a GET call, and writes the body of the answer to `to` while it arrives. Blocks until
    /// the body is complete. The body may have any size.
    ///
    /// # Errors
    /// The errors of [`Client::call_and_wait`]. The errors of `to`. After an error, `to` may have a
    /// part of the body.
    pub fn download(&self, path: &str, to: &mut impl io::Write) -> Result<()> {
        let mut kept = self.connected()?;
        kept.runtime.block_on(async {
            let late = || self.error(ErrorKind::TimedOut, "the endpoint sent no answer");
            let sent = self.with_timeout(self.send(&mut kept.sender, Method::GET, path, None));
            let answer = sent.await.map_err(CallOutcome::into_error)?;
            let status = answer.status();
            let mut body = answer.into_body();
            if !status.is_success() {
                let body = Limited::new(body, self.answer_bytes_max).collect();
                let body = tokio::time::timeout(ANSWER_TIMEOUT, body).await;
                let body = body.map_err(|_| late())?;
                let body = body.map_err(|error| self.error(ErrorKind::Unreachable, error))?;
                return self.parse_answer(status, &body.to_bytes()).map(drop);
            }
            loop {
                let frame = tokio::time::timeout(ANSWER_TIMEOUT, body.frame()).await;
                let Some(frame) = frame.map_err(|_| late())? else {
                    return Ok(());
                };
                let frame = frame.map_err(|error| self.error(ErrorKind::Unreachable, error))?;
                let Ok(bytes) = frame.into_data() else {
                    continue;
                };
                to.write_all(&bytes).map_err(|error| {
                    Error::new(error.kind().into(), End::Here, "write the answer")
                        .cause(error.to_string())
                        .remedy("check the free space and the permissions of the folder")
                })?;
            }
        })
    }

    fn operation(&self) -> String {
        format!("ask the endpoint {}", self.address.escape_debug())
    }

    fn error(&self, kind: ErrorKind, cause: impl fmt::Display) -> Error {
        let error = Error::new(kind, End::Network, self.operation()).cause(cause.to_string());
        match kind {
            ErrorKind::Unreachable | ErrorKind::TimedOut => {
                error.remedy("check the address, and that the endpoint runs")
            }
            _ => error,
        }
    }

    /// Returns the error for an answer that does not come from an endpoint.
    fn unexpected_answer(&self, status: StatusCode) -> Error {
        self.error(
            ErrorKind::Protocol,
            format!("the server answered {status}, but not in the form of a dray endpoint"),
        )
        .remedy("check that an endpoint runs at the given address")
    }
}

/// Returns the error in an answer, if any.
fn error_in(json: &Value) -> Option<Error> {
    let parts = json.get("error")?;
    let text = |field: &str| parts.get(field).and_then(Value::as_str).unwrap_or_default();
    let word = |field: &str| parts.get(field).cloned().unwrap_or_default();
    // A newer endpoint may send a kind of error that this version does not know.
    let kind = serde_json::from_value(word("kind")).unwrap_or(ErrorKind::Other);
    let end = serde_json::from_value(word("end")).unwrap_or(End::Network);
    let status: Option<Status> = serde_json::from_value(word("status")).ok();
    let mut error = Error::new(kind, end, text("operation"))
        .cause(text("cause"))
        .remedy(text("remedy"));
    if let Some(status) = status {
        error = error.status(status);
    }
    let file = parts.get("file").and_then(Value::as_str);
    let file = file.and_then(|text| api_path::decode(text).ok());
    if let Some(file) = file.and_then(|bytes| RelPath::parse(&bytes).ok()) {
        error = error.file(&file);
    }
    Some(error)
}

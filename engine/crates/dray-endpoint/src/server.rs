//! Connections of callers, from an accepted socket to the API's router.
//!
//! Purpose: HTTP/1.1 and HTTP/2, with and without TLS. This module limits the time, headers and
//! streams of a connection, and the number of connections. When the server stops, the module waits
//! for running calls to end.
//!
//! Not for: accepting connections of the data port, looking at their first byte, sessions.
//!
//! Invariant owned here: a silent peer occupies a slot only for a limited time.

mod io;

use crate::connection::{ClearText, ConnectionTable, PeerAddress, PeerCertificates};
use crate::metrics::Metrics;
use axum::Router;
use dray_config::Limits;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads::refused;
use dray_net::Lack;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use io::{Patience, Timely};
use rustls::ServerConfig;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder as RuntimeBuilder, Handle};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsAcceptor;

/// Number of threads that answer calls. Each thread has its own connections. So a long call on one
/// thread delays only the connections of that thread.
const THREADS: usize = 2;

/// Maximum time that `Driver::end` waits for a thread.
const END_TIME: Duration = Duration::from_secs(1);

/// Maximum duration of a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Maximum time until the head of the next request has arrived. It is also the maximum idle time of
/// an HTTP/1.1 connection.
const HEAD_TIME: Duration = Duration::from_secs(60);

/// Maximum time for which a peer may read no byte of a pending write.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// Interval of pings to an HTTP/2 peer.
const ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time for the answer to a ping.
const ALIVE_TIME: Duration = Duration::from_secs(20);

/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Maximum total size in bytes of the headers of a request. A token with many groups has 8 KiB.
const HEADER_BYTES_MAX: u32 = 64 * 1024;

/// Maximum number of concurrent calls of one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;

/// Pause after a failed accept. Accept fails, for example, when the process has too many open
/// files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections. The server has two runtimes with one thread each. Calls that block run on
/// other threads ([`crate::workers`]).
pub struct Server {
    drivers: Mutex<Vec<Driver>>,
    handles: [Handle; THREADS],
    turn: AtomicUsize,
    table: Arc<ConnectionTable>,
    metrics: Arc<Metrics>,
    router: Router,
    stopping: watch::Sender<bool>,
}

/// A thread that answers calls. It ends when this value is dropped.
struct Driver {
    thread: JoinHandle<()>,
    ends: oneshot::Sender<()>,
}

impl Driver {
    /// Starts the thread and its runtime.
    ///
    /// # Errors
    /// `Busy` if the system refuses the thread.
    fn start() -> Result<(Self, Handle)> {
        // A current-thread runtime on our own thread, because a multi-thread runtime panics if the
        // system refuses a thread.
        let runtime = RuntimeBuilder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed("start the API", &error))?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("api".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            })
            .map_err(|error| refused(&error))?;
        Ok((Self { thread, ends }, handle))
    }

    /// Stops the thread, and waits at most [`END_TIME`] for its end. Must not be called on that
    /// thread.
    fn end(self) {
        let _ = self.ends.send(());
        let until = Instant::now() + END_TIME;
        while !self.thread.is_finished() {
            if Instant::now() > until {
                tracing::error!(
                    "a thread that answers API calls did not end before the time limit and is \
                        abandoned"
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?})", self.table)
    }
}

fn failed(operation: &str, error: &std::io::Error) -> Error {
    Error::new(error.kind().into(), End::Here, operation).cause(error.to_string())
}

impl Server {
    /// Starts the runtimes.
    ///
    /// # Errors
    /// `Busy` if the system refuses a thread.
    pub fn new(router: Router, limits: &Limits, metrics: Arc<Metrics>) -> Result<Self> {
        let (first, second) = (Driver::start()?, Driver::start()?);
        Ok(Self {
            handles: [first.1, second.1],
            drivers: Mutex::new(vec![first.0, second.0]),
            turn: AtomicUsize::new(0),
            table: ConnectionTable::new(limits.connections, limits.connections_per_address),
            metrics,
            router,
            stopping: watch::Sender::new(false),
        })
    }

    /// Returns the handle of a runtime on which other modules can run tasks.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handles[0]
    }

    /// Returns the runtime for the next connection.
    fn next(&self) -> &Handle {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.handles[turn % THREADS]
    }

    /// Serves an accepted connection and returns immediately. The caller may have peeked at the
    /// first byte, but must not have read it. With `tls`, the connection starts with a TLS
    /// handshake.
    ///
    /// # Errors
    /// If no slot is free for the connection, or if the system refuses a resource. The connection
    /// is then closed.
    pub fn serve_connection(
        &self,
        stream: TcpStream,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<()> {
        let operation = "serve a caller's connection";
        let peer = stream
            .peer_addr()
            .map_err(|error| failed(operation, &error))?;
        let slot = self.table.take(peer.ip(), &self.metrics).ok_or_else(|| {
            Error::new(ErrorKind::Busy, End::Here, operation)
                .cause(format!(
                    "the limit of connections is reached, for the address {} or for all addresses \
                        together",
                    peer.ip()
                ))
                .remedy("close some connections, or raise limits.connections")
        })?;
        stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(|error| failed(operation, &error))?;
        let handle = self.next();
        let _entered = handle.enter();
        let stream =
            tokio::net::TcpStream::from_std(stream).map_err(|error| failed(operation, &error))?;
        let (router, stopping) = (self.router.clone(), self.stopping.subscribe());
        handle.spawn(async move {
            let router = router.layer(axum::Extension(slot.reference()));
            let served = async {
                let patience = Patience {
                    opening: HEAD_TIME,
                    write: WRITE_TIME,
                };
                match tls {
                    None => {
                        let stream = Timely::new(stream, patience);
                        let nobody = PeerCertificates::default();
                        let router = router.layer(axum::Extension(ClearText));
                        converse(stream, router, nobody, peer, stopping).await;
                    }
                    Some(config) => {
                        let handshake = TlsAcceptor::from(config).accept(stream);
                        // A failed handshake is not reported here, because TLS reports it to the
                        // peer.
                        let done = tokio::time::timeout(HANDSHAKE_TIME, handshake).await;
                        if let Ok(Ok(stream)) = done {
                            let shown = stream.get_ref().1.peer_certificates();
                            let shown = shown.unwrap_or_default().iter().cloned().collect();
                            // Wraps the decrypted stream, so that the time limits apply to
                            // decrypted bytes.
                            let stream = Timely::new(stream, patience);
                            let shown = PeerCertificates(shown);
                            converse(stream, router, shown, peer, stopping).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = served => {}
                // A new connection has taken the slot.
                () = slot.cut() => {}
            }
        });
        Ok(())
    }

    /// Listens for plain HTTP on an address until the server stops. Returns the actual address:
    /// port 0 selects a free port.
    ///
    /// # Errors
    /// If the server cannot listen on the address.
    pub fn listen_plain(self: &Arc<Self>, address: &str) -> Result<std::net::SocketAddr> {
        let operation = format!("listen on {address}");
        let wrong = |error: std::io::Error| failed(&operation, &error);
        let listener = TcpListener::bind(address).map_err(wrong)?;
        let local = listener.local_addr().map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let _entered = self.handle().enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(wrong)?;
        let server = Arc::downgrade(self);
        let mut stopping = self.stopping.subscribe();
        self.handle().spawn(async move {
            let lack = Lack::default();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = stopping.changed() => return,
                };
                let Some(server) = server.upgrade() else {
                    return;
                };
                match accepted.and_then(|(stream, _)| stream.into_std()) {
                    // The result is ignored, because `serve_connection` itself counts and closes a
                    // refused connection.
                    Ok(stream) => drop(server.serve_connection(stream, None)),
                    Err(error) => {
                        if let Some(lack) = lack.of(&error) {
                            tracing::error!("{lack}");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
        Ok(local)
    }

    /// Stops the server. It accepts no more calls, waits at most `patience` for running calls, and
    /// closes all connections. The caller must call the API's own `stop` first, so that long polls
    /// end. Must not be called from a task of the server.
    pub fn stop(&self, patience: Duration) {
        self.stopping.send_replace(true);
        let drivers = {
            let mut drivers = self.drivers.lock_unpoisoned();
            std::mem::take(&mut *drivers)
        };
        if drivers.is_empty() {
            return;
        }
        let until = Instant::now() + patience;
        while self.metrics.connections.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Ending the threads closes all remaining connections.
        drivers.into_iter().for_each(Driver::end);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

async fn converse<S>(
    stream: S,
    router: Router,
    certificates: PeerCertificates,
    peer: SocketAddr,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ALIVE_INTERVAL)
        .keep_alive_timeout(ALIVE_TIME)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX);
    // Every request gets the certificates and the address of its connection as extensions.
    let service = TowerToHyperService::new(
        router
            .layer(axum::Extension(certificates))
            .layer(axum::Extension(PeerAddress(peer))),
    );
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // An error on a connection ends only that connection and is not reported.
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests;

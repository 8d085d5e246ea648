//! A TCP proxy in front of an endpoint. It counts the bytes, and carries out network faults.
//!
//! The proxy works on pieces of a TCP stream, of at most [`PIECE_BYTES`]. A flipped, swapped or
//! repeated piece breaks the stream of TLS records. So the ends of a TLS connection notice each of
//! these faults and close the connection. Over connections without TLS, dray notices them by its
//! checksums.

mod pieces;
#[cfg(test)]
mod tests;

use crate::plan::Fault;
use dray_core::lock::LockExt;
use dray_core::{End, Error, Result};
use pieces::{Effect, Fate, Faults};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of bytes of a piece.
const PIECE_BYTES: usize = 1 << 16;
/// Maximum time for which a piece waits for the next one, to change places with it.
const SWAP_WAIT: Duration = Duration::from_millis(100);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Pause after the system has refused a connection. The reason may last, such as too many open
/// files.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// A running proxy.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    upstream: SocketAddr,
    connections: Mutex<Vec<Arc<Connection>>>,
    faults: Faults,
    /// Bytes from the end that dialled.
    up: AtomicU64,
    /// Bytes from the end that listens.
    down: AtomicU64,
    accepted: AtomicU64,
    is_closed: AtomicBool,
}

struct Connection {
    dialler: TcpStream,
    listener: TcpStream,
    ended_directions: AtomicU32,
}

impl Connection {
    /// Ends both directions. Data on its way is lost.
    fn cut(&self) {
        for half in [&self.dialler, &self.listener] {
            // With a linger time of zero, the end of the last handle sends a reset.
            let _ = rustix::net::sockopt::set_socket_linger(half, Some(Duration::ZERO));
            let _ = half.shutdown(Shutdown::Both);
        }
    }
}

/// Bytes and connections that have passed the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Bytes from the end that dialled.
    pub(crate) up_bytes: u64,
    /// Bytes from the end that listens.
    pub(crate) down_bytes: u64,
    pub(crate) connections: u64,
}

impl Proxy {
    /// Starts to listen, and forwards each connection to `upstream`.
    ///
    /// # Errors
    /// If the address cannot be used, or if the system refuses a thread.
    pub(crate) fn start(listen: &str, upstream: SocketAddr) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(
                error.kind().into(),
                End::Here,
                format!("listen on {listen}"),
            )
            .cause(error.to_string())
            .remedy("choose another address for `proxy` in the plan")
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            upstream,
            connections: Mutex::new(Vec::new()),
            faults: Faults::default(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("chaos-proxy".to_owned());
        thread
            .spawn(move || accept(&own, listener.incoming()))
            .map_err(failed)?;
        Ok(Self { shared, address })
    }

    /// Returns the address at which the proxy listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes and connections so far.
    pub(crate) fn carried(&self) -> Carried {
        Carried {
            up_bytes: self.shared.up.load(Ordering::Relaxed),
            down_bytes: self.shared.down.load(Ordering::Relaxed),
            connections: self.shared.accepted.load(Ordering::Relaxed),
        }
    }

    /// Resets all connections. Returns their number.
    pub(crate) fn cut(&self) -> u32 {
        let connections = self.shared.connections.lock_unpoisoned();
        for connection in connections.iter() {
            connection.cut();
        }
        u32::try_from(connections.len()).unwrap_or(u32::MAX)
    }

    /// Begins a fault of pieces. Returns the counter of its injections, or `None` if the fault does
    /// not affect pieces.
    pub(crate) fn begin(&self, fault: &Fault, seed: u64) -> Option<Arc<AtomicU32>> {
        self.shared.faults.begin(fault, seed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the thread that accepts connections, so that it ends.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_MAX);
    }
}

fn accept(shared: &Arc<Shared>, diallers: impl Iterator<Item = std::io::Result<TcpStream>>) {
    for dialler in diallers {
        if shared.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(dialler) = dialler else {
            std::thread::sleep(REFUSED_PAUSE);
            continue;
        };
        // If the endpoint does not listen, the dialler sees a closed connection.
        let Ok(listener) = TcpStream::connect_timeout(&shared.upstream, CONNECT_MAX) else {
            continue;
        };
        for half in [&dialler, &listener] {
            let _ = half.set_nodelay(true);
        }
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            dialler,
            listener,
            ended_directions: AtomicU32::new(0),
        });
        shared
            .connections
            .lock_unpoisoned()
            .push(Arc::clone(&connection));
        for is_up in [true, false] {
            let (shared, own) = (Arc::clone(shared), Arc::clone(&connection));
            let thread = std::thread::Builder::new().name("chaos-pieces".to_owned());
            if thread.spawn(move || carry(&shared, &own, is_up)).is_err() {
                connection.cut();
            }
        }
    }
}

/// Carries one direction of a connection until it ends.
fn carry(shared: &Shared, connection: &Arc<Connection>, is_up: bool) {
    let (source, sink, counter) = match is_up {
        true => (&connection.dialler, &connection.listener, &shared.up),
        false => (&connection.listener, &connection.dialler, &shared.down),
    };
    match carry_pieces(shared, source, sink, counter) {
        Ok(()) => drop(sink.shutdown(Shutdown::Write)),
        Err(_) => connection.cut(),
    }
    if connection.ended_directions.fetch_add(1, Ordering::Relaxed) == 1 {
        let mut connections = shared.connections.lock_unpoisoned();
        connections.retain(|other| !Arc::ptr_eq(other, connection));
    }
}

fn carry_pieces(
    shared: &Shared,
    mut source: &TcpStream,
    mut sink: &TcpStream,
    counter: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        counter.fetch_add(count as u64, Ordering::Relaxed);
        let Fate { wait, effect } = shared.faults.fate(count);
        std::thread::sleep(wait);
        let piece = &mut buffer[..count];
        match effect {
            Some(Effect::Flip(bit)) => {
                piece[bit / 8] ^= 1 << (bit % 8);
                sink.write_all(piece)?;
            }
            Some(Effect::Repeat) => {
                sink.write_all(piece)?;
                sink.write_all(piece)?;
            }
            Some(Effect::Swap(fault)) => {
                let held = piece.to_vec();
                let next = read_within(source, &mut buffer, SWAP_WAIT)?;
                counter.fetch_add(next as u64, Ordering::Relaxed);
                sink.write_all(&buffer[..next])?;
                sink.write_all(&held)?;
                shared.faults.swapped(fault, next > 0);
            }
            None => sink.write_all(piece)?,
        }
    }
}

/// Reads the next piece. Returns 0 if none arrives in time, or at the end of the stream.
fn read_within(
    mut source: &TcpStream,
    buffer: &mut [u8],
    wait: Duration,
) -> std::io::Result<usize> {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    source.set_read_timeout(Some(wait))?;
    let count = match source.read(buffer) {
        Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => Ok(0),
        other => other,
    };
    source.set_read_timeout(None)?;
    count
}

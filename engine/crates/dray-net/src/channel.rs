//! A connection as a byte stream in both directions, in clear or under TLS.

use super::socket::Socket;
use dray_wire::codec::{self, Preamble, Security};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, Connection};
use std::hint::black_box;
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, Once};

/// Maximum number of bytes of ciphertext in one read: sixteen TLS records of full size.
const RAW_BYTES: usize = 256 << 10;

/// Number of bytes of freed memory that the allocator must keep for reuse. The TLS records of all
/// connections together need less memory than this at any moment.
const KEPT_BYTES: usize = 4 << 20;

/// Makes the allocator keep freed memory for reuse. TLS allocates each record separately, and frees
/// sixteen records in a row. By default glibc returns that much memory to the system immediately,
/// and maps it again, page by page, for the next sixteen records. glibc raises its limit for
/// returning memory after the program has freed a larger allocation (`mallopt(3)`,
/// `M_MMAP_THRESHOLD`, "dynamic"). So this function makes and frees one large allocation.
fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(KEPT_BYTES))));
}

/// A connection whose preamble was exchanged.
pub(super) enum Channel {
    /// Without encryption.
    Clear(Socket),
    /// Under TLS.
    Tls(Box<TlsChannel>),
}

/// A TLS connection over a socket, used by a single thread.
pub(super) struct TlsChannel {
    socket: Socket,
    tls: Connection,
    raw: RawBytes,
}

/// Ciphertext that was read from the socket and not yet passed to TLS.
#[derive(Default)]
pub(super) struct RawBytes {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl RawBytes {
    /// Returns the ciphertext that was not yet passed to TLS.
    pub(super) fn held(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Passes ciphertext to `tls`. Reads from the socket first if no ciphertext is left. Returns
    /// false at the end of the connection.
    fn feed(&mut self, tls: &mut Connection, socket: &mut Socket) -> io::Result<bool> {
        if self.held().is_empty() {
            // The first read allocates the buffer, and the connection keeps it until the end.
            self.bytes.resize(RAW_BYTES, 0);
            self.start = 0;
            self.end = socket.read(&mut self.bytes)?;
            if self.end == 0 {
                return Ok(false);
            }
        }
        let mut held = self.bytes.get(self.start..self.end).unwrap_or_default();
        let taken = tls.read_tls(&mut held)?;
        self.start += taken;
        tls.process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(true)
    }
}

impl Channel {
    /// Runs the TLS handshake until the socket's deadline.
    ///
    /// # Errors
    /// Errors of the socket; [`io::ErrorKind::InvalidData`] if TLS rejects the peer's data.
    pub(super) fn tls(mut socket: Socket, mut tls: Connection) -> io::Result<Self> {
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut socket)?;
        }
        keep_freed_memory();
        // Every write drains the TLS buffer, so a smaller limit would only cost more writes to the
        // socket.
        tls.set_buffer_limit(Some(RAW_BYTES));
        Ok(Self::Tls(Box::new(TlsChannel {
            socket,
            tls,
            raw: RawBytes::default(),
        })))
    }

    /// Returns the certificates that the peer presented under TLS, leaf first. The peer has proved
    /// that it holds the leaf's key.
    pub(super) fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        let shown = match self {
            Self::Clear(_) => None,
            Self::Tls(channel) => channel.tls.peer_certificates(),
        };
        let shown = shown.unwrap_or_default().iter();
        shown.map(|one| one.clone().into_owned()).collect()
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(channel) => &channel.socket,
        }
    }

    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(channel) => &mut channel.socket,
        }
    }

    /// Writes all of `first` and then all of `second` to the socket.
    ///
    /// # Errors
    /// Errors of the socket. After an error, the number of bytes written is unknown.
    pub(super) fn write_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        match self {
            Self::Clear(socket) => write_vectored_all(socket, first, second),
            Self::Tls(channel) => {
                // Pass both parts to TLS together: a head that is written alone would become a
                // separate record.
                let mut parts = [IoSlice::new(first), IoSlice::new(second)];
                let mut rest = &mut parts[..];
                while rest.iter().any(|part| !part.is_empty()) {
                    let taken = channel.tls.writer().write_vectored(rest)?;
                    IoSlice::advance_slices(&mut rest, taken);
                    channel.drain()?;
                }
                Ok(())
            }
        }
    }

    /// Sends TLS's close notification if the connection still works. No data may follow.
    pub(super) fn end(&mut self) {
        if let Self::Tls(channel) = self {
            channel.tls.send_close_notify();
            let _ = channel.drain();
        }
    }

    /// Splits a TLS connection into its parts, for use by several threads. Returns `None` for a
    /// connection in clear.
    pub(super) fn into_tls(self) -> Option<(Socket, Connection, RawBytes)> {
        match self {
            Self::Clear(_) => None,
            Self::Tls(channel) => Some((channel.socket, channel.tls, channel.raw)),
        }
    }
}

impl TlsChannel {
    fn drain(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(buffer),
            Self::Tls(channel) => loop {
                match channel.tls.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
                if !channel.raw.feed(&mut channel.tls, &mut channel.socket)? {
                    return Ok(0);
                }
                // TLS may have to answer a key update of the peer; send the answer.
                channel.drain()?;
            },
        }
    }
}

/// Sends the preamble and runs the handshake that the preamble announces.
pub(super) fn secure(
    mut socket: Socket,
    connection: codec::Connection,
    security: Security,
    tls: &Arc<ClientConfig>,
    name: &ServerName<'static>,
) -> io::Result<Channel> {
    let preamble = Preamble {
        connection,
        security,
    };
    socket.write_all(&preamble.to_bytes())?;
    if security == Security::Clear {
        return Ok(Channel::Clear(socket));
    }
    let tls = rustls::ClientConnection::new(Arc::clone(tls), name.clone());
    let tls = tls.map_err(io::Error::other)?;
    Channel::tls(socket, tls.into())
}

fn write_vectored_all(socket: &mut Socket, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut parts = [IoSlice::new(first), IoSlice::new(second)];
    let mut rest = &mut parts[..];
    while rest.iter().any(|part| !part.is_empty()) {
        match socket.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => IoSlice::advance_slices(&mut rest, taken),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

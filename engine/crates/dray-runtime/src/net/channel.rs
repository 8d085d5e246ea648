//! One connection as bytes in and bytes out, in clear or under TLS.

use super::socket::Socket;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use std::hint::black_box;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Once;

/// Ciphertext read at once: sixteen TLS records of full size.
const RAW_BYTES: usize = 256 << 10;

/// Freed memory that the allocator is to keep: more than all connections' records of one moment.
const KEPT_BYTES: usize = 4 << 20;

/// Lets the allocator keep what is freed. TLS has a piece of memory for each record, and sixteen of them
/// are freed in a row: so much that glibc gives it back to the system at once, and takes it anew, page
/// by page, for the next run. It stops that once a larger piece was freed (`mallopt(3)`,
/// `M_MMAP_THRESHOLD`, "dynamic").
fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(KEPT_BYTES))));
}

/// A connection past its preamble.
pub(super) enum Channel {
    /// As it is.
    Clear(Socket),
    /// Under TLS.
    Tls(Box<TlsChannel>),
}

/// A TLS connection over a socket, used by one thread.
pub(super) struct TlsChannel {
    socket: Socket,
    tls: Connection,
    raw: RawBytes,
}

/// Ciphertext that was read and not yet taken by TLS.
#[derive(Default)]
pub(super) struct RawBytes {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl RawBytes {
    /// What is there.
    pub(super) fn held(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Gives some to `tls`, reading from the socket first when there is none; false at the
    /// connection's end.
    fn feed(&mut self, tls: &mut Connection, socket: &mut Socket) -> io::Result<bool> {
        if self.held().is_empty() {
            // Reserved when the first byte is wanted, kept for the connection's life.
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
    /// Does the TLS handshake, within the socket's deadline.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::InvalidData`] for what TLS refuses.
    pub(super) fn tls(mut socket: Socket, mut tls: Connection) -> io::Result<Self> {
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut socket)?;
        }
        keep_freed_memory();
        // Only drained buffers are ever left behind, so the limit would only cost wake-ups.
        tls.set_buffer_limit(Some(RAW_BYTES));
        Ok(Self::Tls(Box::new(TlsChannel {
            socket,
            tls,
            raw: RawBytes::default(),
        })))
    }

    /// What the peer showed of itself under TLS, leaf first; it holds the leaf's key.
    pub(super) fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        let shown = match self {
            Self::Clear(_) => None,
            Self::Tls(channel) => channel.tls.peer_certificates(),
        };
        let shown = shown.unwrap_or_default().iter();
        shown.map(|one| one.clone().into_owned()).collect()
    }

    /// The socket underneath.
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(channel) => &channel.socket,
        }
    }

    /// The socket underneath, to change its deadline.
    pub(super) fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(channel) => &mut channel.socket,
        }
    }

    /// Writes `first` and then `second`, both whole, down to the socket.
    ///
    /// # Errors
    /// Those of the socket; what was written of the two is then unknown.
    pub(super) fn write_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        match self {
            Self::Clear(socket) => write_vectored_all(socket, first, second),
            Self::Tls(channel) => {
                // A head alone would make a record of its own; TLS takes both into one run.
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

    /// Says, as far as possible, that nothing follows.
    pub(super) fn end(&mut self) {
        if let Self::Tls(channel) = self {
            channel.tls.send_close_notify();
            let _ = channel.drain();
        }
    }

    /// Takes a TLS connection apart for use by several threads; `None` in clear.
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
                // An answer to a new key of the peer's.
                channel.drain()?;
            },
        }
    }
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

//! TCP sockets: connects from a chosen local address, keeps a deadline across many calls, and
//! configures sockets.

use super::fail;
use dray_core::{End, Error, ErrorKind, Result};
use socket2::{Domain, Protocol, SockAddr, SockRef, TcpKeepalive, Type};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of unanswered keep-alive probes after which an idle connection counts as dead.
const KEEPALIVE_PROBES: u32 = 4;

/// A socket with one deadline for all operations until the connection is trusted. A peer cannot
/// extend the deadline by sending a byte from time to time.
#[derive(Debug, Clone)]
pub(super) struct Socket {
    stream: Arc<TcpStream>,
    until: Option<Instant>,
}

impl Socket {
    /// Creates a socket whose handshake must be complete at `until`.
    pub(super) fn new(stream: Arc<TcpStream>, until: Instant) -> Self {
        Self {
            stream,
            until: Some(until),
        }
    }

    pub(super) const fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    pub(super) const fn set_deadline(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Removes the deadline. After this call a read waits as long as the peer's host is alive. A
    /// write fails if no bytes are acknowledged for `lost_after`.
    pub(super) fn settle(&mut self, lost_after: Duration) -> io::Result<()> {
        self.until = None;
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(Some(lost_after))?;
        let socket = SockRef::from(&*self.stream);
        let keepalive = TcpKeepalive::new()
            .with_time(lost_after / 2)
            .with_interval((lost_after / 2 / KEEPALIVE_PROBES).max(Duration::from_secs(1)))
            .with_retries(KEEPALIVE_PROBES);
        // These options are best effort. On hosts without them the pings of the control connection
        // detect a dead path.
        let _ = socket.set_tcp_keepalive(&keepalive);
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(lost_after));
        Ok(())
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(until) = self.until else {
            return Ok(None);
        };
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let left @ Some(_) = self.left()? {
            self.stream.set_read_timeout(left)?;
        }
        (&*self.stream).read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if let left @ Some(_) = self.left()? {
            self.stream.set_write_timeout(left)?;
        }
        (&*self.stream).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if let left @ Some(_) = self.left()? {
            self.stream.set_write_timeout(left)?;
        }
        (&*self.stream).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a connection in both directions. Threads that wait for the connection wake up.
pub(super) fn shut(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

/// Returns true if `error` means that the peer has closed the connection, regularly or because its
/// program ended.
pub(super) fn is_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let kind = error.kind();
    kind == Kind::UnexpectedEof || kind == Kind::ConnectionReset || kind == Kind::BrokenPipe
}

pub(super) fn resolve(address: &str) -> Result<Vec<SocketAddr>> {
    let operation = || format!("find the address {}", address.escape_debug());
    let found: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(
                Error::new(ErrorKind::InvalidRequest, End::Here, operation())
                    .cause(error.to_string())
                    .remedy("write HOST:PORT, or [IPV6]:PORT"),
            );
        }
        Err(error) => {
            return Err(
                Error::new(ErrorKind::Unreachable, End::Network, operation())
                    .cause(error.to_string())
                    .remedy("check the host name and the name service of this host"),
            );
        }
    };
    if found.is_empty() {
        return Err(fail::lost("the host name has no address"));
    }
    Ok(found)
}

/// Connects to `address` (`host:port`); tries the resolved addresses one after the other. The local
/// address is one of `bind` with the same address family. If there are several such addresses,
/// `turn` selects one.
pub(super) fn connect(
    address: &str,
    bind: &[IpAddr],
    turn: usize,
    timeout: Duration,
) -> Result<TcpStream> {
    let until = Instant::now() + timeout;
    let mut last = None;
    for to in resolve(address)? {
        let from: Vec<&IpAddr> = bind
            .iter()
            .filter(|ip| ip.is_ipv4() == to.is_ipv4())
            .collect();
        if from.is_empty() && !bind.is_empty() {
            continue;
        }
        let from = from.get(turn % from.len().max(1)).map(|ip| **ip);
        let left = until.saturating_duration_since(Instant::now());
        match connect_one(to, from, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some((to, from, error)),
        }
    }
    let operation = format!("connect to {}", address.escape_debug());
    let Some((to, from, error)) = last else {
        return Err(Error::new(ErrorKind::InvalidRequest, End::Here, operation)
            .cause("no address that --bind gives has the IP version of the other host")
            .remedy("choose another address for --bind"));
    };
    let whence = from.map(|from| format!(" from {from}")).unwrap_or_default();
    let failed = fail::io_error(operation, &error);
    let to = to.to_string();
    let cause = match to == address && whence.is_empty() {
        true => failed.cause.clone(),
        false => format!("{to}{whence}: {}", failed.cause),
    };
    if error.kind() == io::ErrorKind::AddrNotAvailable && from.is_some() {
        return Err(failed
            .cause(cause)
            .remedy("choose an address of this host for --bind"));
    }
    if failed.end == End::Here {
        return Err(failed.cause(cause));
    }
    Err(failed.cause(cause).remedy(
        "check that an endpoint or `dray serve` runs on the other host and that no firewall blocks \
            the port",
    ))
}

fn connect_one(to: SocketAddr, from: Option<IpAddr>, timeout: Duration) -> io::Result<TcpStream> {
    if timeout.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let socket = socket2::Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
    }
    socket.connect_timeout(&SockAddr::from(to), timeout)?;
    let stream = socket.into();
    prepare(&stream)?;
    Ok(stream)
}

/// Configures a connected or accepted socket.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    // dray writes whole frames, so Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    // A connection within a host loses and queues no packets. There, a congestion control that
    // models the network path and paces packets (BBR) has no benefit, and cost a third of the
    // transfer time. So use Reno, which every kernel has.
    #[cfg(target_os = "linux")]
    if let (Ok(from), Ok(to)) = (stream.local_addr(), stream.peer_addr())
        && stays_within_host(from, to)
    {
        // The setting is optional. If the call fails because the peer has left, a later read fails
        // too.
        let _ = SockRef::from(stream).set_tcp_congestion(b"reno");
    }
    Ok(())
}

/// Returns true if both ends are on this host.
fn stays_within_host(from: SocketAddr, to: SocketAddr) -> bool {
    let (from, to) = (from.ip().to_canonical(), to.ip().to_canonical());
    from == to || from.is_loopback() && to.is_loopback()
}

/// Returns true if the peer has closed a stream that only sends. `poll` reads no bytes, so unread
/// bytes cannot hide the end of the stream, and no read can fail for another reason.
#[cfg(target_os = "linux")]
pub(super) fn has_left(stream: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut ends = [PollFd::new(stream, PollFlags::RDHUP)];
    let over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let polled = poll(&mut ends, Some(&Timespec::default()));
    polled.is_ok() && ends.iter().any(|end| end.revents().intersects(over))
}

/// As the Linux version, for systems whose `poll` does not report the end of a stream.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_left(stream: &TcpStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0u8; 1];
    match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((read, _)) => read == 0,
        Err(error) => error == rustix::io::Errno::CONNRESET,
    }
}

#[cfg(test)]
mod tests {
    use super::{prepare, stays_within_host};
    use socket2::SockRef;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_path_within_the_host_is_known_by_its_addresses() {
        let is_within = |from: &str, to: &str| {
            stays_within_host(
                from.parse().expect("an address"),
                to.parse().expect("an address"),
            )
        };
        assert!(is_within("127.0.0.1:1", "127.0.0.2:2"));
        assert!(is_within("[::ffff:127.0.0.1]:1", "127.0.0.1:2"));
        assert!(is_within("10.0.0.1:1", "10.0.0.1:2"));
        assert!(!is_within("10.0.0.1:1", "10.0.0.2:2"));
        assert!(!is_within("127.0.0.1:1", "10.0.0.2:2"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn nothing_is_paced_within_the_host() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("known")).expect("connects");
        prepare(&stream).expect("prepared");
        let congestion = SockRef::from(&stream).tcp_congestion().expect("it says");
        assert!(congestion.starts_with(b"reno"), "{congestion:?}");
    }
}

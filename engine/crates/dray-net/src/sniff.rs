//! Inspects the first byte of a connection, because one port may serve both sessions and another
//! protocol.

use dray_wire::codec::MAGIC;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// The first byte of a connection. The byte remains unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstBytes {
    /// The first byte of dray's magic.
    Ours,
    /// A byte that does not begin a preamble of dray.
    Foreign(u8),
    /// No byte: the other end has closed the connection.
    Nothing,
}

/// Waits at most `patience` for the first byte, and leaves the byte unread.
///
/// # Errors
/// Errors of the socket.
pub(super) fn look(stream: &TcpStream, patience: Duration) -> io::Result<FirstBytes> {
    let mut first = [0];
    stream.set_read_timeout(Some(patience))?;
    let said = stream.peek(&mut first)?;
    stream.set_read_timeout(None)?;
    Ok(match (said, first[0]) {
        (0, _) => FirstBytes::Nothing,
        (_, byte) if byte == MAGIC[0] => FirstBytes::Ours,
        (_, byte) => FirstBytes::Foreign(byte),
    })
}

#[cfg(test)]
mod tests {
    use super::{FirstBytes, look};
    use std::io::{self, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn pair() -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let there = TcpStream::connect(listener.local_addr()?)?;
        Ok((there, listener.accept()?.0))
    }

    #[test]
    fn it_is_looked_at_and_left_there() -> io::Result<()> {
        let soon = Duration::from_secs(20);
        for (said, found) in [
            (&super::MAGIC[..], FirstBytes::Ours),
            (b"GET / HTTP/1.1", FirstBytes::Foreign(b'G')),
            (b"", FirstBytes::Nothing),
        ] {
            let (mut there, here) = pair()?;
            there.write_all(said)?;
            if said.is_empty() {
                drop(there);
            }
            assert_eq!(look(&here, soon)?, found);
            assert_eq!(look(&here, soon)?, found);
        }
        let (_there, here) = pair()?;
        assert!(look(&here, Duration::from_millis(20)).is_err());
        Ok(())
    }
}

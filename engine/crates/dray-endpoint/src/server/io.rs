//! A stream that fails if its peer sends no request, or does not read the answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Number of bytes that a peer must send to be taken as active. It is the length of the HTTP/2
/// preface (RFC 9113, section 3.4). No timeout of the HTTP library applies before the preface has
/// arrived. A valid HTTP/1.1 request is never shorter.
const OPENING_BYTES: usize = 24;

/// Time limits that apply to a peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Maximum time until [`OPENING_BYTES`] have arrived.
    pub(super) opening: Duration,
    /// Maximum duration of a write while the peer takes no byte.
    pub(super) write: Duration,
}

/// A stream whose reads and writes fail when the peer exceeds its time limits.
pub(super) struct Timely<S> {
    stream: S,
    write: Duration,
    /// Timer for the first [`OPENING_BYTES`] of the peer. `None` once they have arrived.
    opening: Option<Pin<Box<Sleep>>>,
    begun: usize,
    /// Timer of a pending write. `None` if no write is pending.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Timely<S> {
    pub(super) fn new(stream: S, patience: Patience) -> Self {
        Self {
            stream,
            write: patience.write,
            opening: Some(Box::pin(sleep_until(Instant::now() + patience.opening))),
            begun: 0,
            deadline: None,
        }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.deadline = None;
            return poll;
        }
        let patience = self.write;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timely<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(opening) = &mut self.opening else {
            return poll;
        };
        if poll.is_pending() {
            ready!(opening.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.begun += buffer.filled().len() - before;
        if self.begun >= OPENING_BYTES {
            self.opening = None;
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timely<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, poll)
    }
}

#[cfg(test)]
mod tests {
    use super::{Patience, Timely};
    use std::io::ErrorKind;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const PATIENCE: Patience = Patience {
        opening: Duration::from_millis(200),
        write: Duration::from_millis(200),
    };

    #[tokio::test]
    async fn who_never_begins_is_left() {
        let (mut peer, stream) = duplex(64);
        let mut stream = Timely::new(stream, PATIENCE);
        peer.write_all(b"PRI * HT").await.expect("sent");
        let mut read = [0; 64];
        assert_eq!(stream.read(&mut read).await.expect("read"), 8);
        let error = stream.read(&mut read).await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_has_begun_may_think() {
        let (mut peer, stream) = duplex(64);
        let mut stream = Timely::new(stream, PATIENCE);
        peer.write_all(&[b'x'; 24]).await.expect("sent");
        let mut read = [0; 64];
        assert_eq!(stream.read(&mut read).await.expect("read"), 24);
        let later = tokio::time::timeout(Duration::from_millis(400), stream.read(&mut read));
        assert!(later.await.is_err(), "still waiting");
    }

    #[tokio::test]
    async fn who_does_not_read_is_left() {
        let (_peer, stream) = duplex(64);
        let mut stream = Timely::new(stream, PATIENCE);
        let error = stream.write_all(&[b'x'; 100]).await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}

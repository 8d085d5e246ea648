//! Bodies of answers while they are sent.
//!
//! An HTTP/2 peer can refuse to read a stream, by giving it no window, and still answer pings. No
//! timeout of the connection ends such a stream. So this module limits the time of each answer.
//!
//! Invariant owned here: an answer counts as a running call of its owner until the peer has taken
//! the last byte of the answer. If the peer takes no byte for [`PATIENCE`], the answer is dropped
//! and its memory is freed.

use super::extract::Hold;
use axum::body::{Body as HttpBody, Bytes};
use axum::http::Response;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Maximum time for which a peer may take no byte of an answer. A connection has the same limit.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum number of bytes in one frame of the body: the frame size of HTTP/2 (RFC 9113, section
/// 4.2). A frame that was passed on belongs to the stream and cannot be dropped here, so frames are
/// kept small.
const PIECE_BYTES: usize = 16 << 10;

#[derive(Debug)]
struct Left {
    /// The body. `None` after the answer was dropped.
    body: Option<HttpBody>,
    /// The part of the last frame of `body` that was not passed on yet.
    rest: Bytes,
    hold: Option<Hold>,
    /// True while the peer waits for this endpoint to provide the next frame. Time in this state
    /// does not count towards [`PATIENCE`].
    is_awaited: bool,
    /// Time at which the last frame was passed on.
    since: Instant,
}

#[derive(Debug)]
struct Shared(Mutex<Left>);

impl Shared {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock_unpoisoned()
    }
}

/// A body that notices when its peer stops reading.
#[derive(Debug)]
struct Outgoing {
    shared: Arc<Shared>,
    watcher: AbortHandle,
}

/// Returns the response with a body that keeps `hold` until the answer is sent or dropped.
pub(super) fn held(response: Response<HttpBody>, hold: Option<Hold>) -> Response<HttpBody> {
    held_for(response, hold, PATIENCE)
}

fn held_for(
    response: Response<HttpBody>,
    hold: Option<Hold>,
    patience: Duration,
) -> Response<HttpBody> {
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| {
        let shared = Arc::new(Shared(Mutex::new(Left {
            body: Some(body),
            rest: Bytes::new(),
            hold,
            is_awaited: false,
            since: Instant::now(),
        })));
        let watcher = tokio::spawn(watch(Arc::downgrade(&shared), patience)).abort_handle();
        HttpBody::new(Outgoing { shared, watcher })
    })
}

async fn watch(shared: Weak<Shared>, patience: Duration) {
    loop {
        let until = {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let mut left = shared.left();
            let until = match left.is_awaited {
                true => Instant::now() + patience,
                false => left.since + patience,
            };
            if until <= Instant::now() {
                let given_up = (left.body.take(), left.hold.take());
                left.rest = Bytes::new();
                drop(left);
                drop(given_up);
                return;
            }
            until
        };
        sleep_until(until).await;
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let mut left = self.shared.left();
        let left = &mut *left;
        let Some(body) = &mut left.body else {
            let error = Error::new(ErrorKind::TimedOut, End::Here, "answer")
                .cause("the caller closed the connection");
            return Poll::Ready(Some(Err(error.into())));
        };
        if left.rest.is_empty() {
            left.is_awaited = true;
            let frame = ready!(Pin::new(&mut *body).poll_frame(context));
            left.is_awaited = false;
            left.since = Instant::now();
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => left.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => {
                    left.hold = None;
                    return Poll::Ready(None);
                }
            }
        }
        left.since = Instant::now();
        let piece = left.rest.split_to(PIECE_BYTES.min(left.rest.len()));
        if left.rest.is_empty() && body.is_end_stream() {
            left.hold = None;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let left = self.shared.left();
        let body = left.body.as_ref();
        left.rest.is_empty() && body.is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.shared.left();
        let Some(body) = &left.body else {
            return SizeHint::default();
        };
        let (hint, rest) = (body.size_hint(), left.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::{PIECE_BYTES, held_for};
    use crate::api::extract::Hold;
    use axum::body::Body as HttpBody;
    use axum::http::Response;
    use futures_util::stream;
    use http_body_util::BodyExt;
    use hyper::body::{Body, Bytes};
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_millis(100);
    const LONGER: Duration = Duration::from_millis(400);

    fn answer(bytes: usize) -> (HttpBody, Hold) {
        let hold = Hold::default();
        let response = Response::new(HttpBody::from(vec![b'x'; bytes]));
        let body = held_for(response, Some(hold.clone()), PATIENCE).into_body();
        (body, hold)
    }

    #[tokio::test]
    async fn an_answer_is_whole_and_holds_until_its_last_byte() {
        let bytes = 2 * PIECE_BYTES + 7;
        let (mut body, hold) = answer(bytes);
        assert_eq!(body.size_hint().exact(), Some(bytes as u64));
        let first = body.frame().await.expect("one").expect("good");
        assert_eq!(first.into_data().expect("data").len(), PIECE_BYTES);
        assert_eq!(hold.count(), 2, "the rest is held");
        assert_eq!(body.size_hint().exact(), Some((PIECE_BYTES + 7) as u64));
        let rest = body.collect().await.expect("the rest").to_bytes();
        assert_eq!(rest.len(), PIECE_BYTES + 7);
        assert_eq!(hold.count(), 1, "nothing is held any more");
    }

    #[tokio::test]
    async fn what_nobody_takes_is_given_up() {
        let (mut body, hold) = answer(2 * PIECE_BYTES);
        body.frame().await.expect("one").expect("good");
        tokio::time::sleep(LONGER).await;
        assert_eq!(hold.count(), 1, "it counts no more");
        let error = body.frame().await.expect("an end").expect_err("it is gone");
        assert!(
            error.to_string().contains("closed the connection"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn who_waits_for_us_is_not_late() {
        let hold = Hold::default();
        let silent = HttpBody::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let response = held_for(Response::new(silent), Some(hold.clone()), PATIENCE);
        let mut body = response.into_body();
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context)));
        assert!(polled.await.is_pending());
        tokio::time::sleep(LONGER).await;
        assert_eq!(hold.count(), 2, "it is still listened to");
    }
}

//! Events of a link for its executor, and the limit of their number.

use super::{PEER, fail};
use crossbeam_channel::Sender;
use dray_core::{End, Error, ErrorKind, StreamId};
use dray_link::link::{SinkEvent, SourceEvent};
use dray_link::pace::SharedRates;
use dray_link::pool::Pool;
use dray_session::{sink, source};
use dray_wire::message::Message;
use std::io;
use std::sync::Arc;

/// Events that may wait for an executor before its network threads stop reading; the peer then feels
/// it as a full socket. Guess, revisit.
const BACKLOG_MAX: usize = 32;

/// The same before a long message is handed in. With [`LONG_BYTES`] this bounds what a peer can make
/// this end hold: decoded, a message is up to sixteen times as long as its frame.
const BACKLOG_MAX_LONG: usize = 2;

/// Bytes of a frame from which its message is a long one.
const LONG_BYTES: usize = 64 << 10;

/// Destination of a link's events.
pub(super) enum Inbox {
    /// The executor of a source.
    Source(Sender<SourceEvent>),
    /// The executor of a sink. Its receivers fill the pool, at these rates at most.
    Sink(Sender<SinkEvent>, Arc<Pool>, SharedRates),
}

impl Inbox {
    /// Returns true if the executor has too many events to do before something of this many bytes.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        let most = match bytes {
            LONG_BYTES.. => BACKLOG_MAX_LONG,
            _ => BACKLOG_MAX,
        };
        self.backlog() >= most
    }

    fn backlog(&self) -> usize {
        match self {
            Self::Source(events) => events.len(),
            Self::Sink(events, ..) => events.len(),
        }
    }

    // An executor that has ended receives nothing more, which is no error.

    pub(super) fn message(&self, message: Message) {
        match self {
            Self::Source(events) => {
                let input = source::Input::Message(message);
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::Message(PEER, message);
                let _ = events.send(SinkEvent::Input(input));
            }
        }
    }

    pub(super) fn peer_lost(&self, error: Error) {
        match self {
            Self::Source(events) => {
                let input = source::Input::PeerLost(error);
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::PeerLost(PEER, error);
                let _ = events.send(SinkEvent::Input(input));
            }
        }
    }

    pub(super) fn leave(&self) {
        let error = |end| {
            Error::new(ErrorKind::Busy, end, "go on")
                .cause("the server stops")
                .remedy(
                    "run the same command again when the server runs again; durable data is \
                         kept",
                )
        };
        match self {
            Self::Source(events) => {
                let input = source::Input::Leave(error(End::Source));
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::Leave(error(End::Sink));
                let _ = events.send(SinkEvent::Input(input));
            }
        }
    }

    /// Reports a lost stream to a sink's executor.
    pub(super) fn stream_lost(&self, stream: StreamId) {
        if let Self::Sink(events, ..) = self {
            let _ = events.send(SinkEvent::Input(sink::Input::StreamLost(PEER, stream)));
        }
    }

    /// Reports a stream that the peer has closed to a source's executor.
    pub(super) fn stream_left(&self, stream: StreamId) {
        if let Self::Source(events) = self {
            let error = io::Error::from(io::ErrorKind::ConnectionReset);
            let error = fail::io_error("send an object", &error);
            let _ = events.send(SourceEvent::Left(stream, error));
        }
    }
}

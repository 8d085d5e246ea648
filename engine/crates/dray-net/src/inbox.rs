//! Delivers events of a link to its executor, and limits the number of waiting events.

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

/// Maximum number of events that may wait for an executor. With a longer backlog the network
/// threads stop reading, so the peer's socket fills up and the peer stops sending. The value is an
/// estimate.
const BACKLOG_MAX: usize = 32;

/// Maximum number of waiting events before a long message is queued. Together with [`LONG_BYTES`]
/// this limits the memory that a peer can make this end use: a decoded message is up to sixteen
/// times as long as its frame.
const BACKLOG_MAX_LONG: usize = 2;

/// Frame length in bytes from which a message counts as long.
const LONG_BYTES: usize = 64 << 10;

/// Destination of a link's events.
pub(super) enum Inbox {
    /// The executor of a source.
    Source(Sender<SourceEvent>),
    /// The executor of a sink, the pool that its receivers fill, and the rates that limit them.
    Sink(Sender<SinkEvent>, Arc<Pool>, SharedRates),
}

impl Inbox {
    /// Returns true if the executor's backlog is too long for another event of `bytes` bytes.
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

    // In all methods below a failed send is no error: it means that the executor has ended.

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

    pub(super) fn announce_stop(&self) {
        let error = |end| {
            Error::new(ErrorKind::Busy, end, "continue the session")
                .cause("the server is stopping")
                .remedy(
                    "run the same command again when the server runs again; durable data is \
                         kept",
                )
        };
        match self {
            Self::Source(events) => {
                let input = source::Input::Stopping(error(End::Source));
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::Stopping(error(End::Sink));
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

//! The data streams of a link: the open streams, and all stream numbers that were used.

use super::fail;
use super::socket::{has_left, shut};
use dray_core::{Result, StreamId};
use std::collections::{HashMap, HashSet};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Maximum number of streams that may join one session from its start to its end; further streams
/// are refused. The limit bounds the memory for the set of used stream numbers.
const JOINS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Streams {
    live: HashMap<StreamId, Arc<TcpStream>>,
    used: HashSet<StreamId>,
}

impl Streams {
    /// Returns the number of open streams. A stream that the peer has closed does not count, even
    /// if the stream's thread has not detected this yet.
    pub(super) fn count_live(&self) -> usize {
        self.live
            .values()
            .filter(|stream| !has_left(stream))
            .count()
    }

    /// Returns the open streams that the peer has closed.
    pub(super) fn left(&self) -> impl Iterator<Item = StreamId> {
        let left = self.live.iter().filter(|(_, stream)| has_left(stream));
        left.map(|(id, _)| *id)
    }

    /// Adds a stream. At most `most` streams may be open.
    ///
    /// # Errors
    /// If `most` streams are open, or if the stream's number was used before.
    pub(super) fn add(
        &mut self,
        stream: StreamId,
        socket: &Arc<TcpStream>,
        most: usize,
    ) -> Result<()> {
        let refuse = |cause: &str| Err(fail::protocol("join a stream", cause));
        if self.count_live() >= most || self.used.len() >= JOINS_MAX {
            return refuse("the peer opened more streams than were granted");
        }
        if !self.used.insert(stream) {
            return refuse("the peer used the number of a data stream twice");
        }
        self.live.insert(stream, Arc::clone(socket));
        Ok(())
    }

    /// Ends the receiving direction of a stream that the source has lost. Data that has already
    /// arrived is still read. Returns true if the stream never joined; its number then counts as
    /// used, so the stream cannot join later.
    pub(super) fn end_lost(&mut self, stream: StreamId) -> bool {
        if let Some(socket) = self.live.get(&stream) {
            let _ = socket.shutdown(Shutdown::Read);
            return false;
        }
        self.used.len() < JOINS_MAX && self.used.insert(stream)
    }

    pub(super) fn remove(&mut self, stream: StreamId) {
        self.live.remove(&stream);
    }

    pub(super) fn cut(&mut self) {
        for (_, stream) in self.live.drain() {
            shut(&stream);
        }
    }
}

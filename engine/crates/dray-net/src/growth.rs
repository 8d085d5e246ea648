//! Adds streams to a running link, and counts the link's streams.

use super::hub::Hub;
use std::sync::Arc;

/// Handle with which a driver adds streams to a running link.
#[derive(Clone)]
pub struct Growth(Arc<Hub>);

impl Growth {
    pub(super) const fn new(hub: Arc<Hub>) -> Self {
        Self(hub)
    }

    /// Asks for `streams` open streams, or for the granted number if that is lower. Returns
    /// immediately; the dialler opens the missing streams. The other end may still refuse a stream.
    pub fn want(&self, streams: u32) {
        if !self.0.is_over() {
            let streams = usize::try_from(streams).unwrap_or(usize::MAX);
            self.0.want_streams(streams);
        }
    }

    /// Returns true if at least one data stream has joined since the link began. A session that is
    /// lost before its first stream joins counts as not begun.
    #[must_use]
    pub fn had_streams(&self) -> bool {
        self.0.had_streams()
    }

    /// Returns the number of open streams.
    #[must_use]
    pub fn live(&self) -> usize {
        self.0.live_streams()
    }

    /// Returns the number of streams that were lost or could not be opened since the link began.
    /// The counter wraps around.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.0.errors()
    }
}

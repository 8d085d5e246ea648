//! More streams of a link while it runs, and the number of its streams.

use super::hub::Hub;
use std::sync::Arc;

/// Asks for more streams of a link while it runs, at the driver.
#[derive(Clone)]
pub struct Growth(Arc<Hub>);

impl Growth {
    pub(super) const fn new(hub: Arc<Hub>) -> Self {
        Self(hub)
    }

    /// Asks the dialler to raise the number of live streams to `streams`, or to the granted number if
    /// that is lower. Returns immediately; the other end may still refuse a stream.
    pub fn want(&self, streams: u32) {
        if !self.0.is_over() {
            let streams = usize::try_from(streams).unwrap_or(usize::MAX);
            self.0.want_streams(streams);
        }
    }

    /// Returns true once a data stream has joined. A session that is lost before that counts as not
    /// begun.
    #[must_use]
    pub fn had_streams(&self) -> bool {
        self.0.had_streams()
    }

    /// Streams that are alive.
    #[must_use]
    pub fn live(&self) -> usize {
        self.0.live_streams()
    }

    /// Streams that were lost or could not be made, since the link began; the number goes round.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.0.errors()
    }
}

//! Configuration of the passive end.

use super::{Identity, Timing};
use dray_wire::message::Limits;

/// Configuration of a passive end.
#[derive(Debug)]
pub struct Serve {
    /// Identity of this end.
    pub identity: Identity,
    /// Limits of this end. No buffer of a passive sink's pool needs to be longer than
    /// `object_bytes_max`.
    pub limits: Limits,
    /// True if data streams may run in clear.
    pub allow_clear_data: bool,
    /// True if this end discards the data it receives: only drivers that declare that they expect
    /// this may write.
    pub keeps_nothing: bool,
    /// True if a driver that discards the data may read here. A handler that admits such a driver
    /// must not report its data as durable.
    pub may_keep_nothing: bool,
    /// Maximum number of data streams granted to a session.
    pub streams_max: u16,
    /// Maximum number of concurrent sessions.
    pub sessions_max: usize,
    /// Maximum number of concurrent connections that have not proved themselves. A further
    /// connection evicts one of the holder with the most.
    pub pending_max: usize,
    /// Addresses (`host:port`) at which streams may join, sent to the driver; if empty, the driver
    /// uses the address of its control connection.
    pub advertise: Vec<String>,
    /// Timeouts and intervals.
    pub timing: Timing,
}

impl Serve {
    /// Creates a configuration with this identity and default values.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            limits: Limits::default(),
            allow_clear_data: false,
            keeps_nothing: false,
            may_keep_nothing: false,
            // A DTN's eight NICs with eight streams each: guess, revisit.
            streams_max: 64,
            sessions_max: 64,
            pending_max: 64,
            advertise: Vec::new(),
            timing: Timing::default(),
        }
    }
}

//! Configuration of the passive end.

use super::Timing;
use super::presented::Presented;
use dray_wire::message::Limits;

/// Configuration of a passive end.
#[derive(Debug)]
pub struct Serve {
    /// Identity of this end. Its owner can replace it while the listener runs.
    pub identity: Presented,
    /// Limits of this end. Buffers of a passive sink need not be longer than `object_bytes_max`.
    pub limits: Limits,
    /// True if data streams may run in clear.
    pub allow_clear_data: bool,
    /// True if this end discards the data that it receives. Only a driver that declares that it
    /// expects a discarding end may write.
    pub keeps_nothing: bool,
    /// True if a driver that discards the data may read from this end. The handler must not report
    /// the data of such a driver as durable.
    pub may_keep_nothing: bool,
    /// Maximum number of data streams granted to a session.
    pub streams_max: u16,
    /// Maximum number of concurrent sessions.
    pub sessions_max: usize,
    /// Maximum number of concurrent connections that have not proved their identity. If the number
    /// is reached, a new connection evicts a connection of the address with the most connections.
    pub pending_max: usize,
    /// Addresses (`host:port`) at which streams may join. This end sends them to the driver. If the
    /// list is empty, the driver uses the address of its control connection.
    pub advertise: Vec<String>,
    /// Timeouts and intervals.
    pub timing: Timing,
}

impl Serve {
    /// Creates a configuration with this identity and default values.
    #[must_use]
    pub fn new(identity: Presented) -> Self {
        Self {
            identity,
            limits: Limits::default(),
            allow_clear_data: false,
            keeps_nothing: false,
            may_keep_nothing: false,
            // Enough for a DTN with eight network cards and eight streams on each. The value is
            // estimated, not measured.
            streams_max: 64,
            sessions_max: 64,
            pending_max: 64,
            advertise: Vec::new(),
            timing: Timing::default(),
        }
    }
}

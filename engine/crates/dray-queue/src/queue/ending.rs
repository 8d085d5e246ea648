//! The end of a session, as the dispatcher reports it.

use dray_core::{Error, ErrorKind};

/// The end of a session.
#[derive(Debug, Clone)]
pub enum Ending {
    /// All data is durable.
    Done,
    /// Some files failed. The other files are durable.
    Incomplete,
    /// The transfer failed and will not be tried again.
    Failed(Error),
    /// The session broke off. The status of `error` and the number of broken sessions decide
    /// whether the transfer is tried again.
    Broken {
        /// Reason for the break.
        error: Error,
        /// True if the session made new data durable.
        has_progressed: bool,
        /// True if the session processed all files, and some of them failed.
        is_whole: bool,
        /// The source that the next session reads; `None` to keep the present one.
        source: Option<u32>,
    },
    /// The other end had no free session slot. This does not count as a failed try of the transfer.
    TurnedAway {
        /// The other end's error.
        error: Error,
        /// The source that the next session reads; `None` to keep the present one.
        source: Option<u32>,
    },
    /// The session was stopped. A caller requested it, another transfer needed the slot, or the
    /// endpoint is shutting down.
    Stopped,
}

impl Ending {
    /// Returns true if the session processed all files, so that its counters are a verdict about
    /// each of them.
    pub(super) const fn is_whole(&self) -> bool {
        match self {
            Self::Done | Self::Incomplete | Self::Failed(_) => true,
            Self::Broken { is_whole, .. } => *is_whole,
            Self::TurnedAway { .. } | Self::Stopped => false,
        }
    }

    /// Returns the kind of the error with which the session ended.
    pub(super) const fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Failed(error) | Self::Broken { error, .. } | Self::TurnedAway { error, .. } => {
                Some(error.kind)
            }
            Self::Done | Self::Incomplete | Self::Stopped => None,
        }
    }
}

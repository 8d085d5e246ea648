//! States of transfers, and filters by state.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waiting to be started.
    Queued,
    /// Running.
    Active,
    /// Waiting for the time of the next retry.
    Waiting,
    /// Paused by a user; `resume` continues it.
    Paused,
    /// Completed: all data is durable.
    Done,
    /// Ended with failed files; the other files are complete.
    Incomplete,
    /// Ended with an error; there are no further retries.
    Failed,
    /// Cancelled by a user, or because `bound_seconds` passed without a query.
    Cancelled,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Active,
        Self::Waiting,
        Self::Paused,
        Self::Done,
        Self::Incomplete,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns true if the transfer has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Incomplete | Self::Failed | Self::Cancelled
        )
    }

    /// Returns the name of the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// A state or a group of states to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateWord {
    /// All states of transfers that have not ended.
    Live,
    /// All states of transfers that have ended.
    Terminal,
    /// See [`State`].
    Queued,
    /// See [`State`].
    Active,
    /// See [`State`].
    Waiting,
    /// See [`State`].
    Paused,
    /// See [`State`].
    Done,
    /// See [`State`].
    Incomplete,
    /// See [`State`].
    Failed,
    /// See [`State`].
    Cancelled,
}

impl StateWord {
    /// Returns true if this word stands for `state`.
    #[must_use]
    pub fn means(self, state: State) -> bool {
        match self {
            Self::Live => !state.is_terminal(),
            Self::Terminal => state.is_terminal(),
            Self::Queued => state == State::Queued,
            Self::Active => state == State::Active,
            Self::Waiting => state == State::Waiting,
            Self::Paused => state == State::Paused,
            Self::Done => state == State::Done,
            Self::Incomplete => state == State::Incomplete,
            Self::Failed => state == State::Failed,
            Self::Cancelled => state == State::Cancelled,
        }
    }
}

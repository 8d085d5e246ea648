//! Where transfers stand, and which standings to list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a transfer stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// May run when there is room.
    Queued,
    /// Runs.
    Active,
    /// Will be tried again, at a time.
    Waiting,
    /// Until somebody says go on.
    Paused,
    /// All of it is safe.
    Done,
    /// Some files failed; the others are safe.
    Incomplete,
    /// Nothing more will be tried.
    Failed,
    /// Somebody said so.
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

    /// Whether nothing happens any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Incomplete | Self::Failed | Self::Cancelled
        )
    }

    /// Its word.
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

    /// The state of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// A state, or a kind of states, to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateWord {
    /// All that are not ended.
    Live,
    /// All that are.
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
    /// Whether `state` is meant.
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

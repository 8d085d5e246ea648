//! The state machine of a transfer, as pure functions.
//!
//! A transfer has a state. While a session of the transfer runs, a caller may request that the
//! transfer stops ([`Wish`]). The requested stop takes effect when the session has ended. Each
//! command either changes the state, changes nothing, or is refused.

use dray_api::{RetryWish, State};
use dray_core::retry::{RECONNECT_INTERVAL, RECONNECT_TIME};
use dray_core::{End, Error, ErrorKind, Result, Status};
use std::time::Duration;

/// The stop that a caller requested for a running transfer. A cancelled transfer has the wish
/// [`Wish::Purge`] until its partial data is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    /// Pause the transfer.
    Pause,
    /// Cancel the transfer and keep its durable data.
    Cancel,
    /// Cancel the transfer and remove its partial data.
    Purge,
}

impl Wish {
    /// Returns the word for the database.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cancel => "cancel",
            Self::Purge => "purge",
        }
    }

    /// Parses a word from the database.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pause, Self::Cancel, Self::Purge]
            .into_iter()
            .find(|wish| wish.word() == word)
    }
}

/// The state of a transfer, with the stop that a caller has requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: State,
    /// The stop that a caller has requested.
    pub wish: Option<Wish>,
}

impl Standing {
    /// Returns a state without a requested stop.
    #[must_use]
    pub const fn of(state: State) -> Self {
        Self { state, wish: None }
    }

    /// Returns true if the transfer is still running and is being cancelled.
    #[must_use]
    pub const fn is_leaving(self) -> bool {
        matches!(
            (self.state, self.wish),
            (State::Active, Some(Wish::Cancel | Wish::Purge))
        )
    }
}

/// The end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// All data is durable.
    Done,
    /// Some files failed.
    Incomplete,
    /// The transfer failed and will not be tried again.
    Failed,
    /// The transfer will be tried again later.
    Again,
    /// The session was stopped. A caller requested it, another transfer needed the slot, or the
    /// endpoint is shutting down.
    Stopped,
}

/// A command for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Start the transfer.
    Begin,
    /// Record the end of its session.
    End(EndKind),
    /// Queue the transfer, because the time of its next try has come.
    Due,
    /// Queue the transfer, because the process that ran it has ended.
    Interrupted,
    /// Cancel the transfer.
    Cancel {
        /// True to remove its partial data as well.
        purge: bool,
    },
    /// Record that its partial data was removed.
    Purged,
    /// Pause the transfer.
    Pause,
    /// Resume the transfer.
    Resume,
    /// Start a new attempt.
    Retry,
    /// Change parameters of the transfer.
    Patch,
    /// Delete the transfer.
    Delete,
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The transfer stays as it is.
    Stay,
    /// The transfer gets this state.
    To(Standing),
    /// The transfer is deleted.
    Forget,
}

/// Returns the result of a command for a transfer.
///
/// # Errors
/// `AlreadyExists` (409) if the present state does not permit the command.
pub fn next(at: Standing, command: Command) -> Result<Step> {
    use State as S;
    let to = |state| Ok(Step::To(Standing::of(state)));
    let stay = Ok(Step::Stay);
    match (at.state, command) {
        (S::Queued, Command::Begin) => to(S::Active),

        (S::Active, Command::End(EndKind::Done)) => to(S::Done),
        (S::Active, Command::End(EndKind::Incomplete)) => to(S::Incomplete),
        (S::Active, Command::End(EndKind::Failed)) => to(S::Failed),
        (S::Active, Command::End(EndKind::Again)) => match at.wish {
            None => to(S::Waiting),
            Some(wish) => Ok(Step::To(granted(wish))),
        },
        (S::Active, Command::End(EndKind::Stopped) | Command::Interrupted) => match at.wish {
            None => to(S::Queued),
            Some(wish) => Ok(Step::To(granted(wish))),
        },
        (S::Waiting, Command::Due | Command::Interrupted) => to(S::Queued),
        (_, Command::Due | Command::Interrupted) => stay,

        (S::Queued | S::Waiting | S::Paused, Command::Cancel { purge }) => {
            Ok(Step::To(granted(cancel_wish(purge))))
        }
        (S::Active, Command::Cancel { purge }) => {
            // A purge replaces a cancellation or a pause, and a cancellation replaces a pause. A
            // weaker request never replaces a stronger request.
            let wish = at.wish.max(Some(cancel_wish(purge)));
            Ok(stay_or(at, Standing { wish, ..at }))
        }
        (S::Cancelled, Command::Cancel { purge: true }) => Ok(stay_or(at, granted(Wish::Purge))),
        // Permit a purge after a failure: if the source no longer exists, no session can resume the
        // partial data.
        (S::Incomplete | S::Failed, Command::Cancel { purge: true }) => {
            Ok(Step::To(granted(Wish::Purge)))
        }
        (S::Cancelled, Command::Cancel { purge: false }) => stay,
        (S::Cancelled, Command::Purged) => Ok(stay_or(at, Standing::of(S::Cancelled))),
        (_, Command::Purged) => stay,

        (S::Queued | S::Waiting, Command::Pause) => to(S::Paused),
        (S::Paused, Command::Pause) => stay,
        (S::Active, Command::Pause) => match at.wish {
            None => Ok(Step::To(Standing {
                wish: Some(Wish::Pause),
                ..at
            })),
            Some(Wish::Pause) => stay,
            Some(_) => Err(refused(at, "pause")),
        },

        (S::Paused, Command::Resume) => to(S::Queued),
        (S::Queued | S::Waiting, Command::Resume) => stay,
        (S::Active, Command::Resume) => match at.wish {
            None => stay,
            // If the session is already stopping, the transfer is queued again afterwards.
            Some(Wish::Pause) => Ok(Step::To(Standing::of(S::Active))),
            Some(_) => Err(refused(at, "resume")),
        },

        (S::Done | S::Incomplete | S::Failed, Command::Retry) => to(S::Queued),
        // Accept a retry only if no partial data is being removed. Otherwise the new attempt would
        // lose the data that it writes.
        (S::Cancelled, Command::Retry) if at.wish.is_none() => to(S::Queued),
        (S::Queued | S::Waiting, Command::Retry) => stay,
        // Accept a retry only if no caller has requested a stop. The requested stop would still
        // take effect, so the retry would be lost.
        (S::Active, Command::Retry) if at.wish.is_none() => stay,

        // Refuse changes while the transfer is being cancelled. Otherwise the caller would expect
        // the transfer to continue.
        (S::Active, Command::Patch) if at.is_leaving() => Err(refused(at, "change")),
        (S::Queued | S::Active | S::Waiting | S::Paused, Command::Patch) => stay,

        (S::Done | S::Incomplete | S::Failed, Command::Delete) => Ok(Step::Forget),
        (S::Cancelled, Command::Delete) if at.wish.is_none() => Ok(Step::Forget),

        (_, command) => Err(refused(at, verb(command))),
    }
}

const fn cancel_wish(purge: bool) -> Wish {
    if purge { Wish::Purge } else { Wish::Cancel }
}

const fn granted(wish: Wish) -> Standing {
    match wish {
        Wish::Pause => Standing::of(State::Paused),
        Wish::Cancel => Standing::of(State::Cancelled),
        // The partial data is not removed yet, so the purge stays requested.
        Wish::Purge => Standing {
            state: State::Cancelled,
            wish: Some(Wish::Purge),
        },
    }
}

fn stay_or(at: Standing, to: Standing) -> Step {
    if at == to { Step::Stay } else { Step::To(to) }
}

const fn verb(command: Command) -> &'static str {
    match command {
        Command::Begin => "begin",
        Command::End(_) => "end",
        Command::Due | Command::Interrupted => "queue",
        Command::Cancel { .. } => "cancel",
        Command::Purged => "purge",
        Command::Pause => "pause",
        Command::Resume => "resume",
        Command::Retry => "retry",
        Command::Patch => "change",
        Command::Delete => "forget",
    }
}

fn refused(at: Standing, verb: &str) -> Error {
    let state = at.state.word();
    let (cause, remedy) = match (at.state, at.wish) {
        (State::Cancelled, Some(_)) => (
            "the partial data of the transfer is being removed".to_owned(),
            "try again in a moment",
        ),
        _ if at.is_leaving() => (
            "the transfer is being cancelled".to_owned(),
            "try again in a moment, when the transfer is cancelled",
        ),
        (State::Active, Some(Wish::Pause)) if verb == "retry" => (
            "the transfer is being paused".to_owned(),
            "resume the transfer",
        ),
        (State::Paused, _) => (format!("the transfer is {state}"), "resume the transfer"),
        (state, _) if state.is_terminal() => (
            format!("the transfer is already {}", state.word()),
            "retry the transfer to start a new attempt, or submit another transfer",
        ),
        _ => (
            format!("the transfer is {state}"),
            "cancel the transfer first",
        ),
    };
    Error::new(
        ErrorKind::AlreadyExists,
        End::Here,
        format!("{verb} the transfer"),
    )
    .cause(cause)
    .remedy(remedy)
}

/// A session that broke off.
#[derive(Debug, Clone, Copy)]
pub struct Break {
    /// Status of the error.
    pub status: Status,
    /// True if a new session may succeed soon ([`dray_core::retry::may_reconnect_soon`]).
    pub is_lost: bool,
    /// True if the session made data durable.
    pub has_progressed: bool,
    /// Duration of the session.
    pub lasted: Duration,
    /// Time since an earlier session broke off. `None` if the session moved data, or if the transfer
    /// has no durable data.
    pub interrupted_for: Option<Duration>,
}

impl Break {
    /// Returns true if the next session begins after [`RECONNECT_INTERVAL`] instead of the normal
    /// interval.
    fn is_soon(&self) -> bool {
        let was_long = self.has_progressed && self.lasted >= RECONNECT_TIME;
        let is_recent = |time| time < RECONNECT_TIME;
        self.is_lost && (was_long || self.interrupted_for.is_some_and(is_recent))
    }
}

/// The decision after a session broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// True if the transfer will be tried again.
    pub is_tried: bool,
    /// Number of consecutive sessions without new durable data, including this one. Sessions soon
    /// after the loss of a connection do not count.
    pub tries_without_progress: u32,
    /// Time until the next session.
    pub wait: Duration,
}

/// Decides whether a transfer is tried again after its session broke off. `tries_without_progress`
/// is the number of consecutive earlier sessions without new durable data.
#[must_use]
pub fn after_break(retry: RetryWish, tries_without_progress: u32, end: Break) -> Verdict {
    let interval = Duration::from_secs(retry.interval_seconds);
    // With a shorter interval, quick tries without a limit would follow each other.
    let is_soon = end.is_soon() && retry.tries > 0 && interval > RECONNECT_INTERVAL;
    let tries_without_progress = match (end.has_progressed, is_soon) {
        (true, _) => 0,
        (false, true) => tries_without_progress,
        (false, false) => tries_without_progress.saturating_add(1),
    };
    Verdict {
        is_tried: end.status != Status::Permanent && tries_without_progress <= retry.tries,
        tries_without_progress,
        wait: match is_soon {
            true => RECONNECT_INTERVAL,
            false => interval,
        },
    }
}

/// Decides whether a transfer is tried again, after the other end had no free session slot. The
/// transfer is tried again unless retries are disabled. No session took place, so the number of
/// sessions without new durable data does not change.
#[must_use]
pub const fn after_turned_away(retry: RetryWish, tries_without_progress: u32) -> Verdict {
    Verdict {
        is_tried: retry.tries > 0,
        tries_without_progress,
        wait: Duration::from_secs(retry.interval_seconds),
    }
}

#[cfg(test)]
mod tests;

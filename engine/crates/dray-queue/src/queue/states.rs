//! The transitions between states: pure.
//!
//! A transfer has a state, and while it runs a caller may have requested its end: the state that it
//! gets when its session has ended. Each command either changes the state, changes nothing, or is
//! refused.

use dray_api::{RetryWish, State};
use dray_core::{End, Error, ErrorKind, Result, Status};

/// The requested end of a running transfer; for a cancelled transfer, the work that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    /// The transfer is to be paused.
    Pause,
    /// The transfer is to be cancelled; durable data is kept.
    Cancel,
    /// The transfer is to be cancelled and its partial data removed.
    Purge,
}

impl Wish {
    /// Returns the word that is stored.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cancel => "cancel",
            Self::Purge => "purge",
        }
    }

    /// Parses a stored word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pause, Self::Cancel, Self::Purge]
            .into_iter()
            .find(|wish| wish.word() == word)
    }
}

/// The state of a transfer, with a requested end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The state.
    pub state: State,
    /// The requested end.
    pub wish: Option<Wish>,
}

impl Standing {
    /// Returns a state without a requested end.
    #[must_use]
    pub const fn of(state: State) -> Self {
        Self { state, wish: None }
    }

    /// Returns true if it still runs and is being cancelled.
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
    /// The transfer failed and is not tried again.
    Failed,
    /// The transfer is tried again later.
    Again,
    /// The session was stopped: by a request, for another transfer, or because the endpoint ends.
    Stopped,
}

/// A command to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Start it.
    Begin,
    /// Record the end of its session.
    End(EndKind),
    /// Queue it: the time of its next try has come.
    Due,
    /// Queue it: the process that ran it has ended.
    Interrupted,
    /// Cancel it, with its partial data if `purge` is true.
    Cancel {
        /// Remove its partial data.
        purge: bool,
    },
    /// Record that its partial data was removed.
    Purged,
    /// Pause it.
    Pause,
    /// Resume it.
    Resume,
    /// Start a new attempt.
    Retry,
    /// Change its parameters.
    Patch,
    /// Delete it.
    Delete,
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing changes.
    Stay,
    /// The transfer gets this state.
    To(Standing),
    /// The transfer is deleted.
    Forget,
}

/// Returns the result of a command to a transfer.
///
/// # Errors
/// `AlreadyExists` (409) for a command that its state does not permit.
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
            // A stronger request replaces a weaker one, never the reverse.
            let wish = at.wish.max(Some(cancel_wish(purge)));
            Ok(stay_or(at, Standing { wish, ..at }))
        }
        (S::Cancelled, Command::Cancel { purge: true }) => Ok(stay_or(at, granted(Wish::Purge))),
        // Resuming may be impossible for ever: the source or the access to it may be gone.
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
            // If its session is already stopping, the transfer is queued again afterwards.
            Some(Wish::Pause) => Ok(Step::To(Standing::of(S::Active))),
            Some(_) => Err(refused(at, "resume")),
        },

        (S::Done | S::Incomplete | S::Failed, Command::Retry) => to(S::Queued),
        // A new attempt during the removal of partial data would lose the data that it writes.
        (S::Cancelled, Command::Retry) if at.wish.is_none() => to(S::Queued),
        (S::Queued | S::Waiting, Command::Retry) => stay,
        // With a requested end the retry is refused below: it does not undo that end, and an
        // accepted retry would be forgotten.
        (S::Active, Command::Retry) if at.wish.is_none() => stay,

        // Refused while it is being cancelled: the caller would assume that the transfer continues.
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
        // The removal itself is still to be done.
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
            "its partial data is being removed".to_owned(),
            "try again in a moment",
        ),
        _ if at.is_leaving() => (
            "it is being cancelled".to_owned(),
            "ask again in a moment: when it is cancelled it can be retried",
        ),
        (State::Active, Some(Wish::Pause)) if verb == "retry" => {
            ("it is being paused".to_owned(), "resume it")
        }
        (State::Paused, _) => (format!("it is {state}"), "resume it"),
        (state, _) if state.is_terminal() => (
            format!("it is {} already", state.word()),
            "retry it for a new attempt, or submit another",
        ),
        _ => (format!("it is {state}"), "cancel it first"),
    };
    Error::new(
        ErrorKind::AlreadyExists,
        End::Here,
        format!("{verb} the transfer"),
    )
    .cause(cause)
    .remedy(remedy)
}

/// The decision after a session broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// True if the transfer is tried again.
    pub is_tried: bool,
    /// Number of consecutive sessions, this one included, that made no data durable.
    pub tries_without_progress: u32,
}

/// Decides whether a transfer is tried again after its session broke off with an error of this
/// `status`. `tries_without_progress` counts the consecutive sessions before it that made no data
/// durable.
#[must_use]
pub const fn after_break(
    retry: RetryWish,
    tries_without_progress: u32,
    status: Status,
    has_progressed: bool,
) -> Verdict {
    let tries_without_progress = if has_progressed {
        0
    } else {
        tries_without_progress.saturating_add(1)
    };
    Verdict {
        is_tried: !matches!(status, Status::Permanent) && tries_without_progress <= retry.tries,
        tries_without_progress,
    }
}

/// Decides whether a transfer is tried again after its session found no free slot at the other end:
/// always, unless retries are disabled. This does not count as a session without durable data,
/// because no session took place.
#[must_use]
pub const fn after_turned_away(retry: RetryWish, tries_without_progress: u32) -> Verdict {
    Verdict {
        is_tried: retry.tries > 0,
        tries_without_progress,
    }
}

#[cfg(test)]
mod tests;

//! What may follow what: pure.
//!
//! A transfer stands somewhere, and while it runs somebody may have a wish about it: what it shall
//! be when its session has ended. Each command either moves it, changes nothing, or is refused.

use dray_api::{RetryWish, State};
use dray_core::{End, Error, ErrorKind, Result, Status};

/// What shall become of a transfer that runs; of one that is cancelled: what is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    /// It shall pause.
    Pause,
    /// It shall be cancelled; what is safe stays.
    Cancel,
    /// It shall be cancelled and its partial data removed.
    Purge,
}

impl Wish {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cancel => "cancel",
            Self::Purge => "purge",
        }
    }

    /// The wish of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Pause, Self::Cancel, Self::Purge]
            .into_iter()
            .find(|wish| wish.word() == word)
    }
}

/// Where a transfer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its state.
    pub state: State,
    /// What is wished of it.
    pub wish: Option<Wish>,
}

impl Standing {
    /// A state without a wish.
    #[must_use]
    pub const fn of(state: State) -> Self {
        Self { state, wish: None }
    }

    /// Whether it still runs, and is about to be cancelled.
    #[must_use]
    pub const fn is_leaving(self) -> bool {
        matches!(
            (self.state, self.wish),
            (State::Active, Some(Wish::Cancel | Wish::Purge))
        )
    }
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// All of it is safe.
    Done,
    /// Some files failed.
    Incomplete,
    /// Nothing more will be tried.
    Failed,
    /// It will be tried again, later.
    Again,
    /// It was stopped: by a wish, or because the endpoint ends.
    Stopped,
}

/// What is asked of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Run.
    Begin,
    /// Its session ended.
    End(EndKind),
    /// The time to try again has come.
    Due,
    /// The process that ran it is gone.
    Interrupted,
    /// Cancel; with its partial data.
    Cancel {
        /// Remove its partial data.
        purge: bool,
    },
    /// Its partial data was removed.
    Purged,
    /// Pause.
    Pause,
    /// Go on.
    Resume,
    /// A new attempt.
    Retry,
    /// Change what it is owed.
    Patch,
    /// Forget it.
    Delete,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing changes.
    Stay,
    /// It stands there now.
    To(Standing),
    /// It is forgotten.
    Forget,
}

/// What a command makes of a transfer.
///
/// # Errors
/// `AlreadyExists` (409) for what its state does not allow.
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
            // A stronger wish takes the place of a weaker one, never the other way.
            let wish = at.wish.max(Some(cancel_wish(purge)));
            Ok(stay_or(at, Standing { wish, ..at }))
        }
        (S::Cancelled, Command::Cancel { purge: true }) => Ok(stay_or(at, granted(Wish::Purge))),
        // It may never be possible to go on: its source is gone, or the right to it.
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
            // Its session may be stopping already: then it is queued again.
            Some(Wish::Pause) => Ok(Step::To(Standing::of(S::Active))),
            Some(_) => Err(refused(at, "resume")),
        },

        (S::Done | S::Incomplete | S::Failed, Command::Retry) => to(S::Queued),
        // Its partial data is about to be removed: a new attempt would lose what it writes.
        (S::Cancelled, Command::Retry) if at.wish.is_none() => to(S::Queued),
        (S::Queued | S::Waiting, Command::Retry) => stay,
        // What is about to stop goes on by no retry: to say yes here would be to forget it.
        (S::Active, Command::Retry) if at.wish.is_none() => stay,

        // Whoever changes what is about to be cancelled would take it for theirs.
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
        // The removal itself is still to do.
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

/// What follows a session that broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is tried again.
    pub is_tried: bool,
    /// Sessions in a row, this one included, that made nothing safe.
    pub barren: u32,
}

/// Whether a transfer whose session broke off with an error of this `status` is tried again.
/// `barren` counts the sessions in a row before it that made nothing safe.
#[must_use]
pub const fn after_break(
    retry: RetryWish,
    barren: u32,
    status: Status,
    has_progressed: bool,
) -> Verdict {
    let barren = if has_progressed {
        0
    } else {
        barren.saturating_add(1)
    };
    Verdict {
        is_tried: !matches!(status, Status::Permanent) && barren <= retry.tries,
        barren,
    }
}

/// Whether a transfer is tried again whose session found no place at the other end: always, where
/// anything is tried again. It is no session without anything safe, for it was none.
#[must_use]
pub const fn after_turned_away(retry: RetryWish, barren: u32) -> Verdict {
    Verdict {
        is_tried: retry.tries > 0,
        barren,
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, EndKind, Standing, Step, Wish, after_break, next};
    use dray_api::{RetryWish, State};
    use dray_core::{ErrorKind, Status};
    use proptest::prelude::*;

    const COMMANDS: [Command; 16] = [
        Command::Begin,
        Command::End(EndKind::Done),
        Command::End(EndKind::Incomplete),
        Command::End(EndKind::Failed),
        Command::End(EndKind::Again),
        Command::End(EndKind::Stopped),
        Command::Due,
        Command::Interrupted,
        Command::Cancel { purge: false },
        Command::Cancel { purge: true },
        Command::Purged,
        Command::Pause,
        Command::Resume,
        Command::Retry,
        Command::Patch,
        Command::Delete,
    ];

    fn step(at: Standing, command: Command) -> Standing {
        match next(at, command) {
            Ok(Step::To(to)) => to,
            _ => at,
        }
    }

    #[test]
    fn what_is_about_to_be_cancelled_is_changed_by_nobody() {
        let active = Standing::of(State::Active);
        assert_eq!(next(active, Command::Patch).expect("it runs"), Step::Stay);
        for purge in [false, true] {
            let leaving = step(active, Command::Cancel { purge });
            let refused = next(leaving, Command::Patch).expect_err("it is leaving");
            assert_eq!(refused.kind, ErrorKind::AlreadyExists);
            assert_eq!(refused.cause, "it is being cancelled");
        }
    }

    proptest! {
        #[test]
        fn wishes_stand_only_where_somebody_grants_them(
            commands in prop::collection::vec(prop::sample::select(&COMMANDS), 0..60),
        ) {
            let mut at = Standing::of(State::Queued);
            for command in commands {
                let before = at;
                at = step(at, command);
                match at.wish {
                    None => {}
                    Some(Wish::Purge) => prop_assert!(
                        matches!(at.state, State::Active | State::Cancelled)
                    ),
                    Some(_) => prop_assert_eq!(at.state, State::Active),
                }
                if before.state.is_terminal() && !at.state.is_terminal() {
                    prop_assert_eq!(command, Command::Retry);
                }
                if before.state != State::Active && at.state == State::Active {
                    prop_assert_eq!(command, Command::Begin);
                    prop_assert_eq!(before.state, State::Queued);
                }
                // A cancelled wish is granted whatever follows, unless all of it is safe or lost.
                if before.state == State::Active
                    && matches!(before.wish, Some(Wish::Cancel | Wish::Purge))
                    && !at.state.is_terminal()
                {
                    prop_assert_eq!(at.state, State::Active);
                    prop_assert!(at.wish >= before.wish);
                }
            }
        }

        #[test]
        fn what_a_caller_says_twice_changes_nothing_the_second_time(
            commands in prop::collection::vec(prop::sample::select(&COMMANDS), 0..20),
            last in prop::sample::select(&COMMANDS),
        ) {
            let by_callers = matches!(
                last,
                Command::Cancel { .. } | Command::Pause | Command::Resume | Command::Retry
            );
            prop_assume!(by_callers);
            let at = commands.into_iter().fold(Standing::of(State::Queued), step);
            if let Ok(Step::To(to)) = next(at, last) {
                prop_assert_eq!(next(to, last).ok(), Some(Step::Stay), "{:?} {:?}", at, last);
            }
        }
    }

    #[test]
    fn refusals_are_conflicts_with_a_way_out() {
        for state in State::ALL {
            for command in COMMANDS {
                if let Err(error) = next(Standing::of(state), command) {
                    assert_eq!(error.kind, ErrorKind::AlreadyExists);
                    assert!(!error.remedy.is_empty() && !error.cause.is_empty());
                }
            }
        }
        assert!(next(Standing::of(State::Done), Command::Cancel { purge: false }).is_err());
        assert!(next(Standing::of(State::Queued), Command::Delete).is_err());
        assert!(next(Standing::of(State::Active), Command::Begin).is_err());
    }

    #[test]
    fn what_is_about_to_stop_is_not_lost_to_a_retry() {
        for wish in [Wish::Cancel, Wish::Purge] {
            let leaving = Standing {
                state: State::Active,
                wish: Some(wish),
            };
            let error = next(leaving, Command::Retry).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::AlreadyExists);
            assert!(error.cause.contains("being cancelled"), "{error}");
            assert!(error.remedy.contains("in a moment"), "{error}");
        }
        let pausing = Standing {
            state: State::Active,
            wish: Some(Wish::Pause),
        };
        let error = next(pausing, Command::Retry).expect_err("it would be paused all the same");
        assert!(error.cause.contains("being paused"), "{error}");
        assert!(next(pausing, Command::Resume).is_ok());
        let runs = Standing::of(State::Active);
        assert_eq!(next(runs, Command::Retry).ok(), Some(Step::Stay));
    }

    #[test]
    fn tries_without_anything_safe_are_counted() {
        let retry = RetryWish {
            tries: 2,
            interval_seconds: 1,
        };
        let first = after_break(retry, 0, Status::Temporary, false);
        assert!(first.is_tried);
        let second = after_break(retry, first.barren, Status::Temporary, false);
        assert!(second.is_tried);
        let third = after_break(retry, second.barren, Status::Temporary, false);
        assert!(!third.is_tried, "two tries after the first session");
        let saved = after_break(retry, second.barren, Status::Temporary, true);
        assert!(saved.is_tried && saved.barren == 0);
        assert!(!after_break(retry, 0, Status::Permanent, true).is_tried);
    }
}

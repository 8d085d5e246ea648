use super::{Break, Command, EndKind, Standing, Step, Wish, after_break, next};
use dray_api::{RetryWish, State};
use dray_core::retry::{RECONNECT_INTERVAL, RECONNECT_TIME};
use dray_core::{ErrorKind, Status};
use proptest::prelude::*;
use std::time::Duration;

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
        assert_eq!(refused.cause, "the transfer is being cancelled");
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
            // A command that does not end the transfer leaves a requested cancellation requested,
            // and the transfer active.
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

/// A session that broke off after it had reached the other end.
fn broke(has_progressed: bool, interrupted_for: Option<Duration>) -> Break {
    Break {
        status: Status::Temporary,
        is_lost: true,
        has_progressed,
        lasted: RECONNECT_TIME,
        interrupted_for,
    }
}

#[test]
fn tries_without_anything_safe_are_counted() {
    let retry = RetryWish {
        tries: 2,
        interval_seconds: 1,
    };
    let failed = broke(false, None);
    let first = after_break(retry, 0, failed);
    assert!(first.is_tried);
    assert_eq!(first.wait, Duration::from_secs(1));
    let second = after_break(retry, first.tries_without_progress, failed);
    assert!(second.is_tried);
    let third = after_break(retry, second.tries_without_progress, failed);
    assert!(!third.is_tried, "two tries after the first session");
    let saved = after_break(retry, second.tries_without_progress, broke(true, None));
    assert!(saved.is_tried && saved.tries_without_progress == 0);
    let permanent = Break {
        status: Status::Permanent,
        ..broke(true, None)
    };
    assert!(!after_break(retry, 0, permanent).is_tried);
}

#[test]
fn tries_soon_after_a_loss_are_quick_and_not_counted() {
    let retry = RetryWish {
        tries: 2,
        interval_seconds: 10,
    };
    let soon = |tries, end| {
        let verdict = after_break(retry, tries, end);
        assert!(verdict.is_tried);
        (verdict.tries_without_progress, verdict.wait)
    };
    assert_eq!(soon(1, broke(true, None)), (0, RECONNECT_INTERVAL));
    let recent = Some(RECONNECT_TIME / 2);
    assert_eq!(soon(0, broke(false, recent)), (0, RECONNECT_INTERVAL));
    let normal = (1, Duration::from_secs(10));
    assert_eq!(soon(0, broke(false, Some(RECONNECT_TIME))), normal);
    assert_eq!(soon(0, broke(false, None)), normal, "data, but not durable");
    // A full disk is not repaired within a second.
    let full = Break {
        is_lost: false,
        ..broke(false, recent)
    };
    assert_eq!(soon(0, full), normal);
    let short = Break {
        lasted: RECONNECT_TIME / 2,
        ..broke(true, None)
    };
    assert_eq!(soon(1, short), (0, Duration::from_secs(10)));
    let none = RetryWish { tries: 0, ..retry };
    assert!(!after_break(none, 0, broke(false, recent)).is_tried);
    let eager = RetryWish {
        interval_seconds: 0,
        ..retry
    };
    let verdict = after_break(eager, 0, broke(false, recent));
    let found = (verdict.tries_without_progress, verdict.wait);
    assert_eq!(found, (1, Duration::ZERO), "each try counts");
}

use super::{Ending, Report, ending, has_let_go};
use dray_api::{Request, Route, Timestamp};
use dray_core::{End, Error, ErrorKind, Status, TransferId};
use dray_queue::{Counters, SessionInput};
use dray_runtime::drive::{self, Ended};
use dray_session::Progress;

/// Creates the input of a transfer with `sources` sources. The last session used the source number
/// `source`.
fn input(sources: u32, source: u32) -> SessionInput {
    let place = |at: u32| serde_json::json!({"url": format!("dray://s{at}.example/data/x")});
    let request = serde_json::json!({
        "id": "t",
        "sources": [place(0)],
        "replicas": (1..sources).map(place).collect::<Vec<_>>(),
        "destination": {"url": "/data/x"},
    });
    let request: Request = serde_json::from_value(request).expect("good");
    SessionInput {
        id: TransferId::new("t").expect("good"),
        version: 1,
        owner: "alice".to_owned(),
        principal: "alice@test".to_owned(),
        attempt: 1,
        session: 1_001,
        source,
        route: Route::parse(&request, |_| false).expect("good"),
        request,
        counters: Counters::default(),
        submitted_at: Timestamp::from_ms(0),
    }
}

/// Returns one word for the ending, and the number of the source for the next session.
fn said(
    input: &SessionInput,
    ended: drive::Ending,
    is_stopped: bool,
) -> (&'static str, Option<u32>) {
    let ended = Ended {
        ending: ended,
        progress: Progress::default(),
        found: None,
    };
    match ending(input, &ended, &Report::default(), is_stopped) {
        Ending::Done => ("done", None),
        Ending::Incomplete => ("incomplete", None),
        Ending::Failed(_) => ("failed", None),
        Ending::Stopped => ("stopped", None),
        Ending::TurnedAway { source, .. } => ("turned away", source),
        Ending::Broken { error, source, .. } => match error.status {
            Status::Temporary => ("again", source),
            Status::Permanent | Status::Exhausted => ("for good", source),
        },
    }
}

type Case<'a> = (&'a SessionInput, drive::Ending, (&'static str, Option<u32>));

/// Checks the ending of each session, and that a stopping endpoint records every ending as stopped.
fn check(cases: &[Case<'_>]) {
    for (input, ended, expected) in cases {
        let words = format!("{ended:?}");
        assert_eq!(said(input, ended.clone(), false), *expected, "{words}");
        let stopped = match ended {
            drive::Ending::Done { .. } => *expected,
            _ => ("stopped", None),
        };
        assert_eq!(said(input, ended.clone(), true), stopped, "{words}");
    }
}

#[test]
fn the_end_of_a_session_decides_the_next_state() {
    use drive::Ending::{Cancelled, Done, Interrupted, Refused, Unreachable};
    let error = |kind, end| Error::new(kind, end, "begin a session");
    let full = |end| error(ErrorKind::NoPlace, end);
    let one = input(1, 0);
    let (first, last) = (input(2, 0), input(2, 1));
    let table = [
        // No slot was free at one end. All forms of the ending give the same outcome.
        (&one, Refused(full(End::Network)), ("turned away", Some(0))),
        (&one, Refused(full(End::Source)), ("turned away", Some(0))),
        (&one, Refused(full(End::Sink)), ("turned away", None)),
        (&one, Interrupted(full(End::Sink)), ("turned away", None)),
        (
            &one,
            Unreachable(full(End::Source)),
            ("turned away", Some(0)),
        ),
        // The next session reads the next replica, and after the last replica the sources.
        (&first, Refused(full(End::Source)), ("turned away", Some(1))),
        (
            &first,
            Refused(full(End::Network)),
            ("turned away", Some(1)),
        ),
        (&last, Refused(full(End::Source)), ("turned away", Some(0))),
        (&last, Refused(full(End::Sink)), ("turned away", None)),
        // A permanent refusal stays permanent, unless there is another replica.
        (
            &one,
            Refused(error(ErrorKind::NotFound, End::Source)),
            ("for good", None),
        ),
        (
            &first,
            Refused(error(ErrorKind::NotFound, End::Source)),
            ("again", Some(1)),
        ),
        (
            &last,
            Refused(error(ErrorKind::NotFound, End::Source)),
            ("for good", Some(0)),
        ),
        (
            &first,
            Refused(error(ErrorKind::NotFound, End::Sink)),
            ("for good", None),
        ),
        (
            &one,
            Unreachable(error(ErrorKind::Unreachable, End::Network)),
            ("again", Some(0)),
        ),
        (&one, Cancelled, ("again", Some(0))),
        (&one, Done { failed: 0 }, ("done", None)),
        (&one, Done { failed: 2 }, ("incomplete", None)),
    ];
    check(&table);
}

#[test]
fn a_busy_end_is_not_an_occupied_slot() {
    use drive::Ending::Refused;
    let error = |kind, end| Error::new(kind, end, "begin a session");
    let (one, first) = (input(1, 0), input(2, 0));
    // Temporary errors: busy storage, a process without threads, a stopping process.
    check(&[
        (
            &one,
            Refused(error(ErrorKind::Busy, End::Sink)),
            ("again", None),
        ),
        (
            &one,
            Refused(error(ErrorKind::Busy, End::Source)),
            ("again", None),
        ),
        (
            &one,
            Refused(error(ErrorKind::Busy, End::Network)),
            ("again", None),
        ),
        (
            &one,
            Refused(error(ErrorKind::Busy, End::Here)),
            ("again", None),
        ),
        (
            &first,
            Refused(error(ErrorKind::Busy, End::Source)),
            ("again", Some(1)),
        ),
    ]);
}

#[test]
fn only_a_session_stopped_for_its_slot_has_released_the_slot() {
    assert!(has_let_go(&Ending::Stopped, true));
    assert!(!has_let_go(&Ending::Stopped, false), "its caller's wish");
    assert!(!has_let_go(&Ending::Done, true));
    assert!(!has_let_go(&Ending::Incomplete, true));
}

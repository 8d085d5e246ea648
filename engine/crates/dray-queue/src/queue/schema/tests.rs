use super::{STEPS, open, open_reader};
use dray_api::Timestamp;
use dray_core::ErrorKind;

#[test]
fn a_database_of_a_newer_program_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue.db");
    let made = open(&path).expect("made");
    assert!(open_reader(&path).is_ok());
    made.pragma_update(None, "user_version", 99).expect("set");
    drop(made);
    let error = open(&path).expect_err("newer");
    assert_eq!(error.kind, ErrorKind::LogVersion);
}

#[test]
fn sources_of_before_become_replicas_and_question_marks_are_escaped() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue.db");
    let old = rusqlite::Connection::open(&path).expect("made");
    let steps = 9;
    for step in &STEPS[..steps] {
        old.execute_batch(step).expect("a step");
    }
    old.pragma_update(None, "user_version", steps).expect("set");
    let request = r#"{"sources":[{"url":"/d/a?"},{"url":"/d/b"},{"url":"/d/c"}],
        "destination":{"url":"/d/to#"}}"#;
    old.execute(
        "INSERT INTO transfers (id, seq, owner, principal, state, version, attempt, tries,
         barren, source, essence, request, tickets, class, source_url, destination_url,
         submitted_at, failures, notices)
         VALUES ('t', 1, '', '', 'queued', 1, 1, 0, 0, 0, ?1, ?1, '[]', '', '/d/a?', '/d/to#',
         0, '', '')",
        [request],
    )
    .expect("written");
    drop(old);
    let new = open(&path).expect("brought along");
    let look = "SELECT request, source_url, destination_url FROM transfers";
    let (request, source, to): (String, String, String) = new
        .query_row(look, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("read");
    let request: serde_json::Value = serde_json::from_str(&request).expect("JSON");
    assert_eq!(request["sources"], serde_json::json!([{"url": "/d/a%3F"}]));
    let replicas = serde_json::json!([{"url": "/d/b"}, {"url": "/d/c"}]);
    assert_eq!(request["replicas"], replicas);
    assert_eq!(request["destination"]["url"], "/d/to%23");
    assert_eq!((source.as_str(), to.as_str()), ("/d/a%3F", "/d/to%23"));
}

#[test]
fn a_queue_of_before_knows_which_transfers_were_purged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue.db");
    let old = rusqlite::Connection::open(&path).expect("made");
    let steps = 10;
    for step in &STEPS[..steps] {
        old.execute_batch(step).expect("a step");
    }
    old.pragma_update(None, "user_version", steps).expect("set");
    let cases = [
        (
            "cancelled",
            r#"["other", "purged: 1 partial file, 7 bytes"]"#,
            true,
        ),
        (
            "cancelled",
            r#"["purged: 1 partial file, 7 bytes", "other"]"#,
            false,
        ),
        (
            "cancelled",
            r#"["nothing purged: it is another owner's"]"#,
            false,
        ),
        ("cancelled", "[]", false),
        ("failed", r#"["purged: 1 partial file, 7 bytes"]"#, false),
    ];
    for (seq, (state, notices, _)) in cases.into_iter().enumerate() {
        old.execute(
            "INSERT INTO transfers (id, seq, owner, principal, state, version, attempt, tries,
             barren, source, essence, request, tickets, class, source_url, destination_url,
             submitted_at, failures, notices)
             VALUES (?1, ?1, '', '', ?2, 1, 1, 0, 0, 0, '{}', '{}', '[]', '', '', '', 0, '[]',
             ?3)",
            (seq, state, notices),
        )
        .expect("written");
    }
    drop(old);
    let new = open(&path).expect("brought along");
    let mut statement = new
        .prepare("SELECT purged FROM transfers ORDER BY seq")
        .expect("good");
    let purged: Vec<bool> = statement
        .query_map([], |row| row.get(0))
        .expect("read")
        .collect::<Result<_, _>>()
        .expect("read");
    assert_eq!(purged, cases.map(|(_, _, purged)| purged));
}

#[test]
fn a_queue_of_before_finds_its_place_in_the_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue.db");
    let old = rusqlite::Connection::open(&path).expect("made");
    for step in &STEPS[..2] {
        old.execute_batch(step).expect("a step");
    }
    old.pragma_update(None, "user_version", 2).expect("set");
    let request = r#"{"priority": 7, "deadline": "2026-11-21T17:00:00.250Z"}"#;
    for (seq, state, not_before) in [(1, "queued", 5), (2, "paused", 6)] {
        old.execute(
            "INSERT INTO transfers VALUES (?1, ?1, 'alice', '', ?2, NULL, 1, 1, 0, 0, 0, '',
             ?3, '', 'deadline', NULL, '', '', ?4, NULL, 0, NULL, NULL, NULL, NULL, '', '')",
            (seq, state, request, not_before),
        )
        .expect("written");
    }
    drop(old);
    let new = open(&path).expect("brought along");
    let mut statement = new
        .prepare("SELECT priority, deadline, held_until FROM transfers ORDER BY seq")
        .expect("good");
    let rows: Vec<(u8, i64, Option<i64>)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("read")
        .collect::<Result<_, _>>()
        .expect("read");
    let at = Timestamp::parse("2026-11-21T17:00:00.250Z").expect("a time");
    assert_eq!(rows, [(7, at.as_ms(), Some(5)), (7, at.as_ms(), None)]);
}

#[test]
fn a_queue_of_before_gets_a_table_of_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queue.db");
    let old = rusqlite::Connection::open(&path).expect("made");
    let steps = 12;
    for step in &STEPS[..steps] {
        old.execute_batch(step).expect("a step");
    }
    old.pragma_update(None, "user_version", steps).expect("set");
    old.execute(
        "INSERT INTO staging (id, seq, owner, direction, request, fast_path, slow_path, staged_at)
         VALUES ('s', 1, 'alice', 'in', '{}', '/fast/a', '/slow/a', 7)",
        [],
    )
    .expect("written");
    drop(old);
    let new = open(&path).expect("brought along");
    let look = "SELECT hit, staged_at FROM staging WHERE id = 's'";
    let row: (bool, i64) = new
        .query_row(look, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("read");
    assert_eq!(row, (false, 7));
    let look = "SELECT (SELECT COUNT(*) FROM tier_versions) + (SELECT COUNT(*) FROM tier_restarts)";
    let rows: i64 = new.query_row(look, [], |row| row.get(0)).expect("read");
    assert_eq!(rows, 0);
}

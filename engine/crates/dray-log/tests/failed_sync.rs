//! After a failed sync of a log, no run trusts the records that the sync did not make durable. The
//! page cache may still contain these records, and a second sync would succeed without them.

mod common;

use common::medium::{Key, Medium};
use common::{header, tenure};
use dray_core::options::Durability;
use dray_core::{ByteRange, LogForm, Sums};
use dray_log::{
    FileNumber, LeaseRecord, LockKind, ObjectLog, Recovery, UniversalLog, lease, recover,
};

const SIZE: usize = 64;

fn object(index: u64) -> ByteRange {
    ByteRange::between(index * common::OBJECT, (index + 1) * common::OBJECT)
}

/// Creates a log with one durable object of one file.
fn create(medium: &Medium, form: &str) -> (UniversalLog<Medium>, FileNumber) {
    let form: LogForm = form.parse().expect("a form");
    let header = header(tenure(1, 1, Durability::File)).of_form(form);
    let mut log = UniversalLog::create(medium.clone(), header).expect("no fault");
    let number = log.begin_file(common::begin("x", 1, SIZE)).expect("new");
    log.done(number, object(0), Sums::EMPTY).expect("new");
    log.commit().expect("no fault");
    log.done(number, object(1), Sums::EMPTY).expect("new");
    (log, number)
}

fn found(medium: &Medium) -> Recovery {
    recover(&mut medium.clone())
        .expect("readable")
        .expect("made")
}

fn bytes(found: &Recovery) -> u64 {
    found.files.values().map(|file| file.done.bytes()).sum()
}

/// Checks that every byte of the log and of its part logs is durable.
fn assert_durable(medium: &Medium) {
    for (key, disk) in &medium.all().folder.files {
        assert_eq!(disk.written, disk.durable, "{key:?}");
    }
}

fn resume(medium: &Medium) -> dray_core::Result<UniversalLog<Medium>> {
    let tenure = tenure(2, 1, Durability::File);
    UniversalLog::resume(medium.clone(), found(medium), tenure)
}

fn a_failed_sync_is_not_trusted(form: &str, failing: Key, kept: u64) {
    let medium = Medium::new();
    let (mut log, _) = create(&medium, form);
    medium.all().failing_sync = Some(failing);
    log.commit().expect_err("the sync fails");
    log.commit().expect_err("the log is given up");
    assert_eq!(bytes(&found(&medium)), kept * common::OBJECT, "{form}");
    let log = resume(&medium).expect("no fault");
    assert_durable(&medium);
    drop(log);
    assert_eq!(bytes(&found(&medium)), kept * common::OBJECT, "{form}");
}

#[test]
fn records_of_a_failed_sync_are_not_trusted() {
    a_failed_sync_is_not_trusted("universal:ranges", None, 1);
    a_failed_sync_is_not_trusted("file:bit8", Some(0), 1);
    a_failed_sync_is_not_trusted("transaction:char", Some(0), 1);
    // The sync of the part log succeeds, so its records stay.
    a_failed_sync_is_not_trusted("file:bit8", None, 2);
}

/// Creates a log whose writer was killed between an append and its sync.
fn killed_before_sync(form: &str) -> Medium {
    let medium = Medium::new();
    let (mut log, _) = create(&medium, form);
    medium.all().calls_left = Some(1);
    log.commit().expect_err("the process is killed");
    drop(log);
    medium.all().calls_left = None;
    assert_eq!(bytes(&found(&medium)), 2 * common::OBJECT, "{form}");
    medium
}

#[test]
fn a_resume_makes_the_records_of_a_killed_writer_durable() {
    for form in ["universal:ranges", "file:bit8", "transaction:char"] {
        let medium = killed_before_sync(form);
        let log = resume(&medium).expect("no fault");
        drop(log);
        assert_durable(&medium);
        assert_eq!(bytes(&found(&medium)), 2 * common::OBJECT, "{form}");
    }
}

#[test]
fn a_resume_whose_sync_fails_is_not_believed_by_the_next() {
    for (form, failing) in [
        ("universal:ranges", None),
        ("file:bit8", Some(0)),
        ("transaction:char", Some(0)),
    ] {
        let medium = killed_before_sync(form);
        medium.all().failing_sync = Some(failing);
        resume(&medium).expect_err("the sync fails");
        assert_eq!(bytes(&found(&medium)), common::OBJECT, "{form}");
        resume(&medium).expect("no fault");
        assert_durable(&medium);
        assert_eq!(bytes(&found(&medium)), common::OBJECT, "{form}");
    }
}

#[test]
fn the_mark_of_a_doubtful_file_survives_a_failed_sync() {
    for form in ["universal:ranges", "file:bit8"] {
        let medium = Medium::new();
        let (mut log, number) = create(&medium, form);
        log.commit().expect("no fault");
        log.file_doubtful(number).expect("unfinished");
        medium.all().failing_sync = Some(None);
        log.commit().expect_err("the sync fails");
        let found = found(&medium);
        assert!(found.files[&common::path("x")].is_doubtful, "{form}");
    }
}

#[test]
fn marks_can_follow_a_failed_sync() {
    for (form, failing, kept) in [
        ("universal:ranges", None, 2),
        // The sync of the part log succeeds, so its records stay.
        ("file:bit8", None, 3),
        ("file:bit8", Some(0), 2),
    ] {
        let medium = Medium::new();
        let (mut log, first) = create(&medium, form);
        let second = log.begin_file(common::begin("y", 2, SIZE)).expect("new");
        let third = log.begin_file(common::begin("z", 3, SIZE)).expect("new");
        log.commit().expect("no fault");
        medium.all().failing_sync = Some(failing);
        // The sync of the marks themselves fails.
        log.done(first, object(2), Sums::EMPTY).expect("new");
        log.mark_doubtful(&[first, second]).expect("appended");
        medium.all().failing_sync = None;
        log.mark_doubtful(&[second, third]).expect("appended");
        let found = found(&medium);
        for path in ["x", "y", "z"] {
            assert!(
                found.files[&common::path(path)].is_doubtful,
                "{form}: {path}"
            );
        }
        // The durable ranges are still in the log.
        assert_eq!(bytes(&found), kept * common::OBJECT, "{form}");
    }
}

#[test]
fn a_mark_that_is_not_in_the_log_is_an_error() {
    let medium = Medium::new();
    let (mut log, number) = create(&medium, "universal:ranges");
    log.commit().expect("no fault");
    medium.all().calls_left = Some(0);
    log.mark_doubtful(&[number])
        .expect_err("the process is killed");
}

#[test]
fn a_mark_of_a_file_that_is_not_in_the_log_is_an_error() {
    // The begin of the second file is cut with the records of the failed sync, or still pending.
    for (form, failing) in [("universal:ranges", None), ("file:bit8", Some(0))] {
        let medium = Medium::new();
        let (mut log, first) = create(&medium, form);
        let second = log.begin_file(common::begin("y", 2, SIZE)).expect("new");
        medium.all().failing_sync = Some(failing);
        log.mark_doubtful(&[first, second])
            .expect_err("the log does not name the second file");
        let found = found(&medium);
        assert!(found.files[&common::path("x")].is_doubtful, "{form}");
        assert!(!found.files.contains_key(&common::path("y")), "{form}");
        log.mark_doubtful(&[first]).expect("appended");
        log.mark_doubtful(&[second]).expect_err("still unknown");
    }
}

#[test]
fn a_mark_that_a_failed_commit_left_pending_follows_with_the_next_mark() {
    let medium = Medium::new();
    let (mut log, first) = create(&medium, "file:bit8");
    let second = log.begin_file(common::begin("y", 2, SIZE)).expect("new");
    log.commit().expect("no fault");
    medium.all().is_append_failing = true;
    log.mark_doubtful(&[second]).expect_err("the append fails");
    assert!(!found(&medium).files[&common::path("y")].is_doubtful);
    // The log is given up, because the sync of a part log fails.
    log.done(first, object(2), Sums::EMPTY).expect("new");
    medium.all().failing_sync = Some(Some(0));
    log.mark_doubtful(&[first]).expect("appended");
    for path in ["x", "y"] {
        assert!(
            found(&medium).files[&common::path(path)].is_doubtful,
            "{path}"
        );
    }
}

#[test]
fn a_log_that_lost_its_marks_takes_no_more_marks() {
    let medium = Medium::new();
    let (mut log, number) = create(&medium, "universal:ranges");
    log.commit().expect("no fault");
    {
        let mut all = medium.all();
        all.failing_sync = Some(None);
        // The append and the cut succeed. The marks are not appended again.
        all.lengths_left = Some(2);
    }
    log.mark_doubtful(&[number]).expect_err("no mark");
    medium.all().lengths_left = None;
    log.mark_doubtful(&[number]).expect_err("no more marks");
}

#[test]
fn a_failed_sync_of_a_resumed_part_log_removes_no_durable_record() {
    for form in ["file:bit8", "transaction:char"] {
        let medium = Medium::new();
        let (mut log, number) = create(&medium, form);
        log.commit().expect("no fault");
        drop(log);
        let mut log = resume(&medium).expect("no fault");
        // The next commit opens the part log and records the new holder in it.
        log.done(number, object(2), Sums::EMPTY).expect("new");
        medium.all().failing_sync = Some(Some(0));
        log.commit().expect_err("the sync fails");
        log.commit().expect_err("the log is given up");
        assert_eq!(bytes(&found(&medium)), 2 * common::OBJECT, "{form}");
    }
}

/// Checks that a log keeps the records of a process that has taken the lease during a failing call.
fn records_of_the_next_holder_stay(form: &str, failing: Key, is_append_failing: bool) {
    let medium = Medium::new();
    let (mut log, _) = create(&medium, form);
    let records = vec![7; 24];
    {
        let mut all = medium.all();
        all.takeover = Some(records.clone());
        all.is_append_failing = is_append_failing;
        all.failing_sync = (!is_append_failing).then_some(failing);
    }
    log.commit().expect_err("the call fails");
    log.commit().expect_err("the log is given up");
    let all = medium.all();
    let written = &all.folder.files[&failing].written;
    assert!(written.ends_with(&records), "{form}: {written:?}");
}

#[test]
fn a_failed_call_removes_no_record_of_the_next_holder() {
    for is_append_failing in [false, true] {
        records_of_the_next_holder_stay("universal:ranges", None, is_append_failing);
        records_of_the_next_holder_stay("file:bit8", Some(0), is_append_failing);
        records_of_the_next_holder_stay("transaction:char", Some(0), is_append_failing);
    }
}

#[test]
fn a_lease_belongs_to_a_tenure_of_the_same_epoch_and_boot() {
    let mine = tenure(2, 1, Durability::File);
    let lease = |epoch, boot| LeaseRecord {
        epoch,
        holder: "dray pid 2".to_owned(),
        transfer: mine.transfer.clone(),
        boot_id: common::boot(boot),
        host: "dtn1".to_owned(),
        request: 0,
        lock: LockKind::System,
    };
    assert!(lease::is_of(Some(&lease(2, 1)), &mine));
    assert!(!lease::is_of(Some(&lease(3, 1)), &mine));
    assert!(!lease::is_of(Some(&lease(2, 9)), &mine));
    assert!(!lease::is_of(None, &mine));
}

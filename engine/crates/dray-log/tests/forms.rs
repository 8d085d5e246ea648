//! One suite for the logs of all mechanisms and methods: recovery after a crash at any byte, after
//! a flipped bit, after a compaction and after a resume.

mod common;

use common::medium::{Folder, Key, Medium, disk_of};
use common::{
    ExpectedState, apply, assert_equals, first_false_range, header, path, tenure, workload,
};
use dray_core::options::Durability;
use dray_core::{ByteRange, LogForm, LogMechanism, LogMethod, SummedRanges, Sums};
use dray_log::{ObjectLog, Recovery, UniversalLog, recover};
use std::num::NonZeroU32;

/// Returns true if the tests try every byte, as in `make test-full`. Otherwise they try some bytes of
/// each form, in a few seconds.
fn is_whole() -> bool {
    std::env::var_os("DRAY_FULL").is_some()
}

/// Returns all forms with sums and without sums, and some forms that are written asynchronously.
/// A transaction has two files, so that the workload begins two of them.
fn forms() -> Vec<LogForm> {
    let two = NonZeroU32::new(2).expect("not zero");
    let mechanisms = [
        LogMechanism::File,
        LogMechanism::Transaction(two),
        LogMechanism::Universal,
    ];
    let all = mechanisms
        .into_iter()
        .flat_map(|mechanism| LogMethod::ALL.map(|method| LogForm::new(mechanism, method)));
    let all = all.flat_map(|form| match form.method {
        LogMethod::Ranges => vec![form, form.asynchronous(), form.without_sums()],
        LogMethod::Bit8 => vec![
            form,
            form.without_sums(),
            form.without_sums().asynchronous(),
        ],
        _ => vec![form, form.without_sums()],
    });
    all.collect()
}

fn read(folder: Folder) -> Recovery {
    let found = recover(&mut Medium::of(folder));
    found.expect("a torn tail is no error").expect("made")
}

/// The states of a folder during the workload. For each state, `truths[..at.1]` are the states that
/// the log may record, and `committed` is the state of the last commit.
struct Run {
    states: Vec<(Folder, usize, ExpectedState)>,
    truths: Vec<ExpectedState>,
    end: Folder,
}

fn run(form: LogForm, durability: Durability) -> Run {
    let medium = Medium::new();
    let header = header(tenure(1, 1, durability)).of_form(form);
    let mut log = UniversalLog::create(medium.clone(), header).expect("no fault");
    let mut truth = ExpectedState::new();
    let mut committed = ExpectedState::new();
    let (mut states, mut truths) = (Vec::new(), vec![ExpectedState::new()]);
    medium.all().is_recorded = true;
    for op in workload() {
        apply(&mut log, &mut truth, &op).expect("no fault");
        truths.push(truth.clone());
        let during = std::mem::take(&mut medium.all().states);
        let known = truths.len();
        states.extend(
            during
                .into_iter()
                .map(|folder| (folder, known, committed.clone())),
        );
        if matches!(op, common::Op::Commit) {
            committed.clone_from(&truth);
        }
    }
    let end = medium.all().folder.clone();
    Run {
        states,
        truths,
        end,
    }
}

/// Returns the contents that a folder may have after a crash: the unsynced bytes of one file end at
/// any byte, or are zeros from any byte, and the unsynced bytes of the other files are all there or
/// all missing. A removal may be undone. With a `step` above 1, not every byte is tried.
fn images(folder: &Folder, step: usize) -> Vec<Folder> {
    let mut images = Vec::new();
    let mut folders = vec![folder.clone()];
    folders.extend((!folder.removed.is_empty()).then(|| folder.with_removed()));
    for folder in folders {
        images.push(folder.with(|_, disk| disk.durable.clone()));
        images.push(folder.with(|_, disk| disk.written.clone()));
        for (key, disk) in &folder.files {
            for cut in (disk.durable.len()..disk.written.len()).step_by(step) {
                // Cut at any byte, and lose blocks of eight bytes.
                let all = [(false, false), (true, true), (true, false)];
                for (is_zeroed, others_kept) in
                    all.into_iter().take(if cut % 8 == 0 { 3 } else { 1 })
                {
                    images.push(folder.with(|of, other| match (of == *key, others_kept) {
                        (false, false) => other.durable.clone(),
                        (false, true) => other.written.clone(),
                        (true, _) => {
                            let mut bytes = other.written[..cut].to_vec();
                            bytes.resize(if is_zeroed { other.written.len() } else { cut }, 0);
                            bytes
                        }
                    }));
                }
            }
        }
    }
    images
}

/// Checks the logs of a mechanism. The tests of the mechanisms run concurrently.
fn check_crashes(is_meant: impl Fn(LogMechanism) -> bool) {
    for form in forms().into_iter().filter(|form| is_meant(form.mechanism)) {
        let run = run(form, Durability::File);
        // The methods share the code that finds a torn tail, so three of them suffice for all bytes.
        let step = match (form.method, is_whole()) {
            (LogMethod::Ranges | LogMethod::Char | LogMethod::Bit64, true) => 1,
            (_, true) => 5,
            (LogMethod::Ranges, false) if form.has_sums => 8,
            (LogMethod::Bit8, false) => 21,
            (_, false) => 40,
        };
        let mut count = 0;
        for (folder, known, committed) in &run.states {
            for image in images(folder, step) {
                count += 1;
                let found = read(image.clone());
                assert!(found.damage.is_none(), "{form}: a torn tail is not damage");
                let truths = &run.truths[..*known];
                assert_eq!(first_false_range(&found, truths), None, "{form}");
                let last = truths.last().expect("one truth");
                for (name, (version, _, done)) in committed {
                    // The end of a file may be in a part log, and not yet in the log.
                    if last.get(name).is_none_or(|(now, ..)| now != version) {
                        continue;
                    }
                    let file = found.files.get(&path(name));
                    let kept = file.map_or(0, |file| file.done.bytes());
                    let bytes = done.iter().filter(|bit| **bit).count() as u64;
                    assert!(kept >= bytes, "{form}: {name} lost ranges");
                }
                if count % 23 == 0 {
                    continue_after(form, image, truths);
                }
            }
        }
        assert!(count > 60, "{form}: {count} images");
    }
}

#[test]
fn a_crash_of_a_file_log_loses_only_uncommitted_records_and_adds_none() {
    check_crashes(|mechanism| mechanism == LogMechanism::File);
}

#[test]
fn a_crash_of_a_transaction_log_loses_only_uncommitted_records_and_adds_none() {
    check_crashes(|mechanism| matches!(mechanism, LogMechanism::Transaction(_)));
}

#[test]
fn a_crash_of_a_universal_log_loses_only_uncommitted_records_and_adds_none() {
    check_crashes(|mechanism| mechanism == LogMechanism::Universal);
}

fn done_of(recovery: &Recovery) -> Vec<(String, SummedRanges)> {
    let files = recovery.files.iter();
    files
        .map(|(path, file)| (path.to_string(), file.done.clone()))
        .collect()
}

/// Resumes after a crash, records one more object of each file, and reads the log again.
fn continue_after(form: LogForm, image: Folder, history: &[ExpectedState]) {
    let medium = Medium::of(image);
    let found = recover(&mut medium.clone())
        .expect("readable")
        .expect("made");
    let before = found.clone();
    // Ranges without sums end with the boot.
    let boot = if form.has_sums { 2 } else { 1 };
    let tenure = tenure(2, boot, Durability::File);
    let mut log = UniversalLog::resume(medium.clone(), found, tenure).expect("resumes");
    let again = read(medium.all().folder.clone());
    assert!(again.damage.is_none() && again.torn_bytes == 0);
    assert_eq!(first_false_range(&again, history), None, "{form}");
    assert_eq!(
        done_of(&again),
        done_of(&before),
        "{form}: a resume keeps all ranges"
    );
    let mut added = 0;
    for (at, file) in &before.files {
        let object = ByteRange::between(32, 48.min(file.key.size));
        if object.is_empty() || file.done.overlaps(object) {
            continue;
        }
        log.done(file.number, object, Sums::EMPTY)
            .expect("a new range");
        added += object.length;
        log.commit().expect("no fault");
        let found = read(medium.all().folder.clone());
        assert!(found.files[at].done.contains(object), "{form}: {at}");
    }
    let bytes = |found: &Recovery| {
        found
            .files
            .values()
            .map(|file| file.done.bytes())
            .sum::<u64>()
    };
    let last = read(medium.all().folder.clone());
    assert_eq!(bytes(&last), bytes(&before) + added, "{form}");
}

#[test]
fn a_flipped_bit_never_adds_a_range() {
    for form in forms() {
        let run = run(form, Durability::File);
        let keys: Vec<Key> = run.end.files.keys().copied().collect();
        let mut unchanged = 0;
        let expected = done_of(&read(run.end.clone()));
        for key in keys {
            let step = if is_whole() { 3 } else { 19 };
            for at in (0..run.end.files[&key].durable.len()).step_by(step) {
                let mut folder = run.end.clone();
                let mut bytes = folder.files[&key].durable.clone();
                bytes[at] ^= 1 << (at % 8);
                folder.files.insert(key, disk_of(bytes));
                let Ok(found) = recover(&mut Medium::of(folder)) else {
                    assert_eq!(key, None, "only an unreadable log is an error");
                    continue;
                };
                let found = found.expect("not empty");
                let truths = &run.truths;
                assert_eq!(
                    first_false_range(&found, truths),
                    None,
                    "{form}: {key:?} {at}"
                );
                let whole = found.damage.is_none() && found.torn_bytes == 0;
                unchanged += u32::from(whole && done_of(&found) == expected);
            }
        }
        // Only padding and fields called zero have no effect.
        assert!(unchanged < 160, "{form}: {unchanged}");
    }
}

#[test]
fn a_compaction_keeps_all_ranges_in_the_same_form() {
    for form in forms() {
        let run = run(form, Durability::File);
        let medium = Medium::of(run.end.clone());
        let found = recover(&mut medium.clone())
            .expect("readable")
            .expect("made");
        let tenure = tenure(2, 1, Durability::File);
        let mut log = UniversalLog::resume(medium.clone(), found, tenure).expect("resumes");
        log.compact().expect("no fault");
        let found = read(medium.all().folder.clone());
        assert_eq!(found.header.form, form);
        let last = run.truths.last().expect("a truth");
        assert_equals(&found, last, &form.to_string());
        for file in found.files.values() {
            let all = ByteRange::between(0, file.key.size);
            let pieces = log.pieces(file.number, all).expect("no fault");
            let bytes: u64 = pieces.iter().map(|(range, _)| range.length).sum();
            assert_eq!(bytes, file.done.bytes(), "{form}");
        }
    }
}

#[test]
fn a_crash_during_a_compaction_loses_no_record() {
    for form in forms() {
        let run = run(form, Durability::File);
        let last = run.truths.last().expect("a truth");
        for calls in 0..60 {
            let medium = Medium::of(run.end.clone());
            let found = recover(&mut medium.clone())
                .expect("readable")
                .expect("made");
            let tenure = tenure(2, 1, Durability::File);
            medium.all().calls_left = Some(calls);
            let log = UniversalLog::resume(medium.clone(), found, tenure);
            let compacted = log.and_then(|mut log| log.compact());
            let folder = medium.all().folder.clone();
            let found = read(folder.with(|_, disk| disk.durable.clone()));
            assert_equals(&found, last, &format!("{form}, {calls} calls"));
            if compacted.is_ok() {
                assert!(calls > 3, "{form}: a compaction has several calls");
                break;
            }
            assert!(calls < 59, "{form}: the compaction ends");
        }
    }
}

#[test]
fn a_failed_commit_is_repeated_in_every_form() {
    for form in forms() {
        for calls in 0..40 {
            let medium = Medium::new();
            let header = header(tenure(1, 1, Durability::None)).of_form(form);
            let mut log = UniversalLog::create(medium.clone(), header).expect("no fault");
            let begin = common::begin("run/a", 1, 100);
            let number = log.begin_file(begin).expect("no fault");
            let data = common::content("run/a", 1, 100);
            for (start, end) in [(32, 48), (0, 16), (50, 60)] {
                let sums = Sums::of(&data[start..end]);
                let range = ByteRange::between(start as u64, end as u64);
                log.done(number, range, sums).expect("a new range");
            }
            medium.all().calls_left = Some(calls);
            let first = log.commit();
            medium.all().calls_left = None;
            let second = log.commit();
            if second.is_ok() {
                let found = read(medium.all().folder.clone());
                assert_eq!(
                    found.files[&path("run/a")].done.bytes(),
                    42,
                    "{form} {calls}"
                );
            } else {
                // After a failed truncation or sync the log cannot be used any more.
                assert!(first.is_err(), "{form} {calls}");
            }
            if first.is_ok() {
                assert!(second.is_ok());
                break;
            }
        }
    }
}

#[test]
fn part_logs_exist_only_for_unfinished_files_with_objects() {
    for method in LogMethod::ALL {
        let mechanism = LogMechanism::File;
        let run = run(LogForm::new(mechanism, method), Durability::File);
        // The workload leaves two unfinished files with completed objects: numbers 2 and 3.
        let keys: Vec<Key> = run.end.files.keys().copied().collect();
        assert_eq!(keys, [None, Some(2), Some(3)], "{method:?}");
        let most = run
            .states
            .iter()
            .map(|(folder, ..)| folder.files.len())
            .max();
        assert_eq!(most, Some(4), "the log and three part logs");
    }
}

#[test]
fn weak_ranges_end_with_the_boot_in_every_form() {
    for form in forms() {
        let run = run(form, Durability::None);
        let written = run.end.with(|_, disk| disk.written.clone());
        let same = recover(&mut Medium::of(written.clone()))
            .expect("readable")
            .expect("made");
        assert_eq!(first_false_range(&same, &run.truths), None);
        assert!(same.files.values().all(|file| file.is_weak), "{form}");
        // The boots of the holders are 1, 2 and 1: no range of the first holder counts any more.
        let mut medium = Medium::of(written);
        for (epoch, boot) in [(2, 2), (3, 1), (4, 1)] {
            let found = recover(&mut medium).expect("readable").expect("made");
            let tenure = tenure(epoch, boot, Durability::None);
            let mut log = UniversalLog::resume(medium.clone(), found, tenure).expect("resumes");
            let none = log.files().all(|(_, file)| file.done.bytes() <= 16);
            assert!(none, "{form}: epoch {epoch}");
            if epoch == 3 {
                let number = log.file(&path("c")).expect("unfinished").number;
                let range = ByteRange::between(0, 16);
                log.done(number, range, Sums::EMPTY).expect("a new range");
                log.commit().expect("no fault");
            }
        }
        let last = recover(&mut medium).expect("readable").expect("made");
        assert_eq!(last.files[&path("c")].done.bytes(), 16, "{form}");
    }
}

#[test]
fn ranges_without_sums_end_with_the_boot_although_they_were_synced() {
    for form in forms().into_iter().filter(|form| !form.has_sums) {
        let mut medium = Medium::of(run(form, Durability::File).end);
        let bytes = |found: &Recovery| -> u64 {
            let files = found.files.values();
            files.map(|file| file.done.bytes()).sum()
        };
        let first = recover(&mut medium).expect("readable").expect("made");
        assert!(bytes(&first) > 0, "{form}");
        // The host restarts twice. The holders of epochs 3 and 4 have the boot of the first holder,
        // and a log cannot tell that from a third boot of another host.
        for (epoch, boot) in [(2, 2), (3, 1), (4, 1)] {
            let found = recover(&mut medium).expect("readable").expect("made");
            let tenure = tenure(epoch, boot, Durability::File);
            let mut log = UniversalLog::resume(medium.clone(), found, tenure).expect("resumes");
            let left: u64 = log.files().map(|(_, file)| file.done.bytes()).sum();
            assert_eq!(
                left,
                if epoch == 4 { 16 } else { 0 },
                "{form}: epoch {epoch}"
            );
            if epoch == 3 {
                let number = log.file(&path("c")).expect("unfinished").number;
                let range = ByteRange::between(0, 16);
                log.done(number, range, Sums::of(b"sixteen bytes..."))
                    .expect("a new range");
                log.commit().expect("no fault");
                log.compact().expect("no fault");
            }
        }
        let last = recover(&mut medium).expect("readable").expect("made");
        assert_eq!(bytes(&last), 16, "{form}");
    }
}

#[test]
fn a_log_without_sums_has_the_sizes_of_the_paper() {
    // Kasu et al. 2019, section IV-B: the bytes of 1000 objects in each representation. A record
    // has 16 bytes of head and 16 bytes of other fields; `bit8` and `bit64` have the index of the
    // first word besides.
    let digits: usize = (0..1000)
        .map(|object: u32| object.to_string().len() + 1)
        .sum();
    for (method, numbers) in [
        (LogMethod::Char, digits),
        (LogMethod::Int, 8 * 1000),
        (LogMethod::Enc, 128 + 2 * 872),
        (LogMethod::Binary, 4 * 1000),
        (LogMethod::Bit8, 8 + 125),
        (LogMethod::Bit64, 8 + 128),
        (LogMethod::Ranges, 0),
    ] {
        let form = LogForm::new(LogMechanism::Universal, method).without_sums();
        let header = header(tenure(1, 1, Durability::File)).of_form(form);
        let mut log = UniversalLog::create(Medium::new(), header).expect("no fault");
        let size = 1000 * common::OBJECT;
        let number = log
            .begin_file(common::begin("a", 1, size as usize))
            .expect("a file");
        log.commit().expect("no fault");
        let before = log.bytes();
        for object in 0..1000 {
            let range = ByteRange::between(object * common::OBJECT, (object + 1) * common::OBJECT);
            log.done(number, range, Sums::of(b"not stored"))
                .expect("a new range");
        }
        log.commit().expect("no fault");
        let (commit, fields) = (24, 32);
        let expected = (fields + numbers as u64).next_multiple_of(8) + commit;
        assert_eq!(log.bytes() - before, expected, "{method:?}");
    }
}

#[test]
fn a_log_keeps_its_form_and_older_programs_read_the_usual_form() {
    for form in forms() {
        let bytes = run(form, Durability::File).end.files[&None].durable.clone();
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        let expected = match (form == LogForm::default(), form.has_sums && !form.is_async) {
            (true, _) => 2,
            (false, true) => 3,
            (false, false) => 4,
        };
        assert_eq!(version, expected, "{form}");
    }
}

#[test]
fn binary_refuses_a_file_with_more_than_2_32_objects() {
    let form: LogForm = "universal:binary".parse().expect("a form");
    let header = header(tenure(1, 1, Durability::File)).of_form(form);
    let mut log = UniversalLog::create(Medium::new(), header).expect("no fault");
    let mut begin = common::begin("a", 1, 0);
    begin.key.size = (1 << 32) * common::OBJECT;
    log.begin_file(begin.clone())
        .expect("as many objects as possible");
    begin.path = path("b");
    begin.partial.name = dray_core::Name::new(b".dray-b.part").expect("a name");
    begin.key.size += 1;
    let error = log.begin_file(begin).expect_err("one object too many");
    let words = error.to_string();
    assert!(
        words.contains("4294967297 objects") && words.contains("log method binary"),
        "{words}"
    );
}

//! Tests crashes after every call and at every byte, a flipped bit in every byte, and full disks.

mod common;

use common::{
    CrashDisk, ExpectedState, Op, SharedDisk, apply, assert_equals, first_false_range, header,
    tenure, workload,
};
use dray_core::options::Durability;
use dray_core::{End, Error, ErrorKind, RelPath};
use dray_log::{LogFile, MemoryFile, ObjectLog, Recovery, UniversalLog, recover};

/// A run of the workload. It has the disk and the expected state after each call, and the expected
/// state at each commit.
struct Run {
    disks: Vec<CrashDisk>,
    truths: Vec<ExpectedState>,
    committed: Vec<ExpectedState>,
}

fn run(durability: Durability) -> Run {
    let disk = SharedDisk::default();
    let first = header(tenure(1, 1, durability));
    let mut log = UniversalLog::create(disk.clone(), first).expect("no fault");
    let mut run = Run {
        disks: Vec::new(),
        truths: Vec::new(),
        committed: Vec::new(),
    };
    let mut truth = ExpectedState::new();
    let mut committed = ExpectedState::new();
    for op in workload() {
        apply(&mut log, &mut truth, &op).expect("no fault");
        if matches!(op, Op::Commit) {
            committed.clone_from(&truth);
        }
        run.disks.push(disk.snapshot());
        run.truths.push(truth.clone());
        run.committed.push(committed.clone());
    }
    run
}

fn read(bytes: &[u8]) -> Recovery {
    recover(&mut MemoryFile::with_bytes(bytes.to_vec()))
        .expect("a torn tail is no error")
        .expect("made")
}

/// Returns every content that the disk may have after a crash. `before` is the durable content, and
/// `after` is the written content. The written bytes may end at any byte, be zeros from any byte to
/// the full length, or have zeros in one piece of 8, 64 or 512 bytes.
fn images(before: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    for cut in before.len()..=after.len() {
        images.push(after[..cut].to_vec());
        let mut zeroed = after[..cut].to_vec();
        zeroed.resize(after.len(), 0);
        images.push(zeroed);
    }
    for hole in (before.len()..after.len()).step_by(8) {
        for length in [8, 64, 512] {
            let mut holed = after.to_vec();
            holed[hole..after.len().min(hole + length)].fill(0);
            images.push(holed);
        }
    }
    images
}

#[test]
fn torn_tail_loses_only_uncommitted_records() {
    let run = run(Durability::File);
    for at in 1..run.disks.len() {
        let (before, after) = (&run.disks[at - 1].durable, &run.disks[at].written);
        for image in images(before, after) {
            let found = read(&image);
            assert!(
                found.damage.is_none(),
                "call {at}: a torn tail is not damage"
            );
            assert_eq!(
                first_false_range(&found, &run.truths[..=at]),
                None,
                "call {at}"
            );
            // Every range of the last commit is still recorded, unless its file has ended since
            // then.
            for (name, (version, _, done)) in &run.committed[at - 1] {
                let Some(file) = found.files.get(&common::path(name)) else {
                    assert!(
                        !run.truths[at].contains_key(name),
                        "call {at}: {name} is gone"
                    );
                    continue;
                };
                assert_eq!(file.key.modified.seconds as u64, *version);
                let count = done.iter().filter(|bit| **bit).count() as u64;
                assert!(file.done.bytes() >= count, "call {at}: {name} lost ranges");
            }
            continue_after(&image, &run.truths[..=at]);
        }
        assert_equals(&read(&run.disks[at].durable), &run.committed[at], "whole");
    }
}

/// Resumes from the content after a crash. The log must work, and a second crash immediately after
/// the resume must lose no further records.
fn continue_after(image: &[u8], history: &[ExpectedState]) {
    let mut file = MemoryFile::with_bytes(image.to_vec());
    let found = recover(&mut file).expect("readable").expect("made");
    let before = found.clone();
    let log = UniversalLog::resume(file, found, tenure(2, 2, Durability::File)).expect("resumes");
    let next = log.header().next_file;
    let again = recover(&mut log.into_file())
        .expect("readable")
        .expect("made");
    assert!(again.damage.is_none() && again.torn_bytes == 0);
    assert_eq!(again.tenure.epoch, 2);
    assert_eq!(first_false_range(&again, history), None);
    let done = |recovery: &Recovery| -> Vec<(RelPath, dray_core::SummedRanges)> {
        let files = recovery.files.iter();
        files
            .map(|(path, file)| (path.clone(), file.done.clone()))
            .collect()
    };
    assert_eq!(
        done(&again),
        done(&before),
        "a resume keeps what recovery gave"
    );
    assert!(next.0 <= 4);
}

#[test]
fn old_bytes_after_a_torn_tail_never_reappear() {
    let run = run(Durability::File);
    let last = run.disks.len() - 1;
    let (before, after) = (&run.disks[last - 1].durable, &run.disks[last].written);
    for hole in (before.len()..after.len()).step_by(8) {
        let mut image = after.clone();
        image[hole..hole + 8].fill(0);
        let mut disk = CrashDisk {
            written: image.clone(),
            durable: image,
            ..CrashDisk::default()
        };
        let found = recover(&mut disk).expect("readable").expect("made");
        let log = UniversalLog::resume(disk, found, tenure(2, 1, Durability::File));
        let disk = log.expect("resumes").into_file();
        // The resume made the truncation durable before it wrote the new record.
        let found = read(&disk.durable);
        assert!(found.damage.is_none() && found.torn_bytes == 0);
        assert_eq!(first_false_range(&found, &run.truths), None);
    }
}

#[test]
fn flipped_bit_never_adds_a_trusted_range() {
    let run = run(Durability::File);
    let last = run.disks.len() - 1;
    let bytes = run.disks[last].durable.clone();
    let last_group = run.disks[last - 1].durable.len();
    let (mut damaged, mut torn, mut refused) = (0, 0, 0);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut image = bytes.clone();
            image[at] ^= 1 << bit;
            let found = match recover(&mut MemoryFile::with_bytes(image.clone())) {
                Err(error) => {
                    assert!(matches!(
                        error.kind,
                        ErrorKind::LogVersion | ErrorKind::LogDamaged
                    ));
                    assert!(
                        at < read(&bytes).header.software.len() + 200,
                        "only prelude, header"
                    );
                    refused += 1;
                    continue;
                }
                Ok(found) => found.expect("not empty"),
            };
            assert_eq!(first_false_range(&found, &run.truths), None, "byte {at}");
            assert!(
                !found.files.contains_key(&common::path("run/b")),
                "it ended, byte {at}"
            );
            let a = found.files.get(&common::path("run/a"));
            assert!(
                a.is_none_or(|file| file.key.modified.seconds == 2),
                "version 1 ended"
            );
            if found.damage.is_some() {
                assert!(at < last_group, "byte {at}");
                damaged += 1;
            } else if found.torn_bytes > 0 {
                assert!(at >= last_group, "byte {at}: damage taken for a torn tail");
                torn += 1;
            } else {
                // The flipped bit is in the padding, which recovery never reads.
                assert_equals(&found, &run.truths[last], "padding");
            }
            continue_after(&image, &run.truths);
        }
    }
    assert!(
        damaged > 1000 && torn > 500 && refused > 500,
        "{damaged} {torn} {refused}"
    );
}

#[test]
fn lost_blocks_never_add_a_trusted_range() {
    let run = run(Durability::File);
    let bytes = run.disks.last().expect("a story").durable.clone();
    for length in [8, 40, 128, 512] {
        for at in (160..bytes.len() - 8).step_by(4) {
            for filler in [0, 0xff] {
                let mut image = bytes.clone();
                let end = bytes.len().min(at + length);
                image[at..end].fill(filler);
                let Ok(found) = recover(&mut MemoryFile::with_bytes(image.clone())) else {
                    continue;
                };
                let found = found.expect("not empty");
                assert_eq!(
                    first_false_range(&found, &run.truths),
                    None,
                    "{length} bytes at {at}"
                );
                if end < bytes.len() - 400 {
                    // Later records show that version 1 of run/a has ended.
                    let a = found.files.get(&common::path("run/a"));
                    assert!(
                        a.is_none_or(|file| file.key.modified.seconds == 2),
                        "at {at}"
                    );
                }
                continue_after(&image, &run.truths);
            }
        }
    }
}

#[test]
fn crash_during_compaction_loses_no_record() {
    let base = run(Durability::File);
    let truth = base.truths.last().expect("a story");
    for calls_left in 0.. {
        let disk = SharedDisk::of(base.disks.last().expect("a story").clone());
        let found = recover(&mut disk.clone()).expect("whole").expect("made");
        let mut log = UniversalLog::resume(disk.clone(), found, tenure(2, 1, Durability::File))
            .expect("no fault yet");
        disk.0.borrow_mut().calls_left = Some(calls_left);
        let result = log.compact();
        let after = disk.snapshot();
        for image in [&after.written, &after.durable] {
            let found = read(image);
            assert!(found.damage.is_none());
            assert_equals(&found, truth, "after a crash in compaction");
            assert_eq!(found.tenure.epoch, 2);
        }
        if result.is_ok() {
            assert_eq!(
                calls_left, 3,
                "begin, append, commit were each a place to crash"
            );
            assert!(after.written.len() < base.disks.last().expect("a story").written.len());
            return;
        }
        disk.0.borrow_mut().calls_left = None;
        match log.commit() {
            Ok(()) => assert!(calls_left < 2, "the old log goes on"),
            Err(error) => assert_eq!((calls_left, error.kind), (2, ErrorKind::Io)),
        }
    }
}

#[test]
fn full_disk_loses_no_record_and_the_log_continues() {
    let whole = run(Durability::File);
    let all = whole.disks.last().expect("a story").written.len();
    for room in 0..all {
        let disk = CrashDisk {
            room: Some(room),
            ..CrashDisk::default()
        };
        let first = header(tenure(1, 1, Durability::File));
        let Ok(mut log) = UniversalLog::create(disk, first) else {
            continue;
        };
        let mut truth = ExpectedState::new();
        let mut history = vec![truth.clone()];
        let mut was_full = false;
        for op in workload() {
            if let Err(error) = apply(&mut log, &mut truth, &op) {
                assert_eq!(error.kind, ErrorKind::NoSpace);
                was_full = true;
                break;
            }
            history.push(truth.clone());
        }
        assert!(was_full);
        let mut disk = log.into_file();
        let found = read(&disk.written);
        assert!(found.damage.is_none());
        assert_eq!(found.torn_bytes, 0, "what did not fit was cut off");
        assert_eq!(first_false_range(&found, &history), None);
        disk.room = None;
        let log = UniversalLog::resume(disk, found, tenure(2, 1, Durability::File));
        assert!(log.is_ok(), "with room again it goes on");
    }
}

#[test]
fn failed_commit_is_repeated_when_space_is_free() {
    let whole = run(Durability::File)
        .disks
        .last()
        .expect("a story")
        .written
        .len();
    for room in 300..whole {
        let disk = SharedDisk::default();
        let first = header(tenure(1, 1, Durability::File));
        let mut log = UniversalLog::create(disk.clone(), first).expect("fits");
        let mut truth = ExpectedState::new();
        disk.0.borrow_mut().room = Some(room);
        for op in workload() {
            if let Err(error) = apply(&mut log, &mut truth, &op) {
                assert_eq!(error.kind, ErrorKind::NoSpace);
                // When space is free again, the next commit writes the same group.
                disk.0.borrow_mut().room = None;
                log.commit().expect("room again");
            }
        }
        let found = read(&disk.snapshot().durable);
        assert!(found.damage.is_none());
        assert_equals(&found, &truth, "at the end");
    }
}

#[test]
fn failed_sync_makes_the_log_unusable() {
    let disk = SharedDisk::default();
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(disk.clone(), first).expect("no fault");
    let number = log.begin_file(common::begin("a", 1, 10)).expect("new");
    disk.0.borrow_mut().calls_left = Some(1);
    assert_eq!(
        log.commit().expect_err("append, then no sync").kind,
        ErrorKind::Io
    );
    disk.0.borrow_mut().calls_left = None;
    for error in [
        log.commit(),
        log.end_file(number, dray_log::Ending::Dropped),
    ] {
        assert_eq!(error.expect_err("given up").operation, "use the object log");
    }
}

#[test]
fn second_writer_is_detected() {
    let mut disk = SharedDisk::default();
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(disk.clone(), first).expect("no fault");
    log.begin_file(common::begin("a", 1, 10)).expect("new");
    disk.append(b"somebody else's").expect("no fault");
    assert_eq!(
        log.commit().expect_err("not alone").kind,
        ErrorKind::LeaseLost
    );
    assert_eq!(
        log.commit().expect_err("given up").operation,
        "use the object log"
    );
}

/// A file whose storage refuses an append after another process has written.
struct GuardedFile(SharedDisk);

impl LogFile for GuardedFile {
    fn length(&mut self) -> dray_core::Result<u64> {
        self.0.length()
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> dray_core::Result<usize> {
        self.0.read_at(offset, buffer)
    }
    fn append(&mut self, _: &[u8]) -> dray_core::Result<()> {
        // The other process writes after the check of the length and before the append.
        self.0.append(b"somebody else's")?;
        Err(Error::new(ErrorKind::LeaseLost, End::Sink, "append"))
    }
    fn sync(&mut self) -> dray_core::Result<()> {
        self.0.sync()
    }
    fn truncate(&mut self, length: u64) -> dray_core::Result<()> {
        self.0.truncate(length)
    }
    fn begin_replacement(&mut self) -> dray_core::Result<()> {
        self.0.begin_replacement()
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> dray_core::Result<()> {
        self.0.append_replacement(bytes)
    }
    fn commit_replacement(&mut self) -> dray_core::Result<()> {
        self.0.commit_replacement()
    }
}

#[test]
fn records_of_a_second_writer_are_not_truncated() {
    let mut disk = SharedDisk::default();
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(GuardedFile(disk.clone()), first).expect("no fault");
    let before = disk.length().expect("no fault");
    log.begin_file(common::begin("a", 1, 10)).expect("new");
    assert_eq!(
        log.commit().expect_err("not alone").kind,
        ErrorKind::LeaseLost
    );
    let after = before + b"somebody else's".len() as u64;
    assert_eq!(disk.length().expect("no fault"), after);
    assert_eq!(
        log.commit().expect_err("given up").operation,
        "use the object log"
    );
}

#[test]
fn an_older_epoch_cannot_continue() {
    let run = run(Durability::File);
    let disk = run.disks.last().expect("a story").clone();
    let found = read(&disk.durable);
    let error = UniversalLog::resume(disk, found, tenure(1, 1, Durability::File));
    assert_eq!(error.expect_err("not newer").kind, ErrorKind::LeaseLost);
}

#[test]
fn a_drop_of_durable_ranges_is_synced_even_without_durability() {
    let disk = SharedDisk::of(run(Durability::File).disks.last().expect("a story").clone());
    let found = recover(&mut disk.clone()).expect("whole").expect("made");
    let number = found.files[&common::path("run/a")].number;
    let mut log = UniversalLog::resume(disk.clone(), found, tenure(2, 1, Durability::None))
        .expect("no fault");
    log.end_file(number, dray_log::Ending::Dropped)
        .expect("live");
    log.commit().expect("no fault");
    let found = read(&disk.snapshot().durable);
    assert!(!found.files.contains_key(&common::path("run/a")));
}

#[test]
fn unsynced_records_are_dropped_after_a_reboot_unless_synced_later() {
    for is_synced in [false, true] {
        let disk = SharedDisk::of(run(Durability::None).disks.last().expect("a story").clone());
        let found = recover(&mut disk.clone()).expect("whole").expect("made");
        let name = common::path("run/a");
        let before = found.files[&name].done.clone();
        assert!(found.files[&name].is_weak);
        let mut log = UniversalLog::resume(disk.clone(), found, tenure(2, 1, Durability::File))
            .expect("no fault");
        if is_synced {
            let number = log.file(&name).expect("the same boot").number;
            log.file_synced(number).expect("live");
            log.commit().expect("no fault");
        }
        for is_compacted in [false, true] {
            if is_compacted {
                log.compact().expect("no fault");
            }
            let mut disk = CrashDisk {
                written: disk.snapshot().written,
                ..CrashDisk::default()
            };
            let found = recover(&mut disk).expect("whole").expect("made");
            let log = UniversalLog::resume(disk, found, tenure(3, 9, Durability::File))
                .expect("no fault");
            let done = &log.file(&name).expect("still begun").done;
            assert_eq!(done.is_empty(), !is_synced);
            assert!(done.is_empty() || *done == before);
        }
    }
}

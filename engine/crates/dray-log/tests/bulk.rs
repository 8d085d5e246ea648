//! Logs with many objects: splitting of runs, flushing of groups, windows of checkpoints, and the
//! size of the log.

mod common;

use common::{header, tenure};
use dray_core::options::Durability;
use dray_core::{ByteRange, End, Error, ErrorKind, Result, Sums};
use dray_log::{Ending, LogFile, MemoryFile, ObjectLog, UniversalLog, compact, recover};
use std::cell::Cell;
use std::rc::Rc;

const OBJECT: u64 = common::OBJECT;

/// Returns every number below `count` once, in a scattered order.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |step| step * 7_919 % count)
}

fn sums_of(index: u64) -> Sums {
    Sums::of(&index.to_le_bytes())
}

#[test]
fn many_objects_in_any_order_survive_resume_and_compaction() {
    let count = 50_021u64; // A prime: the scattered order has each number once.
    let size = (count * OBJECT - 3) as usize;
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(MemoryFile::new(), first).expect("memory");
    let number = log.begin_file(common::begin("big", 1, size)).expect("new");
    let range = |index: u64| {
        let start = index * OBJECT;
        ByteRange::between(start, (start + OBJECT).min(size as u64))
    };
    let half: Vec<u64> = scattered(count).take(30_000).collect();
    for (step, index) in half.iter().enumerate() {
        log.done(number, range(*index), sums_of(*index))
            .expect("new");
        if step % 20_000 == 19_999 {
            log.commit().expect("memory");
        }
    }
    log.commit().expect("memory");
    let mut file = log.into_file();
    let before = recover(&mut file).expect("whole").expect("made");
    let logged = &before.files[&common::path("big")];
    let bytes: u64 = half.iter().map(|index| range(*index).length).sum();
    assert_eq!(logged.done.bytes(), bytes);
    let mut log =
        UniversalLog::resume(file, before.clone(), tenure(2, 1, Durability::File)).expect("memory");
    let plain_bytes = log.bytes();
    log.compact().expect("memory");
    assert!(
        log.bytes() < plain_bytes,
        "{} of {plain_bytes}",
        log.bytes()
    );
    // Expected size: one bit for each object of the file, eight bytes for each done object, and
    // some overhead.
    assert!(
        log.bytes() < count / 8 + 8 * 30_000 + 2000,
        "{} bytes",
        log.bytes()
    );
    let mut file = log.into_file();
    let after = recover(&mut file).expect("whole").expect("made");
    assert_eq!(after.files[&common::path("big")].done, logged.done);
    let mut log =
        UniversalLog::resume(file, after, tenure(3, 1, Durability::File)).expect("memory");
    for index in scattered(count).skip(30_000) {
        log.done(number, range(index), sums_of(index)).expect("new");
    }
    log.commit().expect("memory");
    log.compact().expect("memory");
    let found = recover(&mut log.into_file()).expect("whole").expect("made");
    let done = &found.files[&common::path("big")].done;
    assert_eq!(done.run_count(), 1);
    let whole = (0..count).fold(Sums::EMPTY, |sums, index| {
        sums.then(sums_of(index), range(index).length)
    });
    assert_eq!(done.whole(size as u64), Some(whole));
}

#[test]
fn log_of_ended_files_is_compacted_automatically() {
    // A rewrite syncs the log. So a log whose commits do not sync is rewritten less often.
    let bounds = [
        (Durability::File, compact::DEAD_BYTES_MIN),
        (Durability::None, compact::DEAD_BYTES_MAX),
    ];
    for (durability, dead_max) in bounds {
        let first = header(tenure(1, 1, durability));
        let mut log = UniversalLog::create(MemoryFile::new(), first).expect("memory");
        let kept = log.begin_file(common::begin("kept", 1, 100)).expect("new");
        log.done(kept, ByteRange::between(16, 32), sums_of(1))
            .expect("new");
        let mut compactions = 0;
        let mut most = 0;
        for version in 0..15_000 {
            let number = log
                .begin_file(common::begin("many", version, 64))
                .expect("new");
            log.done(number, ByteRange::between(0, 16), sums_of(0))
                .expect("new");
            log.commit().expect("memory");
            log.end_file(number, Ending::Published).expect("live");
            compactions += u32::from(log.compact_if_worth_it().expect("memory"));
            most = most.max(log.bytes());
        }
        assert!(compactions >= 2, "{compactions}");
        assert!((dead_max..dead_max + 4096).contains(&most), "{most}");
        let found = recover(&mut log.into_file()).expect("whole").expect("made");
        assert_eq!(found.files.len(), 1);
        assert_eq!(found.files[&common::path("kept")].done.bytes(), 16);
    }
}

#[test]
fn log_of_a_slow_transfer_stays_small() {
    // Each group adds one object to each of four files, in a record with a head of its own.
    let objects = 4_000_u64;
    for (form, bits_max) in [("universal:ranges", 65), ("universal:ranges:nosums", 1)] {
        let mut first = header(tenure(1, 1, Durability::File));
        first.form = form.parse().expect("a form");
        let mut log = UniversalLog::create(MemoryFile::new(), first).expect("memory");
        let size = usize::try_from(objects).expect("few") * 16;
        let names = ["a", "b", "c", "d"];
        let files = names.map(|name| log.begin_file(common::begin(name, 1, size)).expect("new"));
        let mut most = 0;
        for object in 0..objects {
            for number in files {
                let range = ByteRange::between(object * 16, (object + 1) * 16);
                log.done(number, range, sums_of(0)).expect("new");
            }
            log.compact_if_worth_it().expect("memory");
            most = most.max(log.bytes());
        }
        let compacted = objects * names.len() as u64 * bits_max / 8;
        let bound = (2 * compacted).max(compacted + compact::DEAD_BYTES_MIN) + 16_384;
        assert!(most <= bound, "{form}: {most} bytes, not {bound}");
        let found = recover(&mut log.into_file()).expect("whole").expect("made");
        assert!(
            found
                .files
                .values()
                .all(|file| file.done.bytes() == size as u64)
        );
    }
}

#[test]
fn large_groups_are_not_compacted_at_each_sync() {
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(MemoryFile::new(), first).expect("memory");
    let (mut syncs, mut compactions) = (0_u32, 0_u32);
    for version in 0..20_000 {
        let name = format!("file-{version}");
        let number = log.begin_file(common::begin(&name, 1, 64)).expect("new");
        log.end_file(number, Ending::Published).expect("live");
        // A group of files, with 40 KiB of records.
        if version % 200 == 0 {
            syncs += 1;
            compactions += u32::from(log.compact_if_worth_it().expect("memory"));
        }
    }
    assert!(compactions > 0 && compactions * 4 <= syncs, "{compactions}");
}

/// A file on storage that is full for some time.
struct LimitedDisk {
    file: MemoryFile,
    is_full: Rc<Cell<bool>>,
    refused: Rc<Cell<u32>>,
}

impl LogFile for LimitedDisk {
    fn length(&mut self) -> Result<u64> {
        self.file.length()
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buffer)
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }
    fn truncate(&mut self, length: u64) -> Result<()> {
        self.file.truncate(length)
    }
    fn begin_replacement(&mut self) -> Result<()> {
        self.file.begin_replacement()
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append_replacement(bytes)
    }
    fn commit_replacement(&mut self) -> Result<()> {
        if self.is_full.get() {
            self.refused.set(self.refused.get() + 1);
            return Err(Error::new(ErrorKind::NoSpace, End::Sink, "replace"));
        }
        self.file.commit_replacement()
    }
}

#[test]
fn old_log_continues_without_space_for_compaction() {
    let (is_full, refused) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let file = LimitedDisk {
        file: MemoryFile::new(),
        is_full: Rc::clone(&is_full),
        refused: Rc::clone(&refused),
    };
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(file, first).expect("room");
    is_full.set(true);
    let mut compactions = 0;
    for version in 0..40_000 {
        let number = log
            .begin_file(common::begin("many", version, 64))
            .expect("new");
        log.done(number, ByteRange::between(0, 16), sums_of(0))
            .expect("new");
        log.commit().expect("room");
        log.end_file(number, Ending::Published).expect("live");
        compactions += u32::from(log.compact_if_worth_it().expect("the old one goes on"));
        is_full.set(refused.get() < 2);
    }
    assert_eq!(refused.get(), 2, "not again before it has grown");
    assert!(compactions > 0);
    let found = recover(&mut log.into_file()).expect("whole").expect("made");
    assert!(found.files.is_empty());
}

#[test]
fn oversized_header_or_file_record_is_refused() {
    let mut wide = header(tenure(1, 1, Durability::File));
    wide.claims = (0..=dray_log::CLAIMS_MAX)
        .map(|index| common::path(&format!("c{index}")))
        .collect();
    let error = UniversalLog::create(MemoryFile::new(), wide).expect_err("too many claims");
    assert_eq!(error.kind, dray_core::ErrorKind::LimitExceeded);
    let first = header(tenure(1, 1, Durability::File));
    let mut log = UniversalLog::create(MemoryFile::new(), first).expect("memory");
    let mut long = common::begin("a", 1, 10);
    long.key.identity = vec![0; dray_log::IDENTITY_BYTES_MAX + 1];
    assert!(log.begin_file(long).is_err());
    let a = log.begin_file(common::begin("a", 1, 10)).expect("new");
    assert!(
        log.begin_file(common::begin("a", 2, 10)).is_err(),
        "it has not ended"
    );
    let mut same_partial = common::begin("b", 1, 10);
    same_partial.partial.name = common::begin("a", 1, 10).partial.name;
    let error = log.begin_file(same_partial).expect_err("in use");
    assert_eq!(error.kind, dray_core::ErrorKind::AlreadyExists);
    for (start, end) in [(0, 0), (5, 11), (11, 12)] {
        let range = ByteRange::between(start, end);
        assert!(log.done(a, range, Sums::EMPTY).is_err(), "{start}..{end}");
    }
    log.done(a, ByteRange::between(2, 5), Sums::EMPTY)
        .expect("any range inside");
    assert!(
        log.done(a, ByteRange::between(0, 10), Sums::EMPTY).is_err(),
        "in part there"
    );
}

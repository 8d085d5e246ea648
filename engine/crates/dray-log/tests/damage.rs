//! Loss of single records, and the conclusions that recovery may draw from the loss.

mod common;

use common::{SharedDisk, header, path, tenure};
use dray_core::options::Durability;
use dray_core::{ByteRange, Sums};
use dray_log::{Ending, FileNumber, MemoryFile, ObjectLog, Recovery, UniversalLog, recover};

const FILE_END: u8 = 5;
const TENURE: u8 = 6;

type Log = UniversalLog<SharedDisk>;

fn new_log(durability: Durability) -> (SharedDisk, Log) {
    let disk = SharedDisk::default();
    let log = UniversalLog::create(disk.clone(), header(tenure(1, 1, durability)));
    (disk, log.expect("no fault"))
}

fn begin(log: &mut Log, name: &str, version: u64) -> FileNumber {
    log.begin_file(common::begin(name, version, 100))
        .expect("new")
}

fn done(log: &mut Log, number: FileNumber, object: u64) {
    let range = ByteRange::between(object * 16, object * 16 + 16);
    log.done(number, range, Sums::of(&object.to_le_bytes()))
        .expect("new");
}

fn resume(disk: &SharedDisk, epoch: u64, boot: u8, durability: Durability) -> Log {
    let found = recover(&mut disk.clone()).expect("readable").expect("made");
    UniversalLog::resume(disk.clone(), found, tenure(epoch, boot, durability)).expect("no fault")
}

/// Returns the content of the log with one flipped bit in the body of the only record of this kind.
fn with_damaged_record(disk: &SharedDisk, kind: u8) -> Vec<u8> {
    let mut bytes = disk.snapshot().written;
    let (mut at, mut places) = (16, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes[at + 4] == kind {
            places.push(at);
        }
        at += (16 + length as usize).next_multiple_of(8);
    }
    assert_eq!(places.len(), 1, "records of kind {kind}");
    bytes[places[0] + 16] ^= 1;
    bytes
}

fn read(bytes: Vec<u8>) -> Recovery {
    recover(&mut MemoryFile::with_bytes(bytes))
        .expect("readable")
        .expect("made")
}

#[test]
fn begin_record_proves_the_end_of_the_older_file() {
    for is_same_path in [true, false] {
        let (disk, mut log) = new_log(Durability::File);
        let old = begin(&mut log, "a", 1);
        done(&mut log, old, 0);
        log.commit().expect("no fault");
        log.end_file(old, Ending::Dropped).expect("live");
        log.commit().expect("no fault");
        let mut next = common::begin("a", 2, 100);
        if !is_same_path {
            next.path = path("b"); // Another path with the same partial file.
        }
        let new = log.begin_file(next).expect("the end is committed");
        done(&mut log, new, 3);
        log.commit().expect("no fault");
        let found = read(with_damaged_record(&disk, FILE_END));
        let damage = found.damage.expect("an end is lost");
        assert_eq!((damage.files_forgotten, damage.files_kept), (0, 1));
        let file = found.files.values().next().expect("the newer one");
        assert_eq!((file.number, file.done.bytes()), (new, 16));
    }
}

#[test]
fn lost_end_record_drops_only_files_without_later_records() {
    let (disk, mut log) = new_log(Durability::File);
    let numbers: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| begin(&mut log, name, 1))
        .collect();
    for number in &numbers {
        done(&mut log, *number, 0);
    }
    log.commit().expect("no fault");
    log.end_file(numbers[0], Ending::Published).expect("live");
    log.commit().expect("no fault");
    done(&mut log, numbers[1], 2);
    log.commit().expect("no fault");
    let found = read(with_damaged_record(&disk, FILE_END));
    assert_eq!(found.files.keys().collect::<Vec<_>>(), [&path("b")]);
    assert_eq!(found.files[&path("b")].done.bytes(), 32);
    let error = found
        .damage
        .expect("an end is lost")
        .error("x.log")
        .to_string();
    for word in [
        "x.log",
        "24 bytes at",
        "the records of 2 unfinished files are lost",
        "sent again",
    ] {
        assert!(error.contains(word), "{word} in {error}");
    }
}

#[test]
fn unsynced_records_of_an_unknown_holder_are_not_trusted() {
    // Host A writes, then host B, then host A again in the same boot. The tenure record of B is
    // lost. The unsynced writes of B were in the memory of B, so the unchanged boot id of A does
    // not show that they still exist.
    let (disk, mut log) = new_log(Durability::None);
    let number = begin(&mut log, "a", 1);
    done(&mut log, number, 0);
    log.commit().expect("no fault");
    let mut log = resume(&disk, 2, 2, Durability::None);
    done(&mut log, number, 3);
    log.commit().expect("no fault");
    disk.0.borrow_mut().durable = disk.snapshot().written;
    let damaged = with_damaged_record(&disk, TENURE);
    // The commits of host A sync the log, and record that all earlier records of the log are
    // durable. So the lost record of host B counts as damage and not as a torn tail.
    let mut whole = resume(&disk, 3, 1, Durability::File);
    whole.commit().expect("no fault");
    done(&mut whole, number, 5);
    whole.commit().expect("no fault");
    let mut bytes = disk.snapshot().written;
    bytes[..damaged.len()].copy_from_slice(&damaged);
    let found = read(bytes);
    assert!(found.damage.is_some());
    assert_eq!(found.tenure.epoch, 3);
    let done = &found.files[&path("a")].done;
    assert!(done.contains(ByteRange::between(80, 96)), "A's own, synced");
    assert!(
        !done.overlaps(ByteRange::between(48, 64)),
        "B's, nobody knows"
    );
}

#[test]
fn torn_unsynced_groups_are_not_damage() {
    let (disk, mut log) = new_log(Durability::None);
    let number = begin(&mut log, "a", 1);
    log.commit().expect("no fault");
    let first = disk.snapshot().written.len();
    for object in 0..4 {
        done(&mut log, number, object);
        log.commit().expect("no fault");
    }
    let mut bytes = disk.snapshot().written;
    bytes[first..first + 8].fill(0);
    let found = read(bytes);
    assert!(found.damage.is_none(), "the medium owed nothing");
    assert!(found.torn_bytes > 0);
    assert!(found.files[&path("a")].done.is_empty());
}

#[test]
fn file_numbers_are_not_reused_after_a_compaction() {
    let (disk, mut log) = new_log(Durability::File);
    let kept = begin(&mut log, "kept", 1);
    let ended = begin(&mut log, "ended", 1);
    done(&mut log, kept, 0);
    log.end_file(ended, Ending::Dropped).expect("live");
    log.compact().expect("no fault");
    drop(log);
    let mut log = resume(&disk, 2, 1, Durability::File);
    let next = begin(&mut log, "next", 1);
    assert!(next > ended, "{next} after {ended}");
    log.commit().expect("no fault");
    assert_eq!(read(disk.snapshot().durable).files.len(), 2);
}

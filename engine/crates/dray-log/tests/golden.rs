//! Golden logs: bytes that every later version must be able to read. Each log has a description,
//! and the independent decoder must produce the same description. `DRAY_BLESS=1 cargo test -p
//! dray-log` writes the golden logs again.

mod common;

use common::medium::Medium;
use common::{NONCE, content, path, tenure};
use dray_core::options::Durability;
use dray_core::path::escape;
use dray_core::{
    ByteRange, Checksum, ContentKey, LogForm, LogMechanism, LogMethod, ModifiedTime, RelPath, Sums,
    TransferId,
};
use dray_log::layout::partial_name;
use dray_log::lease::{LEASE_BYTES, newest};
use dray_log::{
    Ending, FileBegin, Header, LeaseRecord, LockKind, MemoryFile, ObjectLog, PartialFile, Recovery,
    UniversalLog, recover,
};
use serde_json::{Value, json};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../integration/log/golden"
    ))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn describe(bytes: &[u8]) -> Value {
    match recover(&mut MemoryFile::with_bytes(bytes.to_vec())) {
        Ok(None) => json!({ "empty": true }),
        Ok(Some(found)) => describe_recovery(&found),
        Err(error) => json!({ "error": error.kind }),
    }
}

fn describe_recovery(found: &Recovery) -> Value {
    let files: Vec<Value> = found
        .files
        .iter()
        .map(|(path, file)| {
            let runs = file.done.iter();
            let done: Vec<Value> = runs
                .map(|(range, sums)| match found.header.form.has_sums {
                    true => json!([range.offset, range.length, sums.crc32c, sums.adler32]),
                    false => json!([range.offset, range.length]),
                })
                .collect();
            json!({
                "path": escape(path.as_bytes()),
                "number": file.number.0,
                "size": file.key.size,
                "demanded": file.key.demanded.map(|demanded| demanded.to_string()),
                "modified": [file.key.modified.seconds, file.key.modified.nanoseconds],
                "precision_nanoseconds": file.key.precision_nanoseconds,
                "identity": hex(&file.key.identity),
                "object_bytes": file.object_bytes,
                "partial": {
                    "name": escape(file.partial.name.as_bytes()),
                    "device": file.partial.device,
                    "inode": file.partial.inode,
                    "born": file.partial.born,
                },
                "is_weak": file.is_weak,
                "is_doubtful": file.is_doubtful,
                "done": done,
            })
        })
        .collect();
    let damage = found.damage.as_ref().map(|damage| {
        let places = damage.places.iter();
        json!({
            "places": places.map(|place| [place.offset, place.length]).collect::<Vec<_>>(),
            "count": damage.count,
            "files_forgotten": damage.files_forgotten,
            "files_kept": damage.files_kept,
        })
    });
    json!({
        "claims": found.header.claims,
        "owner": hex(&found.header.owner),
        "nonce": found.header.nonce,
        "software": found.header.software,
        "next_file": found.header.next_file.0,
        "form": found.header.form.to_string(),
        "tenure": {
            "epoch": found.tenure.epoch,
            "holder": found.tenure.holder,
            "transfer": found.tenure.transfer.as_str(),
            "boot_id": hex(found.tenure.boot_id.as_bytes()),
            "durability": found.tenure.durability,
        },
        "files": files,
        "torn_bytes": found.torn_bytes,
        "damage": damage,
    })
}

type Log = UniversalLog<MemoryFile>;

fn new_log(durability: Durability) -> Log {
    let claims = vec![path("run1"), path("run2/deep")];
    let header = Header::new(
        claims,
        b"ada@dtn".to_vec(),
        NONCE,
        "dray 0.1.0",
        tenure(1, 1, durability),
    );
    UniversalLog::create(MemoryFile::new(), header).expect("memory")
}

fn begin(
    log: &mut Log,
    name: &[u8],
    size: u64,
    demanded: Option<Checksum>,
) -> dray_log::FileNumber {
    let path = RelPath::parse(name).expect("a good path");
    log.begin_file(FileBegin {
        path: path.clone(),
        key: ContentKey {
            size,
            demanded,
            modified: ModifiedTime {
                seconds: -2,
                nanoseconds: 999_999_999,
            },
            precision_nanoseconds: 1000,
            identity: if demanded.is_some() {
                b"etag \xff".to_vec()
            } else {
                Vec::new()
            },
        },
        object_bytes: NonZeroU64::new(4096).expect("not zero"),
        partial: PartialFile {
            name: partial_name(&path.name().expect("not the root")).expect("a good name"),
            device: 2049,
            inode: 131_073 + log.files().count() as u64,
            born: 1_700_000_000_123_456_789,
        },
    })
    .expect("a good file")
}

fn done(log: &mut Log, number: dray_log::FileNumber, data: &[u8], start: u64, end: u64) {
    let sums = Sums::of(&data[start as usize..end as usize]);
    log.done(number, ByteRange::between(start, end), sums)
        .expect("new");
}

/// Creates a log with two holders and three files. One file has a name that is not UTF-8, one has a
/// hole, and one is published.
fn plain(durability: Durability) -> Log {
    let data = content("golden", 1, 40_000);
    let mut log = new_log(durability);
    let a = begin(
        &mut log,
        b"run1/a.root",
        40_000,
        Some(Checksum::Adler32(0x091e_01de)),
    );
    let b = begin(&mut log, b"run2/deep/\xff\\\n.dat", 1 << 40, None);
    for index in [7u64, 2, 3, 9] {
        done(
            &mut log,
            a,
            &data,
            index * 4096,
            40_000.min((index + 1) * 4096),
        );
    }
    log.commit().expect("memory");
    let hole = ByteRange::between(8192, 1 << 39);
    log.done(b, hole, Sums::of_zeros(hole.length)).expect("new");
    done(&mut log, b, &data, 4096, 8192);
    done(&mut log, a, &data, 5 * 4096, 6 * 4096);
    log.commit().expect("memory");
    let c = begin(&mut log, b"run1/c", 5, None);
    done(&mut log, c, &data, 0, 5);
    log.commit().expect("memory");
    log.end_file(c, Ending::Published).expect("live");
    log.commit().expect("memory");
    let mut file = log.into_file();
    let found = recover(&mut file).expect("whole").expect("made");
    let mut log = Log::resume(file, found, tenure(2, 2, durability)).expect("memory");
    done(&mut log, a, &data, 6 * 4096, 7 * 4096);
    done(&mut log, b, &data, 0, 4096);
    log.commit().expect("memory");
    log
}

/// Returns the offset of a record of this kind. With `skip` 0 this is the last record, otherwise an
/// earlier one.
fn record_offset(log: &Log, bytes: &[u8], kind: u8, skip: usize) -> usize {
    // Find record heads by the documented fields: the length, the kind, and another head at the
    // next multiple of 8.
    let mut places = Vec::new();
    let mut at = 16;
    while at + 16 <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes[at + 4] == kind {
            places.push(at);
        }
        at += (16 + length as usize).next_multiple_of(8);
    }
    assert_eq!(at, bytes.len(), "{} bytes", log.bytes());
    places[places.len() - 1 - skip]
}

fn goldens() -> Vec<(&'static str, Vec<u8>)> {
    const OBJECTS: u8 = 3;
    const FILE_END: u8 = 5;
    let log = plain(Durability::File);
    let bytes = log.file_bytes();
    let flipped = |at: usize| {
        let mut image = bytes.clone();
        image[at] ^= 0x10;
        image
    };
    let first_objects = record_offset(&log, &bytes, OBJECTS, 3);
    let end = record_offset(&log, &bytes, FILE_END, 0);
    let mut compacted = plain(Durability::File);
    compacted.compact().expect("memory");
    let mut doubtful = plain(Durability::File);
    let number = doubtful
        .file(&path("run1/a.root"))
        .expect("unfinished")
        .number;
    doubtful.file_doubtful(number).expect("live");
    doubtful.commit().expect("memory");
    let mut moved = plain(Durability::File);
    let number = moved.file(&path("run1/a.root")).expect("unfinished").number;
    moved.file_doubtful(number).expect("live");
    moved.compact().expect("memory");
    let mut newer = bytes[..16].to_vec();
    newer[8] = 9;
    let crc = Sums::of(&newer[..12]).crc32c;
    newer[12..16].copy_from_slice(&crc.to_le_bytes());
    vec![
        ("plain", bytes.clone()),
        ("compacted", compacted.file_bytes()),
        ("doubtful", doubtful.file_bytes()),
        ("doubtful-compacted", moved.file_bytes()),
        ("weak", plain(Durability::None).file_bytes()),
        ("new", new_log(Durability::Object).file_bytes()),
        ("empty", Vec::new()),
        ("torn", bytes[..bytes.len() - 50].to_vec()),
        ("damaged-range", flipped(first_objects + 40)),
        ("damaged-end", flipped(end + 2)),
        ("damaged-header", flipped(40)),
        ("other-version", newer),
        ("not-a-log", b"something else altogether".to_vec()),
    ]
}

trait FileBytes {
    fn file_bytes(&self) -> Vec<u8>;
}

impl FileBytes for Log {
    fn file_bytes(&self) -> Vec<u8> {
        self.file_ref().bytes().to_vec()
    }
}

fn check(name: &str, bytes: &[u8], description: &Value) {
    let file = folder().join(name);
    let mut beside = file.clone().into_os_string();
    beside.push(".json");
    let text = serde_json::to_string_pretty(description).expect("plain values") + "\n";
    if std::env::var_os("DRAY_BLESS").is_some() {
        std::fs::create_dir_all(folder()).expect("a folder");
        std::fs::write(&file, bytes).expect("written");
        std::fs::write(&beside, text).expect("written");
        return;
    }
    let golden = std::fs::read(&file).expect("DRAY_BLESS=1 makes it");
    assert!(golden == bytes, "{name}: the writer's bytes have changed");
    let described = std::fs::read_to_string(&beside).expect("DRAY_BLESS=1 makes it");
    assert_eq!(described, text, "{name}: it is read in another way");
}

#[test]
fn golden_logs_are_written_and_read_unchanged() {
    for (name, bytes) in goldens() {
        check(&format!("{name}.log"), &bytes, &describe(&bytes));
    }
}

/// Creates a log of a form, with two holders and four files. The second holder has the boot
/// `boot`. The first two files are finished, so a
/// transaction of two files has one part log.
fn of_form(form: LogForm, boot: u8) -> Medium {
    let data = content("golden", 1, 1 << 20);
    let medium = Medium::new();
    let header = Header::new(
        Vec::new(),
        b"ada@dtn".to_vec(),
        NONCE,
        "dray 0.1.0",
        tenure(1, 1, Durability::File),
    );
    let header = header.of_form(form);
    let mut log = UniversalLog::create(medium.clone(), header).expect("memory");
    let mut numbers = Vec::new();
    for name in ["a", "b", "run1/c.root", "d"] {
        let path = path(name);
        let begin = FileBegin {
            partial: PartialFile {
                name: partial_name(&path.name().expect("not the root")).expect("a good name"),
                device: 2049,
                inode: 131_073 + numbers.len() as u64,
                born: 0,
            },
            path,
            ..common::begin("x", 1, 1 << 20)
        };
        numbers.push(log.begin_file(begin).expect("a good file"));
    }
    let put = |log: &mut UniversalLog<Medium>, file: usize, objects: &[u64]| {
        for object in objects {
            let range = ByteRange::between(object * common::OBJECT, (object + 1) * common::OBJECT);
            let sums = Sums::of(&data[range.offset as usize..range.end() as usize]);
            log.done(numbers[file], range, sums).expect("new");
        }
    };
    put(&mut log, 0, &[0, 3]);
    put(&mut log, 2, &[137, 129, 5, 300]);
    put(&mut log, 3, &[40_000, 1]);
    log.commit().expect("memory");
    for number in &numbers[..2] {
        log.end_file(*number, Ending::Published).expect("live");
    }
    log.commit().expect("memory");
    let found = recover(&mut medium.clone()).expect("whole").expect("made");
    let next = tenure(2, boot, Durability::File);
    let mut log = UniversalLog::resume(medium.clone(), found, next).expect("memory");
    put(&mut log, 2, &[4, 6, 65_535]);
    let hole = ByteRange::between(200_000, 400_000);
    let sums = Sums::of_zeros(hole.length);
    log.done(numbers[2], hole, sums).expect("new");
    log.commit().expect("memory");
    medium
}

#[test]
fn golden_logs_of_all_forms_are_written_and_read_unchanged() {
    let two = LogMechanism::Transaction(NonZeroU32::MIN.saturating_add(1));
    for (word, mechanism) in [
        ("file", LogMechanism::File),
        ("transaction", two),
        ("universal", LogMechanism::Universal),
    ] {
        for method in LogMethod::ALL {
            let form = LogForm::new(mechanism, method);
            let medium = of_form(form, 2);
            let stem = format!("form-{word}-{}", method.word());
            check_folder(&stem, &medium);
            let medium = of_form(form.without_sums(), 1);
            check_folder(&format!("{stem}-nosums"), &medium);
        }
        let form = LogForm::new(mechanism, LogMethod::Bit64).asynchronous();
        check_folder(&format!("form-{word}-bit64-async"), &of_form(form, 2));
        let form = form.without_sums();
        let other_boot = check_folder(&format!("form-{word}-other-boot"), &of_form(form, 2));
        // Only the second holder's ranges count: three objects and a hole.
        let bytes: u64 = other_boot
            .files
            .values()
            .map(|file| file.done.bytes())
            .sum();
        assert_eq!(bytes, 3 * common::OBJECT + 200_000);
    }
    let form = LogForm::default().asynchronous();
    check_folder("form-universal-ranges-async", &of_form(form, 2));
    // A flipped bit in the Positions of the first group of a part log, and in the Header of another.
    let form = "file:bit8".parse().expect("a form");
    let medium = of_form(form, 2);
    for (part, at) in [(2, 360), (3, 40)] {
        let mut all = medium.all();
        let disk = all.folder.files.get_mut(&Some(part)).expect("a part log");
        disk.written[at] ^= 1;
        disk.durable[at] ^= 1;
    }
    let found = check_folder("form-damaged", &medium);
    let damage = found.damage.expect("two part logs are damaged");
    assert_eq!((damage.count, damage.files_kept), (2, 2));
    let words = damage.error("x.log").to_string();
    assert!(
        words.contains("unreadable records: in its part logs"),
        "{words}"
    );
}

/// Compares the files of a log with the golden files, and returns the result of its recovery.
fn check_folder(stem: &str, medium: &Medium) -> Recovery {
    let found = recover(&mut medium.clone())
        .expect("readable")
        .expect("made");
    let files = medium.all().folder.files.clone();
    let description = describe_recovery(&found);
    check(&format!("{stem}.log"), &files[&None].durable, &description);
    for (key, disk) in files {
        let Some(part) = key else { continue };
        let file = folder().join(format!("{stem}.{part:08x}.objects"));
        if std::env::var_os("DRAY_BLESS").is_some() {
            std::fs::write(&file, &disk.durable).expect("written");
        }
        let golden = std::fs::read(&file).expect("DRAY_BLESS=1 makes it");
        assert!(
            golden == disk.durable,
            "{stem} {part}: the bytes have changed"
        );
    }
    found
}

/// Logs that earlier versions have written. This version reads them but does not write them.
#[test]
fn logs_of_earlier_versions_are_read() {
    for name in ["version-1", "version-1-compacted"] {
        let bytes = std::fs::read(folder().join(format!("{name}.log"))).expect("committed");
        let text = serde_json::to_string_pretty(&describe(&bytes)).expect("plain values") + "\n";
        let beside = folder().join(format!("{name}.log.json"));
        if std::env::var_os("DRAY_BLESS").is_some() {
            std::fs::write(&beside, &text).expect("written");
        }
        let described = std::fs::read_to_string(&beside).expect("committed");
        assert_eq!(described, text, "{name}: it is read in another way");
        assert_eq!(bytes[8], 1);
    }
}

#[test]
fn resume_rewrites_a_log_of_an_earlier_version() {
    let bytes = std::fs::read(folder().join("version-1.log")).expect("committed");
    let mut file = MemoryFile::with_bytes(bytes);
    let found = recover(&mut file).expect("whole").expect("made");
    let files = found.files.clone();
    let tenure = tenure(9, 9, Durability::File);
    let mut file = Log::resume(file, found, tenure)
        .expect("memory")
        .into_file();
    assert_eq!(file.bytes()[8], 2);
    let again = recover(&mut file).expect("whole").expect("made");
    assert!(again.files.keys().eq(files.keys()));
    for (path, file) in &again.files {
        assert_eq!(file.done, files[path].done, "{path}");
    }
}

#[test]
fn pieces_are_returned_as_recorded() {
    for compacts in [false, true] {
        let mut log = plain(Durability::File);
        if compacts {
            log.compact().expect("memory");
        }
        let file = log.file(&path("run1/a.root")).expect("unfinished").clone();
        let pieces = log
            .pieces(file.number, ByteRange::between(0, 40_000))
            .expect("memory");
        let few = log
            .pieces(file.number, ByteRange::between(9000, 21_000))
            .expect("memory");
        assert_eq!(few[..], pieces[1..3]);
        let data = content("golden", 1, 40_000);
        let objects: Vec<u64> = pieces
            .iter()
            .map(|(range, _)| range.offset / 4096)
            .collect();
        assert_eq!(objects, [2, 3, 5, 6, 7, 9]);
        for (range, sums) in pieces {
            let bytes = &data[range.offset as usize..range.end() as usize];
            assert_eq!(sums, Sums::of(bytes));
        }
    }
}

#[test]
fn golden_leases_are_written_and_read_unchanged() {
    let record = |epoch: u64| LeaseRecord {
        epoch,
        holder: format!("dray pid {epoch}"),
        transfer: TransferId::new("run-1").expect("a good id"),
        boot_id: common::boot(3),
        host: "dtn1.example".into(),
        request: 0,
        lock: LockKind::Unknown,
    };
    let mut two = vec![0; LEASE_BYTES];
    for record in [record(6), record(7)] {
        let at = record.slot_offset() as usize;
        let slot = record.encode().expect("short names");
        two[at..at + slot.len()].copy_from_slice(&slot);
    }
    let mut torn = two.clone();
    torn[1024 + 40] ^= 1;
    for (name, bytes) in [("two-holders", two), ("torn-slot", torn)] {
        let found = newest(&bytes).expect("our version").expect("one is whole");
        let description = json!({
            "epoch": found.epoch,
            "holder": found.holder,
            "transfer": found.transfer.as_str(),
            "boot_id": hex(found.boot_id.as_bytes()),
            "host": found.host,
        });
        check(&format!("{name}.lease"), &bytes, &description);
    }
}

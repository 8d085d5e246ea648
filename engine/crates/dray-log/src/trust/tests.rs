use super::{FoundPartial, Sink, Verdict, check_owner, judge};
use crate::{
    BootId, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Recovery, Tenure, UniversalLog,
    recover,
};
use dray_core::options::Durability;
use dray_core::{
    ByteRange, Checksum, ContentKey, ErrorKind, LogForm, ModifiedTime, Name, RelPath, Sums,
    TransferId,
};
use std::num::NonZeroU64;

fn boot(number: u8) -> BootId {
    BootId::new(&[number; 16]).expect("sixteen bytes")
}

fn key(size: u64) -> ContentKey {
    ContentKey {
        size,
        demanded: Some(Checksum::Adler32(9)),
        modified: ModifiedTime::default(),
        precision_nanoseconds: 1,
        identity: Vec::new(),
    }
}

fn path() -> RelPath {
    RelPath::parse(b"run/a").expect("a good path")
}

fn found() -> FoundPartial {
    FoundPartial {
        device: 3,
        inode: 4,
        born: 5,
        size: 8,
    }
}

fn logged(durability: Durability) -> Recovery {
    logged_as(LogForm::default(), durability, false)
}

fn logged_as(form: LogForm, durability: Durability, is_doubtful: bool) -> Recovery {
    let tenure = Tenure {
        epoch: 1,
        holder: "here".into(),
        transfer: TransferId::new("t").expect("a good id"),
        boot_id: boot(1),
        durability,
    };
    let header = Header::new(Vec::new(), b"ada".to_vec(), 1, "test", tenure).of_form(form);
    let mut log = UniversalLog::create(MemoryFile::new(), header).expect("memory");
    let partial = PartialFile {
        name: Name::new(b".dray-1.part").expect("a good name"),
        device: 3,
        inode: 4,
        born: 5,
    };
    let begin = FileBegin {
        path: path(),
        key: key(100),
        object_bytes: NonZeroU64::new(8).expect("not zero"),
        partial,
    };
    let number = log.begin_file(begin).expect("new");
    log.done(number, ByteRange::between(0, 8), Sums::of(b"abcdefgh"))
        .expect("in range");
    if is_doubtful {
        log.file_doubtful(number).expect("unfinished");
    }
    log.commit().expect("memory");
    recover(&mut log.into_file()).expect("good").expect("made")
}

fn ask(
    recovery: &Recovery,
    boot_id: u8,
    durability: Durability,
    found: Option<FoundPartial>,
    wanted: &ContentKey,
) -> Verdict {
    let boot_id = boot(boot_id);
    let sink = Sink {
        log: "x.log",
        owner: b"ada",
        boot_id: &boot_id,
        durability,
    };
    let file = &recovery.files[&path()];
    judge(recovery, &path(), file, &sink, found.as_ref(), wanted)
}

fn kind(verdict: &Verdict) -> Option<ErrorKind> {
    match verdict {
        Verdict::StartOver(error) => Some(error.kind),
        _ => None,
    }
}

#[test]
fn consistent_log_and_file_are_trusted() {
    let log = logged(Durability::File);
    for boot_id in [1, 2] {
        let verdict = ask(&log, boot_id, Durability::Object, Some(found()), &key(100));
        let Verdict::Trusted(trusted) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(trusted.done.bytes(), 8);
        assert!(!trusted.must_sync);
    }
    let elsewhere = FoundPartial {
        device: 77,
        born: 0,
        ..found()
    };
    let other_host = ask(&log, 2, Durability::File, Some(elsewhere), &key(100));
    assert_eq!(kind(&other_host), None, "device numbers differ by host");
}

#[test]
fn changed_source_starts_over_with_a_reason() {
    let log = logged(Durability::File);
    let verdict = ask(&log, 1, Durability::File, Some(found()), &key(101));
    let Verdict::StartOver(error) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(error.kind, ErrorKind::SourceChanged);
    let text = error.to_string();
    for word in ["run/a", "x.log", "100 bytes", "101 bytes", "starting over"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn another_partial_file_starts_over() {
    let log = logged(Durability::File);
    let tries: [(FoundPartial, ErrorKind); 4] = [
        (
            FoundPartial {
                inode: 9,
                ..found()
            },
            ErrorKind::NotFound,
        ),
        (FoundPartial { born: 9, ..found() }, ErrorKind::NotFound),
        (
            FoundPartial {
                device: 9,
                ..found()
            },
            ErrorKind::NotFound,
        ),
        (FoundPartial { size: 7, ..found() }, ErrorKind::ShortRead),
    ];
    for (other, why) in tries {
        let verdict = ask(&log, 1, Durability::File, Some(other), &key(100));
        assert_eq!(kind(&verdict), Some(why), "{other:?}");
    }
    let gone = ask(&log, 1, Durability::File, None, &key(100));
    assert_eq!(kind(&gone), Some(ErrorKind::NotFound));
}

#[test]
fn unsynced_ranges_are_dropped_after_a_reboot() {
    let log = logged(Durability::None);
    let anew = ask(&log, 2, Durability::None, Some(found()), &key(100));
    assert_eq!(kind(&anew), Some(ErrorKind::Other));
    for (durability, must_sync) in [(Durability::None, false), (Durability::File, true)] {
        match ask(&log, 1, durability, Some(found()), &key(100)) {
            Verdict::Trusted(trusted) => assert_eq!(trusted.must_sync, must_sync),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ranges_without_sums_are_trusted_only_in_their_boot_and_without_doubt() {
    let form = LogForm::default().without_sums();
    let log = logged_as(form, Durability::Object, false);
    let here = ask(&log, 1, Durability::Object, Some(found()), &key(100));
    assert!(matches!(here, Verdict::Trusted(trusted) if trusted.done.bytes() == 8));
    let doubtful = logged_as(form, Durability::Object, true);
    for (log, boot_id, why) in [
        (&log, 2, "the host has restarted since"),
        (&doubtful, 1, "a write to the partial file has failed"),
    ] {
        let verdict = ask(log, boot_id, Durability::Object, Some(found()), &key(100));
        let Verdict::StartOver(error) = verdict else {
            panic!("{verdict:?}");
        };
        let words = error.to_string();
        assert!(words.contains("universal:ranges:nosums"), "{words}");
        assert!(words.contains(why), "{words}");
    }
}

#[test]
fn another_owner_is_refused() {
    let log = logged(Durability::File);
    let boot_id = boot(1);
    let sink = Sink {
        log: "x.log",
        owner: b"eve",
        boot_id: &boot_id,
        durability: Durability::File,
    };
    let error = check_owner(&log, &sink).expect_err("not hers");
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    let file = &log.files[&path()];
    let verdict = judge(&log, &path(), file, &sink, Some(&found()), &key(100));
    assert!(matches!(verdict, Verdict::Refused(_)));
}

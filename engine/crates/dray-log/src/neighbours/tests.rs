use super::{Claim, Follower, adopt, claim};
use crate::{
    BootId, Ending, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Tenure, UniversalLog,
    recover,
};
use dray_core::options::Durability;
use dray_core::{ByteRange, ContentKey, ModifiedTime, Name, RelPath, Sums, TransferId};
use std::num::NonZeroU64;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a good path")
}

fn log(transfer: &str, nonce: u64) -> UniversalLog<MemoryFile> {
    let tenure = Tenure {
        epoch: 1,
        holder: "a test".into(),
        transfer: TransferId::new(transfer).expect("an id"),
        boot_id: BootId::new(&[7; 16]).expect("sixteen bytes"),
        durability: Durability::File,
    };
    let header = Header::new(Vec::new(), b"user".to_vec(), nonce, "dray", tenure);
    UniversalLog::create(MemoryFile::new(), header).expect("made")
}

fn begin(at: &str, inode: u64) -> FileBegin {
    let name = format!(".dray-{inode:016x}.part");
    FileBegin {
        path: path(at),
        key: ContentKey {
            size: 20,
            demanded: None,
            modified: ModifiedTime::default(),
            precision_nanoseconds: 1,
            identity: Vec::new(),
        },
        object_bytes: NonZeroU64::new(8).expect("not 0"),
        partial: PartialFile {
            name: Name::new(name.as_bytes()).expect("a name"),
            device: 1,
            inode,
            born: 0,
        },
    }
}

#[test]
fn follower_sees_begins_and_ends_before_a_commit() {
    let mut log = log("one", 1);
    let mut follower = Follower::begin(&mut log.file_ref().clone())
        .expect("reads")
        .expect("a log");
    let mut is_open = |log: &UniversalLog<MemoryFile>, at: &str| {
        let mut file = log.file_ref().clone();
        if !follower.follow(&mut file, 2).expect("reads") {
            follower = Follower::begin(&mut file).expect("reads").expect("a log");
            assert!(follower.follow(&mut file, 2).expect("reads"));
        }
        follower.file(&path(at)).is_some()
    };
    let number = log.begin_file(begin("a", 1)).expect("begun");
    assert!(!is_open(&log, "a"), "it was not said yet");
    log.write_pending().expect("said");
    assert!(is_open(&log, "a"));
    // A rewrite gives the log a new nonce, so the follower treats it as another log.
    log.compact().expect("written anew");
    assert!(is_open(&log, "a"));
    log.end_file(number, Ending::Dropped).expect("ended");
    log.commit().expect("committed");
    assert!(!is_open(&log, "a"));
    for (at, inode) in [("b", 2), ("c", 3), ("d", 4)] {
        log.begin_file(begin(at, inode)).expect("begun");
    }
    log.write_pending().expect("said");
    assert!(is_open(&log, "b") && is_open(&log, "c"));
    assert!(!is_open(&log, "d"), "two are remembered at the most");
}

#[test]
fn partial_record_is_read_when_it_is_complete() {
    let mut log = log("one", 1);
    let mut follower = Follower::begin(&mut log.file_ref().clone())
        .expect("reads")
        .expect("a log");
    log.begin_file(begin("a", 1)).expect("begun");
    log.write_pending().expect("said");
    let bytes = log.file_ref().bytes().to_vec();
    for torn in (bytes.len() - 100..bytes.len()).step_by(8) {
        let mut file = MemoryFile::with_bytes(bytes[..torn].to_vec());
        assert!(follower.follow(&mut file, 9).expect("reads"));
        assert!(follower.file(&path("a")).is_none(), "torn at {torn}");
    }
    let mut whole = MemoryFile::with_bytes(bytes);
    assert!(follower.follow(&mut whole, 9).expect("reads"));
    assert!(follower.file(&path("a")).is_some());
}

#[test]
fn at_most_one_of_two_claims_wins() {
    let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
    let (small, great) = (name("1.log"), name("2.log"));
    assert_eq!(claim(&small, []), Claim::Ours);
    assert_eq!(claim(&small, [&great]), Claim::Contended);
    assert_eq!(claim(&great, [&small]), Claim::Theirs);
    assert_eq!(claim(&small, [&great, &small]), Claim::Theirs);
}

#[test]
fn adopt_copies_all_recorded_ranges() {
    let (mut theirs, mut own) = (log("one", 1), log("two", 2));
    let number = theirs.begin_file(begin("sub/a", 1)).expect("begun");
    let sums = Sums::of(b"12345678");
    for offset in [0, 8] {
        let range = ByteRange::between(offset, offset + 8);
        theirs.done(number, range, sums).expect("said");
    }
    theirs.commit().expect("committed");
    let left = theirs.file(&path("sub/a")).expect("unfinished").clone();
    let mut file = theirs.into_file();
    let recovery = recover(&mut file).expect("reads").expect("a log");
    adopt(&mut own, &path("a"), (&mut file, &recovery), &left, 9).expect("adopted");
    let whole = ByteRange::between(0, 20);
    let number = own.file(&path("a")).expect("unfinished").number;
    own.commit().expect("committed");
    let pieces = own.pieces(number, whole).expect("read");
    let found = recover(&mut own.into_file())
        .expect("reads")
        .expect("a log");
    let file = &found.files[&path("a")];
    assert_eq!(file.done, left.done);
    assert_eq!(pieces.len(), 2, "as they were recorded");
    assert_eq!((file.partial.inode, file.partial.device), (1, 9));
    assert!(!file.is_weak);
}

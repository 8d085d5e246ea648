//! Other transfers' logs of the same tree: finds the files that are open in them, decides which
//! transfer may begin a file, and adopts an unfinished file from another log.
//!
//! Non-goal: finding the logs and their leases (the runtime does that).
//!
//! Invariants owned here: of two writers that claim one file concurrently at most one keeps it;
//! adopted ranges are durable in the new log before the old log ends the file.

use crate::file::LogFile;
use crate::log::ObjectLog;
use crate::pieces::copy_pieces;
use crate::record::{FileBegin, FileNumber, Header, LoggedFile, PartialFile, Record, Tenure};
use crate::recover::Recovery;
use crate::scan::{Step, Walk, read_header};
use dray_core::{Name, RelPath, Result};
use std::collections::BTreeMap;

/// A file that is open in another log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Final path, below that log's top folder.
    pub path: RelPath,
    /// Its partial file.
    pub partial: PartialFile,
    /// Bytes of an object.
    pub object_bytes: u64,
}

/// Reads another transfer's log as it grows. It stores no ranges and takes no lease.
#[derive(Debug)]
pub struct Follower {
    header: Header,
    tenure: Tenure,
    /// All records before this offset have been read.
    read_to: u64,
    files: BTreeMap<FileNumber, Spoken>,
    by_path: BTreeMap<RelPath, FileNumber>,
}

impl Follower {
    /// Reads a log's header; `None` for an empty file.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::LogVersion`], [`dray_core::ErrorKind::LogDamaged`], or the storage's.
    pub fn begin<F: LogFile>(file: &mut F) -> Result<Option<Self>> {
        let bytes = file.length()?;
        if bytes == 0 {
            return Ok(None);
        }
        let (header, first) = read_header(file, bytes)?;
        Ok(Some(Self {
            tenure: header.tenure.clone(),
            header,
            read_to: first,
            files: BTreeMap::new(),
            by_path: BTreeMap::new(),
        }))
    }

    /// Reads the records appended since the last call; remembers at most `files_max` unfinished
    /// files. Returns `false` if the file is now another log, which must be read from its start.
    ///
    /// # Errors
    /// Those of [`Self::begin`].
    pub fn follow<F: LogFile>(&mut self, file: &mut F, files_max: usize) -> Result<bool> {
        let end = file.length()?;
        if end < self.read_to || read_header(file, end)?.0.nonce != self.header.nonce {
            return Ok(false);
        }
        let mut walk = Walk::new(self.header.nonce, self.read_to, end);
        while let Some(step) = walk.next(file)? {
            match step {
                Step::Record {
                    offset,
                    stride,
                    record,
                    ..
                } => {
                    self.read_to = offset + stride;
                    self.take(record, files_max);
                }
                // The writer may be appending this record; intact records after it are read
                // nevertheless.
                Step::Lost { .. } => {}
            }
        }
        Ok(true)
    }

    fn take(&mut self, record: Record, files_max: usize) {
        match record {
            Record::FileBegin(number, begin) => {
                if let Some(older) = self.by_path.get(&begin.path).copied() {
                    self.forget(older);
                }
                if self.files.len() < files_max {
                    self.by_path.insert(begin.path.clone(), number);
                    let spoken = Spoken {
                        path: begin.path,
                        partial: begin.partial,
                        object_bytes: begin.object_bytes.get(),
                    };
                    self.files.insert(number, spoken);
                }
            }
            Record::FileEnd(number, _) => self.forget(number),
            Record::Tenure(tenure) => self.tenure = tenure,
            _ => {}
        }
    }

    fn forget(&mut self, number: FileNumber) {
        if let Some(spoken) = self.files.remove(&number) {
            self.by_path.remove(&spoken.path);
        }
    }

    /// Returns the log's header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the log's last holder.
    #[must_use]
    pub const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Returns the open file at `path`, below the log's top folder.
    #[must_use]
    pub fn file(&self, path: &RelPath) -> Option<&Spoken> {
        self.files.get(self.by_path.get(path)?)
    }

    /// Returns the unfinished files.
    pub fn files(&self) -> impl Iterator<Item = &Spoken> + '_ {
        self.files.values()
    }
}

/// Action of a writer that has begun a file and finds it open in held logs of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No other log has the file open: write it.
    Ours,
    /// Another writer has begun the file concurrently and gives way to us, or it began earlier.
    /// Look again until a limit, then give way.
    Contended,
    /// The file belongs to another writer: give way.
    Theirs,
}

/// Decides a claim: `own` is our log's name, `others` the names of the held logs in which the file
/// is open. The greater name gives way. The smaller one must not write as long as it sees another.
pub fn claim<'a>(own: &Name, others: impl IntoIterator<Item = &'a Name>) -> Claim {
    let mut claim = Claim::Ours;
    for other in others {
        match own < other {
            true => claim = Claim::Contended,
            false => return Claim::Theirs,
        }
    }
    claim
}

/// Copies to `own` the records of a file in another log. `path` is the file as seen from our log's
/// top, `device` the device of the partial file in the present boot. The caller commits this before
/// the other log ends the file, and syncs a weak file first.
///
/// # Errors
/// Those of [`ObjectLog::begin_file`] and [`ObjectLog::done`].
pub fn adopt<L: ObjectLog, F: LogFile>(
    own: &mut L,
    path: &RelPath,
    log: (&mut F, &Recovery),
    theirs: &LoggedFile,
    device: u64,
) -> Result<FileNumber> {
    let number = own.begin_file(FileBegin {
        path: path.clone(),
        key: theirs.key.clone(),
        object_bytes: theirs.object_bytes,
        partial: PartialFile {
            device,
            ..theirs.partial.clone()
        },
    })?;
    if theirs.is_doubtful {
        own.file_doubtful(number)?;
    }
    // Copied piece by piece, so that a piece that later proves wrong costs no more than itself.
    copy_pieces(own, number, log, theirs)?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::{Claim, Follower, adopt, claim};
    use crate::{
        BootId, Ending, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Tenure,
        UniversalLog, recover,
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
    fn a_follower_sees_what_is_begun_and_ended_before_any_commit() {
        let mut log = log("one", 1);
        let mut follower = Follower::begin(&mut log.file_ref().clone())
            .expect("reads")
            .expect("a log");
        let mut look = |log: &UniversalLog<MemoryFile>, at: &str| {
            let mut file = log.file_ref().clone();
            if !follower.follow(&mut file, 2).expect("reads") {
                follower = Follower::begin(&mut file).expect("reads").expect("a log");
                assert!(follower.follow(&mut file, 2).expect("reads"));
            }
            follower.file(&path(at)).is_some()
        };
        let number = log.begin_file(begin("a", 1)).expect("begun");
        assert!(!look(&log, "a"), "it was not said yet");
        log.say().expect("said");
        assert!(look(&log, "a"));
        // A log that was rewritten counts as another log.
        log.compact().expect("written anew");
        assert!(look(&log, "a"));
        log.end_file(number, Ending::Dropped).expect("ended");
        log.commit().expect("committed");
        assert!(!look(&log, "a"));
        for (at, inode) in [("b", 2), ("c", 3), ("d", 4)] {
            log.begin_file(begin(at, inode)).expect("begun");
        }
        log.say().expect("said");
        assert!(look(&log, "b") && look(&log, "c"));
        assert!(!look(&log, "d"), "two are remembered at the most");
    }

    #[test]
    fn half_a_record_is_read_once_it_is_whole() {
        let mut log = log("one", 1);
        let mut follower = Follower::begin(&mut log.file_ref().clone())
            .expect("reads")
            .expect("a log");
        log.begin_file(begin("a", 1)).expect("begun");
        log.say().expect("said");
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
    fn of_two_that_claim_a_file_one_stays_at_the_most() {
        let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
        let (small, great) = (name("1.log"), name("2.log"));
        assert_eq!(claim(&small, []), Claim::Ours);
        assert_eq!(claim(&small, [&great]), Claim::Contended);
        assert_eq!(claim(&great, [&small]), Claim::Theirs);
        assert_eq!(claim(&small, [&great, &small]), Claim::Theirs);
    }

    #[test]
    fn what_is_adopted_is_all_that_was_proved() {
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
}

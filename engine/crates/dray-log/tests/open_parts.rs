//! The number of open part logs stays below its limit, whatever the number of unfinished files.

mod common;

use common::medium::Medium;
use common::{header, path, tenure};
use dray_core::options::Durability;
use dray_core::{ByteRange, LogForm, Name, Result, Sums};
use dray_log::{Ending, FileNumber, LogFile, ObjectLog, PartAccess, UniversalLog, recover};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Documented limit of part logs that are open at a time. One more may be open during a call.
const OPEN_MAX: usize = 64 + 1;

/// Number of unfinished files of the test.
const FILES: usize = 500;

#[derive(Debug, Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A file that counts as open from its creation or a call until it is released or dropped.
struct Counted {
    inner: Box<dyn LogFile + Send>,
    is_open: bool,
    counts: Arc<Counts>,
}

impl Counted {
    fn new(inner: Box<dyn LogFile + Send>, counts: &Arc<Counts>) -> Self {
        let counts = Arc::clone(counts);
        let mut file = Self {
            inner,
            is_open: false,
            counts,
        };
        file.open();
        file
    }

    fn open(&mut self) -> &mut dyn LogFile {
        if !std::mem::replace(&mut self.is_open, true) {
            let now = self.counts.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.counts.most.fetch_max(now, Ordering::Relaxed);
        }
        &mut *self.inner
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.is_open, false) {
            self.counts.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.close();
    }
}

impl LogFile for Counted {
    fn length(&mut self) -> Result<u64> {
        self.open().length()
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.open().read_at(offset, buffer)
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.open().append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        self.open().sync()
    }
    fn truncate(&mut self, length: u64) -> Result<()> {
        self.open().truncate(length)
    }
    fn begin_replacement(&mut self) -> Result<()> {
        self.open().begin_replacement()
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        self.open().append_replacement(bytes)
    }
    fn commit_replacement(&mut self) -> Result<()> {
        self.open().commit_replacement()
    }
    fn open_part(
        &mut self,
        part: u32,
        access: PartAccess,
    ) -> Result<Option<Box<dyn LogFile + Send>>> {
        let opened = self.inner.open_part(part, access)?;
        let counts = &self.counts;
        Ok(
            opened
                .map(|inner| -> Box<dyn LogFile + Send> { Box::new(Counted::new(inner, counts)) }),
        )
    }
    fn remove_part(&mut self, part: u32) -> Result<()> {
        self.inner.remove_part(part)
    }
    fn parts(&mut self) -> Result<Vec<u32>> {
        self.inner.parts()
    }
    fn release(&mut self) {
        self.close();
    }
}

/// Records one object of each file, and commits once.
fn record_all(log: &mut UniversalLog<Counted>, numbers: &[FileNumber], object: u64) {
    let range = ByteRange::between(object * common::OBJECT, (object + 1) * common::OBJECT);
    for number in numbers {
        log.done(*number, range, Sums::EMPTY).expect("a new range");
    }
    log.commit().expect("no fault");
}

#[test]
fn many_unfinished_files_need_few_open_part_logs() {
    let counts = Arc::new(Counts::default());
    let medium = Medium::new();
    let file = Counted::new(Box::new(medium.clone()), &counts);
    // The log itself is open too.
    let most = || counts.most.load(Ordering::Relaxed) - 1;
    let form: LogForm = "file:bit8".parse().expect("a form");
    let header = header(tenure(1, 1, Durability::File)).of_form(form);
    let mut log = UniversalLog::create(file, header).expect("no fault");
    let begin = |log: &mut UniversalLog<Counted>, name: &str| {
        let mut begin = common::begin("x", 1, 64);
        begin.path = path(name);
        begin.partial.name = Name::new(format!(".dray-{name}.part").as_bytes()).expect("a name");
        log.begin_file(begin).expect("a file")
    };
    let names: Vec<String> = (0..FILES).map(|at| format!("f{at}")).collect();
    let numbers: Vec<FileNumber> = names.iter().map(|name| begin(&mut log, name)).collect();
    record_all(&mut log, &numbers, 0);
    assert!(most() <= OPEN_MAX, "{} are open", most());
    assert!(most() >= OPEN_MAX - 1, "the test reaches the limit");
    record_all(&mut log, &numbers, 2);
    log.compact().expect("no fault");
    record_all(&mut log, &numbers, 1);

    // A second holder continues all part logs, reads their pieces, and ends the files.
    drop(log);
    let file = Counted::new(Box::new(medium), &counts);
    let mut file = file;
    let found = recover(&mut file).expect("readable").expect("made");
    let safe: u64 = found.files.values().map(|file| file.done.bytes()).sum();
    assert_eq!(safe, FILES as u64 * 3 * common::OBJECT);
    let tenure = tenure(2, 1, Durability::File);
    let mut log = UniversalLog::resume(file, found, tenure).expect("resumes");
    record_all(&mut log, &numbers, 3);
    for number in &numbers {
        let all = ByteRange::between(0, 64);
        assert_eq!(log.pieces(*number, all).expect("no fault").len(), 4);
        log.end_file(*number, Ending::Published)
            .expect("unfinished");
    }
    log.commit().expect("no fault");
    assert!(most() <= OPEN_MAX, "{} are open", most());
    assert_eq!(counts.now.load(Ordering::Relaxed), 1, "only the log");
}

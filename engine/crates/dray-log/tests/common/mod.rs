//! Helpers of the tests: a disk that distinguishes written from durable data, and a workload with
//! known results.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod medium;

use dray_core::options::Durability;
use dray_core::{
    ByteRange, ContentKey, End, Error, ErrorKind, ModifiedTime, Name, RelPath, Result, Sums,
    TransferId,
};
use dray_log::{
    BootId, Ending, FileBegin, FileNumber, Header, LogFile, ObjectLog, PartialFile, Recovery,
    Tenure, UniversalLog,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::rc::Rc;

pub(crate) const OBJECT: u64 = 16;
pub(crate) const NONCE: u64 = 0x0dd5_ba11_5eed_cafe;

pub(crate) fn boot(number: u8) -> BootId {
    BootId::new(&[number; 16]).expect("sixteen bytes")
}

pub(crate) fn tenure(epoch: u64, boot_number: u8, durability: Durability) -> Tenure {
    Tenure {
        epoch,
        holder: format!("dray pid {epoch} on dtn1"),
        transfer: TransferId::new("run-1").expect("a good id"),
        boot_id: boot(boot_number),
        durability,
    }
}

pub(crate) fn header(tenure: Tenure) -> Header {
    Header::new(Vec::new(), b"ada".to_vec(), NONCE, "dray test", tenure)
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a good path")
}

/// Returns the content of a file. It depends on the name and version of the file.
pub(crate) fn content(name: &str, version: u64, size: usize) -> Vec<u8> {
    let seed = Sums::of(format!("{name} {version}").as_bytes()).crc32c;
    let mut state = u64::from(seed) | 1;
    (0..size)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(7);
            (state >> 56) as u8
        })
        .collect()
}

pub(crate) fn begin(name: &str, version: u64, size: usize) -> FileBegin {
    FileBegin {
        path: path(name),
        key: ContentKey {
            size: size as u64,
            demanded: None,
            modified: ModifiedTime {
                seconds: version as i64,
                nanoseconds: 5,
            },
            precision_nanoseconds: 1,
            identity: Vec::new(),
        },
        object_bytes: NonZeroU64::new(OBJECT).expect("not zero"),
        partial: PartialFile {
            name: Name::new(format!(".dray-{}.part", name.replace('/', "_")).as_bytes())
                .expect("a good name"),
            device: 1,
            inode: 100 + version,
            born: 0,
        },
    }
}

/// One call of a method of the log.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Begin {
        name: &'static str,
        version: u64,
        size: usize,
    },
    Done {
        name: &'static str,
        start: u64,
        end: u64,
    },
    Finish {
        name: &'static str,
        ending: Ending,
    },
    Commit,
    Compact,
}

/// Expected state of each file: version, size, and one flag per done byte.
pub(crate) type ExpectedState = BTreeMap<&'static str, (u64, usize, Vec<bool>)>;

/// Applies one call to the log and to the expected state. Returns the result of the log.
pub(crate) fn apply<F: LogFile>(
    log: &mut UniversalLog<F>,
    truth: &mut ExpectedState,
    op: &Op,
) -> Result<()> {
    let number_of = |log: &UniversalLog<F>, name: &str| -> FileNumber {
        log.file(&path(name)).expect("the truth has it").number
    };
    match op {
        Op::Begin {
            name,
            version,
            size,
        } => {
            log.begin_file(begin(name, *version, *size))?;
            truth.insert(name, (*version, *size, vec![false; *size]));
        }
        Op::Done { name, start, end } => {
            let number = number_of(log, name);
            let (version, size, done) = truth.get_mut(name).expect("begun");
            let data = content(name, *version, *size);
            let slots = *start as usize..*end as usize;
            done[slots.clone()].fill(true);
            log.done(
                number,
                ByteRange::between(*start, *end),
                Sums::of(&data[slots]),
            )?;
        }
        Op::Finish { name, ending } => {
            let number = number_of(log, name);
            truth.remove(name);
            log.end_file(number, *ending)?;
        }
        Op::Commit => log.commit()?,
        Op::Compact => log.compact()?,
    }
    Ok(())
}

/// Checks that every range in `found` was recorded in a state of `history`, with the correct sums.
/// Returns the first error.
pub(crate) fn first_false_range(found: &Recovery, history: &[ExpectedState]) -> Option<String> {
    for (at, file) in &found.files {
        let name = at.to_string();
        let version = file.key.modified.seconds as u64;
        let data = content(&name, version, file.key.size as usize);
        for (range, sums) in file.done.iter() {
            let slots = range.offset as usize..range.end() as usize;
            let expected = match found.header.form.has_sums {
                true => Sums::of(data.get(slots.clone()).unwrap_or_default()),
                false => Sums::EMPTY,
            };
            if slots.end > data.len() || expected != sums {
                return Some(format!("{name}: wrong sums of {range:?}"));
            }
            let was_recorded = history.iter().any(|truth| {
                truth.get(name.as_str()).is_some_and(|(had, _, done)| {
                    *had == version && done[slots.clone()].iter().all(|bit| *bit)
                })
            });
            if !was_recorded {
                return Some(format!(
                    "{name}: {range:?} of version {version} never recorded"
                ));
            }
        }
    }
    None
}

/// Checks that `found` equals `truth`.
pub(crate) fn assert_equals(found: &Recovery, truth: &ExpectedState, when: &str) {
    let names: Vec<String> = found.files.keys().map(ToString::to_string).collect();
    let expected: Vec<String> = truth.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(names, expected, "{when}");
    assert_eq!(
        first_false_range(found, std::slice::from_ref(truth)),
        None,
        "{when}"
    );
    for (name, (version, size, done)) in truth {
        let file = &found.files[&path(name)];
        assert_eq!(file.key.size, *size as u64, "{when}");
        assert_eq!(file.key.modified.seconds as u64, *version, "{when}");
        let count = done.iter().filter(|bit| **bit).count() as u64;
        assert_eq!(file.done.bytes(), count, "{name} {when}");
    }
}

/// A disk that distinguishes written from durable data. It makes the assumptions of
/// docs/design/object-log.md. Durable bytes survive a crash. Any part of the other bytes may
/// survive, and the lost bytes read as zeros or are past the end of the file. A rename is atomic.
#[derive(Debug, Clone, Default)]
pub(crate) struct CrashDisk {
    pub(crate) written: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    pub(crate) replacement: Option<Vec<u8>>,
    /// Number of modifying calls after which every call fails; `None` for no limit.
    pub(crate) calls_left: Option<u64>,
    pub(crate) calls: u64,
    /// Number of bytes that can be written before the disk is full.
    pub(crate) room: Option<usize>,
}

impl CrashDisk {
    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        match &mut self.calls_left {
            Some(0) => Err(Error::new(ErrorKind::Io, End::Sink, "crash")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn fit(&mut self, bytes: usize) -> Result<usize> {
        match &mut self.room {
            Some(room) if *room < bytes => Ok(std::mem::take(room)),
            Some(room) => {
                *room -= bytes;
                Ok(bytes)
            }
            None => Ok(bytes),
        }
    }
}

impl LogFile for CrashDisk {
    fn length(&mut self) -> Result<u64> {
        Ok(self.written.len() as u64)
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = (offset as usize).min(self.written.len());
        // Return short reads to test the caller. Return no empty read before the end of the file.
        let count = buffer.len().min(self.written.len() - start).min(100);
        buffer[..count].copy_from_slice(&self.written[start..start + count]);
        Ok(count)
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.call()?;
        assert!(
            self.durable.len() <= self.written.len(),
            "appended while the cut before was not durable: old bytes may come back behind it"
        );
        let fits = self.fit(bytes.len())?;
        self.written.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() {
            return Err(Error::new(ErrorKind::NoSpace, End::Sink, "append"));
        }
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        self.call()?;
        self.durable.clone_from(&self.written);
        Ok(())
    }
    fn truncate(&mut self, length: u64) -> Result<()> {
        self.call()?;
        self.written.truncate(length as usize);
        Ok(())
    }
    fn begin_replacement(&mut self) -> Result<()> {
        self.call()?;
        self.replacement = Some(Vec::new());
        Ok(())
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        self.call()?;
        let fits = self.fit(bytes.len())?;
        let replacement = self.replacement.as_mut().expect("begun");
        replacement.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() {
            return Err(Error::new(ErrorKind::NoSpace, End::Sink, "append"));
        }
        Ok(())
    }
    fn commit_replacement(&mut self) -> Result<()> {
        self.call()?;
        self.written = self.replacement.take().expect("begun");
        self.durable.clone_from(&self.written);
        Ok(())
    }
}

fn begin_op(name: &'static str, version: u64, size: usize) -> Op {
    Op::Begin {
        name,
        version,
        size,
    }
}

fn done_op(name: &'static str, start: u64, end: u64) -> Op {
    Op::Done { name, start, end }
}

fn finish_op(name: &'static str, ending: Ending) -> Op {
    Op::Finish { name, ending }
}

/// Returns the workload of the exhaustive tests. Its files are written at the same time, in ranges
/// with gaps between them. One file is published. Another file is dropped, and is begun again as
/// another version with the same partial name.
pub(crate) fn workload() -> Vec<Op> {
    use Op::Commit;
    vec![
        begin_op("run/a", 1, 100),
        begin_op("run/b", 1, 64),
        done_op("run/a", 16, 32),
        done_op("run/b", 0, 16),
        Commit,
        done_op("run/a", 0, 16),
        done_op("run/a", 96, 100),
        done_op("run/b", 16, 64),
        Commit,
        finish_op("run/b", Ending::Published),
        begin_op("c", 1, 40),
        done_op("c", 32, 40),
        Commit,
        finish_op("run/a", Ending::Dropped),
        done_op("c", 0, 16),
        Commit,
        begin_op("run/a", 2, 90),
        done_op("run/a", 16, 32),
        Commit,
        done_op("run/a", 48, 90),
        done_op("c", 16, 32),
        Commit,
    ]
}

/// A [`CrashDisk`] that the test can use while a log writes to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedDisk(pub(crate) Rc<RefCell<CrashDisk>>);

impl SharedDisk {
    pub(crate) fn of(disk: CrashDisk) -> Self {
        Self(Rc::new(RefCell::new(disk)))
    }

    pub(crate) fn snapshot(&self) -> CrashDisk {
        self.0.borrow().clone()
    }
}

impl LogFile for SharedDisk {
    fn length(&mut self) -> Result<u64> {
        self.0.borrow_mut().length()
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.borrow_mut().read_at(offset, buffer)
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.borrow_mut().append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        self.0.borrow_mut().sync()
    }
    fn truncate(&mut self, length: u64) -> Result<()> {
        self.0.borrow_mut().truncate(length)
    }
    fn begin_replacement(&mut self) -> Result<()> {
        self.0.borrow_mut().begin_replacement()
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.borrow_mut().append_replacement(bytes)
    }
    fn commit_replacement(&mut self) -> Result<()> {
        self.0.borrow_mut().commit_replacement()
    }
}

//! Records that are not written yet, and their encoding as one group.

use super::UniversalLog;
use crate::compact::positions_of;
use crate::frame::write_record;
use crate::positions;
use crate::record::{FileNumber, OBJECTS_PER_RECORD_MAX, Objects, Record};
use dray_core::options::Durability;
use dray_core::{ByteRange, LogForm, LogMechanism, LogMethod, Sums};

/// Records that are not written yet. They are written in this order: begins of files, then ranges
/// sorted by file and offset, then ends of files. Sorting joins the objects of a group into few
/// runs.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) begins: Vec<Record>,
    pub(super) objects: Vec<(FileNumber, u64, Sums)>,
    pub(super) ranges: Vec<(FileNumber, ByteRange, Sums)>,
    pub(super) ends: Vec<Record>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    pub(super) fn count(&self) -> usize {
        self.begins.len() + self.objects.len() + self.ranges.len() + self.ends.len()
    }

    /// Takes the records that a log with part logs does not write now: the ranges, and the ends of
    /// files unless `is_commit` is true.
    pub(super) fn hold_back(&mut self, is_commit: bool) -> Self {
        Self {
            begins: Vec::new(),
            objects: std::mem::take(&mut self.objects),
            ranges: std::mem::take(&mut self.ranges),
            ends: match is_commit {
                true => Vec::new(),
                false => std::mem::take(&mut self.ends),
            },
        }
    }

    /// Puts records back that [`Self::hold_back`] or a failed hand-over took.
    pub(super) fn put_back(&mut self, held: Self) {
        self.objects.extend(held.objects);
        self.ranges.extend(held.ranges);
        self.ends.extend(held.ends);
    }
}

impl<F> UniversalLog<F> {
    /// Encodes the pending records, but not the ranges of files that have ended.
    pub(super) fn encode(&mut self, is_commit: bool) -> Group {
        let mut group = Group {
            bytes: Vec::new(),
            file_bytes: Vec::new(),
            start: self.length,
            nonce: self.header.nonce,
            is_weak: self.tenure.durability == Durability::None,
            form: self.header.form,
        };
        for record in &self.pending.begins {
            let number = match record {
                Record::FileBegin(number, _)
                | Record::FileSynced(number)
                | Record::FileDoubtful(number) => Some(*number),
                _ => None,
            };
            group.put(number, record);
        }
        let files = &self.files;
        let objects = &mut self.pending.objects;
        objects.retain(|(number, ..)| files.get(*number).is_some());
        let method = self.header.form.method;
        // With one log for each file, the paper appends the numbers unsorted.
        let is_sorted = self.header.form.mechanism != LogMechanism::File
            || method == LogMethod::Ranges
            || positions::is_sorted(method);
        if is_sorted {
            objects.sort_unstable_by_key(|(number, index, _)| (*number, *index));
        } else {
            objects.sort_by_key(|(number, ..)| *number);
        }
        match method {
            LogMethod::Ranges => group.put_runs(objects),
            _ => group.put_positions(method, objects),
        }
        let ranges = self.pending.ranges.iter();
        for (number, range, sums) in ranges.filter(|(number, ..)| files.get(*number).is_some()) {
            let record = Record::Range(*number, *range, *sums);
            group.put(Some(*number), &record);
        }
        for record in &self.pending.ends {
            group.put(None, record);
        }
        if is_commit {
            let durable_before = self.durable;
            group.put(None, &Record::Commit { durable_before });
        }
        group
    }
}

/// Encoded records that are written in one append.
pub(super) struct Group {
    pub(super) bytes: Vec<u8>,
    pub(super) file_bytes: Vec<(FileNumber, u64)>,
    start: u64,
    nonce: u64,
    is_weak: bool,
    form: LogForm,
}

impl Group {
    fn put(&mut self, number: Option<FileNumber>, record: &Record) {
        let flags = record.flags(self.is_weak, &self.form);
        let before = self.bytes.len() as u64;
        let offset = self.start + before;
        write_record(
            &mut self.bytes,
            offset,
            self.nonce,
            record.kind(),
            flags,
            &record.encode(flags),
        );
        if let Some(number) = number {
            self.file_bytes
                .push((number, self.bytes.len() as u64 - before));
        }
    }

    /// Writes objects that are sorted by file and object. Objects that touch each other share one
    /// record.
    fn put_runs(&mut self, objects: &[(FileNumber, u64, Sums)]) {
        let mut run: Option<Objects> = None;
        for (number, index, sums) in objects {
            match &mut run {
                Some(open)
                    if open.number == *number
                        && open.first + open.sums.len() as u64 == *index
                        && open.sums.len() < OBJECTS_PER_RECORD_MAX =>
                {
                    open.sums.push(*sums);
                }
                _ => {
                    let next = Objects {
                        number: *number,
                        first: *index,
                        sums: vec![*sums],
                    };
                    self.put_run(run.replace(next));
                }
            }
        }
        self.put_run(run);
    }

    /// Writes objects that are sorted by file, in the representation of `method`.
    fn put_positions(&mut self, method: LogMethod, objects: &[(FileNumber, u64, Sums)]) {
        for of_file in objects.chunk_by(|one, next| one.0 == next.0) {
            let Some((number, ..)) = of_file.first() else {
                continue;
            };
            let numbers = of_file.iter().map(|(_, index, sums)| (*index, *sums));
            for record in positions_of(method, *number, numbers) {
                self.put(Some(*number), &record);
            }
        }
    }

    fn put_run(&mut self, run: Option<Objects>) {
        if let Some(run) = run {
            self.put(Some(run.number), &Record::Objects(run));
        }
    }
}

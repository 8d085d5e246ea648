//! The life of a file at the source: listed, announced, decided, closed; or failed.

use super::{Effect, File, Listed, Source};
use crate::progress::{Event, Failure};
use dray_core::plan::Grid;
use dray_core::{ByteRange, EntryKind, Error, ErrorKind, FileIndex, RangeSet};
use dray_sched::objects::Work;
use dray_wire::bounds::{RUNS_MAX, RUNS_PER_FILE_MAX};
use dray_wire::message::{FileClosed, FileId, FileVerdict, Message};
use std::num::NonZeroU64;

impl Source {
    pub(super) fn on_listed(&mut self, entries: Vec<Listed>, failed: Vec<Failure>, finished: bool) {
        self.listing = false;
        self.listed_all |= finished;
        self.progress.listing_done = self.listed_all;
        let mut errors = Vec::with_capacity(failed.len());
        for failure in failed {
            self.progress.files_failed += 1;
            errors.push(failure.error.clone().file(&failure.path));
            self.out.push_back(Effect::Report(Event::Failed(failure)));
        }
        if !errors.is_empty() {
            self.out
                .push_back(Effect::Message(Message::ListFailed(errors)));
        }
        let mut announced = Vec::with_capacity(entries.len());
        for listed in entries {
            if listed.entry.kind == EntryKind::DirectoryEnd {
                announced.push(listed.entry);
                continue;
            }
            self.progress.entries_listed += 1;
            let (size, sparse, is_file) = match listed.entry.kind {
                EntryKind::File { size, sparse } => (size, sparse, true),
                _ => (0, false, false),
            };
            if is_file {
                self.progress.files_listed += 1;
                self.progress.bytes_listed += size;
            }
            let file = File {
                path: listed.path,
                size,
                modified: listed.entry.metadata.modified,
                sparse,
                is_file,
                layout: listed.layout,
                done: RangeSet::new(),
                is_decided: false,
                bytes_durable: 0,
                aborted: false,
            };
            self.files.insert(listed.entry.index, file);
            announced.push(listed.entry);
        }
        if !announced.is_empty() {
            self.out
                .push_back(Effect::Message(Message::NewFiles(announced)));
        }
    }

    /// What the sink has already. It comes before the decision, in no more pieces than can be held.
    pub(super) fn on_done(&mut self, index: FileIndex, ranges: &[ByteRange]) {
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        if file.is_decided || ranges.iter().any(|range| range.end() > file.size) {
            self.protocol_error(format!("bytes of entry {index} done that cannot be"));
            return;
        }
        let before = file.done.run_count();
        for range in ranges {
            file.done.insert(*range);
        }
        let after = file.done.run_count();
        self.runs = (self.runs + after).saturating_sub(before);
        if after > RUNS_PER_FILE_MAX || self.runs > RUNS_MAX {
            let cause = format!("entry {index} is done in too many separate pieces");
            self.violation(ErrorKind::LimitExceeded, cause);
        }
    }

    /// Takes a file out of the live ones.
    fn remove(&mut self, index: FileIndex) -> Option<File> {
        let file = self.files.remove(&index)?;
        self.runs = self.runs.saturating_sub(file.done.run_count());
        self.objects.remove(index);
        Some(file)
    }

    pub(super) fn on_file_id(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id.index) else {
            return;
        };
        if std::mem::replace(&mut file.is_decided, true) {
            self.protocol_error(format!("a second decision about entry {}", id.index));
            return;
        }
        match id.verdict {
            FileVerdict::Want {
                object_bytes,
                layout,
            } => {
                let object_bytes = match NonZeroU64::new(object_bytes) {
                    Some(bytes) if bytes.get() <= self.config.buffer_bytes => bytes,
                    _ => {
                        let bytes = self.config.buffer_bytes;
                        self.protocol_error(format!(
                            "an object of {object_bytes} bytes; {bytes} are agreed"
                        ));
                        return;
                    }
                };
                if file.aborted {
                    return;
                }
                let grid = Grid::new(file.size, object_bytes);
                let resumed = file.done.bytes();
                if resumed > 0 {
                    let wanted = file.size - resumed;
                    self.progress.objects_resumed +=
                        grid.count() - wanted.div_ceil(object_bytes.get());
                    self.progress.bytes_resumed += resumed;
                    self.progress.bytes_durable += resumed;
                    file.bytes_durable += resumed;
                }
                let mut wanted = RangeSet::full(file.size);
                for run in file.done.iter() {
                    wanted.remove(run);
                }
                if !wanted.is_empty() {
                    self.objects.add(Work {
                        index: id.index,
                        grid,
                        source: file.layout.clone(),
                        sink: layout,
                        wanted,
                        ordered_window: self.ready.and_then(|ready| ready.ordered_window),
                    });
                }
            }
            FileVerdict::Adopted => {
                self.progress.files_adopted += 1;
                self.progress.bytes_durable += file.size;
                self.finish_file(id.index);
            }
            FileVerdict::Skipped => {
                self.progress.files_skipped += 1;
                self.progress.bytes_durable += file.size;
                self.finish_file(id.index);
            }
            FileVerdict::Failed(error) => self.fail_file(id.index, error),
        }
    }

    fn finish_file(&mut self, index: FileIndex) {
        if let Some(file) = self.remove(index) {
            if file.is_file {
                self.progress.files_done += 1;
            } else {
                self.progress.others_done += 1;
            }
            self.out.push_back(Effect::CloseFile(index));
        }
    }

    fn fail_file(&mut self, index: FileIndex, error: Error) {
        if let Some(file) = self.remove(index) {
            self.progress.files_failed += 1;
            // Whatever of it is kept, no file of it stands: it is not told as safe.
            self.progress.bytes_durable = self
                .progress
                .bytes_durable
                .saturating_sub(file.bytes_durable);
            self.out.push_back(Effect::CloseFile(index));
            let failure = Failure {
                error: error.file(&file.path),
                path: file.path,
            };
            self.out.push_back(Effect::Report(Event::Failed(failure)));
        }
    }

    pub(super) fn on_file_closed(&mut self, closed: FileClosed) {
        let Some(file) = self.files.get(&closed.index) else {
            return;
        };
        match closed.result {
            Ok(sums) => {
                if file.is_file {
                    self.progress.bytes_durable += file.size.saturating_sub(file.bytes_durable);
                    let (path, size) = (file.path.clone(), file.size);
                    let sums = Some(sums);
                    self.out
                        .push_back(Effect::Report(Event::FileDone { path, size, sums }));
                }
                self.finish_file(closed.index);
            }
            Err(error) => self.fail_file(closed.index, error),
        }
    }

    /// The source cannot deliver a file: tells the sink, which answers with its FileClose.
    pub(super) fn abort_file(&mut self, index: FileIndex, error: Error) {
        if let Some(file) = self.files.get_mut(&index)
            && !file.aborted
        {
            file.aborted = true;
            self.objects.remove(index);
            self.out
                .push_back(Effect::Message(Message::FileAbort { index, error }));
        }
    }
}

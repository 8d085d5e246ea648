//! Files at the source. A file is listed, announced and decided, and then closed or failed.

use super::{Effect, File, Listed, Source};
use crate::mutants::Mutant;
use crate::progress::{Event, Failure, Outcome};
use crate::under_way::FolderRow;
use dray_core::plan::Grid;
use dray_core::{ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout, RangeSet};
use dray_sched::objects::{Dataset, Work};
use dray_wire::bounds::{RUNS_MAX, RUNS_PER_FILE_MAX, entry_bytes, live_bytes_max};
use dray_wire::message::{FileClosed, FileId, FileVerdict, Message};
use std::num::NonZeroU64;

impl Source {
    pub(super) fn on_listed(&mut self, entries: Vec<Listed>, failed: Vec<Failure>, finished: bool) {
        self.listing = false;
        self.listed_all |= finished;
        let mut errors = Vec::with_capacity(failed.len());
        for failure in failed {
            self.progress.files_failed += 1;
            self.closed.files_failed += 1;
            self.folders.failed(FolderRow::default(), 0);
            errors.push(failure.error.clone().file(&failure.path));
            self.out.push_back(Effect::Report(Event::Failed(failure)));
        }
        if !errors.is_empty() {
            self.out
                .push_back(Effect::Message(Message::ListFailed(errors)));
        }
        self.listed.extend(entries);
    }

    /// Announces listed entries, as far as the limits on unclosed entries permit.
    pub(super) fn announce_more(&mut self) {
        let bytes_max = live_bytes_max(self.config.live_entries_max);
        let mut announced = Vec::new();
        let mut steps = Vec::new();
        while let Some(mut listed) = self.listed.pop_front() {
            let entry = &listed.entry;
            let above = entry.parent.and_then(|parent| self.files.get(&parent));
            let path_bytes =
                above.map_or(0, |above| above.path_bytes + 1) + entry.name.as_bytes().len();
            let bytes = entry_bytes(entry, path_bytes);
            if self.live_bytes + bytes > bytes_max {
                self.listed.push_front(listed);
                break;
            }
            if entry.kind == EntryKind::DirectoryEnd {
                if let Some(folder) = self.files.get_mut(&entry.index) {
                    folder.is_open_folder = false;
                    folder.live_bytes += bytes;
                    self.live_bytes += bytes;
                }
                self.open_folders = self.open_folders.saturating_sub(1);
                announced.push(listed.entry);
                continue;
            }
            self.live_bytes += bytes;
            let layout_bytes = self.admit_layout(&mut listed.layout);
            if let EntryKind::File { size, .. } = listed.entry.kind {
                let step = listed.layout.step(size);
                steps.extend((step > 0).then_some((listed.entry.index, step)));
            }
            announced.push(self.take_in(listed, path_bytes, bytes, layout_bytes));
        }
        self.progress.listing_done = self.listed_all && self.listed.is_empty();
        if self.progress.listing_done {
            self.objects.set_listing(None);
        }
        if !steps.is_empty() {
            // The sink needs the steps when it decides about the files.
            self.out.push_back(Effect::Message(Message::Stripes(steps)));
        }
        if !announced.is_empty() {
            self.out
                .push_back(Effect::Message(Message::NewFiles(announced)));
        }
        if !self.listed.is_empty() {
            self.stop_if_too_deep();
        }
    }

    fn take_in(
        &mut self,
        listed: Listed,
        path_bytes: usize,
        live_bytes: u64,
        layout_bytes: u64,
    ) -> Entry {
        let mut entry = listed.entry;
        self.progress.entries_listed += 1;
        let (size, sparse, is_file) = match entry.kind {
            EntryKind::File { size, sparse } => (size, sparse, true),
            _ => (0, false, false),
        };
        if is_file {
            self.undecided += 1;
            self.progress.files_listed += 1;
            self.progress.bytes_listed += size;
        }
        if matches!(entry.kind, EntryKind::Symlink { .. }) {
            self.progress.links_listed += 1;
        }
        if entry.kind == EntryKind::Directory {
            self.open_folders += 1;
            // The source sends the extended attributes of a folder at the end of the folder.
            entry.metadata.xattrs.clear();
        }
        if entry.parent.is_none() {
            // A top-level folder and all entries below it are one dataset. The index of the folder
            // identifies the dataset.
            let is_folder = entry.kind == EntryKind::Directory;
            self.dataset = is_folder.then_some(Dataset(entry.index.0));
            self.objects.set_listing(self.dataset);
        }
        let dataset = self.dataset.filter(|_| is_file);
        if let Some(dataset) = dataset {
            self.objects.announced(dataset, size);
        }
        let row = self.count_in_folder(&entry, &listed.path);
        let file = File {
            path: listed.path,
            path_bytes,
            live_bytes,
            size,
            modified: entry.metadata.modified,
            sparse,
            is_file,
            is_open_folder: entry.kind == EntryKind::Directory,
            layout: listed.layout,
            dataset,
            row,
            done: RangeSet::new(),
            is_decided: false,
            layout_bytes,
            bytes_durable: 0,
            bytes_on_the_way: 0,
            aborted: false,
        };
        self.files.insert(entry.index, file);
        entry
    }

    /// Ends the session if no further entry can be announced. This is so if all unclosed entries
    /// are open folders. Each of these folders waits for its contents, so no folder can close.
    pub(super) fn stop_if_too_deep(&mut self) {
        if self.files.len() > self.open_folders {
            return;
        }
        let cause = format!(
            "the tree has {} nested folders, which is more than the two ends can hold in memory",
            self.open_folders
        );
        let error = Error::new(ErrorKind::LimitExceeded, End::Source, "list the folders")
            .cause(cause)
            .remedy("copy the innermost folders in a separate transfer");
        self.send_profile();
        self.out
            .push_back(Effect::Message(Message::GoAway(error.clone())));
        self.end(Outcome::Failed(error));
    }

    /// Handles ranges of a file that the sink already has. The message must arrive before the
    /// sink's decision about the file, and the number of ranges is limited.
    pub(super) fn on_done(&mut self, index: FileIndex, ranges: &[ByteRange]) {
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        if file.is_decided || ranges.iter().any(|range| range.end() > file.size) {
            self.protocol_error(format!(
                "the sink reported impossible ranges of entry {index} as durable"
            ));
            return;
        }
        let before = file.done.run_count();
        for range in ranges {
            file.done.insert(*range);
        }
        let after = file.done.run_count();
        self.runs = (self.runs + after).saturating_sub(before);
        if after > RUNS_PER_FILE_MAX || self.runs > RUNS_MAX {
            let cause = format!("the durable ranges of entry {index} are in too many pieces");
            self.violation(ErrorKind::LimitExceeded, cause);
        }
    }

    /// Removes the state of a file that is closed: both ends have finished the file, or it has
    /// failed.
    fn remove(&mut self, index: FileIndex) -> Option<File> {
        let file = self.files.remove(&index)?;
        self.undecided -= usize::from(file.is_file && !file.is_decided);
        if let Some(dataset) = file.dataset.filter(|_| !file.is_decided) {
            self.objects.decided(dataset, file.size);
        }
        self.runs = self.runs.saturating_sub(file.done.run_count());
        self.live_bytes = self.live_bytes.saturating_sub(file.live_bytes);
        self.layout_bytes = self.layout_bytes.saturating_sub(file.layout_bytes);
        self.objects.remove(index);
        let tried = self.tries.range((index, 0)..=(index, u64::MAX));
        let tried: Vec<_> = tried.map(|(range, _)| *range).collect();
        for range in tried {
            self.tries.remove(&range);
        }
        Some(file)
    }

    pub(super) fn on_file_id(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id.index) else {
            return;
        };
        if std::mem::replace(&mut file.is_decided, true) {
            self.protocol_error(format!("the sink decided twice about entry {}", id.index));
            return;
        }
        if !file.is_file && !matches!(id.verdict, FileVerdict::Failed(_)) {
            self.protocol_error(format!(
                "the sink decided about entry {}, which is not a file",
                id.index
            ));
            return;
        }
        self.undecided -= usize::from(file.is_file);
        if let Some(dataset) = file.dataset {
            self.objects.decided(dataset, file.size);
        }
        match id.verdict {
            FileVerdict::Want {
                object_bytes,
                layout,
            } => self.on_wanted(id.index, object_bytes, layout),
            FileVerdict::Adopted => {
                let size = self.files.get(&id.index).map_or(0, |file| file.size);
                self.closed.files_adopted += 1;
                self.progress.files_adopted += 1;
                self.progress.bytes_adopted += size;
                self.progress.bytes_durable += size;
                self.finish_file(id.index);
            }
            FileVerdict::Skipped => {
                let size = self.files.get(&id.index).map_or(0, |file| file.size);
                self.closed.files_skipped += 1;
                self.progress.files_skipped += 1;
                self.progress.bytes_durable += size;
                self.finish_file(id.index);
            }
            FileVerdict::Failed(error) => self.fail_file(id.index, error),
        }
    }

    /// Schedules the objects of a file that the sink has requested, except its durable ranges.
    fn on_wanted(&mut self, index: FileIndex, object_bytes: u64, mut layout: Layout) {
        if !self.knows_layout(&layout) {
            return;
        }
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        let object_bytes = match NonZeroU64::new(object_bytes) {
            Some(bytes) if bytes.get() <= self.config.buffer_bytes => bytes,
            _ => {
                let bytes = self.config.buffer_bytes;
                self.protocol_error(format!(
                    "the sink asked for an object of {object_bytes} bytes, but the agreed maximum \
                        is {bytes} bytes"
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
            self.progress.objects_resumed += grid.count_safe(resumed);
            self.progress.bytes_resumed += resumed;
            self.progress.bytes_durable += resumed;
            file.bytes_durable += resumed;
        }
        let mut wanted = RangeSet::full(file.size);
        for run in file.done.iter() {
            wanted.remove(run);
        }
        if wanted.is_empty() {
            return;
        }
        let layout_bytes = self.admit_layout(&mut layout);
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        file.layout_bytes += layout_bytes;
        self.objects.add(Work {
            index,
            grid,
            source: file.layout.clone(),
            sink: layout,
            wanted,
            ordered_window: self.ready.and_then(|ready| ready.ordered_window),
            dataset: file.dataset,
        });
    }

    fn finish_file(&mut self, index: FileIndex) {
        if let Some(file) = self.remove(index) {
            if file.is_file {
                self.folders.done(file.row, file.size);
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
            self.closed.files_failed += 1;
            self.folders.failed(file.row, file.size);
            // The file failed and does not exist at the destination. So its bytes do not count as
            // durable, even if its partial file is kept.
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
        if let Err(cause) = self.check_closed(file, closed.result.is_ok()) {
            let cause = format!("the sink reported entry {} {cause}", closed.index);
            let path = file.path.clone();
            self.fail_impossible_completion(cause, Some(&path));
            return;
        }
        match closed.result {
            Ok(sums) => {
                if file.is_file {
                    self.closed.files += 1;
                    self.closed.bytes = self.closed.bytes.saturating_add(file.size);
                    self.progress.bytes_durable += file.size.saturating_sub(file.bytes_durable);
                    let (path, size) = (file.path.clone(), file.size);
                    let sums = Some(sums);
                    self.out
                        .push_back(Effect::Report(Event::FileDone { path, size, sums }));
                } else {
                    self.closed.others += 1;
                }
                if !self.planted.is(Mutant::SourceAcceptsEarlyVerdict) {
                    self.finish_file(closed.index);
                }
            }
            Err(error) => self.fail_file(closed.index, error),
        }
    }

    /// Aborts a file that the source cannot deliver, and reports this to the sink. The sink answers
    /// with a FileClose.
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

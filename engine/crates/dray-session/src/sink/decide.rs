//! Decides whether the sink adopts, skips, refuses, resumes or completely receives an announced
//! file.

use super::tree::{Node, Stage};
use super::{Effect, Existing, Facts, Inspected, Resume, Sink};
use crate::progress::Event;
use dray_core::attribute::STRIPES_NAME;
use dray_core::options::Overwrite;
use dray_core::plan::{Grid, object_bytes_within};
use dray_core::{
    ByteRange, ContentKey, End, Error, ErrorKind, FileIndex, FileKind, Layout, RangeSet,
    SummedRanges, TargetId, Time,
};
use dray_wire::bounds::{RUNS_MAX, RUNS_PER_FILE_MAX};
use dray_wire::message::{FileId, FileVerdict, Message};
use std::num::NonZeroU64;

/// Maximum number of ranges in a DONE message; further ranges go into further messages. A message
/// with this number of ranges is far below every limit on the size of a frame.
const RANGES_PER_MESSAGE: usize = 1024;

/// Decision about a file. It depends only on the result of the inspection and on the options.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// The destination already has the same file, so the sink needs no bytes.
    Adopt,
    /// The destination has another file, which the sink must keep.
    Skip,
    /// The file cannot be created at its path.
    Refuse(Error),
    /// The sink needs the bytes of the file, except for ranges that are already durable.
    Take,
}

/// Returns the decision for a file with the content `key`. `existing` is the entry at its final
/// path.
#[must_use]
pub fn decide(overwrite: Overwrite, key: &ContentKey, existing: Option<&Existing>) -> Decision {
    let Some(existing) = existing else {
        return Decision::Take;
    };
    if let Some(error) = refusal(overwrite, existing.kind, "publish the file") {
        return Decision::Refuse(error);
    }
    match overwrite {
        Overwrite::Never => Decision::Skip,
        Overwrite::Always => Decision::Take,
        Overwrite::IfDifferent => {
            let known = match (key.demanded, existing.sums) {
                (Some(demanded), Some(sums)) => demanded.matches(&sums),
                (Some(_), None) => false,
                // Size and modification time do not identify a byte range of a file. So a byte
                // range is adopted only if a demanded checksum matches.
                (None, _) => key.identity.is_empty(),
            };
            let same = existing.kind == FileKind::File
                && existing.size == key.size
                && existing
                    .modified
                    .equal_at(&key.modified, key.precision_nanoseconds);
            if same && known {
                Decision::Adopt
            } else {
                Decision::Take
            }
        }
    }
}

/// Returns an error if an entry of the kind `stands` may not be replaced, whatever its content.
/// Returns `None` if [`decide`] must compare the contents. `operation` names the caller's operation
/// in the error.
#[must_use]
pub fn refusal(overwrite: Overwrite, stands: FileKind, operation: &str) -> Option<Error> {
    match (stands, overwrite) {
        (FileKind::Directory, _) => Some(
            Error::new(ErrorKind::IsADirectory, End::Sink, operation)
                .cause("a folder with the file's name exists")
                .remedy("move the folder away, or choose another destination"),
        ),
        // Never replace a special file: a host whose /dev/null was replaced soon stops working.
        (FileKind::Special, Overwrite::IfDifferent | Overwrite::Always) => {
            Some(special_file_exists(operation))
        }
        (FileKind::Special, Overwrite::Never) | (FileKind::File | FileKind::Symlink, _) => None,
    }
}

/// Returns the error of `operation` for a path at which a device, a pipe or a socket exists.
#[must_use]
pub fn special_file_exists(operation: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, End::Sink, operation)
        .cause("a device, pipe or socket with this name exists, and dray never replaces it")
        .remedy("choose another destination, or `null:` to discard all data")
}

impl Sink {
    pub(super) fn on_inspected(&mut self, results: Vec<(FileIndex, Inspected)>, now: Time) {
        self.deciding = self.deciding.saturating_sub(1);
        if !matches!(self.phase, super::Phase::Moving) {
            return;
        }
        for (index, result) in results {
            let folder_failed = self.error_of_failed_folder(index);
            match folder_failed.map_or(result, Inspected::Failed) {
                Inspected::Failed(error) => self.fail(index, error, false),
                Inspected::Made => self.on_made(index, now),
                Inspected::File(facts) => self.on_facts(index, facts, now),
            }
        }
    }

    fn on_made(&mut self, index: FileIndex, now: Time) {
        match self.live.get_mut(&index).map(|live| &mut live.node) {
            Some(Node::Directory {
                made, failed: None, ..
            }) => {
                *made = true;
                self.set_directory_if_done(index);
            }
            Some(Node::Symlink) => self.close_when_durable(index, now),
            _ => {}
        }
    }

    fn on_facts(&mut self, index: FileIndex, facts: Facts, now: Time) {
        let overwrite = self.config.options.overwrite;
        let Some(file) = self.file(index) else { return };
        match decide(overwrite, &file.key, facts.existing.as_ref()) {
            Decision::Adopt => {
                self.settle(index, Stage::Adopted);
                let mode = facts.existing.and_then(|existing| existing.mode);
                self.adopt(index, mode, now);
            }
            Decision::Skip => {
                self.settle(index, Stage::Skipped);
                self.close_when_durable(index, now);
            }
            Decision::Refuse(error) => self.fail(index, error, false),
            Decision::Take => self.take(index, facts.resume, facts.layout),
        }
    }

    /// Records that the file needs no further bytes, and sets its stage.
    fn settle(&mut self, index: FileIndex, stage: Stage) {
        if let Some(file) = self.file(index) {
            file.stage = stage;
        }
        if let Some(peer) = self.live.get(&index).map(|live| live.peer) {
            self.count_wanting(peer, false);
        }
    }

    /// Begins to receive a file. A small file is open immediately. For a larger file the runtime
    /// must open the partial file first.
    fn take(&mut self, index: FileIndex, resume: Option<Result<Resume, Error>>, layout: Layout) {
        let largest = NonZeroU64::new(self.config.buffer_bytes).unwrap_or(NonZeroU64::MIN);
        let asked = self.config.options.object_bytes.min(largest.get());
        let asked = NonZeroU64::new(asked).unwrap_or(largest);
        let resume = resume.and_then(|resume| self.usable_resume(index, resume, largest));
        let is_resumed = resume.is_some();
        for target in layout.targets() {
            self.ledger.add_target(target);
        }
        let Some(file) = self.file(index) else { return };
        let size = file.key.size;
        file.object_bytes = match &resume {
            Some(resume) => resume.object_bytes,
            None => {
                let (source, sink) = (file.source_step, layout.step(size));
                object_bytes_within(size, asked, largest, source, sink).get()
            }
        };
        file.small = !is_resumed && size <= asked.get();
        file.next_offset = 0;
        file.layout = Some(layout);
        let is_small = file.small;
        if let Some(resume) = resume {
            file.unproven = Some(SummedRanges::new());
            let runs = file.resume_from(resume.done);
            self.runs += runs;
        }
        if is_small {
            self.open(index);
        } else {
            self.prepare(index, is_resumed);
        }
    }

    /// Returns the durable ranges that an earlier run recorded. Returns `None` if this transfer
    /// cannot use these ranges.
    fn usable_resume(
        &mut self,
        index: FileIndex,
        resume: Result<Resume, Error>,
        largest: NonZeroU64,
    ) -> Option<Resume> {
        let size = self.file(index)?.key.size;
        match resume {
            Ok(resume) if is_usable(&resume, size, largest) && self.has_room(&resume) => {
                Some(resume)
            }
            Ok(resume) => {
                if resume.object_bytes > largest.get() {
                    self.report_too_large(index, &resume, largest);
                }
                None
            }
            Err(error) => {
                self.out.push_back(Effect::Report(Event::Notice(error)));
                None
            }
        }
    }

    fn prepare(&mut self, index: FileIndex, resume: bool) {
        let Some(path) = self.live.get(&index).map(|live| live.path.clone()) else {
            return;
        };
        let Some(file) = self.file(index) else { return };
        let (key, object_bytes) = (file.key.clone(), file.object_bytes);
        let mut xattrs = file.metadata.xattrs.iter();
        let stripes = xattrs.find(|(name, _)| name == STRIPES_NAME);
        let stripes = stripes.map(|(_, value)| value.clone());
        self.deciding += 1;
        self.preparing.insert(index, !resume);
        self.out.push_back(Effect::Prepare {
            index,
            path,
            key,
            object_bytes,
            resume,
            stripes,
        });
    }

    /// Returns true if all unclosed files together have at most [`RUNS_MAX`] ranges after this file
    /// is resumed.
    fn has_room(&self, resume: &Resume) -> bool {
        self.runs + resume.done.run_count() <= RUNS_MAX
    }

    /// Handles the layout of a partial file. The source gets the layout with the decision about the
    /// file.
    pub(super) fn on_placed(&mut self, index: FileIndex, layout: Layout) {
        if !self.preparing.contains_key(&index) || self.file(index).is_none() {
            return;
        }
        for target in layout.targets() {
            self.ledger.add_target(target);
        }
        if let Some(file) = self.file(index) {
            file.layout = Some(layout);
        }
    }

    /// Handles the result of opening a partial file. If the file has failed or the session is
    /// stopping, closes the partial file and keeps its durable ranges. If the partial file has no
    /// durable ranges, discards it instead.
    pub(super) fn on_prepared(&mut self, index: FileIndex, result: Result<(), Error>) {
        self.deciding = self.deciding.saturating_sub(1);
        let is_useless = self
            .preparing
            .remove(&index)
            .is_some_and(|is_useless| is_useless);
        let is_moving = matches!(self.phase, super::Phase::Moving);
        let has_failed = !self.live.contains_key(&index);
        match result {
            Ok(()) if is_moving && !has_failed => self.open(index),
            Ok(()) if is_useless => self.out.push_back(Effect::Discard(index)),
            Ok(()) => self.out.push_back(Effect::CloseFile(index)),
            Err(_) if !is_moving => {}
            Err(error) => self.fail(index, error, false),
        }
    }

    /// Allows bytes of the file to arrive, and reports its durable ranges to the source.
    fn open(&mut self, index: FileIndex) {
        let Some((peer, told)) = self.live.get(&index).map(|live| (live.peer, live.index)) else {
            return;
        };
        let Some(file) = self.file(index) else { return };
        file.stage = Stage::Open;
        let (size, object_bytes, written) = (file.key.size, file.object_bytes, file.written);
        let done: Vec<ByteRange> = file.accepted.iter().collect();
        let layout = file.layout.take().unwrap_or(Layout::Single(TargetId(0)));
        for ranges in done.chunks(RANGES_PER_MESSAGE) {
            let message = Message::Done {
                index: told,
                ranges: ranges.to_vec(),
            };
            self.out.push_back(Effect::Message(peer, message));
        }
        self.progress.bytes_durable += written;
        self.progress.bytes_resumed += written;
        let object = NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN);
        self.progress.objects_resumed += Grid::new(size, object).count_safe(written);
        self.verdict(
            index,
            FileVerdict::Want {
                object_bytes,
                layout,
            },
        );
        if written == size {
            self.count_wanting(peer, false);
            // The file is empty, or all its bytes are durable, so no bytes will arrive.
            self.finish(index);
        }
    }

    /// Reports that durable ranges will be sent again, because the buffers of this session are
    /// smaller than the objects of the earlier run.
    fn report_too_large(&mut self, index: FileIndex, resume: &Resume, largest: NonZeroU64) {
        let Some(live) = self.live.get(&index) else {
            return;
        };
        let cause = format!(
            "the {} durable bytes of the file are sent again, because their objects have {} \
                bytes but this session accepts objects of at most {largest} bytes",
            resume.done.bytes(),
            resume.object_bytes
        );
        let told = Error::new(ErrorKind::Unsupported, End::Sink, "resume the file")
            .file(&live.path)
            .cause(cause)
            .remedy("to resume, use the --object-size and --pool of the earlier run");
        self.out.push_back(Effect::Report(Event::Notice(told)));
    }

    pub(super) fn verdict(&mut self, index: FileIndex, verdict: FileVerdict) {
        if let Some((peer, index)) = self.live.get(&index).map(|live| (live.peer, live.index)) {
            self.queue_decision(peer, FileId { index, verdict });
        }
    }
}

/// Returns the end of the range that begins at offset 0, or 0 if no range begins there.
pub(super) fn end_of_first_run(ranges: &RangeSet) -> u64 {
    let first = ranges.run_from(0);
    first.map_or(0, |run| if run.offset == 0 { run.end() } else { 0 })
}

/// Returns true if a file can be resumed. Its objects must fit the buffers of this session
/// (`largest` bytes). Its durable ranges must lie within the file and must not be empty. There may
/// be at most [`RUNS_PER_FILE_MAX`] durable ranges.
#[must_use]
pub fn is_usable(resume: &Resume, size: u64, largest: NonZeroU64) -> bool {
    resume.object_bytes > 0
        && resume.object_bytes <= largest.get()
        && (1..=size).contains(&resume.done.bytes())
        && resume.done.run_count() <= RUNS_PER_FILE_MAX
        && resume.done.iter().all(|(range, _)| range.end() <= size)
}

#[cfg(test)]
mod tests {
    use super::{Decision, Existing, decide};
    use dray_core::options::Overwrite;
    use dray_core::{Checksum, ContentKey, ErrorKind, FileKind, ModifiedTime, Sums};

    fn key(demanded: Option<Checksum>) -> ContentKey {
        ContentKey {
            size: 3,
            demanded,
            modified: ModifiedTime {
                seconds: 9,
                nanoseconds: 5,
            },
            precision_nanoseconds: 1,
            identity: Vec::new(),
        }
    }

    fn same() -> Existing {
        Existing {
            kind: FileKind::File,
            size: 3,
            modified: ModifiedTime {
                seconds: 9,
                nanoseconds: 5,
            },
            sums: None,
            mode: Some(0o644),
        }
    }

    #[test]
    fn decide_follows_the_decision_table() {
        let adopt = decide(Overwrite::IfDifferent, &key(None), Some(&same()));
        assert_eq!(adopt, Decision::Adopt);
        let other_size = Existing { size: 4, ..same() };
        let take = decide(Overwrite::IfDifferent, &key(None), Some(&other_size));
        assert_eq!(take, Decision::Take);
        let link = Existing {
            kind: FileKind::Symlink,
            ..same()
        };
        assert_eq!(
            decide(Overwrite::IfDifferent, &key(None), Some(&link)),
            Decision::Take
        );
        assert_eq!(
            decide(Overwrite::Never, &key(None), Some(&other_size)),
            Decision::Skip
        );
        assert_eq!(
            decide(Overwrite::Always, &key(None), Some(&same())),
            Decision::Take
        );
        assert_eq!(decide(Overwrite::Never, &key(None), None), Decision::Take);
        let folder = Existing {
            kind: FileKind::Directory,
            ..same()
        };
        assert!(matches!(
            decide(Overwrite::Always, &key(None), Some(&folder)),
            Decision::Refuse(error) if error.kind == ErrorKind::IsADirectory
        ));
        let device = Existing {
            kind: FileKind::Special,
            ..same()
        };
        for overwrite in [Overwrite::IfDifferent, Overwrite::Always] {
            assert!(matches!(
                decide(overwrite, &key(None), Some(&device)),
                Decision::Refuse(error) if error.kind == ErrorKind::AlreadyExists
            ));
        }
        assert_eq!(
            decide(Overwrite::Never, &key(None), Some(&device)),
            Decision::Skip
        );
    }

    #[test]
    fn another_byte_range_is_not_adopted() {
        let mut part = key(None);
        part.identity = b"range:5000:3".to_vec();
        let decision = decide(Overwrite::IfDifferent, &part, Some(&same()));
        assert_eq!(decision, Decision::Take);
    }

    #[test]
    fn demanded_checksum_is_always_compared() {
        let demanded = key(Some(Checksum::Crc32c(1)));
        let unknown = decide(Overwrite::IfDifferent, &demanded, Some(&same()));
        assert_eq!(unknown, Decision::Take);
        let with = |crc32c| Existing {
            sums: Some(Sums { crc32c, adler32: 1 }),
            ..same()
        };
        assert_eq!(
            decide(Overwrite::IfDifferent, &demanded, Some(&with(1))),
            Decision::Adopt
        );
        assert_eq!(
            decide(Overwrite::IfDifferent, &demanded, Some(&with(2))),
            Decision::Take
        );
    }
}

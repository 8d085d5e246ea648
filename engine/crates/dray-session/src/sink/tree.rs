//! The *live* entries of the manifest: the entries that the source has announced and that are not
//! closed.

use super::Sink;
use crate::progress::{Event, Failure};
use crate::under_way::FolderRow;
use dray_core::{
    ByteRange, ContentKey, End, Entry, Error, FileIndex, Layout, Metadata, PeerId, RangeSet,
    RelPath, SummedRanges, Sums, Time,
};
use dray_wire::bounds::entry_bytes;
use dray_wire::message::{FileClosed, FileVerdict};
use std::collections::VecDeque;

/// Maximum number of failed files whose records [`Effect::FinishLog`](super::Effect::FinishLog)
/// keeps by name. If more files have failed, all records are kept.
const KEPT_MAX: usize = 1 << 16;

/// State of a file at the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The runtime is inspecting the destination or opening the partial file.
    Deciding,
    /// Bytes of the file may arrive.
    Open,
    /// All bytes are durable. The file is being verified.
    Finishing,
    /// The file is verified, and is being published.
    Publishing,
    /// The file has its final name. The next group makes its folder entry durable.
    Published,
    /// The destination already had the same file. The next sync group makes that file durable.
    Adopted,
    /// The destination has another file under this name, and the sink keeps that file. The next
    /// sync group makes the folder entry of that file durable, because an earlier run may have been
    /// killed directly after it published the file.
    Skipped,
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) key: ContentKey,
    pub(super) metadata: Metadata,
    pub(super) stage: Stage,
    pub(super) small: bool,
    pub(super) object_bytes: u64,
    /// Ranges that are durable and logged. For a small file: ranges that are written.
    pub(super) known: SummedRanges,
    /// Ranges that have arrived in this session, or were durable before it.
    pub(super) accepted: RangeSet,
    /// Number of bytes that were written in this session, or were durable before it.
    pub(super) written: u64,
    pub(super) bytes_resumed: u64,
    /// Ranges that this run made durable in an earlier run's partial file. The sink reads these
    /// ranges back before it publishes the file. `None` if the partial file belongs to this run.
    pub(super) unproven: Option<SummedRanges>,
    pub(super) sums: Option<Sums>,
    /// Step of the file's layout at the source in bytes ([`Layout::step`]); zero if the source has
    /// sent no step.
    pub(super) source_step: u64,
    /// Storage targets of the file. `None` after the sink has sent them to the source.
    pub(super) layout: Option<Layout>,
    /// Held blocks with their ranges. The store writes files in order, and these blocks wait for
    /// earlier blocks of the file.
    pub(super) held: VecDeque<(ByteRange, super::BlockKey)>,
    /// Offset of the next write, for a file that is written in order.
    pub(super) next_offset: u64,
    /// The block that contained this small file. The block is durable when all its files are
    /// closed.
    pub(super) pack: Option<super::BlockKey>,
}

#[derive(Debug)]
pub(super) enum Node {
    File(Box<File>),
    Directory {
        /// Number of entries in the folder that are announced and not closed.
        children: u64,
        /// Attributes of the folder. `None` until its listing is complete.
        ended: Option<Metadata>,
        /// True if the folder exists at the destination.
        made: bool,
        /// True while the runtime sets the folder's attributes.
        setting: bool,
        /// Set if the folder could not be created. The folder is closed only after all its entries
        /// have failed too.
        failed: Option<Box<FailedFolder>>,
    },
    Symlink,
}

/// The errors of a folder that could not be created.
#[derive(Debug)]
pub(super) struct FailedFolder {
    /// Error of the folder itself.
    error: Error,
    /// Error of each entry of the folder. The same error applies to all entries at any depth below
    /// the topmost failed folder.
    pub(super) of_entries: Error,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) path: RelPath,
    pub(super) parent: Option<FileIndex>,
    /// Row in which the file counts. For a folder: the row in which its entries count.
    pub(super) row: FolderRow,
    /// Source that announced the entry.
    pub(super) peer: PeerId,
    /// Index of the entry at its source.
    pub(super) index: FileIndex,
    /// Bytes of the entry that count towards the limit on unclosed entries.
    pub(super) bytes: u64,
    pub(super) node: Node,
}

impl Sink {
    pub(super) fn file(&mut self, index: FileIndex) -> Option<&mut File> {
        match self.live.get_mut(&index).map(|live| &mut live.node) {
            Some(Node::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Removes an entry when it is closed.
    fn remove(&mut self, index: FileIndex) -> Option<Live> {
        let live = self.live.remove(&index)?;
        // Two entries may have the same path, and the second is refused. Removing the refused entry
        // must not free the path of the first.
        if self.paths.get(&live.path) == Some(&index) {
            self.paths.remove(&live.path);
        }
        self.forget_entry(&live);
        if let Node::File(file) = &live.node {
            self.runs = self.runs.saturating_sub(file.accepted.run_count());
        }
        Some(live)
    }

    pub(super) fn end_directory(&mut self, peer: PeerId, entry: Entry) -> Result<(), String> {
        let index = self.own_index(peer, entry.index);
        let bytes = entry_bytes(&entry, 0);
        match self.live.get_mut(&index) {
            Some(Live {
                node: Node::Directory { ended, .. },
                bytes: of_folder,
                ..
            }) if ended.is_none() => {
                *ended = Some(entry.metadata);
                *of_folder += bytes;
                self.count_bytes(peer, bytes);
                self.set_directory_if_done(index);
                self.close_failed_folder(index);
                Ok(())
            }
            _ => {
                let index = entry.index;
                Err(format!(
                    "the source ended entry {index}, which is not an open folder"
                ))
            }
        }
    }

    /// Returns the source's index of a folder whose end the source has not announced. Returns
    /// `None` if every folder has ended.
    pub(super) fn folder_without_end(&self, peer: PeerId) -> Option<FileIndex> {
        let folders = self.live.values().filter(|live| {
            live.peer == peer && matches!(live.node, Node::Directory { ended: None, .. })
        });
        folders.map(|live| live.index).min()
    }

    /// Sets the attributes of a folder after all its entries are closed. If they were set earlier,
    /// each new entry would change the folder's modification time again.
    pub(super) fn set_directory_if_done(&mut self, index: FileIndex) {
        let Some(live) = self.live.get_mut(&index) else {
            return;
        };
        if let Node::Directory {
            children: 0,
            ended: Some(metadata),
            made: true,
            setting,
            failed: None,
        } = &mut live.node
            && !*setting
        {
            *setting = true;
            self.finishing += 1;
            let (path, metadata) = (live.path.clone(), metadata.clone());
            self.out.push_back(super::Effect::SetDirectory {
                index,
                path,
                metadata,
            });
        }
    }

    pub(super) fn on_directory_set(
        &mut self,
        index: FileIndex,
        result: Result<(), Error>,
        now: Time,
    ) {
        self.finishing = self.finishing.saturating_sub(1);
        match result {
            Ok(()) => self.close_when_durable(index, now),
            Err(error) => self.fail(index, error, false),
        }
    }

    /// Ends a folder whose source was lost. Returns true if the folder had already failed. A failed
    /// folder is closed when its last entry is closed.
    pub(super) fn end_failed_folder(&mut self, index: FileIndex) -> bool {
        let Some(Live {
            node: Node::Directory { ended, failed, .. },
            ..
        }) = self.live.get_mut(&index)
        else {
            return false;
        };
        ended.get_or_insert_default();
        let has_failed = failed.is_some();
        self.close_failed_folder(index);
        has_failed
    }

    /// Closes a folder that could not be created, if all its entries are closed.
    fn close_failed_folder(&mut self, index: FileIndex) {
        let done = self.live.get(&index).is_some_and(|live| {
            matches!(
                live.node,
                Node::Directory {
                    children: 0,
                    ended: Some(_),
                    failed: Some(_),
                    ..
                }
            )
        });
        if !done {
            return;
        }
        let Some(live) = self.remove(index) else {
            return;
        };
        if let Node::Directory {
            failed: Some(failed),
            ..
        } = live.node
        {
            let closed = FileClosed {
                index: live.index,
                result: Err(failed.error),
                bytes_resumed: 0,
            };
            self.queue_closed(live.peer, closed);
        }
        self.child_closed(live.parent);
    }

    /// Closes an entry that is finished and durable. Reports this to the entry's source, and
    /// finishes the folder if this was its last entry.
    pub(super) fn close(&mut self, index: FileIndex) {
        match self.file(index).map(|file| file.stage) {
            Some(Stage::Adopted) => {
                self.verdict(index, FileVerdict::Adopted);
                self.leave(index, true);
                return;
            }
            Some(Stage::Skipped) => {
                self.verdict(index, FileVerdict::Skipped);
                self.leave(index, false);
                return;
            }
            _ => {}
        }
        let Some(live) = self.remove(index) else {
            return;
        };
        let mut sums = Sums::EMPTY;
        let mut bytes_resumed = 0;
        match live.node {
            Node::File(file) => {
                sums = file.sums.unwrap_or_default();
                bytes_resumed = file.bytes_resumed;
                self.totals.files += 1;
                self.totals.bytes = self.totals.bytes.saturating_add(file.key.size);
                self.folders.done(live.row, file.key.size);
                self.progress.files_done += 1;
                if file.small {
                    self.progress.bytes_durable += file.key.size;
                }
                let (size, sums) = (file.key.size, file.sums);
                self.out.push_back(super::Effect::Report(Event::FileDone {
                    path: live.path,
                    size,
                    sums,
                }));
                if !file.small {
                    self.out.push_back(super::Effect::CloseFile(index));
                }
                if let Some(pack) = file.pack {
                    self.small_closed(pack, file.key.size);
                }
            }
            Node::Directory { .. } | Node::Symlink => {
                self.totals.others += 1;
                self.progress.others_done += 1;
            }
        }
        let closed = FileClosed {
            index: live.index,
            result: Ok(sums),
            bytes_resumed,
        };
        self.queue_closed(live.peer, closed);
        self.child_closed(live.parent);
    }

    /// Closes a file that was adopted or skipped, so it needs no bytes from this transfer.
    pub(super) fn leave(&mut self, index: FileIndex, adopted: bool) {
        let Some(live) = self.remove(index) else {
            return;
        };
        if let Node::File(file) = live.node {
            self.folders.done(live.row, file.key.size);
            self.progress.files_done += 1;
            self.progress.bytes_durable += file.key.size;
            if adopted {
                self.progress.bytes_adopted += file.key.size;
            }
        }
        if adopted {
            self.totals.files_adopted += 1;
            self.progress.files_adopted += 1;
        } else {
            self.totals.files_skipped += 1;
            self.progress.files_skipped += 1;
        }
        self.child_closed(live.parent);
    }

    /// Returns the error of an entry whose folder could not be created. The entry may have been
    /// announced before the creation of its folder failed.
    pub(super) fn error_of_failed_folder(&self, index: FileIndex) -> Option<Error> {
        let parent = self.live.get(&index)?.parent?;
        match &self.live.get(&parent)?.node {
            Node::Directory { failed, .. } => Some(failed.as_ref()?.of_entries.clone()),
            _ => None,
        }
    }

    /// Fails an entry. `discard` is true if its written data is useless for a later run.
    pub(super) fn fail(&mut self, index: FileIndex, error: Error, discard: bool) {
        let above = self.error_of_failed_folder(index);
        let Some(live) = self.live.get_mut(&index) else {
            return;
        };
        let error = error.file(&live.path);
        let failure = Failure {
            path: live.path.clone(),
            error: error.clone(),
        };
        self.totals.files_failed += 1;
        self.progress.files_failed += 1;
        let size = match &live.node {
            Node::File(file) => file.key.size,
            _ => 0,
        };
        self.folders.failed(live.row, size);
        self.out
            .push_back(super::Effect::Report(Event::Failed(failure)));
        if let Node::Directory { failed, .. } = &mut live.node {
            let of_entries = above.unwrap_or_else(|| in_failed_folder(&error));
            *failed = Some(Box::new(FailedFolder { error, of_entries }));
            self.close_failed_folder(index);
            return;
        }
        let Some(live) = self.remove(index) else {
            return;
        };
        if let Node::File(file) = &live.node {
            if matches!(file.stage, Stage::Deciding | Stage::Open) && !self.is_all_written(file) {
                self.count_wanting(live.peer, false);
            }
            // Also keep the records of files that this run has not inspected, because an earlier
            // run may have begun these files.
            let keep = !discard && !file.small;
            if let (true, Some(kept)) = (keep, &mut self.kept) {
                kept.insert(live.path.clone());
                if kept.len() > KEPT_MAX {
                    self.kept = None;
                }
            }
            if let Some(is_useless) = self.preparing.get_mut(&index) {
                *is_useless |= discard;
            }
            if !matches!(
                file.stage,
                Stage::Deciding | Stage::Adopted | Stage::Skipped
            ) {
                self.out.push_back(if keep {
                    super::Effect::CloseFile(index)
                } else {
                    super::Effect::Discard(index)
                });
            }
            if let Some(pack) = file.pack {
                self.small_closed(pack, file.key.size);
            }
            self.release_held(file, &error);
        }
        self.gathering.forget(index);
        self.late.forget(index);
        let closed = FileClosed {
            index: live.index,
            result: Err(error),
            bytes_resumed: 0,
        };
        self.queue_closed(live.peer, closed);
        self.child_closed(live.parent);
    }

    pub(super) fn is_all_written(&self, file: &File) -> bool {
        match file.stage {
            Stage::Deciding => false,
            Stage::Adopted | Stage::Skipped => true,
            _ => file.written == file.key.size,
        }
    }

    fn child_closed(&mut self, parent: Option<FileIndex>) {
        let Some(parent) = parent else { return };
        if let Some(Live {
            node: Node::Directory { children, .. },
            ..
        }) = self.live.get_mut(&parent)
        {
            *children = children.saturating_sub(1);
            self.set_directory_if_done(parent);
            self.close_failed_folder(parent);
        }
    }
}

/// Returns the error of the entries of a folder that could not be created because of `error`.
fn in_failed_folder(error: &Error) -> Error {
    let cause = match error.cause.as_str() {
        "" => error.kind.words(),
        cause => cause,
    };
    let remedy = match error.remedy.as_str() {
        "" => "make it possible to create the folder, then run the same command again",
        remedy => remedy,
    };
    Error::new(error.kind, End::Sink, "create the entry")
        .status(error.status)
        .cause(format!(
            "the folder that contains the entry could not be created: {cause}"
        ))
        .remedy(remedy)
}

//! Counts files for each folder, and reports the unclosed files of a source.

use super::{File, Source};
use crate::under_way::{FileStage, FolderRow, Unclosed, UnderWay};
use dray_core::{Entry, EntryKind, RelPath};

impl Source {
    /// Counts a new entry in the row of its folder. Returns the row of the entry. For a folder:
    /// the row of its entries.
    pub(super) fn count_in_folder(&mut self, entry: &Entry, path: &RelPath) -> FolderRow {
        let parent = entry.parent.and_then(|parent| self.files.get(&parent));
        let row = parent.map_or(FolderRow::default(), |parent| parent.row);
        match entry.kind {
            EntryKind::Directory => self.folders.enter(row, path),
            EntryKind::File { size, .. } => {
                self.folders.announced(row, size);
                row
            }
            EntryKind::Symlink { .. } | EntryKind::DirectoryEnd => row,
        }
    }

    /// Returns the unclosed files, and the counters of the folders. A source does not know whether
    /// the sink verifies or publishes a file, so it reports [`FileStage::Publishing`] for both. The
    /// cost grows with the number of unclosed entries.
    #[must_use]
    pub fn under_way(&self) -> UnderWay {
        let files = self.files.iter().filter(|(_, file)| file.is_file);
        let files = files.map(|(index, file)| {
            let unclosed = Unclosed {
                path: &file.path,
                size: file.size,
                bytes_durable: file.bytes_durable.min(file.size),
                stage: stage(file),
            };
            (index.0, file.row, unclosed)
        });
        self.folders.under_way(files)
    }
}

fn stage(file: &File) -> FileStage {
    let has_moved = file.bytes_on_the_way > 0 || file.bytes_durable > file.done.bytes();
    match file.is_decided {
        true if file.bytes_durable >= file.size => FileStage::Publishing,
        true if has_moved => FileStage::Moving,
        _ => FileStage::Waiting,
    }
}

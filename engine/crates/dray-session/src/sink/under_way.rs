//! Counts files for each folder, and reports the unclosed files of a sink.

use super::Sink;
use super::tree::{File, Node, Stage};
use crate::under_way::{FileStage, FolderRow, Unclosed, UnderWay};
use dray_core::{FileIndex, RelPath};

impl Sink {
    /// Counts a new entry in the row of its folder. Returns the row of the entry. For a folder:
    /// the row of its entries.
    pub(super) fn count_in_folder(
        &mut self,
        above: Option<FileIndex>,
        path: &RelPath,
        node: &Node,
    ) -> FolderRow {
        let parent = above.and_then(|parent| self.live.get(&parent));
        let row = parent.map_or(FolderRow::default(), |parent| parent.row);
        match node {
            Node::Directory { .. } => self.folders.enter(row, path),
            Node::File(file) => {
                self.folders.announced(row, file.key.size);
                row
            }
            Node::Symlink => row,
        }
    }

    /// Returns the unclosed files, and the counters of the folders. The cost grows with the number
    /// of unclosed entries.
    #[must_use]
    pub fn under_way(&self) -> UnderWay {
        let files = self.live.iter().filter_map(|(index, live)| {
            let Node::File(file) = &live.node else {
                return None;
            };
            let file = Unclosed {
                path: &live.path,
                size: file.key.size,
                bytes_durable: durable(file),
                stage: stage(file),
            };
            Some((index.0, live.row, file))
        });
        self.folders.under_way(files)
    }
}

/// Returns the durable bytes of a file. The ranges of a small file become durable together, when
/// the file is closed.
fn durable(file: &File) -> u64 {
    match file.small {
        true => 0,
        false => file.known.bytes(),
    }
}

fn stage(file: &File) -> FileStage {
    match file.stage {
        Stage::Deciding => FileStage::Waiting,
        Stage::Open if file.accepted.bytes() <= file.bytes_resumed => FileStage::Waiting,
        Stage::Open => FileStage::Moving,
        Stage::Finishing => FileStage::Verifying,
        Stage::Publishing | Stage::Published | Stage::Adopted | Stage::Skipped => {
            FileStage::Publishing
        }
    }
}

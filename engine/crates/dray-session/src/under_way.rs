//! The unclosed files of a machine, and counters for each folder.
//!
//! The table of folders has a fixed maximum size. Counting a file costs one array access, because
//! each unclosed entry knows its row in the table. Memory does not grow with the number of files.
//!
//! Not for: counters of the whole session ([`Progress`](crate::Progress)).

use dray_core::RelPath;

/// Maximum number of files that [`UnderWay`] names.
pub const FILES_MAX: usize = 100;

/// Maximum number of rows in the table of folders, including the row of the transfer's root. The
/// value is estimated, not measured.
pub const FOLDERS_MAX: usize = 1000;

/// Maximum depth of a folder with its own row. The root has depth 0. The value is estimated, not
/// measured.
pub const DEPTH_MAX: u32 = 4;

/// Maximum total size of the paths in the table of folders, in bytes. The value is estimated, not
/// measured.
const PATH_BYTES_MAX: usize = 64 << 10;

/// State of an unclosed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileStage {
    /// No bytes of the file have moved in this session.
    Waiting,
    /// Bytes of the file are moving, or are not durable yet.
    Moving,
    /// All bytes are durable. The sink reads bytes back and compares them.
    Verifying,
    /// All bytes are durable. The sink gives the file its final name, and makes the name durable.
    Publishing,
}

/// An unclosed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    /// Path below the transfer's root.
    pub path: RelPath,
    /// Size in bytes.
    pub size: u64,
    /// Number of durable bytes.
    pub bytes_durable: u64,
    /// State of the file.
    pub stage: FileStage,
}

/// Counters of a folder, including everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FolderCounts {
    /// Number of announced files.
    pub files: u64,
    /// Total size of the announced files in bytes.
    pub bytes: u64,
    /// Number of files that were published, adopted or skipped.
    pub files_done: u64,
    /// Durable bytes: the sizes of the done files, and the durable bytes of unclosed files.
    pub bytes_done: u64,
    /// Number of entries that failed. An entry that could not be listed counts only in the root.
    pub failed: u64,
    /// Total size of the failed files in bytes.
    pub bytes_failed: u64,
    /// Number of folders without their own row.
    pub folders_without_row: u64,
}

impl FolderCounts {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.files_done += other.files_done;
        self.bytes_done = self.bytes_done.saturating_add(other.bytes_done);
        self.failed += other.failed;
        self.bytes_failed = self.bytes_failed.saturating_add(other.bytes_failed);
        self.folders_without_row += other.folders_without_row;
    }
}

/// A folder with its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSums {
    /// Path below the transfer's root.
    pub path: RelPath,
    /// The counters.
    pub counts: FolderCounts,
}

/// The unclosed files of a machine, and its folders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnderWay {
    /// At most [`FILES_MAX`] files: first those that have left [`FileStage::Waiting`], and among
    /// equals those that were announced first.
    pub files: Vec<LiveFile>,
    /// Number of unclosed files that are not in `files`.
    pub files_more: u64,
    /// At most [`FOLDERS_MAX`] folders. The first one is the root. A folder follows its parent.
    pub folders: Vec<FolderSums>,
}

/// The row of a folder in [`Folders`]. The default is the row of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FolderRow(u16);

#[derive(Debug)]
struct Row {
    path: RelPath,
    parent: FolderRow,
    depth: u32,
    /// Counters of the entries directly in the folder, and of the entries in folders below it that
    /// have no row.
    own: FolderCounts,
}

/// The table of folders of one session.
#[derive(Debug)]
pub(crate) struct Folders {
    rows: Vec<Row>,
    path_bytes: usize,
}

impl Default for Folders {
    fn default() -> Self {
        let root = Row {
            path: RelPath::root(),
            parent: FolderRow::default(),
            depth: 0,
            own: FolderCounts::default(),
        };
        Self {
            rows: vec![root],
            path_bytes: 0,
        }
    }
}

impl Folders {
    fn row(&mut self, row: FolderRow) -> Option<&mut Row> {
        self.rows.get_mut(usize::from(row.0))
    }

    /// Returns the row for the entries of the folder at `path`: a new row, or the row of the parent
    /// if the table is full.
    pub(crate) fn enter(&mut self, parent: FolderRow, path: &RelPath) -> FolderRow {
        let bytes = self.path_bytes + path.as_bytes().len();
        let has_room = self.rows.len() < FOLDERS_MAX && bytes <= PATH_BYTES_MAX;
        let next = u16::try_from(self.rows.len());
        let Some(above) = self.row(parent) else {
            return parent;
        };
        match next {
            Ok(next) if has_room && above.depth < DEPTH_MAX => {
                let depth = above.depth + 1;
                self.path_bytes = bytes;
                self.rows.push(Row {
                    path: path.clone(),
                    parent,
                    depth,
                    own: FolderCounts::default(),
                });
                FolderRow(next)
            }
            _ => {
                above.own.folders_without_row += 1;
                parent
            }
        }
    }

    /// Counts an announced file of `size` bytes.
    pub(crate) fn announced(&mut self, row: FolderRow, size: u64) {
        if let Some(row) = self.row(row) {
            row.own.files += 1;
            row.own.bytes = row.own.bytes.saturating_add(size);
        }
    }

    /// Counts a done file of `size` bytes.
    pub(crate) fn done(&mut self, row: FolderRow, size: u64) {
        if let Some(row) = self.row(row) {
            row.own.files_done += 1;
            row.own.bytes_done = row.own.bytes_done.saturating_add(size);
        }
    }

    /// Counts a failed entry. `size` is zero for entries that are not files.
    pub(crate) fn failed(&mut self, row: FolderRow, size: u64) {
        if let Some(row) = self.row(row) {
            row.own.failed += 1;
            row.own.bytes_failed = row.own.bytes_failed.saturating_add(size);
        }
    }

    /// Returns the report about these unclosed files. `files` has the number, the row and the state
    /// of each file, in any order. Files with lower numbers were announced earlier.
    pub(crate) fn under_way<'a>(
        &self,
        files: impl Iterator<Item = (u64, FolderRow, Unclosed<'a>)>,
    ) -> UnderWay {
        let mut counts: Vec<_> = self.rows.iter().map(|row| row.own).collect();
        let mut known: Vec<(bool, u64, Unclosed<'a>)> = Vec::new();
        for (number, row, file) in files {
            if let Some(counts) = counts.get_mut(usize::from(row.0)) {
                counts.bytes_done = counts.bytes_done.saturating_add(file.bytes_durable);
            }
            known.push((file.stage == FileStage::Waiting, number, file));
        }
        // A parent has a lower number than its folders.
        for at in (1..self.rows.len()).rev() {
            let parent = self.rows.get(at).map(|row| usize::from(row.parent.0));
            let below = counts.get(at).copied();
            if let (Some(parent), Some(below)) = (parent, below)
                && let Some(counts) = counts.get_mut(parent)
            {
                counts.add(&below);
            }
        }
        known.sort_unstable_by_key(|(is_waiting, number, _)| (*is_waiting, *number));
        let files_more = known.len().saturating_sub(FILES_MAX) as u64;
        let files = known.iter().take(FILES_MAX);
        let folders = self.rows.iter().zip(counts);
        UnderWay {
            files: files.map(|(_, _, file)| file.named()).collect(),
            files_more,
            folders: folders
                .map(|(row, counts)| FolderSums {
                    path: row.path.clone(),
                    counts,
                })
                .collect(),
        }
    }
}

/// An unclosed file in the form in which a machine keeps it.
pub(crate) struct Unclosed<'a> {
    pub(crate) path: &'a RelPath,
    pub(crate) size: u64,
    pub(crate) bytes_durable: u64,
    pub(crate) stage: FileStage,
}

impl Unclosed<'_> {
    fn named(&self) -> LiveFile {
        LiveFile {
            path: self.path.clone(),
            size: self.size,
            bytes_durable: self.bytes_durable,
            stage: self.stage,
        }
    }
}

#[cfg(test)]
mod tests;

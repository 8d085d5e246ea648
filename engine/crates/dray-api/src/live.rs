//! The files under way of a transfer, and sums for its folders.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a file under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LiveFileState {
    /// No bytes of the file have moved in this session.
    Waiting,
    /// Bytes of the file are moving, or are not durable yet.
    Moving,
    /// All bytes are durable. The destination reads bytes back and compares them. If the
    /// destination is at another endpoint, such a file has the state `publishing`.
    Verifying,
    /// All bytes are durable. The file is getting its final name.
    Publishing,
}

/// A file that the session has found and not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveFile {
    /// Path relative to the transfer's root.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Durable bytes. If the destination discards the data: discarded bytes.
    pub bytes_done: u64,
    /// State of the file.
    pub state: LiveFileState,
}

/// Counters of a folder, including everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FolderSums {
    /// Path relative to the transfer's root. Empty for the root.
    pub path: String,
    /// Number of files that the session has found so far.
    pub files: u64,
    /// Total size of these files in bytes.
    pub bytes: u64,
    /// Number of finished files: published, adopted or skipped.
    pub files_done: u64,
    /// Bytes of the finished files, and durable bytes of files under way.
    pub bytes_done: u64,
    /// Number of entries that failed. An entry that could not be listed counts only in the root.
    pub failed: u64,
    /// Total size of the failed files in bytes.
    pub bytes_failed: u64,
    /// Number of folders below this folder that have no sums of their own.
    pub folders_more: u64,
}

/// The files under way of a transfer, and the sums for its folders.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveFiles {
    /// True if a running session of the transfer has reported its files. Otherwise the lists are
    /// empty.
    pub is_reported: bool,
    /// The files under way: first those that have begun to move, and among equals those that were
    /// found first. At most 100.
    pub files: Vec<LiveFile>,
    /// Number of files under way that are not in `files`.
    pub files_more: u64,
    /// The root and the folders below it, to a depth of 4. A folder follows its parent. At most
    /// 1000, and fewer if their names are long.
    pub folders: Vec<FolderSums>,
}

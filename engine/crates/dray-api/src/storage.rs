//! Files and folders as callers see them.

use crate::checks::{self, Check};
use crate::page_default;
use crate::timestamp::Timestamp;
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryType {
    /// A file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a device, a pipe.
    Other,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// Its API path.
    pub path: String,
    /// Its name in its folder.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified_at: Timestamp,
    /// Permission bits, octal.
    pub mode: String,
    /// What a symbolic link says.
    pub link: Option<String>,
}

/// A path.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PathQuery {
    /// `/ROOT/PATH`.
    pub path: String,
}

impl Check for PathQuery {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// A folder to list.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// `/ROOT/PATH`.
    pub path: String,
    /// Items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Where the last page ended.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl Check for ListQuery {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of a folder.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EntryList {
    /// Sorted by name.
    pub entries: Vec<Entry>,
    /// Goes on from here.
    pub next: Option<String>,
}

/// A folder to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MkdirRequest {
    /// `/ROOT/PATH`.
    pub path: String,
    /// Those above it as well.
    #[serde(default = "yes")]
    pub parents: bool,
}

const fn yes() -> bool {
    true
}

impl Check for MkdirRequest {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// What to remove.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RmRequest {
    /// `/ROOT/PATH`.
    pub path: String,
    /// A folder with everything in it.
    #[serde(default)]
    pub recursive: bool,
}

impl Check for RmRequest {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// What was removed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RmAnswer {
    /// Files, links and folders.
    pub removed: u64,
}

/// A new name.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameRequest {
    /// `/ROOT/PATH`.
    pub from: String,
    /// `/ROOT/PATH` in the same root.
    pub to: String,
    /// Whether a file or a link that stands there goes.
    #[serde(default)]
    pub replace: bool,
}

impl Check for RenameRequest {
    fn about(&self) -> Vec<String> {
        vec![self.from.clone(), self.to.clone()]
    }
}

/// An algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// RFC 1950.
    Adler32,
    /// CRC-32/ISCSI.
    Crc32c,
}

/// Which checksum of which file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChecksumRequest {
    /// `/ROOT/PATH`.
    pub path: String,
    /// The algorithm.
    pub algorithm: Algorithm,
}

impl Check for ChecksumRequest {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// Where a checksum comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SumOrigin {
    /// Kept with the file, which is as it was then.
    Attribute,
    /// The file was read.
    Read,
}

/// A checksum.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChecksumAnswer {
    /// The API path.
    pub path: String,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Eight hexadecimal digits.
    pub checksum: String,
    /// Bytes of the file.
    pub size: u64,
    /// Where it comes from.
    pub from: SumOrigin,
}

/// Space of the storage under a path.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SpaceAnswer {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that this endpoint may still write.
    pub available: u64,
}

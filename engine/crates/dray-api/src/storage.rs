//! Files and folders in the form of the API.

use crate::checks::{self, Check};
use crate::page_default;
use crate::timestamp::Timestamp;
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryType {
    /// A file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a device or a pipe.
    Other,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// API path of the entry.
    pub path: String,
    /// Name of the entry in its folder.
    pub name: String,
    /// Type of the entry.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified_at: Timestamp,
    /// Permission bits in octal.
    pub mode: String,
    /// Target of a symbolic link.
    pub link: Option<String>,
}

/// Query for one entry.
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

/// Query for the entries of a folder.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// `/ROOT/PATH` of the folder.
    pub path: String,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
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

/// A page of the entries of a folder.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EntryList {
    /// The entries, sorted by name.
    pub entries: Vec<Entry>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// A folder to create.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MkdirRequest {
    /// `/ROOT/PATH`.
    pub path: String,
    /// True to create missing parent folders as well.
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

/// An entry to remove.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RmRequest {
    /// `/ROOT/PATH`.
    pub path: String,
    /// True to remove a folder with everything in it.
    #[serde(default)]
    pub recursive: bool,
}

impl Check for RmRequest {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// Number of removed entries.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RmAnswer {
    /// Number of removed files, links and folders.
    pub removed: u64,
}

/// A new name for an entry.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameRequest {
    /// `/ROOT/PATH` of the existing entry.
    pub from: String,
    /// New `/ROOT/PATH` in the same root.
    pub to: String,
    /// True to replace an existing file or link at the new path.
    #[serde(default)]
    pub replace: bool,
}

impl Check for RenameRequest {
    fn about(&self) -> Vec<String> {
        vec![self.from.clone(), self.to.clone()]
    }
}

/// A checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Adler-32 (RFC 1950).
    Adler32,
    /// CRC-32C (CRC-32/ISCSI).
    Crc32c,
}

/// A request for the checksum of a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChecksumRequest {
    /// `/ROOT/PATH`.
    pub path: String,
    /// Checksum algorithm.
    pub algorithm: Algorithm,
}

impl Check for ChecksumRequest {
    fn about(&self) -> Vec<String> {
        vec![self.path.clone()]
    }
}

/// Origin of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SumOrigin {
    /// The checksum is an extended attribute of the file. The file has not changed since.
    Attribute,
    /// The endpoint computed the checksum from the content of the file.
    Read,
}

/// The checksum of a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChecksumAnswer {
    /// API path of the file.
    pub path: String,
    /// Checksum algorithm.
    pub algorithm: Algorithm,
    /// Checksum as eight hexadecimal digits.
    pub checksum: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Origin of the checksum.
    pub from: SumOrigin,
}

/// Space of the storage that contains a path.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SpaceAnswer {
    /// Total bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes that the endpoint may still write.
    pub available: u64,
}

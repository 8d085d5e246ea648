//! Options of a transfer, in addition to its source and destination.

use serde::{Deserialize, Serialize};

/// Number of data streams of a transfer whose request does not specify it.
pub const STREAMS_USUAL: u16 = 4;

/// Condition under which bytes count as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Written: survives the death of a process, not of the host.
    None,
    /// On stable storage before the final name appears; objects are synced in groups.
    #[default]
    File,
    /// Each object on stable storage before it is acknowledged, one by one.
    Object,
}

/// Action for a file that exists at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overwrite {
    /// Leave it.
    Never,
    /// Adopt it when size, time and any known checksum match; else replace it.
    #[default]
    IfDifferent,
    /// Replace it.
    Always,
}

/// Treatment of durable ranges of an earlier run by a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResumeMode {
    /// Read them back from the storage and compare them before the file is continued.
    #[default]
    Verify,
    /// Trust the log. For storage that keeps synced data.
    Trust,
}

/// Order of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By storage target, around busy ones (LADS).
    #[default]
    Layout,
    /// File after file.
    File,
    /// At random, from a seed.
    Random {
        /// Seed of the draw.
        seed: u64,
    },
}

/// Action for symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// Recreate the link.
    #[default]
    Keep,
    /// Copy the link's target.
    Follow,
    /// Fail the entry.
    Refuse,
}

/// Options that travel to both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Condition under which bytes count as durable.
    pub durability: Durability,
    /// Action for existing files.
    pub overwrite: Overwrite,
    /// Order of the objects.
    pub order: Order,
    /// Requested bytes of an object.
    pub object_bytes: u64,
    /// Read the published file back and compare.
    pub verify: bool,
    /// Treatment of durable ranges of an earlier run.
    #[serde(default)]
    pub resume: ResumeMode,
    /// Carry extended attributes.
    pub xattrs: bool,
    /// Sink keeps checksums of published files as extended attributes.
    pub checksum_attributes: bool,
    /// Bytes per second this transfer may use; `None` for no limit.
    pub rate: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            overwrite: Overwrite::default(),
            order: Order::default(),
            object_bytes: crate::plan::OBJECT_BYTES_DEFAULT,
            verify: false,
            resume: ResumeMode::default(),
            xattrs: false,
            checksum_attributes: false,
            rate: None,
        }
    }
}

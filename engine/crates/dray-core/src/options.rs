//! Options of a transfer, in addition to its source and destination.

use crate::stripes::StripeChoice;
use serde::{Deserialize, Serialize};

/// Default number of data streams of a transfer.
pub const STREAMS_USUAL: u16 = 4;

/// Condition under which bytes count as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Bytes count as durable when they are written. Written bytes survive the end of the process.
    /// They may not survive a crash of the host.
    None,
    /// The file is on stable storage before it gets its final name. Objects are synced in groups.
    #[default]
    File,
    /// Each object is synced separately before the sink acknowledges it.
    Object,
}

/// Action if the file already exists at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overwrite {
    /// Leave the existing file unchanged.
    Never,
    /// Adopt the existing file if its size, time and any known checksum match. Otherwise replace
    /// the file.
    #[default]
    IfDifferent,
    /// Replace the existing file.
    Always,
}

/// Treatment of durable ranges that an earlier run has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResumeMode {
    /// Read the durable ranges back from the storage and compare their checksums before the file is
    /// continued.
    #[default]
    Verify,
    /// Trust the object log. Suitable for storage that never loses synced data.
    Trust,
}

/// Order in which objects are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Choose objects by storage target, and avoid busy targets (LADS).
    #[default]
    Layout,
    /// Send one file after the other.
    File,
    /// Random order, determined by a seed.
    Random {
        /// Seed of the random order.
        seed: u64,
    },
}

/// Action for symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// Create the same link at the destination.
    #[default]
    Keep,
    /// Copy the file or folder that the link refers to.
    Follow,
    /// Report the link as a failed entry.
    Refuse,
}

/// Options of a transfer that both ends need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Condition under which bytes count as durable.
    pub durability: Durability,
    /// Action if a file already exists at the destination.
    pub overwrite: Overwrite,
    /// Order in which objects are sent.
    pub order: Order,
    /// Requested size of an object, in bytes.
    pub object_bytes: u64,
    /// True if the sink reads each published file back and compares its checksum.
    pub verify: bool,
    /// Treatment of durable ranges that an earlier run has written.
    #[serde(default)]
    pub resume: ResumeMode,
    /// True if extended attributes are copied.
    pub xattrs: bool,
    /// True if the sink stores the checksums of published files as extended attributes.
    pub checksum_attributes: bool,
    /// Maximum rate of this transfer in bytes per second; `None` means no limit.
    pub rate: Option<u64>,
    /// Stripes of new files at the sink; `None` leaves the choice to the sink.
    #[serde(default)]
    pub stripes: Option<StripeChoice>,
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
            stripes: None,
        }
    }
}

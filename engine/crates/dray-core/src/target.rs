//! Storage targets: the parts of a storage system that can be slow independently of each other.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A storage target of one end, such as a disk, a remote server, a brick, an OST or an OSD. The end
/// that owns the target assigns the number. The number has no meaning at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetId(pub u32);

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target {}", self.0)
    }
}

//! The OSD that serves an object.

/// Number of an OSD in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OsdId(pub u32);

/// The placement of objects on OSDs, at one epoch of the OSD map.
#[derive(Debug, Clone, Default)]
pub struct Placement {}

impl Placement {
    /// Returns the acting primary OSD of an object. Returns `None` if the pool or its placement is
    /// unknown.
    #[must_use]
    pub fn primary_of(&self, _pool: &str, _namespace: &str, _object: &[u8]) -> Option<OsdId> {
        None
    }
}

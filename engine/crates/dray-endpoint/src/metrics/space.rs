//! The metrics of the space of exported roots.

use super::{head, line};

/// Space of the storage of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootSpace {
    /// Name of the root.
    pub root: String,
    /// Bytes that the endpoint may still write.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

/// A metric: its name, its help text and its value for a root.
type Gauge = (&'static str, &'static str, fn(&RootSpace) -> u64);

const GAUGES: [Gauge; 2] = [
    (
        "dray_root_free_bytes",
        "Bytes that the endpoint may still write to the storage of a root.",
        |root| root.free,
    ),
    (
        "dray_root_size_bytes",
        "Size of the storage of a root in bytes.",
        |root| root.total,
    ),
];

/// Adds the space of the roots whose storage has answered.
pub(super) fn push(text: &mut String, roots: &[RootSpace]) {
    for (name, help, value) in GAUGES {
        head(text, name, "gauge", help);
        for root in roots {
            // The configuration restricts the name of a root to letters, digits, `-`, `_` and `.`.
            line(text, name, &format!("root=\"{}\"", root.root), value(root));
        }
    }
}

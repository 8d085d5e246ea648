//! Maps and sets keyed by names that a session looks up thousands of times a second: files,
//! objects, paths.
//!
//! The standard library's hash (`SipHash`) resists an attacker who chooses the keys, and costs more
//! than the rest of a look-up by a number of four bytes. foldhash costs little, and is seeded at
//! random. It does not resist a peer that measures for long, so no such map is shared between
//! sessions: an attack then slows down only the attacker's own transfer
//! (docs/decisions/0042-maps-by-foldhash.md).
//!
//! Create them with `default()`.

pub use foldhash::{HashMap, HashSet};

//! Maps and sets for keys that a session looks up thousands of times per second: files, objects,
//! paths.
//!
//! The hash function of the standard library (`SipHash`) resists an attacker who chooses the keys.
//! For a key of four bytes, this hash costs more than the remaining work of a look-up. The hash
//! function foldhash is cheaper, and its random seed is secret. A peer that measures response times
//! for long enough can still find keys that collide. So sessions do not share a map with foldhash,
//! and an attack slows down only the attacker's own transfer
//! (docs/decisions/0042-maps-by-foldhash.md).
//!
//! Create the maps and sets with `default()`.

pub use foldhash::{HashMap, HashSet};

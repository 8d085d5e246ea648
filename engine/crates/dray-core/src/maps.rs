//! Maps and sets for keys that a session looks up thousands of times per second: files, objects,
//! paths.
//!
//! The hash function of the standard library (`SipHash`) resists an attacker who chooses the keys.
//! For a key of four bytes, this hash costs more than the remaining work of a look-up. foldhash is
//! cheaper, and its seed is random. foldhash does not resist a peer that measures times for long.
//! So sessions do not share such a map, and an attack slows down only the attacker's own transfer
//! (docs/decisions/0042-maps-by-foldhash.md).
//!
//! Create the maps and sets with `default()`.

pub use foldhash::{HashMap, HashSet};

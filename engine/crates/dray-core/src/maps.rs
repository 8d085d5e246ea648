//! Maps and sets of what a session names thousands of times a second: files, objects, paths.
//!
//! The standard library's hash (`SipHash`) resists whoever chooses the keys, and costs more than the
//! rest of a look-up by a number of four bytes. foldhash costs little, and is seeded at random. It does
//! not resist a peer that measures for long, so no map is one of these that several sessions share:
//! then nobody else's transfers are slowed down (docs/decisions/0042-maps-by-foldhash.md).
//!
//! They are made by `default()`.

pub use foldhash::{HashMap, HashSet};

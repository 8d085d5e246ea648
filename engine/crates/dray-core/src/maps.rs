//! Maps and sets of what a transfer names thousands of times a second: files, objects, paths.
//!
//! The standard library's hash (`SipHash`) resists whoever chooses the keys, and costs more than the
//! rest of a look-up by a number of four bytes. foldhash costs little; its seed is another one in each
//! process, so keys that meet in one place cannot be known beforehand. Who finds some by asking and
//! measuring slows down transfers of its own session, and nobody else's
//! (docs/decisions/0042-maps-by-foldhash.md).
//!
//! They are made by `default()`.

use foldhash::fast::RandomState;

/// As the standard library's, with another hash.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// As the standard library's, with another hash.
pub type HashSet<T> = std::collections::HashSet<T, RandomState>;

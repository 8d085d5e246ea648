//! Who is it, and what may they do: bearer tokens ([`token`], [`jwk`], [`mint`]), what their scopes
//! allow ([`scope`], [`resource`]), certificates and proxies ([`x509`]), and the account a principal
//! is mapped to ([`map`]).
//!
//! Non-goals: I/O, clocks, sockets, fetching of keys and revocation lists. Bytes, chance and the
//! time come in; the time is in seconds since 1970-01-01T00:00:00Z.
//!
//! Invariants owned here: nothing is believed before its signature was checked; no error holds a
//! token or any part of a signature; no spelling of a path reaches further than its scope.

mod escape;
pub mod jwk;
pub mod map;
pub mod mint;
pub mod resource;
pub mod scope;
pub mod token;
pub mod x509;

pub use map::{Mapping, Owner, Principal};
pub use resource::Resource;
pub use scope::{Action, Scopes};
pub use token::{Issuer, Issuers, Refusal, Verified};

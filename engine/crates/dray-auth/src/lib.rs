//! Authentication and authorisation: bearer tokens ([`token`], [`jwk`], [`mint`]), the rights in
//! their scopes ([`scope`], [`resource`]), certificates and proxies ([`x509`]), and the account of
//! a principal ([`map`]).
//!
//! Non-goals: I/O, clocks, sockets, fetching of keys and revocation lists. The caller passes bytes,
//! randomness and the time, in seconds since 1970-01-01T00:00:00Z.
//!
//! Invariants owned here: no claim is trusted before its signature is verified. No error contains a
//! token or any part of a signature. No spelling of a path gives access outside the path of the
//! scope.

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
pub use token::{ExpectedLogin, Issuer, Issuers, LoggedIn, Refusal, Verified};

//! Files that a web server gives out, read by ranges: `http`, `https`, `dav` and `davs`.
//!
//! Purpose: [`HttpStore`], a source for any transfer. Size, time and entity tag come from PROPFIND
//! or HEAD; objects are ranges, each one GET on a kept connection, from any number of threads;
//! folders are listed where the server speaks WebDAV (XRootD's does). [`Credentials`] go to the
//! server they are meant for, and are never shown.
//!
//! [`HttpStore::put`] sends one file the other way, for third-party copies.
//!
//! Non-goals: retries (except for busy servers), caches, writing in pieces. Files whose changes
//! cannot be detected are refused.
//!
//! Invariant owned here: bytes of two versions of a file are never taken for one. Every answer is
//! compared with what was known when the file was opened; where answers say nothing of the version,
//! the server is asked again: once a second while others read, and after the last of the reads.

mod client;
mod credentials;
mod dav;
mod list;
mod names;
mod pause;
mod put;
mod read;
mod redirect;
mod store;
mod url;

pub use credentials::Credentials;
pub use put::{Sending, Verify};
pub use store::HttpStore;
pub use url::{HttpUrl, Origin};

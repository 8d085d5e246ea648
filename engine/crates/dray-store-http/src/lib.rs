//! Reads files of a web server by ranges: `http`, `https`, `dav` and `davs`.
//!
//! Purpose: [`HttpStore`], a source for any transfer. Size, time and entity tag come from PROPFIND
//! or HEAD; objects are ranges, each one GET on a kept connection, from any number of threads.
//! Folders are listed where the server speaks WebDAV (XRootD's does). [`Credentials`] are sent only
//! to the server they belong to, and are never shown.
//!
//! [`HttpStore::put`] sends one file to a server, for third-party copies.
//!
//! Non-goals: retries (except for busy servers), caches, writing in pieces. Files whose changes
//! cannot be detected are refused.
//!
//! Invariant owned here: bytes of two versions of a file are never mixed. Every answer is compared
//! with the state at the opening of the file. If answers carry no version, the store queries the
//! server again: once a second during reads, and after the last read.

mod client;
mod credentials;
mod dav;
mod list;
mod names;
mod pause;
mod put;
mod read;
mod redirect;
mod server;
mod store;
mod url;

pub use credentials::Credentials;
pub use put::{Sending, Verify};
pub use store::HttpStore;
pub use url::{HttpUrl, Origin};

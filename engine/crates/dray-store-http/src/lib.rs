//! Reads byte ranges of files on a web server: `http`, `https`, `dav` and `davs`.
//!
//! [`HttpStore`] is a source for transfers. It gets the size, time and entity tag of a file by
//! PROPFIND or HEAD. It reads each object as a range with one GET on a persistent connection, and
//! any number of threads can read. It lists folders if the server supports WebDAV, as XRootD's HTTP
//! server does. [`Credentials`] are sent only to the server to which they belong, and are never
//! printed. [`HttpStore::put`] sends one file to a server, for third-party copies.
//!
//! This crate does not cache, does not write files in pieces, and retries only if a server is busy.
//! It refuses files whose changes cannot be detected.
//!
//! Invariant: bytes of two versions of a file are never mixed. The store compares every answer with
//! the state of the file when it was opened. If answers contain no version, the store asks the
//! server again once a second during reads, and after the last read.

mod address_policy;
mod client;
mod credentials;
mod dav;
mod integrity;
mod list;
mod names;
mod pause;
mod put;
mod read;
mod redirect;
mod server;
mod store;
mod url;

pub use address_policy::{AddressPolicy, AddressSet};
pub use credentials::Credentials;
pub use integrity::read_repr_digest;
pub use put::{Expected, Sending, Verify};
pub use store::HttpStore;
pub use url::{HttpUrl, Origin};

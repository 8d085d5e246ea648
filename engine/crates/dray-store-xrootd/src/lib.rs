//! Reads and writes files of XRootD servers (`root://`, `roots://`).
//!
//! Contents: [`XrootdStore`], which reads through the XRootD client; [`XrootdSink`], a store that
//! writes to one folder; [`Url`], the URL of a file on a server; [`checksum`], which requests a
//! server's checksum of a file.
//!
//! XrdCl implements the protocol. This crate does not retry beyond XrdCl's own retries.
//!
//! Invariants:
//!
//! - The client library is loaded when the first URL is used. The library has a plain C interface
//!   (plugins/xrootd/xrdcl), so dray builds and runs without XRootD.
//! - A URL with the key of a third-party copy permits one opening. So its file is opened once,
//!   unless the server's answer is lost (module `key`).
//! - Messages contain no secret of a URL.
//! - The process ends without the exit handlers of the client ([`end_process`]).
//!
//! docs/design/xrootd.md describes the design.

mod barrier;
mod checksum;
mod choice;
#[expect(unsafe_code, reason = "the XRootD client is reached by a C interface")]
mod client;
mod cluster;
mod control;
mod files;
mod key;
mod ledger;
mod list;
mod located;
mod note;
mod partial;
mod read;
mod replicas;
mod server;
mod sink;
mod small;
mod store;
mod sync;
mod url;

pub use checksum::checksum;
pub use client::{LIBRARY_VARIABLE, end_process, set_substreams};
pub use sink::{SinkOptions, XrootdSink};
pub use store::{Authorised, XrootdOptions, XrootdStore};
pub use url::Url;

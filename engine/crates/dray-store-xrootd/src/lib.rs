//! Reads and writes files of XRootD servers (`root://`, `roots://`).
//!
//! Purpose: a [`Readable`](dray_store::Readable) over the XRootD client, [`XrootdStore`]; a store
//! that writes to one folder, [`XrootdSink`]; the URL of a file on a server, [`Url`]; a server's
//! checksums of its files, [`checksum`].
//!
//! Non-goals: the protocol itself (XrdCl speaks it), retries beyond XrdCl's own.
//!
//! Invariants owned here: the client is loaded when the first URL is used and not before, from a
//! library with a plain C interface (plugins/xrootd/xrdcl), so that dray builds and runs without
//! XRootD; a file authorised for one opening is opened once, unless the answer is lost (`key`);
//! messages contain no secret of a URL; a process ends without the client's exit handlers
//! ([`end_process`]). In prose: docs/design/xrootd.md.

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

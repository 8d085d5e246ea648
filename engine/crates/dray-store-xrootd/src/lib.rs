//! Files of XRootD servers (`root://`, `roots://`), to be read and written.
//!
//! Purpose: a [`Readable`](dray_store::Readable) over the XRootD client, [`XrootdStore`]; a store of one
//! folder to write to, [`XrootdSink`]; what a URL of such a server says, [`Url`]; the checksums that a
//! server knows of its files, [`checksum`].
//!
//! Non-goals: the protocol itself (XrdCl speaks it), retries beyond those that XrdCl makes by itself.
//!
//! Invariants owned here: the client is loaded when the first URL is used and not before, from a
//! library with a plain C interface (plugins/xrootd/xrdcl), so that dray is built, and runs, where
//! there is no XRootD; what was authorised for one opening is opened once, unless the answer is lost
//! (`key`); no secret of a URL is in a message; a process ends without the client's exit handlers
//! ([`end_process`]). In prose: docs/design/xrootd.md.

mod barrier;
mod checksum;
mod choice;
#[expect(unsafe_code, reason = "the XRootD client is reached by a C interface")]
mod client;
mod cluster;
mod control;
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
mod url;

pub use checksum::checksum;
pub use client::{LIBRARY_VARIABLE, end_process, set_substreams};
pub use sink::{SinkOptions, XrootdSink};
pub use store::{Authorised, XrootdOptions, XrootdStore};
pub use url::Url;

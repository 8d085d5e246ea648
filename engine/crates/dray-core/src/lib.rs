//! Types of a transfer that all other crates use.
//!
//! Contents: files, objects, manifests, storage targets, rates, ids; errors with kind and status;
//! checksums that combine; the division of files into objects; the decision to retry.
//!
//! This crate does no I/O, reads no clock and starts no threads. The caller passes the time as an
//! argument ([`time::Time`]). Functions borrow the caller's bytes.
//!
//! Invariant: the checksum of a whole file is the combination of the checksums of its parts, and
//! the parts may arrive in any order ([`checksum`], [`summed`]).

pub mod attribute;
pub mod checksum;
pub mod connections;
pub mod content;
pub mod entry;
pub mod error;
mod fingerprint;
pub mod ids;
pub mod layout;
pub mod lock;
pub mod log_form;
pub mod maps;
pub mod options;
mod parse_path;
pub mod path;
pub mod patterns;
pub mod plan;
pub mod profile;
pub mod range;
pub mod rate;
pub mod retry;
pub mod stripes;
pub mod summed;
pub mod target;
pub mod time;
mod trace_context;
pub mod units;
pub mod url;
pub mod utc;

pub use checksum::{Checksum, Sums};
pub use content::{ContentKey, Required};
pub use entry::{Entry, EntryKind, FileKind, Metadata, ModifiedTime};
pub use error::{End, Error, ErrorKind, Result, Status};
pub use fingerprint::Fingerprint;
pub use ids::{BlockId, BufferId, FileIndex, PeerId, StreamId, TransferId};
pub use layout::{Extent, Layout};
pub use log_form::{LogChoice, LogForm, LogMechanism, LogMethod};
pub use path::{Name, RelPath};
pub use range::{ByteRange, RangeSet};
pub use stripes::StripeChoice;
pub use summed::SummedRanges;
pub use target::TargetId;
pub use time::Time;
pub use trace_context::TraceContext;

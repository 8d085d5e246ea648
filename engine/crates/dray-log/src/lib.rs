//! The object log: the durable record of the byte ranges that the sink has stored.
//!
//! The log has one writer, the sink that holds the lease. The writer opens a [`UniversalLog`],
//! announces each partial file, records ranges when they are durable, and commits in groups. The
//! next run, on any host, reads the log. It calls [`recover()`], and [`trust`] decides which ranges
//! are still valid.
//!
//! Properties of the log:
//!
//! - Only recorded ranges are trusted.
//! - A torn tail loses only records that were not committed.
//! - Damage in the middle of the log is distinguished from a torn tail.
//! - Memory grows with the number of gaps in unfinished files. It does not grow with the size of
//!   files or the number of claims.
//! - A log has one of several forms ([`dray_core::LogForm`]), which follow FT-LADS (Kasu et al. 2019).
//!
//! This crate does no I/O ([`LogFile`] does) and takes no locks. It does not decide when to sync or
//! in which order objects are sent.
//!
//! Invariant: recovery returns a range of a file, with its sums, only if the log contains a record
//! of this range and these sums for the file, and no record of the end of the file.
//! docs/design/object-log.md specifies the byte format.
//!
//! ```
//! use dray_core::{ByteRange, ContentKey, ModifiedTime, Name, RelPath, Sums, TransferId};
//! use dray_core::options::Durability;
//! use dray_log::{BootId, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Tenure};
//! use dray_log::{UniversalLog, recover};
//!
//! # fn main() -> dray_core::Result<()> {
//! let tenure = Tenure {
//!     epoch: 1,
//!     holder: "host.example pid 7".into(),
//!     transfer: TransferId::new("run-1")?,
//!     boot_id: BootId::new(&[7; 16])?,
//!     durability: Durability::File,
//! };
//! let header = Header::new(Vec::new(), b"user".to_vec(), 0x5eed, "dray 0.1.0", tenure);
//! let mut log = UniversalLog::create(MemoryFile::new(), header)?;
//! let number = log.begin_file(FileBegin {
//!     path: RelPath::parse(b"run/a.root")?,
//!     key: ContentKey {
//!         size: 5,
//!         demanded: None,
//!         modified: ModifiedTime::default(),
//!         precision_nanoseconds: 1,
//!         identity: Vec::new(),
//!     },
//!     object_bytes: std::num::NonZeroU64::MIN.saturating_add(4095),
//!     partial: PartialFile { name: Name::new(b".dray-0.part")?, device: 1, inode: 2, born: 0 },
//! })?;
//! // At this point the five bytes have been written and synced.
//! log.done(number, ByteRange::between(0, 5), Sums::of(b"hello"))?;
//! log.commit()?; // Only now may the sink report the range as durable.
//!
//! let found = recover(&mut log.into_file())?.expect("a log was made");
//! let file = &found.files[&RelPath::parse(b"run/a.root")?];
//! assert_eq!(file.done.whole(5), Some(Sums::of(b"hello")));
//! # Ok(())
//! # }
//! ```

mod codec;
pub mod compact;
mod file;
mod frame;
mod input;
pub mod layout;
pub mod lease;
mod log;
pub mod neighbours;
pub mod pieces;
mod positions;
mod record;
mod recover;
mod scan;
pub mod trust;
mod universal;

pub use codec::{CLAIMS_MAX, HEADER_BYTES_MAX, IDENTITY_BYTES_MAX, OWNER_BYTES_MAX};
pub use file::{LogFile, MemoryFile, PartAccess};
pub use frame::{MAGIC, VERSION, VERSION_OLDEST};
pub use lease::{LeaseRecord, LockKind};
pub use log::ObjectLog;
pub use record::{
    BootId, Ending, FileBegin, FileNumber, Header, LoggedFile, PartialFile, TEXT_BYTES_MAX, Tenure,
};
pub use recover::{Damage, Limits, LostBytes, Recovery, recover, recover_within};
pub use universal::UniversalLog;

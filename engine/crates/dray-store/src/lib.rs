//! Stores: reading and writing files of one root.
//!
//! Purpose: the [`Store`] trait that every backend implements, with declared [`Capabilities`]; the
//! backends of every build ([`PosixStore`], [`MemoryStore`], [`NullStore`]); wrappers with the same
//! trait ([`mod@wrap`]: limit, trace, chaos); one [`conformance`] suite for all backends; for
//! backends with several [`connections`] to one server, the choice of the connection for each call.
//!
//! Non-goals: retries, scheduling, the wire protocol, threads. A store executes each call once.
//!
//! Invariant owned here: a file appears under its final name only by one atomic step, and no path
//! leads out of the store's root. The contract in prose: docs/design/stores.md.

pub mod conformance;
pub mod connections;
pub mod errno;
mod ext;
mod folder_lister;
pub mod memory;
pub mod null;
pub mod posix;
mod read_only;
mod store;
mod targets;
mod types;
pub mod wrap;

pub use ext::{ReadExt, StoreExt};
pub use folder_lister::{EntryState, FolderEntries, FolderEntry, FolderLister, FolderSource};
pub use memory::MemoryStore;
pub use null::{NullStore, NullTree};
pub use posix::{LinkScope, PosixOptions, PosixStore};
pub use read_only::{ReadOnly, Readable};
pub use store::{ControlFile, Lister, Partial, ReadHandle, Store, unsupported};
pub use targets::{TargetMap, Targets};
pub use types::{
    Attributes, Capabilities, ControlMode, FileKind, FileState, FreeSpace, Holding, InodeState,
    ListOptions, Listed, MadeDir, Noted, PartialId, PartialRequest, Publish, ReadPurpose,
    ReadState, SmallFile, SmallName, SyncItem, Target,
};
pub use wrap::{WrapOptions, wrap};

/// Maximum number of names that [`Store::list_control`] returns. A control folder holds one log and
/// one lease per unfinished file or tree; a folder with more names is not dray's (guess, revisit).
pub const CONTROL_NAMES_MAX: usize = 65_536;

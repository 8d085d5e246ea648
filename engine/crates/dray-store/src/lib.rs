//! Stores: reading and writing the files below one root.
//!
//! The crate contains:
//!
//! - the [`Store`] trait, which every backend implements, with declared [`Capabilities`];
//! - the backends that every build has: [`PosixStore`], [`DisksStore`],
//!   [`MemoryStore`], [`NullStore`];
//! - wrappers that are stores themselves ([`mod@wrap`]: limit, trace, chaos);
//! - one [`conformance`] suite for all backends;
//! - [`faults`], which `dray chaos` injects into system calls;
//! - pools of [`connections`] for backends that use several connections to one server;
//! - [`state_watch`], which decides when a backend asks its server for the state of an open file.
//!
//! A store does not retry or schedule calls, or know the wire protocol. It starts no threads for
//! calls, except for a listing. It executes each call once.
//!
//! Invariants: a file gets its final name in one atomic step, and no path leads out of the store's
//! root. docs/design/stores.md describes the contract.

pub mod conformance;
pub mod connections;
pub mod disks;
pub mod errno;
mod ext;
pub mod faults;
mod file_note;
mod folder_lister;
pub mod gluster;
pub mod lustre;
pub mod memory;
pub mod null;
pub mod posix;
mod read_only;
pub mod state_watch;
mod store;
mod targets;
mod types;
pub mod wrap;

pub use disks::{DisksOptions, DisksStore};
pub use ext::{ReadExt, StoreExt};
pub use file_note::FileNote;
pub use folder_lister::{EntryState, FolderEntries, FolderEntry, FolderLister, FolderSource};
pub use memory::MemoryStore;
pub use null::{NullStore, NullTree};
pub use posix::{LinkScope, PosixOptions, PosixStore};
pub use read_only::{ReadOnly, Readable};
pub use store::{ControlFile, Lister, Partial, ReadHandle, Store, unsupported};
pub use targets::{TargetMap, Targets};
pub use types::{
    Attributes, Capabilities, ControlMode, FileKind, FileState, FolderVersion, FreeSpace, Holding,
    InodeState, ListOptions, Listed, MadeDir, Noted, PartialId, PartialRequest, Publish,
    ReadPurpose, ReadState, SmallFile, SmallName, SyncItem, Target,
};
pub use wrap::{WrapOptions, wrap};

/// Maximum number of names that [`Store::list_control`] returns; the call fails for a folder with
/// more. A control folder has one log and one lease for each unfinished file or tree, so dray
/// itself does not make so many names in one folder. The value is estimated, not measured.
pub const CONTROL_NAMES_MAX: usize = 65_536;

//! The domain model of the control API: requests, routes, answers, events, paths and times.
//!
//! Purpose: one set of types for the endpoint, its clients and the OpenAPI document. Each type
//! checks its bounds and states them in its schema.
//!
//! Non-goals: I/O, HTTP, the clock, the rights of a caller.
//!
//! Invariant of this crate: a request that passed [`Check::check`] is within all bounds of its
//! schema. If the check fails, the error names the field.

mod admission;
mod answer;
pub mod api_path;
mod checks;
mod endpoint;
pub mod enums;
mod events;
mod failure;
mod files;
mod live;
mod load;
mod parts;
mod peers;
mod profile;
mod renamed;
mod request;
mod route;
mod scheduling;
mod space_claim;
mod staging;
mod standing;
mod storage;
mod streams;
mod tape;
mod targets;
mod tickets;
mod tier_writes;
mod tiers;
pub mod timestamp;
mod transfer;
mod transfer_log;

pub use admission::{AdmissionAnswer, AdmissionRequest, Admitted, Decision, ObstacleAnswer};
pub use answer::read_answer;
pub use api_path::{ApiPath, Side, names_peer};
pub use checks::{Check, of_item};
pub use endpoint::{EndpointAnswer, Health, LimitsAnswer, RootAnswer, You};
pub use enums::{AdmissionWord, Direction, OrderWord};
pub use events::{Event, EventKind, Events, EventsQuery, PlannedRate};
pub use failure::{ErrorAnswer, ErrorParts, PathError, kind_word};
pub use files::FileWish;
pub use live::{FolderSums, LiveFile, LiveFileState, LiveFiles};
pub use load::{EndpointLoad, HiddenLoad, PromiseAnswer, SessionAnswer, SessionDirection};
pub use parts::{Content, Place, Range, RateWish, RetryWish, SciTag, Selection};
pub use peers::{
    PeerAnswer, PeerList, PeerListRequest, PeerMkdirRequest, PeerQuery, PeerTicketRequest,
    PeerToken,
};
pub use profile::{ProfileAnswer, StageWord};
pub use renamed::with_valid_name;
pub use request::{Request, reserved_id};
pub use route::Route;
pub use scheduling::{PolicyName, RoundRobinBy, Scheduling, SchedulingPatch};
pub use space_claim::SpaceClaimAnswer;
pub use staging::{
    PinRequest, Staged, StagedDirection, StagedList, StagedState, StagingQuery, StagingRequest,
};
pub use standing::{State, StateWord};
pub use storage::{
    Algorithm, ChecksumAnswer, ChecksumRequest, Entry, EntryList, EntryType, ListQuery,
    MkdirRequest, PathQuery, RenameRequest, RmAnswer, RmRequest, SpaceAnswer, SumOrigin,
};
pub use streams::{STREAMS_MAX, Streams};
pub use tape::{
    TAPE_FILES_MAX, TapeDiscovery, TapeFileInfo, TapeFileRequest, TapeFileState, TapeFileStatus,
    TapeLocality, TapePaths, TapeProblem, TapeStageRequest, TapeStageStatus, TapeStaged,
    TapeVersion, without_doubled_slashes,
};
pub use targets::{TargetAnswer, TargetEnd, TargetList, TargetState, TargetsQuery};
pub use tickets::{
    MintedTicket, RenewRequest, TICKET_ALPHABET, TICKET_PREFIX, TICKET_RANDOM_BYTES, Ticket,
    TicketList, TicketPatch, TicketQuery, TicketRequest, is_ticket, shown_id, without_tickets,
};
pub use tier_writes::{WriteJob, WriteList, WritePlacement, WriteQuery, WriteRequest, WriteState};
pub use tiers::{
    TierAnswer, TierDetail, TierDevice, TierList, TierPattern, TierReplicaAnswer, TierReplicaState,
    TierVersionAnswer, TierVersionState,
};
pub use timestamp::Timestamp;
pub use transfer::{
    BatchAnswer, BatchItem, BatchRequest, BatchResult, Bytes, CancelRequest, EtaAnswer, FileList,
    FileOutcome, FileState, Files, FilesQuery, MissAnswer, Objects, Patch, QueryAnswer,
    QueryRequest, RateLimitAnswer, RateLimitWord, Rates, ReasonWord, ReceiptKeys, ReceiptQuery,
    ReceiptReference, Transfer, TransferList, TransferOrNull, TransferQuery, WaitQuery,
};
pub use transfer_log::{
    LOG_RANGES_MAX, LogAnswer, LogFileAnswer, LogQuery, LogRange, LogVerdict, TransferLogAnswer,
};

/// Maximum number of items of one page, and of one batch.
pub const PAGE_MAX: u32 = 1_000;

/// Default number of items of a page.
pub const PAGE_DEFAULT: u32 = 100;

/// Maximum seconds of a long poll.
pub const POLL_SECONDS_MAX: u64 = 60;
/// Default seconds of a long poll.
pub const POLL_SECONDS_DEFAULT: u64 = 30;

pub(crate) const fn page_default() -> u32 {
    PAGE_DEFAULT
}

pub(crate) const fn poll_default() -> u64 {
    POLL_SECONDS_DEFAULT
}

//! The faults of a world: the plan that follows from the seed, and a table of the faults that
//! occurred.

use dray_sched::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

/// Minimum number of faults in a world.
pub const FAULTS_MIN: u64 = 2;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`words` says what each is")]
pub enum Fault {
    SinkCrash,
    SinkKill,
    SourceKill,
    ConnectionLost,
    StreamLost,
    CorruptPayload,
    CorruptHead,
    Duplicate,
    NoSpaceOnce,
    NoSpace,
    WriteError,
    SyncError,
    WriteBackLost,
    LogError,
    ReadError,
    ShortRead,
    SourceChanged,
    BitRot,
    Stall,
    Cancel,
    Takeover,
    Tampered,
}

impl Fault {
    /// All kinds of faults.
    pub const ALL: [Self; 22] = [
        Self::SinkCrash,
        Self::SinkKill,
        Self::SourceKill,
        Self::ConnectionLost,
        Self::StreamLost,
        Self::CorruptPayload,
        Self::CorruptHead,
        Self::Duplicate,
        Self::NoSpaceOnce,
        Self::NoSpace,
        Self::WriteError,
        Self::SyncError,
        Self::WriteBackLost,
        Self::LogError,
        Self::ReadError,
        Self::ShortRead,
        Self::SourceChanged,
        Self::BitRot,
        Self::Stall,
        Self::Cancel,
        Self::Takeover,
        Self::Tampered,
    ];

    /// Returns the description of the fault.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::SinkCrash => "crash of the sink's host",
            Self::SinkKill => "kill of the sink",
            Self::SourceKill => "kill of the source",
            Self::ConnectionLost => "connection lost",
            Self::StreamLost => "stream lost",
            Self::CorruptPayload => "corrupt payload",
            Self::CorruptHead => "corrupt head",
            Self::Duplicate => "an object arrives twice",
            Self::NoSpaceOnce => "no space for a short time",
            Self::NoSpace => "no space",
            Self::WriteError => "write error",
            Self::SyncError => "sync error",
            Self::WriteBackLost => "write-back lost, not yet reported",
            Self::LogError => "log append or sync error",
            Self::ReadError => "read error",
            Self::ShortRead => "short read",
            Self::SourceChanged => "source changed",
            Self::BitRot => "bit rot before verification",
            Self::Stall => "slow target",
            Self::Cancel => "cancel",
            Self::Takeover => "lease taken over",
            Self::Tampered => "partial file tampered with",
        }
    }

    /// Returns the reason why this fault cannot occur in `phase`. Returns `None` for a possible
    /// combination, which the runs must cover.
    #[must_use]
    pub const fn impossible(self, phase: Phase) -> Option<&'static str> {
        match (self, phase) {
            (
                Self::CorruptPayload
                | Self::CorruptHead
                | Self::Duplicate
                | Self::NoSpaceOnce
                | Self::NoSpace
                | Self::WriteError
                | Self::ReadError
                | Self::ShortRead,
                Phase::Closing,
            ) => Some("after the verdict no object is read, sent or written"),
            (Self::SyncError, Phase::Syncing) => None,
            (Self::SyncError, _) => Some("the sink syncs file content only in the phase `Syncing`"),
            (Self::WriteBackLost, Phase::Listing | Phase::Closing) => {
                Some("the page cache has no bytes to write back")
            }
            (Self::LogError, Phase::Logging) => None,
            (Self::LogError, _) => Some("the sink appends to the log only in the phase `Logging`"),
            (Self::BitRot, Phase::Publishing) => None,
            (Self::BitRot, _) => Some("the sink reads files back only in the phase `Publishing`"),
            (Self::Tampered, Phase::Listing) => None,
            (Self::Tampered, _) => Some("the fault happens between two runs"),
            _ => None,
        }
    }
}

/// Progress of a session, as seen by the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No data is written yet.
    Listing,
    /// Objects are being written, and no later phase has begun.
    Moving,
    /// A sync is in progress.
    Syncing,
    /// Records are being appended to the log.
    Logging,
    /// Files are being read back, renamed, or given attributes.
    Publishing,
    /// The verdict was sent.
    Closing,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 6] = [
        Self::Listing,
        Self::Moving,
        Self::Syncing,
        Self::Logging,
        Self::Publishing,
        Self::Closing,
    ];
}

/// One planned fault.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// The fault.
    pub fault: Fault,
    /// The phase in which the fault must occur.
    pub phase: Phase,
    /// Number of events in this phase before the fault.
    pub after: u64,
}

/// Returns the faults of one world: `count` faults, or three to six if `count` is `None`. The cells
/// are the possible pairs of a fault and a phase. Consecutive seeds start at different cells, so
/// that every cell is tried.
#[must_use]
pub fn plan(seed: u64, count: Option<u64>, draw: &mut Rng) -> VecDeque<Planned> {
    let mut cells: Vec<(Fault, Phase)> = Fault::ALL
        .into_iter()
        .flat_map(|fault| Phase::ALL.map(|phase| (fault, phase)))
        .filter(|(fault, phase)| fault.impossible(*phase).is_none())
        .collect();
    // The publishing phase is short, so faults that need an object or a read-back often miss it.
    // Plan these faults more often.
    for fault in [
        Fault::CorruptPayload,
        Fault::CorruptHead,
        Fault::Duplicate,
        Fault::WriteError,
        Fault::ReadError,
        Fault::BitRot,
        Fault::BitRot,
    ] {
        cells.push((fault, Phase::Publishing));
    }
    let usual = 3 + draw.below(4);
    let count = count.unwrap_or(usual);
    let first = seed.wrapping_mul(5);
    let mut planned: Vec<Planned> = (0..count)
        .map(|number| {
            let spread = number.wrapping_mul(37);
            let at = first.wrapping_add(spread) % cells.len() as u64;
            let (fault, phase) = cells[at as usize];
            Planned {
                fault,
                phase,
                after: draw.below(12),
            }
        })
        .collect();
    // Sort the faults roughly by the phases of a session, so that several can occur in one session.
    planned.sort_by_key(|fault| fault.phase);
    planned.into()
}

/// Number of times that each fault occurred in each phase.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    hits: BTreeMap<(Fault, Phase), u64>,
}

impl Coverage {
    /// Counts one occurrence.
    pub fn hit(&mut self, fault: Fault, phase: Phase) {
        *self.hits.entry((fault, phase)).or_default() += 1;
    }

    /// Returns the number of times that `fault` occurred in `phase`.
    #[must_use]
    pub fn count(&self, fault: Fault, phase: Phase) -> u64 {
        self.hits.get(&(fault, phase)).copied().unwrap_or(0)
    }

    /// Returns the total number of faults that occurred.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.hits.values().sum()
    }

    /// Adds the counts of another table.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.hits {
            *self.hits.entry(*cell).or_default() += count;
        }
    }

    /// Returns the possible combinations of fault and phase that occurred fewer than `least` times.
    #[must_use]
    pub fn missing(&self, least: u64) -> Vec<(Fault, Phase, u64)> {
        let mut missing = Vec::new();
        for fault in Fault::ALL {
            for phase in Phase::ALL {
                let count = self.count(fault, phase);
                if fault.impossible(phase).is_none() && count < least {
                    missing.push((fault, phase, count));
                }
            }
        }
        missing
    }

    /// Returns the table as text, with `-` for impossible combinations.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<28}", "");
        for phase in Phase::ALL {
            let _ = write!(text, "{:>11}", format!("{phase:?}").to_lowercase());
        }
        for fault in Fault::ALL {
            let _ = write!(text, "\n{:<28}", fault.words());
            for phase in Phase::ALL {
                let count = match fault.impossible(phase) {
                    Some(_) => "-".to_owned(),
                    None => self.count(fault, phase).to_string(),
                };
                let _ = write!(text, "{count:>11}");
            }
        }
        text
    }
}

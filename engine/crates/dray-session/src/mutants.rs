//! Defects that the simulator plants in a machine: one for each invariant that the machine's state
//! shows (`check_invariants`). Without the feature `mutants` a machine never has a defect.

/// A planted defect, named after the rule that it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// The source frees a buffer when it passes it to a stream.
    SourceFreesUnsentBuffer,
    /// The source picks the object of a written block again while the block has no final state.
    SourceReopensWrittenObject,
    /// The source keeps closed entries, and accepts a verdict while entries are open.
    SourceAcceptsEarlyVerdict,
    /// The sink frees the buffer of a written block, but the block keeps the buffer too.
    SinkKeepsFreedBuffer,
    /// The sink accepts an object again while its first attempt is being written.
    SinkAcceptsSecondAttempt,
    /// The sink adds a block to a sync group when the write begins, before the write ends.
    SinkGroupsUnwrittenBlock,
    /// The sink counts a written range as known before the record of the range is logged.
    SinkKnowsUnloggedRange,
    /// The sink gives its verdict at the end of the listing, while files are open.
    SinkGivesEarlyVerdict,
}

impl Mutant {
    /// All defects.
    pub const ALL: [Self; 8] = [
        Self::SourceFreesUnsentBuffer,
        Self::SourceReopensWrittenObject,
        Self::SourceAcceptsEarlyVerdict,
        Self::SinkKeepsFreedBuffer,
        Self::SinkAcceptsSecondAttempt,
        Self::SinkGroupsUnwrittenBlock,
        Self::SinkKnowsUnloggedRange,
        Self::SinkGivesEarlyVerdict,
    ];

    /// Returns the defect's name on the simulator's command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceFreesUnsentBuffer => "source-frees-unsent-buffer",
            Self::SourceReopensWrittenObject => "source-reopens-written-object",
            Self::SourceAcceptsEarlyVerdict => "source-accepts-early-verdict",
            Self::SinkKeepsFreedBuffer => "sink-keeps-freed-buffer",
            Self::SinkAcceptsSecondAttempt => "sink-accepts-second-attempt",
            Self::SinkGroupsUnwrittenBlock => "sink-groups-unwritten-block",
            Self::SinkKnowsUnloggedRange => "sink-knows-unlogged-range",
            Self::SinkGivesEarlyVerdict => "sink-gives-early-verdict",
        }
    }

    /// Returns the name of the invariant that the defect breaks.
    #[must_use]
    pub const fn invariant(self) -> &'static str {
        match self {
            Self::SourceFreesUnsentBuffer | Self::SinkKeepsFreedBuffer => crate::invariants::POOL,
            Self::SourceReopensWrittenObject | Self::SinkAcceptsSecondAttempt => {
                crate::invariants::ATTEMPT
            }
            Self::SinkGroupsUnwrittenBlock => crate::invariants::ACK,
            Self::SinkKnowsUnloggedRange => crate::invariants::RECORD,
            Self::SourceAcceptsEarlyVerdict | Self::SinkGivesEarlyVerdict => {
                crate::invariants::VERDICT
            }
        }
    }
}

/// The defect of a machine, if any.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Planted(Option<Mutant>);

impl Planted {
    #[cfg(feature = "mutants")]
    pub(crate) const fn new(mutant: Mutant) -> Self {
        Self(Some(mutant))
    }

    /// Returns true if the machine has this defect.
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(mutant)
    }

    /// Returns true if the machine has any defect.
    pub(crate) const fn is_any(self) -> bool {
        cfg!(feature = "mutants") && self.0.is_some()
    }
}

//! Deliberate defects that the simulator plants in a machine, to prove that `check_invariants`
//! detects them. There is at least one defect for each invariant that can be checked in the state
//! of a machine. Without the feature `mutants` no machine has a defect.

/// A planted defect, named after the rule that the defect breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// The source frees a buffer when it passes the buffer to a stream, before the stream has sent
    /// the bytes.
    SourceFreesUnsentBuffer,
    /// The source sends an object a second time after the sink has written the object and before
    /// the sink reports it as durable.
    SourceReopensWrittenObject,
    /// The source does not remove closed entries, and accepts a verdict while entries are open.
    SourceAcceptsEarlyVerdict,
    /// The sink frees the buffer of a written block without removing the buffer from the block.
    SinkKeepsFreedBuffer,
    /// The sink accepts an object again while its first attempt is being written.
    SinkAcceptsSecondAttempt,
    /// The sink adds a block to a sync group at the start of the write instead of at its end.
    SinkGroupsUnwrittenBlock,
    /// The sink counts a written range as durable before the record of the range is in the log.
    SinkKnowsUnloggedRange,
    /// The sink sends its verdict at the end of the listing, although files are open.
    SinkGivesEarlyVerdict,
    /// The sink syncs both groups concurrently although both have ranges of the same file.
    SinkSyncsFileTwice,
}

impl Mutant {
    /// All defects.
    pub const ALL: [Self; 9] = [
        Self::SourceFreesUnsentBuffer,
        Self::SourceReopensWrittenObject,
        Self::SourceAcceptsEarlyVerdict,
        Self::SinkKeepsFreedBuffer,
        Self::SinkAcceptsSecondAttempt,
        Self::SinkGroupsUnwrittenBlock,
        Self::SinkKnowsUnloggedRange,
        Self::SinkGivesEarlyVerdict,
        Self::SinkSyncsFileTwice,
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
            Self::SinkSyncsFileTwice => "sink-syncs-file-twice",
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
            Self::SinkGroupsUnwrittenBlock | Self::SinkSyncsFileTwice => crate::invariants::ACK,
            Self::SinkKnowsUnloggedRange => crate::invariants::RECORD,
            Self::SourceAcceptsEarlyVerdict | Self::SinkGivesEarlyVerdict => {
                crate::invariants::VERDICT
            }
        }
    }
}

/// The defect planted in a machine, if any.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Planted(Option<Mutant>);

impl Planted {
    #[cfg(feature = "mutants")]
    pub(crate) const fn new(mutant: Mutant) -> Self {
        Self(Some(mutant))
    }

    pub(crate) fn is(self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(mutant)
    }

    pub(crate) const fn is_any(self) -> bool {
        cfg!(feature = "mutants") && self.0.is_some()
    }
}

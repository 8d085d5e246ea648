//! Planted defects. Each is what a careless executor or machine might do; the checkers must catch
//! each in at least one of a hundred seeds. They stay as the test of the tests.

/// A planted defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// The word "written" to the source says "durable".
    AckBeforeDurable,
    /// Records are appended with the group after theirs.
    RecordAfterAck,
    /// A file gets its final name when its last byte is written.
    RenameBeforeLastRecord,
    /// A bit flips between the comparison of checksums and the write.
    WrongBit,
    /// An object is taken for another one of its file; its checksums still match its bytes.
    OffsetNotBound,
    /// A sync is answered without having been done.
    SkippedSync,
    /// A holder that lost the lease goes on.
    LeaseIgnored,
    /// The log is believed whatever stands beside it.
    TrustBlindly,
    /// The log goes as soon as the verdict is told.
    LogRemovedEarly,
    /// Read-back is answered from memory.
    VerificationSkipped,
    /// An object that is safe is asked for again.
    AttemptDoubled,
    /// Each grant of credit is doubled.
    CreditDoubled,
    /// The sink breaks off without a word.
    ReasonKept,
    /// After a failed sync the sink continues in the same inode and trusts the next sync.
    BelievesASyncAfterAFailedOne,
    /// Ranges of an earlier run are not read back.
    TrustsResumedRanges,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::AckBeforeDurable,
        Self::RecordAfterAck,
        Self::RenameBeforeLastRecord,
        Self::WrongBit,
        Self::OffsetNotBound,
        Self::SkippedSync,
        Self::LeaseIgnored,
        Self::TrustBlindly,
        Self::LogRemovedEarly,
        Self::VerificationSkipped,
        Self::AttemptDoubled,
        Self::CreditDoubled,
        Self::ReasonKept,
        Self::BelievesASyncAfterAFailedOne,
        Self::TrustsResumedRanges,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckBeforeDurable => "ack-before-durable",
            Self::RecordAfterAck => "record-after-ack",
            Self::RenameBeforeLastRecord => "rename-before-last-record",
            Self::WrongBit => "wrong-bit",
            Self::OffsetNotBound => "offset-not-bound",
            Self::SkippedSync => "skipped-sync",
            Self::LeaseIgnored => "lease-ignored",
            Self::TrustBlindly => "trust-blindly",
            Self::LogRemovedEarly => "log-removed-early",
            Self::VerificationSkipped => "verification-skipped",
            Self::AttemptDoubled => "attempt-doubled",
            Self::CreditDoubled => "credit-doubled",
            Self::ReasonKept => "reason-kept",
            Self::BelievesASyncAfterAFailedOne => "believes-a-sync-after-a-failed-one",
            Self::TrustsResumedRanges => "trusts-resumed-ranges",
        }
    }

    /// The mutant of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}

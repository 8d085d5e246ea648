//! Planted defects, which test the checkers. Each defect is a plausible mistake of a host or of a
//! machine. The checkers must detect each defect in at least one of a hundred seeds.

use crate::log_file::LogDefect;
use crate::workload::FILES_PER_LOG;
use dray_core::LogMechanism;
use dray_session::mutants::Mutant as MachineMutant;

/// Mechanism of a log with a planted defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "`dray_core::LogMechanism` describes the mechanisms"
)]
pub enum Mechanism {
    Universal,
    Transaction,
    File,
}

const fn log_name(mechanism: Mechanism, defect: LogDefect) -> &'static str {
    match (mechanism, defect) {
        // A universal log has no part logs, so it has only this defect.
        (Mechanism::Universal, _) => "universal-log-sync-skipped",
        (Mechanism::Transaction, LogDefect::LogSyncSkipped) => "transaction-log-sync-skipped",
        (Mechanism::Transaction, LogDefect::PartSyncSkipped) => "transaction-part-sync-skipped",
        (Mechanism::Transaction, LogDefect::PartNamesCollide) => "transaction-part-names-collide",
        (Mechanism::File, LogDefect::LogSyncSkipped) => "file-log-sync-skipped",
        (Mechanism::File, LogDefect::PartSyncSkipped) => "file-part-sync-skipped",
        (Mechanism::File, LogDefect::PartNamesCollide) => "file-part-names-collide",
    }
}

/// A planted defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// The sink reports an object as durable when it is only written.
    AckBeforeDurable,
    /// The records of a group are appended to the log together with the next group.
    RecordAfterAck,
    /// A file gets its final name as soon as the last byte of the file is written, and not after
    /// the last log record of the file.
    RenameBeforeLastRecord,
    /// A bit flips after the comparison of checksums and before the write.
    WrongBit,
    /// An object is stored at the offset of another object of the same file. The checksums of the
    /// stored object still match its bytes.
    OffsetNotBound,
    /// A sync returns without making data durable.
    SkippedSync,
    /// A former holder of the lease continues to write.
    LeaseIgnored,
    /// The log is trusted, whatever the destination contains.
    TrustBlindly,
    /// The log is removed as soon as the verdict is sent, before the verdict is stored.
    LogRemovedEarly,
    /// A read-back returns data from memory instead of the disk.
    VerificationSkipped,
    /// The sink requests a durable object again.
    AttemptDoubled,
    /// Each grant of credit is doubled.
    CreditDoubled,
    /// The sink fails and does not send the reason to the source.
    ReasonKept,
    /// After a failed sync the sink continues to write to the same inode, and trusts the next sync.
    BelievesASyncAfterAFailedOne,
    /// Ranges of an earlier run are not read back.
    TrustsResumedRanges,
    /// The files of a log of this mechanism have a defect.
    Log(Mechanism, LogDefect),
    /// A machine breaks a rule that the checks of its own state detect.
    Machine(MachineMutant),
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 31] = [
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
        Self::Log(Mechanism::Universal, LogDefect::LogSyncSkipped),
        Self::Log(Mechanism::Transaction, LogDefect::LogSyncSkipped),
        Self::Log(Mechanism::Transaction, LogDefect::PartSyncSkipped),
        Self::Log(Mechanism::Transaction, LogDefect::PartNamesCollide),
        Self::Log(Mechanism::File, LogDefect::LogSyncSkipped),
        Self::Log(Mechanism::File, LogDefect::PartSyncSkipped),
        Self::Log(Mechanism::File, LogDefect::PartNamesCollide),
        Self::Machine(MachineMutant::SourceFreesUnsentBuffer),
        Self::Machine(MachineMutant::SourceReopensWrittenObject),
        Self::Machine(MachineMutant::SourceAcceptsEarlyVerdict),
        Self::Machine(MachineMutant::SinkKeepsFreedBuffer),
        Self::Machine(MachineMutant::SinkAcceptsSecondAttempt),
        Self::Machine(MachineMutant::SinkGroupsUnwrittenBlock),
        Self::Machine(MachineMutant::SinkKnowsUnloggedRange),
        Self::Machine(MachineMutant::SinkGivesEarlyVerdict),
        Self::Machine(MachineMutant::SinkSyncsFileTwice),
    ];

    /// Returns the name of the mutant on the command line.
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
            Self::Log(mechanism, defect) => log_name(mechanism, defect),
            Self::Machine(mutant) => mutant.name(),
        }
    }

    /// Returns the mechanism of the log that has this defect. `None` if each log may have it.
    #[must_use]
    pub const fn mechanism(self) -> Option<LogMechanism> {
        match self {
            Self::Log(Mechanism::Universal, _) => Some(LogMechanism::Universal),
            Self::Log(Mechanism::Transaction, _) => Some(LogMechanism::Transaction(FILES_PER_LOG)),
            Self::Log(Mechanism::File, _) => Some(LogMechanism::File),
            _ => None,
        }
    }

    /// Returns the mutant with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}

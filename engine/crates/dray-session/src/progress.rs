//! Reports of a machine: counters, events, and the outcome of the session.

use dray_core::profile::Profile;
use dray_core::{Error, LogForm, RelPath, Sums};
use dray_wire::message::Totals;
use std::time::Duration;

/// Counters of one end. All byte counts are bytes of file content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// True if the sink discards data. Then no data is durable, although `bytes_durable` and
    /// `files_done` count the discarded data.
    pub keeps_nothing: bool,
    /// True if the other end has set its rate to zero, so no data moves until the other end raises
    /// the rate.
    pub is_held_there: bool,
    /// Number of entries listed so far.
    pub entries_listed: u64,
    /// Number of files among `entries_listed`.
    pub files_listed: u64,
    /// Number of symbolic links among `entries_listed`.
    pub links_listed: u64,
    /// Total size of the listed files in bytes.
    pub bytes_listed: u64,
    /// True if the listing is complete.
    pub listing_done: bool,
    /// Number of files that were published, adopted or skipped.
    pub files_done: u64,
    /// Number of files among `files_done` that already existed with the same content.
    pub files_adopted: u64,
    /// Number of adopted files whose mode or extended attributes the sink changed.
    pub files_updated: u64,
    /// Number of files among `files_done` that the sink left unchanged: the existing file differs
    /// from the source, and the sink may not replace it.
    pub files_skipped: u64,
    /// Number of entries that failed.
    pub files_failed: u64,
    /// Number of folders and links that the sink has created.
    pub others_done: u64,
    /// Total size in bytes of the done files, and of the durable objects of files that are not
    /// done.
    pub bytes_durable: u64,
    /// Bytes that an earlier run made durable.
    pub bytes_resumed: u64,
    /// Bytes of adopted files.
    pub bytes_adopted: u64,
    /// Number of bytes that the sink has read back from its storage and compared.
    pub bytes_read_back: u64,
    /// Number of objects sent. An object that is sent twice counts twice. A pack, which is one
    /// object with several small files, counts once.
    pub objects_sent: u64,
    /// Number of objects that an earlier run made durable.
    pub objects_resumed: u64,
    /// Payload bytes that were passed to the network.
    pub bytes_sent: u64,
    /// Bytes read at the source.
    pub bytes_read: u64,
    /// Bytes of objects that the sink has written, durable or not.
    pub bytes_written: u64,
    /// Number of objects that arrived with bytes that differ from their checksums. The source sends
    /// each of them again. Only a sink counts these objects.
    pub objects_corrupt: u64,
    /// Number of commits of the object log. Only a sink has a log.
    pub log_commits: u64,
    /// Total duration of these commits. Each commit waits until its records are durable.
    pub log_time: Duration,
    /// Form of the object log; `None` at a source, and at a sink without a log.
    pub log_form: Option<LogForm>,
    /// Number of data streams in use. Only a source counts streams.
    pub streams: u32,
    /// Number of readers per storage target. Only a source counts readers.
    pub readers: u32,
    /// Number of writers per storage target. Only a sink counts writers.
    pub writers: u32,
    /// Time that each end has spent in each stage. The times of this end are current up to its last
    /// input. The times of the other end come from its last report.
    pub profile: Profile,
}

impl Progress {
    /// Returns the number of files that are durable under their final names. Skipped files do not
    /// count, because the transfer did not write them.
    #[must_use]
    pub const fn files_safe(&self) -> u64 {
        match self.keeps_nothing {
            true => 0,
            false => self.files_done.saturating_sub(self.files_skipped),
        }
    }

    /// Returns the number of durable bytes.
    #[must_use]
    pub const fn bytes_safe(&self) -> u64 {
        match self.keeps_nothing {
            true => 0,
            false => self.bytes_durable,
        }
    }
}

/// Durable bytes that an attempt found at the sink and did not send, in one session or in all its
/// sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Bytes that an earlier run made durable.
    pub resumed: u64,
    /// Total size in bytes of the files that were adopted.
    pub adopted: u64,
}

impl Found {
    /// Returns the sums of an attempt after a session. `self` are the counts of this session,
    /// `before` are the sums before the session, and `sent` is the number of bytes that earlier
    /// sessions of the attempt sent. Bytes that earlier sessions found or sent are not counted
    /// again. All other found bytes count as resumed or adopted, also bytes that a killed session
    /// sent and did not record.
    ///
    /// The sent, resumed and adopted bytes together are at least the durable bytes, apart from
    /// holes and skipped files. The difference is the number of bytes sent more than once.
    #[must_use]
    pub fn after(self, before: Self, sent: u64) -> Self {
        let known = before
            .resumed
            .saturating_add(before.adopted)
            .saturating_add(sent);
        let more = self.resumed.saturating_add(self.adopted);
        let more = more.saturating_sub(known);
        let adopted = more.min(self.adopted.saturating_sub(before.adopted));
        Self {
            resumed: before.resumed + (more - adopted),
            adopted: before.adopted + adopted,
        }
    }
}

/// An entry that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Path relative to the transfer's root.
    pub path: RelPath,
    /// The reason for the failure.
    pub error: Error,
}

/// An event that a user or a log should see immediately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A file is durable under its final name.
    FileDone {
        /// Path of the file.
        path: RelPath,
        /// Size in bytes.
        size: u64,
        /// Checksums of the whole file. `None` if this transfer does not know them.
        sums: Option<Sums>,
    },
    /// An entry failed.
    Failed(Failure),
    /// A condition that is not a failure, such as a stale log or a lost stream.
    Notice(Error),
}

/// Final state of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All listed entries were processed. The totals also count failed entries.
    Done(Totals),
    /// A user stopped the session. Durable data is kept.
    Cancelled,
    /// The other end refused the session before any data moved.
    Refused(Error),
    /// An error ended the session. Durable data is kept.
    Failed(Error),
}

#[cfg(test)]
mod tests {
    use super::Found;

    const fn found(resumed: u64, adopted: u64) -> Found {
        Found { resumed, adopted }
    }

    #[test]
    fn found_bytes_count_once_and_unrecorded_bytes_count_as_resumed() {
        let nothing = Found::default();
        assert_eq!(found(3, 4).after(nothing, 0), found(3, 4));
        // Earlier sessions of this attempt sent all 10 bytes that this session found.
        assert_eq!(found(10, 0).after(nothing, 12), nothing);
        assert_eq!(found(2, 10).after(nothing, 12), nothing);
        // Earlier sessions recorded 8 of the 21 bytes; a killed session sent the other 13.
        assert_eq!(found(21, 0).after(nothing, 8), found(13, 0));
        assert_eq!(found(26, 0).after(found(5, 0), 8), found(18, 0));
        // Before this session, the sums contained only 4 of the 10 existing bytes.
        assert_eq!(found(0, 10).after(found(0, 4), 0), found(0, 10));
        assert_eq!(found(3, 10).after(found(0, 4), 2), found(1, 10));
        // A session that ends before it inspects the destination does not reduce the sums.
        assert_eq!(found(0, 0).after(found(5, 6), 7), found(5, 6));
    }
}

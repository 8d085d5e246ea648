//! Reports of a machine: counters, events, the outcome.

use dray_core::profile::Profile;
use dray_core::{Error, RelPath, Sums};
use dray_wire::message::Totals;

/// Counters of an end. All byte counts are of file content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// True if the sink discards data: then no data is durable, whatever the other counters say.
    pub keeps_nothing: bool,
    /// True if the other end has set its rate to zero: no data moves until it raises the rate.
    pub is_held_there: bool,
    /// Number of entries listed so far.
    pub entries_listed: u64,
    /// Number of files among them.
    pub files_listed: u64,
    /// Number of links among them.
    pub links_listed: u64,
    /// Number of bytes of those files.
    pub bytes_listed: u64,
    /// True if the listing is complete.
    pub listing_done: bool,
    /// Number of files that are done in any way, without failures.
    pub files_done: u64,
    /// Number of adopted files among `files_done`: the same file already existed.
    pub files_adopted: u64,
    /// Number of adopted files whose mode or extended attributes were changed (at a sink).
    pub files_updated: u64,
    /// Number of existing files among `files_done` that were kept because they may not be replaced.
    pub files_skipped: u64,
    /// Number of entries that failed.
    pub files_failed: u64,
    /// Number of folders and links made.
    pub others_done: u64,
    /// Bytes of done files and of durable objects.
    pub bytes_durable: u64,
    /// Bytes that an earlier run had made durable.
    pub bytes_resumed: u64,
    /// Bytes of adopted files.
    pub bytes_adopted: u64,
    /// Bytes read back from the sink's storage and compared.
    pub bytes_read_back: u64,
    /// Number of objects sent (an object sent twice counts twice; a pack counts once).
    pub objects_sent: u64,
    /// Number of objects that an earlier run had made durable.
    pub objects_resumed: u64,
    /// Payload bytes passed to the network.
    pub bytes_sent: u64,
    /// Bytes read at the source.
    pub bytes_read: u64,
    /// Bytes of objects that the sink has written, durable or not.
    pub bytes_written: u64,
    /// Number of data streams in use (at a source).
    pub streams: u32,
    /// Number of readers of each target (at a source).
    pub readers: u32,
    /// Number of writers of each target (at a sink).
    pub writers: u32,
    /// Profile of the time: this end's up to the last input, the other end's as last reported.
    pub profile: Profile,
}

impl Progress {
    /// Returns the number of files that are durable under their names. Existing files that were
    /// kept are not counted: they are not this transfer's.
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

/// Bytes that are durable and were not sent, in one session or in all sessions of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Bytes that an earlier run had made durable.
    pub resumed: u64,
    /// Bytes of adopted files.
    pub adopted: u64,
}

impl Found {
    /// Returns the sums of an attempt after a further session, which found `self`. Bytes that
    /// earlier sessions found or sent count once. The rest was made durable by an earlier attempt,
    /// or by a session that was killed before it recorded the bytes it sent. `sent` is the number
    /// of bytes that the earlier sessions sent.
    ///
    /// So, apart from holes and skipped files, the durable bytes are at most sent + resumed +
    /// adopted, and the difference was sent more than once.
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
    /// The error.
    pub error: Error,
}

/// An event to report to a person or a log immediately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A file is durable under its final name.
    FileDone {
        /// Path of the file.
        path: RelPath,
        /// Size in bytes.
        size: u64,
        /// Checksums, if this transfer knows them.
        sums: Option<Sums>,
    },
    /// An entry failed.
    Failed(Failure),
    /// A condition to report that is not a failure (a stale log, a lost stream).
    Notice(Error),
}

/// Final state of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All listed entries were processed; failures, if any, are in the totals.
    Done(Totals),
    /// Stopped on request; durable data is kept.
    Cancelled,
    /// The other end refused the session before any data moved.
    Refused(Error),
    /// Ended by an error; durable data is kept.
    Failed(Error),
}

#[cfg(test)]
mod tests {
    use super::Found;

    const fn found(resumed: u64, adopted: u64) -> Found {
        Found { resumed, adopted }
    }

    #[test]
    fn what_is_found_again_counts_once_and_what_nobody_counted_is_resumed() {
        let nothing = Found::default();
        assert_eq!(found(3, 4).after(nothing, 0), found(3, 4));
        // All found bytes were sent before, some of them twice.
        assert_eq!(found(10, 0).after(nothing, 12), nothing);
        assert_eq!(found(2, 10).after(nothing, 12), nothing);
        // The count of 13 bytes was lost when a session was killed.
        assert_eq!(found(21, 0).after(nothing, 8), found(13, 0));
        assert_eq!(found(26, 0).after(found(5, 0), 8), found(18, 0));
        // The first session had not found all existing bytes.
        assert_eq!(found(0, 10).after(found(0, 4), 0), found(0, 10));
        assert_eq!(found(3, 10).after(found(0, 4), 2), found(1, 10));
        // A session that ends early does not lower the sums.
        assert_eq!(found(0, 0).after(found(5, 6), 7), found(5, 6));
    }
}

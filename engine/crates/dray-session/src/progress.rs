//! What a machine tells the outside: counters, events, the outcome.

use dray_core::profile::Profile;
use dray_core::{Error, RelPath, Sums};
use dray_wire::message::Totals;

/// Counters of one end. All bytes are of file content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Whether the sink keeps nothing: then nothing is safe, whatever is counted below.
    pub keeps_nothing: bool,
    /// Whether the other end has shut its gate: nothing moves until it opens it.
    pub is_held_there: bool,
    /// Entries listed so far.
    pub entries_listed: u64,
    /// Files among them.
    pub files_listed: u64,
    /// Links among them.
    pub links_listed: u64,
    /// Bytes of those files.
    pub bytes_listed: u64,
    /// Whether the listing is complete.
    pub listing_done: bool,
    /// Files that are done, whichever way, failures not counted.
    pub files_done: u64,
    /// Of them: adopted because they stood there and were the same.
    pub files_adopted: u64,
    /// Of these: files whose mode or extended attributes were changed (at a sink).
    pub files_updated: u64,
    /// Of them: left as they were because they may not be replaced.
    pub files_skipped: u64,
    /// Entries that failed.
    pub files_failed: u64,
    /// Folders and links made.
    pub others_done: u64,
    /// Bytes of done files and of durable objects.
    pub bytes_durable: u64,
    /// Bytes an earlier run had made safe.
    pub bytes_resumed: u64,
    /// Bytes of adopted files.
    pub bytes_adopted: u64,
    /// Bytes read back from the sink's storage and compared.
    pub bytes_read_back: u64,
    /// Objects that were sent (an object sent twice counts twice; a pack counts once).
    pub objects_sent: u64,
    /// Objects an earlier run had made safe.
    pub objects_resumed: u64,
    /// Payload bytes handed to the network.
    pub bytes_sent: u64,
    /// Bytes read at the source.
    pub bytes_read: u64,
    /// Bytes of objects that the sink has written, safe or not yet.
    pub bytes_written: u64,
    /// Data streams that objects are handed to (at a source).
    pub streams: u32,
    /// Readers of each target (at a source).
    pub readers: u32,
    /// Writers of each target (at a sink).
    pub writers: u32,
    /// Where the time went: this end's up to the last input, the other's as it said last.
    pub profile: Profile,
}

impl Progress {
    /// Files that are safe under their names: those left as they were are not this transfer's.
    #[must_use]
    pub const fn files_safe(&self) -> u64 {
        match self.keeps_nothing {
            true => 0,
            false => self.files_done.saturating_sub(self.files_skipped),
        }
    }

    /// Bytes that are safe.
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
    /// Bytes an earlier run had made safe.
    pub resumed: u64,
    /// Bytes of adopted files.
    pub adopted: u64,
}

impl Found {
    /// The sum for an attempt after a further session, which found `self`. Bytes that earlier
    /// sessions found or sent count once. The rest was made durable by an earlier attempt, or by a
    /// session that was killed before it recorded what it sent. `sent` is the sum that the earlier
    /// sessions sent.
    ///
    /// So, apart from holes and skipped files, durable is at most sent + resumed + adopted, and the
    /// difference was sent more than once.
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

/// One entry that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where, relative to the transfer's root.
    pub path: RelPath,
    /// Why.
    pub error: Error,
}

/// Something a person or a log may want to know at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A file is safe under its final name.
    FileDone {
        /// Where.
        path: RelPath,
        /// Bytes.
        size: u64,
        /// Checksums, when this transfer knows them.
        sums: Option<Sums>,
    },
    /// An entry failed.
    Failed(Failure),
    /// Something that is no failure yet deserves a word (a stale log, a lost stream).
    Notice(Error),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Everything listed has been dealt with; failures, if any, are in the totals.
    Done(Totals),
    /// Stopped on request; what is safe stays safe.
    Cancelled,
    /// The other end refused before anything moved.
    Refused(Error),
    /// Broken off; what is safe stays safe.
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
        // All that is found was sent before, some of it twice.
        assert_eq!(found(10, 0).after(nothing, 12), nothing);
        assert_eq!(found(2, 10).after(nothing, 12), nothing);
        // A kill lost the count of 13.
        assert_eq!(found(21, 0).after(nothing, 8), found(13, 0));
        assert_eq!(found(26, 0).after(found(5, 0), 8), found(18, 0));
        // The first session had not met all that was there.
        assert_eq!(found(0, 10).after(found(0, 4), 0), found(0, 10));
        assert_eq!(found(3, 10).after(found(0, 4), 2), found(1, 10));
        // One that did not get far takes nothing away.
        assert_eq!(found(0, 0).after(found(5, 6), 7), found(5, 6));
    }
}

//! Checkers of the promises in docs/design/failure-model.md, one for each promise. The checkers
//! have the names from that document. They examine the effects that the machines emit, and the
//! contents of the disk. They know the contents of the source. They never read the state of a
//! machine.

use crate::disk::Node;
use crate::log_file::{LogView, part_logs, part_path};
use crate::session::Attempt;
use crate::sink_host::log_path;
use crate::timing::At;
use crate::workload::Source;
use crate::world::World;
use dray_core::{BufferId, ByteRange, ErrorKind, FileIndex, RelPath, SummedRanges};
use dray_log::recover;
use dray_session::Outcome;
use dray_session::sink::PublishItem;
use dray_session::source::Effect;
use dray_wire::message::{BlockHead, BlockState, FileVerdict, Message};
use std::collections::BTreeMap;
use std::time::Duration;

/// A view of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// All written data, as every process sees it.
    Written,
    /// Durable data only, as after a crash.
    Durable,
}

impl World {
    /// Returns the view of the disk in which data counts as safe, for the durability of this world.
    fn store(&self) -> Store {
        if self.is_weak() {
            Store::Written
        } else {
            Store::Durable
        }
    }

    fn bytes(&self, inode: u64, store: Store) -> Vec<u8> {
        let disk = self.disk.borrow();
        match store {
            Store::Written => disk.bytes(inode).to_vec(),
            Store::Durable => disk.durable_bytes(inode).to_vec(),
        }
    }

    fn node(&self, path: &RelPath, store: Store) -> Option<Node> {
        let disk = self.disk.borrow();
        match store {
            Store::Written => disk.look(path).cloned(),
            Store::Durable => disk.look_durable(path).cloned(),
        }
    }

    /// Returns the path and the expected content of a file.
    fn expected(&self, at: usize, index: FileIndex) -> Option<(RelPath, Vec<u8>)> {
        let (path, key) = self.sessions[at].host.known.get(&index)?;
        let version = self.tree.versions.get(path)?.get(&key.as_ref()?.modified)?;
        Some((path.clone(), version.clone()))
    }

    /// Returns the ranges in the log, by path, as a recovery would read them now.
    fn logged(&mut self, store: Store) -> BTreeMap<RelPath, SummedRanges> {
        let now = self.disk.borrow().now();
        if let Some((seen, logged)) = &self.log_seen
            && *seen == now
        {
            return logged.clone();
        }
        let mut logged = BTreeMap::new();
        if let Ok(path) = log_path()
            && let Ok(Some(found)) = recover(&mut self.log_view(&path, store))
        {
            let files = found.files.into_iter();
            logged = files.map(|(path, file)| (path, file.done)).collect();
        }
        self.log_seen = Some((now, logged.clone()));
        logged
    }

    /// Returns the log and its part logs.
    fn log_view(&self, path: &RelPath, store: Store) -> LogView {
        let content = |path: &RelPath| match self.node(path, store) {
            Some(Node::File(inode, _)) => Some(self.bytes(inode, store)),
            _ => None,
        };
        let parts = part_logs(&self.disk.borrow(), path);
        let parts = parts.into_iter().filter_map(|part| {
            let path = part_path(path, part).ok()?;
            Some((part, content(&path)?))
        });
        LogView::new(content(path).unwrap_or_default(), parts)
    }

    /// Returns true if the disk contains the right bytes of a range: in the file with the final
    /// name, in the partial file, or in a small file without its final name.
    fn is_safe(&self, at: usize, index: FileIndex, range: ByteRange, store: Store) -> bool {
        let Some((path, expected)) = self.expected(at, index) else {
            return true;
        };
        let span = range.offset as usize..range.end() as usize;
        let right = |inode: u64| {
            self.rotten.contains(&inode)
                || self.bytes(inode, store).get(span.clone()) == expected.get(span.clone())
        };
        let named = match self.node(&path, store) {
            Some(Node::File(inode, _)) => right(inode),
            _ => false,
        };
        let partial = self.sessions[at].host.partials.get(&index);
        named || partial.is_some_and(|open| right(open.inode))
    }

    /// Checks the promises that a message of the sink makes.
    pub fn check_message(&mut self, at: usize, message: &Message) {
        match message {
            Message::BlockSync(states) => {
                for (block, state) in states {
                    if *state == BlockState::Durable
                        && let Some(attempt) = self.sessions[at].attempts.get(block).cloned()
                    {
                        self.check_ack(at, &attempt);
                    }
                }
            }
            Message::FileIds(ids) => {
                for id in ids {
                    let session = &mut self.sessions[at];
                    if matches!(id.verdict, FileVerdict::Want { .. }) {
                        session.wanted.insert(id.index);
                    } else {
                        session.left.insert(id.index);
                    }
                }
            }
            Message::FileClose(closed) => {
                for closed in closed {
                    if closed.result.is_err() {
                        self.sessions[at].failed.insert(closed.index);
                    } else {
                        self.sessions[at].closed.insert(closed.index);
                        self.check_closed(at, closed.index);
                    }
                }
            }
            Message::Done { index, ranges } => {
                for range in ranges {
                    if !self.is_safe(at, *index, *range, Store::Written) {
                        let what = format!(
                            "the sink reports {range:?} of entry {index} as done, but these \
                                bytes are missing"
                        );
                        self.violate("done_is_log_borne_out_by_files", what);
                    }
                }
            }
            Message::Verdict(_) => self.check_verdict(at),
            _ => {}
        }
    }

    /// Checks the log after the transfer has ended. A log that remains may contain only failed
    /// files.
    pub fn check_finished_log(&mut self, at: usize) {
        let logged = self.logged(Store::Written);
        if let Ok(path) = log_path() {
            let disk = self.disk.borrow();
            let parts = part_logs(&disk, &path);
            let is_orphan = disk.look(&path).is_none() && !parts.is_empty();
            drop(disk);
            if is_orphan {
                let what = format!("the log was removed, but its part logs {parts:?} remain");
                self.violate("a_finished_log_speaks_of_failed_files_alone", what);
            }
        }
        let session = &self.sessions[at];
        let closed = session.closed.iter();
        let mut paths = closed.filter_map(|index| session.host.known.get(index));
        if let Some((path, _)) = paths.find(|(path, _)| logged.contains_key(path)) {
            let what = format!("{path} was closed by the sink, but its record is still in the log");
            self.violate("a_finished_log_speaks_of_failed_files_alone", what);
        }
    }

    /// Checks the partial files after the sink has ended. Every open partial file must belong to a
    /// file that the sink has requested from the source.
    pub fn check_begun(&mut self, at: usize) {
        let session = &self.sessions[at];
        let mut begun = session.host.partials.keys();
        if let Some(index) = begun.find(|index| !session.wanted.contains(index)) {
            let what = format!("entry {index} was begun after the session was stopped");
            self.violate("nothing_is_begun_after_a_stop", what);
        }
    }

    /// Checks that the source receives the reason of the sink's failure, if the connection is
    /// intact.
    pub fn check_reason(&mut self, at: usize, heard: &Outcome) {
        let session = &self.sessions[at];
        let (Some(Outcome::Failed(why)), Outcome::Failed(told)) = (&session.sink_end, heard) else {
            return;
        };
        let is_cut = session.link.cut.is_some() || why.kind == ErrorKind::Unreachable;
        if !is_cut && told.kind == ErrorKind::Unreachable {
            let what = format!("{why}, but the source received the error {told}");
            self.violate("the_other_end_hears_why", what);
        }
    }

    fn check_ack(&mut self, at: usize, attempt: &Attempt) {
        let store = self.store();
        for segment in &attempt.segments {
            let (index, range) = (segment.file, segment.range);
            if self.sessions[at].failed.contains(&index) {
                continue;
            }
            if !self.is_safe(at, index, range, store) {
                let what = format!("{range:?} of entry {index} is not durable");
                self.violate("ack_never_precedes_durability", what);
                return;
            }
            if self.timing.is_some() {
                // Timed worlds have no crashes, so skip the check: reading the log each time is
                // expensive.
                continue;
            }
            let Some(open) = self.sessions[at].host.partials.get(&index).cloned() else {
                continue;
            };
            let is_named = matches!(
                self.node(&open.path, store),
                Some(Node::File(inode, _)) if inode == open.inode
            );
            let logged = self.logged(store);
            let has = logged
                .get(&open.path)
                .is_some_and(|done| done.contains(range));
            if !has && !is_named {
                let what = format!("{range:?} of entry {index} has no record");
                self.violate("sink_record_never_follows_its_ack", what);
                return;
            }
        }
    }

    fn check_closed(&mut self, at: usize, index: FileIndex) {
        let Some((path, key)) = self.sessions[at].host.known.get(&index).cloned() else {
            return;
        };
        let store = self.store();
        if key.is_some() {
            self.check_complete(at, &path, store);
        } else if self.node(&path, store).is_none() {
            let what = format!("{path} was closed by the sink, but may be lost");
            self.violate("ack_never_precedes_durability", what);
        }
    }

    /// Checks that `path` exists and contains a complete version of the file.
    pub fn check_complete(&mut self, at: usize, path: &RelPath, store: Store) {
        let Some(Node::File(inode, attributes)) = self.node(path, store) else {
            let what = format!("session {at}: {path} does not exist ({store:?})");
            self.violate("ack_never_precedes_durability", what);
            return;
        };
        let bytes = self.bytes(inode, store);
        let versions = self.tree.versions.get(path);
        let version = versions.and_then(|versions| versions.get(&attributes.modified));
        if version != Some(&bytes) {
            let what = format!("session {at}: {path} ({store:?})");
            self.violate("nothing_incomplete_under_a_final_name", what);
        }
    }

    /// Checks a file just before the file gets its final name.
    pub fn check_publish(&mut self, at: usize, item: &PublishItem) {
        let store = self.store();
        let whole = ByteRange {
            offset: 0,
            length: item.size,
        };
        if item.small {
            let inode = self.sessions[at].host.smalls.get(&item.index).map(|s| s.1);
            let expected = self.expected(at, item.index);
            if let (Some(inode), Some((path, expected))) = (inode, expected)
                && self.bytes(inode, store) != expected
            {
                let what = format!("the small file {path} is less durable than requested");
                self.violate("final_name_never_precedes_last_record", what);
            }
            return;
        }
        let logged = self.logged(store);
        if !logged
            .get(&item.path)
            .is_some_and(|done| done.contains(whole))
        {
            let what = format!("the log lacks records of {}", item.path);
            self.violate("final_name_never_precedes_last_record", what);
        }
    }

    fn check_verdict(&mut self, at: usize) {
        const NAME: &str = "verdict_never_precedes_final_name_and_verification";
        let session = &self.sessions[at];
        let known: Vec<_> = session
            .host
            .known
            .iter()
            .filter(|(index, _)| !session.failed.contains(index) && !session.left.contains(index))
            .map(|(index, (path, key))| (*index, path.clone(), key.clone()))
            .collect();
        let is_verified = self.sessions[at].verifies;
        let store = self.store();
        for (index, path, key) in known {
            let Some(Node::File(inode, _)) = self.node(&path, store) else {
                if key.is_some() {
                    self.violate(NAME, format!("{path} was not renamed to its final name"));
                }
                continue;
            };
            let read = self.sessions[at].read_back.get(&index);
            let must = is_verified && key.is_some_and(|key| key.size > 0);
            if must && read != Some(&inode) {
                self.violate(NAME, format!("{path} was not read back"));
            }
        }
    }

    /// Checks, after a crash, that no incomplete file has a final name.
    pub fn check_tree(&mut self) {
        if self.is_weak() {
            return;
        }
        let disk = self.disk.borrow();
        let files: Vec<RelPath> = disk
            .names()
            .filter(|(path, node)| {
                let is_ours = path.components().any(|name| name.is_reserved());
                matches!(node, Node::File(..)) && !is_ours
            })
            .map(|(path, _)| path.clone())
            .collect();
        drop(disk);
        let at = self.sessions.len().saturating_sub(1);
        for path in files {
            self.check_complete(at, &path, Store::Written);
        }
    }

    /// Checks a read at its start: no other attempt to send one of its parts may be in progress or
    /// have succeeded.
    pub fn check_read(&mut self, at: usize, effect: &Effect) -> Duration {
        let wait = self.delay(30, 700);
        let Effect::Read {
            block,
            buffer,
            target,
            parts,
        } = effect
        else {
            return wait;
        };
        if self.sessions[at].source_host.in_use.contains(buffer) {
            let what =
                format!("the source reads into the buffer {buffer} while the buffer is sent");
            self.violate("bytes_in_flight_never_exceed_pool", what);
        }
        let parts: Vec<_> = parts.iter().map(|part| (part.file, part.range)).collect();
        self.check_attempt(at, &parts);
        let attempt = Attempt {
            parts,
            segments: Vec::new(),
            bytes: 0,
        };
        self.sessions[at].attempts.insert(*block, attempt);
        let now = self.now;
        let timing = self.timing.as_mut();
        timing.map_or(wait, |timing| timing.target(At::Source, target.0, now))
    }

    fn check_attempt(&mut self, at: usize, parts: &[(FileIndex, ByteRange)]) {
        let clash = self.sessions[at].attempts.values().any(|other| {
            let mut theirs = other.parts.iter();
            theirs.any(|(file, range)| {
                let same =
                    |(mine, part): &(FileIndex, ByteRange)| mine == file && part.overlaps(range);
                parts.iter().any(same)
            })
        });
        if clash {
            self.violate("one_live_attempt_per_object", format!("{parts:?}"));
        }
    }

    /// Checks an object when it is sent. A hole may be larger now than at the read.
    pub fn check_send(&mut self, at: usize, buffer: Option<BufferId>, head: &BlockHead) {
        self.sessions[at].attempts.remove(&head.id);
        let parts: Vec<_> = head
            .segments
            .iter()
            .map(|segment| (segment.file, segment.range))
            .collect();
        self.check_attempt(at, &parts);
        let bytes = head.payload_bytes().unwrap_or(0);
        let session = &mut self.sessions[at];
        session.sent += bytes;
        let attempt = Attempt {
            parts,
            segments: head.segments.clone(),
            bytes,
        };
        session.attempts.insert(head.id, attempt);
        if let Some(buffer) = buffer
            && !session.source_host.in_use.insert(buffer)
        {
            let what = format!("the buffer {buffer} contains two objects at the same time");
            self.violate("bytes_in_flight_never_exceed_pool", what);
        }
    }

    /// Checks, after the last run, that the tree at the sink is equal to the tree at the source.
    pub fn check_final(&mut self) {
        const NAME: &str = "sink_tree_equals_source_tree";
        let at = self.sessions.len() - 1;
        let keeps = self.sessions[at].keeps;
        let store = self.store();
        for (path, node) in self.tree.entries.clone() {
            let found = self.node(&path, store);
            let is_right = match (&node, &found) {
                (Source::Directory(_), Some(Node::Directory(_))) => true,
                (Source::Symlink(target), Some(Node::Symlink(link, _))) => target == link,
                (Source::File(_), Some(Node::Directory(_))) => self.blocked.contains(&path),
                (Source::File(file), Some(Node::File(inode, attributes))) => {
                    keeps
                        || attributes.modified == file.modified
                            && self.bytes(*inode, store) == file.bytes
                }
                _ => false,
            };
            // The file may have changed at the source after the last session listed it.
            let listed = self.sessions[at].host.known.values();
            let is_newer = match &node {
                Source::File(file) => listed
                    .filter(|(other, _)| *other == path)
                    .all(|(_, key)| key.as_ref().is_none_or(|k| k.modified != file.modified)),
                _ => false,
            };
            if !is_right && !is_newer {
                self.violate(NAME, format!("{path}: {found:?}"));
            }
        }
        self.check_tree();
    }

    /// Checks the number of bytes sent in all sessions of a round (one request of the transfer,
    /// repeated until all files have arrived). The number may exceed the needed bytes by the bytes
    /// that the sink refused. For each interrupted session, it may also exceed them by the size of
    /// the buffer pool plus the maximum size of written data without a record in the log.
    pub fn check_bound(&mut self) {
        if self.is_unbounded {
            return;
        }
        let (first, needed) = self.round;
        let round = &self.sessions[first..];
        let sent: u64 = round.iter().map(|session| session.sent).sum();
        let wasted: u64 = round.iter().map(|session| session.wasted).sum();
        let broken = round.iter().filter(|session| session.done().is_none());
        let allowed: u64 = broken.map(|session| session.exposed).sum();
        if sent > needed + wasted + allowed {
            let what = format!(
                "{sent} bytes were sent, but {needed} were needed, {wasted} were refused and \
                    {allowed} more are allowed"
            );
            self.violate("resend_is_bounded_by_pool_and_group", what);
        }
    }
}

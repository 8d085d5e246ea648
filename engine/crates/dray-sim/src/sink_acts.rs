//! Effects of the sink. Each effect is started, and changes the disk after a delay.

use crate::checkers::Store;
use crate::event::Event;
use crate::faults::Fault;
use crate::mutants::Mutant;
use crate::timing::{At, Written};
use crate::world::World;
use dray_core::{
    BufferId, End, Error, ErrorKind, FileIndex, RelPath, Result, SummedRanges, Sums, TargetId,
};
use dray_session::Outcome;
use dray_session::sink::{BlockKey, Effect, Input, PublishItem, SyncItem, WritePart};
use dray_wire::message::{BlockState, Message};
use std::collections::BTreeSet;
use std::time::Duration;

impl World {
    /// Starts an effect of the sink's machine.
    pub fn begin_sink(&mut self, at: usize, effect: Effect) {
        let until = self.disk.borrow().now();
        let wait = match &effect {
            Effect::Message(_, message) => {
                self.send_to_source(at, message, until);
                return;
            }
            Effect::Free(buffer) => {
                self.free_buffer(at, *buffer);
                return;
            }
            Effect::End(outcome) => {
                self.end_sink(at, outcome);
                return;
            }
            Effect::Report(_) | Effect::SetWriters(_) => return,
            Effect::Inspect(_) => {
                // Inspections run strictly in order, even across several effects.
                let over = self.sessions[at].inspected.max(self.now) + self.delay(50, 800);
                self.sessions[at].inspected = over;
                self.at(at, over, done(effect, until));
                return;
            }
            Effect::Discard(_) | Effect::CloseFile(_) => {
                self.sink_done(at, effect, until);
                return;
            }
            Effect::Write {
                block,
                buffer,
                target,
                parts,
            } => {
                let write = (parts.clone(), *buffer);
                self.sessions[at].writes.insert(*block, write);
                self.write_time(at, *target)
            }
            Effect::Sync(_, items) => {
                let partials = items.iter().filter_map(|item| match item {
                    SyncItem::Partial(index) => Some(*index),
                    _ => None,
                });
                self.check_open(at, partials);
                self.sessions[at].syncing += 1;
                self.delay(300, 4000)
            }
            Effect::Log { records, .. } => {
                self.check_open(at, records.iter().map(|record| record.file));
                self.sessions[at].logging += 1;
                // One thread writes the log, in the order of the effects.
                let over = self.sessions[at].logged.max(self.now) + self.delay(100, 1500);
                self.sessions[at].logged = over;
                self.at(at, over, done(effect, until));
                return;
            }
            Effect::ReadBack { .. }
            | Effect::CheckWritten { .. }
            | Effect::Publish(_)
            | Effect::SetAdopted { .. }
            | Effect::SetDirectory { .. } => {
                self.sessions[at].publishing += 1;
                self.delay(100, 1500)
            }
            Effect::StoreVerdict(_) => {
                self.sessions[at].is_closing = true;
                self.delay(50, 800)
            }
            Effect::Prepare { .. } | Effect::FinishLog { .. } | Effect::Purge => {
                self.delay(50, 1000)
            }
        };
        self.after(at, wait, done(effect, until));
    }

    /// Checks that a sync or a record names only files that the machine has not closed. Otherwise
    /// the host would skip a closed file, and the machine would still acknowledge its ranges.
    fn check_open(&mut self, at: usize, files: impl Iterator<Item = FileIndex>) {
        let partials = &self.sessions[at].host.partials;
        let closed: Vec<_> = files.filter(|file| !partials.contains_key(file)).collect();
        if !closed.is_empty() {
            let what = format!("the sink synced or logged files that are not open: {closed:?}");
            self.violate("ack_never_precedes_durability", what);
        }
    }

    fn send_to_source(&mut self, at: usize, message: &Message, until: u64) {
        if self.mutant == Some(Mutant::ReasonKept) && matches!(message, Message::GoAway(_)) {
            return;
        }
        let message = self.mutated(message);
        self.check_message(at, &message);
        let arrival = self.arrival(&message);
        match self.sessions[at].link.to_source.send(&message, arrival) {
            Ok((bytes, time)) => self.at(at, time, Event::ControlToSource(bytes)),
            Err(error) => self.violate("no_panic", error.to_string()),
        }
        if self.mutant == Some(Mutant::LogRemovedEarly) && matches!(message, Message::Verdict(_)) {
            let keeps = Some(BTreeSet::new());
            let early = Effect::FinishLog {
                keeps,
                is_listed: true,
            };
            self.after(at, Duration::ZERO, done(early, until));
        }
    }

    fn end_sink(&mut self, at: usize, outcome: &Outcome) {
        self.check_begun(at);
        let session = &mut self.sessions[at];
        session.sink_end = Some(outcome.clone());
        let time = session.link.to_source.last.max(self.now) + Duration::from_micros(50);
        let lost = Error::new(ErrorKind::Unreachable, End::Network, "reach the sink");
        let input = dray_session::source::Input::PeerLost(lost);
        self.at(at, time, Event::Source(input));
    }

    fn write_time(&mut self, at: usize, target: TargetId) -> Duration {
        let wait = self.delay(50, 1200);
        let now = self.now;
        match &mut self.timing {
            Some(timing) => timing.target(At::Sink, target.0, now),
            None => self.slow(at, target.0, wait),
        }
    }

    fn mutated(&self, message: &Message) -> Message {
        let mut message = message.clone();
        if let (Message::BlockSync(states), Some(Mutant::AckBeforeDurable)) =
            (&mut message, self.mutant)
        {
            for (_, state) in states {
                if *state == BlockState::Written {
                    *state = BlockState::Durable;
                }
            }
        }
        message
    }

    /// Completes an effect: the disk changes now, and the machine gets the answer.
    pub fn sink_done(&mut self, at: usize, effect: Effect, until: u64) {
        match &effect {
            Effect::Sync(..) => self.sessions[at].syncing -= 1,
            Effect::Log { .. } => self.sessions[at].logging -= 1,
            Effect::ReadBack { .. }
            | Effect::CheckWritten { .. }
            | Effect::Publish(_)
            | Effect::SetAdopted { .. }
            | Effect::SetDirectory { .. } => {
                self.sessions[at].publishing -= 1;
            }
            _ => {}
        }
        let before = self.disk.borrow().modifications();
        let fenced = self.sessions[at].host.is_fenced();
        let phase = self.sessions[at].phase();
        // A fault counts for the phase to which its effect belongs.
        let phase = match &effect {
            Effect::Sync(..) => crate::faults::Phase::Syncing,
            Effect::Log { .. } => crate::faults::Phase::Logging,
            Effect::ReadBack { .. } => crate::faults::Phase::Publishing,
            _ => phase,
        };
        let input = self.perform(at, effect, until, phase);
        let after = self.disk.borrow().modifications();
        if fenced && after > before {
            let what = format!("session {at} wrote without the lease");
            self.violate("two_holders_never_both_write", what);
        }
        let shown = std::mem::take(&mut self.disk.borrow_mut().shown);
        for name in shown {
            let fault = match name {
                "no_space"
                    if self
                        .disk
                        .borrow()
                        .trouble
                        .no_space
                        .is_some_and(|n| n > 1000) =>
                {
                    Fault::NoSpace
                }
                "no_space" => Fault::NoSpaceOnce,
                "write_error" => Fault::WriteError,
                "sync_error" => Fault::SyncError,
                _ => Fault::LogError,
            };
            self.is_unbounded = true;
            // A full disk refuses many writes, but counts as one fault.
            let is_no_space = matches!(fault, Fault::NoSpace | Fault::NoSpaceOnce);
            if is_no_space && std::mem::replace(&mut self.is_full_counted, true) {
                continue;
            }
            self.say(|| format!("{at} FAULT {} while {phase:?}", fault.words()));
            self.coverage.hit(fault, phase);
        }
        let is_fenced = self.sessions[at].host.is_fenced();
        if is_fenced && self.mutant != Some(Mutant::LeaseIgnored) {
            let error = Error::new(ErrorKind::LeaseLost, End::Sink, "write to the destination");
            self.sink(at, Input::LeaseLost(error));
        }
        if let Some(input) = input {
            self.sink(at, input);
        }
    }

    fn prepared(
        &mut self,
        at: usize,
        index: FileIndex,
        result: Result<Option<(SummedRanges, bool)>>,
    ) -> Input {
        let result = result.map(|kept| {
            if let Some((done, is_moved)) = kept {
                let kept = Input::Kept {
                    index,
                    done,
                    is_moved,
                };
                self.sink(at, kept);
            }
        });
        Input::Prepared(index, result)
    }

    fn write(
        &mut self,
        at: usize,
        block: BlockKey,
        buffer: Option<BufferId>,
        parts: &[WritePart],
    ) -> Input {
        let session = &mut self.sessions[at];
        session.writes.remove(&block);
        let bytes = match buffer {
            Some(buffer) => session.host.buffers[buffer.0 as usize].clone(),
            None => Vec::new(),
        };
        let results = session.host.write(parts, &bytes);
        if let (Some(timing), Some(file)) = (&mut self.timing, parts.first().map(|part| &part.file))
        {
            timing.written.push(Written {
                at: self.now,
                file: *file,
                bytes: bytes.len() as u64,
            });
        }
        session.has_written = true;
        if self.mutant == Some(Mutant::RenameBeforeLastRecord) {
            self.rename_early(at, parts);
        }
        Input::Written(block, results)
    }

    fn publish(&mut self, at: usize, items: Vec<PublishItem>) -> Input {
        let mut results = Vec::new();
        for item in items {
            self.check_publish(at, &item);
            let published = self.sessions[at].host.publish(&item);
            if published.is_ok() {
                self.check_complete(at, &item.path, Store::Written);
            }
            results.push((item.index, published.map(|_| ())));
        }
        Input::Published(results)
    }

    fn finish_log(&mut self, at: usize, keeps: Option<&BTreeSet<RelPath>>) -> Input {
        if !self.sessions[at].is_verdict_stored {
            let what = "the source has not stored the verdict".to_owned();
            self.violate("log_never_removed_before_verdict_stored", what);
        }
        let finished = self.sessions[at].host.finish_log(keeps);
        if finished.is_ok() {
            self.check_finished_log(at);
        }
        Input::LogRemoved(finished)
    }

    /// Makes the items of a group durable. Returns the paths that could not be synced: none.
    fn sync(&mut self, at: usize, items: &[SyncItem], until: u64) -> Result<Vec<(RelPath, Error)>> {
        if self.mutant != Some(Mutant::SkippedSync) {
            self.sessions[at].host.sync(items, until)?;
        }
        Ok(Vec::new())
    }

    fn perform(
        &mut self,
        at: usize,
        effect: Effect,
        until: u64,
        phase: crate::faults::Phase,
    ) -> Option<Input> {
        match effect {
            Effect::Inspect(items) => {
                let found = self.sessions[at].host.inspect(items);
                Some(Input::Inspected(found))
            }
            Effect::Prepare {
                index,
                path,
                key,
                object_bytes,
                resume,
                stripes: _,
            } => {
                let host = &mut self.sessions[at].host;
                let prepared = host.prepare(index, &path, &key, object_bytes, resume);
                Some(self.prepared(at, index, prepared))
            }
            Effect::Write {
                block,
                buffer,
                parts,
                ..
            } => Some(self.write(at, block, buffer, &parts)),
            Effect::Sync(group, items) => Some(Input::Synced(group, self.sync(at, &items, until))),
            Effect::Log { group, records } => {
                let appended = self.sessions[at].host.append(&records);
                Some(Input::Logged(group, appended))
            }
            Effect::ReadBack {
                index, path, size, ..
            } => Some(Input::ReadBack(
                index,
                self.read_back(at, index, &path, size, phase),
            )),
            Effect::CheckWritten { index, ranges } => {
                let checked = self.sessions[at].host.check_written(index, &ranges);
                Some(Input::WrittenChecked(index, checked))
            }
            Effect::Publish(items) => Some(self.publish(at, items)),
            Effect::SetDirectory {
                index,
                path,
                metadata,
            } => {
                let set = self.sessions[at].host.set_directory(&path, &metadata);
                Some(Input::DirectorySet(index, set))
            }
            // All files in the simulator have the mode of their source, so there is no change.
            Effect::SetAdopted { index, .. } => Some(Input::AdoptedSet(index, Ok(false))),
            Effect::Discard(index) => {
                if let Err(error) = self.sessions[at].host.discard(index) {
                    self.say(|| format!("{at} discard: {error}"));
                }
                None
            }
            Effect::CloseFile(index) => {
                self.sessions[at].host.partials.remove(&index);
                None
            }
            Effect::StoreVerdict(_) => {
                let session = &mut self.sessions[at];
                session.is_verdict_stored |= session.sink_drives;
                Some(Input::VerdictStored(Ok(())))
            }
            Effect::FinishLog { keeps, .. } => Some(self.finish_log(at, keeps.as_ref())),
            Effect::Purge => {
                self.is_unbounded = true;
                let host = &mut self.sessions[at].host;
                host.partials.clear();
                host.smalls.clear();
                Some(Input::LogRemoved(host.finish_log(Some(&BTreeSet::new()))))
            }
            Effect::Message(..)
            | Effect::Free(_)
            | Effect::Report(_)
            | Effect::SetWriters(_)
            | Effect::End(_) => None,
        }
    }

    fn read_back(
        &mut self,
        at: usize,
        index: dray_core::FileIndex,
        path: &dray_core::RelPath,
        size: u64,
        phase: crate::faults::Phase,
    ) -> Result<Sums> {
        let gone = || Error::new(ErrorKind::NotFound, End::Sink, "read the file back").file(path);
        let inode = self.sessions[at].host.read_back(index).ok_or_else(gone)?.0;
        if std::mem::take(&mut self.sessions[at].rots) {
            let byte = self.draw.below(size) as usize;
            self.disk.borrow_mut().rot(inode, byte);
            self.rotten.insert(inode);
            self.say(|| format!("{at} FAULT {}", Fault::BitRot.words()));
            self.coverage.hit(Fault::BitRot, phase);
            self.is_unbounded = true;
        }
        if self.mutant == Some(Mutant::VerificationSkipped) {
            let key = self.sessions[at].host.known.get(&index);
            let versions = self.tree.versions.get(path);
            let modified = key.and_then(|(_, key)| key.as_ref().map(|key| key.modified));
            let bytes = modified.and_then(|modified| versions?.get(&modified));
            return bytes.map(|bytes| Sums::of(bytes)).ok_or_else(gone);
        }
        let (inode, sums) = self.sessions[at].host.read_back(index).ok_or_else(gone)?;
        self.sessions[at].read_back.insert(index, inode);
        Ok(sums)
    }

    /// The mutant `RenameBeforeLastRecord`: gives a large file its final name as soon as the last
    /// byte of the file is written.
    fn rename_early(&mut self, at: usize, parts: &[dray_session::sink::WritePart]) {
        for part in parts {
            let known = self.sessions[at].host.known.get(&part.file).cloned();
            let (Some((path, Some(key))), None) = (known, &part.small) else {
                continue;
            };
            if part.range.end() < key.size {
                continue;
            }
            let item = dray_session::sink::PublishItem {
                index: part.file,
                path,
                small: false,
                size: key.size,
                metadata: crate::workload::metadata(key.modified),
                sums: Sums::EMPTY,
                replace: true,
            };
            self.check_publish(at, &item);
            let _ = self.sessions[at].host.publish(&item);
        }
    }

    /// Kills the process of the sink. A part of each write in progress is stored.
    pub fn kill_sink(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        if !std::mem::replace(&mut session.sink_lives, false) {
            return;
        }
        let fenced = session.host.is_fenced();
        let writes = std::mem::take(&mut session.writes);
        for (parts, buffer) in writes.into_values() {
            let bytes = match buffer {
                Some(buffer) => session.host.buffers[buffer.0 as usize].clone(),
                None => Vec::new(),
            };
            let mut from = 0;
            for part in parts.iter().filter(|part| !part.hole && !fenced) {
                let end = from + part.range.length as usize;
                let open = session.host.partials.get(&part.file).map(|open| open.inode);
                if let (Some(inode), Some(data)) = (open, bytes.get(from..end)) {
                    let mut disk = self.disk.borrow_mut();
                    disk.write_torn(inode, part.range.offset, data, &mut self.draw);
                }
                from = end;
            }
        }
        self.cut(at);
    }

    /// Simulates a power failure and a restart of the sink's host.
    pub fn crash_host(&mut self) {
        for at in 0..self.sessions.len() {
            if self.sessions[at].sink_lives && !self.sessions[at].is_over() {
                self.kill_sink(at);
            }
            self.sessions[at].sink_lives = false;
        }
        self.disk.borrow_mut().crash(&mut self.draw);
        self.boot += 1;
        self.is_forgotten = self.is_weak();
        self.say(|| "the sink's host restarts".into());
        self.check_tree();
    }
}

fn done(effect: Effect, until: u64) -> Event {
    Event::SinkDone(Box::new(effect), until)
}

//! Injects the planned faults into a world.

use crate::disk::Node;
use crate::event::Event;
use crate::faults::{Fault, Planned};
use crate::workload::chance;
use crate::world::World;
use dray_core::{End, Error, ErrorKind, Metadata, RelPath};
use dray_session::{sink, source};
use std::time::Duration;

/// Maximum number of times that the sink is killed to leave a partial file for [`Fault::Tampered`].
const KILLS_MAX: u32 = 4;

/// Number of bits that are flipped in a partial file between two runs.
const ROTTEN_BITS: u32 = 16;

impl World {
    /// Injects the next planned fault if its time has come. Called after each event.
    pub fn inject(&mut self, at: usize) {
        let newest = self.sessions.len().saturating_sub(1);
        if at != newest || self.sessions[at].is_over() {
            return;
        }
        let phase = self.sessions[at].phase();
        let Some(next) = self.plan.front_mut() else {
            return;
        };
        if next.fault == Fault::Tampered {
            // This fault occurs between two runs, so the first run must not succeed.
            if self.kills_for_tampering >= KILLS_MAX {
                self.plan.pop_front();
                return;
            }
            if !self
                .plan
                .iter()
                .skip(1)
                .any(|later| ends_session(later.fault))
            {
                self.kills_for_tampering += 1;
                let fault = Fault::SinkKill;
                self.plan.insert(
                    1,
                    Planned {
                        fault,
                        phase: crate::faults::Phase::Publishing,
                        after: 1,
                    },
                );
            }
            self.plan.rotate_left(1);
            return;
        }
        if next.phase != phase {
            return;
        }
        if next.after > 0 {
            next.after -= 1;
            return;
        }
        let fault = next.fault;
        if self.strike(at, fault) {
            self.plan.pop_front();
        }
    }

    /// Injects a fault, or arranges that the next matching call fails. Returns false if the fault
    /// cannot occur now.
    fn strike(&mut self, at: usize, fault: Fault) -> bool {
        let session = &mut self.sessions[at];
        match fault {
            Fault::SinkCrash => self.crash_sink(at),
            Fault::SinkKill => {
                self.hit(at, fault);
                self.kill_sink(at);
            }
            Fault::SourceKill => {
                self.hit(at, fault);
                self.sessions[at].source_lives = false;
                self.cut(at);
            }
            Fault::ConnectionLost => {
                self.hit(at, fault);
                self.cut(at);
            }
            Fault::StreamLost => return self.lose_any_stream(at),
            Fault::CorruptPayload => session.link.trouble.payload = true,
            Fault::CorruptHead => session.link.trouble.head = true,
            Fault::Duplicate => session.link.trouble.twice = true,
            Fault::NoSpaceOnce => {
                self.is_full_counted = false;
                self.disk.borrow_mut().trouble.no_space = Some(1 + self.draw.below(3) as u32);
            }
            Fault::NoSpace => {
                self.is_full_counted = false;
                self.disk.borrow_mut().trouble.no_space = Some(u32::MAX);
            }
            Fault::WriteError => self.disk.borrow_mut().trouble.write = true,
            Fault::SyncError => self.disk.borrow_mut().trouble.sync = true,
            Fault::WriteBackLost => return self.lose_write_back(at),
            Fault::LogError if chance(&mut self.draw, 50) => {
                self.disk.borrow_mut().trouble.log = true;
            }
            Fault::LogError => self.disk.borrow_mut().trouble.log_sync = true,
            Fault::ReadError => session.source_host.trouble.error = true,
            Fault::ShortRead => session.source_host.trouble.short = true,
            Fault::BitRot => session.rots = true,
            Fault::SourceChanged => {
                self.hit(at, fault);
                self.tree.change_one(&mut self.draw, &self.setup);
            }
            Fault::Stall => {
                self.hit(at, fault);
                let target = self.draw.below(u64::from(self.setup.sink_targets)) as u32;
                let until = self.now + Duration::from_millis(5 + self.draw.below(60));
                self.sessions[at].stall = Some((target, until));
            }
            Fault::Cancel => self.cancel(at),
            Fault::Takeover => {
                self.hit(at, fault);
                self.wants_takeover = true;
            }
            Fault::Tampered => return false,
        }
        true
    }

    fn crash_sink(&mut self, at: usize) {
        if self.is_weak() {
            // With durability none, dray promises nothing after a crash (see the failure model). So
            // the caller requests all files again from here on.
            self.setup.options.overwrite = dray_core::options::Overwrite::Always;
            self.is_unbounded = true;
        }
        if chance(&mut self.draw, 50) {
            self.disk.borrow_mut().fuse = Some(self.draw.below(5) as u32);
        } else {
            self.hit(at, Fault::SinkCrash);
            self.crash_host();
        }
    }

    fn lose_any_stream(&mut self, at: usize) -> bool {
        let streams = self.sessions[at].link.streams.iter();
        let alive: Vec<u32> = streams
            .filter(|(_, stream)| stream.cut.is_none())
            .map(|(id, _)| *id)
            .collect();
        if alive.is_empty() {
            return false;
        }
        let stream = alive[self.draw.below(alive.len() as u64) as usize];
        self.hit(at, Fault::StreamLost);
        self.lose_stream(at, stream, false);
        true
    }

    fn lose_write_back(&mut self, at: usize) -> bool {
        let partials = self.partials();
        let lost = partials.iter().any(|(_, inode, _)| {
            let mut disk = self.disk.borrow_mut();
            disk.lose_writes(*inode)
        });
        if !lost {
            return false;
        }
        self.hit(at, Fault::WriteBackLost);
        self.is_unbounded = true;
        if chance(&mut self.draw, 50) {
            // Kill the sink before it can report the loss.
            self.kill_sink(at);
        }
        true
    }

    fn cancel(&mut self, at: usize) {
        self.hit(at, Fault::Cancel);
        let purge = chance(&mut self.draw, 30);
        let stopping = || Error::new(ErrorKind::Busy, End::Here, "go on").cause("the server stops");
        let event = match self.draw.below(4) {
            0 => Event::Source(source::Input::Cancel { purge }),
            1 => Event::Sink(sink::Input::Cancel { purge }),
            2 => Event::Source(source::Input::Stopping(stopping())),
            _ => Event::Sink(sink::Input::Stopping(stopping())),
        };
        self.after(at, Duration::ZERO, event);
    }

    /// Returns the partial files that have content: path, inode and attributes.
    fn partials(&self) -> Vec<(RelPath, u64, Metadata)> {
        let disk = self.disk.borrow();
        disk.names()
            .filter_map(|(path, node)| match (path.name(), node) {
                (Some(name), Node::File(inode, attributes))
                    if name.as_bytes().ends_with(b".part") && !disk.bytes(*inode).is_empty() =>
                {
                    Some((path.clone(), *inode, attributes.clone()))
                }
                _ => None,
            })
            .collect()
    }

    /// Changes partial files as another program could, if [`Fault::Tampered`] is planned. Called
    /// before a run.
    pub fn tamper_if_planned(&mut self) {
        let place = self
            .plan
            .iter()
            .position(|next| next.fault == Fault::Tampered);
        let Some(place) = place else { return };
        let partials = self.partials();
        if partials.is_empty() {
            return;
        }
        let mut disk = self.disk.borrow_mut();
        for (path, inode, attributes) in partials {
            let length = disk.bytes(inode).len() as u64;
            match self.draw.below(6) {
                0 => {
                    let _ = disk.truncate(inode, length / 3);
                }
                1 => {
                    let _ = disk.remove_name(&path);
                }
                // Flip many bits, because large parts of the file may not be written yet.
                2..=4 => (0..ROTTEN_BITS).for_each(|_| {
                    disk.rot(inode, self.draw.below(length) as usize);
                }),
                _ => {
                    if let Ok(other) = disk.create() {
                        let _ = disk.truncate(other, length);
                        let _ = disk.put_name(&path, Node::File(other, attributes));
                    }
                }
            }
        }
        disk.settle();
        drop(disk);
        self.plan.remove(place);
        self.say(|| format!("FAULT {}", Fault::Tampered.words()));
        self.coverage
            .hit(Fault::Tampered, crate::faults::Phase::Listing);
        self.is_unbounded = true;
    }
}

const fn ends_session(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::SinkCrash | Fault::SinkKill | Fault::SourceKill | Fault::ConnectionLost
    )
}

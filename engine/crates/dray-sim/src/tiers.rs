//! A tier under faults: applications write versions, the tier demotes and deletes them, users pin
//! them, the tier is killed, and the slow tier is unreachable or damages a copy. Applications write
//! some versions again, even during a demotion of these versions. A second slow tier receives
//! replicas. All choices are those of `dray_sched::tiers::victims`. [`checks`] examines the disks
//! after each step.
//!
//! Non-goals: bandwidth and time. `experiments::bbos_restarts` has both.

pub mod checks;
mod disks;
mod replicas;
mod rewrites;

use crate::world::Violation;
use disks::{Disks, Key};
use dray_sched::rng::Rng;
use dray_sched::tiers::victims::{
    Demotion, Order, Version, VersionState, deletions, kept_because, newest_complete, next_demotion,
};

/// Number of steps of a run.
const STEPS: usize = 400;

/// Number of applications.
const APPLICATIONS: u64 = 4;
/// Capacity of the fast tier in bytes. Versions have 1 to 4 bytes.
const CAPACITY: u64 = 16;

/// Number of versions older than the newest complete version that an application retains.
const RETAINED: u64 = 2;

/// A planted defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A demotion counts as done when the slow copy is written and not durable.
    DoneBeforeDurable,
    /// The checksum of the slow copy is not compared.
    ChecksumIgnored,
    /// After a kill, a demotion that ran counts as done.
    TrustsRunningDemotion,
    /// The deletion after a demotion does not ask again for pins.
    PinForgotten,
    /// Deletions for space ignore pins.
    PinIgnored,
    /// Older versions are removed although the newer version is incomplete.
    IncompleteIsNewest,
    /// A deletion does not compare the two copies.
    DeletesWithoutComparing,
    /// A replica counts when it is written and not durable.
    ReplicaBeforeDurable,
    /// The checksum of a replica is not compared.
    ReplicaChecksumIgnored,
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 9] = [
        Self::DoneBeforeDurable,
        Self::ChecksumIgnored,
        Self::TrustsRunningDemotion,
        Self::PinForgotten,
        Self::PinIgnored,
        Self::IncompleteIsNewest,
        Self::DeletesWithoutComparing,
        Self::ReplicaBeforeDurable,
        Self::ReplicaChecksumIgnored,
    ];

    /// Returns the name of the defect on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DoneBeforeDurable => "tier-done-before-durable",
            Self::ChecksumIgnored => "tier-checksum-ignored",
            Self::TrustsRunningDemotion => "tier-trusts-running-demotion",
            Self::PinForgotten => "tier-pin-forgotten",
            Self::PinIgnored => "tier-pin-ignored",
            Self::IncompleteIsNewest => "tier-incomplete-is-newest",
            Self::DeletesWithoutComparing => "tier-deletes-without-comparing",
            Self::ReplicaBeforeDurable => "tier-replica-before-durable",
            Self::ReplicaChecksumIgnored => "tier-replica-checksum-ignored",
        }
    }

    /// Returns the defect with a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Results of running one seed.
#[derive(Debug, Default)]
pub struct Report {
    /// The broken rule, if any.
    pub violation: Option<Violation>,
    /// Number of demotions that finished.
    pub demoted: u64,
    /// Number of fast copies that were deleted.
    pub deleted: u64,
    /// Number of kills.
    pub kills: u64,
    /// Number of demotions that failed because of the slow tier.
    pub failed: u64,
    /// Number of writes that found no space.
    pub refused: u64,
    /// Number of replicas that finished.
    pub replicated: u64,
    /// Number of complete versions that an application wrote again.
    pub rewritten: u64,
    /// Number of deletions that found two different copies.
    pub differed: u64,
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, mutant: Option<Mutant>) -> Report {
    let mut draw = Rng::new(seed ^ 0x7133);
    let at = draw.below(Order::ALL.len() as u64) as usize;
    let mut tier = Tier {
        order: Order::ALL[at],
        mutant,
        draw,
        now: 0.0,
        versions: Vec::new(),
        numbers: [0; APPLICATIONS as usize],
        running: None,
        replicating: None,
        disks: Disks::default(),
        report: Report::default(),
    };
    for _ in 0..STEPS {
        tier.now += 1.0;
        let checked = tier
            .step()
            .and_then(|()| checks::demoted_is_durable(&tier))
            .and_then(|()| checks::newest_survives(&tier));
        if let Err(violation) = checked {
            tier.report.violation = Some(violation);
            break;
        }
    }
    tier.report
}

/// Progress of a demotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Started,
    Written,
}

/// A tier with its catalog and its disks.
struct Tier {
    order: Order,
    mutant: Option<Mutant>,
    draw: Rng,
    now: f64,
    /// The catalog. It survives a kill.
    versions: Vec<Version>,
    /// Number of the last version of each application.
    numbers: [u64; APPLICATIONS as usize],
    /// The demotion that runs. A kill loses it.
    running: Option<(Key, bool, Stage)>,
    /// The replication that runs. A kill loses it.
    replicating: Option<(Key, Stage)>,
    disks: Disks,
    report: Report,
}

impl Tier {
    fn is_planted(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn step(&mut self) -> Result<(), Violation> {
        match self.draw.below(100) {
            0..16 => self.write(),
            16..32 => self.complete(),
            32..60 => self.demote(),
            60..70 => self.replicate(),
            70..73 => self.rewrite(),
            73..77 => self.scan(),
            77..81 => self.turn_pin(),
            81..86 => {
                self.remove_old();
                Ok(())
            }
            86..92 => {
                self.kill();
                Ok(())
            }
            92..97 => {
                self.disks.is_slow_away = !self.disks.is_slow_away;
                Ok(())
            }
            _ => {
                self.disks.damages_next = true;
                Ok(())
            }
        }
    }

    /// Starts a version, after the deletions that it needs.
    fn write(&mut self) -> Result<(), Violation> {
        let application = self.draw.below(APPLICATIONS);
        let bytes = 1 + self.draw.below(4);
        let free = CAPACITY.saturating_sub(self.disks.used());
        if free < bytes {
            let needed = bytes - free;
            let mut seen = self.versions.clone();
            if self.is_planted(Mutant::PinIgnored) {
                for version in &mut seen {
                    version.is_pinned = false;
                }
            }
            let found = deletions(&seen, needed, self.order);
            for index in &found.indices {
                self.delete(*index)?;
            }
            if found.freed < needed {
                self.report.refused += 1;
                return Ok(());
            }
        }
        let at = application as usize;
        self.numbers[at] += 1;
        let name = application.to_string();
        let key = (name.clone(), self.numbers[at]);
        self.disks.write(key, bytes);
        self.versions.push(Version {
            application: name,
            number: self.numbers[at],
            bytes,
            written_at: self.now,
            used_at: self.now,
            demoted_at: None,
            mtbf: 1.0 + self.draw.below(3) as f64,
            state: VersionState::Incomplete,
            is_pinned: false,
            is_replicated: false,
            deadline: None,
        });
        Ok(())
    }

    /// Completes the oldest incomplete version.
    fn complete(&mut self) -> Result<(), Violation> {
        let is_incomplete = |each: &&mut Version| each.state == VersionState::Incomplete;
        if let Some(version) = self.versions.iter_mut().find(is_incomplete) {
            version.state = VersionState::OnFast;
            version.written_at = self.now;
            version.used_at = self.now;
            let newest = self.disks.completed.entry(version.application.clone());
            let newest = newest.or_insert(version.number);
            *newest = version.number.max(*newest);
        }
        Ok(())
    }

    /// Starts a demotion, or takes the running one a stage further.
    fn demote(&mut self) -> Result<(), Violation> {
        let Some((key, delete_after, stage)) = self.running.clone() else {
            if let Some(Demotion {
                index,
                delete_after,
            }) = next_demotion(&self.versions, self.order)
            {
                let version = &mut self.versions[index];
                version.state = VersionState::Demoting;
                let key = (version.application.clone(), version.number);
                self.running = Some((key, delete_after, Stage::Started));
            }
            return Ok(());
        };
        if self.disks.is_slow_away {
            return self.demotion_failed(&key);
        }
        match stage {
            Stage::Started => {
                let is_good = !std::mem::take(&mut self.disks.damages_next);
                self.disks.copy_to_slow(&key, is_good);
                if self.is_planted(Mutant::DoneBeforeDurable) {
                    return self.demotion_done(&key, delete_after);
                }
                self.running = Some((key, delete_after, Stage::Written));
                Ok(())
            }
            Stage::Written => {
                let Some(copy) = self.disks.slow.get_mut(&key) else {
                    return self.demotion_failed(&key);
                };
                copy.is_durable = true;
                if !copy.is_good && !self.is_planted(Mutant::ChecksumIgnored) {
                    return self.demotion_failed(&key);
                }
                self.demotion_done(&key, delete_after)
            }
        }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let is_meant = |each: &Version| each.application == key.0 && each.number == key.1;
        self.versions.iter().position(is_meant)
    }

    /// Returns a version to the versions that wait for a demotion.
    fn demotion_failed(&mut self, key: &Key) -> Result<(), Violation> {
        self.report.failed += 1;
        self.running = None;
        self.disks.slow.remove(key);
        if let Some(index) = self.find(key) {
            self.versions[index].state = VersionState::OnFast;
        }
        Ok(())
    }

    fn demotion_done(&mut self, key: &Key, delete_after: bool) -> Result<(), Violation> {
        self.report.demoted += 1;
        self.running = None;
        let Some(index) = self.find(key) else {
            return Ok(());
        };
        // The application has written the version again since the copy began.
        if self.disks.differ(key) {
            self.versions[index].state = VersionState::OnFast;
            return Ok(());
        }
        self.versions[index].state = VersionState::Demoted;
        self.versions[index].demoted_at = Some(self.now);
        let may = kept_because(&self.versions[index]).is_none();
        if delete_after && (may || self.is_planted(Mutant::PinForgotten)) {
            return self.delete(index);
        }
        Ok(())
    }

    /// Deletes a fast copy, if it agrees with the slow copy.
    fn delete(&mut self, index: usize) -> Result<(), Violation> {
        let version = &mut self.versions[index];
        let key = (version.application.clone(), version.number);
        if self.disks.differ(&key) && self.mutant != Some(Mutant::DeletesWithoutComparing) {
            self.report.differed += 1;
            version.state = VersionState::OnFast;
            version.is_replicated = false;
            return Ok(());
        }
        checks::demoted_before_deleted(self, index)?;
        checks::pinned_stays(self, index)?;
        self.versions[index].state = VersionState::SlowOnly;
        self.disks.fast.remove(&key);
        self.report.deleted += 1;
        Ok(())
    }

    fn turn_pin(&mut self) -> Result<(), Violation> {
        let at = self.draw.below(self.versions.len() as u64) as usize;
        if let Some(version) = self.versions.get_mut(at) {
            version.is_pinned = !version.is_pinned && version.state.is_on_fast();
        }
        Ok(())
    }

    /// Removes versions that an application no longer retains from both tiers.
    fn remove_old(&mut self) {
        for application in 0..APPLICATIONS {
            let name = application.to_string();
            let newest = if self.is_planted(Mutant::IncompleteIsNewest) {
                Some(self.numbers[application as usize])
            } else {
                newest_complete(&self.versions, &name).map(|at| self.versions[at].number)
            };
            let Some(newest) = newest else {
                continue;
            };
            let is_old = |each: &Version| {
                each.application == name
                    && each.number + RETAINED <= newest
                    && each.state.is_complete()
                    && each.state != VersionState::Demoting
                    && !each.is_pinned
            };
            for version in self.versions.iter().filter(|each| is_old(each)) {
                let key = (version.application.clone(), version.number);
                self.disks.remove(&key);
            }
            self.versions.retain(|each| !is_old(each));
        }
    }

    /// Kills the tier and its host, and starts the tier again. The catalog remains.
    fn kill(&mut self) {
        self.report.kills += 1;
        self.running = None;
        self.replicating = None;
        self.disks.lose_what_is_not_durable();
        let trusts = self.is_planted(Mutant::TrustsRunningDemotion);
        for version in &mut self.versions {
            if version.state == VersionState::Demoting {
                let key = (version.application.clone(), version.number);
                if trusts {
                    version.state = VersionState::Demoted;
                } else {
                    // The demotion starts again.
                    self.disks.slow.remove(&key);
                    version.state = VersionState::OnFast;
                }
            }
        }
        // The application does not continue to write an incomplete version.
        let lost = |each: &Version| each.state == VersionState::Incomplete;
        for version in self.versions.iter().filter(|each| lost(each)) {
            let key = (version.application.clone(), version.number);
            self.disks.fast.remove(&key);
        }
        self.versions.retain(|each| !lost(each));
    }
}

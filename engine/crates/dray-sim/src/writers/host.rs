//! The sink of one transfer among several. It reads logs, inherits, begins, writes and publishes
//! files, and cleans up, one step at a time.

use super::logs::{log_paths, logs};
use super::{Destination, Mutant, OBJECT_BYTES, checks};
use crate::disk::Node;
use crate::log_file::{DiskFile, remove_log};
use crate::workload::{log_options, metadata};
use dray_core::options::Durability;
use dray_core::{
    ByteRange, ContentKey, Metadata, ModifiedTime, Name, RelPath, Result, Sums, TransferId,
};
use dray_log::neighbours::{Claim, Follower, claim};
use dray_log::trust::{FoundPartial, Sink, Verdict, judge};
use dray_log::{
    BootId, Ending, FileBegin, FileNumber, Header, LoggedFile, ObjectLog, PartialFile, Recovery,
    Tenure, UniversalLog, layout, recover,
};
use dray_sched::rng::Rng;
use std::num::NonZeroU64;

const OWNER: &[u8] = b"user";

/// Number of times that a writer checks a contended file before it gives up the file.
const PATIENCE: u32 = 3;

pub(super) type Log = UniversalLog<DiskFile>;

/// The next step of a transfer with its current file.
#[derive(Debug, Clone)]
pub(super) enum Doing {
    Nothing,
    /// No other log has the file open, so begin it.
    Beginning {
        path: RelPath,
    },
    /// The file was inherited, and is still open in the other log.
    Adopted {
        log: RelPath,
        path: RelPath,
    },
    /// The file was begun. Another writer may have begun the same file. The writers have not
    /// decided yet which of them may write the file.
    Claiming {
        path: RelPath,
        looks: u32,
    },
    /// Write the next object of the file.
    Writing {
        path: RelPath,
        number: FileNumber,
        inode: u64,
    },
}

/// The sink of one transfer.
#[derive(Debug)]
pub struct Writer {
    pub(super) number: usize,
    transfer: TransferId,
    pub(super) log_path: RelPath,
    wanted: Vec<RelPath>,
    /// Files that this session has not handled yet.
    pub(super) todo: Vec<RelPath>,
    /// Number of files that were refused in this session.
    refused: u64,
    pub(super) log: Option<Log>,
    pub(super) doing: Doing,
    is_done: bool,
    /// Number of steps that a killed transfer waits before it runs again.
    rests: u64,
}

fn folder() -> Result<RelPath> {
    RelPath::root().join(&layout::log_folder_name()?)
}

/// Creates the folder of the logs.
///
/// # Errors
/// Never: all names that this function builds are valid.
pub(super) fn prepare(at: &Destination) -> Result<()> {
    let mut disk = at.disk.borrow_mut();
    disk.put_name(&folder()?, Node::Directory(Metadata::default()))?;
    let now = disk.now();
    disk.sync_folder(&RelPath::root(), now)
}

impl Writer {
    /// Creates the transfer with this number.
    ///
    /// # Errors
    /// Never: all names that this function builds are valid.
    pub fn new(number: usize, wanted: Vec<RelPath>) -> Result<Self> {
        let transfer = TransferId::new(format!("t{number}"))?;
        Ok(Self {
            log_path: folder()?.join(&layout::log_name(&[], &transfer)?)?,
            number,
            transfer,
            wanted,
            todo: Vec::new(),
            refused: 0,
            log: None,
            doing: Doing::Nothing,
            is_done: false,
            rests: 0,
        })
    }

    /// Returns true if the transfer has succeeded.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the files of the transfer.
    pub fn wanted(&self) -> impl Iterator<Item = &RelPath> {
        self.wanted.iter()
    }

    /// Kills the transfer: its memory is lost and its lease is released. It runs again after
    /// `rests` steps.
    pub fn die(&mut self, at: &mut Destination, rests: u64) {
        self.rests = rests;
        self.log = None;
        self.doing = Doing::Nothing;
        at.held.retain(|_, holder| *holder != self.number);
        for writing in at.writing.values_mut() {
            writing.remove(&self.number);
        }
    }

    pub(super) fn tenure(&self, at: &Destination, epoch: u64) -> Result<Tenure> {
        Ok(Tenure {
            epoch,
            holder: "a writer".to_owned(),
            transfer: self.transfer.clone(),
            boot_id: BootId::new(format!("{:032}", at.boot).as_bytes())?,
            durability: Durability::Object,
        })
    }

    /// Executes one step.
    ///
    /// # Errors
    /// Errors of the disk and of the log, which are defects of the model.
    pub fn step(&mut self, at: &mut Destination, draw: &mut Rng) -> Result<()> {
        if self.is_done {
            return Ok(());
        }
        if self.rests > 0 {
            self.rests -= 1;
            return Ok(());
        }
        if self.log.is_none() {
            return self.open(at, draw);
        }
        match self.doing.clone() {
            Doing::Adopted { log, path } => self.end_theirs(at, &log, &path),
            Doing::Claiming { path, looks } => self.settle(at, &path, looks),
            Doing::Writing {
                path,
                number,
                inode,
            } => self.write(at, &path, number, inode),
            Doing::Beginning { path } => self.go_on(at, &path),
            Doing::Nothing => match self.todo.pop() {
                Some(path) => self.meet(at, &path),
                None => self.finish(at),
            },
        }
    }

    fn open(&mut self, at: &mut Destination, draw: &mut Rng) -> Result<()> {
        if at.held.contains_key(&self.log_path) {
            return Ok(());
        }
        at.held.insert(self.log_path.clone(), self.number);
        let mut file = DiskFile::open(&at.disk, &self.log_path);
        self.log = Some(match recover(&mut file)? {
            Some(found) => {
                let tenure = self.tenure(at, found.tenure.epoch + 1)?;
                UniversalLog::resume(file, found, tenure)?
            }
            None => {
                let tenure = self.tenure(at, 1)?;
                let header = Header::new(Vec::new(), OWNER.to_vec(), draw.next(), "sim", tenure);
                let (_, form) = log_options(draw.clone());
                UniversalLog::create(file, header.of_form(form))?
            }
        });
        self.todo = self.wanted.clone();
        self.refused = 0;
        Ok(())
    }

    pub(super) fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("the log was opened before")
    }

    /// Returns the other logs in which the file is unfinished. The value of a log is true if a
    /// transfer uses the log and the partial file of the file exists. Records that are appended but
    /// not synced count too.
    fn speaking(&self, at: &Destination, path: &RelPath) -> Vec<(RelPath, bool)> {
        let mut found = Vec::new();
        for log in log_paths(at)
            .into_iter()
            .filter(|log| *log != self.log_path)
        {
            let mut file = DiskFile::open(&at.disk, &log);
            let Ok(Some(mut follower)) = Follower::begin(&mut file) else {
                continue;
            };
            let is_read = follower.follow(&mut file, 64).unwrap_or(false);
            if let Some(spoken) = follower.file(path).filter(|_| is_read) {
                let is_there = self.found(at, &spoken.partial.name).is_some();
                let is_held = at.held.contains_key(&log) && is_there;
                found.push((log, is_held));
            }
        }
        found
    }

    pub(super) fn found(&self, at: &Destination, name: &Name) -> Option<FoundPartial> {
        let disk = at.disk.borrow();
        match disk.look(&RelPath::root().join(name).ok()?) {
            Some(Node::File(inode, _)) => Some(FoundPartial {
                device: 1,
                inode: *inode,
                born: *inode,
                size: disk.bytes(*inode).len() as u64,
            }),
            _ => None,
        }
    }

    fn key(at: &Destination, path: &RelPath) -> ContentKey {
        ContentKey {
            size: at.files.get(path).map_or(0, Vec::len) as u64,
            demanded: None,
            modified: ModifiedTime::default(),
            precision_nanoseconds: 1,
            identity: Vec::new(),
        }
    }

    pub(super) fn is_trusted(
        &self,
        at: &Destination,
        log: &Recovery,
        path: &RelPath,
        file: &LoggedFile,
    ) -> Result<bool> {
        let boot_id = self.tenure(at, 1)?.boot_id;
        let sink = Sink {
            log: "the log",
            owner: OWNER,
            boot_id: &boot_id,
            durability: Durability::Object,
        };
        let found = self.found(at, &file.partial.name);
        let verdict = judge(log, path, file, &sink, found.as_ref(), &Self::key(at, path));
        Ok(matches!(verdict, Verdict::Trusted(_)))
    }

    /// Decides what to do with the next file. There are four cases: the file exists, another
    /// transfer writes the file, this transfer can inherit the file, or this transfer must begin
    /// the file.
    fn meet(&mut self, at: &mut Destination, path: &RelPath) -> Result<()> {
        if matches!(at.disk.borrow().look(path), Some(Node::File(..))) {
            return Ok(());
        }
        for (log, is_held) in self.speaking(at, path) {
            if is_held && at.mutant != Some(Mutant::TakesHeld) {
                at.refused += 1;
                self.refused += 1;
                return self.give_up(at, &log, path);
            }
            if at.mutant != Some(Mutant::NeverAdopts) && self.take_over(at, &log, path)? {
                return Ok(());
            }
        }
        self.doing = Doing::Beginning { path: path.clone() };
        Ok(())
    }

    /// Continues a file that this writer's log contains, or begins the file.
    fn go_on(&mut self, at: &mut Destination, path: &RelPath) -> Result<()> {
        self.doing = Doing::Nothing;
        let logged = self.log().file(path).cloned();
        if let Some(logged) = logged {
            let found = self.found(at, &logged.partial.name);
            if found.is_some_and(|found| logged.partial.is(&found, true)) {
                self.start(at, path, logged.number, logged.partial.inode);
                return Ok(());
            }
            self.log().end_file(logged.number, Ending::Dropped)?;
            self.log().commit()?;
        }
        // Another transfer may have begun the file, written to it and been killed since the last
        // check. Retry later, because the model does not simulate sending the bytes of the file
        // again.
        let speaking = self.speaking(at, path);
        let is_left = speaking.iter().any(|(_, is_held)| !is_held);
        if is_left && at.mutant != Some(Mutant::NeverAdopts) {
            self.todo.push(path.clone());
            return Ok(());
        }
        let Some(name) = self.free_name(at, path)? else {
            self.refused += 1;
            return Ok(());
        };
        let inode = {
            let mut disk = at.disk.borrow_mut();
            let inode = disk.create()?;
            disk.put_name(
                &RelPath::root().join(&name)?,
                Node::File(inode, Metadata::default()),
            )?;
            inode
        };
        let begin = FileBegin {
            path: path.clone(),
            key: Self::key(at, path),
            object_bytes: NonZeroU64::new(OBJECT_BYTES).unwrap_or(NonZeroU64::MIN),
            partial: PartialFile {
                name,
                device: 1,
                inode,
                born: inode,
            },
        };
        self.log().begin_file(begin)?;
        self.log().write_pending()?;
        self.doing = Doing::Claiming {
            path: path.clone(),
            looks: 0,
        };
        Ok(())
    }

    /// Returns a free name for a partial file. Removes a leftover file with that name if no log
    /// names it.
    fn free_name(&self, at: &mut Destination, path: &RelPath) -> Result<Option<Name>> {
        let Some(final_name) = path.name() else {
            return Ok(None);
        };
        for turn in 0..8 {
            let name = layout::partial_name_at_turn(&final_name, turn)?;
            let Some(found) = self.found(at, &name) else {
                return Ok(Some(name));
            };
            let is_spoken_of = logs(at)?.iter().any(|(_, log)| {
                log.files
                    .values()
                    .any(|file| file.partial.inode == found.inode)
            });
            // The holder of another log may be about to record the file.
            let others = at.held.keys().any(|log| *log != self.log_path);
            if !is_spoken_of && !others {
                at.disk
                    .borrow_mut()
                    .remove_name(&RelPath::root().join(&name)?)?;
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Decides, after the FileBegin record, whether this writer may write the file.
    fn settle(&mut self, at: &mut Destination, path: &RelPath, looks: u32) -> Result<()> {
        let speaking = self.speaking(at, path);
        let held: Vec<Name> = speaking
            .iter()
            .filter(|(_, is_held)| *is_held)
            .filter_map(|(log, _)| log.name())
            .collect();
        let own = self.log_path.name();
        let mut judged = own.map_or(Claim::Ours, |own| claim(&own, &held));
        if at.mutant == Some(Mutant::NoSecondLook)
            || at.mutant == Some(Mutant::DoesNotWait) && judged == Claim::Contended
        {
            judged = Claim::Ours;
        }
        let Some((number, inode)) = self
            .log()
            .file(path)
            .map(|file| (file.number, file.partial.inode))
        else {
            return Ok(());
        };
        // The other writer was killed. Drop this file and begin it again later. The new attempt
        // inherits the other writer's durable ranges, so they are not sent again.
        let is_left = looks > 0 && held.is_empty() && !speaking.is_empty();
        match judged {
            Claim::Ours if is_left => {
                self.drop_file(at, path)?;
                self.doing = Doing::Nothing;
                self.todo.push(path.clone());
            }
            Claim::Ours => self.start(at, path, number, inode),
            Claim::Contended if looks < PATIENCE => {
                self.doing = Doing::Claiming {
                    path: path.clone(),
                    looks: looks + 1,
                };
            }
            Claim::Contended | Claim::Theirs => {
                at.refused += 1;
                self.refused += 1;
                self.drop_file(at, path)?;
                self.doing = Doing::Nothing;
            }
        }
        Ok(())
    }

    fn start(&mut self, at: &mut Destination, path: &RelPath, number: FileNumber, inode: u64) {
        at.writing
            .entry(path.clone())
            .or_default()
            .insert(self.number);
        self.doing = Doing::Writing {
            path: path.clone(),
            number,
            inode,
        };
    }

    fn write(
        &mut self,
        at: &mut Destination,
        path: &RelPath,
        number: FileNumber,
        inode: u64,
    ) -> Result<()> {
        let bytes = at.files.get(path).cloned().unwrap_or_default();
        let done = self
            .log()
            .file(path)
            .map(|file| file.done.clone())
            .unwrap_or_default();
        let range = |object: u64| {
            let end = ((object + 1) * OBJECT_BYTES).min(bytes.len() as u64);
            ByteRange::between(object * OBJECT_BYTES, end)
        };
        let next = (0..checks::objects(bytes.len())).find(|at| !done.contains(range(*at)));
        let Some(object) = next else {
            return self.publish(at, path, number, inode);
        };
        checks::at_write(at, self.number, path, object);
        let range = range(object);
        let data = &bytes[range.offset as usize..range.end() as usize];
        {
            let mut disk = at.disk.borrow_mut();
            disk.write(inode, range.offset, data)?;
            let now = disk.now();
            disk.sync(inode, now)?;
            disk.sync_folder(&RelPath::root(), now)?;
        }
        self.log().done(number, range, Sums::of(data))?;
        self.log().commit()?;
        at.durable.insert((path.clone(), object));
        Ok(())
    }

    fn publish(
        &mut self,
        at: &mut Destination,
        path: &RelPath,
        number: FileNumber,
        inode: u64,
    ) -> Result<()> {
        let name = self.log().file(path).map(|file| file.partial.name.clone());
        if let Some(name) = name {
            let mut disk = at.disk.borrow_mut();
            let node = Node::File(inode, metadata(ModifiedTime::default()));
            disk.rename(&RelPath::root().join(&name)?, path, node)?;
            let now = disk.now();
            disk.sync_folder(&RelPath::root(), now)?;
        }
        self.log().end_file(number, Ending::Published)?;
        self.log().commit()?;
        if let Some(writing) = at.writing.get_mut(path) {
            writing.remove(&self.number);
        }
        at.durable.retain(|(done, _)| done != path);
        self.doing = Doing::Nothing;
        Ok(())
    }

    pub(super) fn drop_file(&mut self, at: &mut Destination, path: &RelPath) -> Result<()> {
        let Some(file) = self.log().file(path).cloned() else {
            return Ok(());
        };
        self.log().end_file(file.number, Ending::Dropped)?;
        self.log().commit()?;
        let found = self.found(at, &file.partial.name);
        // If a run was killed while it inherited the file, two logs contain the file.
        let is_shared = logs(at)?.iter().any(|(log, found)| {
            let mut files = found.files.values();
            *log != self.log_path && files.any(|other| other.partial.inode == file.partial.inode)
        });
        if found.is_some_and(|found| file.partial.is(&found, true)) && !is_shared {
            checks::at_removal(at, self.number, &self.log_path, file.partial.inode)?;
            at.disk
                .borrow_mut()
                .remove_name(&RelPath::root().join(&file.partial.name)?)?;
        }
        Ok(())
    }

    /// Cleans up after all files are handled. If files were refused, starts again with them.
    fn finish(&mut self, at: &mut Destination) -> Result<()> {
        if at.mutant == Some(Mutant::CleansAll) {
            self.clean_all(at)?;
        }
        let own: Vec<RelPath> = self.log().files().map(|(path, _)| path.clone()).collect();
        let is_done = self.refused == 0;
        for path in own {
            // If this transfer is not done, its next attempt may inherit the refused files, so keep
            // the records.
            if is_done {
                self.drop_file(at, &path)?;
            }
        }
        let is_empty = self.log().files().next().is_none();
        if is_empty {
            remove(at, &self.log_path)?;
        }
        self.die(at, 0);
        self.is_done = is_done;
        Ok(())
    }

    fn clean_all(&self, at: &mut Destination) -> Result<()> {
        for (log, found) in logs(at)? {
            if at.held.contains_key(&log) {
                continue;
            }
            for file in found.files.values() {
                let destination = RelPath::root().join(&file.partial.name)?;
                let inode = self.found(at, &file.partial.name).map(|found| found.inode);
                if inode == Some(file.partial.inode) {
                    checks::at_removal(at, self.number, &self.log_path, file.partial.inode)?;
                    at.disk.borrow_mut().remove_name(&destination)?;
                }
            }
            remove(at, &log)?;
        }
        Ok(())
    }
}

pub(super) fn remove(at: &Destination, log: &RelPath) -> Result<()> {
    remove_log(&mut at.disk.borrow_mut(), log)
}

//! The simulated host of the sink. It inspects, writes, syncs, logs and publishes files on the
//! simulated disk. It logs with the object log of the real engine (`dray_log`). Each effect makes
//! one or several changes of the disk, so a crash may occur in the middle of an effect.

mod resume;

use crate::disk::{Node, SharedDisk};
use crate::log_file::{DiskFile, read_lease, remove_log};
use crate::mutants::Mutant;
use crate::workload::{Setup, metadata};
use dray_core::options::Durability;
use dray_core::{
    BufferId, ContentKey, End, Error, ErrorKind, FileIndex, FileKind, Layout, Metadata,
    ModifiedTime, RelPath, Result, Sums, TransferId,
};
use dray_log::{
    BootId, Ending, FileNumber, Header, LeaseRecord, LockKind, ObjectLog, Recovery, Tenure,
    UniversalLog, layout, lease, recover, trust,
};
use dray_sched::rng::Rng;
use dray_session::sink::{
    Existing, Facts, InspectItem, InspectTask, Inspected, LogRecord, PublishItem, SyncItem,
    WritePart,
};
use std::collections::{BTreeMap, BTreeSet};

const OWNER: &[u8] = b"user";

/// An open partial file.
#[derive(Debug, Clone)]
pub struct Partial {
    /// Final path of the file.
    pub path: RelPath,
    /// Path of the partial file.
    pub place: RelPath,
    /// Inode of the partial file.
    pub inode: u64,
    number: FileNumber,
    is_entry_durable: bool,
}

impl Partial {
    /// Returns the path, the inode and the number of the partial file.
    fn doubtful(&self) -> (RelPath, u64, FileNumber) {
        (self.place.clone(), self.inode, self.number)
    }
}

/// The sink's host.
#[derive(Debug)]
pub struct SinkHost {
    disk: SharedDisk,
    setup: Setup,
    lease: LeaseRecord,
    recovery: Option<Recovery>,
    log: Option<UniversalLog<DiskFile>>,
    /// Open partial files.
    pub partials: BTreeMap<FileIndex, Partial>,
    /// Small files that are written and not published yet: path and inode.
    pub smalls: BTreeMap<FileIndex, (RelPath, u64)>,
    ending: BTreeMap<RelPath, FileNumber>,
    must_sync: BTreeSet<RelPath>,
    /// Announced entries: path, and content key for files.
    pub known: BTreeMap<FileIndex, (RelPath, Option<ContentKey>)>,
    /// Contents of the buffers of the pool.
    pub buffers: Vec<Vec<u8>>,
    /// Buffers that are free for arriving objects.
    pub free: BTreeSet<BufferId>,
    /// Planted defect, if any.
    pub mutant: Option<Mutant>,
    /// Records that the mutant `RecordAfterAck` appends later.
    kept_back: Vec<LogRecord>,
    draw: Rng,
}

fn transfer() -> Result<TransferId> {
    TransferId::new("sim")
}

/// Returns the path of the log of the simulated transfer. This transfer may write to the whole
/// tree.
///
/// # Errors
/// Never: all names that this function builds are valid.
pub fn log_path() -> Result<RelPath> {
    RelPath::root()
        .join(&layout::log_folder_name()?)?
        .join(&layout::log_name(&[], &transfer()?)?)
}

fn lease_path() -> Result<RelPath> {
    RelPath::root()
        .join(&layout::log_folder_name()?)?
        .join(&layout::lease_name(&[], &transfer()?)?)
}

fn wrong(kind: ErrorKind, operation: &str, path: &RelPath) -> Error {
    Error::new(kind, End::Sink, operation).file(path)
}

impl SinkHost {
    /// Takes the lease and reads the log.
    ///
    /// # Errors
    /// Errors of the disk and of the log.
    pub fn open(
        disk: &SharedDisk,
        setup: &Setup,
        session: usize,
        boot: u64,
        mutant: Option<Mutant>,
        draw: Rng,
    ) -> Result<Self> {
        let folder = RelPath::root().join(&layout::log_folder_name()?)?;
        let known = disk.borrow().look(&folder).is_some();
        if !known {
            let mut disk = disk.borrow_mut();
            disk.put_name(&folder, Node::Directory(Metadata::default()))?;
            let now = disk.now();
            disk.sync_folder(&RelPath::root(), now)?;
        }
        let mut file = open_log(disk, mutant)?;
        let recovery = recover(&mut file)?;
        if let Some(damage) = recovery.as_ref().and_then(|found| found.damage.as_ref()) {
            return Err(damage.error("the log"));
        }
        let boot_id = BootId::new(format!("{boot:032}").as_bytes())?;
        let held = read_lease(disk, &lease_path()?)?;
        let log_epoch = recovery.as_ref().map(|found| found.tenure.epoch);
        let transfer = transfer()?;
        let record = LeaseRecord {
            epoch: lease::next_epoch(held.as_ref(), log_epoch)?,
            holder: format!("session {session}"),
            transfer: transfer.clone(),
            boot_id: boot_id.clone(),
            host: "sink".into(),
            request: 0,
            lock: LockKind::System,
        };
        write_lease(disk, &record)?;
        let tenure = Tenure {
            epoch: record.epoch,
            holder: record.holder.clone(),
            transfer,
            boot_id,
            durability: setup.options.durability,
        };
        let mut host = Self {
            disk: disk.clone(),
            setup: setup.clone(),
            lease: record,
            recovery: None,
            log: None,
            partials: BTreeMap::new(),
            smalls: BTreeMap::new(),
            ending: BTreeMap::new(),
            must_sync: BTreeSet::new(),
            known: BTreeMap::new(),
            buffers: vec![Vec::new(); setup.buffers as usize],
            free: (0..setup.buffers).map(BufferId).collect(),
            mutant,
            kept_back: Vec::new(),
            draw,
        };
        if let Some(found) = recovery {
            trust::check_owner(&found, &host.trusting())?;
            host.log = Some(UniversalLog::resume(file, found.clone(), tenure)?);
            host.recovery = Some(found);
        }
        Ok(host)
    }

    fn trusting(&self) -> trust::Sink<'_> {
        trust::Sink {
            log: "the log",
            owner: OWNER,
            boot_id: &self.lease.boot_id,
            durability: self.setup.options.durability,
        }
    }

    /// Returns true if another holder has taken the lease.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        lease_path()
            .and_then(|path| read_lease(&self.disk, &path))
            .map(|found| lease::is_fenced(&self.lease, found.as_ref()))
            .unwrap_or(true)
    }

    fn check_lease(&self) -> Result<()> {
        if self.mutant == Some(Mutant::LeaseIgnored) || !self.is_fenced() {
            return Ok(());
        }
        Err(lease::fenced_error(
            read_lease(&self.disk, &lease_path()?)?.as_ref(),
        ))
    }

    fn layout(&self, path: &RelPath) -> Layout {
        if self.setup.in_turn {
            let digits = path.as_bytes().iter().filter(|byte| byte.is_ascii_digit());
            let number = digits.fold(0, |number: u32, digit| {
                number.wrapping_mul(10) + u32::from(digit - b'0')
            });
            return Layout::Single(dray_core::TargetId(number % self.setup.sink_targets.max(1)));
        }
        let seed = Sums::of(path.as_bytes()).crc32c;
        let mut draw = Rng::new(u64::from(seed));
        self.setup.layout(&mut draw, self.setup.sink_targets)
    }

    /// Inspects files, and creates folders and links.
    pub fn inspect(&mut self, items: Vec<InspectItem>) -> Vec<(FileIndex, Inspected)> {
        let mut found = Vec::new();
        for item in items {
            let key = match &item.task {
                InspectTask::File(key) => Some(key.clone()),
                _ => None,
            };
            self.known.insert(item.index, (item.path.clone(), key));
            let result = match self.check_lease().and_then(|()| self.inspect_one(&item)) {
                Ok(inspected) => inspected,
                Err(error) => Inspected::Failed(error),
            };
            found.push((item.index, result));
        }
        found
    }

    fn inspect_one(&mut self, item: &InspectItem) -> Result<Inspected> {
        let standing = self.disk.borrow().look(&item.path).cloned();
        match (&item.task, standing) {
            (InspectTask::Directory, Some(Node::Directory(_))) => Ok(Inspected::Made),
            (InspectTask::Directory, None) => {
                let node = Node::Directory(Metadata::default());
                self.disk.borrow_mut().put_name(&item.path, node)?;
                Ok(Inspected::Made)
            }
            (InspectTask::Directory, Some(_)) => Err(wrong(
                ErrorKind::NotADirectory,
                "create the folder",
                &item.path,
            )),
            (InspectTask::Symlink { .. }, Some(Node::Directory(_))) => Err(wrong(
                ErrorKind::IsADirectory,
                "create the link",
                &item.path,
            )),
            (InspectTask::Symlink { target, .. }, _) => {
                let node = Node::Symlink(target.clone(), metadata(ModifiedTime::default()));
                self.disk.borrow_mut().put_name(&item.path, node)?;
                Ok(Inspected::Made)
            }
            (InspectTask::File(key), standing) => {
                let existing = standing.map(|node| self.existing(&node));
                let resume = self.resume(&item.path, key)?;
                Ok(Inspected::File(Facts {
                    existing,
                    resume,
                    layout: self.layout(&item.path),
                }))
            }
        }
    }

    fn existing(&self, node: &Node) -> Existing {
        let (kind, inode, attributes) = match node {
            Node::File(inode, attributes) => (FileKind::File, Some(*inode), attributes),
            Node::Directory(attributes) => (FileKind::Directory, None, attributes),
            Node::Symlink(_, attributes) => (FileKind::Symlink, None, attributes),
        };
        Existing {
            kind,
            size: inode.map_or(0, |inode| self.disk.borrow().bytes(inode).len() as u64),
            modified: attributes.modified,
            sums: None,
            mode: None,
        }
    }

    /// Returns the log. Creates the log at the first call.
    fn log(&mut self) -> Result<&mut UniversalLog<DiskFile>> {
        if self.log.is_none() {
            let tenure = Tenure {
                epoch: self.lease.epoch,
                holder: self.lease.holder.clone(),
                transfer: self.lease.transfer.clone(),
                boot_id: self.lease.boot_id.clone(),
                durability: self.setup.options.durability,
            };
            let nonce = self.draw.next();
            let header = Header::new(Vec::new(), OWNER.to_vec(), nonce, "sim", tenure);
            let header = header.of_form(self.setup.log_form);
            let file = open_log(&self.disk, self.mutant)?;
            self.log = Some(UniversalLog::create(file, header)?);
        }
        self.log
            .as_mut()
            .ok_or_else(|| Error::new(ErrorKind::Internal, End::Sink, "open the log"))
    }

    /// Writes the parts of a block.
    pub fn write(&mut self, parts: &[WritePart], bytes: &[u8]) -> Vec<Result<()>> {
        let mut at = 0;
        let mut results = Vec::new();
        for part in parts {
            let length = if part.hole {
                0
            } else {
                part.range.length as usize
            };
            let data = bytes.get(at..at + length).unwrap_or_default();
            at += length;
            results.push(self.write_part(part, data));
        }
        results
    }

    fn write_part(&mut self, part: &WritePart, data: &[u8]) -> Result<()> {
        self.check_lease()?;
        let Some(inode) = self.inode_of(part)? else {
            return Ok(());
        };
        let mut disk = self.disk.borrow_mut();
        if !part.hole {
            return disk.write(inode, part.range.offset, data);
        }
        let end = part.range.end() as usize;
        let have = disk.bytes(inode);
        let old = have.get(part.range.offset as usize..have.len().min(end));
        if old.is_some_and(|old| old.iter().any(|byte| *byte != 0)) {
            disk.write(
                inode,
                part.range.offset,
                &vec![0; part.range.length as usize],
            )?;
        } else if have.len() < end {
            disk.truncate(inode, end as u64)?;
        }
        Ok(())
    }

    /// Returns the inode to which a part is written. Returns `None` if the part's file is closed.
    pub fn inode_of(&mut self, part: &WritePart) -> Result<Option<u64>> {
        let Some((path, _)) = &part.small else {
            return Ok(self.partials.get(&part.file).map(|partial| partial.inode));
        };
        if let Some((_, inode)) = self.smalls.get(&part.file) {
            return Ok(Some(*inode));
        }
        self.drop_logged(path)?;
        let inode = self.disk.borrow_mut().create()?;
        self.smalls.insert(part.file, (path.clone(), inode));
        Ok(Some(inode))
    }

    /// Makes the changes of the items durable, up to the change with the number `until`.
    ///
    /// # Errors
    /// Errors of the disk and of the log.
    pub fn sync(&mut self, items: &[SyncItem], until: u64) -> Result<()> {
        self.check_lease()?;
        for item in items {
            match item {
                SyncItem::Partial(index) => {
                    let Some(partial) = self.partials.get_mut(index) else {
                        continue;
                    };
                    let synced = self.disk.borrow_mut().sync(partial.inode, until);
                    if let Err(error) = synced {
                        self.doubt(items);
                        return Err(error);
                    }
                    if !std::mem::replace(&mut partial.is_entry_durable, true) {
                        let place = partial.place.clone();
                        self.sync_chain(&place, until)?;
                    }
                }
                SyncItem::Small(path) => {
                    let found = self.smalls.values().find(|(other, _)| other == path);
                    if let Some((_, inode)) = found {
                        self.disk.borrow_mut().sync(*inode, until)?;
                    }
                }
                SyncItem::Adopted(path) => {
                    let mut disk = self.disk.borrow_mut();
                    if let Some(Node::File(inode, _)) = disk.look(path) {
                        let inode = *inode;
                        disk.sync(inode, until)?;
                    }
                    drop(disk);
                    self.sync_chain(path, until)?;
                }
                SyncItem::Published(path) => {
                    self.sync_chain(path, until)?;
                    self.end_published(path)?;
                }
            }
        }
        Ok(())
    }

    fn end_published(&mut self, path: &RelPath) -> Result<()> {
        if let (Some(number), Some(log)) = (self.ending.remove(path), &mut self.log) {
            log.end_file(number, Ending::Published)?;
        }
        Ok(())
    }

    fn sync_chain(&self, path: &RelPath, until: u64) -> Result<()> {
        let mut folder = path.parent();
        while let Some(above) = folder {
            self.disk.borrow_mut().sync_folder(&above, until)?;
            folder = above.parent();
        }
        Ok(())
    }

    /// Appends records to the log.
    ///
    /// # Errors
    /// Errors of the disk and of the log.
    pub fn append(&mut self, records: &[LogRecord]) -> Result<()> {
        self.check_lease()?;
        let mut records = records.to_vec();
        if self.mutant == Some(Mutant::RecordAfterAck) {
            records = std::mem::replace(&mut self.kept_back, records);
        }
        for record in records {
            let Some(number) = self.partials.get(&record.file).map(|open| open.number) else {
                continue;
            };
            self.log()?.done(number, record.range, record.sums)?;
        }
        let compacts = self.draw.below(20) == 0;
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        if compacts {
            log.compact()
        } else {
            log.commit()
        }
    }

    /// Returns the inode of a file and the checksums of its written content.
    #[must_use]
    pub fn read_back(&self, index: FileIndex) -> Option<(u64, Sums)> {
        let inode = match (self.partials.get(&index), self.smalls.get(&index)) {
            (Some(partial), _) => partial.inode,
            (None, small) => small?.1,
        };
        let disk = self.disk.borrow();
        let bytes = match self.setup.options.durability {
            Durability::None => disk.bytes(inode),
            _ => disk.durable_bytes(inode),
        };
        Some((inode, Sums::of(bytes)))
    }

    /// Gives a file its final name. Returns the file's inode.
    ///
    /// # Errors
    /// Errors of the disk and of the log.
    pub fn publish(&mut self, item: &PublishItem) -> Result<u64> {
        self.check_lease()?;
        match self.disk.borrow().look(&item.path) {
            Some(Node::Directory(_)) => {
                return Err(wrong(ErrorKind::IsADirectory, "publish", &item.path));
            }
            Some(_) if !item.replace => {
                return Err(wrong(ErrorKind::AlreadyExists, "publish", &item.path));
            }
            _ => {}
        }
        if item.small {
            let inode = match self.smalls.get(&item.index) {
                Some((_, inode)) => *inode,
                None => self.disk.borrow_mut().create()?,
            };
            self.drop_logged(&item.path)?;
            let node = Node::File(inode, item.metadata.clone());
            self.disk.borrow_mut().put_name(&item.path, node)?;
            return Ok(inode);
        }
        let gone = || wrong(ErrorKind::NotFound, "publish", &item.path);
        let partial = self.partials.get(&item.index).ok_or_else(gone)?.clone();
        let node = Node::File(partial.inode, item.metadata.clone());
        self.disk
            .borrow_mut()
            .rename(&partial.place, &item.path, node)?;
        self.ending.insert(item.path.clone(), partial.number);
        if self.setup.options.durability == Durability::None {
            self.end_published(&item.path)?;
        }
        Ok(partial.inode)
    }

    /// Sets a folder's attributes.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn set_directory(&mut self, path: &RelPath, attributes: &Metadata) -> Result<()> {
        self.check_lease()?;
        let node = Node::Directory(attributes.clone());
        self.disk.borrow_mut().put_name(path, node)
    }

    /// Deletes a file and the data that was written for it.
    pub fn discard(&mut self, index: FileIndex) -> Result<()> {
        self.smalls.remove(&index);
        if let Some(partial) = self.partials.remove(&index) {
            self.check_lease()?;
            self.drop_logged(&partial.path)?;
        }
        Ok(())
    }

    /// Removes the unfinished files that the log lists, except those in `keeps`. The next run
    /// resumes the files in `keeps`. Without `keeps`, all unfinished files stay. Removes the log if
    /// no unfinished file stays.
    ///
    /// # Errors
    /// Errors of the disk and of the log.
    pub fn finish_log(&mut self, keeps: Option<&BTreeSet<RelPath>>) -> Result<()> {
        self.check_lease()?;
        let unfinished: Vec<RelPath> = match &self.log {
            Some(log) => log.files().map(|(path, _)| path.clone()).collect(),
            None => Vec::new(),
        };
        let stays = |path: &RelPath| keeps.is_none_or(|keeps| keeps.contains(path));
        for path in unfinished.iter().filter(|path| !stays(path)) {
            self.drop_logged(path)?;
        }
        if let (true, Some(log)) = (unfinished.iter().any(stays), &mut self.log) {
            return log.commit();
        }
        self.log = None;
        remove_log(&mut self.disk.borrow_mut(), &log_path()?)
    }
}

fn open_log(disk: &SharedDisk, mutant: Option<Mutant>) -> Result<DiskFile> {
    let defect = match mutant {
        Some(Mutant::Log(_, defect)) => Some(defect),
        _ => None,
    };
    Ok(DiskFile::open(disk, &log_path()?).with_defect(defect))
}

fn beside(path: &RelPath, name: &dray_core::Name) -> Result<RelPath> {
    path.parent().unwrap_or_else(RelPath::root).join(name)
}

fn write_lease(disk: &SharedDisk, record: &LeaseRecord) -> Result<()> {
    let path = lease_path()?;
    let mut disk = disk.borrow_mut();
    let inode = match disk.look(&path) {
        Some(Node::File(inode, _)) => *inode,
        _ => {
            let inode = disk.create()?;
            disk.put_name(&path, Node::File(inode, Metadata::default()))?;
            inode
        }
    };
    disk.write(inode, record.slot_offset(), &record.encode()?)?;
    let now = disk.now();
    disk.sync(inode, now)?;
    disk.sync_folder(&path.parent().unwrap_or_else(RelPath::root), now)
}

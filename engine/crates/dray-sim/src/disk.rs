//! The sink's disk, which distinguishes written data from durable data.
//!
//! Content: a write stays pending until its inode is synced. A crash keeps any subset of the
//! pending writes, each whole or in part. Names: each folder has a journal. A crash keeps a prefix
//! of the journal, and a sync of the folder makes the whole journal durable. Attributes are stored
//! with the name, so their changes follow the order of the journal (as on ext4, xfs, btrfs, zfs).
//! If only a process is killed, no written data or names are lost.
//!
//! After a failed write-back an inode is doubtful. If lost bytes are written again, the cache
//! returns them and a later sync succeeds, but the disk keeps zeros in their place (ext4 with
//! delayed allocation). A crash drops the cache, so reads then return the zeros. Other inodes are
//! not affected.

use dray_core::{End, Error, ErrorKind, Metadata, RelPath, Result};
use dray_sched::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The entry to which a name refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file: its inode and attributes.
    File(u64, Metadata),
    /// A folder.
    Directory(Metadata),
    /// A symbolic link.
    Symlink(Vec<u8>, Metadata),
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    cache: Vec<u8>,
    durable: Vec<u8>,
    waiting: Vec<(u64, Change)>,
    /// Ranges whose writes were lost. Bytes that are written there again do not reach the disk.
    lost: Vec<(usize, usize)>,
    /// True if the next sync must report a lost write.
    is_loss_unsaid: bool,
}

impl Inode {
    /// Drops the pending writes up to change number `until`. Changes of the length are kept,
    /// because they are in the journal.
    fn lose(&mut self, until: u64) {
        for (sequence, change) in std::mem::take(&mut self.waiting) {
            match change {
                Change::Write(offset, data) if sequence <= until => {
                    self.lost.push((offset, offset + data.len()));
                }
                change => self.waiting.push((sequence, change)),
            }
        }
    }

    /// Applies a change, or its first `part` bytes, to the durable bytes outside of the lost
    /// ranges.
    fn store(&mut self, change: &Change, part: usize) {
        if let Change::Truncate(length) = change {
            // A file system frees the blocks after the new end, so new bytes get other blocks.
            self.lost.retain(|(from, _)| from < length);
            for (_, to) in &mut self.lost {
                *to = (*to).min(*length);
            }
        }
        let kept: Vec<(usize, Vec<u8>)> = self
            .lost
            .iter()
            .map(|(from, to)| {
                let end = (*to).min(self.durable.len());
                let from = (*from).min(end);
                (from, self.durable[from..end].to_vec())
            })
            .collect();
        apply(&mut self.durable, change, part);
        for ((from, to), (at, bytes)) in self.lost.iter().zip(kept) {
            let end = (*to).min(self.durable.len());
            self.durable[(*from).min(end)..end].fill(0);
            let end = (at + bytes.len()).min(self.durable.len());
            self.durable[at.min(end)..end].copy_from_slice(&bytes[..end.saturating_sub(at)]);
        }
    }
}

#[derive(Debug, Clone)]
enum NameChange {
    Put(RelPath, Node),
    Remove(RelPath),
    Rename(RelPath, RelPath, Node),
}

/// Failures that the disk returns at the next matching call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trouble {
    /// Number of content writes that will fail with "no space".
    pub no_space: Option<u32>,
    /// True if the next content write must fail.
    pub write: bool,
    /// True if the next content sync must fail and drop the pending writes.
    pub sync: bool,
    /// True if the next append to the log must fail in the middle.
    pub log: bool,
    /// True if the next sync of the log must fail.
    pub log_sync: bool,
}

/// The simulated disk.
#[derive(Debug, Default)]
pub struct Disk {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<RelPath, Node>,
    durable_names: BTreeMap<RelPath, Node>,
    journals: BTreeMap<RelPath, Vec<(u64, NameChange)>>,
    sequence: u64,
    modifications: u64,
    next_inode: u64,
    /// Number of changes until the power fails. `None` if no power failure is planned.
    pub fuse: Option<u32>,
    /// True after a power failure. All calls fail until [`Disk::crash`].
    pub is_dead: bool,
    /// Failures to return.
    pub trouble: Trouble,
    /// Names of the faults that the disk has returned, for the table of faults.
    pub shown: Vec<&'static str>,
}

fn failed(kind: ErrorKind, operation: &str) -> Error {
    Error::new(kind, End::Sink, operation).cause("simulated")
}

fn apply(bytes: &mut Vec<u8>, change: &Change, part: usize) {
    match change {
        Change::Write(offset, data) => {
            let data = &data[..part.min(data.len())];
            let end = offset + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset..end].copy_from_slice(data);
        }
        Change::Truncate(length) => bytes.resize(*length, 0),
    }
}

fn apply_name(names: &mut BTreeMap<RelPath, Node>, change: NameChange) {
    match change {
        NameChange::Put(path, node) => {
            names.insert(path, node);
        }
        NameChange::Remove(path) => {
            names.remove(&path);
        }
        NameChange::Rename(from, to, node) => {
            names.remove(&from);
            names.insert(to, node);
        }
    }
}

/// A handle of a disk. All handles of a world refer to the same disk. A handle can move to another
/// thread, because the handles of part logs must be able to. The simulator has only one thread.
#[derive(Debug, Clone, Default)]
pub struct SharedDisk(Arc<RwLock<Disk>>);

impl SharedDisk {
    /// Returns the disk for reading.
    pub fn borrow(&self) -> RwLockReadGuard<'_, Disk> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the disk for changes. The caller must not hold another borrow.
    pub fn borrow_mut(&self) -> RwLockWriteGuard<'_, Disk> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn change(&mut self) -> Result<u64> {
        if let Some(left) = &mut self.fuse {
            if *left == 0 {
                self.is_dead = true;
            }
            *left = left.saturating_sub(1);
        }
        if self.is_dead {
            return Err(failed(ErrorKind::Io, "reach the disk"));
        }
        self.sequence += 1;
        Ok(self.sequence)
    }

    /// Returns the number of the latest change. A sync that begins now covers all changes up to
    /// this number.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.sequence
    }

    /// Starts a change of content or names. A sync is no such change.
    fn modify(&mut self) -> Result<u64> {
        let sequence = self.change()?;
        self.modifications += 1;
        Ok(sequence)
    }

    /// Returns the number of changes of content and names so far. Syncs do not count, because they
    /// change no data.
    #[must_use]
    pub const fn modifications(&self) -> u64 {
        self.modifications
    }

    /// Creates an inode without a name.
    ///
    /// # Errors
    /// After a power failure.
    pub fn create(&mut self) -> Result<u64> {
        self.modify()?;
        self.next_inode += 1;
        self.inodes.insert(self.next_inode, Inode::default());
        Ok(self.next_inode)
    }

    /// Writes content.
    ///
    /// # Errors
    /// After a power failure, and as requested in [`Trouble`].
    pub fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(left) = &mut self.trouble.no_space {
            if *left > 0 {
                *left -= 1;
                self.shown.push("no_space");
                return Err(failed(ErrorKind::NoSpace, "write the file"));
            }
            self.trouble.no_space = None;
        }
        if std::mem::take(&mut self.trouble.write) {
            self.shown.push("write_error");
            return Err(failed(ErrorKind::Io, "write the file"));
        }
        self.put(inode, Change::Write(offset as usize, bytes.to_vec()))
    }

    /// Truncates or extends the content of the file `inode`.
    ///
    /// # Errors
    /// An error after a simulated power failure.
    pub fn truncate(&mut self, inode: u64, length: u64) -> Result<()> {
        self.put(inode, Change::Truncate(length as usize))
    }

    fn put(&mut self, inode: u64, change: Change) -> Result<()> {
        let sequence = self.modify()?;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            apply(&mut inode.cache, &change, usize::MAX);
            inode.waiting.push((sequence, change));
        }
        Ok(())
    }

    /// Writes a random prefix of `bytes`, as if the process was killed during the write.
    pub fn write_torn(&mut self, inode: u64, offset: u64, bytes: &[u8], draw: &mut Rng) {
        let part = draw.below(bytes.len() as u64 + 1) as usize;
        if !self.is_dead {
            let change = Change::Write(offset as usize, bytes[..part].to_vec());
            let _ = self.put(inode, change);
        }
    }

    /// Returns the written bytes, as processes read them.
    #[must_use]
    pub fn bytes(&self, inode: u64) -> &[u8] {
        self.inodes
            .get(&inode)
            .map_or(&[], |inode| inode.cache.as_slice())
    }

    /// Returns the durable bytes. They survive a crash.
    #[must_use]
    pub fn durable_bytes(&self, inode: u64) -> &[u8] {
        self.inodes
            .get(&inode)
            .map_or(&[], |inode| inode.durable.as_slice())
    }

    /// Makes the changes of an inode up to change number `until` durable.
    ///
    /// # Errors
    /// After a power failure, and as requested in [`Trouble`].
    pub fn sync(&mut self, inode: u64, until: u64) -> Result<()> {
        self.change()?;
        let Some(inode) = self.inodes.get_mut(&inode) else {
            return Ok(());
        };
        if std::mem::take(&mut self.trouble.sync) {
            // As on Linux, the pages count as clean after the failed sync, although the disk does
            // not have their content.
            inode.lose(until);
            self.shown.push("sync_error");
            return Err(failed(ErrorKind::Io, "sync the file"));
        }
        if std::mem::take(&mut inode.is_loss_unsaid) {
            return Err(failed(ErrorKind::Io, "sync the file"));
        }
        for (sequence, change) in std::mem::take(&mut inode.waiting) {
            if sequence <= until {
                inode.store(&change, usize::MAX);
            } else {
                inode.waiting.push((sequence, change));
            }
        }
        Ok(())
    }

    /// Simulates a failed write-back by the system. The pending writes of an inode are lost, and
    /// only the next sync reports the loss. Returns true if any write was pending.
    pub fn lose_writes(&mut self, inode: u64) -> bool {
        let now = self.sequence;
        let Some(inode) = self.inodes.get_mut(&inode) else {
            return false;
        };
        let before = inode.lost.len();
        inode.lose(now);
        inode.is_loss_unsaid |= inode.lost.len() > before;
        inode.lost.len() > before
    }

    /// Loses the pending writes of an inode. The caller reports the loss as the error of a sync, so
    /// no later sync reports it again.
    pub fn lose_reported_writes(&mut self, inode: u64) {
        let now = self.sequence;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.lose(now);
        }
    }

    /// Makes the name changes of a folder durable, up to the change with the number `until`.
    ///
    /// # Errors
    /// After a power failure.
    pub fn sync_folder(&mut self, folder: &RelPath, until: u64) -> Result<()> {
        self.change()?;
        if let Some(journal) = self.journals.get_mut(folder) {
            let (done, left) = std::mem::take(journal)
                .into_iter()
                .partition(|(sequence, _)| *sequence <= until);
            *journal = left;
            for (_, change) in done {
                apply_name(&mut self.durable_names, change);
            }
        }
        Ok(())
    }

    fn name(&mut self, folder: &RelPath, change: NameChange) -> Result<()> {
        let sequence = self.modify()?;
        apply_name(&mut self.names, change.clone());
        let journal = self.journals.entry(folder.clone()).or_default();
        journal.push((sequence, change));
        Ok(())
    }

    /// Sets the entry of a name. Replaces an existing entry.
    ///
    /// # Errors
    /// After a power failure.
    pub fn put_name(&mut self, path: &RelPath, node: Node) -> Result<()> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        self.name(&folder, NameChange::Put(path.clone(), node))
    }

    /// Removes a name.
    ///
    /// # Errors
    /// After a power failure.
    pub fn remove_name(&mut self, path: &RelPath) -> Result<()> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        self.name(&folder, NameChange::Remove(path.clone()))
    }

    /// Renames an entry within its folder, and sets new attributes.
    ///
    /// # Errors
    /// After a power failure.
    pub fn rename(&mut self, from: &RelPath, to: &RelPath, node: Node) -> Result<()> {
        let folder = to.parent().unwrap_or_else(RelPath::root);
        self.name(&folder, NameChange::Rename(from.clone(), to.clone(), node))
    }

    /// Returns the entry at a path.
    #[must_use]
    pub fn look(&self, path: &RelPath) -> Option<&Node> {
        self.names.get(path)
    }

    /// Returns all names with their entries.
    pub fn names(&self) -> impl Iterator<Item = (&RelPath, &Node)> {
        self.names.iter()
    }

    /// Returns the entry that a path would have after a crash.
    #[must_use]
    pub fn look_durable(&self, path: &RelPath) -> Option<&Node> {
        let mut folder = path.parent();
        while let Some(above) = folder {
            if !above.is_root() && !self.durable_names.contains_key(&above) {
                return None;
            }
            folder = above.parent();
        }
        self.durable_names.get(path)
    }

    /// Makes all data and names durable, as before a run begins.
    pub fn settle(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.durable.clone_from(&inode.cache);
            inode.waiting.clear();
            inode.lost.clear();
        }
        self.durable_names.clone_from(&self.names);
        self.journals.clear();
    }

    /// Simulates a power failure and a restart. Durable data survives, and so does a random part of
    /// all other data.
    pub fn crash(&mut self, draw: &mut Rng) {
        // One crash in ten loses all data that is not durable, and one crash in ten loses no data.
        let mood = draw.below(10);
        for journal in std::mem::take(&mut self.journals).into_values() {
            let keep = match mood {
                0 => 0,
                1 => journal.len(),
                _ => draw.below(journal.len() as u64 + 1) as usize,
            };
            for (_, change) in journal.into_iter().take(keep) {
                apply_name(&mut self.durable_names, change);
            }
        }
        for inode in self.inodes.values_mut() {
            for (_, change) in std::mem::take(&mut inode.waiting) {
                let part = match (mood, draw.below(4)) {
                    (0, _) | (2.., 0 | 1) => continue,
                    (2.., 2) => draw.below(300) as usize,
                    _ => usize::MAX,
                };
                inode.store(&change, part);
            }
            inode.cache.clone_from(&inode.durable);
            inode.lost.clear();
            inode.is_loss_unsaid = false;
        }
        let paths: Vec<RelPath> = self.durable_names.keys().cloned().collect();
        for path in paths {
            if self.look_durable(&path).is_none() {
                self.durable_names.remove(&path);
            }
        }
        self.names.clone_from(&self.durable_names);
        self.is_dead = false;
        self.fuse = None;
        self.trouble = Trouble::default();
    }

    /// Flips a bit of a stored byte, as silent corruption of the storage does.
    pub fn rot(&mut self, inode: u64, at: usize) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            for bytes in [&mut inode.cache, &mut inode.durable] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1;
                }
            }
        }
    }
}

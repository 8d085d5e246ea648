//! A folder with a log and its part logs, which distinguishes written from durable data.

use super::CrashDisk;
use dray_core::{End, Error, ErrorKind, Result};
use dray_log::{LogFile, PartAccess, Tenure};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Key of a file: `None` for the log, a number for a part log.
pub(crate) type Key = Option<u32>;

/// Content of the folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) files: BTreeMap<Key, CrashDisk>,
    /// The last durable content of removed files. A crash may undo a removal.
    pub(crate) removed: BTreeMap<Key, Vec<u8>>,
}

impl Folder {
    /// Returns the folder in which each file has the content that `content` chooses.
    pub(crate) fn with(&self, content: impl Fn(Key, &CrashDisk) -> Vec<u8>) -> Self {
        let files = self.files.iter().map(|(key, disk)| {
            let bytes = content(*key, disk);
            (*key, disk_of(bytes))
        });
        Self {
            files: files.collect(),
            removed: BTreeMap::new(),
        }
    }

    /// Returns the folder in which the removed files exist again.
    pub(crate) fn with_removed(&self) -> Self {
        let mut again = self.clone();
        for (key, bytes) in &self.removed {
            let file = again.files.entry(*key);
            file.or_insert_with(|| disk_of(bytes.clone()));
        }
        again
    }
}

pub(crate) fn disk_of(bytes: Vec<u8>) -> CrashDisk {
    CrashDisk {
        written: bytes.clone(),
        durable: bytes,
        ..CrashDisk::default()
    }
}

/// State of a folder, and all its earlier states.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) folder: Folder,
    /// State of the folder after each call that changed it, if `is_recorded` is true.
    pub(crate) states: Vec<Folder>,
    pub(crate) is_recorded: bool,
    /// Number of calls that may still change the folder; `None` for no limit.
    pub(crate) calls_left: Option<u64>,
    /// File whose next sync fails.
    pub(crate) failing_sync: Option<Key>,
    /// Records of another holder. The next call that fails also takes the lease for this holder,
    /// and replaces the last bytes of the log by these records.
    pub(crate) takeover: Option<Vec<u8>>,
    /// True if the next append fails after a part of its bytes.
    pub(crate) is_append_failing: bool,
    /// Number of calls of `length` that still succeed; `None` for no limit.
    pub(crate) lengths_left: Option<u64>,
    /// True after another holder has taken the lease.
    pub(crate) is_lease_lost: bool,
}

impl Recorded {
    /// Returns the error of a call, after the planned takeover of the lease.
    fn fail(&mut self, key: Key, operation: &str) -> Error {
        if let Some(records) = self.takeover.take() {
            self.is_lease_lost = true;
            if let Some(disk) = self.folder.files.get_mut(&key) {
                let kept = disk.written.len().saturating_sub(records.len());
                disk.written.truncate(kept);
                disk.written.extend(records);
            }
        }
        Error::new(ErrorKind::Io, End::Sink, operation)
    }
}

/// A file in a folder. Copies refer to the same folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Medium {
    all: Arc<Mutex<Recorded>>,
    key: Key,
}

impl Medium {
    /// Returns the log in a folder.
    pub(crate) fn of(folder: Folder) -> Self {
        let medium = Self::default();
        medium.all().folder = folder;
        medium
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, Recorded> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a call that changes the file.
    fn change(&self, act: impl FnOnce(&mut CrashDisk) -> Result<()>) -> Result<()> {
        let mut all = self.all();
        match &mut all.calls_left {
            Some(0) => return Err(Error::new(ErrorKind::Io, End::Sink, "crash")),
            Some(left) => *left -= 1,
            None => {}
        }
        let key = self.key;
        let disk = all.folder.files.get_mut(&key);
        act(disk.ok_or_else(|| Error::new(ErrorKind::NotFound, End::Sink, "use the log"))?)?;
        if all.is_recorded {
            let state = all.folder.clone();
            all.states.push(state);
        }
        Ok(())
    }

    fn look<T>(&self, act: impl FnOnce(&mut CrashDisk) -> Result<T>) -> Result<T> {
        let mut all = self.all();
        let disk = all.folder.files.get_mut(&self.key);
        act(disk.ok_or_else(|| Error::new(ErrorKind::NotFound, End::Sink, "use the log"))?)
    }

    /// Creates the log as an empty file.
    pub(crate) fn new() -> Self {
        let medium = Self::default();
        let empty = CrashDisk::default();
        medium.all().folder.files.insert(None, empty);
        medium
    }
}

impl LogFile for Medium {
    fn length(&mut self) -> Result<u64> {
        match &mut self.all().lengths_left {
            Some(0) => return Err(Error::new(ErrorKind::Io, End::Sink, "read the length")),
            Some(left) => *left -= 1,
            None => {}
        }
        self.look(|disk| disk.length())
    }
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.look(|disk| disk.read_at(offset, buffer))
    }
    fn is_held(&mut self, _: &Tenure) -> Result<bool> {
        Ok(!self.all().is_lease_lost)
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.all().is_append_failing) {
            self.change(|disk| disk.append(&bytes[..bytes.len() / 2]))?;
            let key = self.key;
            return Err(self.all().fail(key, "append to the log"));
        }
        self.change(|disk| disk.append(bytes))
    }
    fn sync(&mut self) -> Result<()> {
        let key = self.key;
        let mut all = self.all();
        if all
            .failing_sync
            .take_if(|failing| *failing == key)
            .is_some()
        {
            return Err(all.fail(key, "sync the log"));
        }
        drop(all);
        self.change(|disk| disk.sync())
    }
    fn truncate(&mut self, length: u64) -> Result<()> {
        self.change(|disk| disk.truncate(length))
    }
    fn begin_replacement(&mut self) -> Result<()> {
        self.change(|disk| disk.begin_replacement())
    }
    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        self.change(|disk| disk.append_replacement(bytes))
    }
    fn commit_replacement(&mut self) -> Result<()> {
        self.change(|disk| disk.commit_replacement())
    }
    fn open_part(
        &mut self,
        part: u32,
        access: PartAccess,
    ) -> Result<Option<Box<dyn LogFile + Send>>> {
        let mut all = self.all();
        let key = Some(part);
        let files = &mut all.folder.files;
        match access {
            PartAccess::Read if !files.contains_key(&key) => return Ok(None),
            PartAccess::Read => {}
            PartAccess::Write => {
                files.entry(key).or_default();
            }
        }
        drop(all);
        let all = Arc::clone(&self.all);
        Ok(Some(Box::new(Self { all, key })))
    }
    fn remove_part(&mut self, part: u32) -> Result<()> {
        let mut all = self.all();
        if let Some(disk) = all.folder.files.remove(&Some(part)) {
            all.folder.removed.insert(Some(part), disk.durable);
        }
        if all.is_recorded {
            let state = all.folder.clone();
            all.states.push(state);
        }
        Ok(())
    }
    fn parts(&mut self) -> Result<Vec<u32>> {
        Ok(self
            .all()
            .folder
            .files
            .keys()
            .filter_map(|key| *key)
            .collect())
    }
}

//! The files of the object log, on the simulated disk.

use crate::disk::{Disk, Node, SharedDisk};
use dray_core::{End, Error, ErrorKind, Metadata, RelPath, Result};
use dray_log::{LeaseRecord, LogFile, MemoryFile, PartAccess, Tenure, layout, lease};

/// A planted defect of the files of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogDefect {
    /// The syncs of the log return without making data durable.
    LogSyncSkipped,
    /// The syncs of the part logs return without making data durable.
    PartSyncSkipped,
    /// Every two part logs have the same name.
    PartNamesCollide,
}

/// A [`LogFile`] on the simulated disk.
#[derive(Debug, Clone)]
pub struct DiskFile {
    disk: SharedDisk,
    path: RelPath,
    inode: Option<u64>,
    replacement: Option<u64>,
    is_part: bool,
    defect: Option<LogDefect>,
}

impl DiskFile {
    /// Opens the log at `path`. The log need not exist yet.
    #[must_use]
    pub fn open(disk: &SharedDisk, path: &RelPath) -> Self {
        let inode = match disk.borrow().look(path) {
            Some(Node::File(inode, _)) => Some(*inode),
            _ => None,
        };
        Self {
            disk: disk.clone(),
            path: path.clone(),
            inode,
            replacement: None,
            is_part: false,
            defect: None,
        }
    }

    /// Plants a defect.
    #[must_use]
    pub fn with_defect(self, defect: Option<LogDefect>) -> Self {
        Self { defect, ..self }
    }

    /// Returns true if the planted defect skips the syncs of this file.
    const fn skips_sync(&self) -> bool {
        match self.defect {
            Some(LogDefect::LogSyncSkipped) => !self.is_part,
            Some(LogDefect::PartSyncSkipped) => self.is_part,
            _ => false,
        }
    }

    fn part_path(&self, part: u32) -> Result<RelPath> {
        let collides = self.defect == Some(LogDefect::PartNamesCollide);
        part_path(&self.path, if collides { part & !1 } else { part })
    }

    fn present(&self) -> Result<u64> {
        self.inode.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, End::Sink, "use the log file")
                .cause("the log file was not created")
        })
    }
}

impl LogFile for DiskFile {
    fn is_held(&mut self, tenure: &Tenure) -> Result<bool> {
        let Some(name) = self.path.name().as_ref().and_then(layout::lease_beside) else {
            return Ok(false);
        };
        let folder = self.path.parent().unwrap_or_else(RelPath::root);
        let found = read_lease(&self.disk, &folder.join(&name)?)?;
        Ok(lease::is_of(found.as_ref(), tenure))
    }

    fn length(&mut self) -> Result<u64> {
        let Some(inode) = self.inode else {
            return Ok(0);
        };
        Ok(self.disk.borrow().bytes(inode).len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let Some(inode) = self.inode else {
            return Ok(0);
        };
        let disk = self.disk.borrow();
        let bytes = disk.bytes(inode);
        let start = bytes.len().min(offset as usize);
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let inode = self.present()?;
        let mut disk = self.disk.borrow_mut();
        let length = disk.bytes(inode).len() as u64;
        let trouble = std::mem::take(&mut disk.trouble.log);
        let saved = std::mem::take(&mut disk.trouble);
        let part = if trouble {
            &bytes[..bytes.len() / 2]
        } else {
            bytes
        };
        let written = disk.write(inode, length, part);
        disk.trouble = saved;
        if trouble {
            disk.shown.push("log_error");
            return Err(
                Error::new(ErrorKind::NoSpace, End::Sink, "append to the log").cause("simulated"),
            );
        }
        written
    }

    fn sync(&mut self) -> Result<()> {
        let inode = self.present()?;
        let mut disk = self.disk.borrow_mut();
        if std::mem::take(&mut disk.trouble.log_sync) {
            disk.shown.push("log_error");
            disk.lose_reported_writes(inode);
            return Err(Error::new(ErrorKind::Io, End::Sink, "sync the log").cause("simulated"));
        }
        if self.skips_sync() {
            return Ok(());
        }
        let content = std::mem::take(&mut disk.trouble.sync);
        let until = disk.now();
        let synced = disk.sync(inode, until);
        disk.trouble.sync = content;
        synced
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        let inode = self.present()?;
        self.disk.borrow_mut().truncate(inode, length)
    }

    fn begin_replacement(&mut self) -> Result<()> {
        self.replacement = Some(self.disk.borrow_mut().create()?);
        Ok(())
    }

    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(inode) = self.replacement else {
            return self.present().map(|_| ());
        };
        let mut disk = self.disk.borrow_mut();
        let length = disk.bytes(inode).len() as u64;
        let saved = std::mem::take(&mut disk.trouble);
        let written = disk.write(inode, length, bytes);
        disk.trouble = saved;
        written
    }

    fn commit_replacement(&mut self) -> Result<()> {
        let Some(inode) = self.replacement.take() else {
            return self.present().map(|_| ());
        };
        let mut disk = self.disk.borrow_mut();
        let saved = std::mem::take(&mut disk.trouble);
        let folder = self.path.parent().unwrap_or_else(RelPath::root);
        let until = disk.now();
        let done = disk
            .sync(inode, until)
            .and_then(|()| disk.put_name(&self.path, Node::File(inode, Metadata::default())))
            .and_then(|()| {
                let until = disk.now();
                disk.sync_folder(&folder, until)
            });
        disk.trouble = saved;
        done?;
        self.inode = Some(inode);
        Ok(())
    }

    fn open_part(
        &mut self,
        part: u32,
        access: PartAccess,
    ) -> Result<Option<Box<dyn LogFile + Send>>> {
        let file = Self {
            is_part: true,
            ..Self::open(&self.disk, &self.part_path(part)?).with_defect(self.defect)
        };
        let is_found = file.inode.is_some() || access == PartAccess::Write;
        Ok(is_found.then(|| Box::new(file) as Box<dyn LogFile + Send>))
    }

    fn remove_part(&mut self, part: u32) -> Result<()> {
        let path = self.part_path(part)?;
        let mut disk = self.disk.borrow_mut();
        match disk.look(&path) {
            Some(_) => disk.remove_name(&path),
            None => Ok(()),
        }
    }

    fn parts(&mut self) -> Result<Vec<u32>> {
        Ok(part_logs(&self.disk.borrow(), &self.path))
    }
}

/// Returns the path of the part log with the number `part` of the log at `log`.
///
/// # Errors
/// [`ErrorKind::Internal`] if `log` is not the path of a log.
pub fn part_path(log: &RelPath, part: u32) -> Result<RelPath> {
    let name = log
        .name()
        .and_then(|name| layout::part_of_log(&name, part))
        .ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Sink, "name a part log")
                .cause("the path is not that of a log")
        })?;
    log.parent().unwrap_or_else(RelPath::root).join(&name)
}

/// Returns the numbers of the part logs of the log at `log`.
#[must_use]
pub fn part_logs(disk: &Disk, log: &RelPath) -> Vec<u32> {
    let Some(own) = log.name() else {
        return Vec::new();
    };
    disk.names()
        .filter(|(path, _)| path.parent() == log.parent())
        .filter_map(|(path, _)| layout::part_number(&own, &path.name()?))
        .collect()
}

/// Returns the record in the lease file at `path`; `None` if no process holds the lease.
///
/// # Errors
/// An error if the lease has an unknown version.
pub fn read_lease(disk: &SharedDisk, path: &RelPath) -> Result<Option<LeaseRecord>> {
    let disk = disk.borrow();
    match disk.look(path) {
        Some(Node::File(inode, _)) => lease::newest(disk.bytes(*inode)),
        _ => Ok(None),
    }
}

/// Removes the log at `log` and its part logs, and makes the removal durable.
///
/// # Errors
/// Errors of the disk.
pub fn remove_log(disk: &mut Disk, log: &RelPath) -> Result<()> {
    for part in part_logs(disk, log) {
        disk.remove_name(&part_path(log, part)?)?;
    }
    if disk.look(log).is_some() {
        disk.remove_name(log)?;
        let now = disk.now();
        disk.sync_folder(&log.parent().unwrap_or_else(RelPath::root), now)?;
    }
    Ok(())
}

/// A log with its part logs, as one view of the disk shows them. It can only be read.
#[derive(Debug, Default)]
pub struct LogView {
    log: MemoryFile,
    parts: std::collections::BTreeMap<u32, Vec<u8>>,
}

impl LogView {
    /// Creates a view of a log with the content `bytes`. `parts` has the contents of its part logs.
    #[must_use]
    pub fn new(bytes: Vec<u8>, parts: impl IntoIterator<Item = (u32, Vec<u8>)>) -> Self {
        Self {
            log: MemoryFile::with_bytes(bytes),
            parts: parts.into_iter().collect(),
        }
    }
}

fn read_only() -> Error {
    Error::new(ErrorKind::Internal, End::Sink, "change the log").cause("the view is read-only")
}

impl LogFile for LogView {
    fn length(&mut self) -> Result<u64> {
        self.log.length()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.log.read_at(offset, buffer)
    }

    fn append(&mut self, _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn sync(&mut self) -> Result<()> {
        Err(read_only())
    }

    fn truncate(&mut self, _: u64) -> Result<()> {
        Err(read_only())
    }

    fn begin_replacement(&mut self) -> Result<()> {
        Err(read_only())
    }

    fn append_replacement(&mut self, _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn commit_replacement(&mut self) -> Result<()> {
        Err(read_only())
    }

    fn open_part(&mut self, part: u32, _: PartAccess) -> Result<Option<Box<dyn LogFile + Send>>> {
        let bytes = self.parts.get(&part).cloned();
        Ok(bytes.map(|bytes| Box::new(MemoryFile::with_bytes(bytes)) as Box<dyn LogFile + Send>))
    }

    fn parts(&mut self) -> Result<Vec<u32>> {
        Ok(self.parts.keys().copied().collect())
    }
}

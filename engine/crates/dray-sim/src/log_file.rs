//! The file of the object log, on the simulated disk.

use crate::disk::{Disk, Node};
use dray_core::{End, Error, ErrorKind, Metadata, RelPath, Result};
use dray_log::LogFile;
use std::cell::RefCell;
use std::rc::Rc;

/// A [`LogFile`] on the simulated disk.
#[derive(Debug, Clone)]
pub struct DiskFile {
    disk: Rc<RefCell<Disk>>,
    path: RelPath,
    inode: Option<u64>,
    replacement: Option<u64>,
}

impl DiskFile {
    /// Opens the log at `path`. The log need not exist yet.
    #[must_use]
    pub fn open(disk: &Rc<RefCell<Disk>>, path: &RelPath) -> Self {
        let inode = match disk.borrow().look(path) {
            Some(Node::File(inode, _)) => Some(*inode),
            _ => None,
        };
        Self {
            disk: Rc::clone(disk),
            path: path.clone(),
            inode,
            replacement: None,
        }
    }

    fn present(&self) -> Result<u64> {
        self.inode.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, End::Sink, "use the log file")
                .cause("the log file was not created")
        })
    }
}

impl LogFile for DiskFile {
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
            return Err(Error::new(ErrorKind::Io, End::Sink, "sync the log").cause("simulated"));
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
}

//! The file of an object log, in a control file of a store.

use crate::sink::lease::read_lease;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_log::{LogFile, PartAccess, Tenure, layout, lease};
use dray_store::{ControlFile, ControlMode, Store};
use std::sync::Arc;

/// A [`LogFile`] in a store: a log, or one of its part logs.
pub struct StoredLog {
    store: Arc<dyn Store>,
    path: RelPath,
    /// The open file; `None` after [`LogFile::release`], until the next call.
    file: Option<Box<dyn ControlFile>>,
    /// Mode in which the file is opened again after [`LogFile::release`].
    again: ControlMode,
    replacement: Vec<u8>,
}

impl StoredLog {
    /// Returns the log in `file`, which is open at `path` of `store`.
    #[must_use]
    pub fn new(file: Box<dyn ControlFile>, store: &Arc<dyn Store>, path: &RelPath) -> Self {
        Self {
            store: Arc::clone(store),
            path: path.clone(),
            file: Some(file),
            again: ControlMode::Existing,
            replacement: Vec::new(),
        }
    }

    fn file(&mut self) -> Result<&dyn ControlFile> {
        let file = match self.file.take() {
            Some(file) => file,
            None => self.store.open_control(&self.path, self.again)?,
        };
        Ok(&**self.file.insert(file))
    }

    /// Returns the path of a part log.
    fn part(&self, part: u32) -> Result<RelPath> {
        let log = self.path.name();
        let name = log.and_then(|log| layout::part_of_log(&log, part));
        let name = name.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidName,
                End::Sink,
                "name a part of the object log",
            )
            .file(&self.path)
            .cause("the log does not have the name of a log, so its parts have no names")
            .remedy("give the log its name <16 hex>.log again")
        })?;
        self.folder().join(&name)
    }

    fn folder(&self) -> RelPath {
        self.path.parent().unwrap_or_else(RelPath::root)
    }
}

impl LogFile for StoredLog {
    fn length(&mut self) -> Result<u64> {
        self.file()?.len()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let file = self.file()?;
        let mut filled = 0;
        while filled < buffer.len() {
            let got = file.read_at(offset + filled as u64, &mut buffer[filled..])?;
            if got == 0 {
                break;
            }
            filled += got;
        }
        Ok(filled)
    }

    fn is_held(&mut self, tenure: &Tenure) -> Result<bool> {
        let Some(name) = self.path.name().as_ref().and_then(layout::lease_beside) else {
            return Ok(false);
        };
        let path = self.folder().join(&name)?;
        let file = self.store.open_control(&path, ControlMode::ReadOnly)?;
        Ok(lease::is_of(read_lease(file.as_ref())?.as_ref(), tenure))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file()?.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.file()?.sync()
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        self.file()?.truncate(length)
    }

    fn begin_replacement(&mut self) -> Result<()> {
        self.replacement.clear();
        Ok(())
    }

    fn append_replacement(&mut self, bytes: &[u8]) -> Result<()> {
        // `replacement` grows to the size of the log's live records, which the maximum number of
        // unfinished files limits.
        self.replacement.extend_from_slice(bytes);
        Ok(())
    }

    fn commit_replacement(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.replacement);
        self.file()?.replace(&bytes)
    }

    fn open_part(
        &mut self,
        part: u32,
        access: PartAccess,
    ) -> Result<Option<Box<dyn LogFile + Send>>> {
        let path = self.part(part)?;
        let (first, again) = match access {
            PartAccess::Read => (ControlMode::ReadOnly, ControlMode::ReadOnly),
            PartAccess::Write => (ControlMode::Create, ControlMode::Existing),
        };
        match self.store.open_control(&path, first) {
            Ok(file) => Ok(Some(Box::new(Self {
                again,
                ..Self::new(file, &self.store, &path)
            }))),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove_part(&mut self, part: u32) -> Result<()> {
        self.store.remove_control(&self.part(part)?)
    }

    fn parts(&mut self) -> Result<Vec<u32>> {
        let Some(log) = self.path.name() else {
            return Ok(Vec::new());
        };
        let names = self.store.list_control(&self.folder())?;
        let numbers = names
            .iter()
            .filter_map(|name| layout::part_number(&log, name));
        Ok(numbers.collect())
    }

    fn release(&mut self) {
        self.file = None;
    }
}

//! Open files.

use crate::errors::Errno;
use crate::files::{Files, Found};
use crate::names;
use crate::note::{GENERATION, Generation};
use crate::pool::{Action, Job, Query};
use dray_core::{ByteRange, Error, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::sync::Arc;

/// A file open for reading.
pub(crate) struct RadosFile {
    files: Arc<Files>,
    path: RelPath,
    full: Vec<u8>,
    found: Found,
    /// Text of the file's generation; every read compares it. `None` for a file of another program.
    generation: Option<String>,
    state: ReadState,
}

const READ: &str = "read the file";

impl RadosFile {
    pub(crate) fn new(
        files: &Arc<Files>,
        path: &RelPath,
        found: Found,
        modified: ModifiedTime,
    ) -> Result<Self> {
        Ok(Self {
            files: Arc::clone(files),
            path: path.clone(),
            full: files.full(path)?,
            generation: found.generation.map(Generation::text),
            state: ReadState {
                size: found.size,
                modified,
            },
            found,
        })
    }

    fn changed(&self) -> Error {
        self.files
            .error(ErrorKind::SourceChanged, READ, &self.path)
            .cause("another writer has replaced the file")
    }

    /// Returns the error for an object that is missing, or shorter than the layout requires.
    fn lost(&self, object: u64) -> Error {
        // A reader cannot tell a removed file from a lost object, so ask for the first object.
        let is_equal = |found: &Found| {
            found.size == self.found.size && found.generation == self.found.generation
        };
        let is_same = matches!(self.files.find(&self.path), Ok(Some(found)) if is_equal(&found));
        if object == 0 || !is_same {
            return self.changed();
        }
        let name = names::object(&self.full, object);
        self.files
            .error(ErrorKind::Io, READ, &self.path)
            .cause(format!(
                "the object {} is missing or too short",
                name.to_string_lossy()
            ))
            .remedy("the cluster has lost data, or the file has a hole; write the file again")
    }
}

/// Divides a buffer into consecutive parts of the given lengths.
pub(crate) fn split(mut buffer: &mut [u8], lengths: impl Iterator<Item = u64>) -> Vec<&mut [u8]> {
    let mut parts = Vec::new();
    for length in lengths {
        let length = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let (part, rest) = std::mem::take(&mut buffer).split_at_mut(length);
        parts.push(part);
        buffer = rest;
    }
    parts
}

impl ReadHandle for RadosFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let end = self
            .found
            .size
            .min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let pieces = self.found.layout.pieces(ByteRange::between(offset, end));
        let parts = split(buffer, pieces.iter().map(|piece| piece.range.length));
        let equals = self.generation.as_ref();
        let equals = equals.map(|text| (GENERATION, text.as_bytes()));
        let jobs = pieces.iter().zip(parts).map(|(piece, part)| {
            let object = names::object(&self.full, piece.object);
            let osd = self.files.osd(&object);
            let query = Query {
                equals,
                data: Some((piece.offset, part)),
                ..Query::default()
            };
            Job {
                object,
                osd,
                action: Action::Read(query),
                time: None,
            }
        });
        let answers = self.files.data.run(jobs.collect());
        for (piece, answer) in pieces.iter().zip(answers) {
            match answer {
                Ok(got) if got.read as u64 == piece.range.length => {}
                Ok(_) | Err(Errno::NOT_FOUND) => return Err(self.lost(piece.object)),
                Err(Errno::CANCELED) => return Err(self.changed()),
                Err(errno) => return Err(self.files.failed(errno, READ, &self.path)),
            }
        }
        Ok(usize::try_from(end - offset).unwrap_or(usize::MAX))
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn state(&self) -> Result<ReadState> {
        if self.generation.is_some() {
            // Every read has compared the generation of its object.
            return Ok(self.state);
        }
        let found = self.files.find(&self.path)?.ok_or_else(|| self.changed())?;
        let modified = self.files.modified(&self.full, &found);
        Ok(ReadState {
            size: found.size,
            modified: self.files.about(modified, READ, &self.path)?,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.found.size;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(self.found.note.and_then(|note| note.file.sums))
    }
}

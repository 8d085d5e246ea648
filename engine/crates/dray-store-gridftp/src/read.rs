//! Reads one file by byte ranges.

use crate::facts::{Facts, Kind};
use crate::server::Server;
use dray_core::{ByteRange, Error, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::state_watch::StateWatch;
use dray_store::{ReadHandle, ReadState};
use std::sync::Arc;

/// Returns the time of the last modification, or 0 if the server has not sent this fact.
pub(crate) fn modified(found: &Facts) -> ModifiedTime {
    found.modified.unwrap_or(ModifiedTime {
        seconds: 0,
        nanoseconds: 0,
    })
}

/// A file open for reading. Each read uses a free connection of the server.
pub(crate) struct GridFtpFile {
    server: Arc<Server>,
    path: RelPath,
    /// Facts about the file when it was opened.
    known: Facts,
    watch: StateWatch,
}

impl GridFtpFile {
    pub(crate) fn new(server: Arc<Server>, path: RelPath, known: Facts) -> Self {
        Self {
            server,
            path,
            known,
            watch: StateWatch::default(),
        }
    }

    fn opened(&self) -> ReadState {
        ReadState {
            size: self.known.size,
            modified: modified(&self.known),
        }
    }

    /// Asks the server for the state of the file. Rejects another file with the same path.
    fn ask(&self) -> Result<ReadState> {
        let operation = "read the file";
        let now = self.server.look(&self.path, operation)?;
        if now.kind != Kind::File || now.unique != self.known.unique {
            let error = Error::new(ErrorKind::SourceChanged, self.server.end, operation);
            return Err(error
                .file(&self.path)
                .cause("the file was replaced after it was opened")
                .remedy("run the same command again when no program writes to the file"));
        }
        Ok(ReadState {
            size: now.size,
            modified: modified(&now),
        })
    }
}

impl ReadHandle for GridFtpFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.known.size.saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if wanted == 0 {
            return Ok(0);
        }
        self.watch
            .reading(|| self.server.read(&self.path, offset, &mut buffer[..wanted]))
    }

    // One long read is one request to the server. Several short reads would be several requests,
    // and each request costs several round trips.
    fn is_direct(&self) -> bool {
        true
    }

    fn state(&self) -> Result<ReadState> {
        self.watch.state(self.opened(), || self.ask())
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.known.size;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}

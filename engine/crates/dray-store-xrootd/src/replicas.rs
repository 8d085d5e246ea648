//! Reads one file from all servers that have it.
//!
//! Invariant: after each read the server of the replica is asked for the size and time of the file,
//! over the same connection. The data is returned only if both are those that the replica had when
//! it was opened. So data that was returned stays valid if the replica is lost or changes later.
//! The other replicas are then read.

use crate::choice::{Track, choose};
use crate::located::Located;
use crate::read::{How, RemoteReader};
use crate::url::Url;
use dray_core::lock::LockExt;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Maximum duration in seconds of a call to a server while other servers have the file. It is far
/// longer than the time for an object, and shorter than the minute after which XrdCl gives up a
/// connection. The value is estimated, not measured.
const CALL_SECONDS: u32 = 20;

/// A file with replicas on several servers.
pub(crate) struct ReplicaReader {
    url: Url,
    path: RelPath,
    located: Arc<Located>,
    how: How,
    /// One reader for each server, and as the last entry one reader for the manager. The reader of
    /// the manager is used if no server is left, because the manager may know other servers.
    readers: Vec<Mutex<Option<Arc<RemoteReader>>>>,
    tracks: Mutex<Vec<Track>>,
}

impl ReplicaReader {
    /// Creates a reader. The first read opens the file.
    pub(crate) fn new(url: &Url, path: &RelPath, located: Arc<Located>, how: How) -> Self {
        let count = located.replicas.len() + 1;
        Self {
            url: url.clone(),
            path: path.clone(),
            located,
            how,
            readers: (0..count).map(|_| Mutex::default()).collect(),
            tracks: Mutex::new(vec![Track::default(); count]),
        }
    }

    /// Returns the reader of a replica, and opens it at the first use. `failures` is the replica's
    /// number of failures when it was chosen. The error is `SourceChanged` if the replica contains
    /// another version of the file.
    fn reader(&self, number: usize, failures: u32) -> Result<Arc<RemoteReader>> {
        let mut reader = self.readers[number].lock_unpoisoned();
        if let Some(reader) = &*reader {
            return Ok(Arc::clone(reader));
        }
        if self.tracks.lock_unpoisoned()[number].failures() != failures {
            // Another thread tried to open the replica while this thread waited for the lock. Do
            // not try again, because opening may take long.
            return Err(
                Error::new(ErrorKind::Unreachable, End::Source, "open the file").cause(
                    "the server of this replica failed a short time ago, so dray does not \
                        use the server yet",
                ),
            );
        }
        let replica = self.located.replicas.get(number);
        let url = replica.map_or_else(|| self.url.clone(), |one| self.url.with_host(&one.server));
        let how = How {
            seconds: replica.map(|_| CALL_SECONDS),
            ..self.how.clone()
        };
        let opened = Arc::new(RemoteReader::open(&url, &self.path, how)?);
        let found = opened.opened();
        // If the manager chose the server (`replica` is `None`), do not compare the modification
        // times, because the servers of a cluster may have different times for the same file.
        let is_same_time = replica.is_none_or(|one| one.modified == found.modified);
        if found.size != self.located.size || !is_same_time {
            return Err(
                Error::new(ErrorKind::SourceChanged, End::Source, "read the file").cause(format!(
                    "the server {} has a different version of the file than the first server",
                    url.server()
                )),
            );
        }
        *reader = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Drops a failed reader. The next opening compares the file with the original state again.
    fn forget(&self, number: usize, failed: &Arc<RemoteReader>) {
        // If the lock is held, another thread is already replacing the reader.
        if let Ok(mut reader) = self.readers[number].try_lock()
            && reader
                .as_ref()
                .is_some_and(|reader| Arc::ptr_eq(reader, failed))
        {
            *reader = None;
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let meant = self.located.meant(offset);
        let mut tried = Vec::new();
        let mut first = None;
        // Try each replica at most once, and report the first failure.
        loop {
            let began = Instant::now();
            let chosen = {
                let mut tracks = self.tracks.lock_unpoisoned();
                let chosen = choose(&tracks, meant, &tried, began);
                chosen.map(|number| {
                    tracks[number].begin(began);
                    (number, tracks[number].failures())
                })
            };
            let Some((number, failures)) = chosen else {
                return Err(first.unwrap_or_else(none_left));
            };
            let reader = self.reader(number, failures);
            let read = match &reader {
                Ok(reader) => reader.read_and_ask(offset, buffer),
                Err(error) => Err(error.clone()),
            };
            let now = Instant::now();
            let mut tracks = self.tracks.lock_unpoisoned();
            let track = &mut tracks[number];
            track.end(began, read.as_ref().ok().map(|(_, took)| *took), now);
            let error = match read {
                Ok((bytes, _)) => return Ok(bytes),
                Err(error) => error,
            };
            match error.kind {
                ErrorKind::SourceChanged | ErrorKind::IsADirectory => track.leave(),
                _ => track.rest(now),
            }
            drop(tracks);
            if let Ok(reader) = &reader {
                self.forget(number, reader);
            }
            tried.push(number);
            first.get_or_insert(error);
        }
    }
}

fn none_left() -> Error {
    Error::new(ErrorKind::SourceChanged, End::Source, "read the file")
        .cause(
            "the file was replaced during the copy: no server still has the version that the \
            copy began with",
        )
        .remedy("run the same command again when no program writes to the file")
}

/// Handle of a store for a file with several replicas.
pub(crate) struct ReplicaHandle(pub(crate) ReplicaReader);

impl ReadHandle for ReplicaHandle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.0.read(offset, buffer);
        read.map_err(|error| error.file(&self.0.path))
    }

    // One long read is one request to the server.
    fn is_direct(&self) -> bool {
        true
    }

    // Every read has already asked for the state, so send no request here.
    fn state(&self) -> Result<ReadState> {
        Ok(ReadState {
            size: self.0.located.size,
            modified: self.0.located.modified,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let rest = ByteRange::between(offset, self.0.located.size);
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}

//! Partial files on one of the disks. A partial file moves to another disk if its disk is full.

use super::{Set, target_of};
use crate::StoreExt;
use crate::posix::PosixStore;
use crate::store::{Partial, ReadHandle, Store};
use crate::types::{
    Attributes, FileKind, PartialId, PartialRequest, Publish, ReadPurpose, SyncItem,
};
use dray_core::lock::{LockExt, RwLockExt};
use dray_core::{ByteRange, Error, ErrorKind, Layout, Name, RelPath, Result};
use rustix::fd::BorrowedFd;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Size in bytes of the pieces in which a partial file is moved. The value is estimated, not
/// measured.
const PIECE_BYTES: usize = 1 << 20;

/// New identities of the partial files that were moved to another disk, by the identity that the
/// caller knows.
#[derive(Debug, Default)]
pub(super) struct Moved(Mutex<HashMap<PartialId, PartialId>>);

struct Held {
    inner: Box<dyn Partial>,
    disk: usize,
    /// Number of times that the file was moved.
    moves: usize,
}

struct DisksPartial {
    set: Arc<Set>,
    path: RelPath,
    name: Name,
    size: u64,
    /// Identity that the caller knows. It stays the same when the file is moved.
    id: PartialId,
    held: RwLock<Held>,
    /// Promised bytes that are not written yet.
    left: AtomicU64,
    /// True if the file began on another disk than the scheduler may expect.
    is_elsewhere: bool,
}

impl Set {
    /// Returns the disk for a new version of the file at `path`. An existing file is replaced on its
    /// own disk, in one step, unless only another disk has enough room.
    fn disk_for(&self, path: &RelPath, size: u64) -> Result<usize> {
        let found = self.find(path)?;
        let found = found.filter(|found| found.state.kind != FileKind::Directory);
        let Some(found) = found else {
            return Ok(self.choose(path, size));
        };
        let free = |disk| self.free(disk);
        if self.placer.has_room(found.disk, size, free) {
            return Ok(found.disk);
        }
        let file = (&self.top, path);
        let other = self.placer.other(file, size, found.disk, free);
        Ok(other.unwrap_or(found.disk))
    }

    fn other_disk(&self, path: &RelPath, size: u64, full: usize) -> Option<usize> {
        let file = (&self.top, path);
        self.placer.other(file, size, full, |disk| self.free(disk))
    }

    fn refuse_taken_name(&self, path: &RelPath, partial: &Name) -> Result<()> {
        let taken = self.disks_with_partial(path, partial)?;
        let Some(disk) = taken.first() else {
            return Ok(());
        };
        let cause = format!(
            "a file with the name of the partial file exists (disk {})",
            self.disks[*disk].name
        );
        Err(Error::new(
            ErrorKind::AlreadyExists,
            self.end,
            "create the partial file",
        )
        .file(path)
        .cause(cause))
    }
}

/// Creates a partial file, or opens the partial file of an earlier run.
pub(super) fn begin(
    set: &Arc<Set>,
    path: &RelPath,
    size: u64,
    request: &PartialRequest,
) -> Result<impl Partial + use<>> {
    let (disk, inner) = match request.reuse {
        None => begin_new(set, path, size, request)?,
        Some(id) => begin_again(set, path, size, request, id)?,
    };
    let expected = set.placer.note((&set.top, path), disk);
    let is_new = request.reuse.is_none();
    let left = match is_new {
        true => size,
        false => size.saturating_sub(held_bytes(set, disk, path, &request.name)),
    };
    set.placer.promise(disk, left);
    Ok(DisksPartial {
        set: Arc::clone(set),
        path: path.clone(),
        name: request.name.clone(),
        size,
        id: request.reuse.unwrap_or_else(|| inner.id()),
        held: RwLock::new(Held {
            inner,
            disk,
            moves: 0,
        }),
        left: AtomicU64::new(left),
        is_elsewhere: expected != Some(disk),
    })
}

fn begin_new(
    set: &Set,
    path: &RelPath,
    size: u64,
    request: &PartialRequest,
) -> Result<(usize, Box<dyn Partial>)> {
    let disk = set.disk_for(path, size)?;
    set.refuse_taken_name(path, &request.name)?;
    let begin = |disk| set.healing(disk, path, |store| store.begin(path, size, request));
    match begin(disk) {
        Err(error) if error.kind == ErrorKind::NoSpace => {
            let other = set.other_disk(path, size, disk).ok_or(error)?;
            Ok((other, begin(other)?))
        }
        begun => Ok((disk, begun?)),
    }
}

fn begin_again(
    set: &Set,
    path: &RelPath,
    size: u64,
    request: &PartialRequest,
    id: PartialId,
) -> Result<(usize, Box<dyn Partial>)> {
    let moved = set.moved.0.lock_unpoisoned().get(&id).copied();
    let id = moved.unwrap_or(id);
    let request = PartialRequest {
        reuse: Some(id),
        ..request.clone()
    };
    let mut missing = None;
    for (at, disk) in set.disks.iter().enumerate() {
        if disk.device != id.device {
            continue;
        }
        match disk.store.begin(path, size, &request) {
            Ok(partial) => return Ok((at, partial)),
            Err(error) if error.kind == ErrorKind::NotFound => missing = Some(error),
            Err(error) => return Err(set.on(at, error)),
        }
    }
    Err(missing.unwrap_or_else(|| {
        Error::new(ErrorKind::NotFound, set.end, "continue the partial file")
            .file(path)
            .cause("the partial file is on none of the disks")
            .remedy("run the same command again; the file is sent from its start")
    }))
}

/// Returns the allocated bytes of a partial file; 0 if they are unknown.
fn held_bytes(set: &Set, disk: usize, path: &RelPath, name: &Name) -> u64 {
    let folder = path.parent().unwrap_or_else(RelPath::root);
    let held = folder
        .join(name)
        .and_then(|partial| set.disks[disk].store.holding(&partial));
    held.ok().flatten().map_or(0, |held| held.bytes)
}

/// Writes a small file on the disk that is chosen for it. If this disk is full, writes the file on
/// another disk.
pub(super) fn write_small(
    set: &Set,
    path: &RelPath,
    partial: &Name,
    size: u64,
    write: &dyn Fn(&PosixStore) -> Result<PartialId>,
) -> Result<PartialId> {
    let disk = set.disk_for(path, size)?;
    set.refuse_taken_name(path, partial)?;
    match set.healing(disk, path, write) {
        Err(error) if error.kind == ErrorKind::NoSpace => {
            let other = set.other_disk(path, size, disk).ok_or(error)?;
            set.healing(other, path, write)
        }
        written => {
            set.placer.note((&set.top, path), disk);
            written
        }
    }
}

impl DisksPartial {
    /// Does `work` on the partial file. If the disk is full, moves the file to another disk and
    /// does `work` again.
    fn moving<T>(&self, work: impl Fn(&dyn Partial) -> Result<T>) -> Result<T> {
        loop {
            let held = self.held.read_unpoisoned();
            match work(&*held.inner) {
                Err(error) if error.kind == ErrorKind::NoSpace => {
                    let (disk, error) = (held.disk, self.set.on(held.disk, error));
                    drop(held);
                    self.leave_full_disk(disk, error)?;
                }
                done => return done.map_err(|error| self.set.on(held.disk, error)),
            }
        }
    }

    /// Moves the file from the disk `full` to a disk with room for the whole file.
    ///
    /// # Errors
    /// `error`, if no disk has enough room or the move fails.
    fn leave_full_disk(&self, full: usize, error: Error) -> Result<()> {
        let mut held = self.held.write_unpoisoned();
        if held.disk != full {
            // Another thread has moved the file.
            return Ok(());
        }
        if held.moves >= self.set.disks.len() {
            return Err(error);
        }
        let disk = self
            .set
            .other_disk(&self.path, self.size, full)
            .ok_or_else(|| error.clone())?;
        let inner = self.copy_to(full, disk).map_err(|_| error)?;
        self.set
            .moved
            .0
            .lock_unpoisoned()
            .insert(self.id, inner.id());
        let left = self.left.load(Ordering::Relaxed);
        self.set.placer.settle(full, left);
        self.set.placer.promise(disk, left);
        let moves = held.moves + 1;
        let new = Held { inner, disk, moves };
        let old = std::mem::replace(&mut *held, new);
        // Ignore an error: the file is complete without the old copy, which a sweep will remove.
        let _ = old.inner.abort();
        Ok(())
    }

    /// Copies the data of the partial file to a new partial file with the same name on `disk`, and
    /// makes it durable. An earlier move that was interrupted may have left a file with this name. No
    /// other transfer has such a file: a copy to one disk uses names of another form
    /// ([`Capabilities::is_on_disks`](crate::Capabilities::is_on_disks)), and `refuse_taken_name`
    /// looks on all disks.
    fn copy_to(&self, full: usize, disk: usize) -> Result<Box<dyn Partial>> {
        let (from, to) = (&self.set.disks[full].store, &self.set.disks[disk].store);
        to.discard(&self.path, &self.name, None)?;
        let request = PartialRequest {
            name: self.name.clone(),
            reuse: None,
        };
        let begin = |store: &PosixStore| store.begin(&self.path, self.size, &request);
        let new = self.set.healing(disk, &self.path, begin)?;
        let folder = self.path.parent().unwrap_or_else(RelPath::root);
        let old = from.open_read(&folder.join(&self.name)?, ReadPurpose::Transfer)?;
        let copied = copy(&*old, &*new)
            .and_then(|()| new.sync())
            .and_then(|()| to.sync_all(&[SyncItem::Folder(&folder)]));
        match copied {
            Ok(()) => Ok(new),
            Err(error) => {
                let _ = new.abort();
                Err(error)
            }
        }
    }

    /// Counts written bytes, which the file system has taken from the free space.
    fn wrote(&self, bytes: u64) {
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(bytes))
            });
        let bytes = before.unwrap_or(0).min(bytes);
        self.set
            .placer
            .settle(self.held.read_unpoisoned().disk, bytes);
    }
}

fn copy(from: &dyn ReadHandle, to: &dyn Partial) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    while let Some(data) = from.next_data(at)? {
        at = data.offset;
        while at < data.end() {
            let length = (data.end() - at).min(PIECE_BYTES as u64) as usize;
            let count = from.read_at(at, &mut buffer[..length])?;
            if count == 0 {
                return Ok(());
            }
            to.write_at(at, &buffer[..count])?;
            at += count as u64;
        }
    }
    Ok(())
}

impl Drop for DisksPartial {
    fn drop(&mut self) {
        let left = self.left.load(Ordering::Relaxed);
        self.set
            .placer
            .settle(self.held.read_unpoisoned().disk, left);
    }
}

impl Partial for DisksPartial {
    fn id(&self) -> PartialId {
        self.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.moving(|inner| inner.write_at(offset, bytes))?;
        self.wrote(bytes.len() as u64);
        Ok(())
    }

    fn share(&self, range: ByteRange, from: BorrowedFd<'_>, offset: u64) -> Result<bool> {
        self.moving(|inner| inner.share(range, from, offset))
    }

    fn take_space(&self, size_bytes: u64) -> Result<bool> {
        let is_taken = self.moving(|inner| inner.take_space(size_bytes))?;
        if is_taken {
            self.wrote(size_bytes);
        }
        Ok(is_taken)
    }

    fn layout(&self) -> Option<Layout> {
        let disk = self.held.read_unpoisoned().disk;
        self.is_elsewhere.then(|| Layout::Single(target_of(disk)))
    }

    fn takes_one_writer(&self) -> bool {
        self.held.read_unpoisoned().inner.takes_one_writer()
    }

    fn punch_hole(&self, range: ByteRange) -> Result<()> {
        self.moving(|inner| inner.punch_hole(range))?;
        self.wrote(range.length);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let held = self.held.read_unpoisoned();
        let read = held.inner.read_at(offset, buffer);
        read.map_err(|error| self.set.on(held.disk, error))
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.moving(|inner| inner.set_len(size_bytes))
    }

    fn sync(&self) -> Result<()> {
        let held = self.held.read_unpoisoned();
        let synced = held.inner.sync();
        synced.map_err(|error| self.set.on(held.disk, error))
    }

    fn ready(&self, attributes: &Attributes<'_>) -> Result<()> {
        let held = self.held.read_unpoisoned();
        let ready = held.inner.ready(attributes);
        ready.map_err(|error| self.set.on(held.disk, error))
    }

    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let held = self.held.read_unpoisoned();
        self.set.publish_on(held.disk, &self.path, how, || {
            let published = held.inner.publish(how, attributes);
            published.map_err(|error| self.set.on(held.disk, error))
        })
    }

    fn abort(&self) -> Result<()> {
        let held = self.held.read_unpoisoned();
        let aborted = held.inner.abort();
        aborted.map_err(|error| self.set.on(held.disk, error))
    }
}

//! Files without names for a measurement, and the loops that read and write them.

use dray_core::{End, Error, ErrorKind, Result};
use dray_store::errno::io_words;
use rustix::fs::{Advice, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Number of bytes of one read or write: the default size of an object.
pub(super) const BLOCK: usize = 1 << 20;

/// Alignment of offsets, lengths and memory addresses for direct I/O in bytes.
pub(super) const ALIGNMENT: usize = 4096;

/// Without direct I/O, a file is synced each time that this number of bytes was written.
const SYNC_BYTES: u64 = 8 << 20;

/// The files of a measurement in one folder.
pub(super) struct Bench {
    folder: PathBuf,
    files: Vec<File>,
    is_direct: bool,
    /// Maximum size of each file in bytes, a multiple of [`BLOCK`].
    file_bytes: u64,
    /// Device of the file system.
    pub(super) device: u64,
}

impl Bench {
    /// Creates `count` files in a folder and removes the names of the files. `bytes` is the total
    /// size that the files may reach.
    ///
    /// # Errors
    /// If the folder does not exist, cannot be written to, or has less free space than `bytes`.
    pub(super) fn open(folder: &Path, bytes: u64, count: usize) -> Result<Self> {
        let wrong = |error: &io::Error| failed("create a file in", folder, error);
        let metadata = std::fs::metadata(folder).map_err(|error| wrong(&error))?;
        if !metadata.is_dir() {
            return Err(wrong(&io::ErrorKind::NotADirectory.into()));
        }
        let space = rustix::fs::statvfs(folder).map_err(|errno| wrong(&errno.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < bytes {
            let operation = format!("measure the folder {}", folder.display());
            let needed = dray_core::units::human(bytes);
            return Err(Error::new(ErrorKind::NoSpace, End::Here, operation)
                .cause(format!(
                    "only {} are free, but the files of the measurement need {needed}",
                    dray_core::units::human(free)
                ))
                .remedy("free space, or give a smaller --size"));
        }
        let create = |is_direct: bool| -> io::Result<Vec<File>> {
            (0..count)
                .map(|at| nameless(folder, at, is_direct))
                .collect()
        };
        let (files, is_direct) = match create(true) {
            Ok(files) => (files, true),
            // The file system has no direct I/O.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (create(false).map_err(|error| wrong(&error))?, false)
            }
            Err(error) => return Err(wrong(&error)),
        };
        let blocks = bytes / (count as u64 * BLOCK as u64);
        Ok(Self {
            folder: folder.to_owned(),
            files,
            is_direct,
            file_bytes: blocks.max(1) * BLOCK as u64,
            device: metadata.dev(),
        })
    }

    /// Returns true if reads and writes bypass the page cache.
    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn file(&self, at: usize) -> Result<&File> {
        self.files.get(at).ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Here, "measure the devices")
                .cause("the measurement has too few files")
        })
    }

    /// Writes a file from its beginning until the time `end`, and again from the beginning each
    /// time that the file is full. Returns the number of synced bytes.
    pub(super) fn write(&self, at: usize, end: Instant, stop: &AtomicBool) -> Result<u64> {
        let file = self.file(at)?;
        let wrong = |error| failed("write to a file in", &self.folder, &error);
        self.write_until(file, at, u64::MAX, end, stop)
            .map_err(wrong)
    }

    /// Writes a whole file once, for the reads of samples.
    pub(super) fn prepare(&self, at: usize, end: Instant, stop: &AtomicBool) -> Result<u64> {
        let file = self.file(at)?;
        let wrong = |error| failed("write to a file in", &self.folder, &error);
        self.write_until(file, at, self.file_bytes, end, stop)
            .map_err(wrong)
    }

    fn write_until(
        &self,
        file: &File,
        seed: usize,
        most: u64,
        end: Instant,
        stop: &AtomicBool,
    ) -> io::Result<u64> {
        let mut buffer = Buffer::new(seed as u64);
        let (mut offset, mut unsynced, mut synced) = (0, 0, 0);
        if most == u64::MAX {
            file.set_len(0)?;
        }
        while Instant::now() < end && !stop.load(Ordering::Relaxed) && synced + unsynced < most {
            if offset + BLOCK as u64 > self.file_bytes {
                file.sync_data()?;
                file.set_len(0)?;
                offset = 0;
            }
            buffer.vary();
            file.write_all_at(buffer.bytes(BLOCK), offset)?;
            offset += BLOCK as u64;
            unsynced += BLOCK as u64;
            if !self.is_direct && unsynced >= SYNC_BYTES {
                file.sync_data()?;
                synced += std::mem::take(&mut unsynced);
            }
        }
        file.sync_data()?;
        Ok(synced + unsynced)
    }

    /// Reads a prepared file until the time `end`, and again from the beginning each time that the
    /// end of the file is reached. `turn` waits until the next read may begin and returns its
    /// number of bytes, or `None` to end. Returns the number of read bytes.
    pub(super) fn read(
        &self,
        at: usize,
        end: Instant,
        stop: &AtomicBool,
        turn: &mut dyn FnMut() -> Option<usize>,
    ) -> Result<u64> {
        let file = self.file(at)?;
        let wrong = |error: io::Error| failed("read a file in", &self.folder, &error);
        let size = file.metadata().map_err(wrong)?.len();
        let mut buffer = Buffer::new(0);
        let (mut offset, mut bytes) = (0, 0);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            let Some(block) = turn() else { break };
            let block = block.min(usize::try_from(size).unwrap_or(usize::MAX));
            if offset + block as u64 > size {
                offset = 0;
            }
            if !self.is_direct {
                // The pages are clean, so all of them can be dropped.
                rustix::fs::fadvise(file, offset, None, Advice::DontNeed)
                    .map_err(|errno| wrong(errno.into()))?;
            }
            file.read_exact_at(buffer.bytes_mut(block), offset)
                .map_err(wrong)?;
            offset += block as u64;
            bytes += block as u64;
        }
        Ok(bytes)
    }
}

/// Creates a file and removes its name. The name is reserved, so no transfer and no tier takes the
/// file for data.
fn nameless(folder: &Path, at: usize, is_direct: bool) -> io::Result<File> {
    let flags = match is_direct {
        true => OFlags::DIRECT,
        false => OFlags::empty(),
    };
    let path = folder.join(format!(".dray-calibrate-{}-{at}", std::process::id()));
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(&path);
    // A file system without direct I/O may create the file and then refuse to open it. In this
    // case, also remove the name.
    match &opened {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => {}
        Err(_) => drop(std::fs::remove_file(&path)),
        Ok(_) => std::fs::remove_file(&path)?,
    }
    opened
}

fn failed(what: &str, folder: &Path, error: &io::Error) -> Error {
    let operation = format!("{what} the folder {}", folder.display());
    let remedy = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "give an existing folder on each device"
        }
        io::ErrorKind::PermissionDenied => "give a folder in which you may create files",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space, or give a smaller --size"
        }
        _ => "check the device and its file system",
    };
    Error::new(error.kind().into(), End::Here, operation)
        .cause(io_words(error))
        .remedy(remedy)
}

/// An aligned block of bytes that no device can compress.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    state: u64,
}

impl Buffer {
    fn new(seed: u64) -> Self {
        let mut bytes = vec![0; BLOCK + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&next(&mut state).to_le_bytes());
        }
        Self {
            bytes,
            start,
            state,
        }
    }

    /// Changes each page, so that no device can store two equal pages once.
    fn vary(&mut self) {
        for page in self.bytes.chunks_exact_mut(ALIGNMENT) {
            if let Some(word) = page.first_chunk_mut() {
                *word = next(&mut self.state).to_le_bytes();
            }
        }
    }

    fn bytes(&self, length: usize) -> &[u8] {
        &self.bytes[self.start..self.start + length.min(BLOCK)]
    }

    fn bytes_mut(&mut self, length: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + length.min(BLOCK)]
    }
}

/// Returns the next number of a xorshift generator.
const fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

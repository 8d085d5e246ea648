//! Operations on files and folders other than transfers: inspect, list, make, remove, rename and
//! checksum.
//!
//! All calls block. The memory for listed or removed entries is bounded ([`Listings`]). If the
//! caller disconnects, the call ends before the next entry ([`Given`]).
//!
//! Invariant owned here: dray's own files are not shown, their names are not accepted in a path,
//! and no link is followed.

mod free;
mod listings;
mod remove;
mod stored;

use dray_api::Timestamp;
use dray_api::api_path::{self, ApiPath};
use dray_api::{Algorithm, ChecksumAnswer, Entry, EntryList, EntryType, SpaceAnswer, SumOrigin};
use dray_config::roots::Root;
use dray_core::checksum::Summer;
use dray_core::{End, Error, ErrorKind, Metadata, ModifiedTime, Name, RelPath, Result, Sums};
use dray_store::posix::rename_new;
use dray_store::{MadeDir, ReadExt, ReadHandle, ReadPurpose, StoreExt, SyncItem, errno};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use listings::Names;

pub use free::{Freed, Judge, Seen, free};
pub use listings::Listings;
pub use remove::remove;

/// Number of bytes per read for a checksum.
const READ_BYTES: usize = 1 << 20;

/// A flag that is set when the caller of an operation has disconnected.
#[derive(Debug, Default)]
pub struct Given(AtomicBool);

impl Given {
    /// Sets the flag.
    pub fn up(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the flag is set.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns an error if the flag is set.
    ///
    /// # Errors
    /// `Cancelled` if the caller has disconnected.
    fn check(&self, operation: &str) -> Result<()> {
        if self.is_up() {
            return Err(Error::new(ErrorKind::Cancelled, End::Here, operation)
                .cause("the caller closed the connection"));
        }
        Ok(())
    }
}

/// Rewrites a store's error for a caller of the storage API. A store's error may mention the other
/// end of a transfer and options of a command, which this caller does not have.
pub fn in_plain_words(error: Error) -> Error {
    use ErrorKind as K;
    let remedy = match error.kind {
        K::IsADirectory => "name a file",
        K::NotADirectory => "choose another path, because a parent in this path is not a folder",
        K::NameTooLong => "use a shorter name",
        K::NoSpace => "free some space, or ask for a larger quota",
        _ => return error.at(End::Here),
    };
    error.at(End::Here).remedy(remedy)
}

fn failed<'a>(operation: &'a str, path: &'a RelPath) -> impl Fn(Errno) -> Error + 'a {
    move |errno| {
        let error = in_plain_words(errno::error(End::Here, operation, path, errno));
        match errno {
            Errno::EXIST => error.remedy("remove the existing entry, or give another path"),
            _ => error,
        }
    }
}

/// Opens the folder that contains `path`. Returns the folder and the last name of `path`.
fn above(root: &Root, path: &RelPath, operation: &str) -> Result<(OwnedFd, Name)> {
    let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
        return Err(Error::new(ErrorKind::InvalidRequest, End::Here, operation)
            .cause("the path is a root, not an entry inside a root")
            .remedy("give the path of an entry inside the root"));
    };
    if root.path().is_none() {
        return Err(stored::unsupported(root, operation));
    }
    let folder = root
        .beneath(&parent, OFlags::PATH | OFlags::DIRECTORY)
        .map_err(failed(operation, path))?;
    Ok((folder, name))
}

/// Describes the entry at a path.
///
/// # Errors
/// `NotFound`, and the errors of the store.
pub fn stat(root: &Root, path: &ApiPath) -> Result<Entry> {
    if root.path().is_none() {
        return stored::stat(root, path);
    }
    let operation = "read the attributes of the file";
    let wrong = failed(operation, &path.path);
    if path.path.is_root() {
        let folder = root.beneath(&path.path, OFlags::PATH).map_err(&wrong)?;
        let stat = rustix::fs::fstat(&folder).map_err(&wrong)?;
        return Ok(entry(path, &stat, None));
    }
    let (folder, name) = above(root, &path.path, operation)?;
    entry_in(&folder, &name, path).map_err(wrong)
}

fn entry_in(folder: &OwnedFd, name: &Name, path: &ApiPath) -> rustix::io::Result<Entry> {
    let stat = rustix::fs::statat(folder, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW)?;
    let link = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let text = rustix::fs::readlinkat(folder, name.as_bytes(), Vec::new())?;
            Some(api_path::encode(text.as_bytes()))
        }
        _ => None,
    };
    Ok(entry(path, &stat, link))
}

/// Returns the target text of the link at `path`.
///
/// # Errors
/// `InvalidRequest` if the entry is not a link. Also the errors of the store.
pub fn link_text(root: &Root, path: &RelPath) -> Result<Vec<u8>> {
    let operation = "read the link";
    let (folder, name) = above(root, path, operation)?;
    rustix::fs::readlinkat(&folder, name.as_bytes(), Vec::new())
        .map(std::ffi::CString::into_bytes)
        .map_err(failed(operation, path))
}

fn entry(path: &ApiPath, stat: &Stat, link: Option<String>) -> Entry {
    let name = path.path.name();
    let seconds = stat.st_mtime.saturating_mul(1000);
    let ms = i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0);
    Entry {
        path: path.text(),
        name: name.map_or_else(
            || path.root.clone(),
            |name| api_path::encode(name.as_bytes()),
        ),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryType::File,
            FileType::Directory => EntryType::Directory,
            FileType::Symlink => EntryType::Symlink,
            _ => EntryType::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_at: Timestamp::from_ms(seconds.saturating_add(ms)),
        mode: format!("{:04o}", stat.st_mode & 0o7777),
        link,
    }
}

/// The requested page of a folder's list.
#[derive(Debug, Clone, Copy)]
pub struct PageOf<'a> {
    /// The caller's owner name.
    pub owner: &'a str,
    /// Maximum number of entries.
    pub limit: u32,
    /// The last name on the previous page.
    pub cursor: Option<&'a str>,
}

/// Returns a page of a folder, sorted by name.
///
/// Reading a folder also yields names for later pages. These names are kept for some seconds, so
/// that a large folder is not read once per page. The number of kept names is bounded.
///
/// # Errors
/// `NotFound` and `NotADirectory`. `InvalidRequest` for an invalid cursor.
pub fn list(
    root: &Root,
    path: &ApiPath,
    page: PageOf<'_>,
    listings: &Listings,
    given: &Given,
) -> Result<EntryList> {
    if root.path().is_none() {
        return stored::list(root, path, page, given);
    }
    let operation = "list the folder";
    let wrong = failed(operation, &path.path);
    let after = page.cursor.map(api_path::decode).transpose()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let folder = root.beneath(&path.path, flags).map_err(&wrong)?;
    let (text, limit) = (path.text(), page.limit as usize);
    let known = after
        .as_deref()
        .and_then(|after| listings.take(page.owner, &text, after, limit));
    let mut behind = match known {
        Some(known) => known,
        None => read_names(
            &folder,
            after.as_deref(),
            listings.names_max.max(limit),
            || given.check(operation),
            &wrong,
        )?,
    };
    let rest = behind.names.split_off(limit.min(behind.names.len()));
    let names = std::mem::replace(&mut behind.names, rest);
    let has_more = !(behind.is_all && behind.names.is_empty());
    let last = names.back().filter(|_| has_more);
    let next = last.map(|name| api_path::encode(name));
    if let Some(last) = last.filter(|_| !behind.names.is_empty()) {
        listings.keep(page.owner, &text, last, behind);
    }
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        let name = Name::new(&name)?;
        let below = path.with(path.path.join(&name)?);
        match entry_in(&folder, &name, &below) {
            Ok(entry) => entries.push(entry),
            // The entry was removed after the folder was read.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(operation, &below.path)(errno)),
        }
    }
    Ok(EntryList { entries, next })
}

/// Returns the first `max` names of a folder after `after`, in order. Holds at most `max` names in
/// memory.
fn read_names(
    folder: &OwnedFd,
    after: Option<&[u8]>,
    max: usize,
    check: impl Fn() -> Result<()>,
    wrong: impl Fn(Errno) -> Error,
) -> Result<Names> {
    let read_at = Instant::now();
    // A max-heap. Its top is the last of the kept names and is dropped first.
    let mut first: BinaryHeap<Vec<u8>> = BinaryHeap::new();
    let mut is_all = true;
    for item in rustix::fs::Dir::read_from(folder).map_err(&wrong)? {
        check()?;
        let item = item.map_err(&wrong)?;
        let name = item.file_name().to_bytes();
        if is_hidden(name) || after.is_some_and(|after| name <= after) {
            continue;
        }
        if first.len() < max {
            first.push(name.to_vec());
            continue;
        }
        is_all = false;
        if first.peek().is_some_and(|last| name < last.as_slice()) {
            first.pop();
            first.push(name.to_vec());
        }
    }
    Ok(Names {
        names: first.into_sorted_vec().into(),
        is_all,
        read_at,
    })
}

fn is_hidden(name: &[u8]) -> bool {
    matches!(name, b"." | b"..") || name.starts_with(dray_core::path::RESERVED_PREFIX)
}

/// Makes a folder. Returns its entry, and true if the folder did not exist before.
///
/// # Errors
/// `NotADirectory` if another kind of entry has the name. `NotFound` if the parent folder does not
/// exist and `parents` is false.
pub fn make_folder(root: &Root, path: &ApiPath, parents: bool) -> Result<(Entry, bool)> {
    let mode = dray_store::posix::default_folder_mode();
    let made = if parents || path.path.is_root() {
        root.store().make_dirs(&path.path, mode)?
    } else {
        make_one(root, &path.path, mode)?
    };
    Ok((stat(root, path)?, made == MadeDir::Created))
}

fn make_one(root: &Root, path: &RelPath, mode: u32) -> Result<MadeDir> {
    let store = root.store();
    if store.is_folder(path)? {
        // An existing folder keeps its mode.
        return Ok(MadeDir::Existed);
    }
    let made = store.make_dir(path)?;
    if made == MadeDir::Created {
        let state = store.stat(path)?;
        let metadata = Metadata {
            mode,
            modified: state.map_or_else(ModifiedTime::default, |state| state.modified),
            ..Metadata::default()
        };
        store.set_directory(path, &metadata)?;
        let parent = path.parent().unwrap_or_else(RelPath::root);
        store.sync_all(&[SyncItem::Folder(&parent)])?;
    }
    Ok(made)
}

/// Renames a file or a folder within its root. The new name is durable when the call returns.
///
/// # Errors
/// `NotFound`. `AlreadyExists` if an entry has the new name, unless that entry is a file or a link
/// and `replace` is true. `IsADirectory` if `replace` is true and the entry is a folder.
pub fn rename(root: &Root, from: &ApiPath, to: &ApiPath, replace: bool) -> Result<Entry> {
    let operation = "rename";
    if from.root != to.root {
        return Err(Error::new(ErrorKind::InvalidRequest, End::Here, operation)
            .cause("the old and the new name are in different roots")
            .remedy("submit a transfer, and remove the source when the transfer is done"));
    }
    let (from_folder, from_name) = above(root, &from.path, operation)?;
    let (to_folder, to_name) = above(root, &to.path, operation)?;
    let (old, new) = (from_name.as_bytes(), to_name.as_bytes());
    let renamed = if replace {
        let there = rustix::fs::statat(&to_folder, new, AtFlags::SYMLINK_NOFOLLOW);
        match there.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Directory) => Err(Errno::ISDIR),
            Ok(FileType::RegularFile | FileType::Symlink) | Err(_) => {
                rustix::fs::renameat(&from_folder, old, &to_folder, new)
            }
            // A device, a pipe or a socket is never replaced.
            Ok(_) => Err(Errno::EXIST),
        }
    } else {
        rename_new((from_folder.as_fd(), old), (to_folder.as_fd(), new))
    };
    renamed.map_err(|errno| match errno {
        Errno::INVAL if to.path.starts_with(&from.path) => {
            Error::new(ErrorKind::InvalidRequest, End::Here, operation)
                .cause("a folder cannot be moved into itself")
                .remedy("choose another parent for the folder")
        }
        Errno::NOENT => failed(operation, &from.path)(errno),
        Errno::EXIST if replace => Error::new(ErrorKind::AlreadyExists, End::Here, operation)
            .cause(
                "a device, pipe or socket has the new name, and dray never replaces such entries",
            )
            .remedy("choose another name, or remove the existing entry")
            .file(&to.path),
        Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR => failed(
            operation, &to.path,
        )(errno)
        .remedy("remove the existing entry, or set \"replace\": true if the entry is a file"),
        errno => failed(operation, &to.path)(errno),
    })?;
    let folders = [from, to].map(|path| path.path.parent().unwrap_or_else(RelPath::root));
    let folders = folders.each_ref().map(SyncItem::Folder);
    root.store().sync_all(&folders)?;
    entry_in(&to_folder, &to_name, to).map_err(failed(operation, &to.path))
}

/// Returns a checksum of a file. If a checksum is stored and the file has not changed since,
/// returns the stored checksum. Otherwise reads the file.
///
/// # Errors
/// `IsADirectory`. `SourceChanged` if the file changed while it was read.
pub fn checksum(
    root: &Root,
    path: &ApiPath,
    algorithm: Algorithm,
    given: &Given,
) -> Result<ChecksumAnswer> {
    let operation = "compute the checksum of the file";
    // `ReadBack`, because the data must come from the storage and not from this host's page cache.
    let file = root.store().open_read(&path.path, ReadPurpose::ReadBack)?;
    let before = file.state()?;
    // The stored checksums of the open file. Its name may refer to another file by now.
    let known = file.known_sums().unwrap_or_default();
    let (sums, from) = match known {
        Some(sums) => (sums, SumOrigin::Attribute),
        None => (read_sums(&*file, given, operation)?, SumOrigin::Read),
    };
    if file.state()? != before {
        return Err(Error::new(ErrorKind::SourceChanged, End::Here, operation)
            .file(&path.path)
            .remedy("try again when no program writes to the file"));
    }
    Ok(ChecksumAnswer {
        path: path.text(),
        algorithm,
        checksum: digits(algorithm, sums),
        size: before.size,
        from,
    })
}

/// Returns the checksums of the bytes that a file has now. Reads the whole file.
///
/// # Errors
/// `SourceChanged` if the file changed while it was read.
pub fn content_sums(root: &Root, path: &RelPath, given: &Given) -> Result<Sums> {
    let operation = "compute the checksum of the file";
    let file = root.store().open_read(path, ReadPurpose::ReadBack)?;
    let before = file.state()?;
    let sums = read_sums(&*file, given, operation)?;
    if file.state()? != before {
        return Err(Error::new(ErrorKind::SourceChanged, End::Here, operation).file(path));
    }
    Ok(sums)
}

fn read_sums(file: &dyn ReadHandle, given: &Given, operation: &str) -> Result<Sums> {
    let mut summer = Summer::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    loop {
        given.check(operation)?;
        let count = file.read_full_at(offset, &mut buffer)?;
        summer.update(&buffer[..count]);
        offset += count as u64;
        if count < buffer.len() {
            return Ok(summer.finish());
        }
    }
}

fn digits(algorithm: Algorithm, sums: Sums) -> String {
    match algorithm {
        Algorithm::Adler32 => format!("{:08x}", sums.adler32),
        Algorithm::Crc32c => format!("{:08x}", sums.crc32c),
    }
}

/// Returns the space of the storage that holds a path.
///
/// # Errors
/// `NotFound` if the path does not exist.
pub fn space(root: &Root, path: &ApiPath) -> Result<SpaceAnswer> {
    if root.path().is_none() {
        return stored::space(root, path);
    }
    let operation = "read the free space";
    let opened = root.beneath(&path.path, OFlags::PATH);
    let opened = opened.map_err(failed(operation, &path.path))?;
    let told = rustix::fs::fstatvfs(&opened).map_err(failed(operation, &path.path))?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Ok(SpaceAnswer {
        total: bytes(told.f_blocks),
        free: bytes(told.f_bfree),
        available: bytes(told.f_bavail),
    })
}

#[cfg(test)]
mod tests;

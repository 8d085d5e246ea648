//! The files of receipts. Every file is written to a temporary name, synced, and then gets its final
//! name. Then the folder is synced.

use dray_core::{End, Error, ErrorKind, Result};
use dray_receipt::LINE_BYTES_MAX;
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The private key.
pub(super) const KEY: &str = "key.pem";
/// The public keys.
pub(super) const KEYS: &str = "keys.json";
const CHECKPOINT: &str = "checkpoint";
const LOCK: &str = "lock";
const TEMPORARY: &str = ".new-";
const SUFFIX: &str = ".receipt";
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum size of the file of keys in bytes.
const KEYS_BYTES_MAX: u64 = 4 << 20;

/// The folder of an endpoint's receipts. Only one process may have it open.
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens the folder, and creates it if necessary. No other user may read it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed =
            |error: std::io::Error| failed("open the folder of the receipts", path, &error);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(failed)?;
        make_private(path, 0o700).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let lock = options.open(path.join(LOCK)).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN) => {
                return Err(Error::new(
                    ErrorKind::Busy,
                    End::Here,
                    "open the folder of the receipts",
                )
                .cause(format!("another process has locked {}", path.display()))
                .remedy("configure a separate folder in [receipts] for each endpoint"));
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    fn of(&self, sequence: u64) -> PathBuf {
        self.path.join(format!("{sequence:012}{SUFFIX}"))
    }

    pub(super) fn has(&self, sequence: u64) -> bool {
        self.of(sequence).exists()
    }

    pub(super) fn file(&self, sequence: u64) -> Result<File> {
        let path = self.of(sequence);
        File::open(&path).map_err(|error| failed("read the receipt", &path, &error))
    }

    /// Returns the first line of a receipt, without the line break.
    pub(super) fn head(&self, sequence: u64) -> Result<String> {
        self.line(&self.of(sequence), self.file(sequence)?)
    }

    /// Returns the signed line of the checkpoint.
    pub(super) fn checkpoint(&self) -> Result<Option<String>> {
        let path = self.path.join(CHECKPOINT);
        match File::open(&path) {
            Ok(file) => self.line(&path, file).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read the checkpoint of the receipts", &path, &error)),
        }
    }

    fn line(&self, path: &Path, file: File) -> Result<String> {
        let mut line = String::new();
        BufReader::new(file.take(LINE_BYTES_MAX as u64 + 1))
            .read_line(&mut line)
            .map_err(|error| failed("read the receipt", path, &error))?;
        match line.strip_suffix('\n') {
            Some(head) => Ok(head.to_owned()),
            None => Err(
                Error::new(ErrorKind::ChecksumMismatch, End::Here, "read the receipt")
                    .cause(format!("{}: the first line has no end", path.display()))
                    .remedy("restore the folder of the receipts from a backup"),
            ),
        }
    }

    /// Adds the path of a receipt to an error about its content.
    pub(super) fn of_file(&self, sequence: u64, error: Error) -> Error {
        let cause = format!("{}: {}", self.of(sequence).display(), error.cause);
        error
            .cause(cause)
            .remedy("restore the folder of the receipts and the state folder from one backup")
    }

    /// Writes a receipt. Fails if a receipt with this number exists.
    pub(super) fn write_receipt(
        &self,
        sequence: u64,
        fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<()> {
        let path = self.of(sequence);
        let temporary = self.path.join(format!("{TEMPORARY}{sequence:012}"));
        self.fill(&temporary, fill)
            // Unlike a rename, a link never replaces a file.
            .and_then(|()| std::fs::hard_link(&temporary, &path))
            .and_then(|()| std::fs::remove_file(&temporary))
            .and_then(|()| self.sync())
            .map_err(|error| failed("write the receipt", &path, &error))
    }

    pub(super) fn write_checkpoint(&self, line: &str) -> Result<()> {
        self.replace(CHECKPOINT, format!("{line}\n").as_bytes())
    }

    /// Writes a file, and replaces the old one.
    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!("{TEMPORARY}{name}"));
        self.fill(&temporary, |file| file.write_all(bytes))
            .and_then(|()| std::fs::rename(&temporary, &path))
            .and_then(|()| self.sync())
            .map_err(|error| failed("write a file of the receipts", &path, &error))
    }

    fn fill(
        &self,
        temporary: &Path,
        fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, options.open(temporary)?);
        fill(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()
    }

    fn sync(&self) -> std::io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Reads the private key. Takes the permissions of other users on the file away. Returns `None`
    /// if the file does not exist.
    pub(super) fn read_key(&self) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(KEY);
        match make_private(&path, 0o600) {
            Ok(()) => self.read(KEY),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("protect the key of the receipts", &path, &error)),
        }
    }

    /// Reads a small file. Returns `None` if the file does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(KEYS_BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read the keys of the receipts", &path, &error)),
        }
    }

    fn each(&self, mut work: impl FnMut(&str, &Path) -> std::io::Result<()>) -> Result<()> {
        let worked = std::fs::read_dir(&self.path).and_then(|mut items| {
            items.try_for_each(|item| {
                let item = item?;
                match item.file_name().to_str() {
                    Some(name) => work(name, &item.path()),
                    None => Ok(()),
                }
            })
        });
        worked.map_err(|error| failed("clean the folder of the receipts", &self.path, &error))
    }

    /// Removes the temporary files that a crash has left, and syncs the folder. The names of whole
    /// receipts that a crash has left unrecorded are durable afterwards.
    pub(super) fn remove_temporary(&self) -> Result<()> {
        self.each(|name, path| match name.starts_with(TEMPORARY) {
            true => std::fs::remove_file(path),
            false => Ok(()),
        })?;
        self.sync()
            .map_err(|error| failed("clean the folder of the receipts", &self.path, &error))
    }

    fn each_receipt(&self, mut work: impl FnMut(u64, &Path) -> std::io::Result<()>) -> Result<()> {
        self.each(|name, path| {
            let number = name.strip_suffix(SUFFIX).map(str::parse::<u64>);
            match number {
                Some(Ok(number)) => work(number, path),
                _ => Ok(()),
            }
        })
    }

    /// Returns the highest number such that the receipts after it have at most `bytes_max` bytes in
    /// total. `last` is the number of the newest receipt.
    pub(super) fn last_beyond(&self, bytes_max: u64, last: u64) -> Result<u64> {
        let mut total = 0u64;
        let mut first = last;
        self.each_receipt(|number, path| {
            total = total.saturating_add(path.metadata()?.len());
            first = first.min(number);
            Ok(())
        })?;
        let mut beyond = first.saturating_sub(1);
        while total > bytes_max && beyond < last {
            beyond += 1;
            let size = self.of(beyond).metadata().map_or(0, |state| state.len());
            total = total.saturating_sub(size);
        }
        Ok(beyond)
    }

    /// Removes all receipts with numbers up to `sequence`.
    pub(super) fn remove_to(&self, sequence: u64) -> Result<()> {
        self.each_receipt(|number, path| match number <= sequence {
            true => std::fs::remove_file(path),
            false => Ok(()),
        })
    }
}

/// Takes the permissions of other users on a file or a folder away.
fn make_private(path: &Path, mode: u32) -> std::io::Result<()> {
    let found = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    if found & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    tracing::warn!(
        "{} had the mode {found:04o}, so other users had access; dray has set the mode {mode:04o}. \
         If another user may have read key.pem, remove key.pem and restart the endpoint, which \
         then makes a new key",
        path.display()
    );
    Ok(())
}

fn failed(operation: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(error.kind().into(), End::Here, operation)
        .cause(format!("{}: {error}", path.display()))
        .remedy("check the folder of the receipts ([receipts] in the endpoint's configuration)")
}

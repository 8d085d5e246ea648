//! The empty file that the server makes under the destination's name before it starts a copy.

use crate::digest;
use dray_core::{End, Error, ErrorKind, Result};
use rustix::fs::{getxattr, listxattr, removexattr};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Environment variable set by the server's storage wrapper: the file of the destination name is no
/// placeholder.
const HIDES: &str = "DRAY_XROOTD_HIDES";

/// Maximum bytes of attribute names, and of one value (the kernel's own limits).
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// Returns true if the server hides its placeholders of `root://` copies.
pub(crate) fn are_hidden() -> bool {
    std::env::var_os(HIDES).is_some()
}

/// The file that had the destination name, and the attributes that the copy takes from it.
#[derive(Debug)]
pub(crate) struct Placeholder {
    /// Path of the file itself: where the server has spaces, the destination name is a link to it.
    pub(crate) path: PathBuf,
    /// Device and inode; `None` if there was no file. A different file under the name belongs to
    /// another copy.
    id: Option<(u64, u64)>,
    /// Permission bits; `None` if there was no file.
    pub(crate) mode: Option<u32>,
    /// Extended attributes set by the server, without checksums.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Set if it is an older file, which stays until the copy replaces it.
    is_kept: bool,
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(error.kind().into(), End::Sink, "look at the destination")
        .cause(format!("{}, {error}", path.display()))
}

impl Placeholder {
    /// Examines the file at `destination`. `hides` means that the server hides its placeholders,
    /// except those in a space of its own: then a visible file is not a placeholder.
    ///
    /// # Errors
    /// If it cannot be examined, or is no file.
    pub(crate) fn look(destination: &Path, hides: bool) -> Result<Self> {
        let path = match destination.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self {
                    path: destination.to_owned(),
                    id: None,
                    mode: None,
                    xattrs: Vec::new(),
                    is_kept: hides,
                });
            }
            Err(error) => return Err(failed(destination, &error)),
        };
        let state = path.metadata().map_err(|error| failed(&path, &error))?;
        if !state.is_file() {
            let error = Error::new(ErrorKind::IsADirectory, End::Sink, "write the file");
            return Err(error.cause(path.display().to_string()));
        }
        let xattrs = attributes(&path);
        Ok(Self {
            id: Some((state.dev(), state.ino())),
            mode: Some(state.permissions().mode() & 0o7777),
            path,
            xattrs,
            is_kept: hides && !is_link(destination),
        })
    }

    /// Removes the placeholder, once this copy alone may write there. A killed copy then leaves no
    /// name that would block the next one, and nobody reads an empty file meanwhile. A server that
    /// has it open does not need the name.
    ///
    /// A file with content stays until the copy replaces it, as does a file that another copy has
    /// published since. A link stays too: the server's space refers to it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn clear(&self, destination: &Path) -> Result<()> {
        let state = self.path.metadata();
        let state = state.ok().filter(|state| !self.is_kept && self.is(state));
        let Some(state) = state else {
            return Ok(());
        };
        // Its checksum attributes are about to become wrong, whatever the times are: a server would
        // trust them for a second.
        for name in names(&self.path).iter().filter(|name| digest::is_one(name)) {
            let _ = removexattr(&self.path, name.as_slice());
        }
        self.remove(&state, destination)
    }

    /// Removes the placeholder after a failure, once this copy alone may write there: an empty file
    /// under the name would block a retry. Any other file there stays as it is.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn forget(&self, destination: &Path) -> Result<()> {
        let state = self.path.metadata();
        let state = state.ok().filter(|state| !self.is_kept && self.is(state));
        state.map_or(Ok(()), |state| self.remove(&state, destination))
    }

    /// Returns true if the examined file still has the name.
    pub(crate) fn is_there(&self) -> bool {
        self.path.metadata().is_ok_and(|state| self.is(&state))
    }

    fn is(&self, state: &Metadata) -> bool {
        self.id == Some((state.dev(), state.ino()))
    }

    fn remove(&self, state: &Metadata, destination: &Path) -> Result<()> {
        if state.size() > 0 || is_link(destination) {
            return Ok(());
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed(&self.path, &error))
            }
            _ => Ok(()),
        }
    }
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|state| state.is_symlink())
}

fn names(path: &Path) -> Vec<Vec<u8>> {
    let mut text = vec![0; XATTR_BYTES_MAX];
    let length = listxattr(path, text.as_mut_slice()).unwrap_or(0);
    let names = text[..length].split(|byte| *byte == 0);
    let names = names.filter(|name| name.starts_with(b"user."));
    names.map(<[u8]>::to_vec).collect()
}

/// Returns the attributes that stay valid for another content; empty on a file system without
/// attributes.
fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = names(path).into_iter();
    let kept = names.filter(|name| !digest::is_one(name) && !name.starts_with(b"user.dray."));
    let read = |name: Vec<u8>| {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = getxattr(path, name.as_slice(), value.as_mut_slice()).ok()?;
        value.truncate(length);
        Some((name, value))
    };
    kept.filter_map(read).collect()
}

/// Returns the exported folder that contains `path`; `/` if the server names none or none contains
/// it.
pub(crate) fn root_of(path: &Path, local_root: Option<&Path>) -> PathBuf {
    let root = local_root.filter(|root| !root.as_os_str().as_bytes().is_empty());
    let root = root.and_then(|root| root.canonicalize().ok());
    root.filter(|root| path.starts_with(root))
        .unwrap_or_else(|| PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use super::{Placeholder, root_of};
    use std::path::Path;

    #[test]
    fn an_empty_file_goes_and_one_with_bytes_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (empty, full) = (folder.path().join("e"), folder.path().join("f"));
        std::fs::write(&empty, b"").expect("writes");
        std::fs::write(&full, b"x").expect("writes");
        for path in [&empty, &full, &folder.path().join("none")] {
            Placeholder::look(path, false)
                .expect("looks")
                .clear(path)
                .expect("clears");
        }
        assert!(!empty.exists() && full.exists());
        assert!(Placeholder::look(folder.path(), false).is_err());
    }

    #[test]
    fn where_the_server_hides_its_own_an_empty_file_is_somebodys() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, b"").expect("writes");
        let found = Placeholder::look(&file, true).expect("looks");
        found.clear(&file).expect("clears");
        assert!(file.exists());
        let found = Placeholder::look(&file, false).expect("looks");
        found.clear(&file).expect("clears");
        assert!(!file.exists());
    }

    #[test]
    fn a_file_published_by_another_copy_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (name, other) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&name, b"").expect("writes");
        let found = Placeholder::look(&name, false).expect("looks");
        // The server holds the placeholder open, so its inode number is not reused.
        let _held = std::fs::File::open(&name).expect("opens");
        std::fs::write(&other, b"").expect("writes");
        std::fs::rename(&other, &name).expect("renames");
        found.clear(&name).expect("clears");
        found.forget(&name).expect("forgets");
        assert!(name.exists());
    }

    #[test]
    fn a_link_of_a_space_stays_and_its_file_is_meant() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, b"").expect("writes");
        std::os::unix::fs::symlink(&file, &link).expect("links");
        let found = Placeholder::look(&link, false).expect("looks");
        assert_eq!(found.path, file.canonicalize().expect("is there"));
        found.clear(&link).expect("clears");
        assert!(link.symlink_metadata().is_ok() && file.exists());
    }

    #[test]
    fn the_root_is_the_exported_one_where_the_file_lies_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("is there");
        assert_eq!(root_of(&top.join("a"), Some(&top)), top);
        assert_eq!(root_of(Path::new("/x"), Some(&top)), Path::new("/"));
        assert_eq!(root_of(Path::new("/x"), None), Path::new("/"));
    }
}

//! The empty file that the server creates under the destination name before it starts a copy.

use crate::digest;
use dray_core::{End, Error, ErrorKind, Result};
use rustix::fs::{getxattr, listxattr, removexattr};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Environment variable that the server's storage wrapper sets. It means that the file with the
/// destination name is not a placeholder.
const HIDES: &str = "DRAY_XROOTD_HIDES";

/// Maximum size in bytes of the list of attribute names, and of one attribute value. These are the
/// limits of the kernel.
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// Returns true if the server hides the placeholders of its `root://` copies.
pub(crate) fn are_hidden() -> bool {
    std::env::var_os(HIDES).is_some()
}

/// The file that had the destination name, and the attributes that the copy inherits from it.
#[derive(Debug)]
pub(crate) struct Placeholder {
    /// Path of the file itself. If the server uses spaces, the destination name is a symbolic link
    /// to this path.
    pub(crate) path: PathBuf,
    /// Device and inode of the file; `None` if there was no file. If the name belongs to another
    /// file later, that file is from another copy.
    id: Option<(u64, u64)>,
    /// Permission bits of the file; `None` if there was no file.
    pub(crate) mode: Option<u32>,
    /// Extended attributes that the server has set, without checksums.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if the file is an older file of a user. The older file is kept until the copy replaces
    /// it.
    is_kept: bool,
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        error.kind().into(),
        End::Sink,
        "read the attributes of the destination",
    )
    .cause(format!("{}, {error}", path.display()))
}

impl Placeholder {
    /// Examines the file at `destination`. `hides` is true if the server hides its placeholders. A
    /// visible file is then not a placeholder, except in an XRootD space, where placeholders are
    /// not hidden.
    ///
    /// # Errors
    /// An error if the entry cannot be examined or is not a file.
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

    /// Removes the placeholder after this copy has got the lease. If the copy is then killed, the
    /// name does not block the next copy, and no client reads an empty file. A server that has the
    /// placeholder open does not need the placeholder's name.
    ///
    /// A file with content is kept until the copy replaces it. A file that another copy has
    /// published in the meantime is kept too. The file behind a symbolic link is kept, because the
    /// link belongs to an XRootD space (see [`Self::path`]).
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn clear(&self, destination: &Path) -> Result<()> {
        let state = self.path.metadata();
        let state = state.ok().filter(|state| !self.is_kept && self.is(state));
        let Some(state) = state else {
            return Ok(());
        };
        // Remove the checksum attributes of the old content. A server compares modification times
        // with a resolution of one second. So it could accept the old checksums for new content
        // that was written in the same second.
        for name in names(&self.path).iter().filter(|name| digest::is_one(name)) {
            let _ = removexattr(&self.path, name.as_slice());
        }
        self.remove(&state, destination)
    }

    /// Removes the empty placeholder after a copy has failed, because it would block a retry. Only
    /// a copy that has the lease calls this function. A file of a user, or a file that has replaced
    /// the placeholder, is kept.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn forget(&self, destination: &Path) -> Result<()> {
        let state = self.path.metadata();
        let state = state.ok().filter(|state| !self.is_kept && self.is(state));
        state.map_or(Ok(()), |state| self.remove(&state, destination))
    }

    /// Returns true if the name still belongs to the file that was examined.
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

/// Returns the extended attributes that stay valid if the file gets other content: all attributes
/// except checksums and dray's own. Returns an empty list on a file system without extended
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

/// Returns the exported folder that contains `path`. Returns `/` if the server reports no such
/// folder.
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
        // Keep the placeholder open, as the server does, so that its inode number is not reused.
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

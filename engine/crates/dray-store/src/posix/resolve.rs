//! Opens paths below the root and never leaves the root.
//!
//! The kernel resolves the path (`openat2` with `RESOLVE_BENEATH`). A path that is too long for one
//! call is resolved in pieces. Linux before 5.6 and some sandboxes do not permit `openat2`. In this
//! case each component is opened separately with `O_NOFOLLOW`. This method is slower and does not
//! follow any link.

use super::{LinkScope, place_of};
use dray_core::{Name, RelPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum length in bytes of a path passed to the kernel in one call. The limit of the kernel is
/// `PATH_MAX` (4096), including the final zero.
const PIECE_BYTES_MAX: usize = 4000;

/// Flags to open a folder in the middle or at the end of a path.
pub(super) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Flags to open a folder only for look-ups.
const PASSAGE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Flags for a resolution that follows no link and stays below the root.
const STRAIGHT: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    scope: LinkScope,
    has_openat2: AtomicBool,
}

impl Root {
    pub(super) fn new(fd: OwnedFd, scope: LinkScope, use_openat2: bool) -> Self {
        Self {
            fd,
            scope,
            has_openat2: AtomicBool::new(use_openat2),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn uses_openat2(&self) -> bool {
        self.has_openat2.load(Ordering::Relaxed)
    }

    pub(super) const fn scope(&self) -> &LinkScope {
        &self.scope
    }

    /// Opens the folder at `path`, which is a string of names joined by slashes, or empty for the
    /// root. The folder is opened for reading if its mode permits reading, otherwise only for
    /// look-ups. The second result is true if the folder is open for reading.
    pub(super) fn open_folder(&self, path: &[u8]) -> Result<(OwnedFd, bool)> {
        match self.open(path, FOLDER) {
            Ok(fd) => Ok((fd, true)),
            Err(Errno::ACCESS) => Ok((self.open(path, PASSAGE)?, false)),
            Err(errno) => Err(errno),
        }
    }

    /// Opens the entry at `path`. Follows the links that the scope of this root permits.
    pub(super) fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        match &self.scope {
            LinkScope::Never => self.open_from(None, path, flags, STRAIGHT),
            LinkScope::Anywhere => self.open_from(None, path, flags, ResolveFlags::empty()),
            LinkScope::Beneath(tops) => {
                let within = |top| Some((top, beneath(RelPath::as_bytes(top), path)?));
                // Links are not followed outside the listed paths, or on the way to a listed path.
                let Some((top, rest)) = tops.iter().find_map(within) else {
                    return self.open_from(None, path, flags, STRAIGHT);
                };
                // First try to open the path without following links. Usually the path has no link,
                // so no link target needs a check.
                if !rest.split(|byte| *byte == b'/').any(is_own) {
                    match self.open_from(None, path, flags, STRAIGHT) {
                        Err(Errno::LOOP) => {}
                        straight => return straight,
                    }
                }
                let top = self.open_from(None, top.as_bytes(), PASSAGE, STRAIGHT)?;
                let opened = self.open_from(Some(top), rest, flags, ResolveFlags::BENEATH)?;
                self.refuse_own(&opened)?;
                Ok(opened)
            }
        }
    }

    /// Refuses the target of a link if the target is one of dray's own files, because unfinished
    /// files of other users must not be read. The check ignores names of folders above the root.
    fn refuse_own(&self, fd: &OwnedFd) -> Result<()> {
        // Without /proc the path of the target is unknown. Report a missing system feature, because
        // the link is not at fault.
        let place = |fd| place_of(fd).ok_or(Errno::NOSYS);
        let (root, place) = (place(self.fd.as_fd())?, place(fd.as_fd())?);
        let behind = place.strip_prefix(&root).unwrap_or(&place);
        let is_own = |part: Component<'_>| is_own(part.as_os_str().as_bytes());
        match behind.components().any(is_own) {
            true => Err(Errno::LOOP),
            false => Ok(()),
        }
    }

    /// Opens the entry at `path` relative to `base`, or relative to the root if `base` is `None`.
    fn open_from(
        &self,
        mut base: Option<OwnedFd>,
        path: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd> {
        let mut rest = path;
        while rest.len() > PIECE_BYTES_MAX {
            // A name has at most 255 bytes, so this part of the path contains a slash.
            let cut = rest[..PIECE_BYTES_MAX]
                .iter()
                .rposition(|b| *b == b'/')
                .ok_or(Errno::NAMETOOLONG)?;
            let next = self.open_piece(self.base(&base), &rest[..cut], PASSAGE, resolve)?;
            base = Some(next);
            rest = &rest[cut + 1..];
        }
        let rest = if rest.is_empty() { b"." } else { rest };
        self.open_piece(self.base(&base), rest, flags, resolve)
    }

    fn base<'a>(&'a self, base: &'a Option<OwnedFd>) -> BorrowedFd<'a> {
        base.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd)
    }

    fn open_piece(
        &self,
        base: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd> {
        let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
        if self.has_openat2.load(Ordering::Relaxed) {
            let opened = rustix::io::retry_on_intr(|| {
                match rustix::fs::openat2(base, path, flags, Mode::empty(), resolve) {
                    // During a concurrent rename, the kernel cannot prove that the path stays below
                    // the root. The manual page of `openat2` advises a retry.
                    Err(Errno::AGAIN) if resolve.contains(ResolveFlags::BENEATH) => {
                        Err(Errno::INTR)
                    }
                    other => other,
                }
            });
            match opened {
                Err(Errno::NOSYS) => {}
                // EPERM may mean that a sandbox forbids `openat2`, or it may concern this file. In
                // the second case, `openat2` of the root itself works.
                Err(Errno::PERM) if !self.openat2_works() => {}
                other => return other,
            }
            self.has_openat2.store(false, Ordering::Relaxed);
        }
        if self.scope == LinkScope::Anywhere {
            return rustix::fs::openat(base, path, flags, Mode::empty());
        }
        walk(base, path, flags)
    }

    fn openat2_works(&self) -> bool {
        rustix::fs::openat2(
            &self.fd,
            ".",
            PASSAGE,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )
        .is_ok()
    }
}

/// Opens the entry at `path` below the folder `base`, and follows no link. Also works without
/// `openat2`.
///
/// # Errors
/// Errors of the system. `ELOOP` if a part of the path is a link, also with `O_PATH`.
pub fn open_beneath(base: BorrowedFd<'_>, path: &RelPath, flags: OFlags) -> Result<OwnedFd> {
    beneath_with(base, path, flags, true)
}

fn beneath_with(
    base: BorrowedFd<'_>,
    path: &RelPath,
    flags: OFlags,
    use_openat2: bool,
) -> Result<OwnedFd> {
    let base = rustix::io::fcntl_dupfd_cloexec(base, 0)?;
    let root = Root::new(base, LinkScope::Never, use_openat2);
    root.open(path.as_bytes(), flags | OFlags::CLOEXEC)
}

/// Returns the part of `path` after `top`; `None` if `path` is not below `top`.
fn beneath<'a>(top: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    match top {
        b"" => (!path.is_empty()).then_some(path),
        top => path.strip_prefix(top)?.strip_prefix(b"/"),
    }
}

/// Returns true if `name` is one of dray's own names.
fn is_own(name: &[u8]) -> bool {
    Name::new(name).is_ok_and(|name| name.is_reserved())
}

/// Opens each component of a path in turn and follows no links.
fn walk(base: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let mut names = path.split(|b| *b == b'/').peekable();
    let mut folder: Option<OwnedFd> = None;
    loop {
        let name = names.next().ok_or(Errno::INVAL)?;
        let at = folder.as_ref().map_or(base, AsFd::as_fd);
        let is_last = names.peek().is_none();
        let flags = if is_last { flags } else { PASSAGE };
        let opened = rustix::fs::openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|errno| name_link(at, name, errno))?;
        if is_last {
            // With `O_PATH`, `O_NOFOLLOW` opens a link itself.
            let may_be_link = flags.contains(OFlags::PATH) && !flags.contains(OFlags::NOFOLLOW);
            return match may_be_link && is_link(&opened)? {
                true => Err(Errno::LOOP),
                false => Ok(opened),
            };
        }
        folder = Some(opened);
    }
}

fn is_link(fd: &OwnedFd) -> Result<bool> {
    let mode = rustix::fs::fstat(fd)?.st_mode;
    Ok(FileType::from_raw_mode(mode) == FileType::Symlink)
}

/// Returns `ELOOP` for a link, as `openat2` does. An open with `O_DIRECTORY | O_NOFOLLOW` fails
/// with `ENOTDIR` for a link.
fn name_link(at: BorrowedFd<'_>, name: &[u8], errno: Errno) -> Errno {
    if errno != Errno::NOTDIR {
        return errno;
    }
    match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => Errno::LOOP,
        _ => errno,
    }
}

/// Creates the root and its parent folders with the mode given by the umask, and makes their names
/// durable.
pub(super) fn make_root(root: &Path) -> std::io::Result<()> {
    let root = std::path::absolute(root)?;
    let missing: Vec<&Path> = root.ancestors().take_while(|at| !at.exists()).collect();
    std::fs::create_dir_all(&root)?;
    for above in missing.iter().filter_map(|made| made.parent()) {
        // Ignore two errors: a parent folder without read permission cannot be opened, and some
        // file systems cannot sync a folder.
        if let Ok(folder) = std::fs::File::open(above) {
            match folder.sync_all() {
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// Splits a path into the path of its folder and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_refused_with_openat2_and_without() {
        let top = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(top.path().join("folder")).expect("a folder");
        std::fs::write(top.path().join("folder/file"), b"x").expect("a file");
        symlink("folder", top.path().join("to-folder")).expect("a link");
        symlink("file", top.path().join("folder/to-file")).expect("a link");
        let base = std::fs::File::open(top.path()).expect("the folder");
        for use_openat2 in [true, false] {
            let open = |path: &str, flags| {
                let path = RelPath::parse(path.as_bytes()).expect("a path");
                beneath_with(base.as_fd(), &path, flags, use_openat2).map(drop)
            };
            for flags in [OFlags::RDONLY, OFlags::PATH] {
                assert_eq!(open("folder/file", flags), Ok(()));
                assert_eq!(open("to-folder", flags), Err(Errno::LOOP));
                assert_eq!(open("to-folder/file", flags), Err(Errno::LOOP));
                assert_eq!(open("folder/to-file", flags), Err(Errno::LOOP));
                assert_eq!(open("folder/none", flags), Err(Errno::NOENT));
            }
        }
    }
}

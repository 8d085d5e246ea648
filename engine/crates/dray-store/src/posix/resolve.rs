//! From a path beneath the root to a file descriptor, without ever leaving the root.
//!
//! The kernel does it (`openat2` with `RESOLVE_BENEATH`), in pieces where a path is longer than it
//! takes. Where `openat2` is missing or forbidden (Linux before 5.6, some sandboxes) each component
//! is opened by itself with `O_NOFOLLOW`: slower, and no link is followed at all then.

use super::{LinkScope, place_of};
use dray_core::{Name, RelPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Component;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest path handed to the kernel at once: `PATH_MAX` (4096) with its final zero, less some air.
const PIECE_BYTES_MAX: usize = 4000;

/// How to open a folder on the way or at the end.
pub(super) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// A folder that one may pass through but not read.
const PASSAGE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Follow nothing, and stay beneath.
const STRAIGHT: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// An exported root.
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

    pub(super) const fn scope(&self) -> &LinkScope {
        &self.scope
    }

    /// Opens the folder at `path` (names joined by slashes, empty for the root), for reading if
    /// that is allowed, else as a passage only. Says which.
    pub(super) fn open_folder(&self, path: &[u8]) -> Result<(OwnedFd, bool)> {
        match self.open(path, FOLDER) {
            Ok(fd) => Ok((fd, true)),
            Err(Errno::ACCESS) => Ok((self.open(path, PASSAGE)?, false)),
            Err(errno) => Err(errno),
        }
    }

    /// Opens what stands at `path`, following links as far as this root allows.
    pub(super) fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        match &self.scope {
            LinkScope::Never => self.open_from(None, path, flags, STRAIGHT),
            LinkScope::Anywhere => self.open_from(None, path, flags, ResolveFlags::empty()),
            LinkScope::Beneath(tops) => {
                let within = |top| Some((top, beneath(RelPath::as_bytes(top), path)?));
                // What is read itself, and what lies elsewhere, is reached on its own path.
                let Some((top, rest)) = tops.iter().find_map(within) else {
                    return self.open_from(None, path, flags, STRAIGHT);
                };
                // Mostly no link leads there, and nothing has to be asked of where one has led.
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

    /// Refuses what a link led to when it lies among dray's own files: what others have left unfinished
    /// is nobody's to read. How the folders above the root are called is no matter of a link's.
    fn refuse_own(&self, fd: &OwnedFd) -> Result<()> {
        // Without /proc nobody can say where it lies: that is no link's fault.
        let place = |fd| place_of(fd).ok_or(Errno::NOSYS);
        let (root, place) = (place(self.fd.as_fd())?, place(fd.as_fd())?);
        let behind = place.strip_prefix(&root).unwrap_or(&place);
        let is_own = |part: Component<'_>| is_own(part.as_os_str().as_bytes());
        match behind.components().any(is_own) {
            true => Err(Errno::LOOP),
            false => Ok(()),
        }
    }

    /// Opens what stands at `path` beneath `base`, or beneath the root.
    fn open_from(
        &self,
        mut base: Option<OwnedFd>,
        path: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd> {
        let mut rest = path;
        while rest.len() > PIECE_BYTES_MAX {
            // A name has at most 255 bytes, so there is a slash.
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
                    // A rename somewhere made the kernel unsure that the path stays beneath; the
                    // kernel's manual says to ask again.
                    Err(Errno::AGAIN) if resolve.contains(ResolveFlags::BENEATH) => {
                        Err(Errno::INTR)
                    }
                    other => other,
                }
            });
            match opened {
                Err(Errno::NOSYS) => {}
                // A sandbox may forbid the call with EPERM; a file may be refused with it too. The
                // root itself tells which it is.
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

/// The rest of `path` where it lies beneath `top`.
fn beneath<'a>(top: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    match top {
        b"" => (!path.is_empty()).then_some(path),
        top => path.strip_prefix(top)?.strip_prefix(b"/"),
    }
}

/// Whether a name is dray's own.
fn is_own(name: &[u8]) -> bool {
    Name::new(name).is_ok_and(|name| name.is_reserved())
}

/// Opens component by component, following nothing.
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
            return Ok(opened);
        }
        folder = Some(opened);
    }
}

/// `O_DIRECTORY | O_NOFOLLOW` on a link says "not a directory"; the caller should hear "a link", as
/// from `openat2`.
fn name_link(at: BorrowedFd<'_>, name: &[u8], errno: Errno) -> Errno {
    if errno != Errno::NOTDIR {
        return errno;
    }
    match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => Errno::LOOP,
        _ => errno,
    }
}

/// Splits a path into its folder and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

//! Remembers for some time which servers have no ticket plug-in and which dray endpoints are
//! unreachable. Each copy is a separate process. Without this cache, each copy would ask the server
//! again, or wait for the endpoint again.
//!
//! The server's folder may be `/tmp`, in which any user can write. So the cache ignores a file of
//! another user, and it stores nothing in a folder in which other users can write.

use dray_core::{End, Error, ErrorKind, Result};
use dray_open::prepare;
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment variable with the runtime folder of the server. The XRootD server sets this variable
/// for the programs that it starts.
const ADMIN_FOLDER: &str = "XRDADMINPATH";

/// Name of the file in the runtime folder. Each line contains the time of a query, in seconds since
/// 1970, and the server.
const FILE: &str = "dray-deaf-servers";

/// Seconds after which a server is asked again, because the plug-in may have been installed. The
/// value is estimated, not measured.
const KEPT_SECONDS: u64 = 3600;

/// Prefix of the address of an endpoint in the file. No name of a server starts with this prefix.
const DRAY: &str = "dray://";

/// Seconds after which an unreachable endpoint is tried again. Each attempt may delay a copy by the
/// connection timeout of ten seconds. The value is estimated, not measured.
const AWAY_SECONDS: u64 = 300;

/// Maximum number of servers in the cache. The oldest entries are removed first. The value is
/// estimated, not measured.
const SERVERS_MAX: usize = 256;

/// Mode bits that permit the group or all other users to write.
const OTHERS_WRITE: u32 = 0o022;

/// Maximum size of the file in bytes: 256 bytes for each of 256 servers. Names of hosts are far
/// shorter.
const BYTES_MAX: u64 = 1 << 16;

/// The cache. If a read or write of the file fails, the only cost is another query.
pub(crate) struct NegativeCache(Option<PathBuf>);

impl NegativeCache {
    /// Returns the cache that all copies of this server share.
    pub(crate) fn of_this_server() -> Self {
        let folder = std::env::var_os(ADMIN_FOLDER).filter(|folder| !folder.is_empty());
        Self(folder.map(|folder| Path::new(&folder).join(FILE)))
    }

    /// Returns true if this server had no ticket plug-in when it was asked recently.
    pub(crate) fn holds(&self, server: &str) -> bool {
        self.read(now()).iter().any(|(_, known)| known == server)
    }

    /// Returns true if the endpoint at this address was unreachable recently.
    pub(crate) fn misses(&self, address: &str) -> bool {
        self.holds(&format!("{DRAY}{address}"))
    }

    /// Stores that the endpoint was unreachable.
    pub(crate) fn miss(&self, address: &str) {
        self.add(&format!("{DRAY}{address}"));
    }

    /// Stores that the server has no ticket plug-in. If two copies write concurrently, one of the
    /// entries may be lost.
    pub(crate) fn add(&self, server: &str) {
        let Some(path) = &self.0 else { return };
        let now = now();
        let mut known = self.read(now);
        known.retain(|(_, other)| other != server);
        known.push((now, server.to_owned()));
        let first = known.len().saturating_sub(SERVERS_MAX);
        let lines = known.iter().skip(first);
        let text: String = lines
            .map(|(at, server)| format!("{at} {server}\n"))
            .collect();
        // Ignore an error, because its only cost is another query.
        let _ = keep(path, &text);
    }

    /// Returns the servers in the cache at the time `now`, the oldest first.
    fn read(&self, now: u64) -> Vec<(u64, String)> {
        let text = self.0.as_deref().and_then(recall).unwrap_or_default();
        let known = text.lines().filter_map(|line| {
            let (at, server) = line.split_once(' ')?;
            Some((at.parse::<u64>().ok()?, server.to_owned()))
        });
        // Ignore entries from the future, which exist if the clock was set back.
        let is_young = |at: u64, kept| at <= now && now - at < kept;
        known
            .filter(|(at, name)| is_young(*at, kept_seconds(name)))
            .collect()
    }
}

fn kept_seconds(name: &str) -> u64 {
    match name.starts_with(DRAY) {
        true => AWAY_SECONDS,
        false => KEPT_SECONDS,
    }
}

/// Replaces the content of the file.
fn keep(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::Io,
            End::Here,
            "store that no endpoint was found at a server",
        )
        .cause(error.to_string())
    };
    if !is_ours_alone(path) {
        return Err(failed(std::io::ErrorKind::PermissionDenied.into()));
    }
    // Write a new file with an unpredictable name and rename it, so that no process reads an
    // incomplete file.
    let new = path.with_extension(prepare::new_transfer_id()?.to_string());
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&new);
    let mut file = opened.map_err(failed)?;
    let written = file.write_all(text.as_bytes());
    written
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(error)
        })
}

/// Returns the content of the file if this user owns the file.
fn recall(path: &Path) -> Option<String> {
    if !is_ours_alone(path) {
        return None;
    }
    let mut options = OpenOptions::new();
    // Do not follow a symbolic link. Do not wait if the file is a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    options.custom_flags(i32::try_from(flags.bits()).ok()?);
    let file: File = options.read(true).open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || !is_own(&found) {
        return None;
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns true if only this user and root can create or rename files in the folder of `path`.
fn is_ours_alone(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    folder.is_some_and(|folder| {
        (is_own(&folder) || folder.uid() == 0) && folder.mode() & OTHERS_WRITE == 0
    })
}

fn is_own(found: &Metadata) -> bool {
    found.uid() == nix::unistd::geteuid().as_raw()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{AWAY_SECONDS, KEPT_SECONDS, NegativeCache, SERVERS_MAX, now};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_server_is_remembered_for_a_while_and_no_more_than_so_many_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deaf");
        let deaf = NegativeCache(Some(path.clone()));
        assert!(!deaf.holds("a:1094"));
        deaf.add("a:1094");
        deaf.add("a:1094");
        assert!(deaf.holds("a:1094") && !deaf.holds("b:1094"));
        assert_eq!(fs::read_to_string(&path).expect("there").lines().count(), 1);
        let old = now() - KEPT_SECONDS;
        fs::write(&path, format!("{old} a:1\nx b:1\n{} c:1\n", now() + 60)).expect("writes");
        assert!(
            !["a:1", "b:1", "c:1"]
                .iter()
                .any(|server| deaf.holds(server))
        );
        for number in 0..=SERVERS_MAX {
            deaf.add(&format!("s{number}:1"));
        }
        assert!(!deaf.holds("s0:1") && deaf.holds("s1:1"));
        assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 1);
    }

    #[test]
    fn a_dray_that_is_away_is_tried_again_sooner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deaf");
        let deaf = NegativeCache(Some(path.clone()));
        deaf.miss("a:1");
        assert!(deaf.misses("a:1") && !deaf.misses("b:1") && !deaf.holds("a:1"));
        let old = now() - AWAY_SECONDS;
        fs::write(&path, format!("{old} dray://a:1\n{old} a:1\n")).expect("writes");
        assert!(!deaf.misses("a:1") && deaf.holds("a:1"));
    }

    #[test]
    fn entries_of_other_users_are_neither_read_nor_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("deaf"), folder.path().join("other"));
        let said = format!("{} a:1\n", now());
        let deaf = NegativeCache(Some(path.clone()));
        // A symbolic link. Following it would overwrite the target of the link.
        fs::write(&other, &said).expect("writes");
        symlink(&other, &path).expect("links");
        assert!(!deaf.holds("a:1"));
        deaf.add("b:1");
        assert!(deaf.holds("b:1") && !deaf.holds("a:1"));
        assert_eq!(fs::read_to_string(&other).expect("there"), said);
        let mode = fs::symlink_metadata(&path).expect("there").permissions();
        assert_eq!(mode.mode(), 0o100_600);
        // A pipe without a writer. Opening it would block.
        fs::remove_file(&path).expect("removes");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        );
        made.expect("a pipe");
        assert!(!deaf.holds("a:1"));
        // A folder in which other users can write.
        fs::write(&other, &said).expect("writes");
        fs::rename(&other, &path).expect("renames");
        assert!(deaf.holds("a:1"));
        for mode in [0o777, 0o1777, 0o770] {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("sets");
            deaf.add("c:1");
            assert!(!deaf.holds("a:1"), "{mode:o}");
        }
        assert_eq!(fs::read_to_string(&path).expect("there"), said);
    }

    #[test]
    fn without_a_place_for_it_nothing_is_remembered() {
        for deaf in [
            NegativeCache(None),
            NegativeCache(Some("/nowhere/at/all".into())),
        ] {
            deaf.add("a:1094");
            assert!(!deaf.holds("a:1094"));
        }
    }
}

//! Servers that do not understand the question for a dray beside them, and drays that cannot be reached.
//! They are remembered for a while, because each copy is a process of its own and would ask, or wait, anew.
//!
//! The server's folder may be `/tmp`, where anybody puts files: what is not this user's own is neither
//! read nor written, and where others may write nothing is kept.

use dray_core::{End, Error, ErrorKind, Result};
use dray_open::prepare;
use rustix::fs::OFlags;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The server's folder for what it keeps while it runs; it names it to its programs.
const ADMIN_FOLDER: &str = "XRDADMINPATH";

/// The file in it: a line is the second since 1970 in which a server was asked, and the server.
const FILE: &str = "dray-deaf-servers";

/// A server that gets the plug-in is asked again after so many seconds (guess, revisit).
const KEPT_SECONDS: u64 = 3600;

/// What stands before a dray's address in the file; no server is named so.
const DRAY: &str = "dray://";

/// A dray that was away is tried again after so many seconds (guess, revisit): each try may cost a copy the
/// ten seconds after which a connection is given up.
const AWAY_SECONDS: u64 = 300;

/// Servers that are remembered; the oldest are forgotten first (guess, revisit).
const SERVERS_MAX: usize = 256;

/// That the group or all others may write.
const OTHERS_WRITE: u32 = 0o022;

/// Longest file that is read: names of hosts are far shorter than 256 bytes.
const BYTES_MAX: u64 = 1 << 16;

/// See the module's head. What cannot be read or written is not remembered, which costs a question.
pub(crate) struct NegativeCache(Option<PathBuf>);

impl NegativeCache {
    /// Those that the copies of this server remember.
    pub(crate) fn of_this_server() -> Self {
        let folder = std::env::var_os(ADMIN_FOLDER).filter(|folder| !folder.is_empty());
        Self(folder.map(|folder| Path::new(&folder).join(FILE)))
    }

    /// Whether this server did not understand the question a short while ago.
    pub(crate) fn holds(&self, server: &str) -> bool {
        self.read(now()).iter().any(|(_, known)| known == server)
    }

    /// Whether the dray at this address could not be reached a short while ago.
    pub(crate) fn misses(&self, address: &str) -> bool {
        self.holds(&format!("{DRAY}{address}"))
    }

    /// Remembers that it could not.
    pub(crate) fn miss(&self, address: &str) {
        self.add(&format!("{DRAY}{address}"));
    }

    /// Remembers that it did not. Of two copies that do so at once one may be lost.
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
        // What cannot be kept costs a question.
        let _ = keep(path, &text);
    }

    /// Who is remembered at `now`, the oldest first.
    fn read(&self, now: u64) -> Vec<(u64, String)> {
        let text = self.0.as_deref().and_then(recall).unwrap_or_default();
        let known = text.lines().filter_map(|line| {
            let (at, server) = line.split_once(' ')?;
            Some((at.parse::<u64>().ok()?, server.to_owned()))
        });
        // Of a clock that was set back nothing is believed.
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

/// Gives the file this content.
fn keep(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Io, End::Here, "remember the server").cause(error.to_string())
    };
    if !is_ours_alone(path) {
        return Err(failed(std::io::ErrorKind::PermissionDenied.into()));
    }
    // Nobody reads half a file: it gets its name when it is whole. Until then nobody guesses its name.
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

/// The file's content, if it is one of ours.
fn recall(path: &Path) -> Option<String> {
    if !is_ours_alone(path) {
        return None;
    }
    let mut options = OpenOptions::new();
    // A link leads nowhere, and a pipe that nobody writes to is not waited for.
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

/// Whether nobody else makes or renames files beside this one.
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
    fn what_somebody_else_put_there_is_neither_read_nor_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("deaf"), folder.path().join("other"));
        let said = format!("{} a:1\n", now());
        let deaf = NegativeCache(Some(path.clone()));
        // A link, whose file would be taken, and emptied if it were written through.
        fs::write(&other, &said).expect("writes");
        symlink(&other, &path).expect("links");
        assert!(!deaf.holds("a:1"));
        deaf.add("b:1");
        assert!(deaf.holds("b:1") && !deaf.holds("a:1"));
        assert_eq!(fs::read_to_string(&other).expect("there"), said);
        let mode = fs::symlink_metadata(&path).expect("there").permissions();
        assert_eq!(mode.mode(), 0o100_600);
        // A pipe: nobody writes to it, and opening it would wait for somebody who does.
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
        // A folder that others may write to.
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

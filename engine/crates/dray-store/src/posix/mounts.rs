//! Finds the mount of a device in `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Folder at which the file system is mounted. `None` if only a folder of the file system is
    /// mounted there.
    pub(super) top: Option<PathBuf>,
    /// Type of the file system, for example `fuse.glusterfs`.
    pub(super) kind: String,
    /// Source of the mount, for example `server:/volume`.
    pub(super) source: String,
}

/// Returns the mount of the file system with the device number `device`. Prefers a mount of the
/// whole file system.
pub(super) fn of_device(device: u64) -> Option<Mount> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    find(&mounts, device)
}

fn find(mounts: &[u8], device: u64) -> Option<Mount> {
    let id = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let of_device = |line: &&[u8]| line.split(|byte| *byte == b' ').nth(2) == Some(id.as_bytes());
    let mounts = mounts.split(|byte| *byte == b'\n').filter(of_device);
    let mounts = mounts.filter_map(parse);
    mounts.max_by_key(|mount| mount.top.is_some())
}

/// Parses a line of mountinfo: `id parent major:minor root top options [tags] - kind source more`
/// (proc_pid_mountinfo(5)).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let (root, top) = (words.nth(3)?, words.next()?);
    words.find(|word| *word == b"-")?;
    let (kind, source) = (words.next()?, words.next()?);
    let text = |word| String::from_utf8_lossy(&unescape(word)).into_owned();
    Some(Mount {
        top: (root == b"/").then(|| OsString::from_vec(unescape(top)).into()),
        kind: text(kind),
        source: text(source),
    })
}

/// Replaces the octal escapes of spaces, tabs, line feeds and backslashes.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(escaped.unwrap_or(*first));
        rest = match escaped {
            Some(_) => &after[3..],
            None => after,
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Mount, find};

    const MOUNTS: &[u8] = b"27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
        73 27 0:40 /sub /bound rw - fuse.glusterfs n1:/vol rw,user_id=0\n\
        74 27 0:40 / /mnt/a\\040b rw,relatime - fuse.glusterfs n1:/vol rw,user_id=0\n\
        75 27 0:41 /only /part rw shared:7 master:1 - lustre 10.0.0.1@tcp:/scratch rw\nbroken";

    #[test]
    fn whole_file_systems_are_preferred() {
        let of = |minor| find(MOUNTS, rustix::fs::makedev(0, minor));
        let gluster = Mount {
            top: Some("/mnt/a b".into()),
            kind: "fuse.glusterfs".to_owned(),
            source: "n1:/vol".to_owned(),
        };
        assert_eq!(of(40), Some(gluster));
        let lustre = of(41).expect("found");
        assert_eq!((lustre.top, lustre.kind.as_str()), (None, "lustre"));
        assert_eq!(lustre.source, "10.0.0.1@tcp:/scratch");
        assert_eq!(of(42), None);
    }
}

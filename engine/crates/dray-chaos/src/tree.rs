//! Describes a tree by names, sizes and SHA-256. Independent of the stores of dray.

use dray_core::{End, Error, Result};
use ring::digest::{Context, SHA256};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Prefix of the names of dray's own files.
const OWN: &[u8] = b".dray-";
const BLOCK_BYTES: usize = 1 << 18;

/// Size and SHA-256 of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content {
    pub(crate) size_bytes: u64,
    /// Bytes outside of holes. dray does not send holes.
    pub(crate) data_bytes: u64,
    pub(crate) sha256: [u8; 32],
}

/// Files with the same bytes are equal, even if they have other holes.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        (self.size_bytes, self.sha256) == (other.size_bytes, other.sha256)
    }
}

impl Eq for Content {}

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File(Content),
    Link(PathBuf),
    Folder,
    Other,
}

/// The entries below a folder, by relative path.
pub(crate) type Tree = BTreeMap<PathBuf, Entry>;

/// Describes all entries below `top`, except dray's own. A missing folder has no entries.
///
/// # Errors
/// If an entry cannot be read.
pub(crate) fn describe(top: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    walk(top, &mut |found| {
        if found.is_own {
            return Ok(());
        }
        let path = top.join(&found.path);
        let entry = match found.state.file_type() {
            kind if kind.is_symlink() => Entry::Link(std::fs::read_link(&path)?),
            kind if kind.is_dir() => Entry::Folder,
            kind if kind.is_file() => Entry::File(hash(&File::open(&path)?)?),
            _ => Entry::Other,
        };
        tree.insert(found.path, entry);
        Ok(())
    })
    .map_err(|(path, error)| {
        Error::new(
            error.kind().into(),
            End::Here,
            format!("read {}", path.display()),
        )
        .cause(error.to_string())
        .remedy("run the command as a user who can read the whole tree")
    })?;
    Ok(tree)
}

/// Returns the size of the largest file of a tree in bytes.
pub(crate) fn largest_file(tree: &Tree) -> u64 {
    let sizes = tree.values().map(|entry| match entry {
        Entry::File(content) => content.size_bytes,
        _ => 0,
    });
    sizes.max().unwrap_or(0)
}

/// Lists the files and folders of dray below `top`, by relative path.
pub(crate) fn leftovers(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // A folder that cannot be read was reported by `describe`.
    let _ = walk(top, &mut |entry| {
        if entry.is_own {
            found.push(entry.path);
        }
        Ok(())
    });
    found.sort();
    found
}

/// An entry that [`walk`] has found.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) state: Metadata,
    /// True if the entry is a file or folder of dray.
    pub(crate) is_own: bool,
}

/// Calls `each` for every entry below `top`. Entries that disappear during the walk are left out.
pub(crate) fn walk(
    top: &Path,
    each: &mut dyn FnMut(Found) -> std::io::Result<()>,
) -> std::result::Result<(), (PathBuf, std::io::Error)> {
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        let entries = match std::fs::read_dir(top.join(&folder)) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err((folder, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| (folder.clone(), error))?;
            let path = folder.join(entry.file_name());
            let state = match entry.metadata() {
                Ok(state) => state,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err((path, error)),
            };
            let is_own = entry.file_name().as_bytes().starts_with(OWN);
            if state.is_dir() && !is_own {
                waiting.push(path.clone());
            }
            let found = Found {
                path: path.clone(),
                state,
                is_own,
            };
            match each(found) {
                Err(error) if !is_gone(&error) => return Err((path, error)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Reads a file to its end.
pub(crate) fn hash(mut file: &File) -> std::io::Result<Content> {
    let mut context = Context::new(&SHA256);
    let mut block = vec![0; BLOCK_BYTES];
    let mut size_bytes = 0;
    loop {
        let count = file.read(&mut block)?;
        if count == 0 {
            break;
        }
        context.update(&block[..count]);
        size_bytes += count as u64;
    }
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(context.finish().as_ref());
    Ok(Content {
        size_bytes,
        data_bytes: data_bytes(file, size_bytes),
        sha256,
    })
}

/// Returns the bytes of a file outside of holes, or its size if the system cannot list holes.
fn data_bytes(file: &File, size_bytes: u64) -> u64 {
    let (mut at, mut found) = (0, 0);
    while at < size_bytes {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // The rest of the file is a hole.
            Err(Errno::NXIO) => break,
            Err(_) => return size_bytes,
        };
        let Ok(hole) = seek(file, SeekFrom::Hole(data)) else {
            return size_bytes;
        };
        found += hole.saturating_sub(data);
        at = hole.max(at + 1);
    }
    found.min(size_bytes)
}

/// The properties of a file that change whenever its content changes.
pub(crate) type Version = (u64, u64, u64, i64, i64, i64, i64);

/// Returns the version of a file.
pub(crate) fn version(state: &Metadata) -> Version {
    (
        state.dev(),
        state.ino(),
        state.len(),
        state.mtime(),
        state.mtime_nsec(),
        state.ctime(),
        state.ctime_nsec(),
    )
}

/// Returns the versions of all files below `top`, by relative path.
pub(crate) fn versions(top: &Path) -> BTreeMap<PathBuf, Version> {
    let mut versions = BTreeMap::new();
    // An entry that cannot be read has no version, which differs from an earlier one.
    let _ = walk(top, &mut |found| {
        if found.state.is_file() {
            versions.insert(found.path, version(&found.state));
        }
        Ok(())
    });
    versions
}

/// Returns the sum of the sizes of all files.
pub(crate) fn size_bytes(tree: &Tree) -> u64 {
    let sizes = tree.values().map(|entry| match entry {
        Entry::File(content) => content.size_bytes,
        Entry::Link(_) | Entry::Folder | Entry::Other => 0,
    });
    sizes.sum()
}

/// Maximum number of differences that are listed.
const DIFFERENCES_MAX: usize = 20;

/// Returns the differences between two trees, in words. `before` is the destination before the run:
/// its other entries must stay as they were.
pub(crate) fn differences(source: &Tree, destination: &Tree, before: &Tree) -> Vec<String> {
    let wrong = source.iter().filter_map(|(path, wanted)| {
        let path_words = path.display();
        match destination.get(path) {
            None => Some(format!("{path_words} is missing")),
            Some(found) if found == wanted => None,
            Some(Entry::File(found)) => match wanted {
                Entry::File(wanted) if found.size_bytes != wanted.size_bytes => Some(format!(
                    "{path_words} has {} bytes instead of {}",
                    found.size_bytes, wanted.size_bytes
                )),
                _ => Some(format!("{path_words} has other content")),
            },
            Some(_) => Some(format!("{path_words} has another type or target")),
        }
    });
    let extra = destination.keys().filter_map(|path| {
        let is_known = source.contains_key(path) || before.contains_key(path);
        (!is_known).then(|| format!("{} is not in the source", path.display()))
    });
    let others = before
        .iter()
        .filter(|(path, _)| !source.contains_key(*path));
    let lost = others
        .filter(|(path, entry)| destination.get(*path) != Some(*entry))
        .map(|(path, _)| format!("{} is not as it was before the run", path.display()));
    wrong
        .chain(extra)
        .chain(lost)
        .take(DIFFERENCES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{describe, differences, hash, leftovers, size_bytes};
    use std::path::{Path, PathBuf};

    fn write(top: &Path, name: &str, bytes: &[u8]) {
        let path = top.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, bytes).expect("written");
    }

    #[test]
    fn holes_are_no_data_but_files_with_the_same_bytes_are_equal() {
        let top = tempfile::tempdir().expect("a folder");
        let block = vec![7; 1 << 20];
        let zeros = vec![0; 1 << 20];
        let path = |name: &str| top.path().join(name);
        std::fs::write(path("whole"), [&*block, &*zeros, &*zeros].concat()).expect("written");
        std::fs::write(path("holes"), &block).expect("written");
        let file = std::fs::File::options().write(true).open(path("holes"));
        file.expect("open").set_len(3 << 20).expect("longer");
        let read =
            |name: &str| hash(&std::fs::File::open(path(name)).expect("open")).expect("read");
        assert_eq!(
            (read("whole").data_bytes, read("holes").data_bytes),
            (3 << 20, 1 << 20)
        );
        assert_eq!(read("whole"), read("holes"));
    }

    #[test]
    fn each_difference_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        for top in [&one, &other] {
            write(top, "a/same", b"same");
            write(top, "flipped", if *top == one { b"ab" } else { b"ac" });
            write(top, "short", if *top == one { b"abc" } else { b"ab" });
        }
        write(&one, "gone", b"1");
        write(&other, "extra", b"1");
        write(&other, "old", b"1");
        write(&other, "removed", b"1");
        write(&other, "a/.dray-x.part", b"1");
        let (source, mut before) = (
            describe(&one).expect("read"),
            describe(&other).expect("read"),
        );
        std::fs::remove_file(other.join("removed")).expect("removed");
        before.retain(|path, _| path == Path::new("old") || path == Path::new("removed"));
        let found = differences(&source, &describe(&other).expect("read"), &before);
        assert_eq!(
            found,
            [
                "flipped has other content",
                "gone is missing",
                "short has 2 bytes instead of 3",
                "extra is not in the source",
                "removed is not as it was before the run",
            ]
        );
        assert_eq!(leftovers(&other), [PathBuf::from("a/.dray-x.part")]);
        assert_eq!(size_bytes(&source), 4 + 2 + 3 + 1);
    }
}

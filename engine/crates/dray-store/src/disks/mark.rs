//! Marks of disks. The mark is a small text file in the folder of each disk.
//!
//! The marks show if a disk is missing or belongs to another store, for example if a file system
//! was not mounted after a restart of the host. The mark also contains the number of the disk. So
//! the first disk, which has the object logs, stays the same in whatever order the folders are
//! configured.

use super::Disk;
use crate::store::Store;
use crate::types::{ControlMode, ListOptions};
use dray_core::{End, Error, ErrorKind, Metadata, RelPath, Result};
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// Name of the mark.
pub const MARK_NAME: &[u8] = b".dray-disk";

/// First line of a mark.
const HEADING: &str = "dray-disk 1";

/// Maximum size in bytes of a mark. The rest of a longer file is not read.
const MARK_BYTES_MAX: usize = 256;

/// Folder that the tools of ext4 create in each new file system.
const LOST_AND_FOUND: &[u8] = b"lost+found";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Random number that is the same on all disks of a store.
    set: u64,
    /// Number of the disk, from 0.
    number: usize,
    /// Number of disks when the mark was written.
    of: usize,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { set, number, of } = self;
        writeln!(f, "{HEADING}\nset {set:016x}\nnumber {number}\nof {of}")
    }
}

impl Mark {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != HEADING {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let set = u64::from_str_radix(value("set")?, 16).ok()?;
        let number = value("number")?.parse().ok()?;
        let of = value("of")?.parse().ok()?;
        let is_good = number < of && of <= super::DISKS_MAX && lines.next().is_none();
        is_good.then_some(Self { set, number, of })
    }
}

/// The disks of a store with their marks.
pub(super) struct Marks(Vec<(Disk, Option<Mark>)>);

impl Marks {
    pub(super) fn read(disks: Vec<Disk>) -> Result<Self> {
        let with_mark = |disk: Disk| Ok((read(&disk)?, disk));
        let read: Result<Vec<_>> = disks.into_iter().map(with_mark).collect();
        Ok(Self(
            read?.into_iter().map(|(mark, disk)| (disk, mark)).collect(),
        ))
    }

    /// Checks that all disks of the store are there. Returns the disks by number. Marks new disks
    /// if `may_mark` is true.
    pub(super) fn check(self, end: End, may_mark: bool) -> Result<Vec<Disk>> {
        if !may_mark {
            return self.in_order(end, false);
        }
        let first = &self.0[0].0.store;
        // Another process may mark the disks at the same time.
        let lock = first.lock_folder(&RelPath::root())?;
        let again = Self::read(self.0.into_iter().map(|(disk, _)| disk).collect())?;
        let disks = again.in_order(end, true);
        drop(lock);
        disks
    }

    fn in_order(mut self, end: End, may_mark: bool) -> Result<Vec<Disk>> {
        let known: Vec<Mark> = self.0.iter().filter_map(|(_, mark)| *mark).collect();
        self.refuse_unmounted(end)?;
        let Some(first) = known.first() else {
            if may_mark {
                self.mark_all(end)?;
            }
            return Ok(self.0.into_iter().map(|(disk, _)| disk).collect());
        };
        let of = known.iter().map(|mark| mark.of).max().unwrap_or(0);
        self.refuse_strange(first.set, end)?;
        self.refuse_missing(of, end)?;
        self.0
            .sort_by_key(|(_, mark)| mark.map_or(usize::MAX, |mark| mark.number));
        if self.0.len() > known.len() {
            self.refuse_filled(end)?;
        }
        let has_changed = self
            .0
            .iter()
            .any(|(_, mark)| mark.is_none_or(|mark| mark.of != self.0.len()));
        if may_mark && has_changed {
            self.grow(first.set, end)?;
        }
        Ok(self.0.into_iter().map(|(disk, _)| disk).collect())
    }

    /// Refuses a folder that has no mark and is on the file system of `/`, if other folders are on
    /// other file systems. The disk of this folder is then probably not mounted.
    fn refuse_unmounted(&self, end: End) -> Result<()> {
        let Ok(system) = rustix::fs::stat("/") else {
            return Ok(());
        };
        let is_on_system = |disk: &Disk| disk.device == system.st_dev;
        let unmarked = self.0.iter().filter(|(_, mark)| mark.is_none());
        let mut unmounted = unmarked.filter(|(disk, _)| is_on_system(disk));
        let is_all = self.0.iter().all(|(disk, _)| is_on_system(disk));
        match unmounted.next() {
            Some((disk, _)) if !is_all => Err(refused(ErrorKind::NotFound, end)
                .cause(format!(
                    "{} is on the root file system (/) of this host, but other disks are not",
                    disk.name
                ))
                .remedy("mount the disk, and try again")),
            _ => Ok(()),
        }
    }

    /// Refuses a disk of another store, and two disks with the same number.
    fn refuse_strange(&self, set: u64, end: End) -> Result<()> {
        let mut names: Vec<Option<&str>> = vec![None; super::DISKS_MAX];
        for (disk, mark) in &self.0 {
            let Some(mark) = mark else { continue };
            if mark.set != set {
                return Err(refused(ErrorKind::InvalidRequest, end)
                    .cause(format!("{} belongs to another set of disks", disk.name))
                    .remedy("give only folders of one set of disks"));
            }
            if let Some(other) = names[mark.number].replace(&disk.name) {
                return Err(refused(ErrorKind::InvalidRequest, end)
                    .cause(format!(
                        "the files .dray-disk of {other} and {} have the same disk \
                        number",
                        disk.name
                    ))
                    .remedy(
                        "if one of the two folders is a copy of the other, remove the file \
                        .dray-disk from the copy",
                    ));
            }
        }
        Ok(())
    }

    fn refuse_missing(&self, of: usize, end: End) -> Result<()> {
        let is_there = |number| {
            self.0
                .iter()
                .any(|(_, mark)| has_number(mark.as_ref(), number))
        };
        let Some(number) = (0..of).find(|number| !is_there(*number)) else {
            return Ok(());
        };
        let unmarked = self.0.iter().find(|(_, mark)| mark.is_none());
        let cause = match unmarked {
            Some((disk, _)) => format!(
                "the disk with number {number} of {of} is missing, and {} has no file .dray-disk",
                disk.name
            ),
            None => format!("the disk with number {number} of {of} is not in the list of folders"),
        };
        Err(refused(ErrorKind::NotFound, end).cause(cause).remedy(
            "mount the disk; if the disk is lost, remove the file .dray-disk from the folders of \
                all disks",
        ))
    }

    /// Refuses a new disk that contains files, because these files would appear in the tree of the
    /// store.
    fn refuse_filled(&self, end: End) -> Result<()> {
        for (disk, mark) in &self.0 {
            if mark.is_none() && !is_empty(disk)? {
                return Err(refused(ErrorKind::InvalidRequest, end)
                    .cause(format!(
                        "{} has no file .dray-disk, so dray expects a new, empty disk; but \
                        the folder is not empty",
                        disk.name
                    ))
                    .remedy("empty the folder, or remove it from the list of folders"));
            }
        }
        Ok(())
    }

    /// Marks all disks of a new store. If a disk cannot be marked, removes the other marks.
    fn mark_all(&self, end: End) -> Result<()> {
        let set = RandomState::new().hash_one(std::process::id());
        let marked = self.write(set, |_| true);
        marked.map_err(|error| {
            for (disk, _) in &self.0 {
                // Ignore the error, because the first error is more useful.
                let _ = mark_path().and_then(|path| disk.store.remove_control(&path));
            }
            Error { end, ..error }
        })
    }

    /// Marks new disks, and then writes the new number of disks to the other marks.
    fn grow(&self, set: u64, end: End) -> Result<()> {
        let written = self.write(set, |mark| mark.is_none());
        let written = written.and_then(|()| self.write(set, Option::is_some));
        written.map_err(|error| Error { end, ..error })
    }

    fn write(&self, set: u64, is_wanted: impl Fn(&Option<Mark>) -> bool) -> Result<()> {
        let of = self.0.len();
        for (number, (disk, mark)) in self.0.iter().enumerate() {
            if is_wanted(mark) {
                write(disk, Mark { set, number, of })?;
            }
        }
        Ok(())
    }
}

fn has_number(mark: Option<&Mark>, number: usize) -> bool {
    mark.is_some_and(|mark| mark.number == number)
}

fn refused(kind: ErrorKind, end: End) -> Error {
    Error::new(kind, end, "open the disks")
}

fn mark_path() -> Result<RelPath> {
    RelPath::parse(MARK_NAME)
}

fn read(disk: &Disk) -> Result<Option<Mark>> {
    let failed = |error: Error| {
        let cause = format!("{}: {}", disk.name, error.cause);
        error.cause(cause)
    };
    let file = match disk
        .store
        .open_control(&mark_path()?, ControlMode::ReadOnly)
    {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut buffer = [0; MARK_BYTES_MAX];
    let mut length = 0;
    while length < buffer.len() {
        match file
            .read_at(length as u64, &mut buffer[length..])
            .map_err(failed)?
        {
            0 => break,
            count => length += count,
        }
    }
    let text = std::str::from_utf8(&buffer[..length]).ok();
    let mark = text.and_then(Mark::parse);
    mark.map(Some).ok_or_else(|| {
        refused(ErrorKind::InvalidRequest, End::Here)
            .cause(format!("{}: the file .dray-disk is damaged", disk.name))
            .remedy(
                "remove the file .dray-disk from the folders of all disks, and never write to \
                this file",
            )
    })
}

fn write(disk: &Disk, mark: Mark) -> Result<()> {
    let path = mark_path()?;
    let written = disk
        .store
        .open_control(&path, ControlMode::Create)
        .and_then(|file| {
            file.replace(mark.to_string().as_bytes())?;
            // Every user who may read the files may also read the mark.
            let readable = Metadata {
                mode: 0o644,
                ..Metadata::default()
            };
            disk.store.set_file(&path, &readable)
        });
    written.map(drop).map_err(|error| {
        let cause = format!("{}: {}", disk.name, error.cause);
        let operation = format!("write the file {}", String::from_utf8_lossy(MARK_NAME));
        Error {
            operation,
            ..error.cause(cause)
        }
    })
}

fn is_empty(disk: &Disk) -> Result<bool> {
    let options = ListOptions {
        recursive: false,
        contents: true,
        ..ListOptions::default()
    };
    for item in disk.store.list(&RelPath::root(), &options)? {
        // A folder is an error of a listing that is not recursive.
        let name = match &item {
            Ok(listed) => Some(listed.name.clone()),
            Err(error) => error.file.as_ref().and_then(RelPath::name),
        };
        if name.is_none_or(|name| name.as_bytes() != LOST_AND_FOUND) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::Mark;

    #[test]
    fn marks_are_read_as_written() {
        let mark = Mark {
            set: 0x1234,
            number: 2,
            of: 4,
        };
        let text = mark.to_string();
        assert_eq!(text, "dray-disk 1\nset 0000000000001234\nnumber 2\nof 4\n");
        assert_eq!(Mark::parse(&text), Some(mark));
        for damaged in [
            "",
            "dray-disk 2\n",
            &text[..30],
            &text.replace("of 4", "of 2"),
        ] {
            assert_eq!(Mark::parse(damaged), None, "{damaged:?}");
        }
        assert_eq!(Mark::parse(&(text + "more\n")), None);
    }
}

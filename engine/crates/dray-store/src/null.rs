//! A store without storage. As a source it generates files, as a sink it discards all bytes. With a
//! null store at one end, a measurement excludes the storage of that end.

use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store, unsupported};
use crate::targets::{TargetMap, Targets};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileState, FreeSpace, ListOptions, Listed, MadeDir,
    PartialId, PartialRequest, Publish, ReadPurpose, ReadState, SyncItem, Target,
};
use dray_core::path::PATH_LENGTH_MAX;
use dray_core::{
    ByteRange, End, EntryKind, Error, ErrorKind, Layout, Metadata, ModifiedTime, Name, RelPath,
    Result, Sums, TargetId,
};
use std::sync::Arc;

/// The generated tree of a null source. The folders are named `d0`, `d1` and so on, and each
/// contains the files `f0`, `f1` and so on. If the number of folders is zero, the files are in the
/// root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NullTree {
    /// Number of folders in the root; 0 puts the files into the root.
    pub folders: u64,
    /// Number of files in each folder.
    pub files_per_folder: u64,
    /// Size of each file in bytes.
    pub file_bytes: u64,
    /// Content of the files: zeros if `None`; otherwise incompressible bytes that depend on this
    /// seed, the file and the offset.
    pub pattern: Option<u64>,
}

/// A store that generates files, or discards all bytes. The module documentation describes it.
#[derive(Debug, Clone)]
pub struct NullStore {
    end: End,
    tree: NullTree,
    targets: Arc<Targets>,
}

/// Modification time of all generated files and folders.
const TIME: ModifiedTime = ModifiedTime {
    seconds: 0,
    nanoseconds: 0,
};

const fn metadata(mode: u32) -> Metadata {
    Metadata {
        mode,
        modified: TIME,
        xattrs: Vec::new(),
    }
}

impl NullStore {
    /// Creates a store. At the source end it generates `tree`; at the sink end it discards all
    /// bytes.
    #[must_use]
    pub fn new(end: End, tree: NullTree) -> Self {
        Self {
            end,
            tree,
            targets: Arc::new(Targets::new(TargetMap::new([(
                RelPath::root(),
                "null".to_owned(),
            )]))),
        }
    }

    /// Returns the number of the folder (if the tree has folders) and the number of the file at
    /// `path`.
    fn numbers(&self, path: &RelPath) -> Option<(Option<u64>, Option<u64>)> {
        let mut names = path.components();
        let (first, second) = (names.next(), names.next());
        if names.next().is_some() {
            return None;
        }
        let number = |name: Option<Name>, letter: u8, count: u64| match name {
            None => Some(None),
            Some(name) => {
                let digits = name.as_bytes().strip_prefix(&[letter])?;
                let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
                (number < count).then_some(Some(number))
            }
        };
        let files = self.tree.files_per_folder;
        if self.tree.folders == 0 {
            return second
                .is_none()
                .then_some((None, number(first, b'f', files)?));
        }
        let folder = number(first, b'd', self.tree.folders)?;
        Some((folder, number(second, b'f', files)?))
    }

    fn not_found(&self, operation: &str, path: &RelPath) -> Error {
        Error::new(ErrorKind::NotFound, self.end, operation)
            .file(path)
            .cause("the null end has no such file or folder")
    }
}

impl Store for NullStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_write: true,
            atomic_rename: true,
            publish_if_absent: true,
            publish_replace: true,
            time_precision_nanoseconds: 1,
            symlinks: true,
            path_bytes_max: PATH_LENGTH_MAX,
            keeps_nothing: true,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.all()
    }

    fn layout(&self, _path: &RelPath) -> Result<Layout> {
        Ok(Layout::Single(TargetId(0)))
    }

    fn free_space(&self, _path: &RelPath) -> Result<FreeSpace> {
        Ok(FreeSpace {
            free_bytes: u64::MAX,
            total_bytes: u64::MAX,
        })
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let mut tree = self.tree;
        let mut file = None;
        match self.numbers(top) {
            _ if top.is_root() => {}
            Some((None, Some(number))) => {
                // List only the requested file: start at its number, and end after it.
                (tree.files_per_folder, file) = (number + 1, Some(number));
            }
            Some((_, Some(_))) | Some((Some(_), None)) => {
                let cause = "a null end can list only all its files, or a single file";
                return Err(unsupported(self.end, "list", top, cause));
            }
            _ => return Err(self.not_found("list", top)),
        }
        if options.own {
            // No generated file has one of dray's own names, so list no files.
            tree.files_per_folder = 0;
        }
        Ok(Box::new(NullLister {
            tree,
            recursive: options.recursive,
            folder: 0,
            file,
            end: self.end,
        }))
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        let Some((folder, Some(file))) = self.numbers(path) else {
            return Err(self.not_found("open the file", path));
        };
        let index = folder.unwrap_or(0) * self.tree.files_per_folder + file;
        Ok(Box::new(NullFile {
            bytes: self.tree.file_bytes,
            seed: self.tree.pattern.map(|seed| mix(seed ^ mix(index))),
        }))
    }

    fn stat(&self, _path: &RelPath) -> Result<Option<FileState>> {
        Ok(None)
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        Err(self.not_found("read the checksums of the file", path))
    }

    fn make_dir(&self, _path: &RelPath) -> Result<MadeDir> {
        Ok(MadeDir::Created)
    }

    fn set_directory(&self, _path: &RelPath, _metadata: &Metadata) -> Result<()> {
        Ok(())
    }

    fn make_symlink(
        &self,
        _path: &RelPath,
        _partial: &Name,
        _text: &[u8],
        _metadata: &Metadata,
        _how: Publish,
    ) -> Result<()> {
        Ok(())
    }

    fn begin(
        &self,
        path: &RelPath,
        _size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        match request.reuse {
            None => Ok(Box::new(Swallow)),
            Some(_) => Err(self.not_found("continue the partial file", path)),
        }
    }

    fn write_small(
        &self,
        _path: &RelPath,
        _partial: &Name,
        _bytes: &[u8],
        _holes: &[ByteRange],
        _attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        Ok(Swallow.id())
    }

    fn publish_small(
        &self,
        _path: &RelPath,
        _partial: &Name,
        _id: PartialId,
        _how: Publish,
    ) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _path: &RelPath, _partial: &Name, _only: Option<PartialId>) -> Result<()> {
        Ok(())
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        Ok(items.iter().map(|_| Ok(())).collect())
    }

    fn remove(&self, _path: &RelPath) -> Result<()> {
        Ok(())
    }

    fn open_control(&self, path: &RelPath, _mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        let cause = "a null end stores no data";
        Err(unsupported(self.end, "open the control file", path, cause))
    }

    fn remove_control(&self, _path: &RelPath) -> Result<()> {
        Ok(())
    }

    fn list_control(&self, _folder: &RelPath) -> Result<Vec<Name>> {
        Ok(Vec::new())
    }
}

struct NullLister {
    tree: NullTree,
    recursive: bool,
    folder: u64,
    /// Number of the next file in the current folder; `None` between folders.
    file: Option<u64>,
    end: End,
}

impl NullLister {
    fn item(
        &self,
        depth: usize,
        letter: char,
        number: u64,
        kind: EntryKind,
        metadata: Metadata,
    ) -> Result<Listed> {
        Ok(Listed {
            depth,
            name: Name::new(format!("{letter}{number}").as_bytes())?,
            kind,
            metadata,
            layout: Layout::Single(TargetId(0)),
            identity: Vec::new(),
        })
    }

    fn file(&self, depth: usize, number: u64) -> Result<Listed> {
        let kind = EntryKind::File {
            size: self.tree.file_bytes,
            sparse: false,
        };
        self.item(depth, 'f', number, kind, metadata(0o644))
    }
}

impl Iterator for NullLister {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.tree.folders == 0 {
            let number = self.file.unwrap_or(0);
            self.file = Some(number + 1);
            return (number < self.tree.files_per_folder).then(|| self.file(0, number));
        }
        if self.folder == self.tree.folders {
            return None;
        }
        let folder = self.folder;
        match self.file {
            None if !self.recursive => {
                self.folder += 1;
                Some(Err(Error::new(ErrorKind::IsADirectory, self.end, "copy")
                    .remedy("ask for a recursive copy")))
            }
            None => {
                self.file = Some(0);
                Some(self.item(0, 'd', folder, EntryKind::Directory, metadata(0o755)))
            }
            Some(number) if number < self.tree.files_per_folder => {
                self.file = Some(number + 1);
                Some(self.file(1, number))
            }
            Some(_) => {
                self.file = None;
                self.folder += 1;
                Some(self.item(0, 'd', folder, EntryKind::DirectoryEnd, metadata(0o755)))
            }
        }
    }
}

impl Lister for NullLister {
    fn skip_folder(&mut self) {
        // The lister has just returned the start of this folder, and none of its files yet.
        if self.tree.folders > 0 && self.file == Some(0) {
            self.file = None;
            self.folder += 1;
        }
    }
}

struct NullFile {
    bytes: u64,
    seed: Option<u64>,
}

impl ReadHandle for NullFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = self.bytes.saturating_sub(offset);
        let count = usize::try_from(rest)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = &mut buffer[..count];
        match self.seed {
            None => buffer.fill(0),
            Some(seed) => fill(seed, offset, buffer),
        }
        Ok(count)
    }

    fn state(&self) -> Result<ReadState> {
        Ok(ReadState {
            size: self.bytes,
            modified: TIME,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let rest = ByteRange::between(offset, self.bytes);
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}

/// Fills `buffer` with bytes that depend only on the seed and the offset. So the file has the same
/// content however it is cut into objects.
fn fill(seed: u64, offset: u64, buffer: &mut [u8]) {
    let skip = (offset % 8) as usize;
    let first = buffer.len().min((8 - skip) % 8);
    let (head, rest) = buffer.split_at_mut(first);
    let mut word = offset / 8;
    if !head.is_empty() {
        head.copy_from_slice(&mix(seed ^ word).to_le_bytes()[skip..skip + first]);
        word += 1;
    }
    // Generate whole words in a separate, fast loop, because a null source must not be the
    // bottleneck of a measurement.
    let mut words = rest.chunks_exact_mut(8);
    for bytes in &mut words {
        bytes.copy_from_slice(&mix(seed ^ word).to_le_bytes());
        word += 1;
    }
    let tail = words.into_remainder();
    let bytes = mix(seed ^ word).to_le_bytes();
    tail.copy_from_slice(&bytes[..tail.len()]);
}

/// Output function of the random number generator splitmix64 (Steele, Lea and Flood 2014).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A partial file that discards all writes.
struct Swallow;

impl Partial for Swallow {
    fn id(&self) -> PartialId {
        PartialId {
            inode: 0,
            device: 0,
            born: 0,
        }
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn punch_hole(&self, _range: ByteRange) -> Result<()> {
        Ok(())
    }

    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn set_len(&self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn publish(&self, _how: Publish, _attributes: &Attributes<'_>) -> Result<()> {
        Ok(())
    }

    fn abort(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{NullStore, NullTree};
    use crate::{ListOptions, ReadExt, ReadPurpose, Store};
    use dray_core::{End, EntryKind, RelPath};

    #[test]
    fn the_stated_tree_is_listed_and_read_the_same_however_it_is_cut() {
        let tree = NullTree {
            folders: 2,
            files_per_folder: 3,
            file_bytes: 1000,
            pattern: Some(7),
        };
        let store = NullStore::new(End::Source, tree);
        let options = ListOptions::default();
        let listed = store.list(&RelPath::root(), &options).expect("lists");
        let kinds: Vec<_> = listed.map(|item| item.expect("good").kind).collect();
        assert_eq!(kinds.len(), 2 * (3 + 2));
        assert_eq!(kinds.last(), Some(&EntryKind::DirectoryEnd));

        let path = RelPath::parse(b"d1/f2").expect("good");
        let file = store
            .open_read(&path, ReadPurpose::Transfer)
            .expect("opens");
        let mut whole = vec![0; 2000];
        assert_eq!(file.read_full_at(0, &mut whole).expect("reads"), 1000);
        let mut part = vec![0; 77];
        file.read_full_at(333, &mut part).expect("reads");
        assert_eq!(part, whole[333..410]);
        for (offset, length) in [(0, 3), (5, 2), (5, 3), (8, 8), (15, 1), (7, 18), (16, 0)] {
            let mut part = vec![0; length];
            let offset_bytes = offset as u64;
            file.read_full_at(offset_bytes, &mut part).expect("reads");
            assert_eq!(part, whole[offset..offset + length], "{offset} {length}");
        }
        let other = RelPath::parse(b"d1/f3").expect("good");
        assert!(store.open_read(&other, ReadPurpose::Transfer).is_err());
    }
}

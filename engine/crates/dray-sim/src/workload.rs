//! Random workloads: a tree and a configuration that follow from a seed.

use dray_core::options::{Durability, Options, Order, Overwrite};
use dray_core::{ByteRange, Error, LogForm, LogMechanism, LogMethod, Result};
use dray_core::{
    Entry, EntryKind, Extent, FileIndex, Layout, Metadata, ModifiedTime, Name, RangeSet, RelPath,
    TargetId,
};
use dray_sched::rng::Rng;
use dray_session::source::Listed;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// An entry of the source.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file.
    File(SourceFile),
    /// A folder, with its modification time.
    Directory(ModifiedTime),
    /// A symbolic link.
    Symlink(Vec<u8>),
}

/// A file of the source.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Content of the file. Holes contain zeros.
    pub bytes: Vec<u8>,
    /// Ranges of the file that are holes.
    pub holes: RangeSet,
    /// Modification time. Each content of the file has a different time.
    pub modified: ModifiedTime,
    /// Storage targets of the file.
    pub layout: Layout,
}

/// Configuration of a world.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Options of the transfer.
    pub options: Options,
    /// Number of buffers in the pool of each end.
    pub buffers: u32,
    /// Size of a buffer in bytes.
    pub buffer_bytes: u64,
    /// Maximum number of segments in a block.
    pub segments_max: u32,
    /// Maximum number of live entries: announced and not closed.
    pub live_entries_max: u32,
    /// Maximum number of concurrent reads per source target.
    pub reads_max: u32,
    /// Number of bytes in a full sync group.
    pub sync_group_bytes: u64,
    /// Maximum number of bytes that are written and not logged, in full sync groups.
    pub unlogged_groups: u64,
    /// Maximum time until written data is synced.
    pub sync_interval: Duration,
    /// True if the store may sync both groups concurrently.
    pub syncs_apart: bool,
    /// True if a logger writes the records of a group while the next group is synced.
    pub logs_apart: bool,
    /// Form of a new log. A log without sums is never drawn, because a resume cannot find changed
    /// bytes without them.
    pub log_form: LogForm,
    /// True if the sink counts answered writes as durable, and collects all written data in one
    /// group. The simulated disk still loses data that was not synced.
    pub writes_durably: bool,
    /// For a sink that writes files in order: maximum number of a file's objects that are in
    /// transit at the same time. `None` for a sink with random writes.
    pub ordered_window: Option<u32>,
    /// True if the sink keeps holes.
    pub holes: bool,
    /// Number of data streams.
    pub streams: u32,
    /// Number of targets at the source.
    pub source_targets: u32,
    /// Number of targets at the sink.
    pub sink_targets: u32,
    /// True if consecutive files, by the number in their names, lie on consecutive targets of the
    /// sink. Otherwise their targets are random.
    pub in_turn: bool,
    /// True if the sink is the driver. A sink that is the driver does not wait for a message after
    /// its verdict.
    pub sink_drives: bool,
    /// True if the source announces entries before the sink is ready.
    pub announces_early: bool,
}

/// Number of files that share a log of the mechanism transaction (Kasu et al. 2019, VI-A: four).
pub const FILES_PER_LOG: NonZeroU32 = NonZeroU32::new(4).unwrap();

/// Returns a random element of `list`.
pub fn one_of<T: Clone>(draw: &mut Rng, list: &[T]) -> T {
    let at = draw.below(list.len() as u64) as usize;
    list[at].clone()
}

/// Returns true with a probability of `percent` percent.
pub fn chance(draw: &mut Rng, percent: u64) -> bool {
    draw.below(100) < percent
}

/// Returns whether a logger writes the log, and the form of a new log. The caller passes a copy of
/// its generator, so that the seeds still give the runs of earlier versions.
#[must_use]
pub fn log_options(mut draw: Rng) -> (bool, LogForm) {
    let logs_apart = chance(&mut draw, 40);
    let mechanism = one_of(
        &mut draw,
        &[
            LogMechanism::Universal,
            LogMechanism::Universal,
            LogMechanism::Transaction(FILES_PER_LOG),
            LogMechanism::File,
        ],
    );
    let method = match chance(&mut draw, 30) {
        true => LogMethod::Ranges,
        false => one_of(&mut draw, &LogMethod::ALL),
    };
    (logs_apart, LogForm::new(mechanism, method))
}

impl Setup {
    /// Returns a random configuration.
    #[must_use]
    pub fn new(draw: &mut Rng) -> Self {
        let object_bytes = one_of(draw, &[64, 96, 128, 256]);
        let order = match draw.below(4) {
            0 => Order::File,
            1 => Order::Random { seed: draw.next() },
            _ => Order::Layout,
        };
        let durability = one_of(
            draw,
            &[
                Durability::None,
                Durability::File,
                Durability::File,
                Durability::Object,
            ],
        );
        let overwrite = one_of(
            draw,
            &[
                Overwrite::IfDifferent,
                Overwrite::IfDifferent,
                Overwrite::IfDifferent,
                Overwrite::Always,
                Overwrite::Never,
            ],
        );
        let verify = chance(draw, 30);
        let rate = chance(draw, 10).then_some(200_000);
        let ordered = chance(draw, 15);
        let (logs_apart, log_form) = log_options(draw.clone());
        Self {
            options: Options {
                durability,
                overwrite,
                order,
                object_bytes,
                verify,
                rate,
                ..Options::default()
            },
            buffers: 3 + draw.below(14) as u32,
            buffer_bytes: 256,
            segments_max: one_of(draw, &[4, 8, 32]),
            live_entries_max: one_of(draw, &[6, 16, 64]),
            reads_max: 1 + draw.below(4) as u32,
            sync_group_bytes: one_of(draw, &[512, 1024, 4096]),
            sync_interval: Duration::from_micros(one_of(draw, &[2_000, 10_000, 50_000])),
            ordered_window: ordered.then(|| 1 + draw.below(6) as u32),
            holes: chance(draw, 80),
            streams: 1 + draw.below(4) as u32,
            source_targets: 1 + draw.below(4) as u32,
            sink_targets: 1 + draw.below(6) as u32,
            in_turn: false,
            sink_drives: chance(draw, 30),
            announces_early: chance(draw, 50),
            syncs_apart: chance(draw, 70),
            writes_durably: chance(draw, 20),
            unlogged_groups: one_of(draw, &[1, 1, 4]),
            logs_apart,
            log_form,
        }
    }

    /// Returns the size of the buffer pool in bytes.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        u64::from(self.buffers) * self.buffer_bytes
    }

    /// Returns the maximum number of bytes that are written and not logged.
    #[must_use]
    pub const fn unsafe_bytes_max(&self) -> u64 {
        self.sync_group_bytes * self.unlogged_groups
    }

    /// Returns a random layout over `targets` targets.
    pub fn layout(&self, draw: &mut Rng, targets: u32) -> Layout {
        let first = draw.below(u64::from(targets)) as u32;
        if targets == 1 || chance(draw, 60) {
            return Layout::Single(TargetId(first));
        }
        let count = 2 + draw.below(u64::from(targets) - 1) as u32;
        let stripe_bytes = (self.options.object_bytes * (1 + draw.below(6)) / 2).max(1);
        let dealt: Vec<TargetId> = (0..count)
            .map(|n| TargetId((first + n) % targets))
            .collect();
        match draw.below(3) {
            0 => Layout::Striped {
                stripe_bytes,
                targets: dealt,
            },
            1 => {
                let stripes = 2 + draw.below(20);
                let stripe = |_| TargetId(draw.below(u64::from(targets)) as u32);
                Layout::of_stripes(stripe_bytes, (0..stripes).map(stripe).collect::<Vec<_>>())
            }
            _ => {
                let extent = |end, targets: &[TargetId]| Extent {
                    end,
                    stripe_bytes,
                    targets: targets.to_vec(),
                };
                let border = stripe_bytes * (1 + draw.below(3));
                Layout::of_extents([extent(border, &dealt[..1]), extent(u64::MAX, &dealt)])
            }
        }
    }
}

/// The tree of the source, and all contents that its files have had.
#[derive(Debug, Default)]
pub struct Tree {
    /// Present entries.
    pub entries: BTreeMap<RelPath, Source>,
    /// All contents of each file, by modification time.
    pub versions: BTreeMap<RelPath, BTreeMap<ModifiedTime, Vec<u8>>>,
    clock: i64,
}

impl Tree {
    /// Returns a random tree. At least three of its files have twenty or more objects. It may also
    /// have folders, small files, empty files, a sparse file and symbolic links.
    ///
    /// # Errors
    /// Never: all names that this function builds are valid.
    pub fn new(draw: &mut Rng, setup: &Setup) -> Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![RelPath::root()];
        for number in 0..draw.below(4) {
            let parent = one_of(draw, &folders);
            let path = parent.join(&Name::new(format!("d{number}").as_bytes())?)?;
            let time = tree.tick();
            tree.entries.insert(path.clone(), Source::Directory(time));
            folders.push(path);
        }
        let object = setup.options.object_bytes;
        let put = |tree: &mut Self, draw: &mut Rng, name: String, size: u64, holes: u64| {
            let path = one_of(draw, &folders).join(&Name::new(name.as_bytes())?)?;
            tree.put_file(draw, setup, &path, size, holes);
            Ok::<(), Error>(())
        };
        for number in 0..3 + draw.below(2) {
            let size = object * 20 + draw.below(object * 6);
            put(&mut tree, draw, format!("big{number}"), size, 0)?;
        }
        if chance(draw, 60) {
            let size = object * 30 + draw.below(object * 4);
            put(&mut tree, draw, "sparse".into(), size, 3)?;
        }
        for number in 0..draw.below(14) {
            let size = 1 + draw.below(object);
            put(
                &mut tree,
                draw,
                format!("small{number}"),
                size,
                draw_holes(number),
            )?;
        }
        for number in 0..draw.below(3) {
            put(&mut tree, draw, format!("empty{number}"), 0, 0)?;
        }
        for number in 0..draw.below(3) {
            let path = one_of(draw, &folders).join(&Name::new(format!("l{number}").as_bytes())?)?;
            tree.entries
                .insert(path, Source::Symlink(b"../elsewhere".to_vec()));
        }
        Ok(tree)
    }

    /// Returns a modification time that no file has had yet.
    pub fn tick(&mut self) -> ModifiedTime {
        self.clock += 1;
        ModifiedTime {
            seconds: 1_000_000 + self.clock,
            nanoseconds: 7,
        }
    }

    /// Writes new content to a file.
    pub fn put_file(
        &mut self,
        draw: &mut Rng,
        setup: &Setup,
        path: &RelPath,
        size: u64,
        hole_count: u64,
    ) {
        let mut bytes: Vec<u8> = (0..size).map(|_| draw.next_u32() as u8).collect();
        let mut holes = RangeSet::new();
        for _ in 0..hole_count {
            let offset = draw.below(size);
            let length = 1 + draw.below((size / hole_count).max(1));
            let hole = ByteRange::between(offset, (offset + length).min(size));
            holes.insert(hole);
            bytes[hole.offset as usize..hole.end() as usize].fill(0);
        }
        let modified = self.tick();
        self.versions
            .entry(path.clone())
            .or_default()
            .insert(modified, bytes.clone());
        let layout = setup.layout(draw, setup.source_targets);
        let file = SourceFile {
            bytes,
            holes,
            modified,
            layout,
        };
        self.entries.insert(path.clone(), Source::File(file));
    }

    /// Returns all files of the tree.
    pub fn files(&self) -> impl Iterator<Item = (&RelPath, &SourceFile)> {
        self.entries.iter().filter_map(|(path, node)| match node {
            Source::File(file) => Some((path, file)),
            _ => None,
        })
    }

    /// Changes one file: the file becomes longer, shorter, or gets new content of the same size.
    pub fn change_one(&mut self, draw: &mut Rng, setup: &Setup) {
        let files: Vec<(RelPath, u64)> = self
            .files()
            .map(|(path, file)| (path.clone(), file.bytes.len() as u64))
            .collect();
        let (path, size) = one_of(draw, &files);
        let size = match draw.below(3) {
            0 => size + 1 + draw.below(200),
            1 => size / 2,
            _ => size,
        };
        self.put_file(draw, setup, &path, size, 0);
    }

    /// Returns the manifest. Folders precede their contents.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let mut listed = Vec::new();
        let mut next = 0;
        self.list_folder(&RelPath::root(), None, &mut next, &mut listed);
        listed
    }

    fn list_folder(
        &self,
        folder: &RelPath,
        parent: Option<FileIndex>,
        next: &mut u64,
        listed: &mut Vec<Listed>,
    ) {
        for (path, node) in &self.entries {
            let (true, Some(name)) = (path.parent().as_ref() == Some(folder), path.name()) else {
                continue;
            };
            let index = FileIndex(*next);
            *next += 1;
            let mut entry = Entry {
                index,
                parent,
                name,
                kind: EntryKind::Directory,
                metadata: Metadata::default(),
            };
            let mut layout = Layout::Single(TargetId(0));
            match node {
                Source::File(file) => {
                    entry.kind = EntryKind::File {
                        size: file.bytes.len() as u64,
                        sparse: !file.holes.is_empty(),
                    };
                    entry.metadata = metadata(file.modified);
                    layout = file.layout.clone();
                }
                Source::Symlink(target) => {
                    entry.kind = EntryKind::Symlink {
                        target: target.clone(),
                    };
                }
                Source::Directory(_) => {}
            }
            let line = Listed {
                entry,
                path: path.clone(),
                layout,
            };
            listed.push(line.clone());
            if let Source::Directory(modified) = node {
                self.list_folder(path, Some(index), next, listed);
                let mut end = line;
                end.entry.kind = EntryKind::DirectoryEnd;
                end.entry.metadata = metadata(*modified);
                listed.push(end);
            }
        }
    }
}

fn draw_holes(number: u64) -> u64 {
    u64::from(number.is_multiple_of(5))
}

/// Returns attributes with this modification time.
#[must_use]
pub fn metadata(modified: ModifiedTime) -> Metadata {
    Metadata {
        mode: 0o640,
        modified,
        xattrs: Vec::new(),
    }
}

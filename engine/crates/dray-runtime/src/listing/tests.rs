mod format;

use super::{Checkpoint, CheckpointOptions, ResumedLister, SweepBounds, is_other_file, sweep};
use dray_core::{End, EntryKind, Layout, Metadata, RelPath, TargetId};
use dray_store::wrap::{Around, Call, Hook, Operation};
use dray_store::{ListOptions, Lister, PosixOptions, PosixStore, Store};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// Number of calls of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    lists: u64,
    items: u64,
    versions: u64,
}

#[derive(Default)]
struct Counter([AtomicU64; 3]);

struct Counting(Arc<Counter>);

impl Hook for Counting {
    fn before(&self, call: &Call<'_>) -> dray_core::Result<()> {
        let at = match call.operation {
            Operation::List => 0,
            Operation::ListNext => 1,
            Operation::FolderVersion => 2,
            _ => return Ok(()),
        };
        self.0.0[at].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

const EAGER: CheckpointOptions = CheckpointOptions {
    settled: Duration::ZERO,
    age_max: Duration::from_secs(3600),
    bytes_max: 1 << 30,
};

/// A source tree, and the file with the checkpoint of its listing.
struct Bed {
    tree: TempDir,
    aside: TempDir,
    options: CheckpointOptions,
    key: &'static [u8],
    list: ListOptions,
}

/// An item without the depth of its folder: path, kind, attributes, layout of a file.
type Item = (Vec<u8>, EntryKind, Metadata, Layout);

impl Bed {
    fn new(folders: usize, files: usize) -> Self {
        let tree = TempDir::new().expect("a folder");
        for folder in 0..folders {
            let path = tree.path().join(format!("d{folder:04}"));
            fs::create_dir(&path).expect("a folder");
            for file in 0..files {
                fs::write(path.join(format!("f{file:04}")), b"").expect("a file");
            }
        }
        Self {
            tree,
            aside: TempDir::new().expect("a folder"),
            options: EAGER,
            key: b"transfer 1",
            list: ListOptions {
                contents: true,
                ..ListOptions::default()
            },
        }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.tree.path().join(path)
    }

    fn file(&self) -> std::path::PathBuf {
        self.aside.path().join("listing")
    }

    fn store(&self) -> (Arc<dyn Store>, Arc<Counter>) {
        let posix = PosixStore::open(self.tree.path(), End::Source, PosixOptions::default());
        let counter = Arc::new(Counter::default());
        let hook = Counting(Arc::clone(&counter));
        (
            Arc::new(Around::new(Arc::new(posix.expect("a store")), hook)),
            counter,
        )
    }

    /// Lists at most `most` items in a new process, as far as a listing can tell, and returns the
    /// items, the calls of the store, and the notices.
    fn session(&self, most: usize) -> (Vec<Item>, Calls, Vec<dray_core::Error>) {
        let (store, counter) = self.store();
        let opened = Checkpoint::open(&self.file(), self.key, self.options);
        let checkpoint = Arc::new(opened.expect("a checkpoint"));
        checkpoint.begin(SystemTime::now());
        let top = RelPath::root();
        let lister = ResumedLister::new(&checkpoint, &store, 0, &top, &self.list);
        let mut lister = lister.expect("a listing");
        let items = items(&mut lister, most, |count| {
            // As the lister's thread does after each batch.
            if count % 512 == 0 {
                checkpoint.flush();
            }
        });
        if items.len() < most {
            checkpoint.flush();
            checkpoint.note_changes();
        }
        let [lists, next, versions] = &counter.0;
        let calls = Calls {
            lists: lists.load(Ordering::Relaxed),
            items: next.load(Ordering::Relaxed),
            versions: versions.load(Ordering::Relaxed),
        };
        (items, calls, checkpoint.take_notices())
    }

    /// Lists the tree without a checkpoint, sorted.
    fn plain(&self) -> Vec<Item> {
        let (store, _) = self.store();
        let mut lister = store.list(&RelPath::root(), &self.list).expect("a listing");
        sorted(items(lister.as_mut(), usize::MAX, |_| {}))
    }

    fn check_whole(&self) -> (Calls, Vec<dray_core::Error>) {
        let (items, calls, notices) = self.session(usize::MAX);
        assert_eq!(sorted(items), self.plain());
        (calls, notices)
    }
}

fn items(lister: &mut dyn Lister, most: usize, mut each: impl FnMut(usize)) -> Vec<Item> {
    let mut found: Vec<Item> = Vec::new();
    let mut names: Vec<Vec<u8>> = Vec::new();
    while found.len() < most {
        let Some(item) = lister.next() else {
            break;
        };
        let item = item.expect("no entry fails");
        let is_end = item.kind == EntryKind::DirectoryEnd;
        assert_eq!(names.len(), item.depth + usize::from(is_end));
        if is_end {
            assert_eq!(names.pop().as_deref(), Some(item.name.as_bytes()));
        }
        names.push(item.name.as_bytes().to_vec());
        let path = names.join(&b'/');
        if item.kind != EntryKind::Directory {
            names.pop();
        }
        let layout = match item.kind {
            EntryKind::File { .. } => item.layout,
            _ => Layout::Single(TargetId(0)),
        };
        let metadata = match item.kind {
            // The attributes of a folder count at its end.
            EntryKind::Directory => Metadata::default(),
            _ => item.metadata,
        };
        found.push((path, item.kind, metadata, layout));
        each(found.len());
    }
    found
}

fn sorted(mut items: Vec<Item>) -> Vec<Item> {
    items.sort_by(|a, b| (&a.0, is_end(a)).cmp(&(&b.0, is_end(b))));
    items
}

fn is_end(item: &Item) -> bool {
    item.1 == EntryKind::DirectoryEnd
}

#[test]
fn an_interrupted_listing_lists_only_the_unfinished_folders_again() {
    // 50 000 files in 500 folders.
    let bed = Bed::new(500, 100);
    let plain = bed.plain();
    let total = plain.len();
    for percent in [10, 50, 99] {
        fs::remove_file(bed.file()).unwrap_or_default();
        let done = total * percent / 100;
        let (_, first, _) = bed.session(done);
        assert_eq!(first.lists, 1);
        let (items, again, notices) = bed.session(usize::MAX);
        assert_eq!((sorted(items) == plain, notices), (true, Vec::new()));
        // The first session has lost the records since its last batch, and the folder in which it
        // stopped. The top folder was not complete, so it is listed again.
        let most = total - done + 512 + 2 * 102 + 500;
        assert!(again.items <= most as u64, "{percent}%: {again:?}");
        assert!(again.lists == 1, "{percent}%: {again:?}");
    }
    let (third, _) = bed.check_whole();
    assert_eq!((third.lists, third.items), (0, 0), "all is recorded");
    assert_eq!(third.versions, 501);
}

#[test]
#[ignore = "makes a million files; run it with --ignored"]
fn a_million_entries_are_listed_once() {
    let bed = Bed::new(1000, 1000);
    let total = bed.plain().len();
    bed.session(total / 2);
    let (again, _) = bed.check_whole();
    assert!(again.items <= (total / 2 + 4000) as u64, "{again:?}");
}

#[test]
fn a_changed_folder_is_listed_again_and_no_other() {
    let bed = Bed::new(20, 50);
    type Change = (&'static str, fn(&Path));
    let changes: &[Change] = &[
        ("added", |at| {
            fs::write(at.join("new"), b"x").expect("added")
        }),
        ("removed", |at| {
            fs::remove_file(at.join("f0001")).expect("removed")
        }),
        ("renamed", |at| {
            fs::rename(at.join("f0002"), at.join("g")).expect("renamed");
        }),
        ("replaced", |at| {
            fs::write(at.join("tmp"), b"other").expect("written");
            fs::rename(at.join("tmp"), at.join("f0003")).expect("replaced");
        }),
        ("a folder added", |at| {
            fs::create_dir(at.join("sub")).expect("added");
            fs::write(at.join("sub/x"), b"y").expect("added");
        }),
        ("attributes", |at| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(at, fs::Permissions::from_mode(0o711)).expect("changed");
        }),
    ];
    bed.check_whole();
    for (what, change) in changes {
        change(&bed.at("d0007"));
        let (again, notices) = bed.check_whole();
        assert_eq!(again.lists, 1, "{what}");
        assert!(again.items < 60, "{what}: {again:?}");
        assert_eq!(notices.len(), 1, "{what}: one notice");
        let named = notices[0]
            .file
            .as_ref()
            .map(|file| file.as_bytes().to_vec());
        assert_eq!(named.as_deref(), Some(b"d0007".as_slice()), "{what}");
        let (after, notices) = bed.check_whole();
        assert_eq!((after.items, notices.len()), (0, 0), "{what}");
    }
    fs::remove_dir_all(bed.at("d0003")).expect("removed");
    fs::create_dir(bed.at("d0003")).expect("created");
    let (again, _) = bed.check_whole();
    assert!(again.items < 25, "the top and an empty folder: {again:?}");
}

#[test]
fn a_damaged_checkpoint_is_not_used() {
    let bed = Bed::new(12, 30);
    bed.check_whole();
    let good = fs::read(bed.file()).expect("a checkpoint");
    let step = good.len() / 97 + 1;
    for at in (0..good.len()).step_by(step) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(bed.file(), &bad).expect("damaged");
        let (_, notices) = bed.check_whole();
        assert!(notices.len() <= 1, "byte {at}: {notices:?}");
        fs::write(bed.file(), &good[..at]).expect("cut");
        let (_, notices) = bed.check_whole();
        assert!(notices.len() <= 1, "cut at {at}: {notices:?}");
        let (whole, _) = bed.check_whole();
        assert_eq!(whole.items, 0, "the next session repaired the checkpoint");
    }
    // A flipped bit in the first half is found, because records follow it.
    let mut bad = good;
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(bed.file(), &bad).expect("damaged");
    let (again, notices) = bed.check_whole();
    assert_eq!((again.lists, notices.len()), (1, 1));
    assert_eq!(notices[0].kind, dray_core::ErrorKind::LogDamaged);
}

#[test]
fn the_checkpoint_of_another_transfer_is_not_used() {
    let mut bed = Bed::new(5, 5);
    bed.check_whole();
    bed.key = b"transfer 2";
    let (again, notices) = bed.check_whole();
    assert_eq!((again.lists, notices.len()), (1, 1));
    assert!(notices[0].cause.contains("another transfer"));
}

#[test]
fn an_older_copy_of_the_checkpoint_loses_only_what_came_after_it() {
    let bed = Bed::new(50, 100);
    bed.session(2000);
    let old = fs::read(bed.file()).expect("a checkpoint");
    bed.check_whole();
    fs::write(bed.at("d0001/new"), b"x").expect("added");
    bed.check_whole();
    fs::write(bed.file(), old).expect("an older copy");
    let (again, _) = bed.check_whole();
    assert!(again.items > 1000 && again.items < 4500, "{again:?}");
}

#[test]
fn an_old_checkpoint_is_not_used() {
    let mut bed = Bed::new(3, 3);
    bed.check_whole();
    bed.options.age_max = Duration::ZERO;
    std::thread::sleep(Duration::from_millis(1100));
    let (again, notices) = bed.check_whole();
    assert_eq!((again.lists, notices.len()), (1, 1));
}

#[test]
fn a_folder_that_changed_just_now_is_not_recorded() {
    let mut bed = Bed::new(3, 3);
    bed.options.settled = Duration::from_secs(60);
    bed.check_whole();
    let (again, notices) = bed.check_whole();
    assert_eq!((again.items > 0, notices.len()), (true, 0));
}

#[test]
fn a_full_checkpoint_records_no_more_folders() {
    let mut bed = Bed::new(100, 50);
    bed.options.bytes_max = 100_000;
    bed.check_whole();
    let size = fs::metadata(bed.file()).expect("a checkpoint").len();
    assert!(size <= 100_000, "{size}");
    let (again, notices) = bed.check_whole();
    assert!(again.items < 5000 && again.items > 1000, "{again:?}");
    assert_eq!(notices, Vec::new());
    assert!(fs::metadata(bed.file()).expect("a checkpoint").len() <= 100_000);
}

#[test]
fn a_named_folder_and_a_skipped_folder_are_resumed() {
    let bed = Bed::new(3, 4);
    fs::create_dir_all(bed.at("d0001/a/b/c")).expect("folders");
    fs::write(bed.at("d0001/a/b/c/deep"), b"1").expect("a file");
    std::os::unix::fs::symlink("nowhere", bed.at("d0001/a/link")).expect("a link");
    let top = RelPath::parse(b"d0001").expect("a path");
    let options = ListOptions::default();
    let run = |skip: bool| {
        let (store, counter) = bed.store();
        let opened = Checkpoint::open(&bed.file(), bed.key, bed.options);
        let checkpoint = Arc::new(opened.expect("a checkpoint"));
        checkpoint.begin(SystemTime::now());
        let lister = ResumedLister::new(&checkpoint, &store, 0, &top, &options);
        let mut lister = lister.expect("a listing");
        let mut names = Vec::new();
        while let Some(item) = lister.next() {
            let item = item.expect("no entry fails");
            if skip && item.name.as_bytes() == b"b" && item.kind == EntryKind::Directory {
                lister.skip_folder();
                continue;
            }
            names.push((item.depth, item.name, item.kind));
        }
        checkpoint.flush();
        (names, counter.0[1].load(Ordering::Relaxed))
    };
    let (first, _) = run(true);
    let (again, items) = run(true);
    assert_eq!(first, again);
    // The folder d0001 itself is the top of a listing of the store, as in the first run.
    assert!(items <= 2, "{items}");
    // The skipped folder has no record, so it is listed when it is not skipped.
    let (whole, _) = run(false);
    assert_eq!(whole.len(), first.len() + 5);
    let (store, _) = bed.store();
    let plain = store.list(&top, &options).expect("a listing");
    let plain: Vec<_> = plain
        .map(|item| item.expect("no entry fails"))
        .map(|item| (item.depth, item.name, item.kind))
        .collect();
    assert_eq!(whole, plain);
}

/// Makes folders inside each other, until the path of the last one is too long for a path, and a file
/// beside each of the last two.
fn make_deep(bed: &Bed) {
    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    let name = "n".repeat(255);
    let folder = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut at = open(bed.at("d0000"), folder, Mode::empty()).expect("opened");
    let levels = dray_core::path::PATH_LENGTH_MAX / (name.len() + 1) + 2;
    for level in 0..levels {
        mkdirat(&at, &name, Mode::RWXU).expect("made");
        if level + 2 >= levels {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            openat(&at, "z", flags, Mode::RUSR).expect("made");
        }
        at = openat(&at, &name, folder, Mode::empty()).expect("opened");
    }
}

#[test]
fn a_folder_with_too_long_a_path_does_not_disturb_its_record() {
    let bed = Bed::new(2, 3);
    make_deep(&bed);
    let collect = |lister: &mut dyn Lister| {
        let mut found = Vec::new();
        for item in lister {
            found.push(item.map_or_else(
                |error| (usize::MAX, format!("{:?}", error.kind), None),
                |item| (item.depth, format!("{:?}", item.name), Some(item.kind)),
            ));
        }
        found
    };
    let top = RelPath::root();
    let (store, _) = bed.store();
    let plain = collect(store.list(&top, &bed.list).expect("a listing").as_mut());
    assert_eq!(plain.iter().filter(|found| found.2.is_none()).count(), 1);
    for _ in 0..3 {
        let (store, _) = bed.store();
        let opened = Checkpoint::open(&bed.file(), bed.key, bed.options);
        let checkpoint = Arc::new(opened.expect("a checkpoint"));
        checkpoint.begin(SystemTime::now());
        let lister = ResumedLister::new(&checkpoint, &store, 0, &top, &bed.list);
        assert!(collect(&mut lister.expect("a listing")) == plain);
        checkpoint.flush();
    }
}

#[test]
fn a_forgotten_folder_is_listed_again() {
    let bed = Bed::new(5, 5);
    bed.check_whole();
    let opened = Checkpoint::open(&bed.file(), bed.key, bed.options).expect("a checkpoint");
    opened.begin(SystemTime::now());
    opened.forget(&RelPath::parse(b"d0002").expect("a path"));
    drop(opened);
    let (again, notices) = bed.check_whole();
    assert_eq!((again.lists, notices.len()), (1, 0));
    assert!(again.items < 10, "{again:?}");
}

#[test]
fn a_folder_that_is_forgotten_while_it_is_listed_is_listed_again() {
    let bed = Bed::new(1, 5);
    let top = RelPath::root();
    {
        let (store, _) = bed.store();
        let opened = Checkpoint::open(&bed.file(), bed.key, bed.options);
        let checkpoint = Arc::new(opened.expect("a checkpoint"));
        checkpoint.begin(SystemTime::now());
        let lister = ResumedLister::new(&checkpoint, &store, 0, &top, &bed.list);
        let mut lister = lister.expect("a listing");
        let folder = RelPath::parse(b"d0000").expect("a path");
        items(&mut lister, usize::MAX, |count| {
            // After the folder and two of its files.
            if count == 3 {
                checkpoint.forget(&folder);
            }
        });
        checkpoint.flush();
    }
    let (again, notices) = bed.check_whole();
    assert_eq!((again.lists, notices.len()), (1, 0));
}

#[test]
fn a_file_with_other_content_is_recognized() {
    let bed = Bed::new(1, 1);
    let is_other = || is_other_file(&bed.file()).expect("read");
    assert!(!is_other(), "there is no file");
    bed.check_whole();
    assert!(!is_other(), "a checkpoint");
    for (content, expected) in [("", false), ("DRAY", false), ("results", true), ("x", true)] {
        fs::write(bed.file(), content).expect("written");
        assert_eq!(is_other(), expected, "{content:?}");
    }
}

#[test]
fn the_oldest_checkpoints_beyond_the_bounds_are_removed() {
    let folder = TempDir::new().expect("a folder");
    let now = SystemTime::now();
    let at = |name: &str| folder.path().join(name);
    let make = |name: &str, age_hours: u64| {
        fs::write(at(name), [0; 100]).expect("written");
        let file = fs::File::options()
            .write(true)
            .open(at(name))
            .expect("opened");
        file.set_modified(now - Duration::from_secs(age_hours * 3600))
            .expect("set");
    };
    let ages = [("a", 30), ("b", 9), ("c", 8), ("d", 7), ("e", 6), ("f", 30)];
    for (name, age) in ages {
        make(&format!("{name}.listing"), age);
    }
    make("other", 30);
    // The sessions of b and f have their checkpoints open.
    let open = |name: &str| Checkpoint::open(&at(name), b"key", EAGER).expect("a checkpoint");
    let _open = [open("b.listing"), open("f.listing")];
    let left = |count_max: u64, bytes_max: u64| {
        let bounds = SweepBounds {
            count_max,
            bytes_max,
        };
        sweep(folder.path(), &at("c.listing"), bounds, now);
        let files = fs::read_dir(folder.path()).expect("read");
        let mut names: Vec<_> = files
            .map(|file| {
                file.expect("read")
                    .file_name()
                    .into_string()
                    .expect("a name")
            })
            .collect();
        names.sort();
        names.join(" ").replace(".listing", "")
    };
    assert_eq!(left(9, 500), "b c d e f other", "a is too old");
    assert_eq!(left(4, 500), "b c e f other", "the oldest that is not open");
    assert_eq!(left(9, 350), "b c f other");
    assert_eq!(left(0, 0), "b c f other", "open, and about to be opened");
}

#[test]
fn two_processes_do_not_share_a_checkpoint() {
    let bed = Bed::new(1, 1);
    let first = Checkpoint::open(&bed.file(), bed.key, bed.options);
    let second = Checkpoint::open(&bed.file(), bed.key, bed.options);
    assert!(first.is_ok());
    let busy = second.expect_err("locked").kind;
    assert_eq!(busy, dray_core::ErrorKind::Busy);
}

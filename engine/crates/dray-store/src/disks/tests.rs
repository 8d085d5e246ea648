use super::{DisksOptions, DisksStore};
use crate::types::{
    Attributes, FileKind, ListOptions, MadeDir, PartialRequest, Publish, ReadPurpose, SyncItem,
};
use crate::{Partial, ReadExt, Store, StoreExt};
use dray_core::{End, EntryKind, ErrorKind, Layout, Metadata, Name, RelPath, TargetId};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Disks {
    _top: TempDir,
    dirs: Vec<PathBuf>,
    store: DisksStore,
}

fn disks(count: usize) -> Disks {
    let top = tempfile::tempdir().expect("a folder");
    let dirs: Vec<PathBuf> = (0..count)
        .map(|disk| top.path().join(format!("d{disk}")))
        .collect();
    for dir in &dirs {
        std::fs::create_dir(dir).expect("made");
    }
    let store = open(&dirs).expect("opened");
    Disks {
        _top: top,
        dirs,
        store,
    }
}

fn open(dirs: &[PathBuf]) -> dray_core::Result<DisksStore> {
    DisksStore::open(dirs, End::Sink, &DisksOptions::default())
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn own(text: &str) -> Name {
    Name::new(format!(".dray-{text}").as_bytes()).expect("a name")
}

fn begin(store: &DisksStore, at: &str, size: u64) -> Box<dyn Partial> {
    let request = PartialRequest {
        name: own(&at.replace('/', "-")),
        reuse: None,
    };
    store.begin(&path(at), size, &request).expect("begun")
}

fn put(store: &DisksStore, at: &str, bytes: &[u8]) {
    let partial = begin(store, at, bytes.len() as u64);
    partial.write_at(0, bytes).expect("written");
    let metadata = Metadata::default();
    partial
        .publish(Publish::Replace, &Attributes::of(&metadata))
        .expect("published");
}

fn get(store: &DisksStore, at: &str) -> Vec<u8> {
    let file = store
        .open_read(&path(at), ReadPurpose::Transfer)
        .expect("opened");
    let mut bytes = vec![0; 1 << 16];
    let count = file.read_full_at(0, &mut bytes).expect("read");
    bytes.truncate(count);
    bytes
}

/// Returns the disks that have a file.
fn on(dirs: &[PathBuf], at: &str) -> Vec<usize> {
    (0..dirs.len())
        .filter(|disk| dirs[*disk].join(at).exists())
        .collect()
}

fn listed(store: &DisksStore) -> (Vec<String>, Vec<String>) {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for item in store
        .list(&RelPath::root(), &ListOptions::default())
        .expect("listed")
    {
        match item {
            Ok(item) if item.kind == EntryKind::DirectoryEnd => {}
            Ok(item) => names.push(format!("{}{}", "-".repeat(item.depth), item.name)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    (names, errors)
}

#[test]
fn files_are_spread_and_folders_are_on_all_disks() {
    let Disks { _top, dirs, store } = disks(4);
    assert_eq!(store.make_dir(&path("a")).expect("made"), MadeDir::Created);
    let mut counts = [0; 4];
    for file in 0..40 {
        let at = format!("a/{file:02}");
        let expected = store.layout_for(&path(&at), 100).expect("a layout");
        put(&store, &at, at.as_bytes());
        let disk = on(&dirs, &at)[0];
        counts[disk] += 1;
        let target = Layout::Single(TargetId(u32::try_from(disk).expect("small")));
        assert_eq!(expected, target, "the scheduler knew the disk");
        assert_eq!(store.layout(&path(&at)).expect("a layout"), target);
        assert_eq!(get(&store, &at), at.as_bytes());
    }
    assert_eq!(counts, [10; 4]);
    assert_eq!(on(&dirs, "a"), [0, 1, 2, 3]);
    let (names, errors) = listed(&store);
    assert_eq!((names.len(), errors.len()), (41, 0), "{names:?} {errors:?}");
    let names: Vec<String> = store
        .targets()
        .into_iter()
        .map(|target| target.name)
        .collect();
    assert_eq!(names[3], dirs[3].display().to_string());
}

#[test]
fn a_file_is_replaced_on_its_own_disk() {
    let Disks { _top, dirs, store } = disks(3);
    put(&store, "file", b"one");
    let before = on(&dirs, "file");
    for round in 0..6_u8 {
        put(&store, &format!("other{round}"), b"x");
        put(&store, "file", &[round; 9]);
        assert_eq!(on(&dirs, "file"), before);
        assert_eq!(get(&store, "file"), [round; 9]);
    }
    store.remove(&path("file")).expect("removed");
    assert_eq!(store.stat(&path("file")).expect("asked"), None);
}

#[test]
fn a_publication_removes_the_file_of_another_disk() {
    let Disks { _top, dirs, store } = disks(3);
    let partial = begin(&store, "file", 3);
    partial.write_at(0, b"new").expect("written");
    let metadata = Metadata::default();
    let attributes = Attributes::of(&metadata);
    // Another program puts a file on another disk meanwhile.
    let disk = on(&dirs, ".dray-file")[0];
    std::fs::write(dirs[(disk + 1) % 3].join("file"), "other").expect("written");
    let error = partial
        .publish(Publish::IfAbsent, &attributes)
        .expect_err("it exists");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    partial
        .publish(Publish::Replace, &attributes)
        .expect("published");
    assert_eq!(on(&dirs, "file"), [disk]);
    assert_eq!(get(&store, "file"), b"new");
}

#[test]
fn of_two_files_the_newest_is_read_and_both_are_reported() {
    let Disks { _top, dirs, store } = disks(3);
    for (disk, text) in [(2, "old"), (0, "middle"), (1, "new")] {
        std::fs::write(dirs[disk].join("file"), text).expect("written");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The modification time does not matter, because a copy sets it.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    let old = std::fs::File::options()
        .write(true)
        .open(dirs[0].join("file"));
    old.expect("opened").set_modified(later).expect("set");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let now = std::fs::File::options()
        .write(true)
        .open(dirs[1].join("file"));
    now.expect("opened")
        .set_modified(std::time::UNIX_EPOCH)
        .expect("set");
    assert_eq!(get(&store, "file"), b"new");
    let (names, errors) = listed(&store);
    assert_eq!(names, ["file"]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    for dir in &dirs {
        assert!(errors[0].contains(&*dir.to_string_lossy()), "{errors:?}");
    }
    put(&store, "file", b"newest");
    assert_eq!(on(&dirs, "file").len(), 1);
    assert_eq!(listed(&store).1, [""; 0]);
}

#[test]
fn a_file_beside_a_folder_is_reported() {
    let Disks { _top, dirs, store } = disks(2);
    std::fs::create_dir(dirs[1].join("x")).expect("made");
    std::fs::write(dirs[1].join("x/inside"), "i").expect("written");
    std::fs::write(dirs[0].join("x"), "file").expect("written");
    let (names, errors) = listed(&store);
    assert_eq!(names, ["x", "-inside"]);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        store.stat(&path("x")).expect("asked").expect("there").kind,
        FileKind::Directory
    );
}

#[test]
fn a_folder_that_is_missing_on_a_disk_is_made_there() {
    let Disks { _top, dirs, store } = disks(3);
    store.make_dirs(&path("a/b"), 0o750).expect("made");
    for dir in &dirs[1..] {
        std::fs::remove_dir_all(dir.join("a")).expect("removed");
    }
    let below = store.open_folder(&path("a/b")).expect("opened");
    for file in 0..6 {
        put(&below, &format!("{file}"), b"x");
        let at = path(&format!("{file}"));
        let items = [
            SyncItem::File(&at),
            SyncItem::Folder(&at.parent().expect("above")),
        ];
        below.sync_all(&items).expect("synced");
    }
    assert_eq!(on(&dirs, "a/b"), [0, 1, 2]);
    let mode = std::fs::metadata(dirs[2].join("a/b"))
        .expect("there")
        .permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o750
    );
    store
        .open_folder(&path("none"))
        .expect_err("it exists on no disk");
}

#[test]
fn a_new_folder_below_a_file_of_another_disk_is_refused() {
    let Disks { _top, store, .. } = disks(3);
    for file in 0..3 {
        put(&store, &format!("{file}"), b"x");
        let made = store.make_dir(&path(&format!("{file}")));
        assert_eq!(made.expect_err("a file").kind, ErrorKind::NotADirectory);
        let made = store.make_dir(&path(&format!("{file}/below")));
        assert_eq!(made.expect_err("a file").kind, ErrorKind::NotADirectory);
    }
}

#[test]
fn a_missing_disk_is_refused_and_a_new_one_is_taken() {
    let Disks { _top, dirs, store } = disks(3);
    for file in 0..3 {
        put(&store, &format!("{file}"), b"x");
    }
    // The order of the folders does not matter.
    let turned = [dirs[2].clone(), dirs[0].clone(), dirs[1].clone()];
    let turned = open(&turned).expect("opened");
    assert_eq!(turned.targets(), store.targets());

    let error = open(&dirs[..2]).expect_err("a disk is missing");
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.cause.contains("number 2 of 3"), "{error}");

    // The file system of the second disk is not mounted.
    let away = dirs[1].with_extension("away");
    std::fs::rename(&dirs[1], &away).expect("moved");
    assert_eq!(
        open(&dirs).expect_err("no folder").kind,
        ErrorKind::NotFound
    );
    std::fs::create_dir(&dirs[1]).expect("made");
    let error = open(&dirs).expect_err("an empty folder");
    assert!(error.cause.contains("d1 has no file .dray-disk"), "{error}");
    assert!(!dirs[1].join(".dray-disk").exists());
    std::fs::remove_dir(&dirs[1]).expect("removed");
    std::fs::rename(&away, &dirs[1]).expect("moved");

    let mut more = dirs.clone();
    more.push(dirs[0].with_file_name("d3"));
    std::fs::create_dir(&more[3]).expect("made");
    std::fs::write(more[3].join("file"), "x").expect("written");
    assert!(
        open(&more)
            .expect_err("not empty")
            .cause
            .contains("not empty")
    );
    std::fs::remove_file(more[3].join("file")).expect("removed");
    assert_eq!(open(&more).expect("opened").targets().len(), 4);
    let error = open(&dirs).expect_err("the new disk is missing");
    assert!(error.cause.contains("number 3 of 4"), "{error}");
}

#[test]
fn folders_that_overlap_or_belong_elsewhere_are_refused() {
    let (one, two) = (disks(2), disks(2));
    let mixed = [one.dirs[0].clone(), two.dirs[1].clone()];
    assert!(
        open(&mixed)
            .expect_err("two stores")
            .cause
            .contains("another set of disks")
    );
    let twice = [one.dirs[0].clone(), one.dirs[0].clone()];
    open(&twice).expect_err("one folder twice");
    let inside = one.dirs[0].join("inside");
    std::fs::create_dir(&inside).expect("made");
    assert!(
        open(&[one.dirs[0].clone(), inside])
            .expect_err("nested")
            .cause
            .contains("is inside")
    );
    open(&[]).expect_err("no folder");
}

#[test]
fn a_partial_file_of_an_earlier_run_is_found_on_its_disk() {
    let Disks { _top, dirs, store } = disks(4);
    for file in 0..8 {
        let at = format!("file{file}");
        let partial = begin(&store, &at, 3);
        partial.write_at(0, b"ab").expect("written");
        let request = PartialRequest {
            name: own(&at),
            reuse: None,
        };
        let again = store.begin(&path(&at), 3, &request);
        assert_eq!(
            again.map(drop).expect_err("it exists").kind,
            ErrorKind::AlreadyExists
        );
        let id = partial.id();
        drop(partial);
        let later = open(&dirs).expect("opened");
        let request = PartialRequest {
            reuse: Some(id),
            ..request
        };
        let partial = later.begin(&path(&at), 3, &request).expect("continued");
        partial.write_at(2, b"c").expect("written");
        let metadata = Metadata::default();
        partial
            .publish(Publish::IfAbsent, &Attributes::of(&metadata))
            .expect("published");
        assert_eq!(get(&later, &at), b"abc");
    }
}

#[test]
fn publications_of_two_stores_leave_one_file() {
    let Disks { _top, dirs, store } = disks(4);
    let rounds = 40;
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (dirs, store) = (&dirs, &store);
            scope.spawn(move || {
                let other = open(dirs).expect("opened");
                let store = if writer < 2 { store } else { &other };
                for round in 0..rounds {
                    let at = path("file");
                    let request = PartialRequest {
                        name: own(&format!("{writer}-{round}")),
                        reuse: None,
                    };
                    let partial = store.begin(&at, 5, &request).expect("begun");
                    partial.write_at(0, &[writer; 5]).expect("written");
                    let metadata = Metadata::default();
                    let attributes = Attributes::of(&metadata);
                    partial
                        .publish(Publish::Replace, &attributes)
                        .expect("published");
                    let bytes = get(store, "file");
                    assert!(bytes.len() == 5 && bytes.iter().all(|byte| *byte == bytes[0]));
                }
            });
        }
    });
    assert_eq!(on(&dirs, "file").len(), 1);
}

/// A file system of a few MiB in memory, to fill it. `None` without the right to mount.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(at).expect("made");
        let options = format!("size={bytes}");
        let mut command = std::process::Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(at);
        let mounted = command.stderr(std::process::Stdio::null()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return None;
        }
        Some(Self(at.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_file_moves_to_another_disk_when_its_disk_is_full() {
    let top = tempfile::tempdir().expect("a folder");
    let dirs: Vec<PathBuf> = (0..2)
        .map(|disk| top.path().join(format!("d{disk}")))
        .collect();
    let mounted = [
        Small::mount(&dirs[0], 8 << 20),
        Small::mount(&dirs[1], 8 << 20),
    ];
    if mounted.iter().any(Option::is_none) {
        return;
    }
    let store = open(&dirs).expect("opened");
    let size = 3 << 20;
    let partial = begin(&store, "file", size);
    let id = partial.id();
    partial.write_at(0, &vec![1; 1 << 20]).expect("written");
    let disk = on(&dirs, ".dray-file")[0];
    // Another program fills the disk.
    let filler = vec![7; 1 << 16];
    let mut file = std::fs::File::create(dirs[disk].join("filler")).expect("made");
    while std::io::Write::write_all(&mut file, &filler).is_ok() {}
    partial
        .write_at(2 << 20, &vec![3; 1 << 20])
        .expect("written on the other disk");
    assert_eq!(on(&dirs, ".dray-file"), [1 - disk]);
    partial.sync().expect("synced");
    drop(partial);
    // The caller knows the first identity only.
    let request = PartialRequest {
        name: own("file"),
        reuse: Some(id),
    };
    let partial = store
        .begin(&path("file"), size, &request)
        .expect("continued");
    partial
        .write_at(1 << 20, &vec![2; 1 << 20])
        .expect("written");
    let metadata = Metadata::default();
    partial
        .publish(Publish::IfAbsent, &Attributes::of(&metadata))
        .expect("published");
    let bytes = std::fs::read(dirs[1 - disk].join("file")).expect("read");
    assert_eq!(bytes.len() as u64, size);
    for (part, value) in (0..3).zip(1..=3) {
        assert!(
            bytes[part << 20..][..1 << 20]
                .iter()
                .all(|byte| *byte == value)
        );
    }
    // New files go to the disk with space, and small ones too.
    let metadata = Metadata::default();
    let attributes = Attributes::of(&metadata);
    let small = store.write_small(
        &path("small"),
        &own("s"),
        &vec![1; 1 << 18],
        &[],
        &attributes,
    );
    let small = small.expect("written");
    store
        .publish_small(&path("small"), &own("s"), small, Publish::IfAbsent)
        .expect("published");
    assert_eq!(on(&dirs, "small"), [1 - disk]);
    // A file that fits on no disk fails, and the error names the disk.
    let partial = begin(&store, "large", 9 << 20);
    let written = (0..9).try_for_each(|part| partial.write_at(part << 20, &vec![1; 1 << 20]));
    let error = written.expect_err("no space");
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(error.cause.contains("(disk "), "{error}");
    partial.abort().expect("removed");
    // An existing file on the full disk is replaced by a file on the other disk.
    std::fs::rename(dirs[disk].join("filler"), dirs[disk].join("old")).expect("renamed");
    put(&store, "old", b"short");
    assert_eq!(
        (on(&dirs, "old").len(), get(&store, "old")),
        (1, b"short".to_vec())
    );
}

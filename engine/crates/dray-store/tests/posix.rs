//! Tests of behaviour that only a real file system has.

use dray_core::options::Links;
use dray_core::{ByteRange, End, EntryKind, Error, ErrorKind, Metadata, Name, RelPath};
use dray_store::{
    Attributes, LinkScope, ListOptions, Listed, MadeDir, PartialRequest, PosixOptions, PosixStore,
    Publish, ReadPurpose, Store, StoreExt, SyncItem, TargetMap,
};
use rustix::fs::{CWD, FileType, Mode};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a good path")
}

fn open(root: &Path, end: End, links: LinkScope) -> PosixStore {
    let options = PosixOptions {
        links,
        ..PosixOptions::default()
    };
    PosixStore::open(root, end, options).expect("opens")
}

fn sink() -> (TempDir, PosixStore) {
    let folder = TempDir::new().expect("a folder");
    let store = open(folder.path(), End::Sink, LinkScope::Never);
    (folder, store)
}

fn list(store: &PosixStore, links: Links) -> (Vec<Listed>, Vec<Error>) {
    let options = ListOptions {
        links,
        ..ListOptions::default()
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for item in store.list(&RelPath::root(), &options).expect("lists") {
        match item {
            Ok(listed) => good.push(listed),
            Err(error) => bad.push(error),
        }
    }
    (good, bad)
}

fn names(listed: &[Listed]) -> Vec<String> {
    listed.iter().map(|l| l.name.to_string()).collect()
}

#[test]
fn special_files_are_named_and_the_rest_is_listed() {
    let folder = TempDir::new().expect("a folder");
    let pipe = folder.path().join("pipe");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).expect("a pipe");
    let _socket =
        std::os::unix::net::UnixListener::bind(folder.path().join("socket")).expect("a socket");
    fs::write(folder.path().join("zz"), b"x").expect("a file");
    let store = open(folder.path(), End::Source, LinkScope::Never);
    let (good, bad) = list(&store, Links::Keep);
    assert_eq!(names(&good), ["zz"]);
    let mut words: Vec<_> = bad.iter().map(ToString::to_string).collect();
    words.sort();
    assert_eq!(words.len(), 2);
    assert!(
        words[0]
            .contains("cannot copy at the source: pipe: not supported (the entry is a named pipe)")
    );
    assert!(words[1].contains("a socket"));
    // Opening a pipe must not block and must not read from the pipe.
    let handle = store
        .open_read(&path("pipe"), ReadPurpose::Transfer)
        .expect("opens");
    assert_eq!(
        handle.state().expect_err("no file").kind,
        ErrorKind::Unsupported
    );
    let error = handle.read_at(0, &mut [0]).expect_err("no file");
    assert_eq!(error.kind, ErrorKind::Unsupported);
}

#[test]
fn followed_links_stay_beneath_what_is_read() {
    let folder = TempDir::new().expect("a folder");
    let root = folder.path();
    for name in ["alice/own", "bob", "alice/.dray-left"] {
        fs::create_dir_all(root.join(name)).expect("folders");
        fs::write(root.join(name).join("file"), name).expect("a file");
    }
    symlink("own", root.join("alice/inside")).expect("a link");
    symlink("own/file", root.join("alice/inside-file")).expect("a link");
    symlink("../bob", root.join("alice/out")).expect("a link");
    symlink("../bob/file", root.join("alice/out-file")).expect("a link");
    symlink(".dray-left", root.join("alice/left")).expect("a link");
    symlink(".dray-left/file", root.join("alice/left-file")).expect("a link");
    symlink("alice", root.join("way")).expect("a link");

    let store = open(
        root,
        End::Source,
        LinkScope::Beneath([path("alice")].into()),
    );
    let kind = |at: &str| {
        let opened = store.open_read(&path(at), ReadPurpose::Transfer);
        opened.map(|_| ()).map_err(|error| error.kind)
    };
    for good in [
        "alice/own/file",
        "alice/inside/file",
        "alice/inside-file",
        "bob/file",
    ] {
        assert_eq!(kind(good), Ok(()), "{good}");
    }
    for bad in [
        "alice/out/file",
        "alice/out-file",
        "alice/left/file",
        "alice/left-file",
        "way/own/file",
    ] {
        assert_eq!(kind(bad), Err(ErrorKind::PathEscapes), "{bad}");
    }
}

#[test]
fn links_are_followed_whatever_the_folders_above_the_root_are_called() {
    let folder = TempDir::new().expect("a folder");
    let root = folder.path().join(".dray-site/data");
    fs::create_dir_all(root.join("own")).expect("folders");
    fs::create_dir_all(root.join(".dray-left")).expect("folders");
    fs::write(root.join("own/file"), b"bytes").expect("a file");
    fs::write(root.join(".dray-left/file"), b"bytes").expect("a file");
    symlink("own", root.join("inside")).expect("a link");
    symlink(".dray-left", root.join("left")).expect("a link");
    let tops = LinkScope::Beneath([RelPath::root()].into());
    let store = open(&root, End::Source, tops);
    let kind = |at: &str| {
        let opened = store.open_read(&path(at), ReadPurpose::Transfer);
        opened.map(|_| ()).map_err(|error| error.kind)
    };
    assert_eq!(kind("own/file"), Ok(()));
    assert_eq!(kind("inside/file"), Ok(()));
    assert_eq!(kind("left/file"), Err(ErrorKind::PathEscapes));
    assert_eq!(kind(".dray-left/file"), Err(ErrorKind::PathEscapes));
}

#[test]
fn followed_links_stay_beneath_the_root_and_never_go_round() {
    let outside = TempDir::new().expect("a folder");
    fs::write(outside.path().join("secret"), b"secret").expect("a file");
    let folder = TempDir::new().expect("a folder");
    let root = folder.path();
    fs::create_dir_all(root.join("a/b")).expect("folders");
    fs::write(root.join("a/b/file"), b"bytes").expect("a file");
    symlink("..", root.join("a/b/up")).expect("a link");
    symlink("a/b/file", root.join("inside")).expect("a link");
    symlink("a/b", root.join("inside-folder")).expect("a link");
    symlink("missing", root.join("broken")).expect("a link");
    symlink("../../../../../../etc", root.join("out-relative")).expect("a link");
    symlink(outside.path(), root.join("out")).expect("a link");

    let store = open(
        root,
        End::Source,
        LinkScope::Beneath([RelPath::root()].into()),
    );
    let (good, bad) = list(&store, Links::Follow);
    let mut found = names(&good);
    found.sort();
    // Each folder has a start item and an end item, so its name is in the list twice. The folder
    // "inside-folder" is a link to a folder that contains a file.
    let expected = [
        "a",
        "a",
        "b",
        "b",
        "file",
        "file",
        "inside",
        "inside-folder",
        "inside-folder",
        "up",
        "up",
    ];
    assert_eq!(found, expected);
    let mut kinds: Vec<_> = bad
        .iter()
        .map(|error| (error.file.as_ref().expect("a file").to_string(), error.kind))
        .collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0));
    // The link in "inside-folder" leads to "a", which is not a parent folder there. The link in "a"
    // then leads to "b", which is a parent folder.
    let expected = [
        ("a/b/up".to_owned(), ErrorKind::PathEscapes),
        ("broken".to_owned(), ErrorKind::NotFound),
        ("inside-folder/up/b".to_owned(), ErrorKind::PathEscapes),
        ("out".to_owned(), ErrorKind::PathEscapes),
        ("out-relative".to_owned(), ErrorKind::PathEscapes),
    ];
    assert_eq!(kinds, expected);
    for good in ["inside", "inside-folder/file", "inside-folder/up/b/file"] {
        let handle = store
            .open_read(&path(good), ReadPurpose::Transfer)
            .expect("opens");
        assert_eq!(handle.state().expect("a file").size, 5, "{good}");
    }
    for bad in ["out/secret", "out-relative/passwd"] {
        let opened = store.open_read(&path(bad), ReadPurpose::Transfer);
        assert_eq!(
            opened.err().map(|e| e.kind),
            Some(ErrorKind::PathEscapes),
            "{bad}"
        );
    }

    let local = open(root, End::Source, LinkScope::Anywhere);
    let handle = local
        .open_read(&path("out/secret"), ReadPurpose::Transfer)
        .expect("opens");
    assert_eq!(handle.state().expect("a file").size, 6);

    let strict = open(root, End::Source, LinkScope::Never);
    let options = ListOptions {
        links: Links::Follow,
        ..ListOptions::default()
    };
    let refused = strict.list(&RelPath::root(), &options);
    assert_eq!(
        refused.err().map(|e| e.kind),
        Some(ErrorKind::InvalidRequest)
    );
    let opened = strict.open_read(&path("inside-folder/file"), ReadPurpose::Transfer);
    assert_eq!(opened.err().map(|e| e.kind), Some(ErrorKind::PathEscapes));
}

fn put(store: &PosixStore, at: &RelPath) -> Result<(), Error> {
    let metadata = Metadata {
        mode: 0o644,
        ..Metadata::default()
    };
    let name = Name::new(b".dray-p").expect("a good name");
    let id = store.write_small(at, &name, b"bytes", &[], &Attributes::of(&metadata))?;
    store.publish_small(at, &name, id, Publish::Replace)
}

#[test]
fn the_time_of_birth_stays_with_the_file() {
    let (_folder, store) = sink();
    let born = |name: &str| store.born(&path(name)).expect("asks");
    put(&store, &path("one")).expect("writes");
    let first = born("one");
    assert_eq!(first, born("one"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    put(&store, &path("one")).expect("replaces");
    // On a file system that does not store creation times, the store returns 0.
    assert!(born("one") > first || (first, born("one")) == (0, 0));
    assert_eq!(born("nothing"), 0);
}

#[test]
fn a_partial_file_of_another_birth_is_neither_published_nor_removed() {
    let (folder, store) = sink();
    let name = Name::new(b".dray-1.part").expect("a good name");
    let (metadata, at) = (Metadata::default(), path("file"));
    let made = store.write_small(&at, &name, b"new", &[], &Attributes::of(&metadata));
    let made = made.expect("written");
    // The identity of an older file with the same inode number.
    let before = dray_store::PartialId {
        born: made.born.wrapping_sub(1),
        ..made
    };
    if made.born == 0 {
        assert!(
            made.is(&before),
            "where no births are kept the inode decides"
        );
        return;
    }
    let lost = store.publish_small(&at, &name, before, Publish::Replace);
    assert!(lost.is_err_and(|error| error.kind == ErrorKind::NotFound));
    store.discard(&at, &name, Some(before)).expect("no error");
    assert!(folder.path().join(".dray-1.part").exists());
    store.discard(&at, &name, Some(made)).expect("removed");
    assert!(!folder.path().join(".dray-1.part").exists());
}

#[test]
fn a_control_file_goes_with_what_a_broken_off_replacement_left() {
    let (folder, store) = sink();
    let log = path(".dray-log/log");
    let control = store.open_control(&log, dray_store::ControlMode::Create);
    control.expect("made").append(b"x").expect("written");
    fs::write(folder.path().join(".dray-log/log.next"), b"y").expect("a file");
    store.remove_control(&log).expect("removed");
    store.remove(&path(".dray-log")).expect("empty");
    store.remove_control(&log).expect("gone is fine");
}

#[test]
fn a_folder_removed_and_made_again_by_others_is_found_at_once() {
    let (folder, store) = sink();
    store.make_dir(&path("a")).expect("makes");
    put(&store, &path("a/one")).expect("writes");
    fs::remove_dir_all(folder.path().join("a")).expect("removes");
    assert_eq!(
        put(&store, &path("a/two")).map_err(|e| e.kind),
        Err(ErrorKind::NotFound)
    );
    fs::create_dir(folder.path().join("a")).expect("makes");
    put(&store, &path("a/three")).expect("writes");
    assert!(folder.path().join("a/three").exists());
}

#[test]
fn a_partial_file_in_a_folder_moved_away_is_not_published_there() {
    let (folder, store) = sink();
    store.make_dir(&path("a")).expect("makes");
    let request = PartialRequest {
        name: Name::new(b".dray-p").expect("good"),
        reuse: None,
    };
    let partial = store.begin(&path("a/file"), 1, &request).expect("begins");
    partial.write_at(0, b"x").expect("writes");
    fs::rename(folder.path().join("a"), folder.path().join("moved")).expect("moves");
    fs::create_dir(folder.path().join("a")).expect("makes");
    // Wait until the cached folder has expired, which takes one second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let metadata = Metadata::default();
    let published = partial.publish(Publish::Replace, &Attributes::of(&metadata));
    assert_eq!(published.map_err(|e| e.kind), Err(ErrorKind::NotFound));
    assert!(!folder.path().join("moved/file").exists());
}

#[test]
fn unfinished_files_and_folders_are_private() {
    let (folder, store) = sink();
    for made in ["a", "a/b"] {
        let made = store.make_dir(&path(made));
        assert_eq!(made.expect("makes"), MadeDir::Created);
    }
    let mode = |name: &str| {
        let metadata = fs::symlink_metadata(folder.path().join(name)).expect("there");
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!(mode("a/b"), 0o700);
    let request = PartialRequest {
        name: Name::new(b".dray-p").expect("good"),
        reuse: None,
    };
    let partial = store
        .begin(&path("a/b/file"), 1 << 20, &request)
        .expect("begins");
    assert_eq!(mode("a/b/.dray-p"), 0o600);
    drop(partial);
    store
        .open_control(&path(".dray-log/log"), dray_store::ControlMode::Create)
        .expect("opens");
    assert_eq!((mode(".dray-log"), mode(".dray-log/log")), (0o700, 0o600));
}

#[test]
fn the_space_of_a_file_is_taken_when_it_begins_if_asked() {
    let blocks = |preallocates| {
        let folder = TempDir::new().expect("a folder");
        let options = PosixOptions {
            preallocates,
            ..PosixOptions::default()
        };
        let store = PosixStore::open(folder.path(), End::Sink, options).expect("opens");
        let request = PartialRequest {
            name: Name::new(b".dray-p").expect("good"),
            reuse: None,
        };
        let partial = store.begin(&path("file"), 1 << 20, &request);
        let partial = partial.expect("begins");
        let begun = || fs::metadata(folder.path().join(".dray-p")).expect("there");
        assert_eq!((begun().len(), begun().blocks()), (1 << 20, 0));
        assert_eq!(partial.take_space(1 << 20), Ok(preallocates));
        let taken = begun().blocks() * 512;
        partial
            .punch_hole(ByteRange::between(0, 1 << 19))
            .expect("a hole");
        assert_eq!(begun().len(), 1 << 20);
        (taken, begun().blocks() * 512)
    };
    assert_eq!(blocks(false), (0, 0));
    let (taken, left) = blocks(true);
    assert!(taken >= 1 << 20, "{taken}");
    assert!(left < taken, "{left}");
}

#[test]
fn more_space_than_there_is_is_not_tried_to_be_taken() {
    let folder = TempDir::new().expect("a folder");
    let options = PosixOptions {
        preallocates: true,
        ..PosixOptions::default()
    };
    let store = PosixStore::open(folder.path(), End::Sink, options).expect("opens");
    let request = PartialRequest {
        name: Name::new(b".dray-p").expect("good"),
        reuse: None,
    };
    let partial = store.begin(&path("file"), 1 << 20, &request);
    let partial = partial.expect("begins");
    let error = partial.take_space(1 << 60).expect_err("an exabyte");
    assert_eq!(error.kind, dray_core::ErrorKind::NoSpace);
    let begun = fs::metadata(folder.path().join(".dray-p")).expect("there");
    assert_eq!(begun.blocks(), 0);
}

#[test]
fn a_second_name_makes_a_partial_file_unusable() {
    let (folder, store) = sink();
    let request = PartialRequest {
        name: Name::new(b".dray-p").expect("good"),
        reuse: None,
    };
    let id = store
        .begin(&path("file"), 1, &request)
        .expect("begins")
        .id();
    fs::hard_link(folder.path().join(".dray-p"), folder.path().join("peek")).expect("links");
    let again = PartialRequest {
        reuse: Some(id),
        ..request
    };
    let continued = store.begin(&path("file"), 1, &again);
    assert_eq!(continued.err().map(|e| e.kind), Some(ErrorKind::NotFound));
}

#[test]
fn errors_name_end_file_cause_and_remedy() {
    let missing = PosixStore::open(
        Path::new("/nonexistent"),
        End::Source,
        PosixOptions::default(),
    );
    let text = missing.expect_err("missing").to_string();
    assert_eq!(
        text,
        "cannot open the root at the source: not found (/nonexistent: No such file or \
         directory); check the path"
    );
    let (_folder, store) = sink();
    let text = store
        .make_dir(&path("none/a"))
        .expect_err("fails")
        .to_string();
    assert_eq!(
        text,
        "cannot create the folder at the sink: none/a: not found (No such file or directory); \
         check the path"
    );
}

#[test]
fn configured_folders_are_targets_and_the_rest_is_the_device() {
    let folder = TempDir::new().expect("a folder");
    let options = PosixOptions {
        targets: TargetMap::new([
            (path("ost0"), "slow".to_owned()),
            (path("ost1"), "fast".to_owned()),
        ]),
        ..PosixOptions::default()
    };
    let store = PosixStore::open(folder.path(), End::Sink, options).expect("opens");
    for at in ["ost0", "ost0/deep", "ost1", "other"] {
        store.make_dir(&path(at)).expect("makes");
        put(&store, &path(&format!("{at}/file"))).expect("writes");
    }
    let (listed, _) = list(&store, Links::Keep);
    let targets = store.targets();
    let files = listed
        .iter()
        .filter(|l| matches!(l.kind, EntryKind::File { .. }));
    let found: Vec<_> = files
        .map(|l| &targets[l.layout.target_at(0).0 as usize].name)
        .collect();
    assert_eq!(found[..3], ["slow", "slow", "fast"]);
    assert!(found[3].starts_with("device "), "{}", found[3]);
}

/// The tree has more nested folders than the process may open files. The usual limit is 1024, and
/// other tests run concurrently.
#[test]
fn a_tree_deeper_than_open_files_allow_is_listed() {
    const DEPTH: usize = 1500;
    let (_folder, store) = sink();
    let mut at = RelPath::root();
    let name = Name::new(b"d").expect("good");
    let last = Name::new(b"z").expect("good");
    for _ in 0..DEPTH {
        at = at.join(&name).expect("joins");
        store.make_dir(&at).expect("makes");
        // Add a second folder that comes after the first, so that the lister has to return to the
        // parent folder.
        let after = at
            .parent()
            .expect("not the root")
            .join(&last)
            .expect("joins");
        store.make_dir(&after).expect("makes");
    }
    let (listed, bad) = list(&store, Links::Keep);
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(listed.len(), 4 * DEPTH);
    assert_eq!(listed.iter().map(|l| l.depth).max(), Some(DEPTH - 1));
    let open = fs::read_dir("/proc/self/fd").expect("lists").count();
    assert!(open < 800, "{open} files are open");
}

#[test]
fn a_folder_read_in_many_batches_is_listed_once_each() {
    let folder = TempDir::new().expect("a folder");
    for index in 0..12_000 {
        let name = folder.path().join(format!("{index}"));
        if index % 3 == 0 {
            fs::create_dir(name).expect("makes");
        } else {
            fs::write(name, b"").expect("writes");
        }
    }
    let store = open(folder.path(), End::Source, LinkScope::Never);
    let (listed, bad) = list(&store, Links::Keep);
    assert!(bad.is_empty());
    assert_eq!(listed.len(), 12_000 + 4_000);
    let mut found = names(&listed);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 12_000);
}

#[test]
fn sync_takes_unreadable_files_and_links() {
    let (_folder, store) = sink();
    let name = Name::new(b".dray-p").expect("good");
    let metadata = Metadata::default();
    let (file, link) = (path("file"), path("link"));
    let id = store
        .write_small(&file, &name, b"x", &[], &Attributes::of(&metadata))
        .expect("writes");
    store
        .publish_small(&file, &name, id, Publish::IfAbsent)
        .expect("publishes");
    store
        .make_symlink(&link, &name, b"none", &metadata, Publish::IfAbsent)
        .expect("links");
    store
        .sync_all(&[SyncItem::File(&file), SyncItem::File(&link)])
        .expect("syncs");
}

#[test]
fn an_unreadable_entry_is_an_error_item_and_the_listing_continues() {
    if rustix::process::geteuid().is_root() {
        // Root can read every folder, so this test would prove nothing.
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let root = folder.path();
    fs::create_dir(root.join("closed")).expect("makes");
    fs::write(root.join("closed/inside"), b"x").expect("writes");
    fs::write(root.join("open"), b"x").expect("writes");
    fs::write(root.join("secret"), b"x").expect("writes");
    let chmod = |name: &str, mode: u32| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.join(name), permissions).expect("chmod");
    };
    chmod("secret", 0);
    let store = open(root, End::Source, LinkScope::Never);
    chmod("closed", 0o111);
    // The folder permits look-ups, so a file in it can be opened by its path.
    let opened = store.open_read(&path("closed/inside"), ReadPurpose::Transfer);
    assert!(opened.is_ok());
    chmod("closed", 0);
    let (good, bad) = list(&store, Links::Keep);
    assert_eq!(names(&good), ["open", "secret"]);
    assert_eq!(bad.len(), 1);
    let text = bad[0].to_string();
    assert!(
        text.starts_with("cannot list the folder at the source: closed: permission denied"),
        "{text}"
    );
    let secret = store.open_read(&path("secret"), ReadPurpose::Transfer);
    assert_eq!(
        secret.err().map(|e| e.kind),
        Some(ErrorKind::PermissionDenied)
    );
    chmod("closed", 0o700);
}

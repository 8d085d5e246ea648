//! Copies with both ends in one process, on a real file system.

mod local_common;

use dray_core::options::{Durability, Options, Order};
use dray_core::{Name, RelPath};
use dray_runtime::local;
use dray_session::{Event, Outcome};
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::{
    Notes, bytes, copy, destination, options, picture, sink_setup, sink_setup_claiming,
    sink_setup_of, sink_store, source_setup,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("run/deep/er")).expect("folders");
    fs::create_dir_all(at.join("empty")).expect("a folder");
    for index in 0..300u64 {
        let length = (index as usize * 37) % 9000;
        fs::write(
            at.join(format!("run/small-{index}")),
            bytes(index + 1, length),
        )
        .expect("a file");
    }
    for index in 0..5u64 {
        let name = format!("run/deep/large-{index}");
        fs::write(at.join(name), bytes(index + 99, 1_000_003)).expect("a file");
    }
    fs::write(at.join("run/deep/er/nothing"), b"").expect("a file");
    std::os::unix::fs::symlink("../run/small-1", at.join("run/link")).expect("a link");
    let hidden = at.join("run/private");
    fs::write(&hidden, b"secret").expect("a file");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o640)).expect("a mode");
}

#[test]
fn a_tree_arrives_identical_whatever_the_order_and_durability() {
    let scratch = tempfile::tempdir().expect("a folder");
    let from = scratch.path().join("from");
    make_tree(&from);
    let wanted = picture(&from);
    let orders = [Order::Layout, Order::File, Order::Random { seed: 7 }];
    let durabilities = [Durability::File, Durability::None, Durability::Object];
    for (index, (order, durability)) in orders.into_iter().zip(durabilities).enumerate() {
        let to = scratch.path().join(format!("to-{index}"));
        let options = Options {
            order,
            durability,
            verify: index == 2,
            ..options()
        };
        let (ends, events) = copy(&from, &to, &options);
        assert!(
            matches!(ends.source.0, Outcome::Done(_)),
            "{:?} {events:?}",
            ends.source.0
        );
        assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
        let failed: Vec<_> = events
            .iter()
            .filter(|e| matches!(e, Event::Failed(_)))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
        let got = picture(&to);
        assert_eq!(
            got.keys().collect::<Vec<_>>(),
            wanted.keys().collect::<Vec<_>>()
        );
        for (name, state) in &wanted {
            assert_eq!(&got[name], state, "{name}");
        }
    }
}

#[test]
fn a_second_run_adopts_everything() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    make_tree(&from);
    copy(&from, &to, &options());
    let (ends, _) = copy(&from, &to, &options());
    assert_eq!(ends.source.1.bytes_sent, 0);
    assert_eq!(ends.source.1.files_adopted, ends.source.1.files_listed);
}

#[test]
fn a_second_writer_is_refused_by_name() {
    let scratch = tempfile::tempdir().expect("a folder");
    let held = sink_setup(scratch.path(), &options()).expect("a destination");
    let error = sink_setup(scratch.path(), &options())
        .map(|_| ())
        .expect_err("it is held");
    assert_eq!(error.kind, dray_core::ErrorKind::LeaseHeld);
    assert!(error.cause.contains("transfer test"), "{error}");
    drop(held);
    assert!(sink_setup(scratch.path(), &options()).is_ok());
}

/// A transfer that writes a whole tree does not block transfers that write parts of the tree. A log
/// that an ended transfer has left for a part does not block anything either.
#[test]
fn parts_of_a_tree_that_is_written_are_free() {
    let scratch = tempfile::tempdir().expect("a folder");
    let inner = scratch.path().join("inner");
    let nested = || {
        let above = sink_store(scratch.path()).expect("a store");
        let path = RelPath::parse(b"inner").expect("a good path");
        let store = sink_store(&inner).expect("a store");
        destination(store, Some((above, path)), &options(), &[])
    };
    // Earlier transfers have begun both parts, and have ended.
    drop(nested().expect("a destination"));
    let part = || sink_setup_claiming(scratch.path(), &options(), &["a"]);
    drop(part().expect("a destination"));
    let held = sink_setup(scratch.path(), &options()).expect("a destination");
    let parts = (nested().map(|_| ()), part().map(|_| ()));
    assert!(parts.0.is_ok() && parts.1.is_ok(), "{parts:?}");
    drop(held);
    assert!(nested().is_ok() && part().is_ok());
}

/// The copy has more unfinished files than a process may open at the same time.
#[test]
fn many_large_files_at_once_need_few_descriptors() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    for index in 0..1500u64 {
        fs::write(from.join(format!("f{index}")), bytes(index + 1, 9000)).expect("a file");
    }
    let limit = rustix::process::Rlimit {
        current: Some(1000),
        maximum: Some(1000),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("a lower limit");
    let options = Options {
        object_bytes: 4096,
        order: Order::Random { seed: 5 },
        ..options()
    };
    let (ends, events) = copy(&from, &to, &options);
    let failed: Vec<_> = events
        .iter()
        .filter(|e| matches!(e, Event::Failed(_)))
        .collect();
    assert!(
        failed.is_empty(),
        "{} failed, first {:?}",
        failed.len(),
        failed.first()
    );
    assert!(matches!(ends.sink.0, Outcome::Done(totals) if totals.files == 1500));
    assert_eq!(picture(&to), picture(&from));
}

#[test]
fn holes_of_every_size_arrive_as_they_are() {
    use std::os::unix::fs::FileExt;
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    let file = fs::File::create(from.join("comb")).expect("a file");
    file.set_len(64 << 20).expect("a length");
    for tooth in 0..100u64 {
        let data = bytes(tooth + 1, 20_000);
        file.write_all_at(&data, tooth * 40_960).expect("data");
    }
    file.write_all_at(b"the end", (64 << 20) - 7).expect("data");
    let options = Options {
        object_bytes: 8 << 20,
        ..options()
    };
    let (ends, events) = copy(&from, &to, &options);
    assert!(
        matches!(ends.sink.0, Outcome::Done(totals) if totals.files == 1),
        "{events:?}"
    );
    assert!(
        ends.source.1.bytes_sent < 16 << 20,
        "{} bytes sent",
        ends.source.1.bytes_sent
    );
    assert!(fs::read(from.join("comb")).expect("read") == fs::read(to.join("comb")).expect("read"));
    let blocks = |path: &Path| fs::metadata(path).expect("a state").blocks();
    assert!(blocks(&to.join("comb")) < 2 * blocks(&from.join("comb")) + 16_384);
}

/// A file that is sent in a single object keeps its holes. They are at either end of the file, in
/// the middle, or everywhere.
#[test]
fn small_files_keep_their_holes() {
    use std::os::unix::fs::FileExt;
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    let data = bytes(3, 40_000);
    let sparse: [(&str, u64, &[u64]); 6] = [
        ("nothing", 700_001, &[]),
        ("begin", 700_002, &[0]),
        ("middle", 700_003, &[300_000]),
        ("end", 700_004, &[660_004]),
        ("ends", 700_005, &[0, 660_005]),
        ("one-object", 1 << 20, &[65_536, 524_288]),
    ];
    for (name, length, places) in sparse {
        let file = fs::File::create(from.join(name)).expect("a file");
        file.set_len(length).expect("a length");
        for place in places {
            file.write_all_at(&data, *place).expect("data");
        }
    }
    fs::write(from.join("plain"), &data).expect("a file");
    let options = Options {
        object_bytes: 1 << 20,
        ..options()
    };
    let (ends, events) = copy(&from, &to, &options);
    assert!(
        matches!(ends.sink.0, Outcome::Done(totals) if totals.files == 7),
        "{events:?}"
    );
    assert_eq!(picture(&from), picture(&to));
    let blocks = |path: &Path| fs::metadata(path).expect("a state").blocks();
    assert!(blocks(&to) < 2 * blocks(&from) + 512);
    for (name, length, _) in sparse {
        let kept = blocks(&to.join(name)) * 512;
        assert!(
            kept < length / 2,
            "{name}: {kept} of {length} bytes are kept"
        );
    }
}

/// A copy into one folder of a tree uses the log of the whole tree. When that copy ends, the log
/// must keep the records of the other files.
#[test]
fn a_copy_below_a_logged_tree_leaves_the_trees_records() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("large"), bytes(3, 3_000_000)).expect("a file");
    // Stop a copy of the whole tree in the middle.
    let slow = Options {
        rate: Some(1_000_000),
        ..options()
    };
    let sink = sink_setup(&to, &slow).expect("a destination");
    local::run(
        source_setup(&from, &slow),
        sink,
        &Notes::default(),
        |stopper| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1500));
                stopper.stop(false);
            });
        },
    )
    .expect("started");
    // A request for a folder of the tree, which the same log covers.
    let other = scratch.path().join("other");
    fs::create_dir_all(&other).expect("a folder");
    fs::write(other.join("x"), b"x").expect("a file");
    let sink = sink_setup_claiming(&to, &options(), &["x"]).expect("a destination");
    let ends = local::run(
        source_setup(&other, &options()),
        sink,
        &Notes::default(),
        |_| {},
    );
    assert!(matches!(ends.expect("started").sink.0, Outcome::Done(totals) if totals.files == 1));
    let (ends, _) = copy(&from, &to, &options());
    assert!(
        ends.source.1.objects_resumed > 0,
        "the first copy's objects are still known"
    );
    assert_eq!(fs::read(to.join("large")).expect("read").len(), 3_000_000);
    assert!(
        !to.join(".dray-log").exists(),
        "the last one out removes the log"
    );
}

#[test]
fn a_file_of_another_size_than_asked_is_not_published() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir(&from).expect("a folder");
    fs::write(from.join("file"), bytes(1, 200_000)).expect("a file");
    let copy_of = |size| {
        let mut source = source_setup(&from, &options());
        source.selection.size = Some(size);
        source.selection.rename = Some(Name::new(b"other").expect("a name"));
        // Read the file itself instead of a folder's contents, so that the new name applies.
        source.roots[0].path = RelPath::parse(b"file").expect("a path");
        source.roots[0].contents = false;
        let notes = Notes::default();
        let sink = sink_setup(&to, &options()).expect("a destination");
        let ends = local::run(source, sink, &notes, |_| {}).expect("ran");
        (ends, notes.0.into_inner().expect("whole"))
    };
    let (ends, events) = copy_of(200_001);
    let Outcome::Done(totals) = ends.source.0 else {
        panic!("{:?}", ends.source.0);
    };
    assert_eq!(totals.files_failed, 1);
    let told = format!("{events:?}");
    assert!(
        told.contains("200000 bytes, but the request states a size of 200001 bytes"),
        "{told}"
    );
    assert!(!to.join("other").exists());
    let (ends, _) = copy_of(200_000);
    assert!(matches!(ends.source.0, Outcome::Done(totals) if totals.files_failed == 0));
    assert_eq!(fs::read(to.join("other")).expect("there").len(), 200_000);
}

/// A store wrapper that counts the stat calls on links.
struct Looks(Arc<AtomicUsize>);

impl Hook for Looks {
    fn before(&self, call: &Call<'_>) -> dray_core::Result<()> {
        let is_link = call.path.to_string().contains("link");
        if call.operation == Operation::Stat && is_link {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[test]
fn links_in_folders_that_the_copy_has_made_need_no_look() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(from.join("new")).expect("a folder");
    fs::create_dir_all(from.join("old")).expect("a folder");
    fs::create_dir_all(to.join("old")).expect("a folder");
    for number in 0..10 {
        for folder in ["new", "old"] {
            let link = from.join(folder).join(format!("link-{number}"));
            std::os::unix::fs::symlink("nowhere", link).expect("a link");
        }
    }
    let looks = Arc::default();
    let store = Around::new(sink_store(&to).expect("a store"), Looks(Arc::clone(&looks)));
    let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
    let source = source_setup(&from, &options());
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    assert_eq!(
        looks.load(Ordering::Relaxed),
        10,
        "one for each in the old folder"
    );
    assert_eq!(fs::read_dir(to.join("new")).expect("a folder").count(), 10);
}

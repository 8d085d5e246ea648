//! Transfers to all disks of a store, and transfers to the folder of one of the disks, do not see
//! all logs of each other. So they keep the partial files of each other.

mod local_common;

use dray_core::{End, Error, ErrorKind};
use dray_runtime::local;
use dray_store::Store;
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::disks::{contents, disks, left, open, partials, sink_of, three_files};
use local_common::sweeps::{copy_in_part_to, copy_to, durable_options};
use local_common::{
    Notes, bytes, options, sink_setup_claiming, sink_setup_of, source_setup_of, source_store,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the paths of two partial files that are in no log: of the plain form, and of the form
/// for several disks. Names are random, so each disk has other names.
fn strays(disk: usize) -> [String; 2] {
    let name = format!("run/.dray-0123456789abcde{disk:x}");
    [format!("{name}.part"), format!("{name}.disks.part")]
}

/// Copies `from` to the folder of one disk.
fn copy_to_disk(from: &Path, disk: &Path) {
    let sink = sink_setup_claiming(disk, &options(), &[]).expect("a destination");
    copy_to(from, sink);
}

/// Returns the partial files of all disks with their contents.
fn partial_files(dirs: &[PathBuf]) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = left(dirs).into_iter().zip(dirs);
    let paths = names.flat_map(|(names, dir)| names.into_iter().map(|name| dir.join(name)));
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "part"));
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("a file"));
    paths.map(read).collect()
}

#[test]
fn a_copy_to_one_disk_keeps_the_partial_files_of_all_disks() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    copy_in_part_to(&from, sink_of(&dirs));
    let before = partial_files(&dirs);
    assert_eq!(before.len(), 3);
    for dir in &dirs {
        copy_to_disk(&from, dir);
        assert!(contents(dir) == contents(&from), "another tree has arrived");
        assert!(partial_files(&dirs) == before, "{:?}", left(&dirs));
    }
    copy_to(&from, sink_of(&dirs));
    assert_eq!(partials(&left(&dirs)), [0, 0, 0]);
}

#[test]
fn a_copy_to_all_disks_keeps_the_partial_files_of_one_disk() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    // The logs of these copies are not on the first disk.
    for dir in &dirs[1..] {
        let sink = sink_setup_claiming(dir, &durable_options(), &[]).expect("a destination");
        copy_in_part_to(&from, sink);
    }
    let before = partial_files(&dirs);
    assert_eq!(before.len(), 6);
    copy_to(&from, sink_of(&dirs));
    let got: BTreeMap<_, _> = dirs.iter().flat_map(|dir| contents(dir)).collect();
    assert!(got == contents(&from), "another tree has arrived");
    assert!(partial_files(&dirs) == before, "{:?}", left(&dirs));
    for dir in &dirs {
        copy_to_disk(&from, dir);
    }
    assert_eq!(left(&dirs), [[""; 0]; 3]);
}

#[test]
fn a_copy_that_resumes_removes_only_stray_files_of_its_own_form() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    copy_in_part_to(&from, sink_of(&dirs));
    for (number, dir) in dirs.iter().enumerate() {
        for path in strays(number) {
            fs::write(dir.join(path), b"half").expect("written");
        }
    }
    copy_to(&from, sink_of(&dirs));
    let kept = [0, 1, 2].map(|number| strays(number).into_iter().take(1).collect::<Vec<_>>());
    assert_eq!(left(&dirs), kept);
    let disk = &dirs[1];
    fs::remove_dir_all(disk.join("run")).expect("removed");
    let part = || sink_setup_claiming(disk, &durable_options(), &[]).expect("a destination");
    copy_in_part_to(&from, part());
    let paths = strays(1);
    for path in &paths {
        fs::write(disk.join(path), b"half").expect("written");
    }
    copy_to_disk(&from, disk);
    assert_eq!(left(&dirs)[1], paths[1..]);
}

/// A store wrapper that fails each publication.
struct Unpublished;

impl Hook for Unpublished {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        match call.operation {
            Operation::Publish => {
                let error = Error::new(ErrorKind::PermissionDenied, End::Sink, "publish");
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn a_copy_to_the_first_disk_keeps_the_log_of_all_disks() {
    let scratch = tempfile::tempdir().expect("a folder");
    let dirs = disks(scratch.path());
    let from = scratch.path().join("from");
    fs::create_dir(&from).expect("a folder");
    let store: Arc<dyn Store> = Arc::new(open(&dirs));
    // The first file takes the first disk, and the second file another disk.
    fs::write(from.join("a"), bytes(1, 300_000)).expect("a file");
    let sink = sink_setup_of(Arc::clone(&store), &durable_options(), &["a"]);
    copy_to(&from, sink.expect("a destination"));
    fs::write(from.join("b"), bytes(2, 3_000_000)).expect("a file");
    let unpublished = Arc::new(Around::new(Arc::clone(&store), Unpublished));
    let sink = sink_setup_of(unpublished, &durable_options(), &["b"]).expect("a destination");
    let source = source_setup_of(source_store(&from), &durable_options());
    local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    let before = left(&dirs);
    assert_eq!(partials(&before)[0], 0, "{before:?}");
    assert_eq!(partials(&before).iter().sum::<usize>(), 1, "{before:?}");
    assert!(before[0].iter().any(|name| name.ends_with(".log")));
    copy_to_disk(&from, &dirs[0]);
    assert_eq!(left(&dirs), before);
}

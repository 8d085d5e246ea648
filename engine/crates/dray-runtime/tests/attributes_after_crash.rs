//! Data that was reported as durable survives a crash of the sink's host, with its attributes.

mod local_common;

use dray_core::{End, RelPath};
use dray_runtime::local;
use dray_session::Outcome;
use dray_store::{MemoryStore, PosixOptions, PosixStore, ReadExt, ReadPurpose, Store};
use local_common::{Notes, bytes, options, sink_setup_of, source_setup};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn age(path: &Path, mode: u32) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + u64::from(mode));
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    let file = fs::File::open(path).expect("opens");
    file.set_modified(then).expect("a time");
}

#[test]
fn attributes_survive_a_crash_right_after_the_end() {
    let scratch = tempfile::tempdir().expect("a folder");
    let from = scratch.path().join("from");
    fs::create_dir_all(from.join("folder/empty-folder")).expect("a folder");
    let object = usize::try_from(options().object_bytes).expect("small");
    for (name, length) in [("large", 5 * object), ("small", 100), ("empty", 0)] {
        let path = from.join("folder").join(name);
        fs::write(&path, bytes(1, length)).expect("a file");
        age(&path, 0o640);
    }
    std::os::unix::fs::symlink("large", from.join("folder/link")).expect("a link");
    age(&from.join("folder/empty-folder"), 0o750);
    age(&from.join("folder"), 0o711);

    let to = Arc::new(MemoryStore::new(End::Sink));
    let store: Arc<dyn Store> = Arc::clone(&to) as Arc<dyn Store>;
    let sink = sink_setup_of(store, &options(), &[]).expect("a destination");
    let source = source_setup(&from, &options());
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    to.crash();

    let read = PosixStore::open(&from, End::Source, PosixOptions::default()).expect("opens");
    for name in [
        "folder",
        "folder/empty-folder",
        "folder/large",
        "folder/small",
        "folder/empty",
        "folder/link",
    ] {
        let path = RelPath::parse(name.as_bytes()).expect("a good path");
        let state = |store: &dyn Store| {
            let state = store.stat(&path).expect("looks");
            state.map(|state| (state.kind, state.mode, state.modified))
        };
        assert_eq!(state(to.as_ref()), state(&read), "{name}");
    }
    let large = RelPath::parse(b"folder/large").expect("a good path");
    let mut content = vec![0; 5 * object + 1];
    let handle = to.open_read(&large, ReadPurpose::Transfer).expect("opens");
    let count = handle.read_full_at(0, &mut content).expect("reads");
    assert!(content[..count] == bytes(1, 5 * object));
}

//! Tests errors of a host with exhausted resources. This file has only one test, because the test
//! sets limits for the whole process.

use dray_core::{End, ErrorKind, Metadata, Name, RelPath};
use dray_store::{Attributes, PosixOptions, PosixStore, Store, SyncItem};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

#[test]
fn a_sync_without_a_free_descriptor_fails_as_a_whole() {
    let folder = TempDir::new().expect("a folder");
    let store = PosixStore::open(folder.path(), End::Sink, PosixOptions::default()).expect("opens");
    let path = RelPath::parse(b"file").expect("a good path");
    let name = Name::new(b".dray-0.part").expect("a name");
    let metadata = Metadata::default();
    let attributes = Attributes::of(&metadata);
    store
        .write_small(&path, &name, b"x", &[], &attributes)
        .expect("written");
    let item = SyncItem::Partial {
        path: &path,
        name: &name,
    };
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..before
    };
    setrlimit(Resource::Nofile, none).expect("lowered");
    let synced = store.sync_each(&[item]);
    setrlimit(Resource::Nofile, before).expect("raised again");
    let error = synced.expect_err("it says nothing of the file");
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    let synced = store.sync_each(&[item]).expect("synced");
    assert!(matches!(&synced[..], [Ok(())]), "{synced:?}");
}

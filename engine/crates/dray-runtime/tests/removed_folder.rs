//! Another program removes a folder during a copy. Only the files in that folder fail.

mod local_common;

use dray_core::Error;
use dray_core::options::{Durability, Options};
use dray_runtime::local;
use dray_session::{Event, Outcome};
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::{Notes, bytes, options, sink_setup_of, sink_store, source_setup};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A store wrapper that removes folders immediately before the `nth` sync.
struct Removes {
    nth: AtomicU32,
    folders: Vec<PathBuf>,
}

impl Hook for Removes {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if call.operation == Operation::SyncEach && self.nth.fetch_sub(1, Ordering::Relaxed) == 1 {
            for folder in &self.folders {
                // The folder may not exist yet.
                let _ = fs::remove_dir_all(folder);
            }
            // Wait longer than a store caches the location of a folder.
            std::thread::sleep(std::time::Duration::from_millis(1100));
        }
        Ok(())
    }
}

fn make_tree(at: &Path) {
    for folder in ["kept", "doomed", "doomed/deep"] {
        let folder = at.join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        for index in 0..3u64 {
            fs::write(folder.join(format!("small-{index}")), bytes(index + 1, 900))
                .expect("a file");
        }
        fs::write(folder.join("large"), bytes(9, 700_000)).expect("a file");
    }
}

#[test]
fn a_folder_that_vanishes_fails_only_its_own_files() {
    for durability in [Durability::File, Durability::Object] {
        for nth in 1..=3 {
            let scratch = tempfile::tempdir().expect("a folder");
            let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
            make_tree(&from);
            let options = Options {
                durability,
                ..options()
            };
            let removes = Removes {
                nth: AtomicU32::new(nth),
                folders: vec![to.join("doomed")],
            };
            let store = Arc::new(Around::new(sink_store(&to).expect("a store"), removes));
            let sink = sink_setup_of(store, &options, &[]).expect("a destination");
            let notes = Notes::default();
            let ends =
                local::run(source_setup(&from, &options), sink, &notes, |_| {}).expect("started");
            let what = format!("{durability:?}, before sync {nth}");
            let Outcome::Done(totals) = &ends.sink.0 else {
                panic!("{what}: {:?}", ends.sink.0);
            };
            assert!(matches!(ends.source.0, Outcome::Done(_)), "{what}");
            let events = notes.0.into_inner().expect("no panic while noting");
            let failed: BTreeSet<String> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Failed(failure) => Some(failure.path.to_string()),
                    _ => None,
                })
                .collect();
            assert!(
                failed.iter().all(|path| path.starts_with("doomed")),
                "{what}: {failed:?}"
            );
            assert_eq!(totals.files_failed, failed.len() as u64, "{what}");
            for name in ["small-0", "small-1", "small-2", "large"] {
                let read = |top: &Path| fs::read(top.join("kept").join(name)).expect("read");
                assert!(read(&from) == read(&to), "{what}: {name}");
            }
        }
    }
}

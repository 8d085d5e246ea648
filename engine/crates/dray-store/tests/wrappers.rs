//! Tests the wrappers limit, trace and chaos. Also tests that the memory store loses data that was
//! not synced.

use dray_core::rate::BytesPerSecond;
use dray_core::{End, ErrorKind, Metadata, Name, RelPath};
use dray_store::wrap::chaos::{ChaosOptions, Fault, Rule};
use dray_store::wrap::limit::{LimitOptions, TargetLimits};
use dray_store::wrap::{Operation, trace};
use dray_store::{
    Attributes, MemoryStore, NullStore, NullTree, PartialRequest, PosixOptions, PosixStore,
    Publish, ReadExt, ReadPurpose, Store, StoreExt, SyncItem, TargetMap, WrapOptions, wrap,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a good path")
}

fn partial_name() -> Name {
    Name::new(b".dray-p").expect("a good name")
}

fn write(store: &dyn Store, at: &str, bytes: &[u8]) -> dray_core::Result<()> {
    let request = PartialRequest {
        name: partial_name(),
        reuse: None,
    };
    let partial = store.begin(&path(at), bytes.len() as u64, &request)?;
    partial.write_at(0, bytes)?;
    partial.sync()?;
    partial.publish(Publish::Replace, &Attributes::of(&Metadata::default()))
}

fn read(store: &dyn Store, at: &str) -> dray_core::Result<Vec<u8>> {
    let handle = store.open_read(&path(at), ReadPurpose::Transfer)?;
    let mut bytes = vec![0; 100_000];
    let count = handle.read_full_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

#[test]
fn one_target_is_limited_and_the_other_is_not() {
    let map = TargetMap::new([
        (path("slow"), "slow".to_owned()),
        (path("fast"), "fast".to_owned()),
    ]);
    let memory = MemoryStore::with_targets(End::Sink, map);
    for folder in ["slow", "fast"] {
        memory.make_dir(&path(folder)).expect("makes");
    }
    let limit = LimitOptions {
        whole: None,
        targets: [("slow".to_owned(), BytesPerSecond(500_000).into())]
            .into_iter()
            .collect(),
    };
    let options = WrapOptions {
        limit: Some(limit),
        ..WrapOptions::default()
    };
    let store = wrap(Arc::new(memory), options);
    let time = |at: &str| {
        let started = Instant::now();
        write(&*store, at, &[1; 100_000]).expect("writes");
        started.elapsed()
    };
    assert!(time("slow/file") >= Duration::from_millis(170));
    assert!(time("fast/file") < Duration::from_millis(150));
}

#[test]
fn a_file_that_takes_one_writer_does_so_past_a_hook_that_does_not_delay() {
    let folder = tempfile::tempdir().expect("a folder");
    let takes_one = |options: WrapOptions| {
        let posix = PosixStore::open(folder.path(), End::Sink, PosixOptions::default());
        let store = wrap(Arc::new(posix.expect("opens")), options);
        let request = PartialRequest {
            name: partial_name(),
            reuse: None,
        };
        let partial = store.begin(&path("a"), 1 << 20, &request).expect("begins");
        partial.abort().expect("removed");
        partial.takes_one_writer()
    };
    let plain = takes_one(WrapOptions::default());
    let traced = takes_one(WrapOptions {
        trace: Some(trace::json_lines(std::io::sink())),
        ..WrapOptions::default()
    });
    assert_eq!(traced, plain);
    let limited = takes_one(WrapOptions {
        limit: Some(LimitOptions {
            whole: Some(BytesPerSecond(1 << 30)),
            targets: TargetLimits::default(),
        }),
        ..WrapOptions::default()
    });
    assert!(!limited);
}

#[test]
fn trace_tells_calls_with_ranges_times_and_errors() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let options = WrapOptions {
        trace: Some(trace::json_lines(Lines(Arc::clone(&lines)))),
        ..WrapOptions::default()
    };
    let store = wrap(Arc::new(MemoryStore::new(End::Sink)), options);
    write(&*store, "file", b"12345").expect("writes");
    assert!(read(&*store, "none").is_err());
    let text = String::from_utf8(lines.lock().expect("not poisoned").clone()).expect("text");
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let names: Vec<_> = events.iter().map(|e| e["operation"].as_str()).collect();
    let expected = ["begin", "write", "sync", "publish", "open_read"].map(Some);
    assert_eq!(names, expected);
    assert_eq!(events[1]["length"], 5);
    assert_eq!(events[1]["path"], "file");
    assert!(
        events[4]["error"]
            .as_str()
            .is_some_and(|e| e.contains("not found"))
    );
}

fn chaotic(seed: u64, rules: Vec<Rule>) -> Arc<dyn Store> {
    let tree = NullTree {
        folders: 1,
        files_per_folder: 200,
        file_bytes: 1000,
        pattern: Some(3),
    };
    let chaos = ChaosOptions {
        seed,
        rules,
        end: End::Source,
    };
    let options = WrapOptions {
        chaos: Some(chaos),
        ..WrapOptions::default()
    };
    wrap(Arc::new(NullStore::new(End::Source, tree)), options)
}

#[test]
fn chaos_injects_by_seed_path_and_probability() {
    let rules = vec![
        Rule {
            operations: vec![Operation::OpenRead],
            pattern: b"*9".to_vec(),
            probability: 1.0,
            fault: Fault::Error(ErrorKind::Io),
        },
        Rule {
            operations: vec![Operation::Read],
            pattern: b"*".to_vec(),
            probability: 0.25,
            fault: Fault::FlipBit,
        },
    ];
    let clean = chaotic(0, Vec::new());
    let run = |seed| {
        let store = chaotic(seed, rules.clone());
        let outcome = |index: u32| {
            let at = format!("d0/f{index}");
            let good = read(&*clean, &at).expect("reads");
            match read(&*store, &at) {
                Err(error) => format!("{:?} of {:?}", error.kind, error.file),
                Ok(bytes) => {
                    let pairs = bytes.iter().zip(&good);
                    let flipped: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
                    flipped.to_string()
                }
            }
        };
        (0..200).map(outcome).collect::<Vec<_>>()
    };
    let first = run(1);
    assert_eq!(first, run(1), "the same seed injects into the same calls");
    assert_ne!(first, run(2));
    let count = |what: &str| {
        first
            .iter()
            .filter(|outcome| outcome.starts_with(what))
            .count()
    };
    assert_eq!(count("Io"), 20);
    assert!((20..80).contains(&count("1")), "{first:?}");
    assert!(count("0") > 80);
}

#[test]
fn memory_forgets_what_was_not_synced() {
    let store = MemoryStore::new(End::Sink);
    store.make_dir(&path("kept")).expect("makes");
    store.make_dir(&path("lost")).expect("makes");
    write(&store, "kept/published", b"bytes").expect("writes");
    write(&store, "lost/unsynced", b"bytes").expect("writes");
    let root = RelPath::root();
    store
        .sync_all(&[SyncItem::Folder(&path("kept"))])
        .expect("syncs");

    let request = PartialRequest {
        name: partial_name(),
        reuse: None,
    };
    let partial = store
        .begin(&path("kept/partial"), 8, &request)
        .expect("begins");
    partial.write_at(0, b"safe").expect("writes");
    partial.sync().expect("syncs");
    partial.write_at(4, b"gone").expect("writes");
    let id = partial.id();
    drop(partial);

    store.crash();
    assert_eq!(read(&store, "kept/published").expect("reads"), b"bytes");
    assert_eq!(
        read(&store, "lost/unsynced").err().map(|e| e.kind),
        Some(ErrorKind::NotFound)
    );
    let again = PartialRequest {
        reuse: Some(id),
        ..request
    };
    let partial = store
        .begin(&path("kept/partial"), 8, &again)
        .expect("continues");
    let mut bytes = [1; 8];
    assert_eq!(partial.read_at(0, &mut bytes).expect("reads"), 8);
    assert_eq!(&bytes, b"safe\0\0\0\0");
    drop(partial);
    store.sync_all(&[SyncItem::Folder(&root)]).expect("syncs");
}

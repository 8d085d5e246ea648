//! Helpers for tests with both ends in one process.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its part, and sees it as a module"
)]

pub mod disks;
pub mod sweeps;

use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{End, ErrorKind, RelPath, TransferId};
use dray_runtime::observe::Observer;
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_runtime::source::Root;
use dray_runtime::{local, sink, source};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::Event;
use dray_store::wrap::chaos::{ChaosOptions, Fault, Rule};
use dray_store::wrap::{Operation, WrapOptions, wrap};
use dray_store::{PosixOptions, PosixStore, Store};
use dray_wire::message::Selection;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
pub struct Notes(pub Mutex<Vec<Event>>);

impl Observer for Notes {
    fn event(&self, event: &Event) {
        self.0
            .lock()
            .expect("no panic while noting")
            .push(event.clone());
    }
}

pub fn options() -> Options {
    Options {
        object_bytes: 64 * 1024,
        ..Options::default()
    }
}

pub fn source_store(from: &Path) -> Arc<dyn Store> {
    Arc::new(PosixStore::open(from, End::Source, PosixOptions::default()).expect("a source"))
}

/// Returns a source store whose reads fail with this probability. For the same seed, the same calls
/// fail.
pub fn failing_store(from: &Path, seed: u64, probability: f64) -> Arc<dyn Store> {
    let chaos = ChaosOptions {
        seed,
        rules: vec![Rule {
            operations: vec![Operation::Read],
            pattern: b"*".to_vec(),
            probability,
            fault: Fault::Error(ErrorKind::PermissionDenied),
        }],
        end: End::Source,
    };
    let options = WrapOptions {
        chaos: Some(chaos),
        ..WrapOptions::default()
    };
    wrap(source_store(from), options)
}

pub fn source_setup(from: &Path, options: &Options) -> source::Setup {
    source_setup_of(source_store(from), options)
}

pub fn source_setup_of(store: Arc<dyn Store>, options: &Options) -> source::Setup {
    source::Setup {
        roots: vec![Root {
            store,
            path: RelPath::root(),
            top: "/".into(),
            name: None,
            contents: true,
        }],
        selection: Selection {
            recursive: true,
            ..Selection::default()
        },
        machine: dray_session::source::Config {
            options: options.clone(),
            buffers: 16,
            buffer_bytes: options.object_bytes,
            readers: ThreadCount::Fixed(4),
            segments_max: 256,
            live_entries_max: 4096,
            retry: RetryPolicy::default(),
            seed: 1,
            attempt: 1,
            is_driver: false,
            announces_early: false,
        },
        checkpoint: None,
    }
}

pub fn sink_setup(to: &Path, options: &Options) -> dray_core::Result<sink::Setup> {
    sink_setup_claiming(to, options, &[])
}

pub fn sink_setup_claiming(
    to: &Path,
    options: &Options,
    claims: &[&str],
) -> dray_core::Result<sink::Setup> {
    sink_setup_of(sink_store(to)?, options, claims)
}

pub fn sink_store(to: &Path) -> dray_core::Result<Arc<dyn Store>> {
    let posix = PosixOptions {
        create: true,
        ..PosixOptions::default()
    };
    Ok(Arc::new(PosixStore::open(to, End::Sink, posix)?))
}

pub fn destination(
    store: Arc<dyn Store>,
    above: Option<(Arc<dyn Store>, RelPath)>,
    options: &Options,
    claims: &[&str],
) -> dray_core::Result<Destination> {
    Destination::open(DestinationRequest {
        store,
        above,
        claims: claims
            .iter()
            .map(|claim| RelPath::parse(claim.as_bytes()))
            .collect::<dray_core::Result<_>>()?,
        transfer: TransferId::new("test")?,
        owner: b"uid:0".to_vec(),
        durability: options.durability,
        log: None,
        words: "the destination".to_owned(),
    })
}

pub fn sink_setup_of(
    store: Arc<dyn Store>,
    options: &Options,
    claims: &[&str],
) -> dray_core::Result<sink::Setup> {
    let destination = destination(store, None, options, claims)?;
    Ok(sink::Setup {
        destination,
        machine: dray_session::sink::Config {
            options: options.clone(),
            demanded: None,
            required: BTreeMap::new(),
            identity: Vec::new(),
            buffers: 16,
            buffer_bytes: options.object_bytes,
            writers: ThreadCount::Fixed(4),
            live_entries_max: 4096,
            claims: Vec::new(),
            precision_nanoseconds: 1,
            ordered_window: None,
            holes: true,
            sync_group_bytes: 64 << 20,
            unsafe_bytes_max: 64 << 20,
            sync_interval: Duration::from_millis(500),
            syncs_apart: false,
            writes_durably: false,
            attempt: 1,
            is_driver: false,
        },
    })
}

pub fn copy(from: &Path, to: &Path, options: &Options) -> (local::Ends, Vec<Event>) {
    let notes = Notes::default();
    let sink = sink_setup(to, options).expect("a destination");
    let ends = local::run(source_setup(from, options), sink, &notes, |_| {}).expect("started");
    (ends, notes.0.into_inner().expect("no panic while noting"))
}

pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(step).take(length).collect()
}

/// Returns for each entry of a tree the properties that a copy must keep: type, mode, time,
/// content.
pub fn picture(at: &Path) -> BTreeMap<String, (u32, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![at.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path
                .strip_prefix(at)
                .expect("below")
                .to_string_lossy()
                .into_owned();
            let state = fs::symlink_metadata(&path).expect("a state");
            let content = if state.is_file() {
                fs::read(&path).expect("content")
            } else if state.is_symlink() {
                fs::read_link(&path)
                    .expect("a link")
                    .to_string_lossy()
                    .into_owned()
                    .into()
            } else {
                waiting.push(path.clone());
                Vec::new()
            };
            all.insert(
                name,
                (state.mode(), state.mtime(), state.mtime_nsec(), content),
            );
        }
    }
    all
}

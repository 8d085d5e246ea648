//! Datasets (top-level folders at the destination). The source completes the smallest dataset
//! before it begins another.

use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    ByteRange, Entry, EntryKind, FileIndex, Layout, Metadata, Name, RelPath, StreamId, Sums,
    TargetId, Time,
};
use dray_sched::tuner::threads::ThreadCount;
use dray_session::source::{Config, Effect, Input, Listed, ReadOutcome, Source};
use dray_wire::message::{FileId, FileVerdict, Message, Ready, Segment, SegmentKind};
use std::collections::VecDeque;

const OBJECT: u64 = 1 << 20;
const TARGET: TargetId = TargetId(0);

fn source() -> Source {
    let mut source = Source::new(Config {
        options: Options::default(),
        buffers: 1,
        buffer_bytes: OBJECT,
        readers: ThreadCount::Fixed(4),
        segments_max: 16,
        live_entries_max: 1000,
        retry: RetryPolicy::default(),
        seed: 1,
        attempt: 1,
        is_driver: false,
        announces_early: false,
    });
    let ready = Ready {
        precision_nanoseconds: 1,
        object_bytes_max: OBJECT,
        live_entries_max: 1000,
        pack_bytes_max: OBJECT,
        holes: true,
        ordered_window: None,
    };
    let credit = vec![(TARGET, 1000)];
    for input in [
        Input::Message(Message::Ready(ready)),
        Input::StreamUp(StreamId(0)),
        Input::Message(Message::Credit(credit)),
    ] {
        source.handle(input, Time::ZERO);
    }
    source
}

fn listed(index: u64, parent: Option<u64>, name: &str, kind: EntryKind) -> Listed {
    let path = RelPath::parse(name.as_bytes()).expect("a good path");
    Listed {
        entry: Entry {
            index: FileIndex(index),
            parent: parent.map(FileIndex),
            name: path
                .name()
                .unwrap_or_else(|| Name::new(b"x").expect("good")),
            kind,
            metadata: Metadata::default(),
        },
        path,
        layout: Layout::Single(TARGET),
    }
}

/// Returns a listing of folders. `files` has the number of files of each folder, in the order of
/// the listing. Each file has two objects. Also returns the folder of each entry.
fn folders(files: &[u64]) -> (Vec<Listed>, Vec<usize>) {
    let (mut entries, mut folder_of) = (Vec::new(), Vec::new());
    for (folder, files) in files.iter().enumerate() {
        let index = folder_of.len() as u64;
        let name = format!("folder{folder}");
        entries.push(listed(index, None, &name, EntryKind::Directory));
        folder_of.push(folder);
        for file in 0..*files {
            let kind = EntryKind::File {
                size: 2 * OBJECT,
                sparse: false,
            };
            let path = format!("{name}/{file}");
            entries.push(listed(index + 1 + file, Some(index), &path, kind));
            folder_of.push(folder);
        }
        entries.push(listed(index, None, &name, EntryKind::DirectoryEnd));
    }
    (entries, folder_of)
}

/// Returns the sink's decision to receive all announced files completely.
fn decide(entries: &[Entry]) -> Input {
    let is_file = |entry: &&Entry| matches!(entry.kind, EntryKind::File { .. });
    let want = |entry: &Entry| FileId {
        index: entry.index,
        verdict: FileVerdict::Want {
            object_bytes: OBJECT,
            layout: Layout::Single(TARGET),
        },
    };
    let ids = entries.iter().filter(is_file).map(want);
    Input::Message(Message::FileIds(ids.collect()))
}

fn read(range: ByteRange, file: FileIndex) -> ReadOutcome {
    ReadOutcome {
        segments: vec![Segment {
            file,
            range,
            kind: SegmentKind::Data(Sums::EMPTY),
        }],
        ..ReadOutcome::default()
    }
}

/// Returns the folder of each object, in the order of the reads. The listing arrives in two
/// batches: `first` entries immediately, and all others after `before` objects were read.
fn reads(files: &[u64], first: usize, before: usize) -> Vec<usize> {
    let (mut entries, folder_of) = folders(files);
    let later = entries.split_off(first);
    let mut batches: VecDeque<_> = [(entries, false), (later, true)].into();
    let mut source = source();
    let mut reads = Vec::new();
    let mut inputs = VecDeque::new();
    loop {
        let is_due = batches.len() == 2 || reads.len() >= before || inputs.is_empty();
        if is_due && let Some((entries, finished)) = batches.pop_front() {
            let failed = Vec::new();
            inputs.push_front(Input::Listed {
                entries,
                failed,
                finished,
            });
        }
        let Some(input) = inputs.pop_front() else {
            break;
        };
        source.handle(input, Time::ZERO);
        while let Some(effect) = source.poll() {
            match effect {
                Effect::Message(Message::NewFiles(entries)) => inputs.push_front(decide(&entries)),
                Effect::Read { block, parts, .. } => {
                    reads.push(folder_of[parts[0].file.0 as usize]);
                    let outcome = read(parts[0].range, parts[0].file);
                    inputs.push_back(Input::ReadDone { block, outcome });
                }
                Effect::Send { head, .. } => inputs.push_back(Input::Sent { block: head.id }),
                _ => {}
            }
        }
    }
    assert_eq!(reads.len() as u64, 2 * files.iter().sum::<u64>());
    reads
}

#[test]
fn smallest_dataset_completes_first_in_any_listing_order() {
    let reads = reads(&[60, 20, 40], 126, 0);
    let mut order = [0, 1, 2];
    order.sort_by_key(|folder| reads.iter().rposition(|other| other == folder));
    assert_eq!(order, [1, 2, 0]);
}

#[test]
fn partly_listed_dataset_is_not_considered_small() {
    // The second folder is larger. The first batch contains ten of its files.
    let reads = reads(&[30, 200], 43, 40);
    assert!(reads[..40].iter().all(|folder| *folder == 0), "{reads:?}");
}

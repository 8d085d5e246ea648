//! Several sources with one sink. Each source lists its own part of the tree, and gets the results
//! of its own entries. The sources share the credit for the sink's targets. The test is a small
//! simulation without disks, in which events occur in a random order.

mod common;

use common::sink_config;
use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BufferId, ByteRange, End, Entry, EntryKind, Error, ErrorKind, FileIndex, Layout, Metadata,
    Name, PeerId, RelPath, StreamId, Sums, TargetId, Time,
};
use dray_sched::rng::Rng;
use dray_sched::tuner::threads::ThreadCount;
use dray_session::Outcome;
use dray_session::sink::{self, Facts, InspectTask, Inspected, Sink};
use dray_session::source::{self, Listed, ReadOutcome, Source};
use dray_wire::message::{Message, Segment, SegmentKind};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const OBJECT: u64 = 8;
const FILES: u64 = 5;
const BUFFERS: u32 = 3;

enum Event {
    Sink(sink::Input),
    Source(usize, source::Input),
}

struct Simulation {
    draw: Rng,
    now: Time,
    sink: Sink,
    sources: Vec<Source>,
    listings: Vec<Option<Vec<Listed>>>,
    /// Control messages in transit. In each direction, the messages keep their order.
    to_sink: Vec<VecDeque<Message>>,
    to_source: Vec<VecDeque<Message>>,
    events: Vec<Event>,
    free: Vec<BufferId>,
    paths: BTreeMap<FileIndex, RelPath>,
    /// True if the folder of source 1 cannot be created at the sink.
    is_blocked: bool,
    written: BTreeMap<FileIndex, u64>,
    published: Vec<RelPath>,
    /// Number of closed entries that the sink has reported to each source.
    closed: Vec<u64>,
    ends: Vec<Option<Outcome>>,
    sink_end: Option<Outcome>,
}

/// Returns checksums that depend on the source, so that a confusion of sources is detected.
fn sums(source: usize, range: ByteRange) -> Sums {
    Sums::of(&[source as u8, range.offset as u8, range.length as u8])
}

fn name(text: String) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

fn size(file: u64) -> u64 {
    // The sizes include small files, a single object, and several objects.
    [3, OBJECT, 5 * OBJECT + 1, 12 * OBJECT, 7][file as usize % 5]
}

/// Returns the listing of this source: a folder with files.
fn tree(source: usize) -> Vec<Listed> {
    let folder = format!("from-{source}");
    let listed = |index, parent, text: String, kind| Listed {
        path: RelPath::parse(text.as_bytes()).expect("a good path"),
        entry: Entry {
            index: FileIndex(index),
            parent,
            name: name(text),
            kind,
            metadata: Metadata::default(),
        },
        layout: Layout::Single(TargetId(0)),
    };
    let mut entries = vec![listed(0, None, folder.clone(), EntryKind::Directory)];
    for file in 0..FILES {
        let kind = EntryKind::File {
            size: size(file),
            sparse: false,
        };
        let parent = Some(FileIndex(0));
        entries.push(listed(file + 1, parent, format!("f{file}"), kind));
    }
    entries.push(listed(0, None, folder, EntryKind::DirectoryEnd));
    entries
}

impl Simulation {
    fn new(seed: u64, sources: usize) -> Self {
        let options = Options {
            object_bytes: OBJECT,
            ..Options::default()
        };
        let source = |seed| {
            Source::new(source::Config {
                options: options.clone(),
                buffers: 4,
                buffer_bytes: OBJECT,
                readers: ThreadCount::Fixed(2),
                segments_max: 4,
                live_entries_max: 4,
                retry: RetryPolicy::default(),
                seed,
                attempt: 1,
                is_driver: false,
                announces_early: false,
            })
        };
        let sink = Sink::new(sink_config(options.clone(), BUFFERS));
        let mut simulation = Self {
            draw: Rng::new(seed),
            now: Time::ZERO,
            sink,
            sources: (0..sources as u64).map(source).collect(),
            listings: (0..sources).map(|source| Some(tree(source))).collect(),
            to_sink: vec![VecDeque::new(); sources],
            to_source: vec![VecDeque::new(); sources],
            events: Vec::new(),
            free: (0..BUFFERS).map(BufferId).collect(),
            paths: BTreeMap::new(),
            is_blocked: false,
            written: BTreeMap::new(),
            published: Vec::new(),
            closed: vec![0; sources],
            ends: vec![None; sources],
            sink_end: None,
        };
        for source in 0..sources {
            let up = source::Input::StreamUp(StreamId(0));
            simulation.events.push(Event::Source(source, up));
            let up = sink::Input::PeerUp(PeerId(source as u16));
            simulation.handle(Event::Sink(up));
        }
        simulation
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Sink(input) => {
                self.sink.handle(input, self.now);
                while let Some(effect) = self.sink.poll() {
                    self.sink_does(effect);
                }
                assert!(self.sink.credit_out() <= BUFFERS);
            }
            Event::Source(source, input) => {
                self.sources[source].handle(input, self.now);
                while let Some(effect) = self.sources[source].poll() {
                    self.source_does(source, effect);
                }
            }
        }
    }

    fn sink_does(&mut self, effect: sink::Effect) {
        use sink::{Effect, Input};
        let input = match effect {
            Effect::Message(peer, message) => {
                let to = usize::from(peer.0);
                assert!(self.sink_end.is_none(), "nothing follows the end");
                if self.ends[to].is_none() {
                    self.to_source[to].push_back(message);
                }
                return;
            }
            Effect::Inspect(items) => {
                let look = |item: sink::InspectItem| {
                    let is_blocked = self.is_blocked && item.path.as_bytes() == b"from-1";
                    self.paths.insert(item.index, item.path);
                    let found = match item.task {
                        InspectTask::File(key) => Inspected::File(Facts {
                            existing: None,
                            resume: None,
                            layout: Layout::Single(TargetId(key.size as u32 % 3)),
                        }),
                        _ if is_blocked => Inspected::Failed(Error::new(
                            ErrorKind::NotADirectory,
                            End::Sink,
                            "make the folder",
                        )),
                        _ => Inspected::Made,
                    };
                    (item.index, found)
                };
                Input::Inspected(items.into_iter().map(look).collect())
            }
            Effect::Prepare { index, .. } => Input::Prepared(index, Ok(())),
            Effect::SetAdopted { index, .. } => Input::AdoptedSet(index, Ok(false)),
            Effect::Write { block, parts, .. } => {
                for part in &parts {
                    *self.written.entry(part.file).or_default() += part.range.length;
                }
                Input::Written(block, parts.iter().map(|_| Ok(())).collect())
            }
            Effect::Free(buffer) => {
                self.free.push(buffer);
                return;
            }
            Effect::Sync(group, _) => Input::Synced(group, Ok(Vec::new())),
            Effect::Log { group, .. } => Input::Logged(group, Ok(())),
            Effect::Publish(items) => {
                let publish = |item: sink::PublishItem| {
                    let path = &self.paths[&item.index];
                    assert_eq!(path, &item.path);
                    assert_eq!(self.written[&item.index], item.size, "{path}");
                    assert_eq!(
                        item.sums,
                        whole(path, item.size),
                        "{path}: the bytes of its source"
                    );
                    self.published.push(item.path);
                    (item.index, Ok(()))
                };
                Input::Published(items.into_iter().map(publish).collect())
            }
            Effect::SetDirectory { index, .. } => Input::DirectorySet(index, Ok(())),
            Effect::StoreVerdict(_) => Input::VerdictStored(Ok(())),
            Effect::FinishLog { .. } | Effect::Purge => Input::LogRemoved(Ok(())),
            Effect::End(outcome) => {
                self.sink_end = Some(outcome);
                return;
            }
            Effect::SetWriters(_) => return,
            Effect::ReadBack { .. } | Effect::CheckWritten { .. } => {
                unreachable!("not requested")
            }
            Effect::Discard(_) | Effect::CloseFile(_) | Effect::Report(_) => return,
        };
        self.events.push(Event::Sink(input));
    }

    fn source_does(&mut self, source: usize, effect: source::Effect) {
        use source::{Effect, Input};
        let input = match effect {
            Effect::Message(message) => {
                self.to_sink[source].push_back(message);
                return;
            }
            Effect::List { max } => {
                let entries = self.listings[source].as_mut().expect("it lists");
                let rest = entries.split_off(entries.len().min(max as usize).min(2));
                let entries = std::mem::replace(entries, rest);
                Input::Listed {
                    finished: self.listings[source].as_ref().is_some_and(Vec::is_empty),
                    entries,
                    failed: Vec::new(),
                }
            }
            Effect::Read { block, parts, .. } => {
                let segment = |part: source::ReadPart| Segment {
                    file: part.file,
                    range: part.range,
                    kind: SegmentKind::Data(sums(source, part.range)),
                };
                let outcome = ReadOutcome {
                    segments: parts.into_iter().map(segment).collect(),
                    ..ReadOutcome::default()
                };
                Input::ReadDone { block, outcome }
            }
            Effect::Send { head, .. } => {
                let block = head.id;
                let buffer = self.free.pop();
                assert!(buffer.is_some(), "credit is for buffers that are free");
                let arrived = sink::Input::BlockArrived {
                    peer: PeerId(source as u16),
                    head,
                    buffer,
                    verified: Ok(()),
                };
                self.events.push(Event::Sink(arrived));
                Input::Sent { block }
            }
            Effect::StoreVerdict(_) => Input::VerdictStored(Ok(())),
            Effect::End(outcome) => {
                self.ends[source] = Some(outcome);
                return;
            }
            Effect::CloseFile(_) => {
                self.closed[source] += 1;
                return;
            }
            Effect::Report(_) => return,
            Effect::GiveUp(stream, _) => panic!("{stream} carries"),
        };
        self.events.push(Event::Source(source, input));
    }

    /// Handles one event, chosen at random. Returns false if no event is left.
    fn handle_random_event(&mut self) -> bool {
        let mut ready: Vec<usize> = (0..self.events.len()).collect();
        let count = self.sources.len();
        let base = self.events.len();
        ready.extend(
            (0..count)
                .filter(|s| !self.to_sink[*s].is_empty())
                .map(|s| base + s),
        );
        let source = |s: &usize| !self.to_source[*s].is_empty();
        ready.extend((0..count).filter(source).map(|s| base + count + s));
        if ready.is_empty() {
            // If there are no events, advance the clock.
            self.now = self.now + Duration::from_millis(2);
            let wakes = self.sink.next_wake().is_some();
            self.handle(Event::Sink(sink::Input::Tick));
            return wakes;
        }
        let choice = ready[self.draw.below(ready.len() as u64) as usize];
        let event = if choice < base {
            self.events.swap_remove(choice)
        } else if choice < base + count {
            let from = choice - base;
            let message = self.to_sink[from].pop_front().expect("it waits");
            Event::Sink(sink::Input::Message(PeerId(from as u16), message))
        } else {
            let to = choice - base - count;
            let message = self.to_source[to].pop_front().expect("it waits");
            Event::Source(to, source::Input::Message(message))
        };
        self.handle(event);
        true
    }

    /// Simulates that the process of a source is killed and its connections are lost.
    fn kill_source(&mut self, source: usize) {
        self.ends[source] = Some(Outcome::Cancelled);
        self.to_sink[source].clear();
        self.to_source[source].clear();
        let peer = PeerId(source as u16);
        let events = std::mem::take(&mut self.events);
        for event in events {
            match event {
                Event::Source(other, _) if other == source => {}
                Event::Sink(sink::Input::BlockArrived {
                    peer: from, buffer, ..
                }) if from == peer => self.free.extend(buffer),
                other => self.events.push(other),
            }
        }
        let error = Error::new(ErrorKind::Unreachable, End::Network, "reach the source");
        self.handle(Event::Sink(sink::Input::PeerLost(peer, error)));
    }

    fn is_over(&self) -> bool {
        self.sink_end.is_some() && self.ends.iter().all(Option::is_some)
    }
}

fn whole(path: &RelPath, size: u64) -> Sums {
    let folder = path.components().next().expect("a folder");
    let source = usize::from(folder.as_bytes()[5] - b'0');
    (0..size.div_ceil(OBJECT))
        .map(|object| ByteRange::between(object * OBJECT, ((object + 1) * OBJECT).min(size)))
        .fold(Sums::EMPTY, |whole, range| {
            whole.then(sums(source, range), range.length)
        })
}

#[test]
fn each_source_gets_results_of_its_own_entries() {
    for seed in 0..300 {
        let sources = 2 + seed as usize % 2;
        let mut simulation = Simulation::new(seed, sources);
        for _ in 0..20_000 {
            if simulation.is_over() || !simulation.handle_random_event() {
                break;
            }
        }
        let sink = format!("seed {seed}: {:?}", simulation.sink_end);
        for (source, end) in simulation.ends.iter().enumerate() {
            let Some(Outcome::Done(totals)) = end else {
                panic!("{sink}, source {source}: {end:?}");
            };
            assert_eq!(totals.files, FILES * sources as u64, "{sink}");
            assert_eq!(
                simulation.closed[source],
                FILES + 1,
                "{sink}: and the folder"
            );
        }
        assert_eq!(simulation.published.len() as u64, FILES * sources as u64);
        assert_eq!(simulation.free.len(), BUFFERS as usize, "{sink}");
    }
}

#[test]
fn other_sources_continue_when_a_source_is_lost() {
    for seed in 0..300 {
        let mut simulation = Simulation::new(seed, 2);
        let lost_at = 5 + seed % 60;
        simulation.is_blocked = seed % 3 == 0;
        for step in 0..20_000 {
            if step == lost_at {
                simulation.kill_source(1);
            }
            if simulation.is_over() || !simulation.handle_random_event() {
                break;
            }
        }
        let Some(Outcome::Done(totals)) = &simulation.ends[0] else {
            panic!(
                "seed {seed}: {:?}, sink {:?}",
                simulation.ends, simulation.sink_end
            );
        };
        assert_eq!(simulation.closed[0], FILES + 1, "seed {seed}");
        // Each entry of the lost source fails once. One more error stands for the entries that the
        // source had not listed yet.
        assert!(totals.files_failed <= FILES + 2, "seed {seed}: {totals:?}");
        assert!(
            totals.files >= FILES && totals.files_failed > 0,
            "seed {seed}: {totals:?}"
        );
    }
}

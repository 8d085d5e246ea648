//! Many transfers write to one tree. Each transfer changes only its own files, and each file has a
//! single writer. If a transfer ends without finishing its files, another transfer resumes these
//! files.

mod local_common;

use dray_core::options::{Durability, Options};
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_runtime::{local, sink};
use dray_session::{Event, Outcome, Progress};
use dray_store::Store;
use dray_store::wrap::{Around, Call, Hook, Operation};
use dray_wire::message::Selection;
use local_common::{
    Notes, bytes, options, picture, sink_setup, sink_store, source_setup_of, source_store,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SIZE: usize = 3_000_000;

fn request(store: Arc<dyn Store>, id: &str, claims: &[&str]) -> Result<DestinationRequest> {
    Ok(DestinationRequest {
        store,
        above: None,
        claims: claims
            .iter()
            .map(|claim| RelPath::parse(claim.as_bytes()))
            .collect::<Result<_>>()?,
        transfer: TransferId::new(id)?,
        owner: b"uid:0".to_vec(),
        durability: Durability::Object,
        log: None,
        words: "the destination".to_owned(),
    })
}

fn durable() -> Options {
    Options {
        durability: Durability::Object,
        ..options()
    }
}

fn setup(aside: &Path, destination: Destination) -> sink::Setup {
    let mut setup = sink_setup(aside, &durable()).expect("a destination");
    setup.destination = destination;
    setup
}

/// A store wrapper that fails reads beyond the middle of a file, when the first part is durable.
struct Breaks;

impl Hook for Breaks {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if call.operation == Operation::Read && call.range.offset > 2_000_000 {
            std::thread::sleep(Duration::from_millis(300));
            return Err(Error::new(ErrorKind::PermissionDenied, End::Source, "read"));
        }
        Ok(())
    }
}

struct Scene {
    _scratch: tempfile::TempDir,
    from: PathBuf,
    to: PathBuf,
    aside: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        let from = scratch.path().join("from");
        fs::create_dir(&from).expect("a folder");
        for (seed, name) in ["ev0a", "ev0b", "ev1a", "ev1b"].into_iter().enumerate() {
            fs::write(from.join(name), bytes(seed as u64 + 1, SIZE)).expect("a file");
        }
        let (to, aside) = (scratch.path().join("to"), scratch.path().join("aside"));
        fs::create_dir(&to).expect("a folder");
        Self {
            _scratch: scratch,
            from,
            to,
            aside,
        }
    }

    /// Copies the entries that match `include` from `source` through `sink`, with the transfer id
    /// `id`.
    fn copy_by(
        &self,
        id: &str,
        include: &str,
        source: Arc<dyn Store>,
        sink: Arc<dyn Store>,
    ) -> (Outcome, Progress, Vec<Event>) {
        self.copy_with(Durability::Object, id, include, source, sink)
    }

    /// Does the same as [`Self::copy_by`], with this durability.
    fn copy_with(
        &self,
        durability: Durability,
        id: &str,
        include: &str,
        source: Arc<dyn Store>,
        sink: Arc<dyn Store>,
    ) -> (Outcome, Progress, Vec<Event>) {
        let mut request = request(sink, id, &[]).expect("good");
        request.durability = durability;
        let destination = Destination::open(request).expect("opens");
        let options = Options {
            durability,
            ..options()
        };
        let mut source = source_setup_of(source, &options);
        source.selection.include = vec![include.to_owned()];
        let notes = Notes::default();
        let mut sink = sink_setup(&self.aside, &options).expect("a destination");
        sink.destination = destination;
        let ends = local::run(source, sink, &notes, |_| {}).expect("started");
        let events = notes.0.into_inner().expect("no panic while noting");
        (ends.sink.0, ends.sink.1, events)
    }

    fn copy(&self, id: &str, include: &str) -> (Outcome, Progress, Vec<Event>) {
        let sink = sink_store(&self.to).expect("a store");
        self.copy_by(id, include, source_store(&self.from), sink)
    }

    /// Copies until every file fails after two thirds of its length.
    fn break_off(&self, id: &str, include: &str) {
        let source = Arc::new(Around::new(source_store(&self.from), Breaks));
        let sink = sink_store(&self.to).expect("a store");
        let (_, progress, _) = self.copy_by(id, include, source, sink);
        assert!(progress.files_failed > 0);
    }

    fn own_names(&self) -> Vec<String> {
        let mut names: Vec<String> = picture(&self.to).into_keys().collect();
        names.retain(|name| name.contains(".dray-"));
        names
    }

    fn check(&self, names: &[&str]) {
        for name in names {
            let (got, wanted) = (fs::read(self.to.join(name)), fs::read(self.from.join(name)));
            assert!(got.expect("there") == wanted.expect("there"), "{name}");
        }
    }
}

fn is_done(outcome: &Outcome, files: u64) -> bool {
    matches!(outcome, Outcome::Done(totals) if totals.files_failed == 0 && totals.files == files)
}

#[test]
fn a_successful_transfer_keeps_the_durable_data_of_another() {
    let scene = Scene::new();
    scene.break_off("va", "ev0*");
    let kept = scene.own_names();
    assert_eq!(
        kept.len(),
        5,
        "two partial files, log, lease and their folder: {kept:?}"
    );
    for (include, files) in [("ev1*", 2), ("none*", 0)] {
        let (outcome, ..) = scene.copy("vb", include);
        assert!(is_done(&outcome, files), "{outcome:?}");
        assert_eq!(scene.own_names(), kept);
    }
    let (outcome, progress, _) = scene.copy("va", "ev0*");
    assert!(is_done(&outcome, 2), "{outcome:?}");
    assert!(progress.bytes_resumed > 2_000_000, "{progress:?}");
    scene.check(&["ev0a", "ev0b", "ev1a", "ev1b"]);
    assert_eq!(scene.own_names(), [""; 0]);
}

#[test]
fn a_transfer_adopts_the_data_that_another_has_left() {
    let scene = Scene::new();
    scene.break_off("va", "ev0*");
    // Transfer vb copies one of the files of transfer va, and another file.
    let (outcome, progress, _) = scene.copy("vb", "ev?a");
    assert!(is_done(&outcome, 2), "{outcome:?}");
    assert!(progress.bytes_resumed > 1_000_000, "{progress:?}");
    // The other file of transfer va still belongs to va.
    let left = scene.own_names();
    assert_eq!(
        left.iter().filter(|name| name.ends_with(".part")).count(),
        1,
        "{left:?}"
    );
    let (outcome, progress, _) = scene.copy("va", "ev0*");
    assert!(is_done(&outcome, 1), "{outcome:?}");
    assert!(progress.bytes_resumed > 1_000_000 && progress.files_adopted == 1);
    scene.check(&["ev0a", "ev0b", "ev1a"]);
    assert_eq!(scene.own_names(), [""; 0]);
}

/// A store wrapper that fails the sync of an adopted file, and these calls for the log from then on.
struct LosesAdopted {
    of_log: &'static [Operation],
    is_broken: AtomicBool,
}

impl Hook for LosesAdopted {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        let is_failed = match call.operation {
            Operation::SyncEach => !self.is_broken.swap(true, Ordering::AcqRel),
            other => self.of_log.contains(&other) && self.is_broken.load(Ordering::Acquire),
        };
        match is_failed {
            true => Err(Error::new(ErrorKind::Io, End::Sink, "use the failing disk")),
            false => Ok(()),
        }
    }
}

/// The system reports a loss only once. If neither log records the loss, no transfer may continue
/// the file.
#[test]
fn a_loss_that_an_adoption_finds_is_in_the_log_or_the_file_is_removed() {
    use Operation::{ControlReplace, ControlSync, ControlWrite};
    // After a failed sync, the adopting log no longer has the record that begins the file.
    for of_log in [&[ControlWrite, ControlReplace][..], &[ControlSync]] {
        let scene = Scene::new();
        let source = Arc::new(Around::new(source_store(&scene.from), Breaks));
        let sink = sink_store(&scene.to).expect("a store");
        // Without syncs, an adoption syncs the file.
        scene.copy_with(Durability::None, "va", "ev0a", source, sink);
        let hook = LosesAdopted {
            of_log,
            is_broken: AtomicBool::new(false),
        };
        let sink = Around::new(sink_store(&scene.to).expect("a store"), hook);
        let source = source_store(&scene.from);
        let (outcome, ..) = scene.copy_by("vb", "ev0a", source, Arc::new(sink));
        assert!(!is_done(&outcome, 1), "{of_log:?}: {outcome:?}");
        let left = scene.own_names();
        assert!(
            !left.iter().any(|name| name.ends_with(".part")),
            "{of_log:?}: the file whose loss is not recorded stays: {left:?}"
        );
        let (outcome, ..) = scene.copy("vb", "ev0a");
        assert!(is_done(&outcome, 1), "{of_log:?}: {outcome:?}");
        scene.check(&["ev0a"]);
    }
}

#[test]
fn an_abandoned_log_is_removed_with_its_last_adopted_file() {
    let scene = Scene::new();
    scene.break_off("va", "ev0*");
    let (outcome, progress, _) = scene.copy("vb", "ev*");
    assert!(is_done(&outcome, 4), "{outcome:?}");
    assert!(progress.bytes_resumed > 2_000_000, "{progress:?}");
    assert_eq!(scene.own_names(), [""; 0]);
}

#[test]
fn a_file_with_other_content_takes_another_partial_name() {
    let scene = Scene::new();
    scene.break_off("va", "ev0a");
    fs::write(scene.from.join("ev0a"), bytes(99, SIZE)).expect("a file");
    let kept = scene.own_names();
    let (outcome, progress, _) = scene.copy("vb", "ev0a");
    assert!(is_done(&outcome, 1), "{outcome:?}");
    assert_eq!(progress.bytes_resumed, 0);
    scene.check(&["ev0a"]);
    assert_eq!(
        scene.own_names(),
        kept,
        "another transfer's is not ours to remove"
    );
}

/// A store wrapper that delays reads until another transfer has tried to write the same file.
struct Waits {
    read: AtomicU64,
    until: PathBuf,
}

impl Hook for Waits {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if call.operation == Operation::Read && call.range.offset > 1_000_000 {
            self.read.fetch_add(1, Ordering::Relaxed);
            for _ in 0..3_000 {
                if self.until.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

#[test]
fn one_file_has_one_writer_and_the_others_move() {
    let scene = Scene::new();
    let until = scene.from.with_file_name("until");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let hook = Waits {
                read: AtomicU64::new(0),
                until: until.clone(),
            };
            let source = Arc::new(Around::new(source_store(&scene.from), hook));
            let sink = sink_store(&scene.to).expect("a store");
            scene.copy_by("va", "ev0a", source, sink)
        });
        while !scene.own_names().iter().any(|name| name.ends_with(".part")) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(200));
        let (outcome, progress, events) = scene.copy("vb", "ev*");
        assert!(!first.is_finished(), "there were not two at once");
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        assert_eq!((progress.files_failed, progress.files_done), (1, 3));
        let refused = events.iter().find_map(|event| match event {
            Event::Failed(failure) => Some(&failure.error),
            _ => None,
        });
        let refused = refused.expect("one failed");
        assert_eq!(refused.kind, ErrorKind::LeaseHeld);
        assert_eq!(refused.status, dray_core::Status::Temporary);
        assert!(refused.cause.contains("transfer va"), "{refused}");
        fs::write(&until, b"").expect("written");
        let (outcome, progress, _) = first.join().expect("no panic");
        assert!(is_done(&outcome, 1), "{outcome:?}");
        assert_eq!(progress.bytes_resumed, 0);
    });
    scene.check(&["ev0a", "ev0b", "ev1a", "ev1b"]);
    let (outcome, progress, _) = scene.copy("vb", "ev*");
    assert!(is_done(&outcome, 0), "{outcome:?}");
    assert_eq!(progress.files_adopted, 4);
    assert_eq!(scene.own_names(), [""; 0]);
}

#[test]
fn many_concurrent_writers_of_one_tree_publish_every_file_whole() {
    let scene = Scene::new();
    for number in 0..40 {
        fs::write(
            scene.from.join(format!("small{number}")),
            bytes(number, 5_000),
        )
        .expect("a file");
    }
    // All transfers copy the whole tree concurrently. There are more transfers than partial names
    // that one file can have.
    let outcomes = std::thread::scope(|scope| {
        let begun: Vec<_> = (0..20)
            .map(|number| {
                let scene = &scene;
                scope.spawn(move || scene.copy(&format!("v{number}"), "*"))
            })
            .collect();
        let ended = begun.into_iter().map(|one| one.join().expect("no panic"));
        ended.collect::<Vec<_>>()
    });
    for (outcome, _, events) in &outcomes {
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        for event in events {
            if let Event::Failed(failure) = event {
                assert_eq!(
                    failure.error.kind,
                    ErrorKind::LeaseHeld,
                    "{:?}",
                    failure.error
                );
                assert!(failure.path.to_string().starts_with("ev"), "{failure:?}");
            }
        }
    }
    let (outcome, _, events) = scene.copy("last", "*");
    assert!(is_done(&outcome, 0), "{outcome:?} {events:?}");
    let mut got = picture(&scene.to);
    got.retain(|name, _| !name.contains(".dray-"));
    assert!(got == picture(&scene.from), "another tree has arrived");
    assert_eq!(scene.own_names(), [""; 0]);
}

#[test]
fn one_of_two_sessions_of_a_request_is_refused() {
    let scene = Scene::new();
    let include = |pattern: &str| Selection {
        include: vec![pattern.to_owned()],
        ..Selection::default()
    };
    let open = |id: &str, claims: &[&str], selection: &Selection| {
        let store = sink_store(&scene.to).expect("a store");
        Destination::open_for(request(store, id, claims).expect("good"), selection)
    };
    let held = open("one", &["run"], &include("a*")).expect("free");
    let refused = open("two", &["run"], &include("a*")).map(drop);
    let refused = refused.expect_err("the same names by the same patterns");
    assert_eq!(refused.kind, ErrorKind::LeaseHeld);
    assert!(refused.cause.contains("transfer one"), "{refused}");
    let other_patterns = open("two", &["run"], &include("b*")).expect("all names");
    let other_names = open("three", &["other"], &include("a*")).expect("all names");
    let unknown = open("four", &[], &include("a*")).expect("not known");
    let unknown_too = open("five", &[], &include("a*")).expect("not known");
    drop((held, other_patterns, other_names, unknown, unknown_too));
    open("two", &["run"], &include("a*"))
        .map(drop)
        .expect("free again");
    assert_eq!(scene.own_names(), [""; 0], "nothing began");
}

#[test]
fn another_owners_log_is_refused_before_its_lease_is_taken() {
    let scene = Scene::new();
    scene.break_off("va", "ev0a");
    let lease = |scene: &Scene| {
        let names = scene.own_names();
        let name = names
            .iter()
            .find(|name| name.ends_with(".lease"))
            .expect("a lease");
        fs::read(scene.to.join(name)).expect("read")
    };
    let before = lease(&scene);
    let store = || sink_store(&scene.to).expect("a store");
    let mut theirs = request(store(), "va", &[]).expect("good");
    theirs.owner = b"uid:1".to_vec();
    let refused = Destination::open(theirs)
        .map(drop)
        .expect_err("another owner's");
    assert_eq!(refused.kind, ErrorKind::PermissionDenied);
    assert!(lease(&scene) == before, "its lease was touched");
    // A log of another transfer blocks no writer.
    let mut theirs = request(store(), "vb", &[]).expect("good");
    theirs.owner = b"uid:1".to_vec();
    let kept = scene.own_names();
    let mut source = source_setup_of(source_store(&scene.from), &durable());
    source.selection.include = vec!["ev0a".to_owned()];
    let sink = setup(&scene.aside, Destination::open(theirs).expect("free"));
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(is_done(&ends.sink.0, 1), "{:?}", ends.sink.0);
    scene.check(&["ev0a"]);
    assert_eq!(scene.own_names(), kept);
}

/// A store wrapper that fails every call after the given number of changing calls, as if the
/// process had died.
struct Dies {
    left: Arc<AtomicU64>,
}

impl Hook for Dies {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        let changes = matches!(
            call.operation,
            Operation::RemoveControl
                | Operation::Discard
                | Operation::Remove
                | Operation::ControlWrite
                | Operation::ControlLock
        );
        let count = |left: u64| Some(left.saturating_sub(u64::from(changes)));
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        match left {
            Ok(0) => Err(Error::new(ErrorKind::Io, End::Sink, "live")),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_takeover_killed_at_any_step_loses_and_invents_no_data() {
    let (mut steps, mut resumed) = (0, 0);
    loop {
        let scene = Scene::new();
        scene.break_off("va", "ev0*");
        let left = Arc::new(AtomicU64::new(steps + 1));
        let dies = Dies {
            left: Arc::clone(&left),
        };
        let dying = Arc::new(Around::new(sink_store(&scene.to).expect("a store"), dies));
        let opened = Destination::open(request(dying, "vb", &[]).expect("good"));
        if let Ok(destination) = opened {
            let breaks = Around::new(source_store(&scene.from), Breaks);
            let mut source = source_setup_of(Arc::new(breaks), &durable());
            source.selection.include = vec!["ev0*".to_owned()];
            let sink = setup(&scene.aside, destination);
            local::run(source, sink, &Notes::default(), |_| {}).expect("started");
        }
        let died = left.load(Ordering::Relaxed) == 0;
        // The next transfer resumes the files. The next transfer is either the transfer whose
        // process died ("vb"), the transfer that was interrupted before ("va"), or a new transfer
        // ("vc").
        let next = ["vb", "va", "vc"][usize::try_from(steps).expect("few") % 3];
        let (outcome, progress, events) = scene.copy(next, "ev0*");
        assert!(
            is_done(&outcome, 2),
            "step {steps}, {next}: {outcome:?} {events:?}"
        );
        scene.check(&["ev0a", "ev0b"]);
        resumed += u64::from(progress.bytes_resumed > 2_000_000);
        assert!(
            progress.bytes_resumed > 2_000_000,
            "step {steps}, {next}: {progress:?}"
        );
        let parts = scene.own_names();
        assert!(
            !parts.iter().any(|name| name.ends_with(".part")),
            "step {steps}: {parts:?}"
        );
        if !died {
            break;
        }
        steps += 1;
        assert!(steps < 200, "it never ends");
    }
    assert!(
        steps > 12 && resumed > 12,
        "{steps} steps, {resumed} resumed"
    );
}

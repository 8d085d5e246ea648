//! Orphaned partial data goes: by age, and sooner while space is short. Never silently.
//!
//! Not for: finding and removing it (`dray_runtime::sweep`, whose rules nobody here can loosen).
//!
//! Invariant owned here: nothing is removed that the audit log has not been told of before.

use crate::audit::Audit;
use crate::config;
use crate::metrics::Metrics;
use crate::roots::{Root, Roots};
use dray_core::path::escape;
use dray_core::{Error, ErrorKind, ModifiedTime, RelPath, Result, TransferId};
use dray_runtime::sweep::{self, Found, Met, Place, Removed};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// After a start the transfers of before come first.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Orphans of one root that are thought of in one look, the oldest: the others are there in an hour.
const ORPHANS_MAX: usize = 10_000;

/// Things that could not be looked at, of which one look says so many.
const UNREADABLE_MAX: u32 = 20;

/// Work without a rest, and the rest after it: a quarter of one thread's time, and so of what it asks
/// of the storage (guess, revisit).
const WORK: Duration = Duration::from_millis(20);
/// See [`WORK`].
const REST: Duration = Duration::from_millis(60);

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What nobody has touched for so long,
    pub age: Duration,
    /// and the oldest of the rest while fewer bytes than this are free.
    pub space_min: Option<u64>,
    /// Whether it is only said.
    pub is_dry_run: bool,
}

impl From<&config::Janitor> for Policy {
    fn from(written: &config::Janitor) -> Self {
        Self {
            age: DAY.saturating_mul(written.age_days),
            space_min: written.space_min.map(|size| size.0),
            is_dry_run: written.dry_run,
        }
    }
}

/// Why something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is old.
    Age,
    /// Space is short.
    Space,
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Space => "space",
        }
    }
}

/// What the choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// Time since anybody touched it.
    pub age: Duration,
    /// Bytes that its removal sets free.
    pub bytes: u64,
}

/// Which of `orphans` go, the oldest first, when `free` bytes are free: by index, each with its reason.
#[must_use]
pub fn choose(orphans: &[Orphan], mut free: u64, policy: &Policy) -> Vec<(usize, Reason)> {
    let mut order: Vec<usize> = (0..orphans.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(orphans[*index].age));
    let mut chosen = Vec::new();
    for index in order {
        let orphan = &orphans[index];
        let reason = if orphan.age < sweep::AGE_MIN {
            continue;
        } else if orphan.age >= policy.age {
            Reason::Age
        } else if policy.space_min.is_some_and(|space_min| free < space_min) {
            Reason::Space
        } else {
            break;
        };
        free = free.saturating_add(orphan.bytes);
        chosen.push((index, reason));
    }
    chosen
}

/// Whether a transfer has not ended: its data is no orphan, however old.
pub type IsWanted = Box<dyn Fn(&TransferId) -> Result<bool> + Send + Sync>;

/// See the module's head.
pub struct Janitor {
    roots: Roots,
    policy: Policy,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    is_wanted: IsWanted,
    /// What a dry run has said already: root, path, when it was touched.
    said: Mutex<BTreeSet<(String, RelPath, ModifiedTime)>>,
}

impl Janitor {
    /// For these roots.
    #[must_use]
    pub fn new(
        roots: Roots,
        policy: Policy,
        audit: Arc<Audit>,
        metrics: Arc<Metrics>,
        is_wanted: IsWanted,
    ) -> Self {
        Self {
            roots,
            policy,
            audit,
            metrics,
            is_wanted,
            said: Mutex::default(),
        }
    }

    /// Looks once an hour, until `sleep` says that it is time to stop: it waits, and returns false then.
    pub fn run(&self, sleep: &dyn Fn(Duration) -> bool) {
        let mut wait = FIRST_LOOK;
        while sleep(wait) {
            let mut worked = Instant::now();
            let mut rest = || {
                if worked.elapsed() < WORK {
                    return true;
                }
                let goes_on = sleep(REST);
                worked = Instant::now();
                goes_on
            };
            self.look(SystemTime::now(), &mut rest);
            wait = LOOK_INTERVAL;
        }
    }

    /// Looks through all roots as of `now`. `rest` is called between folders and removals; when it
    /// returns false it is time to stop.
    pub fn look(&self, now: SystemTime, rest: &mut dyn FnMut() -> bool) {
        let mut said = BTreeSet::new();
        for root in self.roots.iter().filter(|root| !root.is_read_only) {
            if let Err(error) = self.look_in(root, now, rest, &mut said) {
                tracing::warn!(root = root.name(), "the janitor cannot look: {error}");
            }
        }
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    fn look_in(
        &self,
        root: &Root,
        now: SystemTime,
        rest: &mut dyn FnMut() -> bool,
        said: &mut BTreeSet<(String, RelPath, ModifiedTime)>,
    ) -> Result<()> {
        let place = Place::new(Arc::clone(root.export.store()), root.export.path())?;
        let Some(found) = self.find(root, &place, now, rest)? else {
            return Ok(());
        };
        let orphan = |one: &Found| Orphan {
            age: one.age(now),
            bytes: one.bytes,
        };
        let orphans: Vec<Orphan> = found.iter().map(orphan).collect();
        let free = root.export.store().free_space(&RelPath::root())?.free_bytes;
        for (index, reason) in choose(&orphans, free, &self.policy) {
            let one = &found[index];
            let line = line(root, one, reason, now);
            if self.policy.is_dry_run {
                let key = (root.name().to_owned(), one.path.clone(), one.changed);
                let before = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                if !before.contains(&key) {
                    self.tell(&line, "would_remove", None)?;
                }
                said.insert(key);
                continue;
            }
            if !rest() {
                return Ok(());
            }
            self.remove(&place, one, now, &line)?;
        }
        Ok(())
    }

    /// The oldest orphans of a root; nothing when it is time to stop.
    fn find(
        &self,
        root: &Root,
        place: &Place,
        now: SystemTime,
        rest: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<Found>>> {
        let mut oldest: BTreeMap<(ModifiedTime, RelPath), Found> = BTreeMap::new();
        let (mut unreadable, mut goes_on) = (0_u32, true);
        sweep::walk(place, now, &mut |met| {
            match met {
                Met::Folder => goes_on = rest(),
                Met::Found(found) if found.is_orphan(now) && !self.is_kept(&found) => {
                    oldest.insert((found.changed, found.path.clone()), found);
                    if oldest.len() > ORPHANS_MAX {
                        oldest.pop_last();
                    }
                }
                Met::Found(_) => {}
                Met::Unreadable(error) => {
                    unreadable += 1;
                    if unreadable <= UNREADABLE_MAX {
                        tracing::warn!(
                            root = root.name(),
                            "the janitor leaves what it cannot read: {error}"
                        );
                    }
                }
            }
            match goes_on {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(goes_on.then(|| oldest.into_values().collect()))
    }

    /// Whether a transfer of ours still wants it; one that cannot be asked about does.
    fn is_kept(&self, found: &Found) -> bool {
        let asked = found
            .transfer
            .as_ref()
            .map(|transfer| (self.is_wanted)(transfer));
        asked.is_some_and(|wanted| wanted.unwrap_or(true))
    }

    fn remove(&self, place: &Place, one: &Found, now: SystemTime, line: &Value) -> Result<()> {
        if self.is_kept(one) {
            return Ok(());
        }
        self.tell(line, "removes", None)?;
        match sweep::remove(place, one, now) {
            Ok(Removed::All { files, bytes }) => {
                self.metrics
                    .janitor_removed
                    .fetch_add(files, Ordering::Relaxed);
                let mut line = line.clone();
                line["files"] = json!(files);
                line["bytes"] = json!(bytes);
                self.tell(&line, "removed", None)
            }
            Ok(Removed::Left) => self.tell(line, "left", None),
            Err(error) if error.kind == ErrorKind::LeaseHeld => {
                self.tell(line, "left", Some(&error))
            }
            Err(error) => self.tell(line, "failed", Some(&error)),
        }
    }

    fn tell(&self, line: &Value, did: &str, error: Option<&Error>) -> Result<()> {
        let mut line = line.clone();
        line["did"] = json!(did);
        line["error"] = json!(error.map(ToString::to_string));
        self.audit.swept(line)
    }
}

fn line(root: &Root, one: &Found, reason: Reason, now: SystemTime) -> Value {
    json!({
        "root": root.name(),
        "path": one.path.to_string(),
        "what": one.what.name(),
        "owner": one.owner.as_deref().map(escape),
        "transfer": one.transfer.as_ref().map(TransferId::as_str),
        "files": one.files,
        "bytes": one.bytes,
        "age_seconds": one.age(now).as_secs(),
        "reason": reason.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Janitor, Orphan, Policy, Reason, choose};
    use crate::audit::Audit;
    use crate::config::Config;
    use crate::metrics::Metrics;
    use crate::roots::Roots;
    use dray_core::options::Durability;
    use dray_core::{ContentKey, ModifiedTime, RelPath, TransferId};
    use dray_log::{
        BootId, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Tenure, UniversalLog, place,
    };
    use dray_runtime::export::Within;
    use proptest::prelude::*;
    use serde_json::Value;
    use std::num::NonZeroU64;
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, SystemTime};

    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn policy(days: u32, space_min: Option<u64>) -> Policy {
        Policy {
            age: DAY * days,
            space_min,
            is_dry_run: false,
        }
    }

    fn orphan(age: Duration, bytes: u64) -> Orphan {
        Orphan { age, bytes }
    }

    #[test]
    fn the_old_go_and_the_oldest_of_the_rest_while_space_is_short() {
        let orphans = [
            orphan(2 * DAY, 10),
            orphan(40 * DAY, 10),
            orphan(5 * DAY, 10),
            orphan(HOUR / 2, 1_000),
            orphan(31 * DAY, 10),
        ];
        let age = |index| (index, Reason::Age);
        let space = |index| (index, Reason::Space);
        assert_eq!(choose(&orphans, 0, &policy(30, None)), [age(1), age(4)]);
        // Twenty come with age alone.
        assert_eq!(
            choose(&orphans, 30, &policy(30, Some(50))),
            [age(1), age(4)]
        );
        assert_eq!(
            choose(&orphans, 30, &policy(30, Some(51))),
            [age(1), age(4), space(2)]
        );
        let all = [age(1), age(4), space(2), space(0)];
        assert_eq!(choose(&orphans, 0, &policy(30, Some(u64::MAX))), all);
        // Not even a policy of no days takes what is younger than an hour.
        assert_eq!(choose(&orphans[3..4], 0, &policy(0, Some(u64::MAX))), []);
        assert_eq!(choose(&[], 0, &policy(0, Some(1))), []);
    }

    proptest! {
        #[test]
        fn no_more_goes_than_age_and_space_ask_for(
            ages in proptest::collection::vec((0_u64..100, 0_u64..1_000), 0..40),
            free in 0_u64..10_000,
            space_min in proptest::option::of(0_u64..10_000),
            days in 0_u32..100,
        ) {
            let orphans: Vec<Orphan> = ages
                .iter()
                .map(|(hours, bytes)| orphan(HOUR * u32::try_from(hours * 12).unwrap_or(0), *bytes))
                .collect();
            let policy = policy(days, space_min);
            let chosen = choose(&orphans, free, &policy);
            let mut free = free;
            for (place, (index, reason)) in chosen.iter().enumerate() {
                let one = &orphans[*index];
                prop_assert!(one.age >= HOUR);
                prop_assert!(place == 0 || orphans[chosen[place - 1].0].age >= one.age);
                prop_assert_eq!(*reason == Reason::Age, one.age >= policy.age);
                if *reason == Reason::Space {
                    prop_assert!(free < space_min.unwrap_or(0));
                }
                free += one.bytes;
            }
            let left = (0..orphans.len()).filter(|index| !chosen.iter().any(|(at, _)| at == index));
            for index in left {
                let one = &orphans[index];
                prop_assert!(one.age < HOUR || one.age < policy.age);
                prop_assert!(one.age < HOUR || free >= space_min.unwrap_or(0));
            }
        }
    }

    struct House {
        folder: tempfile::TempDir,
        roots: Roots,
    }

    impl House {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            for name in ["data", "fixed"] {
                std::fs::create_dir(folder.path().join(name)).expect("a folder");
            }
            let at = folder.path().display();
            let text = format!(
                "name = \"here\"\nstate = \"{at}\"\n\
                 [[root]]\nname = \"data\"\npath = \"{at}/data\"\n\
                 [[root]]\nname = \"fixed\"\npath = \"{at}/fixed\"\nread_only = true\n"
            );
            let config = Config::parse("test", &text).expect("a configuration");
            let roots = Roots::open(&config).expect("opens");
            Self { folder, roots }
        }

        fn data(&self) -> std::path::PathBuf {
            self.folder.path().join("data")
        }

        /// A partial file that no log speaks of.
        fn stray(&self, at: &str, bytes: &[u8]) {
            let path = self
                .folder
                .path()
                .join(at)
                .join(".dray-0123456789abcdef.part");
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, bytes).expect("written");
        }

        /// What a transfer that broke off has left: a partial file, and the log that speaks of it.
        fn broken_off(&self, transfer: &str, bytes: u64) {
            let top = self.data().join(transfer);
            std::fs::create_dir_all(top.join(".dray-log")).expect("made");
            let path = RelPath::parse(b"large").expect("a path");
            let name = place::partial_name(&path.name().expect("a name")).expect("a name");
            let partial = top.join(name.to_string());
            std::fs::write(&partial, vec![1; usize::try_from(bytes).expect("small")])
                .expect("written");
            let state = std::fs::metadata(&partial).expect("a file");
            let tenure = Tenure {
                epoch: 1,
                holder: "a test".to_owned(),
                transfer: TransferId::new(transfer).expect("an id"),
                boot_id: BootId::new(&[1; 16]).expect("an id"),
                durability: Durability::File,
            };
            let header = Header::new(Vec::new(), b"alice".to_vec(), 1, "test", tenure);
            let mut log = UniversalLog::create(MemoryFile::new(), header).expect("memory");
            let begun = log.begin_file(FileBegin {
                path,
                key: ContentKey {
                    size: bytes,
                    demanded: None,
                    modified: ModifiedTime::default(),
                    precision_nanoseconds: 1,
                    identity: Vec::new(),
                },
                object_bytes: NonZeroU64::MIN,
                partial: PartialFile {
                    name,
                    device: state.dev(),
                    inode: state.ino(),
                    born: 0,
                },
            });
            begun.expect("begun");
            log.commit().expect("committed");
            let log_name = place::log_name(&[]).expect("a name").to_string();
            std::fs::write(
                top.join(".dray-log").join(log_name),
                log.into_file().bytes(),
            )
            .expect("written");
        }

        fn janitor(&self, policy: Policy, wanted: &'static str) -> (Janitor, Arc<Metrics>) {
            let audit = Audit::open(Some(&self.folder.path().join("audit"))).expect("opens");
            let metrics = Arc::new(Metrics::default());
            let janitor = Janitor::new(
                self.roots.clone(),
                policy,
                Arc::new(audit),
                Arc::clone(&metrics),
                Box::new(move |id| Ok(id.as_str() == wanted)),
            );
            (janitor, metrics)
        }

        fn audited(&self) -> Vec<Value> {
            let text = std::fs::read_to_string(self.folder.path().join("audit"));
            let text = text.unwrap_or_default();
            let lines = text
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"));
            lines.collect()
        }
    }

    fn now(later: Duration) -> SystemTime {
        SystemTime::now() + later
    }

    fn is_there(house: &House, transfer: &str) -> bool {
        house.data().join(transfer).join(".dray-log").exists()
    }

    #[test]
    fn what_goes_is_audited_before_and_after() {
        let house = House::new();
        house.broken_off("gone", 50_000);
        house.broken_off("waits", 50_000);
        house.stray("data/deep/down", b"x");
        house.stray("fixed", b"x");
        let (janitor, metrics) = house.janitor(policy(30, None), "waits");
        janitor.look(now(29 * DAY), &mut || true);
        assert!(house.audited().is_empty(), "all of it is young");
        janitor.look(now(31 * DAY), &mut || true);
        let lines = house.audited();
        let of = |path: &str| -> Vec<&Value> {
            let is_of = |line: &&Value| line["path"].as_str().is_some_and(|at| at.contains(path));
            lines.iter().filter(is_of).collect()
        };
        let gone = of("gone/");
        assert_eq!(gone.len(), 2, "{lines:?}");
        assert_eq!(
            (&gone[0]["did"], &gone[1]["did"]),
            (&"removes".into(), &"removed".into())
        );
        for line in gone {
            assert_eq!(
                (&line["audit"], &line["root"]),
                (&"swept".into(), &"data".into())
            );
            assert_eq!(
                (&line["owner"], &line["transfer"]),
                (&"alice".into(), &"gone".into())
            );
            assert_eq!(
                (&line["what"], &line["reason"]),
                (&"log".into(), &"age".into())
            );
            assert_eq!((&line["files"], &line["error"]), (&1.into(), &Value::Null));
            assert!(line["bytes"].as_u64() >= Some(50_000) && line["age_seconds"].is_u64());
        }
        assert_eq!(of("deep/down/.dray-0123456789abcdef.part").len(), 2);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(!is_there(&house, "gone") && is_there(&house, "waits"));
        assert!(
            house
                .folder
                .path()
                .join("fixed/.dray-0123456789abcdef.part")
                .exists()
        );
        assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_cannot_be_told_of_is_not_removed() {
        let house = House::new();
        house.broken_off("old", 50_000);
        let (mut janitor, metrics) = house.janitor(policy(30, None), "");
        let full = std::path::Path::new("/dev/full");
        janitor.audit = Arc::new(Audit::open(Some(full)).expect("opens"));
        janitor.look(now(31 * DAY), &mut || true);
        assert!(is_there(&house, "old"));
        assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn while_space_is_short_the_young_go_too_but_not_within_the_hour() {
        let house = House::new();
        house.broken_off("young", 50_000);
        let (janitor, _) = house.janitor(policy(30, Some(u64::MAX)), "");
        janitor.look(now(HOUR / 2), &mut || true);
        assert!(house.audited().is_empty());
        janitor.look(now(2 * HOUR), &mut || true);
        assert_eq!(house.audited()[0]["reason"], "space");
        assert!(!is_there(&house, "young"));
    }

    #[test]
    fn a_dry_run_says_each_thing_once_and_removes_nothing() {
        let house = House::new();
        house.broken_off("old", 50_000);
        let dry = Policy {
            is_dry_run: true,
            ..policy(30, None)
        };
        let (janitor, metrics) = house.janitor(dry, "");
        janitor.look(now(31 * DAY), &mut || true);
        janitor.look(now(32 * DAY), &mut || true);
        let lines = house.audited();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["did"], "would_remove");
        assert!(is_there(&house, "old"));
        assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_transfer_that_holds_its_data_keeps_it() {
        let house = House::new();
        house.broken_off("held", 50_000);
        let within = Within {
            folder: b"held".to_vec(),
            claims: Vec::new(),
            transfer: TransferId::new("held").expect("an id"),
            owner: b"alice".to_vec(),
            durability: Durability::File,
        };
        let root = house.roots.named("data").expect("the root");
        let held = root.export.destination(within).expect("goes on");
        let (janitor, _) = house.janitor(policy(30, Some(u64::MAX)), "");
        janitor.look(now(400 * DAY), &mut || true);
        assert!(house.audited().is_empty());
        drop(held);
        assert!(is_there(&house, "held"));
        janitor.look(now(400 * DAY), &mut || true);
        assert!(!is_there(&house, "held"));
    }

    #[test]
    fn it_stops_when_it_is_told_to() {
        let house = House::new();
        house.broken_off("old", 1);
        let (janitor, _) = house.janitor(policy(30, None), "");
        let mut folders = 0;
        janitor.look(now(31 * DAY), &mut || {
            folders += 1;
            folders < 2
        });
        assert!(house.audited().is_empty() && is_there(&house, "old"));
        let slept = std::cell::RefCell::new(Vec::new());
        janitor.run(&|wait| {
            slept.borrow_mut().push(wait);
            slept
                .borrow()
                .iter()
                .filter(|wait| **wait >= super::FIRST_LOOK)
                .count()
                < 3
        });
        let long: Vec<Duration> = slept.into_inner();
        assert_eq!(long.first(), Some(&super::FIRST_LOOK));
        assert_eq!(long.last(), Some(&super::LOOK_INTERVAL));
    }
}

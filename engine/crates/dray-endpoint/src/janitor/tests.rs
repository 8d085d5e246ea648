use super::{Janitor, Policy};
use crate::audit::Audit;
use crate::metrics::Metrics;
use dray_config::Config;
use dray_config::roots::Roots;
use dray_core::options::Durability;
use dray_core::{ContentKey, ModifiedTime, RelPath, TransferId};
use dray_log::{
    BootId, FileBegin, Header, MemoryFile, ObjectLog, PartialFile, Tenure, UniversalLog, layout,
};
use dray_open::export::Within;
use serde_json::Value;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn policy(days: u32, space_min: Option<u64>) -> Policy {
    Policy {
        age: DAY * days,
        space_min,
        is_dry_run: false,
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    roots: Roots,
}

impl Fixture {
    fn new() -> Self {
        Self::with("path = \"AT/data\"")
    }

    /// Returns a fixture whose root `data` has these settings. `AT` stands for the folder of the
    /// fixture.
    fn with(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["data", "more", "fixed"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let at = folder.path().display();
        let settings = settings.replace("AT", &at.to_string());
        let text = format!(
            "name = \"here\"\nstate = \"{at}\"\n\
             [[root]]\nname = \"data\"\n{settings}\n\
             [[root]]\nname = \"fixed\"\npath = \"{at}/fixed\"\nread_only = true\n"
        );
        let config = Config::parse("test", &text).expect("a configuration");
        let roots = Roots::open(&config).expect("opens");
        Self { folder, roots }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Creates a partial file that is in no log.
    fn stray(&self, at: &str, bytes: &[u8]) {
        let path = self
            .folder
            .path()
            .join(at)
            .join(".dray-0123456789abcdef.part");
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }

    /// Creates the files of an interrupted transfer: a partial file, and a log with an entry for
    /// the file.
    fn broken_off(&self, transfer: &str, bytes: u64) {
        self.broken_off_on(["data", "data"], transfer, bytes);
    }

    /// Does the same as [`Self::broken_off`], with the log and the partial file on these disks.
    fn broken_off_on(&self, [log_disk, disk]: [&str; 2], transfer: &str, bytes: u64) {
        let top = self.folder.path().join(log_disk).join(transfer);
        std::fs::create_dir_all(top.join(".dray-log")).expect("made");
        let disk = self.folder.path().join(disk).join(transfer);
        std::fs::create_dir_all(&disk).expect("made");
        let path = RelPath::parse(b"large").expect("a path");
        let name = layout::partial_name(&path.name().expect("a name")).expect("a name");
        let partial = disk.join(name.to_string());
        std::fs::write(&partial, vec![1; usize::try_from(bytes).expect("small")]).expect("written");
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
                born: born(&state),
            },
        });
        begun.expect("begun");
        log.commit().expect("committed");
        let id = TransferId::new(transfer).expect("an id");
        let log_name = layout::log_name(&[], &id).expect("a name").to_string();
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

/// Returns the creation time in nanoseconds since 1970, or 0 if it is unknown.
fn born(state: &std::fs::Metadata) -> u64 {
    let since = state
        .created()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).expect("before 2554")
    })
}

fn now(later: Duration) -> SystemTime {
    SystemTime::now() + later
}

fn is_there(fixture: &Fixture, transfer: &str) -> bool {
    fixture.data().join(transfer).join(".dray-log").exists()
}

#[test]
fn each_removal_is_audited_before_and_after() {
    let fixture = Fixture::new();
    fixture.broken_off("gone", 50_000);
    fixture.broken_off("waits", 50_000);
    fixture.stray("data/deep/down", b"x");
    fixture.stray("fixed", b"x");
    let (janitor, metrics) = fixture.janitor(policy(30, None), "waits");
    janitor.look(now(29 * DAY), &mut || true);
    assert!(fixture.audited().is_empty(), "all of it is young");
    janitor.look(now(31 * DAY), &mut || true);
    let lines = fixture.audited();
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
    assert!(!is_there(&fixture, "gone") && is_there(&fixture, "waits"));
    assert!(
        fixture
            .folder
            .path()
            .join("fixed/.dray-0123456789abcdef.part")
            .exists()
    );
    assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 2);
}

#[test]
fn all_disks_of_a_root_are_swept() {
    let fixture = Fixture::with("dirs = [\"AT/data\", \"AT/more\"]");
    let at = |below: &str| fixture.folder.path().join(below);
    fixture.broken_off_on(["data", "more"], "gone", 50_000);
    fixture.broken_off_on(["more", "more"], "direct", 50_000);
    fixture.broken_off_on(["data", "more"], "waits", 50_000);
    fixture.stray("data/deep", b"x");
    fixture.stray("more/deep", b"x");
    let (janitor, metrics) = fixture.janitor(policy(30, None), "waits");
    janitor.look(now(29 * DAY), &mut || true);
    assert!(fixture.audited().is_empty(), "all of it is young");
    janitor.look(now(31 * DAY), &mut || true);
    let lines = fixture.audited();
    let mut removed: Vec<(String, &Value)> = lines
        .iter()
        .filter(|line| line["did"] == "removed")
        .map(|line| {
            let disk = line["disk"].as_str().expect("a disk");
            let disk = disk.rsplit('/').next().expect("a name");
            let path = line["path"].as_str().expect("a path");
            let folder = path.split('/').next().expect("a name");
            (format!("{disk}/{folder}"), &line["files"])
        })
        .collect();
    removed.sort_by(|one, other| one.0.cmp(&other.0));
    let one = &Value::from(1);
    let wanted = ["data/deep", "data/gone", "more/deep", "more/direct"];
    let wanted = wanted.map(|place| (place.to_owned(), one));
    assert_eq!(removed, wanted, "{lines:?}");
    let is_empty = |below: &str| std::fs::read_dir(at(below)).expect("listed").count() == 0;
    for below in ["data/gone", "more/gone", "more/direct", "more/deep"] {
        assert!(is_empty(below), "{below}");
    }
    assert!(!is_empty("data/waits") && !is_empty("more/waits"));
    assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 4);
}

#[test]
fn a_root_with_a_missing_disk_is_not_swept() {
    let fixture = Fixture::with("dirs = [\"AT/data\", \"AT/more\"]");
    fixture.stray("data/deep", b"x");
    let more = fixture.folder.path().join("more");
    std::fs::rename(&more, more.with_extension("away")).expect("renamed");
    std::fs::create_dir(&more).expect("a folder");
    let (janitor, metrics) = fixture.janitor(policy(30, None), "");
    janitor.look(now(31 * DAY), &mut || true);
    assert!(fixture.audited().is_empty());
    assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_is_removed_that_cannot_be_audited() {
    let fixture = Fixture::new();
    fixture.broken_off("old", 50_000);
    let (mut janitor, metrics) = fixture.janitor(policy(30, None), "");
    let full = std::path::Path::new("/dev/full");
    janitor.audit = Arc::new(Audit::open(Some(full)).expect("opens"));
    janitor.look(now(31 * DAY), &mut || true);
    assert!(is_there(&fixture, "old"));
    assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 0);
}

#[test]
fn short_space_removes_young_orphans_but_none_under_an_hour() {
    let fixture = Fixture::new();
    fixture.broken_off("young", 50_000);
    let (janitor, _) = fixture.janitor(policy(30, Some(u64::MAX)), "");
    janitor.look(now(HOUR / 2), &mut || true);
    assert!(fixture.audited().is_empty());
    janitor.look(now(2 * HOUR), &mut || true);
    assert_eq!(fixture.audited()[0]["reason"], "space");
    assert!(!is_there(&fixture, "young"));
}

#[test]
fn a_dry_run_reports_each_orphan_once_and_removes_none() {
    let fixture = Fixture::new();
    fixture.broken_off("old", 50_000);
    let dry = Policy {
        is_dry_run: true,
        ..policy(30, None)
    };
    let (janitor, metrics) = fixture.janitor(dry, "");
    janitor.look(now(31 * DAY), &mut || true);
    janitor.look(now(32 * DAY), &mut || true);
    let lines = fixture.audited();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["did"], "would_remove");
    assert!(is_there(&fixture, "old"));
    assert_eq!(metrics.janitor_removed.load(Ordering::Relaxed), 0);
}

#[test]
fn a_transfer_that_holds_its_data_keeps_it() {
    let fixture = Fixture::new();
    fixture.broken_off("held", 50_000);
    let within = Within {
        folder: b"held".to_vec(),
        claims: Vec::new(),
        transfer: TransferId::new("held").expect("an id"),
        owner: b"alice".to_vec(),
        durability: Durability::File,
        stripes: None,
    };
    let root = fixture.roots.named("data").expect("the root");
    let held = root.export.destination(within).expect("goes on");
    let (janitor, _) = fixture.janitor(policy(30, Some(u64::MAX)), "");
    janitor.look(now(400 * DAY), &mut || true);
    assert!(fixture.audited().is_empty());
    drop(held);
    assert!(is_there(&fixture, "held"));
    janitor.look(now(400 * DAY), &mut || true);
    assert!(!is_there(&fixture, "held"));
}

#[test]
fn the_janitor_stops_with_the_endpoint() {
    let fixture = Fixture::new();
    fixture.broken_off("old", 1);
    let (janitor, _) = fixture.janitor(policy(30, None), "");
    let mut folders = 0;
    janitor.look(now(31 * DAY), &mut || {
        folders += 1;
        folders < 2
    });
    assert!(fixture.audited().is_empty() && is_there(&fixture, "old"));
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
